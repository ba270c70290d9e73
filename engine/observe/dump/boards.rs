//! Collective operations on boards in a dump: a receive from each member that this rank waits for.

use super::operations::age;
use tickwire_components::{Communicator, NIL, Stamp, context};
use tickwire_systems::procs::boards::{CommBoards, Members, Standing};
use tickwire_systems::store::Tables;
use tickwire_traces::dump::{CollectiveDump, Kind, Obstacle, OperationDump, Plane, Stage, StartDump};

/// What the first operation of each communicator waits for. The operations behind it wait for it.
pub(super) fn board_operations(all: &Tables<'_>, now: Stamp) -> Vec<OperationDump> {
    let mut found = Vec::new();
    for CommBoards { context, standing } in &all.boards.comms {
        let Standing::Open(members) = standing else { continue };
        let Some(comm) = all.communicators.get(context::id(*context) as usize) else { continue };
        found.extend(waits(all, now, comm, members));
    }
    found
}

fn waits(all: &Tables<'_>, now: Stamp, comm: &Communicator, members: &Members) -> Vec<OperationDump> {
    let Some(operation) = members.queue.front().filter(|operation| !operation.is_cancelled()) else {
        return Vec::new();
    };
    let request = operation.request;
    let stamp = (request != NIL).then(|| all.progress.stamps.get(request)).flatten();
    let kept = all.boards.persistent.iter().flatten().find(|kept| request != NIL && kept.request == request);
    let start = kept.map(|kept| StartDump { made: kept.made, starts: kept.starts });
    let name = operation.numbered.call.kind.name().into();
    let collective = CollectiveDump { name, number: operation.before, start };
    let wait = |rank: u32| OperationDump {
        row: request,
        kind: Kind::Receive,
        stage: Stage::Posted,
        obstacle: Obstacle::None,
        synchronous: false,
        ready: false,
        plane: Plane::Collective,
        comm: context::id(comm.context),
        context: comm.context,
        rank: Some(rank),
        peer: comm.proc(rank),
        tag: None,
        bytes: operation.numbered.call.part as u64,
        done: 0,
        age: age(stamp, now),
        awaited: operation.awaited,
        submitted: false,
        detached: false,
        collective: Some(collective.clone()),
    };
    operation.waits_for(&members.seats).into_iter().map(wait).collect()
}
