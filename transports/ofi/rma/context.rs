//! One context: where operations are posted, and what each of them is given.

use super::memory_mode::MemoryMode;
use super::operation::Piece;
use crate::ofi::scalable::ScalableEndpoint;
use crate::ofi::slab::{Contexts, Slab};
use crate::ofi::{Completion, CompletionQueue, Domain, Endpoint, MemoryRegion, no_completion};
use libfabric_sys as sys;
use std::collections::VecDeque;
use std::ffi::c_void;
use std::ptr::null_mut;
use tickwire_components::{NIL, Span};

/// Pieces of operations that may be under way in a context.
pub(super) const SLOTS: usize = 256;
/// The same where all bytes go through the slots, which are longer then: 4 MiB, which are no memory until they are used.
pub(super) const LONG_SLOTS: usize = 64;
/// Bytes of a slot: of a page, which takes a tenth of the time to copy that an operation takes; and where all bytes go through them.
pub(super) const SLOT_BYTES: usize = 4 << 10;
pub(super) const LONG_SLOT_BYTES: usize = 64 << 10;

/// Completions that one read of a context's queue finds at most.
const COMPLETIONS: usize = 16;

/// What operations are posted to. Peers reach the first endpoint, or all contexts of a scalable one.
pub(super) enum Endpoints {
    Plain(Vec<Endpoint>),
    Scalable(ScalableEndpoint),
}

impl Endpoints {
    /// Where the operations of a context are posted.
    pub(super) fn of(&self, context: usize) -> *mut sys::fid_ep {
        match self {
            Endpoints::Plain(endpoints) => endpoints[context].as_ptr(),
            Endpoints::Scalable(endpoint) => endpoint.transmit(context),
        }
    }

    /// The endpoint that regions for a context's operations are bound to, where they are bound at all.
    pub(super) fn bound(&self, context: usize) -> Option<&Endpoint> {
        match self {
            Endpoints::Plain(endpoints) => endpoints.get(context),
            Endpoints::Scalable(_) => None,
        }
    }

    /// Contexts that a peer can name.
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
    /// Room for what one read of the queue finds.
    pub(super) completions: [Completion; COMPLETIONS],
    /// That of the slots, where local memory is registered.
    _region: Option<MemoryRegion>,
    descriptor: *mut c_void,
    slots: Slab,
    contexts: Contexts,
    free: Vec<u32>,
    pieces: Vec<Option<Piece>>,
    /// Pieces of operations that nobody waits for any more.
    orphans: usize,
    /// Operations that were taken and have pieces to be posted.
    pub(super) unposted: VecDeque<u32>,
}

impl Context {
    /// Makes the slots of one. `key` names them where the provider does not choose.
    ///
    /// # Errors
    /// Why they cannot be registered, in words.
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
            completions: [no_completion(); COMPLETIONS],
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

    /// Whether all of it is lost to operations that nobody waits for.
    pub(super) fn is_lost(&self) -> bool {
        self.orphans == self.pieces.len()
    }

    /// A free slot; `None` if all are in use.
    pub(super) fn free_slot(&self) -> Option<u32> {
        self.free.last().copied()
    }

    /// The memory of a slot, and what operations on it take.
    pub(super) fn slot(&self, slot: u32) -> (Span, *mut c_void) {
        (self.slots.place(slot as usize), self.descriptor)
    }

    /// What an operation that uses a slot is given.
    pub(super) fn context_of(&self, slot: u32) -> *mut c_void {
        self.contexts.of(slot as usize)
    }

    /// The provider has taken a piece, with the slot that [`Context::free_slot`] has given.
    pub(super) fn take(&mut self, piece: Piece) {
        if let Some(slot) = self.free.pop() {
            self.pieces[slot as usize] = Some(piece);
        }
    }

    /// The provider is done with a piece: the piece, and its slot, which is free.
    pub(super) fn give_back(&mut self, context: *mut c_void) -> Option<(Piece, Span)> {
        let slot = self.contexts.index(context)?;
        let piece = self.pieces.get_mut(slot)?.take()?;
        self.free.push(slot as u32);
        self.orphans -= usize::from(piece.operation == NIL);
        Some((piece, self.slots.place(slot)))
    }

    /// Nobody waits for an operation any more; its pieces keep their slots.
    pub(super) fn orphan(&mut self, operation: u32) {
        for piece in self.pieces.iter_mut().flatten().filter(|piece| piece.operation == operation) {
            piece.operation = NIL;
            self.orphans += 1;
        }
    }
}
