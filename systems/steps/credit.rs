//! Credit of VCs: spending, owing and granting it. Used by posting, Post, Match, Transfer, Deliver and probes.
//!
//! The receiver knows how much of a peer's traffic it keeps. It grants only so much credit that the kept messages and those still to come
//! fit the window. Credit in lines is given back in quarters of a window. Envelope credit is granted again once half of it is used up.
//! While a receive or a probe waits, envelopes may be granted beyond the window too, since the awaited message may come after any number of
//! others. Where the transport can, a grant is written into the peer's memory. Otherwise it goes with the next frame, or in a frame of its
//! own.

use crate::procs::endpoint::Endpoint;
use crate::procs::priorities::list_sender;
use tickwire_components::credit::{Credit, cost};
use tickwire_components::{NIL, Progress, Row, Unexpected, Vc, VcState};

/// Buffer rows needed to keep every unexpected message that the granted credit allows, plus the rows that are reserved for other needs.
pub fn buffers_granted(progress: &Progress, vcs: &[Vc]) -> usize {
    // Each message takes one row, and costs at least as much credit as an empty one.
    let messages = (progress.window.lines / cost(0)) as usize;
    vcs.len() * messages + progress.reserved_buffers.all as usize
}

/// Owes the peer of a VC the credit of a message that is no longer kept here, or never was.
#[inline(always)]
pub fn owe_lines(progress: &mut Progress, vcs: &mut [Vc], vc_row: Row, length: u64) {
    if add_owed(progress, &mut vcs[vc_row as usize], length) {
        list_granter(progress, vcs, vc_row);
    }
}

/// As [`owe_lines`], but on `true` the caller must [list](list_granter) the VC.
#[inline(always)]
pub(crate) fn add_owed(progress: &Progress, vc: &mut Vc, length: u64) -> bool {
    vc.lines_owed += cost(length);
    vc.lines_owed >= progress.window.lines / 4
}

/// Lists a VC whose peer may get credit, so that a grant is sent.
#[cold]
#[inline(never)]
pub(crate) fn list_granter(progress: &mut Progress, vcs: &mut [Vc], vc_row: Row) {
    if vcs[vc_row as usize].state == VcState::Connected {
        list_sender(progress, vcs, vc_row);
    }
}

/// Counts an offer (RTS) that has arrived from a peer. `false` if the peer had no envelope credit left.
#[inline]
pub fn take_envelope(progress: &mut Progress, vcs: &mut [Vc], vc_row: Row) -> bool {
    let vc = &mut vcs[vc_row as usize];
    if vc.envelopes_left == 0 {
        return false;
    }
    vc.envelopes_left -= 1;
    progress.starved_peers += u32::from(vc.envelopes_left == 0);
    if u32::from(vc.envelopes_left) <= progress.window.envelopes / 2 {
        list_granter(progress, vcs, vc_row);
    }
    true
}

/// Gives back the credit of a message that was removed from the unexpected queue and that no receive takes.
pub fn forget(progress: &mut Progress, vcs: &mut [Vc], entry: &Unexpected) {
    if entry.message() == NIL {
        owe_lines(progress, vcs, entry.vc, entry.length);
    } else {
        progress.offered.remove(&(entry.vc, entry.message()));
        release_offer(progress, vcs, entry.vc);
    }
}

/// Counts one kept offer less: it has met its receive, or was dropped.
pub fn release_offer(progress: &mut Progress, vcs: &mut [Vc], vc_row: Row) {
    let Some(vc) = vcs.get_mut(vc_row as usize) else { return };
    vc.offers_kept = vc.offers_kept.saturating_sub(1);
    replenish(progress, vcs, vc_row);
}

/// Lists a VC if its peer can be granted envelopes again.
pub(crate) fn replenish(progress: &mut Progress, vcs: &mut [Vc], vc_row: Row) {
    if u32::from(vcs[vc_row as usize].envelopes_left) <= progress.window.envelopes / 2 {
        list_granter(progress, vcs, vc_row);
    }
}

/// Lists VCs whose peer has no envelope credit left, since a receive or a probe waits for a message of this VC, or of any VC ([`NIL`]).
#[cold]
pub fn feed(progress: &mut Progress, vcs: &mut [Vc], vc_row: Row) {
    if let Some(vc) = vcs.get(vc_row as usize) {
        if vc.envelopes_left == 0 {
            list_granter(progress, vcs, vc_row);
        }
        return;
    }
    for row in 0..vcs.len() {
        if vcs[row].envelopes_left == 0 {
            list_granter(progress, vcs, row as Row);
        }
    }
}

/// The credit that the peer of a VC may have outstanding at most.
#[inline]
pub fn window(progress: &Progress, vc: &Vc) -> Credit {
    if u32::from(vc.endpoint) == progress.provider.endpoint { progress.provider.window } else { progress.window }
}

/// The credit to grant to a VC's peer now. With `all`, this includes amounts too small for a frame of their own.
///
/// An offer whose acknowledgement has yet to leave counts as kept. While there is one, nothing is granted beyond the window: a peer that
/// makes offers and reads nothing would add to what waits for ever.
pub fn due(progress: &Progress, vc: &Vc, vc_row: Row, all: bool) -> Credit {
    let window = window(progress, vc);
    let lines = if all || vc.lines_owed >= window.lines / 4 { vc.lines_owed } else { 0 };
    let left = u32::from(vc.envelopes_left);
    if left > window.envelopes / 2 && !all {
        return Credit { lines, envelopes: 0 };
    }
    let waiting = !vc.posted.is_empty() || !progress.wildcard.is_empty() || progress.probing;
    let waiting = waiting || progress.posted.count > 0 || progress.provider.awaits(vc_row);
    let owed = progress.control.acknowledgements_to(vc_row);
    let beyond = if waiting && owed == 0 { window.envelopes / 4 } else { 0 };
    let target = window.envelopes.saturating_sub(vc.offers_kept).saturating_sub(owed).max(beyond);
    let envelopes = target.saturating_sub(left);
    // Envelopes are not granted one by one, each with a frame of its own.
    let worth = all || envelopes >= window.envelopes / 4 || left == 0;
    Credit { lines, envelopes: if worth { envelopes } else { 0 } }
}

/// Notes that credit was granted.
pub fn granted(progress: &mut Progress, vc: &mut Vc, credit: Credit) {
    vc.lines_owed -= credit.lines;
    progress.starved_peers -= u32::from(vc.envelopes_left == 0 && credit.envelopes > 0);
    vc.envelopes_left += credit.envelopes as u16;
}

/// Adds credit that a peer has granted.
#[inline]
pub fn add(vc: &mut Vc, credit: Credit) {
    vc.lines = vc.lines.saturating_add(credit.lines);
    vc.envelopes = vc.envelopes.saturating_add(credit.envelopes.min(u16::MAX.into()) as u16);
}

/// Adds the credit that the peer has written into this process's memory.
#[cold]
pub fn collect(vc: &mut Vc, endpoint: &mut Endpoint) {
    if endpoint.windows {
        add(vc, endpoint.transport.get().granted(vc.link));
    }
}
