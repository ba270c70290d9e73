//! The messages of a job and their content, and the calls that a rank makes to send and receive its messages.

use crate::plan::Plan;
use tickwire::testing::SplitMix;

/// The first tag of control messages. Numbered messages have lower tags.
pub(crate) const CONTROL: u32 = 1 << 30;
/// The first tag of receives that no message is sent for.
pub(crate) const NOTHING: u32 = 1 << 20;
/// Longest message to a rank that receives with any tag, bytes.
pub(crate) const ROOM: usize = 300_000;
/// Bytes of a control message.
pub(crate) const CONTROL_BYTES: usize = 24;

/// How a rank selects the messages that it receives.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Manner {
    /// Each message by its source and tag.
    Exact,
    /// From each source, with any tag.
    Ordered,
    /// From any source, with any tag.
    Anything,
}

/// How a rank selects messages.
pub(crate) fn manner(plan: &Plan, rank: u32) -> Manner {
    [Manner::Exact, Manner::Ordered, Manner::Anything][(plan.seed.wrapping_add(u64::from(rank)) % 3) as usize]
}

/// How a message is sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Mode {
    Standard,
    Synchronous,
    Buffered,
    /// Standard mode. The request is dropped at once.
    Detached,
}

/// A message from one rank to another. Its number among them is its tag.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Message {
    /// The seed of its content.
    pub(crate) name: u64,
    pub(crate) length: usize,
    pub(crate) mode: Mode,
}

fn mixed(seed: u64, from: u32, to: u32, number: u32) -> u64 {
    let name = u64::from(from) << 48 ^ u64::from(to) << 32 ^ u64::from(number);
    SplitMix::new(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ name).next_u64()
}

impl Message {
    pub(crate) fn of(plan: &Plan, from: u32, to: u32, number: u32) -> Self {
        let name = mixed(plan.seed, from, to, number);
        if number >= CONTROL {
            return Message { name, length: CONTROL_BYTES, mode: Mode::Standard };
        }
        let mut random = SplitMix::new(name ^ 1);
        let around = [64, 4064, 4096, 8192, 16 << 10, 64 << 10][random.below(6) as usize];
        let length = match random.below(16) {
            0 | 1 => 0,
            2..=6 => random.below(64),
            7..=9 => random.below(1200),
            10 | 11 => around - 1 + random.below(3),
            12 | 13 => 8193 + random.below(120_000),
            14 => random.below(600_000),
            _ => random.below(plan.length_max),
        };
        let most = if manner(plan, to) == Manner::Exact { plan.length_max as usize } else { ROOM };
        let mode = match random.below(12) {
            0 | 1 => Mode::Synchronous,
            2 | 3 => Mode::Buffered,
            4 => Mode::Detached,
            _ => Mode::Standard,
        };
        Message { name, length: (length as usize).min(most), mode }
    }

    /// The content.
    pub(crate) fn content(&self) -> Vec<u8> {
        let (mut bytes, mut random) = (vec![0u8; self.length], SplitMix::new(self.name));
        for piece in bytes.chunks_mut(8) {
            piece.copy_from_slice(&random.next_u64().to_le_bytes()[..piece.len()]);
        }
        bytes
    }

    /// Whether these bytes are the content.
    pub(crate) fn is(&self, bytes: &[u8]) -> bool {
        let mut random = SplitMix::new(self.name);
        bytes.len() == self.length
            && bytes.chunks(8).all(|piece| *piece == random.next_u64().to_le_bytes()[..piece.len()])
    }
}

/// How many messages go from one rank to another.
pub(crate) fn count(plan: &Plan, from: u32, to: u32) -> u32 {
    1 + SplitMix::new(mixed(plan.seed, from, to, CONTROL)).below(plan.messages) as u32
}

/// A call of a rank.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Call {
    /// Sends the next message to a rank.
    Send { to: u32 },
    /// Posts a receive. Without `from` or `tag` it takes any source or any tag.
    Receive { from: Option<u32>, tag: Option<u32> },
    /// Receives a message once a probe has found it.
    Probe { from: Option<u32>, tag: Option<u32> },
    /// Posts a receive that no message is sent for, and cancels it at once or later.
    Cancelled { from: Option<u32>, tag: Option<u32>, at_once: bool },
}

/// The calls of a rank, in their order.
pub(crate) fn calls(plan: &Plan, me: u32, random: &mut SplitMix) -> Vec<Call> {
    let mut calls = Vec::new();
    for other in 0..plan.ranks {
        calls.extend((0..count(plan, me, other)).map(|_| Call::Send { to: other }));
        let due = count(plan, other, me);
        for number in 0..due {
            let (from, tag) = match manner(plan, me) {
                Manner::Exact => (Some(other), Some(number)),
                Manner::Ordered => (Some(other), None),
                Manner::Anything => (None, None),
            };
            let probes = random.below(4) == 0;
            calls.push(if probes { Call::Probe { from, tag } } else { Call::Receive { from, tag } });
            if random.below(8) == 0 {
                let tag = tag.map(|tag| tag + NOTHING);
                calls.push(Call::Cancelled { from, tag, at_once: random.below(2) == 0 });
            }
        }
    }
    for last in (1..calls.len()).rev() {
        calls.swap(last, random.below(last as u64 + 1) as usize);
    }
    calls
}
