//! The target's side: requests of other members are done on the own memory, or wait for a lock, and are answered.

use super::frames::{Body, LEAD, send, span_of};
use crate::procs::endpoint::Endpoint;
use crate::procs::windows::regions::REGIONS;
use crate::procs::windows::{Served, WindowRow, hold_of};
use crate::rows::Rows;
use crate::steps::check::NotTaken;
use tickwire_components::limits::{REMOTE_BYTES, REMOTE_FRAMES};
use tickwire_components::wire::{Header, Kind};
use tickwire_components::{Arrival, NIL, Pending, Pieces, RemoteKind, RemoteOutcome, Span, Vc, VcState, context};
use tickwire_transports::windows::{HeldBy, Updater};
use tickwire_transports::{Sent, copy};

/// Sends the first answer.
pub(super) fn send_answer(window: &mut WindowRow, vcs: &[Vc], endpoints: &mut [Endpoint]) -> Sent {
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

/// Takes a request of another member: does it, or keeps it until that is possible.
pub(crate) fn take_request(rows: &mut Rows<'_>, arrival: &Arrival) -> Result<(), NotTaken> {
    const WRONG: NotTaken = NotTaken::Wrong("a one-sided operation that cannot be");
    let Rows { windows, vcs, progress, procs, .. } = rows;
    let header = arrival.header;
    if context::plane(header.context()) != context::WINDOW || arrival.payload.len() < LEAD {
        return Err(WRONG);
    }
    let kind = RemoteKind::from_word(header.tag()).ok_or(WRONG)?;
    let is_of_region = context::base(header.context()) == REGIONS;
    let window =
        if is_of_region { windows.regions(procs.me) } else { windows.of_context(header.context()) }.ok_or(WRONG)?;
    let handle = window.handle;
    let origin = window.member(header.source(), arrival.vc, vcs).ok_or(WRONG)? as u32;
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
pub(super) fn serve_waiting(window: &mut WindowRow, vcs: &[Vc]) -> bool {
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
    let dead = |rank| window.is_dead(vcs, rank);
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
            Err(_) => match own.dead_holder(dead) {
                Some(rank) => Ok(RemoteOutcome::HolderFailed(rank)),
                None => Err(HeldBy(0)),
            },
        },
        RemoteKind::Unlock(kind) => {
            let held = own.held_by(served.origin) == Some(hold_of(kind));
            if held {
                own.unlock_for(served.origin, hold_of(kind));
            }
            Ok(done(held))
        }
    };
    served.outcome = outcome.ok();
    served.outcome.is_some()
}
