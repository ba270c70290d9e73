//! One-sided operations by frames, where the target's memory is not in reach: the origin sends requests ([`Kind::Remote`]), any tick of the
//! target's engine does them, and its answers ([`Kind::Answer`]) say so. The application at the target takes no part.
//!
//! Requests of one origin to one target are done in their order, so updates keep it. A long operation is several requests. Each request has an
//! answer, and an origin has at most [`REMOTE_FRAMES`] without one, so a target keeps a bounded number of answers for each origin.
//!
//! *Trust.* A request is checked as a whole before anything is done: the window, the origin's rank against the VC that it came over, bounds and
//! alignment. What cannot be from an honest origin ends the link; a displacement that is out of bounds is answered so.

#![expect(unsafe_code, reason = "bytes that are addresses")]

use crate::procs::endpoint::Endpoint;
use crate::procs::windows::regions::REGIONS;
use crate::procs::windows::{Failure, RemoteOperation, Served, WindowRow, Windows, hold_of, is_dead};
use crate::rows::Rows;
use crate::steps::check::NotTaken;
use crate::steps::finish::{abort, finish_at_once};
use crate::store::Tables;
use std::any::Any;
use tickwire_components::limits::{REMOTE_BYTES, REMOTE_FRAMES};
use tickwire_components::wire::{Header, Kind};
use tickwire_components::{
    Arrival, Car, NIL, Pending, Pieces, Progress, RemoteKind, RemoteOutcome, Row, Span, Vc, VcState, car_flags, context,
};
use tickwire_transports::windows::{HeldBy, Updater};
use tickwire_transports::{Sent, copy};

/// Bytes in front of a request's payload: where in the part, and how many bytes.
const LEAD: usize = 16;

/// A request's payload, or an answer's.
struct Body {
    lead: [u8; LEAD],
    /// Bytes of `lead` that are sent.
    first: usize,
    rest: Span,
}

impl Body {
    fn request(at: u64, length: u64, rest: Span) -> Self {
        let mut lead = [0; LEAD];
        lead[..8].copy_from_slice(&at.to_ne_bytes());
        lead[8..].copy_from_slice(&length.to_ne_bytes());
        Body { lead, first: LEAD, rest }
    }

    fn answer(rest: Span) -> Self {
        Body { lead: [0; LEAD], first: 0, rest }
    }
}

// SAFETY: the bytes in front stay where they are while they are borrowed; the rest is kept by the operation that is sent. Both are only read.
unsafe impl Pieces for Body {
    fn pieces(&self) -> usize {
        2
    }

    fn piece(&self, index: usize) -> Span {
        // SAFETY: as long as `self` is borrowed, which a send is over within.
        let lead = unsafe { Span::new(self.lead.as_ptr().cast_mut(), self.first) };
        if index == 0 { lead } else { self.rest }
    }
}

/// Bytes of an operation that one request has.
fn fragment(endpoint: &Endpoint) -> u64 {
    let frame = match endpoint.abilities.registers {
        true => endpoint.abilities.copies.min(endpoint.sure_bytes),
        false => endpoint.sure_bytes,
    };
    // Whole elements.
    (frame.saturating_sub(LEAD as u64).min(REMOTE_BYTES) / 16 * 16).max(16)
}

/// Posts an operation; [`move_windows`] sends it. One to a proc that has failed ends at once: nothing later would end it.
pub fn post_remote(rows: &mut Rows<'_>, handle: u32, target: u32, operation: RemoteOperation) {
    let Rows { windows, vcs, progress, cars, .. } = rows;
    let Some(window) = windows.get(handle) else { return };
    let is_dead = window.is_dead(vcs, target);
    let to = &mut window.targets[target as usize];
    to.issued += u64::from(!operation.kind.is_of_lock());
    if is_dead {
        to.completed = to.issued;
        if !operation.awaited && operation.request == NIL {
            to.failure = Some(Failure::TargetFailed);
        }
        let vc = to.vc;
        return fail_operation(&mut windows.ended, progress, cars, &operation, vc);
    }
    to.operations.push_back(operation);
    windows.stir(handle);
    progress.pending |= Pending::TRANSFER;
}

/// Sends requests and answers of all windows that have some, as far as there is room.
pub fn move_windows(rows: &mut Rows<'_>, endpoints: &mut [Endpoint]) {
    let mut index = 0;
    while let Some(&row) = rows.windows.busy.get(index) {
        let left = move_window(rows, endpoints, row);
        if left {
            rows.progress.pending |= Pending::TRANSFER;
        }
        // Waiting for answers is nothing to do.
        match left {
            true => index += 1,
            false => _ = rows.windows.busy.swap_remove(index),
        }
    }
}

