//! Transfer: moves bytes, and then gives space back to the transports.
//!
//! *Reads* arrivals that have a place, receives whose message is in a temporary, sends whose receiver has asked for pieces.
//! *Writes* the application's segments and the temporaries, CARs (done, state), the finished list, the
//! transports (pieces out, space released).
//! *Bound* the arrival rows, the receives matched in this pass, [`READ_TURNS_A_PASS`](tickwire_components::limits::READ_TURNS_A_PASS) times
//! [`READ_BYTES_A_TURN`](tickwire_components::limits::READ_BYTES_A_TURN) bytes out of senders' memory
//! (`protocols/read.rs`), `PIECES_A_PASS` pieces for each VC (`protocols/pieces.rs`), and
//! [`REMOTE_FRAMES`](tickwire_components::limits::REMOTE_FRAMES) requests to each target of a window (`protocols/one_sided.rs`).
//! *Why* arrived payloads are used by this system alone, so their space is released in one place, after the last use.

use crate::protocols::one_sided::move_windows;
use crate::protocols::pieces::send_pieces;
use crate::protocols::read::read_messages;
use crate::rows::{Rows, Wire};
use crate::steps::place::place;
use crate::steps::unexpected::receive_copies;
use tickwire_components::ArrivalState;

/// The system.
// A function of its own, so that a profile tells the systems apart.
#[inline(never)]
pub fn transfer(rows: &mut Rows<'_>, wire: &mut Wire<'_>) {
    let Wire { endpoints, arrivals } = wire;
    let progress = &mut *rows.progress;
    progress.turns = progress.turns.wrapping_add(u32::from(progress.urgent));
    if !rows.progress.copies.is_empty() {
        receive_copies(rows);
    }
    if !rows.progress.reads.is_empty() {
        read_messages(rows, endpoints);
    }
    let count = std::mem::take(&mut rows.progress.arrivals) as usize;
    for arrival in &mut arrivals[..count] {
        if arrival.state == ArrivalState::Placed {
            place(rows, arrival);
        }
    }
    if count > 0 {
        for endpoint in endpoints.iter_mut() {
            endpoint.transport.get().release();
        }
    }
    if !rows.progress.senders.is_empty() {
        send_pieces(rows, endpoints);
    }
    if !rows.windows.busy.is_empty() {
        move_windows(rows, endpoints);
    }
}

#[cfg(test)]
#[expect(unsafe_code, reason = "bytes of a test")]
pub(crate) mod tests {
    use super::*;
    use crate::steps::activate::activate;
    use crate::steps::supply::pool::take_buffer;
    use crate::testing::{Posted, TestWorld};
    use tickwire_components::Ended;
    use tickwire_components::Pending;
    use tickwire_components::Queue;
    use tickwire_components::Row;
    use tickwire_components::Span;
    use tickwire_components::VcState;
    use tickwire_components::car_flags;
    use tickwire_components::limits::PIECES_A_PASS;
    use tickwire_components::wire::Header;
    use tickwire_components::wire::Kind;
    use tickwire_components::{Body, CarState, Destination};
    use tickwire_components::{Datatype, Large, Typed};

    /// A world of two procs that are connected, and the VC of the other one.
    pub(crate) fn world() -> (TestWorld, Row) {
        let mut world = TestWorld::new(2);
        let vc = world.contact(1, VcState::Connected);
        (world, vc)
    }

    pub(crate) fn numbers(length: usize) -> Vec<u8> {
        (0..length).map(|i| (i * 7 + 3) as u8).collect()
    }

    /// An eager message that Match has paired with a receive.
    fn paired(world: &mut TestWorld, vc: Row, posted: Posted, bytes: &[u8]) -> Row {
        let row = world.arrive(vc, Header::new(Kind::Eager, 0, 1, 5, 0, bytes.len() as u64), bytes);
        let all = world.all();
        let queued = all.vcs[vc as usize].posted.remove(all.cars, posted.car);
        assert!(queued, "the receive was posted");
        all.cars[posted.car as usize].state = CarState::Matched;
        let arrival = &mut all.arrivals[row as usize];
        (arrival.to, arrival.state) = (Destination::Receive(posted.car), ArrivalState::Placed);
        row
    }

    /// A receive that has answered an offer of so many bytes.
    pub(crate) fn receiving(world: &mut TestWorld, vc: Row, lengths: &[usize], length: u64) -> Posted {
        let posted = world.receive(Some(1), Some(5), lengths);
        let all = world.all();
        all.vcs[vc as usize].posted.remove(all.cars, posted.car);
        all.cars[posted.car as usize].state = CarState::Receiving;
        let wanted = length.min(lengths.iter().sum::<usize>() as u64);
        all.large[posted.car as usize] = Large { wanted, ..Large::of(length) };
        posted
    }

