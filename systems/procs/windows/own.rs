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

    /// Whether an epoch is open in which a member may access this process's part: the member holds its lock, or a fence or a posted epoch
    /// admits it.
    pub fn admits(&self, origin: u32) -> bool {
        // Regions have no epochs. Who has given a window up after a failure has no epochs any more, but others may still have theirs.
        let has_epochs = !matches!(self.own, OwnMemory::Exposed(_)) && !self.is_retired;
        !has_epochs
            || self.epochs.fence_exposes
            || self.targets.get(origin as usize).is_some_and(|target| target.is_admitted)
            || self.own_part().is_some_and(|part| part.held_by(origin).is_some())
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
