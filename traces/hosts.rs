//! The protocol by which a command asks a process on another host about the ranks there. A question has sixteen bytes; the answer is
//! JSON. Every byte of both may be hostile.

use crate::dump::{Dump, SHOWN_MAX};
use crate::page::{ENDPOINTS_MAX, PEERS_MAX, Snapshot};
use crate::whowaits::RankReport;
use crate::words::clean_json;

/// Longest answer, bytes: enough for over a hundred ranks of a host, each with as much pending as a dump shows.
pub const ANSWER_BYTES_MAX: usize = 64 << 20;
/// Engines of one process in an answer at most.
const ENGINES_MAX: usize = 64;
/// Version of the question.
const VERSION: u8 = 1;

/// What is asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum What {
    /// What is pending: [`RankAnswer::report`].
    Dumps,
    /// Figures: [`RankAnswer::page`].
    Pages,
}

/// A question about the ranks of a host.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Question {
    /// What is asked for.
    pub what: What,
    /// Of which rank; `None` for all.
    pub rank: Option<u32>,
    /// How long the ranks may take to answer, ms.
    pub patience_ms: u32,
}

impl Question {
    /// Encodes the question.
    pub fn to_bytes(self) -> [u8; 16] {
        let mut bytes = [0; 16];
        bytes[0] = VERSION;
        bytes[1] = match self.what {
            What::Dumps => 1,
            What::Pages => 2,
        };
        bytes[4..8].copy_from_slice(&self.rank.unwrap_or(u32::MAX).to_be_bytes());
        bytes[8..12].copy_from_slice(&self.patience_ms.to_be_bytes());
        bytes
    }

    /// Decodes a question.
    ///
    /// # Errors
    /// A description of what is invalid.
    pub fn of_bytes(bytes: [u8; 16]) -> Result<Self, &'static str> {
        let [version, what, _, _, r0, r1, r2, r3, p0, p1, p2, p3, ..] = bytes;
        let what = match what {
            1 => What::Dumps,
            2 => What::Pages,
            _ => return Err("an unknown question: use one build of tickwire on all hosts"),
        };
        if version != VERSION {
            return Err("a question of another version: use one build of tickwire on all hosts");
        }
        let rank = u32::from_be_bytes([r0, r1, r2, r3]);
        let patience_ms = u32::from_be_bytes([p0, p1, p2, p3]);
        Ok(Question { what, rank: (rank != u32::MAX).then_some(rank), patience_ms })
    }
}

/// A process's answer about the ranks that it can see.
#[derive(Clone, PartialEq, Eq, Debug, Default, serde::Serialize, serde::Deserialize)]
pub struct Answer {
    /// The time of that host's clock, by which its pages are stamped, ns.
    pub now_ns: u64,
    /// The ranks, each at most once.
    pub ranks: Vec<RankAnswer>,
}

/// The answer about a rank.
#[derive(Clone, PartialEq, Eq, Debug, Default, serde::Serialize, serde::Deserialize)]
pub struct RankAnswer {
    /// The rank.
    pub rank: u32,
    /// Its process id on that host.
    pub pid: u32,
    /// What is pending, if the question asks for that.
    #[serde(default)]
    pub report: Option<RankReport>,
    /// Its figures, if the question asks for them and the rank has an engine.
    #[serde(default)]
    pub page: Option<Snapshot>,
}

impl Answer {
    /// Decodes an answer about a job of `size` ranks. It refuses answers with more entries than honest ones have, so that their
    /// processing takes bounded time. It removes control characters from text.
    ///
    /// # Errors
    /// A description of what is invalid.
    pub fn parse(bytes: &[u8], size: u32) -> Result<Self, String> {
        let text = str::from_utf8(bytes).map_err(|error| error.to_string())?;
        let mut answer: Answer = serde_json::from_str(&clean_json(text)).map_err(|error| error.to_string())?;
        answer.ranks.sort_by_key(|of| of.rank);
        if answer.ranks.windows(2).any(|two| two[0].rank == two[1].rank) {
            return Err("a rank is named twice".into());
        }
        for of in &answer.ranks {
            if of.rank >= size {
                return Err(format!("rank {} of {size}", of.rank));
            }
            of.page.as_ref().map_or(Ok(()), check_page)?;
            match &of.report {
                Some(RankReport::Dumped(dumps)) if dumps.len() > ENGINES_MAX || dumps.is_empty() => {
                    return Err(format!("{} engines in a process", dumps.len()));
                }
                Some(RankReport::Dumped(dumps)) => dumps.iter().try_for_each(|dump| check_dump(dump, size))?,
                _ => {}
            }
        }
        Ok(answer)
    }
}

