//! Counts offers at a transport that matches by itself. Both sides count, since the receiving engine does not see the offers that wait in
//! its transport.
//!
//! An offer costs one envelope credit, as over any transport. The receiver knows how many offers it has granted and how many were paired.
//! Only the sender knows how many of the others it has made already. So a sender that has used up its envelopes tells the receiver how many
//! offers it has made ([`Kind::Offers`]). Those that were made but not paired wait at the transport, and count like offers that the engine
//! itself keeps. Only a receive that waits for a message of that peer gets the peer further envelopes.
//!
//! [`Kind::Offers`]: tickwire_components::wire::Kind::Offers

use crate::rows::Rows;
use crate::steps::credit::{list_granter, release_offer, take_envelope};
use tickwire_components::{Control, Pending, Progress, Row, Vc, VcState};

/// Counts an offer that this side has given to a VC's transport.
#[cold]
pub(crate) fn gave(progress: &mut Progress, vc_row: Row) {
    let peer = progress.provider.peer(vc_row);
    peer.given = peer.given.wrapping_add(1);
}

/// Tells a VC's peer how many offers were made to it, once no more can be made. Does nothing if the peer knows already, or if there is no
/// free row for a control frame now.
#[cold]
pub(crate) fn tell(rows: &mut Rows<'_>, vc_row: Row) {
    let peer = *rows.progress.provider.peer(vc_row);
    if peer.told == peer.given {
        return;
    }
    if rows.progress.control.push(vc_row, Control::OfferCount(peer.given)) {
        rows.progress.provider.peer(vc_row).told = peer.given;
        rows.progress.pending |= Pending::POST;
    }
}

/// Takes a peer's count of the offers that it has made. `false` if no transport matches its messages.
#[cold]
pub(crate) fn hear(progress: &mut Progress, vcs: &mut [Vc], vc_row: Row, made: u32) -> bool {
    let endpoint = progress.provider.endpoint;
    let Some(vc) = vcs.get_mut(vc_row as usize).filter(|vc| u32::from(vc.endpoint) == endpoint) else { return false };
    if vc.state == VcState::Failed {
        // Nothing is granted any more.
        return true;
    }
    let peer = progress.provider.peer(vc_row);
    // Offers that were made after this count was sent may have been paired before it arrived.
    let waiting = (made.wrapping_sub(peer.paired) as i32).max(0) as u32;
    let new = waiting.saturating_sub(peer.there).min(vc.envelopes_left.into());
    peer.there += new;
    vc.offers_kept += new;
    if new > 0 {
        vc.envelopes_left -= new as u16;
        progress.starved_peers += u32::from(vc.envelopes_left == 0);
    }
    list_granter(progress, vcs, vc_row);
    true
}

/// Counts an offer that was paired or claimed at the transport. `false` if the peer had no envelope credit for it.
pub(crate) fn paired(progress: &mut Progress, vcs: &mut [Vc], vc_row: Row) -> bool {
    if vcs.get(vc_row as usize).is_none_or(|vc| vc.state == VcState::Failed) {
        return true;
    }
    let peer = progress.provider.peer(vc_row);
    peer.paired = peer.paired.wrapping_add(1);
    if peer.there == 0 {
        return take_envelope(progress, vcs, vc_row);
    }
    peer.there -= 1;
    release_offer(progress, vcs, vc_row);
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::steps::credit::due;
    use crate::testing::TestWorld;
    use std::sync::{Arc, Mutex};
    use tickwire_components::VcState;
    use tickwire_components::credit::Credit;

    /// A world with a VC over a wire that matches, whose peer has `left` offers to make.
    fn world(left: u16) -> (TestWorld, Row) {
        let mut world = TestWorld::new(3);
        let endpoint = world.add_matching_wire(Arc::new(Mutex::default()));
        let vc = world.contact(1, VcState::Connected);
        let all = world.all();
        (all.vcs[vc as usize].endpoint, all.vcs[vc as usize].envelopes_left) = (endpoint, left);
        all.progress.provider.window = Credit { lines: 1024, envelopes: 64 };
        (world, vc)
    }

    /// The peer's envelopes left, the offers that wait, and the envelopes to be granted now.
    fn state(world: &mut TestWorld, row: Row) -> (u16, u32, u32) {
        let all = world.all();
        let vc = all.vcs[row as usize];
        (vc.envelopes_left, vc.offers_kept, due(all.progress, &vc, row, false).envelopes)
    }

    #[test]
    fn what_waits_at_the_transport_counts_until_it_is_paired_and_is_granted_again_then() {
        let (mut world, vc) = world(64);
        let all = world.all();
        for _ in 0..4 {
            assert!(paired(all.progress, all.vcs, vc));
        }
        assert!(hear(all.progress, all.vcs, vc, 64));
        assert_eq!(all.progress.starved_peers, 1);
        assert_eq!(state(&mut world, vc), (0, 60, 4), "as many as were paired");
        let all = world.all();
        assert!(hear(all.progress, all.vcs, vc, 64), "said again, it is no news");
        for _ in 0..60 {
            assert!(paired(all.progress, all.vcs, vc));
        }
        assert!(!paired(all.progress, all.vcs, vc), "more than were granted");
        assert_eq!(state(&mut world, vc), (0, 0, 64));
    }

    #[test]
    fn a_peer_that_has_failed_counts_as_nobody_who_waits_for_credit() {
        let (mut world, vc) = world(1);
        let all = world.all();
        all.vcs[vc as usize].state = VcState::Failed;
        assert!(hear(all.progress, all.vcs, vc, 5) && paired(all.progress, all.vcs, vc));
        assert_eq!((all.progress.starved_peers, all.vcs[vc as usize].envelopes_left), (0, 1));
    }

    #[test]
    fn more_than_the_window_is_granted_only_for_a_receive_from_that_peer() {
        let (mut world, vc) = world(64);
        let all = world.all();
        assert!(hear(all.progress, all.vcs, vc, 64));
        assert_eq!(state(&mut world, vc), (0, 64, 0));
        world.all().progress.provider.peer(vc + 1).receives = 1;
        assert_eq!(state(&mut world, vc), (0, 64, 0), "one from another peer is no reason");
        world.all().progress.provider.peer(vc).receives = 1;
        assert_eq!(state(&mut world, vc), (0, 64, 16));
    }

    #[test]
    fn what_a_peer_says_it_has_made_is_never_more_than_it_was_granted() {
        let (mut world, vc) = world(10);
        let all = world.all();
        assert!(hear(all.progress, all.vcs, vc, u32::MAX / 2));
        assert_eq!(state(&mut world, vc).0, 0);
        assert_eq!(world.all().progress.provider.peer(vc).there, 10);
        let all = world.all();
        assert!(hear(all.progress, all.vcs, vc, u32::MAX), "less than were paired is none");
        assert_eq!(world.all().progress.provider.peer(vc).there, 10);
        let near = world.contact(2, VcState::Connected);
        let all = world.all();
        assert!(!hear(all.progress, all.vcs, near, 1) && !hear(all.progress, all.vcs, 99, 1));
    }
}
