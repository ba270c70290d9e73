//! The target's side: requests of other members are performed on this process's memory, or wait for a lock, and are answered.

use super::batch;
use super::frames::{Body, LEAD, fits, send, span_of};
use crate::procs::endpoint::Endpoint;
use crate::procs::windows::regions::REGIONS;
use crate::procs::windows::{Served, ServedOperation, WindowRow, hold_of};
use crate::rows::Rows;
use crate::steps::check::NotTaken;
use smallvec::smallvec;
use tickwire_components::limits::REMOTE_FRAMES;
use tickwire_components::wire::{Header, Kind};
use tickwire_components::{
    Arrival, NIL, Pending, Pieces, ProcTable, RemoteKind, RemoteOutcome, Span, Vc, VcState, context,
};
use tickwire_transports::windows::{Claim, HeldBy, Updater};
use tickwire_transports::{Sent, copy};

/// Sends an answer.
pub(super) fn send_answer(window: &mut WindowRow, index: usize, vcs: &[Vc], endpoints: &mut [Endpoint]) -> Sent {
    let (word, me) = (window.context | context::WINDOW, window.rank);
    let Some(served) = window.served.get(index) else { return Sent::Failed };
    let (outcome, got) = match served.operations[..] {
        // The memory may have been detached since the get was performed.
        [operation] if !served.is_batch && operation.kind == RemoteKind::Get && served.answer.is_empty() => {
            match (operation.outcome, got(window, &operation)) {
                (RemoteOutcome::Done, Some(got)) => (RemoteOutcome::Done, got),
                (RemoteOutcome::Done, None) => (RemoteOutcome::OutOfBounds, Span::EMPTY),
                (outcome, _) => (outcome, Span::EMPTY),
            }
        }
        [operation] if !served.is_batch => (operation.outcome, Span::EMPTY),
        _ => (RemoteOutcome::Done, Span::EMPTY),
    };
    let Some(served) = window.served.get_mut(index) else { return Sent::Failed };
    let row = window.targets.get(served.origin as usize).map_or(NIL, |target| target.vc);
    let Some(vc) = vcs.get(row as usize).filter(|vc| vc.state == VcState::Connected) else { return Sent::Failed };
    let Some(endpoint) = endpoints.get_mut(vc.endpoint as usize) else { return Sent::Failed };
    let rest = if got.is_empty() { span_of(&served.answer) } else { got };
    let body = Body::answer(rest);
    let header = Header::new(Kind::Answer, word, me, outcome.word(), served.number, rest.len() as u64);
    let sent = send(endpoint, vc.link, &header, &body, &mut served.state);
    if !matches!(sent, Sent::Done | Sent::Failed) && endpoint.by_post && !got.is_empty() {
        // The transport may have taken a part of it, and attached memory may be detached before the rest has gone.
        served.answer = copy::gather(&One(got)).into_vec();
    }
    sent
}

