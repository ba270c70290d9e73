//! Asking the other hosts of a job. An engine of this host says where the ranks of the others listen, and what they have to be shown; one
//! rank of each host answers for all that it can see there.

use super::{ASKED_AT_ONCE, Process, call, listen};
use crate::observe::answer::Way;
use crate::observe::door::HOSTS;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::time::{Duration, Instant};
use tickwire_traces::hosts::{ANSWER_BYTES_MAX, Answer, Question, RankAnswer, What};
use tickwire_traces::page::Snapshot;
use tickwire_traces::whowaits::RankReport;
use tickwire_transports::WatcherDoor;
use tickwire_transports::ofi::{ask, hear_all};

/// Engines of this host that are asked for the ways to the others, at most.
const GUIDES_MAX: usize = 4;
/// Ranks of a host that are asked at most while none answers, and at most after one has.
const TRIES_MAX: usize = 3;
const MORE_MAX: usize = 16;
/// What an answer may take on its way beside what was asked for.
const WAY_TIME: Duration = Duration::from_secs(1);
/// The least time for a connection.
const CALL_TIME_MIN: Duration = Duration::from_millis(100);

/// The ranks of a host that can be asked from this one.
struct Host {
    /// Its number; `None` of a rank whose host the launcher does not tell.
    number: Option<u32>,
    doors: Vec<(u32, WatcherDoor)>,
    /// Who has answered last.
    good: usize,
}

/// The other hosts of a job.
pub struct Hosts {
    size: u32,
    hosts: Vec<Host>,
}

/// What became of a question about a rank.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Told {
    /// Its host has answered.
    Answer {
        /// The answer.
        of: Box<RankAnswer>,
        /// The clock of its pages at that time, ns.
        now_ns: u64,
    },
    /// Its host has answered, and has no process of it.
    Absent,
    /// It cannot be asked, for this reason.
    Unknown(String),
}

impl Hosts {
    /// The other hosts of the job of some processes: none, if all ranks run on this one.
    ///
    /// # Errors
    /// No engine here says how they are asked: none of them ticks.
    pub fn of(processes: &[Process], patience: Duration) -> Result<Self, String> {
        let size = processes.first().map_or(0, |process| process.size);
        let (mut reason, mut silent) = (None, 0);
        for process in processes.iter().filter(|process| !process.pages.is_empty()) {
            match ways(process, patience / GUIDES_MAX as u32) {
                Ok(ways) => return Ok(Hosts { size, hosts: by_host(ways) }),
                // It has no such door: it needs none.
                Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {}
                Err(error) => {
                    reason.get_or_insert((process.pid, error));
                    silent += 1;
                    if silent == GUIDES_MAX {
                        break;
                    }
                }
            }
        }
        match reason {
            Some((pid, error)) => Err(format!("process {pid} does not say how other hosts are asked ({error})")),
            None => Ok(Hosts { size, hosts: Vec::new() }),
        }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.hosts.is_empty()
    }

    /// Asks about some ranks, all hosts at the same time. It takes three times `patience` and a second at most, for each 64 hosts.
    /// Ranks that nobody can be asked about are left out.
    pub fn ask(&mut self, what: What, wanted: &[u32], patience: Duration) -> BTreeMap<u32, Told> {
        let mut told = BTreeMap::new();
        let (size, wanted): (u32, BTreeSet<u32>) = (self.size, wanted.iter().copied().collect());
        let rank = if wanted.len() == 1 { wanted.first().copied() } else { None };
        let patience_ms = u32::try_from(patience.as_millis() / 2).unwrap_or(u32::MAX);
        let inquiry = Inquiry { question: Question { what, rank, patience_ms }, size, patience };
        let mut concerned: Vec<&mut Host> =
            self.hosts.iter_mut().filter(|host| host.doors.iter().any(|(rank, _)| wanted.contains(rank))).collect();
        for some in concerned.chunks_mut(ASKED_AT_ONCE) {
            std::thread::scope(|scope| {
                let (inquiry, wanted) = (&inquiry, &wanted);
                let threads: Vec<_> = some.iter_mut().map(|host| scope.spawn(|| host.ask(inquiry, wanted))).collect();
                for thread in threads {
                    told.extend(thread.join().unwrap_or_default());
                }
            });
        }
        told
    }
}

/// What is asked of each host.
struct Inquiry {
    question: Question,
    size: u32,
    patience: Duration,
}

