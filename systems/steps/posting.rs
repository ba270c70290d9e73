//! Posting: how an operation gets into the tables. Used by the application's calls and by Post for other threads.

use crate::procs::communicators::{alive, live};
use crate::procs::endpoint::Endpoint;
use crate::procs::priorities::insert_send;
use crate::protocols::credit::feed;
use crate::steps::matching::{enqueue, key};
use std::fmt::Debug;
use std::sync::Arc;
use tickwire_components::credit::cost;
use tickwire_components::limits::{ANY, MESSAGE_MAX, RUN_ROWS_MAX, TAG_MAX};
use tickwire_components::submission::Operation;
use tickwire_components::wire::{Header, Kind};
use tickwire_components::{
    Car, CarKind, CarState, Communicator, Large, NIL, Pending, Pieces, PostError, Progress, Rank, Request,
    RequestState, Row, Segment, Source, Span, Stretch, TagFilter, Vc, VcState, car_flags,
};
use tickwire_transports::Sent;

/// The checked envelope of an operation.
// In this order: context and source, which make one word of a header, would as neighbours be read as one just after they
// were written as two, and that waits until both have left the store buffer.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Envelope {
    /// Context word.
    pub context: u32,
    /// Tag or [`ANY`].
    pub tag: u32,
    /// Send: own rank. Receive: rank of the source or [`ANY`].
    pub source: u32,
    /// Proc of the peer; [`NIL`] for a receive from any source.
    pub proc: u32,
    /// Send: bytes of the message.
    pub length: u64,
}

/// Checks the arguments of a send.
///
/// # Errors
/// Names the argument that is wrong and what it may be.
pub fn check_send(
    comms: &[Communicator],
    comm: u32,
    rank: u32,
    tag: u32,
    length: usize,
) -> Result<Envelope, PostError> {
    if let Some(envelope) = send_envelope(comms, comm, rank, tag, length) {
        return Ok(envelope);
    }
    let communicator = live(comms, comm)?;
    if communicator.proc(rank).is_none() {
        return Err(PostError::Rank { rank, last: communicator.size - 1 });
    }
    if tag > communicator.tag_max {
        return Err(tag_error(communicator, tag));
    }
    Err(PostError::Length { length: length as u64, most: MESSAGE_MAX })
}

/// As [`check_send`], without saying what is wrong.
#[inline(always)]
pub fn send_envelope(comms: &[Communicator], comm: u32, rank: u32, tag: u32, length: usize) -> Option<Envelope> {
    let communicator = alive(comms, comm)?;
    let proc = communicator.proc(rank)?;
    let length = length as u64;
    let envelope = Envelope { context: communicator.context, source: communicator.rank, tag, proc, length };
    (tag <= communicator.tag_max && length <= MESSAGE_MAX).then_some(envelope)
}

/// Checks the arguments of a receive.
///
/// # Errors
/// Names the argument that is wrong and what it may be.
pub fn check_receive(comms: &[Communicator], comm: u32, source: Source, tag: TagFilter) -> Result<Envelope, PostError> {
    if let Some(envelope) = receive_envelope(comms, comm, source.number(), tag.number()) {
        return Ok(envelope);
    }
    let communicator = live(comms, comm)?;
    if let Source::Rank(rank) = source
        && communicator.proc(rank).is_none()
    {
        return Err(PostError::Rank { rank, last: communicator.size - 1 });
    }
    Err(match tag {
        TagFilter::Tag(tag) if tag > communicator.tag_max => tag_error(communicator, tag),
        _ => PostError::Wildcard(comm),
    })
}

/// Checks the arguments of a send to [`Rank::NULL`], which moves nothing.
///
/// # Errors
/// Names the argument that is wrong and what it may be.
pub fn check_null_send(comms: &[Communicator], comm: u32, tag: u32) -> Result<(), PostError> {
    check_send(comms, comm, live(comms, comm)?.rank, tag, 0).map(drop)
}

/// Checks the arguments of a receive from [`Rank::NULL`], or of a probe, which finds nothing.
///
/// # Errors
/// Names the argument that is wrong and what it may be.
pub fn check_null_receive(comms: &[Communicator], comm: u32, tag: TagFilter) -> Result<(), PostError> {
    check_receive(comms, comm, Source::Rank(live(comms, comm)?.rank), tag).map(drop)
}

