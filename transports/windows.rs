//! Windows: memory that a proc shows to others, which read, write and update it by themselves (MPI 4.1 chapter 12).
//!
//! Every member of a window has a *part* of it. A part is a run of memory and, on one host, a shared run of *control* lines in front of
//! it or beside it:
//!
//! | line of 128 B | what |
//! |---|---|
//! | 0 | access lock: who has an epoch on this part |
//! | 1 | update lock: who updates elements of it right now |
//! | 2 | mode: whether updates need that lock |
//! | 3 + m | member m: whether it is at an update without the lock; of a part with many members, whether it shares the access lock |
//!
//! Behind the lines of a part whose memory only the kernel reaches from elsewhere, each member has a slot for a short put: `mail.rs`.
//!
//! How the locks work, and why an update of one element needs none of them: `lock.rs`.
//!
//! *Atomicity.* Each element of an update is updated as a whole, whoever updates it, its owner included. Puts and gets of one aligned
//! word of 4 or 8 bytes are whole, too. Longer ones are not, and a program keeps them apart by epochs.
//!
//! *Trust.* Every member can write all of a part, so nothing that is read here is used as an index or a length. Displacements are checked
//! against the length that the part was made with.

mod directory;
mod lock;
mod mail;
mod slot;
mod update;
mod updating;

use crate::copy;
use crate::rings::atomics::{AtomicU32, AtomicU64, Ordering};
use crate::shared::{SHARED_ALIGN, SharedRun};
pub use directory::{DIRECTORY_BYTES, Listed};
pub use lock::Hold;
use slot::{Slot, slot_bytes};
use std::ptr::NonNull;
use tickwire_components::Span;
use tickwire_components::limits::{PAGE_BYTES, STREAMED_MIN};
pub use update::Updater;
pub use updating::{Claim, UpdateGuard};

/// A line of a part that one kind of access touches.
#[repr(C, align(128))]
struct Line<T>(T);

#[repr(C)]
struct Head {
    access: Line<AtomicU64>,
    update: Line<AtomicU32>,
    mode: Line<AtomicU32>,
}

#[repr(C)]
struct Member {
    /// Whether it is at an update without the lock.
    busy: AtomicU32,
    /// Whether it shares the access lock, of more members than that has bits: 0 or [`lock::SHARING`].
    shares: AtomicU32,
}

#[cfg(not(all(test, tickwire_loom)))]
const _: () = assert!(size_of::<Head>() == 3 * SHARED_ALIGN && size_of::<Line<Member>>() == SHARED_ALIGN);

/// Bytes of the control lines of a part that so many members use: whole pages, so that the memory behind them begins with one.
pub const fn control_bytes(members: u32) -> usize {
    (size_of::<Head>() + members as usize * size_of::<Line<Member>>()).next_multiple_of(PAGE_BYTES)
}

/// Bytes of the control lines of a part whose memory is elsewhere, with the slots for short puts.
pub const fn control_bytes_with_mail(members: u32) -> usize {
    (control_bytes(members) + slot_bytes(members)).next_multiple_of(PAGE_BYTES)
}

/// A member that holds what another one needs: the caller does something else, and tries again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HeldBy(pub u32);

/// Control lines, as one member sees them.
struct Control {
    run: SharedRun,
    members: u32,
    /// The own rank.
    me: u32,
    /// Whether [`fences::heavy`] orders all members.
    one_sided: bool,
}

impl Control {
    #[inline(always)]
    fn head(&self) -> &Head {
        // SAFETY: `Part` has checked the length; words are atomics. Under loom nothing is made of shared memory.
        #[expect(unsafe_code, reason = "a view of shared memory")]
        unsafe {
            self.run.start().cast::<Head>().as_ref()
        }
    }

    #[inline(always)]
    fn member(&self, rank: u32) -> &Member {
        debug_assert!(rank < self.members);
        // SAFETY: as in `head`; ranks are those of members.
        #[expect(unsafe_code, reason = "a view of shared memory")]
        unsafe {
            &self.run.start().cast::<Head>().add(1).cast::<Line<Member>>().add(rank as usize).as_ref().0
        }
    }
}

/// A part of a window that this process reaches: its own, or that of another member on this host.
pub struct Part {
    /// Where its memory is in this process; null where only the kernel reaches it.
    start: *mut u8,
    /// Bytes of its memory.
    bytes: usize,
    /// Slots for short puts, by member.
    slots: Option<NonNull<Slot>>,
    control: Control,
}

// SAFETY: addresses of memory that is kept by the part or, of the own memory of a window, by the window's buffer. It is touched by
// atomics and raw copies only.
#[expect(unsafe_code, reason = "a view of shared memory")]
unsafe impl Send for Part {}
// SAFETY: as above.
#[expect(unsafe_code, reason = "a view of shared memory")]
unsafe impl Sync for Part {}

