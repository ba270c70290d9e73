//! A world of tables that a test fills by hand, runs one system or one set of, and reads.

use super::wire::{FRAME_MAX, FakeWire, WireState, lock};
use crate::ProgressSystems;
use crate::procs::endpoint::{Endpoint, RowStates};
use crate::rows::{Rows, Wire};
use crate::store::{Plan, Store, Tables};
use bevy_ecs::prelude::*;
use bevy_ecs::system::RunSystemOnce;
use std::sync::{Arc, Mutex, MutexGuard};
use tickwire_components::limits::{CREDIT_INITIAL, Limits};
use tickwire_components::submission::Submissions;
use tickwire_components::{Arrival, Car, CarState, Ended, Link, NIL, Queue, RequestState, Row, Vc, VcState, posting};
use tickwire_transports::{AnyTransport, Capabilities, Reach};

/// A world of tables, one fake transport, and helpers to fill and read rows.
pub struct TestWorld {
    /// The world and its tables.
    pub store: Store,
    /// What the wire has seen and will do.
    pub wire: Arc<Mutex<WireState>>,
    /// Buffers of posted operations, each of several runs.
    pub(super) buffers: Vec<Vec<Vec<u8>>>,
    /// Payloads of frames that have arrived.
    pub(super) payloads: Vec<Vec<u8>>,
}

impl TestWorld {
    /// A world of so many procs with default limits, in which proc 0 is the own one and the only one contacted.
    pub fn new(procs: u32) -> Self {
        Self::with(procs, Limits::default(), 64)
    }

    /// The same with other limits, and with so many CAR rows.
    ///
    /// # Panics
    /// If there are no more descriptors.
    pub fn with(procs: u32, limits: Limits, rows: usize) -> Self {
        Self::build(procs, limits, rows, |_| ())
    }

    /// A world of so many procs that is prepared before there are tables: with slots of the application
    /// (`world.register_required_components::<Vc, MySlot>()`), resources and entities.
    ///
    /// # Panics
    /// As [`TestWorld::with`].
    pub fn prepared(procs: u32, prepare: impl FnOnce(&mut World)) -> Self {
        Self::build(procs, Limits::default(), 64, prepare)
    }

    fn build(procs: u32, limits: Limits, rows: usize, prepare: impl FnOnce(&mut World)) -> Self {
        let mut world = World::new();
        prepare(&mut world);
        let wire = Arc::new(Mutex::new(WireState::default()));
        let row_states = RowStates::register::<FakeWire>(&mut world);
        let endpoint = Endpoint::new(AnyTransport::outside(FakeWire::new(wire.clone())), &limits, Some(row_states));
        let plan = Plan { limits, procs, me: 0, cards: Vec::new(), card_bytes: 0, rows, generation: 0 };
        let submissions = match Submissions::new(4) {
            Ok(submissions) => submissions,
            Err(error) => panic!("{error}"),
        };
        let store = Store::new(world, plan, submissions, vec![endpoint]).unwrap_or_else(|error| panic!("{error}"));
        let mut world = TestWorld { store, wire, buffers: Vec::new(), payloads: Vec::new() };
        // As if both sides had been granted all there is.
        world.all().progress.window = CREDIT_INITIAL;
        world.set_state(0, VcState::Connected);
        world
    }

    /// Opens another transport; its endpoint's row.
    pub fn add_wire(&mut self, wire: FakeWire) -> u8 {
        let rows = self.all().endpoints[0].rows;
        let limits = self.all().limits.0.clone();
        let endpoint = Endpoint::new(AnyTransport::outside(wire), &limits, rows);
        match self.store.as_mut().spawn_endpoint(endpoint) {
            Ok(row) => row as u8,
            Err(error) => panic!("{error}"),
        }
    }

    /// Opens a wire that matches by itself; its endpoint's row.
    pub fn add_matching_wire(&mut self, state: Arc<Mutex<WireState>>) -> u8 {
        let capabilities = Capabilities {
            matched_max: FRAME_MAX,
            whole_frames: true,
            ..Capabilities::least(Reach::Network, 2, FRAME_MAX)
        };
        let endpoint = self.add_wire(FakeWire::that_matches(state, capabilities));
        let progress = self.all().progress;
        progress.provider.endpoint = endpoint.into();
        progress.provider.window = progress.window;
        progress.posting |= posting::PROVIDER;
        endpoint
    }

    /// A contacted proc whose VC is in a state; its row.
    pub fn contact(&mut self, proc: u32, state: VcState) -> Row {
        let row = match self.store.as_mut().spawn_proc(proc, 0) {
            Ok(row) => row,
            Err(error) => panic!("{error}"),
        };
        self.all().procs.known[proc as usize].row = row;
        self.set_state(row, state);
        row
    }

    fn set_state(&mut self, row: Row, state: VcState) {
        let vc = &mut self.all().vcs[row as usize];
        vc.state = state;
        vc.link = if state == VcState::Unconnected { NIL } else { vc.proc };
    }

