//! Which transports an engine opens, and what procs tell each other about them.

use super::endpoint::inside;
use super::{Builder, fabric, staging};
use crate::bootstrap::Exchange;
use bevy_ecs::prelude::World;
use tickwire_components::limits::Limits;
use tickwire_components::{BuildError, TrafficClass};
use tickwire_systems::procs::cards::{CARD_PART_MAX, add_card};
use tickwire_systems::procs::endpoint::Endpoint;
use tickwire_transports::shm::ShmConfig;
use tickwire_transports::{Hub, Loopback, Shm, TagLimits};

/// The variable that chooses transports by name: a list of those to use, or, after `^`, a list of those not to use.
pub const ENV_TRANSPORTS: &str = "TICKWIRE_TRANSPORTS";

/// The variable that says which transports may carry a class of traffic: `messages=shm,loopback one-sided=ofi`.
pub const ENV_ROUTES: &str = "TICKWIRE_ROUTES";

/// The variable that sets limits, in place of those of the program: `eager_max=4096 read_min=never`. `tickwire info` lists their names.
pub const ENV_LIMITS: &str = "TICKWIRE_LIMITS";

impl Builder {
    /// The limits that an engine will have: those that are set here, changed by [`ENV_LIMITS`].
    ///
    /// # Errors
    /// What is wrong with the variable, or with the limits.
    pub fn effective_limits(&self) -> Result<Limits, BuildError> {
        let mut limits = self.limits.clone();
        let value = std::env::var(ENV_LIMITS).unwrap_or_default();
        for entry in value.split_whitespace() {
            let set = match entry.split_once('=') {
                Some((name, words)) => limits.set(name, words),
                None => Err("give names and values, such as 'eager_max=4096 read_min=never'".to_owned()),
            };
            if let Err(expected) = set {
                return Err(BuildError::Environment { variable: ENV_LIMITS, value, expected });
            }
        }
        limits.check().map_err(BuildError::Limits)?;
        Ok(limits)
    }

    pub(super) fn read_environment(&mut self) -> Result<(), BuildError> {
        #[cfg(feature = "dump")]
        if self.dump_signal.is_none() {
            self.dump_signal = std::env::var(crate::ENV_DUMP_SIGNAL).ok();
            self.is_signal_found = self.dump_signal.is_some();
        }
        self.read_routes()?;
        let Ok(value) = std::env::var(ENV_TRANSPORTS) else { return Ok(()) };
        let (names, not) = match value.strip_prefix('^') {
            Some(rest) => (rest, true),
            None => (&*value, false),
        };
        let names: Vec<String> = names.split(',').map(str::trim).filter(|n| !n.is_empty()).map(str::to_owned).collect();
        if names.is_empty() {
            let expected = "give names such as 'shm', or '^shm'".to_owned();
            return Err(BuildError::Environment { variable: ENV_TRANSPORTS, value, expected });
        }
        if not {
            self.exclude.extend(names);
        } else if self.include.is_none() {
            self.include = Some(names);
        }
        Ok(())
    }

    /// Reads routes from the environment, for traffic classes for which the application has set none.
    fn read_routes(&mut self) -> Result<(), BuildError> {
        let Ok(value) = std::env::var(ENV_ROUTES) else { return Ok(()) };
        for entry in value.split_whitespace() {
            let parsed = entry.split_once('=').and_then(|(class, names)| {
                let class = TrafficClass::ALL.into_iter().find(|of| of.name() == class)?;
                let names: Vec<String> = names.split(',').filter(|name| !name.is_empty()).map(str::to_owned).collect();
                (!names.is_empty()).then_some((class, names))
            });
            let Some((class, names)) = parsed else {
                let expected = "give classes and names, such as 'messages=shm,loopback one-sided=ofi'".to_owned();
                return Err(BuildError::Environment { variable: ENV_ROUTES, value, expected });
            };
            if self.routes.iter().all(|(of, _)| *of != class) {
                self.routes.push((class, names));
            }
        }
        Ok(())
    }

    /// Sets which endpoints may carry each class of traffic.
    fn allow_classes(&self, endpoints: &mut [Endpoint], procs: u32) -> Result<(), BuildError> {
        for (class, names) in &self.routes {
            let Some(number) = TrafficClass::ALL.iter().position(|of| of == class) else { continue };
            let mut is_open = vec![false; names.len()];
            for endpoint in endpoints.iter_mut() {
                let transport = endpoint.transport.get().name().to_owned();
                let named: Vec<bool> = names.iter().map(|name| fabric::is_named(&transport, name)).collect();
                let is_named = named.contains(&true);
                is_open.iter_mut().zip(&named).for_each(|(open, named)| *open |= named);
                endpoint.classes[number] = is_named;
            }
            let mut allowed = endpoints.iter_mut().filter(|endpoint| endpoint.classes[number]).peekable();
            let is_any = allowed.peek().is_some();
            if *class == TrafficClass::Atomics && is_any && allowed.all(|of| of.transport.get().one_sided().is_none()) {
                let words = "no updates are done by it: name fabrics that do, as in ofi:tcp;ofi_rxm, and leave them a context. \
                             Without a route updates go with one-sided traffic over shared memory, else with messages";
                return Err(failed(&names.join(","), words.to_owned()));
            }
            // A proc that is alone does not open the other transports.
            let missing = names.iter().zip(is_open).find(|(_, is_open)| !is_open && procs > 1);
            if let Some((name, _)) = missing {
                let words =
                    format!("it is to carry {}, and is not open: name it among the transports, too", class.name());
                return Err(failed(name, format!("{words}; {}", are_open(endpoints))));
            }
        }
        Ok(())
    }

