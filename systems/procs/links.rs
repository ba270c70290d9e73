//! The links of VCs: the one for messages, when it opens and while it is in use, and side links, which end with their VC.
//!
//! *Reads* CARs, endpoints. *Writes* the VC (state, credit that is owed, queues), receives that are matched elsewhere from now on, side
//! links.
//! *Bound* a look at each CAR row, when a VC connects beside a transport that matches, or when a second link opens.
//! *Why* calls and endings both do these steps, and each step leaves queues and links in agreement.

use crate::procs::priorities::list_sender;
use crate::steps::check::was_offered;
use crate::steps::credit::{due, window};
use crate::steps::matching::enqueue;
use crate::steps::provider;
use crate::steps::send::place_of;
use crate::store::Tables;
use tickwire_components::limits::CREDIT_INITIAL;
use tickwire_components::{Car, CarState, Pending, Protocol, Queue, Row, SideLink, VcState};

/// Marks a VC as connected, so that frames may flow. Frames that were queued while it was connecting go first, in order.
pub(crate) fn connected(all: &mut Tables<'_>, row: Row) {
    let vc = &mut all.vcs[row as usize];
    if vc.state != VcState::Connected {
        // Both sides know of `CREDIT_INITIAL` without being told. This grants the rest of the window.
        vc.lines_owed += window(all.progress, vc).lines.saturating_sub(CREDIT_INITIAL.lines);
        if all.progress.has_provider() {
            move_posted(all, row);
        }
    }
    let vc = &mut all.vcs[row as usize];
    vc.state = VcState::Connected;
    all.progress.vc_changes += 1;
    if !vc.sends.is_empty() || !vc.data.is_empty() || !due(all.progress, vc, row, false).is_none() {
        list_sender(all.progress, all.vcs, row);
    }
    all.progress.pending |= Pending::DRAIN;
}

/// Moves the receives of a VC that has connected over another endpoint than it was routed over, to where its messages will be matched.
fn move_posted(all: &mut Tables<'_>, row: Row) {
    let mut posted = std::mem::replace(&mut all.vcs[row as usize].posted, Queue::EMPTY);
    while let Some(receive) = posted.pop(all.cars) {
        enqueue(all.progress, all.cars, all.vcs, receive);
    }
    if u32::from(all.vcs[row as usize].endpoint) == all.progress.provider.endpoint {
        return;
    }
    for car in 0..all.cars.len() {
        match all.cars[car].state {
            CarState::ToProvider if all.cars[car].vc == row => {
                all.progress.provider.queue.remove(all.cars, car as Row);
                enqueue(all.progress, all.cars, all.vcs, car as Row);
            }
            CarState::AtProvider if all.cars[car].vc == row => provider::recall(all.progress, all.cars, car as Row, 0),
            _ => {}
        }
    }
}

/// Whether a transport has been lent the buffers of receives from a VC.
pub(crate) fn has_lent(all: &Tables<'_>, row: Row) -> bool {
    all.cars.iter().zip(&*all.large).any(|(car, large)| car.vc == row && large.is_lent(car.state))
}

/// Whether the peer of a VC may read a message out of this process's memory.
pub(crate) fn has_exposed(all: &mut Tables<'_>, row: Row) -> bool {
    let endpoint = &all.endpoints[all.vcs[row as usize].endpoint as usize];
    let may_be_read = |car: &Car| {
        let length = car.span.len() as u64;
        endpoint.protocol(length, place_of(car, endpoint, length), true) == Protocol::Read
    };
    all.cars.iter().any(|car| was_offered(car, row) && may_be_read(car))
}

/// Closes the side links of a VC that has ended.
pub(crate) fn end_sides(all: &mut Tables<'_>, row: Row) {
    let routes = &mut all.procs.routes;
    routes.set_one_sided(row, None);
    routes.owed.retain(|&owed| owed != row);
    routes.end_attempt(row);
    let sides: Vec<SideLink> = routes.sides.extract_if(.., |side| side.vc == row).collect();
    for side in sides {
        close_side(all, side.endpoint, side.link);
    }
}

/// Closes a side link. Windows can reach nothing over it any more.
pub(crate) fn close_side(all: &mut Tables<'_>, endpoint: u8, link: u32) {
    all.endpoints[usize::from(endpoint)].transport.get().close_link(link);
    all.procs.routes.forget_one_sided(endpoint, link);
    all.windows.forget_link(endpoint, link);
}
