//! Windows (MPI 4.1 chapter 12): memory of all members of a communicator, which each of them reads, writes and updates by itself.
//!
//! All members make a window together ([`Engine::win_allocate`], [`Engine::win_create`]). An operation on a rank's part needs an epoch
//! towards that rank: [`Engine::win_lock`], [`Engine::win_lock_all`], [`Engine::win_fence`], or [`Engine::win_start`]. On one host no
//! operation waits for a target that computes. On memory that members share, and on all memory of engines of one process, operations are
//! loads, stores and atomic operations. Most buffers of created windows have copies in such memory. Other memory of another process is
//! reached by calls of the kernel. A short put into it is first left for the target's engine, which is faster; if that engine does not
//! tick, the origin takes the put back and has the kernel write it. On other hosts a fabric puts and gets, where it can, and any tick of
//! the target's engine does all else.

mod attaching;
mod epochs;
pub(crate) mod exposure;
mod fabric;
mod flushing;
mod freeing;
mod kernel;
mod locking;
mod lost;
mod making;
mod memory;
mod moving;
mod near;
mod offer;
mod own;
mod passing;
mod remote;
mod typed;
mod updating;

use crate::api::request::{OperationError, Request};
use crate::run::engine::{Closed, Engine};
pub(crate) use fabric::Route;
pub(crate) use moving::Posted;
pub use own::{ExclusivePart, PartCells};
pub(crate) use remote::{RemoteMove, Until};
use std::fmt;
use thiserror::Error;
use tickwire_components::{AtomicsDomain, Comm, PostError, ProcId, Rank, RequestError, VcState, Window, WindowError};
use tickwire_systems::procs::windows::regions::REGIONS;
use tickwire_systems::procs::windows::{Access, Failure, Reach, Target, WindowRow};
pub(crate) use typed::{Placed, runs_within};

/// An operation on a window that could not be posted; its buffer comes back.
#[derive(Error)]
#[error("{error}")]
pub struct RejectedUpdate<B> {
    /// Why.
    pub error: WindowError,
    /// The buffer.
    pub buffer: B,
}

impl<B> fmt::Debug for RejectedUpdate<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RejectedUpdate({:?})", self.error)
    }
}

impl<B> From<RejectedUpdate<B>> for WindowError {
    fn from(rejected: RejectedUpdate<B>) -> Self {
        rejected.error
    }
}

/// The error of a call that makes a buffer memory of a window or gives it back, and the buffer.
#[derive(Error)]
#[error("{error}")]
pub struct RejectedBuffer<B> {
    /// Why.
    pub error: WindowError,
    /// The buffer. `None` if there was none, if it is still that of a window, or if another member may still write into it: it is never
    /// freed then.
    pub buffer: Option<B>,
}

impl<B> fmt::Debug for RejectedBuffer<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RejectedBuffer({:?})", self.error)
    }
}

impl<B> From<RejectedBuffer<B>> for WindowError {
    fn from(rejected: RejectedBuffer<B>) -> Self {
        rejected.error
    }
}

/// Elements of a rank's part of a window, as a call names them.
#[derive(Clone, Copy)]
pub(crate) struct PartPlace {
    rank: Rank,
    /// The first of them, in elements of the window.
    displacement: usize,
    /// The window's.
    handle: u32,
}

impl PartPlace {
    #[inline(always)]
    fn new<T>(rank: Rank, displacement: usize, window: Window<T>) -> Self {
        PartPlace { rank, displacement, handle: window.handle }
    }
}

/// The token of an operation on a window that was posted, or its buffer back.
pub type PostedUpdate<B> = Result<Request<B>, RejectedUpdate<B>>;

/// Operations of this proc on one member's part of a window.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WindowCounts {
    /// How many were posted. An operation on several runs of memory counts once; over a fabric, once for each run.
    pub issued: u64,
    /// How many of them are done at the target.
    pub completed: u64,
}

/// How this proc reaches a member's part of a window.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WindowReach {
    /// By loads, stores and atomic operations.
    Memory,
    /// By the kernel, which reads and writes the member's memory.
    Kernel,
    /// Puts and gets by a fabric that reaches the member's memory by itself, all else by its engine.
    Fabric,
    /// By the member's engine, in any tick of it.
    Engine,
}

impl WindowReach {
    pub(crate) fn of(reach: &Reach) -> Self {
        match reach {
            Reach::Memory(_) => WindowReach::Memory,
            Reach::Listed { part, .. } if part.is_within_process() => WindowReach::Memory,
            Reach::Kernel { .. } | Reach::Listed { .. } => WindowReach::Kernel,
            Reach::Fabric { .. } => WindowReach::Fabric,
            Reach::Engine => WindowReach::Engine,
        }
    }
}

impl fmt::Display for WindowReach {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            WindowReach::Memory => "loads and stores",
            WindowReach::Kernel => "the kernel",
            WindowReach::Fabric => "the fabric",
            WindowReach::Engine => "the target's engine",
        })
    }
}

impl Engine {
    /// Who makes updates of a window atomic.
    ///
    /// # Errors
    /// There is no such window.
    pub fn win_domain<T>(&mut self, window: Window<T>) -> Result<AtomicsDomain, WindowError> {
        Ok(self.window(window.handle)?.domain)
    }

    /// How this proc reaches a rank's part of a window.
    ///
    /// # Errors
    /// There is no such window, or no such rank.
    pub fn win_reach<T>(&mut self, rank: Rank, window: Window<T>) -> Result<WindowReach, WindowError> {
        Ok(WindowReach::of(&self.target(rank, window.handle)?.reach))
    }

