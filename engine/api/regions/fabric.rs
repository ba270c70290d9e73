//! Regions that fabrics reach: one fabric does puts and gets, and one may do updates ([`super::atomics`]).

use crate::run::engine::Engine;
use tickwire_components::{Rank, RegionAccess, RegionKey, Row, Span, TrafficClass, VcState, WindowError};
use tickwire_systems::procs::routes::link_for;
use tickwire_systems::procs::windows::regions::REGIONS;
use tickwire_systems::procs::windows::{Reach, Registered};
use tickwire_transports::{Reach as Near, RemoteAccess, RemoteKey};

/// What others may do with a region over a fabric.
fn access_of(access: RegionAccess) -> Option<RemoteAccess> {
    match (access.covers(RegionAccess::READ), access.covers(RegionAccess::WRITE)) {
        (true, true) => Some(RemoteAccess::READ | RemoteAccess::WRITE),
        (true, false) => Some(RemoteAccess::READ),
        (false, true) => Some(RemoteAccess::WRITE),
        (false, false) => None,
    }
}

impl Engine {
    /// Registers a region with fabrics: with one that does its updates, if one is named for that, and with one that does puts and gets, if
    /// there are procs that only a fabric reaches. Returns the key with the names of both, and the registration for puts and gets and the
    /// one for updates.
    ///
    /// # Errors
    /// Why the fabric for updates cannot register the region, as text.
    pub(super) fn offer_region(
        &mut self,
        mut key: RegionKey,
        memory: Span,
    ) -> Result<(RegionKey, [Option<Registered>; 2]), String> {
        let access = access_of(key.access()).filter(|_| !memory.is_empty());
        let movers = if access.is_some() { self.movers() } else { Vec::new() };
        let updater = if key.access().covers(RegionAccess::UPDATE) { self.atomics_endpoint()? } else { None };
        // One registration serves both, if the best mover does updates, too.
        let shared = access.filter(|_| updater.is_some() && movers.first().copied() == updater);
        let (mut moves, mut updates) = (None, None);
        if let Some(endpoint) = updater {
            let access = shared.map_or(RemoteAccess::ATOMIC, |access| access | RemoteAccess::ATOMIC);
            let (name, registered) = self.register_region(endpoint, memory, access)?;
            updates = Some((endpoint, registered));
            key = key.updated_by(&name, [registered.key, registered.base]);
            if shared.is_some() {
                moves = updates;
                key = key.moved_by(&name, [registered.key, registered.base]);
            }
        }
        for endpoint in movers {
            let Some(access) = access.filter(|_| moves.is_none()) else { break };
            if let Ok((name, registered)) = self.register_region(endpoint, memory, access) {
                moves = Some((endpoint, registered));
                key = key.moved_by(&name, [registered.key, registered.base]);
            }
        }
        Ok((key, [moves, updates]))
    }

    /// Endpoints whose fabrics may do puts and gets on regions of this proc, the best one first.
    fn movers(&mut self) -> Vec<u8> {
        let several = self.hosts().is_none_or(|hosts| hosts > 1);
        let all = self.store.all();
        let is_alone = !all.endpoints.iter_mut().any(|of| {
            let is_near = of.transport.get().capabilities().reach == Near::Process;
            of.may_carry(TrafficClass::OneSided) && !is_near && of.transport.get().shared_memory().is_some()
        });
        let usable = (0u8..).zip(all.endpoints.iter_mut()).filter_map(|(endpoint, of)| {
            let is_used = all.vcs.iter().any(|vc| vc.state != VcState::Failed && vc.endpoint == endpoint)
                || all.procs.routes.sides.iter().any(|side| side.endpoint == endpoint);
            let may_move = of.may_carry(TrafficClass::OneSided) && (several || is_alone || is_used);
            let fabric = of.transport.get().one_sided().filter(|_| may_move)?;
            // The application gets the buffer back when the region is withdrawn, and a key may outlive that.
            fabric.refuses_stale_keys().then_some(endpoint)
        });
        usable.collect()
    }

    /// Registers memory of a region with a fabric. Returns the fabric's name and its key of the memory.
    fn register_region(
        &mut self,
        endpoint: u8,
        memory: Span,
        access: RemoteAccess,
    ) -> Result<(String, RemoteKey), String> {
        let transport = self.store.endpoints()[usize::from(endpoint)].transport.get();
        let name = transport.name().to_owned();
        let fabric = transport.one_sided().ok_or_else(|| format!("{name} does not reach memory by itself"))?;
        // SAFETY: the engine keeps the buffer until the region is withdrawn, or for ever. Nobody has a reference to it meanwhile.
        #[expect(unsafe_code, reason = "bytes that are addresses")]
        let registered = unsafe { fabric.register_exposed(memory, access) };
        Ok((name, registered?))
    }

    /// Notes how the next operation with a key reaches the memory.
    pub(super) fn find_fabric(&mut self, key: &RegionKey, vc: Row) -> Result<(), WindowError> {
        let reached = self.fabric_of(key, vc);
        let target = self.target(Rank(key.proc), REGIONS)?;
        if let Reach::Listed { .. } | Reach::Memory(_) = target.reach {
            return Ok(());
        }
        let way = |reach: &Reach| match *reach {
            Reach::Fabric { endpoint, channel, .. } => Some((endpoint, channel)),
            _ => None,
        };
        if target.by_fabric > 0 && reached.as_ref().and_then(way) != way(&target.reach) {
            // The lines below forget the way on which these operations went.
            self.flush_fabric(Rank(key.proc), REGIONS)?;
        }
        self.target(Rank(key.proc), REGIONS)?.reach = reached.unwrap_or(Reach::Engine);
        Ok(())
    }

    fn fabric_of(&mut self, key: &RegionKey, vc: Row) -> Option<Reach> {
        let mut all = self.store.all();
        let (endpoint, link) = link_for(&mut all, vc, TrafficClass::OneSided)?;
        let transport = all.endpoints.get_mut(usize::from(endpoint))?.transport.get();
        let [name, base] = key.as_moved_by(transport.name())?;
        transport.one_sided().filter(|fabric| fabric.refuses_stale_keys())?;
        base.checked_add(key.bytes)?;
        let key = RemoteKey { key: name, base, length: key.bytes, access: access_of(key.access())? };
        Some(Reach::Fabric { endpoint, channel: self.channel(endpoint, link, REGIONS), key })
    }
}
