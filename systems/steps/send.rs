//! Sends the first frame of a row: the envelope of a send, or a receive's answer to an offer.

use crate::procs::endpoint::{Aside, Endpoint, Place};
use crate::protocols::graph::blocks::asked;
use crate::rows::{RowStateColumns, Rows};
use crate::steps::activate::take_rows;
use crate::steps::arguments::Envelope;
use crate::steps::chain::{Chain, capacity};
use crate::steps::credit::{collect, due, granted};
use crate::steps::finish::end_awaited;
use crate::steps::offer::Offer;
use crate::steps::offer_counts::gave;
use crate::steps::posting::{queue_send, send_car};
use crate::steps::signatures::stamp;
use crate::store::Tables;
use std::any::Any;
use tickwire_components::credit::{Credit, cost};
use tickwire_components::wire::Header;
use tickwire_components::{
    Body, Car, CarKind, CarState, Communicator, Control, ControlFrame, Large, NIL, NoBytes, Payload, Pending, Progress,
    Protocol, Row, Span, Vc, VcState, Way, car_flags, context, wire,
};
use tickwire_transports::{AnyTransport, Sent};

/// Sends the first frame of a row, an envelope or a reply. Credit that is due to the peer goes with the frame where the endpoint allows
/// that.
///
/// # Errors
/// Why the frame has not gone: no room, no credit, or a failed link.
pub(crate) fn send_row(rows: &mut Rows<'_>, endpoint: &mut Endpoint, vc_row: Row, row: Row) -> Result<Header, Sent> {
    let Rows { progress, cars, large, vcs, row_states, .. } = rows;
    let (vc, car) = (&mut vcs[vc_row as usize], &mut cars[row as usize]);
    if car.kind == CarKind::Send && large[row as usize].way == Way::Undecided {
        // Decide once only: a transport that has taken a part of a frame expects the rest of the same frame.
        let way = choose(cars, large, vc, endpoint, row).ok_or(Sent::Blocked)?;
        large[row as usize].way = way;
        spend(progress, vc, endpoint, &cars[row as usize], way, large[row as usize].length);
    }
    let mut header = head(cars, large, vc.link, endpoint, row);
    let car = &mut cars[row as usize];
    header = stamp(progress, car, row, header);
    let state = state_of(row_states, endpoint, car, row);
    let mut credit = Credit::NONE;
    if endpoint.piggybacks {
        // A transport that matches by itself never piggybacks credit.
        (header, credit) = header.with_credit(due(progress, vc, vc_row, true));
    }
    let first = FirstFrame { cars, row, in_parts: in_parts(cars, large, row), link: vc.link, header: &header };
    match first.send(endpoint, vc.proc, state) {
        Sent::Done => progress.moved.post += header.message_bytes(),
        sent => return Err(sent),
    }
    granted(progress, vc, credit);
    Ok(header)
}

/// The state that a transport keeps for a row, reset if this is the row's first frame. `None` if the endpoint's transport keeps no state.
#[inline]
fn state_of<'a>(
    row_states: &'a mut RowStateColumns,
    endpoint: &Endpoint,
    car: &mut Car,
    row: Row,
) -> Option<&'a mut dyn Any> {
    let states = endpoint.rows?;
    let mut state = row_states.get(states, row);
    if let Some(state) = state.as_deref_mut().filter(|_| car.flags & car_flags::STARTED == 0) {
        (states.reset)(state);
    }
    car.flags |= car_flags::STARTED;
    state
}

/// Sends a control frame. Credit that is due goes with it where the endpoint allows that.
pub(crate) fn send_control(rows: &mut Rows<'_>, endpoint: &mut Endpoint, frame: &mut ControlFrame) -> Sent {
    let Rows { progress, vcs, .. } = rows;
    let vc = &mut vcs[frame.vc as usize];
    let (mut header, mut credit) = (frame.what.header(), Credit::NONE);
    // Credit must not be lost, and the link of a call may turn out not to be used.
    let is_call = matches!(frame.what, Control::Call(_) | Control::Accept(_));
    if endpoint.piggybacks && !frame.what.is_grant() && !is_call {
        (header, credit) = header.with_credit(due(progress, vc, frame.vc, true));
    }
    if let Some(states) = endpoint.rows {
        frame.state.get_or_insert_with(states.fresh);
    }
    let state = frame.state.as_deref_mut().map(|state| state as &mut dyn Any);
    let sent = endpoint.transport.get().send(vc.link, &header, &NoBytes, state);
    if sent == Sent::Done {
        granted(progress, vc, credit);
        progress.work.sent += 1;
    }
    sent
}

