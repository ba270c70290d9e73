//! Runs drafts without tables, and counts what that costs.

use crate::collectives::draft::{Act, Draft};
use std::collections::{HashMap, VecDeque};
use tickwire_components::{Computation, Reduction, Span};

/// What a run of drafts has cost.
#[derive(Debug, Default)]
pub(super) struct Cost {
    /// Messages on the longest chain of messages that wait for each other.
    pub(super) rounds: u32,
    /// Largest number of messages that any rank has sent.
    pub(super) messages: usize,
    /// Most bytes that any rank has sent.
    pub(super) bytes: usize,
    /// Most bytes that any rank has received.
    pub(super) received: usize,
}

fn bytes_of(span: &Span) -> Vec<u8> {
    // SAFETY: the tests keep what spans are made of.
    #[expect(unsafe_code, reason = "addresses of bytes")]
    unsafe {
        std::slice::from_raw_parts(span.start(), span.len()).to_vec()
    }
}

fn write(span: &Span, bytes: &mut Vec<u8>) {
    assert_eq!(span.len(), bytes.len(), "a message and its receive have one length");
    // SAFETY: as above.
    #[expect(unsafe_code, reason = "addresses of bytes")]
    unsafe {
        let from = Span::new(bytes.as_mut_ptr(), bytes.len());
        span.copy_from(&from);
    }
}

/// Does a computation.
fn compute(computation: Computation, reduce: &Reduction) {
    match computation {
        Computation::Copy { from, to } => write(&to, &mut bytes_of(&from)),
        // SAFETY: runs of one type and length that the tests keep.
        #[expect(unsafe_code, reason = "addresses of elements")]
        Computation::Reduce { into, other, side } => unsafe { reduce.combine_into(into, other, side) },
        Computation::Apply { .. } => panic!("no collective operation has more than one reduction"),
    }
}

/// Runs the nodes of all drafts, in an order that the seed determines. A send reads its bytes as late as possible: when its message is
/// received.
// Longer than other functions: it is one loop over nodes that share ten local tables.
pub(super) fn run(drafts: &[Draft], reduce: &Reduction, seed: u64) -> Cost {
    let mut random = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut unmet: Vec<Vec<usize>> = drafts.iter().map(|draft| vec![0; draft.acts.len()]).collect();
    let mut chain: Vec<Vec<u32>> = drafts.iter().map(|draft| vec![0; draft.acts.len()]).collect();
    let mut ready: Vec<(usize, usize)> = Vec::new();
    for (rank, draft) in drafts.iter().enumerate() {
        draft.edges.iter().for_each(|&(_, to)| unmet[rank][to as usize] += 1);
        ready.extend((0..draft.acts.len()).filter(|&node| unmet[rank][node] == 0).map(|node| (rank, node)));
    }
    type Waiting = HashMap<(usize, u32, u32), VecDeque<usize>>;
    let (mut sent, mut posted): (Waiting, Waiting) = Default::default();
    let (mut done, mut cost) = (0, Cost::default());
    while !ready.is_empty() {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        let (rank, node) = ready.swap_remove(random as usize % ready.len());
        let mut over = vec![];
        match drafts[rank].acts[node] {
            Act::Compute(computation) => {
                compute(computation, reduce);
                over.push((rank, node));
            }
            Act::Send { to, step, .. } => sent.entry((rank, to, step)).or_default().push_back(node),
            Act::Receive { from, step, .. } => {
                posted.entry((from as usize, rank as u32, step)).or_default().push_back(node);
            }
        }
        let keys: Vec<_> =
            sent.keys().filter(|key| posted.get(*key).is_some_and(|of| !of.is_empty())).copied().collect();
        for key in keys {
            while let (Some(&from), Some(&to)) = (sent[&key].front(), posted[&key].front()) {
                sent.get_mut(&key).and_then(VecDeque::pop_front);
                posted.get_mut(&key).and_then(VecDeque::pop_front);
                let (sender, receiver) = (key.0, key.1 as usize);
                let (Act::Send { bytes, .. }, Act::Receive { bytes: room, .. }) =
                    (drafts[sender].acts[from], drafts[receiver].acts[to])
                else {
                    panic!("a message and its receive")
                };
                write(&room, &mut bytes_of(&bytes));
                let round = chain[sender][from] + 1;
                chain[receiver][to] = chain[receiver][to].max(round);
                cost.rounds = cost.rounds.max(chain[receiver][to]);
                over.extend([(sender, from), (receiver, to)]);
            }
        }
        for (rank, node) in over {
            done += 1;
            for &(_, next) in drafts[rank].edges.iter().filter(|&&(before, _)| before as usize == node) {
                let next = next as usize;
                // A send adds no round to the chain of the nodes that wait for it.
                chain[rank][next] = chain[rank][next].max(chain[rank][node]);
                unmet[rank][next] -= 1;
                if unmet[rank][next] == 0 {
                    ready.push((rank, next));
                }
            }
        }
    }
    assert_eq!(done, drafts.iter().map(|draft| draft.acts.len()).sum::<usize>(), "all nodes end");
    for draft in drafts {
        let sends = draft.acts.iter().filter_map(|act| match act {
            Act::Send { bytes, .. } => Some(bytes.len()),
            _ => None,
        });
        cost.messages = cost.messages.max(sends.clone().count());
        cost.bytes = cost.bytes.max(sends.sum());
        let receives = draft.acts.iter().filter_map(|act| match act {
            Act::Receive { bytes, .. } => Some(bytes.len()),
            _ => None,
        });
        cost.received = cost.received.max(receives.sum());
    }
    cost
}

/// A run of bytes for all of a vector's elements.
pub(super) fn span<T>(elements: &mut [T]) -> Span {
    // SAFETY: the elements outlive the drafts.
    #[expect(unsafe_code, reason = "addresses of bytes")]
    unsafe {
        Span::new(elements.as_mut_ptr().cast(), size_of_val(elements))
    }
}

/// An affine map, x ↦ factor · x + offset, modulo 2⁶⁴: putting one behind another is associative and not commutative.
pub(super) type Map = [u64; 2];

pub(super) fn behind(left: Map, right: Map) -> Map {
    [left[0].wrapping_mul(right[0]), left[1].wrapping_mul(right[0]).wrapping_add(right[1])]
}

/// Different values for each rank and element.
pub(super) fn values(rank: u32, count: usize) -> Vec<Map> {
    (0..count as u64).map(|at| [u64::from(rank) * 1000 + 2 * at + 1, at.wrapping_mul(31) + u64::from(rank)]).collect()
}

/// The values of ranks from one up to another one, in order.
pub(super) fn model(ranks: std::ops::Range<u32>, count: usize) -> Vec<Map> {
    let all: Vec<_> = ranks.map(|rank| values(rank, count)).collect();
    (0..count).map(|at| all.iter().map(|of| of[at]).reduce(behind).unwrap_or_default()).collect()
}

/// Draws the part of each rank.
pub(super) fn draw(size: u32, mut part: impl FnMut(u32, &mut Draft)) -> Vec<Draft> {
    (0..size)
        .map(|rank| {
            let mut draft = Draft::new(rank, size);
            part(rank, &mut draft);
            draft
        })
        .collect()
}
