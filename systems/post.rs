//! Post: takes what other threads submitted into CARs, and sends the envelopes that may go.
//!
//! *Reads* submissions, VCs with something to send. *Writes* CARs and requests of submissions, the transports
//! (envelopes and replies out), CARs (state), the finished list.
//! *Bound* [`SUBMISSIONS_A_PASS`] submissions; each VC's queue up to the first frame that does not go.
//! *Why* order: whatever could not leave when it was posted leaves here, VC by VC, first in first out.

use crate::complete::free_car;
use crate::credits::{collect, due, grant, granted};
use crate::endpoint::Endpoint;
use crate::lodging;
use crate::posting::{Envelope, check_operation, layout, queue_receive, queue_send, receive_car, send_car, take_rows};
use crate::priorities::{is_fair_turn, order_senders, turn_sends};
use crate::registering::serve;
use crate::rows::{Rows, Wire};
use crate::store::Tables;
use crate::supply_buffers::capacity;
use std::any::Any;
use tickwire_components::credit::{Credit, cost};
use tickwire_components::limits::SUBMISSIONS_A_PASS;
use tickwire_components::submission::{Answer, Operation, Submission};
use tickwire_components::wire::{self, ADDRESS_BYTES, Header, Kind};
use tickwire_components::{
    Access, Car, CarKind, CarState, Communicator, Ended, Large, NIL, Panic, Payload, Pending, Pieces, PostError,
    Progress, Queue, Row, Span, Status, Stretch, Vc, VcState, car_flags, context,
};
use tickwire_transports::Sent;

/// What is told of a VC whose transport only says so.
const LINK_FAILED: &str = "the transport reports a failed link";

/// The system.
#[inline]
pub fn post(rows: &mut Rows<'_>, wire: &mut Wire<'_>) {
    for _ in 0..SUBMISSIONS_A_PASS {
        let Some(submission) = rows.inbound.pop() else { break };
        match take_submission(rows, submission) {
            Taken::Posted => {}
            Taken::Done(submission) => answer(rows, *submission, Answer::Done(Ok(Status::NULL))),
            Taken::Later(submission) => {
                rows.inbound.waiting().push_front(*submission);
                rows.progress.pending |= Pending::WORLD;
                break;
            }
            Taken::Refused(submission, error) => answer(rows, *submission, Answer::Refused(error)),
        }
    }
    let endpoints = &mut *wire.endpoints;
    if rows.progress.lodges() {
        lodging::drive(rows, endpoints);
    }
    if !rows.progress.replies.is_empty() {
        send_replies(rows, endpoints);
    }
    if rows.progress.urgent {
        order_senders(&mut rows.progress, &rows.cars, &mut rows.vcs);
    }
    let mut vc_row = rows.progress.senders.head;
    while vc_row != NIL {
        let Vc { next, state, endpoint, .. } = rows.vcs[vc_row as usize];
        if state == VcState::Connected {
            let endpoint = &mut endpoints[endpoint as usize];
            if let Err(words) = drive(rows, endpoint, vc_row) {
                failed(&mut rows.progress, vc_row, words);
            }
            let vc = &rows.vcs[vc_row as usize];
            if endpoint.matches && vc.envelopes == 0 && !vc.sends.is_empty() {
                lodging::tell(rows, vc_row);
            }
            grant(rows, endpoint, vc_row);
        }
        vc_row = next;
    }
    rows.progress.probing = false;
}

/// Tells who has submitted an operation what has come of it, which ends here.
#[cold]
fn answer(rows: &mut Rows<'_>, submission: Submission, answer: Answer) {
    if let Some(panic) = rows.inbound.shared().answer(submission.slot, answer, submission.lease) {
        panicked(rows, panic);
    }
}

/// The waker of a thread that was answered has panicked: Complete says so, once all others are told.
#[cold]
fn panicked(rows: &mut Rows<'_>, panic: Panic) {
    rows.notices.note_panic(panic);
    rows.progress.late = true;
    rows.progress.pending |= Pending::COMPLETE;
}

#[cold]
fn failed(progress: &mut Progress, vc_row: Row, words: String) {
    progress.ended.push((vc_row, Ended::Link(words)));
    progress.pending |= Pending::WORLD;
}

enum Taken {
    Posted,
    /// With no proc: there is nothing to do.
    Done(Box<Submission>),
    /// Needs rows or a first contact; comes first in the next pass.
    Later(Box<Submission>),
    Refused(Box<Submission>, PostError),
}

