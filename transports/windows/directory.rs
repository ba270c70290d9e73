//! The directory of exposed regions: a table behind the control lines of a part, by which peers of this host find memory that a proc
//! has exposed, and reach it without that proc's help.
//!
//! Whoever reads or changes the table holds the part's update lock, and keeps it for as long as it uses what the table has said. So a
//! region is never withdrawn while a peer writes to it.
//!
//! *Trust.* A peer that writes nonsense into the table has others read and write wrong places of the owner's memory, which it could do
//! itself. The owner does not read the table.

use super::{Part, UpdateGuard};
use crate::rings::atomics::{AtomicU64, Ordering};

/// Regions that a directory lists at once. Peers use others by the owner's engine.
const SLOTS: usize = 512;

/// Bytes of a directory.
pub const DIRECTORY_BYTES: usize = SLOTS * size_of::<Slot>();

#[repr(C)]
struct Slot {
    /// Of the region, plus 1; 0 for none.
    number: AtomicU64,
    address: AtomicU64,
    bytes: AtomicU64,
    access: AtomicU64,
}

/// A region, as its owner's directory says.
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
    fn region_slot(&self, number: u32) -> Option<&Slot> {
        let table = self.memory().filter(|table| table.len() >= DIRECTORY_BYTES)?;
        // SAFETY: behind the control lines, which are whole pages, there are so many slots of atomic words, as long as the part is kept.
        #[expect(unsafe_code, reason = "a view of shared memory")]
        unsafe {
            Some(&*table.start().cast::<Slot>().add(number as usize % SLOTS))
        }
    }

    /// Lists a region; `false` if another one has its slot. For the owner.
    pub fn list(&self, _locked: &UpdateGuard<'_>, number: u32, region: Listed) -> bool {
        let Some(slot) = self.region_slot(number).filter(|slot| slot.number.load(Ordering::Relaxed) == 0) else {
            return false;
        };
        slot.address.store(region.address, Ordering::Relaxed);
        slot.bytes.store(region.bytes, Ordering::Relaxed);
        slot.access.store(region.access.into(), Ordering::Relaxed);
        slot.number.store(u64::from(number) + 1, Ordering::Relaxed);
        true
    }

    /// Takes a region out, if it is listed. For the owner.
    pub fn unlist(&self, _locked: &UpdateGuard<'_>, number: u32) {
        if let Some(slot) =
            self.region_slot(number).filter(|slot| slot.number.load(Ordering::Relaxed) == u64::from(number) + 1)
        {
            slot.number.store(0, Ordering::Relaxed);
        }
    }

    /// Finds a region.
    pub fn listed(&self, _locked: &UpdateGuard<'_>, number: u32) -> Option<Listed> {
        let slot =
            self.region_slot(number).filter(|slot| slot.number.load(Ordering::Relaxed) == u64::from(number) + 1)?;
        Some(Listed {
            address: slot.address.load(Ordering::Relaxed),
            bytes: slot.bytes.load(Ordering::Relaxed),
            access: slot.access.load(Ordering::Relaxed) as u32,
        })
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
}
