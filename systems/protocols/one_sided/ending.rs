//! Ends operations early: their target has failed, their caller takes its memory back, or the engine is closed.

use super::waiting::Waiter;
use crate::procs::endpoint::Endpoint;
use crate::procs::windows::regions::REGIONS;
use crate::procs::windows::{BatchPart, Failure, OwnMemory, RemoteOperation, WindowRow, Windows};
use crate::rows::Rows;
use crate::steps::finish::abort;
use crate::store::Tables;
use tickwire_components::{Car, NIL, Progress, RemoteKind, Row, Span, car_flags};

/// Ends the operations to the proc of a VC that has failed, and drops the answers that it is owed.
pub(crate) fn fail_windows(all: &mut Tables<'_>, vc: Row) {
    let Tables { windows, progress, cars, .. } = all;
    let Windows { list, ended, .. } = &mut **windows;
    for window in list.iter_mut().flatten() {
        let targets = &window.targets;
        window.served.retain(|served| targets.get(served.origin as usize).is_none_or(|target| target.vc != vc));
        for target in window.targets.iter_mut().filter(|target| target.vc == vc) {
            (target.outstanding, target.has_mail) = (0, false);
            // The owner of regions may end without an error once all operations on them are done.
            if window.handle != REGIONS || target.issued != target.completed || target.failure.is_some() {
                target.failure = Some(Failure::TargetFailed);
            }
            let [_, puts] = target.end_by_fabric();
            target.has_lost_put |= puts > 0;
            target.completed = target.issued;
            for operation in target.operations.drain(..) {
                waiters(&operation).for_each(|waiter| fail_operation(ended, progress, cars, &waiter, vc));
            }
        }
    }
}

/// All who wait for an operation, or for the operations of a batch.
fn waiters(operation: &RemoteOperation) -> impl Iterator<Item = Waiter> {
    let own = operation.batch.is_none().then(|| Waiter::of(operation));
    let parts = operation.batch.iter().flat_map(|batch| &batch.parts);
    own.into_iter().chain(parts.map(Waiter::of_part))
}

/// Tells whoever waits for an operation that its target has failed.
pub(super) fn fail_operation(
    ended: &mut Vec<(u64, Result<(), Failure>)>,
    progress: &mut Progress,
    cars: &mut [Car],
    waiter: &Waiter,
    vc: Row,
) {
    if waiter.awaited {
        ended.push((waiter.number, Err(Failure::TargetFailed)));
    }
    if waiter.request != NIL && waiter.is_last {
        cars[waiter.request as usize].vc = vc;
        abort(progress, cars, waiter.request, car_flags::PEER_FAILED);
    }
}

/// Takes a caller's memory back from an operation. Requests that have not left are not sent, and answers are discarded.
pub fn cut_operation(rows: &mut Rows<'_>, handle: u32, target: u32, number: u64) {
    let Some(window) = rows.windows.get(handle) else { return };
    let target = &mut window.targets[target as usize];
    let mut operations = target.operations.iter();
    if let Some(place) = operations.position(|operation| operation.number == number && operation.batch.is_none())
        && cut(&mut target.operations[place])
        && let Some(operation) = target.operations.remove(place)
    {
        target.completed += u64::from(!operation.kind.is_of_epoch());
    }
    // A batch has copies of its operands, so only the places of answers are taken back.
    let parts =
        target.operations.iter_mut().filter_map(|operation| operation.batch.as_mut()).flat_map(|of| &mut of.parts);
    parts.filter(|part| part.number == number).for_each(BatchPart::cut);
}

impl BatchPart {
    /// Discards its answer.
    fn cut(&mut self) {
        (self.into, self.awaited) = (Span::EMPTY, false);
    }
}

