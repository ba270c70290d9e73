//! From one rank to all: barrier, broadcast, scatter. And the other way: gather.

use super::around::{Around, gather_around, hear_of_all};
use super::draft::{Draft, NodeId};
use super::leaders;
use super::tree::{Links, Shape, children, links, parent, subtree};
use tickwire_components::Span;

/// Bytes of a piece of a long broadcast. A rank passes a piece on while the next one arrives.
const PIECE: usize = 64 << 10;
/// Pieces of a broadcast, at most.
const PIECES_MAX: usize = 64;
/// Step of the first piece of a broadcast in one piece. In a broadcast in two pieces, the first piece has the next step, and so on. So
/// members that expect another number of pieces do not match it.
const FIRST: u32 = 128;
/// From this many bytes and ranks on, a broadcast that cannot go from rank to rank is scattered in blocks, followed by an allgather.
const DEALT_OUT: (usize, u32) = (64 << 10, 8);
/// Shortest blocks of such a broadcast, bytes.
const BLOCK_MIN: usize = 64;
/// The first steps of the parts of such a broadcast.
const GATHERING: u32 = 64;
/// See [`GATHERING`].
const REST: u32 = 192;
/// Longer blocks go directly to their ranks, not along a tree. Bytes.
const BLOCK_DIRECT: usize = 2 << 10;
/// First step of such blocks. It is past the steps of blocks that go along a tree, so that messages of the two kinds never match.
const DIRECT: u32 = 2;

/// No rank leaves before all have entered.
pub fn barrier(draft: &mut Draft) {
    if let Some(hosts) = draft.hosts.clone() {
        return leaders::barrier(draft, &hosts);
    }
    hear_of_all(draft, Around::all(draft), &|rank| rank, None);
}

/// All ranks get the bytes of `root`. Short messages go along a binomial tree. Long ones go from rank to rank in pieces, or, if there are
/// many ranks on one host, in blocks.
pub fn broadcast(draft: &mut Draft, bytes: Span, root: u32) {
    let pieces = bytes.len().div_ceil(PIECE).clamp(1, PIECES_MAX);
    let ranks = draft.size as usize;
    let dealt_out = bytes.len() >= DEALT_OUT.0.max(BLOCK_MIN * ranks) && draft.size >= DEALT_OUT.1;
    if pieces < ranks && dealt_out && draft.hosts.is_none() {
        return deal_out(draft, bytes, root);
    }
    pass_on(draft, bytes, root, FIRST + pieces as u32 - 1);
}

/// The root scatters blocks, and an allgather follows. Each rank sends its bytes once or twice, however many ranks there are.
fn deal_out(draft: &mut Draft, bytes: Span, root: u32) {
    let block = bytes.len() / draft.size as usize;
    let place = |first: u32, end: u32| bytes.part(first as usize * block, (end - first) as usize * block);
    let all = place(0, draft.size);
    let own = (draft.rank != root).then(|| place(draft.rank, draft.rank + 1));
    let came = deal_blocks(draft, all, own, block, root, &[]);
    draft.first_step = GATHERING;
    let own = draft.copy(Span::EMPTY, Span::EMPTY, &came);
    gather_around(draft, Around::all(draft), &|rank| rank, &place, &mut vec![own]);
    // The remainder of the division: fewer bytes than ranks.
    let rest = bytes.part(all.len(), usize::MAX);
    if !rest.is_empty() {
        draft.first_step = REST;
        pass_on(draft, rest, root, 0);
    }
}

/// Bytes go along a binomial tree, or from rank to rank in pieces. `first` is the step of the first piece; each other piece has its number
/// as its step.
fn pass_on(draft: &mut Draft, bytes: Span, root: u32, first: u32) {
    let pieces = bytes.len().div_ceil(PIECE).clamp(1, PIECES_MAX);
    let piece = bytes.len().div_ceil(pieces);
    let Links { parent, children } = match &draft.hosts {
        Some(hosts) => leaders::broadcast_links(hosts, draft.rank, root, pieces),
        None => links(&(0..draft.size), root, draft.rank, Shape::of(pieces, draft.size)),
    };
    for number in 0..pieces {
        let part = bytes.part(number * piece, piece);
        let step = if number == 0 { first } else { number as u32 };
        let mut before = None;
        if let Some(parent) = parent {
            before = Some(draft.receive(parent, step, part, &[]));
        }
        for &child in &children {
            draft.send(child, step, part, before.as_slice());
        }
    }
}

/// The root sends each rank its block directly. At the root, `place` gives the block for a rank; at another rank, it gives the place where
/// its block goes. `own` is where the root's own block goes; `None` if it stays where it is. When `after` is done, the blocks are there.
pub fn scatter_directly(
    draft: &mut Draft,
    place: &dyn Fn(u32) -> Span,
    own: Option<Span>,
    root: u32,
    after: &[NodeId],
) {
    if draft.rank != root {
        draft.receive(root, 0, place(draft.rank), &[]);
        return;
    }
    for rank in (0..draft.size).filter(|&rank| rank != root) {
        draft.send(rank, 0, place(rank), after);
    }
    if let Some(own) = own {
        draft.copy(place(root), own, after);
    }
}

