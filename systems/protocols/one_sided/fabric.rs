//! Puts and gets with a request that a fabric does: each look gives it what it has not taken, and ends the requests of those that are complete.
//! A put is complete when the target's memory holds it.
//!
//! *Bound* the operations that are not complete. *Why* the fabric tells of its operations by counts, not by frames, so no look at an endpoint
//! finds them.

use crate::procs::endpoint::Endpoint;
use crate::procs::windows::FabricOperation;
use crate::procs::windows::{Failure, Windows};
use crate::rows::{Rows, Wire};
use crate::steps::finish::{abort, finish_at_once};
use tickwire_components::{Vc, VcState, car_flags};
use tickwire_transports::{FailedOperation, Issued, OneSided};

/// How long the end of a peer may be noticed after its operations have failed, ns: an error of theirs says so then.
const NOTICE_NS: u64 = 50_000_000;

/// Posts an operation: the fabric gets it at once, if it takes it now.
pub fn post_by_fabric(rows: &mut Rows<'_>, endpoints: &mut [Endpoint], mut operation: FabricOperation) {
    let Rows { windows, progress, .. } = rows;
    if let Some(target) = windows.get(operation.handle).map(|window| &mut window.targets[operation.target as usize]) {
        target.issued += 1;
    }
    let failed = fabric_of(endpoints, operation.endpoint).and_then(|fabric| give(fabric, &mut operation));
    let endpoint = operation.endpoint;
    windows.by_fabric.push(operation);
    failed.into_iter().for_each(|failed| windows.note_failure(endpoint, failed, progress.now_ns));
}

/// Goes on with the operations; whether one of them has ended.
pub fn advance_by_fabric(rows: &mut Rows<'_>, wire: &mut Wire<'_>) -> bool {
    for (number, endpoint) in (0u8..).zip(wire.endpoints.iter_mut()) {
        if rows.windows.by_fabric.iter().any(|operation| operation.endpoint == number)
            && let Some(fabric) = endpoint.transport.get().one_sided()
        {
            fabric.progress();
            take_failures(fabric, &mut rows.windows, number, rows.progress.now_ns);
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

/// Takes note of the operations that have failed.
pub fn take_failures(fabric: &mut dyn OneSided, windows: &mut Windows, endpoint: u8, now_ns: u64) {
    while let Some(failed) = fabric.failed_operation() {
        windows.note_failure(endpoint, failed, now_ns);
    }
}

fn fabric_of(endpoints: &mut [Endpoint], endpoint: u8) -> Option<&mut dyn OneSided> {
    endpoints.get_mut(usize::from(endpoint))?.transport.get().one_sided()
}

/// Gives an operation to the fabric, which may have no room for it yet. Says if it never will.
fn give(fabric: &mut dyn OneSided, operation: &mut FabricOperation) -> Option<FailedOperation> {
    let &mut FabricOperation { channel, remote, run, number, .. } = operation;
    // SAFETY: the engine keeps the buffer until the request is done, which is when the operation is complete, or the transport closed.
    #[expect(unsafe_code, reason = "bytes that are addresses")]
    let issued = unsafe {
        match operation.writes {
            true => fabric.put(channel, remote, run, number),
            false => fabric.get(channel, remote, run, number),
        }
    };
    match issued {
        Ok(Issued::Taken(turn)) => operation.turn = Some(turn),
        Ok(Issued::Full) => {}
        Err(reason) => return Some(FailedOperation { channel, number, reason }),
    }
    None
}

/// Looks at an operation: how it has ended, if it has.
fn step(rows: &mut Rows<'_>, endpoints: &mut [Endpoint], index: usize) -> Option<Result<(), Failure>> {
    let Rows { windows, vcs, progress, .. } = rows;
    let operation = &mut windows.by_fabric[index];
    let endpoint = operation.endpoint;
    let has_link = |vc: &&Vc| vc.state == VcState::Connected && vc.link == operation.channel.link;
    let is_open = vcs.get(operation.vc as usize).is_some_and(|vc| has_link(&vc));
    let Some(fabric) = fabric_of(endpoints, endpoint) else { return Some(Err(Failure::TargetFailed)) };
    if let Some(turn) = operation.turn {
        // Counts begin anew with a link that has the number of this one.
        let (issued, completed) = (fabric.issued(operation.channel), fabric.completed(operation.channel));
        if completed < turn && (is_open || issued >= turn) {
            return None;
        }
    }
    match (operation.turn, operation.failed_ns) {
        (Some(_), None) => Some(Ok(())),
        (_, _) if !is_open => Some(Err(Failure::TargetFailed)),
        (None, None) => {
            let failed = give(fabric, operation)?;
            windows.note_failure(endpoint, failed, progress.now_ns);
            None
        }
        (_, Some(since)) if progress.now_ns.saturating_sub(since) < NOTICE_NS => None,
        (_, Some(_)) => Some(Err(Failure::Fabric)),
    }
}

/// An operation has ended, and its request with it.
fn end(rows: &mut Rows<'_>, operation: &FabricOperation, ended: Result<(), Failure>) {
    let Rows { windows, progress, cars, requests, .. } = rows;
    if let Some(target) = windows.get(operation.handle).map(|window| &mut window.targets[operation.target as usize]) {
        target.completed = target.issued.min(target.completed + 1);
    }
    progress.work.received += 1;
    let (row, length) = (operation.request, operation.run.len() as u64);
    match ended {
        // Complete lets go of what is registered for it.
        Ok(()) => finish_at_once(progress, cars, requests, row, length),
        Err(Failure::TargetFailed) => {
            cars[row as usize].vc = operation.vc;
            abort(progress, cars, row, car_flags::PEER_FAILED);
        }
        Err(_) => abort(progress, cars, row, car_flags::OUT_OF_BOUNDS),
    }
}
