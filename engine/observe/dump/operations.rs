//! The operations and messages of a dump.

use tickwire_components::limits::ANY;
use tickwire_components::{
    Car, CarKind, CarState, Control, ControlFrame, NIL, Request, RequestState, Row, Stamp, Unexpected, VcState, Way,
    car_flags, context,
};
use tickwire_systems::collectives::draft::STEP_BITS;
use tickwire_systems::steps::chain::capacity;
use tickwire_systems::steps::send::lacks_credit;
use tickwire_systems::store::Tables;
use tickwire_traces::dump::{Age, CollectiveDump, Kind, MessageDump, Obstacle, OperationDump, Plane, Stage, StartDump};

/// Whether a row is an operation in progress.
pub(super) fn is_used(car: &Car, request: &Request) -> bool {
    let operation = matches!(car.kind, CarKind::Send | CarKind::Receive);
    // A message of a collective operation that has not started, or is done, waits for nobody.
    let in_turn = !matches!(car.state, CarState::Free | CarState::Waiting | CarState::Startable | CarState::Resting);
    operation && in_turn && request.state != RequestState::Inactive
}

pub(super) fn operation(all: &mut Tables<'_>, row: Row, now: Stamp) -> OperationDump {
    let stage = stage(&all.cars[row as usize]);
    let obstacle = if stage == Stage::Queued { obstacle(all, all.cars[row as usize].vc) } else { Obstacle::None };
    let all = &*all;
    let (car, large, request) = (&all.cars[row as usize], &all.large[row as usize], &all.requests[row as usize]);
    let kind = match car.kind {
        CarKind::Send => Kind::Send,
        _ => Kind::Receive,
    };
    let vc = all.vcs.get(car.vc as usize);
    let peer = vc.map(|vc| vc.proc);
    let comm = all.communicators.get(context::id(car.context) as usize);
    let rank = match kind {
        Kind::Receive => (car.source != ANY).then_some(car.source),
        _ => peer.and_then(|peer| comm?.rank_of(peer)),
    };
    let bytes = match (kind, stage) {
        (_, Stage::Done | Stage::Finished) => car.done,
        (Kind::Receive, Stage::New | Stage::Posted) => capacity(all.cars, row),
        (Kind::Receive, Stage::Matched) if large.length == 0 => car.done,
        _ => large.length,
    };
    OperationDump {
        row,
        kind,
        stage,
        obstacle,
        synchronous: kind == Kind::Send && car.flags & car_flags::SYNCHRONOUS != 0,
        ready: kind == Kind::Send && car.flags & car_flags::READY != 0,
        plane: plane(car.context),
        comm: context::id(car.context),
        context: context::base(car.context),
        rank,
        peer,
        tag: (car.tag != ANY).then_some(car.tag),
        bytes,
        done: if stage == Stage::Matched { 0 } else { car.done },
        age: age(all.progress.stamps.get(row), now),
        awaited: false,
        submitted: false,
        detached: request.state == RequestState::Detached,
        collective: collective(all, row),
    }
}

/// The collective operation to which a message belongs, if there is one.
fn collective(all: &Tables<'_>, row: Row) -> Option<CollectiveDump> {
    let graph = all.progress.graphs.get(all.nodes[row as usize].graph)?;
    let is_call = graph.blocks.is_none();
    let number = (!graph.persistent && is_call).then_some(all.cars[row as usize].tag >> STEP_BITS);
    let start = (graph.persistent && is_call).then_some(StartDump { made: graph.call, starts: graph.starts });
    Some(CollectiveDump { name: graph.name.into(), number, start })
}

