//! What members pass each other for a window: the memory that they share, what a fabric calls theirs, and words.

use super::offer::{ATTACHED, Brings, Brought, FABRIC, Link, Offer, RUN};
use crate::api::request::OperationError;
use crate::run::engine::Engine;
use smallvec::SmallVec;
use tickwire_components::limits::WINDOW_LINK_NS_MAX;
use tickwire_components::wire::transport_number;
use tickwire_components::{Comm, NIL, PostError, Row, TrafficClass, VcState, WindowError};
use tickwire_systems::procs::calls::{give_up_one_sided, reach_one_sided};
use tickwire_systems::procs::endpoint::Endpoint;
use tickwire_systems::procs::routes::link_for;
use tickwire_systems::procs::windows::Reach;
use tickwire_transports::shared::SharedRun;
use tickwire_transports::windows::{Memory, Part};
use tickwire_transports::{Channel, Reach as Near, RemoteAccess, RemoteKey, Settled};

/// How a fabric reaches the memory that a member has registered with it. The own part need not be registered there.
pub(super) fn fabric_reach(endpoint: u8, channel: Channel, offer: &Offer) -> Option<Reach> {
    let [key, base] = offer.fabric;
    let access = RemoteAccess::READ | RemoteAccess::WRITE;
    let key = RemoteKey { key, base, length: offer.bytes, access };
    let is_registered = offer.has & FABRIC != 0 && base.checked_add(offer.bytes).is_some();
    is_registered.then_some(Reach::Fabric { endpoint, channel, key })
}

/// How a buffer of another engine in this process is reached. The run with its locks says where it is. The buffer stays until all members
/// have freed the window, or for ever.
pub(super) fn memory_reach(run: SharedRun, (size, rank): (u32, u32), fences: bool) -> Option<Reach> {
    let memory = run.beside()?;
    Part::new(run, Memory::Own(memory), size, rank, fences).map(Reach::Memory)
}

/// What members have told each other of their parts.
pub(super) struct Told {
    /// The offer of each member.
    pub(super) offers: Vec<Offer>,
    /// The number of the transport of each member's link to this one; 0 if there is none.
    links: Vec<u32>,
}

impl Engine {
    /// How memory of another process of this host is reached, where the kernel lets this one write it: a buffer in a shared heap by loads
    /// and stores, all other by the kernel.
    pub(super) fn host_reach(
        &mut self,
        link: Link,
        run: SharedRun,
        offer: &Offer,
        (size, rank): (u32, u32),
        fences: bool,
    ) -> Option<Reach> {
        let (endpoint, link) = link?;
        let shared = self.store.endpoints().get_mut(usize::from(endpoint))?.transport.get().shared_memory()?;
        if !shared.fetches(link) {
            return None;
        }
        let &Offer { address, bytes, has, .. } = offer;
        if has & ATTACHED == 0
            && let Some(heap) = shared.writable_heap(link)
            && let Some(memory) = heap.find_writable(address, bytes)
        {
            let run = run.keeping(heap.clone());
            return Part::new(run, Memory::Own(memory), size, rank, fences).map(Reach::Memory);
        }
        let part = Part::new(run, Memory::Elsewhere(usize::try_from(bytes).ok()?), size, rank, fences)?;
        if has & ATTACHED != 0 {
            return Some(Reach::Listed { part, endpoint, link });
        }
        Some(Reach::Kernel { part, endpoint, link, address })
    }

    /// Whether an endpoint reaches engines of this process alone.
    pub(super) fn is_within_process(&mut self, endpoint: u8) -> bool {
        let transport = self.store.endpoints()[usize::from(endpoint)].transport.get();
        transport.capabilities().reach == Near::Process
    }

    /// Registers the own memory with a fabric, if a member is reached over one that does one-sided operations.
    pub(super) fn offer_to_fabric(
        &mut self,
        brought: &Brought,
        run: &SharedRun,
        links: &[Link],
    ) -> Option<(u8, RemoteKey)> {
        let memory = match &brought.memory {
            Brings::Allocated | Brings::Copied(..) => run.span().part(run.bytes() - brought.bytes, brought.bytes),
            Brings::Buffer(span, _) => *span,
            Brings::Attached => return None,
        };
        if memory.is_empty() {
            return None;
        }
        let endpoint = self.most_used(links, |of| of.transport.get().one_sided().is_some())?;
        let fabric = self.store.endpoints().get_mut(usize::from(endpoint))?.transport.get().one_sided()?;
        // SAFETY: the window keeps the memory until it is taken out, and withdraws it then. Nobody has a reference to it while peers
        // may write it.
        #[expect(unsafe_code, reason = "bytes that are addresses")]
        let key = unsafe { fabric.register_exposed(memory, RemoteAccess::READ | RemoteAccess::WRITE) };
        Some((endpoint, key.ok()?))
    }

