//! The frames of one-sided operations: the payloads of requests and answers, and how they are sent.

use crate::procs::endpoint::Endpoint;
use std::any::Any;
use tickwire_components::limits::REMOTE_BYTES;
use tickwire_components::wire::Header;
use tickwire_components::{Pieces, RemoteKind, Span};
use tickwire_transports::Sent;
use tickwire_transports::windows::Updater;

/// Bytes in front of a request's payload: displacement in the part, and length.
pub(super) const LEAD: usize = 16;

/// The payload of a request or of an answer.
pub(super) struct Body {
    lead: [u8; LEAD],
    /// Bytes of `lead` that are sent.
    first: usize,
    rest: Span,
}

impl Body {
    /// The payload of a request: displacement in the part, length in bytes, and operands.
    pub(super) fn request(at: u64, length: u64, rest: Span) -> Self {
        let mut lead = [0; LEAD];
        lead[..8].copy_from_slice(&at.to_ne_bytes());
        lead[8..].copy_from_slice(&length.to_ne_bytes());
        Body { lead, first: LEAD, rest }
    }

    /// The payload of an answer: the bytes that were asked for.
    pub(super) fn answer(rest: Span) -> Self {
        Body { lead: [0; LEAD], first: 0, rest }
    }
}

// SAFETY: the bytes in front stay where they are while they are borrowed; the rest is kept by the operation that is sent. Both are only
// read.
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

/// Bytes of an operation in one request.
pub(super) fn fragment(endpoint: &Endpoint) -> u64 {
    let frame = match endpoint.abilities.registers {
        true => endpoint.abilities.copies.min(endpoint.sure_bytes),
        false => endpoint.sure_bytes,
    };
    // Requests contain whole elements.
    (frame.saturating_sub(LEAD as u64).min(REMOTE_BYTES) / 16 * 16).max(16)
}

/// Sends a request or an answer. `state` is what the transport keeps for a frame that it has taken in part.
pub(super) fn send(
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

/// A span over bytes, for reading only. The caller keeps the bytes as long as the span is used.
pub(super) fn span_of(bytes: &[u8]) -> Span {
    // SAFETY: whoever asks keeps the bytes as long as the span is used.
    unsafe { Span::new(bytes.as_ptr().cast_mut(), bytes.len()) }
}

/// Whether the operands of a request have the length that its kind and length require.
pub(super) fn fits(kind: RemoteKind, length: u64, operands: usize) -> bool {
    match kind {
        RemoteKind::Put => length == operands as u64 && length <= REMOTE_BYTES,
        RemoteKind::Get => operands == 0 && length <= REMOTE_BYTES,
        RemoteKind::Update(code) | RemoteKind::FetchUpdate(code) => {
            let whole = length.is_multiple_of(code.number.size() as u64);
            length == operands as u64 && length <= REMOTE_BYTES && whole && Updater::named(code).is_some()
        }
        RemoteKind::CompareSwap(number) => length == number.size() as u64 && operands == 16,
        RemoteKind::Lock(_) | RemoteKind::Unlock(_) | RemoteKind::LostPuts => length == 0 && operands == 0,
        RemoteKind::Batch => false,
    }
}
