//! Barrier, broadcast, scatter and gather.

use super::{Call, Draw, Places, check_count, check_in_place, check_root};
use std::ops::Range;
use tickwire_components::{Collective, CollectiveKind, NoBytes, Rank, Sequence, Span};
use tickwire_systems::collectives::spread;

/// Who may give no buffer of its own.
const ROOT: &str = "the root";

pub(super) fn barrier() -> Call<NoBytes, impl Draw<NoBytes>> {
    Call::new("barrier", NoBytes, |draft, _| {
        if !draft.runs_on_boards(Collective::BARRIER) {
            spread::barrier(draft);
        }
        Ok(())
    })
    .like::<()>(0)
}

pub(super) fn bcast<B: Sequence>(buffer: B, root: Rank) -> Call<B, impl Draw<B>> {
    Call::new("bcast", buffer, move |draft, buffer| {
        let root = check_root(draft, root)?;
        let whole = buffer.piece(0);
        let (part, element) = (whole.len(), size_of::<B::Item>());
        let call = Collective {
            kind: CollectiveKind::Broadcast,
            root,
            input: whole,
            output: whole,
            part,
            element,
            reduction: None,
        };
        if draft.size > 1 && !draft.runs_on_boards(call) {
            spread::broadcast(draft, whole, root);
        }
        Ok(())
    })
    .like::<B::Item>(root.0)
}

pub(super) fn gather<S: Sequence, R: Sequence<Item = S::Item>>(
    send: S,
    receive: R,
    root: Rank,
) -> Call<(S, R), impl Draw<(S, R)>> {
    Call::new("gather", (send, receive), move |draft, (send, receive)| {
        let root = check_root(draft, root)?;
        check_in_place(send, draft.rank == root, ROOT)?;
        let ranks = draft.size as usize;
        let (mut own, mut block) = (Some(send.piece(0)), send.total());
        if send.is_in_place() {
            check_count("receive buffer", receive.count(), receive.count() / ranks * ranks)?;
            (own, block) = (None, receive.total() / ranks);
        } else if draft.rank == root {
            check_count("receive buffer", receive.count(), send.count() * ranks)?;
        }
        let output = if draft.rank == root { receive.piece(0) } else { Span::EMPTY };
        let (input, element) = (own.unwrap_or(Span::EMPTY), size_of::<S::Item>());
        let kind = CollectiveKind::Gather;
        let call = Collective { kind, root, input, output, part: block, element, reduction: None };
        if !draft.runs_on_boards(call) {
            spread::gather(draft, own, receive.piece(0), block, root);
        }
        Ok(())
    })
    .like::<S::Item>(root.0)
}

pub(super) fn gatherv<S: Sequence, R: Sequence<Item = S::Item>>(
    send: S,
    receive: R,
    places: &[Range<usize>],
    root: Rank,
) -> Call<(S, R), impl Draw<(S, R)>> {
    Call::new("gatherv", (send, receive), move |draft, (send, receive)| {
        let root = check_root(draft, root)?;
        check_in_place(send, draft.rank == root, ROOT)?;
        let own = (!send.is_in_place()).then(|| send.piece(0));
        if draft.rank != root {
            spread::gather_directly(draft, own, |_| send.piece(0), root);
            return Ok(());
        }
        let to = Places::of("receive buffer", places, receive, draft.size as usize, true)?;
        if own.is_some() {
            check_count("send buffer", send.count(), places[root as usize].len())?;
        }
        let all = receive.piece(0);
        spread::gather_directly(draft, own, |rank| to.part(all, rank), root);
        Ok(())
    })
}

pub(super) fn scatter<S: Sequence, R: Sequence<Item = S::Item>>(
    send: S,
    receive: R,
    root: Rank,
) -> Call<(S, R), impl Draw<(S, R)>> {
    Call::new("scatter", (send, receive), move |draft, (send, receive)| {
        let root = check_root(draft, root)?;
        check_in_place(receive, draft.rank == root, ROOT)?;
        let ranks = draft.size as usize;
        let (mut own, mut block) = (Some(receive.piece(0)), receive.total());
        if receive.is_in_place() {
            check_count("send buffer", send.count(), send.count() / ranks * ranks)?;
            (own, block) = (None, send.total() / ranks);
        } else if draft.rank == root {
            check_count("send buffer", send.count(), receive.count() * ranks)?;
        }
        let input = if draft.rank == root { send.piece(0) } else { Span::EMPTY };
        let (output, element) = (own.unwrap_or(Span::EMPTY), size_of::<S::Item>());
        let kind = CollectiveKind::Scatter;
        let call = Collective { kind, root, input, output, part: block, element, reduction: None };
        if !draft.runs_on_boards(call) {
            spread::scatter(draft, send.piece(0), own, block, root, &[]);
        }
        Ok(())
    })
    .like::<S::Item>(root.0)
}

pub(super) fn scatterv<S: Sequence, R: Sequence<Item = S::Item>>(
    send: S,
    receive: R,
    places: &[Range<usize>],
    root: Rank,
) -> Call<(S, R), impl Draw<(S, R)>> {
    Call::new("scatterv", (send, receive), move |draft, (send, receive)| {
        let root = check_root(draft, root)?;
        check_in_place(receive, draft.rank == root, ROOT)?;
        let own = (!receive.is_in_place()).then(|| receive.piece(0));
        if draft.rank != root {
            spread::scatter_directly(draft, |_| receive.piece(0), own, root, &[]);
            return Ok(());
        }
        let from = Places::of("send buffer", places, send, draft.size as usize, false)?;
        if own.is_some() {
            check_count("receive buffer", receive.count(), places[root as usize].len())?;
        }
        let all = send.piece(0);
        spread::scatter_directly(draft, |rank| from.part(all, rank), own, root, &[]);
        Ok(())
    })
}
