//! Ends a send whose message nobody will receive.

use crate::procs::priorities::list_sender;
use tickwire_components::{Control, Pending, Progress, Row, Vc, VcState, context};

/// Tells the sender of an offer that its message has come to its end, since nobody will receive it. Otherwise its send would wait for ever,
/// where a short one is done.
#[cold]
pub(crate) fn dismiss(progress: &mut Progress, vcs: &mut [Vc], vc_row: Row, word: u32, message: Row) {
    let is_open = vcs.get(vc_row as usize).is_some_and(|vc| vc.state == VcState::Connected);
    // Graphs of collective operations find out by themselves what will not come; blocks do not. What is sent in the place of their
    // messages has no graph any more.
    use context::{ABANDONED, BLOCK, BLOCK_ABANDONED, USER};
    let waits = matches!(context::plane(word), USER | ABANDONED | BLOCK | BLOCK_ABANDONED);
    if is_open && waits {
        progress.control.push_owed(vc_row, Control::Acknowledgement { message });
        list_sender(progress, vcs, vc_row);
        progress.pending |= Pending::TRANSFER;
    }
}
