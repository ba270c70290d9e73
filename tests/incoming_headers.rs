//! Runs the fuzz target `headers` without a fuzzer: on the committed corpus, on changed inputs of the corpus, and on
//! random inputs. Inputs that a fuzzer finds are added to the corpus.

#![allow(clippy::unwrap_used, reason = "what cannot be prepared fails the test")]

use std::path::Path;
use tickwire::internals::components::CarState;
use tickwire::internals::components::limits::{LOOPBACK_RING_BYTES, Limits, WALK_MAX};
use tickwire::internals::components::wire::{DIRECT, Header, KINDS_END, Kind, READABLE, READY, WIDER};
use tickwire::internals::components::{Arrival, VcState};
use tickwire::internals::transports::{Hub, Loopback, Sent, Transport};
use tickwire::testing::{Board, STEP_NS, SplitMix, rows};
use tickwire::{Engine, Rank, Request, RequestError, Source, Tag};
use tickwire_tests::answers::{answers, samples};
use tickwire_tests::headers::{Reached, headers};

/// Number of inputs of each kind.
const INPUTS: u64 = 4000;
/// Characters that occur in texts of launchers and of other hosts.
const SIGNS: &[u8] = b"0123456789,()[]x={}\"\n -e";
/// Length limit of a random input, bytes.
const BYTES_MAX: u64 = 600;

/// Runs an input. If it fails, prints it as a command line that writes it to a file.
fn run(name: &str, input: &[u8]) -> Reached {
    std::panic::catch_unwind(|| headers(input)).unwrap_or_else(|panic| {
        let bytes: String = input.iter().map(|byte| format!("\\x{byte:02x}")).collect();
        eprintln!("{name} fails; to keep it: printf '{bytes}' > tests/fuzz/corpus/headers/NAME");
        std::panic::resume_unwind(panic)
    })
}

/// The corpus, by name.
fn corpus() -> Vec<(String, Vec<u8>)> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus/headers");
    let entries = std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    let mut files: Vec<_> =
        entries.map(|path| (path.file_name().unwrap().display().to_string(), std::fs::read(path).unwrap())).collect();
    files.sort();
    files
}

fn seed() -> u64 {
    match std::env::var("TICKWIRE_TEST_SEED") {
        Ok(seed) => seed.parse().unwrap(),
        Err(_) => std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_nanos() as u64,
    }
}

#[test]
fn the_corpus_leads_to_every_state() {
    let mut all = Reached::default();
    for (name, input) in corpus() {
        let reached = run(&name, &input);
        all.states |= reached.states;
        all.failed = all.failed.max(reached.failed);
        all.unexpected = all.unexpected.max(reached.unexpected);
        all.one_sided.iter_mut().zip(reached.one_sided).for_each(|(all, done)| *all += done);
        all.sent.iter_mut().zip(reached.sent).for_each(|(all, sent)| *all |= sent);
    }
    for kind in (1..=15).filter_map(Kind::from_byte) {
        let flags = all.sent[kind as usize];
        assert_eq!(flags & 0x87, 0x87, "{kind:?} was sent without flags, and with each of the three: {flags:#b}");
    }
    use CarState::{Done, Offered, Posted, Queued, Receiving, Sending};
    for state in [Posted, Queued, Offered, Sending, Receiving, Done] {
        assert!(all.has(state), "no CAR was ever {state:?}");
    }
    assert!(all.failed == 2 && all.unexpected > WALK_MAX, "{all:?}");
    let [done, answered] = all.one_sided;
    assert!(
        done > 20 && answered > 20,
        "of one-sided operations {done} are done, and {answered} of peers are answered"
    );
}

#[test]
fn changes_of_the_corpus() {
    let (files, seed) = (corpus(), seed());
    let mut random = SplitMix::new(seed);
    for number in 0..INPUTS {
        let mut pick = || files[random.below(files.len() as u64) as usize].1.clone();
        let (mut input, other) = (pick(), pick());
        for _ in 0..=random.below(4) {
            let place = random.below(input.len() as u64 + 1) as usize;
            match random.below(4) {
                0 => input.truncate(place),
                1 => input.insert(place, random.next_u64() as u8),
                2 => drop(input.splice(place..place, other.iter().copied())),
                _ => input.iter_mut().skip(place).take(1).for_each(|byte| *byte = random.next_u64() as u8),
            }
        }
        run(&format!("change {number} of TICKWIRE_TEST_SEED={seed}"), &input);
    }
}

