//! Match: pairs new receives with the unexpected messages, and arrivals with the posted receives.
//!
//! *Reads* arrivals, communicators. *Writes* CARs (envelope, state), VCs' posted queues, the wildcard and unexpected
//! queues, arrivals (car, state), pending.
//! *Bound* the new receives and the arrival rows.
//! *Why* one system owns all queues of matching, so their order is decided in one place (reference: communication
//! agent notes, "findorallocate": a receive looks at the unexpected first and is then queued; a message looks at the
//! VC's queue and the wildcard queue, the older receive wins, ties go to the wildcard).

use crate::protocols;
use crate::protocols::direct::moved;
use crate::protocols::{held, provider_matched};
use crate::rows::{Rows, Wire};
use crate::steps::credit::feed;
use crate::steps::finish::abort;
use crate::steps::matching::enqueue;
use crate::steps::unexpected::take_unexpected;
use tickwire_components::{Arrival, ArrivalState, VcState, car_flags};

/// The system.
#[inline]
pub fn match_cars(rows: &mut Rows<'_>, wire: &mut Wire<'_>) {
    if rows.progress.has_provider() && held::match_held(rows, wire.arrivals) {
        // A receive must not take a message before it is known whether an older one does.
        return match_arrivals(rows, wire.arrivals);
    }
    while let Some(row) = rows.progress.new_receives.pop(&mut rows.cars) {
        if !take_unexpected(rows, row) {
            let vc_row = rows.cars[row as usize].vc;
            if rows.vcs.get(vc_row as usize).is_some_and(|vc| vc.state == VcState::Failed) {
                // Since it was posted: nothing will come.
                abort(&mut rows.progress, &mut rows.cars, row, car_flags::PEER_FAILED);
                continue;
            }
            enqueue(&mut rows.progress, &mut rows.cars, &mut rows.vcs, row);
            if rows.progress.starved_peers > 0 {
                feed(&mut rows.progress, &mut rows.vcs, vc_row);
            }
        }
    }
    match_arrivals(rows, wire.arrivals);
}

#[inline(always)]
fn match_arrivals(rows: &mut Rows<'_>, arrivals: &mut [Arrival]) {
    for arrival in &mut arrivals[..rows.progress.arrivals as usize] {
        if arrival.state == ArrivalState::New {
            protocols::take::<false>(rows, arrival);
        } else if arrival.state == ArrivalState::Moved {
            moved(rows, arrival);
        } else if arrival.state >= ArrivalState::Matched {
            provider_matched::take(rows, arrival);
        }
    }
}

#[cfg(test)]
mod tests;
