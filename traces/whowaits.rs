//! Who waits for whom: findings from the dumps of all ranks of a job. A function of data, no more.

mod cycles;
mod pairs;
mod windows;

use crate::dump::{Activity, Dump, Kind, Obstacle, OperationDump, Plane, Stage};
use crate::words::Bytes;
use std::fmt;

/// What is known of a rank.
#[derive(Clone, PartialEq, Eq, Debug, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RankReport {
    /// The dumps of its engines; usually one.
    Dumped(Vec<Dump>),
    /// The rank has no process: it has ended, or was never started.
    Missing,
    /// The rank runs on another host, where no process was asked.
    Elsewhere {
        /// The number of the host.
        host: u32,
    },
    /// The rank's process has no engine: it has not built one yet, or has closed it.
    NoEngine,
    /// The rank is building its engine, which waits until all ranks do so.
    Starting,
    /// The rank does not tick: it computes, or is blocked elsewhere.
    Silent {
        /// Time since its clock was last read, ns.
        ns: u64,
    },
    /// The rank cannot be asked. Holds the reason.
    Unknown(String),
}

/// One thing that a rank waits for.
#[derive(Clone, PartialEq, Eq, Debug, serde::Serialize)]
pub struct Wait {
    /// The rank that waits.
    pub rank: u32,
    /// The rank that it waits for; `None` for a receive from any source.
    pub on: Option<u32>,
    /// What it waits for, as text that follows "rank 2 waits for".
    pub what: String,
    /// Why that does not happen, as far as the dumps show.
    pub because: Vec<String>,
    /// Whether the rank is blocked until then.
    pub blocking: bool,
}

/// What the dumps of all ranks show together.
#[derive(Clone, PartialEq, Eq, Debug, Default, serde::Serialize)]
pub struct Findings {
    /// All waits, by rank, oldest first.
    pub waits: Vec<Wait>,
    /// Cycles of ranks that wait for each other: each for the next one, and the last for the first.
    pub cycles: Vec<Vec<u32>>,
    /// Ranks that others wait for, directly or indirectly, and that wait for no rank themselves.
    pub culprits: Vec<Culprit>,
}

/// A rank that others wait for and that waits for no rank itself.
#[derive(Clone, PartialEq, Eq, Debug, serde::Serialize)]
pub struct Culprit {
    /// The rank.
    pub rank: u32,
    /// The ranks that wait for it, directly or indirectly.
    pub waiting: Vec<u32>,
    /// What it does instead, as text.
    pub does: String,
}

impl RankReport {
    /// The dumps; empty if the rank has given none.
    fn dumps(&self) -> &[Dump] {
        match self {
            RankReport::Dumped(dumps) => dumps,
            _ => &[],
        }
    }

    /// What the rank does, as text that follows "rank 2".
    pub fn does(&self) -> String {
        match self {
            RankReport::Dumped(dumps) if dumps.iter().any(|dump| dump.activity == Activity::Waiting) => {
                "waits in a call".into()
            }
            RankReport::Dumped(dumps) if dumps.iter().all(|dump| dump.activity == Activity::Closed) => {
                "has closed its engine".into()
            }
            RankReport::Dumped(_) => "ticks, and waits in no call".into(),
            RankReport::Missing => "has no process: it has ended or was never started".into(),
            RankReport::Elsewhere { host } => {
                format!("runs on host {host}, which was not asked: see `tickwire whowaits --hosts`")
            }
            RankReport::NoEngine => "has no engine: it has not built one yet, or has closed it".into(),
            RankReport::Starting => "is building its engine, and waits for the other ranks to do so".into(),
            RankReport::Silent { ns } => {
                format!("does not tick: last seen ticking {} ago", crate::words::Nanoseconds(*ns))
            }
            RankReport::Unknown(words) => format!("cannot be asked: {words}"),
        }
    }
}

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

impl fmt::Display for Findings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.waits.is_empty() {
            writeln!(f, "nobody waits for a message")?;
        }
        for wait in &self.waits {
            let Wait { rank, what, because, blocking, .. } = wait;
            write!(
                f,
                "rank {rank} {} {what}",
                if *blocking { "waits for" } else { "has pending, but does not wait for," }
            )?;
            for words in because {
                write!(f, "; {words}")?;
            }
            writeln!(f)?;
        }
        for cycle in &self.cycles {
            let names: Vec<String> = cycle.iter().chain(cycle.first()).map(u32::to_string).collect();
            writeln!(f, "cycle: rank {}: each waits for the next", names.join(" → "))?;
        }
        for Culprit { rank, waiting, does } in &self.culprits {
            writeln!(f, "{} for rank {rank}, which {does}", everybody(waiting))?;
        }
        Ok(())
    }
}

fn everybody(ranks: &[u32]) -> String {
    const NAMED: usize = 8;
    let names: Vec<String> = ranks.iter().take(NAMED).map(u32::to_string).collect();
    match ranks {
        [one] => format!("rank {one} waits"),
        _ if ranks.len() > NAMED => format!("ranks {} and {} more wait", names.join(", "), ranks.len() - NAMED),
        _ => format!("ranks {} wait", names.join(", ")),
    }
}

#[cfg(test)]
mod tests;
