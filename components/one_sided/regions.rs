//! Exposed memory regions: the key of a region, and what others may do with it.

use super::AtomicsDomain;
use crate::ProcId;

/// What others may do with an exposed region.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct RegionAccess(u32);

impl RegionAccess {
    /// Read it.
    pub const READ: RegionAccess = RegionAccess(1);
    /// Write it.
    pub const WRITE: RegionAccess = RegionAccess(2);
    /// Update elements of it.
    pub const UPDATE: RegionAccess = RegionAccess(4);
    /// Nothing.
    pub const NONE: RegionAccess = RegionAccess(0);
    /// All of these.
    pub const ALL: RegionAccess = RegionAccess(7);

    /// Whether this allows what `other` asks for.
    pub const fn covers(self, other: RegionAccess) -> bool {
        self.0 & other.0 == other.0
    }

    /// This access without what `other` allows.
    pub const fn without(self, other: RegionAccess) -> RegionAccess {
        RegionAccess(self.0 & !other.0)
    }

    /// Its bits.
    pub const fn bits(self) -> u32 {
        self.0
    }

    /// The access with these bits. Unknown bits are ignored.
    pub const fn from_bits(bits: u32) -> Self {
        RegionAccess(bits & RegionAccess::ALL.0)
    }
}

impl std::ops::BitOr for RegionAccess {
    type Output = RegionAccess;

    fn bitor(self, other: RegionAccess) -> RegionAccess {
        RegionAccess(self.0 | other.0)
    }
}

/// The key of an exposed region: plain data that the owner sends to the procs that may use the region.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(C)]
pub struct RegionKey {
    /// Bytes of the region.
    pub bytes: u64,
    /// The region in the fabric that does puts and gets: its memory key, and the address of the first byte.
    moves: [u64; 2],
    /// The same in the fabric that does updates.
    updates: [u64; 2],
    /// The proc whose memory it is.
    pub proc: u32,
    /// Its number at that proc. Numbers are never reused.
    pub number: u32,
    /// What may be done with it: the bits of a [`RegionAccess`].
    access: u32,
    /// Which fabric does puts and gets: a hash of its name, or 0 for none.
    mover: u32,
    /// Which fabric does updates: a hash of its name, or 0 for none.
    updater: u32,
    /// Padding to a multiple of 8 bytes: 0.
    rest: u32,
}

// SAFETY: whole words without anything between them.
#[expect(unsafe_code, reason = "plain data")]
unsafe impl bytemuck::Zeroable for RegionKey {}
// SAFETY: as above.
#[expect(unsafe_code, reason = "plain data")]
unsafe impl bytemuck::Pod for RegionKey {}

impl crate::Basic for RegionKey {}

impl RegionKey {
    /// The key of a region.
    pub const fn new(proc: ProcId, number: u32, bytes: u64, access: RegionAccess) -> Self {
        let (moves, updates, mover, updater, rest) = ([0; 2], [0; 2], 0, 0, 0);
        RegionKey { bytes, moves, updates, proc: proc.0, number, access: access.0, mover, updater, rest }
    }

    /// The same key, for a region on which the fabric of this name does puts and gets, with its memory key and address.
    pub const fn moved_by(self, name: &str, fabric: [u64; 2]) -> Self {
        RegionKey { moves: fabric, mover: number_of(name), ..self }
    }

    /// The same key, for a region on which the fabric of this name does all updates, with its memory key and address.
    pub const fn updated_by(self, name: &str, fabric: [u64; 2]) -> Self {
        RegionKey { updates: fabric, updater: number_of(name), ..self }
    }

    /// Memory key and address in the fabric of this name, if that fabric does puts and gets.
    pub const fn as_moved_by(&self, name: &str) -> Option<[u64; 2]> {
        if self.mover == number_of(name) { Some(self.moves) } else { None }
    }

    /// Memory key and address in the fabric of this name, if that fabric does updates.
    pub const fn as_updated_by(&self, name: &str) -> Option<[u64; 2]> {
        if self.updater == number_of(name) { Some(self.updates) } else { None }
    }

    /// What makes updates atomic: [`AtomicsDomain::Fabric`] if the owner has given updates to a fabric
    /// ([`TrafficClass::Atomics`](crate::TrafficClass::Atomics)), else [`AtomicsDomain::Engine`].
    pub const fn domain(&self) -> AtomicsDomain {
        if self.updater == 0 { AtomicsDomain::Engine } else { AtomicsDomain::Fabric }
    }

    /// What may be done with it.
    pub const fn access(&self) -> RegionAccess {
        RegionAccess(self.access)
    }
}

/// A hash of a name (FNV-1a), never 0.
const fn number_of(name: &str) -> u32 {
    let (bytes, mut number, mut at) = (name.as_bytes(), 0x811C_9DC5u32, 0);
    while at < bytes.len() {
        number = (number ^ bytes[at] as u32).wrapping_mul(0x0100_0193);
        at += 1;
    }
    number | 1
}
