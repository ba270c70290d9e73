//! Random programs: what several ranks call, in which order, and which messages follow from it.

use super::{Envelope, Key};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
use std::ops::{Range, RangeInclusive};
use tickwire::internals::components::limits::{Limits, Matching};

/// Communicators of a program: the world, its duplicate, a part of it in reverse order, the proc alone.
pub const COMMS: usize = 4;
/// Longest message, bytes.
pub const LENGTH_MAX: usize = 24_000;
/// Most messages that one rank sends. Each [`Size`] has as many lengths.
pub const SENDS_MAX: usize = 2000;

// The ranges of lengths of the kinds of [`Size`] do not overlap.
const _: () = assert!(8 + SENDS_MAX <= 4000 && 4000 + SENDS_MAX <= 8100 && 20_000 + SENDS_MAX <= LENGTH_MAX);

/// How long the search for a smaller failing program may take, ms. A program that hangs fails only after many ticks.
const SHRINK_MS_MAX: u32 = 20_000;
/// Persistent requests that a rank has of each kind.
const SLOTS: u8 = 4;

/// Ways of matching: the implementation, and the bits of the counter that orders wildcard receives.
pub const WAYS: [(Matching, u32); 5] =
    [(Matching::Auto, 32), (Matching::Lists, 4), (Matching::Lists, 8), (Matching::Lists, 32), (Matching::Index, 32)];

/// Limits for a way of matching. Pieces are short, so that large messages have several pieces over any transport.
pub fn limits(way: usize) -> Limits {
    let (matching, wildcard_bits) = WAYS[way];
    Limits { matching, wildcard_bits, piece_bytes: 4096, ..Limits::default() }
}

/// The generator of programs for a seed.
pub fn runner(seed: u64) -> TestRunner {
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&seed.to_le_bytes());
    let config = Config {
        max_shrink_iters: 2000,
        max_shrink_time: SHRINK_MS_MAX,
        failure_persistence: None,
        ..Config::default()
    };
    TestRunner::new_with_rng(config, TestRng::from_seed(RngAlgorithm::ChaCha, &bytes))
}

/// A program.
#[derive(Clone, Debug)]
pub struct Program {
    /// Number of procs.
    pub ranks: u32,
    /// The calls. Those of one rank are made in this order.
    pub ops: Vec<Op>,
}

/// A call of one rank. Every number is taken modulo the number of things to choose from.
#[derive(Clone, Copy, Debug)]
pub struct Op {
    /// The rank that calls.
    pub rank: u8,
    /// The communicator.
    pub comm: u8,
    /// The call.
    pub what: What,
}

/// The call itself.
#[derive(Clone, Copy, Debug)]
pub enum What {
    /// A receive.
    Receive {
        /// Source and tag that it asks for.
        key: RawKey,
        /// Whether its buffer is too short for most messages.
        short: bool,
        /// The slot of a persistent receive. The slot also decides the communicator.
        slot: Option<u8>,
    },
    /// A send.
    Send {
        /// The receiver.
        to: u8,
        /// The tag.
        tag: u8,
        /// How long the message is.
        size: Size,
        /// The send mode.
        mode: Mode,
    },
    /// Cancels one of the open receives.
    Cancel(u8),
    /// A probe.
    Probe(RawKey),
    /// A matched probe.
    Claim(RawKey),
    /// Receives a message that a matched probe has taken. If the flag is set, the message is dropped instead.
    Settle(u8, bool),
}

/// A key before the number of ranks is known.
#[derive(Clone, Copy, Debug)]
pub struct RawKey {
    source: Option<u8>,
    tag: Option<u8>,
}

/// How long a message is. Each kind has a range of lengths. All messages of a sender have different lengths, except
/// messages without bytes and those of persistent sends. So a length tells which message it is.
#[derive(Clone, Copy, Debug)]
pub enum Size {
    /// No bytes.
    Empty,
    /// From 8 bytes on.
    Short,
    /// Around the eager limit of a link over loopback.
    Middle,
    /// Around the default eager limit.
    Long,
    /// Several pieces.
    Large,
}

/// How a message is sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mode {
    /// `MPI_Isend`.
    Standard,
    /// `MPI_Issend`.
    Synchronous,
    /// `MPI_Ibsend`.
    Buffered,
    /// `MPI_Start` of a persistent send in this slot.
    Persistent(u8),
}

/// A message of a program.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Sent {
    /// The sender's proc, and the number of the sending thread.
    pub from: (u32, u32),
    /// The receiver's proc.
    pub to: u32,
    /// The communicator.
    pub comm: usize,
    /// The sender's rank in the communicator, and the tag.
    pub envelope: Envelope,
    /// The receiver's rank in the communicator.
    pub rank: u32,
    /// Length, bytes.
    pub length: usize,
}

