//! Memory that is registered with transports: a cache with references and a bound.
//!
//! An address outlives the memory behind it: what a transport has registered under it may be pages that the process has given
//! back. So an entry lives as long as somebody promises that its memory does:
//!
//! - an operation that is not done, and a persistent request, which own or borrow the buffer: they hold a reference;
//! - the application, for a range that it has announced ([`Registrations::announce`]): entries within stay in the cache
//!   without a reference, until the range is withdrawn, which its owner does before it frees the memory.
//!
//! With the last of these an entry is found no more, and it is deregistered at the next look at the world. It is found no more either
//! once nobody promises all of it, though an operation still uses a part of it: the rest may be freed.

use crate::limits::Limits;
use crate::{Row, Span};
use crossbeam_queue::SegQueue;
use smallvec::SmallVec;
use std::collections::HashMap;
use std::ops::BitOr;
use std::sync::Arc;

/// A transport's own name of a range that is registered with it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Registration(pub u64);

/// What a transport may do with registered memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Access(pub u8);

impl Access {
    /// Send out of it; a peer may read it, where the transport reads memory of peers.
    pub const SEND: Access = Access(1);
    /// Fill it.
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

/// A range that is registered.
#[derive(Clone, Copy, Debug)]
struct Entry {
    /// The endpoint whose transport has it.
    endpoint: u8,
    /// First address.
    start: usize,
    /// Bytes.
    length: usize,
    access: Access,
    /// The transport's name of it.
    registration: Registration,
    /// Operations and persistent requests that need it, and those of them that need all of it.
    references: u32,
    /// See `references`.
    whole: u32,
    /// When it was asked for last, in look-ups.
    used: u64,
    /// There was a time at which nobody promised all of it: it is found no more, whoever promises that memory now.
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
    /// The endpoint whose transport has it.
    endpoint: u8,
    /// The transport's name of it.
    pub registration: Registration,
    /// All of it is needed.
    whole: bool,
}

/// What the cache has done.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct RegistrationCounts {
    /// Ranges that are registered.
    pub entries: usize,
    /// Their bytes.
    pub bytes: usize,
    /// Look-ups that found one.
    pub hits: u64,
    /// Look-ups that did not.
    pub misses: u64,
    /// Ranges that had to go for the bound, or because a transport had no room for another.
    pub evictions: u64,
}

/// Entries in front of a range that a look-up passes at most: ranges that overlap are few.
const LOOKS: usize = 8;

/// All ranges that are registered, ordered by endpoint and first address.
#[derive(Debug)]
pub struct Registrations {
    /// The ranges.
    entries: Vec<Entry>,
    /// What operations that are not done hold, by the row of the envelope CAR.
    uses: HashMap<Row, Uses, ahash::RandomState>,
    /// What persistent requests hold, by request row.
    held: HashMap<Row, Uses, ahash::RandomState>,
    /// Ranges that the application has announced: (number, first address, end).
    announced: Vec<(u64, usize, usize)>,
    next: u64,
    /// Numbers of ranges that are withdrawn, from whatever thread.
    pub withdrawn: Arc<SegQueue<u64>>,
    /// Entries that are not found any more and have yet to be deregistered: (endpoint, name).
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
            held: HashMap::with_hasher(seed),
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

    /// What it has done.
    pub fn counts(&self) -> RegistrationCounts {
        let bytes = self.entries.iter().map(|entry| entry.length).sum();
        RegistrationCounts { entries: self.entries.len(), bytes, ..self.counts }
    }

    /// Operations that hold ranges.
    pub fn users(&self) -> u32 {
        self.uses.len() as u32
    }

    /// Whether an operation has its ranges.
    pub fn serves(&self, row: Row) -> bool {
        self.uses.contains_key(&row)
    }

