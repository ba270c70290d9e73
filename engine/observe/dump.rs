//! The walk over all tables: what is pending, whatever the transport.

use crate::run::engine::{Closed, Engine};
use std::collections::BTreeSet;
use std::mem::size_of;
use tickwire_components::credit::{LINE_BYTES, cost};
use tickwire_components::limits::ANY;
use tickwire_components::{
    Arrival, Buffer, Car, CarKind, CarState, CommState, Communicator, Control, ControlFrame, Held, Large, Members, NIL,
    Request, RequestState, Row, Stamp, Unexpected, Vc, VcState, Way, car_flags, context,
};
use tickwire_systems::ProgressSystems;
use tickwire_systems::steps::chain::capacity;
use tickwire_systems::steps::credit::{collect, window};
use tickwire_systems::store::Tables;
use tickwire_traces::dump::{
    Accounting, Activity, Age, CommunicatorDump, Connection, CreditDump, Dump, HiddenDump, Kind, MessageDump, Obstacle,
    OperationDump, PeerDump, Plane, QueueBytes, SHOWN_MAX, Stage, SystemBytes, TrafficDump, TransportBytes,
};
use tickwire_transports::Traffic;

/// Members of a communicator that a dump lists at most.
const MEMBERS_MAX: usize = 4096;
/// Bytes of change ticks that bevy keeps for a component of a row.
const TICK_BYTES: usize = 8;

impl Engine {
    /// All that is pending: operations and messages with their envelopes, states, ages, peers and bytes, oldest first.
    ///
    /// Looks at every row, so it takes as long as the tables are large; nothing is changed. But messages that wait at a transport
    /// that matches by itself are moved into the engine's own queue first, where receives find them in the same order: a look at
    /// them there would show one of each kind. What it does not give is counted ([`Dump::hidden`]).
    pub fn dump(&mut self) -> Dump {
        self.sample_clock();
        let hidden = self.unhide();
        let now = self.store.progress().stamp();
        let awaited = self.observer.awaited;
        let accounting = self.accounting();
        let all = self.store.all();
        // What peers have written into this side's memory would be found when it is needed.
        for vc in all.vcs.iter_mut().filter(|vc| vc.state == VcState::Connected) {
            if let Some(endpoint) = all.endpoints.get_mut(vc.endpoint as usize) {
                collect(vc, endpoint);
            }
        }
        let mut operations: Vec<OperationDump> = (0..)
            .zip(all.requests.iter())
            .filter(|&(row, request)| is_used(&all.cars[row as usize], request))
            .map(|(row, _)| {
                let mut dumped = operation(&all, row, now);
                dumped.awaited = awaited.row == row && awaited.generation == all.requests[row as usize].generation;
                dumped
            })
            .collect();
        for operation in &mut operations {
            operation.submitted = all.callbacks.slot(operation.row).is_some();
        }
        operations.extend(all.progress.control.frames.iter().filter_map(|frame| refusal(&all, frame)));
        let mut unexpected = messages(&all, now);
        let peers = peers(&mut self.store.all(), &operations, &unexpected);
        let named: BTreeSet<u32> =
            operations.iter().map(|o| o.context).chain(unexpected.iter().map(|m| m.context)).collect();
        let (operations_left_out, unexpected_left_out) =
            (oldest(&mut operations, |o| o.age), oldest(&mut unexpected, |m| m.age));
        let all = self.store.all();
        Dump {
            job: self.exchange.job().to_owned(),
            rank: self.exchange.rank(),
            size: self.exchange.size(),
            pid: std::process::id(),
            tick: now.tick,
            now_ns: now.now_ns,
            activity: match self.closed {
                Closed::No if self.observer.waiting => Activity::Waiting,
                Closed::No => Activity::Ticking,
                _ => Activity::Closed,
            },
            active: all.progress.active,
            submissions: (all.inbound.shared().queue.len() + all.inbound.waiting().len()) as u64,
            communicators: communicators(all.communicators, |context| named.contains(&context)),
            peers,
            operations,
            unexpected,
            operations_left_out,
            unexpected_left_out,
            hidden,
            accounting,
        }
    }

    /// Moves what a transport that matches by itself holds into the engine's own queue.
    fn unhide(&mut self) -> Option<HiddenDump> {
        let all = self.store.all();
        if self.closed != Closed::No || !all.progress.has_provider() {
            return None;
        }
        let communicators = self.pull_everything();
        let all = self.store.all();
        let endpoint = all.endpoints.get_mut(all.progress.provider.endpoint as usize)?;
        let transport = endpoint.transport.get().name().to_owned();
        (communicators > 0).then_some(HiddenDump { transport, communicators })
    }