/// Takes a request of another member: performs it, or keeps it until that is possible.
pub(crate) fn take_request(rows: &mut Rows<'_>, arrival: &Arrival) -> Result<(), NotTaken> {
    const WRONG: NotTaken = NotTaken::Wrong("a one-sided operation that cannot be");
    let Rows { windows, vcs, progress, procs, .. } = rows;
    let header = arrival.header;
    if context::plane(header.context()) != context::WINDOW || arrival.payload.len() < LEAD {
        return Err(WRONG);
    }
    let is_of_region = context::base(header.context()) == REGIONS;
    // Regions have no epochs.
    let kind = RemoteKind::from_word(header.tag()).filter(|kind| !(is_of_region && kind.is_of_epoch())).ok_or(WRONG)?;
    let window =
        if is_of_region { windows.regions(procs.me) } else { windows.of_context(header.context()) }.ok_or(WRONG)?;
    let handle = window.handle;
    let origin = window.member(header.source(), arrival.vc, vcs).ok_or(WRONG)? as u32;
    if window.served.iter().filter(|served| served.origin == origin).count() >= REMOTE_FRAMES as usize {
        return Err(WRONG);
    }
    // SAFETY: the payload is there until it is released.
    let [at, length] = [0, 8].map(|place| unsafe { copy::word(arrival.payload.part(place, 8)) }.unwrap_or(0));
    let is_batch = kind == RemoteKind::Batch;
    let operations = match is_batch {
        true => batch::unpack(at, arrival.payload).filter(|_| (arrival.payload.len() - LEAD) as u64 == length),
        false => fits(kind, length, arrival.payload.len() - LEAD)
            .then(|| smallvec![ServedOperation { kind, at, length, operands: LEAD, outcome: RemoteOutcome::Done }]),
    };
    let operations = operations.ok_or(WRONG)?;
    let answer = if is_batch { vec![0; batch::outcomes(operations.len())] } else { Vec::new() };
    let (number, kept) = (header.message(), Box::default());
    let mut served = Served { origin, number, is_batch, operations, holder: NIL, done: 0, kept, answer, state: None };
    // Requests keep their order: this one must not be done before a waiting one of the same origin.
    let waits = window.served.iter().any(|served| served.origin == origin && !served.is_done());
    if waits || !serve(window, (vcs, procs), &mut served, arrival.payload) {
        served.kept = copy::gather(&One(arrival.payload));
    }
    window.served.push_back(served);
    windows.stir(handle);
    progress.pending |= Pending::TRANSFER;
    progress.work.received += 1;
    Ok(())
}

/// A run as a buffer.
struct One(Span);

// SAFETY: whoever makes it keeps the bytes.
unsafe impl Pieces for One {
    fn piece(&self, _: usize) -> Span {
        self.0
    }
}

/// Performs requests that wait, in the order of each origin. Returns whether one still waits.
pub(super) fn serve_waiting(window: &mut WindowRow, (vcs, procs): (&[Vc], &ProcTable)) -> bool {
    if window.served.iter().all(Served::is_done) {
        return false;
    }
    let mut list = std::mem::take(&mut window.served);
    let mut stuck: Vec<u32> = Vec::new();
    for served in list.iter_mut().filter(|served| !served.is_done()) {
        let kept = std::mem::take(&mut served.kept);
        if stuck.contains(&served.origin) || !serve(window, (vcs, procs), served, span_of(&kept)) {
            stuck.push(served.origin);
            served.kept = kept;
        }
    }
    // Requests that are done are answered before those that wait.
    let (done, waiting): (Vec<_>, Vec<_>) = list.into_iter().partition(Served::is_done);
    window.served = done.into_iter().chain(waiting).collect();
    !stuck.is_empty()
}

/// Performs the operations of a request that are not done yet. `false` if one must wait for a lock.
fn serve(window: &mut WindowRow, procs: (&[Vc], &ProcTable), served: &mut Served, payload: Span) -> bool {
    while let Some(operation) = served.operations.get_mut(served.done) {
        let operands = payload.part(operation.operands, operation.kind.operands(operation.length) as usize);
        let (start, origin) = (served.answer.len(), served.origin);
        let outcome = match operate(window, procs, origin, operation, operands, &mut served.answer) {
            Ok(outcome) => outcome,
            Err(holder) => {
                served.answer.truncate(start);
                served.holder = holder;
                return false;
            }
        };
        operation.outcome = outcome;
        let is_done = outcome == RemoteOutcome::Done;
        if !is_done {
            served.answer.truncate(start);
        }
        if served.is_batch {
            if let (true, RemoteKind::Get, Some(got)) = (is_done, operation.kind, got(window, operation)) {
                append(&mut served.answer, got);
            }
            batch::write_outcome(&mut served.answer, served.done, outcome);
        }
        served.done += 1;
    }
    true
}

/// The bytes of this process's memory that a get reads.
fn got(window: &WindowRow, operation: &ServedOperation) -> Option<Span> {
    let (part, at) = window.place(operation.at as usize, operation.length as usize)?;
    Some(part.memory()?.part(at, operation.length as usize))
}

