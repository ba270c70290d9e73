//! SupplyBuffers: decides where bytes go.
//!
//! *Reads* arrivals, matched receives. *Writes* arrivals (buffer, state), buffer rows, the unexpected entries (buffer),
//! the reply of a matched offer (into the queue of replies), supplies (see [`hand_out`]), pending.
//! *Bound* the arrival rows, the receives matched in this pass, and that of [`hand_out`].
//! *Why* who supplies the memory between a sender and a receiver is one decision ([`mod@decide`]), apart from matching and
//! from moving. A receive has its own segment; what nobody waits for goes into a temporary; between two methods it is the
//! one that can do so with the fewest copies.

pub mod decide;
pub mod hand_out;
pub mod pool;

use crate::endpoint::Endpoint;
use crate::posting::{layout, list_sender};
use crate::priorities::insert;
use crate::registering::serve;
use crate::rows::{Rows, Wire};
use decide::{decide, received};
use tickwire_components::wire::Kind;
use tickwire_components::{
    Access, ArrivalState, Buffer, Car, CarState, FreeList, Large, Means, NIL, Pending, Progress, Row, Target, VcState,
    car_flags,
};

/// The system.
#[inline]
pub fn supply_buffers(rows: &mut Rows<'_>, wire: &mut Wire<'_>) {
    while let Some(row) = rows.progress.offers.pop(&mut rows.cars) {
        reply(rows, wire.endpoints, row);
    }
    let Rows { progress, buffers, supplies, vcs, .. } = rows;
    for arrival in &mut wire.arrivals[..progress.arrivals as usize] {
        if arrival.state == ArrivalState::Unexpected {
            if arrival.header.lead as u8 == Kind::Part as u8 {
                // Where the parts before it are.
                arrival.buffer = progress.unexpected.entries[arrival.car as usize].buffer;
                arrival.state = ArrivalState::Placed;
                progress.pending |= Pending::TRANSFER;
                continue;
            }
            // DrainCq reads no more frames than there are free buffer rows.
            let Some(row) = take_buffer(progress, buffers, arrival.header.length as usize) else { continue };
            arrival.buffer = row;
            arrival.state = ArrivalState::Placed;
            progress.unexpected.entries[arrival.car as usize].buffer = row;
            progress.pending |= Pending::TRANSFER;
        }
    }
    if !progress.supplies.is_empty() {
        hand_out::hand_out(progress, supplies, buffers, vcs, wire.endpoints);
    }
}

/// The segment of a matched receive is where its data goes: tell the sender.
pub(crate) fn reply(rows: &mut Rows<'_>, endpoints: &mut [Endpoint], row: Row) {
    let capacity = capacity(&mut rows.cars, row);
    let target = if layout(&mut rows.cars, row).is_none() { Target::Runs } else { Target::Scattered };
    let car = &mut rows.cars[row as usize];
    let message = &mut rows.large[row as usize];
    if message.length > capacity {
        message.wanted = capacity;
        car.flags |= car_flags::TRUNCATED;
    }
    let (Large { wanted, address, .. }, may_move) = (*message, message.is_direct());
    if rows.vcs[car.vc as usize].state == VcState::Failed {
        return crate::complete::abort(&mut rows.progress, &mut rows.cars, row, car_flags::PEER_FAILED);
    }
    let vc_row = car.vc;
    let vc = &mut rows.vcs[vc_row as usize];
    let endpoint = &mut endpoints[vc.endpoint as usize];
    let readable = address != 0 && !may_move && wanted > 0 && endpoint.transport.get().reads(vc.link, address, wanted);
    let question = received(endpoint.abilities, target, wanted, endpoint.eager_max, readable);
    let read = decide(&question).means == Means::Read;
    // Memory that cannot be registered is filled out of pieces, which come in memory of the method.
    let register = read && endpoint.abilities.registers;
    if read
        && (!register
            || matches!(
                serve(&mut rows.progress, &mut rows.cars, endpoint, vc.endpoint, row, Access::RECEIVE),
                Ok(true)
            ))
    {
        let car = &mut rows.cars[row as usize];
        car.state = CarState::Reading;
        rows.progress.urgent |= car.priority > 0;
        insert(&mut rows.progress.reads, &mut rows.cars, row);
        rows.progress.pending |= Pending::TRANSFER;
        return;
    }
    // A message in one run, for one run: its transport may move it.
    let one_run = target == Target::Runs && rows.cars[row as usize].chain == NIL && wanted > 0;
    let into = rows.cars[row as usize].span.part(0, wanted as usize);
    let turn = match one_run && may_move {
        // SAFETY: the place of a posted receive is there until it ends, which is when the transport says that it is done.
        #[expect(unsafe_code, reason = "bytes that are addresses")]
        true => unsafe { endpoint.transport.get().expect(vc.link, row, into) },
        false => None,
    };
    rows.large[row as usize].address = turn.map_or(0, |number| Large::DIRECT | u64::from(number));
    answer(rows, row);
}

