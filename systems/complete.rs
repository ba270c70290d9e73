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
        let car = &cars[row as usize];
        if let Some(vc) = vcs.get_mut(car.vc as usize) {
            vc.outstanding = vc.outstanding.saturating_sub(1);
        }
        if let Some(request) = requests.get_mut(car.request as usize) {
            request.counter -= if car.chain == NIL { 1 } else { chained(cars, car.chain) };
            request.flags |= car.flags & car_flags::ERRORS;
            request.source = car.source;
            request.tag = car.tag;
            request.length = car.done;
            request.car = NIL;
            if car.flags & car_flags::ERRORS != 0 {
                request.detail = detail(cars, row);
                request.car = crate::communicators::origin(&cars[row as usize]);
            }
            if request.counter == 0 {
                finish(progress, requests, held, car.request);
            }
        }
        free(progress, cars, row);
    }
}

/// Data CARs under an envelope that count for its request. An envelope with data CARs does not count itself.
#[cold]
fn chained(cars: &[Car], mut row: Row) -> u32 {
    let mut count = 0;
    while row != NIL {
        count += 1;
        row = cars[row as usize].chain;
    }
    count
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
    debug_assert!(flags & car_flags::ERRORS != 0);
    let car = &mut cars[row as usize];
    car.flags |= flags;
    car.state = CarState::Finished;
    progress.finished.push(cars, row);
    progress.pending |= Pending::COMPLETE;
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Posted, TestWorld};
    use std::sync::Arc;
    use tickwire_components::{Queue, VcState};

    /// Ends a posted receive as Transfer does.
    fn finish_receive(world: &mut TestWorld, posted: Posted, source: u32, length: u64, flags: u8) {
        let all = world.all();
        for vc in all.vcs.iter_mut() {
            vc.posted.remove(all.cars, posted.car);
        }
        let car = &mut all.cars[posted.car as usize];
        (car.source, car.tag, car.done, car.state) = (source, 7, length, CarState::Finished);
        car.flags |= flags;
        all.progress.finished.push(all.cars, posted.car);
    }

    #[test]
    fn a_finished_car_completes_its_request_and_is_freed() {
        let mut world = TestWorld::new(2);
        let vc = world.contact(1, VcState::Connected);
        let posted = world.receive(Some(1), None, &[16]);
        let free = world.all().progress.free_cars.count;
        assert_eq!(world.vc(vc).outstanding, 1);
        finish_receive(&mut world, posted, 1, 9, 0);
        world.run(complete);
        let request = world.request(posted);
        assert_eq!((request.state, request.counter, request.flags), (RequestState::Done, 0, 0));
        assert_eq!((request.source, request.tag, request.length), (1, 7, 9));
        assert_eq!((world.car(posted).state, world.car(posted).kind), (CarState::Free, CarKind::None));
        assert_eq!(world.vc(vc).outstanding, 0);
        let progress = world.all().progress;
        assert_eq!((progress.free_cars.count, progress.active, progress.work.completed), (free + 1, 0, 1));
    }

    #[test]
    fn three_data_cars_under_an_envelope_complete_one_counter() {
        let mut world = TestWorld::new(2);
        world.contact(1, VcState::Connected);
        let free = world.all().progress.free_cars.count;
        let posted = world.receive(Some(1), None, &[1, 2, 3]);
        assert_eq!(world.request(posted).counter, 3);
        assert_eq!(world.all().progress.free_cars.count, free - 4);
        finish_receive(&mut world, posted, 1, 6, 0);
        world.run(complete);
        assert_eq!((world.request(posted).state, world.request(posted).counter), (RequestState::Done, 0));
        assert_eq!(world.all().progress.free_cars.count, free);
    }

    #[test]
    fn failures_say_why() {
        let mut world = TestWorld::new(2);
        let vc = world.contact(1, VcState::Connected);
        let truncated = world.receive(Some(1), None, &[4, 4]);
        let failed = world.receive(Some(1), None, &[4]);
        finish_receive(&mut world, truncated, 1, 100, car_flags::TRUNCATED);
        finish_receive(&mut world, failed, 1, 0, car_flags::PEER_FAILED);
        world.run(complete);
        let request = world.request(truncated);
        assert_eq!((request.flags, request.length, request.detail), (car_flags::TRUNCATED, 100, 8));
        let request = world.request(failed);
        assert_eq!((request.flags, request.detail), (car_flags::PEER_FAILED, u64::from(vc)));
    }

    #[test]
    fn a_detached_request_is_freed_with_its_buffer() {
        let mut world = TestWorld::new(2);
        world.contact(1, VcState::Connected);
        let posted = world.receive(Some(1), None, &[16]);
        let shared: Arc<[u8]> = vec![1].into();
        let all = world.all();
        all.held[posted.request as usize].0.put(shared.clone());
        all.requests[posted.request as usize].state = RequestState::Detached;
        let free = all.progress.free_requests.count;
        let generation = all.requests[posted.request as usize].generation;
        finish_receive(&mut world, posted, 1, 16, 0);
        world.run(complete);
        assert_eq!(Arc::strong_count(&shared), 1, "the buffer was dropped");
        let request = world.request(posted);
        assert_eq!((request.state, request.generation), (RequestState::Free, generation + 1));
        assert_eq!(world.all().progress.free_requests.count, free + 1);
    }

    #[test]
    fn requests_of_other_threads_are_listed_for_their_answer_and_scopes_count_down() {
        let mut world = TestWorld::new(2);
        world.contact(1, VcState::Connected);
        let [submitted, scoped] = [0; 2].map(|_| world.receive(Some(1), None, &[16]));
        let all = world.all();
        all.requests[submitted.request as usize].submission = 3;
        all.requests[scoped.request as usize].scoped = true;
        all.progress.scoped = 1;
        finish_receive(&mut world, submitted, 1, 16, 0);
        finish_receive(&mut world, scoped, 1, 16, 0);
        world.run(complete);
        let progress = world.all().progress;
        assert_eq!((&progress.answers[..], progress.scoped), (&[submitted.request][..], 0));
        assert_eq!(progress.finished, Queue::EMPTY);
        assert_eq!(world.request(scoped).state, RequestState::Done);
    }
}