    /// The endpoint over which members share memory with this one: of several the one over which most do.
    pub(super) fn sharing_endpoint(&mut self, links: &[Link]) -> Option<u8> {
        self.most_used(links, |of| of.transport.get().shared_memory().is_some())
    }

    /// The endpoint that most links go over, of those that can do something; the first of several.
    fn most_used(&mut self, links: &[Link], can: impl Fn(&mut Endpoint) -> bool) -> Option<u8> {
        let over = |endpoint: u8| links.iter().flatten().filter(|(of, _)| *of == endpoint).count();
        let usable = (0u8..).zip(self.store.endpoints()).filter_map(|(endpoint, of)| can(of).then_some(endpoint));
        usable.filter(|&endpoint| over(endpoint) > 0).min_by_key(|&endpoint| std::cmp::Reverse(over(endpoint)))
    }

    /// The number of an endpoint's transport, as other members know it; 0 of none.
    pub(super) fn number_of(&mut self, endpoint: Option<u8>) -> u32 {
        let of = endpoint.and_then(|endpoint| self.store.endpoints().get_mut(usize::from(endpoint)));
        of.map_or(0, |of| transport_number(of.transport.get().name()))
    }

    /// There is no window, so nobody uses the memory by a fabric.
    pub(crate) fn withdraw_key(&mut self, fabric: Option<(u8, RemoteKey)>) {
        let Some((endpoint, key)) = fabric else { return };
        let of = self.store.endpoints()[usize::from(endpoint)].transport.get().one_sided();
        of.into_iter().for_each(|fabric| fabric.withdraw_exposed(&key));
    }

    /// Withdraws memory that the application gets back, and waits until no operation of a peer is under way on it.
    ///
    /// # Errors
    /// The engine is closed, or a peer that may have been writing there has failed: bytes of it may still arrive.
    pub(crate) fn withdraw_for_good(&mut self, fabrics: [Option<(u8, RemoteKey)>; 2]) -> Result<(), WindowError> {
        let mut open: SmallVec<[(u8, u64); 2]> = SmallVec::new();
        for (endpoint, key) in fabrics.into_iter().flatten() {
            let number = self.fabric(endpoint).map(|fabric| fabric.withdraw_for_good(&key));
            open.extend(number.map(|number| (endpoint, number)));
        }
        let mut is_lost = false;
        let waited = self.wait_until(|engine| {
            open.retain(|(endpoint, number)| {
                let Some(fabric) = engine.fabric(*endpoint) else { return false };
                fabric.progress();
                let settled = fabric.settled(*number);
                is_lost |= settled == Settled::Lost;
                settled == Settled::InUse
            });
            if open.is_empty() {
                return Ok(true);
            }
            engine.closed.check_request()?;
            // Peers answer over their control connections.
            engine.look_around();
            Ok(false)
        });
        self.let_go();
        waited?;
        if is_lost {
            let reason = "a proc that could use the region has failed, and bytes of it may still arrive: the memory stays in use";
            return Err(WindowError::Fabric { reason: reason.into() });
        }
        Ok(())
    }

    /// Connects to all members; the rows of their VCs.
    pub(super) fn connect_members(&mut self, row: usize, size: u32) -> Result<Vec<Row>, WindowError> {
        let me = self.store.all().procs.me;
        let procs: Vec<u32> = (0..size).filter_map(|rank| self.store.all().communicators[row].proc(rank)).collect();
        let mut vcs = Vec::with_capacity(procs.len());
        for proc in procs {
            vcs.push(if proc == me { NIL } else { self.reach(proc)? });
        }
        self.wait_until(|engine| {
            engine.closed.check_request()?;
            let all = engine.store.all();
            let connects = |&vc: &Row| {
                all.vcs.get(vc as usize).is_some_and(|vc| !matches!(vc.state, VcState::Connected | VcState::Failed))
            };
            Ok(!vcs.iter().any(connects))
        })?;
        Ok(vcs)
    }

    /// The links over which the memory of members is reached. Connects to each over its route for one-sided traffic; where that cannot be
    /// within a bounded time, operations go to its engine, with the messages.
    pub(crate) fn link_members(&mut self, vcs: &[Row]) -> Result<Vec<Link>, WindowError> {
        self.sample_clock();
        let mut end_ns = self.store.progress().now_ns.saturating_add(WINDOW_LINK_NS_MAX);
        self.wait_until(|engine| {
            engine.closed.check_request()?;
            let mut all = engine.store.all();
            let mut is_done = true;
            for &row in vcs.iter().filter(|&&row| row != NIL) {
                is_done &= reach_one_sided(&mut all, row);
            }
            if !is_done && all.progress.now_ns > end_ns {
                end_ns = all.progress.now_ns.saturating_add(WINDOW_LINK_NS_MAX);
                vcs.iter().for_each(|&row| give_up_one_sided(&mut all, row, "it was not answered within 5 s"));
            }
            if !is_done {
                // Who calls and who is called is told over sockets.
                engine.look_around();
            }
            Ok(is_done)
        })?;
        let mut all = self.store.all();
        Ok(vcs.iter().map(|&row| link_for(&mut all, row, TrafficClass::OneSided)).collect())
    }

