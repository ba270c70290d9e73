//! Posting: how an operation gets into the tables. Used by the application's calls and by Post for other threads.

use crate::communicators::live;
use crate::endpoint::Endpoint;
use tickwire_components::limits::{ANY, MESSAGE_MAX, TAG_MAX};
use tickwire_components::wire::{Header, Kind};
use tickwire_components::{
    Car, CarKind, CarState, Communicator, Large, NIL, Pending, Pieces, PostError, Progress, Request, RequestState, Row,
    Span, Vc, VcState, car_flags,
};
use tickwire_transports::Sent;

/// The checked envelope of an operation.
#[derive(Clone, Copy, Debug)]
pub struct Envelope {
    /// Context word.
    pub context: u32,
    /// Send: own rank. Receive: rank of the source or [`ANY`].
    pub source: u32,
    /// Tag or [`ANY`].
    pub tag: u32,
    /// Proc of the peer; [`NIL`] for a receive from any source.
    pub proc: u32,
    /// Send: bytes of the message.
    pub length: u64,
}

/// Checks the arguments of a send.
///
/// # Errors
/// Names the argument that is wrong and what it may be.
#[inline]
pub fn check_send(
    comms: &[Communicator],
    comm: u32,
    rank: u32,
    tag: u32,
    length: usize,
) -> Result<Envelope, PostError> {
    let communicator = live(comms, comm)?;
    let Some(proc) = communicator.proc(rank) else {
        return Err(PostError::Rank { rank, last: communicator.size - 1 });
    };
    if tag > TAG_MAX {
        return Err(PostError::Tag { tag });
    }
    let length = length as u64;
    if length > MESSAGE_MAX {
        return Err(PostError::Length { length, most: MESSAGE_MAX });
    }
    Ok(Envelope { context: communicator.context, source: communicator.rank, tag, proc, length })
}

/// Checks the arguments of a receive; [`ANY`] stands for any rank and any tag.
///
/// # Errors
/// Names the argument that is wrong and what it may be.
#[inline]
pub fn check_receive(comms: &[Communicator], comm: u32, rank: u32, tag: u32) -> Result<Envelope, PostError> {
    let communicator = live(comms, comm)?;
    let proc = match rank {
        ANY if communicator.no_wildcard => return Err(PostError::Wildcard(comm)),
        ANY => NIL,
        _ => match communicator.proc(rank) {
            Some(proc) => proc,
            None => return Err(PostError::Rank { rank, last: communicator.size - 1 }),
        },
    };
    if tag > TAG_MAX && (tag != ANY || communicator.no_wildcard) {
        return Err(if tag == ANY { PostError::Wildcard(comm) } else { PostError::Tag { tag } });
    }
    Ok(Envelope { context: communicator.context, source: rank, tag, proc, length: 0 })
}

/// Sends an eager message at once if nothing is before it: no CAR, no request. `true` if it has gone.
#[inline]
pub fn send_inline<P: Pieces + ?Sized>(
    progress: &mut Progress,
    vc: &Vc,
    endpoint: &mut Endpoint,
    envelope: &Envelope,
    pieces: &P,
) -> bool {
    if vc.state != VcState::Connected || !vc.sends.is_empty() || envelope.length >= endpoint.inline_end {
        return false;
    }
    let header = Header::new(Kind::Eager, envelope.context, envelope.source, envelope.tag, 0, envelope.length);
    if endpoint.transport.get().send(vc.link, &header, pieces, None) != Sent::Done {
        return false;
    }
    progress.work.posted += 1;
    progress.work.sent += 1;
    true
}

/// Takes the rows of an operation: a request, its envelope CAR, and one data CAR a piece where there are several.
///
/// Returns (request, CAR), or `None` if rows are short; nothing is taken then.
#[inline]
pub fn take_rows<P: Pieces + ?Sized>(
    progress: &mut Progress,
    cars: &mut [Car],
    requests: &mut [Request],
    pieces: &P,
) -> Option<(Row, Row)> {
    if pieces.pieces() != 1 {
        return take_many_rows(progress, cars, requests, pieces);
    }
    let (request, row) = (progress.free_requests.head, progress.free_cars.head);
    let entry = requests.get_mut(request as usize)?;
    let car = cars.get_mut(row as usize)?;
    progress.free_requests.head = entry.next;
    progress.free_requests.count -= 1;
    progress.free_cars.head = car.next;
    progress.free_cars.count -= 1;
    *car = Car { span: pieces.piece(0), request, ..Car::default() };
    *entry =
        Request { generation: entry.generation, counter: 1, car: row, state: RequestState::Active, ..Request::FREE };
    progress.active += 1;
    progress.work.posted += 1;
    Some((request, row))
}

