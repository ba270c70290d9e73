//! The table of windows: for each window the parts of its members, how this proc reaches them, and the one-sided operations that go by
//! frames. For what a part is see [`tickwire_transports::windows`], and for operations by frames [`crate::protocols::one_sided`].

mod epochs;
mod exposed;
mod fabric;
mod links;
mod operations;
mod own;
pub mod regions;

use bevy_ecs::component::Component;
pub use epochs::{Access, Epochs};
pub use exposed::{AttachedRun, Directory, ExposedRegion, Registered};
pub use fabric::number_of_target;
pub use operations::{AwaitedUpdate, Batch, BatchPart, FabricKind, FabricOperation, Failure, Notice, RemoteOperation};
use smallvec::SmallVec;
use std::any::Any;
use std::collections::VecDeque;
use tickwire_components::{
    AtomicsDomain, Communicator, LockKind, NIL, ProcTable, RemoteKind, RemoteOutcome, Row, Span, Vc, VcState, context,
};
use tickwire_transports::windows::{Hold, Part};
use tickwire_transports::{Channel, RemoteKey};

/// The windows of an engine. On its one row.
#[derive(Component, Default)]
#[component(immutable, on_discard = tickwire_components::refuse_removal)]
pub struct Windows {
    /// All windows, by the row of the window's own communicator.
    pub list: Vec<Option<Box<WindowRow>>>,
    /// Rows of windows with something to send.
    pub busy: Vec<Row>,
    /// Handles of windows in whose own part other members may leave short puts.
    pub mailed: Vec<u32>,
    /// Operations without a request that have ended and that a call waits for: number and result, until the call asks for it.
    pub ended: Vec<(u64, Result<(), Failure>)>,
    /// Operations with a request that a fabric is doing.
    pub by_fabric: Vec<FabricOperation>,
    /// The update by a fabric that a call waits for.
    pub update: Option<AwaitedUpdate>,
    /// Number of the last operation.
    pub next: u64,
    /// The number of the next region that is exposed. The first number is chosen when the window of regions is made.
    pub next_region: u32,
    /// How peers on this host learn of the regions.
    pub directory: Directory,
    /// Why the last operation that has failed at a fabric has failed.
    pub fabric_reason: String,
    /// The lock that a call waits for: handle of the window and rank of the target.
    pub awaited: Option<(u32, u32)>,
    /// Room for elements that are read and written back by way of the kernel. Empty until the first use.
    pub scratch: Box<[u128]>,
    /// Ended batches, kept to be reused.
    pub spare_batches: Vec<Box<Batch>>,
}

/// A window.
pub struct WindowRow {
    /// The handle of its own communicator.
    pub handle: u32,
    /// The context word of its own communicator.
    pub context: u32,
    /// This process's rank.
    pub rank: u32,
    /// The parts of all members, by rank.
    pub targets: Vec<Target>,
    /// By whom updates are made atomic.
    pub domain: AtomicsDomain,
    /// The memory of this process's part.
    pub own: OwnMemory,
    /// The fabric's endpoint and its key of this process's memory, if a fabric reaches it.
    pub fabric_key: Option<(u8, RemoteKey)>,
    /// Whether a fabric reaches the memory of any member. All members know the same.
    pub has_fabric: bool,
    /// A fabric may write into this process's part at any time: puts of another member have failed, and what it has taken of them may
    /// still arrive. Once true it stays so.
    pub has_puts_in_flight: bool,
    /// Epochs of the window as a whole.
    pub epochs: Epochs,
    /// Requests of other members that are done and not answered yet, or that wait, in the order of their arrival.
    pub served: VecDeque<Served>,
    /// The application has given the window up, because a member has failed. Members that have not heard of that are still answered.
    pub is_retired: bool,
}

/// The memory of this process's part.
pub enum OwnMemory {
    /// Memory that the window has allocated.
    Allocated,
    /// A buffer of the application's.
    Buffer(Box<dyn Any + Send + Sync>),
    /// Allocated memory, with a copy of a buffer of the application's, and where the buffer is.
    Copied(Span, Box<dyn Any + Send + Sync>),
    /// Buffers that were attached (`MPI_Win_attach`).
    Attached(Vec<AttachedRun>),
    /// Regions that were exposed, by number.
    Exposed(Vec<ExposedRegion>),
}

