//! Allgather and alltoall.

use super::{COPIED, Call, Draw, Places, SENDS, check_count, check_in_place, check_list, check_same};
use std::ops::Range;
use tickwire_components::{Collective, CollectiveKind, List, OneRun, Pieces, PostError, Sequence, Span};
use tickwire_systems::collectives::exchange;

pub(crate) fn allgather<S: Sequence, R: Sequence<Item = S::Item>>(
    send: S,
    receive: R,
) -> Call<(S, R), impl Draw<(S, R)>> {
    Call::new("allgather", (send, receive), |member, (send, receive)| {
        check_in_place(receive, false, SENDS)?;
        check_same(send, receive)?;
        let (ranks, all) = (member.size as usize, receive.piece(0));
        let (mut own, mut count) = (Some(send.piece(0)), send.count());
        if send.is_in_place() {
            (own, count) = (None, receive.count() / ranks);
        }
        check_count("receive buffer", receive.count(), count * ranks)?;
        let block = receive.total() / ranks;
        let (kind, element) = (CollectiveKind::Allgather, COPIED);
        let input = own.unwrap_or(all.part(member.rank as usize * block, block));
        let call = Collective { kind, root: 0, input, output: all, part: block, element };
        member.plan(call, None, |draft| {
            let place = |first: u32, end: u32| all.part(first as usize * block, (end - first) as usize * block);
            let own = draft.copy_unless_there(own, place(draft.rank, draft.rank + 1), &[]);
            exchange::allgather(draft, &place, own);
        })
    })
    .like::<S::Item>(0)
}

pub(super) fn allgatherv<S: Sequence, R: Sequence<Item = S::Item>>(
    send: S,
    receive: R,
    places: &[Range<usize>],
) -> Call<(S, R), impl Draw<(S, R)>> {
    Call::new("allgatherv", (send, receive), move |member, (send, receive)| {
        check_in_place(receive, false, SENDS)?;
        check_same(send, receive)?;
        let to = Places::of("receive buffer", places, receive, member.size as usize, true)?;
        let (rank, all) = (member.rank, receive.piece(0));
        let own = (!send.is_in_place()).then(|| send.piece(0));
        if own.is_some() {
            check_count("send buffer", send.count(), places[rank as usize].len())?;
        }
        if places.windows(2).all(|pair| pair[0].end == pair[1].start) {
            let place = |first: u32, end: u32| {
                let (start, _) = to.of_rank(first);
                let (last, bytes) = to.of_rank(end - 1);
                all.part(start, last + bytes - start)
            };
            return member.draw(None, |draft| {
                let own = draft.copy_unless_there(own, place(rank, rank + 1), &[]);
                exchange::allgather(draft, &place, own);
            });
        }
        // The places are not in the order of ranks. So a temporary holds the elements in the order of ranks, and runs of ranks are passed
        // on.
        let mut starts = vec![0];
        starts.extend((0..member.size).scan(0, |end, rank| {
            *end += to.of_rank(rank).1;
            Some(*end)
        }));
        member.draw(None, |draft| {
            let ordered = draft.temporary(starts[member.size as usize]);
            let place = |first: u32, end: u32| {
                let start = starts[first as usize];
                ordered.part(start, starts[end as usize] - start)
            };
            let own = draft.copy(own.unwrap_or(to.part(all, rank)), place(rank, rank + 1), &[]);
            let came = exchange::allgather(draft, &place, own);
            for rank in 0..member.size {
                draft.copy(place(rank, rank + 1), to.part(all, rank), &came);
            }
        })
    })
}

