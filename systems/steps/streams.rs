//! Messages that arrive in parts: at most one for each VC, from its first part to its last.

use crate::rows::Rows;
use tickwire_components::credit::LINE_BYTES;
use tickwire_components::{
    Arrival, ArrivalState, Destination, Kept, Large, Pending, Progress, Row, Stream, Unexpected, car_flags,
};

/// Whether the head of a message may be one: none is arriving, and it fits the window.
pub(crate) fn may_begin(progress: &Progress, arrival: &Arrival) -> bool {
    let length = arrival.header.length;
    length <= u64::from(progress.window.lines) * LINE_BYTES as u64
        && progress.streams.iter().all(|stream| stream.vc != arrival.vc)
}

/// A message in parts of which the first is there.
pub(crate) fn begin(progress: &mut Progress, arrival: &mut Arrival, to: Destination) {
    let (vc, length) = (arrival.vc, arrival.header.length);
    progress.streams.push(Stream { vc, to, seen: arrival.payload.len() as u64, length });
    arrival.to = to;
    if matches!(to, Destination::Receive(_)) {
        arrival.state = ArrivalState::Placed;
    }
    progress.pending |= Pending::TRANSFER;
}

/// A receive that was paired with a message of which parts are still to come: those that are there are copied, the others go
/// straight to it. If they never will, it has failed.
pub(crate) fn take_over(rows: &mut Rows<'_>, found: &Unexpected, row: Row) {
    let stream = rows.progress.streams.iter_mut().find(|stream| stream.vc == found.vc);
    let Some(stream) = stream.filter(|_| matches!(found.kept, Kept::Arriving { .. })) else {
        // Transfer, which gives the temporary back, ends it.
        rows.cars[row as usize].flags |= car_flags::PEER_FAILED;
        return;
    };
    stream.to = Destination::Receive(row);
    rows.cars[row as usize].done = stream.seen;
    rows.large[row as usize] = Large { wanted: 0, ..Large::of(found.length) };
}