/// Checks the arguments of an operation: its envelope, or `None` if it is with no proc. `length` is that of a send, bytes.
///
/// # Errors
/// Names the argument that is wrong and what it may be.
pub fn check_operation(
    comms: &[Communicator],
    comm: u32,
    operation: Operation,
    length: usize,
) -> Result<Option<Envelope>, PostError> {
    let null = Source::from(Rank::NULL);
    match operation {
        Operation::Send { to: Rank::NULL, tag } => check_null_send(comms, comm, tag.0).map(|()| None),
        Operation::Send { to, tag } => check_send(comms, comm, to.0, tag.0, length).map(Some),
        Operation::Receive { source, tag } if source == null => check_null_receive(comms, comm, tag).map(|()| None),
        Operation::Receive { source, tag } => check_receive(comms, comm, source, tag).map(Some),
    }
}

#[cold]
pub(crate) fn tag_error(communicator: &Communicator, tag: u32) -> PostError {
    if tag > TAG_MAX { PostError::Tag { tag } } else { PostError::TagMode { tag, most: communicator.tag_max } }
}

/// As [`check_receive`], without saying what is wrong; [`ANY`] stands for any rank and any tag.
#[inline(always)]
pub fn receive_envelope(comms: &[Communicator], comm: u32, rank: u32, tag: u32) -> Option<Envelope> {
    if rank != ANY {
        return directed_envelope(comms, comm, rank, tag);
    }
    let communicator = alive(comms, comm)?;
    let envelope = Envelope { context: communicator.context, source: ANY, tag, proc: NIL, length: 0 };
    (!communicator.no_wildcard && (tag <= communicator.tag_max || tag == ANY)).then_some(envelope)
}

/// As [`receive_envelope`], from one rank: [`ANY`] is none.
#[inline(always)]
pub fn directed_envelope(comms: &[Communicator], comm: u32, rank: u32, tag: u32) -> Option<Envelope> {
    let communicator = alive(comms, comm)?;
    let proc = communicator.proc(rank)?;
    let envelope = Envelope { context: communicator.context, source: rank, tag, proc, length: 0 };
    (tag <= communicator.tag_max || (tag == ANY && !communicator.no_wildcard)).then_some(envelope)
}

/// Sends an eager message at once if nothing is before it: no CAR, no request; `PROMPT` as the endpoint is. `true` if it has
/// gone.
// Not inlined, and one for each kind of endpoint: its callers decide with less in their hands, and those that go elsewhere save
// nothing on a stack.
#[inline(never)]
pub fn send_inline<const PROMPT: bool, P: Pieces + ?Sized>(
    progress: &mut Progress,
    vc: &mut Vc,
    endpoint: &mut Endpoint,
    envelope: &Envelope,
    pieces: &P,
) -> bool {
    if envelope.length >= endpoint.inline_end_mapped && !is_inline(endpoint, envelope.length, pieces) {
        return false;
    }
    send_eager::<PROMPT, P>(progress, vc, endpoint, envelope, pieces)
}

/// As [`send_inline`], also of what its receiver has mapped: the bytes are the application's when this returns.
pub fn send_copied<P: Pieces + ?Sized>(
    progress: &mut Progress,
    vc: &mut Vc,
    endpoint: &mut Endpoint,
    envelope: &Envelope,
    pieces: &P,
) -> bool {
    match endpoint.prompt {
        _ if envelope.length >= endpoint.inline_end => false,
        true => send_eager::<true, P>(progress, vc, endpoint, envelope, pieces),
        false => send_eager::<false, P>(progress, vc, endpoint, envelope, pieces),
    }
}

/// A message that is short enough goes at once if nothing is before it and there is credit for it.
#[inline(always)]
pub(crate) fn send_eager<const PROMPT: bool, P: Pieces + ?Sized>(
    progress: &mut Progress,
    vc: &mut Vc,
    endpoint: &mut Endpoint,
    envelope: &Envelope,
    pieces: &P,
) -> bool {
    let cost = cost(envelope.length);
    if vc.state != VcState::Connected || !vc.sends.is_empty() || vc.lines < cost {
        return false;
    }
    let header = Header::new(Kind::Eager, envelope.context, envelope.source, envelope.tag, 0, envelope.length);
    let transport = endpoint.transport.get();
    let sent = match PROMPT {
        true => transport.send_promptly(vc.link, header, pieces),
        false => transport.send_inline(vc.link, header, pieces),
    };
    if sent != Sent::Done {
        return false;
    }
    vc.lines -= cost;
    progress.moved.post += envelope.length;
    progress.work.posted += 1;
    progress.work.sent += 1;
    true
}

/// Whether what is longer than the shortest mapped message goes without a CAR all the same.
#[cold]
pub(crate) fn is_inline<P: Pieces + ?Sized>(endpoint: &Endpoint, length: u64, pieces: &P) -> bool {
    let is_run = pieces.pieces() == 1 && pieces.layout().is_none();
    length < endpoint.inline_end && !(is_run && endpoint.is_mapped(length, pieces.piece(0)))
}