#[test]
fn random_inputs() {
    let seed = seed();
    let mut random = SplitMix::new(seed);
    for number in 0..INPUTS {
        let length = random.below(BYTES_MAX);
        // Small bytes are mostly valid commands and arguments. Large bytes make headers of arbitrary words.
        let most = [16, 64, 256][random.below(3) as usize];
        let input: Vec<u8> = (0..length).map(|_| random.below(most) as u8).collect();
        run(&format!("input {number} of TICKWIRE_TEST_SEED={seed}"), &input);
    }
}

#[test]
fn one_sided_operations_and_answers() {
    let seed = seed();
    let mut random = SplitMix::new(seed);
    let (mut done, mut answers, mut failed) = (0, 0, 0);
    for number in 0..INPUTS {
        let mut input = vec![0];
        for _ in 0..random.below(100) {
            // One of eight commands lets the peers read or the engine tick. All others are one-sided operations.
            let command = if random.below(8) == 0 { random.below(128) as u8 | 14 } else { 0x84 };
            input.push(command);
            if command == 0x84 {
                // In half of the inputs, no answer and no request has anything wrong on purpose.
                let most = [192, 256][number as usize % 2];
                input.extend((0..7).map(|_| random.below(most) as u8));
                // A distance, often a short one.
                input.extend((random.next_u64() >> random.below(64)).to_le_bytes());
            }
        }
        let reached = run(&format!("input {number} of TICKWIRE_TEST_SEED={seed}"), &input);
        (done, answers) = (done + reached.one_sided[0], answers + reached.one_sided[1]);
        failed += reached.failed;
    }
    assert!(
        done > 2 * INPUTS && answers > 2 * INPUTS && failed > 100,
        "{done} done, {answers} answers, {failed} links ended"
    );
}

/// An engine and two peers without an engine. The first peer may send anything. The second peer behaves.
struct Stage {
    engine: Engine,
    peers: [(Loopback, u32); 2],
    now_ns: u64,
    /// The message id of the offer to the first peer.
    offered: u32,
    offer: Request<Vec<u8>>,
}

impl Stage {
    /// Both peers are connected and have sent a message, so that Deliver polls their links. With systems of an
    /// application, Deliver is off.
    fn new(systems: bool) -> Self {
        let (hub, board) = (Hub::new(3, LOOPBACK_RING_BYTES), Board::new(3));
        let peers = [1, 2].map(|rank| Loopback::join(&hub, rank).unwrap());
        let limits = Limits { cars_max: 64, buffers_max: 64, ..Limits::default() };
        let builder = Engine::builder().include(["loopback"]).hub(hub).initial_rows(16).limits(limits);
        let builder = if systems { builder.systems(|schedule| _ = schedule.add_systems(|| ())) } else { builder };
        let mut engine = builder.build(board.bootstrap(0)).unwrap();
        let peers = peers.map(|mut transport| {
            let link = transport.connect(0, &[], 0).unwrap();
            transport.attach(link, 0);
            (transport, link)
        });
        let world = engine.comm_world();
        let greetings = [1, 2].map(|rank| engine.irecv(Vec::<u8>::new(), Rank(rank), Tag(0), world).unwrap());
        let offer = engine.isend(vec![1u8; 20_000], Rank(1), Tag(0), world).unwrap();
        let mut stage = Stage { engine, peers, now_ns: 0, offered: 0, offer };
        for peer in 0..2 {
            stage.put(peer, Header::new(Kind::Eager, 0, peer as u32 + 1, 0, 0, 0));
        }
        stage.tick(20);
        for greeting in greetings {
            stage.engine.take(greeting).unwrap();
        }
        let mut arrivals = [Arrival::default(); 8];
        let (transport, _) = &mut stage.peers[0];
        let count = transport.drain(stage.now_ns, &mut arrivals);
        transport.release();
        let is_offer = |arrival: &&Arrival| arrival.header.kind() == Some(Kind::Rts);
        stage.offered = arrivals[..count].iter().find(is_offer).unwrap().header.message();
        stage
    }

