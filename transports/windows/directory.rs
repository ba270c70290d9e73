//! The directory of exposed memory: a table behind the control lines of a part, by which peers of this host find regions that a proc
//! has exposed, or memory that it has attached to a window, and reach it without that proc's help.
//!
//! Whoever reads or changes the table holds the part's update lock, and keeps it for as long as it uses what the table has said. So a
//! region is never withdrawn while a peer writes to it.
//!
//! *Trust.* A peer that writes nonsense into the table makes others read and write wrong places of the owner's memory. It can reach that
//! memory itself anyhow. The owner does not read the table.

use super::control_bytes;
use super::{Part, UpdateGuard};
use crate::rings::atomics::{AtomicU64, Ordering};

/// Runs that a directory lists at once. Peers reach any other run by way of the owner's engine.
const SLOTS: usize = 512;
/// The word of a slot in which nothing was ever listed; `NO_MORE` is that of a slot whose run was taken out.
const NEVER: u64 = 0;
const NO_MORE: u64 = u64::MAX;

/// Bytes of a directory.
pub const DIRECTORY_BYTES: usize = SLOTS * size_of::<Slot>();

#[repr(C)]
struct Slot {
    /// The number of the run, plus 1; or one of the two constants.
    number: AtomicU64,
    address: AtomicU64,
    bytes: AtomicU64,
    access: AtomicU64,
}

/// A run of exposed memory, as its owner's directory says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Listed {
    /// Where it is in the owner's memory.
    pub address: u64,
    /// Its bytes.
    pub bytes: u64,
    /// What may be done with it.
    pub access: u32,
}

impl Part {
    fn directory(&self) -> Option<&[Slot]> {
        let control = control_bytes(self.control.members);
        if self.control.run.bytes() < control + DIRECTORY_BYTES {
            return None;
        }
        // SAFETY: behind the control lines, which are whole pages, there are so many slots of atomic words, as long as the part is kept.
        #[expect(unsafe_code, reason = "a view of shared memory")]
        unsafe {
            let start = self.control.run.start().as_ptr().wrapping_add(control);
            Some(std::slice::from_raw_parts(start.cast::<Slot>(), SLOTS))
        }
    }

    fn directory_slot(&self, number: u32) -> Option<&Slot> {
        self.directory()?.get(number as usize % SLOTS)
    }

    /// Lists a run under a number; `false` if another one has its slot. For the owner.
    pub fn list(&self, _locked: &UpdateGuard<'_>, number: u32, run: Listed) -> bool {
        let is_free = |slot: &&Slot| matches!(slot.number.load(Ordering::Relaxed), NEVER | NO_MORE);
        let Some(slot) = self.directory_slot(number).filter(is_free) else { return false };
        slot.address.store(run.address, Ordering::Relaxed);
        slot.bytes.store(run.bytes, Ordering::Relaxed);
        slot.access.store(run.access.into(), Ordering::Relaxed);
        slot.number.store(u64::from(number) + 1, Ordering::Relaxed);
        true
    }

    /// Lists a run in the first slot that is free: its number, `None` if none is. For the owner.
    pub fn list_anywhere(&self, locked: &UpdateGuard<'_>, run: Listed) -> Option<u32> {
        (0..SLOTS as u32).find(|&number| self.list(locked, number, run))
    }

    /// Takes a run out, if it is listed. For the owner.
    pub fn unlist(&self, _locked: &UpdateGuard<'_>, number: u32) {
        let slot = self.directory_slot(number);
        if let Some(slot) = slot.filter(|slot| slot.number.load(Ordering::Relaxed) == u64::from(number) + 1) {
            slot.number.store(NO_MORE, Ordering::Relaxed);
        }
    }

    /// Finds a run by its number.
    pub fn listed(&self, _locked: &UpdateGuard<'_>, number: u32) -> Option<Listed> {
        let slot = self.directory_slot(number)?;
        (slot.number.load(Ordering::Relaxed) == u64::from(number) + 1).then(|| slot.run())
    }

