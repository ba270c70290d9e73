//! The target of operations is killed. Who goes on with operations on its part is told, by each call that covers them.

use super::{Case, DOOMED};
use crate::kit::{PATIENCE, die, fails, leave_number, names_failure, say, until, until_dead};
use std::time::Instant;
use tickwire::{Engine, LockKind, Window, WindowError};

/// How often something is repeated after the death is known.
const TIMES: usize = 3;

/// Repeats a call until it fails, without a tick in between. The error names a failure.
fn until_failed(mut call: impl FnMut() -> Result<(), WindowError>) {
    let start = Instant::now();
    let error = loop {
        assert!(start.elapsed() < PATIENCE, "it never learns of the death");
        if let Err(error) = call() {
            break error;
        }
    };
    names_failure("a call without ticks", &error);
}

impl Case<'_> {
    /// Waits until the rank to be killed is dead, and nobody has noticed. Each survivor has put to its part before.
    fn dies_unnoticed(&mut self) {
        if self.is_doomed() {
            until(self.engine, self.place, &["put-0", "put-1"]);
            leave_number(self.place);
            die(self.place);
        }
        say(self.place, &format!("put-{}", self.me.0));
        until_dead(self.place);
    }

    /// Within an epoch towards all members, the survivors go on with puts and flushes.
    pub(super) fn noticed_by_flushes(&mut self) {
        let parts = self.parts();
        let (window, at, is_mapped) = (parts.window, parts.at(DOOMED, 0), self.by_memory());
        self.all_lock(window);
        let flush: fn(&mut Engine, Window<u64>) -> Result<(), WindowError> = match self.me.0 {
            0 => |engine, window| engine.win_flush(DOOMED, window),
            _ => Engine::win_flush_all,
        };
        if !self.is_doomed() {
            self.engine.put(&[1], DOOMED, at, window).unwrap();
            flush(self.engine, window).unwrap();
        }
        self.dies_unnoticed();
        let (other, place) = (self.other(), self.place);
        let engine = &mut *self.engine;
        until_failed(|| engine.put(&[1], DOOMED, at, window).and_then(|()| flush(engine, window)));
        for round in 0..TIMES as u64 {
            assert_eq!(engine.put(&[round], DOOMED, at, window).is_ok(), is_mapped, "memory stays");
            fails(place, "win_flush", || engine.win_flush(DOOMED, window));
            fails(place, "win_flush_all", || engine.win_flush_all(window));
            fails(place, "win_flush_local", || engine.win_flush_local(DOOMED, window));
            fails(place, "win_flush_local_all", || engine.win_flush_local_all(window));
            // That is no failure of the other survivor's part.
            engine.put(&[round], other, parts.at(other, 0), window).unwrap();
            engine.win_flush(other, window).unwrap();
        }
        fails(place, "win_unlock_all", || engine.win_unlock_all(window));
        let ended = engine.win_unlock_all(window);
        assert!(matches!(ended, Err(WindowError::NothingOpen { .. })), "the epoch has ended: {ended:?}");
        // An epoch without the dead member does not fail because of it.
        engine.win_lock(LockKind::Shared, other, window).unwrap();
        engine.put(&[7], other, parts.at(other, 0), window).unwrap();
        engine.win_flush_all(window).unwrap();
        engine.win_unlock(other, window).unwrap();
        fails(place, "win_free", || engine.win_free(window));
    }

    /// The survivors go on with epochs towards the killed member, one after another.
    pub(super) fn noticed_by_unlocks(&mut self) {
        let parts = self.parts();
        let (window, at) = (parts.window, parts.at(DOOMED, 0));
        let (far, place, is_mapped) = (self.far, self.place, self.by_memory());
        let epoch = |engine: &mut Engine| -> Result<(), WindowError> {
            engine.win_lock(LockKind::Shared, DOOMED, window)?;
            let put = engine.put(&[1], DOOMED, at, window);
            let unlocked = engine.win_unlock(DOOMED, window);
            put.and(unlocked)
        };
        if !self.is_doomed() {
            epoch(self.engine).unwrap();
        }
        self.dies_unnoticed();
        let engine = &mut *self.engine;
        until_failed(|| epoch(engine));
        for _ in 0..TIMES {
            match engine.win_lock(LockKind::Shared, DOOMED, window) {
                Ok(()) => {
                    assert_eq!(engine.put(&[1], DOOMED, at, window).is_ok(), is_mapped, "memory stays");
                    // The next round opens the epoch again, so this ends it.
                    fails(place, "win_unlock", || engine.win_unlock(DOOMED, window));
                }
                Err(error) => {
                    assert!(far, "the lock is in memory: {error}");
                    names_failure("win_lock", &error);
                }
            }
        }
        fails(place, "win_free", || engine.win_free(window));
    }

    /// The killed member has posted its part. The survivors learn of the death by flushes, and still have to complete
    /// their epoch.
    pub(super) fn noticed_before_complete(&mut self) {
        let parts = self.parts();
        let (window, at) = (parts.window, parts.at(DOOMED, 0));
        let [survivors, doomed] = [&[0, 1][..], &[2]].map(|ranks| self.group(ranks));
        if self.is_doomed() {
            self.engine.win_post(&survivors, window).unwrap();
        } else {
            self.engine.win_start(&doomed, window).unwrap();
            self.engine.put(&[1], DOOMED, at, window).unwrap();
        }
        self.dies_unnoticed();
        let (engine, place) = (&mut *self.engine, self.place);
        until_failed(|| engine.put(&[1], DOOMED, at, window).and_then(|()| engine.win_flush(DOOMED, window)));
        fails(place, "win_flush", || engine.win_flush(DOOMED, window));
        fails(place, "win_complete", || engine.win_complete(window));
        let ended = engine.win_complete(window);
        assert!(matches!(ended, Err(WindowError::NothingOpen { .. })), "the epoch has ended: {ended:?}");
        fails(place, "win_free", || engine.win_free(window));
        self.without_the_dead();
    }
}
