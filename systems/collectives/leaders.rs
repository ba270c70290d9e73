//! Operations of ranks on several [`Hosts`]: within each host, and between the leaders of the hosts. So each host sends as few messages to
//! other hosts as one rank would.
//!
//! Reductions keep the order of the canonical tree. Its inner nodes are runs of consecutive ranks. Each host that has ranks of a
//! node gets the node's value, at the first of these ranks.

use super::around::{Around, gather_around, hear_of_all};
use super::draft::{Draft, NodeId};
use super::fold::Fold;
use super::hosts::Hosts;
use super::tree::{Links, Shape, links};
use super::value::{Value, meet};
use std::ops::Range;
use tickwire_components::{Side, Span};

/// Added to the steps of barriers and of reductions, so that their messages never match those of members that know nothing of hosts.
const BETWEEN: u32 = 64;
/// Step in which ranks tell their leader that they have entered a barrier.
const ENTERED: u32 = 40;
/// Step in which a leader passes on the result, or lets the ranks of its host go.
const RESULT: u32 = 41;
/// First step of an allgather between leaders.
const LEADERS: u32 = 64;
/// First step in which leaders pass on the blocks of other hosts.
const PASSED: u32 = 128;

/// The tree within the host of a rank, with the leader at its top.
fn own_tree(hosts: &Hosts, rank: u32) -> Links {
    let ranks = hosts.ranks(hosts.host(rank));
    links(&ranks, ranks.start, rank, Shape::Binomial)
}

/// See [`super::spread::barrier`].
pub(super) fn barrier(draft: &mut Draft, hosts: &Hosts) {
    draft.first_step += BETWEEN;
    let Links { parent, children } = own_tree(hosts, draft.rank);
    let mut entered = Vec::from_iter(children.iter().map(|&child| draft.receive(child, ENTERED, Span::EMPTY, &[])));
    let over = match parent {
        Some(parent) => {
            draft.send(parent, ENTERED, Span::EMPTY, &entered);
            Some(draft.receive(parent, RESULT, Span::EMPTY, &[]))
        }
        None => {
            if entered.len() > 1 {
                entered = vec![draft.copy(Span::EMPTY, Span::EMPTY, &entered)];
            }
            let around = Around { own: hosts.host(draft.rank), count: hosts.count() };
            hear_of_all(draft, around, &|host| hosts.leader(host), entered.first().copied())
        }
    };
    for child in children {
        draft.send(child, RESULT, Span::EMPTY, over.as_slice());
    }
}

/// The tree of a broadcast in so many pieces. The root is the leader of its own host.
pub(super) fn broadcast_links(hosts: &Hosts, rank: u32, root: u32, pieces: usize) -> Links {
    let (own, top) = (hosts.host(rank), hosts.host(root));
    let leader = |host: u32| if host == top { root } else { hosts.leader(host) };
    let ranks = hosts.ranks(own);
    let mut found = links(&ranks, leader(own), rank, Shape::of(pieces, ranks.end - ranks.start));
    if rank == leader(own) {
        let between = links(&(0..hosts.count()), top, own, Shape::of(pieces, hosts.count()));
        found.parent = between.parent.map(leader);
        // Other hosts first: these messages take longer.
        found.children.splice(0..0, between.children.into_iter().map(leader));
    }
    found
}

/// See [`super::exchange::allgather`].
pub(super) fn allgather(
    draft: &mut Draft,
    hosts: &Hosts,
    place: &dyn Fn(u32, u32) -> Span,
    own: NodeId,
) -> Vec<NodeId> {
    let (rank, host) = (draft.rank, hosts.host(draft.rank));
    let (ranks, first_step) = (hosts.ranks(host), draft.first_step);
    let within = Around { own: rank - ranks.start, count: ranks.end - ranks.start };
    let of_host = |first: u32, end: u32| place(ranks.start + first, ranks.start + end);
    let mut came = vec![own];
    gather_around(draft, within, &|member| ranks.start + member, &of_host, &mut came);
    let between = Around { own: host, count: hosts.count() };
    let of_hosts = |first: u32, end: u32| place(hosts.leader(first), hosts.leader(end));
    let Links { parent, children } = own_tree(hosts, rank);
    let passed: Vec<NodeId> = match parent {
        None => {
            draft.first_step = first_step + LEADERS;
            let before = came.len();
            gather_around(draft, between, &|host| hosts.leader(host), &of_hosts, &mut came);
            came.split_off(before)
        }
        Some(parent) => {
            draft.first_step = first_step + PASSED;
            let runs = between.rounds().flat_map(|round| round.received);
            (0..).zip(runs).map(|(step, (first, end))| draft.receive(parent, step, of_hosts(first, end), &[])).collect()
        }
    };
    draft.first_step = first_step + PASSED;
    let runs = between.rounds().flat_map(|round| round.received);
    for (step, ((first, end), &node)) in (0..).zip(runs.zip(&passed)) {
        for &child in &children {
            draft.send(child, step, of_hosts(first, end), &[node]);
        }
    }
    draft.first_step = first_step;
    came.extend(passed);
    came
}

