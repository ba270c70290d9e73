//! A transport that sends from memory and fills memory only if the memory is registered with it.

use super::{Streams, cases, cluster_with, content, streams};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};
use tickwire::internals::components::wire::Header;
use tickwire::internals::components::{Access, Pieces, Registration, Span};
use tickwire::internals::traces::Ring;
use tickwire::internals::transports::{Capabilities, Memory, MemoryRead, Registering};
use tickwire::testing::Cluster;
use tickwire::{Builder, Datatype, Rank, RegistrationCounts, Source, Tag, Test, Typed};

/// Payloads up to this length, bytes, are copied at once. They need no registration.
const COPIED: usize = 64;
const BOUND: u32 = cases::BOUND;

#[derive(Default)]
struct Ranges {
    /// Registered ranges by name: first address, length in bytes, and access.
    there: BTreeMap<u64, (usize, usize, Access)>,
    /// How many ranges were registered in all.
    made: u64,
    /// How many ranges may be registered at a time.
    room: usize,
    /// How many frames and reads were refused for want of registration.
    refused: u32,
}

/// The registered memory of one proc. If procs read each other's memory, all procs of a cluster share it.
#[derive(Clone)]
pub(crate) struct Known(Arc<Mutex<Ranges>>);

impl Known {
    fn new(room: usize) -> Self {
        Known(Arc::new(Mutex::new(Ranges { room, ..Ranges::default() })))
    }

    fn ranges(&self) -> MutexGuard<'_, Ranges> {
        self.0.lock().unwrap()
    }

    /// How many ranges are registered now, and how many were in all. Panics if memory was needed that was not
    /// registered.
    fn counts(&self) -> (usize, u64) {
        let ranges = self.ranges();
        assert_eq!(ranges.refused, 0, "memory that was not known");
        (ranges.there.len(), ranges.made)
    }

    fn has(&self, start: usize, length: usize, access: Access) -> bool {
        let mut ranges = self.ranges();
        let within = |&(first, bytes, what): &(usize, usize, Access)| {
            first <= start && start + length <= first + bytes && what.covers(access)
        };
        let found = ranges.there.values().any(within);
        ranges.refused += u32::from(!found);
        found
    }
}

impl Registering for Known {
    fn register(&mut self, span: Span, access: Access) -> Result<Registration, String> {
        let mut ranges = self.ranges();
        if ranges.there.len() >= ranges.room {
            return Err(format!("there is room for {} ranges", ranges.room));
        }
        ranges.made += 1;
        let name = ranges.made;
        ranges.there.insert(name, (span.start().addr(), span.len(), access));
        Ok(Registration(name))
    }

    fn deregister(&mut self, registration: Registration) {
        assert!(self.ranges().there.remove(&registration.0).is_some(), "a range that is not there");
    }
}

// SAFETY: memory is read within the call. The engine of the peer keeps it that long.
#[expect(unsafe_code, reason = "bytes that are addresses")]
unsafe impl Memory for Known {
    fn reads(&self, _: u32, _: u64, _: u64) -> bool {
        true
    }

    /// Reads a peer's memory, which is in this process. Both ends must be registered.
    unsafe fn read(&mut self, _: u32, reads: &[MemoryRead]) -> Result<(), String> {
        for MemoryRead { address, into } in reads {
            let (from, to) = (*address as usize, into.start().addr());
            if !self.has(from, into.len(), Access::SEND) || !self.has(to, into.len(), Access::RECEIVE) {
                return Err("memory that is not known".into());
            }
            // SAFETY: the engine of the peer keeps the memory that it offers until it is told that it was read.
            unsafe {
                std::ptr::copy_nonoverlapping(std::ptr::with_exposed_provenance::<u8>(from), into.start(), into.len());
            }
        }
        Ok(())
    }

    unsafe fn read_at_once(&mut self, _: u32, _: u64, _: Span, _: bool) -> bool {
        false
    }

    unsafe fn expose(&mut self, _: u32, _: Span) {}

    fn withdraw(&mut self, _: u32, _: Span) {}

    fn withdraw_all(&mut self) {}
}

impl Streams {
    /// Streams that need registered memory.
    fn knowing(mut self, known: Known, reads: bool) -> Self {
        self.capabilities = Capabilities { remote_read: reads, inject_max: COPIED, ..self.capabilities };
        self.known = Some(known);
        self
    }

    /// Whether a frame's payload may be sent from where it is.
    pub(super) fn knows<P: Pieces + ?Sized>(&self, header: &Header, pieces: &P) -> bool {
        let Some(known) = &self.known else { return true };
        let runs = || (0..pieces.pieces()).map(|index| pieces.piece(index)).filter(|run| !run.is_empty());
        header.payload() as usize <= COPIED || runs().all(|run| known.has(run.start().addr(), run.len(), Access::SEND))
    }
}

