//! How peers on this host learn what a proc exposes. The proc lists its regions in memory that it shares with them, the directory, and
//! passes that over each connection once. For its contents see [`Part::listed`].

use crate::run::engine::Engine;
use tickwire_components::limits::DIRECTORY_PROCS_ASKED;
use tickwire_components::{Rank, RegionAccess, Row, Span, TrafficClass, VcState, WindowError};
use tickwire_systems::procs::routes::{endpoint_for, link_for};
use tickwire_systems::procs::windows::Reach;
use tickwire_systems::procs::windows::regions::REGIONS;
use tickwire_transports::windows::{DIRECTORY_BYTES, Listed, Memory, Part, UpdateGuard, control_bytes};

/// The key under which the directory is passed: the first key of windows. No window has it, since no window has the world's context.
const KEY: u64 = 1 << 32;

impl Engine {
    /// Makes the directory, if a transport shares memory with peers. Called when the first region is exposed.
    pub(super) fn open_directory(&mut self) {
        let all = self.store.all();
        if std::mem::replace(&mut all.windows.directory.is_made, true) {
            return;
        }
        let (members, me) = (all.procs.known.len() as u32, all.procs.me);
        let Some(endpoint) = self.most_shared() else { return };
        let all = self.store.all();
        let shared = all.endpoints[usize::from(endpoint)].transport.get().shared_memory();
        let run =
            shared.and_then(|shared| shared.make(KEY, control_bytes(members) + DIRECTORY_BYTES, Span::EMPTY).ok());
        let part = run.and_then(|run| Part::new(run, Memory::Behind(DIRECTORY_BYTES), members, me, false));
        let made = part.map(|part| (endpoint, part));
        let Some((endpoint, part)) = made else { return };
        // Not all peers can use atomic instructions of the processor on the memory, so every update takes a lock.
        part.lock_all_updates();
        let Some(row) = all.windows.regions(me) else { return };
        row.targets[me as usize].reach = Reach::Memory(part);
        all.windows.directory.endpoint = Some(endpoint);
        self.give_directory();
    }

    /// The endpoint with shared memory over which most procs are reached for one-sided traffic. If several are equal, the last one.
    fn most_shared(&mut self) -> Option<u8> {
        let mut all = self.store.all();
        let (procs, me) = (all.procs.known.len() as u32, all.procs.me);
        let mut counts = vec![0u32; all.endpoints.len()];
        for proc in (0..procs).filter(|&proc| proc != me).take(DIRECTORY_PROCS_ASKED) {
            let endpoint = endpoint_for(&mut all, proc, TrafficClass::OneSided);
            endpoint.into_iter().for_each(|endpoint| counts[usize::from(endpoint)] += 1);
        }
        let counted = (0u8..).zip(counts).filter(|(endpoint, count)| {
            *count > 0 && all.endpoints[usize::from(*endpoint)].transport.get().shared_memory().is_some()
        });
        counted.max_by_key(|(_, count)| *count).map(|(endpoint, _)| endpoint)
    }

    /// Passes the directory to peers that do not have it yet.
    pub(crate) fn give_directory(&mut self) {
        let all = self.store.all();
        let directory = &mut all.windows.directory;
        let Some(endpoint) = directory.endpoint else { return };
        let shared = all.endpoints.get_mut(usize::from(endpoint)).and_then(|of| of.transport.get().shared_memory());
        let Some(shared) = shared else { return };
        let own = (0 as Row..).zip(all.vcs.iter()).filter(|(_, vc)| vc.state == VcState::Connected);
        let own = own.map(|(row, vc)| (row, vc.endpoint, vc.link));
        let sides = all.procs.routes.sides.iter().filter(|side| side.is_open);
        for (row, of, link) in own.chain(sides.map(|side| (side.vc, side.endpoint, side.link))) {
            let is_due = of == endpoint && !directory.given.contains(&row);
            // If a socket takes nothing now, the next call tries again. A socket that is closed ends its VC.
            if is_due && shared.give(link, KEY).unwrap_or(true) {
                directory.given.push(row);
            }
        }
    }

    /// Lists a region in the directory.
    pub(super) fn list_region(&mut self, number: u32, memory: Span, access: RegionAccess) {
        let address = memory.start().expose_provenance() as u64;
        let listed = Listed { address, bytes: memory.len() as u64, access: access.bits() };
        // If this fails, peers reach the region through this engine.
        let _ = self.change_directory(|part, guard| _ = part.list(guard, number, listed));
    }

    /// Removes a region from the directory. Afterwards no peer is using it, and none begins to.
    pub(super) fn unlist_region(&mut self, number: u32) -> Result<(), WindowError> {
        self.change_directory(|part, guard| part.unlist(guard, number))
    }

    fn change_directory(&mut self, mut change: impl FnMut(&Part, &UpdateGuard<'_>)) -> Result<(), WindowError> {
        if self.store.all().windows.directory.endpoint.is_none() {
            return Ok(());
        }
        self.wait_on_holder(REGIONS, |engine| {
            let all = engine.store.all();
            let Some(row) = all.windows.get(REGIONS) else { return Ok(()) };
            let Some(part) = row.own_part() else { return Ok(()) };
            let guard = part.lock_updates(|proc| row.is_gone(all.procs, proc))?;
            change(part, &guard);
            Ok(())
        })?;
        Ok(())
    }

    /// Takes a peer's directory, once the peer has passed it. The peer passes it before it tells anybody a key.
    pub(super) fn find_directory(&mut self, proc: u32, vc: Row) {
        let target = self.target(Rank(proc), REGIONS);
        if target.is_ok_and(|target| target.issued == 0 && matches!(target.reach, Reach::Engine)) {
            // The directory is passed over sockets.
            self.look_around();
        }
        let mut all = self.store.all();
        let (members, me) = (all.procs.known.len() as u32, all.procs.me);
        let Some((endpoint, link)) = link_for(&mut all, vc, TrafficClass::OneSided) else { return };
        let Some(target) = all.windows.get(REGIONS).and_then(|row| row.targets.get_mut(proc as usize)) else { return };
        // Operations that the peer's engine has yet to do come first.
        if !matches!(target.reach, Reach::Engine) || target.issued != target.completed {
            return;
        }
        let shared = all.endpoints.get_mut(usize::from(endpoint)).and_then(|of| of.transport.get().shared_memory());
        let Some(shared) = shared.filter(|shared| shared.fetches(link)) else { return };
        let Some(Some(run)) = shared.take(link, KEY) else { return };
        if let Some(part) = Part::new(run, Memory::Behind(DIRECTORY_BYTES), members, me, false) {
            target.reach = Reach::Listed { part, endpoint, link };
        }
    }
}