/// Sends the first frame of a row at once, if no other frame is queued before it. `false` leaves the row to the queues.
///
/// Endpoints whose frames leave by [`post`](crate::tick::post::post) alone always return `false`.
///
/// # Safety
/// The bytes of the row are there.
#[expect(unsafe_code, reason = "bytes that are addresses")]
pub unsafe fn send_now(rows: &mut Rows<'_>, endpoint: &mut Endpoint, vc_row: Row, row: Row) -> bool {
    let Rows { progress, cars, large, vcs, row_states, .. } = rows;
    let vc = &mut vcs[vc_row as usize];
    let is_send = cars[row as usize].kind == CarKind::Send;
    let kept_back = if is_send { !vc.sends.is_empty() } else { !progress.replies.is_empty() };
    if vc.state != VcState::Connected || kept_back || endpoint.by_post {
        return false;
    }
    if is_send {
        let Some(way) = choose(cars, large, vc, endpoint, row) else { return false };
        if way == Way::Parts {
            return false;
        }
        large[row as usize].way = way;
    }
    let header = head(cars, large, vc.link, endpoint, row);
    let state = state_of(row_states, endpoint, &mut cars[row as usize], row);
    let first = FirstFrame { cars, row, in_parts: in_parts(cars, large, row), link: vc.link, header: &header };
    // After a failed link, the queue sends the frame again and reports the failure.
    if first.send(endpoint, vc.proc, state) != Sent::Done {
        return false;
    }
    if is_send {
        let Large { length, way, .. } = large[row as usize];
        spend(progress, vc, endpoint, &cars[row as usize], way, length);
    }
    progress.moved.post += header.message_bytes();
    has_gone(rows, row);
    true
}

/// Ends a send that [`send_now`] has sent as a whole, if no other CAR waits for Complete, and Complete has nothing to do for this one. Not
/// to be called where systems of the application may look at the rows before Complete does.
#[inline]
pub fn end_sent(rows: &mut Rows<'_>, row: Row) {
    if (rows.progress.finished.head, rows.progress.finished.tail) == (row, row) {
        end_awaited(rows);
    }
}

/// Offers a message in one run that its receiver will read out of memory. The offer leaves at once if no other message is queued before it.
/// Returns the row of the request, or [`NIL`] if the caller must use the queues.
///
/// # Safety
/// The bytes outlive the operation: until its request is done, or its CARs have them no more.
#[expect(unsafe_code, reason = "bytes that are addresses")]
#[inline(always)]
pub unsafe fn offer_now(tables: Tables<'_>, envelope: &Envelope, comm: u32, run: Span) -> Row {
    let Tables { progress, procs, cars, large, requests, communicators, endpoints, vcs, .. } = tables;
    let vc_row = procs.known[envelope.proc as usize].row;
    let Some(vc) = vcs.get_mut(vc_row as usize) else { return NIL };
    let endpoint = &mut endpoints[vc.endpoint as usize];
    let length = envelope.length;
    let is_read = endpoint.protocol(length, endpoint.place(length, run), false) == Protocol::Read;
    let is_next = vc.state == VcState::Connected && vc.sends.is_empty();
    if !is_read || !is_next || !endpoint.plain || communicators[Communicator::row(comm)].priority != 0 {
        return NIL;
    }
    if vc.envelopes == 0 {
        collect(vc, endpoint);
        if vc.envelopes == 0 {
            return NIL;
        }
    }
    let car = Car { state: CarState::Offered, ..send_car(envelope, vc_row, 0) };
    // SAFETY: by the same contract.
    let taken = unsafe { take_rows(progress, cars, requests, &Payload::new(&[run]), car) };
    let Some(row) = taken else { return NIL };
    large[row as usize] = Large { way: Way::Offered, ..Large::of(length) };
    let header = Header::offer(envelope.context, envelope.source, envelope.tag, row, length).with_flags(wire::READABLE);
    let sent = match endpoint.aside {
        Aside::Noted => send_offer_noted(vc, endpoint, header, run),
        _ => endpoint.transport.get().send_inline(vc.link, header, &Offer::of(run)),
    };
    if sent == Sent::Done {
        // SAFETY: the bytes of a posted send are there until it ends. It does not end before its peer has answered, which is
        // when they are withdrawn, or before its link is closed.
        unsafe { endpoint.transport.get().expose(vc.link, run) };
        vc.envelopes -= 1;
        progress.work.sent += 1;
    } else {
        cars[row as usize].state = CarState::Queued;
        queue_send(progress, cars, large, vcs, row, length);
    }
    row
}

