//! Exchanges of members that stand around a circle. In each round the distance between the members that meet doubles.

use super::draft::{Draft, NodeId};
use tickwire_components::Span;

/// Members that stand around a circle: the ranks of a communicator, or some of them.
#[derive(Clone, Copy)]
pub(super) struct Around {
    /// This member's number.
    pub(super) own: u32,
    /// How many members there are.
    pub(super) count: u32,
}

/// What a member does in a round of an allgather: members, and runs of members whose blocks it sends and receives.
pub(super) struct Round {
    to: u32,
    from: u32,
    sent: Vec<(u32, u32)>,
    pub(super) received: Vec<(u32, u32)>,
}

impl Around {
    /// All ranks.
    pub(super) fn all(draft: &Draft) -> Self {
        Around { own: draft.rank, count: draft.size }
    }

    /// The member `by` places ahead.
    pub(super) fn ahead(self, by: u32) -> u32 {
        ((u64::from(self.own) + u64::from(by)) % u64::from(self.count)) as u32
    }

    /// The member `by` places before. `by` is at most the number of members.
    pub(super) fn behind(self, by: u32) -> u32 {
        self.ahead(self.count - by)
    }

    /// The rounds of an allgather. In each of them a member sends the blocks that it has to the member that is as many places ahead, so
    /// the number of blocks doubles.
    pub(super) fn rounds(self) -> impl Iterator<Item = Round> {
        let mut held = 1;
        std::iter::from_fn(move || {
            let count = held.min(self.count - held);
            let (to, from) = (self.ahead(held), self.behind(held));
            held += count;
            let runs = |last| runs(last, count, self.count);
            (count > 0).then(|| Round { to, from, sent: runs(self.own), received: runs(from) })
        })
    }
}

/// Members tell each other that they have entered. In round k each member tells the one 2^k ahead that it and the 2^k − 1 members before it
/// have entered. `entered` is done when this member has. `rank` gives the rank of a member. Returns the node that is done when all have.
pub(super) fn hear_of_all(
    draft: &mut Draft,
    members: Around,
    rank: &dyn Fn(u32) -> u32,
    entered: Option<NodeId>,
) -> Option<NodeId> {
    let (mut step, mut distance, mut heard): (u32, u32, Option<NodeId>) = (0, 1, entered);
    while distance < members.count {
        let (to, from) = (rank(members.ahead(distance)), rank(members.behind(distance)));
        draft.send(to, step, Span::EMPTY, heard.as_slice());
        let receive = draft.receive(from, step, Span::EMPTY, &[]);
        // The next round tells of all members that were heard of so far.
        let all = draft.copy(Span::EMPTY, Span::EMPTY, &[heard.unwrap_or(receive), receive]);
        heard = Some(all);
        (step, distance) = (step + 1, distance.saturating_mul(2));
    }
    heard
}

/// Every member gets the blocks of all members. `rank` gives the rank of a member, `place` the memory of the blocks from one member up to
/// another one. This member's own block is in its place when all nodes in `came` are done. Adds a node for each run of blocks that is received, in
/// the order of [`Around::rounds`].
pub(super) fn gather_around(
    draft: &mut Draft,
    members: Around,
    rank: &dyn Fn(u32) -> u32,
    place: &dyn Fn(u32, u32) -> Span,
    came: &mut Vec<NodeId>,
) {
    let mut step = 0;
    for Round { to, from, sent, received } in members.rounds() {
        for (part, (first, end)) in (0..).zip(sent) {
            draft.send(rank(to), step + part, place(first, end), came);
        }
        for (part, (first, end)) in (0..).zip(received) {
            let receive = draft.receive(rank(from), step + part, place(first, end), &[]);
            came.push(receive);
        }
        step += 2;
    }
}

/// The last `count` members up to `last`, wrapping around at member 0: one or two runs of members.
fn runs(last: u32, count: u32, size: u32) -> Vec<(u32, u32)> {
    if last + 1 >= count {
        return vec![(last + 1 - count, last + 1)];
    }
    vec![(size - (count - last - 1), size), (0, last + 1)]
}
