//! This process's part of a window, and where bytes are in it.

use super::exposed::AttachedRun;
use super::{OwnMemory, Reach, WindowRow, regions};
use tickwire_transports::windows::Part;

impl WindowRow {
    /// This process's part.
    #[inline(always)]
    pub fn own_part(&self) -> Option<&Part> {
        match &self.targets.get(self.rank as usize)?.reach {
            Reach::Memory(part) => Some(part),
            _ => None,
        }
    }

    /// Where bytes of this process's memory are: the part, and their place in it.
    #[inline(always)]
    pub fn place(&self, at: usize, bytes: usize) -> Option<(&Part, usize)> {
        match &self.own {
            OwnMemory::Attached(runs) => runs.iter().find_map(|AttachedRun { part, .. }| {
                let place = at.checked_sub(part.memory()?.start().addr())?;
                (place <= part.bytes() && bytes <= part.bytes() - place).then_some((part, place))
            }),
            OwnMemory::Exposed(regions) => regions::find(regions, at, bytes),
            _ => Some((self.own_part()?, at)),
        }
    }
}