    /// Bytes by queue, table, transport and system, and how often each system has run. [`Engine::dump`] has those by peer.
    ///
    /// Looks at every row, as [`Engine::dump`].
    pub fn accounting(&mut self) -> Accounting {
        let runs = self.counters.runs();
        let mut all = self.store.all();
        let moved = all.progress.moved;
        let bytes = |set| match set {
            ProgressSystems::Post => moved.post,
            ProgressSystems::Transfer => moved.transfer,
            _ => 0,
        };
        let of = |set: &ProgressSystems| SystemBytes { runs: runs[*set as usize], bytes: bytes(*set) };
        let mut systems: Vec<_> = ProgressSystems::ORDER.iter().map(|set| (set.name().to_owned(), of(set))).collect();
        let delivered = SystemBytes { runs: runs[tickwire_traces::DELIVER], bytes: moved.deliver };
        systems.push(("deliver".to_owned(), delivered));
        Accounting { queues: queues(&all), tables: tables(&all), transports: transports(&mut all), systems }
    }
}

/// Whether a row is an operation that is not at rest.
fn is_used(car: &Car, request: &Request) -> bool {
    let operation = matches!(car.kind, CarKind::Send | CarKind::Receive);
    operation && car.state != CarState::Free && request.state != RequestState::Inactive
}

/// Keeps the oldest; returns how many were left out. What has no age comes last.
fn oldest<T>(items: &mut Vec<T>, age: impl Fn(&T) -> Option<Age>) -> u64 {
    items.sort_by_key(|item| std::cmp::Reverse(age(item)));
    let left_out = items.len().saturating_sub(SHOWN_MAX);
    items.truncate(SHOWN_MAX);
    left_out as u64
}

fn age(stamp: Option<Stamp>, now: Stamp) -> Option<Age> {
    let Stamp { tick, now_ns } = stamp?;
    Some(Age { ticks: now.tick.saturating_sub(tick), ns: now.now_ns.saturating_sub(now_ns) })
}

fn stage(car: &Car) -> Stage {
    match car.state {
        CarState::New => Stage::New,
        CarState::Posted | CarState::ToProvider | CarState::AtProvider | CarState::Recalled => Stage::Posted,
        CarState::Queued => Stage::Queued,
        CarState::Offered => Stage::Offered,
        CarState::Sending => Stage::Sending,
        CarState::Matched => Stage::Matched,
        CarState::Receiving => Stage::Receiving,
        CarState::Reading => Stage::Reading,
        CarState::Direct if car.kind == CarKind::Send => Stage::Sending,
        CarState::Direct => Stage::Receiving,
        CarState::Finished => Stage::Finished,
        _ => Stage::Done,
    }
}

fn plane(word: u32) -> Plane {
    match context::plane(word) {
        context::USER => Plane::User,
        context::GROUP => Plane::Group,
        _ => Plane::Agreement,
    }
}

/// What the sends of a VC's queue wait for: all of them for what the first one does.
fn obstacle(all: &Tables<'_>, vc: &Vc) -> Obstacle {
    let (Some(car), Some(large)) = (all.cars.get(vc.sends.head as usize), all.large.get(vc.sends.head as usize)) else {
        return Obstacle::None;
    };
    match vc.state {
        VcState::Unconnected | VcState::Connecting => Obstacle::Connection,
        VcState::Failed => Obstacle::None,
        // Its way is decided, and paid for.
        VcState::Connected if large.way != Way::Undecided => Obstacle::Room,
        VcState::Connected if vc.envelopes > 0 => Obstacle::None,
        VcState::Connected if vc.lines < cost(large.length) || car.flags & car_flags::ASKING != 0 => Obstacle::Credit,
        // What is longer than an eager message has to be offered too.
        VcState::Connected => match all.endpoints.get(vc.endpoint as usize) {
            Some(endpoint) if large.length <= endpoint.eager_max => Obstacle::None,
            _ => Obstacle::Credit,
        },
    }
}

fn operation(all: &Tables<'_>, row: Row, now: Stamp) -> OperationDump {
    let (car, large, request) = (&all.cars[row as usize], &all.large[row as usize], &all.requests[row as usize]);
    let kind = match car.kind {
        CarKind::Send => Kind::Send,
        _ => Kind::Receive,
    };
    let stage = stage(car);
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
        obstacle: vc.filter(|_| stage == Stage::Queued).map_or(Obstacle::None, |vc| obstacle(all, vc)),
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
    }
}

