//! Operations with a request that a fabric performs. Each poll gives the fabric the operations that it has not taken yet, and ends the
//! requests of those that are complete. A put is complete when the target's memory contains its bytes.
//!
//! *Bound* the operations that are not complete. *Why* the fabric reports its operations by counts, not by frames, so no poll of an
//! endpoint finds them.

use super::waiting::end_part;
use crate::procs::endpoint::Endpoint;
use crate::procs::windows::{FabricKind, FabricOperation, Failure, Windows};
use crate::rows::{Rows, Wire};
use tickwire_components::{NIL, Refusal, Routes, SideLink, Span, Vc, VcState, car_flags};
use tickwire_transports::{Channel, FailedOperation, Issued, OneSided, RemoteRun};

/// Posts an operation. The fabric gets it at once, if it has room.
pub fn post_by_fabric(rows: &mut Rows<'_>, endpoints: &mut [Endpoint], mut operation: FabricOperation) {
    let Rows { windows, progress, .. } = rows;
    if let Some(target) = windows.get(operation.handle).map(|window| &mut window.targets[operation.target as usize]) {
        target.issued += 1;
    }
    let failed = fabric_of(endpoints, operation.endpoint).and_then(|fabric| give(fabric, &mut operation));
    windows.by_fabric.push(operation);
    failed.into_iter().for_each(|failed| windows.note_failure(failed, progress.now_ns));
}

/// Goes on with the operations. Returns whether one of them has ended.
pub fn advance_by_fabric(rows: &mut Rows<'_>, wire: &mut Wire<'_>) -> bool {
    for (number, endpoint) in (0u8..).zip(wire.endpoints.iter_mut()) {
        if rows.windows.by_fabric.iter().any(|operation| operation.endpoint == number)
            && let Some(fabric) = endpoint.transport.get().one_sided()
        {
            fabric.progress();
            take_failures(fabric, &mut rows.windows, rows.progress.now_ns);
        }
    }
    let (mut moved, mut index) = (false, 0);
    while index < rows.windows.by_fabric.len() {
        match step(rows, wire.endpoints, index) {
            None => index += 1,
            Some(ended) => {
                let operation = rows.windows.by_fabric.remove(index);
                end(rows, &operation, ended);
                moved = true;
            }
        }
    }
    moved
}

/// Notes the operations that the fabric reports as failed.
pub fn take_failures(fabric: &mut dyn OneSided, windows: &mut Windows, now_ns: u64) {
    while let Some(failed) = fabric.failed_operation() {
        windows.note_failure(failed, now_ns);
    }
}

fn fabric_of(endpoints: &mut [Endpoint], endpoint: u8) -> Option<&mut dyn OneSided> {
    endpoints.get_mut(usize::from(endpoint))?.transport.get().one_sided()
}

/// Gives an operation to a fabric.
///
/// # Errors
/// Why that cannot be, in words; nothing was done.
///
/// # Safety
/// The run is valid for reads if the operation writes it to the target, else for writes, and nobody else uses it so, until the operation is
/// complete.
#[expect(unsafe_code, reason = "bytes that are addresses")]
pub unsafe fn issue(
    fabric: &mut dyn OneSided,
    kind: FabricKind,
    channel: Channel,
    remote: RemoteRun,
    run: Span,
    number: u64,
) -> Result<Issued, String> {
    // SAFETY: by the same contract.
    unsafe {
        match kind {
            FabricKind::Put => fabric.put(channel, remote, run, number),
            FabricKind::Get => fabric.get(channel, remote, run, number),
            FabricKind::Fetch(operation, operand) => {
                fabric.fetch_atomic(channel, remote, operation, operand, run, number)
            }
            FabricKind::Swap { expected, new } => fabric.compare_swap(channel, remote, expected, new, run, number),
        }
    }
}

