//! Building an engine.

mod fabric;
pub(crate) mod splicing;

use crate::api::request::Home;
use crate::api::shared_heap;
use crate::api::slots::SlotInfo;
use crate::bootstrap::{Bootstrap, Exchange};
use crate::observe::Observer;
use crate::observe::trace::{self, outside};
use crate::run::core::{Closed, Engine};
use crate::run::executor::TickExecutor;
use crate::run::wait::Waiter;
use crate::run::watch::Watching;
use bevy_ecs::change_detection::CheckChangeTicks;
use bevy_ecs::component::RequiredComponentsError;
use bevy_ecs::prelude::*;
use bevy_ecs::schedule::{LogLevel, ScheduleBuildSettings, ScheduleLabel};
use rustix::fd::AsFd;
use std::any::TypeId;
use std::sync::Arc;
use std::time::Instant;
use tickwire_components::limits::{self, Limits};
use tickwire_components::slots::{EndpointSlot, assert_table};
use tickwire_components::submission::Submissions;
use tickwire_components::{BuildError, NIL, Vc, posting};
use tickwire_systems::configure;
use tickwire_systems::procs::cards::{CARD_PART_MAX, add_card};
use tickwire_systems::procs::connections::contact;
use tickwire_systems::procs::endpoint::Endpoint;
use tickwire_systems::store::{Plan, Store};
use tickwire_traces::{Counters, Sink, Trace};
use tickwire_transports::ofi::Choice;
use tickwire_transports::shm::{ShmConfig, Splicing};
use tickwire_transports::{AnyTransport, Hub, Loopback, Shm, TagLimits, Tapped, Transport};

/// The variable that chooses transports by name: a list to use, or after `^` a list not to use.
pub const ENV_TRANSPORTS: &str = "TICKWIRE_TRANSPORTS";

/// The label of the engine's schedule.
#[derive(ScheduleLabel, Clone, Debug, PartialEq, Eq, Hash)]
pub struct Tick;

type Adder<T> = Box<dyn FnOnce(&mut T) + Send>;
type Slot = (TypeId, SlotInfo, fn(&mut World) -> Result<(), RequiredComponentsError>);
type Opener = Box<dyn FnOnce(&mut World, &Limits, Option<&Trace>) -> Endpoint + Send>;

/// How an engine is configured. See [`Engine::builder`].
pub struct Builder {
    limits: Limits,
    slots: Vec<Slot>,
    systems: Vec<Adder<Schedule>>,
    transports: Vec<Opener>,
    include: Option<Vec<String>>,
    exclude: Vec<String>,
    hub: Option<Hub>,
    rows: usize,
    worlds: Vec<Adder<World>>,
    #[cfg(feature = "dump")]
    dump_signal: Option<String>,
    shared_heap: Option<bool>,
    cross_memory_attach: bool,
    splicing: Option<Splicing>,
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
            hub: None,
            rows: limits::ROWS_INITIAL,
            worlds: Vec::new(),
            #[cfg(feature = "dump")]
            dump_signal: None,
            shared_heap: None,
            cross_memory_attach: true,
            splicing: None,
            trace: None,
            ofi: None,
        }
    }
}

impl Builder {
    /// Replaces the limits.
    pub fn limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    /// Registers a static endpoint slot: every contacted proc gets a `T`, by `Default`. Whoever registers it once more shares it.
    pub fn slot<T: EndpointSlot>(mut self) -> Self {
        const { assert_table::<T>() };
        let info = SlotInfo { name: T::NAME.to_owned(), bytes: size_of::<T>(), dynamic: false };
        let id = TypeId::of::<T>();
        if self.slots.iter().all(|(known, ..)| *known != id) {
            self.slots.push((id, info, |world| world.try_register_required_components::<Vc, T>()));
        }
        self
    }

    /// Adds systems of the application: order them by [`ProgressSystems`](crate::ProgressSystems), without run conditions.
    ///
    /// They read the engine's rows and write none. What they do with the world as a whole is looked at after each run: if rows
    /// of the engine are not where they were, the engine is poisoned. That holds for hooks and observers as well, which run
    /// when the engine spawns rows.
    pub fn systems(mut self, add: impl FnOnce(&mut Schedule) + Send + 'static) -> Self {
        self.systems.push(Box::new(add));
        self
    }