#[cold]
fn take_submission(rows: &mut Rows<'_>, submission: Submission) -> Taken {
    let Rows { progress, procs, communicators, cars, large, requests, held, notices, vcs, .. } = rows;
    let Submission { operation, comm, .. } = submission;
    let receive = matches!(operation, Operation::Receive { .. });
    let envelope = match check_operation(communicators, comm, operation, submission.lent.total()) {
        Ok(Some(envelope)) => envelope,
        Ok(None) => return Taken::Done(Box::new(submission)),
        Err(error) => return Taken::Refused(Box::new(submission), error),
    };
    let vc_row = match envelope.proc {
        NIL => NIL,
        proc => match procs.known[proc as usize].row {
            NIL => {
                progress.wanted.push(proc);
                return Taken::Later(Box::new(submission));
            }
            row => row,
        },
    };
    if !receive && vcs[vc_row as usize].state == VcState::Failed {
        let (proc, reason) = (tickwire_components::ProcId(envelope.proc), procs.reason(vc_row).to_owned());
        return Taken::Refused(Box::new(submission), PostError::PeerFailed { proc, reason });
    }
    let lent = &submission.lent;
    let car = if receive {
        receive_car(progress, &envelope, vc_row)
    } else {
        let priority = communicators[Communicator::row(comm)].priority;
        Car { priority, ..send_car(&envelope, vc_row, 0) }
    };
    // SAFETY: the row holds the buffer from here on.
    #[expect(unsafe_code, reason = "bytes that are addresses")]
    let row = unsafe { take_rows(progress, cars, requests, lent, car) };
    let Some(row) = row else {
        if progress.rows_exhausted {
            let (table, rows, limit) = ("CAR", cars.len(), "cars_max");
            return Taken::Refused(Box::new(submission), PostError::Full { table, rows, limit });
        }
        return Taken::Later(Box::new(submission));
    };
    requests[row as usize].notified = true;
    notices.await_in(row, submission.slot);
    held[row as usize].0 = submission.lease;
    if receive {
        queue_receive(progress, cars, vcs, row);
    } else {
        queue_send(progress, cars, large, vcs, row, envelope.length);
    }
    Taken::Posted
}

/// Sends what receives answer, in order as far as it goes.
fn send_replies(rows: &mut Rows<'_>, endpoints: &mut [Endpoint]) {
    let mut replies = std::mem::replace(&mut rows.progress.replies, Queue::EMPTY);
    while let Some(row) = replies.pop(&mut rows.cars) {
        let vc_row = rows.cars[row as usize].vc;
        let endpoint = &mut endpoints[rows.vcs[vc_row as usize].endpoint as usize];
        let sent = send_row(rows, endpoint, vc_row, row);
        if let Ok(header) = sent {
            has_gone(rows, &header, row);
            continue;
        }
        rows.progress.replies.push(&mut rows.cars, row);
        if sent == Err(Sent::Failed) {
            failed(&mut rows.progress, vc_row, LINK_FAILED.into());
        }
    }
}

/// Sends a VC's envelopes in order until one does not go.
///
/// # Errors
/// Why the VC ends, in words.
fn drive(rows: &mut Rows<'_>, endpoint: &mut Endpoint, vc_row: Row) -> Result<(), String> {
    if is_fair_turn(&rows.progress) {
        turn_sends(&mut rows.vcs[vc_row as usize].sends, &mut rows.cars);
    }
    while !rows.vcs[vc_row as usize].sends.is_empty() {
        let Vc { sends, endpoint: number, .. } = rows.vcs[vc_row as usize];
        let row = sends.head;
        if endpoint.abilities.registers {
            match serve(&mut rows.progress, &rows.cars, endpoint, number, row, Access::SEND) {
                Ok(true) => {}
                Ok(false) => return Ok(()),
                Err(words) => return Err(format!("the memory of a message cannot be registered: {words}")),
            }
        }
        match send_row(rows, endpoint, vc_row, row) {
            Ok(header) => {
                if parts_follow(&mut rows.cars, &rows.large, &header, row) {
                    rows.progress.work.sent += 1;
                    continue;
                }
                rows.vcs[vc_row as usize].sends.pop(&mut rows.cars);
                has_gone(rows, &header, row);
            }
            Err(Sent::Failed) => return Err(LINK_FAILED.into()),
            Err(_) => return Ok(()),
        }
    }
    Ok(())
}

/// Counts a part of a message that has gone; `true` if others follow.
fn parts_follow(cars: &mut [Car], large: &[Large], header: &Header, row: Row) -> bool {
    if !matches!(header.kind(), Some(Kind::Head | Kind::Part)) {
        return false;
    }
    let car = &mut cars[row as usize];
    car.done += header.payload();
    car.done < large[row as usize].length
}

/// Sends what a row has to say before the rest of its message, an envelope or a reply, with what there is to grant.
///
/// # Errors
/// Why it has not gone: for want of room or of credit, or because the link has failed.
fn send_row(rows: &mut Rows<'_>, endpoint: &mut Endpoint, vc_row: Row, row: Row) -> Result<Header, Sent> {
    let Rows { progress, cars, large, vcs, row_states, .. } = rows;
    let (vc, car) = (&mut vcs[vc_row as usize], &mut cars[row as usize]);
    if car.kind == CarKind::Send && large[row as usize].address == 0 {
        // Decided once: a transport may take a part of a frame, and then wants the rest of the same.
        let way = choose(cars, large, vc, endpoint, row).ok_or(Sent::Blocked)?;
        large[row as usize].address = way;
        spend(progress, vc, endpoint, &cars[row as usize], way, large[row as usize].length);
    }
    let mut header = head(cars, large, vc.link, endpoint, row);
    let car = &mut cars[row as usize];
    let mut state = None;
    if let Some(states) = endpoint.rows {
        state = row_states.get(states, row);
        if let Some(state) = state.as_deref_mut().filter(|_| car.flags & car_flags::STARTED == 0) {
            (states.reset)(state);
        }
        car.flags |= car_flags::STARTED;
    }
    let mut credit = Credit::NONE;
    if endpoint.piggybacks && car.kind != CarKind::Grant {
        // A transport that matches is not one of these.
        (header, credit) = header.with_credit(due(progress, vc, NIL, true));
    }
    match send_head(cars, vc.link, endpoint, &header, row, state) {
        Sent::Done => progress.moved.post += payload_of(&header),
        sent => return Err(sent),
    }
    granted(progress, vc, credit);
    Ok(header)
}