/// A cluster with room for `room` ranges on each proc. With `reads`, procs read each other's memory and share the
/// registered ranges. Otherwise each proc has its own.
fn knowing(procs: u32, reads: bool, room: usize) -> (Cluster, Vec<Known>) {
    knowing_with(procs, reads, room, |builder| builder)
}

/// As [`knowing`], with builders that a test has changed.
fn knowing_with(
    procs: u32,
    reads: bool,
    room: usize,
    change: impl Fn(Builder) -> Builder + Sync,
) -> (Cluster, Vec<Known>) {
    let common = Known::new(if reads { room * procs as usize } else { room });
    let known: Vec<Known> = (0..procs).map(|_| if reads { common.clone() } else { Known::new(room) }).collect();
    let all = streams(procs).into_iter().zip(&known).map(|(s, known)| s.knowing(known.clone(), reads)).collect();
    (cluster_with(all, change), known)
}

fn send_and_receive<B: Pieces + Send + 'static>(cluster: &mut Cluster, buffer: B, number: u64) -> B {
    let world = cluster.engines[0].comm_world();
    let length = buffer.total();
    let receive = cluster.engines[1].irecv(vec![0u8; length], Rank(0), Tag(1), world).unwrap();
    let send = cluster.engines[0].isend(buffer, Rank(1), Tag(1), world).unwrap();
    assert!(cluster.finish(BOUND, 1, receive).unwrap().0 == content(number, length));
    cluster.finish(BOUND, 0, send).unwrap().0
}

#[test]
fn all_cases_with_memory_that_must_be_known() {
    // With a trace, the transport is wrapped. The wrapper has to pass registrations on.
    for (reads, traced) in [(false, false), (true, false), (false, true), (true, true)] {
        let trace = |builder: Builder| if traced { builder.trace(Ring::new(16)) } else { builder };
        let (mut cluster, known) = knowing_with(2, reads, 1000, trace);
        cases::all(&mut cluster);
        cluster.tick_times(3);
        for (engine, known) in cluster.engines.iter_mut().zip(&known) {
            let (there, made) = known.counts();
            assert!(there == 0 && made > 0, "{there} of {made} are left, reads {reads}, traced {traced}");
            let counts = engine.registrations();
            assert_eq!((counts.entries, counts.bytes), (0, 0));
        }
    }
}

#[test]
fn many_operations_share_the_room_that_a_transport_has() {
    let (mut cluster, known) = knowing(2, false, 2);
    let world = cluster.engines[0].comm_world();
    let mut open = Vec::new();
    for number in 0..30u64 {
        let length = 100 + 3000 * number as usize;
        let receive = cluster.engines[1].irecv(vec![0u8; length], Rank(0), Tag(1), world).unwrap();
        let send = cluster.engines[0].isend(content(number, length), Rank(1), Tag(1), world).unwrap();
        open.push((number, send, receive));
    }
    for (number, send, receive) in open {
        let (buffer, _) = cluster.finish(BOUND, 1, receive).unwrap();
        assert!(buffer == content(number, buffer.len()));
        cluster.finish(BOUND, 0, send).unwrap();
    }
    assert_eq!(known[0].counts().1, 30);
}

#[test]
fn memory_that_cannot_be_registered_at_all_ends_the_vc_with_the_reason() {
    let (mut cluster, _) = knowing(2, false, 0);
    let world = cluster.engines[0].comm_world();
    let send = cluster.engines[0].isend(vec![1u8; 1000], Rank(1), Tag(1), world).unwrap();
    let failed = cluster.finish(BOUND, 0, send).unwrap_err().to_string();
    assert!(failed.contains("cannot be registered: there is room for 0 ranges"), "{failed}");
}

#[test]
fn a_persistent_request_registers_its_memory_once() {
    let (mut cluster, known) = knowing(2, false, 10);
    let world = cluster.engines[0].comm_world();
    let mut persistent = cluster.engines[0].send_init(content(0, 50_000), Rank(1), Tag(1), world).unwrap();
    assert_eq!(known[0].counts(), (1, 1), "at its making");
    let start = |cluster: &mut Cluster, persistent: &tickwire::Persistent<Vec<u8>>, number| {
        let receive = cluster.engines[1].irecv(vec![0u8; 50_000], Rank(0), Tag(1), world).unwrap();
        cluster.engines[0].start(persistent).unwrap();
        assert!(cluster.finish(BOUND, 1, receive).unwrap().0 == content(number, 50_000));
        cluster.tick_until(BOUND, "a start", |cluster| cluster.engines[0].test(persistent).unwrap().is_done());
    };
    for number in 0..10 {
        let bytes = cluster.engines[0].contents(&mut persistent).unwrap();
        bytes.copy_from_slice(&content(number, 50_000));
        start(&mut cluster, &persistent, number);
    }
    assert_eq!(known[0].counts(), (1, 1));
    let counts = cluster.engines[0].registrations();
    let expected = RegistrationCounts { entries: 1, bytes: 50_000, hits: 10, misses: 1, evictions: 0 };
    assert_eq!(counts, expected);
    // `buffer` lends the buffer itself, so the application may have replaced it. Its memory is registered anew.
    *cluster.engines[0].buffer(&mut persistent).unwrap() = content(77, 50_000);
    start(&mut cluster, &persistent, 77);
    assert_eq!(known[0].counts().1, 2);
    drop(persistent);
    cluster.tick_times(300);
    assert_eq!(known[0].counts(), (0, 2), "gone with the request");
}