    /// The range that covers these bytes, with one reference more; counted as a hit, or as a miss if there is none.
    pub fn find(&mut self, endpoint: u8, span: Span, access: Access) -> Option<RegistrationUse> {
        self.take_withdrawn();
        self.clock += 1;
        let start = span.start().addr();
        let behind = self.entries.partition_point(|entry| (entry.endpoint, entry.start) <= (endpoint, start));
        let fits = |&index: &usize| self.entries[index].takes(endpoint, span, access);
        let Some(index) = (0..behind).rev().take(LOOKS).find(fits) else {
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

    /// Adds a range that was just registered, with one reference.
    pub fn insert(&mut self, endpoint: u8, span: Span, access: Access, registration: Registration) -> RegistrationUse {
        let (start, length, used) = (span.start().addr(), span.len(), self.clock);
        let behind = self.entries.partition_point(|entry| (entry.endpoint, entry.start) <= (endpoint, start));
        let entry =
            Entry { endpoint, start, length, access, registration, references: 1, whole: 1, used, stale: false };
        self.entries.insert(behind, entry);
        RegistrationUse { endpoint, registration, whole: true }
    }

    /// Notes what an operation holds, or a persistent request if `persistent`.
    pub fn hold(&mut self, row: Row, reference: RegistrationUse, persistent: bool) {
        let map = if persistent { &mut self.held } else { &mut self.uses };
        map.entry(row).or_default().push(reference);
    }

    /// Ends a reference that is held by no row.
    pub fn give_back(&mut self, reference: RegistrationUse) {
        self.unreference(reference);
    }

    /// An operation is done with its ranges; whether it had any.
    pub fn release(&mut self, row: Row) -> bool {
        let uses = self.uses.remove(&row);
        uses.iter().flatten().for_each(|&name| self.unreference(name));
        uses.is_some()
    }

    /// A persistent request has come to its end, or its buffer may have moved.
    pub fn let_go(&mut self, row: Row) {
        let held = self.held.remove(&row);
        held.iter().flatten().for_each(|&name| self.unreference(name));
    }

    /// Whether a persistent request holds ranges.
    pub fn is_held(&self, row: Row) -> bool {
        self.held.contains_key(&row)
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

    /// Somebody promises an entry's memory no more.
    fn look_after(&mut self, index: usize) {
        let promised = self.entries[index].whole > 0 || self.is_announced(index);
        let entry = &mut self.entries[index];
        entry.stale |= !promised;
        if entry.stale && entry.references == 0 {
            self.remove(index);
        }
    }

    /// Whether the application promises that all memory of an entry stays.
    fn is_announced(&self, index: usize) -> bool {
        let Entry { start, length, .. } = self.entries[index];
        self.announced.iter().any(|&(_, first, last)| first <= start && start + length <= last)
    }

    fn remove(&mut self, index: usize) {
        let entry = self.entries.remove(index);
        self.dead.push((entry.endpoint, entry.registration));
    }

    /// What nobody needs is kept up to the bounds, the most recently used first.
    fn keep_bounds(&mut self) {
        loop {
            let unused = self.entries.iter().filter(|entry| entry.references == 0);
            let (count, bytes) = unused.fold((0, 0), |(count, bytes), entry| (count + 1, bytes + entry.length));
            if (count <= self.entries_max && bytes <= self.bytes_max) || !self.evict(None) {
                return;
            }
        }
    }

    /// Makes the entry that has not been used for longest go, of one endpoint or of all. `false` if all are needed.
    pub fn evict(&mut self, endpoint: Option<u8>) -> bool {
        let unused = self.entries.iter().enumerate().filter(|(_, entry)| entry.references == 0);
        let unused = unused.filter(|(_, entry)| endpoint.is_none_or(|endpoint| endpoint == entry.endpoint));
        let Some((index, _)) = unused.min_by_key(|(_, entry)| entry.used) else { return false };
        self.remove(index);
        self.counts.evictions += 1;
        true
    }

    /// Whether an endpoint's ranges are needed by somebody who will be done with them.
    pub fn is_busy(&self, endpoint: u8) -> bool {
        self.uses.values().flatten().any(|reference| reference.endpoint == endpoint)
    }

    /// The application promises that a range stays as it is until its number comes through `withdrawn`.
    pub fn announce(&mut self, span: Span) -> u64 {
        self.next += 1;
        self.announced.push((self.next, span.start().addr(), span.start().addr() + span.len()));
        self.next
    }

    /// Forgets entries whose range was withdrawn, before any look-up could find them.
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
