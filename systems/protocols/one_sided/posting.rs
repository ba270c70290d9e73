//! Posts an operation that goes by itself.

use super::ending::fail_operation;
use super::waiting::Waiter;
use crate::procs::windows::{Failure, RemoteOperation};
use crate::rows::Rows;
use tickwire_components::{NIL, Pending};

/// Posts an operation; [`move_windows`](super::move_windows) sends it. An operation to a proc that has failed ends at once, since nothing would end it later.
pub fn post_remote(rows: &mut Rows<'_>, handle: u32, target: u32, operation: RemoteOperation) {
    let Rows { windows, vcs, progress, cars, .. } = rows;
    let Some(window) = windows.get(handle) else { return };
    let is_dead = window.is_dead(vcs, target);
    let to = &mut window.targets[target as usize];
    to.issued += u64::from(!operation.kind.is_of_epoch());
    if is_dead {
        to.completed = to.issued;
        if !operation.awaited && operation.request == NIL {
            to.failure = Some(Failure::TargetFailed);
        }
        let vc = to.vc;
        return fail_operation(&mut windows.ended, progress, cars, &Waiter::of(&operation), vc);
    }
    to.operations.push_back(operation);
    windows.stir(handle);
    progress.pending |= Pending::TRANSFER;
}