#[cold]
#[inline(never)]
fn send_offer_noted(vc: &Vc, endpoint: &mut Endpoint, header: Header, run: Span) -> Sent {
    let link = vc.link;
    endpoint.send_noted(vc.proc, &header, |transport| transport.send_inline(link, header, &Offer::of(run)))
}

/// Decides how an envelope leaves. `None` if there is no credit for it.
pub(crate) fn choose(cars: &[Car], large: &[Large], vc: &mut Vc, endpoint: &mut Endpoint, row: Row) -> Option<Way> {
    let (length, flags) = (large[row as usize].length, cars[row as usize].flags);
    let protocol = preferred(cars, large, vc, endpoint, row);
    if matches!(protocol, Protocol::Eager | Protocol::Parts) {
        if vc.lines < cost(length) {
            collect(vc, endpoint);
        }
        if vc.lines >= cost(length) {
            return Some(match protocol {
                _ if flags & car_flags::ASKING != 0 => Way::Synchronous,
                Protocol::Eager => Way::Eager,
                _ => Way::Parts,
            });
        }
    }
    if vc.envelopes == 0 {
        collect(vc, endpoint);
    }
    (vc.envelopes > 0).then_some(Way::Offered)
}

/// Whether there is no credit for an envelope, so that it waits.
pub fn lacks_credit(cars: &[Car], large: &[Large], vc: &Vc, endpoint: &mut Endpoint, row: Row) -> bool {
    let is_offered = !matches!(preferred(cars, large, vc, endpoint, row), Protocol::Eager | Protocol::Parts);
    vc.envelopes == 0 && (is_offered || vc.lines < cost(large[row as usize].length))
}

/// The protocol by which a message goes if there is credit for it.
#[inline(always)]
fn preferred(cars: &[Car], large: &[Large], vc: &Vc, endpoint: &mut Endpoint, row: Row) -> Protocol {
    let (length, flags) = (large[row as usize].length, cars[row as usize].flags);
    let place = match place_of(&cars[row as usize], endpoint, length) {
        // Without envelope credit it cannot be offered now, so it goes as if it were not mapped.
        Place::Mapped if vc.envelopes == 0 => Place::Run,
        place => place,
    };
    // A transport that matches by itself reports when a receive has been paired. So a short synchronous message goes eagerly, and its
    // header goes with it as payload.
    let tells = endpoint.matches && flags & car_flags::SYNCHRONOUS != 0;
    let asks = flags & car_flags::ASKING & if tells { !car_flags::SYNCHRONOUS } else { !0 } != 0;
    let header = if tells { wire::HEADER_BYTES as u64 } else { 0 };
    let offered = asks || length != capacity(cars, row);
    match endpoint.protocol(length + header, place, offered) {
        // This connection's frames are too short for the message.
        Protocol::Eager if endpoint.fits(vc.link, length) < length => match place {
            Place::Runs => Protocol::Pieces,
            _ => Protocol::Parts,
        },
        protocol => protocol,
    }
}

/// Where the bytes of an envelope's message are.
#[inline(always)]
pub(crate) fn place_of(car: &Car, endpoint: &Endpoint, length: u64) -> Place {
    if car.chain != NIL {
        return Place::Runs;
    }
    // A message that is only a part of its run is never read from mapped memory.
    if length == car.span.len() as u64 { endpoint.place(length, car.span) } else { Place::Run }
}

/// Takes the cost of an envelope off the VC's credit.
pub(crate) fn spend(progress: &mut Progress, vc: &mut Vc, endpoint: &Endpoint, car: &Car, way: Way, length: u64) {
    match way {
        Way::Eager | Way::Parts | Way::Synchronous => vc.lines -= cost(length),
        _ => {
            vc.envelopes -= 1;
            if endpoint.matches && context::plane(car.context) == context::USER {
                gave(progress, car.vc);
            }
        }
    }
}