pub(crate) fn alltoall<S: Sequence, R: Sequence<Item = S::Item>>(
    send: S,
    receive: R,
) -> Call<(S, R), impl Draw<(S, R)>> {
    Call::new("alltoall", (send, receive), |member, (send, receive)| {
        check_in_place(receive, false, SENDS)?;
        check_same(send, receive)?;
        let (ranks, to) = (member.size as usize, receive.piece(0));
        check_count("receive buffer", receive.count(), receive.count() / ranks * ranks)?;
        if !send.is_in_place() {
            check_count("send buffer", send.count(), receive.count())?;
        }
        let block = receive.total() / ranks;
        let input = if send.is_in_place() { to } else { send.piece(0) };
        let (kind, element) = (CollectiveKind::Alltoall, COPIED);
        let call = Collective { kind, root: 0, input, output: to, part: block, element };
        member.plan(call, None, |draft| {
            let part = |all: Span, rank: u32| all.part(rank as usize * block, block);
            let (mut from, mut copied) = (send.piece(0), None);
            if send.is_in_place() {
                if draft.size == 1 {
                    return;
                }
                from = draft.temporary(to.len());
                copied = Some(draft.copy(to, from, &[]));
            }
            exchange::alltoall(draft, &|rank| part(from, rank), &|rank| part(to, rank), copied.as_slice());
        })
    })
    .like::<S::Item>(0)
}

pub(super) fn alltoallv<S: Sequence, R: Sequence<Item = S::Item>>(
    send: S,
    from: &[Range<usize>],
    receive: R,
    to: &[Range<usize>],
) -> Call<(S, R), impl Draw<(S, R)>> {
    Call::new("alltoallv", (send, receive), move |member, (send, receive)| {
        check_in_place(receive, false, SENDS)?;
        check_same(send, receive)?;
        let (own, ranks) = (member.rank as usize, member.size as usize);
        let received = Places::of("receive buffer", to, receive, ranks, true)?;
        if send.is_in_place() {
            let all = receive.piece(0);
            return member.draw(None, |draft| {
                let copy = draft.temporary(all.len());
                let copied = draft.copy(all, copy, &[]);
                exchange::alltoall(
                    draft,
                    &|rank| received.part(copy, rank),
                    &|rank| received.part(all, rank),
                    &[copied],
                );
            });
        }
        let sent = Places::of("send buffer", from, send, ranks, false)?;
        check_count("own part", to[own].len(), from[own].len())?;
        let (from, to) = (send.piece(0), receive.piece(0));
        member.draw(None, |draft| {
            exchange::alltoall(draft, &|rank| sent.part(from, rank), &|rank| received.part(to, rank), &[]);
        })
    })
}

/// A buffer to send to each rank, and a buffer to receive from each rank.
pub(super) type Lists<S, R> = (List<S>, List<R>);

pub(super) fn alltoallw<S: OneRun, R: OneRun>(
    send: List<S>,
    receive: List<R>,
) -> Call<Lists<S, R>, impl Draw<Lists<S, R>>> {
    Call::new("alltoallw", (send, receive), |member, (send, receive)| {
        let (ranks, own) = (member.size as usize, member.rank as usize);
        check_count("list of buffers to send", send.len(), ranks)?;
        check_count("list of buffers to receive", receive.len(), ranks)?;
        check_list(receive, "the list to send")?;
        if receive.has_overlap() || send.meets(receive) {
            return Err(PostError::Overlap);
        }
        if send.iter().all(OneRun::is_in_place) {
            return member.draw(None, |draft| {
                let mut copies = Vec::with_capacity(ranks);
                let mut copied = Vec::with_capacity(ranks);
                for buffer in receive.iter() {
                    let copy = draft.temporary(buffer.total());
                    copied.push(draft.copy(buffer.piece(0), copy, &[]));
                    copies.push(copy);
                }
                exchange::alltoall(draft, &|rank| copies[rank as usize], &|rank| receive.piece(rank as usize), &copied);
            });
        }
        check_count("own buffer, bytes,", receive[own].total(), send[own].total())?;
        member.draw(None, |draft| {
            exchange::alltoall(draft, &|rank| send.piece(rank as usize), &|rank| receive.piece(rank as usize), &[]);
        })
    })
}