/// Posts a receive from one proc if nothing that has arrived can be for it: a row, and the end of its VC's queue. [`NIL`] if
/// it is not so.
///
/// # Safety
/// The bytes outlive the operation: until its request is done, or its CARs have them no more.
#[expect(unsafe_code, reason = "bytes that are addresses")]
#[inline(always)]
pub unsafe fn receive_inline<P: Pieces>(
    progress: &mut Progress,
    cars: &mut [Car],
    requests: &mut [Request],
    vcs: &mut [Vc],
    vc_row: Row,
    envelope: &Envelope,
    pieces: &P,
) -> Row {
    let Some(vc) = vcs.get_mut(vc_row as usize) else { return NIL };
    if vc.state != VcState::Connected || !nothing_waits(progress) || progress.posting != 0 {
        return NIL;
    }
    let car = Car { flags: 0, ..receive_car(progress, envelope, vc_row) };
    // SAFETY: by the same contract.
    let Some(row) = (unsafe { take_rows(progress, cars, requests, pieces, car) }) else { return NIL };
    vc.posted.push(cars, row);
    row
}

/// Whether nothing has arrived that is not matched, nobody has to be fed, and Match has seen all: what it has not seen came
/// before any receive of now.
#[inline(always)]
pub(crate) fn nothing_waits(progress: &Progress) -> bool {
    progress.arrivals == 0
        && progress.new_receives.is_empty()
        && progress.unexpected.count | progress.starved_peers == 0
}

/// Takes the row of an operation, for its request and its envelope CAR, and one data CAR a piece where there are several, or one
/// in all for a layout and for more than [`RUN_ROWS_MAX`] pieces.
///
/// `car` is what the envelope CAR becomes, but for its span and links. `None` if rows are short; nothing is taken then.
///
/// # Safety
/// The bytes outlive the operation: until its request is done, or its CARs have them no more.
#[expect(unsafe_code, reason = "bytes that are addresses")]
#[inline(always)]
pub unsafe fn take_rows<P: Pieces + ?Sized>(
    progress: &mut Progress,
    cars: &mut [Car],
    requests: &mut [Request],
    pieces: &P,
    car: Car,
) -> Option<Row> {
    if pieces.pieces() != 1 {
        // SAFETY: by the same contract.
        return unsafe { take_many_rows(progress, cars, requests, pieces, car) };
    }
    let row = progress.free_cars.head;
    let entry = requests.get_mut(row as usize)?;
    let place = cars.get_mut(row as usize)?;
    progress.free_cars.head = place.next;
    progress.free_cars.count -= 1;
    *place = Car { span: pieces.piece(0), request: row, ..car };
    *entry = Request { generation: entry.generation, counter: 1, state: RequestState::Active, ..Request::FREE };
    progress.active += 1;
    progress.work.posted += 1;
    let stamp = progress.stamp();
    progress.stamps.set(row, stamp);
    Some(row)
}

/// How many rows an operation takes.
pub fn rows_of<P: Pieces + ?Sized>(pieces: &P) -> usize {
    match pieces.pieces() {
        1 => 1,
        count if count > RUN_ROWS_MAX => 2,
        count => count.max(1) + 1,
    }
}

/// # Safety
/// As [`take_rows`].
#[expect(unsafe_code, reason = "bytes that are addresses")]
#[cold]
#[inline(never)]
pub(crate) unsafe fn take_many_rows<P: Pieces + ?Sized>(
    progress: &mut Progress,
    cars: &mut [Car],
    requests: &mut [Request],
    pieces: &P,
    car: Car,
) -> Option<Row> {
    if (progress.free_cars.count as usize) < rows_of(pieces) {
        return None;
    }
    let row = progress.free_cars.pop(cars)?;
    // SAFETY: by the same contract.
    unsafe { activate(progress, cars, requests, pieces, car, row) }.then_some(row)
}

