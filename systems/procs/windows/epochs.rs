//! Epochs of windows: of a window as a whole, and towards one target.

use tickwire_components::LockKind;

/// Epochs that a window as a whole may have.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Epochs {
    /// A fence was called, and no other epoch has begun since.
    pub fence: bool,
    /// Number of operations on all targets at the last fence.
    pub fenced: u64,
    /// Other members may be in the epoch of a fence: from the moment that this member calls it, until a fence has ended it.
    pub fence_exposes: bool,
    /// All targets are locked (`MPI_Win_lock_all`).
    pub all_locked: bool,
    /// Number of targets that are locked one by one.
    pub locked: u32,
    /// An access epoch was started and is not completed (`MPI_Win_start`).
    pub started: bool,
    /// An exposure epoch was posted and is not waited for yet (`MPI_Win_post`).
    pub posted: bool,
}

/// An epoch towards one target.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Access {
    /// None.
    #[default]
    None,
    /// It is locked, alone or with all others.
    Locked(LockKind),
    /// A fence has begun it.
    Fence,
    /// It is in the group of a started access epoch.
    Started,
}
