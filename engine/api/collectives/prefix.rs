//! Prefixes of reductions: scan and exscan.

use super::{Call, Draw, check_count, check_element};
use tickwire_components::{Collective, CollectiveKind, Operation, PostError, Sequence, reduce};
use tickwire_systems::collectives::draft::Draft;
use tickwire_systems::collectives::scan as draw;

pub(super) fn scan<S: Sequence, R: Sequence<Item = S::Item>, O: Operation<S::Item>>(
    send: S,
    receive: R,
    operation: O,
) -> Call<(S, R), impl Draw<(S, R)>> {
    Call::new("scan", (send, receive), |draft, buffers| {
        let element = check_element(operation.element(), &buffers.0, &buffers.1)?;
        draft.reduction = Some(reduce::<S::Item>(operation));
        draw_scan(draft, buffers, element, false)
    })
    .reducing::<S::Item, O>(0)
}

pub(super) fn exscan<S: Sequence, R: Sequence<Item = S::Item>, O: Operation<S::Item>>(
    send: S,
    receive: R,
    operation: O,
) -> Call<(S, R), impl Draw<(S, R)>> {
    Call::new("exscan", (send, receive), |draft, buffers| {
        let element = check_element(operation.element(), &buffers.0, &buffers.1)?;
        draft.reduction = Some(reduce::<S::Item>(operation));
        draw_scan(draft, buffers, element, true)
    })
    .reducing::<S::Item, O>(0)
}

fn draw_scan<S: Sequence, R: Sequence<Item = S::Item>>(
    draft: &mut Draft,
    (send, receive): &(S, R),
    element: usize,
    exclusive: bool,
) -> Result<(), PostError> {
    let output = receive.piece(0);
    let mut input = output;
    if !send.is_in_place() {
        check_count("receive buffer", receive.count(), send.count())?;
        input = send.piece(0);
    }
    let kind = if exclusive { CollectiveKind::Exscan } else { CollectiveKind::Scan };
    let part = input.len();
    let call = Collective { kind, root: 0, input, output, part, element, reduction: None };
    if !draft.runs_on_boards(call) {
        draw::scan(draft, input, output, exclusive);
    }
    Ok(())
}
