//! Two methods of different abilities, driven by hand: bytes come over one and leave over the other in parts.

use super::*;
use crate::steps::supply::decide::decide;
use crate::store::Tables;
use crate::testing::{FRAME_MAX, FakeWire, TestWorld, WireState};
use std::sync::{Arc, Mutex, MutexGuard};
use tickwire_components::limits::Limits;
use tickwire_components::{Abilities, Combine, Payload, Question, ReservedBuffers, Target, VcState};
use tickwire_transports::{Capabilities, Reach, copy};

/// A world with two methods: proc 1 is reached over one that takes memory as it is, in single runs; procs 2 and 3 over
/// one that needs registered memory and lends its own.
struct Methods {
    world: TestWorld,
    lender: Arc<Mutex<WireState>>,
    from: Row,
    to: [Row; 2],
}

impl Methods {
    /// The lender has buffers of these lengths.
    fn new(lent: &[usize]) -> Self {
        Self::with(lent, Limits::default())
    }

    fn with(lent: &[usize], limits: Limits) -> Self {
        let mut world = TestWorld::with(4, limits, 64);
        let lender = Arc::new(Mutex::new(WireState::default()));
        lender.lock().unwrap().lendable = lent.iter().map(|&length| vec![0; length]).collect();
        let capabilities = Capabilities { progress_min: 64, ..Capabilities::least(Reach::Network, 9, FRAME_MAX) };
        let endpoint = world.add_wire(FakeWire::that_lends(lender.clone(), capabilities));
        world.all().endpoints[0].abilities.gathers = false;
        let from = world.contact(1, VcState::Connected);
        let to = [2, 3].map(|proc| world.contact(proc, VcState::Connected));
        to.iter().for_each(|&vc| world.all().vcs[vc as usize].endpoint = endpoint);
        Methods { world, lender, from, to }
    }

    fn lender(&self) -> MutexGuard<'_, WireState> {
        self.lender.lock().unwrap()
    }

    fn abilities(&mut self, vc: Row) -> Abilities {
        let all = self.world.all();
        all.endpoints[all.vcs[vc as usize].endpoint as usize].abilities
    }

    /// A forward of bytes from one VC to another, as a graph starts it.
    fn forward(&mut self, from_vc: Row, to_vc: Row, bytes: u64) -> Supply {
        let (receive, send) = (self.abilities(from_vc), self.abilities(to_vc));
        let question = Question {
            receive: Some(receive),
            send: Some(send),
            target: Target::Nowhere,
            combine: Combine::Never,
            bytes,
            frame: 0,
            readable: false,
        };
        let minimum = receive.minimum.max(send.minimum);
        let supplier = decide(&question).supplier;
        Supply { from: 7, from_vc, to: 1, to_vc, supplier, bytes, minimum, ..Supply::default() }
    }

    fn start(&mut self, supply: Supply) -> Row {
        let all = self.world.all();
        enqueue(all.progress, all.supplies, supply).unwrap()
    }

    fn ready(&mut self, row: Row) {
        let all = self.world.all();
        ready(all.progress, all.supplies, row);
    }

    fn release(&mut self, row: Row) {
        let all = self.world.all();
        release(all.progress, all.supplies, row);
        assert!(all.progress.pending.has(Pending::SUPPLY));
        self.run();
    }

    /// Hands out memory. Returns the operations that have got some.
    fn run(&mut self) -> Served {
        let Tables { progress, supplies, buffers, vcs, endpoints, .. } = self.world.all();
        progress.pending = Pending::NONE;
        SupplyTables { progress, supplies, buffers, vcs, endpoints }.hand_out()
    }

    /// The bytes of the runs that an operation holds.
    fn held(&mut self, row: Row) -> Vec<usize> {
        self.world.all().supplies[row as usize].group.iter().map(|granted| granted.span.len()).collect()
    }

    /// Lets bytes of a message arrive, as many as the current run has space for. Returns how many.
    fn arrive(&mut self, row: Row, message: &mut [u8]) -> usize {
        let all = self.world.all();
        // SAFETY: space of the world, and a message that outlives the call.
        #[expect(unsafe_code, reason = "bytes that are addresses")]
        let moved = unsafe { copy::copy(space(&all.supplies[row as usize]), span(message)) };
        filled(&mut all.supplies[row as usize], moved as u64);
        moved
    }

    /// Lets bytes leave, at most `most`. Returns whether that was the end.
    fn depart(&mut self, row: Row, most: usize, into: &mut Vec<u8>) -> bool {
        let all = self.world.all();
        let run = outgoing(&all.supplies[row as usize]).part(0, most);
        // SAFETY: bytes of the world.
        #[expect(unsafe_code, reason = "bytes that are addresses")]
        let gathered = unsafe { copy::gather(&Payload::new(&[run])) };
        into.extend_from_slice(&gathered);
        let supply = &mut all.supplies[row as usize];
        emptied(all.progress, supply, run.len() as u64);
        supply.emptied == supply.bytes
    }
}

