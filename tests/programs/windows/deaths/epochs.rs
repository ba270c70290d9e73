//! Deaths in epochs in which targets take part, and in calls that all members make.

use super::{A_WHILE, COUNT, Case, DOOMED, ROUNDS_MAX};
use crate::kit::{
    PATIENCE, compute_for, compute_until, die, die_later, fails, leave_number, names_failure, outlives, said, say,
    tick_for, until, until_dead,
};
use std::time::{Duration, Instant};
use tickwire::{Engine, Group, Rank, Tag, Window, WindowError, op};

/// Elements of a part that one member puts to.
const SHARE: usize = COUNT / 3;
/// Rounds of a rank after the death of another.
const ROUNDS_AFTER: usize = 5;

/// A number below `end` that differs from job to job.
fn random(end: u64) -> u64 {
    u64::from(std::process::id()) * 7919 % end
}

impl Case<'_> {
    /// A member is killed before a collective call of the window.
    pub(super) fn before(&mut self, call: fn(&mut Engine, Window<u64>) -> Result<(), WindowError>) {
        let parts = self.parts();
        self.engine.win_fence(parts.window).unwrap();
        if self.is_doomed() {
            until(self.engine, self.place, &["calling-0", "calling-1"]);
            die(self.place);
        }
        self.engine.put(&[1], self.other(), parts.at(self.other(), 0), parts.window).unwrap();
        say(self.place, &format!("calling-{}", self.me.0));
        fails(self.place, "a call of all", || call(self.engine, parts.window));
        let again = outlives(self.place, "once more", || call(self.engine, parts.window));
        assert!(again.is_err(), "a member has died");
    }

    /// A member is killed at any moment while all members put to all others, between two fences.
    pub(super) fn fence_middle(&mut self) {
        let parts = self.parts();
        let (window, place, me) = (parts.window, self.place, self.me);
        let engine = &mut *self.engine;
        engine.win_fence(window).unwrap();
        if me == DOOMED {
            die_later(place, Duration::from_micros(1_000 + random(20_000)));
        }
        let share = |of: Rank| SHARE * of.0 as usize;
        let (mut round, mut rounds_left) = (0, if me == DOOMED { ROUNDS_MAX } else { ROUNDS_AFTER });
        while rounds_left > 0 {
            round += 1;
            for to in (0..3).map(Rank).filter(|&to| to != me) {
                let put = || engine.put(&[round; SHARE], to, parts.at(to, share(me)), window);
                let done = outlives(place, "a put", put);
                if to != DOOMED || !said(place, "died") {
                    done.unwrap();
                }
            }
            rounds_left -= usize::from(said(place, "died"));
        }
        assert!(me != DOOMED, "it has not died");
        fails(place, "win_fence", || engine.win_fence(window));
        // What each survivor has put is done at the other one when its own call returns.
        let other = Rank(1 - me.0);
        std::fs::write(place.join(format!("rounds-{}", me.0)), round.to_string()).unwrap();
        say(place, &format!("fenced-{}", me.0));
        until(engine, place, &["fenced-0", "fenced-1"]);
        let last: u64 = std::fs::read_to_string(place.join(format!("rounds-{}", other.0))).unwrap().parse().unwrap();
        let mut own = vec![0; SHARE];
        engine.win_read(&mut own, parts.at(me, share(other)), window).unwrap();
        assert!(own.iter().all(|&found| found == last), "puts of a survivor are lost: {last}, {:?}", &own[..3]);
        assert_eq!(engine.put(&[1], other, parts.at(other, 0), window), Err(WindowError::NoEpoch(other)));
        fails(place, "once more", || engine.win_fence(window));
        fails(place, "win_free", || engine.win_free(window));
        self.without_the_dead();
    }

    /// A member is killed while it waits in `win_free`. Rank 0 has called it before, and rank 1 has not.
    pub(super) fn in_free(&mut self) {
        let parts = self.parts();
        match self.me {
            DOOMED => {
                until(self.engine, self.place, &["calling-0"]);
                leave_number(self.place);
                die_later(self.place, A_WHILE);
                let freed = self.engine.win_free(parts.window);
                panic!("it has not died: {freed:?}");
            }
            Rank(0) => say(self.place, "calling-0"),
            _ => until_dead(self.place),
        }
        match outlives(self.place, "win_free", || self.engine.win_free(parts.window)) {
            // Where a fabric reaches the parts, members tell each other of lost puts. Those who have heard the dead one need no more.
            Ok(()) => assert!(self.far, "win_free has not failed"),
            Err(error) => names_failure("win_free", &error),
        }
        self.without_the_dead();
    }

    /// A member is killed at any moment of `win_free`, or just before or after it.
    pub(super) fn around_free(&mut self) {
        let parts = self.parts();
        say(self.place, &format!("calling-{}", self.me.0));
        if self.is_doomed() {
            until(self.engine, self.place, &["calling-0", "calling-1"]);
            die_later(self.place, Duration::from_micros(random(300)));
            self.engine.win_free(parts.window).unwrap();
            compute_until(self.place, "never");
        }
        match outlives(self.place, "win_free", || self.engine.win_free(parts.window)) {
            Ok(()) => println!("rank {}: all have met", self.me.0),
            Err(error) => names_failure("win_free", &error),
        }
        self.without_the_dead();
    }

    /// The killed member has started an access epoch and has not exposed its part by `win_post`.
    pub(super) fn epochs(&mut self) {
        let parts = self.parts();
        let window = parts.window;
        let [survivors, doomed] = [&[0, 1][..], &[2]].map(|ranks| self.group(ranks));
        if self.is_doomed() {
            self.engine.win_start(&survivors, window).unwrap();
            until(self.engine, self.place, &["starting-0", "starting-1"]);
            tick_for(self.engine, A_WHILE);
            die(self.place);
        }
        let other = self.other();
        let [at, own_at] = [other, self.me].map(|rank| parts.at(rank, 0));
        // The group has the dead member first, and then the living one. Operations on the living member must still be
        // done.
        let both = self.group(&[2, other.0]);
        self.engine.win_post(&doomed, window).unwrap();
        say(self.place, &format!("starting-{}", self.me.0));
        fails(self.place, "win_start", || self.engine.win_start(&doomed, window));
        outlives(self.place, "win_complete", || self.engine.win_complete(window)).unwrap();
        fails(self.place, "win_wait", || self.engine.win_wait(window));
        self.nobody_writes(window);
        let engine = &mut *self.engine;
        for round in 1..=3u64 {
            fails(self.place, "win_post to both", || engine.win_post(&both, window));
            fails(self.place, "win_start to both", || engine.win_start(&both, window));
            engine.put(&[round], other, at, window).unwrap();
            assert_eq!(engine.put(&[round], DOOMED, at, window), Err(WindowError::NoEpoch(DOOMED)));
            outlives(self.place, "win_complete", || engine.win_complete(window)).unwrap();
            let _ = outlives(self.place, "win_wait", || engine.win_wait(window));
            let mut own = [0];
            engine.win_read(&mut own, own_at, window).unwrap();
            assert_eq!(own, [round]);
        }
        fails(self.place, "win_free", || engine.win_free(window));
        self.without_the_dead();
    }

    /// The killed member has exposed its part by `win_post`. When it dies, rank 0 is within its access epoch, and rank 1
    /// waits in `win_complete` if its operations need the engine of the killed member.
    pub(super) fn posted(&mut self) {
        let parts = self.parts();
        let window = parts.window;
        if self.is_doomed() {
            let survivors = self.group(&[0, 1]);
            self.engine.win_post(&survivors, window).unwrap();
            until(self.engine, self.place, &["started-0", "started-1"]);
            // From here on, its engine does nothing for others.
            compute_until(self.place, "completing-1");
            compute_for(A_WHILE);
            die(self.place);
        }
        let (other, by_engine) = (self.other(), self.by_engine());
        let [at, own_at, doomed_at] = [other, self.me, DOOMED].map(|rank| parts.at(rank, 0));
        let [alone, both] = [&[other.0][..], &[2, other.0]].map(|ranks| self.group(ranks));
        let (engine, place) = (&mut *self.engine, self.place);
        engine.win_post(&alone, window).unwrap();
        engine.win_start(&both, window).unwrap();
        say(place, &format!("started-{}", self.me.0));
        engine.put(&[11], other, at, window).unwrap();
        let completed = if self.me == Rank(0) {
            until(engine, place, &["died"]);
            let put = |engine: &mut Engine| {
                engine.put(&[1], DOOMED, doomed_at, window).and_then(|()| engine.win_flush(DOOMED, window))
            };
            match by_engine {
                true => fails(place, "a put", || put(engine)),
                false => drop(outlives(place, "a put", || put(engine))),
            }
            outlives(place, "win_complete", || engine.win_complete(window))
        } else {
            let put = engine.rput(vec![1; COUNT], DOOMED, doomed_at, window).unwrap();
            let both = engine.rget_accumulate(vec![1; COUNT], vec![0; COUNT], op::Sum, DOOMED, doomed_at, window);
            let both = both.unwrap();
            say(place, "completing-1");
            let completed = outlives(place, "win_complete", || engine.win_complete(window));
            let done =
                [outlives(place, "rput", || engine.wait(&put)), outlives(place, "an update", || engine.wait(&both))];
            assert!(done.iter().all(|done| done.is_err() == by_engine), "{done:?}");
            completed
        };
        if by_engine {
            names_failure("win_complete", &completed.expect_err("a target has died"));
        }
        // The other survivor has completed its epoch too, although its call has failed.
        let own = |engine: &mut Engine| {
            let mut own = [0];
            outlives(place, "win_wait", || engine.win_wait(window)).unwrap();
            engine.win_read(&mut own, own_at, window).unwrap();
            own
        };
        assert_eq!(own(engine), [11]);
        engine.win_post(&alone, window).unwrap();
        fails(place, "win_start to both", || engine.win_start(&both, window));
        engine.put(&[12], other, at, window).unwrap();
        outlives(place, "win_complete", || engine.win_complete(window)).unwrap();
        assert_eq!(own(engine), [12]);
        fails(place, "win_free", || engine.win_free(window));
        self.without_the_dead();
    }

    /// Waits until the part is lent alone, although the dead member did not complete its epoch.
    fn nobody_writes(&mut self, window: Window<u64>) {
        if self.is_attached() {
            return;
        }
        if self.far {
            // What the fabric has taken may arrive even after the end of the process.
            let lent = self.engine.win_exclusive(window).map(drop);
            assert!(lent.as_ref().is_err_and(|error| error.to_string().contains("may still write")), "{lent:?}");
            return;
        }
        // Once the dead member's process is known to have ended, nobody writes any more.
        let start = Instant::now();
        while let Err(error) = self.engine.win_exclusive(window).map(drop) {
            assert!(start.elapsed() < PATIENCE, "{error}");
            self.engine.tick();
        }
    }

    pub(super) fn group(&mut self, ranks: &[u32]) -> Group {
        self.engine.comm_group(self.world).unwrap().include(ranks).unwrap()
    }

    /// The survivors make a window without the dead member. What has failed does not affect it.
    pub(super) fn without_the_dead(&mut self) {
        let survivors = self.group(&[0, 1]);
        let (other, engine) = (self.other(), &mut *self.engine);
        let left = engine.comm_create_group(self.world, &survivors, Tag(1)).unwrap();
        let again = engine.win_allocate::<u64>(4, left).unwrap();
        engine.win_fence(again).unwrap();
        engine.put(&[8], other, 3, again).unwrap();
        engine.win_fence_last(again).unwrap();
        let mut own = [0; 4];
        engine.win_read(&mut own, 0, again).unwrap();
        assert_eq!(own, [0, 0, 0, 8]);
        engine.win_free(again).unwrap();
    }
}
