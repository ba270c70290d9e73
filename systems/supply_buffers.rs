//! SupplyBuffers: decides where bytes go.
//!
//! *Reads* arrivals, matched receives. *Writes* arrivals (buffer, state), buffer rows, the unexpected entries (buffer),
//! the reply of a matched offer (into its VC's send queue), pending.
//! *Bound* the arrival rows and the receives matched in this pass.
//! *Why* who supplies the memory between a sender and a receiver is one decision, apart from matching and from moving.
//! The receiver supplies, so far: its own segment where a receive is there, a temporary where none is.

use crate::posting::list_sender;
use crate::tables::SupplyTables;
use tickwire_components::{
    ArrivalState, Buffer, Car, CarState, FreeList, Large, Pending, Progress, Row, Vc, VcState, car_flags,
};

/// The system.
#[inline]
pub fn supply_buffers(tables: SupplyTables) {
    let SupplyTables { progress, arrivals, buffers, cars, large, vcs } = tables;
    while let Some(row) = progress.offers.pop(cars) {
        reply(progress, cars, large, vcs, row);
    }
    for arrival in &mut arrivals[..progress.arrivals as usize] {
        if arrival.state == ArrivalState::Unexpected {
            // DrainCq reads no more frames than there are free buffer rows.
            let Some(row) = take_buffer(progress, buffers, arrival.payload.len()) else { continue };
            arrival.buffer = row;
            arrival.state = ArrivalState::Placed;
            progress.unexpected.entries[arrival.car as usize].buffer = row;
            progress.pending |= Pending::TRANSFER;
        }
    }
}

/// The segment of a matched receive is where its data goes: tell the sender.
fn reply(progress: &mut Progress, cars: &mut [Car], large: &mut [Large], vcs: &mut [Vc], row: Row) {
    let capacity = capacity(cars, row);
    let car = &mut cars[row as usize];
    let large = &mut large[row as usize];
    if large.length > capacity {
        large.wanted = capacity;
        car.flags |= car_flags::TRUNCATED;
    }
    if vcs[car.vc as usize].state == VcState::Failed {
        return crate::complete::abort(progress, cars, row, car_flags::PEER_FAILED);
    }
    car.state = CarState::Queued;
    let vc_row = car.vc;
    vcs[vc_row as usize].sends.push(cars, row);
    list_sender(progress, vcs, vc_row);
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
            progress.pool_bytes -= buffers[row as usize].bytes.len() as u64;
            row
        }
        None => {
            let row = (0..Buffer::CLASSES).find_map(|c| progress.free_buffers[c].pop(buffers))?;
            let buffer = &mut buffers[row as usize];
            progress.pool_bytes -= buffer.bytes.len() as u64;
            buffer.bytes = vec![0; Buffer::CLASS_BYTES[class].max(bytes)].into_boxed_slice();
            row
        }
    };
    buffers[row as usize].length = bytes as u32;
    Some(row)
}

/// Gives a temporary back; its storage is kept for the next one while the pool is small.
pub fn give_buffer(progress: &mut Progress, buffers: &mut [Buffer], row: Row) {
    let buffer = &mut buffers[row as usize];
    if progress.pool_bytes + buffer.bytes.len() as u64 > tickwire_components::limits::POOL_KEPT_BYTES as u64 {
        buffer.bytes = Box::default();
    }
    progress.pool_bytes += buffer.bytes.len() as u64;
    let list: &mut FreeList = &mut progress.free_buffers[buffer.class()];
    list.push(buffers, row);
}