/// Puts a receive's answer to its sender into the queue of replies: what it says follows from the tables when it leaves.
pub fn answer(rows: &mut Rows<'_>, row: Row) {
    let car = &mut rows.cars[row as usize];
    car.state = CarState::Queued;
    let vc_row = car.vc;
    insert(&mut rows.progress.replies, &mut rows.cars, row);
    list_sender(&mut rows.progress, &mut rows.vcs, vc_row);
}

/// Bytes that an envelope CAR can take or has: its own span, or all that are chained under it.
#[inline]
pub fn capacity(cars: &[Car], row: Row) -> u64 {
    let car = &cars[row as usize];
    let mut bytes = car.span.len() as u64;
    let mut chained = car.chain;
    while let Some(data) = cars.get(chained as usize) {
        bytes += data.span.len() as u64;
        chained = data.chain;
    }
    bytes
}

/// A temporary of at least `bytes`: one of its size, else any row with new storage.
pub fn take_buffer(progress: &mut Progress, buffers: &mut [Buffer], bytes: usize) -> Option<Row> {
    let class = Buffer::class_for(bytes);
    let row = match progress.free_buffers[class].pop(buffers) {
        Some(row) => {
            progress.pool_bytes -= buffers[row as usize].capacity() as u64;
            row
        }
        None => {
            let row = (0..Buffer::CLASSES).find_map(|c| progress.free_buffers[c].pop(buffers))?;
            let buffer = &mut buffers[row as usize];
            progress.pool_bytes -= buffer.capacity() as u64;
            buffer.store(vec![0; Buffer::storage_for(bytes)].into_boxed_slice());
            row
        }
    };
    buffers[row as usize].length = bytes as u32;
    progress.free_buffer_rows -= 1;
    Some(row)
}

/// Gives a temporary back; its storage is kept for the next one while the pool is small.
pub fn give_buffer(progress: &mut Progress, buffers: &mut [Buffer], row: Row) {
    let buffer = &mut buffers[row as usize];
    if progress.pool_bytes + buffer.capacity() as u64 > tickwire_components::limits::POOL_KEPT_BYTES as u64 {
        buffer.store(Box::default());
    }
    progress.pool_bytes += buffer.capacity() as u64;
    let list: &mut FreeList = &mut progress.free_buffers[buffer.class()];
    list.push(buffers, row);
    progress.free_buffer_rows += 1;
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::TestWorld;
    use tickwire_components::Unexpected;
    use tickwire_components::limits::POOL_KEPT_BYTES;
    use tickwire_components::wire::Header;

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
            buffer: NIL,
            message: NIL,
            address: 0,
            next: NIL,
            previous: NIL,
        };
        let entry = all.progress.unexpected.push(entry);
        all.arrivals[row as usize].state = ArrivalState::Unexpected;
        all.arrivals[row as usize].car = entry;
        (row, entry)
    }

    /// A receive that Match has paired with an offer of proc 1.
    fn offer(world: &mut TestWorld, lengths: &[usize], length: u64) -> Row {
        let car = world.receive(Some(1), Some(5), lengths).car;
        let all = world.all();
        let vc = all.vcs.iter_mut().find(|vc| vc.proc == 1).unwrap();
        vc.posted.remove(all.cars, car);
        all.cars[car as usize].state = CarState::Matched;
        all.large[car as usize] = Large { length, wanted: length, address: 0 };
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
            assert_eq!(all.progress.unexpected.entries[entry as usize].buffer, arrival.buffer);
            let buffer = &all.buffers[arrival.buffer as usize];
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
