//! Two methods of different abilities, driven by hand: bytes come over one and leave over the other in parts.

use super::*;
use crate::steps::supply::decide::decide;
use crate::store::Tables;
use crate::testing::{FRAME_MAX, FakeWire, TestWorld, WireState};
use crate::tick::supply_buffers::supply_buffers;
use std::sync::{Arc, Mutex, MutexGuard};
use tickwire_components::limits::Limits;
use tickwire_components::{Abilities, Combine, Outlet, Payload, Question, Target, VcState};
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

    /// A forward of bytes from one VC to others, as whoever passes a message on starts it.
    fn forward(&mut self, from: Row, to: &[Row], bytes: u64) -> Supply {
        let (receive, send) = (self.abilities(from), self.abilities(to[0]));
        let question = Question {
            receive: Some(receive),
            send: Some(send),
            target: Target::Nowhere,
            combine: Combine::Never,
            bytes,
            frame: 0,
            readable: false,
        };
        let outlets = to.iter().map(|&vc| Outlet { car: NIL, vc, emptied: 0 }).collect();
        let minimum = receive.minimum.max(send.minimum);
        let supplier = decide(&question).supplier;
        Supply { vc: from, supplier, bytes, minimum, outlets, ..Supply::default() }
    }

    /// The tables that memory is handed out from.
    fn tables(&mut self) -> SupplyTables<'_> {
        let Tables { progress, supplies, buffers, vcs, endpoints, .. } = self.world.all();
        SupplyTables { progress, supplies, buffers, vcs, endpoints }
    }

    fn start(&mut self, supply: Supply) -> Row {
        let all = self.world.all();
        enqueue(all.progress, all.supplies, supply).unwrap()
    }

    fn ready(&mut self, row: Row) {
        let all = self.world.all();
        ready(all.progress, all.supplies, row);
    }

    fn run(&mut self) {
        self.world.all().progress.pending = Pending::NONE;
        self.world.step(supply_buffers);
    }

    /// The bytes of the runs that an operation holds.
    fn held(&mut self, row: Row) -> Vec<usize> {
        self.world.all().supplies[row as usize].group.iter().map(|granted| granted.span.len()).collect()
    }

    /// Some of a message arrives as far as there is space in the run; how many bytes.
    fn arrive(&mut self, row: Row, message: &mut [u8]) -> usize {
        let all = self.world.all();
        // SAFETY: space of the world, and a message that outlives the call.
        #[expect(unsafe_code, reason = "bytes that are addresses")]
        let moved = unsafe { copy::copy(space(&all.supplies[row as usize]), span(message)) };
        self.tables().filled(row, moved as u64);
        moved
    }

    /// What can leave through an outlet leaves, at most `most` bytes; the bytes, and whether that was the end.
    fn depart(&mut self, row: Row, outlet: usize, most: u64, into: &mut Vec<u8>) -> bool {
        let all = self.world.all();
        let run = outgoing(&all.supplies[row as usize], outlet, most);
        // SAFETY: bytes of the world.
        #[expect(unsafe_code, reason = "bytes that are addresses")]
        let gathered = unsafe { copy::gather(&Payload::new(&[run])) };
        into.extend_from_slice(&gathered);
        let left = run.len() as u64;
        self.tables().emptied(row, outlet, left)
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
    let (from, to) = (methods.from, methods.to[0]);
    let supply = methods.forward(from, &[to], 20_000);
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
        ended = methods.depart(row, 0, 37, &mut out) || methods.depart(row, 0, 90, &mut out);
        assert!(out.len() + 200 >= at, "what has arrived has left but for what is held");
        if ended {
            break;
        }
    }
    assert!(ended && out == message);
    assert_eq!(methods.lender().lendable.len(), 2, "all are back");
    let all = methods.world.all();
    assert!(all.progress.supplies.is_empty() && all.progress.free_supplies.count as usize == all.supplies.len());
}

