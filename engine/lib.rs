//! tickwire: message passing as an entity-component world, progressed by ticks.
//!
//! An application embeds an [`Engine`] in its own loop. It posts operations ([`Engine::isend`], [`Engine::irecv`]), ticks
//! ([`Engine::tick`]) or waits ([`Engine::wait`]), and takes what is done ([`Engine::take`]). Semantics are those of MPI 4.1
//! where nothing else is said: messages of one sender in one communicator do not overtake each other, receives match by
//! source and tag, both may be wildcards.
//!
//! ```
//! use tickwire::{Bootstrap, Engine, Tag};
//!
//! // A rank of `tickwire run -n 4 -- ./app`. Started by itself, it is a world of one.
//! let mut engine = Engine::builder().build(Bootstrap::from_env()?)?;
//! let (me, world) = (engine.rank(), engine.comm_world());
//! let incoming = engine.irecv(vec![0u8; 5], me, Tag(1), world)?;
//! engine.send(b"hello", me, Tag(1), world)?;
//! while !engine.test(&incoming)?.is_done() {
//!     engine.tick(); // a bounded amount of work, then your own
//! }
//! assert_eq!(engine.take(incoming)?.0, b"hello");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! The book under `docs/` has a chapter for each thing that a user does: embedding, coming from MPI, launching, seeing, testing.
//!
//! # The world
//!
//! All state is in a bevy_ecs [`World`](bevy_ecs::world::World). *Procs* are entities from their first contact on; what a
//! library keeps about each is a component on them, an [endpoint slot](internals::components::slots). *CARs* (communication agent
//! requests: one unit of work each), *requests*, *arrivals* and *buffers* are rows: entities spawned in blocks ahead of
//! use, recycled through free lists, never despawned and never given or stripped of a component. A row's number is its
//! handle, so links between rows are numbers and systems work on whole columns as slices. On the message path nothing is
//! allocated, spawned or moved. Rows have addresses of memory in use, so the engine alone writes them: systems of an
//! application read them ([`ReadColumn`](tables::ReadColumn), queries), and one that moves, clears or replaces them
//! with the world as a whole poisons the engine.
//!
//! # The tick
//!
//! Six systems in one schedule do all the work on messages, in the order of [`ProgressSystems`]:
//!
//! ```text
//!        ┌──────────────────────────── next pass, while anything is pending ─────────────────────────────┐
//!        ▼                                                                                               │
//!     ┌──────┐   ┌───────┐   ┌───────────────┐   ┌──────────┐   ┌─────────┐   ┌──────────┐               │
//!     │ Post │ → │ Match │ → │ SupplyBuffers │ → │ Transfer │ → │ DrainCq │ → │ Complete │ ──────────────┘
//!     └──────┘   └───────┘   └───────────────┘   └──────────┘   └─────────┘   └──────────┘
//!     submitted   envelopes     where bytes         bytes       ▲ headers       requests,
//!     and queued  and posted    will go             move        │ arrive        wakers
//!     sends       receives                                      └─ a tick enters here when something has arrived
//! ```
//!
//! Each has a bit that says whether it has something to do; the executor runs only those, and a tick with nothing to do is
//! a look at a few words of memory. Work that does not fit a tick's budget is done by the next one. An application adds
//! [systems of its own](Builder::systems) before or after any set.
//!
//! # Communicators
//!
//! All messages travel in a communicator. From that of the world others are made by all members together:
//! [`Engine::comm_dup`], [`Engine::comm_split`], [`Engine::comm_create`], or by those of a [`Group`] alone:
//! [`Engine::comm_create_group`]. Each has a form that does not wait ([`Engine::start_dup`]). Members agree on the smallest
//! context id that is free on all of them; freed ones are used again, and no late message meets the next communicator.
//!
//! # Datatypes
//!
//! A buffer's elements are a message, or those of its bytes that a [`Datatype`](struct@Datatype) says:
//! `engine.isend(Typed::new(buffer, &column, 4)?, …)`. Every call that sends or receives takes a [`Typed`] buffer; collective
//! operations and blocks take a [`Packed`] one. Structs are described by `#[derive(Datatype)]` ([`Described`]). Bytes go straight
//! from their places into the transport's memory and out of it, a piece at a time, so a message costs what packing it would.
//!
//! # Collective operations
//!
//! [`Engine::allreduce`], [`Engine::bcast`], [`Engine::barrier`] and the others are called by all members of a communicator.
//! Each has a form that returns a request at once ([`Engine::iallreduce`]). Results of reductions have the same bits on all
//! members and in all runs, wherever the ranks are.
//!
//! # Windows
//!
//! A [`Window`] is memory of all members of a communicator, which each of them reads, writes and updates by itself:
//! [`Engine::win_allocate`], [`Engine::put`], [`Engine::get`], [`Engine::accumulate`], [`Engine::compare_and_swap`]. An operation
//! needs an epoch towards its target, such as [`Engine::win_lock`] or [`Engine::win_fence`] opens. On one host operations are loads,
//! stores and atomic operations of the processor, or copies by the kernel, and nobody waits for a target that computes. Elsewhere a
//! fabric moves what is put and got, where it can, and any tick of the target's engine does the rest. The own part is a slice only
//! while it is locked ([`Engine::win_exclusive`]).
//!
//! # Shared heap
//!
//! A large message between processes of one host is copied once, by the kernel, out of the sender's buffer into the
//! receiver's. From a buffer in the [shared heap](SharedHeap) the receiver copies it itself, without a system call:
//! [`Engine::alloc`] has such buffers, or [`SharedHeap`] makes a program's whole heap one. It is off unless the program asks
//! for it, since **all peers of the host can then read that heap at any time**, whatever else is in it.
//!
//! # Time, threads, failure
//!
//! [`Engine::wait`] looks, ticks, spins, yields and at last sleeps on file descriptors, over all transports at once. The
//! engine is itself a descriptor for an application's event loop: [`Engine::prepare_wait`] has the protocol. One thread owns
//! an engine; others [submit](Engine::submitter) and await. A peer that dies ends its own connection: operations that need
//! it get an error that says why, all others go on. A panic in a system of the application, or one that leaves a call that
//! has borrowed buffers, poisons the engine, which says so in every later call.
//!
//! Every system run of an application's own system advances bevy's change tick; about every 518 million runs bevy scans all
//! change ticks once, which is the one exception to a tick's bound (`cargo bench -p tickwire-tests --bench scan` measures
//! it). The engine's own systems do not advance it.
//!
//! # Looking at it
//!
//! [`Engine::dump`] says what is pending, [`Engine::accounting`] how many bytes are where; `tickwire dump` and `tickwire
//! whowaits` ask a running job the same, `tickwire top` reads the page of statistics that every engine keeps.
//! [`Engine::receipted`] posts an operation whose stages are noted.
//!
//! # Watching
//!
//! [`Builder::trace`] and [`ENV_TRACE`] give an engine a [sink](traces::Sink): memory, or a file that Perfetto opens. It gets an
//! event for every tick, every run of a system, every message, every change of a connection and every error. With the feature
//! `tracy`, a Tracy profiler that is connected gets the same, except messages. Messages are noted by the steps that send and take them, so
//! a watched engine takes the same paths as one that nobody watches. An engine without a sink makes no events.
//!
//! # Where things are
//!
//! `components` has the data, `systems` the transforms, `transports` what moves bytes, and this crate the world, the
//! schedule, the executor and the application's interface.

