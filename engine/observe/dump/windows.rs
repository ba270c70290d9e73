//! Windows and regions in a dump.

use tickwire_components::{AtomicsDomain, Communicator, LockKind, NIL, RegionAccess, context};
use tickwire_systems::procs::windows::{Access, Epochs, ExposedRegion, OwnMemory, RemoteOperation, Target, WindowRow};
use tickwire_systems::store::Tables;
use tickwire_traces::dump::{HolderDump, LockDump, PendingDump, RegionDump, SHOWN_MAX, WindowDump};
use tickwire_transports::windows::{Hold, Part};

/// All windows.
pub(super) fn windows(all: &Tables<'_>) -> Vec<WindowDump> {
    // The window of other ranks' regions is shown only if operations on it are pending.
    let shown = |window: &WindowDump| window.comm != 0 || !window.pending.is_empty() || !window.by_fabric.is_empty();
    all.windows.list.iter().flatten().map(|window| dumped(all, window)).filter(shown).collect()
}

/// The regions that this engine exposes, and how many of them are left out.
pub(super) fn regions(all: &Tables<'_>) -> (Vec<RegionDump>, u64) {
    let own = all.windows.list.iter().flatten().find_map(|window| match &window.own {
        OwnMemory::Exposed(regions) => Some(&regions[..]),
        _ => None,
    });
    let region = |region: &ExposedRegion| {
        let allowed = [(RegionAccess::READ, "read"), (RegionAccess::WRITE, "write"), (RegionAccess::UPDATE, "update")];
        let allowed = allowed.into_iter().filter(|(access, _)| region.access.covers(*access)).map(|(_, word)| word);
        let domain = if region.updates.is_some() { AtomicsDomain::Fabric } else { AtomicsDomain::Engine };
        RegionDump {
            number: region.number,
            bytes: region.part.bytes() as u64,
            access: if region.access == RegionAccess::NONE {
                "do nothing with".into()
            } else {
                allowed.collect::<Vec<_>>().join(", ")
            },
            domain: domain.to_string(),
        }
    };
    let own = own.unwrap_or_default();
    (own.iter().take(SHOWN_MAX).map(region).collect(), own.len().saturating_sub(SHOWN_MAX) as u64)
}

/// How many operations fabrics have yet to do on a window, by target.
fn by_fabric(all: &Tables<'_>, window: &WindowRow, proc: impl Fn(u32) -> u32) -> Vec<PendingDump> {
    let handle = window.handle;
    let mut found: Vec<PendingDump> = Vec::new();
    let mut add = |rank: u32, operations: u64| match found.iter_mut().find(|of| of.rank == rank) {
        Some(of) => of.operations += operations,
        None => found.push(PendingDump { rank, proc: proc(rank), operations }),
    };
    let posted = all.windows.by_fabric.iter().filter(|operation| operation.handle == handle);
    posted.for_each(|operation| add(operation.target, 1));
    let awaited = all.windows.update.filter(|update| update.handle == handle);
    awaited.into_iter().for_each(|update| add(update.target, 1));
    let others = (0..).zip(&window.targets).filter(|(_, target)| target.by_fabric > 0);
    others.for_each(|(rank, target)| add(rank, target.by_fabric));
    found
}

fn dumped(all: &Tables<'_>, window: &WindowRow) -> WindowDump {
    let comm = &all.communicators[Communicator::row(window.handle)];
    let proc = |rank: u32| comm.proc(rank).unwrap_or(NIL);
    let held = |target: &Target| -> Vec<HolderDump> {
        let holders = target.locks().into_iter().flat_map(|part| part.holders());
        holders.map(|(rank, hold)| HolderDump { rank, proc: proc(rank), exclusive: hold == Hold::Exclusive }).collect()
    };
    let own = &window.targets[window.rank as usize];
    let awaited = all.windows.awaited.filter(|(handle, _)| *handle == window.handle).map(|(_, rank)| {
        let holders = window.targets.get(rank as usize).map_or(Vec::new(), held);
        LockDump { rank, proc: proc(rank), holders }
    });
    let pending = (0..).zip(&window.targets).filter(|(_, target)| !target.operations.is_empty());
    WindowDump {
        comm: context::id(window.context),
        context: window.context,
        bytes: own.locks().map_or(0, |part| part.bytes() as u64),
        domain: window.domain.to_string(),
        epochs: epochs(window),
        holders: held(own),
        update_holder: own.locks().and_then(Part::update_holder).map(|rank| HolderDump {
            rank,
            proc: proc(rank),
            exclusive: true,
        }),
        awaited,
        pending: pending
            .map(|(rank, target)| PendingDump { rank, proc: proc(rank), operations: operations(target) })
            .collect(),
        by_fabric: by_fabric(all, window, proc),
    }
}

/// How many operations a target's engine has yet to do, including those on locks.
fn operations(target: &Target) -> u64 {
    target.operations.iter().map(RemoteOperation::count).sum()
}

/// The epochs that are open at this rank, as text.
fn epochs(window: &WindowRow) -> Vec<String> {
    let Epochs { fence, all_locked, started, posted, .. } = window.epochs;
    let named = [
        (fence, "a fence's epoch"),
        (all_locked, "all ranks locked"),
        (started, WindowDump::ACCESS),
        (posted, WindowDump::EXPOSURE),
    ];
    let mut words: Vec<String> = named.iter().filter(|(open, _)| *open).map(|(_, words)| (*words).to_owned()).collect();
    if !all_locked {
        words.extend((0..).zip(&window.targets).filter_map(|(rank, target): (u32, _)| match target.access {
            Access::Locked(LockKind::Exclusive) => Some(format!("rank {rank} locked alone")),
            Access::Locked(LockKind::Shared) => Some(format!("rank {rank} locked with others")),
            _ => None,
        }));
    }
    words
}