    pub(crate) fn piece(world: &mut TestWorld, vc: Row, posted: Posted, bytes: &[u8]) {
        let row = world.arrive(vc, Header::new(Kind::Piece, 0, 0, 0, posted.car, bytes.len() as u64), bytes);
        let arrival = &mut world.all().arrivals[row as usize];
        (arrival.to, arrival.state) = (Destination::Receive(posted.car), ArrivalState::Placed);
    }

    /// A send that was asked for `wanted` of its bytes by CAR 33 of the peer.
    fn sending(world: &mut TestWorld, vc: Row, pieces: &[&[u8]], wanted: u64) -> Posted {
        let posted = world.send(1, 5, pieces);
        let all = world.all();
        all.vcs[vc as usize].sends.remove(all.cars, posted.car);
        let car = &mut all.cars[posted.car as usize];
        (car.state, car.done) = (CarState::Sending, 0);
        let message = &mut all.large[posted.car as usize];
        (message.wanted, message.peer) = (wanted, 33);
        all.vcs[vc as usize].data.push(all.cars, posted.car);
        posted
    }

    /// Puts every second byte of so many in the place of an operation's runs.
    fn every_second(world: &mut TestWorld, posted: Posted, bytes: Vec<u8>) -> Typed<Vec<u8>> {
        let of = Datatype::vector(bytes.len() / 2, 1, 2, &Datatype::of::<u8>()).unwrap();
        let typed = Typed::new(bytes, &of, 1).unwrap();
        let (all, row) = (world.all(), posted.car);
        let car = all.cars[row as usize];
        // SAFETY: the caller keeps the buffer.
        assert!(unsafe { activate(all.progress, all.cars, all.requests, &typed, car, row) });
        typed
    }

    #[test]
    fn layouts_are_packed_and_filled_piece_by_piece() {
        let (mut world, vc) = world();
        let all = numbers(80_000);
        let packed: Vec<u8> = all.iter().copied().step_by(2).collect();
        let outgoing = sending(&mut world, vc, &[&[0; 40_000]], 39_999);
        let typed = every_second(&mut world, outgoing, all);
        world.step(transfer);
        let sent = world.wire().sent.clone();
        let lengths: Vec<_> = sent.iter().map(|frame| frame.payload.len()).collect();
        assert_eq!(lengths, [16 << 10, 16 << 10, 39_999 - (32 << 10)], "few are short");
        assert!(sent.iter().flat_map(|frame| &frame.payload).eq(&packed[..39_999]));
        assert_eq!(world.finished(), [outgoing.car]);
        drop(typed);

        let incoming = receiving(&mut world, vc, &[40_000], 40_000);
        let typed = every_second(&mut world, incoming, vec![0xEE; 80_000]);
        for part in packed.chunks(9001) {
            piece(&mut world, vc, incoming, part);
        }
        world.step(transfer);
        assert_eq!(world.finished(), [outgoing.car, incoming.car]);
        let bytes = typed.into_buffer();
        assert!(bytes.iter().step_by(2).eq(&packed) && bytes.iter().skip(1).step_by(2).all(|&byte| byte == 0xEE));
    }

    #[test]
    fn long_layouts_go_in_long_pieces_and_these_are_unpacked_part_by_part() {
        let (mut world, vc) = world();
        let all = numbers(600_000);
        let packed: Vec<u8> = all.iter().copied().step_by(2).collect();
        let outgoing = sending(&mut world, vc, &[&[0; 300_000]], 300_000);
        let typed = every_second(&mut world, outgoing, all);
        while world.finished().is_empty() {
            world.step(transfer);
        }
        let sent = world.wire().sent.clone();
        assert!(sent[..9].iter().all(|frame| frame.payload.len() == 32 << 10) && sent.len() == 10);
        assert!(sent.iter().flat_map(|frame| &frame.payload).eq(&packed));
        drop(typed);
        for (place, pieces) in [(300_000, 32 << 10), (40_000, 40_000), (36_865, 36_864), (36_863, 36_863)] {
            let incoming = receiving(&mut world, vc, &[place], place as u64);
            let typed = every_second(&mut world, incoming, vec![0xEE; 2 * place]);
            for part in packed[..place].chunks(pieces) {
                piece(&mut world, vc, incoming, part);
                world.step(transfer);
            }
            assert_eq!(world.finished().last(), Some(&incoming.car));
            let bytes = typed.into_buffer();
            assert!(bytes.iter().step_by(2).eq(&packed[..place]), "{place} bytes in pieces of {pieces}");
            assert!(bytes.iter().skip(1).step_by(2).all(|&byte| byte == 0xEE));
        }
    }

