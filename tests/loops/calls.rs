//! The calls of a case, chosen from its seed.

use crate::joint::Joint;
use crate::one_sided::{OneSided, WORDS};
use std::fmt::Debug;
use tickwire::testing::SplitMix;

/// Largest number of calls of a seed, about.
const CALLS: u64 = 60;
/// Longest message, bytes. It has several pieces, and is longer than the shortest message that is read out of the
/// sender's memory.
const LENGTH_MAX: u64 = 20_000;
/// Most bytes of a rank in an operation of all ranks.
const JOINT_MAX: u64 = 100_000;

/// A call. Each number is taken modulo the number of things to choose from.
#[derive(Clone, Debug)]
pub(crate) enum What {
    Send {
        to: u64,
        tag: u32,
        length: u64,
        how: How,
    },
    Receive {
        source: Option<u64>,
        tag: Option<u32>,
        room: u64,
        shape: Shape,
    },
    Cancel(u64),
    Probe {
        source: Option<u64>,
        tag: Option<u32>,
    },
    /// A matched probe, and the receive of the message that it found.
    Claim {
        source: Option<u64>,
        tag: Option<u32>,
    },
    /// An operation that every rank takes part in.
    Joint {
        of: Joint,
        root: u64,
        length: u64,
    },
    /// An operation on memory of a rank.
    OneSided {
        of: OneSided,
        target: u64,
        at: u64,
        count: u64,
    },
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum How {
    Standard(Shape),
    Synchronous,
    Ready,
    Buffered,
    Urgent(u8),
}

/// How a buffer is laid out in memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Shape {
    OneRun,
    Runs,
    Strided,
    /// In the shared heap, where the cluster has one: peers may read it where it is.
    Heap,
}

#[derive(Clone, Debug)]
pub(crate) struct Call {
    pub(crate) rank: usize,
    pub(crate) what: What,
}

impl Call {
    /// Whether the call has several messages, or polls connections by itself.
    pub(crate) fn is_of_several(&self) -> bool {
        matches!(self.what, What::Joint { .. } | What::OneSided { .. })
    }

    /// Whether the next call may follow before all is quiet: its outcome must not depend on whether the frame of this
    /// call has left.
    pub(crate) fn may_precede(&self, next: &Call) -> bool {
        let is_joint = |call: &Call| matches!(call.what, What::Joint { .. });
        let is_plain = |call: &Call| match call.what {
            What::Send { how, .. } => how != How::Ready,
            What::Receive { .. } | What::OneSided { .. } => true,
            What::Cancel(_) | What::Probe { .. } | What::Claim { .. } | What::Joint { .. } => false,
        };
        is_joint(self) && is_joint(next) || self.rank == next.rank && is_plain(self) && is_plain(next)
    }
}

pub(crate) fn choose<T: Copy>(random: &mut SplitMix, of: &[T]) -> T {
    of[random.below(of.len() as u64) as usize]
}

fn length(random: &mut SplitMix) -> u64 {
    match random.below(10) {
        0 => 0,
        1..=5 => random.below(200),
        6 | 7 => random.below(5000),
        _ => random.below(LENGTH_MAX),
    }
}

fn filter(random: &mut SplitMix) -> (Option<u64>, Option<u32>) {
    let source = (random.below(3) > 0).then(|| random.below(64));
    (source, (random.below(4) > 0).then(|| random.below(3) as u32))
}

/// A send in a random mode.
fn send(random: &mut SplitMix) -> What {
    use Shape::{Heap, OneRun, Runs, Strided};
    What::Send {
        to: random.below(64),
        tag: random.below(3) as u32,
        length: length(random),
        how: match random.below(12) {
            0 => How::Synchronous,
            1 => How::Ready,
            2 => How::Buffered,
            3 => How::Urgent(1 + random.below(3) as u8),
            4 => How::Standard(Runs),
            5 => How::Standard(Strided),
            6 => How::Standard(Heap),
            _ => How::Standard(OneRun),
        },
    }
}

/// An operation of all ranks.
fn joint(random: &mut SplitMix) -> What {
    let length = match random.below(8) {
        0 => 0,
        1..=3 => random.below(300),
        4 | 5 => random.below(LENGTH_MAX),
        _ => random.below(JOINT_MAX),
    };
    What::Joint { of: choose(random, &Joint::ALL), root: random.below(64), length }
}

/// An operation on memory of a rank.
fn one_sided(random: &mut SplitMix, of: &[OneSided]) -> What {
    let count = match random.below(6) {
        0 => 0,
        1 | 2 => random.below(20),
        3 => random.below(1000),
        _ => random.below(WORDS as u64),
    };
    What::OneSided { of: choose(random, of), target: random.below(64), at: random.below(WORDS as u64), count }
}

/// The calls of a case. If `by_all` is set, some are operations of all ranks. Some are operations of these kinds on
/// other ranks' memory.
pub(crate) fn calls(random: &mut SplitMix, ranks: usize, by_all: bool, kinds: &[OneSided]) -> Vec<Call> {
    use Shape::{OneRun, Runs, Strided};
    (0..random.below(CALLS) + 4)
        .map(|_| {
            let (source, tag) = filter(random);
            let what = match random.below(24) {
                0..=6 => send(random),
                7..=12 => What::Receive {
                    source,
                    tag,
                    room: if random.below(8) == 0 { random.below(100) } else { LENGTH_MAX },
                    shape: choose(random, &[OneRun, OneRun, OneRun, Runs, Strided]),
                },
                13 => What::Cancel(random.below(64)),
                14 => What::Probe { source, tag },
                15 => What::Claim { source, tag },
                16..=19 if by_all => joint(random),
                _ => one_sided(random, kinds),
            };
            Call { rank: random.below(ranks as u64) as usize, what }
        })
        .collect()
}