    /// The transports that links are of, by the numbers that other members know them by; 0 where there is no link.
    pub(super) fn numbers_of(&mut self, links: &[Link]) -> Vec<u32> {
        links.iter().map(|link| self.number_of(link.map(|(endpoint, _)| endpoint))).collect()
    }

    /// Passes the own run to all members that share memory with this one, and takes theirs. `told` is what the members have told of their
    /// runs and links. If it is `None`, this member passes no run: it tells the others so, and waits for none of theirs.
    pub(super) fn pass_runs(
        &mut self,
        key: u64,
        vcs: &[Row],
        links: &[Link],
        told: Option<&Told>,
        rank: u32,
    ) -> Vec<Option<SharedRun>> {
        let mut runs: Vec<Option<SharedRun>> = vec![None; vcs.len()];
        if told.is_none() {
            self.stop_giving(key);
        }
        let has_run = |member: usize| told.is_none_or(|told| told.offers[member].has & RUN != 0);
        if !has_run(rank as usize) {
            return runs;
        }
        let numbers = self.numbers_of(links);
        // Both share over the transport that the links are of. The links of two members to each other may be of different transports: each
        // goes on with the link that it has. Both must come to the same answer, or one would wait for a run that is never passed.
        let is_shared = |member: usize| {
            told.is_none_or(|told| {
                let [own, theirs] = [rank as usize, member].map(|of| told.offers[of].over[0]);
                [own, theirs, told.links[member]] == [numbers[member]; 3]
            })
        };
        let mut to_give: Vec<bool> =
            (0..vcs.len()).map(|member| links[member].is_some() && is_shared(member) && has_run(member)).collect();
        let mut to_take = if told.is_some() { to_give.clone() } else { vec![false; vcs.len()] };
        let waited = self.wait_until(|engine| {
            engine.closed.check_request()?;
            let mut all = engine.store.all();
            for member in 0..vcs.len() {
                if !to_give[member] && !to_take[member] {
                    continue;
                }
                // A link may end while its peer lives: nothing is passed over it any more.
                let is_there = link_for(&mut all, vcs[member], TrafficClass::OneSided) == links[member];
                let link = links[member].filter(|_| is_there);
                let shared = link.and_then(|(endpoint, link)| {
                    Some((link, all.endpoints[usize::from(endpoint)].transport.get().shared_memory()?))
                });
                let Some((link, shared)) = shared else {
                    (to_give[member], to_take[member]) = (false, false);
                    continue;
                };
                to_give[member] = to_give[member] && !shared.give(link, key).unwrap_or(true);
                if to_take[member]
                    && let Some(run) = shared.take(link, key)
                {
                    (runs[member], to_take[member]) = (run, false);
                }
            }
            let done = !to_give.contains(&true) && !to_take.contains(&true);
            if !done {
                // What is passed comes over sockets.
                engine.look_around();
            }
            Ok(done)
        });
        if waited.is_err() { vec![None; vcs.len()] } else { runs }
    }

    pub(super) fn stop_giving(&mut self, key: u64) {
        for endpoint in self.store.endpoints() {
            endpoint.transport.get().shared_memory().into_iter().for_each(|shared| shared.stop_giving(key));
        }
    }

    /// Rows for what the members tell each other while a window is made.
    ///
    /// # Errors
    /// The communicator does not exist, or the engine is closed.
    pub(super) fn rows_to_make_window(&mut self, comm: Comm) -> Result<usize, PostError> {
        let to_offer = self.rows_to_tell_all::<Offer>(comm)? + self.rows_to_tell_each::<u32>(comm)?;
        Ok(to_offer + self.rows_to_tell_all::<u8>(comm)?)
    }

    /// Tells all members the offer and each of them the transport of the own link to it, and hears theirs. `name` is the call.
    ///
    /// # Errors
    /// A member has failed, or the engine is closed.
    pub(super) fn tell_offer(
        &mut self,
        (name, comm): (&'static str, Comm),
        own: Offer,
        links: &[Link],
        aside: &mut Vec<Row>,
    ) -> Result<Told, OperationError> {
        let offers = self.tell_all(name, comm, own, aside);
        let numbers = self.numbers_of(links);
        // Also after a failure: others may wait for what this member says.
        let links = self.tell_each(name, comm, &numbers, aside);
        let offers = offers?;
        Ok(Told { offers, links: links? })
    }
}
