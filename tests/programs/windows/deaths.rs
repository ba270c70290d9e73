//! The last of three ranks is killed in the middle of one-sided operations. The others get an error in time where they
//! need that rank. Where they do not, they go on.

mod epochs;
mod targets;

use crate::kit::{
    PATIENCE, compute_until, die, die_at_write, die_later, fails, leave_number, names_failure, others_go_on, outlives,
    said, say, tick_for, until, until_dead,
};
use std::path::Path;
use std::time::Duration;
use tickwire::{Comm, ENV_TRANSPORTS, Engine, LockKind, Rank, Window, WindowError, WindowReach, op};
use tickwire_tests::one_sided::{COPIED, HEAP, KINDS, Parts};

/// Elements of a part. An update of all of them takes several requests and a lock.
const COUNT: usize = 20_000;
/// The rank that is killed.
const DOOMED: Rank = Rank(2);
/// Most rounds of a rank.
const ROUNDS_MAX: usize = 1_000_000;
/// Longer than a rank needs to come to its wait for a lock.
const A_WHILE: Duration = Duration::from_millis(100);

/// A rank of a job in which the last one is killed.
pub(crate) struct Case<'a> {
    engine: &'a mut Engine,
    world: Comm,
    me: Rank,
    kind: &'a str,
    place: &'a Path,
    /// Whether the ranks share no memory, so that they reach each other only by a fabric.
    far: bool,
}

/// Plays a rank in the case `way`.
pub(crate) fn death(engine: &mut Engine, way: &str, kind: &str, place: &Path) {
    let (world, me) = (engine.comm_world(), engine.rank());
    assert_eq!(engine.size(), 3);
    let far = std::env::var(ENV_TRANSPORTS).is_ok_and(|names| !names.contains("shm"));
    let mut case = Case { engine: &mut *engine, world, me, kind, place, far };
    match way {
        "alone" => case.holder(LockKind::Exclusive),
        "sharing" => case.holder(LockKind::Shared),
        "updating" => case.updating(),
        "mid-update-peer" => case.mid_update(Rank(1)),
        "mid-update-owner" => case.mid_update(Rank(0)),
        "target" => case.target(),
        "silent-target" => case.silent_target(),
        "lost-target-put" => case.lost_target(|engine, at, window| engine.put(&vec![1; COUNT], DOOMED, at, window)),
        "lost-target-get" => case.lost_target(|engine, at, window| engine.get(&mut vec![1; COUNT], DOOMED, at, window)),
        "lost-target-flush" => case.lost_target(|engine, at, window| {
            // Fabrics copy it, so that it may return before it is known to have failed.
            engine.put(&[1], DOOMED, at, window)?;
            engine.win_flush(DOOMED, window)
        }),
        "noticed-by-flushes" => case.noticed_by_flushes(),
        "noticed-by-unlocks" => case.noticed_by_unlocks(),
        "noticed-before-complete" => case.noticed_before_complete(),
        "fence" => case.before(Engine::win_fence),
        "fence-middle" => case.fence_middle(),
        "free" => case.before(Engine::win_free),
        "in-free" => case.in_free(),
        "around-free" => case.around_free(),
        "allocate" => case.allocate(),
        "epochs" => case.epochs(),
        "posted" => case.posted(),
        other => panic!("no such death: {other}"),
    }
    others_go_on(engine);
}