/// Refuses what an honest dump never contains.
fn check_dump(dump: &Dump, size: u32) -> Result<(), String> {
    let most = SHOWN_MAX as u64;
    let Dump { operations, unexpected, peers, communicators, windows, regions, elsewhere, .. } = dump;
    let counts = [
        ("operations", operations.len(), most),
        ("messages", unexpected.len(), most),
        ("peers", peers.len(), size.into()),
        // The communicators with the lowest numbers, and those of the operations and messages that are listed.
        ("communicators", communicators.len(), 3 * most),
        ("windows", windows.len(), u64::from(u16::MAX)),
        ("regions", regions.len(), most),
        ("runs of ranks", elsewhere.len(), size.into()),
        // A rank waits in one call.
        ("awaited locks", windows.iter().filter(|window| window.awaited.is_some()).count(), 1),
    ];
    let of_communicators = communicators.iter().flat_map(|comm| {
        let members = comm.members.as_ref().map_or(0, Vec::len);
        [("members of a communicator", members, size.into()), ("persistent operations", comm.persistent.len(), most)]
    });
    let of_windows = windows.iter().flat_map(|window| {
        let awaited = window.awaited.as_ref().map_or(0, |lock| lock.holders.len());
        let lists = [window.holders.len(), awaited, window.pending.len(), window.by_fabric.len()];
        lists.map(|count| ("members in a list of a window", count, size.into()))
    });
    let mut counts = counts.into_iter().chain(of_communicators).chain(of_windows);
    match counts.find(|&(_, count, most)| count as u64 > most) {
        Some((name, count, most)) => Err(format!("{count} {name} in a dump, which has at most {most}")),
        None => Ok(()),
    }
}

fn check_page(page: &Snapshot) -> Result<(), String> {
    if page.peers.len() > PEERS_MAX || page.endpoints.len() > ENDPOINTS_MAX {
        return Err("more peers or transports than a page has".into());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dump::{CommunicatorDump, HolderDump, LockDump, OperationDump, WindowDump};

    #[test]
    fn questions_come_back_as_they_were_and_others_are_refused() {
        for (what, rank) in [(What::Dumps, None), (What::Pages, Some(7)), (What::Dumps, Some(0))] {
            let question = Question { what, rank, patience_ms: 1234 };
            assert_eq!(Question::of_bytes(question.to_bytes()), Ok(question));
        }
        assert!(Question::of_bytes([0; 16]).is_err());
        let mut other = Question { what: What::Dumps, rank: None, patience_ms: 0 }.to_bytes();
        other[0] = 2;
        assert!(Question::of_bytes(other).unwrap_err().contains("version"));
    }

    fn of_rank(rank: u32, report: RankReport) -> RankAnswer {
        RankAnswer { rank, report: Some(report), ..RankAnswer::default() }
    }

    fn read(ranks: Vec<RankAnswer>) -> Result<Answer, String> {
        Answer::parse(&serde_json::to_vec(&Answer { now_ns: 5, ranks }).unwrap(), 4)
    }

    #[test]
    fn honest_answers_come_back_as_they_were() {
        let dumped = of_rank(2, RankReport::Dumped(vec![Dump { job: "a".into(), ..Dump::default() }]));
        let page = RankAnswer { page: Some(Snapshot { ticks: 9, ..Snapshot::default() }), ..RankAnswer::default() };
        let silent = of_rank(3, RankReport::Silent { ns: 7 });
        let ranks = vec![page, dumped, silent];
        assert_eq!(read(ranks.clone()), Ok(Answer { now_ns: 5, ranks }));
    }

    #[test]
    fn what_no_honest_process_says_is_refused() {
        assert!(Answer::parse(b"", 4).is_err() && Answer::parse(b"{\"now_ns\":1,\"ranks\":[{}]}", 4).is_err());
        assert!(Answer::parse(&[b'['; 100_000], 4).is_err());
        assert_eq!(read(vec![of_rank(4, RankReport::NoEngine)]).unwrap_err(), "rank 4 of 4");
        let twice =
            vec![of_rank(1, RankReport::NoEngine), of_rank(0, RankReport::Missing), of_rank(1, RankReport::Missing)];
        assert!(read(twice).unwrap_err().contains("twice"));
        let many = Dump { operations: vec![OperationDump::default(); SHOWN_MAX + 1], ..Dump::default() };
        assert!(read(vec![of_rank(0, RankReport::Dumped(vec![many]))]).unwrap_err().contains("1001 operations"));
        assert!(read(vec![of_rank(0, RankReport::Dumped(Vec::new()))]).is_err());
        let dumped = |dump: Dump| read(vec![of_rank(0, RankReport::Dumped(vec![dump]))]);
        let awaits = WindowDump { awaited: Some(LockDump::default()), ..WindowDump::default() };
        let refused = dumped(Dump { windows: vec![awaits.clone(), awaits.clone()], ..Dump::default() });
        assert!(refused.unwrap_err().contains("2 awaited locks"));
        assert!(dumped(Dump { windows: vec![awaits, WindowDump::default()], ..Dump::default() }).is_ok());
        let crowded = WindowDump { holders: vec![HolderDump::default(); 5], ..WindowDump::default() };
        assert!(dumped(Dump { windows: vec![crowded], ..Dump::default() }).unwrap_err().contains("5 members"));
        let crowded = CommunicatorDump { members: Some(vec![0; 5]), ..CommunicatorDump::default() };
        assert!(dumped(Dump { communicators: vec![crowded], ..Dump::default() }).unwrap_err().contains("5 members"));
        let cleaned = dumped(Dump { job: "\u{1b}[2J".into(), ..Dump::default() }).unwrap();
        assert!(matches!(&cleaned.ranks[0].report, Some(RankReport::Dumped(dumps)) if dumps[0].job == " [2J"));
        let words = read(vec![of_rank(0, RankReport::Unknown("\u{1b}[2Jgone\n".into()))]).unwrap();
        assert_eq!(words.ranks[0].report, Some(RankReport::Unknown(" [2Jgone ".into())));
    }
}
