//! The last of three ranks is killed while it uses exposed memory of another rank, or while others use its own. The
//! others get an error in time where they need that rank. Where they do not, they go on.

use crate::kit::{
    LIVENESS_MAX, compute_until, die_at_write, die_later, fails, others_go_on, outlives, said, say, until, until_dead,
};
use std::path::Path;
use std::time::{Duration, Instant};
use tickwire::internals::components::VcState;
use tickwire::{Comm, Engine, HeapBuffer, ProcId, Rank, Region, RegionAccess, RegionKey, Tag, WindowError, op};
use tickwire_tests::one_sided::HEAP;

/// Elements of a region. A put of all of them takes the lock several times.
const COUNT: usize = 100_000;
/// The rank that is killed.
const DOOMED: Rank = Rank(2);
/// Most rounds of a rank.
const ROUNDS_MAX: usize = 1_000_000;
/// Rounds of a rank after the death of another.
const ROUNDS_AFTER: usize = 20;
/// A rank is killed at a random moment within this time, µs.
const DYING_US: u64 = 20_000;

/// Plays a rank in the case `way`. The first word of a way is left out.
pub(crate) fn death(engine: &mut Engine, way: &str, kind: &str, place: &Path) {
    assert_eq!(engine.size(), 3);
    let (world, me) = (engine.comm_world(), engine.rank());
    let mut case = Case { engine: &mut *engine, world, me, kind, place };
    match way {
        "peer-first" => case.origin(First::Peer),
        "owner-first" => case.origin(First::Owner),
        "withdrawal-first" => case.origin(First::Withdrawal),
        "updates" => case.updates(),
        "owner" => case.owner(),
        "lost-owner" => case.lost_owner(),
        "stranger" => case.stranger(),
        other => panic!("no such death: {other}"),
    }
    others_go_on(engine);
}

/// What is the first to need the lock that a dead rank holds.
#[derive(Clone, Copy, PartialEq, Eq)]
enum First {
    /// A put by another rank.
    Peer,
    /// An update by the owner.
    Owner,
    /// The withdrawal by the owner.
    Withdrawal,
}

/// A region in memory of this process alone, or in its shared heap.
enum Exposed {
    Plain(Region<Vec<u64>>),
    Heap(Region<HeapBuffer<u64>>),
}

impl Exposed {
    fn key(&self) -> RegionKey {
        match self {
            Exposed::Plain(region) => region.key(),
            Exposed::Heap(region) => region.key(),
        }
    }

    fn withdraw(self, engine: &mut Engine) -> Result<Vec<u64>, WindowError> {
        match self {
            Exposed::Plain(region) => engine.withdraw(region),
            Exposed::Heap(region) => engine.withdraw(region).map(|buffer| buffer.to_vec()),
        }
    }
}

/// A rank of a job in which the last one is killed.
struct Case<'a> {
    engine: &'a mut Engine,
    world: Comm,
    me: Rank,
    kind: &'a str,
    place: &'a Path,
}