#[test]
fn a_forward_the_other_way_is_supplied_by_the_receiver() {
    let mut methods = Methods::new(&[300; 4]);
    let (from, to) = (methods.to[0], methods.from);
    let supply = methods.forward(from, &[to], 1000);
    assert_eq!(supply.supplier, Supplier::Receiver);
    let row = methods.start(supply);
    methods.ready(row);
    methods.run();
    assert_eq!(methods.held(row), [300, 300, 300, 100]);
    let (mut message, mut out, mut at) = (numbers(1000), Vec::new(), 0);
    for _ in 0..4 {
        at += methods.arrive(row, &mut message[at..]);
        methods.depart(row, 0, u64::MAX, &mut out);
    }
    assert!(out == message && methods.lender().lendable.len() == 4);
}

#[test]
fn less_than_the_agreed_minimum_is_not_handed_out() {
    let mut methods = Methods::new(&[40]);
    let supply = methods.forward(methods.from, &[methods.to[0]], 100_000);
    let row = methods.start(supply);
    methods.ready(row);
    methods.run();
    assert!(methods.held(row).is_empty() && methods.world.all().progress.pending.has(Pending::SUPPLY));
    methods.lender().lendable.push(vec![0; 30]);
    methods.run();
    assert_eq!(methods.held(row), [40, 30]);
}

#[test]
fn a_temporary_is_free_with_the_last_that_uses_it() {
    let mut methods = Methods::new(&[]);
    let free = methods.world.free_buffers();
    let (from, to) = (methods.from, methods.to);
    let mut supply = methods.forward(from, &to, 1000);
    supply.supplier = Supplier::Temporary;
    let row = methods.start(supply);
    methods.ready(row);
    methods.run();
    let mut message = numbers(1000);
    assert_eq!(methods.arrive(row, &mut message), 1000);
    let mut outs = [Vec::new(), Vec::new()];
    assert!(!methods.depart(row, 0, 1000, &mut outs[0]) && !methods.depart(row, 1, 999, &mut outs[1]));
    assert_eq!(methods.world.free_buffers(), free - 1, "one CAR has a byte to go");
    assert!(methods.depart(row, 1, 1, &mut outs[1]));
    assert!(outs.iter().all(|out| *out == message));
    assert_eq!((methods.world.free_buffers(), methods.world.all().progress.forward_bytes[0]), (free, 0));
}

#[test]
fn an_outlet_that_fails_holds_nothing_up_and_what_is_abandoned_gives_all_back() {
    let mut methods = Methods::new(&[]);
    let free = methods.world.free_buffers();
    let (from, to) = (methods.from, methods.to);
    let mut supply = methods.forward(from, &to, 1000);
    supply.supplier = Supplier::Temporary;
    let rows = [methods.start(supply.clone()), methods.start(Supply { context: 2, ..supply })];
    rows.iter().for_each(|&row| methods.ready(row));
    methods.run();
    let (mut message, mut out) = (numbers(1000), Vec::new());
    methods.arrive(rows[0], &mut message);
    assert!(!methods.depart(rows[0], 1, 1000, &mut out));
    assert!(methods.tables().leave(rows[0], 0));
    methods.tables().abandon(rows[1]);
    let all = methods.world.all();
    assert_eq!((all.progress.free_supplies.count as usize, all.progress.forward_bytes[0]), (all.supplies.len(), 0));
    assert!(all.progress.supplies.is_empty());
    assert_eq!(methods.world.free_buffers(), free);
}

#[test]
fn space_goes_out_in_the_order_of_each_vc_and_context() {
    let mut methods = Methods::new(&[100; 8]);
    let (from, [one, other]) = (methods.from, methods.to);
    let over = |methods: &mut Methods, vc, context| {
        let supply = Supply { context, ..methods.forward(from, &[vc], 100_000) };
        methods.start(supply)
    };
    let first = over(&mut methods, one, 1);
    let second = over(&mut methods, one, 1);
    let context = over(&mut methods, one, 7);
    let elsewhere = over(&mut methods, other, 1);
    [second, context, elsewhere].iter().for_each(|&row| methods.ready(row));
    methods.run();
    let held = [first, second, context].map(|row| methods.held(row).iter().sum::<usize>());
    assert_eq!(held, [0, 0, 64], "the first is not ready and holds up its context; another has what is agreed");
    let head = methods.held(elsewhere).iter().sum::<usize>();
    assert_eq!(head, 700, "at the head of its VC an operation has what there is");
}