/// Sends what a row has to say at once if nothing is before it. `false` leaves everything to the queues.
///
/// Not for endpoints whose frames leave by [`post`] alone.
///
/// # Safety
/// The bytes of the row are there.
#[expect(unsafe_code, reason = "bytes that are addresses")]
pub unsafe fn send_now(rows: &mut Rows<'_>, endpoint: &mut Endpoint, vc_row: Row, row: Row) -> bool {
    let Rows { progress, cars, large, vcs, .. } = rows;
    let vc = &mut vcs[vc_row as usize];
    let is_send = cars[row as usize].kind == CarKind::Send;
    let kept_back = if is_send { !vc.sends.is_empty() } else { !progress.replies.is_empty() };
    if vc.state != VcState::Connected || kept_back || endpoint.by_post {
        return false;
    }
    if is_send {
        let Some(way) = choose(cars, large, vc, endpoint, row) else { return false };
        if way == Large::STREAMED {
            return false;
        }
        large[row as usize].address = way;
    }
    let header = head(cars, large, vc.link, endpoint, row);
    // A failure is told by the next frame, which the queue sends.
    if send_head(cars, vc.link, endpoint, &header, row, None) != Sent::Done {
        return false;
    }
    if is_send {
        let Large { length, address, .. } = large[row as usize];
        spend(progress, vc, endpoint, &cars[row as usize], address, length);
    }
    progress.moved.post += payload_of(&header);
    has_gone(rows, &header, row);
    true
}

/// Offers a message that is in one run and is to be read, at once if nothing is before it: the row of its request. [`NIL`]
/// leaves everything to the queues.
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
    let mapped = endpoint.is_mapped(length, run);
    let is_read = mapped || endpoint.is_read(length) && !endpoint.is_eager(length, true);
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
    large[row as usize] = Large { address: Large::OFFERED, ..Large::of(length) };
    let header =
        Header::new(Kind::Rts, envelope.context, envelope.source, envelope.tag, row, length).with_flags(wire::READABLE);
    if endpoint.transport.get().send_inline(vc.link, header, &Offer::of(run)) == Sent::Done {
        vc.envelopes -= 1;
        progress.work.sent += 1;
    } else {
        cars[row as usize].state = CarState::Queued;
        queue_send(progress, cars, large, vcs, row, length);
    }
    row
}

/// How an envelope leaves; `None` if there is no credit for it.
fn choose(cars: &[Car], large: &[Large], vc: &mut Vc, endpoint: &mut Endpoint, row: Row) -> Option<u64> {
    let (length, flags) = (large[row as usize].length, cars[row as usize].flags);
    // What is in more than one run leaves in one frame or is asked for.
    let one_run = cars[row as usize].chain == NIL;
    let whole = endpoint.is_whole(length) && endpoint.fits(vc.link, length) == length;
    // A transport that matches tells when it has: what is short goes with the question.
    let asks = flags & car_flags::ASKING & if endpoint.matches { !car_flags::SYNCHRONOUS } else { !0 };
    // There, its header is in front of it.
    let header = if endpoint.matches && flags & car_flags::SYNCHRONOUS != 0 { wire::HEADER_BYTES as u64 } else { 0 };
    if is_mapped(&cars[row as usize], endpoint, length) && vc.envelopes > 0 {
        return Some(Large::OFFERED);
    }
    let eager = endpoint.is_eager(length + header, one_run) && (one_run || whole);
    if eager && asks == 0 && length == capacity(cars, row) {
        if vc.lines < cost(length) {
            collect(vc, endpoint);
        }
        if vc.lines >= cost(length) {
            return Some(match flags & car_flags::ASKING {
                0 if whole => Large::EAGER,
                0 => Large::STREAMED,
                _ => Large::SYNCHRONOUS,
            });
        }
    }
    if vc.envelopes == 0 {
        collect(vc, endpoint);
    }
    (vc.envelopes > 0).then_some(Large::OFFERED)
}

/// Whether a message is where its receiver has mapped it.
#[inline(always)]
fn is_mapped(car: &Car, endpoint: &Endpoint, length: u64) -> bool {
    car.chain == NIL && length == car.span.len() as u64 && endpoint.is_mapped(length, car.span)
}

/// Pays for an envelope.
fn spend(progress: &mut Progress, vc: &mut Vc, endpoint: &Endpoint, car: &Car, way: u64, length: u64) {
    match way {
        Large::EAGER | Large::STREAMED | Large::SYNCHRONOUS => vc.lines -= cost(length),
        _ => {
            vc.envelopes -= 1;
            if endpoint.matches && context::plane(car.context) == context::USER {
                lodging::gave(progress, car.vc);
            }
        }
    }
}

