//! Regions that a fabric reaches: it moves what is put and got, and the owner's engine does updates.

use crate::run::engine::Engine;
use tickwire_components::{Rank, RegionAccess, RegionKey, RemoteKind, Row, Span, TrafficClass, VcState, WindowError};
use tickwire_systems::procs::endpoint::Endpoint;
use tickwire_systems::procs::routes::link_for;
use tickwire_systems::procs::windows::regions::REGIONS;
use tickwire_systems::procs::windows::{OwnMemory, Reach};
use tickwire_transports::{Reach as Near, RemoteAccess, RemoteKey};

/// What others may do with a region by a fabric.
fn access_of(access: RegionAccess) -> Option<RemoteAccess> {
    match (access.covers(RegionAccess::READ), access.covers(RegionAccess::WRITE)) {
        (true, true) => Some(RemoteAccess::READ | RemoteAccess::WRITE),
        (true, false) => Some(RemoteAccess::READ),
        (false, true) => Some(RemoteAccess::WRITE),
        (false, false) => None,
    }
}

impl Engine {
    /// Has a fabric know a region, if there are procs that only a fabric reaches: the key that says so.
    pub(super) fn offer_region(&mut self, key: RegionKey, memory: Span) -> RegionKey {
        let several = self.hosts().is_none_or(|hosts| hosts > 1);
        let all = self.store.all();
        let Some(access) = access_of(key.access()).filter(|_| !memory.is_empty()) else { return key };
        let carries = |of: &mut Endpoint| of.may_carry(TrafficClass::OneSided);
        let is_alone = !all.endpoints.iter_mut().any(|of| {
            let is_near = of.transport.get().capabilities().reach == Near::Process;
            carries(of) && !is_near && of.transport.get().shared_memory().is_some()
        });
        let offered = (0u8..)
            .zip(all.endpoints.iter_mut())
            .filter(|(_, of)| of.may_carry(TrafficClass::OneSided))
            .find_map(|(endpoint, of)| {
                let is_used = all.vcs.iter().any(|vc| vc.state != VcState::Failed && vc.endpoint == endpoint)
                    || all.procs.routes.sides.iter().any(|side| side.endpoint == endpoint);
                let name = of.transport.get().name().to_owned();
                let fabric = of.transport.get().one_sided().filter(|_| several || is_alone || is_used)?;
                // The buffer goes back to the application when it is withdrawn, and a key may outlive that.
                if !fabric.refuses_stale_keys() {
                    return None;
                }
                // SAFETY: the engine keeps the buffer until the region is withdrawn, or for ever. Nobody has a reference to it meanwhile.
                #[expect(unsafe_code, reason = "bytes that are addresses")]
                let registered = unsafe { fabric.register_exposed(memory, access) };
                Some((endpoint, name, registered.ok()?))
            });
        let Some((endpoint, name, registered)) = offered else { return key };
        if let Some(OwnMemory::Exposed(regions)) = all.windows.get(REGIONS).map(|row| &mut row.own)
            && let Some(region) = regions.last_mut()
        {
            region.fabric = Some((endpoint, registered));
        }
        key.with_fabric(&name, [registered.key, registered.base])
    }

    /// Notes how the next operation with a key goes.
    pub(super) fn find_fabric(&mut self, key: &RegionKey, vc: Row) -> Result<(), WindowError> {
        let reached = self.fabric_of(key, vc);
        let target = self.target(Rank(key.proc), REGIONS)?;
        if let Reach::Listed { .. } | Reach::Memory(_) = target.reach {
            return Ok(());
        }
        if reached.is_none() && target.by_fabric > 0 {
            // Where these went is forgotten below.
            self.flush_fabric(Rank(key.proc), REGIONS)?;
        }
        self.target(Rank(key.proc), REGIONS)?.reach = reached.unwrap_or(Reach::Engine);
        Ok(())
    }

    fn fabric_of(&mut self, key: &RegionKey, vc: Row) -> Option<Reach> {
        let mut all = self.store.all();
        let (endpoint, link) = link_for(&mut all, vc, TrafficClass::OneSided)?;
        let transport = all.endpoints.get_mut(usize::from(endpoint))?.transport.get();
        let [name, base] = key.fabric(transport.name())?;
        transport.one_sided()?;
        base.checked_add(key.bytes)?;
        let key = RemoteKey { key: name, base, length: key.bytes, access: access_of(key.access())? };
        Some(Reach::Fabric { endpoint, link, key })
    }

    /// Whether a fabric does an operation.
    pub(super) fn goes_by_fabric(&mut self, kind: RemoteKind, proc: u32) -> bool {
        let target = self.store.all().windows.get(REGIONS).and_then(|row| row.targets.get(proc as usize));
        let is_reached = target.is_some_and(|target| matches!(target.reach, Reach::Fabric { .. }));
        is_reached && matches!(kind, RemoteKind::Put | RemoteKind::Get)
    }
}
