//! What an engine is: its tables, its schedule, and what it keeps beside them. What it does is in the other files.

use crate::api::attached::Attached;
use crate::api::communicators::state::Comms;
use crate::api::slots::info::SlotInfo;
use crate::api::windows::exposure::Exposure;
use crate::bootstrap::Exchange;
use crate::observe::observer::Observer;
use crate::run::home::Home;
use crate::run::waiter::Waiter;
use crate::run::watching::Watching;
use bevy_ecs::prelude::{Schedule, World};
use std::cell::RefCell;
use std::sync::Arc;
use std::time::Instant;
use tickwire_components::limits::Limits;
use tickwire_components::submission::Submissions;
use tickwire_components::{Comm, PostError, Rank, RequestError, Row};
use tickwire_systems::store::Store;
use tickwire_traces::{Counters, Trace};
use tickwire_transports::{LinkEvent, TagLimits};

/// A communication engine: one proc's membership of a world. `Send`, not `Sync`: one thread owns it at a time.
///
/// ```
/// fn may_move<T: Send>() {}
/// may_move::<tickwire::Engine>();
/// ```
///
/// ```compile_fail,E0277
/// fn may_be_shared<T: Sync>() {}
/// may_be_shared::<tickwire::Engine>();
/// ```
pub struct Engine {
    pub(crate) store: Store,
    pub(crate) schedule: Schedule,
    pub(crate) limits: Limits,
    pub(crate) home: &'static Home,
    /// The first generation of its requests: no other engine with this home has it.
    pub(crate) epoch: u64,
    pub(crate) closed: Closed,
    /// Endpoints that may hold frames back for others to go with.
    pub(crate) holders: Box<[usize]>,
    /// Endpoints whose messages are delivered by the look that finds them.
    pub(crate) prompt: Box<[usize]>,
    /// Other endpoints that have looks of their own: they do not consist of rings, or are expensive to look at.
    pub(crate) others: Box<[usize]>,
    /// What a look goes on with.
    pub(crate) looks: Looks,
    /// Whether collective operations on boards are in progress.
    pub(crate) boards_busy: bool,
    /// Whether others may leave short puts in windows.
    pub(crate) has_mail: bool,
    /// Whether a fabric has operations with a request.
    pub(crate) fabric_busy: bool,
    /// Frames that the tick may still deliver.
    pub(crate) budget: u32,
    /// Frames that a tick delivers at most; those that DrainCq reads come on top.
    pub(crate) delivered_max: u32,
    /// Looks since the clock was sampled.
    pub(crate) polls: u32,
    pub(crate) control_ns: u64,
    /// Empty looks of `wait` before it yields: few where there are more procs than processors.
    pub(crate) spins: u32,
    /// When sockets were looked at last, ns.
    pub(crate) controlled_ns: u64,
    /// The caller gives the time.
    pub(crate) virtual_time: bool,
    pub(crate) started: Instant,
    pub(crate) events: Vec<LinkEvent>,
    /// Whether the application has systems in the schedule.
    pub(crate) has_systems: bool,
    /// Whether Deliver may run: not where the application has systems.
    pub(crate) delivers: bool,
    pub(crate) watching: Watching,
    /// The own proc, if a message to it is copied into a posted receive by the send; else [`NIL`].
    pub(crate) own_at_once: u32,
    /// The own VC's row, if such messages need not be told to a trace or a receipt; else [`NIL`].
    pub(crate) own_row: Row,
    pub(crate) exchange: Box<dyn Exchange>,
    pub(crate) counters: Arc<Counters>,
    /// Where events go, if anywhere.
    pub(crate) trace: RefCell<Option<Trace>>,
    /// What other threads see of it.
    pub(crate) submissions: Arc<Submissions>,
    pub(crate) waiter: Waiter,
    pub(crate) attached: Attached,
    pub(crate) slots: Vec<SlotInfo>,
    /// Whether peers may read the process's shared heap. Fixed when it is built.
    pub(crate) shared_heap: bool,
    /// What fits the tags of the transport that matches by itself, if one does.
    pub(crate) tags: TagLimits,
    pub(crate) comms: Comms,
    /// Exposure epochs of windows that are posted.
    pub(crate) exposures: Vec<Exposure>,
    pub(crate) ends: Ends,
    pub(crate) observer: Observer,
    #[cfg(feature = "dynamic-endpoints")]
    pub(crate) dynamic_slots: Vec<(String, crate::api::slots::info::DynamicSlot)>,
    pub(crate) not_sync: std::marker::PhantomData<std::cell::Cell<()>>,
}

/// How far an engine has asked after members that have failed.
#[derive(Default)]
pub(crate) struct Ends {
    /// When it did last, ns.
    pub(super) asked_ns: u64,
    /// The proc that is asked after next.
    pub(super) next: u32,
    /// A probe of any source waits.
    pub(crate) probed: bool,
}

/// What a look goes on with, after the rings.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Looks {
    /// Nothing else.
    Rings,
    /// Operations with receipts want to know when a look has found nothing.
    Receipts,
    /// Endpoints that have looks of their own, or other things that no ring tells of.
    Apart,
}

/// Whether an engine still takes calls.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Closed {
    No,
    Finalized,
    Poisoned(String),
}

impl Closed {
    /// Whether operations may be posted.
    #[inline]
    pub(crate) fn check_post(&self) -> Result<(), PostError> {
        if matches!(self, Closed::No) { Ok(()) } else { Err(self.post_error()) }
    }

    /// Whether requests can still be waited for.
    #[inline]
    pub(crate) fn check_request(&self) -> Result<(), RequestError> {
        if matches!(self, Closed::No) { Ok(()) } else { Err(self.request_error()) }
    }

    #[cold]
    pub(crate) fn post_error(&self) -> PostError {
        match self {
            Closed::Poisoned(words) => PostError::Poisoned(words.clone()),
            _ => PostError::Finalized,
        }
    }

    #[cold]
    pub(crate) fn request_error(&self) -> RequestError {
        match self {
            Closed::Poisoned(words) => RequestError::Poisoned(words.clone()),
            _ => RequestError::Finalized,
        }
    }
}

impl Engine {
    /// The communicator of all procs.
    pub fn comm_world(&self) -> Comm {
        Comm::WORLD
    }

    /// The communicator of this proc alone.
    pub fn comm_self(&self) -> Comm {
        Comm::SELF
    }

    /// The own rank in the world's communicator.
    pub fn rank(&self) -> Rank {
        Rank(self.exchange.rank())
    }

    /// The number of procs in the world.
    pub fn size(&self) -> u32 {
        self.exchange.size()
    }

    /// The limits it was built with.
    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    /// What fits the tags of the transport that matches messages by itself, if one does: the highest tag, and how many
    /// communicators and ranks there may be.
    pub fn tag_limits(&self) -> TagLimits {
        self.tags
    }

    /// How often each system has run; shared, and readable from other threads.
    pub fn counters(&self) -> Arc<Counters> {
        self.counters.clone()
    }

    /// The world. Rows of the engine's tables are its own: systems of the application read them, and may neither spawn nor
    /// remove nor write any. Who gets at the world as a whole and moves, clears or replaces what is there poisons the engine.
    pub fn world(&self) -> &World {
        self.store.world()
    }

    /// No row is free, and there may be no more of them.
    #[cold]
    pub(crate) fn full(&self) -> PostError {
        PostError::Full { table: "CAR", rows: self.limits.cars_max, limit: "cars_max" }
    }
}