    /// Prepares the world, before tables are spawned: resources and entities of the application, and none with components of
    /// the engine.
    pub fn world(mut self, prepare: impl FnOnce(&mut World) + Send + 'static) -> Self {
        self.worlds.push(Box::new(prepare));
        self
    }

    /// Adds a transport besides loopback and shared memory.
    pub fn transport<T: Transport + 'static>(mut self, transport: T) -> Self {
        self.transports.push(Box::new(move |world, limits, trace| match trace {
            Some(trace) => outside(world, limits, Tapped::new(transport, trace.clone())),
            None => outside(world, limits, transport),
        }));
        self
    }

    /// Tells all events to a sink. Overrides the environment.
    ///
    /// Ticks and messages then take longer: messages go through the systems one by one, and each event takes the time.
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

    /// Joins a hub, through which engines of one process reach each other.
    pub fn hub(mut self, hub: Hub) -> Self {
        self.hub = Some(hub);
        self
    }

    /// Writes a dump to stderr when this signal comes: `USR1`, `USR2` or `HUP`. Overrides the environment's
    /// [`ENV_DUMP_SIGNAL`](crate::ENV_DUMP_SIGNAL).
    #[cfg(feature = "dump")]
    pub fn dump_signal(mut self, name: impl Into<String>) -> Self {
        self.dump_signal = Some(name.into());
        self
    }

    /// Opens the process's shared heap before peers connect, and lets all peers of this host read the whole of it at any time:
    /// see [`transports::heap`](crate::transports::heap). [`Engine::alloc`] then has buffers. Overrides the environment.
    ///
    /// It is off unless `TICKWIRE_SHARED_HEAP` is 1 or [`SharedHeap`](crate::SharedHeap) is the program's allocator; with
    /// `false` peers do not get a heap that is open for another reason.
    pub fn shared_heap(mut self, on: bool) -> Self {
        self.shared_heap = Some(on);
        self
    }

    /// Whether large messages that are in no shared heap are read out of their senders' memory by the kernel, where it allows
    /// it (on by default), or sent in pieces.
    pub fn cross_memory_attach(mut self, on: bool) -> Self {
        self.cross_memory_attach = on;
        self
    }

    /// When large messages that the kernel may read are spliced by their senders instead, which costs less while these have
    /// nothing else to do: whenever it has cost less lately ([`Splicing::IfCheaper`]), unless this or [`ENV_SPLICE`] says
    /// otherwise.
    ///
    /// [`ENV_SPLICE`]: crate::ENV_SPLICE
    pub fn splicing(mut self, splicing: Splicing) -> Self {
        self.splicing = Some(splicing);
        self
    }

    /// Opens endpoints over libfabric, also where all procs run on one host: which providers, which interface, how many.
    /// What it leaves open the environment says ([`transports::ofi`](crate::transports::ofi)).
    ///
    /// Their names are `ofi:` and the provider's exact name. Without this call the list of transports may name them, or `ofi`
    /// for the highest-ranked; else one is opened where procs run on several hosts.
    pub fn ofi(mut self, choice: Choice) -> Self {
        self.ofi = Some(choice);
        self
    }

    /// CAR and request rows to begin with.
    pub fn initial_rows(mut self, rows: usize) -> Self {
        self.rows = rows.max(1);
        self
    }

    /// Opens the transports, exchanges cards with the other procs, and builds the world and its schedule.
    ///
    /// # Errors
    /// What is wrong with the limits, the bootstrap, a transport or the systems, and what to do.
    pub fn build(mut self, bootstrap: Bootstrap) -> Result<Engine, BuildError> {
        self.limits.check().map_err(BuildError::Limits)?;
        self.read_environment()?;
        let shared_heap = shared_heap::decide(self.shared_heap)?;
        self.shared_heap = Some(shared_heap);
        let mut exchange = bootstrap.into_exchange();
        self.trace = trace::open(self.trace, &*exchange)?;
        let mut world = World::new();
        for prepare in self.worlds.drain(..) {
            prepare(&mut world);
        }
        let mut slots = Vec::new();
        for (_, info, register) in self.slots.drain(..) {
            match register(&mut world) {
                // The application may have registered it with the world before.
                Ok(()) | Err(RequiredComponentsError::DuplicateRegistration(..)) => slots.push(info),
                Err(error) => return Err(BuildError::World(format!("endpoint slot {}: {error}", info.name))),
            }
        }
        let mut endpoints = self.open(&mut world, &*exchange)?;
        let (matcher, tags) = choose_matcher(&mut endpoints, &self.limits, exchange.size())?;
        // Before the other ranks are waited for: who does not come can be told from who waits.
        let observer = self.observer(&mut endpoints, &*exchange)?;
        let (cards, card_bytes) = exchange_cards(&mut *exchange, &mut endpoints)?;
        let (home, generation) = Home::take();
        let plan = Plan {
            limits: self.limits.clone(),
            procs: exchange.size(),
            me: exchange.rank(),
            cards,
            card_bytes,
            rows: self.rows,
            generation,
        };
        let submissions = Submissions::new(limits::SUBMISSION_SLOTS).map_err(BuildError::Limits)?;
        let waiter = watch(&mut endpoints, &submissions, &*exchange, &observer)?;
        let holds_back = |endpoint: &mut Endpoint| endpoint.transport.get().capabilities().holds_back;
        let holders =
            (0..).zip(&mut endpoints).filter_map(|(row, endpoint)| holds_back(endpoint).then_some(row)).collect();
        let rows = |of: fn(&Endpoint) -> bool| {
            (0..).zip(&endpoints).filter_map(move |(row, e)| of(e).then_some(row)).collect()
        };
        let (prompt, rare) = (rows(|e| e.prompt), rows(|e| !e.cheap_poll && !e.prompt));
        let me = plan.me;
        let mut store = Store::new(world, plan, submissions.clone(), endpoints).map_err(BuildError::World)?;
        let all = store.all();
        if let Some(endpoint) = matcher {
            let kept_bytes = all.endpoints[endpoint as usize].transport.get().capabilities().kept_bytes;
            all.progress.provider.endpoint = endpoint;
            all.progress.provider.window = all.progress.window.with_kept(kept_bytes);
            all.progress.posting |= posting::PROVIDER;
            all.communicators.iter_mut().for_each(|communicator| communicator.tag_max = tags.tag_max);
        }
        let drained_min = self.limits.tick_budget.div_ceil(limits::DRAINED_PART) as u32;
        let delivered_max = self.limits.tick_budget as u32 - drained_min;
        all.progress.drained_min = drained_min;
        let counters = Arc::new(Counters::default());
        let has_systems = !self.systems.is_empty();
        let watching = Watching::new(self.trace.clone(), me);
        let schedule = self.schedule(&mut store, watching.clone(), counters.clone())?;
        let mut engine = Engine {
            store,
            schedule,
            has_systems,
            delivers: false,
            watching,
            own_at_once: NIL,
            own_row: 0,
            spins: spins(&self.limits, exchange.size()),
            control_ns: u64::from(self.limits.control_us) * 1000,
            controlled_ns: 0,
            virtual_time: false,
            budget: delivered_max,
            delivered_max,
            limits: self.limits,
            home,
            epoch: generation,
            closed: Closed::No,
            holders,
            prompt,
            rare,
            polls: 0,
            started: Instant::now(),
            events: Vec::with_capacity(16),
            exchange,
            counters,
            trace: self.trace,
            submissions,
            waiter,
            attached: Default::default(),
            slots,
            shared_heap,
            tags,
            comms: Default::default(),
            ends: Default::default(),
            observer,
            #[cfg(feature = "dynamic-endpoints")]
            dynamic_slots: Vec::new(),
            not_sync: std::marker::PhantomData,
        };
        engine.allow_deliver(engine.limits.deliver && !has_systems);
        // The own proc is connected from the start, if a transport reaches it.
        let _ = contact(&mut engine.store.as_mut(), me);
        engine.look_around();
        Ok(engine)
    }

    /// What others see of the engine.
    fn observer(&self, endpoints: &mut [Endpoint], exchange: &dyn Exchange) -> Result<Observer, BuildError> {
        let names: Vec<String> = endpoints.iter_mut().map(|e| e.transport.get().name().to_owned()).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let observer = Observer::new(exchange.job(), exchange.rank(), exchange.size(), &names);
        #[cfg(feature = "dump")]
        let observer = observer.listen_to(self.dump_signal.as_deref()).map_err(BuildError::Limits)?;
        Ok(observer)
    }

    fn read_environment(&mut self) -> Result<(), BuildError> {
        #[cfg(feature = "dump")]
        if self.dump_signal.is_none() {
            self.dump_signal = std::env::var(crate::ENV_DUMP_SIGNAL).ok();
        }
        let Ok(value) = std::env::var(ENV_TRANSPORTS) else { return Ok(()) };
        let (names, not) = match value.strip_prefix('^') {
            Some(rest) => (rest, true),
            None => (&*value, false),
        };
        let names: Vec<String> = names.split(',').map(str::trim).filter(|n| !n.is_empty()).map(str::to_owned).collect();
        if names.is_empty() {
            return Err(BuildError::Limits(format!(
                "{ENV_TRANSPORTS} is '{value}': give names such as 'shm', or '^shm'"
            )));
        }
        if not {
            self.exclude.extend(names);
        } else if self.include.is_none() {
            self.include = Some(names);
        }
        Ok(())
    }

    fn wants(&self, name: &str) -> bool {
        self.include.as_ref().is_none_or(|names| names.iter().any(|n| fabric::is_named(name, n)))
            && !self.exclude.iter().any(|n| fabric::is_named(name, n))
    }

    fn open(&mut self, world: &mut World, exchange: &dyn Exchange) -> Result<Vec<Endpoint>, BuildError> {
        let (me, procs) = (exchange.rank(), exchange.size());
        let clustered = self.hub.is_some();
        let mut endpoints = Vec::new();
        let failed = |transport: &str, reason: String| BuildError::Transport { transport: transport.into(), reason };
        if self.wants("loopback") {
            let hub = self.hub.take().unwrap_or_else(|| Hub::alone(me, self.limits.ring_bytes));
            let loopback = Loopback::join(&hub, me).map_err(|e| failed("loopback", e))?;
            endpoints.push(match &self.trace {
                Some(trace) => outside(world, &self.limits, Tapped::new(loopback, trace.clone())),
                None => Endpoint::new(AnyTransport::from(loopback), &self.limits, None),
            });
        }
        if self.wants("shm") && procs > 1 && !clustered {
            let mut config = ShmConfig::new(exchange.job(), me, procs);
            config.ring_bytes = self.limits.ring_bytes;
            config.first_ring_bytes = self.limits.first_ring_bytes;
            config.grown_bytes_max = self.limits.grown_bytes_max;
            config.past_min = self.limits.past_min;
            config.connect_ms_max = self.limits.connect_ms_max;
            config.shared_heap = self.shared_heap == Some(true);
            config.cross_memory_attach = self.cross_memory_attach;
            config.splicing = splicing::decide(self.splicing)?;
            let shm = Shm::open(config).map_err(|e| failed("shm", e.to_string()))?;
            endpoints.push(match &self.trace {
                Some(trace) => outside(world, &self.limits, Tapped::new(shm, trace.clone())),
                None => Endpoint::new(AnyTransport::from(shm), &self.limits, None),
            });
        }
        let choices = fabric::wanted(self.ofi.take(), self.include.as_deref(), exchange);
        let opened = fabric::open(choices, &self.exclude, exchange, &self.limits);
        for ofi in opened.map_err(|error| failed(fabric::NAME, error.to_string()))? {
            endpoints.push(match &self.trace {
                Some(trace) => outside(world, &self.limits, Tapped::new(ofi, trace.clone())),
                None => Endpoint::new(AnyTransport::from(ofi), &self.limits, None),
            });
        }
        for open in self.transports.drain(..).collect::<Vec<_>>() {
            let mut endpoint = open(world, &self.limits, self.trace.as_ref());
            if self.wants(endpoint.transport.get().name()) {
                endpoints.push(endpoint);
            }
        }
        if let Some(names) = &self.include {
            for name in names {
                let known = endpoints.iter_mut().any(|e| fabric::is_named(e.transport.get().name(), name));
                if !known && name != "shm" && (procs > 1 || !fabric::is_named(name, fabric::NAME)) {
                    let open: Vec<_> = endpoints.iter_mut().map(|e| e.transport.get().name().to_owned()).collect();
                    let words = "there is no such transport here; there are loopback, shm, and ofi with a provider's exact \
                                 name, as in ofi:tcp;ofi_rxm; open are";
                    return Err(failed(name, format!("{words} {}", open.join(", "))));
                }
            }
        }
        if endpoints.is_empty() {
            return Err(failed("any", "all are excluded: include at least one".into()));
        }
        check_names(&mut endpoints)?;
        Ok(endpoints)
    }

    /// The schedule: the engine's systems and the application's, in order, without anything that runs unseen.
    fn schedule(
        &mut self,
        store: &mut Store,
        watching: Watching,
        counters: Arc<Counters>,
    ) -> Result<Schedule, BuildError> {
        let mut schedule = Schedule::new(Tick);
        schedule.set_build_settings(ScheduleBuildSettings {
            ambiguity_detection: LogLevel::Error,
            auto_insert_apply_deferred: false,
            ..Default::default()
        });
        let key = store.key();
        let own = configure(&mut schedule, &key);
        for add in self.systems.drain(..) {
            add(&mut schedule);
        }
        schedule.set_executor(TickExecutor::new(watching, key, own, self.limits.passes_max, counters));
        refuse_conditions(&schedule)?;
        let initialized = store.change(|world| {
            schedule.initialize(world).map_err(|e| BuildError::Schedule(e.to_string(schedule.graph(), world)))?;
            // The world's periodic check of change ticks must reach the systems of this schedule too.
            world.init_resource::<TicksDue>();
            world.add_observer(|check: On<CheckChangeTicks>, due: Option<ResMut<TicksDue>>| {
                // The application may have cleared the resources.
                if let Some(mut due) = due {
                    due.0 = Some(*check);
                }
            });
            Ok(())
        });
        initialized.map_err(|error| BuildError::World(error.to_string()))??;
        Ok(schedule)
    }
}