/// Whether something is left that could not go.
fn move_window(rows: &mut Rows<'_>, endpoints: &mut [Endpoint], row: Row) -> bool {
    let Rows { windows, vcs, progress, .. } = rows;
    let Some(Some(window)) = windows.list.get_mut(row as usize) else { return false };
    let mut left = serve_waiting(window, vcs);
    while let Some(served) = window.served.front_mut() {
        if served.outcome.is_none() {
            break;
        }
        match send_answer(window, vcs, endpoints) {
            Sent::Done => {
                progress.work.sent += 1;
                window.served.pop_front();
            }
            // Its VC ends by itself, and forgets what it is owed.
            Sent::Failed => drop(window.served.pop_front()),
            _ => {
                left = true;
                break;
            }
        }
    }
    for rank in 0..window.targets.len() {
        left |= send_requests(window, rank, vcs, endpoints, progress);
    }
    left
}

/// Sends requests to a target; whether one could not go for want of room.
fn send_requests(
    window: &mut WindowRow,
    rank: usize,
    vcs: &[Vc],
    endpoints: &mut [Endpoint],
    progress: &mut Progress,
) -> bool {
    let (word, me) = (window.context | context::WINDOW, window.rank);
    let target = &mut window.targets[rank];
    let Some(vc) = vcs.get(target.vc as usize).filter(|vc| vc.state == VcState::Connected) else {
        // Not connected yet, or not any more: whoever fails it ends its operations.
        return false;
    };
    let Some(endpoint) = endpoints.get_mut(vc.endpoint as usize) else { return false };
    let most = fragment(endpoint);
    for operation in target.operations.iter_mut().filter(|operation| !operation.all_sent) {
        while !operation.all_sent {
            if target.outstanding == REMOTE_FRAMES {
                return false;
            }
            let length = (operation.length - operation.sent).min(most);
            let from = match operation.kind {
                RemoteKind::CompareSwap(_) => operation.from,
                _ => operation.from.part(operation.sent as usize, length as usize),
            };
            let body = Body::request(operation.at + operation.sent, length, from);
            let bytes = body.total() as u64;
            let header = Header::new(Kind::Remote, word, me, operation.kind.word(), target.frames, bytes);
            match send(endpoint, vc.link, &header, &body, &mut operation.state) {
                Sent::Done => {}
                Sent::Failed => return false,
                _ => return true,
            }
            progress.work.sent += 1;
            operation.state = None;
            operation.fragment = most;
            operation.sent += length;
            operation.all_sent = operation.sent == operation.length;
            target.frames = target.frames.wrapping_add(1);
            target.outstanding += 1;
        }
    }
    false
}

fn send(
    endpoint: &mut Endpoint,
    link: u32,
    header: &Header,
    body: &Body,
    state: &mut Option<Box<dyn Any + Send + Sync>>,
) -> Sent {
    if let Some(states) = endpoint.rows {
        state.get_or_insert_with(states.fresh);
    }
    let state = state.as_deref_mut().map(|state| state as &mut dyn Any);
    endpoint.transport.get().send(link, header, body, state)
}

/// Sends the first answer.
fn send_answer(window: &mut WindowRow, vcs: &[Vc], endpoints: &mut [Endpoint]) -> Sent {
    let (word, me) = (window.context | context::WINDOW, window.rank);
    let Some(served) = window.served.front() else { return Sent::Failed };
    // Attached memory may have been detached since.
    let place = window.place(served.at as usize, served.length as usize);
    let memory = place.and_then(|(part, at)| Some(part.memory()?.part(at, served.length as usize)));
    let Some(served) = window.served.front_mut() else { return Sent::Failed };
    let row = window.targets.get(served.origin as usize).map_or(NIL, |target| target.vc);
    let Some(vc) = vcs.get(row as usize).filter(|vc| vc.state == VcState::Connected) else { return Sent::Failed };
    let Some(endpoint) = endpoints.get_mut(vc.endpoint as usize) else { return Sent::Failed };
    let outcome = match (served.kind, memory) {
        (RemoteKind::Get, None) => RemoteOutcome::OutOfBounds,
        _ => served.outcome.unwrap_or(RemoteOutcome::Done),
    };
    let rest = match (served.kind, outcome) {
        (RemoteKind::Get, RemoteOutcome::Done) => memory.unwrap_or(Span::EMPTY),
        (RemoteKind::FetchUpdate(_) | RemoteKind::CompareSwap(_), RemoteOutcome::Done) => span_of(&served.data),
        _ => Span::EMPTY,
    };
    let body = Body::answer(rest);
    let header = Header::new(Kind::Answer, word, me, outcome.word(), served.number, rest.len() as u64);
    send(endpoint, vc.link, &header, &body, &mut served.state)
}

