//! Direct: the transport moves a message from the sender's memory into the receiver's, so that no process copies it.

use crate::procs::endpoint::Endpoint;
use crate::rows::Rows;
use crate::steps::check::refuse;
use tickwire_components::{Arrival, ArrivalState, Body, Car, CarState, Large, NIL, Pending, Progress, Row, Span, Vc};

/// Gives the message at the front of a VC's data queue to its transport. A later arrival reports that it was moved.
///
/// # Errors
/// If an honest receiver could not have asked for that.
pub(super) fn move_direct(
    progress: &mut Progress,
    cars: &mut [Car],
    vc: &mut Vc,
    endpoint: &mut Endpoint,
    row: Row,
    &Large { wanted, body, .. }: &Large,
) -> Result<(), ()> {
    let car = &mut cars[row as usize];
    let run = if car.chain == NIL { car.span.part(0, wanted as usize) } else { Span::EMPTY };
    let is_taken = match body {
        Body::Moving { turn } if run.len() as u64 == wanted => {
            let direct = endpoint.transport.get().direct();
            // SAFETY: the bytes of a posted send are there until it ends, which is when the transport says that it is done.
            #[expect(unsafe_code, reason = "bytes that are addresses")]
            direct.is_some_and(|direct| unsafe { direct.send_direct(vc.link, row, turn, run) })
        }
        _ => false,
    };
    if !is_taken {
        return Err(());
    }
    car.state = CarState::Direct;
    progress.work.sent += 1;
    vc.data.pop(cars);
    Ok(())
}

