//! How an engine is configured.

mod build;
mod endpoint;
mod fabric;
mod spins;
pub(crate) mod staging;
pub(crate) mod transports;

use crate::api::slots::info::SlotInfo;
use crate::run::engine::Engine;
use bevy_ecs::component::RequiredComponentsError;
use bevy_ecs::prelude::{Schedule, World};
use endpoint::outside;
use std::any::TypeId;
use tickwire_components::limits::{self, Limits};
use tickwire_components::slots::{EndpointSlot, assert_table};
use tickwire_components::{TrafficClass, Vc};
use tickwire_systems::procs::endpoint::Endpoint;
use tickwire_traces::{Sink, Trace};
use tickwire_transports::ofi::Choice;
use tickwire_transports::shm::Staging;
use tickwire_transports::{Hub, Transport};

/// What an application adds to a schedule or a world.
type Adder<T> = Box<dyn FnOnce(&mut T) + Send>;
/// A static slot: its type, what is reported of it, and how it is registered.
type Slot = (TypeId, SlotInfo, fn(&mut World) -> Result<(), RequiredComponentsError>);
/// Makes the endpoint row of a transport that the application brings.
type Opener = Box<dyn FnOnce(&mut World, &Limits, Option<&Trace>) -> Endpoint + Send>;

/// How an engine is configured. See [`Engine::builder`].
pub struct Builder {
    limits: Limits,
    slots: Vec<Slot>,
    systems: Vec<Adder<Schedule>>,
    transports: Vec<Opener>,
    include: Option<Vec<String>>,
    exclude: Vec<String>,
    /// Which transports may carry a class of traffic, where that is said.
    routes: Vec<(TrafficClass, Vec<String>)>,
    hub: Option<Hub>,
    rows: usize,
    worlds: Vec<Adder<World>>,
    #[cfg(feature = "dump")]
    dump_signal: Option<String>,
    /// Whether the environment has named the signal.
    #[cfg(feature = "dump")]
    is_signal_found: bool,
    shared_heap: Option<bool>,
    cross_memory_attach: bool,
    staging: Option<Staging>,
    trace: Option<Trace>,
    ofi: Option<Choice>,
}

impl Engine {
    /// Starts to configure an engine.
    pub fn builder() -> Builder {
        Builder {
            limits: Limits::default(),
            slots: Vec::new(),
            systems: Vec::new(),
            transports: Vec::new(),
            include: None,
            exclude: Vec::new(),
            routes: Vec::new(),
            hub: None,
            rows: limits::ROWS_INITIAL,
            worlds: Vec::new(),
            #[cfg(feature = "dump")]
            dump_signal: None,
            #[cfg(feature = "dump")]
            is_signal_found: false,
            shared_heap: None,
            cross_memory_attach: true,
            staging: None,
            trace: None,
            ofi: None,
        }
    }
}

impl Builder {
    /// Replaces the limits. [`ENV_LIMITS`](crate::ENV_LIMITS) may change them.
    pub fn limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    /// Registers a static endpoint slot: every contacted proc gets a `T`, made by `Default`. Registering the same type again shares the
    /// slot.
    pub fn slot<T: EndpointSlot>(mut self) -> Self {
        const { assert_table::<T>() };
        let info = SlotInfo { name: T::NAME.to_owned(), bytes: size_of::<T>(), dynamic: false };
        let id = TypeId::of::<T>();
        if self.slots.iter().all(|(known, ..)| *known != id) {
            self.slots.push((id, info, |world| world.try_register_required_components::<Vc, T>()));
        }
        self
    }

    /// Adds systems of the application. Order them by [`ProgressSystems`](crate::ProgressSystems), without run conditions.
    ///
    /// Systems may read the engine's rows, and must not write them. After each run the engine checks what they did to the world as a whole:
    /// if rows of the engine are not where they were, the engine is poisoned. The same holds for hooks and observers, which run when the
    /// engine spawns rows.
    pub fn systems(mut self, add: impl FnOnce(&mut Schedule) + Send + 'static) -> Self {
        self.systems.push(Box::new(add));
        self
    }

    /// Prepares the world before tables are spawned. The application may add resources and entities of its own, but none with components of
    /// the engine.
    pub fn world(mut self, prepare: impl FnOnce(&mut World) + Send + 'static) -> Self {
        self.worlds.push(Box::new(prepare));
        self
    }

