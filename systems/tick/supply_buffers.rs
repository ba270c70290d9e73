//! SupplyBuffers: decides where bytes go.
//!
//! *Reads* arrivals, matched receives. *Writes* arrivals (buffer, state), buffer rows, the unexpected entries (buffer),
//! the reply of a matched offer (into the queue of replies), supplies (see [`SupplyTables`]), pending.
//! *Bound* the arrival rows, the receives matched in this pass, and that of [`SupplyTables::hand_out`].
//! *Why* one function decides in whose memory the bytes of a message go ([`decide`](crate::steps::supply::decide)), apart from matching
//! and from moving the bytes. A message whose receive is posted goes into the segment of the receive. An unexpected message goes into a
//! temporary. A message that comes over one transport and leaves over another goes through the memory that saves the most copies.

use crate::protocols::graph::blocks::ask;
use crate::protocols::rendezvous::reply;
use crate::rows::{Rows, Wire};
use crate::steps::supply::hand_out::SupplyTables;
use crate::steps::supply::pool::take_buffer;
use tickwire_components::{ArrivalState, Destination, Pending};

/// The system.
// A function of its own, so that a profile tells the systems apart.
#[inline(never)]
pub fn supply_buffers(rows: &mut Rows<'_>, wire: &mut Wire<'_>) {
    while let Some(row) = rows.progress.offers.pop(&mut rows.cars) {
        reply(rows, wire.endpoints, row);
    }
    let Rows { progress, buffers, supplies, vcs, .. } = rows;
    for arrival in &mut wire.arrivals[..progress.arrivals as usize] {
        let (ArrivalState::Unexpected, Destination::Unexpected(entry)) = (arrival.state, arrival.to) else { continue };
        let buffer = if arrival.header.is_part() {
            // The earlier parts of the message are in this buffer.
            progress.unexpected.entries[entry as usize].buffer()
        } else {
            // DrainCq reads no more frames than there are free buffer rows.
            let Some(buffer) = take_buffer(progress, buffers, arrival.header.length as usize) else { continue };
            progress.unexpected.entries[entry as usize].set_buffer(buffer);
            buffer
        };
        (arrival.to, arrival.state) = (Destination::Temporary(buffer), ArrivalState::Placed);
        progress.pending |= Pending::TRANSFER;
    }
    if !progress.supplies.is_empty() {
        let served = SupplyTables { progress, supplies, buffers, vcs, endpoints: wire.endpoints }.hand_out();
        served.into_iter().for_each(|receive| ask(rows, receive));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::steps::supply::pool::give_buffer;
    use crate::testing::TestWorld;
    use tickwire_components::CarState;
    use tickwire_components::Kept;
    use tickwire_components::Large;
    use tickwire_components::NIL;
    use tickwire_components::Row;
    use tickwire_components::Unexpected;
    use tickwire_components::VcState;
    use tickwire_components::car_flags;
    use tickwire_components::limits::POOL_KEPT_BYTES;
    use tickwire_components::wire::{Header, Kind};

    /// An arrival that Match has put into the unexpected queue.
    fn unexpected(world: &mut TestWorld, length: usize) -> (Row, Row) {
        let row = world.arrive(0, Header::new(Kind::Eager, 0, 0, 1, 0, length as u64), &vec![1; length]);
        let all = world.all();
        let length = length as u64;
        let entry = Unexpected {
            context: 0,
            source: 0,
            tag: 1,
            vc: 0,
            length,
            kept: Kept::Whole { buffer: NIL },
            next: NIL,
            previous: NIL,
        };
        let entry = all.progress.unexpected.push(entry);
        all.arrivals[row as usize].state = ArrivalState::Unexpected;
        all.arrivals[row as usize].to = Destination::Unexpected(entry);
        (row, entry)
    }

    /// A receive that Match has paired with an offer of proc 1.
    fn offer(world: &mut TestWorld, lengths: &[usize], length: u64) -> Row {
        let car = world.receive(Some(1), Some(5), lengths).car;
        let all = world.all();
        let vc = all.vcs.iter_mut().find(|vc| vc.proc == 1).unwrap();
        vc.posted.remove(all.cars, car);
        all.cars[car as usize].state = CarState::Matched;
        all.large[car as usize] = Large::of(length);
        all.progress.offers.push(all.cars, car);
        car
    }

    #[test]
    fn unexpected_payloads_get_temporaries_of_their_size() {
        let mut world = TestWorld::new(1);
        let rows = [1, 256, 257, 9000].map(|length| (length, unexpected(&mut world, length)));
        world.step(supply_buffers);
        let all = world.all();
        for (length, (arrival, entry)) in rows {
            let arrival = all.arrivals[arrival as usize];
            assert_eq!(arrival.state, ArrivalState::Placed);
            let kept = all.progress.unexpected.entries[entry as usize].buffer();
            assert_eq!(arrival.to, Destination::Temporary(kept));
            let buffer = &all.buffers[kept as usize];
            assert_eq!(buffer.length as usize, length);
            assert!(buffer.capacity() >= length && buffer.capacity() <= 64 << 10);
        }
        assert!(all.progress.pending.has(Pending::TRANSFER));
    }

    #[test]
    fn storage_is_used_again_for_the_same_size() {
        let mut world = TestWorld::new(1);
        let all = world.all();
        let first = take_buffer(all.progress, all.buffers, 100).unwrap();
        let address = all.buffers[first as usize].bytes().as_ptr();
        give_buffer(all.progress, all.buffers, first);
        assert_eq!(all.progress.pool_bytes, 256);
        let again = take_buffer(all.progress, all.buffers, 200).unwrap();
        assert_eq!((again, all.buffers[again as usize].bytes().as_ptr()), (first, address));
        assert_eq!(all.progress.pool_bytes, 0);
        let larger = take_buffer(all.progress, all.buffers, 300).unwrap();
        assert!(larger != again && all.buffers[larger as usize].capacity() == 1 << 10);
    }

    #[test]
    fn the_pool_keeps_a_bounded_number_of_bytes_and_every_row() {
        let mut world = TestWorld::new(1);
        let rows = world.free_buffers();
        let all = world.all();
        let count = POOL_KEPT_BYTES / (64 << 10) + 8;
        let taken: Vec<Row> = (0..count).map(|_| take_buffer(all.progress, all.buffers, 64 << 10).unwrap()).collect();
        for row in taken {
            give_buffer(all.progress, all.buffers, row);
        }
        assert_eq!(all.progress.pool_bytes, POOL_KEPT_BYTES as u64);
        assert_eq!(world.free_buffers(), rows);
    }

    #[test]
    fn without_free_rows_a_payload_stays_where_it_is() {
        let mut world = TestWorld::new(1);
        let all = world.all();
        while take_buffer(all.progress, all.buffers, 1).is_some() {}
        let (row, _) = unexpected(&mut world, 10);
        world.step(supply_buffers);
        assert_eq!(world.arrival(row).state, ArrivalState::Unexpected);
    }

    #[test]
    fn a_matched_offer_is_answered_with_the_room_there_is() {
        let mut world = TestWorld::new(2);
        let vc = world.contact(1, VcState::Connected);
        let fits = offer(&mut world, &[30, 30, 40], 100);
        let short = offer(&mut world, &[10, 20], 100);
        world.step(supply_buffers);
        let all = world.all();
        assert_eq!((all.large[fits as usize].wanted, all.large[short as usize].wanted), (100, 30));
        assert_eq!((all.cars[fits as usize].flags, all.cars[short as usize].flags), (0, car_flags::TRUNCATED));
        assert_eq!(all.cars[fits as usize].state, CarState::Queued);
        let replies = all.progress.replies;
        assert_eq!(world.cars_in(replies), [fits, short]);
        assert!(world.vc(vc).listed && world.all().progress.pending.has(Pending::POST));
    }

    #[test]
    fn an_offer_of_a_failed_proc_is_not_answered() {
        let mut world = TestWorld::new(2);
        let vc = world.contact(1, VcState::Connected);
        let row = offer(&mut world, &[100], 100);
        world.all().vcs[vc as usize].state = VcState::Failed;
        world.step(supply_buffers);
        assert_eq!(world.finished(), [row]);
        assert_eq!(world.all().cars[row as usize].flags, car_flags::PEER_FAILED);
        assert!(world.vc(vc).sends.is_empty());
    }
}