    /// All tables.
    pub fn all(&mut self) -> Tables<'_> {
        self.store.all()
    }

    /// The wire's state.
    pub fn wire(&self) -> MutexGuard<'_, WireState> {
        lock(&self.wire)
    }

    /// Runs one system of an application once, with the world as it is.
    ///
    /// # Panics
    /// If the system does, or leaves the rows of the engine in another place.
    pub fn run<M>(&mut self, system: impl IntoSystem<(), (), M>) {
        if let Err(error) = self.with_world(|world| world.run_system_once(system)) {
            panic!("the system did not run: {error}");
        }
    }

    /// Runs one of the engine's systems once.
    pub fn step(&mut self, system: impl for<'store> FnOnce(&mut Rows<'store>, &mut Wire<'_>)) {
        self.store.with(system);
    }

    /// Gives the world to a test: to read components and resources of the application's, and to change them.
    ///
    /// # Panics
    /// If the rows of the engine are not where they were afterwards.
    pub fn with_world<R>(&mut self, run: impl FnOnce(&mut World) -> R) -> R {
        self.store.change(run).unwrap_or_else(|error| panic!("{error}"))
    }

    /// Runs one set of the tick's schedule once, with the world as it is: the engine's system, and what `add` puts into the
    /// set. What it puts into no set runs, too, in the order that it asks for.
    ///
    /// # Panics
    /// If a system does, or their order is impossible.
    pub fn run_set(&mut self, set: ProgressSystems, add: impl FnOnce(&mut Schedule)) {
        let mut schedule = Schedule::default();
        crate::configure(&mut schedule, &self.store.key());
        add(&mut schedule);
        for other in ProgressSystems::ORDER.into_iter().filter(|other| *other != set) {
            schedule.configure_sets(other.run_if(|| false));
        }
        if let Err(panic) = self.store.run(&mut schedule) {
            std::panic::resume_unwind(panic);
        }
    }

    /// An arrival.
    pub fn arrival(&mut self, row: Row) -> Arrival {
        self.all().arrivals[row as usize]
    }

    /// A VC.
    pub fn vc(&mut self, row: Row) -> Vc {
        self.all().vcs[row as usize]
    }

    /// The CARs of a queue, in order.
    pub fn cars_in(&mut self, queue: Queue) -> Vec<Row> {
        rows(self.all().cars, queue)
    }

    /// The CARs that wait for Complete, in order.
    pub fn finished(&mut self) -> Vec<Row> {
        let queue = self.all().progress.finished;
        self.cars_in(queue)
    }

    /// Takes the ends of VCs that systems have asked for: (VC row, why).
    pub fn take_ended(&mut self) -> Vec<(Row, Ended)> {
        std::mem::take(&mut self.all().progress.ended)
    }

    /// Whether every row is free and nothing is pending: what a world looks like when all is done.
    ///
    /// # Panics
    /// If it is not so.
    pub fn assert_at_rest(&mut self) {
        let all = self.all();
        let cars: Vec<&Car> = all.cars.iter().filter(|car| car.state != CarState::Free).collect();
        assert!(cars.is_empty(), "CARs in use: {cars:#?}");
        let requests = all.requests.iter().filter(|r| r.state == RequestState::Active).count();
        assert_eq!((requests, all.progress.active), (0, 0), "requests that are not done");
        let (cars, buffers, unexpected) = (all.cars.len(), all.buffers.len(), all.progress.unexpected.count);
        let free = [all.progress.free_cars.count as usize, self.free_buffers() as usize];
        assert_eq!((free, unexpected), ([cars, buffers], 0), "free CAR and buffer rows, unexpected messages");
    }

    /// Free buffer rows.
    pub fn free_buffers(&mut self) -> u32 {
        self.all().progress.free_buffers.iter().map(|list| list.count).sum()
    }
}

/// The rows of a queue, in order.
fn rows<L: Link + Clone>(rows: &[L], queue: Queue) -> Vec<Row> {
    let mut copy = rows.to_vec();
    let mut queue = queue;
    std::iter::from_fn(|| queue.pop(&mut copy)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::diff::assert_rows;
    use crate::tick::match_cars::match_cars;
    use tickwire_components::wire::{Header, Kind};

    #[test]
    fn one_set_runs_with_what_was_added_to_it_and_no_other() {
        #[derive(Resource, Default)]
        struct Seen(Vec<(u32, &'static str)>);
        fn note(name: &'static str) -> impl FnMut(Query<&tickwire_components::Progress>, ResMut<Seen>) {
            move |progress, mut seen| {
                let matched = progress.iter().map(|progress| progress.work.matched.get()).sum();
                seen.0.push((matched, name));
            }
        }
        let mut world = TestWorld::new(2);
        let vc = world.contact(1, VcState::Connected);
        world.with_world(|world| world.init_resource::<Seen>());
        let posted = world.receive(Some(1), Some(5), &[4]);
        world.arrive(vc, Header::new(Kind::Eager, 0, 1, 5, 0, 4), b"abcd");
        world.run_set(ProgressSystems::Match, |schedule| {
            schedule.add_systems((
                note("before").before(ProgressSystems::Match),
                note("after").after(ProgressSystems::Match).before(ProgressSystems::SupplyBuffers),
                note("in").in_set(ProgressSystems::Match),
                note("in another").in_set(ProgressSystems::Transfer),
            ));
        });
        let mut seen = world.store.world().resource::<Seen>().0.clone();
        // Within the set nothing was said of its order.
        assert_eq!(seen.remove(1).1, "in");
        assert_eq!(seen, [(0, "before"), (1, "after")]);
        assert_eq!(world.car(posted).state, CarState::Matched, "Transfer did not run");
        let mut alone = TestWorld::new(2);
        let vc = alone.contact(1, VcState::Connected);
        let posted_alone = alone.receive(Some(1), Some(5), &[4]);
        alone.arrive(vc, Header::new(Kind::Eager, 0, 1, 5, 0, 4), b"abcd");
        alone.step(match_cars);
        let cars = [world.car(posted), alone.car(posted_alone)].map(|car| (car.state, car.source, car.tag, car.done));
        assert_rows("matched", &cars[..1], &cars[1..]);
    }
}
