//! The registration cache of an endpoint: memory regions for the buffers of persistent requests, for exposed runs, and for local runs of
//! operations.
//!
//! A region belongs to a domain, and an endpoint has several: one for one-sided operations, and one for the long messages of each
//! connection. So the engine's cache ([`Registering`](crate::Registering)) says which memory stays valid, and this one which of it each
//! domain has registered.
//!
//! - An **exposed run** has a region of its own, which allows remote access only and is not shared. So withdrawing the run closes the
//!   region at once, even if operations of this proc use the same memory, and the key is invalid from then on.
//! - A **local run** is looked up if its domain requires registration (`FI_MR_LOCAL`). If it lies within *kept* memory, all of that memory
//!   is registered, and stays so until it is no longer kept. Otherwise only the run is registered, until its operation is complete.
//! - A region is reused only while all of its memory is sure to stay: because it is kept, or because an operation in flight uses all of it.
//!   So memory that was freed and mapped anew never uses an old region.

use super::own::random;
use super::{Domain, Endpoint, MemoryRegion, OfiError};
use libfabric_sys as sys;
use std::ffi::c_void;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tickwire_components::limits::{FABRIC_KEY_TRIES, FABRIC_REGIONS_IDLE_MAX};
use tickwire_components::{Access, RegistrationCounts, Span};

/// Where to register a region: a domain, and how it requires registration.
#[derive(Clone, Copy)]
pub(super) struct Place<'a> {
    pub(super) domain: &'a Domain,
    /// The endpoint that regions are bound to, if they must be bound to one (`FI_MR_ENDPOINT`).
    pub(super) endpoint: Option<&'a Endpoint>,
    /// The bits that a key may have, where this process chooses it.
    pub(super) key_mask: u64,
}

/// The cache. Clones are the same one.
#[derive(Clone, Default)]
pub(super) struct Registry(Arc<Mutex<Table>>);

#[derive(Default)]
struct Table {
    entries: Vec<Entry>,
    kept: Vec<Kept>,
    next: u64,
    clock: u64,
    counts: RegistrationCounts,
}

struct Entry {
    name: u64,
    /// The addresses of the domain and of the endpoint that the region is bound to. `region` keeps both objects, so the addresses are not
    /// reused.
    owner: (usize, usize),
    start: usize,
    length: usize,
    flags: u64,
    region: MemoryRegion,
    /// How many operations use it, and how many of these use all of it.
    references: u32,
    whole: u32,
    used: u64,
    /// At some time, nothing guaranteed that all of its memory stays. So it is not reused any more.
    stale: bool,
}

/// Memory that is guaranteed to stay until it is no longer kept.
struct Kept {
    name: u64,
    run: Span,
    access: Access,
}

/// A registered local run. Dropping this releases it.
pub(super) struct Local {
    registry: Registry,
    name: u64,
    whole: bool,
    region: MemoryRegion,
}

/// An exposed run. Dropping this closes its region.
pub(super) struct Remote {
    registry: Registry,
    name: u64,
    key: u64,
}

/// Closes all regions of a domain when it is dropped.
pub(super) struct OfDomain {
    registry: Registry,
    domain: usize,
}

impl Place<'_> {
    fn owner(&self) -> (usize, usize) {
        (self.domain.as_ptr().addr(), self.endpoint.map_or(0, |endpoint| endpoint.as_ptr().addr()))
    }

    /// Registers memory. Where the provider does not choose the key, it is random, since a peer that knows the key can use the memory.
    ///
    /// # Safety
    /// The memory stays until the region is closed.
    #[expect(unsafe_code, reason = "FFI")]
    unsafe fn register(&self, run: Span, flags: u64) -> Result<MemoryRegion, String> {
        for _ in 0..FABRIC_KEY_TRIES {
            let key = new_key(self.key_mask)?;
            // SAFETY: by this function's contract.
            match unsafe { MemoryRegion::register(self.domain, run, flags, key, self.endpoint) } {
                Ok(region) => return Ok(region),
                Err(OfiError::Call { code, .. }) if code == sys::FI_ENOKEY as i32 => {}
                Err(error) => return Err(error.to_string()),
            }
        }
        Err(format!("provider {} takes no key: withdraw some runs", self.domain.info().provider()))
    }
}

