//! Memory that is registered with transports: a bounded cache with reference counts.
//!
//! An address may outlive its memory: a registration of the address would then refer to pages that the process has freed. So an entry
//! is valid only as long as somebody guarantees that its memory stays:
//!
//! - an operation that is not done, or a persistent request, which owns or borrows the buffer: it holds a reference;
//! - the application, for a range that it has announced ([`Registrations::announce`]): entries within the range stay in the cache
//!   without a reference, until the range is withdrawn. Its owner withdraws it before it frees the memory.
//!
//! When the last guarantee ends, look-ups no longer find the entry, and it is deregistered at the next look at the world. Look-ups also
//! no longer find an entry once nobody guarantees all of its memory, even if an operation still uses a part of it, since the rest may
//! be freed.

use crate::limits::{Limits, RANGES_CHECKED_MAX};
use crate::{Row, Span};
use crossbeam_queue::SegQueue;
use smallvec::SmallVec;
use std::collections::HashMap;
use std::ops::BitOr;
use std::sync::Arc;

/// A transport's own identifier of a registered range.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Registration(pub u64);

/// What a transport may do with registered memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Access(pub u8);

impl Access {
    /// Send from the memory. A peer may also read it, if the transport can read memory of peers.
    pub const SEND: Access = Access(1);
    /// Receive into the memory.
    pub const RECEIVE: Access = Access(2);

    /// Whether this allows what `other` asks for.
    pub const fn covers(self, other: Access) -> bool {
        self.0 & other.0 == other.0
    }
}

impl BitOr for Access {
    type Output = Access;
    fn bitor(self, other: Access) -> Access {
        Access(self.0 | other.0)
    }
}

/// A registered range.
#[derive(Clone, Copy, Debug)]
struct Entry {
    /// The endpoint of its transport.
    endpoint: u8,
    /// First address.
    start: usize,
    /// Bytes.
    length: usize,
    access: Access,
    /// The transport's identifier.
    registration: Registration,
    /// Number of references by operations and persistent requests.
    references: u32,
    /// Number of these references that cover the whole range.
    whole: u32,
    /// The number of the look-up that last found it.
    used: u64,
    /// Whether, at some time, nobody guaranteed all of its memory. Look-ups no longer find such an entry, whoever guarantees that
    /// memory now.
    stale: bool,
}

impl Entry {
    fn takes(&self, endpoint: u8, span: Span, access: Access) -> bool {
        let (start, length) = (span.start().addr(), span.len());
        self.endpoint == endpoint
            && !self.stale
            && self.access.covers(access)
            && self.start <= start
            && start + length <= self.start + self.length
    }
}

/// A reference to an entry.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RegistrationUse {
    /// The endpoint of its transport.
    endpoint: u8,
    /// The transport's identifier.
    pub registration: Registration,
    /// Whether the reference covers the whole range.
    whole: bool,
}

/// Statistics of the cache.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct RegistrationCounts {
    /// Number of registered ranges.
    pub entries: usize,
    /// Their bytes.
    pub bytes: usize,
    /// Look-ups that found a range.
    pub hits: u64,
    /// Look-ups that found none.
    pub misses: u64,
    /// Ranges that were removed because the cache was full, or because a transport had no room for another range.
    pub evictions: u64,
}

/// All registered ranges, ordered by endpoint and first address.
#[derive(Debug)]
pub struct Registrations {
    /// The ranges.
    entries: Vec<Entry>,
    /// References of operations that are not done, by the row of the envelope CAR.
    uses: HashMap<Row, Uses, ahash::RandomState>,
    /// References of persistent requests, by the row of the request.
    persistent: HashMap<Row, Uses, ahash::RandomState>,
    /// Ranges that the application has announced: (number, first address, end).
    announced: Vec<(u64, usize, usize)>,
    next: u64,
    /// Numbers of announced ranges that are withdrawn. Any thread may push to it.
    pub withdrawn: Arc<SegQueue<u64>>,
    /// Entries that were removed and have yet to be deregistered: (endpoint, identifier).
    pub dead: Vec<(u8, Registration)>,
    clock: u64,
    counts: RegistrationCounts,
    entries_max: usize,
    bytes_max: usize,
}