mod api;
#[cfg(feature = "bevy")]
pub mod bevy;
pub mod bootstrap;
pub mod launch;
mod observe;
mod run;
#[cfg(feature = "testing")]
pub mod testing;

pub use crate::api::blocks::builder::GraphBuilder;
pub use crate::api::blocks::handles::{Elements, GraphNode, Incoming, Outgoing, Outgoings, Place, Ranks};
pub use crate::api::blocks::{GatherBlock, ScatterBlock};
pub use crate::api::builder::Builder;
pub use crate::api::builder::staging::ENV_STAGING;
pub use crate::api::builder::transports::{ENV_LIMITS, ENV_ROUTES, ENV_TRANSPORTS};
pub use crate::api::collectives::{consecutive, reduce_local};
pub use crate::api::communicators::{Agreed, Agreeing, Agreement};
pub use crate::api::error::Error;
#[cfg(feature = "dump")]
pub use crate::api::jobs;
pub use crate::api::notify::Completion;
pub use crate::api::persistent::Persistent;
pub use crate::api::probe::message::{Message, RejectedMessage};
pub use crate::api::procs::{Only, Route};
pub use crate::api::receipt::Receipted;
pub use crate::api::regions::Region;
pub use crate::api::registered::Registered;
pub use crate::api::request::{Failed, OperationError, Posted, Rejected, Request, Test, Tested, Waitable};
pub use crate::api::scope::{Borrowed, Owned, Scope, Takes};
pub use crate::api::send_options::SendOptions;
pub use crate::api::shared_heap::ENV_SHARED_HEAP;
#[cfg(feature = "dynamic-endpoints")]
pub use crate::api::slots::info::DynamicSlot;
pub use crate::api::slots::info::SlotInfo;
pub use crate::api::submit::{Called, Submitted, Submitter};
pub use crate::api::windows::{
    ExclusivePart, PartCells, PostedUpdate, RejectedBuffer, RejectedUpdate, WindowCounts, WindowReach,
};
pub use crate::observe::ENV_DUMP_SIGNAL;
pub use crate::observe::trace::ENV_TRACE;
pub use crate::run::drive::Drive;
pub use crate::run::engine::Engine;
pub use crate::run::schedule::Tick;
/// The entity-component system that the engine is made of, of its version: systems and slots of an application are written in it.
pub use bevy_ecs;
pub use bootstrap::Bootstrap;
pub use tickwire_components::slots::EndpointSlot;
pub use tickwire_components::{
    AtomicsDomain, Basic, Bool, BuildError, Cartesian, Cells, Comm, CommError, Comparison, CountError, Datatype,
    DatatypeError, Described, Element, ErrorHandler, ExactFloat, ExactSum, FinalizeError, Group, GroupError, InPlace,
    Indexed, Integer, IntoBuffer, LeasedBytes, List, LockKind, Number, OnPacked, OnStructs, Operation, Order,
    OtherType, Packed, PackedByte, Pieces, PostError, ProcId, ProgressError, Protocol, Rank, Receipt, RegionAccess,
    RegionKey, RegistrationCounts, RequestError, RequestId, Sequence, Source, Status, Tag, TagFilter, Topology,
    TopologyError, TrafficClass, Typed, TypedPair, Update, Window, WindowError, Work, bytemuck, in_place,
    limits::{Lengths, Limits, Matching},
    op,
};
pub use tickwire_derive::Datatype;
pub use tickwire_systems::ProgressSystems;
pub use tickwire_transports::{HeapBuffer, HeapError, SharedHeap};

