//! What is known of ranks, and what was found out from that.

use crate::dump::{Activity, Dump};
use crate::words::Nanoseconds;
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
    pub(super) fn dumps(&self) -> &[Dump] {
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
                format!("does not tick: last seen ticking {} ago", Nanoseconds(*ns))
            }
            RankReport::Unknown(words) => format!("cannot be asked: {words}"),
        }
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
