//! Splicing: a receiver that reads a message asks its sender to give pages of it away, which saves a copy.

use crate::procs::endpoint::Endpoint;
use crate::rows::Rows;
use crate::steps::check::NotTaken;
use crate::steps::check::was_offered;
use smallvec::SmallVec;
use tickwire_components::limits::{READS_A_CALL, SPLICE_BYTES};
use tickwire_components::wire::Header;
use tickwire_components::{Car, NIL, Pending, Progress, Row, Span, Splice, VcState};
use tickwire_transports::Spliced;

/// Passes that a piece waits for room at most: far more than a reader takes that is at it. One that was stopped reads the
/// rest by itself.
const WAITS: u32 = 20_000;

/// Parts that a VC has asked for at most: more than several of its calls read.
const SPLICES_MAX: usize = 4 * READS_A_CALL;

/// Takes a receiver's question for a part of a message.
///
/// # Errors
/// If the message was not offered to that peer, or is shorter.
pub(crate) fn ask(progress: &mut Progress, cars: &[Car], header: &Header, vc: Row) -> Result<(), NotTaken> {
    let splice = Splice {
        vc,
        car: header.message(),
        piece: header.tag(),
        waited: 0,
        offset: header.origin,
        length: header.length,
    };
    if splice.length == 0 || !can_splice(cars, &splice) {
        return Err(NotTaken::Wrong("a question for a part of a message that was not offered"));
    }
    let of_vc = |other: &Splice| other.vc == vc;
    // The oldest is one that nobody waits for any more.
    if progress.splices.iter().filter(|&other| of_vc(other)).count() == SPLICES_MAX
        && let Some(oldest) = progress.splices.iter().position(of_vc)
    {
        progress.splices.remove(oldest);
    }
    progress.splices.push(splice);
    progress.pending |= Pending::TRANSFER;
    Ok(())
}

/// Whether a part is one of a message that is offered to the VC that asks for it.
fn can_splice(cars: &[Car], splice: &Splice) -> bool {
    let end = splice.offset.checked_add(splice.length);
    cars.get(splice.car as usize).is_some_and(|car| {
        was_offered(car, splice.vc) && car.chain == NIL && end.is_some_and(|end| end <= car.span.len() as u64)
    })
}

/// Splices what has room, and forgets what nobody wants any more.
#[inline(never)]
pub(crate) fn splice_messages(rows: &mut Rows<'_>, endpoints: &mut [Endpoint]) {
    // Pieces of a connection go in order.
    let mut full: SmallVec<[Row; 4]> = SmallVec::new();
    rows.progress.splices.retain_mut(|splice| {
        if full.contains(&splice.vc) {
            return true;
        }
        let vc = &rows.vcs[splice.vc as usize];
        let stays = vc.state == VcState::Connected && {
            let transport = endpoints[vc.endpoint as usize].transport.get();
            // SAFETY: the bytes of a posted send are there until it ends, which is when the peer says that it is done.
            #[expect(unsafe_code, reason = "bytes that are addresses")]
            splice_part(&rows.cars, splice, |number, piece| unsafe { transport.splice(vc.link, number, piece) })
        };
        if stays {
            full.push(splice.vc);
        }
        stays
    });
    if !rows.progress.splices.is_empty() {
        rows.progress.pending |= Pending::TRANSFER;
    }
}