/// A part of a window, as this proc reaches it.
pub struct Target {
    /// The VC of its owner; [`NIL`] for this process's part.
    pub vc: Row,
    /// Bytes of its memory. For memory that is attached piece by piece: the most that could be attached.
    pub bytes: u64,
    /// How its memory is reached.
    pub reach: Reach,
    /// The epoch towards it.
    pub access: Access,
    /// An exposure epoch of this process's part was posted to its owner, and is not waited for yet.
    pub is_admitted: bool,
    /// Its owner has failed within such an epoch. If only the connection has failed, its process may still write into this process's part.
    pub is_lost: bool,
    /// Operations that were posted so far.
    pub issued: u64,
    /// Operations that are complete at the target.
    pub completed: u64,
    /// Number of operations that need no full fence any more: those before the last flush, and gets by loads. The next flush has such a
    /// fence if other operations were posted since.
    pub ordered: u64,
    /// How an operation has failed, if nobody was told of it yet. That its owner has failed stays here: see [`Target::take_failure`].
    pub failure: Option<Failure>,
    /// A put by a fabric has failed. The fabric may have taken a part of it, which may still arrive.
    pub has_lost_put: bool,
    /// The owner was told of that.
    pub is_loss_told: bool,
    /// Operations that go by frames, in their order.
    pub operations: VecDeque<RemoteOperation>,
    /// Frames that were sent and not answered yet.
    pub outstanding: u32,
    /// Frames that were sent so far: the number of the next one.
    pub frames: u32,
    /// Frames that were answered so far.
    pub answers: u32,
    /// Operations by a fabric that are not known to be complete. `fabric_turn` is the number of the last one on its channel.
    pub by_fabric: u64,
    /// See `by_fabric`.
    pub fabric_turn: u64,
    /// How many of `by_fabric` are puts.
    pub puts_by_fabric: u64,
    /// A short put was left for the owner's engine.
    pub has_mail: bool,
    /// Number of short puts still to be sent in another way, since the owner's engine has not taken one.
    pub mail_pause: u32,
}

/// How the memory of a part is reached.
pub enum Reach {
    /// By loads and stores.
    Memory(Part),
    /// By the kernel. Locks are reached by loads and stores.
    Kernel {
        /// The control lines.
        part: Part,
        /// The endpoint and link of the owner.
        endpoint: u8,
        /// See `endpoint`.
        link: u32,
        /// The memory's address in the owner's process.
        address: u64,
    },
    /// Memory that is listed in the owner's directory by the kernel, all other memory by frames to the owner's engine. Locks are reached by
    /// loads and stores.
    Listed {
        /// The control lines and the directory.
        part: Part,
        /// The endpoint and link of the owner.
        endpoint: u8,
        /// See `endpoint`.
        link: u32,
    },
    /// Puts and gets by a fabric, other operations by frames to the owner's engine.
    Fabric {
        /// The endpoint.
        endpoint: u8,
        /// The link of the owner, and the context.
        channel: Channel,
        /// The fabric's key of the owner's memory.
        key: RemoteKey,
    },
    /// By frames to the owner's engine.
    Engine,
}

/// A request of another member that is done and must be answered, or that waits.
pub struct Served {
    /// The rank that has sent it.
    pub origin: u32,
    /// Its number.
    pub number: u32,
    /// It is a batch: its answer begins with the outcome of each operation.
    pub is_batch: bool,
    /// Its operations: one, or those of a batch.
    pub operations: SmallVec<[ServedOperation; 1]>,
    /// The member that has the update lock that it waits for, else [`NIL`].
    pub holder: u32,
    /// How many of its operations are done.
    pub done: usize,
    /// Its payload, if it has to wait.
    pub kept: Box<[u8]>,
    /// Bytes of its answer so far. The bytes of a single get are not here: they are read from the memory when the answer leaves.
    pub answer: Vec<u8>,
    /// The state that a transport keeps for a frame of which it has taken a part.
    pub state: Option<Box<dyn Any + Send + Sync>>,
}

/// An operation that another member wants.
#[derive(Clone, Copy)]
pub struct ServedOperation {
    /// What it does.
    pub kind: RemoteKind,
    /// Where, bytes.
    pub at: u64,
    /// Bytes that are put, got or updated.
    pub length: u64,
    /// Where its operands begin in the request's payload, bytes.
    pub operands: usize,
    /// How it has ended, once it has.
    pub outcome: RemoteOutcome,
}

impl Served {
    /// Whether all operations are done, so that the request can be answered.
    pub fn is_done(&self) -> bool {
        self.done == self.operations.len()
    }
}

impl Windows {
    /// A window by its handle, unless it is retired.
    #[inline(always)]
    pub fn get(&mut self, handle: u32) -> Option<&mut WindowRow> {
        match self.list.get_mut(Communicator::row(handle)) {
            Some(Some(window)) if window.handle == handle && !window.is_retired => Some(window),
            _ => None,
        }
    }

    /// Whether there is a window with this handle, also a retired one.
    pub fn has(&self, handle: u32) -> bool {
        let row = self.list.get(Communicator::row(handle)).and_then(Option::as_ref);
        row.is_some_and(|window| window.handle == handle)
    }

    /// A window by the context word of a frame, also a retired one.
    pub fn of_context(&mut self, word: u32) -> Option<&mut WindowRow> {
        let window = self.list.get_mut(context::id(word) as usize)?.as_deref_mut()?;
        (context::base(word) == window.context).then_some(window)
    }

