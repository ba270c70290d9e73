//! Messages that arrive in parts (streams). Each VC has at most one, from its first part to its last.

use crate::rows::Rows;
use tickwire_components::credit::LINE_BYTES;
use tickwire_components::{
    Arrival, ArrivalState, Destination, Kept, Large, Pending, Progress, Row, Stream, Unexpected, car_flags,
};

/// Whether the first part of a message may begin a stream: no other message is arriving in parts on the VC, and the message fits the
/// window.
pub(crate) fn may_begin(progress: &Progress, arrival: &Arrival) -> bool {
    let length = arrival.header.length;
    length <= u64::from(progress.window.lines) * LINE_BYTES as u64
        && progress.streams.iter().all(|stream| stream.vc != arrival.vc)
}

/// Begins a stream, whose first part has arrived.
pub(crate) fn begin(progress: &mut Progress, arrival: &mut Arrival, to: Destination) {
    let (vc, length) = (arrival.vc, arrival.header.length);
    progress.streams.push(Stream { vc, to, seen: arrival.payload.len() as u64, length });
    arrival.to = to;
    if matches!(to, Destination::Receive(_)) {
        arrival.state = ArrivalState::Placed;
    }
    progress.pending |= Pending::TRANSFER;
}

/// Connects a receive with an unexpected message of which parts are still to come. The parts that are here will be copied; later parts go
/// straight into the receive. If the rest will never come, the receive fails.
pub(crate) fn take_over(rows: &mut Rows<'_>, found: &Unexpected, row: Row) {
    let stream = rows.progress.streams.iter_mut().find(|stream| stream.vc == found.vc);
    let Some(stream) = stream.filter(|_| matches!(found.kept, Kept::Arriving { .. })) else {
        // Transfer gives the temporary back and ends the receive.
        rows.cars[row as usize].flags |= car_flags::PEER_FAILED;
        return;
    };
    stream.to = Destination::Receive(row);
    rows.cars[row as usize].done = stream.seen;
    rows.large[row as usize] = Large { wanted: 0, ..Large::of(found.length) };
}