/// Splices the pieces of a part that have room; `false` if there are no more to go.
fn splice_part(cars: &[Car], splice: &mut Splice, mut put: impl FnMut(u32, Span) -> Spliced) -> bool {
    while splice.length > 0 {
        // The message may be done.
        if !can_splice(cars, splice) {
            return false;
        }
        let bytes = splice.length.min(SPLICE_BYTES as u64);
        let piece = cars[splice.car as usize].span.part(splice.offset as usize, bytes as usize);
        match put(splice.piece, piece) {
            Spliced::Done => {
                splice.piece = splice.piece.wrapping_add(1);
                splice.offset += bytes;
                splice.length -= bytes;
                splice.waited = 0;
            }
            Spliced::Full => {
                splice.waited += 1;
                return splice.waited < WAITS;
            }
            Spliced::Over => return false,
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Posted, TestWorld};
    use crate::tick::transfer::transfer;
    use tickwire_components::CarState;

    /// A send of so many bytes to each of two procs, both offered, and the VCs of these.
    fn offered(lengths: [usize; 2]) -> (TestWorld, [Row; 2], [Posted; 2], [Vec<u8>; 2]) {
        let mut world = TestWorld::new(3);
        let vcs = [1, 2].map(|proc| world.contact(proc, VcState::Connected));
        let bytes = lengths.map(|length| (0..length).map(|n| (n * 31 % 251) as u8).collect::<Vec<u8>>());
        let posted = [0, 1].map(|at| world.send(at as u32 + 1, 5, &[&bytes[at]]));
        for posted in posted {
            world.all().cars[posted.car as usize].state = CarState::Offered;
        }
        (world, vcs, posted, bytes)
    }

    fn ask(world: &mut TestWorld, vc: Row, header: Header) {
        let all = world.all();
        assert_eq!(super::ask(all.progress, all.cars, &header, vc), Ok(()));
    }

    #[test]
    fn parts_go_in_pieces_each_in_its_turn_and_nobody_waits_for_another_one() {
        let (mut world, [one, two], [first, second], bytes) = offered([2 * SPLICE_BYTES + 700, 5000]);
        ask(&mut world, one, Header::splice(first.car, u32::MAX, 600, 2 * SPLICE_BYTES as u64 + 100));
        ask(&mut world, one, Header::splice(first.car, 2, 100, 50));
        ask(&mut world, two, Header::splice(second.car, 9, 0, 5000));
        world.wire().splice_answers.extend([Spliced::Done, Spliced::Full]);
        world.step(transfer);
        let numbers = |world: &TestWorld| world.wire().spliced.iter().map(|(_, n, _)| *n).collect::<Vec<_>>();
        assert_eq!(numbers(&world), [u32::MAX, 9]);
        assert!(world.all().progress.pending.has(Pending::TRANSFER), "there is more");
        world.step(transfer);
        assert_eq!(numbers(&world), [u32::MAX, 9, 0, 1, 2]);
        let wire = world.wire();
        let whole: Vec<u8> = [0, 2, 3].iter().flat_map(|&at| wire.spliced[at].2.clone()).collect();
        assert!(whole == bytes[0][600..600 + 2 * SPLICE_BYTES + 100]);
        assert_eq!((&wire.spliced[1].2, &wire.spliced[4].2[..]), (&bytes[1], &bytes[0][100..150]));
        assert_eq!(wire.spliced[3].2.len(), 100);
        drop(wire);
        assert!(world.all().progress.splices.is_empty());
    }

    #[test]
    fn what_nobody_wants_any_more_is_forgotten() {
        // The peer has got it otherwise, the message is done, or its VC has ended.
        for (what, spliced) in [("over", 0), ("done", 1), ("failed", 1)] {
            let (mut world, [vc, _], [send, _], _) = offered([3 * SPLICE_BYTES, 10]);
            ask(&mut world, vc, Header::splice(send.car, 0, 0, 3 * SPLICE_BYTES as u64));
            let answers = if what == "over" { [Spliced::Over; 2] } else { [Spliced::Done, Spliced::Full] };
            world.wire().splice_answers.extend(answers);
            world.step(transfer);
            if what == "done" {
                world.all().cars[send.car as usize].state = CarState::Finished;
            } else if what == "failed" {
                world.all().vcs[vc as usize].state = VcState::Failed;
            }
            world.step(transfer);
            assert_eq!(world.wire().spliced.len(), spliced, "{what}");
            assert!(world.all().progress.splices.is_empty(), "{what}");
        }
    }

    #[test]
    fn a_peer_that_asks_without_end_is_heard_for_its_last_questions() {
        let (mut world, [one, two], [first, second], _) = offered([100, 100]);
        ask(&mut world, two, Header::splice(second.car, 0, 0, 100));
        for piece in 0..1000 {
            ask(&mut world, one, Header::splice(first.car, piece, 0, 100));
        }
        let pieces: Vec<_> = world.all().progress.splices.iter().map(|splice| (splice.vc, splice.piece)).collect();
        assert_eq!((pieces.len(), pieces[0], pieces[1]), (1 + SPLICES_MAX, (two, 0), (one, 1000 - SPLICES_MAX as u32)));
    }

    #[test]
    fn a_reader_that_has_stopped_is_not_waited_for_without_end() {
        let (mut world, [vc, _], [send, _], _) = offered([3 * SPLICE_BYTES, 10]);
        ask(&mut world, vc, Header::splice(send.car, 0, 0, 100));
        world.wire().splice_answers.extend(std::iter::repeat_n(Spliced::Full, 2 * WAITS as usize));
        let mut passes = 0;
        while !world.all().progress.splices.is_empty() {
            world.step(transfer);
            passes += 1;
        }
        assert_eq!(passes, WAITS);
    }
}