/// A random key, within a mask.
pub(super) fn new_key(mask: u64) -> Result<u64, String> {
    let key = random().map_err(|error| format!("no random numbers ({error})"))? & mask;
    Ok(if key == sys::FI_KEY_NOTAVAIL { 1 } else { key })
}

/// The access that kept memory must allow, for a region with these flags.
fn needed(flags: u64) -> Access {
    let (sends, fills) = (flags & (sys::FI_SEND | sys::FI_WRITE) != 0, flags & (sys::FI_RECV | sys::FI_READ) != 0);
    match (sends, fills) {
        (_, false) => Access::SEND,
        (false, true) => Access::RECEIVE,
        (true, true) => Access::SEND | Access::RECEIVE,
    }
}

fn holds((start, length): (usize, usize), (first, bytes): (usize, usize)) -> bool {
    start <= first && first - start + bytes <= length
}

impl Registry {
    fn table(&self) -> MutexGuard<'_, Table> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts of the cache. Exposed runs are among the entries.
    pub(super) fn counts(&self) -> RegistrationCounts {
        let table = self.table();
        let bytes = table.entries.iter().map(|entry| entry.length).sum();
        RegistrationCounts { entries: table.entries.len(), bytes, ..table.counts }
    }

    /// Notes that memory stays until [`Registry::drop_kept`] is called with the name that this returns.
    pub(super) fn keep(&self, run: Span, access: Access) -> u64 {
        let mut table = self.table();
        let name = table.name();
        table.kept.push(Kept { name, run, access });
        name
    }

    /// Memory is no longer kept. Its regions are closed now, or with the last operation that uses them.
    pub(super) fn drop_kept(&self, name: u64) {
        let mut table = self.table();
        table.kept.retain(|kept| kept.name != name);
        (0..table.entries.len()).rev().for_each(|index| table.look_after(index));
    }

    /// A region that contains a local run, for operations with these flags (`FI_SEND`, `FI_RECV`, `FI_READ`, `FI_WRITE`).
    ///
    /// # Safety
    /// The run stays until what this returns is dropped.
    ///
    /// # Errors
    /// Why the provider refuses, in words.
    #[expect(unsafe_code, reason = "FFI")]
    pub(super) unsafe fn local(&self, place: Place<'_>, run: Span, flags: u64) -> Result<Local, String> {
        let mut table = self.table();
        table.clock += 1;
        let asked = (run.start().addr(), run.len());
        let index = match table.find(place.owner(), asked, flags) {
            Some(index) => {
                table.counts.hits += 1;
                index
            }
            None => {
                table.counts.misses += 1;
                let kept = table.kept.iter().filter(|kept| kept.keeps(asked, flags));
                let all = kept.map(|kept| kept.run).max_by_key(Span::len).unwrap_or(run);
                // SAFETY: the run stays by this function's contract, and kept memory until it is kept no more, which closes the region.
                let region = unsafe { table.register(place, all, flags)? };
                table.insert(place.owner(), all, flags, region)
            }
        };
        let clock = table.clock;
        let entry = &mut table.entries[index];
        let whole = asked == (entry.start, entry.length);
        (entry.references, entry.whole, entry.used) = (entry.references + 1, entry.whole + u32::from(whole), clock);
        Ok(Local { registry: self.clone(), name: entry.name, whole, region: entry.region.clone() })
    }

    /// A region for a run that peers use. The flags allow remote access only.
    ///
    /// # Safety
    /// The run stays until what this returns is dropped.
    ///
    /// # Errors
    /// Why the provider refuses, in words.
    #[expect(unsafe_code, reason = "FFI")]
    pub(super) unsafe fn remote(&self, place: Place<'_>, run: Span, flags: u64) -> Result<Remote, String> {
        let mut table = self.table();
        // SAFETY: by this function's contract.
        let region = unsafe { table.register(place, run, flags)? };
        let key = region.key();
        let index = table.insert(place.owner(), run, flags, region);
        let name = table.entries[index].name;
        Ok(Remote { registry: self.clone(), name, key })
    }

    /// Returns a guard that closes all regions of the domain when it is dropped. The owner of the domain drops it after the endpoints and
    /// before the domain.
    pub(super) fn of_domain(&self, domain: &Domain) -> OfDomain {
        OfDomain { registry: self.clone(), domain: domain.as_ptr().addr() }
    }