/// References to entries.
type Uses = SmallVec<[RegistrationUse; 2]>;

impl Registrations {
    /// An empty cache with the bounds of these limits.
    pub fn new(limits: &Limits) -> Self {
        let seed = ahash::RandomState::with_seed(limits.hash_seed as usize);
        Registrations {
            entries: Vec::new(),
            uses: HashMap::with_hasher(seed.clone()),
            persistent: HashMap::with_hasher(seed),
            announced: Vec::new(),
            next: 0,
            withdrawn: Arc::default(),
            dead: Vec::new(),
            clock: 0,
            counts: RegistrationCounts::default(),
            entries_max: limits.registrations_max,
            bytes_max: limits.registered_bytes,
        }
    }

    /// The statistics.
    pub fn counts(&self) -> RegistrationCounts {
        let bytes = self.entries.iter().map(|entry| entry.length).sum();
        RegistrationCounts { entries: self.entries.len(), bytes, ..self.counts }
    }

    /// Number of operations that hold ranges.
    pub fn users(&self) -> u32 {
        self.uses.len() as u32
    }

    /// Whether an operation holds ranges.
    pub fn serves(&self, row: Row) -> bool {
        self.uses.contains_key(&row)
    }

    /// Whether an operation holds a range that covers these bytes.
    pub fn covers(&self, row: Row, endpoint: u8, span: Span, access: Access) -> bool {
        let is_held = |held: &RegistrationUse| {
            let named = |entry: &&Entry| entry.endpoint == held.endpoint && entry.registration == held.registration;
            self.entries.iter().find(named).is_some_and(|entry| entry.takes(endpoint, span, access))
        };
        self.uses.get(&row).is_some_and(|uses| uses.iter().any(is_held))
    }

    /// Looks up a range that covers these bytes, and adds a reference to it. Counts a hit, or a miss if there is none.
    pub fn find(&mut self, endpoint: u8, span: Span, access: Access) -> Option<RegistrationUse> {
        self.take_withdrawn();
        self.clock += 1;
        let start = span.start().addr();
        let behind = self.entries.partition_point(|entry| (entry.endpoint, entry.start) <= (endpoint, start));
        let fits = |&index: &usize| self.entries[index].takes(endpoint, span, access);
        let Some(index) = (0..behind).rev().take(RANGES_CHECKED_MAX).find(fits) else {
            self.counts.misses += 1;
            return None;
        };
        let entry = &mut self.entries[index];
        let whole = (entry.start, entry.length) == (start, span.len());
        (entry.references, entry.whole) = (entry.references + 1, entry.whole + u32::from(whole));
        entry.used = self.clock;
        self.counts.hits += 1;
        Some(RegistrationUse { endpoint, registration: entry.registration, whole })
    }

    /// Adds a newly registered range, with one reference.
    pub fn insert(&mut self, endpoint: u8, span: Span, access: Access, registration: Registration) -> RegistrationUse {
        let (start, length, used) = (span.start().addr(), span.len(), self.clock);
        let behind = self.entries.partition_point(|entry| (entry.endpoint, entry.start) <= (endpoint, start));
        let entry =
            Entry { endpoint, start, length, access, registration, references: 1, whole: 1, used, stale: false };
        self.entries.insert(behind, entry);
        RegistrationUse { endpoint, registration, whole: true }
    }

    /// Records that an operation, or a persistent request if `persistent`, holds a reference.
    pub fn hold(&mut self, row: Row, reference: RegistrationUse, persistent: bool) {
        let map = if persistent { &mut self.persistent } else { &mut self.uses };
        map.entry(row).or_default().push(reference);
    }

    /// Releases a reference that no row holds.
    pub fn give_back(&mut self, reference: RegistrationUse) {
        self.unreference(reference);
    }

