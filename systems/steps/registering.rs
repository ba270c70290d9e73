//! Registers memory with the transports that need it, through a cache of registrations.
//!
//! *Reads* CARs, endpoints. *Writes* the registrations, and what the transports have registered.
//! *Bound* the runs of one operation; for [`sweep`], the registrations that nobody needs any more.
//! *Why* such a transport sends only from memory that it has registered, except for payloads that it copies at once. An operation has its
//! memory registered before its first frame, and releases it before its request is done, since the application may free the buffer from
//! then on.

use crate::procs::endpoint::Endpoint;
use smallvec::SmallVec;
use tickwire_components::{Access, Car, CarKind, NIL, Pending, Progress, Registration, RegistrationUse, Row, Span};
use tickwire_transports::Registering;

/// Registers the memory of an envelope CAR with the transport of an endpoint, unless that is done already. `Ok(false)` if the operation
/// must wait until others release their registrations.
///
/// # Errors
/// Why the transport refuses, in words.
#[cold]
pub fn serve(
    progress: &mut Progress,
    cars: &[Car],
    endpoint: &mut Endpoint,
    number: u8,
    row: Row,
    access: Access,
) -> Result<bool, String> {
    purge(progress, endpoint, number);
    if progress.registrations.serves(row) {
        return Ok(true);
    }
    for span in runs(cars, row, endpoint.abilities.copies) {
        match acquire(progress, endpoint, number, span, access) {
            Ok(reference) => progress.registrations.hold(row, reference, false),
            Err(words) => {
                // Release what was acquired so far: two operations that wait must not hold what the other one needs.
                progress.registrations.release(row);
                return if progress.registrations.is_busy(number) { Ok(false) } else { Err(words) };
            }
        }
    }
    progress.registered = progress.registrations.users();
    Ok(true)
}

/// Registers a run of a message that comes in several, unless that is done already. What was registered for the run before is released.
/// `Ok(false)` if the message must wait until others release their registrations.
///
/// # Errors
/// Why the transport refuses, in words.
#[cold]
pub fn serve_run(
    progress: &mut Progress,
    endpoint: &mut Endpoint,
    number: u8,
    row: Row,
    run: Span,
) -> Result<bool, String> {
    purge(progress, endpoint, number);
    if run.len() as u64 <= endpoint.abilities.copies || progress.registrations.covers(row, number, run, Access::SEND) {
        return Ok(true);
    }
    release(progress, row);
    match acquire(progress, endpoint, number, run, Access::SEND) {
        Ok(reference) => progress.registrations.hold(row, reference, false),
        Err(_) if progress.registrations.is_busy(number) => return Ok(false),
        Err(words) => return Err(words),
    }
    progress.registered = progress.registrations.users();
    Ok(true)
}

/// The runs of an envelope CAR that must be registered. There are none if the message is so short that the transport copies it at once. A
/// datatype's layout is packed first, and the memory that it is packed into is registered where that is done.
fn runs(cars: &[Car], row: Row, copies: u64) -> SmallVec<[Span; 2]> {
    let envelope = &cars[row as usize];
    if !matches!(envelope.kind, CarKind::Send | CarKind::Receive) || crate::steps::chain::capacity(cars, row) <= copies
    {
        return SmallVec::new();
    }
    let mut spans = SmallVec::new();
    let mut data = if envelope.chain == NIL { row } else { envelope.chain };
    while let Some(car) = cars.get(data as usize) {
        if car.kind != CarKind::Layout && !car.span.is_empty() {
            spans.push(car.span);
        }
        data = car.chain;
    }
    spans
}

/// Finds a registration that covers a run, or makes a new one. To make room, it may evict registrations that nobody uses.
///
/// Callers ask for a registration before they give an operation to the transport, even where none is needed: this first deregisters dead
/// memory, so all memory that the transport knows is still valid.
///
/// # Errors
/// Why the transport refuses, in words.
pub fn acquire(
    progress: &mut Progress,
    endpoint: &mut Endpoint,
    number: u8,
    span: Span,
    access: Access,
) -> Result<RegistrationUse, String> {
    purge(progress, endpoint, number);
    let cache = &mut progress.registrations;
    if let Some(found) = cache.find(number, span, access) {
        return Ok(found);
    }
    let words = "the transport uses any memory";
    let transport = endpoint.transport.get().registering().ok_or(words)?;
    loop {
        match transport.register(span, access) {
            Ok(registration) => return Ok(cache.insert(number, span, access, registration)),
            Err(words) if !cache.evict(Some(number)) => return Err(words),
            Err(_) => deregister(&mut cache.dead, transport, number),
        }
    }
}

/// Deregisters memory of one endpoint's transport that nobody uses any more.
pub fn purge(progress: &mut Progress, endpoint: &mut Endpoint, number: u8) {
    let cache = &mut progress.registrations;
    cache.take_withdrawn();
    if let Some(transport) = endpoint.transport.get().registering().filter(|_| !cache.dead.is_empty()) {
        deregister(&mut cache.dead, transport, number);
    }
}

fn deregister(dead: &mut Vec<(u8, Registration)>, transport: &mut dyn Registering, number: u8) {
    let of = |(other, _): &&(u8, Registration)| *other == number;
    dead.iter().filter(of).for_each(|&(_, registration)| transport.deregister(registration));
    dead.retain(|(other, _)| *other != number);
}

/// Releases the registrations of a finished CAR.
#[cold]
pub fn release(progress: &mut Progress, row: Row) {
    if progress.registrations.release(row) {
        progress.registered = progress.registrations.users();
        progress.pending |= Pending::WORLD;
    }
}

/// Deregisters memory of all endpoints that nobody uses any more.
#[cold]
pub fn sweep(progress: &mut Progress, endpoints: &mut [Endpoint]) {
    progress.registrations.take_withdrawn();
    for (number, registration) in progress.registrations.dead.drain(..) {
        if let Some(transport) = endpoints[number as usize].transport.get().registering() {
            transport.deregister(registration);
        }
    }
}
