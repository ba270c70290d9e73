//! Match: pairs new receives with the unexpected messages, and arrivals with the posted receives.
//!
//! *Reads* arrivals, communicators. *Writes* CARs (envelope, state), VCs' posted queues, the wildcard and unexpected
//! queues, arrivals (car, state), pending.
//! *Bound* the new receives and the arrival rows.
//! *Why* all queues of matching belong to one system, so their order is decided in one place (reference: communication agent
//! notes, "findorallocate"). A receive takes the oldest unexpected message that it matches. If there is none, the receive is
//! posted. A message looks for the oldest matching receive in its VC's queue and in the wildcard queue, and takes the older of
//! the two. If their counters are equal, the wildcard receive is the older one.

use crate::procs::endpoint::Endpoint;
use crate::protocols;
use crate::protocols::direct::moved;
use crate::protocols::graph::failure::is_of_graph;
use crate::protocols::graph::messages::take_abandoned;
use crate::protocols::{deferred, provider_matched};
use crate::rows::{Rows, Wire};
use crate::steps::credit::feed;
use crate::steps::finish::abort;
use crate::steps::matching::enqueue;
use crate::steps::unexpected::take_unexpected;
use tickwire_components::{ArrivalState, Row, Span, Vc, VcState, car_flags};
use tickwire_transports::Other;

/// The system.
// A function of its own, so that a profile tells the systems apart.
#[inline(never)]
pub fn match_cars(rows: &mut Rows<'_>, wire: &mut Wire<'_>) {
    if rows.progress.has_provider() && deferred::match_deferred(rows, wire.arrivals) {
        // A receive must not take a message before it is known whether an older one does.
        return match_arrivals(rows, wire);
    }
    while let Some(row) = rows.progress.new_receives.pop(&mut rows.cars) {
        // The receive has looked for this when it was posted. But then an older message may have been there, which another receive of the
        // same tag has taken since, or messages may have been deferred.
        if is_of_graph(&rows.cars[row as usize]) && take_abandoned(rows, row) {
            continue;
        }
        if !take_unexpected(rows, row) {
            let vc_row = rows.cars[row as usize].vc;
            if rows.vcs.get(vc_row as usize).is_some_and(|vc| vc.state == VcState::Failed) {
                // The peer has failed since the receive was posted: no message will come.
                abort(&mut rows.progress, &mut rows.cars, row, car_flags::PEER_FAILED);
                continue;
            }
            enqueue(&mut rows.progress, &mut rows.cars, &mut rows.vcs, row);
            if rows.progress.starved_peers > 0 {
                feed(&mut rows.progress, &mut rows.vcs, vc_row);
            }
        }
    }
    match_arrivals(rows, wire);
}

#[inline(always)]
fn match_arrivals(rows: &mut Rows<'_>, wire: &mut Wire<'_>) {
    let Wire { endpoints, arrivals } = wire;
    for arrival in &mut arrivals[..rows.progress.arrivals as usize] {
        if arrival.state == ArrivalState::New {
            if let Other::Ended(run) = protocols::take::<false>(rows, arrival) {
                withdraw(rows, endpoints, arrival.vc, run);
            }
        } else if arrival.state == ArrivalState::Moved {
            moved(rows, arrival);
        } else if arrival.state >= ArrivalState::Matched {
            provider_matched::take(rows, arrival);
        }
    }
}

/// Withdraws the bytes of a send that has ended: its peer reads them no more, and they are the application's again.
#[inline(never)]
fn withdraw(rows: &Rows<'_>, endpoints: &mut [Endpoint], vc_row: Row, run: Span) {
    let Vc { endpoint, link, .. } = rows.vcs[vc_row as usize];
    endpoints[endpoint as usize].transport.get().withdraw(link, run);
}

#[cfg(test)]
mod tests;