/// An answer that is owed to a peer and has not left. Grants are counted by VC.
fn refusal(all: &Tables<'_>, frame: &ControlFrame) -> Option<OperationDump> {
    let context = match frame.what {
        Control::Refusal { context, .. } => context,
        Control::Acknowledgement { .. } => 0,
        Control::Credit(_) | Control::OfferCount(_) => return None,
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
    })
}

fn messages(all: &Tables<'_>, now: Stamp) -> Vec<MessageDump> {
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

/// Those with the lowest ids, and all that are named.
fn communicators(rows: &[Communicator], is_named: impl Fn(u32) -> bool) -> Vec<CommunicatorDump> {
    let used = (0..).zip(rows).filter(|(_, comm)| matches!(comm.state, CommState::Live | CommState::Closing));
    let used = used.filter(|(id, comm)| *id < SHOWN_MAX as u32 || is_named(context::base(comm.context)));
    let dumped = used.map(|(id, comm)| CommunicatorDump {
        id,
        context: context::base(comm.context),
        rank: comm.rank,
        size: comm.size,
        closing: comm.state == CommState::Closing,
        members: match &comm.members {
            Members::List(list) if list.len() <= MEMBERS_MAX => Some(list.to_vec()),
            _ => None,
        },
    });
    dumped.collect()
}

fn traffic(all: &mut Tables<'_>, row: usize) -> Option<TrafficDump> {
    let Vc { endpoint, link, .. } = all.vcs[row];
    let traffic = all.endpoints.get_mut(endpoint as usize)?.transport.get().traffic(link)?;
    let Traffic { sent, received, read, full, rings: [ring_sent, ring_received] } = traffic;
    Some(TrafficDump { sent, received, read, full, ring_sent, ring_received })
}

/// The credit of a connection, where so many lines of the peer's messages are kept.
fn credit(all: &Tables<'_>, vc: &Vc, kept_lines: u64) -> CreditDump {
    let (window, line) = (window(all.progress, vc), LINE_BYTES as u64);
    CreditDump {
        bytes: u64::from(vc.lines) * line,
        offers: vc.envelopes.into(),
        granted_bytes: u64::from(window.lines).saturating_sub(u64::from(vc.lines_owed) + kept_lines) * line,
        granted_offers: vc.envelopes_left.into(),
        window_bytes: u64::from(window.lines) * line,
        window_offers: window.envelopes.into(),
    }
}

fn peers(all: &mut Tables<'_>, operations: &[OperationDump], unexpected: &[MessageDump]) -> Vec<PeerDump> {
    let mut peers: Vec<PeerDump> = (0..all.vcs.len())
        .map(|row| {
            let vc = all.vcs[row];
            let failed = vc.state == VcState::Failed;
            let name =
                |endpoint: &mut tickwire_systems::procs::endpoint::Endpoint| endpoint.transport.get().name().to_owned();
            PeerDump {
                proc: vc.proc,
                transport: all.endpoints.get_mut(vc.endpoint as usize).map(name).unwrap_or_default(),
                state: match vc.state {
                    VcState::Unconnected => Connection::Unconnected,
                    VcState::Connecting => Connection::Connecting,
                    VcState::Connected => Connection::Connected,
                    VcState::Failed => Connection::Failed,
                },
                reason: failed.then(|| all.procs.reason(row as Row).to_owned()),
                traffic: traffic(all, row),
                ..PeerDump::default()
            }
        })
        .collect();
    let row_of = |all: &Tables<'_>, proc: Option<u32>| {
        all.procs.known.get(proc? as usize).map(|known| known.row as usize).filter(|&row| row < all.vcs.len())
    };
    for operation in operations {
        let Some(row) = row_of(all, operation.peer) else { continue };
        let left = operation.bytes.saturating_sub(operation.done);
        match operation.stage {
            Stage::Queued => peers[row].sends.add(left),
            Stage::Sending => peers[row].data.add(left),
            Stage::Posted => peers[row].posted.add(left),
            _ => {}
        }
    }
    let mut kept_lines = vec![0; peers.len()];
    for message in unexpected {
        if let Some(row) = row_of(all, message.peer) {
            peers[row].unexpected.add(message.bytes);
            kept_lines[row] += if message.offered { 0 } else { u64::from(cost(message.bytes)) };
        }
    }
    for ((peer, vc), kept) in peers.iter_mut().zip(all.vcs.iter()).zip(kept_lines) {
        peer.credit = (vc.state == VcState::Connected).then(|| credit(all, vc, kept));
    }
    peers
}