#[cold]
#[inline(never)]
fn take_many_rows<P: Pieces + ?Sized>(
    progress: &mut Progress,
    cars: &mut [Car],
    requests: &mut [Request],
    pieces: &P,
) -> Option<(Row, Row)> {
    let count = pieces.pieces();
    let needed = if count > 1 { count as u32 + 1 } else { 1 };
    if progress.free_cars.count < needed || progress.free_requests.count == 0 {
        return None;
    }
    let request = progress.free_requests.pop(requests)?;
    let row = progress.free_cars.pop(cars)?;
    let (mut chain, mut span) = (NIL, Span::EMPTY);
    match count {
        0 => {}
        1 => span = pieces.piece(0),
        _ => {
            for index in (0..count).rev() {
                let data = progress.free_cars.pop(cars)?;
                let (kind, state) = (CarKind::Data, CarState::Chained);
                cars[data as usize] = Car { kind, state, chain, request, span: pieces.piece(index), ..Car::default() };
                chain = data;
            }
        }
    }
    let car = &mut cars[row as usize];
    car.chain = chain;
    car.span = span;
    car.request = request;
    car.done = 0;
    car.flags = 0;
    car.next = NIL;
    car.peer = NIL;
    let entry = &mut requests[request as usize];
    entry.counter = if count > 1 { count as u32 } else { 1 };
    entry.car = row;
    entry.state = RequestState::Active;
    entry.flags = 0;
    entry.scoped = false;
    entry.disturbed = false;
    entry.submission = NIL;
    progress.active += 1;
    progress.work.posted += 1;
    Some((request, row))
}

/// Puts a send with rows of its own into its VC's queue.
#[inline]
pub fn queue_send(
    progress: &mut Progress,
    cars: &mut [Car],
    large: &mut [Large],
    vcs: &mut [Vc],
    row: Row,
    vc_row: Row,
    envelope: &Envelope,
) {
    let car = &mut cars[row as usize];
    car.kind = CarKind::Send;
    car.state = CarState::Queued;
    car.context = envelope.context;
    car.source = envelope.source;
    car.tag = envelope.tag;
    car.vc = vc_row;
    large[row as usize] = Large { length: envelope.length, wanted: envelope.length };
    let vc = &mut vcs[vc_row as usize];
    vc.outstanding += 1;
    vc.sends.push(cars, row);
    if vc.state == VcState::Connected {
        list_sender(progress, vcs, vc_row);
    }
}

/// Posts a receive with rows of its own; `vc_row` is [`NIL`] for any source.
#[inline]
pub fn queue_receive(
    progress: &mut Progress,
    cars: &mut [Car],
    vcs: &mut [Vc],
    row: Row,
    vc_row: Row,
    envelope: &Envelope,
) {
    let car = &mut cars[row as usize];
    car.kind = CarKind::Receive;
    car.context = envelope.context;
    car.source = envelope.source;
    car.tag = envelope.tag;
    car.vc = vc_row;
    if vc_row == NIL {
        car.flags = car_flags::ANY_SOURCE;
    } else {
        vcs[vc_row as usize].outstanding += 1;
    }
    if progress.unexpected.count == 0 && progress.staged.is_empty() {
        crate::match_cars::enqueue(progress, cars, vcs, row);
    } else {
        car.state = CarState::Staged;
        progress.staged.push(cars, row);
        progress.pending |= Pending::MATCH;
    }
}

/// Notes that a VC has something to send.
#[inline]
pub fn list_sender(progress: &mut Progress, vcs: &mut [Vc], vc_row: Row) {
    if !vcs[vc_row as usize].listed {
        vcs[vc_row as usize].listed = true;
        progress.senders.push(vcs, vc_row);
    }
    progress.pending |= Pending::POST | Pending::TRANSFER;
}