    fn put(&mut self, peer: usize, header: Header) {
        let (transport, link) = &mut self.peers[peer];
        let payload: Vec<u8> = (0..header.payload()).map(|n| 0xA0 | n as u8).collect();
        assert_eq!(transport.send(*link, &header, &payload, &mut ()), Sent::Done);
    }

    fn tick(&mut self, times: u32) {
        for _ in 0..times {
            self.now_ns += STEP_NS;
            self.engine.tick_at(self.now_ns);
        }
    }

    /// A valid frame of a kind, as the first peer may send it here.
    fn plain(&self, kind: Kind) -> Header {
        let (message, length) = match kind {
            Kind::Eager => (0, 100),
            Kind::Head => (60, 100),
            Kind::Rts | Kind::Sync => (3, 100),
            Kind::Cts => (self.offered, 100),
            Kind::Done | Kind::Nack | Kind::Stop => (self.offered, 0),
            Kind::Bye | Kind::Credit | Kind::Offers | Kind::Call | Kind::Accept => (0, 0),
            Kind::Piece | Kind::Part | Kind::Type | Kind::Remote | Kind::Answer => (0, 100),
            Kind::Inquiry | Kind::Denial => (u32::MAX, 1),
        };
        Header::new(kind, 0, 1, 5, message, length)
    }

    /// The reason why the connection to the first peer has ended, if it has.
    fn reason(&mut self) -> Option<String> {
        let all = rows(&mut self.engine);
        let row = all.vcs.iter().position(|vc| vc.proc == 1).unwrap();
        (all.vcs[row].state == VcState::Failed).then(|| all.procs.reason(row as u32).to_owned())
    }
}

/// A hostile peer sends a frame. `possible` says whether a peer may send such a frame. `awaited` says whether a
/// receive is posted for it.
fn meets(systems: bool, awaited: bool, frame: impl Fn(&Stage) -> Header, possible: bool) {
    let mut stage = Stage::new(systems);
    let world = stage.engine.comm_world();
    let header = frame(&stage);
    let what = format!("{:?} with {header:?}, systems {systems}, awaited {awaited}", header.kind());
    let mut receive = |source: Source, tag| stage.engine.irecv(vec![0u8; 100], source, Tag(tag), world).unwrap();
    let hostile = awaited.then(|| receive(Source::Rank(Rank(1)), 5));
    let (any, own) = (receive(Source::Any, 6), receive(Source::Rank(Rank(2)), 5));
    stage.put(0, header);
    stage.tick(4);
    let reason = stage.reason();
    let words = reason.as_deref().unwrap_or_default();
    let refused = words.contains("its kind cannot have");
    assert!(!refused || words.starts_with("protocol violation: a frame "), "{what}: {words}");
    assert_eq!(refused, !possible, "{what}: {reason:?}");
    if !possible {
        if let Some(request) = hostile {
            let failed = stage.engine.take(request).unwrap_err();
            assert!(matches!(failed.error, RequestError::PeerFailed { .. }), "{what}: {}", failed.error);
            assert_eq!(failed.buffer, Some(vec![0u8; 100]), "{what}: nothing of it was received");
        }
        assert_eq!(rows(&mut stage.engine).progress.unexpected.count, 0, "{what}: nothing of it was kept");
        assert!(!matches!(stage.engine.test(&stage.offer), Ok(tickwire::Test::Pending)), "{what}: its peer has failed");
    }
    stage.engine.acknowledge_failures();
    // Messages of the other peer still arrive, even for a receive that could have matched the hostile peer's message.
    for tag in [5, 6] {
        stage.put(1, Header::new(Kind::Eager, 0, 2, tag, 0, 100));
    }
    stage.tick(4);
    for request in [own, any] {
        let (bytes, status) = stage.engine.take(request).unwrap_or_else(|failed| panic!("{what}: {}", failed.error));
        assert_eq!((bytes[0], status.source, status.length), (0xA0, Rank(2), 100), "{what}");
    }
}

