//! Rendezvous: an offer (RTS), and the receiver's answer to it (CTS).

use crate::procs::endpoint::Endpoint;
use crate::procs::priorities::{insert, list_sender};
use crate::protocols::graph::blocks;
use crate::protocols::graph::passing::widen;
use crate::rows::Rows;
use crate::steps::answer::answer;
use crate::steps::chain::{capacity, is_passage, layout};
use crate::steps::check::{NotTaken, check_envelope, was_offered};
use crate::steps::credit::take_envelope;
use crate::steps::finish::{abort, finish_car};
use crate::steps::matching::{find_posted, meet};
use crate::steps::offer::{Offered, offer};
use crate::steps::registering::serve;
use crate::steps::signatures::{check_peer, compare};
use crate::steps::supply::decide::{decide, received};
use tickwire_components::wire::Header;
use tickwire_components::{
    Access, Arrival, ArrivalState, Body, CarState, Control, Large, Means, NIL, Pending, Row, Span, Target, VcState,
    car_flags, wire,
};

/// Pairs an offer with its posted receive. SupplyBuffers will answer it.
///
/// # Errors
/// If no receive matches, or the offer is invalid.
pub(crate) fn take_offer(rows: &mut Rows<'_>, header: &Header, payload: Span, vc_row: Row) -> Result<(), NotTaken> {
    let Rows { progress, cars, large, vcs, communicators, .. } = rows;
    check_envelope(header, vcs.get(vc_row as usize), communicators).map_err(NotTaken::Wrong)?;
    if vcs[vc_row as usize].state == VcState::Failed {
        return Ok(());
    }
    if vcs[vc_row as usize].envelopes_left == 0 {
        return Err(NotTaken::Wrong("more offers than it was granted"));
    }
    check_peer(progress, vc_row)?;
    let row = find_posted(progress, vc_row, header, cars, vcs).ok_or(NotTaken::Unexpected)?;
    take_envelope(progress, vcs, vc_row);
    meet(progress, &mut cars[row as usize], header, vc_row);
    cars[row as usize].priority = header.priority();
    if let Some(types) = &mut progress.signatures {
        compare(types, &mut cars[row as usize], row, vc_row, header.type_number(), header.length);
    }
    offer(progress, cars, large, row, Offered::of(header, payload));
    Ok(())
}

/// Handles a CTS: the receiver of an offered message asks for its bytes.
///
/// # Errors
/// If the message was not offered to that peer, or is shorter than asked for.
#[cold]
pub(crate) fn clear_to_send(rows: &mut Rows<'_>, header: &Header, vc_row: Row) -> Result<(), NotTaken> {
    let Rows { progress, cars, large, vcs, .. } = rows;
    let (row, wanted) = (header.message(), header.length);
    if header.flags() & wire::WIDER != 0 {
        return widen(rows, header, vc_row);
    }
    if !cars.get(row as usize).is_some_and(|car| was_offered(car, vc_row)) {
        return Err(NotTaken::Wrong("a clear-to-send for a message that was not offered"));
    }
    let passes = is_passage(cars, row) || cars[row as usize].is_left;
    let car = &mut cars[row as usize];
    let message = &mut large[row as usize];
    if wanted > message.length {
        return Err(NotTaken::Wrong("a clear-to-send for more than was offered"));
    }
    message.wanted = wanted;
    if header.flags() & wire::DIRECT != 0 {
        message.body = Body::Moving { turn: header.source() };
    } else if passes {
        message.body = Body::Passing;
    }
    message.peer = header.tag();
    car.done = 0;
    if wanted == 0 {
        finish_car(progress, cars, row, message.length, false);
        return Ok(());
    }
    car.state = CarState::Sending;
    car.flags &= !car_flags::REFUSED;
    progress.urgent |= car.priority > 0;
    insert(&mut vcs[vc_row as usize].data, cars, row);
    list_sender(progress, vcs, vc_row);
    Ok(())
}

