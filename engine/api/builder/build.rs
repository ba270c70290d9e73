//! The steps of building an engine.

use super::Builder;
use super::spins::spins;
use super::transports::{choose_matcher, exchange_cards};
use crate::api::shared_heap;
use crate::api::slots::info::SlotInfo;
use crate::bootstrap::{Bootstrap, Exchange};
use crate::observe::observer::Observer;
use crate::observe::trace;
use crate::run::engine::{Closed, Engine, Looks};
use crate::run::home::Home;
use crate::run::schedule::schedule;
use crate::run::waiter::Waiter;
use crate::run::watching::Watching;
use bevy_ecs::component::RequiredComponentsError;
use bevy_ecs::prelude::World;
use rustix::fd::AsFd;
use std::cell::RefCell;
use std::mem::take;
use std::sync::Arc;
use std::time::Instant;
use tickwire_components::limits;
use tickwire_components::submission::Submissions;
use tickwire_components::{BuildError, NIL, posting};
use tickwire_systems::procs::connections::contact;
use tickwire_systems::procs::endpoint::Endpoint;
use tickwire_systems::store::{Plan, Store};
use tickwire_traces::Counters;
use tickwire_transports::TagLimits;

impl Builder {
    /// Opens the transports, exchanges cards with the other procs, and builds the world and its schedule.
    ///
    /// # Errors
    /// What is wrong with the limits, the bootstrap, a transport or the systems. The error says what to do.
    pub fn build(mut self, bootstrap: Bootstrap) -> Result<Engine, BuildError> {
        self.limits = self.effective_limits()?;
        self.read_environment()?;
        // Deliver and boards do not check types. So with `check_types` they are off, and without it they need no check.
        self.limits.deliver &= !self.limits.check_types;
        self.limits.boards &= !self.limits.check_types;
        self.shared_heap = Some(shared_heap::decide(self.shared_heap)?);
        let mut exchange = bootstrap.into_exchange();
        self.trace = trace::open(self.trace, &*exchange)?;
        let (mut world, slots) = self.prepare_world()?;
        let mut endpoints = self.open(&mut world, &*exchange)?;
        let (matcher, tags) = choose_matcher(&mut endpoints, &self.limits, exchange.size())?;
        // Before this rank waits for the others: if a rank does not come, those that wait can be asked who is missing.
        let observer = self.observer(&mut endpoints, &*exchange)?;
        let (cards, card_bytes) = exchange_cards(&mut *exchange, &mut endpoints)?;
        let opened = Opened { exchange, slots, endpoints, matcher, tags, observer, cards, card_bytes };
        let mut engine = self.into_engine(world, opened)?;
        engine.allow_deliver(engine.limits.deliver && !engine.has_systems);
        engine.choose_looks();
        // The own proc is connected from the start, if a transport reaches it.
        let me = engine.rank().0;
        let _ = contact(&mut engine.store.as_mut(), me);
        engine.look_around();
        Ok(engine)
    }

    /// Makes the world as the application prepares it. Also returns the static slots.
    fn prepare_world(&mut self) -> Result<(World, Vec<SlotInfo>), BuildError> {
        let mut world = World::new();
        for prepare in self.worlds.drain(..) {
            prepare(&mut world);
        }
        let mut slots = Vec::new();
        for (_, info, register) in self.slots.drain(..) {
            match register(&mut world) {
                // The application may have registered the slot with the world itself.
                Ok(()) | Err(RequiredComponentsError::DuplicateRegistration(..)) => slots.push(info),
                Err(error) => return Err(BuildError::World(format!("endpoint slot {}: {error}", info.name))),
            }
        }
        Ok((world, slots))
    }

    /// The engine's observer: what other processes can see of the engine.
    fn observer(&self, endpoints: &mut [Endpoint], exchange: &dyn Exchange) -> Result<Observer, BuildError> {
        let names: Vec<String> = endpoints.iter_mut().map(|e| e.transport.get().name().to_owned()).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let observer = Observer::new(exchange.job(), exchange.rank(), exchange.size(), &names);
        #[cfg(feature = "dump")]
        let observer =
            observer.listen_to(self.dump_signal.as_deref()).map_err(|expected| self.wrong_signal(expected))?;
        let mut observer = observer;
        if !exchange.one_host() || endpoints.iter_mut().any(|endpoint| endpoint.transport.get().watchers().is_some()) {
            observer.tell_of_hosts();
        }
        Ok(observer)
    }

    #[cfg(feature = "dump")]
    fn wrong_signal(&self, expected: String) -> BuildError {
        let value = self.dump_signal.clone().unwrap_or_default();
        match self.is_signal_found {
            true => BuildError::Environment { variable: crate::ENV_DUMP_SIGNAL, value, expected },
            false => BuildError::Limits(format!("dump_signal is '{value}': {expected}")),
        }
    }

    /// Makes the engine, with its tables, its schedule and its waiter. Nothing is connected yet.
    fn into_engine(self, world: World, opened: Opened) -> Result<Engine, BuildError> {
        let home = Home::take();
        let made = self.at_home(world, opened, home);
        if made.is_err() {
            // Nothing has been given out that could come back to it.
            home.0.leave(home.1);
        }
        made
    }

