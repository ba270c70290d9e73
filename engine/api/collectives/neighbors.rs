//! Operations among neighbours of a topology.

use super::{Call, Draw, Member, Places, check_count, check_in_place, check_list, check_same};
use std::ops::Range;
use tickwire_components::{List, Neighbors, OneRun, Pieces, PostError, Sequence};
use tickwire_systems::collectives::neighbors::exchange;

/// Who may give [`in_place`](tickwire_components::in_place).
const NOBODY: &str = "no member";

/// Checks that a rank sends itself as many elements or bytes as it expects from itself.
fn check_own(
    member: Member<'_>,
    of: &Neighbors,
    sent: impl Fn(usize) -> usize,
    expected: impl Fn(usize) -> usize,
) -> Result<(), PostError> {
    for (place, destination) in of.destinations.iter().enumerate().filter(|(_, of)| of.rank.0 == member.rank) {
        match of.sources.iter().position(|source| source == destination) {
            Some(there) => check_count("own part", expected(there), sent(place))?,
            None => return Err(PostError::NoTopology),
        }
    }
    Ok(())
}

/// Checks that both buffers are given, and that their elements have one size. No operation among neighbours works in place.
fn check_both<S: Sequence, R: Sequence>(send: &S, receive: &R) -> Result<(), PostError> {
    check_in_place(send, false, NOBODY)?;
    check_in_place(receive, false, NOBODY)?;
    check_same(send, receive)
}

pub(super) fn neighbor_allgather<S: Sequence, R: Sequence<Item = S::Item>>(
    send: S,
    receive: R,
) -> Call<(S, R), impl Draw<(S, R)>> {
    Call::new("neighbor_allgather", (send, receive), |member, (send, receive)| {
        let of = member.neighbors()?;
        check_both(send, receive)?;
        check_count("receive buffer", receive.count(), send.count() * of.sources.len())?;
        let (all, block) = (receive.piece(0), send.total());
        member.draw(None, |draft| {
            exchange(draft, &of, &|_| send.piece(0), &|place| all.part(place * block, block));
        })
    })
    .like::<S::Item>(0)
}

pub(super) fn neighbor_allgatherv<S: Sequence, R: Sequence<Item = S::Item>>(
    send: S,
    receive: R,
    places: &[Range<usize>],
) -> Call<(S, R), impl Draw<(S, R)>> {
    Call::new("neighbor_allgatherv", (send, receive), move |member, (send, receive)| {
        let of = member.neighbors()?;
        check_both(send, receive)?;
        let to = Places::of("receive buffer", places, receive, of.sources.len(), true)?;
        check_own(member, &of, |_| send.total(), |place| to.of_rank(place as u32).1)?;
        let all = receive.piece(0);
        member.draw(None, |draft| {
            exchange(draft, &of, &|_| send.piece(0), &|place| to.part(all, place as u32));
        })
    })
}

pub(super) fn neighbor_alltoall<S: Sequence, R: Sequence<Item = S::Item>>(
    send: S,
    receive: R,
) -> Call<(S, R), impl Draw<(S, R)>> {
    Call::new("neighbor_alltoall", (send, receive), |member, (send, receive)| {
        let of = member.neighbors()?;
        check_both(send, receive)?;
        let (to, from) = (of.destinations.len(), of.sources.len());
        let block = send.count().checked_div(to).or(receive.count().checked_div(from)).unwrap_or(0);
        check_count("send buffer", send.count(), block * to)?;
        check_count("receive buffer", receive.count(), block * from)?;
        let block = send.total().checked_div(to).or(receive.total().checked_div(from)).unwrap_or(0);
        let (sent, all) = (send.piece(0), receive.piece(0));
        member.draw(None, |draft| {
            exchange(draft, &of, &|place| sent.part(place * block, block), &|place| all.part(place * block, block));
        })
    })
    .like::<S::Item>(0)
}

pub(super) fn neighbor_alltoallv<S: Sequence, R: Sequence<Item = S::Item>>(
    send: S,
    from: &[Range<usize>],
    receive: R,
    to: &[Range<usize>],
) -> Call<(S, R), impl Draw<(S, R)>> {
    Call::new("neighbor_alltoallv", (send, receive), move |member, (send, receive)| {
        let of = member.neighbors()?;
        check_both(send, receive)?;
        let sent = Places::of("send buffer", from, send, of.destinations.len(), false)?;
        let received = Places::of("receive buffer", to, receive, of.sources.len(), true)?;
        check_own(member, &of, |place| from[place].len(), |place| to[place].len())?;
        let (from, to) = (send.piece(0), receive.piece(0));
        member.draw(None, |draft| {
            exchange(draft, &of, &|place| sent.part(from, place as u32), &|place| received.part(to, place as u32));
        })
    })
}

pub(super) fn neighbor_alltoallw<S: OneRun, R: OneRun>(
    send: List<S>,
    receive: List<R>,
) -> Call<super::exchange::Lists<S, R>, impl Draw<super::exchange::Lists<S, R>>> {
    Call::new("neighbor_alltoallw", (send, receive), |member, (send, receive)| {
        let of = member.neighbors()?;
        check_count("list of buffers to send", send.len(), of.destinations.len())?;
        check_count("list of buffers to receive", receive.len(), of.sources.len())?;
        check_list(send, NOBODY)?;
        check_list(receive, NOBODY)?;
        if receive.has_overlap() || send.meets(receive) {
            return Err(PostError::Overlap);
        }
        check_own(member, &of, |place| send[place].total(), |place| receive[place].total())?;
        member.draw(None, |draft| {
            exchange(draft, &of, &|place| send.piece(place), &|place| receive.piece(place));
        })
    })
}
