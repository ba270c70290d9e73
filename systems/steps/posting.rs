//! Posting: puts an operation into the tables. Used by the application's calls, and by Post on behalf of other threads.

use crate::procs::endpoint::{Aside, Endpoint, Place};
use crate::procs::priorities::insert_send;
use crate::procs::priorities::list_sender;
use crate::steps::activate::take_rows;
use crate::steps::arguments::Envelope;
use crate::steps::credit::feed;
use crate::steps::matching::enqueue;
use crate::steps::posted::key;
use tickwire_components::credit::cost;
use tickwire_components::wire::Header;
use tickwire_components::{
    Car, CarKind, CarState, Communicator, Large, NIL, Pending, Pieces, PostError, ProcId, ProcTable, Progress,
    Protocol, Request, Row, Vc, VcState, car_flags, context,
};
use tickwire_transports::Sent;

/// How a frame is given to the transport. There is one type for each [`Aside`], so that each is compiled by itself.
pub trait Leaves {
    /// Gives a frame to the transport of a VC.
    fn send<P: Pieces + ?Sized>(vc: &Vc, endpoint: &mut Endpoint, header: Header, pieces: &P) -> Sent;
}

/// For [`Aside::No`].
pub struct Plainly;

/// For [`Aside::Prompt`].
pub struct Promptly;

/// For [`Aside::Noted`].
struct Noted;

impl Leaves for Plainly {
    #[inline(always)]
    fn send<P: Pieces + ?Sized>(vc: &Vc, endpoint: &mut Endpoint, header: Header, pieces: &P) -> Sent {
        endpoint.transport.get().send_inline(vc.link, header, pieces)
    }
}

impl Leaves for Promptly {
    #[inline(always)]
    fn send<P: Pieces + ?Sized>(vc: &Vc, endpoint: &mut Endpoint, header: Header, pieces: &P) -> Sent {
        endpoint.transport.get().send_promptly(vc.link, header, pieces)
    }
}

impl Leaves for Noted {
    #[inline(always)]
    fn send<P: Pieces + ?Sized>(vc: &Vc, endpoint: &mut Endpoint, header: Header, pieces: &P) -> Sent {
        // To an endpoint that is not prompt, this is the same as to send inline.
        endpoint.send_noted(vc.proc, &header, |transport| transport.send_promptly(vc.link, header, pieces))
    }
}

/// Sends an eager message at once, without a CAR or a request, if no other message is queued before it. `true` if it has gone.
#[inline(always)]
pub fn send_inline<L: Leaves, P: Pieces + ?Sized>(
    progress: &mut Progress,
    vc: &mut Vc,
    endpoint: &mut Endpoint,
    envelope: &Envelope,
    pieces: &P,
) -> bool {
    if envelope.length >= endpoint.inline_end_mapped && !is_inline(endpoint, envelope.length, pieces) {
        return false;
    }
    send_eager::<L, P>(progress, vc, endpoint, envelope, pieces)
}

/// [`send_inline`] to an endpoint that is prompt. It is a separate function, so that a send to other endpoints saves fewer registers on the
/// stack.
#[inline(never)]
pub fn send_promptly<P: Pieces + ?Sized>(
    progress: &mut Progress,
    vc: &mut Vc,
    endpoint: &mut Endpoint,
    envelope: &Envelope,
    pieces: &P,
) -> bool {
    send_inline::<Promptly, P>(progress, vc, endpoint, envelope, pieces)
}

/// [`send_inline`] to an endpoint whose messages are noted.
#[cold]
#[inline(never)]
pub fn send_noted<P: Pieces + ?Sized>(
    progress: &mut Progress,
    vc: &mut Vc,
    endpoint: &mut Endpoint,
    envelope: &Envelope,
    pieces: &P,
) -> bool {
    send_inline::<Noted, P>(progress, vc, endpoint, envelope, pieces)
}

/// As [`send_inline`], but copies also bytes that the receiver has mapped. The application may reuse its buffer when this returns.
pub fn send_copied<P: Pieces + ?Sized>(
    progress: &mut Progress,
    vc: &mut Vc,
    endpoint: &mut Endpoint,
    envelope: &Envelope,
    pieces: &P,
) -> bool {
    if envelope.length >= endpoint.inline_end {
        return false;
    }
    let sent = send_whole(progress, vc, endpoint, eager_header(envelope), pieces);
    progress.work.posted += u32::from(sent);
    sent
}

/// Sends a short message eagerly, if no other message is queued before it and there is credit for it.
#[inline(always)]
fn send_eager<L: Leaves, P: Pieces + ?Sized>(
    progress: &mut Progress,
    vc: &mut Vc,
    endpoint: &mut Endpoint,
    envelope: &Envelope,
    pieces: &P,
) -> bool {
    let sent = send_whole_as::<L, P>(progress, vc, endpoint, eager_header(envelope), pieces);
    progress.work.posted += u32::from(sent);
    sent
}

#[inline(always)]
fn eager_header(envelope: &Envelope) -> Header {
    Header::eager(envelope.context, envelope.source, envelope.tag, envelope.length)
}

