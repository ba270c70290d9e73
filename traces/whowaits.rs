//! Who waits for whom: findings from the dumps of all ranks of a job. A function of data, no more.

mod cycles;
mod pairs;
mod report;
mod windows;

pub use report::{Culprit, Findings, RankReport, Wait};

use crate::dump::{Activity, Dump, Kind, Obstacle, OperationDump, Plane, Stage};
use crate::words::Bytes;

/// Analyses the reports of all ranks; `ranks[r]` is that of rank r.
pub fn who_waits(ranks: &[RankReport]) -> Findings {
    let mut waits = Vec::new();
    for (rank, report) in (0..).zip(ranks) {
        for dump in report.dumps() {
            waits_of(ranks, rank, dump, &mut waits);
            windows::waits_of(ranks, rank, dump, &mut waits);
        }
        if *report == RankReport::Starting {
            starts_with(ranks, rank, &mut waits);
        }
    }
    let cycles = cycles::find(ranks.len(), &waits);
    let culprits = cycles::culprits(ranks, &waits);
    Findings { waits, cycles, culprits }
}

/// What one engine waits for. If a call waits for one request, only that request blocks.
fn waits_of(ranks: &[RankReport], rank: u32, dump: &Dump, waits: &mut Vec<Wait>) {
    let waiting = dump.activity == Activity::Waiting;
    let one = dump.operations.iter().any(|operation| operation.awaited && operation.is_pending());
    for operation in
        dump.operations.iter().filter(|operation| operation.is_pending() && operation.kind != Kind::Refusal)
    {
        let blocking = waiting && (operation.awaited || (!one && !operation.submitted && !operation.detached));
        let because = pairs::because(ranks, rank, dump, operation);
        waits.push(Wait { rank, on: operation.peer, what: what(dump, operation), because, blocking });
    }
}

/// The ranks that a rank waits for while it builds its engine.
fn starts_with(ranks: &[RankReport], rank: u32, waits: &mut Vec<Wait>) {
    for (on, report) in (0..).zip(ranks).filter(|(_, r)| matches!(r, RankReport::Missing | RankReport::NoEngine)) {
        let (what, because) = (format!("rank {on} to build its engine"), vec![format!("rank {on} {}", report.does())]);
        waits.push(Wait { rank, on: Some(on), what, because, blocking: true });
    }
}

/// What an operation waits for.
fn what(dump: &Dump, operation: &OperationDump) -> String {
    let peer = operation.peer.map_or("any rank".to_owned(), |peer| format!("rank {peer}"));
    let place = place(dump, operation);
    let tag = operation.tag.map_or("any tag".to_owned(), |tag| format!("tag {tag}"));
    let bytes = Bytes(operation.bytes);
    if let Some(epoch) = windows::epoch_awaited(dump, operation, &peer) {
        return epoch;
    }
    if let Some(collective) = &operation.collective {
        return match operation.kind {
            Kind::Receive => {
                format!("{peer} to take part in {} of {}", collective.name, dump.comm_name(operation.comm))
            }
            _ => format!("{peer} to take its part of {} of {}", collective.name, dump.comm_name(operation.comm)),
        };
    }
    if operation.plane != Plane::User {
        return match operation.kind {
            Kind::Receive => format!("{peer} to take part in an operation{place}"),
            _ => format!("{peer} to take its part of an operation{place}"),
        };
    }
    match (operation.kind, operation.stage) {
        (Kind::Receive, Stage::New | Stage::Posted) => format!("{tag} from {peer}{place}"),
        (Kind::Receive, _) => format!("the rest of tag {} from {peer}{place}", operation.tag.unwrap_or(0)),
        (_, Stage::Offered) => format!("{peer} to receive {tag}, {bytes}{place}"),
        (_, Stage::Sending) => format!("{peer} to take the rest of {tag}, {} of {bytes}{place}", Bytes(operation.done)),
        _ => match operation.obstacle {
            Obstacle::Credit => format!("{peer} to give credit for {tag}, {bytes}{place}"),
            Obstacle::Connection => format!("the connection to {peer} for {tag}, {bytes}{place}"),
            _ => format!("{peer} to make room for {tag}, {bytes}{place}"),
        },
    }
}

/// Names communicator and plane, unless it is an application's message in the world.
fn place(dump: &Dump, operation: &OperationDump) -> String {
    let name = dump.comm_name(operation.comm);
    match operation.plane {
        Plane::User if operation.comm == 0 => String::new(),
        Plane::User => format!(" in {name}"),
        Plane::Agreement => format!(" of all of {name}"),
        Plane::Group => format!(" of a group in {name}"),
        Plane::Collective => format!(" of a collective operation of {name}"),
    }
}

#[cfg(test)]
mod tests;