impl Case<'_> {
    fn expose(&mut self) -> Exposed {
        let access = RegionAccess::ALL;
        match self.kind {
            HEAP => {
                let buffer = self.engine.alloc_elements::<u64>(COUNT).unwrap();
                Exposed::Heap(self.engine.expose(buffer, access).unwrap())
            }
            _ => Exposed::Plain(self.engine.expose(vec![0u64; COUNT], access).unwrap()),
        }
    }

    /// Exposes a region on each rank. Returns the own one and all keys.
    fn exposed(&mut self) -> (Exposed, [RegionKey; 3]) {
        let own = self.expose();
        let mut keys = [own.key(); 3];
        self.engine.allgather(&[own.key()], &mut keys, self.world).unwrap();
        (own, keys)
    }

    fn is_doomed(&self) -> bool {
        self.me == DOOMED
    }

    /// The other survivor.
    fn other(&self) -> Rank {
        Rank(1 - self.me.0)
    }

    /// Both survivors have come here.
    fn meet(&mut self, word: &str) {
        say(self.place, &format!("{word}-{}", self.me.0));
        until(self.engine, self.place, &[0, 1].map(|rank| format!("{word}-{rank}")));
    }

    /// A survivor's region does what it did before.
    fn works(&mut self, key: &RegionKey) {
        let (engine, element) = (&mut *self.engine, 8 * (1 + self.me.0 as usize));
        let mut got = [0u64];
        outlives(self.place, "a put", || engine.region_put(&[5u64], key, element)).unwrap();
        outlives(self.place, "a flush", || engine.region_flush(ProcId(key.proc))).unwrap();
        outlives(self.place, "an update", || engine.region_fetch_and_op(2u64, op::Sum, key, element)).unwrap();
        outlives(self.place, "a get", || engine.region_get(&mut got, key, element)).unwrap();
        assert_eq!(got, [7]);
    }

    /// A rank is killed at a random moment from now on.
    fn die_soon(&self) {
        die_later(self.place, Duration::from_micros(1_000 + u64::from(std::process::id()) * 7919 % DYING_US));
    }

    /// A rank is killed in the middle of a put or an update of rank 0's region, and so dies with the lock of rank 0's
    /// directory. Nobody has noticed the death when the next call needs the lock.
    fn origin(&mut self, first: First) {
        let (own, keys) = self.exposed();
        let (spare, spares) = self.exposed();
        if self.is_doomed() {
            die_at_write(self.place);
            let ended = match first {
                First::Peer => self.engine.region_put(&[1u64; COUNT], &keys[0], 0),
                _ => self.engine.region_fetch_and_op(1u64, op::Sum, &keys[0], 0).map(drop),
            };
            panic!("it has not died: {ended:?}");
        }
        until_dead(self.place);
        let is_owner = self.me == Rank(0);
        if is_owner != (first != First::Peer) {
            // The other survivor needs no help from this engine.
            compute_until(self.place, "past");
        }
        let engine = &mut *self.engine;
        let update = |engine: &mut Engine| engine.region_fetch_and_op(1u64, op::Sum, &keys[0], 0);
        match first {
            First::Peer if !is_owner => {
                outlives(self.place, "a put", || engine.region_put(&[3u64; COUNT], &keys[0], 0)).unwrap();
                outlives(self.place, "a flush", || engine.region_flush(ProcId(0))).unwrap();
                assert_eq!(outlives(self.place, "an update", || update(engine)), Ok(3));
            }
            First::Owner if is_owner => assert_eq!(outlives(self.place, "an update", || update(engine)), Ok(0)),
            _ => {}
        }
        let taken = is_owner.then(|| outlives(self.place, "the withdrawal", || own.withdraw(engine)).unwrap());
        say(self.place, "past");
        self.meet("withdrawn");
        let expected = match first {
            First::Peer => [4, 3],
            First::Owner => [1, 0],
            First::Withdrawal => [0, 0],
        };
        assert!(taken.is_none_or(|taken| taken[..2] == expected && taken[2..].iter().all(|&word| word == expected[1])));
        if !is_owner {
            let stale = outlives(self.place, "a stale key", || self.engine.region_get(&mut [0u64], &keys[0], 0));
            assert!(stale.unwrap_err().to_string().contains("no such bytes"));
        }
        self.works(&spares[0]);
        self.works(&spares[1]);
        self.meet("used");
        outlives(self.place, "the withdrawal", || spare.withdraw(self.engine)).unwrap();
    }

    /// A rank is killed at any moment while all ranks update and put to rank 0's region.
    fn updates(&mut self) {
        let (own, keys) = self.exposed();
        if self.is_doomed() {
            self.die_soon();
        }
        let (key, place, engine) = (keys[0], self.place, &mut *self.engine);
        let (mut added, mut rounds_left) = (0u64, if self.me == DOOMED { ROUNDS_MAX } else { ROUNDS_AFTER });
        let ones = vec![1u64; COUNT - 1];
        for _ in 0..ROUNDS_MAX {
            let old = outlives(place, "an update", || engine.region_fetch_and_op(1u64, op::Sum, &key, 0)).unwrap();
            assert!(old >= added, "an update of its own is lost");
            added += 1;
            outlives(place, "a put", || engine.region_put(&ones[..], &key, 8)).unwrap();
            rounds_left -= usize::from(said(place, "died"));
            if rounds_left == 0 {
                break;
            }
        }
        assert!(self.me != DOOMED && rounds_left == 0, "it has not died");
        outlives(place, "a flush", || engine.region_flush(ProcId(0))).unwrap();
        std::fs::write(place.join(format!("adding-{}", self.me.0)), added.to_string()).unwrap();
        self.meet("added");
        let of_rank = |rank| std::fs::read_to_string(place.join(format!("adding-{rank}"))).unwrap();
        let all: u64 = [0, 1].map(|rank| of_rank(rank).parse::<u64>().unwrap()).iter().sum();
        self.works(&keys[1]);
        self.meet("used");
        let taken = outlives(place, "the withdrawal", || own.withdraw(self.engine)).unwrap();
        if self.me == Rank(0) {
            assert!(taken[0] >= all, "updates are lost: {} of {all}", taken[0]);
            assert!(taken[1..].iter().all(|&word| word == 1), "puts are lost");
        }
    }

    /// The owner of a region is killed at any moment while all ranks use that region.
    fn owner(&mut self) {
        let (own, keys) = self.exposed();
        if self.is_doomed() {
            self.die_soon();
        }
        let (key, place) = (keys[2], self.place);
        let mut bytes = vec![7u64; COUNT];
        let start = Instant::now();
        let mut failed = None;
        for round in 0..ROUNDS_MAX {
            let engine = &mut *self.engine;
            let done = outlives(place, "an operation", || match round % 4 {
                0 => engine.region_put(&bytes[..], &key, 0),
                1 => engine.region_fetch_and_op(1u64, op::Sum, &key, 0).map(drop),
                2 => engine.region_get(&mut bytes[..], &key, 0),
                _ => engine.region_flush(ProcId(key.proc)),
            });
            if let Err(error) = done {
                failed = Some(error);
                break;
            }
            // Memory that this process maps stays valid. Only a tick reads that its owner has died.
            engine.tick();
        }
        let failed = failed.expect("the operations have ended");
        println!("rank {} is told after {:?}: {failed}", self.me.0, start.elapsed());
        assert!(!self.is_doomed(), "it is to die: {failed}");
        self.is_gone(&key);
        self.works(&keys[self.other().0 as usize]);
        self.meet("used");
        outlives(place, "the withdrawal", || own.withdraw(self.engine)).unwrap();
    }

    /// All calls with a dead owner's key fail.
    fn is_gone(&mut self, key: &RegionKey) {
        let (place, engine) = (self.place, &mut *self.engine);
        fails(place, "a put", || engine.region_put(&[1u64], key, 0));
        fails(place, "a get", || engine.region_get(&mut [1u64], key, 0));
        fails(place, "an update", || engine.region_fetch_and_op(1u64, op::Sum, key, 0));
        fails(place, "a swap", || engine.region_compare_and_swap(1u64, 2, key, 0));
        fails(place, "rput", || engine.region_rput(vec![1u64], key, 0).map_err(WindowError::from));
        let _ = outlives(place, "a flush", || engine.region_flush(ProcId(key.proc)));
        outlives(place, "a flush", || engine.region_flush_all()).expect("all failures are told");
    }

    /// The owner of a region has died, and nobody has noticed. The kernel cannot reach its memory any more.
    fn lost_owner(&mut self) {
        let (own, keys) = self.exposed();
        if self.is_doomed() {
            die_at_write(self.place);
            until(self.engine, self.place, &["used-0", "used-1"]);
            let ended = self.engine.region_put(&[1u64], &keys[0], 0);
            panic!("it has not died: {ended:?}");
        }
        let (key, place) = (keys[2], self.place);
        self.engine.region_put(&[1u64], &key, 0).unwrap();
        self.meet("used");
        until_dead(place);
        let engine = &mut *self.engine;
        match (self.kind, self.me.0) {
            ("moves", 0) => fails(place, "a put", || engine.region_put(&[1u64; 2], &key, 0)),
            ("moves", _) => fails(place, "a get", || engine.region_get(&mut [1u64; COUNT], &key, 0)),
            (_, 0) => fails(place, "an update", || engine.region_fetch_and_op(1u64, op::Sum, &key, 0)),
            _ => fails(place, "a swap", || engine.region_compare_and_swap(0u64, 1, &key, 0)),
        }
        self.is_gone(&key);
        self.works(&keys[self.other().0 as usize]);
        self.meet("worked");
        outlives(place, "the withdrawal", || own.withdraw(self.engine)).unwrap();
    }

    /// The rank that dies with the lock of rank 1's directory was never contacted by rank 0, and no launcher reports
    /// its end. So rank 0 has to ask about the holder of the lock.
    fn stranger(&mut self) {
        let (owner, world, place) = (Rank(1), self.world, self.place);
        let own = (self.me == owner).then(|| self.expose());
        let mut key = own.as_ref().map(Exposed::key);
        match &own {
            Some(own) => {
                self.engine.send(&[own.key()], Rank(0), Tag(1), world).unwrap();
                self.engine.send(&[own.key()], DOOMED, Tag(1), world).unwrap();
            }
            None => {
                let mut keys = [RegionKey::new(ProcId(0), 0, 0, RegionAccess::NONE)];
                self.engine.recv(&mut keys, owner, Tag(1), world).unwrap();
                key = Some(keys[0]);
            }
        }
        let key = key.unwrap();
        // A first use needs the owner's engine.
        if self.me == Rank(0) {
            self.engine.region_get(&mut [1u64], &key, 0).unwrap();
            say(place, "met");
        }
        until(self.engine, place, &["met"]);
        if self.is_doomed() {
            die_at_write(place);
            let ended = self.engine.region_put(&[1u64; COUNT], &key, 0);
            panic!("it has not died: {ended:?}");
        }
        until_dead(place);
        let doomed = ProcId(DOOMED.0);
        if self.me == owner {
            compute_until(place, "past");
        } else {
            let before = self.engine.vc_state(doomed);
            assert!(matches!(before, None | Some(VcState::Unconnected)), "it was never contacted: {before:?}");
            let start = Instant::now();
            assert_eq!(self.engine.region_fetch_and_op(1u64, op::Sum, &key, 0), Ok(0));
            assert!(start.elapsed() < LIVENESS_MAX, "an update took {:?}", start.elapsed());
            assert_eq!(self.engine.vc_state(doomed), Some(VcState::Failed));
            say(place, "past");
        }
        self.meet("used");
        if let Some(own) = own {
            assert_eq!(outlives(place, "the withdrawal", || own.withdraw(self.engine)).unwrap()[..2], [1, 0]);
        }
    }
}