/// Each rank sends its block directly to the root. At the root, `place` gives the place for the block of a rank. `own` is this rank's
/// block; `None` if it is in its place already.
pub fn gather_directly(draft: &mut Draft, own: Option<Span>, place: &dyn Fn(u32) -> Span, root: u32) {
    if draft.rank != root {
        draft.send(root, 0, own.unwrap_or(Span::EMPTY), &[]);
        return;
    }
    for rank in (0..draft.size).filter(|&rank| rank != root) {
        draft.receive(rank, 0, place(rank), &[]);
    }
    if let Some(own) = own {
        draft.copy(own, place(root), &[]);
    }
}

/// Blocks of `block` bytes, one for each rank in the order of ranks, go from `all` at the root to `own` at each rank. With `None` the
/// root's block stays where it is. When `after` is done, the blocks are there.
pub fn scatter(draft: &mut Draft, all: Span, own: Option<Span>, block: usize, root: u32, after: &[NodeId]) {
    let place = relative(draft, root);
    if block > BLOCK_DIRECT {
        draft.first_step += DIRECT;
        let part = |rank: u32| own.filter(|_| place != 0).unwrap_or_else(|| all.part(rank as usize * block, block));
        return scatter_directly(draft, &part, own, root, after);
    }
    deal_blocks(draft, all, own, block, root, after);
}

/// [`scatter`] along a binomial tree. Returns the nodes after which this rank's block is there.
fn deal_blocks(
    draft: &mut Draft,
    all: Span,
    own: Option<Span>,
    block: usize,
    root: u32,
    after: &[NodeId],
) -> Vec<NodeId> {
    let place = relative(draft, root);
    let mut came = after.to_vec();
    let mut held = all;
    if place != 0 {
        let span = subtree(place, draft.size);
        held = own.filter(|_| span == 1).unwrap_or_else(|| draft.temporary(span as usize * block));
        for (step, part) in parts(draft, root, place, place, held, block) {
            came.push(draft.receive(absolute(draft, root, parent(place)), step, part, &[]));
        }
    }
    for child in children(place, draft.size) {
        for (step, part) in parts(draft, root, place, child, held, block) {
            draft.send(absolute(draft, root, child), step, part, &came);
        }
    }
    let Some(own) = own else { return came };
    match place {
        0 => vec![draft.copy(all.part(root as usize * block, block), own, &came)],
        _ if subtree(place, draft.size) > 1 => vec![draft.copy(held.part(0, block), own, &came)],
        _ => came,
    }
}

/// Blocks of `block` bytes go from `own` at each rank to `all` at the root, in the order of ranks. With `None` the root's block is there
/// already.
pub fn gather(draft: &mut Draft, own: Option<Span>, all: Span, block: usize, root: u32) {
    let place = relative(draft, root);
    if block > BLOCK_DIRECT {
        draft.first_step += DIRECT;
        return gather_directly(draft, own, &|rank| all.part(rank as usize * block, block), root);
    }
    let mut came = Vec::new();
    let span = subtree(place, draft.size);
    let held = match (place, own) {
        (0, _) => all,
        (_, Some(own)) if span == 1 => own,
        _ => draft.temporary(span as usize * block),
    };
    for child in children(place, draft.size) {
        for (step, part) in parts(draft, root, place, child, held, block) {
            came.push(draft.receive(absolute(draft, root, child), step, part, &[]));
        }
    }
    match (place, own) {
        (0, Some(own)) => drop(draft.copy(own, all.part(root as usize * block, block), &[])),
        (1.., Some(own)) if span > 1 => came.push(draft.copy(own, held.part(0, block), &[])),
        _ => {}
    }
    if place != 0 {
        for (step, part) in parts(draft, root, place, place, held, block) {
            draft.send(absolute(draft, root, parent(place)), step, part, &came);
        }
    }
}

/// This rank's place in a tree with the root at its top: its distance from the root, wrapping around.
fn relative(draft: &Draft, root: u32) -> u32 {
    Around::all(draft).behind(root)
}

/// The rank of a place.
fn absolute(draft: &Draft, root: u32, place: u32) -> u32 {
    ((u64::from(place) + u64::from(root)) % u64::from(draft.size)) as u32
}

/// The blocks of the subtree of a place, in the memory `held` of the blocks that the rank at `place` has: steps, and runs of bytes.
fn parts(
    draft: &Draft,
    root: u32,
    place: u32,
    of: u32,
    held: Span,
    block: usize,
) -> impl Iterator<Item = (u32, Span)> + use<> {
    let split = if of == place { parent(place) == 0 } else { place == 0 };
    let start = |first| if place == 0 { absolute(draft, root, first) } else { first - place };
    let part = |(first, count)| held.part(start(first) as usize * block, count as usize * block);
    (0..).zip(runs(draft, root, of, split).into_iter().map(part).collect::<Vec<_>>())
}

/// The places of a subtree, as runs of consecutive ranks. At the root (`split`), blocks are in the order of ranks, so a run that passes the
/// last rank is split, and its second part begins with rank 0.
fn runs(draft: &Draft, root: u32, place: u32, split: bool) -> Vec<(u32, u32)> {
    let count = subtree(place, draft.size);
    let before = draft.size - root;
    if !split || place >= before || place + count <= before {
        return vec![(place, count)];
    }
    vec![(place, before - place), (before, place + count - before)]
}