fn queues(all: &Tables<'_>) -> Vec<(String, QueueBytes)> {
    let mut posted = [QueueBytes::default(); 2];
    let mut others = [QueueBytes::default(); 5];
    let rows = (0..).zip(all.cars.iter().zip(all.requests.iter()));
    for (row, (car, _)) in rows.filter(|(_, (car, request))| is_used(car, request)) {
        let left = || all.large[row as usize].length.saturating_sub(car.done);
        match car.state {
            CarState::Posted | CarState::New | CarState::ToProvider | CarState::AtProvider | CarState::Recalled => {
                posted[usize::from(car.vc == NIL)].add(capacity(all.cars, row));
            }
            CarState::Queued => others[0].add(left()),
            CarState::Offered => others[1].add(left()),
            CarState::Sending => others[2].add(left()),
            CarState::Direct => others[if car.kind == CarKind::Send { 2 } else { 3 }].add(left()),
            CarState::Matched | CarState::Receiving => others[3].add(left()),
            CarState::Reading => others[3].add(all.large[row as usize].wanted.saturating_sub(car.done)),
            _ => others[4].add(car.done),
        }
    }
    let unexpected = &all.progress.unexpected;
    let waiting = messages(all, Stamp::default());
    let offered = waiting.iter().filter(|message| message.offered);
    let mut offers = QueueBytes::default();
    offered.for_each(|message| offers.add(message.bytes));
    let stored = QueueBytes { rows: u64::from(unexpected.count) - offers.rows, bytes: unexpected.bytes };
    let named = [
        ("receives posted for one source", posted[0]),
        ("receives posted for any source", posted[1]),
        ("messages unexpected, held in temporaries", stored),
        ("messages unexpected, held by their senders", offers),
        ("sends waiting for the connection, for credit or for room", others[0]),
        ("sends offered, waiting for a receive", others[1]),
        ("sends in pieces", others[2]),
        ("receives whose message is arriving", others[3]),
        ("operations done and not taken", others[4]),
    ];
    named.map(|(name, bytes)| (name.to_owned(), bytes)).into()
}

fn tables(all: &Tables<'_>) -> Vec<(String, QueueBytes)> {
    let row = |components: &[usize]| components.iter().map(|bytes| bytes + TICK_BYTES).sum::<usize>() as u64;
    let operation = row(&[size_of::<Car>(), size_of::<Large>(), size_of::<Request>(), size_of::<Held>()]);
    let table = |rows: usize, bytes: u64| QueueBytes { rows: rows as u64, bytes: rows as u64 * bytes };
    let progress = &all.progress;
    let (entries, used) = (progress.unexpected.entries.capacity(), all.buffers.len() as u64);
    let held: u64 = all.buffers.iter().map(|buffer| buffer.capacity() as u64).sum();
    let named = [
        ("operations", table(all.cars.len(), operation)),
        ("ages of operations", QueueBytes { rows: 0, bytes: progress.stamps.bytes() as u64 }),
        (
            "index of posted receives",
            QueueBytes { rows: progress.posted.count.into(), bytes: progress.posted.bytes() as u64 },
        ),
        ("unexpected messages", table(entries, size_of::<Unexpected>() as u64)),
        ("arrivals", table(all.arrivals.len(), row(&[size_of::<Arrival>()]))),
        ("temporaries", table(all.buffers.len(), row(&[size_of::<Buffer>()]))),
        (
            "bytes of temporaries, in use",
            QueueBytes { rows: used - u64::from(progress.free_buffer_rows), bytes: held - progress.pool_bytes },
        ),
        ("bytes of temporaries, kept for the next message", QueueBytes { rows: 0, bytes: progress.pool_bytes }),
        ("communicators", table(all.communicators.len(), row(&[size_of::<Communicator>()]))),
        ("contacted procs", table(all.vcs.len(), row(&[size_of::<Vc>()]))),
        ("known procs", table(all.procs.known.len(), 4 + all.procs.card_bytes as u64)),
    ];
    named.map(|(name, bytes)| (name.to_owned(), bytes)).into()
}

fn transports(all: &mut Tables<'_>) -> Vec<TransportBytes> {
    let mut found: Vec<TransportBytes> = all
        .endpoints
        .iter_mut()
        .map(|endpoint| {
            let transport = endpoint.transport.get();
            let (name, shared_bytes) = (transport.name().to_owned(), transport.shared_bytes());
            TransportBytes { name, shared_bytes, ..Default::default() }
        })
        .collect();
    for row in 0..all.vcs.len() {
        if let Some(carried) = traffic(all, row)
            && let Some(transport) = found.get_mut(all.vcs[row].endpoint as usize)
        {
            transport.connections += 1;
            transport.traffic += carried;
        }
    }
    found
}
