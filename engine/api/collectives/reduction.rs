//! Reductions. Results have the same bits on all members and in all runs, wherever the ranks are: see
//! [`tickwire_systems::collectives`].

use super::{Call, Draw, SENDS, check_count, check_element, check_in_place, check_root, consecutive, operands};
use tickwire_components::{
    Collective, CollectiveKind, LeasedBytes, Operation, PostError, Rank, Sequence, Span, combine, reduce as reducer,
};
use tickwire_systems::collectives::{reduce as draw, reduce_scatter as parts};

pub(super) fn reduce<S: Sequence, R: Sequence<Item = S::Item>, O: Operation<S::Item>>(
    send: S,
    receive: R,
    operation: O,
    root: Rank,
) -> Call<(S, R), impl Draw<(S, R)>> {
    Call::new("reduce", (send, receive), move |member, (send, receive)| {
        let element = check_element(operation.element(), send, receive)?;
        let reduction = Some(reducer::<S::Item>(operation));
        let root = check_root(member, root)?;
        let is_root = member.rank == root;
        check_in_place(send, is_root, "the root")?;
        check_in_place(receive, !is_root, SENDS)?;
        let output = if is_root { receive.piece(0) } else { Span::EMPTY };
        let mut input = output;
        if !send.is_in_place() {
            if is_root {
                check_count("receive buffer", receive.count(), send.count())?;
            }
            input = send.piece(0);
        }
        let kind = CollectiveKind::Reduce;
        let call = Collective { kind, root, input, output, part: input.len(), element };
        member.plan(call, reduction, |draft| draw::reduce(draft, input, is_root.then_some(output), root, element))
    })
    .reducing::<S::Item, O>(root.0)
}

pub(super) fn allreduce<S: Sequence, R: Sequence<Item = S::Item>, O: Operation<S::Item>>(
    send: S,
    receive: R,
    operation: O,
) -> Call<(S, R), impl Draw<(S, R)>> {
    Call::new("allreduce", (send, receive), move |member, (send, receive)| {
        let element = check_element(operation.element(), send, receive)?;
        let reduction = Some(reducer::<S::Item>(operation));
        let (input, output) = operands(send, receive)?;
        let kind = CollectiveKind::Allreduce;
        let call = Collective { kind, root: 0, input, output, part: input.len(), element };
        member.plan(call, reduction, |draft| draw::allreduce(draft, input, output, element))
    })
    .reducing::<S::Item, O>(0)
}

pub(crate) fn reduce_scatter_block<S: Sequence, R: Sequence<Item = S::Item>, O: Operation<S::Item>>(
    send: S,
    receive: R,
    operation: O,
) -> Call<(S, R), impl Draw<(S, R)>> {
    Call::new("reduce_scatter_block", (send, receive), move |member, (send, receive)| {
        check_in_place(receive, false, SENDS)?;
        let element = check_element(operation.element(), send, receive)?;
        let reduction = Some(reducer::<S::Item>(operation));
        let ranks = member.size as usize;
        let (mut input, mut count) = (send.piece(0), receive.count());
        if send.is_in_place() {
            (input, count) = (receive.piece(0), receive.count() / ranks);
            check_count("receive buffer", receive.count(), count * ranks)?;
        } else {
            check_count("send buffer", send.count(), count * ranks)?;
        }
        let block = input.len() / ranks;
        let output = receive.piece(0).part(0, block);
        let kind = CollectiveKind::ReduceScatter;
        let call = Collective { kind, root: 0, input, output, part: block, element };
        member.plan(call, reduction, |draft| {
            parts::reduce_scatter(draft, input, &|rank| rank as usize * block, output, element);
        })
    })
    .reducing::<S::Item, O>(0)
}

pub(super) fn reduce_scatter<S: Sequence, R: Sequence<Item = S::Item>, O: Operation<S::Item>>(
    send: S,
    receive: R,
    counts: &[usize],
    operation: O,
) -> Call<(S, R), impl Draw<(S, R)>> {
    Call::new("reduce_scatter", (send, receive), move |member, (send, receive)| {
        check_in_place(receive, false, SENDS)?;
        let element = check_element(operation.element(), send, receive)?;
        let reduction = Some(reducer::<S::Item>(operation));
        check_count("list of counts", counts.len(), member.size as usize)?;
        let places = consecutive(counts);
        let (all, own) = (places.last().map_or(0, |last| last.end), counts[member.rank as usize]);
        let mut input = send.piece(0);
        if send.is_in_place() {
            check_count("receive buffer", receive.count(), all)?;
            input = receive.piece(0);
        } else {
            check_count("send buffer", send.count(), all)?;
            check_count("receive buffer", receive.count(), own)?;
        }
        let output = receive.piece(0).part(0, own * element);
        let start = |rank: u32| places.get(rank as usize).map_or(all, |place| place.start) * element;
        member.draw(reduction, |draft| {
            parts::reduce_scatter(draft, input, &start, output, element);
        })
    })
}

/// Combines the elements of two local buffers into `right` (`MPI_Reduce_local`). The left operands are in `left`.
///
/// ```
/// let mut sums = [1, 2];
/// tickwire::reduce_local(&[10, 20], &mut sums, tickwire::op::Sum)?;
/// assert_eq!(sums, [11, 22]);
/// # Ok::<(), tickwire::PostError>(())
/// ```
///
/// # Errors
/// The buffers have different lengths, or one of them is in place.
pub fn reduce_local<S: Sequence, R: LeasedBytes + Sequence<Item = S::Item>>(
    left: S,
    right: R,
    operation: impl Operation<S::Item>,
) -> Result<(), PostError> {
    check_in_place(&left, false, "no buffer of two")?;
    check_in_place(&right, false, "no buffer of two")?;
    check_element(operation.element(), &left, &right)?;
    check_count("right buffer", right.count(), left.count())?;
    combine::<S, R>(&left, right, &operation);
    Ok(())
}