/// Sends a whole message in one frame, if no other message is queued before it and there is credit for it.
#[inline(always)]
pub(crate) fn send_whole<P: Pieces + ?Sized>(
    progress: &mut Progress,
    vc: &mut Vc,
    endpoint: &mut Endpoint,
    header: Header,
    pieces: &P,
) -> bool {
    match endpoint.aside {
        Aside::No => send_whole_as::<Plainly, P>(progress, vc, endpoint, header, pieces),
        Aside::Prompt => send_whole_as::<Promptly, P>(progress, vc, endpoint, header, pieces),
        Aside::Noted => send_whole_noted(progress, vc, endpoint, header, pieces),
    }
}

#[cold]
#[inline(never)]
fn send_whole_noted<P: Pieces + ?Sized>(
    progress: &mut Progress,
    vc: &mut Vc,
    endpoint: &mut Endpoint,
    header: Header,
    pieces: &P,
) -> bool {
    send_whole_as::<Noted, P>(progress, vc, endpoint, header, pieces)
}

#[inline(always)]
fn send_whole_as<L: Leaves, P: Pieces + ?Sized>(
    progress: &mut Progress,
    vc: &mut Vc,
    endpoint: &mut Endpoint,
    header: Header,
    pieces: &P,
) -> bool {
    let cost = cost(header.length);
    if vc.state != VcState::Connected || !vc.sends.is_empty() || vc.lines < cost {
        return false;
    }
    if L::send(vc, endpoint, header, pieces) != Sent::Done {
        return false;
    }
    vc.lines -= cost;
    progress.moved.post += header.length;
    progress.work.sent += 1;
    true
}

/// Whether a message is sent inline although it is at least as long as the shortest one that may be read from mapped memory.
#[cold]
pub(crate) fn is_inline<P: Pieces + ?Sized>(endpoint: &Endpoint, length: u64, pieces: &P) -> bool {
    let is_run = pieces.pieces() == 1 && pieces.layout().is_none();
    let place = if is_run { endpoint.place(length, pieces.piece(0)) } else { Place::Runs };
    length < endpoint.inline_end && endpoint.protocol(length, place, false) == Protocol::Eager
}

/// Posts a receive from one proc, if nothing that has arrived can match it: takes a row and appends it to the VC's queue. [`NIL`] if that
/// is not possible.
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

/// Whether no message and no peer waits: all arrivals and all new receives have been matched, there are no unexpected messages, and no peer
/// lacks envelope credit. A receive that is posted now may then go straight into the posted queue.
#[inline(always)]
pub(crate) fn nothing_waits(progress: &Progress) -> bool {
    progress.arrivals == 0
        && progress.new_receives.is_empty()
        && progress.unexpected.count | progress.starved_peers == 0
}

/// The envelope CAR of a send over a VC. `flags` say its mode.
#[inline(always)]
pub fn send_car(envelope: &Envelope, vc_row: Row, flags: u16) -> Car {
    let Envelope { context, source, tag, .. } = *envelope;
    Car { kind: CarKind::Send, state: CarState::Queued, context, source, tag, vc: vc_row, flags, ..Car::default() }
}

/// The CAR of a send that is posted with rows of its own. Without a priority of its own it has that of its communicator.
///
/// # Errors
/// If the peer has failed. A receive from it is posted nevertheless, since its message may have arrived already.
#[inline(always)]
pub fn new_send(
    (communicators, vcs, procs): (&[Communicator], &[Vc], &ProcTable),
    envelope: &Envelope,
    vc_row: Row,
    flags: u16,
    priority: Option<u8>,
) -> Result<Car, PostError> {
    if vcs[vc_row as usize].state == VcState::Failed {
        return Err(PostError::PeerFailed { proc: ProcId(envelope.proc), reason: procs.reason(vc_row).to_owned() });
    }
    let priority = priority.unwrap_or_else(|| communicators[context::id(envelope.context) as usize].priority);
    Ok(Car { priority, ..send_car(envelope, vc_row, flags) })
}

/// Whether the receiver of a ready-mode message can detect that no receive is posted. It can if the receiver is this proc itself (`me`), or
/// if the message is offered before its data is sent.
pub fn asks_when_ready(me: u32, endpoint: Option<&Endpoint>, proc: u32, length: u64) -> bool {
    proc == me || endpoint.is_some_and(|endpoint| length > endpoint.eager_max)
}

/// The envelope CAR of a receive. `vc_row` is [`NIL`] for any source.
#[inline(always)]
pub fn receive_car(progress: &Progress, envelope: &Envelope, vc_row: Row) -> Car {
    let Envelope { context, source, tag, .. } = *envelope;
    let flags = if vc_row == NIL { car_flags::ANY_SOURCE } else { 0 };
    let (kind, state, counter) = (CarKind::Receive, CarState::Posted, progress.counter);
    Car { kind, state, context, source, tag, vc: vc_row, flags, counter, ..Car::default() }
}

/// Puts a send that has a row into its VC's queue.
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

/// Posts a receive that has a row.
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

/// Whether no unexpected message matches a receive. If so, peers without envelope credit that might send the message get some.
#[inline(never)]
pub(crate) fn none_waits(progress: &mut Progress, cars: &[Car], vcs: &mut [Vc], row: Row) -> bool {
    if progress.arrivals != 0 || !progress.new_receives.is_empty() {
        return false;
    }
    if !progress.provider.deferred.is_empty() || progress.unexpected.find(&key(&cars[row as usize])).is_some() {
        return false;
    }
    if progress.starved_peers > 0 {
        feed(progress, vcs, cars[row as usize].vc);
    }
    true
}
