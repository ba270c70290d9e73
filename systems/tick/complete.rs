//! Complete: finished CARs complete their requests.
//!
//! *Reads* the finished list, and for what callbacks are told VCs and procs. *Writes* requests (counter, state), CAR rows
//! (done, or freed), the buffers of detached requests (dropped), the list of what is owed to other threads. Runs callbacks. Starts the
//! nodes of graphs that can start.
//! *Bound* the finished list, which the bounds of the other systems limit, and [`ROUNDS_A_RUN`] rounds of nodes that end as they start.
//! *Why* a request of several CARs is done when the last of them is. They are counted here, so an application never sees a request
//! that is half done. A request of one CAR may end where the CAR ends.

use crate::protocols::graph::kept::release;
use crate::protocols::graph::{self, start_nodes};
use crate::rows::{Rows, Wire};
use crate::steps::finish::{finish_awaited, finish_submitted, free_request, outcome, take_part};
use std::panic::resume_unwind;
use tickwire_components::limits::ROUNDS_A_RUN;
use tickwire_components::{CarState, NIL, Pending, Queue, Row, car_flags};

/// The system.
// A function of its own, so that a profile tells the systems apart.
#[inline(never)]
pub fn complete(rows: &mut Rows<'_>, wire: &mut Wire<'_>) {
    for _ in 0..ROUNDS_A_RUN {
        complete_finished(rows);
        if rows.progress.graphs.startable.is_empty() {
            break;
        }
        start_nodes(rows, wire);
        if rows.progress.finished.is_empty() {
            break;
        }
    }
    if !rows.progress.graphs.startable.is_empty() {
        rows.progress.pending |= Pending::POST;
    }
    if rows.progress.finished.is_empty() {
        rows.progress.pending.clear(Pending::COMPLETE);
    }
    if std::mem::take(&mut rows.progress.late) {
        rows.callbacks.tell_late();
        // Last, when all others have been told.
        if let Some(panic) = rows.callbacks.take_panic() {
            resume_unwind(panic);
        }
    }
}

/// Completes what has finished so far.
#[inline]
fn complete_finished(rows: &mut Rows<'_>) {
    let mut finished = std::mem::replace(&mut rows.progress.finished, Queue::EMPTY);
    while let Some(row) = finished.pop(&mut rows.cars) {
        let Some(owner) = end(rows, row) else { continue };
        let Rows { progress, procs, callbacks, vcs, cars, large, requests, .. } = rows;
        if std::mem::take(&mut requests[owner as usize].notified) {
            callbacks.tell(owner, &outcome(progress, cars, large, vcs, procs, owner));
            progress.late |= callbacks.has_panic();
            if callbacks.slot(owner).is_some() {
                finish_submitted(progress, requests, owner);
                continue;
            }
        }
        if !finish_awaited(progress, &mut requests[owner as usize]) {
            finish_detached(rows, owner);
        }
    }
}

/// Ends a request whose token was dropped, and frees what it holds.
#[cold]
fn finish_detached(rows: &mut Rows<'_>, row: Row) {
    release(rows, row);
    let Rows { progress, cars, requests, held, .. } = rows;
    progress.active -= 1;
    progress.work.completed += 1;
    held[row as usize].0.clear();
    progress.registrations.let_go(row);
    free_request(progress, cars, requests, row);
}

/// Starts a graph. Nodes that end as they start are completed here, unless something else waits for Complete already.
pub fn start_graph(rows: &mut Rows<'_>, wire: &mut Wire<'_>, number: u32) {
    let alone = rows.progress.finished.is_empty() && !rows.progress.late;
    graph::start(rows, wire, number);
    if alone {
        complete(rows, wire);
    }
}

/// Ends a CAR that is done. Returns the row of its request if this was the request's last one.
#[inline(always)]
fn end(rows: &mut Rows<'_>, row: Row) -> Option<Row> {
    if rows.cars[row as usize].request != row && rows.nodes[row as usize].graph != NIL {
        return graph::ended(rows, row);
    }
    take_part(rows, row)
}