/// Bytes as a span, for reading while they are kept.
fn span_of(bytes: &[u8]) -> Span {
    // SAFETY: whoever asks keeps the bytes as long as the span is used.
    unsafe { Span::new(bytes.as_ptr().cast_mut(), bytes.len()) }
}

/// Takes a request of another member: does it, or keeps it until that is possible.
pub(super) fn take_request(rows: &mut Rows<'_>, arrival: &Arrival) -> Result<(), NotTaken> {
    const WRONG: NotTaken = NotTaken::Wrong("a one-sided operation that cannot be");
    let Rows { windows, vcs, progress, .. } = rows;
    let header = arrival.header;
    if context::plane(header.context()) != context::WINDOW || arrival.payload.len() < LEAD {
        return Err(WRONG);
    }
    let kind = RemoteKind::from_word(header.tag()).ok_or(WRONG)?;
    let is_of_region = context::base(header.context()) == REGIONS;
    let window = if is_of_region { windows.regions() } else { windows.of_context(header.context()) }.ok_or(WRONG)?;
    let handle = window.handle;
    let origin = window.member(header.source(), arrival.vc).ok_or(WRONG)? as u32;
    if window.served.iter().filter(|served| served.origin == origin).count() >= REMOTE_FRAMES as usize {
        return Err(WRONG);
    }
    // SAFETY: the payload is there until it is released.
    let [at, length] = [0, 8].map(|place| unsafe { copy::word(arrival.payload.part(place, 8)) }.unwrap_or(0));
    let operands = arrival.payload.part(LEAD, usize::MAX);
    if !fits(kind, length, operands.len()) {
        return Err(WRONG);
    }
    let mut served =
        Served { origin, number: header.message(), kind, at, length, data: Box::default(), outcome: None, state: None };
    // In order: not before another one of the same origin that waits.
    let waits = window.served.iter().any(|served| served.origin == origin && served.outcome.is_none());
    if waits || !serve(window, vcs, &mut served, operands) {
        served.data = copy::gather(&One(operands));
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

/// Whether a request has as many operands as it says.
fn fits(kind: RemoteKind, length: u64, operands: usize) -> bool {
    match kind {
        RemoteKind::Put => length == operands as u64 && length <= REMOTE_BYTES,
        RemoteKind::Get => operands == 0 && length <= REMOTE_BYTES,
        RemoteKind::Update(code) | RemoteKind::FetchUpdate(code) => {
            let whole = length.is_multiple_of(code.number.size() as u64);
            length == operands as u64 && length <= REMOTE_BYTES && whole && Updater::named(code).is_some()
        }
        RemoteKind::CompareSwap(number) => length == number.size() as u64 && operands == 16,
        RemoteKind::Lock(_) | RemoteKind::Unlock(_) => length == 0 && operands == 0,
    }
}

/// Does requests that wait, in the order of each origin; whether one still waits.
fn serve_waiting(window: &mut WindowRow, vcs: &[Vc]) -> bool {
    if window.served.iter().all(|served| served.outcome.is_some()) {
        return false;
    }
    let mut list = std::mem::take(&mut window.served);
    let mut stuck: Vec<u32> = Vec::new();
    for served in list.iter_mut().filter(|served| served.outcome.is_none()) {
        let operands = std::mem::take(&mut served.data);
        if stuck.contains(&served.origin) || !serve(window, vcs, served, span_of(&operands)) {
            stuck.push(served.origin);
            served.data = operands;
        }
    }
    // Who is done is answered before those that wait.
    let (done, waiting): (Vec<_>, Vec<_>) = list.into_iter().partition(|served| served.outcome.is_some());
    window.served = done.into_iter().chain(waiting).collect();
    !stuck.is_empty()
}

/// Does a request; `false` if it has to wait for a lock.
fn serve(window: &WindowRow, vcs: &[Vc], served: &mut Served, operands: Span) -> bool {
    let dead = |rank| is_dead(&window.targets, vcs, rank);
    let Some(own) = window.own_part() else {
        served.outcome = Some(RemoteOutcome::OutOfBounds);
        return true;
    };
    let done = |is_done| if is_done { RemoteOutcome::Done } else { RemoteOutcome::OutOfBounds };
    let length = served.length as usize;
    let placed = match served.kind {
        RemoteKind::Lock(_) | RemoteKind::Unlock(_) => Some((own, 0)),
        _ => window.place(served.at as usize, length).filter(|_| window.permits(served.kind, served.at as usize)),
    };
    let Some((own, at)) = placed else {
        served.outcome = Some(RemoteOutcome::OutOfBounds);
        return true;
    };
    let outcome = match served.kind {
        // SAFETY: a payload that is there until it is released, or operands that are kept by the caller.
        RemoteKind::Put => Ok(done(unsafe { own.put(at, operands) })),
        RemoteKind::Get => Ok(done(at.checked_add(length).is_some_and(|end| end <= own.bytes()))),
        RemoteKind::Update(code) | RemoteKind::FetchUpdate(code) => {
            let Some(updater) = Updater::named(code) else { return true };
            let fetches = matches!(served.kind, RemoteKind::FetchUpdate(_));
            served.data = if fetches { vec![0; length].into() } else { Box::default() };
            let old = if fetches { served.data.as_mut_ptr() } else { std::ptr::null_mut() };
            // SAFETY: as above, and room for as many bytes.
            unsafe { own.update(updater, at, operands, old, dead) }.map(done)
        }
        RemoteKind::CompareSwap(number) => {
            // SAFETY: as above; there are 16 bytes.
            let [expected, new] = [0, 8].map(|place| unsafe { copy::word(operands.part(place, 8)) }.unwrap_or(0));
            own.compare_swap(number, at, expected.to_ne_bytes(), new.to_ne_bytes(), dead).map(|old| {
                served.data = old.map_or(Box::default(), |old| old[..number.size()].into());
                done(old.is_some())
            })
        }
        RemoteKind::Lock(kind) => match own.try_lock_for(served.origin, hold_of(kind)) {
            Ok(()) => Ok(RemoteOutcome::Done),
            Err(_) => match own.holders().find(|&(rank, _)| dead(rank)) {
                Some((rank, _)) => Ok(RemoteOutcome::HolderFailed(rank)),
                None => Err(HeldBy(0)),
            },
        },
        RemoteKind::Unlock(kind) => {
            let held = own.holders().any(|holder| holder == (served.origin, hold_of(kind)));
            if held {
                own.unlock_for(served.origin, hold_of(kind));
            }
            Ok(done(held))
        }
    };
    served.outcome = outcome.ok();
    served.outcome.is_some()
}

/// Takes the answer to a request.
pub(super) fn take_answer(rows: &mut Rows<'_>, arrival: &Arrival) -> Result<(), NotTaken> {
    const WRONG: NotTaken = NotTaken::Wrong("an answer to no one-sided operation");
    let header = arrival.header;
    if context::plane(header.context()) != context::WINDOW {
        return Err(WRONG);
    }
    let outcome = RemoteOutcome::from_word(header.tag()).ok_or(WRONG)?;
    let window = rows.windows.of_context(header.context()).ok_or(WRONG)?;
    let handle = window.handle;
    let rank = window.member(header.source(), arrival.vc).ok_or(WRONG)?;
    let target = &mut window.targets[rank];
    let operation = target.operations.front_mut().ok_or(WRONG)?;
    if header.message() != target.answers || target.outstanding == 0 {
        return Err(WRONG);
    }
    // What an honest target answers: as much as the request has asked for.
    let asked = (operation.sent - operation.answered).min(operation.fragment);
    let has_bytes = operation.kind.is_answered_by_bytes() && outcome == RemoteOutcome::Done;
    if arrival.payload.len() as u64 != if has_bytes { asked } else { 0 } {
        return Err(WRONG);
    }
    // SAFETY: the origin keeps the place until the operation has ended; the payload is there until it is released.
    unsafe { copy::copy_long(operation.into.part(operation.answered as usize, usize::MAX), arrival.payload) };
    operation.answered += asked;
    target.answers = target.answers.wrapping_add(1);
    target.outstanding -= 1;
    let failure = match outcome {
        RemoteOutcome::Done => None,
        RemoteOutcome::OutOfBounds => Some(Failure::OutOfBounds),
        RemoteOutcome::HolderFailed(rank) => Some(Failure::HolderFailed(rank)),
    };
    operation.failure = operation.failure.or(failure);
    if operation.all_sent && operation.answered == operation.length {
        end_first(rows, handle, rank);
    }
    rows.windows.stir(handle);
    rows.progress.pending |= Pending::TRANSFER;
    rows.progress.work.received += 1;
    Ok(())
}

/// The first operation to a target is done, or has failed there.
fn end_first(rows: &mut Rows<'_>, handle: u32, rank: usize) {
    let Rows { windows, progress, cars, requests, .. } = rows;
    let Some(target) = windows.get(handle).and_then(|window| window.targets.get_mut(rank)) else { return };
    let Some(operation) = target.operations.pop_front() else { return };
    target.completed += u64::from(!operation.kind.is_of_lock());
    let RemoteOperation { failure, request, awaited, number, length, .. } = operation;
    match (request, failure) {
        (NIL, _) if awaited => windows.ended.push((number, failure.map_or(Ok(()), Err))),
        (NIL, _) => target.failure = target.failure.or(failure),
        (row, None) => finish_at_once(progress, cars, requests, row, length, false),
        (row, Some(_)) => abort(progress, cars, row, car_flags::OUT_OF_BOUNDS),
    }
}

/// A VC has failed: operations to its proc end, and what it is owed is forgotten.
pub(crate) fn fail_windows(all: &mut Tables<'_>, vc: Row) {
    let Tables { windows, progress, cars, .. } = all;
    let Windows { list, ended, .. } = &mut **windows;
    for window in list.iter_mut().flatten() {
        let targets = &window.targets;
        window.served.retain(|served| targets.get(served.origin as usize).is_none_or(|target| target.vc != vc));
        for target in window.targets.iter_mut().filter(|target| target.vc == vc) {
            (target.outstanding, target.by_fabric, target.has_mail) = (0, 0, false);
            target.completed = target.issued;
            target.failure = Some(Failure::TargetFailed);
            for operation in target.operations.drain(..) {
                fail_operation(ended, progress, cars, &operation, vc);
            }
        }
    }
}

/// The target of an operation has failed: whoever waits for it is told.
fn fail_operation(
    ended: &mut Vec<(u64, Result<(), Failure>)>,
    progress: &mut Progress,
    cars: &mut [Car],
    operation: &RemoteOperation,
    vc: Row,
) {
    if operation.awaited {
        ended.push((operation.number, Err(Failure::TargetFailed)));
    }
    if operation.request != NIL {
        cars[operation.request as usize].vc = vc;
        abort(progress, cars, operation.request, car_flags::PEER_FAILED);
    }
}

/// Takes the memory of the caller away from an operation: what has not left stays, and answers go nowhere.
pub fn cut_operation(rows: &mut Rows<'_>, handle: u32, target: u32, number: u64) {
    let Some(window) = rows.windows.get(handle) else { return };
    let target = &mut window.targets[target as usize];
    if let Some(place) = target.operations.iter().position(|operation| operation.number == number)
        && cut(&mut target.operations[place])
        && let Some(operation) = target.operations.remove(place)
    {
        target.completed += u64::from(!operation.kind.is_of_lock());
    }
}

/// Whether nothing of it has left, so that no answer comes.
fn cut(operation: &mut RemoteOperation) -> bool {
    (operation.from, operation.into, operation.awaited) = (Span::EMPTY, Span::EMPTY, false);
    let has_left = operation.sent > 0 || operation.all_sent;
    (operation.length, operation.all_sent) = (operation.sent, true);
    !has_left
}

/// Takes the memory of callers away from all operations without a request: a panic has left the call that lent it.
pub fn cut_loans(windows: &mut Windows) {
    for target in windows.list.iter_mut().flatten().flat_map(|window| &mut window.targets) {
        target.operations.retain_mut(|operation| operation.request != NIL || !cut(operation));
        // Nobody asks any more: the engine is poisoned.
        target.completed = target.issued;
    }
}

/// Takes a window out: no fabric reaches its memory any more.
pub fn remove_window(rows: &mut Rows<'_>, endpoints: &mut [Endpoint], handle: u32) -> Option<Box<WindowRow>> {
    let window = rows.windows.remove(handle)?;
    if let Some((endpoint, key)) = window.fabric_key
        && let Some(fabric) = endpoints.get_mut(usize::from(endpoint)).and_then(|of| of.transport.get().one_sided())
    {
        fabric.withdraw_exposed(&key);
    }
    Some(window)
}

/// Ends all windows: the engine takes part in nothing any more.
pub fn close_windows(rows: &mut Rows<'_>, endpoints: &mut [Endpoint]) {
    let handles: Vec<u32> = rows.windows.list.iter().flatten().map(|window| window.handle).collect();
    for handle in handles {
        let Some(window) = remove_window(rows, endpoints, handle) else { continue };
        let WindowRow { targets, own, .. } = *window;
        for operation in targets.into_iter().flat_map(|target| target.operations) {
            if operation.request != NIL {
                abort(&mut rows.progress, &mut rows.cars, operation.request, car_flags::FINALIZED);
            }
        }
        // Others may still write there.
        std::mem::forget(own);
    }
    rows.windows.busy.clear();
}

#[cfg(test)]
mod tests;