impl Sent {
    /// The name that decides the content: see [`crate::cases::content`].
    pub fn name(from: u32, length: usize) -> u64 {
        u64::from(from) << 32 | length as u64
    }
}

/// The procs of a communicator by rank, as its member `proc` sees them.
pub fn members(ranks: u32, comm: usize, proc: u32) -> Vec<u32> {
    match comm {
        0 | 1 => (0..ranks).collect(),
        2 => (0..ranks).rev().filter(|&other| color(ranks, other) == color(ranks, proc)).collect(),
        _ => vec![proc],
    }
}

/// The color of a proc when the world is split: with three procs or more, the last one is alone.
pub fn color(ranks: u32, proc: u32) -> u32 {
    u32::from(ranks > 2 && proc == ranks - 1)
}

impl RawKey {
    /// The key for a communicator with this many members.
    pub fn of(self, size: usize) -> Key {
        let source = self.source.map(|source| u32::from(source) % size as u32);
        Key { source, tag: self.tag.map(u32::from) }
    }
}

impl Op {
    /// The proc that calls.
    pub fn proc(&self, ranks: u32) -> u32 {
        u32::from(self.rank) % ranks
    }

    /// Whether the second thread of the rank makes this send, in a run with a second thread.
    pub fn sent_by_thread(&self) -> bool {
        self.rank >= 128 && matches!(self.what, What::Send { mode: Mode::Standard, .. })
    }

    /// Whether the second thread posts this receive, in a run with a second thread. That thread posts all receives of
    /// one communicator.
    pub fn received_by_thread(&self) -> bool {
        self.place() == 1 && matches!(self.what, What::Receive { slot: None, .. })
    }

    /// Whether the first thread leaves this call out, in a run with a second thread.
    pub fn is_left_out(&self) -> bool {
        let looks = matches!(self.what, What::Receive { .. } | What::Probe(_) | What::Claim(_));
        self.sent_by_thread() || (self.place() == 1 && looks)
    }

    /// The communicator of the call. A persistent request uses the communicator of its slot.
    pub fn place(&self) -> usize {
        let slot = match self.what {
            What::Receive { slot, .. } => slot,
            What::Send { mode: Mode::Persistent(slot), .. } => Some(slot),
            _ => None,
        };
        slot.unwrap_or(self.comm) as usize % COMMS
    }
}

impl Program {
    /// The message that each call sends, if any. With `threads`, a second thread of the rank makes some sends.
    pub fn messages(&self, threads: bool) -> Vec<Option<Sent>> {
        let mut numbers = vec![0; self.ranks as usize];
        self.ops.iter().map(|op| self.message(op, &mut numbers, threads)).collect()
    }

    /// The messages to a proc in a communicator, in the order of the program.
    pub fn inbox(messages: &[Option<Sent>], proc: u32, comm: usize) -> Vec<Sent> {
        messages.iter().flatten().filter(|sent| (sent.to, sent.comm) == (proc, comm)).copied().collect()
    }

    fn message(&self, op: &Op, numbers: &mut [usize], threads: bool) -> Option<Sent> {
        let What::Send { mut to, mut tag, mut size, mode } = op.what else { return None };
        if let Mode::Persistent(slot) = mode {
            (to, tag, size) = (slot / 2, slot % 3, [Size::Short, Size::Large][slot as usize % 2]);
        }
        let (proc, comm) = (op.proc(self.ranks), op.place());
        let members = members(self.ranks, comm, proc);
        let rank = usize::from(to) % members.len();
        let source = members.iter().position(|&member| member == proc)? as u32;
        let number = &mut numbers[proc as usize];
        // A persistent send has one buffer, and so one length: the first length of its range, which no message of
        // another mode has.
        let place = if matches!(mode, Mode::Persistent(_)) { 0 } else { *number + 1 };
        *number += 1;
        assert!(*number < SENDS_MAX, "more messages of a rank than lengths");
        let thread = threads && op.sent_by_thread();
        let length = match size {
            Size::Empty if thread => 8 + place,
            Size::Empty => 0,
            Size::Short => 8 + place,
            Size::Middle => 4000 + place,
            Size::Long => 8100 + place,
            Size::Large => 20_000 + place,
        };
        let envelope = Envelope { source, tag: tag.into() };
        Some(Sent { from: (proc, thread.into()), to: members[rank], comm, envelope, rank: rank as u32, length })
    }
}