/// Where the memory of a part is.
#[derive(Clone, Copy)]
pub enum Memory {
    /// Behind the control lines, so many bytes of it.
    Behind(usize),
    /// In the memory of this process, for as long as the part is used. For the own part, and those of others in this process.
    Own(Span),
    /// In another process, which the kernel reads and writes: so many bytes.
    Elsewhere(usize),
}

impl Part {
    /// A part whose control lines begin a shared run. `None` if the run is too short for so many members and the memory.
    ///
    /// Everybody who shares it says the same of `one_sided`: whether all of them have [one-sided fences](crate::rings::fences::one_sided).
    pub fn new(run: SharedRun, memory: Memory, members: u32, me: u32, one_sided: bool) -> Option<Part> {
        let control = control_bytes(members);
        let needed = match memory {
            Memory::Behind(bytes) => control.checked_add(bytes)?,
            Memory::Own(_) | Memory::Elsewhere(_) => control,
        };
        if run.bytes() < needed || me >= members {
            return None;
        }
        let (start, bytes) = match memory {
            Memory::Behind(bytes) => (run.start().as_ptr().wrapping_add(control), bytes),
            Memory::Own(span) => (span.start(), span.len()),
            Memory::Elsewhere(bytes) => (std::ptr::null_mut(), bytes),
        };
        let has_slots = !matches!(memory, Memory::Behind(_)) && slot_bytes(members) > 0;
        let slots = if has_slots && run.bytes() >= control_bytes_with_mail(members) {
            NonNull::new(run.start().as_ptr().wrapping_add(control).cast())
        } else {
            None
        };
        Some(Part { start, bytes, slots, control: Control { run, members, me, one_sided } })
    }

    /// A part with the same locks and other memory, in this process. For what its owner attaches.
    pub fn with_memory(&self, memory: Span) -> Option<Part> {
        let Control { run, members, me, one_sided } = &self.control;
        Part::new(run.clone(), Memory::Own(memory), *members, *me, *one_sided)
    }

    /// Makes all updates of the part take the lock. The owner calls it before anybody else has the part, if the processor cannot update
    /// its memory for all members.
    pub fn lock_all_updates(&self) {
        self.control.head().mode.0.store(lock::ALL_LOCKED, Ordering::Release);
    }

    /// Bytes of its memory.
    #[inline(always)]
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Where its memory is in this process; `None` where only the kernel reaches it. For use while the part is kept.
    #[inline(always)]
    pub fn memory(&self) -> Option<Span> {
        // SAFETY: memory of this length, which is kept.
        #[expect(unsafe_code, reason = "a view of shared memory")]
        (!self.start.is_null()).then(|| unsafe { Span::new(self.start, self.bytes) })
    }

    /// Whether whoever uses it is in this process.
    pub fn is_within_process(&self) -> bool {
        self.control.run.beside().is_some()
    }

    #[inline(always)]
    fn holds(&self, at: usize, bytes: usize) -> bool {
        !self.start.is_null() && at <= self.bytes && bytes <= self.bytes - at
    }

    /// The address of bytes of its memory. `None` if they are not within it, or it is not in this process.
    #[inline(always)]
    fn place(&self, at: usize, bytes: usize) -> Option<*mut u8> {
        self.holds(at, bytes).then(|| self.start.wrapping_add(at))
    }

    /// Writes bytes; `false` if they are not within its memory, or that is not in this process.
    ///
    /// # Safety
    /// `from` is valid for reads.
    #[expect(unsafe_code, reason = "raw copies")]
    #[inline(always)]
    pub unsafe fn put(&self, at: usize, from: Span) -> bool {
        // SAFETY: within the memory, and by this function's contract.
        self.place(at, from.len()).map(|place| unsafe { put_bytes(place, from) }).is_some()
    }

    /// Reads bytes; `false` if they are not within its memory, or that is not in this process.
    ///
    /// # Safety
    /// `into` is valid for writes.
    #[expect(unsafe_code, reason = "raw copies")]
    #[inline(always)]
    pub unsafe fn get(&self, at: usize, into: Span) -> bool {
        // SAFETY: within the memory, and by this function's contract.
        self.place(at, into.len()).map(|place| unsafe { get_bytes(place, into) }).is_some()
    }

    /// Takes the access lock for the own rank, if it is free for that.
    ///
    /// # Errors
    /// The member that has it alone; `None` if others share it.
    #[inline(always)]
    pub fn try_lock(&self, hold: Hold) -> Result<(), Option<u32>> {
        self.try_lock_for(self.control.me, hold)
    }

