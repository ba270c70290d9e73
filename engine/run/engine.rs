//! The state of an engine: its tables, its schedule, and what it keeps beside them. The other files say what an engine does.

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
use tickwire_traces::tracy::connected;
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
    /// The first generation of this engine's requests. No other engine with the same home has used it.
    pub(crate) epoch: u64,
    pub(crate) closed: Closed,
    /// Whether the engine is open and has no sink. See [`Engine::is_quick`].
    pub(crate) quick: bool,
    /// Whether a one-sided call is in progress that is told to whoever watches. Calls that it makes are not told.
    pub(crate) is_telling: bool,
    /// Endpoints whose transports may hold frames back, to send them together with later ones.
    pub(crate) holders: Box<[usize]>,
    /// Endpoints whose messages are delivered by the look that finds them.
    pub(crate) prompt: Box<[usize]>,
    /// Other endpoints that are polled separately: they do not consist of rings, or are expensive to poll.
    pub(crate) others: Box<[usize]>,
    /// What follows the rings in each look.
    pub(crate) looks: Looks,
    /// Whether collective operations on boards are in progress.
    pub(crate) boards_busy: bool,
    /// Whether other members may leave short puts in this rank's windows.
    pub(crate) has_mail: bool,
    /// Whether a fabric has operations with a request in progress.
    pub(crate) fabric_busy: bool,
    /// Frames that the current tick may still deliver.
    pub(crate) budget: u32,
    /// Most frames that a tick delivers. Those that DrainCq reads come on top.
    pub(crate) delivered_max: u32,
    /// Looks since the clock was sampled.
    pub(crate) polls: u32,
    pub(crate) control_ns: u64,
    /// Empty looks of `wait` before it yields the processor. Few where there are more procs than processors.
    pub(crate) spins: u32,
    /// When the engine last looked around (sockets, the launcher), ns.
    pub(crate) controlled_ns: u64,
    /// Whether the caller gives the time ([`Engine::tick_at`]).
    pub(crate) virtual_time: bool,
    pub(crate) started: Instant,
    pub(crate) events: Vec<LinkEvent>,
    /// Whether the application has systems in the schedule.
    pub(crate) has_systems: bool,
    /// Whether a caller that finds no free row tries again later: for error handlers that is no error.
    pub(crate) full_waits: bool,
    /// Whether work was done since the subscriptions of a bevy app were looked after.
    #[cfg(feature = "bevy")]
    pub(crate) unclaimed: bool,
    /// Whether Deliver may run: see `allow_deliver`.
    pub(crate) delivers: bool,
    pub(crate) watching: Watching,
    /// The own proc, if the send of a message to it copies the message into a posted receive; else [`NIL`].
    pub(crate) own_at_once: u32,
    /// The own VC's row, if neither a trace nor a receipt must be told of such messages; else [`NIL`].
    pub(crate) own_row: Row,
    pub(crate) exchange: Box<dyn Exchange>,
    pub(crate) counters: Arc<Counters>,
    /// The trace in which events are recorded, if there is one.
    pub(crate) trace: RefCell<Option<Trace>>,
    /// What other threads share with this engine: their submissions.
    pub(crate) submissions: Arc<Submissions>,
    pub(crate) waiter: Waiter,
    pub(crate) attached: Attached,
    pub(crate) slots: Vec<SlotInfo>,
    /// Whether peers may read the process's shared heap. Fixed when the engine is built.
    pub(crate) shared_heap: bool,
    /// Limits of the transport that matches messages itself, if there is one.
    pub(crate) tags: TagLimits,
    pub(crate) comms: Comms,
    /// Exposure epochs that were posted on windows.
    pub(crate) exposures: Vec<Exposure>,
    pub(crate) ends: Ends,
    pub(crate) observer: Observer,
    #[cfg(feature = "dynamic-endpoints")]
    pub(crate) dynamic_slots: Vec<(String, crate::api::slots::info::DynamicSlot)>,
    pub(crate) not_sync: std::marker::PhantomData<std::cell::Cell<()>>,
}

/// How far an engine has come in asking which members have failed.
#[derive(Default)]
pub(crate) struct Ends {
    /// When the engine asked last, ns.
    pub(super) asked_ns: u64,
    /// The proc to ask about next.
    pub(super) next: u32,
    /// Whether a probe from any source waits.
    pub(crate) probed: bool,
}

/// What follows the rings in each look.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Looks {
    /// Nothing else.
    Rings,
    /// A sink or open receipts must be told when a look has found nothing.
    Noted,
    /// Endpoints that are polled separately, or other work that no ring announces.
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

    /// This proc's rank in the world's communicator.
    pub fn rank(&self) -> Rank {
        Rank(self.exchange.rank())
    }

    /// The number of procs in the world.
    pub fn size(&self) -> u32 {
        self.exchange.size()
    }

    /// The limits this engine was built with.
    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    /// Limits of the transport that matches messages itself, if there is one: the highest tag, and how many communicators and ranks there
    /// may be.
    pub fn tag_limits(&self) -> TagLimits {
        self.tags
    }

    /// How often each system has run. The counters are shared: other threads can read them.
    pub fn counters(&self) -> Arc<Counters> {
        self.counters.clone()
    }

    /// The ECS world. The engine owns the rows of its tables: systems of the application may read them, but must not spawn, remove or write
    /// any. Code that moves, clears or replaces tables through the world as a whole poisons the engine.
    pub fn world(&self) -> &World {
        self.store.world()
    }

    /// Whether a short one-sided call may do all by itself: the engine is open, and nobody is told of the call.
    #[inline(always)]
    pub(crate) fn is_quick(&self) -> bool {
        self.quick && !connected()
    }

    /// The error of a full CAR table: no row is free, and the limit allows no more rows.
    #[cold]
    pub(crate) fn full(&self) -> PostError {
        PostError::Full { table: "CAR", rows: self.limits.cars_max, limit: "cars_max" }
    }
}
