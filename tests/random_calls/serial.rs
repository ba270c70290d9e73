//! The serial model. It computes a rank's buffers before and after a call from the buffers of all ranks.

use super::items::{Item, scramble};
use super::neighbours::{Net, among_neighbours};
use super::program::{By, Call, Kind};
use std::ops::Range;
use tickwire::consecutive;

/// The part number from which the initial content of receive buffers is made.
const UNTOUCHED: usize = 1 << 10;

/// The side that has no buffer of its own: it is in place in the other side's buffer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum InPlace {
    Neither,
    Send,
    Receive,
}

/// A rank's part in a call.
pub(crate) struct Part<T> {
    pub(crate) in_place: InPlace,
    /// The send buffer. It must not change.
    pub(crate) send: Vec<T>,
    /// The receive buffer before the call.
    pub(crate) receive: Vec<T>,
    /// The receive buffer after the call, as it must be.
    pub(crate) after: Vec<T>,
    /// The places of the elements for each rank in `send`, if the call takes places.
    pub(crate) from: Vec<Range<usize>>,
    /// The places of the elements of each rank in `receive`, if the call takes places.
    pub(crate) to: Vec<Range<usize>>,
    /// How many elements of the result each rank gets, if the call takes counts.
    pub(crate) counts: Vec<usize>,
}

impl<T> Default for Part<T> {
    fn default() -> Self {
        let (send, receive, after) = (vec![], vec![], vec![]);
        Part { in_place: InPlace::Neither, send, receive, after, from: vec![], to: vec![], counts: vec![] }
    }
}

/// A call, as one of its members sees it.
pub(crate) struct View<'a> {
    pub(crate) call: &'a Call,
    /// The number of the call's step in the program.
    pub(crate) number: usize,
    /// How often the call was started before.
    pub(crate) round: u32,
    /// The members, as ranks of the world.
    pub(crate) members: &'a [u32],
    /// The own rank in the communicator.
    pub(crate) own: usize,
    /// The topology of the communicator.
    pub(crate) net: Net,
}

impl View<'_> {
    fn ranks(&self) -> usize {
        self.members.len()
    }

    pub(crate) fn root(&self) -> usize {
        self.call.root % self.ranks()
    }

    fn is_root(&self) -> bool {
        self.own == self.root()
    }

    /// The elements that a rank has for one part of the call.
    pub(super) fn data<T: Item>(&self, rank: usize, part: usize, count: usize) -> Vec<T> {
        let call = (self.number as u64) << 32 | u64::from(self.round) << 24;
        T::run(scramble(call | u64::from(self.members[rank]) << 12 | part as u64), count)
    }

    /// The content of a receive buffer before the call.
    pub(super) fn untouched<T: Item>(&self, count: usize) -> Vec<T> {
        self.data(self.own, UNTOUCHED, count)
    }

    /// The content of a buffer that the call ignores and must not change.
    fn ignored<T: Item>(&self) -> Vec<T> {
        self.untouched(self.call.chance(self.own, 3, 4))
    }

    /// How many elements a rank has in a call where this may differ between ranks. Some ranks have none.
    pub(super) fn length(&self, rank: usize, count: usize) -> usize {
        match self.call.chance(rank, 40, 4) {
            0 => 0,
            1 => count,
            _ => self.call.chance(rank, 41, count + 1),
        }
    }

    /// How many elements go from one rank to another. In place, it is the same number in both directions.
    fn between(&self, from: usize, to: usize, count: usize) -> usize {
        let pair = if self.call.in_place { (from.min(to), from.max(to)) } else { (from, to) };
        self.length(16 + pair.0 * 16 + pair.1, count)
    }

    /// Places for this many elements of each rank, and the length of the whole buffer. The places are one behind the
    /// other, or in another order with gaps.
    pub(super) fn places(&self, counts: &[usize], own: usize) -> (Vec<Range<usize>>, usize) {
        if self.call.chance(own, 50, 2) == 0 {
            return (consecutive(counts), counts.iter().sum());
        }
        let mut order: Vec<usize> = (0..counts.len()).collect();
        order.sort_by_key(|&rank| self.call.chance(own * 16 + rank, 51, 1 << 20));
        let (mut places, mut end) = (vec![0..0; counts.len()], 0);
        for rank in order {
            let start = end + self.call.chance(own * 16 + rank, 52, 3);
            places[rank] = start..start + counts[rank];
            end = start + counts[rank];
        }
        (places, end + self.call.chance(own, 53, 3))
    }
}

/// The operation, and whether it may be applied from left to right. If not, the order is that of the book.
type Combine<T> = (fn(T, T) -> T, bool);

/// Whether the call uses the operation that belongs to its element type.
pub(crate) fn is_native<T: Item>(call: &Call) -> bool {
    call.by == By::Native && (T::IS_ASSOCIATIVE || !is_prefix(call))
}