/// Makes the row of a request that is not active an operation, as [`take_rows`] does with a free one. `false` if rows for
/// its data CARs are short.
///
/// # Safety
/// The bytes outlive the operation: until its request is done, or its CARs have them no more.
#[expect(unsafe_code, reason = "bytes that are addresses")]
pub unsafe fn activate<P: Pieces + ?Sized>(
    progress: &mut Progress,
    cars: &mut [Car],
    requests: &mut [Request],
    pieces: &P,
    car: Car,
    row: Row,
) -> bool {
    let mut count = pieces.pieces() as u32;
    let (mut chain, mut span) = (NIL, Span::EMPTY);
    let is_list = pieces.pieces() > RUN_ROWS_MAX;
    if is_list || pieces.layout().is_some() {
        let Some(data) = progress.free_cars.pop(cars) else { return false };
        let layout = match pieces.layout() {
            Some(layout) => layout,
            None => {
                // SAFETY: by this function's contract; the list is there as long as the data CAR.
                let list = Arc::new(unsafe { Segment::of_runs(pieces) });
                // SAFETY: as above.
                let stretch = unsafe { list.stretch() };
                progress.run_lists.push((data, list));
                stretch
            }
        };
        let (kind, state, span) = (CarKind::Layout, CarState::Chained, layout.as_span());
        cars[data as usize] = Car { kind, state, request: row, span, ..Car::default() };
        (chain, count) = (data, 1);
    } else if count == 1 {
        span = pieces.piece(0);
    } else if progress.free_cars.count < count {
        return false;
    } else {
        for index in (0..count).rev() {
            let Some(data) = progress.free_cars.pop(cars) else { return false };
            let (kind, state, span) = (CarKind::Data, CarState::Chained, pieces.piece(index as usize));
            cars[data as usize] = Car { kind, state, chain, request: row, span, ..Car::default() };
            chain = data;
        }
    }
    cars[row as usize] = Car { chain, span, request: row, ..car };
    let entry = &mut requests[row as usize];
    let (generation, counter) = (entry.generation, count.max(1));
    *entry = Request { generation, counter, state: RequestState::Active, ..Request::FREE };
    progress.active += 1;
    progress.work.posted += 1;
    let stamp = progress.stamp();
    progress.stamps.set(row, stamp);
    true
}

/// The bytes of an envelope CAR that has a datatype's layout under it, and no runs.
#[inline]
pub fn layout(cars: &[Car], row: Row) -> Option<Stretch> {
    cars.get(cars[row as usize].chain as usize)?.stretch()
}

/// The envelope CAR of a send over a VC; `flags` say its mode.
#[inline(always)]
pub fn send_car(envelope: &Envelope, vc_row: Row, flags: u8) -> Car {
    let Envelope { context, source, tag, .. } = *envelope;
    Car { kind: CarKind::Send, state: CarState::Queued, context, source, tag, vc: vc_row, flags, ..Car::default() }
}

/// The envelope CAR of a receive; `vc_row` is [`NIL`] for any source.
#[inline(always)]
pub fn receive_car(progress: &Progress, envelope: &Envelope, vc_row: Row) -> Car {
    let Envelope { context, source, tag, .. } = *envelope;
    let flags = if vc_row == NIL { car_flags::ANY_SOURCE } else { 0 };
    let (kind, state, counter) = (CarKind::Receive, CarState::Posted, progress.counter);
    Car { kind, state, context, source, tag, vc: vc_row, flags, counter, ..Car::default() }
}

/// Puts a send with a row of its own into its VC's queue.
#[inline]
pub fn queue_send(
    progress: &mut Progress,
    cars: &mut [Car],
    large: &mut [Large],
    vcs: &mut [Vc],
    row: Row,
    length: u64,
) {
    large[row as usize] = Large::of(length);
    let vc_row = cars[row as usize].vc;
    let vc = &mut vcs[vc_row as usize];
    insert_send(progress, &mut vc.sends, cars, row);
    if vc.state == VcState::Connected {
        list_sender(progress, vcs, vc_row);
    }
}

/// Posts a receive with a row of its own.
#[inline(always)]
pub fn queue_receive(progress: &mut Progress, cars: &mut [Car], vcs: &mut [Vc], row: Row) {
    if nothing_waits(progress) || none_waits(progress, cars, vcs, row) {
        enqueue(progress, cars, vcs, row);
    } else {
        cars[row as usize].state = CarState::New;
        progress.new_receives.push(cars, row);
        progress.pending |= Pending::MATCH;
    }
}

/// Whether no unexpected message is there that a receive takes; peers that cannot send it are fed then.
#[inline(never)]
pub(crate) fn none_waits(progress: &mut Progress, cars: &[Car], vcs: &mut [Vc], row: Row) -> bool {
    if progress.arrivals != 0 || !progress.new_receives.is_empty() {
        return false;
    }
    if !progress.provider.held.is_empty() || progress.unexpected.find(&key(&cars[row as usize])).is_some() {
        return false;
    }
    if progress.starved_peers > 0 {
        feed(progress, vcs, cars[row as usize].vc);
    }
    true
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