#[expect(unsafe_code, reason = "a span over a test's bytes")]
fn span(bytes: &mut [u8]) -> Span {
    // SAFETY: used within the call that copies out of it.
    unsafe { Span::new(bytes.as_mut_ptr(), bytes.len()) }
}

fn numbers(length: usize) -> Vec<u8> {
    (0..length).map(|i| (i * 13 + 5) as u8).collect()
}

#[test]
fn a_forward_in_parts_through_memory_that_the_sender_lends() {
    let mut methods = Methods::new(&[100, 100]);
    let supply = methods.forward(methods.from, methods.to[0], 20_000);
    assert_eq!((supply.supplier, supply.minimum), (Supplier::Sender, 64), "registered memory is the lender's own");
    let row = methods.start(supply);
    methods.run();
    assert!(methods.held(row).is_empty(), "nothing is lent before the receive is ready");
    methods.ready(row);
    let (mut message, mut out, mut at, mut ended) = (numbers(20_000), Vec::new(), 0, false);
    for step in 0.. {
        assert!(step < 2000, "it comes to an end");
        methods.run();
        assert!(methods.held(row).iter().sum::<usize>() <= 200, "never more than the method has");
        at += methods.arrive(row, &mut message[at..]);
        ended = methods.depart(row, 37, &mut out) || methods.depart(row, 90, &mut out);
        assert!(out.len() + 200 >= at, "what has arrived has left but for what is held");
        if ended {
            break;
        }
    }
    assert!(ended && out == message);
    methods.release(row);
    assert_eq!(methods.lender().lendable.len(), 2, "all are back");
    let all = methods.world.all();
    assert!(all.progress.supplies.is_empty() && all.progress.free_supplies.count as usize == all.supplies.len());
}

#[test]
fn a_forward_the_other_way_is_supplied_by_the_receiver() {
    let mut methods = Methods::new(&[300; 4]);
    let supply = methods.forward(methods.to[0], methods.from, 1000);
    assert_eq!(supply.supplier, Supplier::Receiver);
    let row = methods.start(supply);
    methods.ready(row);
    assert_eq!(methods.run()[..], [7], "its receive is told");
    assert_eq!(methods.held(row), [300, 300, 300, 100]);
    let (mut message, mut out, mut at) = (numbers(1000), Vec::new(), 0);
    for _ in 0..4 {
        at += methods.arrive(row, &mut message[at..]);
        methods.depart(row, usize::MAX, &mut out);
    }
    assert!(methods.run().is_empty() && out == message && methods.lender().lendable.len() == 4);
}

#[test]
fn less_than_the_agreed_minimum_is_not_handed_out() {
    let mut methods = Methods::new(&[40]);
    let supply = methods.forward(methods.from, methods.to[0], 100_000);
    let row = methods.start(supply);
    methods.ready(row);
    methods.run();
    assert!(methods.held(row).is_empty() && methods.world.all().progress.pending.has(Pending::SUPPLY));
    methods.lender().lendable.push(vec![0; 30]);
    methods.run();
    assert_eq!(methods.held(row), [40, 30]);
}

#[test]
fn a_window_moves_on_with_what_has_left_and_never_grows() {
    let mut methods = Methods::new(&[]);
    let free = methods.world.free_buffers();
    let supply = methods.forward(methods.from, methods.to[0], 1 << 20);
    let row = methods.start(Supply { supplier: Supplier::Temporary, ..supply });
    methods.ready(row);
    methods.run();
    assert_eq!(methods.held(row), [GRANT_BYTES; 4]);
    let (mut message, mut out, mut at) = (numbers(1 << 20), Vec::new(), 0);
    for _ in 0..100 {
        at += methods.arrive(row, &mut message[at..]);
        let ended = methods.depart(row, 50_000, &mut out);
        methods.run();
        assert!(methods.world.all().progress.forward_bytes.used <= FORWARD_WINDOW as u64);
        if ended {
            break;
        }
    }
    assert!(out == message);
    methods.release(row);
    let progress = methods.world.all().progress;
    assert_eq!((progress.forward_bytes.used, progress.forward_bytes.most), (0, FORWARD_WINDOW as u64));
    assert_eq!(methods.world.free_buffers(), free);
}

