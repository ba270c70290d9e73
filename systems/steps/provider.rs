//! Receives at a transport that matches by itself, as the steps see them. How these are given to it and what it says of them is
//! [`provider_matched`](crate::protocols::provider_matched).

use crate::steps::posted::{key, leave_index, make_index};
use tickwire_components::{Car, CarKind, CarState, NIL, Pending, Progress, Row, Vc, car_flags, context};

/// Whether the messages of a VC in a context are matched by its transport.
#[inline]
pub fn is_matched(progress: &Progress, vc: &Vc, context: u32) -> bool {
    u32::from(vc.endpoint) == progress.provider.endpoint && vc.link != NIL && context::plane(context) == context::USER
}

/// Posts a receive that the transport is given; `false` if it is not, and is for the engine's queues.
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

/// Asks a receive back that is at the transport; once it is back it ends with `flags`, or is its message's if there are none.
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

/// Whether a receive is at the transport and nobody has asked for it back.
#[inline]
pub fn is_at_provider(car: &Car) -> bool {
    car.kind == CarKind::Receive
        && (car.state == CarState::AtProvider
            || (car.state == CarState::Posted && car.flags & car_flags::AT_PROVIDER != 0))
}

/// Whether a posted receive, which takes a message of a VC, cannot have it at once. One that can leaves the queue to the
/// transport.
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
