//! How peers of this host come to know what a proc exposes. It lists its regions in memory that it shares with them, and passes that over
//! each connection once. What is there: [`Part::listed`].

use crate::run::engine::Engine;
use tickwire_components::{Rank, RegionAccess, Row, Span, TrafficClass, VcState, WindowError};
use tickwire_systems::procs::routes::{endpoint_for, link_for};
use tickwire_systems::procs::windows::Reach;
use tickwire_systems::procs::windows::regions::REGIONS;
use tickwire_transports::windows::{DIRECTORY_BYTES, Listed, Memory, Part, UpdateGuard, control_bytes};

/// Under which the directory is passed: the first of the keys of windows, none of which has the world's context.
const KEY: u64 = 1 << 32;
/// Procs that are looked at, at most, to see which transport shares memory with most of them.
const PROCS_ASKED: usize = 256;

impl Engine {
    /// Makes the directory, if a transport shares memory with peers. When the first region is exposed.
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
        // The processor cannot update the memory for all.
        part.lock_all_updates();
        let Some(row) = all.windows.regions(me) else { return };
        row.targets[me as usize].reach = Reach::Memory(part);
        all.windows.directory.endpoint = Some(endpoint);
        self.give_directory();
    }

    /// The endpoint with shared memory over which most procs are reached for one-sided traffic; the last of several.
    fn most_shared(&mut self) -> Option<u8> {
        let mut all = self.store.all();
        let (procs, me) = (all.procs.known.len() as u32, all.procs.me);
        let mut counts = vec![0u32; all.endpoints.len()];
        for proc in (0..procs).filter(|&proc| proc != me).take(PROCS_ASKED) {
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
            // A socket that takes nothing now is tried again; one that is closed ends its VC.
            if is_due && shared.give(link, KEY).unwrap_or(true) {
                directory.given.push(row);
            }
        }
    }

    /// Lists a region for peers.
    pub(super) fn list_region(&mut self, number: u32, memory: Span, access: RegionAccess) {
        let address = memory.start().expose_provenance() as u64;
        let listed = Listed { address, bytes: memory.len() as u64, access: access.bits() };
        // Peers use one that cannot be listed by this engine.
        let _ = self.change_directory(|part, guard| _ = part.list(guard, number, listed));
    }

    /// Takes a region out: no peer begins to use it any more, and none is using it.
    pub(super) fn unlist_region(&mut self, number: u32) -> Result<(), WindowError> {
        self.change_directory(|part, guard| part.unlist(guard, number))
    }

    fn change_directory(&mut self, mut change: impl FnMut(&Part, &UpdateGuard<'_>)) -> Result<(), WindowError> {
        if self.store.all().windows.directory.endpoint.is_none() {
            return Ok(());
        }
        self.wait_at_once(|engine| {
            let all = engine.store.all();
            let Some(row) = all.windows.get(REGIONS) else { return true };
            let Some(part) = row.own_part() else { return true };
            // A peer that has died is passed over.
            let Ok(guard) = part.lock_updates(|proc| row.is_dead(all.vcs, proc)) else { return false };
            change(part, &guard);
            true
        })?;
        Ok(())
    }

    /// Takes the directory of a peer, once it has passed it. The peer did that before it has told anybody a key.
    pub(super) fn find_directory(&mut self, proc: u32, vc: Row) {
        let target = self.target(Rank(proc), REGIONS);
        if target.is_ok_and(|target| target.issued == 0 && matches!(target.reach, Reach::Engine)) {
            // What is passed comes over sockets.
            self.look_around();
        }
        let mut all = self.store.all();
        let (members, me) = (all.procs.known.len() as u32, all.procs.me);
        let Some((endpoint, link)) = link_for(&mut all, vc, TrafficClass::OneSided) else { return };
        let Some(target) = all.windows.get(REGIONS).and_then(|row| row.targets.get_mut(proc as usize)) else { return };
        // What its engine has to do yet comes first.
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
