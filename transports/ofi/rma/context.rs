//! One context: the endpoint that operations are posted to, and the slots that their pieces use.

use super::memory_mode::MemoryMode;
use super::operation::Piece;
use crate::ofi::scalable::ScalableEndpoint;
use crate::ofi::slab::{Contexts, Slab};
use crate::ofi::{Completion, CompletionQueue, Domain, Endpoint, MemoryRegion, no_completion};
use libfabric_sys as sys;
use std::collections::VecDeque;
use std::ffi::c_void;
use std::ptr::null_mut;
use tickwire_components::limits::RMA_COMPLETIONS_A_READ;
use tickwire_components::{NIL, Span};

/// The endpoints that operations are posted to. Peers reach the first plain endpoint, or all contexts of a scalable one.
pub(super) enum Endpoints {
    Plain(Vec<Endpoint>),
    Scalable(ScalableEndpoint),
}

impl Endpoints {
    /// The endpoint, or transmit context, that a context's operations are posted to.
    pub(super) fn of(&self, context: usize) -> *mut sys::fid_ep {
        match self {
            Endpoints::Plain(endpoints) => endpoints[context].as_ptr(),
            Endpoints::Scalable(endpoint) => endpoint.transmit(context),
        }
    }

    /// The endpoint that the memory regions of a context's operations are bound to, if they must be bound to one.
    pub(super) fn bound(&self, context: usize) -> Option<&Endpoint> {
        match self {
            Endpoints::Plain(endpoints) => endpoints.get(context),
            Endpoints::Scalable(_) => None,
        }
    }

    /// How many contexts a peer can address.
    pub(super) fn named(&self, contexts: usize) -> usize {
        match self {
            Endpoints::Plain(_) => 1,
            Endpoints::Scalable(_) => contexts,
        }
    }
}

/// See the module.
pub(super) struct Context {
    pub(super) endpoint: *mut sys::fid_ep,
    pub(super) queue: CompletionQueue,
    /// Room for the completions of one read of the queue.
    pub(super) completions: [Completion; RMA_COMPLETIONS_A_READ],
    /// The region of the slots, where local memory is registered.
    _region: Option<MemoryRegion>,
    descriptor: *mut c_void,
    slots: Slab,
    contexts: Contexts,
    free: Vec<u32>,
    pieces: Vec<Option<Piece>>,
    /// How many pieces in flight belong to operations that nobody waits for any more.
    orphans: usize,
    /// Accepted operations with pieces that are not posted yet.
    pub(super) unposted: VecDeque<u32>,
}

impl Context {
    /// Makes a context with its slots. `key` is the key of the slots' region, where the provider does not choose keys itself.
    ///
    /// # Errors
    /// Why the slots cannot be registered, in words.
    pub(super) fn new(
        domain: &Domain,
        memory: MemoryMode,
        (endpoints, index): (&Endpoints, usize),
        queue: CompletionQueue,
        (count, bytes): (usize, usize),
        key: u64,
    ) -> Result<Self, String> {
        let slots = Slab::new(count, bytes);
        let region = if memory.local {
            let (access, endpoint) = (sys::FI_READ | sys::FI_WRITE, endpoints.bound(index));
            // SAFETY: the slots are freed after the region is closed.
            #[expect(unsafe_code, reason = "FFI")]
            let region = unsafe { MemoryRegion::register(domain, slots.whole(), access, key, endpoint) };
            Some(region.map_err(|error| error.to_string())?)
        } else {
            None
        };
        Ok(Context {
            endpoint: endpoints.of(index),
            queue,
            completions: [no_completion(); RMA_COMPLETIONS_A_READ],
            descriptor: region.as_ref().map_or(null_mut(), MemoryRegion::descriptor),
            _region: region,
            slots,
            contexts: Contexts::new(count),
            free: (0..count as u32).rev().collect(),
            pieces: (0..count).map(|_| None).collect(),
            orphans: 0,
            unposted: VecDeque::new(),
        })
    }

    /// Whether all slots are lost to operations that nobody waits for any more.
    pub(super) fn is_lost(&self) -> bool {
        self.orphans == self.pieces.len()
    }

    /// A free slot; `None` if all are in use.
    pub(super) fn free_slot(&self) -> Option<u32> {
        self.free.last().copied()
    }

    /// The memory of a slot, and the descriptor of its region.
    pub(super) fn slot(&self, slot: u32) -> (Span, *mut c_void) {
        (self.slots.place(slot as usize), self.descriptor)
    }

    /// The operation context of a slot.
    pub(super) fn context_of(&self, slot: u32) -> *mut c_void {
        self.contexts.of(slot as usize)
    }

    /// Notes that the provider has accepted a piece in the slot that [`Context::free_slot`] has returned.
    pub(super) fn take(&mut self, piece: Piece) {
        if let Some(slot) = self.free.pop() {
            self.pieces[slot as usize] = Some(piece);
        }
    }

    /// The provider has completed a piece. Returns the piece and its slot, which is free again.
    pub(super) fn give_back(&mut self, context: *mut c_void) -> Option<(Piece, Span)> {
        let slot = self.contexts.index(context)?;
        let piece = self.pieces.get_mut(slot)?.take()?;
        self.free.push(slot as u32);
        self.orphans -= usize::from(piece.operation == NIL);
        Some((piece, self.slots.place(slot)))
    }

    /// Nobody waits for an operation any more. Its pieces keep their slots until the provider completes them.
    pub(super) fn orphan(&mut self, operation: u32) {
        for piece in self.pieces.iter_mut().flatten().filter(|piece| piece.operation == operation) {
            piece.operation = NIL;
            self.orphans += 1;
        }
    }
}