    /// As [`Part::try_lock`], for a member that does not reach the lock by itself.
    ///
    /// # Errors
    /// As there.
    #[inline(always)]
    pub fn try_lock_for(&self, rank: u32, hold: Hold) -> Result<(), Option<u32>> {
        let word = &self.control.head().access.0;
        if hold == Hold::Shared && self.has_many() {
            return lock::try_among_many(word, &self.control.member(rank).shares, rank);
        }
        lock::try_access(word, rank, lock::share_of(rank, self.control.members), hold)
    }

    /// Gives the access lock back.
    #[inline(always)]
    pub fn unlock(&self, hold: Hold) {
        self.unlock_for(self.control.me, hold);
    }

    /// As [`Part::unlock`], for a member that does not reach the lock by itself.
    #[inline(always)]
    pub fn unlock_for(&self, rank: u32, hold: Hold) {
        let word = &self.control.head().access.0;
        if hold == Hold::Shared && self.has_many() {
            return lock::release_among_many(word, &self.control.member(rank).shares);
        }
        lock::release_access(word, lock::share_of(rank, self.control.members), hold);
    }

    /// Whether there are more members than the access lock has bits.
    #[inline(always)]
    fn has_many(&self) -> bool {
        self.control.members > lock::NAMED_MAX
    }

    /// How a member holds the access lock. Of one that is just taking or giving it this may be out of date.
    pub fn held_by(&self, rank: u32) -> Option<Hold> {
        let line = &self.control.member(rank).shares;
        lock::held_by(&self.control.head().access.0, line, rank, self.control.members)
    }

    /// The members that hold the access lock.
    pub fn holders(&self) -> impl Iterator<Item = (u32, Hold)> + '_ {
        (0..self.control.members).filter_map(|member| Some((member, self.held_by(member)?)))
    }

    /// The member that holds the update lock now.
    pub fn update_holder(&self) -> Option<u32> {
        let holder = self.control.head().update.0.load(Ordering::Relaxed).checked_sub(1)?;
        (holder < self.control.members).then_some(holder)
    }

    /// A member that holds the access lock and `is_dead`. Lines of those that live are not looked at.
    pub fn dead_holder(&self, is_dead: impl Fn(u32) -> bool) -> Option<u32> {
        (0..self.control.members).find(|&member| is_dead(member) && self.held_by(member).is_some())
    }
}

/// Writes bytes to memory that others access; an aligned word of 4 or 8 bytes as a whole.
///
/// # Safety
/// `to` is valid for writes of as many bytes as `from` has for reads.
#[expect(unsafe_code, reason = "raw copies")]
#[inline(always)]
pub unsafe fn put_bytes(to: *mut u8, from: Span) {
    // SAFETY: by this function's contract.
    unsafe {
        match from.len() {
            8 if to.cast::<u64>().is_aligned() => {
                to.cast::<u64>().write_volatile(from.start().cast::<u64>().read_unaligned())
            }
            4 if to.cast::<u32>().is_aligned() => {
                to.cast::<u32>().write_volatile(from.start().cast::<u32>().read_unaligned())
            }
            _ => put_run(to, from),
        }
    }
}

/// Reads bytes of memory that others access; an aligned word of 4 or 8 bytes as a whole.
///
/// # Safety
/// `from` is valid for reads of as many bytes as `into` has for writes.
#[expect(unsafe_code, reason = "raw copies")]
#[inline(always)]
pub unsafe fn get_bytes(from: *mut u8, into: Span) {
    // SAFETY: by this function's contract.
    unsafe {
        match into.len() {
            8 if from.cast::<u64>().is_aligned() => {
                into.start().cast::<u64>().write_unaligned(from.cast::<u64>().read_volatile())
            }
            4 if from.cast::<u32>().is_aligned() => {
                into.start().cast::<u32>().write_unaligned(from.cast::<u32>().read_volatile())
            }
            length => drop(copy::copy_long(into, Span::new(from, length))),
        }
    }
}

/// Writes a run. Long ones go past the caches: the target does not read them now.
///
/// # Safety
/// `to` is valid for writes of as many bytes as `from` has for reads.
#[expect(unsafe_code, reason = "raw copies")]
#[inline(always)]
unsafe fn put_run(to: *mut u8, from: Span) {
    // SAFETY: by this function's contract. What overlaps is copied by the first way, which allows it.
    unsafe {
        let apart = (to.addr().wrapping_sub(from.start().addr())) >= from.len()
            && (from.start().addr().wrapping_sub(to.addr())) >= from.len();
        if from.len() < STREAMED_MIN || !apart {
            copy::copy_own(Span::new(to, from.len()), from);
        } else {
            copy::copy_past(to, from.start(), from.len());
            copy::fence_streams();
        }
    }
}

#[cfg(all(test, not(tickwire_loom)))]
mod tests;