    /// The target that an answer has come from, also in a retired window.
    pub fn answered(&mut self, handle: u32, rank: usize) -> Option<&mut Target> {
        let window = self.list.get_mut(Communicator::row(handle))?.as_deref_mut()?;
        window.targets.get_mut(rank).filter(|_| window.handle == handle)
    }

    /// Adds a window.
    pub fn add(&mut self, window: WindowRow) {
        let row = Communicator::row(window.handle);
        if self.list.len() <= row {
            self.list.resize_with(row + 1, || None);
        }
        // A retired window keeps its communicator, and so its row.
        debug_assert!(self.list[row].is_none(), "a row is used once");
        self.list[row] = Some(Box::new(window));
    }

    /// Retires a window: the application cannot use it any more, because a member has failed, but other members may still use this
    /// process's part. The window's own communicator must stay, so that no other window gets the row.
    pub fn retire(&mut self, handle: u32) {
        self.get(handle).into_iter().for_each(|window| window.is_retired = true);
    }

    /// Removes a window, also a retired one.
    pub fn remove(&mut self, handle: u32) -> Option<Box<WindowRow>> {
        let row = Communicator::row(handle);
        self.list.get(row)?.as_ref().filter(|window| window.handle == handle)?;
        self.busy.retain(|&busy| busy as usize != row);
        self.mailed.retain(|&mailed| mailed != handle);
        self.list[row].take()
    }

    /// Notes that a window has something to send.
    pub fn stir(&mut self, handle: u32) {
        let row = Communicator::row(handle) as Row;
        if !self.busy.contains(&row) {
            self.busy.push(row);
        }
    }

    /// Writes the short puts that other members have left to their places. Returns whether there were some.
    pub fn serve_mail(&mut self) -> bool {
        let mut served = 0;
        for index in 0..self.mailed.len() {
            let handle = self.mailed[index];
            served += self.get(handle).and_then(|window| window.own_part()).map_or(0, |part| part.serve_mail());
        }
        served > 0
    }

    /// The number of a new operation.
    pub fn number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }
}

impl WindowRow {
    /// Whether a member has failed.
    pub fn is_dead(&self, vcs: &[Vc], rank: u32) -> bool {
        let vc = self.targets.get(rank as usize).map_or(NIL, |target| target.vc);
        match &self.own {
            // Another proc may use regions of this proc without being a target of it.
            OwnMemory::Exposed(_) if vc == NIL => vcs.iter().any(|vc| vc.proc == rank && vc.state == VcState::Failed),
            _ => vcs.get(vc as usize).is_some_and(|vc| vc.state == VcState::Failed),
        }
    }

    /// The proc of a member. Members of the window of regions are procs.
    pub fn proc_of(&self, vcs: &[Vc], rank: u32) -> Option<u32> {
        match &self.own {
            OwnMemory::Exposed(_) => Some(rank),
            _ => vcs.get(self.targets.get(rank as usize)?.vc as usize).map(|vc| vc.proc),
        }
    }

    /// Whether a member's process is known to have ended, so that its update lock may be taken over.
    pub fn is_gone(&self, procs: &ProcTable, rank: u32) -> bool {
        let row = match &self.own {
            // Another proc may use regions of this proc without being a target of it.
            OwnMemory::Exposed(_) => procs.known.get(rank as usize).map(|known| known.row),
            _ => self.targets.get(rank as usize).map(|target| target.vc),
        };
        row.is_some_and(|row| procs.gone.contains(&row))
    }
}

impl Target {
    /// A target that was not used yet.
    pub fn new(vc: Row, bytes: u64, reach: Reach) -> Self {
        Target {
            vc,
            bytes,
            reach,
            access: Access::None,
            is_admitted: false,
            is_lost: false,
            issued: 0,
            completed: 0,
            ordered: 0,
            failure: None,
            has_lost_put: false,
            is_loss_told: false,
            operations: VecDeque::new(),
            outstanding: 0,
            frames: 0,
            answers: 0,
            by_fabric: 0,
            fabric_turn: 0,
            puts_by_fabric: 0,
            has_mail: false,
            mail_pause: 0,
        }
    }

    /// Takes the failure that a call is about to tell. That the owner has failed is never taken, so all later flushes tell it, too.
    pub fn take_failure(&mut self) -> Option<Failure> {
        match self.failure {
            Some(Failure::TargetFailed) => self.failure,
            _ => self.failure.take(),
        }
    }

    /// The part with its locks, if loads and stores reach them.
    #[inline(always)]
    pub fn locks(&self) -> Option<&Part> {
        match &self.reach {
            Reach::Memory(part) | Reach::Kernel { part, .. } | Reach::Listed { part, .. } => Some(part),
            Reach::Fabric { .. } | Reach::Engine => None,
        }
    }
}

/// The [`Hold`] of a lock kind.
pub const fn hold_of(kind: LockKind) -> Hold {
    match kind {
        LockKind::Shared => Hold::Shared,
        LockKind::Exclusive => Hold::Exclusive,
    }
}