#[test]
fn a_persistent_receive_from_any_source_registers_with_each_method_that_fills_memory() {
    let known = [Known::new(10), Known::new(10), Known::new(10)];
    let [first, second, third] = [0, 1, 2].map(|index: usize| {
        let mut one = streams(2).remove(0).knowing(known[index].clone(), index < 2);
        one.name = ["one", "two", "three"][index];
        one
    });
    let builder = tickwire::Engine::builder().transport(first).transport(second).transport(third);
    let mut engine = builder.build(tickwire::Bootstrap::solo()).unwrap();
    let world = engine.comm_world();
    let any = engine.recv_init(vec![0u8; 1000], Source::Any, Tag(1), world).unwrap();
    assert_eq!(known.each_ref().map(|known| known.counts().0), [1, 1, 0], "the third fills only its own memory");
    let own = engine.recv_init(vec![0u8; 1000], Rank(0), Tag(1), world).unwrap();
    assert_eq!(engine.registrations().entries, 2, "a proc that is reached otherwise needs none");
    engine.free(any).unwrap();
    engine.free(own).unwrap();
    engine.tick();
    assert_eq!(known.each_ref().map(|known| known.counts().0), [0; 3]);
}

#[test]
fn buffers_that_the_engine_was_told_of_stay_registered_until_they_are_dropped() {
    let (mut cluster, known) = knowing(2, false, 10);
    let mut plain = content(1, 20_000);
    for _ in 0..5 {
        plain = send_and_receive(&mut cluster, plain, 1);
    }
    assert_eq!(known[0].counts(), (0, 5), "what has gone back to the application may be freed");
    let mut told = cluster.engines[0].register(content(1, 20_000));
    for number in 2..7 {
        told = send_and_receive(&mut cluster, told, number - 1);
        told.copy_from_slice(&content(number, 20_000));
    }
    assert_eq!(known[0].counts(), (1, 6));
    let counts = cluster.engines[0].registrations();
    assert_eq!((counts.hits, counts.misses), (4, 6));
    drop(told);
    send_and_receive(&mut cluster, content(9, 20_000), 9);
    cluster.tick_times(3);
    assert_eq!(known[0].counts().0, 0);
}

#[test]
fn messages_of_collective_operations_and_blocks_give_their_memory_back() {
    // Room for two ranges: what is not released keeps the third operation waiting.
    let (mut cluster, known) = knowing(3, false, 2);
    let mut kept = Vec::new();
    for round in 0..5u8 {
        let post = |engine: &mut tickwire::Engine| {
            let world = engine.comm_world();
            engine.ibcast(vec![round; 1000], Rank(0), world).unwrap()
        };
        let posted: Vec<_> = cluster.engines.iter_mut().map(post).collect();
        for (rank, posted) in posted.into_iter().enumerate() {
            kept.push(cluster.finish(BOUND, rank, posted).unwrap().0);
        }
    }
    assert!((0..).zip(kept.chunks(3)).all(|(round, of)| of.iter().flatten().all(|&byte| byte == round)));
    cluster.tick_times(3);
    assert!(known.iter().all(|known| known.counts().0 == 0));
    for number in 0..4 {
        const BYTES: usize = 300_000;
        let (world, tag) = (cluster.engines[0].comm_world(), Tag(3));
        let message = content(number, BYTES);
        let first = cluster.engines[0].gather_block(Rank(1), tag, world).send(message.clone()).start().unwrap();
        let middle = cluster.engines[1].scatter_block(Rank(0), tag, world).forward(BYTES, Rank(2)).start().unwrap();
        let last = cluster.engines[2].scatter_block(Rank(1), tag, world).recv(vec![0u8; BYTES]).start().unwrap();
        cluster.finish(BOUND, 0, first).unwrap();
        cluster.finish(BOUND, 1, middle).unwrap();
        assert!(cluster.finish(BOUND, 2, last).unwrap().0.1 == message);
        cluster.tick_times(3);
        assert!(known.iter().all(|known| known.counts().0 == 0));
    }
    assert!(known[1].counts().1 > 4, "what is passed on is registered as well");
}