fn stage(car: &Car) -> Stage {
    match car.state {
        CarState::New => Stage::New,
        CarState::Posted | CarState::ToProvider | CarState::AtProvider | CarState::Recalled => Stage::Posted,
        CarState::Queued => Stage::Queued,
        CarState::Offered => Stage::Offered,
        CarState::Sending | CarState::Parked => Stage::Sending,
        CarState::Matched => Stage::Matched,
        CarState::Receiving | CarState::Passing => Stage::Receiving,
        CarState::Reading => Stage::Reading,
        CarState::Direct if car.kind == CarKind::Send => Stage::Sending,
        CarState::Direct => Stage::Receiving,
        CarState::Finished => Stage::Finished,
        _ => Stage::Done,
    }
}

/// What the sends in a VC's queue wait for. All of them wait for what the first one waits for.
fn obstacle(all: &mut Tables<'_>, vc: Row) -> Obstacle {
    let Some(vc) = all.vcs.get(vc as usize) else { return Obstacle::None };
    let row = vc.sends.head;
    let Some(large) = all.large.get(row as usize) else { return Obstacle::None };
    match vc.state {
        VcState::Unconnected | VcState::Connecting => return Obstacle::Connection,
        VcState::Failed => return Obstacle::None,
        VcState::Connected => {}
    }
    if large.way != Way::Undecided {
        // The way in which this message goes is decided, and its credit is paid.
        return Obstacle::Room;
    }
    match all.endpoints.get_mut(vc.endpoint as usize) {
        Some(endpoint) => match lacks_credit(all.cars, all.large, vc, endpoint, row) {
            true => Obstacle::Credit,
            false => Obstacle::None,
        },
        None => Obstacle::None,
    }
}

/// An answer that is owed to a peer and has not left yet. Credit grants are counted by VC instead.
pub(super) fn refusal(all: &Tables<'_>, frame: &ControlFrame) -> Option<OperationDump> {
    let context = match frame.what {
        Control::Refusal { context, .. } => context,
        Control::Acknowledgement { .. } => 0,
        Control::Credit(_)
        | Control::OfferCount(_)
        | Control::Call(_)
        | Control::Accept(_)
        | Control::Inquiry(_)
        | Control::Denial(_) => return None,
    };
    let vc = all.vcs.get(frame.vc as usize)?;
    let comm = all.communicators.get(context::id(context) as usize);
    Some(OperationDump {
        row: NIL,
        kind: Kind::Refusal,
        stage: Stage::Queued,
        obstacle: if frame.refused { Obstacle::Room } else { Obstacle::None },
        synchronous: false,
        ready: false,
        plane: plane(context),
        comm: context::id(context),
        context: context::base(context),
        rank: comm.and_then(|comm| comm.rank_of(vc.proc)),
        peer: Some(vc.proc),
        tag: None,
        bytes: 0,
        done: 0,
        age: None,
        awaited: false,
        submitted: false,
        detached: false,
        collective: None,
    })
}

pub(super) fn messages(all: &Tables<'_>, now: Stamp) -> Vec<MessageDump> {
    let queue = &all.progress.unexpected;
    let (mut found, mut row) = (Vec::new(), queue.head);
    while let Some(entry) = queue.entries.get(row as usize) {
        let Unexpected { source, tag, vc, length, next, .. } = *entry;
        let message = entry.message();
        found.push(MessageDump {
            plane: plane(entry.context),
            comm: context::id(entry.context),
            context: context::base(entry.context),
            rank: source,
            peer: all.vcs.get(vc as usize).map(|vc| vc.proc),
            tag,
            bytes: length,
            offered: message != NIL,
            age: age(queue.came(row), now),
        });
        row = next;
    }
    found
}

fn plane(word: u32) -> Plane {
    match context::plane(word) {
        context::USER => Plane::User,
        context::GROUP => Plane::Group,
        context::COLLECTIVE | context::ABANDONED | context::BLOCK | context::BLOCK_ABANDONED => Plane::Collective,
        _ => Plane::Agreement,
    }
}

pub(super) fn age(stamp: Option<Stamp>, now: Stamp) -> Option<Age> {
    let Stamp { tick, now_ns } = stamp?;
    Some(Age { ticks: now.tick.saturating_sub(tick), ns: now.now_ns.saturating_sub(now_ns) })
}