/// Adds bytes of this process's memory to an answer.
fn append(answer: &mut Vec<u8>, from: Span) {
    let start = answer.len();
    answer.resize(start + from.len(), 0);
    // SAFETY: the own memory is there as long as the window is; the new bytes are the vector's.
    unsafe { copy::copy_long(Span::new(answer[start..].as_mut_ptr(), from.len()), from) };
}

/// Performs an operation. Old values are added to `old`.
///
/// # Errors
/// It must wait for a lock: the holder of the update lock, or [`NIL`] if it is the access lock.
fn operate(
    window: &mut WindowRow,
    (vcs, procs): (&[Vc], &ProcTable),
    origin: u32,
    operation: &ServedOperation,
    operands: Span,
    old: &mut Vec<u8>,
) -> Result<RemoteOutcome, u32> {
    let &ServedOperation { kind, at, length, .. } = operation;
    let claim = Claim::once(|rank| window.is_gone(procs, rank));
    let Some(own) = window.own_part() else { return Ok(RemoteOutcome::OutOfBounds) };
    let done = |is_done| if is_done { RemoteOutcome::Done } else { RemoteOutcome::OutOfBounds };
    let (at, length) = (at as usize, length as usize);
    if !kind.is_of_epoch() && !window.admits(origin) {
        return Ok(RemoteOutcome::NotExposed);
    }
    let placed = match kind.is_of_epoch() {
        true => Some((own, 0)),
        false => window.place(at, length).filter(|_| window.permits(kind, at)),
    };
    let Some((own, at)) = placed else { return Ok(RemoteOutcome::OutOfBounds) };
    match kind {
        // SAFETY: a payload that is there until it is released, or a copy of one that the caller keeps.
        RemoteKind::Put => Ok(done(unsafe { own.put(at, operands) })),
        RemoteKind::Get => Ok(done(at.checked_add(length).is_some_and(|end| end <= own.bytes()))),
        RemoteKind::Update(code) | RemoteKind::FetchUpdate(code) => {
            // Requests with an unknown type or operation were refused.
            let Some(updater) = Updater::named(code) else { return Ok(RemoteOutcome::OutOfBounds) };
            let (start, fetches) = (old.len(), matches!(kind, RemoteKind::FetchUpdate(_)));
            let into = if fetches {
                old.resize(start + length, 0);
                old[start..].as_mut_ptr()
            } else {
                std::ptr::null_mut()
            };
            // SAFETY: as above, and room for as many bytes.
            unsafe { own.update(updater, at, operands, into, claim) }.map(done).map_err(|HeldBy(holder)| holder)
        }
        RemoteKind::CompareSwap(number) => {
            // SAFETY: as above; there are 16 bytes.
            let [expected, new] = [0, 8].map(|place| unsafe { copy::word(operands.part(place, 8)) }.unwrap_or(0));
            let swapped = own.compare_swap(number, at, expected.to_ne_bytes(), new.to_ne_bytes(), claim);
            let was = swapped.map_err(|HeldBy(holder)| holder)?;
            old.extend(was.iter().flat_map(|was| &was[..number.size()]));
            Ok(done(was.is_some()))
        }
        // A member that holds a lock asks for no other one, and a second share would be counted as somebody else's.
        RemoteKind::Lock(_) if own.held_by(origin).is_some() => Ok(RemoteOutcome::OutOfBounds),
        RemoteKind::Lock(kind) => match own.try_lock_for(origin, hold_of(kind)) {
            Ok(()) => Ok(RemoteOutcome::Done),
            Err(_) => own.dead_holder(|rank| window.is_dead(vcs, rank)).map(RemoteOutcome::HolderFailed).ok_or(NIL),
        },
        RemoteKind::Unlock(kind) => {
            let held = own.held_by(origin) == Some(hold_of(kind));
            if held {
                own.unlock_for(origin, hold_of(kind));
            }
            Ok(done(held))
        }
        RemoteKind::LostPuts => {
            window.has_puts_in_flight = true;
            Ok(RemoteOutcome::Done)
        }
        // A batch is never an operation itself: its operations are performed one by one.
        RemoteKind::Batch => Ok(RemoteOutcome::OutOfBounds),
    }
}
