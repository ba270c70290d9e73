//! Places: memory for one message each, which the provider writes, and what each is used for.

use crate::ReceiveEnvelope;
use crate::ofi::slab::{Contexts, Slab};
use crate::ofi::{Domain, Endpoint, MemoryRegion, OfiError};
use libfabric_sys as sys;
use std::ffi::c_void;
use std::ops::{Index, IndexMut};
use std::ptr::null_mut;
use tickwire_components::{NIL, Row, Span};

/// The first of the keys that places are registered under: behind those of the port's own regions, one for each slot at most.
const PLACE_KEYS: u64 = 1 << 12;
/// How many places are allocated at once.
const CHUNK: usize = 64;

/// The places in one allocation, which never moves.
struct Chunk {
    /// Freed after the region is closed.
    _region: Option<MemoryRegion>,
    descriptor: *mut c_void,
    places: Slab,
    contexts: Contexts,
}

/// What a place is used for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Use {
    Free,
    /// A receive of this row.
    Receive(Row),
    /// A probe for a message, which is claimed if there is one and `claims` is set.
    Look {
        claims: bool,
    },
    /// The receive of a message that was claimed.
    Claim,
    /// A probe for a receive that is to be cancelled only if no message is there for it.
    Check,
}

/// One place.
#[derive(Clone, Copy)]
pub(super) struct Place {
    pub(super) used: Use,
    /// The envelope that its operation matches.
    pub(super) wanted: ReceiveEnvelope,
    /// The peer whose messages it matches; `FI_ADDR_UNSPEC` for any.
    pub(super) from: sys::fi_addr_t,
    /// It is to be cancelled.
    pub(super) asked: bool,
}

const FREE: Place = Place {
    used: Use::Free,
    wanted: ReceiveEnvelope { link: NIL, context: 0, source: 0, tag: 0 },
    from: sys::FI_ADDR_UNSPEC,
    asked: false,
};

/// All places. They are allocated when they are needed, and never freed before the end.
pub(super) struct Places {
    /// Bytes of a place: header and payload.
    bytes: usize,
    chunks: Vec<Chunk>,
    places: Vec<Place>,
    free: Vec<u32>,
}

impl Places {
    /// No places yet; each will have `bytes` bytes.
    pub(super) fn new(bytes: usize) -> Self {
        Places { bytes, chunks: Vec::new(), places: Vec::new(), free: Vec::new() }
    }

    /// Takes a free place.
    ///
    /// # Errors
    /// If there is no more memory for places.
    pub(super) fn take(
        &mut self,
        endpoint: &Endpoint,
        used: Use,
        wanted: &ReceiveEnvelope,
        from: sys::fi_addr_t,
    ) -> Result<u32, OfiError> {
        let place = match self.free.pop() {
            Some(place) => place,
            None => self.grow(endpoint)?,
        };
        self[place] = Place { used, wanted: *wanted, from, asked: false };
        Ok(place)
    }

    /// Makes a place free again.
    pub(super) fn give_back(&mut self, place: u32) {
        self[place].used = Use::Free;
        self.free.push(place);
    }

    /// The context of operations on a place.
    pub(super) fn context(&self, place: u32) -> *mut c_void {
        self.chunks[place as usize / CHUNK].contexts.of(place as usize % CHUNK)
    }

    /// The memory of a place.
    pub(super) fn bytes_of(&self, place: u32) -> Span {
        self.chunks[place as usize / CHUNK].places.place(place as usize % CHUNK)
    }

    /// The descriptor of a place's memory.
    pub(super) fn descriptor(&self, place: u32) -> *mut c_void {
        self.chunks[place as usize / CHUNK].descriptor
    }

    /// The place that an operation context belongs to.
    pub(super) fn of(&self, context: *mut c_void) -> Option<u32> {
        let found = self.chunks.iter().enumerate().find_map(|(chunk, c)| Some((chunk, c.contexts.index(context)?)));
        found.map(|(chunk, index)| (chunk * CHUNK + index) as u32)
    }

    /// All places with their numbers.
    pub(super) fn all(&mut self) -> impl Iterator<Item = (u32, &mut Place)> {
        (0..).zip(&mut self.places)
    }

    /// Makes more places; returns one of them.
    fn grow(&mut self, endpoint: &Endpoint) -> Result<u32, OfiError> {
        let domain: &Domain = endpoint.domain();
        let (places, contexts) = (Slab::new(CHUNK, self.bytes), Contexts::new(CHUNK));
        let mut region = None;
        if domain.info().domain_attr().mr_mode as u64 & sys::FI_MR_LOCAL != 0 {
            let key = PLACE_KEYS + self.chunks.len() as u64;
            // SAFETY: the slab is freed after the region is closed, and both after the endpoint.
            #[expect(unsafe_code, reason = "FFI")]
            let registered =
                unsafe { MemoryRegion::register(domain, places.whole(), sys::FI_RECV, key, Some(endpoint))? };
            region = Some(registered);
        }
        let descriptor = region.as_ref().map_or(null_mut(), MemoryRegion::descriptor);
        let first = self.places.len() as u32;
        self.chunks.push(Chunk { _region: region, descriptor, places, contexts });
        self.places.extend((0..CHUNK).map(|_| FREE));
        self.free.extend((first + 1..first + CHUNK as u32).rev());
        Ok(first)
    }
}

impl Index<u32> for Places {
    type Output = Place;

    #[inline]
    fn index(&self, place: u32) -> &Place {
        &self.places[place as usize]
    }
}

impl IndexMut<u32> for Places {
    #[inline]
    fn index_mut(&mut self, place: u32) -> &mut Place {
        &mut self.places[place as usize]
    }
}