/// The endpoint that matches by itself, and what fits its tags. There is one at most: a receive from any source could not be
/// given to two. The engine matches for the others.
fn choose_matcher(
    endpoints: &mut Vec<Endpoint>,
    limits: &Limits,
    procs: u32,
) -> Result<(Option<u32>, TagLimits), BuildError> {
    let (mut matcher, mut tags) = (None, TagLimits::NONE);
    for (row, mut endpoint) in (0..).zip(std::mem::take(endpoints)) {
        if endpoint.matches && matcher.is_some() {
            endpoint = endpoint.leave_matching(limits);
        } else if endpoint.matches {
            tags = endpoint.transport.get().capabilities().tags;
            matcher = Some(row);
            if procs > tags.ranks {
                let TagLimits { mode, ranks, .. } = tags;
                let words =
                    format!("{procs} procs are more than the {ranks} ranks of tag mode {mode}: use ofi_tag_full");
                return Err(BuildError::Limits(words));
            }
        }
        endpoints.push(endpoint);
    }
    Ok((matcher, tags))
}

/// Names are how transports are chosen, and how each finds its part of a card.
fn check_names(endpoints: &mut [Endpoint]) -> Result<(), BuildError> {
    let mut names = Vec::new();
    for endpoint in endpoints {
        let name = endpoint.transport.get().name().to_owned();
        let wrong = if names.contains(&name) {
            Some("two transports have this name: give each a name of its own, or add it once".into())
        } else if name.is_empty() || name.len() > CARD_PART_MAX {
            Some(format!("its name has {} bytes: give 1 to {CARD_PART_MAX}", name.len()))
        } else {
            None
        };
        if let Some(reason) = wrong {
            return Err(BuildError::Transport { transport: name, reason });
        }
        names.push(name);
    }
    Ok(())
}