    #[test]
    fn a_layout_that_was_taken_away_takes_nothing() {
        let (mut world, vc) = world();
        let posted = world.receive(Some(1), Some(5), &[4]);
        drop(every_second(&mut world, posted, vec![0; 8]));
        let data = world.car(posted).chain;
        world.all().cars[data as usize].span = Span::EMPTY;
        paired(&mut world, vc, posted, b"abcd");
        world.step(transfer);
        assert_eq!(world.finished(), [posted.car]);
        assert_eq!(world.car(posted).flags, car_flags::TRUNCATED);
    }

    #[test]
    fn eager_payloads_go_to_their_receives() {
        let (mut world, vc) = world();
        let exact = world.receive(Some(1), Some(5), &[100]);
        let longer = world.receive(Some(1), Some(5), &[200]);
        let short = world.receive(Some(1), Some(5), &[60]);
        for posted in [exact, longer, short] {
            paired(&mut world, vc, posted, &numbers(100));
        }
        world.step(transfer);
        assert_eq!(world.bytes(exact), numbers(100));
        assert_eq!(world.bytes(longer), [numbers(100), vec![0xEE; 100]].concat());
        assert_eq!(world.bytes(short), numbers(60));
        assert_eq!(world.finished(), [exact.car, longer.car, short.car]);
        let found = [exact, longer, short].map(|p| (world.car(p).done, world.car(p).flags));
        assert_eq!(found, [(100, 0), (100, 0), (100, car_flags::TRUNCATED)]);
        assert_eq!(world.wire().releases, 1);
        assert_eq!(world.all().progress.arrivals, 0);
    }

    #[test]
    fn an_envelope_with_three_data_cars_is_filled_in_order() {
        let (mut world, vc) = world();
        let eager = world.receive(Some(1), Some(5), &[30, 0, 70]);
        paired(&mut world, vc, eager, &numbers(80));
        let large = receiving(&mut world, vc, &[10, 0, 90], 100);
        for part in numbers(100).chunks(32) {
            piece(&mut world, vc, large, part);
        }
        let short = receiving(&mut world, vc, &[10, 20, 30], 500);
        piece(&mut world, vc, short, &numbers(60));
        world.step(transfer);
        assert_eq!(world.bytes(eager), [numbers(80), vec![0xEE; 20]].concat());
        assert_eq!(world.bytes(large), numbers(100));
        assert_eq!(world.bytes(short), numbers(60));
        assert_eq!(world.finished(), [eager.car, large.car, short.car]);
        assert_eq!([eager, large, short].map(|p| world.car(p).done), [80, 100, 500]);
    }

    #[test]
    fn a_large_receive_is_done_with_its_last_piece() {
        let (mut world, vc) = world();
        let posted = receiving(&mut world, vc, &[100], 100);
        piece(&mut world, vc, posted, &numbers(60));
        world.step(transfer);
        assert!(world.finished().is_empty() && world.car(posted).done == 60);
        piece(&mut world, vc, posted, &numbers(100)[60..]);
        world.step(transfer);
        assert_eq!((world.finished(), world.bytes(posted)), (vec![posted.car], numbers(100)));
    }

    #[test]
    fn a_piece_behind_the_end_of_its_message_ends_the_vc_and_completes_nothing_twice() {
        let (mut world, vc) = world();
        let posted = receiving(&mut world, vc, &[100], 100);
        for _ in 0..2 {
            piece(&mut world, vc, posted, &numbers(100));
        }
        world.step(transfer);
        assert_eq!(world.finished(), [posted.car]);
        assert!(matches!(world.take_ended()[..], [(row, Ended::Corrupt(_))] if row == vc));
    }

    #[test]
    fn pieces_of_one_pass_are_together_no_longer_than_what_was_asked_for() {
        for (lengths, second) in [(&[100][..], 60), (&[30, 70][..], 2)] {
            let (mut world, vc) = world();
            let posted = receiving(&mut world, vc, lengths, 100);
            world.all().large[posted.car as usize] = Large { wanted: 60, ..Large::of(60) };
            for length in [59, second] {
                let header = Header::new(Kind::Piece, 0, 0, 0, posted.car, length as u64);
                world.arrive(vc, header, &vec![7; length]);
            }
            world.step(crate::tick::match_cars::match_cars);
            assert!(world.take_ended().is_empty(), "each by itself would fit");
            world.step(transfer);
            assert!(matches!(world.take_ended()[..], [(row, Ended::Corrupt(_))] if row == vc));
            assert_eq!(world.bytes(posted), [vec![7; 59], vec![0xEE; 41]].concat());
            assert!(world.finished().is_empty());
        }
    }