/// The header of what a row says first, from the tables.
#[inline]
fn head(cars: &[Car], large: &[Large], link: u32, endpoint: &mut Endpoint, row: Row) -> Header {
    let car = &cars[row as usize];
    let Large { length, wanted, address } = large[row as usize];
    match car.kind {
        CarKind::Receive if large[row as usize].is_direct() => {
            return Header::new(Kind::Cts, car.context, address as u32, row, car.peer, wanted).with_flags(wire::DIRECT);
        }
        CarKind::Receive if address != 0 => return Header::new(Kind::Done, car.context, 0, row, car.peer, 0),
        CarKind::Receive => return Header::new(Kind::Cts, car.context, 0, row, car.peer, wanted),
        CarKind::Refusal if address == lodging::RECEIPT => {
            return Header::new(Kind::Done, car.context, 0, 0, car.peer, 0);
        }
        CarKind::Refusal => return Header::new(Kind::Nack, car.context, 0, 0, car.peer, 0),
        CarKind::Grant if address == lodging::COUNT => return Header::new(Kind::Offers, 0, 0, wanted as u32, 0, 0),
        CarKind::Grant => {
            let credit = Credit { lines: length as u32, envelopes: wanted as u32 };
            return Header::new(Kind::Credit, 0, 0, 0, 0, 0).with_credit(credit).0;
        }
        _ if address == Large::EAGER => {
            return Header::new(Kind::Eager, car.context, car.source, car.tag, 0, length);
        }
        _ if address == Large::SYNCHRONOUS => {
            return Header::new(Kind::Sync, car.context, car.source, car.tag, row, length).with_priority(car.priority);
        }
        _ if address == Large::STREAMED => {
            let part = endpoint.fits(link, (length - car.done).min(endpoint.part_bytes));
            return match car.done {
                // There is more room than when it was decided.
                0 if part == length => Header::new(Kind::Eager, car.context, car.source, car.tag, 0, length),
                0 => Header::new(Kind::Head, car.context, car.source, car.tag, part as u32, length),
                _ => Header::new(Kind::Part, car.context, 0, 0, 0, part),
            };
        }
        _ => {}
    }
    let mut flags = if car.flags & car_flags::READY != 0 { wire::READY } else { 0 };
    if car.chain == NIL && length == car.span.len() as u64 {
        let is_read = is_mapped(car, endpoint, length) || endpoint.is_read(length);
        flags |= if is_read { wire::READABLE } else { wire::DIRECT };
    }
    Header::new(Kind::Rts, car.context, car.source, car.tag, row, length).with_flags(flags).with_priority(car.priority)
}

#[inline]
fn send_head(
    cars: &[Car],
    link: u32,
    endpoint: &mut Endpoint,
    header: &Header,
    row: Row,
    state: Option<&mut dyn Any>,
) -> Sent {
    let transport = endpoint.transport.get();
    let car = &cars[row as usize];
    match (header.kind(), header.flags() & wire::READABLE) {
        (Some(Kind::Head | Kind::Part), _) => {
            let part = car.span.part(car.done as usize, header.payload() as usize);
            // SAFETY: the bytes of a posted send are there until it ends.
            #[expect(unsafe_code, reason = "bytes that are addresses")]
            let part = unsafe { Payload::new(std::slice::from_ref(&part)) };
            transport.send(link, header, &part, state)
        }
        (_, 0) => transport.send(link, header, &Chain { cars, row }, state),
        _ => transport.send(link, header, &Offer::of(car.span), state),
    }
}

/// A row whose first word has left its queue.
#[inline]
fn has_gone(rows: &mut Rows<'_>, header: &Header, row: Row) {
    rows.progress.work.sent += 1;
    let car = &mut rows.cars[row as usize];
    let Large { length, wanted, .. } = rows.large[row as usize];
    match header.kind() {
        Some(Kind::Nack | Kind::Credit | Kind::Offers) => return free_car(&mut rows.progress, &mut rows.cars, row),
        Some(Kind::Done) if car.kind == CarKind::Refusal => return free_car(&mut rows.progress, &mut rows.cars, row),
        Some(Kind::Rts | Kind::Sync) => return car.state = CarState::Offered,
        Some(Kind::Cts) if rows.large[row as usize].is_direct() => return car.state = CarState::Direct,
        Some(Kind::Cts) if wanted > 0 => return car.state = CarState::Receiving,
        _ => {}
    }
    car.done = length;
    car.state = CarState::Finished;
    rows.progress.finished.push(&mut rows.cars, row);
    rows.progress.pending |= Pending::COMPLETE;
}

/// Bytes of a message in a frame.
#[inline]
fn payload_of(header: &Header) -> u64 {
    match header.kind() {
        Some(Kind::Eager | Kind::Head | Kind::Part) => header.payload(),
        _ => 0,
    }
}

/// What tells a peer where a message is: its address in this process, which the peer gives the kernel.
struct Offer([u8; ADDRESS_BYTES as usize]);

impl Offer {
    #[inline]
    fn of(run: Span) -> Self {
        Offer((run.start().expose_provenance() as u64).to_ne_bytes())
    }
}

// SAFETY: the bytes stay where they are while they are borrowed, and are only read.
#[expect(unsafe_code, reason = "lends its own bytes as a payload")]
unsafe impl Pieces for Offer {
    fn piece(&self, _index: usize) -> Span {
        // SAFETY: as long as `self` is borrowed, which a send is over within.
        unsafe { Span::new(self.0.as_ptr().cast_mut(), self.0.len()) }
    }
}

