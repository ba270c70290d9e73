//! Messages in parts: each part is a frame, and the first one has the envelope.

use crate::rows::Rows;
use crate::steps::check::NotTaken;
use crate::steps::check::check_envelope;
use crate::steps::credit::owe_lines;
use crate::steps::matching::{find_posted, meet};
use crate::steps::signatures::{check_peer, compare};
use crate::steps::streams::{begin, may_begin};
use tickwire_components::{
    Arrival, ArrivalState, Body, CarState, Destination, Large, PartPlace, Pending, Progress, VcState,
};

/// Pairs the first part of a message with its posted receive.
///
/// # Errors
/// If no receive matches, or the envelope is invalid.
pub(crate) fn take_head(rows: &mut Rows<'_>, arrival: &mut Arrival) -> Result<(), NotTaken> {
    let Rows { progress, cars, large, vcs, communicators, .. } = rows;
    let (header, vc_row) = (arrival.header, arrival.vc);
    check_envelope(&header, vcs.get(vc_row as usize), communicators).map_err(NotTaken::Wrong)?;
    if vcs[vc_row as usize].state == VcState::Failed {
        // The connection has ended since the frame was read, so the other parts will not come.
        return Ok(());
    }
    check_peer(progress, vc_row)?;
    if !may_begin(progress, arrival) {
        return Err(NotTaken::Wrong("a message in parts that cannot be"));
    }
    let row = find_posted(progress, vc_row, &header, cars, vcs).ok_or(NotTaken::Unexpected)?;
    owe_lines(progress, vcs, vc_row, header.length);
    let car = &mut cars[row as usize];
    meet(progress, car, &header, vc_row);
    if let Some(types) = &mut progress.signatures {
        compare(types, car, row, vc_row, header.type_number(), header.length);
    }
    (car.state, car.done) = (CarState::Receiving, 0);
    large[row as usize] = Large { wanted: 0, body: Body::InParts, ..Large::of(header.length) };
    begin(progress, arrival, Destination::Receive(row));
    Ok(())
}

const NO_MESSAGE: NotTaken = NotTaken::Wrong("a part of no message");

/// Decides where a part goes.
///
/// # Errors
/// If no message is arriving in parts, or the part is longer than what is missing.
pub(crate) fn take_part(progress: &mut Progress, arrival: &mut Arrival) -> Result<(), NotTaken> {
    let Some(at) = progress.streams.iter().position(|stream| stream.vc == arrival.vc) else {
        return Err(NO_MESSAGE);
    };
    let stream = &mut progress.streams[at];
    let part = arrival.header.length;
    if part > stream.length - stream.seen {
        return Err(NO_MESSAGE);
    }
    arrival.set_part_place(PartPlace { at: stream.seen, length: stream.length });
    stream.seen += part;
    arrival.to = stream.to;
    match stream.to {
        Destination::Receive(_) => arrival.state = ArrivalState::Placed,
        Destination::Unexpected(entry) => {
            arrival.state = ArrivalState::Unexpected;
            if stream.seen == stream.length {
                progress.unexpected.entries[entry as usize].complete();
            }
            progress.pending |= Pending::SUPPLY;
        }
        Destination::Temporary(_) | Destination::Nobody => {}
    }
    if stream.seen == stream.length {
        progress.streams.swap_remove(at);
    }
    Ok(())
}