/// Tables that systems of an application read, and the words in them. See the chapter on the tick in the book.
pub mod tables {
    pub use tickwire_components::wire::{Header, Kind};
    pub use tickwire_components::{
        Arrival, ArrivalState, Buffer, Car, CarKind, CarState, Large, NIL, Progress, Row, Vc, VcState,
    };
    pub use tickwire_systems::views::{Column, ReadColumn};
}

/// What a transport of an application implements, and the transports that there are.
pub mod transport {
    pub use tickwire_components::wire::{HEADER_BYTES, Header, Kind};
    pub use tickwire_components::{Arrival, ArrivalState, Pieces, Row, Span};
    pub use tickwire_transports::ofi::Choice;
    pub use tickwire_transports::shm::Staging;
    pub use tickwire_transports::{
        Capabilities, CreditWindows, Direct, Frame, Hub, Lending, LinkEvent, Loopback, Mapped, Matching, Memory,
        MemoryRead, Ofi, OfiConfig, OfiError, Other, Peeked, Reach, ReceiveEnvelope, Registering, Sent, Shm, ShmConfig,
        ShmError, TagLimits, Take, Traffic, Transport,
    };
}

/// Events of an engine, and who is told of them. See the chapter on seeing in the book.
pub mod traces {
    pub use tickwire_traces::dump::Dump;
    pub use tickwire_traces::{Counters, DELIVER, Depths, Event, Message, Ring, Sink, Trace, TraceFile, now_ns};
}

/// All of what the engine is made of, for its own tests and tools. It changes with any version.
pub mod internals {
    pub use tickwire_components as components;
    pub use tickwire_systems as systems;
    pub use tickwire_traces as traces;
    pub use tickwire_transports as transports;

    /// Readers of what launchers say.
    pub mod launchers {
        pub use crate::bootstrap::parsing::{mapping, pmi, table};
    }
}

// The examples of README.md and of the book are doctests.
#[cfg(doctest)]
mod book {
    #[doc = include_str!("../README.md")]
    struct Readme;

    #[doc = include_str!("../docs/embedding.md")]
    struct Embedding;

    #[cfg(feature = "bevy")]
    #[doc = include_str!("../docs/bevy.md")]
    struct Bevy;

    #[doc = include_str!("../docs/from-mpi.md")]
    struct FromMpi;

    #[doc = include_str!("../docs/tick.md")]
    struct Tick;

    #[doc = include_str!("../docs/messages.md")]
    struct Messages;

    #[doc = include_str!("../docs/architecture.md")]
    struct Architecture;

    #[doc = include_str!("../docs/collectives.md")]
    struct Collectives;

    #[doc = include_str!("../docs/one-sided.md")]
    struct OneSided;

    #[doc = include_str!("../docs/shared-heap.md")]
    struct SharedHeap;

    #[doc = include_str!("../docs/libfabric.md")]
    struct Libfabric;

    #[doc = include_str!("../docs/launching.md")]
    struct Launching;

    #[cfg(feature = "dump")]
    #[doc = include_str!("../docs/seeing.md")]
    struct Seeing;

    #[cfg(feature = "testing")]
    #[doc = include_str!("../docs/testing.md")]
    struct Testing;

    #[doc = include_str!("../docs/configuration.md")]
    struct Configuration;

    #[doc = include_str!("../docs/performance.md")]
    struct Performance;
}