#[test]
fn a_block_whose_memory_cannot_be_registered_ends_the_vc_with_the_reason() {
    let (mut cluster, _) = knowing(2, false, 0);
    let world = cluster.engines[0].comm_world();
    let first = cluster.engines[0].gather_block(Rank(1), Tag(3), world).send(vec![1u8; 300_000]).start().unwrap();
    let last = cluster.engines[1].scatter_block(Rank(0), Tag(3), world).recv(vec![0u8; 300_000]).start().unwrap();
    let failed = cluster.finish(BOUND, 0, first).unwrap_err().to_string();
    assert!(failed.contains("cannot be registered: there is room for 0 ranges"), "{failed}");
    assert!(cluster.finish(BOUND, 1, last).is_err());
}

#[test]
fn a_datatype_is_packed_into_memory_that_is_known() {
    let (mut cluster, known) = knowing(2, false, 10);
    let world = cluster.engines[0].comm_world();
    let column = Datatype::vector(3000, 1, 2, &Datatype::of::<u8>()).unwrap();
    let matrix: Vec<u8> = content(3, 6000);
    let every_second: Vec<u8> = matrix.iter().copied().step_by(2).collect();
    let receive = cluster.engines[1].irecv(vec![0u8; 3000], Rank(0), Tag(1), world).unwrap();
    let typed = Typed::new(matrix, &column, 1).unwrap();
    let send = cluster.engines[0].isend(typed, Rank(1), Tag(1), world).unwrap();
    assert!(cluster.finish(BOUND, 1, receive).unwrap().0 == every_second);
    cluster.finish(BOUND, 0, send).unwrap();
    assert!(known[0].counts().0 == 0 && known[0].counts().1 > 0);
}

#[test]
fn an_operation_that_fails_gives_the_memory_of_its_messages_back() {
    let (mut cluster, known) = knowing(3, false, 10);
    let bcast = |engine: &mut tickwire::Engine| {
        let world = engine.comm_world();
        engine.ibcast(vec![1u8; 1000], Rank(0), world).unwrap()
    };
    let posted: Vec<_> = cluster.engines.iter_mut().map(bcast).collect();
    for (rank, posted) in posted.into_iter().enumerate() {
        cluster.finish(BOUND, rank, posted).unwrap();
    }
    // All messages wait for credit, with their memory registered. Then proc 2 is gone.
    for vc in tickwire::testing::rows(&mut cluster.engines[0]).vcs.iter_mut() {
        (vc.lines, vc.envelopes) = (0, 0);
    }
    let posted = bcast(&mut cluster.engines[0]);
    cluster.tick(0);
    assert_eq!(known[0].counts().0, 1);
    drop(cluster.engines.pop());
    for _ in 0..BOUND {
        cluster.tick(0);
        cluster.now_ns += tickwire::testing::STEP_NS;
        if !matches!(cluster.engines[0].test(&posted), Ok(Test::Pending)) {
            break;
        }
    }
    assert!(cluster.engines[0].take(posted).is_err());
    cluster.tick(0);
    assert_eq!((known[0].counts().0, cluster.engines[0].registrations().entries), (0, 0));
}

#[test]
fn a_message_that_waits_to_be_asked_for_more_keeps_no_room_from_others() {
    const BYTES: usize = 300_000;
    let (mut cluster, _) = knowing(3, false, 1);
    let (world, tag) = (cluster.engines[0].comm_world(), Tag(3));
    let message = content(4, BYTES);
    let first = cluster.engines[1].gather_block(Rank(2), tag, world).send(message.clone()).start().unwrap();
    let middle = cluster.engines[2].scatter_block(Rank(1), tag, world).forward(BYTES, Rank(0)).start().unwrap();
    cluster.tick_times(100);
    // Rank 0 takes this message first.
    let plain = cluster.engines[1].isend(content(5, 1000), Rank(0), Tag(1), world).unwrap();
    let receive = cluster.engines[0].irecv(vec![0u8; 1000], Rank(1), Tag(1), world).unwrap();
    assert!(cluster.finish(BOUND, 0, receive).unwrap().0 == content(5, 1000));
    let last = cluster.engines[0].scatter_block(Rank(2), tag, world).recv(vec![0u8; BYTES]).start().unwrap();
    assert!(cluster.finish(BOUND, 0, last).unwrap().0.1 == message);
    cluster.finish(BOUND, 1, plain).unwrap();
    cluster.finish(BOUND, 1, first).unwrap();
    cluster.finish(BOUND, 2, middle).unwrap();
}
