//! Checks whether a provider really places several messages one behind the other in one posted buffer (`FI_MULTI_RECV`).
//!
//! All providers report that they do. So the check opens an endpoint, sends a few messages from it to itself, and looks where they arrive.
//! Each must lie within the buffer, behind the one before it, with its bytes; and the buffer must be given back when it is full.
//!
//! With the layer `ofi_rxm` of libfabric 1.17, all such buffers fail when a peer's connection breaks, and none is given back: nothing is
//! received any more, from any peer. So it is not checked and not used. Neither is `shm`, where receiving a message into such a buffer
//! takes one more cache miss between processors: measured, 0.13 µs of 0.56 where they are far apart.

use super::hints::message_hints;
use super::slab::{Contexts, Slab};
use super::{AddressVector, CompletionQueue, Domain, Endpoint, Fabric, Hints, Info, OfiError, no_completion};
use libfabric_sys as sys;
use std::ptr::null_mut;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// A layer that loses such buffers, and a provider that is slower with them: neither is checked.
const NOT_ASKED: [&str; 2] = ["ofi_rxm", "shm"];
/// How long the check may take.
const TIME: Duration = Duration::from_millis(200);
/// Bytes of the buffer, of a message, and of the free space below which the buffer is given back.
const BUFFER: usize = 4096;
const MESSAGE: usize = 700;
const ROOM: usize = 1024;
/// How many messages leave less free space than that.
const MESSAGES: usize = (BUFFER - ROOM) / MESSAGE + 1;

/// The same candidate with `FI_MULTI_RECV`, if that works.
pub(super) fn with_multi(info: &Info) -> Option<Info> {
    static KNOWN: Mutex<Vec<(String, bool)>> = Mutex::new(Vec::new());
    let provider = info.provider().to_owned();
    if provider.split(';').any(|layer| NOT_ASKED.contains(&layer)) {
        return None;
    }
    let caps = sys::FI_MSG | sys::FI_MULTI_RECV;
    let hints = Hints { caps, provider: Some(provider.clone()), ..message_hints() };
    let all = Info::list(info.library(), &hints).ok()?;
    let found = all.into_iter().find(|other| other.domain() == info.domain() && other.source() == info.source())?;
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    let works = match known.iter().find(|(name, _)| *name == provider) {
        Some((_, works)) => *works,
        None => {
            let works = found.copy().and_then(check).unwrap_or(false);
            known.push((provider, works));
            works
        }
    };
    works.then_some(found)
}

/// Sends messages to itself and checks where they arrive.
fn check(info: Info) -> Result<bool, OfiError> {
    if info.domain_attr().mr_mode as u64 & sys::FI_MR_LOCAL != 0 {
        // Memory would have to be registered; such a provider is hardware, whose word is taken.
        return Ok(true);
    }
    let fabric = Fabric::open(&info)?;
    // SAFETY: everything stays on this thread.
    #[expect(unsafe_code, reason = "FFI")]
    let domain = unsafe { Domain::open(&fabric, info)? };
    let (sending, receiving) = (Slab::new(MESSAGES, MESSAGE), Slab::new(1, BUFFER));
    let contexts = Contexts::new(MESSAGES + 1);
    let addresses = AddressVector::open(&domain, 1)?;
    let queue = CompletionQueue::open(&domain, 0, false)?;
    // Declared last: closed before the memory that it may touch is freed.
    let endpoint = Endpoint::open(&domain, domain.info(), &addresses, &queue, &queue)?;
    endpoint.set_least_room(ROOM)?;
    let itself = addresses.insert(&endpoint.name()?)?;
    let place = receiving.place(0);
    // SAFETY: the buffer and its context outlive the endpoint.
    #[expect(unsafe_code, reason = "FFI")]
    let posted = unsafe { endpoint.receive(place, null_mut(), sys::FI_MULTI_RECV, contexts.of(MESSAGES)) };
    let start = Instant::now();
    let (mut sent, mut received, mut at, mut done) = (0, 0, 0, false);
    while posted.is_ok() && start.elapsed() < TIME && !(done && received == MESSAGES) {
        if sent < MESSAGES {
            let message = sending.place(sent);
            // SAFETY: an own place, not under way yet; it and its context outlive the endpoint.
            #[expect(unsafe_code, reason = "FFI")]
            unsafe {
                message.start().write_bytes(sent as u8 + 1, MESSAGE);
                sent += usize::from(endpoint.send(message, null_mut(), itself, contexts.of(sent)).is_ok());
            }
        }
        let mut completion = [no_completion()];
        if queue.read(&mut completion) != Ok(1) || contexts.index(completion[0].op_context) != Some(MESSAGES) {
            continue;
        }
        let sys::fi_cq_tagged_entry { flags, len, buf, .. } = completion[0];
        done |= flags & sys::FI_MULTI_RECV != 0;
        if len == 0 {
            continue;
        }
        let Some(bytes) = receiving.part(0, buf, len) else { return Ok(false) };
        let offset = bytes.start() as usize - place.start() as usize;
        // SAFETY: within the buffer, and written by the provider.
        #[expect(unsafe_code, reason = "FFI")]
        let found = unsafe { std::slice::from_raw_parts(bytes.start(), len) };
        if len != MESSAGE || offset < at || found.iter().any(|&byte| byte != received as u8 + 1) {
            return Ok(false);
        }
        (at, received) = (offset + len, received + 1);
    }
    Ok(done && received == MESSAGES)
}