impl Case<'_> {
    fn parts(&mut self) -> Parts {
        let parts = Parts::make(self.engine, self.kind, COUNT, self.world).unwrap();
        let next = Rank((self.me.0 + 1) % 3);
        let reach = self.engine.win_reach(next, parts.window).unwrap();
        assert_eq!(matches!(reach, WindowReach::Fabric | WindowReach::Engine), self.far, "{reach:?}");
        self.engine.barrier(self.world).unwrap();
        parts
    }

    fn is_doomed(&self) -> bool {
        self.me == DOOMED
    }

    /// Starts an epoch with all members. The rank to be killed goes on when the others have started theirs, which may
    /// need its engine.
    fn all_lock(&mut self, window: Window<u64>) {
        self.engine.win_lock_all(window).unwrap();
        say(self.place, &format!("locked-{}", self.me.0));
        if self.is_doomed() {
            until(self.engine, self.place, &["locked-0", "locked-1"]);
        }
    }

    /// Whether operations on a part need its owner: the owner's engine, or at least its living process.
    fn by_engine(&self) -> bool {
        self.far || self.is_attached()
    }

    /// Whether loads and stores reach a member's part.
    fn by_memory(&self) -> bool {
        !self.far && [KINDS[0], HEAP, COPIED].contains(&self.kind)
    }

    /// Whether a part is attached piece by piece.
    fn is_attached(&self) -> bool {
        self.kind == KINDS[2] || self.kind == KINDS[3]
    }

    /// The other survivor.
    fn other(&self) -> Rank {
        Rank(1 - self.me.0)
    }

    /// The killed member holds a lock.
    fn holder(&mut self, held: LockKind) {
        let Parts { window, .. } = self.parts();
        if self.is_doomed() {
            for rank in [0, 1] {
                self.engine.win_lock(held, Rank(rank), window).unwrap();
            }
            say(self.place, "held");
            until(self.engine, self.place, &["locking-0", "locking-1"]);
            tick_for(self.engine, A_WHILE);
            die(self.place);
        }
        until(self.engine, self.place, &["held"]);
        say(self.place, &format!("locking-{}", self.me.0));
        // The locks are those of the other survivor's part and of the own part. At the first of them the holder may
        // still live.
        for rank in [self.other(), self.me] {
            let engine = &mut *self.engine;
            fails(self.place, "a lock that a dead member holds", || engine.win_lock(LockKind::Exclusive, rank, window));
            let shared = outlives(self.place, "sharing", || engine.win_lock(LockKind::Shared, rank, window));
            match held {
                LockKind::Exclusive => assert!(shared.is_err(), "the lock is held alone"),
                LockKind::Shared => {
                    shared.unwrap();
                    engine.win_unlock(rank, window).unwrap();
                }
            }
        }
        if !self.is_attached() {
            fails(self.place, "the own part alone", || self.engine.win_exclusive(window).map(drop));
        }
        // This must end although the other survivor may still wait for its first lock.
        let engine = &mut *self.engine;
        fails(self.place, "win_free", || engine.win_free(window));
    }

    /// A member is killed in the middle of many updates.
    fn updating(&mut self) {
        let parts = self.parts();
        let (window, at) = (parts.window, parts.at(Rank(0), 0));
        let ones = vec![1; COUNT];
        self.all_lock(window);
        if self.is_doomed() {
            let random = u64::from(std::process::id()) * 7919 % 20_000;
            die_later(self.place, Duration::from_micros(1_000 + random));
        }
        let mut added = 0;
        let mut rounds_left = if self.is_doomed() { ROUNDS_MAX } else { 20 };
        for _ in 0..ROUNDS_MAX {
            self.engine.accumulate(&ones, op::Sum, Rank(0), at, window).unwrap();
            let old = self.engine.fetch_and_op(1, op::Sum, Rank(0), at, window).unwrap();
            assert!(old > added, "rank {}: an update of its own is lost", self.me.0);
            added += 2;
            rounds_left -= usize::from(said(self.place, "died"));
            if rounds_left == 0 {
                break;
            }
        }
        assert!(!self.is_doomed() && rounds_left == 0, "it has not died");
        self.engine.win_flush(Rank(0), window).unwrap();
        std::fs::write(self.place.join(format!("adding-{}", self.me.0)), added.to_string()).unwrap();
        say(self.place, &format!("added-{}", self.me.0));
        until(self.engine, self.place, &["added-0", "added-1"]);
        let of_rank = |rank| std::fs::read_to_string(self.place.join(format!("adding-{rank}"))).unwrap();
        let all: u64 = [0, 1].map(|rank| of_rank(rank).parse::<u64>().unwrap()).iter().sum();
        let mut left = vec![0; COUNT];
        outlives(self.place, "get", || {
            self.engine.get_accumulate(&vec![0; COUNT], &mut left, op::Keep, Rank(0), at, window)
        })
        .unwrap();
        assert!(left[0] >= all, "updates are lost: {} of {all}", left[0]);
        assert!(left[1..].iter().all(|&left| left >= all / 2), "updates are lost");
        let _ = outlives(self.place, "win_unlock_all", || self.engine.win_unlock_all(window));
        fails(self.place, "win_free", || self.engine.win_free(window));
    }

    /// A member is killed in the middle of an update of rank 0's part, and so dies with the lock for updates. One of the
    /// others is the first to need the lock, and gets no help.
    fn mid_update(&mut self, first: Rank) {
        let parts = self.parts();
        let (window, at) = (parts.window, parts.at(Rank(0), 0));
        self.all_lock(window);
        if self.is_doomed() {
            die_at_write(self.place);
            let updated = self.engine.accumulate(&[1; COUNT], op::Sum, Rank(0), at, window);
            panic!("it has not died: {updated:?}");
        }
        // Nobody has noticed the death when the next updates begin.
        until_dead(self.place);
        if self.me != first {
            compute_until(self.place, "past");
        }
        let engine = &mut *self.engine;
        for _ in 0..2 {
            outlives(self.place, "an update", || engine.fetch_and_op(1, op::Sum, Rank(0), at, window)).unwrap();
        }
        say(self.place, "past");
        say(self.place, &format!("added-{}", self.me.0));
        until(engine, self.place, &["added-0", "added-1"]);
        let mut left = [0; 2];
        engine.get(&mut left, Rank(0), at, window).unwrap();
        assert_eq!(left, [4, 0], "the dead member has written nothing");
        outlives(self.place, "win_unlock_all", || engine.win_unlock_all(window)).unwrap();
        fails(self.place, "win_free", || engine.win_free(window));
    }

    /// A member is killed while the others access its part in all ways.
    fn target(&mut self) {
        let parts = self.parts();
        let (window, at) = (parts.window, parts.at(DOOMED, 0));
        self.all_lock(window);
        if self.is_doomed() {
            tick_for(self.engine, A_WHILE / 2);
            die(self.place);
        }
        let (by_engine, other) = (self.by_engine(), self.other());
        let mut failed = None;
        let mut rounds_left = 20usize;
        let mut bytes = vec![7; COUNT];
        for round in 0..ROUNDS_MAX {
            let engine = &mut *self.engine;
            let done = outlives(self.place, "an operation", || match (self.me.0, round % 4) {
                (0, 0) => engine.put(&bytes, DOOMED, at, window),
                (0, 1) => engine.get(&mut bytes, DOOMED, at, window),
                (0, 2) => engine.win_flush(DOOMED, window),
                (_, 0) => engine.fetch_and_op(1, op::Sum, DOOMED, at, window).map(drop),
                (_, 1) => engine.accumulate(&bytes, op::Sum, DOOMED, at, window),
                (_, 2) => engine.compare_and_swap(0, 1, DOOMED, at, window).map(drop),
                _ => engine.put(&[1], DOOMED, at, window).and_then(|()| engine.win_flush(DOOMED, window)),
            });
            // The rank says so before it is killed, and may be kept waiting in between.
            rounds_left = rounds_left.saturating_sub(usize::from(said(self.place, "died")));
            if let Err(error) = done {
                failed = Some(error);
                break;
            }
            // Shared memory remains valid after the death of its owner.
            if rounds_left == 0 && self.by_memory() {
                break;
            }
        }
        match (failed, self.by_memory()) {
            (Some(error), _) => names_failure("an operation", &error),
            (None, true) => {}
            (None, false) => panic!("there is no memory any more"),
        }
        let engine = &mut *self.engine;
        if by_engine {
            fails(self.place, "a put to a dead member", || engine.put(&[1], DOOMED, at, window));
            fails(self.place, "a request to a dead member", || {
                engine.rput(vec![1], DOOMED, at, window).map_err(Into::into)
            });
        }
        // The part of the other survivor still works.
        let mut one = [0];
        let there = parts.at(other, 5);
        engine.put(&[11], other, there, window).unwrap();
        engine.win_flush(other, window).unwrap();
        engine.get(&mut one, other, there, window).unwrap();
        assert_eq!(one, [11]);
        let _ = outlives(self.place, "win_unlock_all", || engine.win_unlock_all(window));
        fails(self.place, "win_free", || self.engine.win_free(window));
    }

    /// A member is killed, and nobody has noticed when the others make their next call, which needs that member.
    fn lost_target(&mut self, call: fn(&mut Engine, usize, Window<u64>) -> Result<(), WindowError>) {
        let parts = self.parts();
        let (window, at) = (parts.window, parts.at(DOOMED, 0));
        self.all_lock(window);
        // The connections for one-sided operations are open.
        if self.is_doomed() {
            until(self.engine, self.place, &["put-0", "put-1"]);
            leave_number(self.place);
            die(self.place);
        }
        let (engine, place) = (&mut *self.engine, self.place);
        engine.put(&[1], DOOMED, at, window).unwrap();
        engine.win_flush(DOOMED, window).unwrap();
        say(place, &format!("put-{}", self.me.0));
        until_dead(place);
        fails(place, "the first call", || call(engine, at, window));
        fails(place, "the next call", || call(engine, at, window));
        let _ = outlives(place, "win_unlock_all", || engine.win_unlock_all(window));
        fails(place, "win_free", || engine.win_free(window));
    }

    /// A member is killed before its engine has done any of the operations that the others wait for.
    fn silent_target(&mut self) {
        let parts = self.parts();
        let (window, at) = (parts.window, parts.at(DOOMED, 0));
        self.engine.win_lock_all(window).unwrap();
        self.engine.barrier(self.world).unwrap();
        if self.is_doomed() {
            let posted = || ["posted-0", "posted-1"].iter().all(|word| said(self.place, word));
            let start = std::time::Instant::now();
            while !posted() {
                assert!(start.elapsed() < PATIENCE, "nobody posts");
                std::thread::yield_now();
            }
            die(self.place);
        }
        let engine = &mut *self.engine;
        let put = engine.rput(vec![1; COUNT], DOOMED, at, window).unwrap();
        let got = engine.rget(vec![1; COUNT], DOOMED, at, window).unwrap();
        let both = engine.rget_accumulate(vec![1; COUNT], vec![0; COUNT], op::Sum, DOOMED, at, window).unwrap();
        say(self.place, &format!("posted-{}", self.me.0));
        let flushed = outlives(self.place, "win_flush", || engine.win_flush(DOOMED, window));
        let done = [
            outlives(self.place, "rput", || engine.wait(&put)),
            outlives(self.place, "rget", || engine.wait(&got)),
            outlives(self.place, "rget_accumulate", || engine.wait(&both)),
        ];
        if self.far || self.kind == KINDS[3] {
            println!("rank {} is told: {done:?}", self.me.0);
            assert!(flushed.is_err() && done.iter().all(Result::is_err), "it has never ticked");
        } else {
            assert!(flushed.is_ok() && done.iter().all(Result::is_ok), "it takes no part");
        }
        let engine = &mut *self.engine;
        assert_eq!(engine.take(got).map_or_else(|failed| failed.buffer.unwrap(), |(buffer, _)| buffer).len(), COUNT);
        // The epoch ends. A new epoch detects the death only if it needs the owner.
        let _ = outlives(self.place, "win_unlock_all", || engine.win_unlock_all(window));
        until(engine, self.place, &["died"]);
        let locked = outlives(self.place, "win_lock_all", || engine.win_lock_all(window));
        if locked.is_ok() {
            let _ = outlives(self.place, "win_unlock_all", || engine.win_unlock_all(window));
        }
        fails(self.place, "win_free", || self.engine.win_free(window));
    }

    /// A member is killed while windows are made and freed.
    fn allocate(&mut self) {
        if self.is_doomed() {
            let random = u64::from(std::process::id()) * 7919 % 10_000;
            die_later(self.place, Duration::from_micros(random));
        }
        let is_doomed = self.is_doomed();
        for _ in 0..ROUNDS_MAX {
            let (engine, kind, world) = (&mut *self.engine, self.kind, self.world);
            let made = outlives(self.place, "making", || Parts::make(engine, kind, COUNT, world));
            let freed = made.and_then(|parts| outlives(self.place, "win_free", || engine.win_free(parts.window)));
            if let Err(error) = freed {
                println!("rank {} is told: {error}", self.me.0);
                assert!(!is_doomed, "it is to die: {error}");
                fails(self.place, "once more", || Parts::make(engine, kind, COUNT, world));
                return;
            }
        }
        panic!("nobody has died");
    }
}