/// Refuses an offer in ready mode that met no receive: its sender is told. `false` if too many control frames wait already; the offer is
/// then kept like any other.
#[cold]
pub(crate) fn refuse_ready(rows: &mut Rows<'_>, arrival: &mut Arrival) -> bool {
    let (context, message) = (arrival.header.context(), arrival.header.message());
    if !rows.progress.control.push(arrival.vc, Control::Refusal { context, message }) {
        return false;
    }
    list_sender(&mut rows.progress, &mut rows.vcs, arrival.vc);
    arrival.state = ArrivalState::Handled;
    rows.progress.pending |= Pending::TRANSFER;
    true
}

/// Answers the offer that a receive was paired with: decides whether the message is read, moved by the transport, or asked for in pieces.
pub(crate) fn reply(rows: &mut Rows<'_>, endpoints: &mut [Endpoint], row: Row) {
    if is_passage(&rows.cars, row) {
        return blocks::reply(rows, row);
    }
    let capacity = capacity(&rows.cars, row);
    let target = if layout(&rows.cars, row).is_none() { Target::Runs } else { Target::Scattered };
    let car = &mut rows.cars[row as usize];
    let message = &mut rows.large[row as usize];
    if message.length > capacity {
        message.wanted = capacity;
        car.flags |= car_flags::TRUNCATED;
    }
    let Large { wanted, body, .. } = *message;
    if rows.vcs[car.vc as usize].state == VcState::Failed {
        return abort(&mut rows.progress, &mut rows.cars, row, car_flags::PEER_FAILED);
    }
    let vc_row = car.vc;
    let vc = &mut rows.vcs[vc_row as usize];
    let endpoint = &mut endpoints[vc.endpoint as usize];
    let readable = match body {
        Body::Readable { address } => is_readable(endpoint, vc.link, address, wanted),
        _ => false,
    };
    let question = received(endpoint.abilities, target, wanted, endpoint.eager_max, readable);
    let read = decide(&question).means == Means::Read;
    // Memory that cannot be registered is filled from pieces, which arrive in memory of the transport.
    let register = read && endpoint.abilities.registers;
    if read
        && (!register
            || matches!(serve(&mut rows.progress, &rows.cars, endpoint, vc.endpoint, row, Access::RECEIVE), Ok(true)))
    {
        let car = &mut rows.cars[row as usize];
        car.state = CarState::Reading;
        rows.progress.urgent |= car.priority > 0;
        insert(&mut rows.progress.reads, &mut rows.cars, row);
        rows.progress.pending |= Pending::TRANSFER;
        return;
    }
    // The transport can move a message from one run into one run.
    let one_run = target == Target::Runs && rows.cars[row as usize].chain == NIL && wanted > 0;
    let into = rows.cars[row as usize].span.part(0, wanted as usize);
    let moves = one_run && body == Body::Movable;
    let is_known = !moves || !endpoint.abilities.registers || {
        let served = serve(&mut rows.progress, &rows.cars, endpoint, vc.endpoint, row, Access::RECEIVE);
        matches!(served, Ok(true))
    };
    let turn = match moves && is_known {
        // SAFETY: the place of a posted receive is there until it ends, which is when the transport says that it is done.
        #[expect(unsafe_code, reason = "bytes that are addresses")]
        true => endpoint.transport.get().direct().and_then(|direct| unsafe { direct.expect(vc.link, row, into) }),
        false => None,
    };
    rows.large[row as usize].body = turn.map_or(Body::AtSender, |turn| Body::Moving { turn });
    answer(rows, row);
}

/// Whether a message can be read out of its sender's memory.
fn is_readable(endpoint: &mut Endpoint, link: u32, address: u64, wanted: u64) -> bool {
    wanted > 0 && endpoint.transport.get().memory().is_some_and(|memory| memory.reads(link, address, wanted))
}

/// Handles the refusal of an offer in ready mode, which met no receive: the send ends with an error.
///
/// # Errors
/// If there is no such offer.
#[cold]
pub(crate) fn end_refused(rows: &mut Rows<'_>, header: &Header, vc_row: Row) -> Result<(), NotTaken> {
    let Rows { progress, cars, .. } = rows;
    let row = header.message();
    match cars.get(row as usize) {
        Some(car) if was_offered(car, vc_row) && car.flags & car_flags::READY != 0 => {
            abort(progress, cars, row, car_flags::NOT_READY);
            Ok(())
        }
        _ => Err(NotTaken::Wrong("a refusal of a message that was not offered in ready mode")),
    }
}
