//! Updates of exposed memory that a fabric does. The fabric does all updates, even those by the owner: any other update would not be atomic
//! to the fabric.

use super::span::span_of;
use crate::api::windows::Route;
use crate::run::engine::Engine;
use std::cmp::Reverse;
use tickwire_components::{
    AtomicsDomain, NIL, Rank, RegionKey, RemoteKind, RequestError, Row, Span, TrafficClass, Vc, VcState, WindowError,
};
use tickwire_systems::procs::calls::link_over;
use tickwire_systems::procs::endpoint::Endpoint;
use tickwire_systems::procs::routes::{names_atomics, updates};
use tickwire_systems::procs::windows::regions::REGIONS;
use tickwire_systems::procs::windows::{FabricKind, OwnMemory};
use tickwire_transports::{RemoteAccess, RemoteKey};

impl Engine {
    /// The endpoint whose fabric does updates of this proc's regions. `None` if none is named for updates.
    ///
    /// # Errors
    /// Why none of the named endpoints can do updates, as text.
    pub(super) fn atomics_endpoint(&mut self) -> Result<Option<u8>, String> {
        let endpoints = self.store.endpoints();
        if !names_atomics(endpoints) {
            return Ok(None);
        }
        let mut words = Vec::new();
        let named = (0u8..).zip(endpoints.iter_mut()).filter(|(_, of)| of.may_carry(TrafficClass::Atomics));
        let named = named.map(|(number, of)| (of.transport.get().capabilities().priority, number, of));
        let mut named: Vec<(u8, u8, &mut Endpoint)> = named.collect();
        // The same order as that of routes: of equal ones the first.
        named.sort_by_key(|&(priority, ..)| Reverse(priority));
        for (_, number, of) in named {
            match updates(of) {
                Ok(()) => return Ok(Some(number)),
                Err(why) => words.push(format!("{} {why}", of.transport.get().name())),
            }
        }
        Err(format!("nothing that is named for updates can do them: {}", words.join("; ")))
    }

    /// The route of updates with a key, if a fabric does them. `vc` is that of the owner, or [`NIL`] if this proc is the owner.
    ///
    /// # Errors
    /// The owner's fabric is not open here or not named for updates, the owner cannot be reached over it, or it has failed.
    pub(super) fn updates_by(&mut self, key: &RegionKey, vc: Row) -> Result<Option<Route>, WindowError> {
        if key.domain() != AtomicsDomain::Fabric {
            return Ok(None);
        }
        if vc == NIL {
            return self.own_updates(key).map(Some);
        }
        let endpoints = (0u8..).zip(self.store.endpoints().iter_mut());
        let mut usable = endpoints.filter_map(|(number, of)| {
            let named = key.as_updated_by(of.transport.get().name()).filter(|_| of.may_carry(TrafficClass::Atomics))?;
            updates(of).is_ok().then_some((number, named))
        });
        let Some((endpoint, [name, base])) = usable.next() else {
            let reason = "no fabric that is named for updates here does those of the region's owner: give all ranks the same \
                          route";
            return Err(WindowError::Fabric { reason: reason.to_owned() });
        };
        if base.checked_add(key.bytes).is_none() {
            return Err(WindowError::Fabric { reason: "the key is damaged".into() });
        }
        let link = self.link_by(vc, endpoint, Rank(key.proc))?;
        let channel = self.channel(endpoint, link, REGIONS);
        let key = RemoteKey { key: name, base, length: key.bytes, access: RemoteAccess::ATOMIC };
        Ok(Some(Route { endpoint, channel, key, vc }))
    }

    /// The route of updates of a region of this proc. The key only says which region.
    fn own_updates(&mut self, key: &RegionKey) -> Result<Route, WindowError> {
        let regions = match self.store.all().windows.get(REGIONS).map(|row| &row.own) {
            Some(OwnMemory::Exposed(regions)) => &regions[..],
            _ => &[],
        };
        let place = regions.binary_search_by_key(&key.number, |region| region.number);
        let known = place.ok().and_then(|place| regions[place].updates);
        let Some((endpoint, key)) = known else { return Err(RequestError::OutOfBounds.into()) };
        Ok(Route { endpoint, channel: self.channel(endpoint, NIL, REGIONS), key, vc: NIL })
    }

    /// The link to a proc over an endpoint. If there is none, calls the proc, and waits for as long as the transport tries.
    fn link_by(&mut self, vc: Row, endpoint: u8, rank: Rank) -> Result<u32, WindowError> {
        let (mut found, mut is_called) = (None, false);
        self.wait_at_once(|engine| {
            let mut all = engine.store.all();
            let Some(&Vc { state, endpoint: used, .. }) = all.vcs.get(vc as usize) else { return true };
            let is_over = is_called && used != endpoint && all.procs.routes.side(vc, endpoint).is_none();
            if state != VcState::Connected || is_over {
                return true;
            }
            found = link_over(&mut all, vc, endpoint);
            is_called = true;
            if found.is_some() {
                return true;
            }
            // Calls and their answers go over sockets.
            engine.look_around();
            false
        })?;
        let all = self.store.all();
        match found {
            Some(link) => Ok(link),
            None if all.vcs.get(vc as usize).is_none_or(|vc| vc.state != VcState::Connected) => {
                Err(self.failed_target(rank, REGIONS))
            }
            None => {
                let of = all.procs.routes.failed(vc).iter().find(|(of, _)| *of == endpoint);
                let why = of.map_or("the call has ended", |(_, why)| why);
                let name = all.endpoints[usize::from(endpoint)].transport.get().name();
                let reason = format!("proc {rank} cannot be connected to over {name}, which does updates: {why}");
                Err(WindowError::Fabric { reason })
            }
        }
    }
}

/// The fabric's operation for an update.
///
/// # Errors
/// No fabric can do this update.
pub(super) fn fabric_update(kind: RemoteKind, operands: Span) -> Result<FabricKind, WindowError> {
    let mut bytes = [0u8; 16];
    let place = span_of(&mut bytes).part(0, operands.len());
    // SAFETY: own bytes, and the operands of a call, which it lends.
    #[expect(unsafe_code, reason = "bytes that are addresses")]
    unsafe {
        place.copy_from(&operands.part(0, place.len()));
    }
    let [first, second] = [0, 8].map(|at| std::array::from_fn(|byte| bytes[at + byte]));
    FabricKind::of_update(kind, [first, second]).ok_or_else(|| {
        let reason = "its updates are sums, and, or, exclusive or, replace and keep, and compare and swap, of integers of 4 \
                      and 8 bytes";
        WindowError::Fabric { reason: reason.to_owned() }
    })
}