    /// Adds a transport besides loopback and shared memory.
    pub fn transport<T: Transport + 'static>(mut self, transport: T) -> Self {
        self.transports.push(Box::new(move |world, limits, trace| outside(world, limits, trace, transport)));
        self
    }

    /// Reports all events to a sink. Overrides the environment.
    ///
    /// Ticks and messages then take longer, since recording an event takes time. They take the same ways as without a sink.
    pub fn trace(mut self, sink: impl Sink + 'static) -> Self {
        self.trace = Some(Trace::new(sink));
        self
    }

    /// Uses only the transports with these names. Overrides the environment.
    pub fn include<S: Into<String>>(mut self, names: impl IntoIterator<Item = S>) -> Self {
        self.include = Some(names.into_iter().map(Into::into).collect());
        self
    }

    /// Does not use the transports with these names.
    pub fn exclude<S: Into<String>>(mut self, names: impl IntoIterator<Item = S>) -> Self {
        self.exclude.extend(names.into_iter().map(Into::into));
        self
    }

    /// Lets a class of traffic use only the transports with these names. Overrides [`ENV_ROUTES`](crate::ENV_ROUTES).
    ///
    /// All ranks must give the same routes. Messages to the own rank use any transport that reaches it. For [`TrafficClass::Atomics`] only
    /// fabrics can be named: the first that is open and has atomic operations performs all updates of exposed memory, even those by its
    /// owner. Without a route for this class, the other routes decide where updates go ([`Engine::routes`] reports it).
    ///
    /// ```
    /// # use tickwire::{Bootstrap, Engine, TrafficClass};
    /// let builder = Engine::builder().route(TrafficClass::PointToPoint, ["shm"]).route(TrafficClass::OneSided, ["ofi"]);
    /// # drop(builder.build(Bootstrap::solo()).unwrap());
    /// ```
    pub fn route<S: Into<String>>(mut self, class: TrafficClass, names: impl IntoIterator<Item = S>) -> Self {
        self.routes.retain(|(of, _)| *of != class);
        self.routes.push((class, names.into_iter().map(Into::into).collect()));
        self
    }

    /// Joins a hub, through which engines of one process reach each other.
    pub fn hub(mut self, hub: Hub) -> Self {
        self.hub = Some(hub);
        self
    }

    /// Writes a dump to stderr when the process gets this signal: `USR1`, `USR2` or `HUP`. Overrides the environment's
    /// [`ENV_DUMP_SIGNAL`](crate::ENV_DUMP_SIGNAL).
    #[cfg(feature = "dump")]
    pub fn dump_signal(mut self, name: impl Into<String>) -> Self {
        self.dump_signal = Some(name.into());
        self
    }

    /// Opens the process's shared heap before peers connect, and lets all peers on this host read the whole of it at any time: see
    /// [`SharedHeap`](crate::SharedHeap). [`Engine::alloc`] then has buffers. Overrides the environment.
    ///
    /// The default is off, unless `TICKWIRE_SHARED_HEAP` is 1 or [`SharedHeap`](crate::SharedHeap) is the program's allocator. With
    /// `false`, peers get no access to a heap that is open for another reason.
    pub fn shared_heap(mut self, on: bool) -> Self {
        self.shared_heap = Some(on);
        self
    }

    /// Whether the kernel copies large messages that are in no shared heap straight out of the senders' memory, where it allows that. On by
    /// default. Otherwise they are sent in pieces.
    pub fn cross_memory_attach(mut self, on: bool) -> Self {
        self.cross_memory_attach = on;
        self
    }

    /// When senders stage large messages that the kernel could read instead. Staging costs less while senders have nothing else to do. By
    /// default messages are staged whenever that has cost less lately ([`Staging::IfCheaper`]), unless this or [`ENV_STAGING`] says
    /// otherwise.
    ///
    /// [`ENV_STAGING`]: crate::ENV_STAGING
    pub fn staging(mut self, staging: Staging) -> Self {
        self.staging = Some(staging);
        self
    }

    /// Opens endpoints over libfabric, even if all procs run on one host. The choice says which providers, which interface, and how many.
    /// The environment decides what the choice leaves open: see the chapter on libfabric in the book.
    ///
    /// These transports are named `ofi:` and the provider's exact name. Without this call the list of transports may name them, or name
    /// `ofi` for the highest-ranked provider. If it names none, one endpoint is opened where procs run on several hosts.
    pub fn ofi(mut self, choice: Choice) -> Self {
        self.ofi = Some(choice);
        self
    }

    /// Whether a receive fails if its message's elements are of another type ([`RequestError::OtherType`](crate::RequestError::OtherType)).
    /// Off by default; it helps to find mistakes. All ranks must give the same value. Ranks that do not refuse each other's first message.
    ///
    /// A type is known by its name and path ([`std::any::type_name`]), an array by the name of its elements' type. Messages without bytes
    /// fit all types, and so do buffers that are lent as raw memory. Each engine tells 255 types apart, and does not check more. While
    /// types are checked, messages go through the systems one by one, which takes several times as long as usual.
    ///
    /// ```
    /// # use tickwire::{Bootstrap, Engine, RequestError, Rank, Tag};
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let mut engine = Engine::builder().check_types(true).build(Bootstrap::solo())?;
    /// let (me, world) = (engine.rank(), engine.comm_world());
    /// let received = engine.irecv(vec![0f32; 4], me, Tag(1), world)?;
    /// engine.send(&[1f64, 2.0], me, Tag(1), world)?;
    /// let error = engine.wait_take(received).unwrap_err().error;
    /// assert!(error.to_string().starts_with("a message of `f64` from rank 0 with tag 1 into a receive of `f32`"));
    /// # Ok(())
    /// # }
    /// ```
    pub fn check_types(mut self, on: bool) -> Self {
        self.limits.check_types = on;
        self
    }

    /// The number of CAR and request rows to begin with.
    pub fn initial_rows(mut self, rows: usize) -> Self {
        self.rows = rows.max(1);
        self
    }
}
