//! Deliver: DrainCq, Match, Transfer and Complete in one go, for whole messages whose receives are posted.
//!
//! *Reads* frames of the transports, communicators. *Writes* the application's segments, CARs and requests (as Match,
//! Transfer and Complete do), the queues of posted receives, the finished list (what Complete must look at).
//! *Bound* the tick's budget.
//! *Why* most messages are short and awaited. Each system reads what the one before it has written, and for one message
//! that is more work than the message: row by row the four take less than half of the instructions that they take column by
//! column. A frame that is anything else is left where it is, to the systems; these and this one call the same functions
//! where a decision is made. It runs only where nothing is pending but arrivals, so that order is that of a pass, and
//! only without systems of the application, which may look at the rows in between.

use crate::complete::finish_awaited;
use crate::match_cars::check_envelope;
use crate::matching::find_posted;
use crate::tables::DeliverTables;
use crate::transfer::fill;
use tickwire_components::wire::Header;
use tickwire_components::{CarState, NIL, Pending, Row, Span, car_flags};
use tickwire_transports::copy;

/// Delivers what it can; what is left is pending as before.
#[inline(always)]
pub fn deliver(mut tables: DeliverTables) {
    let (mut count, mut rest) = (0, false);
    for endpoint in std::mem::take(&mut tables.endpoints) {
        let most = tables.progress.budget - count;
        let take = |header: &Header, payload: Span, vc_row: Row| take_frame(&mut tables, header, payload, vc_row);
        let (taken, left) = endpoint.transport.get().deliver(most, take);
        count += taken;
        rest |= left;
    }
    let progress = tables.progress;
    progress.budget -= count;
    progress.work.received += count;
    progress.work.matched += count;
    if !rest {
        progress.pending.clear(Pending::DRAIN);
    }
}

/// A frame from its arrival to the end of its request; `false` if that is not for here.
#[inline(always)]
fn take_frame(tables: &mut DeliverTables<'_>, header: &Header, payload: Span, vc_row: Row) -> bool {
    let DeliverTables { progress, cars, requests, vcs, communicators, .. } = tables;
    if check_envelope(header, vcs.get(vc_row as usize), communicators).is_err() {
        return false;
    }
    let Some(row) = find_posted(progress, vc_row, header, cars, vcs) else { return false };
    let car = &mut cars[row as usize];
    car.source = header.source();
    car.tag = header.tag();
    car.vc = vc_row;
    car.done = header.length;
    if car.chain == NIL && car.request == row {
        let moved = copy::copy(car.span, payload);
        if moved == payload.len() && requests[row as usize].counter == 1 && finish_awaited(progress, requests, row) {
            requests[row as usize].counter = 0;
            car.state = CarState::Done;
            return true;
        }
        if moved < payload.len() {
            car.flags |= car_flags::TRUNCATED;
        }
    } else {
        car.done = 0;
        if fill(cars, row, payload) < header.length {
            cars[row as usize].flags |= car_flags::TRUNCATED;
        }
        cars[row as usize].done = header.length;
    }
    cars[row as usize].state = CarState::Finished;
    progress.finished.push(cars, row);
    progress.pending |= Pending::COMPLETE;
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::complete::complete;
    use crate::testing::{Posted, TestWorld};
    use tickwire_components::wire::Kind;
    use tickwire_components::{RequestState, VcState};

    fn eager(tag: u32, length: usize) -> Header {
        Header::new(Kind::Eager, 0, 1, tag, 0, length as u64)
    }

    /// A world of two procs that are connected, and the VC of the other one.
    fn world() -> (TestWorld, Row) {
        let mut world = TestWorld::new(2);
        let vc = world.contact(1, VcState::Connected);
        (world, vc)
    }

    /// Offers a frame as a transport does.
    fn offer(world: &mut TestWorld, vc: Row, header: Header, bytes: &mut [u8]) -> bool {
        let tables = world.tables.clone();
        // SAFETY: the bytes outlive the call.
        #[expect(unsafe_code, reason = "a span over a test's bytes")]
        let payload = unsafe { Span::new(bytes.as_mut_ptr(), bytes.len()) };
        take_frame(&mut tables.delivering(&mut world.world), &header, payload, vc)
    }

    fn ended(world: &mut TestWorld, posted: Posted) -> (RequestState, u64, u8) {
        let car = world.car(posted);
        (world.request(posted).state, car.done, car.flags)
    }

    #[test]
    fn a_message_that_is_awaited_is_done_at_once() {
        let (mut world, vc) = world();
        let later = world.receive(Some(1), Some(5), &[8]);
        let any = world.receive(None, None, &[8]);
        let mut bytes = *b"abcdefgh";
        assert!(offer(&mut world, vc, eager(5, 8), &mut bytes));
        assert!(offer(&mut world, vc, eager(5, 3), &mut bytes[..3]));
        assert_eq!((world.bytes(later), &world.bytes(any)[..3]), (bytes.to_vec(), &b"abc"[..]));
        let flags = car_flags::ANY_SOURCE;
        let found = [ended(&mut world, later), ended(&mut world, any)];
        assert_eq!(found, [(RequestState::Done, 8, 0), (RequestState::Done, 3, flags)]);
        assert_eq!((world.car(any).source, world.car(any).tag, world.car(any).vc), (1, 5, vc));
        let progress = world.all().progress;
        assert_eq!((progress.active, progress.work.completed), (0, 2));
        assert!(progress.finished.is_empty() && !progress.pending.has(Pending::COMPLETE));
    }

    #[test]
    fn what_is_not_awaited_or_cannot_be_is_left_to_the_systems() {
        let (mut world, vc) = world();
        let posted = world.receive(Some(1), Some(5), &[8]);
        let wrong = [eager(6, 0), Header::new(Kind::Eager, 0, 0, 5, 0, 0), Header::new(Kind::Eager, 9, 1, 5, 0, 0)];
        for header in wrong {
            assert!(!offer(&mut world, vc, header, &mut []));
        }
        assert!(!offer(&mut world, 77, eager(5, 0), &mut []));
        assert!(!offer(&mut world, vc, eager(1 << 31, 0), &mut []));
        assert_eq!(world.request(posted).state, RequestState::Active);
        assert_eq!(world.all().progress.unexpected.count, 0);
    }

    #[test]
    fn what_completes_otherwise_is_left_to_complete() {
        let (mut world, vc) = world();
        let short = world.receive(Some(1), Some(5), &[4]);
        let pieces = world.receive(Some(1), Some(5), &[3, 5]);
        let detached = world.receive(Some(1), Some(5), &[8]);
        world.all().requests[detached.car as usize].state = RequestState::Detached;
        let mut bytes = *b"abcdefgh";
        for _ in 0..3 {
            assert!(offer(&mut world, vc, eager(5, 8), &mut bytes));
        }
        assert_eq!(world.finished(), [short.car, pieces.car, detached.car]);
        assert_eq!((world.bytes(short), world.bytes(pieces)), (b"abcd".to_vec(), bytes.to_vec()));
        world.run(complete);
        assert_eq!(ended(&mut world, short), (RequestState::Done, 8, car_flags::TRUNCATED));
        assert_eq!(ended(&mut world, pieces), (RequestState::Done, 8, 0));
        assert_eq!(world.request(detached).state, RequestState::Free);
    }
}