/// Cuts an operation off from the memory of its caller. Returns whether the operation can be removed: no answer to it is to come.
fn cut(operation: &mut RemoteOperation) -> bool {
    (operation.into, operation.awaited) = (Span::EMPTY, false);
    if let Some((length, kept)) = operation.in_part.take() {
        // A second cut finds the copy that the first one made.
        let kept = if kept.is_empty() { keep_frame(operation, length) } else { kept };
        operation.in_part = Some((length, kept));
        return false;
    }
    operation.from = Span::EMPTY;
    let is_awaited = operation.sent > operation.answered || operation.length == 0 && operation.all_sent;
    (operation.length, operation.all_sent) = (operation.sent, true);
    !is_awaited
}

/// The transport may have taken a part of a frame of `length` bytes. The rest must follow, or the next frame would begin in the middle of
/// this one. So this frame becomes the last one of its operation, and is sent from a copy of the caller's memory.
fn keep_frame(operation: &mut RemoteOperation, length: u64) -> Vec<u8> {
    operation.length = operation.sent + length;
    let needed = match operation.kind {
        RemoteKind::CompareSwap(_) => usize::MAX,
        _ => operation.length as usize,
    };
    let from = operation.from.part(0, needed);
    let mut kept = vec![0u8; from.len()];
    // SAFETY: the caller has lent its memory until now; the copy has as many bytes.
    #[expect(unsafe_code, reason = "bytes that are addresses")]
    unsafe {
        kept.as_mut_ptr().copy_from_nonoverlapping(from.start(), from.len());
        operation.from = Span::new(kept.as_mut_ptr(), kept.len());
    }
    kept
}

/// Takes the memory of callers back from all operations without a request: a panic has left the call that lent it.
pub fn cut_loans(windows: &mut Windows) {
    for target in windows.list.iter_mut().flatten().flat_map(|window| &mut window.targets) {
        target.operations.retain_mut(|operation| match &mut operation.batch {
            Some(batch) => {
                batch.parts.iter_mut().filter(|part| part.request == NIL).for_each(BatchPart::cut);
                true
            }
            None => operation.request != NIL || !cut(operation),
        });
        // No flush waits for them any more: the engine is poisoned.
        target.completed = target.issued;
    }
}

/// Removes a window, and withdraws its memory from the fabric.
pub fn remove_window(rows: &mut Rows<'_>, endpoints: &mut [Endpoint], handle: u32) -> Option<Box<WindowRow>> {
    let window = rows.windows.remove(handle)?;
    if let Some((endpoint, key)) = window.fabric_key
        && let Some(fabric) = endpoints.get_mut(usize::from(endpoint)).and_then(|of| of.transport.get().one_sided())
    {
        fabric.withdraw_exposed(&key);
    }
    Some(window)
}

/// Ends all windows: the engine no longer takes part in any operation.
pub fn close_windows(rows: &mut Rows<'_>, endpoints: &mut [Endpoint]) {
    let handles: Vec<u32> = rows.windows.list.iter().flatten().map(|window| window.handle).collect();
    for handle in handles {
        let Some(window) = remove_window(rows, endpoints, handle) else { continue };
        let WindowRow { targets, own, .. } = *window;
        for operation in targets.into_iter().flat_map(|target| target.operations) {
            for waiter in waiters(&operation).filter(|waiter| waiter.request != NIL && waiter.is_last) {
                abort(&mut rows.progress, &mut rows.cars, waiter.request, car_flags::FINALIZED);
            }
        }
        // Other processes may still write into this memory, so it is never freed. Nobody writes into a buffer that has a copy.
        if !matches!(own, OwnMemory::Copied(..)) {
            std::mem::forget(own);
        }
    }
    // The transports are closed, so no fabric uses the buffers of these operations.
    let mut by_fabric = std::mem::take(&mut rows.windows.by_fabric);
    by_fabric.sort_unstable_by_key(|operation| operation.request);
    by_fabric.dedup_by_key(|operation| operation.request);
    for operation in by_fabric {
        abort(&mut rows.progress, &mut rows.cars, operation.request, car_flags::FINALIZED);
    }
    rows.windows.busy.clear();
}