/// A key. The tag is one of three or any tag. The source is one of all ranks or any source.
fn key() -> impl Strategy<Value = RawKey> {
    let source = prop_oneof![1 => Just(None), 2 => any::<u8>().prop_map(Some)];
    let tag = prop_oneof![1 => Just(None), 3 => (0..3u8).prop_map(Some)];
    (source, tag).prop_map(|(source, tag)| RawKey { source, tag })
}

fn receive() -> impl Strategy<Value = What> {
    let slot = prop_oneof![9 => Just(None), 1 => (0..SLOTS).prop_map(Some)];
    (key(), prop::bool::weighted(0.1), slot).prop_map(|(key, short, slot)| What::Receive { key, short, slot })
}

fn send() -> impl Strategy<Value = What> {
    let size = prop_oneof![
        2 => Just(Size::Empty),
        9 => Just(Size::Short),
        1 => Just(Size::Middle),
        1 => Just(Size::Long),
        1 => Just(Size::Large),
    ];
    let mode = prop_oneof![
        7 => Just(Mode::Standard),
        1 => Just(Mode::Synchronous),
        1 => Just(Mode::Buffered),
        1 => (0..SLOTS).prop_map(Mode::Persistent),
    ];
    (any::<u8>(), 0..3u8, size, mode).prop_map(|(to, tag, size, mode)| What::Send { to, tag, size, mode })
}

fn other() -> impl Strategy<Value = What> {
    prop_oneof![
        3 => any::<u8>().prop_map(What::Cancel),
        2 => key().prop_map(What::Probe),
        2 => key().prop_map(What::Claim),
        2 => (any::<u8>(), any::<bool>()).prop_map(|(which, thrown)| What::Settle(which, thrown)),
    ]
}

/// Calls of any rank in any communicator.
fn calls(what: impl Strategy<Value = What>, count: Range<usize>) -> impl Strategy<Value = Vec<Op>> {
    vec((any::<u8>(), any::<u8>(), what).prop_map(|(rank, comm, what)| Op { rank, comm, what }), count)
}

fn mixed(count: Range<usize>) -> impl Strategy<Value = Vec<Op>> {
    calls(prop_oneof![4 => receive(), 4 => send(), 3 => other()], count)
}

fn mostly_receives(count: Range<usize>) -> impl Strategy<Value = Vec<Op>> {
    calls(prop_oneof![15 => receive(), 1 => other()], count)
}

fn mostly_sends(count: Range<usize>) -> impl Strategy<Value = Vec<Op>> {
    calls(prop_oneof![15 => send(), 1 => other()], count)
}

/// The same calls, but seven of eight are in one communicator. There, one rank makes all calls but sends, and sends
/// go to that rank.
fn focused(mut ops: Vec<Op>, (focus, comm): (u8, u8)) -> Vec<Op> {
    for (_, op) in ops.iter_mut().enumerate().filter(|(index, _)| index % 8 != 0) {
        op.comm = comm;
        match &mut op.what {
            What::Send { to, .. } => *to = focus,
            _ => op.rank = focus,
        }
    }
    ops
}

/// Programs for this many ranks, in up to five parts of fewer than `most` calls. A part has all calls in equal shares,
/// or mostly receives of one rank, or mostly sends to one rank.
pub fn programs(ranks: RangeInclusive<u32>, most: usize) -> impl Strategy<Value = Program> {
    let focus = || (any::<u8>(), 0..2u8);
    let part = prop_oneof![
        2 => mixed(0..most),
        1 => (mostly_receives(0..most), focus()).prop_map(|(ops, focus)| focused(ops, focus)),
        1 => (mostly_sends(0..most), focus()).prop_map(|(ops, focus)| focused(ops, focus)),
    ];
    (ranks, vec(part, 1..6)).prop_map(|(ranks, parts)| Program { ranks, ops: parts.concat() })
}

/// Programs with deep queues: many receives of one rank, then even more sends to it, then receives again.
pub fn deep_programs() -> impl Strategy<Value = Program> {
    let many = || 200..350usize;
    let parts = (mostly_receives(many()), mostly_sends(many()), mostly_sends(many()), mostly_receives(many()));
    (2..=3u32, parts, mixed(0..100), any::<u8>(), 0..2u8).prop_map(|(ranks, parts, last, rank, comm)| {
        let (receives, sends, more, rest) = parts;
        let ops = focused([receives, sends, more, rest].concat(), (rank, comm));
        Program { ranks, ops: [ops, last].concat() }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_of_the_world_is_in_reverse_order() {
        assert_eq!(members(4, 2, 1), [2, 1, 0]);
        assert_eq!((members(4, 2, 3), members(2, 2, 0), members(3, 3, 1)), (vec![3], vec![1, 0], vec![1]));
    }
}