/// Ends a message that the transport has moved, on either side.
#[cold]
pub(crate) fn moved(rows: &mut Rows<'_>, arrival: &mut Arrival) {
    rows.progress.pending |= Pending::TRANSFER;
    let row = arrival.receive();
    match rows.cars.get_mut(row as usize) {
        Some(car) if car.state == CarState::Direct && car.vc == arrival.vc => {
            arrival.state = ArrivalState::Handled;
            car.state = CarState::Finished;
            car.done = rows.large[row as usize].length;
            rows.progress.finished.push(&mut rows.cars, row);
            rows.progress.pending |= Pending::COMPLETE;
        }
        _ => refuse(&mut rows.progress, arrival, "a message before it was asked for"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Posted, TestWorld};
    use crate::tick::match_cars::match_cars;
    use crate::tick::post::post;
    use crate::tick::supply_buffers::supply_buffers;
    use crate::tick::transfer::tests::world;
    use crate::tick::transfer::transfer;
    use tickwire_components::wire::{self, Header, Kind};
    use tickwire_components::{Destination, Ended, car_flags};

    /// An offer of proc 1 in one run meets a receive. Both have been through Match and SupplyBuffers.
    fn offered(world: &mut TestWorld, vc: Row, lengths: &[usize], length: u64) -> Posted {
        let posted = world.receive(Some(1), Some(5), lengths);
        world.arrive(vc, Header::new(Kind::Rts, 0, 1, 5, 33, length).with_flags(wire::DIRECT), &[]);
        world.step(match_cars);
        world.step(supply_buffers);
        posted
    }

    fn without_credit(header: Header) -> Header {
        Header { lead: header.lead & u64::from(u32::MAX), ..header }
    }

    /// The transport reports that it has moved a message.
    fn tell(world: &mut TestWorld, vc: Row, posted: Posted) {
        let row = world.arrive(vc, Header::default(), &[]);
        let arrival = &mut world.all().arrivals[row as usize];
        (arrival.state, arrival.to) = (ArrivalState::Moved, Destination::Receive(posted.car));
        world.step(match_cars);
    }

    #[test]
    fn a_receive_in_one_run_is_given_to_the_transport_and_the_answer_says_its_turn() {
        let (mut world, vc) = world();
        world.wire().next_turn = Some(7);
        let [whole, short] = [100, 60].map(|room| offered(&mut world, vc, &[room], 100));
        let scattered = offered(&mut world, vc, &[50, 50], 100);
        assert_eq!(world.wire().expected, [(1, whole.car, 100), (1, short.car, 60)]);
        world.step(post);
        let answers: Vec<_> = world.wire().sent.iter().map(|f| (without_credit(f.header), f.payload.len())).collect();
        let answer = |number, posted: Posted, wanted| Header::new(Kind::Cts, 0, number, posted.car, 33, wanted);
        let direct = |header: Header| (header.with_flags(wire::DIRECT), 0);
        let pieces = answer(0, scattered, 100);
        assert_eq!(answers, [direct(answer(7, whole, 100)), direct(answer(8, short, 60)), (pieces, 0)]);
        let states = [whole, short, scattered].map(|posted| world.car(posted).state);
        assert_eq!(states, [CarState::Direct, CarState::Direct, CarState::Receiving]);
        for posted in [whole, short] {
            tell(&mut world, vc, posted);
        }
        assert_eq!(world.finished(), [whole.car, short.car]);
        assert_eq!(
            [whole, short].map(|posted| world.car(posted).flags & car_flags::TRUNCATED),
            [0, car_flags::TRUNCATED]
        );
        assert_eq!([whole, short].map(|posted| world.car(posted).done), [100; 2], "the length of the message");
    }

    #[test]
    fn what_the_transport_does_not_take_comes_in_pieces() {
        let (mut world, vc) = world();
        // This holds also over a transport that can read, since the offer names no address.
        world.wire().memory.push((0, vec![1; 100]));
        let posted = offered(&mut world, vc, &[100], 100);
        world.step(post);
        let answer = world.wire().sent[0].header;
        assert_eq!(without_credit(answer), Header::new(Kind::Cts, 0, 0, posted.car, 33, 100));
        assert_eq!(world.car(posted).state, CarState::Receiving);
        // A message that was not offered in this way is not moved either.
        world.wire().next_turn = Some(0);
        world.receive(Some(1), Some(5), &[100]);
        world.arrive(vc, Header::new(Kind::Rts, 0, 1, 5, 34, 100), &[]);
        world.step(match_cars);
        world.step(supply_buffers);
        assert!(world.wire().expected.is_empty());
    }

    /// A send that was offered, and whose receiver has asked for a direct move.
    fn answered(world: &mut TestWorld, vc: Row, runs: &[&[u8]], number: u32, wanted: u64) -> Posted {
        let posted = world.send(1, 5, runs);
        let all = world.all();
        all.vcs[vc as usize].sends.remove(all.cars, posted.car);
        all.cars[posted.car as usize].state = CarState::Offered;
        let answer = Header::new(Kind::Cts, 0, number, 9, posted.car, wanted).with_flags(wire::DIRECT);
        world.arrive(vc, answer, &[]);
        world.step(match_cars);
        world.step(transfer);
        posted
    }

    #[test]
    fn a_send_is_left_to_the_transport_as_far_as_it_is_wanted() {
        let (mut world, vc) = world();
        world.wire().next_turn = Some(0);
        let posted = answered(&mut world, vc, &[b"abcdefg"], 12, 5);
        assert_eq!(world.wire().moved, [(1, posted.car, 12, b"abcde".to_vec())]);
        assert!(world.wire().sent.is_empty() && world.vc(vc).data.is_empty() && world.finished().is_empty());
        assert_eq!(world.car(posted).state, CarState::Direct);
        tell(&mut world, vc, posted);
        assert_eq!((world.finished(), world.car(posted).done), (vec![posted.car], 7));
    }

    #[test]
    fn answers_that_cannot_be_and_messages_out_of_turn_end_their_vc() {
        // A message in two runs is never offered in this way.
        let (mut world, vc) = world();
        world.wire().next_turn = Some(0);
        answered(&mut world, vc, &[b"abc", b"de"], 0, 5);
        assert!(matches!(world.take_ended()[..], [(row, Ended::Link(_))] if row == vc));
        assert!(world.wire().moved.is_empty());
        // The transport expects nothing.
        let (mut world, vc) = self::world();
        answered(&mut world, vc, &[b"abc"], 0, 3);
        assert!(matches!(world.take_ended()[..], [(row, Ended::Link(_))] if row == vc));
        // More than there is.
        let (mut world, vc) = self::world();
        world.wire().next_turn = Some(0);
        answered(&mut world, vc, &[b"abc"], 0, 4);
        assert!(matches!(world.take_ended()[..], [(row, Ended::Corrupt(_))] if row == vc));
        assert!(world.wire().moved.is_empty());
        // The report comes before the answer has left.
        let (mut world, vc) = self::world();
        world.wire().next_turn = Some(0);
        let posted = offered(&mut world, vc, &[100], 100);
        tell(&mut world, vc, posted);
        assert!(matches!(world.take_ended()[..], [(row, Ended::Corrupt(_))] if row == vc));
        assert!(world.finished().is_empty());
    }
}