    fn release(&self, name: u64, whole: bool) {
        let mut table = self.table();
        let Some(index) = table.entries.iter().position(|entry| entry.name == name) else { return };
        let entry = &mut table.entries[index];
        (entry.references, entry.whole) = (entry.references - 1, entry.whole - u32::from(whole));
        table.look_after(index);
        while table.entries.iter().filter(|entry| entry.is_idle()).count() > FABRIC_REGIONS_IDLE_MAX
            && table.evict(None)
        {}
    }
}

impl Kept {
    /// Whether this kept memory covers a region of a run with these flags.
    fn keeps(&self, run: (usize, usize), flags: u64) -> bool {
        self.access.covers(needed(flags)) && holds((self.run.start().addr(), self.run.len()), run)
    }
}

const REMOTE: u64 = sys::FI_REMOTE_READ | sys::FI_REMOTE_WRITE;

impl Entry {
    fn is_remote(&self) -> bool {
        self.flags & REMOTE != 0
    }

    fn is_idle(&self) -> bool {
        self.references == 0 && !self.is_remote()
    }
}

impl Table {
    fn name(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    fn find(&self, owner: (usize, usize), asked: (usize, usize), flags: u64) -> Option<usize> {
        let fits = |entry: &Entry| {
            entry.owner == owner
                && !(entry.is_remote() || entry.stale)
                && entry.flags & flags == flags
                && holds((entry.start, entry.length), asked)
        };
        self.entries.iter().position(fits)
    }

    /// Checks a region after an operation has released it, or memory is no longer kept. Closes it if it is stale and unused.
    fn look_after(&mut self, index: usize) {
        let promised = self.entries[index].whole > 0 || self.is_kept(index);
        let entry = &mut self.entries[index];
        entry.stale |= !promised;
        if entry.is_idle() && entry.stale {
            self.entries.swap_remove(index);
        }
    }

    /// Whether all of a region's memory is kept.
    fn is_kept(&self, index: usize) -> bool {
        let Entry { start, length, flags, .. } = self.entries[index];
        self.kept.iter().any(|kept| kept.keeps((start, length), flags))
    }

    fn insert(&mut self, owner: (usize, usize), run: Span, flags: u64, region: MemoryRegion) -> usize {
        let (name, used) = (self.name(), self.clock);
        let (start, length) = (run.start().addr(), run.len());
        self.entries.push(Entry {
            name,
            owner,
            start,
            length,
            flags,
            region,
            references: 0,
            whole: 0,
            used,
            stale: false,
        });
        self.entries.len() - 1
    }

    /// Registers a run. If that fails, closes unused regions of the domain and tries again.
    ///
    /// # Safety
    /// As [`Place::register`].
    #[expect(unsafe_code, reason = "FFI")]
    unsafe fn register(&mut self, place: Place<'_>, run: Span, flags: u64) -> Result<MemoryRegion, String> {
        loop {
            // SAFETY: by this function's contract.
            match unsafe { place.register(run, flags) } {
                Err(_) if self.evict(Some(place.owner().0)) => {}
                outcome => return outcome,
            }
        }
    }

    /// Closes the least recently used region, of one domain or of all, among those that no operation uses. `false` if there is none.
    fn evict(&mut self, domain: Option<usize>) -> bool {
        let idle = |entry: &Entry| entry.is_idle() && domain.is_none_or(|domain| domain == entry.owner.0);
        let oldest =
            self.entries.iter().enumerate().filter(|(_, entry)| idle(entry)).min_by_key(|(_, entry)| entry.used);
        let Some((index, _)) = oldest else { return false };
        self.entries.swap_remove(index);
        self.counts.evictions += 1;
        true
    }
}

impl Local {
    /// The descriptor for operations on the run.
    pub(super) fn descriptor(&self) -> *mut c_void {
        self.region.descriptor()
    }
}

impl Drop for Local {
    fn drop(&mut self) {
        self.registry.release(self.name, self.whole);
    }
}

impl Remote {
    /// The key by which peers name the run.
    pub(super) fn key(&self) -> u64 {
        self.key
    }
}

impl Drop for Remote {
    fn drop(&mut self) {
        self.registry.table().entries.retain(|entry| entry.name != self.name);
    }
}

impl OfDomain {
    /// Closes all regions of the domain now; those that operations use, with the last of these.
    pub(super) fn close(&self) {
        self.registry.table().entries.retain(|entry| entry.owner.0 != self.domain);
    }
}

impl Drop for OfDomain {
    fn drop(&mut self) {
        self.close();
    }
}