    #[test]
    fn unexpected_payloads_wait_in_temporaries_and_these_are_used_again() {
        let (mut world, vc) = world();
        let free = world.free_buffers();
        let row = world.arrive(vc, Header::new(Kind::Eager, 0, 1, 5, 0, 50), &numbers(50));
        let all = world.all();
        let buffer = take_buffer(all.progress, all.buffers, 50).unwrap();
        let arrival = &mut all.arrivals[row as usize];
        (arrival.to, arrival.state) = (Destination::Temporary(buffer), ArrivalState::Placed);
        world.step(transfer);
        assert_eq!(world.all().buffers[buffer as usize].bytes()[..50], numbers(50));
        assert_eq!(world.wire().releases, 1);

        let posted = world.receive(Some(1), Some(5), &[20, 20]);
        let all = world.all();
        all.vcs[vc as usize].posted.remove(all.cars, posted.car);
        let car = &mut all.cars[posted.car as usize];
        (car.state, car.done) = (CarState::Matched, 50);
        all.large[posted.car as usize].body = Body::Kept { buffer };
        all.progress.copies.push(all.cars, posted.car);
        world.step(transfer);
        assert_eq!((world.bytes(posted), world.car(posted).flags), (numbers(40), car_flags::TRUNCATED));
        assert_eq!((world.finished(), world.car(posted).done), (vec![posted.car], 50));
        assert_eq!(world.free_buffers(), free);
        assert_eq!(world.wire().releases, 1, "nothing of the transport was used");
    }

    #[test]
    fn pieces_span_no_two_data_cars_and_end_at_what_is_wanted() {
        let (mut world, vc) = world();
        let bytes = numbers(70_000);
        let posted = sending(&mut world, vc, &[&bytes[..40_000], &[], &bytes[40_000..]], 60_000);
        world.all().progress.senders = Queue { head: vc, tail: vc };
        world.step(transfer);
        let sent = world.wire().sent.clone();
        let lengths: Vec<usize> = sent.iter().map(|frame| frame.payload.len()).collect();
        assert_eq!(lengths, [32 << 10, 40_000 - (32 << 10), 20_000]);
        assert_eq!(sent.iter().flat_map(|frame| frame.payload.clone()).collect::<Vec<u8>>(), bytes[..60_000]);
        assert!(sent.iter().all(|f| f.header.kind() == Some(Kind::Piece) && f.header.message() == 33 && f.link == 1));
        assert_eq!((world.finished(), world.car(posted).done), (vec![posted.car], 70_000));
        assert!(world.vc(vc).data.is_empty() && !world.vc(vc).listed);
    }

    #[test]
    fn a_blocked_transport_is_driven_again_from_where_it_stopped() {
        let (mut world, vc) = world();
        let bytes = numbers(100_000);
        let posted = sending(&mut world, vc, &[&bytes], 100_000);
        world.all().progress.senders = Queue { head: vc, tail: vc };
        world.wire().room = Some(2);
        for _ in 0..3 {
            world.step(transfer);
        }
        assert_eq!(world.wire().sent.len(), 2);
        assert_eq!((world.finished().len(), world.car(posted).done), (0, 64 << 10));
        assert_eq!(world.all().progress.senders.head, vc, "it stays in the list");
        world.wire().room = None;
        world.step(transfer);
        let sent: Vec<u8> = world.wire().sent.iter().flat_map(|frame| frame.payload.clone()).collect();
        assert_eq!((sent, world.finished()), (bytes, vec![posted.car]));
        let refusals: Vec<u32> = world.wire().sent.iter().map(|frame| frame.refusals).collect();
        assert_eq!(refusals, [0, 0, 3, 0], "the CAR's row state goes with its pieces");
    }

    #[test]
    fn one_pass_sends_a_bounded_number_of_pieces_for_a_vc() {
        let (mut world, vc) = world();
        let bytes = numbers((PIECES_A_PASS + 3) * (32 << 10));
        sending(&mut world, vc, &[&bytes], bytes.len() as u64);
        world.all().progress.senders = Queue { head: vc, tail: vc };
        world.step(transfer);
        assert_eq!(world.wire().sent.len(), PIECES_A_PASS);
        assert!(world.all().progress.pending.has(Pending::TRANSFER));
        world.step(transfer);
        assert_eq!(world.wire().sent.len(), PIECES_A_PASS + 3);
    }

    #[test]
    fn a_failed_link_ends_its_vc() {
        let (mut world, vc) = world();
        sending(&mut world, vc, &[&numbers(10_000)], 10_000);
        world.all().progress.senders = Queue { head: vc, tail: vc };
        world.wire().broken.push(1);
        world.step(transfer);
        assert!(matches!(world.take_ended()[..], [(row, Ended::Link(_))] if row == vc));
        assert!(world.finished().is_empty() && world.all().progress.senders.is_empty());
    }
}
