//! Asking the other hosts of a job. An engine on this host says where the ranks on the other hosts listen, and which secret they have to be
//! shown. One rank of each host answers for all ranks that it can see there.

use super::{HOSTS_AT_ONCE, Process, ask_engines};
use crate::observe::answer::Way;
use crate::observe::door::HOSTS;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::time::{Duration, Instant};
use tickwire_traces::hosts::{ANSWER_BYTES_MAX, Answer, Question, RankAnswer, What};
use tickwire_traces::whowaits::RankReport;
use tickwire_transports::WatcherDoor;
use tickwire_transports::ofi::{ask, hear_all};

/// Most engines on this host that are asked how to reach the other hosts.
const GUIDES_MAX: usize = 4;
/// Most ranks of a host that are asked while none answers, and most that are asked after one has answered.
const TRIES_MAX: usize = 3;
const MORE_MAX: usize = 16;
/// Extra time that an answer may take on its way, beside the time that was asked for.
const WAY_TIME: Duration = Duration::from_secs(1);
/// Shortest time that is allowed for a connection.
const CALL_TIME_MIN: Duration = Duration::from_millis(100);

/// The ranks of a host that can be asked from this one.
struct Host {
    /// The host's number. `None` for a rank whose host the launcher does not tell.
    number: Option<u32>,
    doors: Vec<(u32, WatcherDoor)>,
    /// The index of the door that has answered last.
    good: usize,
}

/// The other hosts of a job.
pub struct Hosts {
    size: u32,
    /// Whether an engine has said how to ask them. If none has a door for that, there are no other hosts.
    exist: bool,
    hosts: Vec<Host>,
}

/// The result of a question about a rank.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Told {
    /// The rank's host has answered.
    Answer {
        /// The answer.
        of: Box<RankAnswer>,
        /// The clock of the host's pages at that time, ns.
        now_ns: u64,
    },
    /// The rank's host has answered, and has no process of the rank.
    Absent,
    /// The rank cannot be asked, for this reason.
    Unknown(String),
}

impl Hosts {
    /// The other hosts of a job, of which `processes` are on this host. Empty if all ranks run on this host.
    ///
    /// # Errors
    /// No engine here says how to ask the other hosts, since none of them ticks.
    pub fn of(processes: &[Process], patience: Duration) -> Result<Self, String> {
        let size = processes.first().map_or(0, |process| process.size);
        let (mut reason, mut silent) = (None, 0);
        for process in processes.iter().filter(|process| !process.pages.is_empty()) {
            match ways(process, patience / GUIDES_MAX as u32) {
                Ok(ways) => return Ok(Hosts { size, exist: true, hosts: by_host(ways) }),
                // This engine has no door for such questions, since it needs none.
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
            None => Ok(Hosts { size, exist: false, hosts: Vec::new() }),
        }
    }

    /// Whether there are no other hosts: all ranks run on this one. Not so if there are some, of which none can be asked.
    pub fn is_empty(&self) -> bool {
        !self.exist
    }

    /// Asks about some ranks, all hosts at the same time. For each 64 hosts it takes at most three times `patience` and a second. Ranks
    /// that nobody can be asked about are left out of the result.
    pub fn ask(&mut self, what: What, wanted: &[u32], patience: Duration) -> BTreeMap<u32, Told> {
        let mut told = BTreeMap::new();
        let (size, wanted): (u32, BTreeSet<u32>) = (self.size, wanted.iter().copied().collect());
        let rank = if wanted.len() == 1 { wanted.first().copied() } else { None };
        let patience_ms = u32::try_from(patience.as_millis() / 2).unwrap_or(u32::MAX);
        let inquiry = Inquiry { question: Question { what, rank, patience_ms }, size, patience };
        let mut concerned: Vec<&mut Host> =
            self.hosts.iter_mut().filter(|host| host.doors.iter().any(|(rank, _)| wanted.contains(rank))).collect();
        for some in concerned.chunks_mut(HOSTS_AT_ONCE) {
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

/// The question for each host.
struct Inquiry {
    question: Question,
    size: u32,
    patience: Duration,
}

impl Host {
    /// Asks the host's ranks. Returns what is known of those that are wanted.
    fn ask(&mut self, inquiry: &Inquiry, wanted: &BTreeSet<u32>) -> BTreeMap<u32, Told> {
        let mut told: BTreeMap<u32, Told> = BTreeMap::new();
        let mut refused = BTreeSet::new();
        let (mut failures, mut answers, mut reason) = (0, 0, None);
        let first = self.good;
        // A wanted rank can say most about itself, so these are asked first.
        let mut places: Vec<usize> = (first..self.doors.len()).chain(0..first).collect();
        places.sort_by_key(|&place| place != first && !wanted.contains(&self.doors[place].0));
        for place in places {
            let (rank, door) = self.doors[place];
            let known = |rank: &u32| matches!(told.get(rank), Some(Told::Answer { .. }));
            if failures >= TRIES_MAX || answers >= MORE_MAX || self.wanted(wanted).all(|rank| known(&rank)) {
                break;
            }
            // Once one rank has answered for the host, the others are asked only about themselves: they may be in a container.
            if answers > 0 && (known(&rank) || !wanted.contains(&rank)) {
                continue;
            }
            match inquiry.ask(&door) {
                Ok(answer) => {
                    (self.good, answers) = (if answers == 0 { place } else { self.good }, answers + 1);
                    self.note(answer, wanted, &mut told);
                }
                Err(error) => {
                    // A refusal comes at once, so it does not count as a failure.
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

    /// The wanted ranks of this host.
    fn wanted(&self, wanted: &BTreeSet<u32>) -> impl Iterator<Item = u32> {
        self.doors.iter().map(|(rank, _)| *rank).filter(|rank| wanted.contains(rank))
    }

    /// Notes what a rank has answered. It may speak for ranks of its own host only.
    fn note(&self, answer: Answer, wanted: &BTreeSet<u32>, told: &mut BTreeMap<u32, Told>) {
        for of in answer.ranks {
            let is_ours = wanted.contains(&of.rank) && self.doors.iter().any(|(rank, _)| *rank == of.rank);
            // The rank sees a process, but cannot ask it. That is no answer.
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

/// Asks an engine on this host how to reach the ranks on the other hosts.
fn ways(process: &Process, patience: Duration) -> io::Result<Vec<Way>> {
    let end = Instant::now() + patience;
    let mut refused = io::Error::from(io::ErrorKind::ConnectionRefused);
    for page in process.snapshots() {
        match ask_engines(&[(process.pid, &page)], HOSTS, end).pop() {
            Some(Ok(answer)) => return Ok(serde_json::from_slice(&answer)?),
            Some(Err(error)) => refused = error,
            None => {}
        }
    }
    Err(refused)
}

/// Groups ranks by host. A rank whose address cannot be read is left out.
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
