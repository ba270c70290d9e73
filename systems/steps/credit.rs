//! Credit of VCs: spending, owing and granting it. Used by posting, Post, Match, Transfer, Deliver and probes.
//!
//! The receiver knows what it keeps of a peer, and grants so much that what is kept and what may still come fit the
//! window. Credit in lines goes back in quarters of a window. Envelopes are granted again once half of them are gone; with
//! a receive or a probe waiting, beyond the window too, since the message that it takes may be behind any number of others.
//! A grant is written into the peer's memory where the transport can, else it goes with the next frame, or in one of its own.

use crate::procs::endpoint::Endpoint;
use crate::procs::priorities::list_sender;
use tickwire_components::credit::{Credit, cost};
use tickwire_components::{NIL, Progress, Row, Unexpected, Vc, VcState};

/// Buffer rows that are needed to keep all that may come before its receive, and those that are held back.
pub fn buffers_granted(progress: &Progress, vcs: &[Vc]) -> usize {
    // Each message takes one row, and at least the price of an empty one.
    let messages = (progress.window.lines / cost(0)) as usize;
    vcs.len() * messages + progress.held_buffers[0] as usize
}

/// A message of a peer is kept no more, or never was.
#[inline(always)]
pub fn owe_lines(progress: &mut Progress, vcs: &mut [Vc], vc_row: Row, length: u64) {
    if add_owed(progress, &mut vcs[vc_row as usize], length) {
        list_granter(progress, vcs, vc_row);
    }
}

/// As [`owe_lines`]; `true` leaves it to the caller to [list](list_granter) the VC.
#[inline(always)]
pub(crate) fn add_owed(progress: &Progress, vc: &mut Vc, length: u64) -> bool {
    vc.lines_owed += cost(length);
    vc.lines_owed >= progress.window.lines / 4
}

/// Lists a VC whose peer may be granted something.
#[cold]
#[inline(never)]
pub(crate) fn list_granter(progress: &mut Progress, vcs: &mut [Vc], vc_row: Row) {
    if vcs[vc_row as usize].state == VcState::Connected {
        list_sender(progress, vcs, vc_row);
    }
}

/// An offer of a peer has arrived. `false` if it had none left to send.
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

/// A message has left the unexpected queue for good, without being received.
pub fn forget(progress: &mut Progress, vcs: &mut [Vc], entry: &Unexpected) {
    if entry.message() == NIL {
        owe_lines(progress, vcs, entry.vc, entry.length);
    } else {
        release_offer(progress, vcs, entry.vc);
    }
}

/// An offer that was kept has met its receive, or is none any more.
pub fn release_offer(progress: &mut Progress, vcs: &mut [Vc], vc_row: Row) {
    let Some(vc) = vcs.get_mut(vc_row as usize) else { return };
    vc.offers_kept = vc.offers_kept.saturating_sub(1);
    if u32::from(vc.envelopes_left) <= progress.window.envelopes / 2 {
        list_granter(progress, vcs, vc_row);
    }
}

/// A receive or a probe waits for a message of this VC, or of any ([`NIL`]): whoever has no envelope left gets some.
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

/// What the peer of a VC may have outstanding.
#[inline]
pub fn window(progress: &Progress, vc: &Vc) -> Credit {
    if u32::from(vc.endpoint) == progress.provider.endpoint { progress.provider.window } else { progress.window }
}

/// What is to be granted to a VC's peer now; with `all`, also what alone would not be worth a word. The row is needed where a
/// transport matches, else it may be [`NIL`].
pub fn due(progress: &Progress, vc: &Vc, vc_row: Row, all: bool) -> Credit {
    let window = window(progress, vc);
    let lines = if all || vc.lines_owed >= window.lines / 4 { vc.lines_owed } else { 0 };
    let left = u32::from(vc.envelopes_left);
    if left > window.envelopes / 2 && !all {
        return Credit { lines, envelopes: 0 };
    }
    let waiting = !vc.posted.is_empty() || !progress.wildcard.is_empty() || progress.probing;
    let waiting = waiting || progress.posted.count > 0 || progress.provider.awaits(vc_row);
    let beyond = if waiting { window.envelopes / 4 } else { 0 };
    let target = window.envelopes.saturating_sub(vc.offers_kept).max(beyond);
    let envelopes = target.saturating_sub(left);
    // Not one by one, each with a frame of its own.
    let worth = all || envelopes >= window.envelopes / 4 || left == 0;
    Credit { lines, envelopes: if worth { envelopes } else { 0 } }
}

/// Notes that credit was granted.
pub fn granted(progress: &mut Progress, vc: &mut Vc, credit: Credit) {
    vc.lines_owed -= credit.lines;
    progress.starved_peers -= u32::from(vc.envelopes_left == 0 && credit.envelopes > 0);
    vc.envelopes_left += credit.envelopes as u16;
}

/// Credit that a peer has granted.
#[inline]
pub fn add(vc: &mut Vc, credit: Credit) {
    vc.lines = vc.lines.saturating_add(credit.lines);
    vc.envelopes = vc.envelopes.saturating_add(credit.envelopes.min(u16::MAX.into()) as u16);
}

/// Takes over what the peer has written into this side's memory.
#[cold]
pub fn collect(vc: &mut Vc, endpoint: &mut Endpoint) {
    if endpoint.windows {
        add(vc, endpoint.transport.get().granted(vc.link));
    }
}