#[test]
fn what_is_over_before_its_time_gives_all_back() {
    let mut methods = Methods::new(&[100; 4]);
    let free = methods.world.free_buffers();
    let supply = methods.forward(methods.from, methods.to[0], 1000);
    let pool = Supply { supplier: Supplier::Temporary, to: 2, ..supply.clone() };
    let rows = [methods.start(supply), methods.start(pool)];
    rows.iter().for_each(|&row| methods.ready(row));
    methods.run();
    methods.arrive(rows[0], &mut numbers(150));
    rows.iter().for_each(|&row| methods.release(row));
    let all = methods.world.all();
    assert_eq!((all.progress.free_supplies.count as usize, all.progress.forward_bytes.used), (all.supplies.len(), 0));
    assert!(all.progress.supplies.is_empty());
    assert_eq!((methods.world.free_buffers(), methods.lender().lendable.len()), (free, 4));
}

#[test]
fn space_goes_out_in_the_order_of_each_vc_and_message() {
    let mut methods = Methods::new(&[100; 8]);
    let (from, [one, other]) = (methods.from, methods.to);
    let over = |methods: &mut Methods, vc, to| {
        let supply = Supply { to, ..methods.forward(from, vc, 100_000) };
        methods.start(supply)
    };
    let first = over(&mut methods, one, 1);
    let second = over(&mut methods, one, 1);
    let message = over(&mut methods, one, 7);
    let elsewhere = over(&mut methods, other, 1);
    [second, message, elsewhere].iter().for_each(|&row| methods.ready(row));
    methods.run();
    let held = [first, second, message].map(|row| methods.held(row).iter().sum::<usize>());
    assert_eq!(held, [0, 0, 64], "the first is not ready and holds up its message; another has what is agreed");
    let head = methods.held(elsewhere).iter().sum::<usize>();
    assert_eq!(head, 700, "at the head of its VC an operation has what there is");
}

#[test]
fn behind_others_that_have_all_their_space_an_operation_is_at_the_head() {
    let mut methods = Methods::new(&[4000; 3]);
    let (from, to) = (methods.from, methods.to[0]);
    let supplies = [8000, 100_000].map(|bytes| methods.forward(from, to, bytes));
    let rows = supplies.map(|supply| methods.start(supply));
    rows.iter().for_each(|&row| methods.ready(row));
    // Registering does not pay for short messages, so both sides use the lender's memory.
    methods.world.all().supplies[rows[0] as usize].supplier = Supplier::Sender;
    methods.run();
    assert_eq!((methods.held(rows[0]), methods.held(rows[1])), (vec![4000; 2], vec![4000]));
    assert_eq!(methods.world.all().supplies[rows[0] as usize].state, SupplyState::Satisfied);
}

#[test]
fn the_pool_keeps_rows_for_what_is_more_urgent_and_forwards_within_their_bound() {
    let mut methods = Methods::with(&[], Limits { forward_bytes: 64 << 10, ..Limits::default() });
    let all = methods.world.all();
    let ReservedBuffers { all: reserved, control } = all.progress.reserved_buffers;
    assert!(reserved > control && control > 0);
    let mut taken = 0;
    while pool::take(all.progress, all.buffers, Need::Unexpected, 1).is_some() {
        taken += 1;
    }
    assert_eq!((taken, all.progress.free_buffer_rows), (all.buffers.len() as u32 - reserved, reserved));
    let forward = pool::take(all.progress, all.buffers, Need::Forward, 60 << 10).unwrap();
    assert_eq!(pool::take(all.progress, all.buffers, Need::Forward, 8 << 10), None, "more than its bytes");
    pool::give(all.progress, all.buffers, Need::Forward, forward);
    while pool::take(all.progress, all.buffers, Need::Forward, 1).is_some() {}
    assert_eq!(all.progress.free_buffer_rows, control);
    for _ in 0..control {
        assert!(pool::take(all.progress, all.buffers, Need::Control, 1).is_some());
    }
    assert_eq!(pool::take(all.progress, all.buffers, Need::Control, 1), None);
}

#[test]
fn what_a_later_operation_gives_back_goes_to_an_earlier_one_at_once() {
    const BYTES: usize = 64 << 10;
    let mut methods = Methods::with(&[], Limits { forward_bytes: BYTES, ..Limits::default() });
    let rows = methods.to.map(|to| {
        let supply = Supply { supplier: Supplier::Temporary, ..methods.forward(methods.from, to, BYTES as u64) };
        methods.start(supply)
    });
    let [earlier, later] = rows;
    methods.ready(later);
    methods.run();
    methods.ready(earlier);
    methods.run();
    assert_eq!((methods.held(earlier).len(), methods.held(later)), (0, vec![BYTES]), "one has all of the pool");
    assert_eq!(methods.arrive(later, &mut numbers(BYTES)), BYTES);
    assert!(methods.depart(later, BYTES, &mut Vec::new()));
    methods.release(later);
    assert_eq!(methods.held(earlier), [BYTES]);
}