impl Host {
    /// What is known of those of its ranks that are wanted.
    fn ask(&mut self, inquiry: &Inquiry, wanted: &BTreeSet<u32>) -> BTreeMap<u32, Told> {
        let mut told: BTreeMap<u32, Told> = BTreeMap::new();
        let mut refused = BTreeSet::new();
        let (mut failures, mut answers, mut reason) = (0, 0, None);
        let first = self.good;
        // A rank that is wanted for itself can say most.
        let mut places: Vec<usize> = (first..self.doors.len()).chain(0..first).collect();
        places.sort_by_key(|&place| place != first && !wanted.contains(&self.doors[place].0));
        for place in places {
            let (rank, door) = self.doors[place];
            let known = |rank: &u32| matches!(told.get(rank), Some(Told::Answer { .. }));
            if failures >= TRIES_MAX || answers >= MORE_MAX || self.wanted(wanted).all(|rank| known(&rank)) {
                break;
            }
            // Once one has answered for its host, others are asked for themselves: they may be in a container.
            if answers > 0 && (known(&rank) || !wanted.contains(&rank)) {
                continue;
            }
            match inquiry.ask(&door) {
                Ok(answer) => {
                    (self.good, answers) = (if answers == 0 { place } else { self.good }, answers + 1);
                    self.note(answer, wanted, &mut told);
                }
                Err(error) => {
                    // Who refuses has said so at once.
                    let is_refused = error.kind() == io::ErrorKind::ConnectionRefused;
                    failures += usize::from(!is_refused);
                    answers += usize::from(is_refused && answers > 0);
                    if is_refused {
                        refused.insert(rank);
                    }
                    let words = if error.kind() == io::ErrorKind::TimedOut {
                        "no answer".to_owned()
                    } else {
                        error.to_string()
                    };
                    reason.get_or_insert(format!("rank {rank} at {}: {words}", door.address));
                    if answers > 0 && !is_refused && wanted.contains(&rank) {
                        told.insert(rank, Told::Unknown(format!("it does not answer at {} ({words})", door.address)));
                    }
                }
            }
        }
        let host = self.number.map_or("its host".to_owned(), |number| format!("host {number}"));
        for rank in self.wanted(wanted) {
            told.entry(rank).or_insert_with(|| match &reason {
                _ if answers > 0 && refused.contains(&rank) => Told::Absent,
                _ if answers > 0 => Told::Unknown(format!("{host} has no process of it that could be asked")),
                Some(reason) => Told::Unknown(format!("{host} does not answer ({reason})")),
                None => Told::Unknown(format!("{host} was not asked")),
            });
        }
        told
    }

    /// Those of its ranks that are wanted.
    fn wanted(&self, wanted: &BTreeSet<u32>) -> impl Iterator<Item = u32> {
        self.doors.iter().map(|(rank, _)| *rank).filter(|rank| wanted.contains(rank))
    }

    /// Notes what a rank has answered: it speaks for its host, and for no other.
    fn note(&self, answer: Answer, wanted: &BTreeSet<u32>, told: &mut BTreeMap<u32, Told>) {
        for of in answer.ranks {
            let is_ours = wanted.contains(&of.rank) && self.doors.iter().any(|(rank, _)| *rank == of.rank);
            // It sees that there is a process, but cannot ask it: as well as nothing.
            let is_known =
                !matches!(of.report, Some(RankReport::Unknown(_) | RankReport::Missing | RankReport::Elsewhere { .. }));
            if is_ours && is_known {
                told.insert(of.rank, Told::Answer { of: Box::new(of), now_ns: answer.now_ns });
            }
        }
    }
}

impl Inquiry {
    /// Asks one rank.
    fn ask(&self, door: &WatcherDoor) -> io::Result<Answer> {
        let call_time = (self.patience / TRIES_MAX as u32).max(CALL_TIME_MIN);
        let mut stream = ask(door, self.question.to_bytes(), Instant::now() + call_time)?;
        let answer = hear_all(&mut stream, ANSWER_BYTES_MAX, Instant::now() + self.patience + WAY_TIME)?;
        let strange = |words| io::Error::new(io::ErrorKind::InvalidData, format!("what is no answer: {words}"));
        Answer::parse(&answer, self.size).map_err(strange)
    }
}

/// Asks an engine of this host for the ways to the others.
fn ways(process: &Process, patience: Duration) -> io::Result<Vec<Way>> {
    let end = Instant::now() + patience;
    let mut refused = io::Error::from(io::ErrorKind::ConnectionRefused);
    for page in process.pages.iter().flat_map(Snapshot::read) {
        match call(process.pid, &page, HOSTS).and_then(|stream| listen(stream, end)) {
            Ok(answer) => return Ok(serde_json::from_slice(&answer)?),
            Err(error) => refused = error,
        }
    }
    Err(refused)
}

/// The ranks of each host. One whose address cannot be read cannot be asked.
fn by_host(ways: Vec<Way>) -> Vec<Host> {
    let mut hosts: BTreeMap<(Option<u32>, u32), Host> = BTreeMap::new();
    for (rank, number, address, secret) in ways {
        let Ok(address) = address.parse() else { continue };
        let key = (number, if number.is_some() { 0 } else { rank });
        let host = hosts.entry(key).or_insert_with(|| Host { number, doors: Vec::new(), good: 0 });
        host.doors.push((rank, WatcherDoor { address, secret }));
    }
    hosts.into_values().collect()
}
