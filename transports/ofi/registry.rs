//! What is registered with the domains of an endpoint: one cache for the buffers of persistent requests, exposed runs, and local runs
//! of operations.
//!
//! A region belongs to a domain, and there are several: one for one-sided operations, and one for the long messages of each connection.
//! So the engine's cache ([`Registering`](crate::Registering)) says which memory stays as it is, and this one what each domain
//! knows of it.
//!
//! - An **exposed run** has a region of its own, which allows remote access and nothing else. Nobody shares it, so a withdrawal closes it
//!   at once, whatever operations of this proc use the same memory: a key that was withdrawn opens nothing.
//! - A **local run** is looked up where its domain must know it (`FI_MR_LOCAL`). Within *kept* memory the whole of it is registered, and
//!   stays so until it is kept no more; else the run alone is, until its operation is complete.
//! - A region is found only while somebody promises that all of its memory stays: who keeps it, or an operation that uses all of it. So
//!   memory that was freed and is mapped anew is never used by a region from before.

use super::own::random;
use super::{Domain, Endpoint, MemoryRegion, OfiError};
use libfabric_sys as sys;
use std::ffi::c_void;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tickwire_components::{Access, RegistrationCounts, Span};

/// Regions that nobody uses and that are kept for the next operation, of all domains.
const IDLE_MAX: usize = 512;
/// Keys that are tried for a run before it is given up: one that is in use already is as good as impossible.
const KEYS: usize = 8;

/// Who asks for regions: a domain, and how it wants them.
#[derive(Clone, Copy)]
pub(super) struct Place<'a> {
    pub(super) domain: &'a Domain,
    /// What regions are bound to, where they are bound (`FI_MR_ENDPOINT`).
    pub(super) endpoint: Option<&'a Endpoint>,
    /// Bits that a key of the own choice may have.
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
    /// The domain and what it is bound to, by their addresses, which `region` keeps in use.
    owner: (usize, usize),
    start: usize,
    length: usize,
    flags: u64,
    region: MemoryRegion,
    /// Operations that use it, and those of them that use all of it.
    references: u32,
    whole: u32,
    used: u64,
    /// There was a time at which nobody promised all of it: it is found no more, whoever promises that memory now.
    stale: bool,
}

/// Memory that stays as it is until it is kept no more.
struct Kept {
    name: u64,
    run: Span,
    access: Access,
}

/// A local run that a domain knows, until this is dropped.
pub(super) struct Local {
    registry: Registry,
    name: u64,
    whole: bool,
    region: MemoryRegion,
}

/// An exposed run, until this is dropped.
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

    /// Registers memory, under a key that nobody guesses where the provider does not choose it: who knows the key of a run can use it.
    ///
    /// # Safety
    /// The memory stays until the region is closed.
    #[expect(unsafe_code, reason = "FFI")]
    unsafe fn register(&self, run: Span, flags: u64) -> Result<MemoryRegion, String> {
        for _ in 0..KEYS {
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

/// A key that nobody guesses, within a mask.
pub(super) fn new_key(mask: u64) -> Result<u64, String> {
    let key = random().map_err(|error| format!("no random numbers ({error})"))? & mask;
    Ok(if key == sys::FI_KEY_NOTAVAIL { 1 } else { key })
}

/// What somebody who keeps memory must allow for a region with these flags.
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

    /// What it has done. Exposed runs are among the entries.
    pub(super) fn counts(&self) -> RegistrationCounts {
        let table = self.table();
        let bytes = table.entries.iter().map(|entry| entry.length).sum();
        RegistrationCounts { entries: table.entries.len(), bytes, ..table.counts }
    }

    /// Keeps memory: until [`Registry::drop_kept`] of the name that this returns, it stays as it is.
    pub(super) fn keep(&self, run: Span, access: Access) -> u64 {
        let mut table = self.table();
        let name = table.name();
        table.kept.push(Kept { name, run, access });
        name
    }

    /// Memory is kept no more: its regions are closed, or will be with the last operation that uses them.
    pub(super) fn drop_kept(&self, name: u64) {
        let mut table = self.table();
        table.kept.retain(|kept| kept.name != name);
        (0..table.entries.len()).rev().for_each(|index| table.look_after(index));
    }

    /// A region with a local run, for operations with these flags (`FI_SEND`, `FI_RECV`, `FI_READ`, `FI_WRITE`).
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

    /// A region with a run for peers, with flags that allow remote access alone.
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

    /// Whoever owns a domain keeps this behind its endpoints: its regions are closed before it.
    pub(super) fn of_domain(&self, domain: &Domain) -> OfDomain {
        OfDomain { registry: self.clone(), domain: domain.as_ptr().addr() }
    }

    fn release(&self, name: u64, whole: bool) {
        let mut table = self.table();
        let Some(index) = table.entries.iter().position(|entry| entry.name == name) else { return };
        let entry = &mut table.entries[index];
        (entry.references, entry.whole) = (entry.references - 1, entry.whole - u32::from(whole));
        table.look_after(index);
        while table.entries.iter().filter(|entry| entry.is_idle()).count() > IDLE_MAX && table.evict(None) {}
    }
}

impl Kept {
    /// Whether it is kept for a region of a run with these flags.
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

    /// Somebody promises a region's memory no more.
    fn look_after(&mut self, index: usize) {
        let promised = self.entries[index].whole > 0 || self.is_kept(index);
        let entry = &mut self.entries[index];
        entry.stale |= !promised;
        if entry.is_idle() && entry.stale {
            self.entries.swap_remove(index);
        }
    }

    /// Whether somebody keeps all of a region's memory.
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

    /// Registers a run; if there is no room, regions that nobody uses go.
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

    /// Closes the region that has not been used for longest, of one domain or of all, if there is one that nobody uses.
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
    /// What operations on the run take.
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
    /// What peers name it by.
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
    /// Closes them now; those that operations use, with the last of these.
    pub(super) fn close(&self) {
        self.registry.table().entries.retain(|entry| entry.owner.0 != self.domain);
    }
}

impl Drop for OfDomain {
    fn drop(&mut self) {
        self.close();
    }
}