/// Whether the call is a scan. Its order of combination is not specified, so it needs an associative operation.
fn is_prefix(call: &Call) -> bool {
    matches!(call.kind, Kind::Scan | Kind::Exscan)
}

/// The operation that reduces the elements of a call.
pub(crate) fn combine<T: Item>(call: &Call) -> Combine<T> {
    match call.by {
        _ if is_native::<T>(call) => (T::native, T::IS_ASSOCIATIVE),
        By::Mix if !is_prefix(call) => (T::mix, false),
        _ => (T::chain, true),
    }
}

/// Combines the operands of all ranks, element by element. An associative operation is applied from left to right. For
/// others the order is the one that the book specifies: first the leading ranks are combined in pairs, until a power of
/// two of values is left. Then neighbouring values are combined, again and again.
fn reduced<T: Item>(operands: &[Vec<T>], (by, is_associative): Combine<T>) -> Vec<T> {
    let pair = |left: &Vec<T>, right: &Vec<T>| left.iter().zip(right).map(|(left, right)| by(*left, *right)).collect();
    if is_associative {
        return operands[1..].iter().fold(operands[0].clone(), |left, right| pair(&left, right));
    }
    let mut pairs = operands.len() - (1 << operands.len().ilog2());
    let mut rest = operands;
    let mut values: Vec<Vec<T>> = Vec::new();
    while let [first, others @ ..] = rest {
        rest = others;
        match rest {
            [second, others @ ..] if pairs > 0 => {
                values.push(pair(first, second));
                (pairs, rest) = (pairs - 1, others);
            }
            _ => values.push(first.clone()),
        }
    }
    while values.len() > 1 {
        values = values.chunks(2).map(|two| pair(&two[0], &two[1])).collect();
    }
    values.remove(0)
}

/// The buffers of a rank before a call, and what they must hold after it.
pub(crate) fn part<T: Item>(view: &View) -> Part<T> {
    let is_among_neighbours = view.call.kind.is_among_neighbours();
    let parts = if is_among_neighbours { view.net.degree(view.ranks()) } else { view.ranks() };
    let count = view.call.count(size_of::<T>(), parts);
    match view.call.kind {
        _ if is_among_neighbours => among_neighbours(view, count),
        Kind::Barrier => Part::default(),
        Kind::Bcast => {
            let after = view.data(view.root(), 0, count);
            let receive = if view.is_root() { after.clone() } else { view.untouched(count) };
            Part { receive, after, ..Part::default() }
        }
        Kind::Gather | Kind::Gatherv => gathered(view, count),
        Kind::Scatter | Kind::Scatterv => scattered(view, count),
        Kind::Allgather | Kind::Allgatherv => gathered_by_all(view, count),
        Kind::Alltoall | Kind::Alltoallv | Kind::Alltoallw => exchanged(view, count),
        Kind::Reduce | Kind::Allreduce => reduced_whole(view, count),
        Kind::ReduceScatter | Kind::ReduceScatterBlock => reduced_parts(view, count),
        _ => prefix(view, count),
    }
}

/// A receive buffer before and after the elements of all ranks have come to their places.
fn arrived<T: Item>(view: &View, counts: &[usize], places: &[Range<usize>], end: usize) -> [Vec<T>; 2] {
    let (mut before, own) = (view.untouched::<T>(end), view.own);
    let mut after = before.clone();
    for (rank, place) in places.iter().enumerate() {
        after[place.clone()].copy_from_slice(&view.data(rank, 0, counts[rank]));
    }
    if view.call.in_place {
        before[places[own].clone()].copy_from_slice(&view.data(own, 0, counts[own]));
    }
    [before, after]
}

/// How many elements each rank has, their places in a buffer of the own rank, and the length of that buffer.
fn laid_out(view: &View, count: usize, varies: bool) -> (Vec<usize>, Vec<Range<usize>>, usize) {
    let counts: Vec<usize> =
        (0..view.ranks()).map(|rank| if varies { view.length(rank, count) } else { count }).collect();
    let (places, end) = match varies {
        true => view.places(&counts, view.own),
        false => (consecutive(&counts), count * view.ranks()),
    };
    (counts, places, end)
}

fn gathered<T: Item>(view: &View, count: usize) -> Part<T> {
    let (counts, to, end) = laid_out(view, count, view.call.kind == Kind::Gatherv);
    let send = view.data(view.own, 0, counts[view.own]);
    if !view.is_root() {
        let receive = view.ignored();
        return Part { send, after: receive.clone(), receive, ..Part::default() };
    }
    let [receive, after] = arrived(view, &counts, &to, end);
    let in_place = if view.call.in_place { InPlace::Send } else { InPlace::Neither };
    Part { in_place, send, receive, after, to, ..Part::default() }
}