/// A check of change ticks that the world has made and the schedule has yet to.
#[derive(Resource, Default)]
pub(crate) struct TicksDue(pub(crate) Option<CheckChangeTicks>);

/// Spins of `wait`: a peer that shares the processor cannot answer while this proc spins.
fn spins(limits: &Limits, procs: u32) -> u32 {
    if procs > processors() { limits.spins.min(limits::SPINS_SHARED) } else { limits.spins }
}

/// Processors that the procs of this host have between them. A proc that is bound to some of them leaves the others to
/// its peers, so the binding does not count.
fn processors() -> u32 {
    let allowed = std::thread::available_parallelism().map_or(1, |n| n.get() as u32);
    let online = std::fs::read_to_string("/sys/devices/system/cpu/online").unwrap_or_default();
    let online = count_ranges(online.trim()).unwrap_or(allowed);
    match rustix::thread::sched_getaffinity(None) {
        Ok(bound) if bound.count() < online => online,
        _ => allowed,
    }
}

/// How many numbers a list such as `0-3,6` has.
fn count_ranges(list: &str) -> Option<u32> {
    list.split(',').try_fold(0u32, |sum, range| {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let (first, last) = (first.parse::<u32>().ok()?, last.parse::<u32>().ok()?);
        Some(sum + last.checked_sub(first)? + 1)
    })
}