/// The runs of an envelope CAR: its own span, or those of its data CARs.
struct Chain<'a> {
    cars: &'a [Car],
    row: Row,
}

// SAFETY: the spans of CARs were promised when they were posted; they do not depend on where the rows are.
#[expect(unsafe_code, reason = "the engine trusts the addresses that a buffer type reports")]
unsafe impl Pieces for Chain<'_> {
    fn pieces(&self) -> usize {
        let mut row = self.cars[self.row as usize].chain;
        let mut count = 0;
        if self.layout().is_some() {
            return 0;
        }
        while row != NIL {
            count += 1;
            row = self.cars[row as usize].chain;
        }
        count.max(1)
    }

    fn piece(&self, index: usize) -> Span {
        let car = &self.cars[self.row as usize];
        if car.chain == NIL {
            return car.span;
        }
        let mut row = car.chain;
        for _ in 0..index {
            row = self.cars[row as usize].chain;
        }
        self.cars[row as usize].span
    }

    fn total(&self) -> usize {
        capacity(self.cars, self.row) as usize
    }

    #[inline]
    fn layout(&self) -> Option<Stretch> {
        layout(self.cars, self.row)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::posting::{send_copied, send_inline};
    use crate::testing::TestWorld;
    use std::ops::Range;
    use tickwire_components::limits::{ANY, CREDIT_INITIAL, Limits};
    use tickwire_components::{Queue, Rank, RequestState, Source, Tag, TagFilter};
    use tickwire_transports::Mapped;

    fn world() -> (TestWorld, Row) {
        let mut world = TestWorld::new(3);
        let vc = world.contact(1, VcState::Connected);
        (world, vc)
    }

    fn send(to: u32, tag: u32) -> Operation {
        Operation::Send { to: Rank(to), tag: Tag(tag) }
    }

    fn kinds(world: &TestWorld) -> Vec<Option<Kind>> {
        world.wire().sent.iter().map(|frame| frame.header.kind()).collect()
    }

    #[test]
    fn short_messages_go_whole_and_are_done() {
        let (mut world, vc) = world();
        let posted = world.send(1, 5, &[b"abc", b"", b"defg"]);
        world.step(post);
        let sent = world.wire().sent.clone();
        assert_eq!(sent.len(), 1);
        assert_eq!((sent[0].header, &sent[0].payload[..]), (Header::new(Kind::Eager, 0, 0, 5, 0, 7), &b"abcdefg"[..]));
        assert_eq!((world.finished(), world.car(posted).done), (vec![posted.car], 7));
        assert!(world.vc(vc).sends.is_empty() && world.all().progress.pending.has(Pending::COMPLETE));
    }

    /// A world whose connections take frames of 100 bytes for certain.
    fn narrow() -> (TestWorld, Row) {
        let (mut world, vc) = world();
        let endpoint = &mut world.all().endpoints[0];
        (endpoint.sure_bytes, endpoint.rows) = (100, None);
        world.wire().fits = Some(100);
        (world, vc)
    }

    #[test]
    fn what_a_connection_does_not_take_whole_goes_in_parts_or_is_asked_for() {
        let (mut world, vc) = narrow();
        let bytes: Vec<u8> = (0..250).collect();
        world.send(1, 5, &[&bytes]);
        world.send(1, 6, &[&bytes[..100]]);
        world.send(1, 7, &[&bytes[..60], &bytes[60..101]]);
        world.send(1, 8, &[&bytes[..60], &bytes[60..100]]);
        world.step(post);
        let lengths: Vec<_> = world.wire().sent.iter().map(|f| (f.header.kind(), f.payload.len())).collect();
        let [head, part, eager, offer] = [Kind::Head, Kind::Part, Kind::Eager, Kind::Rts].map(Some);
        assert_eq!(lengths, [(head, 100), (part, 100), (part, 50), (eager, 100), (offer, 0), (eager, 100)]);
        let sent: Vec<u8> = world.wire().sent[..3].iter().flat_map(|frame| frame.payload.clone()).collect();
        assert_eq!(sent, bytes);
        assert!(world.vc(vc).sends.is_empty());
    }

    #[test]
    fn a_connection_that_takes_more_by_then_is_used_as_it_is() {
        let bytes: Vec<u8> = (0..250).collect();
        for (gone, rest) in [(0, &[(Kind::Eager, 250)][..]), (1, &[(Kind::Part, 150)][..])] {
            let (mut world, vc) = narrow();
            world.wire().room = Some(gone);
            world.send(1, 5, &[&bytes]);
            world.step(post);
            assert_eq!(world.wire().sent.len(), gone, "parts, by what there was room for");
            (world.wire().fits, world.wire().room) = (None, None);
            world.step(post);
            let sent: Vec<_> = world.wire().sent[gone..].iter().map(|f| (f.header.kind(), f.payload.len())).collect();
            assert_eq!(sent, rest.iter().map(|&(kind, bytes)| (Some(kind), bytes)).collect::<Vec<_>>());
            let all: Vec<u8> = world.wire().sent.iter().flat_map(|frame| frame.payload.clone()).collect();
            assert!(all == bytes && world.vc(vc).sends.is_empty() && world.finished().len() == 1);
        }
    }

    #[test]
    fn long_messages_are_offered() {
        let (mut world, vc) = world();
        let posted = world.send(1, 5, &[&[1; 9000]]);
        world.step(post);
        // In one run, so that a transport may move it.
        let header = Header::new(Kind::Rts, 0, 0, 5, posted.car, 9000).with_flags(wire::DIRECT);
        let sent = world.wire().sent.clone();
        assert_eq!((sent.len(), sent[0].header, sent[0].payload.len()), (1, header, 0));
        assert_eq!(world.car(posted).state, CarState::Offered);
        assert!(world.finished().is_empty() && world.vc(vc).sends.is_empty());
    }

    /// Receives that SupplyBuffers has answered.
    fn replies(world: &mut TestWorld, vc: Row, wanted: u64) -> Row {
        let posted = world.receive(Some(1), Some(5), &[wanted as usize]);
        let all = world.all();
        all.vcs[vc as usize].posted.remove(all.cars, posted.car);
        let car = &mut all.cars[posted.car as usize];
        (car.state, car.peer) = (CarState::Queued, 77);
        all.large[posted.car as usize] = Large { length: 9000, wanted, address: 0 };
        all.progress.replies.push(all.cars, posted.car);
        crate::posting::list_sender(all.progress, all.vcs, vc);
        posted.car
    }

    #[test]
    fn replies_name_both_cars_and_a_receiver_that_wants_nothing_is_done() {
        let (mut world, vc) = world();
        let (some, none) = (replies(&mut world, vc, 600), replies(&mut world, vc, 0));
        world.step(post);
        let headers: Vec<Header> = world.wire().sent.iter().map(|frame| frame.header).collect();
        let cts = |row, wanted| Header::new(Kind::Cts, 0, 0, row, 77, wanted);
        assert_eq!(headers, [cts(some, 600), cts(none, 0)]);
        assert_eq!(world.all().cars[some as usize].state, CarState::Receiving);
        assert_eq!((world.finished(), world.all().cars[none as usize].done), (vec![none], 9000));
    }

    #[test]
    fn a_blocked_transport_keeps_the_queue_in_order() {
        let (mut world, vc) = world();
        let posted: Vec<Row> = (0..4).map(|tag| world.send(1, tag, &[b"x"]).car).collect();
        world.wire().room = Some(1);
        for _ in 0..3 {
            world.step(post);
        }
        let sends = world.vc(vc).sends;
        assert_eq!((world.cars_in(sends), world.wire().sent.len()), (posted[1..].to_vec(), 1));
        world.wire().room = None;
        world.step(post);
        let sent: Vec<(u32, u32)> = world.wire().sent.iter().map(|f| (f.header.tag(), f.refusals)).collect();
        assert_eq!(sent, [(0, 0), (1, 3), (2, 0), (3, 0)], "tags and refusals, as the CARs' row states tell");
        assert_eq!(world.finished(), posted);
    }

    #[test]
    fn a_failed_link_ends_its_vc_and_others_go_on() {
        let (mut world, one) = world();
        let two = world.contact(2, VcState::Connected);
        world.send(1, 1, &[b"x"]);
        let goes = world.send(2, 2, &[b"y"]);
        world.wire().broken.push(1);
        world.step(post);
        assert!(matches!(world.take_ended()[..], [(row, Ended::Link(_))] if row == one));
        assert_eq!((world.finished(), world.vc(two).sends), (vec![goes.car], Queue::EMPTY));
    }

    #[test]
    fn nothing_goes_before_the_connection_is_there() {
        let (mut world, vc) = world();
        world.all().vcs[vc as usize].state = VcState::Connecting;
        let posted = world.send(1, 1, &[b"x"]);
        world.step(post);
        assert!(world.wire().sent.is_empty());
        assert_eq!(world.car(posted).state, CarState::Queued);
    }

    #[test]
    fn submissions_become_rows() {
        let (mut world, vc) = world();
        world.submit(send(1, 5), b"abc".to_vec(), 2);
        world.submit(Operation::Receive { source: Source::Any, tag: TagFilter::Any }, vec![0; 8], 3);
        world.step(post);
        assert_eq!(kinds(&world), [Some(Kind::Eager)]);
        assert_eq!(world.finished().len(), 1);
        let all = world.all();
        let active = (0u32..).zip(all.requests.iter()).filter(|(_, request)| request.state == RequestState::Active);
        let submitted: Vec<u32> = active.filter_map(|(row, _)| all.notices.slot(row)).collect();
        assert_eq!((submitted, all.progress.active), (vec![2, 3], 2));
        assert!(!all.progress.wildcard.is_empty() && all.vcs[vc as usize].posted.is_empty());
    }

    #[test]
    fn submissions_with_no_proc_are_done_at_once_if_their_arguments_are_right() {
        let (mut world, _) = world();
        let receive = |tag| Operation::Receive { source: Rank::NULL.into(), tag };
        world.submit(send(Rank::NULL.0, 5), b"abc".to_vec(), 0);
        world.submit(receive(TagFilter::Any), vec![0; 8], 1);
        world.submit(send(Rank::NULL.0, ANY), b"abc".to_vec(), 2);
        world.submit(receive(TagFilter::Tag(ANY)), vec![0; 8], 3);
        world.step(post);
        let shared = world.all().inbound.shared().clone();
        let answers = [0, 1, 2, 3].map(|slot: usize| match shared.slots[slot].lock().unwrap().answer.take() {
            Some((Answer::Done(ended), _)) => ended.map_err(|error| panic!("{error}")),
            Some((Answer::Refused(error), _)) => Err(error),
            None => panic!("slot {slot} has no answer"),
        });
        let refused = Err(PostError::Tag { tag: ANY });
        assert_eq!(answers, [Ok(Status::NULL), Ok(Status::NULL), refused.clone(), refused]);
        assert!(world.wire().sent.is_empty() && world.all().progress.active == 0);
    }

    #[test]
    fn wrong_submissions_are_answered_and_hold_nothing_up() {
        let (mut world, _) = world();
        world.submit(send(9, 5), Vec::new(), 0);
        world.submit(send(1, 1 << 31), Vec::new(), 1);
        world.submit(send(1, 5), b"abc".to_vec(), 2);
        world.step(post);
        assert_eq!(world.wire().sent.len(), 1);
        let shared = world.all().inbound.shared().clone();
        let refusals = [0, 1].map(|slot: usize| match shared.slots[slot].lock().unwrap().answer.take() {
            Some((Answer::Refused(error), _)) => error,
            other => panic!("{:?}", other.map(|(answer, _)| answer)),
        });
        assert_eq!(refusals, [PostError::Rank { rank: 9, last: 2 }, PostError::Tag { tag: 1 << 31 }]);
    }

    #[test]
    fn a_submission_to_a_proc_that_was_never_contacted_waits_for_the_contact() {
        let (mut world, _) = world();
        world.submit(send(2, 5), b"abc".to_vec(), 0);
        world.submit(send(1, 6), b"abc".to_vec(), 1);
        world.step(post);
        let all = world.all();
        assert_eq!((&all.progress.wanted[..], all.inbound.waiting().len()), (&[2][..], 1));
        assert!(all.progress.pending.has(Pending::WORLD) && world.wire().sent.is_empty(), "order is kept");
        world.contact(2, VcState::Connected);
        world.step(post);
        assert_eq!(world.wire().sent.iter().map(|f| (f.link, f.header.tag())).collect::<Vec<_>>(), [(2, 5), (1, 6)]);
    }

    #[test]
    fn without_rows_a_submission_waits_and_at_the_bound_it_is_refused() {
        let mut world = TestWorld::with(2, Limits { cars_max: 2, ..Limits::default() }, 2);
        world.contact(1, VcState::Connecting);
        for _ in 0..2 {
            world.send(1, 1, &[b"x"]);
        }
        world.submit(send(1, 5), b"abc".to_vec(), 0);
        world.step(post);
        assert_eq!(world.all().inbound.waiting().len(), 1);
        world.all().progress.rows_exhausted = true;
        world.step(post);
        let shared = world.all().inbound.shared().clone();
        let answer = shared.slots[0].lock().unwrap().answer.take();
        assert!(matches!(answer, Some((Answer::Refused(PostError::Full { .. }), _))));
    }

    /// A world that knows that peers have mapped 9000 bytes, but for the first 1000 and the last 100 of them.
    fn mapped(bytes: &[u8; 9000]) -> TestWorld {
        let (mut world, _) = world();
        let endpoint = &mut world.all().endpoints[0];
        endpoint.mapped = Mapped { start: bytes.as_ptr().addr() + 1000, bytes: 7900 };
        (endpoint.mapped_min, endpoint.short_end) = (500, 500);
        (endpoint.rows, endpoint.by_post, endpoint.plain) = (None, false, true);
        world
    }

    #[expect(unsafe_code, reason = "a span over a test's bytes")]
    fn run(bytes: &[u8]) -> Span {
        // SAFETY: the bytes outlive the world, and are only read.
        unsafe { Span::new(bytes.as_ptr().cast_mut(), bytes.len()) }
    }

    const SHORT: Range<usize> = 1000..1499;
    const INSIDE: Range<usize> = 1000..1500;
    const BEFORE: Range<usize> = 999..1999;

    #[test]
    fn what_is_mapped_is_offered_to_be_read_however_short() {
        let bytes = [3; 9000];
        let mut world = mapped(&bytes);
        let eager = (Some(Kind::Eager), 0);
        let read = (Some(Kind::Rts), wire::READABLE);
        for place in [SHORT, INSIDE, BEFORE, 8400..8900, 8401..8901] {
            let posted = world.send(1, 5, &[&bytes[place.clone()]]);
            world.all().cars[posted.car as usize].span = run(&bytes[place]);
        }
        world.send(1, 5, &[&bytes[..500], &bytes[..500]]);
        world.step(post);
        let kinds = |world: &TestWorld| -> Vec<_> {
            world.wire().sent.iter().map(|frame| (frame.header.kind(), frame.header.flags())).collect()
        };
        assert_eq!(kinds(&world), [eager, read, eager, read, eager, eager]);
        let addresses = [INSIDE.start, 8400].map(|start| (bytes.as_ptr() as u64 + start as u64).to_ne_bytes());
        assert_eq!([1, 3].map(|frame: usize| world.wire().sent[frame].payload.clone()), addresses.map(Vec::from));
        // Without a credit for the question, it goes as any other of its length.
        let vc = world.all().vcs.iter().position(|vc| vc.proc == 1).unwrap();
        world.all().vcs[vc].envelopes = 0;
        let posted = world.send(1, 5, &[&bytes[INSIDE]]);
        world.all().cars[posted.car as usize].span = run(&bytes[INSIDE]);
        world.step(post);
        assert_eq!(kinds(&world)[6..], [eager]);
    }

    /// Offers at once; the row.
    fn offer_at_once(world: &mut TestWorld, place: &[u8]) -> Row {
        let envelope = Envelope { context: 0, tag: 5, source: 0, proc: 1, length: place.len() as u64 };
        // SAFETY: the place outlives the world's run.
        #[expect(unsafe_code, reason = "bytes that are addresses")]
        unsafe {
            offer_now(world.store.all(), &envelope, 0, run(place))
        }
    }

    #[test]
    fn what_is_read_is_offered_at_once_where_nothing_is_before_it() {
        let bytes = [3; 9000];
        let mut world = mapped(&bytes);
        assert_eq!([SHORT, BEFORE].map(|place| offer_at_once(&mut world, &bytes[place])), [NIL; 2]);
        let row = offer_at_once(&mut world, &bytes[INSIDE]);
        let sent = world.wire().sent[0].clone();
        let header = Header::new(Kind::Rts, 0, 0, 5, row, 500).with_flags(wire::READABLE);
        assert_eq!((sent.header, &sent.payload[..]), (header, &(bytes.as_ptr() as u64 + 1000).to_ne_bytes()[..]));
        let (car, large) = (world.all().cars[row as usize], world.all().large[row as usize]);
        assert_eq!(
            (car.state, car.request, large.length, large.address),
            (CarState::Offered, row, 500, Large::OFFERED)
        );
        assert_eq!(world.all().progress.active, 1);
        // Longer than an eager message, and so read wherever it is.
        (world.all().endpoints[0].read_min, world.all().endpoints[0].eager_max) = (900, 900);
        let row = offer_at_once(&mut world, &bytes[BEFORE]);
        assert_eq!(world.wire().sent[1].header.message(), row);
        let vc = world.all().vcs.iter().position(|vc| vc.proc == 1).unwrap();
        assert_eq!(world.all().vcs[vc].envelopes, CREDIT_INITIAL.envelopes as u16 - 2);
        // Blocked, it is the first of the queue, behind which nothing goes at once.
        world.wire().room = Some(0);
        let waiting = offer_at_once(&mut world, &bytes[INSIDE]);
        assert_eq!(world.all().vcs[vc].sends.head, waiting);
        assert_eq!(offer_at_once(&mut world, &bytes[INSIDE]), NIL);
        world.wire().room = None;
        world.step(post);
        assert_eq!(world.wire().sent[2].header.message(), waiting);
        assert_eq!(world.all().cars[waiting as usize].state, CarState::Offered);
        // What needs more than its frame is not for here.
        world.all().endpoints[0].plain = false;
        assert_eq!(offer_at_once(&mut world, &bytes[INSIDE]), NIL);
        world.all().endpoints[0].plain = true;
        world.all().communicators[0].priority = 1;
        assert_eq!(offer_at_once(&mut world, &bytes[INSIDE]), NIL);
        world.all().communicators[0].priority = 0;
        world.all().vcs[vc].envelopes = 0;
        assert_eq!(offer_at_once(&mut world, &bytes[INSIDE]), NIL);
    }

    #[test]
    fn what_is_mapped_is_copied_only_where_it_must_be() {
        let bytes = [3; 9000];
        let mut world = mapped(&bytes);
        let mut send = |place: &[u8], copied: bool| {
            let envelope = Envelope { context: 0, tag: 5, source: 0, proc: 1, length: place.len() as u64 };
            let Tables { progress, procs, vcs, endpoints, .. } = world.store.all();
            let vc = &mut vcs[procs.known[1].row as usize];
            match copied {
                true => send_copied(progress, vc, &mut endpoints[0], &envelope, &place),
                false => send_inline::<false, _>(progress, vc, &mut endpoints[0], &envelope, &place),
            }
        };
        assert_eq!([SHORT, INSIDE, BEFORE].map(|place| send(&bytes[place], false)), [true, false, true]);
        assert_eq!([SHORT, INSIDE, BEFORE].map(|place| send(&bytes[place], true)), [true; 3]);
        assert!(!send(&bytes, true), "longer than an eager message");
        assert_eq!(kinds(&world), [Some(Kind::Eager); 5]);
    }

    #[test]
    fn a_large_message_in_one_run_is_offered_to_be_read() {
        let (mut world, _) = world();
        world.all().endpoints[0].read_min = 10_000;
        let bytes = vec![1; 20_000];
        let posted = world.send(1, 5, &[&bytes]);
        world.send(1, 5, &[&bytes[..9000]]);
        world.send(1, 5, &[&bytes[..9000], &bytes[9000..]]);
        world.all().endpoints[0].eager_max = 8192;
        world.step(post);
        let sent = world.wire().sent.clone();
        let flags: Vec<u8> = sent.iter().map(|frame| frame.header.flags()).collect();
        assert_eq!(flags, [wire::READABLE, wire::DIRECT, 0], "not the short one, nor the one in two runs");
        let address = world.car(posted).span.start().addr();
        assert_eq!(sent[0].payload, (address as u64).to_ne_bytes());
        assert!(sent[1].payload.is_empty());
    }
}