/// The header of a row's first frame, made from the tables.
#[inline]
pub(crate) fn head(cars: &[Car], large: &[Large], link: u32, endpoint: &mut Endpoint, row: Row) -> Header {
    let car = &cars[row as usize];
    let Large { length, wanted, peer, body, way, .. } = large[row as usize];
    let Car { context, source, tag, .. } = *car;
    match (car.kind, body) {
        (CarKind::Receive, Body::Readable { .. }) => return Header::done(context, row, peer),
        (CarKind::Receive, Body::Moving { turn }) => return Header::clear_to_move(context, turn, row, peer, wanted),
        (CarKind::Receive, Body::Passing) if car.flags & car_flags::ASKED != 0 => {
            return Header::clear_to_send_more(context, row, peer, wanted);
        }
        (CarKind::Receive, _) => return Header::clear_to_send(context, row, peer, wanted),
        _ => {}
    }
    match way {
        Way::Eager => return Header::eager(context, source, tag, length),
        Way::Synchronous => {
            return Header::synchronous(context, source, tag, row, length).with_priority(car.priority);
        }
        Way::Parts => {
            let part = endpoint.fits(link, (length - car.done).min(endpoint.part_bytes));
            return match car.done {
                // The connection has more room now than when the way was decided.
                0 if part == length => Header::eager(context, source, tag, length),
                0 => Header::head(context, source, tag, part as u32, length),
                _ => Header::part(context, part),
            };
        }
        Way::Offered | Way::Undecided => {}
    }
    let mut flags = if car.flags & car_flags::READY != 0 { wire::READY } else { 0 };
    if car.chain == NIL && length == car.span.len() as u64 {
        let protocol = endpoint.protocol(length, place_of(car, endpoint, length), true);
        flags |= if protocol == Protocol::Read { wire::READABLE } else { wire::DIRECT };
    }
    Header::offer(context, source, tag, row, length).with_flags(flags).with_priority(car.priority)
}

/// The first frame of a row, or a part of a message.
struct FirstFrame<'a> {
    cars: &'a [Car],
    row: Row,
    /// Whether it is a message in parts.
    in_parts: bool,
    link: u32,
    header: &'a Header,
}

impl FirstFrame<'_> {
    /// Gives it to the endpoint's transport.
    #[inline]
    fn send(&self, endpoint: &mut Endpoint, proc: u32, state: Option<&mut dyn Any>) -> Sent {
        match endpoint.aside {
            Aside::Noted => self.send_noted(endpoint, proc, state),
            _ => self.send_by(endpoint.transport.get(), state),
        }
    }

    #[cold]
    #[inline(never)]
    fn send_noted(&self, endpoint: &mut Endpoint, proc: u32, state: Option<&mut dyn Any>) -> Sent {
        endpoint.send_noted(proc, self.header, |transport| self.send_by(transport, state))
    }

    #[inline]
    fn send_by(&self, transport: &mut AnyTransport, state: Option<&mut dyn Any>) -> Sent {
        let FirstFrame { cars, row, in_parts, link, header } = *self;
        let car = &cars[row as usize];
        if in_parts {
            let part = car.span.part(car.done as usize, header.payload() as usize);
            // SAFETY: the bytes of a posted send are there until it ends.
            #[expect(unsafe_code, reason = "bytes that are addresses")]
            let part = unsafe { Payload::new(std::slice::from_ref(&part)) };
            return transport.send(link, header, &part, state);
        }
        if header.flags() & wire::READABLE == 0 {
            return transport.send(link, header, &Chain { cars, row }, state);
        }
        let sent = transport.send(link, header, &Offer::of(car.span), state);
        if sent == Sent::Done {
            // SAFETY: as in `offer_now`.
            #[expect(unsafe_code, reason = "bytes that are addresses")]
            unsafe {
                transport.expose(link, car.span);
            }
        }
        sent
    }
}

/// Updates a row whose first frame has left its queue.
#[inline]
pub(crate) fn has_gone(rows: &mut Rows<'_>, row: Row) {
    rows.progress.work.sent += 1;
    let car = &mut rows.cars[row as usize];
    let message = rows.large[row as usize];
    let Large { length, wanted, body, way, .. } = message;
    match (car.kind, body) {
        (CarKind::Receive, Body::Readable { .. }) => {}
        (CarKind::Receive, Body::Moving { .. }) => return car.state = CarState::Direct,
        (CarKind::Receive, _) if wanted == 0 => {}
        (CarKind::Receive, Body::AtSender) => return car.state = CarState::Receiving,
        (CarKind::Receive, _) => return asked(rows, row),
        _ if matches!(way, Way::Eager | Way::Parts) => {}
        _ => return car.state = CarState::Offered,
    }
    car.done = length;
    car.state = CarState::Finished;
    rows.progress.finished.push(&mut rows.cars, row);
    rows.progress.pending |= Pending::COMPLETE;
}

/// Counts what a frame of a message in parts has brought. `true` if more parts follow.
pub(crate) fn parts_follow(cars: &mut [Car], large: &[Large], header: &Header, row: Row) -> bool {
    if !in_parts(cars, large, row) {
        return false;
    }
    let car = &mut cars[row as usize];
    car.done += header.payload();
    car.done < large[row as usize].length
}

/// Whether a row is a send that leaves in parts.
#[inline]
fn in_parts(cars: &[Car], large: &[Large], row: Row) -> bool {
    large[row as usize].way == Way::Parts && cars[row as usize].kind == CarKind::Send
}