/// An executor cannot see run conditions, so there must be none.
fn refuse_conditions(schedule: &Schedule) -> Result<(), BuildError> {
    let graph = schedule.graph();
    let words = |name: String| {
        BuildError::Schedule(format!(
            "{name} has a run condition, which a tick does not evaluate: test the condition inside the system"
        ))
    };
    for (_, system, conditions) in graph.systems.iter() {
        if !conditions.is_empty() {
            return Err(words(system.name().to_string()));
        }
    }
    for (_, set, conditions) in graph.system_sets.iter() {
        if !conditions.is_empty() {
            return Err(words(format!("{set:?}")));
        }
    }
    Ok(())
}

/// Gives the own card to all procs and gets theirs: (cards, bytes of a card).
fn exchange_cards(exchange: &mut dyn Exchange, endpoints: &mut [Endpoint]) -> Result<(Vec<u8>, usize), BuildError> {
    let mut card = Vec::new();
    for endpoint in endpoints.iter_mut() {
        let transport = endpoint.transport.get();
        let bytes = transport.card();
        if bytes.len() > CARD_PART_MAX {
            let reason = format!("its card has {} bytes: {CARD_PART_MAX} is the most", bytes.len());
            return Err(BuildError::Transport { transport: transport.name().to_owned(), reason });
        }
        if !bytes.is_empty() {
            add_card(&mut card, transport.name(), &bytes);
        }
    }
    if exchange.size() == 1 || card.is_empty() {
        return Ok((Vec::new(), 0));
    }
    let error = |e: crate::bootstrap::BootstrapError| BuildError::Bootstrap(e.to_string());
    exchange.put("card", &card).map_err(error)?;
    exchange.fence().map_err(error)?;
    let all = exchange.get_all("card").map_err(error)?;
    let bytes = all.iter().flatten().map(Vec::len).max().unwrap_or(0);
    let mut cards = vec![0; bytes * all.len()];
    for (card, place) in all.iter().zip(cards.chunks_exact_mut(bytes.max(1))) {
        if let Some(card) = card {
            place[..card.len()].copy_from_slice(card);
        }
    }
    Ok((cards, bytes))
}

/// What the engine sleeps on: its transports, its submissions, its launcher, and who asks for a dump.
fn watch(
    endpoints: &mut [Endpoint],
    submissions: &Submissions,
    exchange: &dyn Exchange,
    observer: &Observer,
) -> Result<Waiter, BuildError> {
    let transports: Vec<_> = endpoints.iter_mut().map(|e| e.transport.get().wait_fd()).collect();
    let own = [Some(submissions.doorbell.as_fd())];
    let launcher = exchange.event_fd().map(Some);
    let visitors = observer.door().map(Some);
    Waiter::new(transports.into_iter().chain(own).chain(launcher).chain(visitors)).map_err(BuildError::Limits)
}

#[cfg(test)]
mod tests {
    use super::count_ranges;

    #[test]
    fn lists_of_processors_are_counted() {
        assert_eq!(count_ranges("0-3,6"), Some(5));
        assert_eq!(count_ranges("0"), Some(1));
        assert_eq!([count_ranges(""), count_ranges("3-1"), count_ranges("x")], [None; 3]);
    }
}