fn scattered<T: Item>(view: &View, count: usize) -> Part<T> {
    let (counts, from, end) = laid_out(view, count, view.call.kind == Kind::Scatterv);
    let receive = view.untouched(counts[view.own]);
    let after = view.data(view.root(), view.own, counts[view.own]);
    if !view.is_root() {
        return Part { send: view.ignored(), receive, after, ..Part::default() };
    }
    let mut send = view.untouched(end);
    for (rank, place) in from.iter().enumerate() {
        send[place.clone()].copy_from_slice(&view.data(view.own, rank, counts[rank]));
    }
    let in_place = if view.call.in_place { InPlace::Receive } else { InPlace::Neither };
    Part { in_place, send, receive, after, from, ..Part::default() }
}

fn gathered_by_all<T: Item>(view: &View, count: usize) -> Part<T> {
    let (counts, to, end) = laid_out(view, count, view.call.kind == Kind::Allgatherv);
    let [receive, after] = arrived(view, &counts, &to, end);
    let in_place = if view.call.in_place { InPlace::Send } else { InPlace::Neither };
    Part { in_place, send: view.data(view.own, 0, counts[view.own]), receive, after, to, ..Part::default() }
}

fn exchanged<T: Item>(view: &View, count: usize) -> Part<T> {
    let (own, all) = (view.own, 0..view.ranks());
    let (varies, lists) = (view.call.kind != Kind::Alltoall, view.call.kind == Kind::Alltoallw);
    let between = |from: usize, to: usize| if varies { view.between(from, to, count) } else { count };
    let layout = |counts: Vec<usize>, side: usize| match varies && !lists {
        true => view.places(&counts, own * 2 + side),
        false => (consecutive(&counts), counts.iter().sum()),
    };
    let (to, end) = layout(all.clone().map(|rank| between(rank, own)).collect(), 0);
    let (from, sent) = layout(all.clone().map(|rank| between(own, rank)).collect(), 1);
    let (mut send, mut receive) = (view.untouched(sent), view.untouched(end));
    let mut after = receive.clone();
    for rank in all {
        let given = view.data(own, rank, between(own, rank));
        send[from[rank].clone()].copy_from_slice(&given);
        if view.call.in_place {
            receive[to[rank].clone()].copy_from_slice(&given);
        }
        after[to[rank].clone()].copy_from_slice(&view.data(rank, own, between(rank, own)));
    }
    let in_place = if view.call.in_place { InPlace::Send } else { InPlace::Neither };
    Part { in_place, send, receive, after, from, to, ..Part::default() }
}

fn operands<T: Item>(view: &View, ranks: usize, count: usize) -> Vec<Vec<T>> {
    (0..ranks).map(|rank| view.data(rank, 0, count)).collect()
}

fn reduced_whole<T: Item>(view: &View, count: usize) -> Part<T> {
    let send: Vec<T> = view.data(view.own, 0, count);
    if view.call.kind == Kind::Reduce && !view.is_root() {
        let receive = view.ignored();
        return Part { send, after: receive.clone(), receive, ..Part::default() };
    }
    let after = reduced(&operands(view, view.ranks(), count), combine(view.call));
    combined(view, send, after)
}

/// The part in a reduction. In place, the receive buffer holds the operand.
fn combined<T: Item>(view: &View, send: Vec<T>, after: Vec<T>) -> Part<T> {
    match view.call.in_place {
        true => Part { in_place: InPlace::Send, receive: send.clone(), send, after, ..Part::default() },
        false => Part { receive: view.untouched(after.len()), send, after, ..Part::default() },
    }
}

fn reduced_parts<T: Item>(view: &View, count: usize) -> Part<T> {
    let (counts, places, end) = match view.call.kind {
        Kind::ReduceScatter => {
            let counts: Vec<usize> = (0..view.ranks()).map(|rank| view.length(rank, count)).collect();
            (counts.clone(), consecutive(&counts), counts.iter().sum())
        }
        _ => laid_out(view, count, false),
    };
    let result = reduced(&operands::<T>(view, view.ranks(), end), combine(view.call));
    let own = result[places[view.own].clone()].to_vec();
    let send = view.data(view.own, 0, end);
    let mut part = combined(view, send, own);
    if view.call.in_place {
        // In place, the own part of the result comes to the beginning of the buffer. The rest of the buffer stays.
        let taken = part.after.len();
        part.after.extend_from_slice(&part.receive[taken..]);
    }
    Part { counts, ..part }
}

fn prefix<T: Item>(view: &View, count: usize) -> Part<T> {
    let is_inclusive = view.call.kind == Kind::Scan;
    let send: Vec<T> = view.data(view.own, 0, count);
    if !is_inclusive && view.own == 0 {
        // The first rank has no rank before it, so its buffer does not change.
        let after = if view.call.in_place { send.clone() } else { view.untouched(count) };
        return combined(view, send, after);
    }
    let ranks = view.own + usize::from(is_inclusive);
    let after = reduced(&operands(view, ranks, count), combine(view.call));
    combined(view, send, after)
}