    /// Finds the run that has so many bytes from an address of the owner's on.
    pub fn listed_around(&self, _locked: &UpdateGuard<'_>, address: u64, bytes: u64) -> Option<Listed> {
        let slots = self.directory()?.iter().map(|slot| (slot.number.load(Ordering::Relaxed), slot));
        let used = slots.take_while(|(number, _)| *number != NEVER).filter(|(number, _)| *number != NO_MORE);
        used.map(|(_, slot)| slot.run())
            .find(|run| address.checked_sub(run.address).is_some_and(|at| at <= run.bytes && bytes <= run.bytes - at))
    }
}

impl Slot {
    fn run(&self) -> Listed {
        Listed {
            address: self.address.load(Ordering::Relaxed),
            bytes: self.bytes.load(Ordering::Relaxed),
            access: self.access.load(Ordering::Relaxed) as u32,
        }
    }
}

#[cfg(all(test, not(tickwire_loom)))]
mod tests {
    use super::*;
    use crate::shared::SharedRun;
    use crate::windows::{Memory, control_bytes};

    #[test]
    fn a_region_is_found_until_it_is_taken_out_and_takes_no_slot_of_another() {
        let run = SharedRun::private(control_bytes(2) + DIRECTORY_BYTES).unwrap();
        let part = |me| Part::new(run.clone(), Memory::Behind(DIRECTORY_BYTES), 2, me, false).unwrap();
        let (owner, peer) = (part(0), part(1));
        owner.lock_all_updates();
        let locked = |part: &Part, act: &dyn Fn(&UpdateGuard<'_>)| act(&part.lock_updates(|_| false).unwrap());
        let region = |number: u32| Listed { address: u64::from(number) << 20, bytes: 8, access: 7 };
        locked(&owner, &|guard| {
            assert!((0..SLOTS as u32).all(|number| owner.list(guard, number, region(number))));
            assert!(!owner.list(guard, SLOTS as u32, region(0)), "slot 0 is taken");
            assert!(peer.lock_updates(|_| false).is_err(), "the owner has the lock");
        });
        locked(&peer, &|guard| {
            assert_eq!(peer.listed(guard, 5), Some(region(5)));
            assert_eq!(peer.listed(guard, 5 + SLOTS as u32), None);
        });
        locked(&owner, &|guard| {
            owner.unlist(guard, 5 + SLOTS as u32);
            assert_eq!(owner.listed(guard, 5), Some(region(5)), "that was another one");
            owner.unlist(guard, 5);
            assert_eq!(owner.listed(guard, 5), None);
            assert!(owner.list(guard, 5 + SLOTS as u32, region(6)));
        });
        locked(&peer, &|guard| assert_eq!(peer.listed(guard, 5), None, "its number is stale"));
    }

    #[test]
    fn a_run_is_found_by_the_bytes_that_it_has() {
        let run = SharedRun::private(control_bytes(1) + DIRECTORY_BYTES).unwrap();
        let part = Part::new(run, Memory::Elsewhere(0), 1, 0, false).unwrap();
        part.lock_all_updates();
        let guard = part.lock_updates(|_| false).unwrap();
        let run = |address| Listed { address, bytes: 100, access: 7 };
        let numbers = [1000, 3000, 2000].map(|address| part.list_anywhere(&guard, run(address)));
        assert_eq!(numbers, [Some(0), Some(1), Some(2)]);
        for (address, bytes, found) in [
            (1000, 100, Some(1000)),
            (1099, 1, Some(1000)),
            (1099, 2, None),
            (1100, 0, Some(1000)),
            (999, 1, None),
            (2050, 50, Some(2000)),
            (u64::MAX, 8, None),
            (3000, u64::MAX, None),
        ] {
            assert_eq!(part.listed_around(&guard, address, bytes), found.map(run), "{bytes} bytes at {address}");
        }
        part.unlist(&guard, 1);
        assert_eq!(part.listed_around(&guard, 3000, 1), None);
        assert_eq!(part.listed_around(&guard, 2000, 1), Some(run(2000)), "behind one that is not there any more");
        assert_eq!(part.list_anywhere(&guard, run(5000)), Some(1));
        assert!((3..SLOTS as u32).all(|number| part.list_anywhere(&guard, run(8000)) == Some(number)));
        assert_eq!(part.list_anywhere(&guard, run(9000)), None, "it is full");
    }
}