/// Gives an operation to the fabric, which may have no room for it yet. Returns a failure if it can never be done.
fn give(fabric: &mut dyn OneSided, operation: &mut FabricOperation) -> Option<FailedOperation> {
    let &mut FabricOperation { channel, remote, run, number, kind, .. } = operation;
    // SAFETY: the engine keeps the buffer until the request is done, which is when the operation is complete, or the transport closed.
    #[expect(unsafe_code, reason = "bytes that are addresses")]
    let issued = unsafe { issue(fabric, kind, channel, remote, run, number) };
    match issued {
        Ok(Issued::Taken(turn)) => operation.turn = Some(turn),
        Ok(Issued::Full) => {}
        Err(reason) => return Some(FailedOperation { channel, number, reason }),
    }
    None
}

/// Whether the link of an operation is open: that of its VC, or a side link. An operation on this process's own memory needs none.
fn has_link(vcs: &[Vc], routes: &Routes, operation: &FabricOperation) -> bool {
    let &FabricOperation { vc: row, endpoint, channel: Channel { link, .. }, .. } = operation;
    if link == NIL {
        return true;
    }
    let Some(vc) = vcs.get(row as usize).filter(|vc| vc.state == VcState::Connected) else { return false };
    let is_side = |side: SideLink| side.is_open && side.link == link;
    (vc.endpoint, vc.link) == (endpoint, link) || routes.side(row, endpoint).is_some_and(is_side)
}

/// Advances an operation. Returns how it has ended, if it has.
fn step(rows: &mut Rows<'_>, endpoints: &mut [Endpoint], index: usize) -> Option<Result<(), Failure>> {
    let Rows { windows, vcs, progress, procs, .. } = rows;
    let operation = &mut windows.by_fabric[index];
    let is_open = has_link(vcs, &procs.routes, operation);
    let Some(fabric) = fabric_of(endpoints, operation.endpoint) else { return Some(Err(Failure::TargetFailed)) };
    // A failed operation counts as complete.
    if let Some(turn) = operation.turn.filter(|_| operation.failed.is_none()) {
        // If another link has got the same number, the counts have begun anew.
        let (issued, completed) = (fabric.issued(operation.channel), fabric.completed(operation.channel));
        if completed < turn && (is_open || issued >= turn) {
            return None;
        }
    }
    match (operation.turn, operation.failed.as_mut()) {
        (Some(_), None) => Some(Ok(())),
        (_, _) if !is_open => {
            let is_alive = vcs.get(operation.vc as usize).is_some_and(|vc| vc.state == VcState::Connected);
            Some(Err(if is_alive { Failure::Fabric } else { Failure::TargetFailed }))
        }
        (None, None) => {
            let failed = give(fabric, operation)?;
            windows.note_failure(failed, progress.now_ns);
            None
        }
        (_, Some(notice)) => notice.is_over(progress.now_ns).then_some(Err(Failure::Fabric)),
    }
}

/// Ends an operation, and its request with the last operation of the request.
fn end(rows: &mut Rows<'_>, operation: &FabricOperation, ended: Result<(), Failure>) {
    let Rows { windows, progress, cars, requests, .. } = rows;
    if let Some(target) = windows.get(operation.handle).map(|window| &mut window.targets[operation.target as usize]) {
        target.completed = target.issued.min(target.completed + 1);
        // What the fabric has never taken does not arrive.
        target.has_lost_put |= ended.is_err() && operation.kind.writes() && operation.turn.is_some();
    }
    progress.work.received += 1;
    let (row, length) = (operation.request, operation.run.len() as u64);
    let (done, failed) = match ended {
        Ok(()) => (length, 0),
        Err(Failure::TargetFailed) => {
            cars[row as usize].vc = operation.vc;
            (0, car_flags::PEER_FAILED)
        }
        Err(_) => {
            let reason = if operation.reason.is_empty() { "its connection has ended" } else { &operation.reason };
            progress.refuse(row, Refusal::Fabric(reason.to_owned()));
            (0, car_flags::FAILED_AT_TARGET)
        }
    };
    let is_last = operation.is_alone || windows.by_fabric.iter().all(|other| other.request != row);
    // Complete releases the memory that is registered for the request.
    end_part(progress, cars, requests, row, (done, failed), is_last);
}
