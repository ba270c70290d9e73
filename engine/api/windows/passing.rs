//! What members pass each other for a window: the memory that they share, what a fabric calls theirs, and words.

use super::making::{Brings, Brought, FABRIC, Offer, RUN};
use crate::api::collectives::exchange;
use crate::api::request::OperationError;
use crate::run::engine::Engine;
use tickwire_components::{Comm, Element, NIL, Row, VcState, WindowError};
use tickwire_systems::procs::windows::Reach;
use tickwire_transports::shared::SharedRun;
use tickwire_transports::{RemoteAccess, RemoteKey};

impl Engine {
    /// Has a fabric know the own memory, if a member is reached over one that moves bytes by itself.
    pub(super) fn offer_to_fabric(
        &mut self,
        brought: &Brought,
        run: &SharedRun,
        vcs: &[Row],
    ) -> Option<(u8, RemoteKey)> {
        let memory = match &brought.memory {
            Brings::Allocated => run.span().part(run.bytes() - brought.bytes, brought.bytes),
            Brings::Buffer(span, _) => *span,
            Brings::Attached => return None,
        };
        let all = self.store.all();
        let over =
            |endpoint: u8| vcs.iter().any(|&row| all.vcs.get(row as usize).is_some_and(|vc| vc.endpoint == endpoint));
        if memory.is_empty() {
            return None;
        }
        (0..).zip(all.endpoints.iter_mut()).filter(|(endpoint, _)| over(*endpoint)).find_map(|(endpoint, of)| {
            let fabric = of.transport.get().one_sided()?;
            // SAFETY: the window keeps the memory until it is taken out, and withdraws it then. Nobody has a reference to it while peers
            // may write it.
            #[expect(unsafe_code, reason = "bytes that are addresses")]
            let key = unsafe { fabric.register_exposed(memory, RemoteAccess::READ | RemoteAccess::WRITE) };
            Some((endpoint, key.ok()?))
        })
    }

    /// There is no window, so nobody uses the memory by a fabric.
    pub(crate) fn withdraw_key(&mut self, fabric: Option<(u8, RemoteKey)>) {
        let Some((endpoint, key)) = fabric else { return };
        let of = self.store.endpoints()[usize::from(endpoint)].transport.get().one_sided();
        of.into_iter().for_each(|fabric| fabric.withdraw_exposed(&key));
    }

    /// How memory elsewhere is reached by a fabric, where both have one.
    pub(super) fn fabric_reach(&mut self, row: Row, offer: &Offer, own: Option<u8>) -> Option<Reach> {
        let vc = self.store.all().vcs.get(row as usize)?;
        let [key, base] = offer.fabric;
        let access = RemoteAccess::READ | RemoteAccess::WRITE;
        let key = RemoteKey { key, base, length: offer.bytes, access };
        let (endpoint, link) = (vc.endpoint, vc.link);
        let both = offer.has & FABRIC != 0 && own == Some(endpoint) && base.checked_add(offer.bytes).is_some();
        both.then_some(Reach::Fabric { endpoint, link, key })
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

    /// Passes the own run to all members that share memory with this one, and takes theirs. Without `offers` it only tells them that it
    /// has none.
    pub(super) fn pass_runs(
        &mut self,
        key: u64,
        vcs: &[Row],
        offers: Option<&[Offer]>,
        rank: u32,
        shares: Option<u8>,
    ) -> Vec<Option<SharedRun>> {
        let mut runs: Vec<Option<SharedRun>> = vec![None; vcs.len()];
        if offers.is_none() {
            self.stop_giving(key);
        }
        let has_run = |member: usize| offers.is_none_or(|offers| offers[member].has & RUN != 0);
        if !has_run(rank as usize) {
            return runs;
        }
        let all = self.store.all();
        let shared_with = |row: Row| all.vcs.get(row as usize).is_some_and(|vc| Some(vc.endpoint) == shares);
        let mut to_give: Vec<bool> =
            vcs.iter().enumerate().map(|(member, &row)| shared_with(row) && has_run(member)).collect();
        let mut to_take = if offers.is_some() { to_give.clone() } else { vec![false; vcs.len()] };
        let waited = self.wait_until(|engine| {
            engine.closed.check_request()?;
            let all = engine.store.all();
            for member in 0..vcs.len() {
                if !to_give[member] && !to_take[member] {
                    continue;
                }
                let vc = &all.vcs[vcs[member] as usize];
                let shared = all.endpoints[vc.endpoint as usize].transport.get().shared_memory();
                let Some(shared) = shared.filter(|_| vc.state == VcState::Connected) else {
                    (to_give[member], to_take[member]) = (false, false);
                    continue;
                };
                to_give[member] = to_give[member] && !shared.give(vc.link, key).unwrap_or(true);
                if to_take[member]
                    && let Some(run) = shared.take(vc.link, key)
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

    /// Tells all members a value, and hears theirs.
    pub(super) fn tell_all_of<T: Element + Copy>(
        &mut self,
        comm: Comm,
        own: T,
        size: u32,
    ) -> Result<Vec<T>, OperationError> {
        let mut told = vec![own; size as usize];
        self.run_graph(exchange::allgather(&[own][..], &mut told[..]), comm)?;
        Ok(told)
    }
}
