//! Receives at a transport that matches by itself, as the steps see them. How receives are given to that transport, and how its reports are
//! handled, is in [`provider_matched`](crate::protocols::provider_matched).

use crate::steps::posted::{key, leave_index, make_index};
use tickwire_components::{Car, CarKind, CarState, NIL, Pending, Progress, Row, Vc, car_flags, context};

/// Whether the transport of a VC matches the VC's messages in this context.
#[inline]
pub fn is_matched(progress: &Progress, vc: &Vc, context: u32) -> bool {
    u32::from(vc.endpoint) == progress.provider.endpoint && vc.link != NIL && context::plane(context) == context::USER
}

/// Posts a receive at the transport. `false` if the engine must match it in its own queues.
#[cold]
pub fn enqueue(progress: &mut Progress, cars: &mut [Car], vcs: &mut [Vc], row: Row) -> bool {
    let car = &mut cars[row as usize];
    if let Some(vc) = vcs.get(car.vc as usize) {
        if !is_matched(progress, vc, car.context) {
            return false;
        }
        car.state = CarState::ToProvider;
    } else {
        if context::plane(car.context) != context::USER {
            return false;
        }
        if !progress.indexed() {
            make_index(progress, cars, vcs);
        }
        progress.posted.push(key(&cars[row as usize]), row);
    }
    progress.provider.queue.push(cars, row);
    progress.pending |= Pending::POST;
    true
}

/// Asks the transport to return a receive. Once the receive is back, it ends with `flags`. Without flags it goes to the deferred message
/// that needs it, or is posted anew.
pub fn recall(progress: &mut Progress, cars: &mut [Car], row: Row, flags: u16) {
    let car = &mut cars[row as usize];
    if car.state == CarState::Posted {
        progress.posted.remove(&key(car), row);
        leave_index(progress);
    }
    car.state = CarState::Recalled;
    car.flags |= flags;
    progress.provider.recalls.push(row);
    progress.pending |= Pending::POST;
}

/// Whether a receive is at the transport and was not recalled.
#[inline]
pub fn is_at_provider(car: &Car) -> bool {
    car.kind == CarKind::Receive
        && (car.state == CarState::AtProvider
            || (car.state == CarState::Posted && car.flags & car_flags::AT_PROVIDER != 0))
}

/// Whether a posted receive cannot be paired at once with a message of a VC that it matches. If it can, the receive also leaves the queue
/// of receives that are to be given to the transport.
#[cold]
pub(crate) fn keeps(progress: &mut Progress, cars: &mut [Car], vc_row: Row, row: Row) -> bool {
    if progress.provider.defers(vc_row) || is_at_provider(&cars[row as usize]) {
        return true;
    }
    if cars[row as usize].flags & car_flags::ANY_SOURCE != 0 {
        progress.provider.queue.remove(cars, row);
    }
    false
}
