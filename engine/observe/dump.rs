//! The walk over all tables that collects everything that is pending, whatever the transport.

mod accounts;
mod boards;
mod operations;
mod peers;
mod windows;

use crate::bootstrap::Exchange;
use crate::run::engine::{Closed, Engine};
use accounts::{queues, tables, transports};
use boards::board_operations;
use operations::{is_used, messages, operation, refusal};
use peers::{communicators, peers};
use std::collections::BTreeSet;
use tickwire_components::{Pending, RequestId, RequestState, Stamp, VcState};
use tickwire_systems::ProgressSystems;
use tickwire_systems::steps::credit::collect;
use tickwire_systems::store::Tables;
use tickwire_traces::dump::{
    Accounting, Activity, Age, Dump, HiddenDump, OperationDump, Plane, SHOWN_MAX, SystemBytes,
};
use windows::{regions, windows};

impl Engine {
    /// Everything that is pending: operations and messages with their envelopes, states, ages, peers and bytes, oldest first.
    ///
    /// Looks at every row, so the time grows with the tables. It changes nothing, with one exception: messages that wait at a transport
    /// which matches messages itself are moved into the engine's own queue, where receives find them in the same order. A look at the
    /// transport would show only one message of each kind. [`Dump::hidden`] counts what could not be moved.
    pub fn dump(&mut self) -> Dump {
        self.sample_clock();
        let hidden = self.unhide();
        let now = self.store.progress().stamp();
        let (awaited, agrees) = (self.observer.awaited, self.observer.agrees);
        let accounting = self.accounting();
        let mut all = self.store.all();
        // Credit that peers have written into this side's memory is otherwise collected only when it is needed.
        for vc in all.vcs.iter_mut().filter(|vc| vc.state == VcState::Connected) {
            if let Some(endpoint) = all.endpoints.get_mut(vc.endpoint as usize) {
                collect(vc, endpoint);
            }
        }
        // A send that waits for credit may have got it.
        if !all.progress.senders.is_empty() {
            all.progress.pending |= Pending::POST;
        }
        let mut operations = rows_in_use(&mut all, now, awaited, agrees);
        operations.extend(board_operations(&all, now));
        operations.extend(all.progress.control.frames.iter().filter_map(|frame| refusal(&all, frame)));
        let mut unexpected = messages(&all, now);
        let peers = peers(&mut self.store.all(), &operations, &unexpected);
        let (operations_left_out, unexpected_left_out) =
            (oldest(&mut operations, |o| o.age), oldest(&mut unexpected, |m| m.age));
        // Of those that are listed: their number is bounded.
        let named: BTreeSet<u32> =
            operations.iter().map(|o| o.context).chain(unexpected.iter().map(|m| m.context)).collect();
        let all = self.store.all();
        let (regions, regions_left_out) = regions(&all);
        Dump {
            job: self.exchange.job().to_owned(),
            rank: self.exchange.rank(),
            size: self.exchange.size(),
            pid: std::process::id(),
            host: self.exchange.host_of(self.exchange.rank()),
            elsewhere: elsewhere(&*self.exchange),
            tick: now.tick,
            now_ns: now.now_ns,
            activity: match self.closed {
                Closed::No if self.observer.waiting => Activity::Waiting,
                Closed::No => Activity::Ticking,
                _ => Activity::Closed,
            },
            active: all.progress.active,
            submissions: (all.inbound.shared().queue.len() + all.inbound.waiting().len()) as u64,
            communicators: communicators(&all, |context| named.contains(&context)),
            peers,
            operations,
            unexpected,
            windows: windows(&all),
            regions,
            regions_left_out,
            operations_left_out,
            unexpected_left_out,
            hidden,
            accounting,
        }
    }

    /// Moves messages from the transport that matches messages itself into the engine's own queue. Returns what is still hidden there.
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

/// The operations that have rows. `awaited` is the request that the application waits for; `agrees` says whether it waits for an agreement.
fn rows_in_use(all: &mut Tables<'_>, now: Stamp, awaited: RequestId, agrees: bool) -> Vec<OperationDump> {
    let mut operations = Vec::new();
    for row in (0..).take(all.requests.len()) {
        if !is_used(&all.cars[row as usize], &all.requests[row as usize]) {
            continue;
        }
        let mut dumped = operation(all, row, now);
        // A node of a graph belongs to the request of the graph.
        let owner = all.cars[row as usize].request;
        if let Some(request) = all.requests.get(owner as usize) {
            dumped.awaited = awaited.row == owner && awaited.generation == request.generation;
            dumped.detached = request.state == RequestState::Detached;
        }
        dumped.awaited |= agrees && matches!(dumped.plane, Plane::Agreement | Plane::Group);
        dumped.submitted = all.callbacks.slot(owner).is_some();
        operations.push(dumped);
    }
    operations
}

/// Keeps the oldest items, and returns how many were left out. Items without an age come last.
fn oldest<T>(items: &mut Vec<T>, age: impl Fn(&T) -> Option<Age>) -> u64 {
    items.sort_by_key(|item| std::cmp::Reverse(age(item)));
    let left_out = items.len().saturating_sub(SHOWN_MAX);
    items.truncate(SHOWN_MAX);
    left_out as u64
}

/// Ranks on other hosts, as runs of (first rank, how many, host).
fn elsewhere(exchange: &dyn Exchange) -> Vec<(u32, u32, u32)> {
    let here = exchange.host_of(exchange.rank());
    let mut runs: Vec<(u32, u32, u32)> = Vec::new();
    if exchange.hosts() == Some(1) {
        return runs;
    }
    for rank in 0..exchange.size() {
        match (exchange.host_of(rank), runs.last_mut()) {
            (None, _) => {}
            (host, _) if host == here => {}
            (Some(host), Some(run)) if run.2 == host && run.0 + run.1 == rank => run.1 += 1,
            (Some(host), _) => runs.push((rank, 1, host)),
        }
    }
    runs
}