/// Completes a receive that was cancelled before it had a message. The caller can take its request at once; callbacks run with the next
/// run of Complete.
pub fn complete_cancelled(rows: &mut Rows<'_>, row: Row) {
    let car = &mut rows.cars[row as usize];
    car.flags |= car_flags::CANCELLED;
    car.state = CarState::Finished;
    // What comes behind Complete is to see it too.
    rows.progress.pending |= Pending::COMPLETE;
    let Some(owner) = end(rows, row) else { return };
    let Rows { progress, procs, callbacks, vcs, cars, large, requests, .. } = rows;
    if std::mem::take(&mut requests[owner as usize].notified) {
        callbacks.tell_later(owner, &outcome(progress, cars, large, vcs, procs, owner));
        progress.late = true;
        if callbacks.slot(owner).is_some() {
            return finish_submitted(progress, requests, owner);
        }
    }
    if !finish_awaited(progress, &mut requests[owner as usize]) {
        finish_detached(rows, owner);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Posted, TestWorld};
    use std::sync::Arc;
    use tickwire_components::CarKind;
    use tickwire_components::RequestState;
    use tickwire_components::VcState;
    use tickwire_components::submission::OwedToThread;

    /// Ends a posted receive as Transfer does.
    fn finish_receive(world: &mut TestWorld, posted: Posted, source: u32, length: u64, flags: u16) {
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
    fn a_finished_car_completes_its_request_and_is_freed_with_it() {
        let mut world = TestWorld::new(2);
        world.contact(1, VcState::Connected);
        let posted = world.receive(Some(1), None, &[16]);
        let free = world.all().progress.free_cars.count;
        finish_receive(&mut world, posted, 1, 9, 0);
        world.step(complete);
        let (request, car) = (world.request(posted), world.car(posted));
        assert_eq!((request.state, request.counter), (RequestState::Done, 0));
        assert_eq!((car.state, car.flags, car.source, car.tag, car.done), (CarState::Done, 0, 1, 7, 9));
        let all = world.all();
        assert_eq!(
            (all.progress.free_cars.count, all.progress.active, all.progress.work.completed.get()),
            (free, 0, 1)
        );
        free_request(all.progress, all.cars, all.requests, posted.car);
        assert_eq!((world.car(posted).state, world.car(posted).kind), (CarState::Free, CarKind::None));
        assert_eq!(world.all().progress.free_cars.count, free + 1);
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
        world.step(complete);
        assert_eq!((world.request(posted).state, world.request(posted).counter), (RequestState::Done, 0));
        assert_eq!(world.all().progress.free_cars.count, free - 1);
    }

    #[test]
    fn failures_say_why() {
        let mut world = TestWorld::new(2);
        let vc = world.contact(1, VcState::Connected);
        let truncated = world.receive(Some(1), None, &[4, 4]);
        let failed = world.receive(Some(1), None, &[4]);
        finish_receive(&mut world, truncated, 1, 100, car_flags::TRUNCATED);
        finish_receive(&mut world, failed, 1, 0, car_flags::PEER_FAILED);
        world.step(complete);
        let car = world.car(truncated);
        assert_eq!((car.flags, car.done), (car_flags::TRUNCATED, 100));
        assert_eq!(world.all().large[truncated.car as usize].room, 8);
        let car = world.car(failed);
        assert_eq!((car.flags, car.vc), (car_flags::PEER_FAILED, vc));
    }

    #[test]
    fn a_detached_request_is_freed_with_its_buffer() {
        let mut world = TestWorld::new(2);
        world.contact(1, VcState::Connected);
        let posted = world.receive(Some(1), None, &[16]);
        let shared: Arc<[u8]> = vec![1].into();
        let all = world.all();
        all.held[posted.car as usize].0.put(shared.clone());
        all.requests[posted.car as usize].state = RequestState::Detached;
        let free = all.progress.free_cars.count;
        let generation = all.requests[posted.car as usize].generation;
        finish_receive(&mut world, posted, 1, 16, 0);
        world.step(complete);
        assert_eq!(Arc::strong_count(&shared), 1, "the buffer was dropped");
        let request = world.request(posted);
        assert_eq!((request.state, request.generation), (RequestState::Free, generation + 1));
        assert_eq!(world.all().progress.free_cars.count, free + 1);
    }

    #[test]
    fn requests_of_other_threads_are_listed_for_their_answer_and_scopes_count_what_is_freed() {
        let mut world = TestWorld::new(2);
        world.contact(1, VcState::Connected);
        let [submitted, scoped] = [0; 2].map(|_| world.receive(Some(1), None, &[16]));
        let all = world.all();
        all.requests[submitted.car as usize].notified = true;
        all.callbacks.await_in(submitted.car, 3);
        all.requests[scoped.car as usize].scoped = true;
        all.progress.scoped = 1;
        finish_receive(&mut world, submitted, 1, 16, 0);
        finish_receive(&mut world, scoped, 1, 16, 0);
        world.step(complete);
        let progress = world.all().progress;
        assert_eq!((&progress.owed_to_threads[..], progress.scoped), (&[OwedToThread::Outcome(submitted.car)][..], 1));
        assert_eq!(progress.finished, Queue::EMPTY);
        assert_eq!(world.request(scoped).state, RequestState::Done);
        let all = world.all();
        free_request(all.progress, all.cars, all.requests, scoped.car);
        assert_eq!(world.all().progress.scoped, 0);
    }
}