    fn wants(&self, name: &str) -> bool {
        self.include.as_ref().is_none_or(|names| names.iter().any(|n| fabric::is_named(name, n)))
            && !self.exclude.iter().any(|n| fabric::is_named(name, n))
    }

    /// Opens all wanted transports. Returns their endpoints in the order of their rows.
    pub(super) fn open(&mut self, world: &mut World, exchange: &dyn Exchange) -> Result<Vec<Endpoint>, BuildError> {
        let mut endpoints = Vec::new();
        let clustered = self.hub.is_some();
        if self.wants("loopback") {
            endpoints.push(self.open_loopback(exchange)?);
        }
        if self.wants("shm") && exchange.size() > 1 && !clustered {
            endpoints.push(self.open_shm(exchange)?);
        }
        let choices = fabric::wanted(self.ofi.take(), self.include.as_deref(), exchange);
        let opened = fabric::open(choices, &self.exclude, exchange, &self.limits);
        for ofi in opened.map_err(|error| failed(fabric::NAME, error.to_string()))? {
            endpoints.push(inside(&self.limits, self.trace.as_ref(), ofi));
        }
        for open in self.transports.drain(..).collect::<Vec<_>>() {
            let mut endpoint = open(world, &self.limits, self.trace.as_ref());
            if self.wants(endpoint.transport.get().name()) {
                endpoints.push(endpoint);
            }
        }
        self.check_included(&mut endpoints, exchange.size())?;
        if endpoints.is_empty() {
            return Err(failed("any", "all are excluded: include at least one".into()));
        }
        check_names(&mut endpoints)?;
        self.allow_classes(&mut endpoints, exchange.size())?;
        Ok(endpoints)
    }

    fn open_loopback(&mut self, exchange: &dyn Exchange) -> Result<Endpoint, BuildError> {
        let me = exchange.rank();
        let hub = self.hub.take().unwrap_or_else(|| Hub::alone(me, self.limits.ring_bytes));
        let loopback = Loopback::join(&hub, me).map_err(|e| failed("loopback", e))?;
        Ok(inside(&self.limits, self.trace.as_ref(), loopback))
    }

    fn open_shm(&self, exchange: &dyn Exchange) -> Result<Endpoint, BuildError> {
        let mut config = ShmConfig::new(exchange.job(), exchange.rank(), exchange.size());
        config.ring_bytes = self.limits.ring_bytes;
        config.first_ring_bytes = self.limits.first_ring_bytes;
        config.grown_bytes_max = self.limits.grown_bytes_max;
        config.past_min = self.limits.past_min;
        config.connect_ms_max = self.limits.connect_ms_max;
        config.shared_heap = self.shared_heap == Some(true);
        config.cross_memory_attach = self.cross_memory_attach;
        config.staging = staging::decide(self.staging)?;
        let shm = Shm::open(config).map_err(|e| failed("shm", e.to_string()))?;
        Ok(inside(&self.limits, self.trace.as_ref(), shm))
    }

    /// Checks that each name in the list of transports is that of an open one. Shared memory may be missing, and so may libfabric if this
    /// proc is alone: it would reach nobody.
    fn check_included(&self, endpoints: &mut [Endpoint], procs: u32) -> Result<(), BuildError> {
        for name in self.include.iter().flatten() {
            let known = endpoints.iter_mut().any(|e| fabric::is_named(e.transport.get().name(), name));
            if !known && name != "shm" && (procs > 1 || !fabric::is_named(name, fabric::NAME)) {
                let words = "there is no such transport here; there are loopback, shm, and ofi with a provider's exact \
                             name, as in ofi:tcp;ofi_rxm";
                return Err(failed(name, format!("{words}; {}", are_open(endpoints))));
            }
        }
        Ok(())
    }
}

fn failed(transport: &str, reason: String) -> BuildError {
    BuildError::Transport { transport: transport.into(), reason }
}

/// The endpoint that matches messages itself, and the limits of its tags. There is at most one, since a receive from any source could not
/// be given to two. For all others the engine does the matching.
pub(super) fn choose_matcher(
    endpoints: &mut Vec<Endpoint>,
    limits: &Limits,
    procs: u32,
) -> Result<(Option<u32>, TagLimits), BuildError> {
    let (mut matcher, mut tags) = (None, TagLimits::NONE);
    for (row, mut endpoint) in (0..).zip(std::mem::take(endpoints)) {
        if endpoint.matches && (matcher.is_some() || limits.check_types) {
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

/// Says which transports are open.
fn are_open(endpoints: &mut [Endpoint]) -> String {
    let names: Vec<_> = endpoints.iter_mut().map(|endpoint| endpoint.transport.get().name().to_owned()).collect();
    if names.is_empty() { "none is open".to_owned() } else { format!("open are {}", names.join(", ")) }
}

/// Checks that names are unique and not too long: they are used to choose transports, and to find a transport's part of a card.
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

/// Gives this proc's card to all procs and gets theirs. Returns all cards, one behind the other, and the bytes of one card.
pub(super) fn exchange_cards(
    exchange: &mut dyn Exchange,
    endpoints: &mut [Endpoint],
) -> Result<(Vec<u8>, usize), BuildError> {
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
    let error = |e: crate::bootstrap::BootstrapError| BuildError::Bootstrap(e.into());
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
