//! Barrier, broadcast, scatter and gather.

use super::{COPIED, Call, Draw, Places, SENDS, check_count, check_in_place, check_root, check_same};
use std::ops::Range;
use tickwire_components::{Collective, CollectiveKind, NoBytes, Rank, Sequence, Span};
use tickwire_systems::collectives::spread;

/// The member that may give no buffer of its own.
const ROOT: &str = "the root";

pub(super) fn barrier() -> Call<NoBytes, impl Draw<NoBytes>> {
    Call::new("barrier", NoBytes, |member, _| member.plan(Collective::BARRIER, None, spread::barrier)).like::<()>(0)
}

pub(super) fn bcast<B: Sequence>(buffer: B, root: Rank) -> Call<B, impl Draw<B>> {
    Call::new("bcast", buffer, move |member, buffer| {
        let root = check_root(member, root)?;
        check_in_place(buffer, false, "no member")?;
        let whole = buffer.piece(0);
        let (part, element) = (whole.len(), COPIED);
        let call = Collective { kind: CollectiveKind::Broadcast, root, input: whole, output: whole, part, element };
        member.plan(call, None, |draft| {
            if draft.size > 1 {
                spread::broadcast(draft, whole, root);
            }
        })
    })
    .like::<B::Item>(root.0)
}

pub(super) fn gather<S: Sequence, R: Sequence<Item = S::Item>>(
    send: S,
    receive: R,
    root: Rank,
) -> Call<(S, R), impl Draw<(S, R)>> {
    Call::new("gather", (send, receive), move |member, (send, receive)| {
        let root = check_root(member, root)?;
        check_in_place(send, member.rank == root, ROOT)?;
        check_in_place(receive, member.rank != root, SENDS)?;
        let ranks = member.size as usize;
        let (mut own, mut block) = (Some(send.piece(0)), send.total());
        if send.is_in_place() {
            check_count("receive buffer", receive.count(), receive.count() / ranks * ranks)?;
            (own, block) = (None, receive.total() / ranks);
        } else if member.rank == root {
            check_same(send, receive)?;
            check_count("receive buffer", receive.count(), send.count() * ranks)?;
        }
        let output = if member.rank == root { receive.piece(0) } else { Span::EMPTY };
        let (input, element) = (own.unwrap_or(Span::EMPTY), COPIED);
        let kind = CollectiveKind::Gather;
        let call = Collective { kind, root, input, output, part: block, element };
        member.plan(call, None, |draft| spread::gather(draft, own, receive.piece(0), block, root))
    })
    .like::<S::Item>(root.0)
}

pub(super) fn gatherv<S: Sequence, R: Sequence<Item = S::Item>>(
    send: S,
    receive: R,
    places: &[Range<usize>],
    root: Rank,
) -> Call<(S, R), impl Draw<(S, R)>> {
    Call::new("gatherv", (send, receive), move |member, (send, receive)| {
        let root = check_root(member, root)?;
        check_in_place(send, member.rank == root, ROOT)?;
        check_in_place(receive, member.rank != root, SENDS)?;
        let own = (!send.is_in_place()).then(|| send.piece(0));
        if member.rank != root {
            return member.draw(None, |draft| {
                spread::gather_directly(draft, own, &|_| send.piece(0), root);
            });
        }
        let to = Places::of("receive buffer", places, receive, member.size as usize, true)?;
        if own.is_some() {
            check_same(send, receive)?;
            check_count("send buffer", send.count(), places[root as usize].len())?;
        }
        let all = receive.piece(0);
        member.draw(None, |draft| {
            spread::gather_directly(draft, own, &|rank| to.part(all, rank), root);
        })
    })
}

pub(super) fn scatter<S: Sequence, R: Sequence<Item = S::Item>>(
    send: S,
    receive: R,
    root: Rank,
) -> Call<(S, R), impl Draw<(S, R)>> {
    Call::new("scatter", (send, receive), move |member, (send, receive)| {
        let root = check_root(member, root)?;
        check_in_place(receive, member.rank == root, ROOT)?;
        check_in_place(send, member.rank != root, "the buffer to receive into")?;
        let ranks = member.size as usize;
        let (mut own, mut block) = (Some(receive.piece(0)), receive.total());
        if receive.is_in_place() {
            check_count("send buffer", send.count(), send.count() / ranks * ranks)?;
            (own, block) = (None, send.total() / ranks);
        } else if member.rank == root {
            check_same(send, receive)?;
            check_count("send buffer", send.count(), receive.count() * ranks)?;
        }
        let input = if member.rank == root { send.piece(0) } else { Span::EMPTY };
        let (output, element) = (own.unwrap_or(Span::EMPTY), COPIED);
        let kind = CollectiveKind::Scatter;
        let call = Collective { kind, root, input, output, part: block, element };
        member.plan(call, None, |draft| spread::scatter(draft, send.piece(0), own, block, root, &[]))
    })
    .like::<S::Item>(root.0)
}

pub(super) fn scatterv<S: Sequence, R: Sequence<Item = S::Item>>(
    send: S,
    receive: R,
    places: &[Range<usize>],
    root: Rank,
) -> Call<(S, R), impl Draw<(S, R)>> {
    Call::new("scatterv", (send, receive), move |member, (send, receive)| {
        let root = check_root(member, root)?;
        check_in_place(receive, member.rank == root, ROOT)?;
        check_in_place(send, member.rank != root, "the buffer to receive into")?;
        let own = (!receive.is_in_place()).then(|| receive.piece(0));
        if member.rank != root {
            return member.draw(None, |draft| {
                spread::scatter_directly(draft, &|_| receive.piece(0), own, root, &[]);
            });
        }
        let from = Places::of("send buffer", places, send, member.size as usize, false)?;
        if own.is_some() {
            check_same(send, receive)?;
            check_count("receive buffer", receive.count(), places[root as usize].len())?;
        }
        let all = send.piece(0);
        member.draw(None, |draft| {
            spread::scatter_directly(draft, &|rank| from.part(all, rank), own, root, &[]);
        })
    })
}
