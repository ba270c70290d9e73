//! Exposed memory: the key of a region, and what may be done with it.

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
    /// Nothing of it.
    pub const NONE: RegionAccess = RegionAccess(0);
    /// All of that.
    pub const ALL: RegionAccess = RegionAccess(7);

    /// Whether this allows what `other` asks for.
    pub const fn covers(self, other: RegionAccess) -> bool {
        self.0 & other.0 == other.0
    }

    /// This but for what `other` allows.
    pub const fn without(self, other: RegionAccess) -> RegionAccess {
        RegionAccess(self.0 & !other.0)
    }

    /// Its bits.
    pub const fn bits(self) -> u32 {
        self.0
    }

    /// The access with these bits; those that mean nothing are left out.
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

/// The key of an exposed region: plain data, which its owner sends to whoever may use it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(C)]
pub struct RegionKey {
    /// Bytes of the region.
    pub bytes: u64,
    /// What the fabric calls it that puts and gets: key, and address of the first byte.
    moves: [u64; 2],
    /// The same, of the fabric that does updates.
    updates: [u64; 2],
    /// The proc whose memory it is.
    pub proc: u32,
    /// Its number there. None is used twice.
    pub number: u32,
    /// What may be done with it: the bits of a [`RegionAccess`].
    access: u32,
    /// Which fabric puts and gets: a number of its name, or 0 for none.
    mover: u32,
    /// Which fabric does updates.
    updater: u32,
    /// Room to the end of the last word: 0.
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

    /// The same, of a region to which the fabric of this name puts and from which it gets, by a key and an address.
    pub const fn moved_by(self, name: &str, fabric: [u64; 2]) -> Self {
        RegionKey { moves: fabric, mover: number_of(name), ..self }
    }

    /// The same, of a region whose updates are all done by the fabric of this name.
    pub const fn updated_by(self, name: &str, fabric: [u64; 2]) -> Self {
        RegionKey { updates: fabric, updater: number_of(name), ..self }
    }

    /// What the fabric of this name calls it, if that puts and gets.
    pub const fn as_moved_by(&self, name: &str) -> Option<[u64; 2]> {
        if self.mover == number_of(name) { Some(self.moves) } else { None }
    }

    /// What the fabric of this name calls it, if that does its updates.
    pub const fn as_updated_by(&self, name: &str) -> Option<[u64; 2]> {
        if self.updater == number_of(name) { Some(self.updates) } else { None }
    }

    /// Who makes its updates atomic: [`AtomicsDomain::Fabric`] where the owner has given updates to one
    /// ([`TrafficClass::Atomics`](crate::TrafficClass::Atomics)), else [`AtomicsDomain::Engine`].
    pub const fn domain(&self) -> AtomicsDomain {
        if self.updater == 0 { AtomicsDomain::Engine } else { AtomicsDomain::Fabric }
    }

    /// What may be done with it.
    pub const fn access(&self) -> RegionAccess {
        RegionAccess(self.access)
    }
}

/// A number of a name, never 0 (FNV-1a).
const fn number_of(name: &str) -> u32 {
    let (bytes, mut number, mut at) = (name.as_bytes(), 0x811C_9DC5u32, 0);
    while at < bytes.len() {
        number = (number ^ bytes[at] as u32).wrapping_mul(0x0100_0193);
        at += 1;
    }
    number | 1
}