    /// As [`Builder::into_engine`], at a home and from an epoch on.
    fn at_home(
        mut self,
        world: World,
        mut opened: Opened,
        (home, epoch): (&'static Home, u64),
    ) -> Result<Engine, BuildError> {
        let submissions = Submissions::new(self.limits.submissions_max).map_err(BuildError::Descriptors)?;
        let waiter = opened.waiter(&submissions)?;
        let [holders, prompt, others] = opened.rows_by_look();
        let mut store = self.store(world, &mut opened, submissions.clone(), epoch)?;
        let delivered_max = self.limits.tick_budget as u32 - store.progress().drained_min;
        let Opened { exchange, slots, tags, observer, .. } = opened;
        let counters = Arc::new(Counters::default());
        let has_systems = !self.systems.is_empty();
        let (watching, executors) = self.watching(exchange.rank());
        let (systems, most) = (self.systems.drain(..), self.limits.passes_max);
        let schedule = schedule(&mut store, systems, executors, most, counters.clone())?;
        Ok(Engine {
            store,
            schedule,
            has_systems,
            full_waits: false,
            #[cfg(feature = "bevy")]
            unclaimed: false,
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
            epoch,
            closed: Closed::No,
            quick: self.trace.is_none(),
            is_telling: false,
            holders,
            boards_busy: false,
            has_mail: false,
            fabric_busy: false,
            exposures: Vec::new(),
            looks: Looks::Rings,
            prompt,
            others,
            polls: 0,
            started: Instant::now(),
            events: Vec::with_capacity(16),
            exchange,
            counters,
            trace: RefCell::new(self.trace),
            submissions,
            waiter,
            attached: Default::default(),
            slots,
            shared_heap: self.shared_heap == Some(true),
            tags,
            comms: Default::default(),
            ends: Default::default(),
            observer,
            #[cfg(feature = "dynamic-endpoints")]
            dynamic_slots: Vec::new(),
            not_sync: std::marker::PhantomData,
        })
    }

    /// The watcher of an engine's ticks, for the engine itself and for the executor of its schedule.
    fn watching(&self, rank: u32) -> (Watching, Watching) {
        // SAFETY: the parts of one engine, which has one user at a time.
        #[expect(unsafe_code, reason = "several owners of one sink")]
        let trace = self.trace.as_ref().map(|trace| unsafe { trace.second() });
        let watching = Watching::new(trace, rank);
        // SAFETY: as above; the executor runs within a tick, and the engine does not tell the watcher meanwhile.
        #[expect(unsafe_code, reason = "two owners of one watcher")]
        let executors = unsafe { watching.second() };
        (watching, executors)
    }

    /// Makes the tables.
    fn store(
        &self,
        world: World,
        opened: &mut Opened,
        submissions: Arc<Submissions>,
        generation: u64,
    ) -> Result<Store, BuildError> {
        let plan = Plan {
            limits: self.limits.clone(),
            procs: opened.exchange.size(),
            me: opened.exchange.rank(),
            cards: take(&mut opened.cards),
            card_bytes: opened.card_bytes,
            rows: self.rows,
            generation,
        };
        let endpoints = take(&mut opened.endpoints);
        let mut store = Store::new(world, plan, submissions, endpoints).map_err(BuildError::World)?;
        store.progress().drained_min = self.limits.tick_budget.div_ceil(limits::DRAINED_PART) as u32;
        store.progress().signatures = self.limits.check_types.then(Box::default);
        if let Some(endpoint) = opened.matcher {
            let all = store.all();
            let kept_bytes = all.endpoints[endpoint as usize].transport.get().capabilities().kept_bytes;
            all.progress.provider.endpoint = endpoint;
            all.progress.provider.window = all.progress.window.with_kept(kept_bytes);
            all.progress.posting |= posting::PROVIDER;
            all.communicators.iter_mut().for_each(|communicator| communicator.tag_max = opened.tags.tag_max);
        }
        Ok(store)
    }
}

/// What was opened before there are tables.
struct Opened {
    exchange: Box<dyn Exchange>,
    slots: Vec<SlotInfo>,
    endpoints: Vec<Endpoint>,
    /// The endpoint that matches messages itself, and the limits of its tags.
    matcher: Option<u32>,
    tags: TagLimits,
    observer: Observer,
    /// The cards of all procs, and the bytes of each.
    cards: Vec<u8>,
    card_bytes: usize,
}

impl Opened {
    /// The descriptors that the engine sleeps on: those of its transports, of submissions, of its launcher, and of processes that ask for a
    /// dump.
    fn waiter(&mut self, submissions: &Submissions) -> Result<Waiter, BuildError> {
        let transports: Vec<_> = self.endpoints.iter_mut().map(|e| e.transport.get().wait_fd()).collect();
        let own = [Some(submissions.doorbell.as_fd())];
        let launcher = self.exchange.event_fd().map(Some);
        let visitors = self.observer.doors().into_iter().flatten().map(Some);
        Waiter::new(transports.into_iter().chain(own).chain(launcher).chain(visitors)).map_err(BuildError::Descriptors)
    }

    /// The rows of three kinds of endpoints: those that may hold frames back, those whose messages are delivered by the look that finds
    /// them, and all others that are polled separately.
    fn rows_by_look(&mut self) -> [Box<[usize]>; 3] {
        let mut rows = |of: fn(&mut Endpoint) -> bool| {
            (0..).zip(&mut self.endpoints).filter_map(|(row, endpoint)| of(endpoint).then_some(row)).collect()
        };
        [
            rows(|endpoint| endpoint.transport.get().capabilities().holds_back),
            rows(|endpoint| endpoint.prompt),
            rows(|endpoint| !endpoint.prompt && !endpoint.transport.get().has_rings()),
        ]
    }
}
