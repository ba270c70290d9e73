//! Prefixes of reductions: scan and exscan.

use super::{Call, Draw, Member, Plan, check_element, operands};
use tickwire_components::{Collective, CollectiveKind, Operation, PostError, Reduction, Sequence, reduce};
use tickwire_systems::collectives::scan as draw;

pub(super) fn scan<S: Sequence, R: Sequence<Item = S::Item>, O: Operation<S::Item>>(
    send: S,
    receive: R,
    operation: O,
) -> Call<(S, R), impl Draw<(S, R)>> {
    Call::new("scan", (send, receive), |member, buffers| {
        let element = check_element(operation.element(), &buffers.0, &buffers.1)?;
        plan(member, buffers, element, reduce::<S::Item>(operation), CollectiveKind::Scan)
    })
    .reducing::<S::Item, O>(0)
}

pub(super) fn exscan<S: Sequence, R: Sequence<Item = S::Item>, O: Operation<S::Item>>(
    send: S,
    receive: R,
    operation: O,
) -> Call<(S, R), impl Draw<(S, R)>> {
    Call::new("exscan", (send, receive), |member, buffers| {
        let element = check_element(operation.element(), &buffers.0, &buffers.1)?;
        plan(member, buffers, element, reduce::<S::Item>(operation), CollectiveKind::Exscan)
    })
    .reducing::<S::Item, O>(0)
}

#[inline(always)]
fn plan<S: Sequence, R: Sequence<Item = S::Item>>(
    member: Member<'_>,
    (send, receive): &(S, R),
    element: usize,
    reduction: Reduction,
    kind: CollectiveKind,
) -> Result<Plan, PostError> {
    let (input, output) = operands(send, receive)?;
    let call = Collective { kind, root: 0, input, output, part: input.len(), element };
    member.plan(call, Some(reduction), |draft| draw::scan(draft, input, output, kind == CollectiveKind::Exscan))
}