/// A node of the canonical tree, as the ranks of its two halves.
struct Halves {
    lower: Range<u32>,
    upper: Range<u32>,
}

impl Halves {
    /// The node with this rank at a level of the tree. At level 0 it is the leaf of the rank; `None` if that is one rank.
    fn of(fold: Fold, level: u32, rank: u32) -> Option<Self> {
        if level == 0 {
            let first = rank.min(fold.partner(rank)?);
            return Some(Halves { lower: first..first + 1, upper: first + 1..first + 2 });
        }
        let node = fold.leaf(rank) >> level << level;
        let ends = [0, 1, 2].map(|half| fold.first(node + (half << (level - 1))));
        Some(Halves { lower: ends[0]..ends[1], upper: ends[1]..ends[2] })
    }
}

/// The rank of a host that has the value of a run of ranks.
fn holder(hosts: &Hosts, run: &Range<u32>, host: u32) -> u32 {
    run.start.max(hosts.leader(host))
}

/// What one rank has to do so that the values of two runs of ranks meet.
struct Exchange {
    /// Ranks that this rank sends its value to.
    to: Vec<u32>,
    /// The rank that it gets the other value from. `None` if another rank of its host goes on.
    from: Option<u32>,
}

impl Exchange {
    /// For the holder of the value of `own` on a host.
    fn of(hosts: &Hosts, host: u32, own: &Range<u32>, other: &Range<u32>) -> Self {
        let (mine, theirs) = (hosts.hosts(own), hosts.hosts(other));
        // A host that has ranks of one run alone gets the other value from a host with ranks of that run: the n-th host from the n-th one.
        let source = |at: u32, of: &Range<u32>| of.start + at % (of.end - of.start);
        let alone = |of: &Range<u32>, not: &Range<u32>| Vec::from_iter(of.clone().filter(|host| !not.contains(host)));
        let (only_mine, only_theirs) = (alone(&mine, &theirs), alone(&theirs, &mine));
        let mut to: Vec<u32> = (0..)
            .zip(only_theirs)
            .filter(|&(at, _)| source(at, &mine) == host)
            .map(|(_, host)| holder(hosts, other, host))
            .collect();
        let from = match only_mine.iter().position(|&of| of == host) {
            Some(at) => Some(holder(hosts, other, source(at as u32, &theirs))),
            // Both values are on this host, and meet at the first rank of them.
            None if own.start < other.start => Some(holder(hosts, other, host)),
            None => {
                to.push(holder(hosts, other, host));
                None
            }
        };
        Exchange { to, from }
    }
}

/// See [`super::reduce::allreduce`]: one that exchanges all elements.
pub(super) fn allreduce(draft: &mut Draft, hosts: &Hosts, fold: Fold, input: Span, output: Span, in_place: bool) {
    draft.first_step += BETWEEN;
    let (rank, host) = (draft.rank, hosts.host(draft.rank));
    let mut own = Value { bytes: input, made: None };
    // The input is in use until all of these nodes are done.
    let mut readers = Vec::new();
    for level in 0..=fold.levels() {
        let Some(Halves { lower, upper }) = Halves::of(fold, level, rank) else { continue };
        let (mine, other, side) = match upper.contains(&rank) {
            true => (upper, lower, Side::Left),
            false => (lower, upper, Side::Right),
        };
        let Exchange { to, from } = Exchange::of(hosts, host, &mine, &other);
        for to in to {
            readers.push(draft.send(to, level, own.bytes, own.made.as_slice()));
        }
        let Some(from) = from else { break };
        let last = level == fold.levels() && !in_place;
        let room = if last { output } else { draft.temporary(output.len()) };
        own = meet(draft, own, from, level, room, side);
        readers.extend(own.made);
    }
    let Links { parent, children } = own_tree(hosts, rank);
    let done = match parent {
        None if in_place => Some(draft.copy(own.bytes, output, &readers)),
        None => own.made,
        Some(parent) => Some(draft.receive(parent, RESULT, output, if in_place { &readers } else { &[] })),
    };
    for child in children {
        draft.send(child, RESULT, output, done.as_slice());
    }
}