    /// Releases the references of an operation that is done. Returns whether it had any.
    pub fn release(&mut self, row: Row) -> bool {
        let uses = self.uses.remove(&row);
        uses.iter().flatten().for_each(|&name| self.unreference(name));
        uses.is_some()
    }

    /// Releases the references of a persistent request that has ended, or whose buffer may have moved.
    pub fn let_go(&mut self, row: Row) {
        let uses = self.persistent.remove(&row);
        uses.iter().flatten().for_each(|&name| self.unreference(name));
    }

    /// Whether a persistent request holds ranges.
    pub fn serves_persistent(&self, row: Row) -> bool {
        self.persistent.contains_key(&row)
    }

    fn unreference(&mut self, RegistrationUse { endpoint, registration, whole }: RegistrationUse) {
        let named = |entry: &Entry| entry.endpoint == endpoint && entry.registration == registration;
        let Some(index) = self.entries.iter().position(named) else { return };
        let entry = &mut self.entries[index];
        (entry.references, entry.whole) = (entry.references - 1, entry.whole - u32::from(whole));
        let unused = entry.references == 0;
        self.look_after(index);
        if unused {
            self.keep_bounds();
        }
    }

    /// Checks an entry for whose memory a guarantee has ended: marks it stale, or removes it.
    fn look_after(&mut self, index: usize) {
        let promised = self.entries[index].whole > 0 || self.is_announced(index);
        let entry = &mut self.entries[index];
        entry.stale |= !promised;
        if entry.stale && entry.references == 0 {
            self.remove(index);
        }
    }

    /// Whether all memory of an entry is within an announced range.
    fn is_announced(&self, index: usize) -> bool {
        let Entry { start, length, .. } = self.entries[index];
        self.announced.iter().any(|&(_, first, last)| first <= start && start + length <= last)
    }

    fn remove(&mut self, index: usize) {
        let entry = self.entries.remove(index);
        self.dead.push((entry.endpoint, entry.registration));
    }

    /// Removes the least recently used entries without references, until the others are within the bounds.
    fn keep_bounds(&mut self) {
        loop {
            let unused = self.entries.iter().filter(|entry| entry.references == 0);
            let (count, bytes) = unused.fold((0, 0), |(count, bytes), entry| (count + 1, bytes + entry.length));
            if (count <= self.entries_max && bytes <= self.bytes_max) || !self.evict(None) {
                return;
            }
        }
    }

    /// Removes the least recently used entry without references, of one endpoint or of all. Returns `false` if all entries have
    /// references.
    pub fn evict(&mut self, endpoint: Option<u8>) -> bool {
        let unused = self.entries.iter().enumerate().filter(|(_, entry)| entry.references == 0);
        let unused = unused.filter(|(_, entry)| endpoint.is_none_or(|endpoint| endpoint == entry.endpoint));
        let Some((index, _)) = unused.min_by_key(|(_, entry)| entry.used) else { return false };
        self.remove(index);
        self.counts.evictions += 1;
        true
    }

    /// Whether an operation that is not done holds a range of an endpoint.
    pub fn is_busy(&self, endpoint: u8) -> bool {
        self.uses.values().flatten().any(|reference| reference.endpoint == endpoint)
    }

    /// The application guarantees that the memory of a range stays until the returned number is pushed to `withdrawn`.
    pub fn announce(&mut self, span: Span) -> u64 {
        self.next += 1;
        self.announced.push((self.next, span.start().addr(), span.start().addr() + span.len()));
        self.next
    }

    /// Processes withdrawn ranges, so that no look-up finds their entries.
    pub fn take_withdrawn(&mut self) {
        while let Some(number) = self.withdrawn.pop() {
            self.announced.retain(|&(other, ..)| other != number);
            for index in (0..self.entries.len()).rev() {
                self.look_after(index);
            }
        }
    }
}

#[cfg(test)]
mod tests;
