//! Accounting: how many bytes are in which queue, table and transport.

use super::operations::{is_used, messages};
use super::peers::traffic;
use std::mem::size_of;
use tickwire_components::{
    Arrival, Buffer, Car, CarKind, CarState, Communicator, Held, Large, NIL, Node, Request, Stamp, Unexpected, Vc,
};
use tickwire_systems::steps::chain::capacity;
use tickwire_systems::store::Tables;
use tickwire_traces::dump::{QueueBytes, TransportBytes};

/// Bytes that bevy keeps for the change ticks of one component of one row.
const TICK_BYTES: usize = 8;

pub(super) fn queues(all: &Tables<'_>) -> Vec<(String, QueueBytes)> {
    let mut posted = [QueueBytes::default(); 2];
    let mut others = [QueueBytes::default(); 5];
    let rows = (0..).zip(all.cars.iter().zip(all.requests.iter()));
    for (row, (car, _)) in rows.filter(|(_, (car, request))| is_used(car, request)) {
        let left = || all.large[row as usize].length.saturating_sub(car.done);
        match car.state {
            CarState::Posted | CarState::New | CarState::ToProvider | CarState::AtProvider | CarState::Recalled => {
                posted[usize::from(car.vc == NIL)].add(capacity(all.cars, row));
            }
            CarState::Queued => others[0].add(left()),
            CarState::Offered => others[1].add(left()),
            CarState::Sending | CarState::Parked => others[2].add(left()),
            CarState::Direct => others[if car.kind == CarKind::Send { 2 } else { 3 }].add(left()),
            CarState::Matched | CarState::Receiving | CarState::Passing => others[3].add(left()),
            CarState::Reading => others[3].add(all.large[row as usize].wanted.saturating_sub(car.done)),
            _ => others[4].add(car.done),
        }
    }
    let unexpected = &all.progress.unexpected;
    let waiting = messages(all, Stamp::default());
    let offered = waiting.iter().filter(|message| message.offered);
    let mut offers = QueueBytes::default();
    offered.for_each(|message| offers.add(message.bytes));
    let stored = QueueBytes { rows: u64::from(unexpected.count) - offers.rows, bytes: unexpected.bytes };
    let named = [
        ("receives posted for one source", posted[0]),
        ("receives posted for any source", posted[1]),
        ("messages unexpected, held in temporaries", stored),
        ("messages unexpected, held by their senders", offers),
        ("sends waiting for the connection, for credit or for room", others[0]),
        ("sends offered, waiting for a receive", others[1]),
        ("sends in pieces", others[2]),
        ("receives whose message is arriving", others[3]),
        ("operations done and not taken", others[4]),
    ];
    named.map(|(name, bytes)| (name.to_owned(), bytes)).into()
}

pub(super) fn tables(all: &Tables<'_>) -> Vec<(String, QueueBytes)> {
    let row = |components: &[usize]| components.iter().map(|bytes| bytes + TICK_BYTES).sum::<usize>() as u64;
    let operation =
        row(&[size_of::<Car>(), size_of::<Large>(), size_of::<Node>(), size_of::<Request>(), size_of::<Held>()]);
    let table = |rows: usize, bytes: u64| QueueBytes { rows: rows as u64, bytes: rows as u64 * bytes };
    let progress = &all.progress;
    let (entries, used) = (progress.unexpected.entries.capacity(), all.buffers.len() as u64);
    let held: u64 = all.buffers.iter().map(|buffer| buffer.capacity() as u64).sum();
    let named = [
        ("operations", table(all.cars.len(), operation)),
        ("ages of operations", QueueBytes { rows: 0, bytes: progress.stamps.bytes() as u64 }),
        (
            "index of posted receives",
            QueueBytes { rows: progress.posted.count.into(), bytes: progress.posted.bytes() as u64 },
        ),
        ("unexpected messages", table(entries, size_of::<Unexpected>() as u64)),
        ("arrivals", table(all.arrivals.len(), row(&[size_of::<Arrival>()]))),
        ("temporaries", table(all.buffers.len(), row(&[size_of::<Buffer>()]))),
        (
            "bytes of temporaries, in use",
            QueueBytes { rows: used - u64::from(progress.free_buffer_rows), bytes: held - progress.pool_bytes },
        ),
        ("bytes of temporaries, kept for the next message", QueueBytes { rows: 0, bytes: progress.pool_bytes }),
        ("communicators", table(all.communicators.len(), row(&[size_of::<Communicator>()]))),
        ("contacted procs", table(all.vcs.len(), row(&[size_of::<Vc>()]))),
        ("known procs", table(all.procs.known.len(), 4 + all.procs.card_bytes as u64)),
    ];
    named.map(|(name, bytes)| (name.to_owned(), bytes)).into()
}

pub(super) fn transports(all: &mut Tables<'_>) -> Vec<TransportBytes> {
    let mut found: Vec<TransportBytes> = all
        .endpoints
        .iter_mut()
        .map(|endpoint| {
            let transport = endpoint.transport.get();
            let (name, shared_bytes) = (transport.name().to_owned(), transport.shared_bytes());
            TransportBytes { name, shared_bytes, ..Default::default() }
        })
        .collect();
    for row in 0..all.vcs.len() {
        if let Some(carried) = traffic(all, row)
            && let Some(transport) = found.get_mut(all.vcs[row].endpoint as usize)
        {
            transport.connections += 1;
            transport.traffic += carried;
        }
    }
    found
}