#[test]
fn behind_others_that_have_all_their_space_an_operation_is_at_the_head() {
    let mut methods = Methods::new(&[4000; 3]);
    let (from, to) = (methods.from, methods.to[0]);
    let supplies = [8000, 100_000].map(|bytes| methods.forward(from, &[to], bytes));
    let rows = supplies.map(|supply| methods.start(supply));
    rows.iter().for_each(|&row| methods.ready(row));
    // Short ones need registering that does not pay, so both sides use what the lender lends.
    methods.world.all().supplies[rows[0] as usize].supplier = Supplier::Sender;
    methods.run();
    assert_eq!((methods.held(rows[0]), methods.held(rows[1])), (vec![4000; 2], vec![4000]));
    assert_eq!(methods.world.all().supplies[rows[0] as usize].state, SupplyState::Satisfied);
    let queue = methods.world.all().progress.supplies;
    assert_eq!((queue.head, queue.tail), (rows[1], rows[1]));
}

#[test]
fn the_pool_keeps_rows_for_what_is_more_urgent_and_forwards_within_their_bound() {
    let mut methods = Methods::with(&[], Limits { forward_bytes: 64 << 10, ..Limits::default() });
    let all = methods.world.all();
    let [kept, control] = all.progress.held_buffers;
    assert!(kept > control && control > 0);
    let mut taken = 0;
    while pool::take(all.progress, all.buffers, Need::Unexpected, 1).is_some() {
        taken += 1;
    }
    assert_eq!((taken, all.progress.free_buffer_rows), (all.buffers.len() as u32 - kept, kept));
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
fn the_segment_of_the_application_is_handed_out_as_a_whole() {
    let mut methods = Methods::new(&[]);
    let mut segment = vec![0; 50_000];
    let mut supply = methods.forward(methods.from, &[methods.to[0]], 50_000);
    (supply.supplier, supply.segment) = (Supplier::Segment, span(&mut segment));
    let row = methods.start(supply);
    methods.ready(row);
    methods.run();
    let (mut message, mut out) = (numbers(50_000), Vec::new());
    methods.arrive(row, &mut message[..20_000]);
    methods.depart(row, 0, u64::MAX, &mut out);
    methods.arrive(row, &mut message[20_000..]);
    assert!(methods.depart(row, 0, u64::MAX, &mut out));
    assert!(segment == message && out == message);
}

#[test]
fn the_end_of_a_vc_ends_what_comes_over_it_and_takes_an_outlet_from_what_leaves_over_it() {
    let mut methods = Methods::new(&[]);
    let free = methods.world.free_buffers();
    let (from, to) = (methods.from, methods.to);
    let temporary = |supply| Supply { supplier: Supplier::Temporary, ..supply };
    let supplies = [methods.forward(from, &to, 1000), methods.forward(to[0], &[from], 1000)].map(temporary);
    let [through, back] = supplies.map(|supply| methods.start(supply));
    [through, back].iter().for_each(|&row| methods.ready(row));
    methods.run();
    crate::procs::ending::fail(&mut methods.world.all(), to[0], "a test".into());
    let all = methods.world.all();
    assert_eq!(all.supplies[back as usize].state, SupplyState::Free);
    assert_eq!(all.supplies[through as usize].outlets.len(), 1);
    let (mut message, mut out) = (numbers(1000), Vec::new());
    methods.arrive(through, &mut message);
    assert!(methods.depart(through, 0, u64::MAX, &mut out) && out == message);
    assert_eq!(methods.world.free_buffers(), free);
}