/// All kinds of frames that a peer can send while types are not checked.
fn kinds() -> impl Iterator<Item = Kind> {
    (1..KINDS_END).filter_map(Kind::from_byte).filter(|&kind| kind != Kind::Type)
}

fn ways() -> impl Iterator<Item = (bool, bool)> {
    [(false, false), (false, true), (true, false), (true, true)].into_iter()
}

#[test]
fn a_kind_has_the_flags_that_are_its_own_or_ends_its_connection() {
    let others = [8, 16, 32, 64, 128, READABLE | 8, 255];
    for (kind, (systems, awaited)) in kinds().flat_map(|kind| ways().map(move |way| (kind, way))) {
        for flags in (0..8).chain(others) {
            let possible = match kind {
                Kind::Rts => flags < 8 && flags & (READABLE | DIRECT) != READABLE | DIRECT,
                Kind::Cts => matches!(flags, 0 | DIRECT | WIDER),
                _ => flags == 0,
            };
            meets(systems, awaited, |stage| stage.plain(kind).with_flags(flags), possible);
        }
    }
}

#[test]
fn a_kind_has_the_priority_and_the_lengths_that_are_its_own_or_ends_its_connection() {
    for (kind, (systems, awaited)) in kinds().flat_map(|kind| ways().map(move |way| (kind, way))) {
        let urgent = matches!(kind, Kind::Rts | Kind::Sync);
        meets(systems, awaited, |stage| stage.plain(kind).with_priority(7), urgent);
        for byte in [1, 128, 255] {
            meets(systems, awaited, |stage| stage.plain(kind).with_type(byte), false);
        }
        for flags in [READABLE, READABLE | READY] {
            let offer = |reserved| move |stage: &Stage| stage.plain(kind).with_flags(flags).with_type(reserved);
            meets(systems, awaited, offer(0), kind == Kind::Rts);
            meets(systems, awaited, offer(1), false);
        }
        let with_length = |length| move |stage: &Stage| Header { length, ..stage.plain(kind) };
        let empty = matches!(kind, Kind::Piece | Kind::Part | Kind::Head);
        meets(systems, awaited, with_length(0), !empty);
        let bare = matches!(kind, Kind::Done | Kind::Nack | Kind::Stop | Kind::Bye | Kind::Credit | Kind::Offers);
        let long = bare || matches!(kind, Kind::Call | Kind::Accept | Kind::Head);
        meets(systems, awaited, with_length(60), !long);
    }
}

#[test]
fn what_launchers_and_other_hosts_say_does_no_harm() {
    let samples = samples();
    let ways: std::collections::BTreeSet<u8> = samples
        .iter()
        .map(|sample| {
            let (way, taken) = answers(sample);
            assert!(taken, "{:?}", String::from_utf8_lossy(sample));
            way
        })
        .collect();
    assert_eq!(ways.len(), 5, "there is one for each reader");
    let seed = seed();
    let mut random = SplitMix::new(seed);
    for number in 0..INPUTS {
        let mut input = samples[random.below(samples.len() as u64) as usize].clone();
        for _ in 0..=random.below(3) {
            let (at, other) = (random.below(input.len() as u64) as usize, random.below(256) as u8);
            match random.below(6) {
                // The first byte selects the reader, so it is not changed.
                _ if at == 0 => input.push(other),
                0 => input.truncate(at),
                1 => drop(input.remove(at)),
                2 => input.insert(at, other),
                3 => input[at] = SIGNS[usize::from(other) % SIGNS.len()],
                4 => {
                    // The largest number of 64 bits.
                    drop(input.splice(at..at + 1, *b"18446744073709551615"));
                }
                _ => input[at] ^= 1 << (other % 8),
            }
        }
        let outcome = std::panic::catch_unwind(|| answers(&input));
        assert!(outcome.is_ok(), "TICKWIRE_TEST_SEED={seed}, input {number}: {:?}", String::from_utf8_lossy(&input));
    }
}
