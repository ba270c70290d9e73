//! Complete: finished CARs complete their requests.
//!
//! *Reads* the finished list. *Writes* requests (counter, state, status), CAR rows (freed), held buffers of detached
//! requests (dropped), the list of answers for other threads.
//! *Bound* the finished list, which the other systems' bounds limit.
//! *Why* an application never sees a request half done: its counter reaches 0 here and nowhere else.

use crate::supply_buffers::capacity;
use crate::tables::CompleteTables;
use tickwire_components::{
    Car, CarKind, CarState, Held, NIL, Pending, Progress, Request, RequestState, Row, car_flags,
};

/// The system.
#[inline]
pub fn complete(tables: CompleteTables) {
    let CompleteTables { progress, cars, requests, held, vcs } = tables;
    let mut finished = std::mem::replace(&mut progress.finished, tickwire_components::Queue::EMPTY);
    while let Some(row) = finished.pop(cars) {
        let car = cars[row as usize];
        if let Some(vc) = vcs.get_mut(car.vc as usize) {
            vc.outstanding = vc.outstanding.saturating_sub(1);
        }
        if let Some(request) = requests.get_mut(car.request as usize) {
            request.counter -= 1 + chained(cars, car.chain);
            request.flags |= car.flags;
            request.source = car.source;
            request.tag = car.tag;
            request.length = car.done;
            request.car = NIL;
            if car.flags & !car_flags::ANY_SOURCE != 0 {
                request.detail = detail(cars, row);
            }
            if request.counter == 0 {
                finish(progress, requests, held, car.request);
            }
        }
        free(progress, cars, row);
    }
}

/// Data CARs under an envelope that count for its request. An envelope with data CARs does not count itself.
#[inline]
fn chained(cars: &[Car], mut row: Row) -> u32 {
    if row == NIL {
        return 0;
    }
    let mut count = 0;
    while row != NIL {
        count += 1;
        row = cars[row as usize].chain;
    }
    count - 1
}

/// What a failed request tells besides its flags.
#[cold]
fn detail(cars: &[Car], row: Row) -> u64 {
    let car = &cars[row as usize];
    if car.flags & car_flags::PEER_FAILED != 0 { car.vc.into() } else { capacity(cars, row) }
}

/// A request whose last CAR is done.
#[inline]
fn finish(progress: &mut Progress, requests: &mut [Request], held: &mut [Held], row: Row) {
    let request = &mut requests[row as usize];
    progress.active -= 1;
    progress.work.completed += 1;
    if request.scoped {
        progress.scoped -= 1;
    }
    if request.submission != NIL {
        request.state = RequestState::Done;
        progress.answers.push(row);
        return;
    }
    if request.state == RequestState::Detached {
        held[row as usize].0.clear();
        free_request(progress, requests, row);
        return;
    }
    request.state = RequestState::Done;
}

/// Frees a request row: handles to it are stale from now on.
#[inline]
pub fn free_request(progress: &mut Progress, requests: &mut [Request], row: Row) {
    let request = &mut requests[row as usize];
    request.state = RequestState::Free;
    request.generation = request.generation.wrapping_add(1);
    progress.free_requests.push(requests, row);
}

/// Frees a CAR and what is chained under it.
#[inline]
pub fn free(progress: &mut Progress, cars: &mut [Car], mut row: Row) {
    while row != NIL {
        let car = &mut cars[row as usize];
        let chain = car.chain;
        car.state = CarState::Free;
        car.kind = CarKind::None;
        progress.free_cars.push(cars, row);
        row = chain;
    }
}

/// Ends a CAR for a reason other than success: it goes to Complete with `flags`.
#[inline]
pub fn abort(progress: &mut Progress, cars: &mut [Car], row: Row, flags: u8) {
    debug_assert!(flags & !(car_flags::ANY_SOURCE) != 0);
    let car = &mut cars[row as usize];
    car.flags |= flags;
    car.state = CarState::Finished;
    progress.finished.push(cars, row);
    progress.pending |= Pending::COMPLETE;
}
