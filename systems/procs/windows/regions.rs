//! Exposed memory: regions of this proc that whoever has a key may read, write or update. They are the own memory of a window that the world's
//! communicator stands for, so their operations go as those of windows do. A displacement there is the region's number and a byte in it.

use super::{AtomicsDomain, Epochs, OwnMemory, Reach, Target, WindowRow, Windows};
use std::any::Any;
use tickwire_components::{NIL, RegionAccess, RemoteKind, Row};
use tickwire_transports::shared::SharedRun;
use tickwire_transports::windows::{Memory, Part, control_bytes};

/// Bits of a byte's place in a region.
const OFFSET_BITS: u32 = 40;
/// Bytes of a region at most.
pub const REGION_BYTES_MAX: u64 = 1 << OFFSET_BITS;
/// Regions that an engine exposes in its life at most: no number is used twice, so a key that is stale names none.
pub const REGIONS_MAX: u32 = 1 << (u64::BITS - OFFSET_BITS);

/// The handle of the window that regions are in: the world's communicator.
pub const REGIONS: u32 = 0;

/// An exposed region.
pub struct ExposedRegion {
    /// Its number.
    pub number: u32,
    /// Its memory.
    pub part: Part,
    /// What others may do with it.
    pub access: RegionAccess,
    /// The buffer.
    pub buffer: Box<dyn Any + Send + Sync>,
}

/// The displacement of a byte of a region.
pub const fn displacement(number: u32, offset: u64) -> u64 {
    (number as u64) << OFFSET_BITS | offset
}

/// The region and the place in it of a displacement.
const fn region_of(at: usize) -> (u32, usize) {
    ((at as u64 >> OFFSET_BITS) as u32, (at as u64 % REGION_BYTES_MAX) as usize)
}

/// What an operation needs to be allowed.
const fn needed(kind: RemoteKind) -> RegionAccess {
    match kind {
        RemoteKind::Put => RegionAccess::WRITE,
        RemoteKind::Get => RegionAccess::READ,
        _ => RegionAccess::UPDATE,
    }
}

impl Windows {
    /// The window that regions are in; it is made when it is asked for first. `None` if there is no memory for it.
    pub fn regions(&mut self) -> Option<&mut WindowRow> {
        if self.get(REGIONS).is_none() {
            let part = Part::new(SharedRun::private(control_bytes(1))?, Memory::Own(NONE), 1, 0, false)?;
            self.add(WindowRow {
                handle: REGIONS,
                context: REGIONS,
                rank: 0,
                targets: vec![Target::new(NIL, 0, Reach::Memory(part))],
                domain: AtomicsDomain::Engine,
                own: OwnMemory::Exposed(Vec::new()),
                fabric_key: None,
                is_retired: false,
                epochs: Epochs::default(),
                served: std::collections::VecDeque::new(),
            });
        }
        self.get(REGIONS)
    }
}

const NONE: tickwire_components::Span = tickwire_components::Span::EMPTY;

/// Finds bytes of a region.
pub(super) fn find(regions: &[ExposedRegion], at: usize, bytes: usize) -> Option<(&Part, usize)> {
    let (number, place) = region_of(at);
    let region = &regions[regions.binary_search_by_key(&number, |region| region.number).ok()?];
    (place <= region.part.bytes() && bytes <= region.part.bytes() - place).then_some((&region.part, place))
}

impl WindowRow {
    /// Whether an operation on the own memory is allowed. Parts of windows allow all.
    pub fn permits(&self, kind: RemoteKind, at: usize) -> bool {
        let OwnMemory::Exposed(regions) = &self.own else { return true };
        let (number, _) = region_of(at);
        let region = regions.binary_search_by_key(&number, |region| region.number);
        !kind.is_of_lock() && region.is_ok_and(|place| regions[place].access.covers(needed(kind)))
    }

    /// The place among the targets of who has sent a frame: its rank, or of regions, that of its VC.
    pub fn member(&mut self, source: u32, vc: Row) -> Option<usize> {
        if let OwnMemory::Exposed(_) = self.own {
            return Some(self.region_target(vc));
        }
        let rank = source as usize;
        (self.targets.get(rank)?.vc == vc).then_some(rank)
    }

    /// The place among the targets of a proc with regions.
    pub fn region_target(&mut self, vc: Row) -> usize {
        self.targets.iter().position(|target| target.vc == vc).unwrap_or_else(|| {
            self.targets.push(Target::new(vc, u64::MAX, Reach::Engine));
            self.targets.len() - 1
        })
    }
}
