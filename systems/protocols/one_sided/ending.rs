//! How operations end before their time: their target has failed, their caller takes its memory back, or the engine is closed.

use super::Waiter;
use crate::procs::endpoint::Endpoint;
use crate::procs::windows::regions::REGIONS;
use crate::procs::windows::{BatchPart, Failure, RemoteOperation, WindowRow, Windows};
use crate::rows::Rows;
use crate::steps::finish::abort;
use crate::store::Tables;
use tickwire_components::{Car, NIL, Progress, RemoteKind, Row, Span, car_flags};

/// A VC has failed: operations to its proc end, and what it is owed is forgotten.
pub(crate) fn fail_windows(all: &mut Tables<'_>, vc: Row) {
    let Tables { windows, progress, cars, .. } = all;
    let Windows { list, ended, .. } = &mut **windows;
    for window in list.iter_mut().flatten() {
        let targets = &window.targets;
        window.served.retain(|served| targets.get(served.origin as usize).is_none_or(|target| target.vc != vc));
        for target in window.targets.iter_mut().filter(|target| target.vc == vc) {
            (target.outstanding, target.by_fabric, target.has_mail) = (0, 0, false);
            // An owner of regions may go once all that was asked of it is done.
            if window.handle != REGIONS || target.issued != target.completed || target.failure.is_some() {
                target.failure = Some(Failure::TargetFailed);
            }
            target.completed = target.issued;
            for operation in target.operations.drain(..) {
                waiters(&operation).for_each(|waiter| fail_operation(ended, progress, cars, &waiter, vc));
            }
        }
    }
}

/// Those who wait for an operation, or for those of a batch.
fn waiters(operation: &RemoteOperation) -> impl Iterator<Item = Waiter> {
    let own = operation.batch.is_none().then(|| Waiter::of(operation));
    let parts = operation.batch.iter().flat_map(|batch| &batch.parts);
    own.into_iter().chain(parts.map(Waiter::of_part))
}

/// The target of an operation has failed: whoever waits for it is told.
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

/// Takes the memory of the caller away from an operation: what has not left stays, and answers go nowhere.
pub fn cut_operation(rows: &mut Rows<'_>, handle: u32, target: u32, number: u64) {
    let Some(window) = rows.windows.get(handle) else { return };
    let target = &mut window.targets[target as usize];
    let mut operations = target.operations.iter();
    if let Some(place) = operations.position(|operation| operation.number == number && operation.batch.is_none())
        && cut(&mut target.operations[place])
        && let Some(operation) = target.operations.remove(place)
    {
        target.completed += u64::from(!operation.kind.is_of_lock());
    }
    // What a batch brings is a copy.
    let parts =
        target.operations.iter_mut().filter_map(|operation| operation.batch.as_mut()).flat_map(|of| &mut of.parts);
    parts.filter(|part| part.number == number).for_each(BatchPart::cut);
}

impl BatchPart {
    /// Its answer goes nowhere.
    fn cut(&mut self) {
        (self.into, self.awaited) = (Span::EMPTY, false);
    }
}

/// Whether no answer to it is to come.
fn cut(operation: &mut RemoteOperation) -> bool {
    (operation.into, operation.awaited) = (Span::EMPTY, false);
    if let Some((length, kept)) = operation.in_part.take() {
        // A second cut finds the copy of the first one.
        let kept = if kept.is_empty() { keep_frame(operation, length) } else { kept };
        operation.in_part = Some((length, kept));
        return false;
    }
    operation.from = Span::EMPTY;
    let is_awaited = operation.sent > operation.answered || operation.length == 0 && operation.all_sent;
    (operation.length, operation.all_sent) = (operation.sent, true);
    !is_awaited
}

/// A transport may have taken a part of a frame of so many bytes, so the rest must follow, or the next frame would stand in its midst: this
/// frame becomes the last one of its operation, out of a copy of the caller's memory.
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

/// Takes the memory of callers away from all operations without a request: a panic has left the call that lent it.
pub fn cut_loans(windows: &mut Windows) {
    for target in windows.list.iter_mut().flatten().flat_map(|window| &mut window.targets) {
        target.operations.retain_mut(|operation| match &mut operation.batch {
            Some(batch) => {
                batch.parts.iter_mut().filter(|part| part.request == NIL).for_each(BatchPart::cut);
                true
            }
            None => operation.request != NIL || !cut(operation),
        });
        // Nobody asks any more: the engine is poisoned.
        target.completed = target.issued;
    }
}

/// Takes a window out: no fabric reaches its memory any more.
pub fn remove_window(rows: &mut Rows<'_>, endpoints: &mut [Endpoint], handle: u32) -> Option<Box<WindowRow>> {
    let window = rows.windows.remove(handle)?;
    if let Some((endpoint, key)) = window.fabric_key
        && let Some(fabric) = endpoints.get_mut(usize::from(endpoint)).and_then(|of| of.transport.get().one_sided())
    {
        fabric.withdraw_exposed(&key);
    }
    Some(window)
}

/// Ends all windows: the engine takes part in nothing any more.
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
        // Others may still write there.
        std::mem::forget(own);
    }
    // Transports are closed: no fabric has their buffers.
    let mut by_fabric = std::mem::take(&mut rows.windows.by_fabric);
    by_fabric.sort_unstable_by_key(|operation| operation.request);
    by_fabric.dedup_by_key(|operation| operation.request);
    for operation in by_fabric {
        abort(&mut rows.progress, &mut rows.cars, operation.request, car_flags::FINALIZED);
    }
    rows.windows.busy.clear();
}
