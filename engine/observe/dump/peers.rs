//! The communicators and peers of a dump.

use tickwire_components::credit::{LINE_BYTES, cost};
use tickwire_components::limits::DUMPED_MEMBERS_MAX;
use tickwire_components::{CommState, Members, NIL, Row, TrafficClass, Vc, VcState, context};
use tickwire_systems::procs::routes::{Candidate, candidates, endpoint_for};
use tickwire_systems::steps::credit::window;
use tickwire_systems::store::Tables;
use tickwire_traces::dump::{
    CommunicatorDump, Connection, CreditDump, FailedRouteDump, MessageDump, OperationDump, PeerDump, RouteDump,
    SHOWN_MAX, Stage, StartDump, TrafficDump,
};
use tickwire_transports::Traffic;

/// The communicators with the lowest ids, and all that `is_named` names.
pub(super) fn communicators(all: &Tables<'_>, is_named: impl Fn(u32) -> bool) -> Vec<CommunicatorDump> {
    let starts = starts(all);
    let made = |word: u32| all.progress.graphs.made.iter().find(|(of, _)| *of == word).map_or(0, |(_, made)| *made);
    let used = (0..)
        .zip(all.communicators.iter())
        .filter(|(_, comm)| matches!(comm.state, CommState::Live | CommState::Closing));
    let used = used.filter(|(id, comm)| *id < SHOWN_MAX as u32 || is_named(context::base(comm.context)));
    let dumped = used.map(|(id, comm)| CommunicatorDump {
        id,
        context: context::base(comm.context),
        rank: comm.rank,
        size: comm.size,
        closing: comm.state == CommState::Closing,
        members: match &comm.members {
            Members::List(list) if list.len() <= DUMPED_MEMBERS_MAX => Some(list.to_vec()),
            _ => None,
        },
        collectives: comm.collectives,
        persistent_made: made(comm.context),
        persistent: {
            let own = starts.iter().filter(|(word, _)| *word == context::base(comm.context));
            own.map(|(_, start)| *start).take(SHOWN_MAX).collect()
        },
    });
    dumped.collect()
}

/// How often persistent collective operations were started, by the context words of their communicators.
fn starts(all: &Tables<'_>) -> Vec<(u32, StartDump)> {
    let word = |request: Row| all.cars.get(request as usize).map_or(0, |car| context::base(car.context));
    let graphs = all.progress.graphs.list.iter().flatten();
    let graphs = graphs.filter(|graph| graph.persistent && graph.blocks.is_none());
    let graphs = graphs.map(|graph| (word(graph.request), StartDump { made: graph.call, starts: graph.starts }));
    // Those that run on boards have no graph any more.
    let kept = all.boards.persistent.iter().flatten().filter(|kept| kept.graph == NIL);
    let kept = kept.map(|kept| (word(kept.request), StartDump { made: kept.made, starts: kept.starts }));
    graphs.chain(kept).collect()
}

pub(super) fn peers(all: &mut Tables<'_>, operations: &[OperationDump], unexpected: &[MessageDump]) -> Vec<PeerDump> {
    let mut peers: Vec<PeerDump> = (0..all.vcs.len())
        .map(|row| {
            let vc = all.vcs[row];
            let failed = vc.state == VcState::Failed;
            let (routes, failed_routes) = routes(all, vc.proc);
            PeerDump {
                proc: vc.proc,
                transport: name(all, vc.endpoint),
                state: match vc.state {
                    VcState::Unconnected => Connection::Unconnected,
                    VcState::Connecting => Connection::Connecting,
                    VcState::Connected => Connection::Connected,
                    VcState::Failed => Connection::Failed,
                },
                reason: failed.then(|| all.procs.reason(row as Row).to_owned()),
                traffic: traffic(all, row),
                routes,
                failed_routes,
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

/// The name of an endpoint's transport.
fn name(all: &mut Tables<'_>, endpoint: u8) -> String {
    let endpoint = all.endpoints.get_mut(usize::from(endpoint));
    endpoint.map(|endpoint| endpoint.transport.get().name().to_owned()).unwrap_or_default()
}

/// The routes of a proc, as [`Engine::routes`](crate::Engine::routes) gives them: those that are used, and those that could not connect.
fn routes(all: &mut Tables<'_>, proc: u32) -> (Vec<RouteDump>, Vec<FailedRouteDump>) {
    let (mut routes, mut failed) = (Vec::new(), Vec::new());
    for class in TrafficClass::ALL {
        let transport = endpoint_for(all, proc, class).map(|endpoint| name(all, endpoint));
        routes.push(RouteDump { class: class.name().to_owned(), transport });
        for Candidate { endpoint, refused, .. } in candidates(all, proc, class).into_iter().filter(|of| of.failed) {
            let of = FailedRouteDump { transport: name(all, endpoint), reason: refused.unwrap_or_default() };
            if !failed.contains(&of) {
                failed.push(of);
            }
        }
    }
    (routes, failed)
}

pub(super) fn traffic(all: &mut Tables<'_>, row: usize) -> Option<TrafficDump> {
    let Vc { endpoint, link, .. } = all.vcs[row];
    let traffic = all.endpoints.get_mut(endpoint as usize)?.transport.get().traffic(link)?;
    let Traffic { sent, received, read, full, rings: [ring_sent, ring_received] } = traffic;
    Some(TrafficDump { sent, received, read, full, ring_sent, ring_received })
}

/// The credit of a connection. `kept_lines` is how many lines the unexpected messages of this peer take.
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
