//! Exposed memory: regions of this proc that anybody with a key may read, write or update. The regions together are this process's memory
//! in a window on the world's communicator, so operations on them work like those on windows. A displacement in this window consists of the
//! region's number and of a byte's place in the region.

use super::exposed::ExposedRegion;
use super::{Epochs, OwnMemory, Reach, Target, WindowRow, Windows};
use std::hash::{BuildHasher, RandomState};
use tickwire_components::{AtomicsDomain, NIL, RegionAccess, RemoteKind, Row, Vc};
use tickwire_transports::shared::SharedRun;
use tickwire_transports::windows::{Memory, Part, control_bytes};

/// Bits of a displacement for the byte's place in its region.
const OFFSET_BITS: u32 = 40;
/// Largest region, bytes.
pub const REGION_BYTES_MAX: u64 = 1 << OFFSET_BITS;
/// End of the numbers of regions. No number is used twice, so a stale key names no region. An engine can expose at least half as many
/// regions in its life, since its numbers begin somewhere in the first half.
pub const REGIONS_MAX: u32 = 1 << (u64::BITS - OFFSET_BITS);

/// Handle of the window that regions are in: that of the world's communicator.
pub const REGIONS: u32 = 0;

/// The displacement of a byte of a region.
pub const fn displacement(number: u32, offset: u64) -> u64 {
    (number as u64) << OFFSET_BITS | offset
}

/// The region and the place in it of a displacement.
pub const fn region_of(at: usize) -> (u32, usize) {
    ((at as u64 >> OFFSET_BITS) as u32, (at as u64 % REGION_BYTES_MAX) as usize)
}

/// The access right that an operation needs.
pub const fn needed(kind: RemoteKind) -> RegionAccess {
    match kind {
        RemoteKind::Put => RegionAccess::WRITE,
        RemoteKind::Get => RegionAccess::READ,
        _ => RegionAccess::UPDATE,
    }
}

impl Windows {
    /// The window that regions are in, whose ranks are procs. It is made by the first call. `None` if there is no memory for it.
    pub fn regions(&mut self, me: u32) -> Option<&mut WindowRow> {
        if self.get(REGIONS).is_none() {
            let part = Part::new(SharedRun::private(control_bytes(1))?, Memory::Own(NONE), 1, 0, false)?;
            let mut targets: Vec<Target> = (0..me).map(|_| nobody()).collect();
            targets.push(Target::new(NIL, 0, Reach::Memory(part)));
            self.next_region = first_number();
            self.add(WindowRow {
                handle: REGIONS,
                context: REGIONS,
                rank: me,
                targets,
                domain: AtomicsDomain::Engine,
                own: OwnMemory::Exposed(Vec::new()),
                fabric_key: None,
                has_fabric: false,
                has_puts_in_flight: false,
                is_retired: false,
                epochs: Epochs::default(),
                served: std::collections::VecDeque::new(),
            });
        }
        self.get(REGIONS)
    }
}

/// The number of an engine's first region. It is random, so that a key of an earlier engine of the same proc hardly ever names a region of
/// this one.
fn first_number() -> u32 {
    RandomState::new().hash_one(0) as u32 % (REGIONS_MAX / 2)
}

/// The target for a proc that was not used yet.
fn nobody() -> Target {
    Target::new(NIL, 0, Reach::Engine)
}

const NONE: tickwire_components::Span = tickwire_components::Span::EMPTY;

/// Finds bytes of a region: its part, and their place in it.
pub(super) fn find(regions: &[ExposedRegion], at: usize, bytes: usize) -> Option<(&Part, usize)> {
    let (number, place) = region_of(at);
    let region = &regions[regions.binary_search_by_key(&number, |region| region.number).ok()?];
    (place <= region.part.bytes() && bytes <= region.part.bytes() - place).then_some((&region.part, place))
}

impl WindowRow {
    /// Whether an operation on this process's memory is allowed. Other windows than that of regions allow everything.
    pub fn permits(&self, kind: RemoteKind, at: usize) -> bool {
        let OwnMemory::Exposed(regions) = &self.own else { return true };
        let (number, _) = region_of(at);
        let Ok(place) = regions.binary_search_by_key(&number, |region| region.number) else { return false };
        !kind.is_of_epoch() && regions[place].here().covers(needed(kind))
    }

    /// The index in `targets` of the sender of a frame: its rank, or its proc where the window is that of regions. `None` if the frame did
    /// not come over that member's VC.
    pub fn member(&mut self, source: u32, row: Row, vcs: &[Vc]) -> Option<usize> {
        if let OwnMemory::Exposed(_) = self.own {
            let is_its = source != self.rank && vcs.get(row as usize)?.proc == source;
            return is_its.then(|| self.region_target(source, row));
        }
        let rank = source as usize;
        (self.targets.get(rank)?.vc == row).then_some(rank)
    }

    /// The index in `targets` of a proc in the window of regions. Adds a target if needed.
    pub fn region_target(&mut self, proc: u32, row: Row) -> usize {
        let place = proc as usize;
        if self.targets.len() <= place {
            self.targets.resize_with(place + 1, nobody);
        }
        let target = &mut self.targets[place];
        if target.vc != row {
            *target = Target::new(row, u64::MAX, Reach::Engine);
        }
        place
    }
}