    /// How many elements a rank's part of a window has. For a window of [`Engine::win_create_dynamic`], as many as there are
    /// displacements.
    ///
    /// # Errors
    /// There is no such window, or no such rank.
    pub fn win_len<T>(&mut self, rank: Rank, window: Window<T>) -> Result<usize, WindowError> {
        Ok(self.target(rank, window.handle)?.bytes as usize / size_of::<T>().max(1))
    }

    /// How many operations this proc has posted on a rank's part of a window, and how many of them are done there.
    ///
    /// # Errors
    /// There is no such window, or no such rank.
    pub fn win_counts<T>(&mut self, rank: Rank, window: Window<T>) -> Result<WindowCounts, WindowError> {
        let Target { issued, completed, .. } = *self.target(rank, window.handle)?;
        Ok(WindowCounts { issued, completed })
    }

    /// A window by its handle. The row of exposed regions is none: it has no epochs, and stays as long as the engine.
    fn window(&mut self, handle: u32) -> Result<&mut WindowRow, WindowError> {
        if handle == REGIONS {
            return Err(WindowError::Freed(handle));
        }
        self.window_row(handle)
    }

    /// A window, or the row of exposed regions.
    fn window_row(&mut self, handle: u32) -> Result<&mut WindowRow, WindowError> {
        if self.closed != Closed::No {
            return Err(self.closed.post_error().into());
        }
        self.store.all().windows.get(handle).ok_or(WindowError::Freed(handle))
    }

    /// A member's part of a window.
    pub(crate) fn target(&mut self, rank: Rank, handle: u32) -> Result<&mut Target, WindowError> {
        let targets = &mut self.window_row(handle)?.targets;
        let last = targets.len() as u32 - 1;
        targets.get_mut(rank.0 as usize).ok_or(PostError::Rank { rank: rank.0, last }.into())
    }

    /// The member's part of a window that an operation goes to, and where in it, bytes; `None` if anything is wrong, which
    /// [`Engine::checked`] then tells. The engine is open.
    #[inline(always)]
    fn near<T>(&mut self, rank: Rank, displacement: usize, handle: u32) -> Option<(&mut Target, usize)> {
        let window = self.store.all().windows.get(handle)?;
        let target = window.targets.get_mut(rank.0 as usize)?;
        if target.access == Access::None {
            return None;
        }
        Some((target, displacement.checked_mul(size_of::<T>())?))
    }

    /// Whether an operation goes to nobody ([`Rank::NULL`]), so that nothing is to be done. It needs an epoch towards any rank.
    ///
    /// # Errors
    /// No such window, or no epoch.
    #[inline]
    fn is_to_nobody(&mut self, rank: Rank, handle: u32) -> Result<bool, WindowError> {
        if rank == Rank::NULL {
            self.check_epochs(handle, "one-sided operations")?;
        }
        Ok(rank == Rank::NULL)
    }

    /// Checks an operation on `bytes` bytes of a rank's part, and says what is wrong. Returns the place in the part, in bytes.
    ///
    /// # Errors
    /// No such window or rank, no epoch, not within the part, or a member that has failed.
    #[cold]
    fn checked<T>(&mut self, rank: Rank, displacement: usize, bytes: usize, handle: u32) -> Result<usize, WindowError> {
        let Target { access, bytes: length, vc, ref reach, .. } = *self.target(rank, handle)?;
        let is_engine = matches!(reach, Reach::Listed { .. } | Reach::Fabric { .. } | Reach::Engine);
        if access == Access::None {
            return Err(WindowError::NoEpoch(rank));
        }
        let first = displacement.saturating_mul(size_of::<T>());
        let (end, length) = (first.saturating_add(bytes), length as usize);
        if end > length || displacement.checked_mul(size_of::<T>()).is_none() {
            return Err(WindowError::OutOfBounds { target: rank, first, end, length });
        }
        let all = self.store.all();
        if is_engine && all.vcs.get(vc as usize).is_some_and(|vc| vc.state == VcState::Failed) {
            return Err(self.failed_target(rank, handle));
        }
        Ok(first)
    }

    /// An operation failed so at a rank's part.
    #[cold]
    fn failed(&mut self, failure: Failure, rank: Rank, handle: u32) -> WindowError {
        match failure {
            Failure::OutOfBounds => RequestError::OutOfBounds.into(),
            Failure::NotExposed => RequestError::NotExposed.into(),
            Failure::Fabric => {
                let reason = self.store.all().windows.fabric_reason.clone();
                self.failed_by_fabric(reason, rank, handle)
            }
            Failure::TargetFailed => self.failed_target(rank, handle),
            Failure::HolderFailed(holder) => match self.failed_target(Rank(holder), handle) {
                WindowError::PeerFailed { proc, reason } => WindowError::HolderFailed { proc, reason },
                error => error,
            },
        }
    }

    /// Says that the proc of a rank has failed.
    #[cold]
    pub(crate) fn failed_target(&mut self, rank: Rank, handle: u32) -> WindowError {
        let row = match self.target(rank, handle) {
            Ok(target) => target.vc,
            Err(error) => return error,
        };
        let all = self.store.all();
        let proc = ProcId(all.vcs.get(row as usize).map_or(all.procs.me, |vc| vc.proc));
        WindowError::PeerFailed { proc, reason: all.procs.reason(row).to_owned() }
    }
}

/// The own communicator of a window.
fn comm_of(handle: u32) -> Comm {
    Comm(handle)
}

impl From<OperationError> for WindowError {
    fn from(error: OperationError) -> Self {
        match error {
            OperationError::Post(error) => WindowError::Post(error),
            OperationError::Request(error) => WindowError::Request(error),
            // The other errors are about counts, or memory for a message. The windows' own messages have no elements, so they do not
            // occur.
            other => WindowError::Request(RequestError::System(other.to_string())),
        }
    }
}
