//! When a member asks after messages, and how many questions it has at a time. See [`super::inquiry`].

use crate::procs::priorities::list_sender;
use tickwire_components::{Asking, Control, Inquiry, NIL, Progress, Row, Vc};

/// How long a start has run when its member first asks, ns. Each time it asks again after twice as long.
pub(super) const FIRST_NS: u64 = 20_000_000;
/// Longest time between two questions, ns.
const LONGEST_NS: u64 = 1_000_000_000;
/// Inquiries that may wait for their connections at a time: a quarter of all control frames, so that answers always have room.
pub(super) const INQUIRIES_MAX: usize = 32;

/// Whether it is time to ask; then the next time is set.
pub(super) fn is_time(asking: &mut Asking, now_ns: u64) -> bool {
    let is_time = now_ns.wrapping_sub(asking.next_ns).cast_signed() >= 0;
    if is_time {
        asking.interval_ns = (2 * asking.interval_ns).min(LONGEST_NS);
        asking.next_ns = now_ns.wrapping_add(asking.interval_ns);
    }
    is_time
}

/// Owes a peer an inquiry, unless it is owed one already, of this operation or of another one. `false` if so many wait that this one has
/// to wait too.
pub(super) fn send(progress: &mut Progress, vcs: &mut [Vc], vc: Row, inquiry: Inquiry) -> bool {
    let mut owed = 0;
    for frame in &progress.control.frames {
        let Control::Inquiry(other) = frame.what else { continue };
        if frame.vc == vc && (other.message == NIL) == (inquiry.message == NIL) {
            return true;
        }
        owed += 1;
    }
    let sent = owed < INQUIRIES_MAX && progress.control.push(vc, Control::Inquiry(inquiry));
    if sent {
        list_sender(progress, vcs, vc);
    }
    sent
}
