//! How groups form. See [`super`].

use super::local::{Door, GREETING_BYTES_MAX, Head, Link, Member, call};
use super::{Hosted, Part};
use crate::bootstrap::error::BootstrapError;
use crate::bootstrap::hosts::HostMap;
use crate::bootstrap::kvs::Kvs;
use crate::bootstrap::name::{job_is_valid, unique_job};
use crate::bootstrap::wait::Wait;
use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use rustix::io::Errno;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::io::Write;
use std::os::fd::OwnedFd;
use std::time::Duration;
use tickwire_transports::shm::host_identity;

/// The key under which rank 0 puts the job's name.
const JOB: &str = "job";
/// The key under which each rank puts its host, if the launcher does not know it.
const HOST: &str = "host";
/// How long a head waits for a greeting. Ranks send theirs before they reach the fence that comes before.
const GREETING_TIME: Duration = Duration::from_secs(1);
/// Version of the greetings.
const VERSION: u8 = 1;

impl Hosted {
    /// Finds the other ranks of this host, and the job's name.
    ///
    /// # Errors
    /// The launcher does not do what it should, or a rank does not come.
    pub(in crate::bootstrap) fn meet(kvs: Box<dyn Kvs>, patience: Duration) -> Result<Self, BootstrapError> {
        let identity = host_identity().map_err(|error| BootstrapError::Custom(error.to_string()))?;
        Self::meet_as(kvs, identity, patience)
    }

    /// As `meet`, but `identity` says on which host, and in which namespaces, this process runs.
    pub(super) fn meet_as(
        mut kvs: Box<dyn Kvs>,
        identity: [u8; 8],
        patience: Duration,
    ) -> Result<Self, BootstrapError> {
        let (rank, size) = (kvs.rank(), kvs.size());
        let hosts = match kvs.hosts()? {
            Some(hosts) => hosts,
            None => ask_all(&mut *kvs, identity)?,
        };
        let name = unique_job("job");
        if rank == 0 && size > 1 {
            kvs.put(JOB, name.as_bytes())?;
        }
        let host = hosts.host_of(rank).unwrap_or_default();
        let first = hosts.firsts().get(host as usize).copied().unwrap_or(rank);
        // All ranks come to the same result.
        let alone = hosts.hosts() == size;
        let door = if first == rank && !alone { Door::open(kvs.id(), rank)? } else { None };
        if size > 1 {
            kvs.fence(true)?;
        }
        let job = match first == rank && rank > 0 {
            true => read_job(&mut *kvs)?,
            false => name,
        };
        let (part, spread, job) = match (first == rank, alone) {
            (true, true) => (Part::Head(Head::default()), size > 1, job),
            (true, false) => lead(&mut *kvs, &hosts, door, &job, identity, patience)?,
            (false, _) => follow(&mut *kvs, first, identity, patience)?,
        };
        let (fences, puts, rounds) = (0, Vec::new(), Vec::new());
        Ok(Self { kvs, hosts, part, spread, job, patience, fences, puts, rounds, finished: false })
    }
}

/// Has all ranks tell each other their hosts, since the launcher does not know them.
fn ask_all(kvs: &mut dyn Kvs, identity: [u8; 8]) -> Result<HostMap, BootstrapError> {
    kvs.put(HOST, &identity)?;
    kvs.fence(true)?;
    let mut names = Vec::new();
    for rank in 0..kvs.size() {
        names.push(kvs.get(rank, HOST)?.ok_or(BootstrapError::Protocol("no host of a rank"))?);
    }
    Ok(HostMap::of_names(names))
}

fn read_job(kvs: &mut dyn Kvs) -> Result<String, BootstrapError> {
    let name = kvs.get(0, JOB)?.ok_or(BootstrapError::Protocol("no name of the job"))?;
    valid_job(name)
}

fn valid_job(name: Vec<u8>) -> Result<String, BootstrapError> {
    let name = String::from_utf8(name).ok().filter(|name| job_is_valid(name));
    name.ok_or(BootstrapError::Protocol("a malformed name of the job"))
}

/// The part of the first rank of a host: it lets the other ranks connect, and answers them.
fn lead(
    kvs: &mut dyn Kvs,
    hosts: &HostMap,
    door: Option<Door>,
    job: &str,
    identity: [u8; 8],
    patience: Duration,
) -> Result<(Part, bool, String), BootstrapError> {
    let host = hosts.host_of(kvs.rank()).unwrap_or_default();
    let ranks = hosts.ranks_on(host).count();
    let callers = match &door {
        Some(door) => {
            raise_file_limit(ranks as u64);
            answer_during(door, (hosts.size() as usize, ranks), || kvs.fence(false))?
        }
        None => {
            kvs.fence(false)?;
            Vec::new()
        }
    };
    let rank = kvs.rank();
    let mut expected: Vec<u32> = hosts.ranks_on(host).filter(|&other| other != rank).collect();
    let mut members = admit(callers, &mut expected, identity);
    let spread = hosts.hosts() > 1 || !expected.is_empty();
    warn_of(rank, &expected);
    let answer = [&[VERSION, u8::from(spread)], job.as_bytes()].concat();
    members.sort_unstable_by_key(|(rank, _)| *rank);
    let wait = Wait::new("the ranks of this host", patience);
    let mut head = Head::default();
    for (member, link) in members {
        // If a rank is gone meanwhile, the first fence notices.
        let open = link.send(&answer, &wait)?;
        head.members.push((member, open.then_some(link)));
    }
    Ok((Part::Head(head), spread, job.to_owned()))
}

/// Raises the soft limit of open files by the connections to the ranks of this host, as far as the hard limit lets it. They stay open as long
/// as the engine, and the program keeps what it had for itself.
fn raise_file_limit(ranks: u64) {
    let limit = getrlimit(Resource::Nofile);
    let Some(current) = limit.current else { return };
    let wanted = current.saturating_add(ranks);
    let current = Some(limit.maximum.map_or(wanted, |most| wanted.min(most)));
    // If that fails, a connection that finds no room says so.
    let _ = setrlimit(Resource::Nofile, Rlimit { current, ..limit });
}

/// Picks the connections of ranks that are `expected`, and takes those ranks off that list. Others are refused, or get no answer.
fn admit(callers: Vec<Link>, expected: &mut Vec<u32>, identity: [u8; 8]) -> Vec<(u32, Link)> {
    let wait = Wait::new("a greeting", GREETING_TIME);
    let mut members = Vec::new();
    for link in callers {
        // A process that is no rank of this job may send anything, or nothing.
        let Ok(Some(greeting)) = link.receive(GREETING_BYTES_MAX, &wait) else { continue };
        let caller = read_greeting(&greeting, identity).and_then(|caller| expected.iter().position(|&of| of == caller));
        match caller {
            Some(at) => members.push((expected.remove(at), link)),
            None => drop(link.send(&[], &wait)),
        }
    }
    members
}

/// Warns on stderr about ranks of this host that cannot reach the first one.
fn warn_of(first: u32, others: &[u32]) {
    if others.is_empty() {
        return;
    }
    let few: Vec<String> = others.iter().take(8).map(u32::to_string).collect();
    let who = match (others.len(), few.join(", ")) {
        (1, rank) => format!("rank {rank} of this host"),
        (many, ranks) if many > few.len() => format!("ranks {ranks}, … of this host, {many} in all,"),
        (_, ranks) => format!("ranks {ranks} of this host"),
    };
    let words = "different namespaces of networks or processes, as of containers. Messages between go over libfabric";
    // If stderr is closed, the warning is lost, which is no error.
    let _ = writeln!(std::io::stderr(), "tickwire: {who} cannot share memory with rank {first}: {words}");
}

/// The part of every other rank of a host.
fn follow(
    kvs: &mut dyn Kvs,
    first: u32,
    identity: [u8; 8],
    patience: Duration,
) -> Result<(Part, bool, String), BootstrapError> {
    let wait = Wait::new("the first rank of this host", patience);
    let greeting = [&[VERSION], &kvs.rank().to_le_bytes()[..], &identity].concat();
    let mut link = call(kvs.id(), first, &wait)?;
    if let Some(open) = &link
        && !open.send(&greeting, &wait)?
    {
        link = None;
    }
    kvs.fence(false)?;
    let answer = match &link {
        Some(open) => open.receive(GREETING_BYTES_MAX, &wait)?,
        None => None,
    };
    match answer.as_deref() {
        Some([VERSION, spread, job @ ..]) => {
            let job = valid_job(job.to_vec())?;
            Ok((Part::Member(Member { head: first, link }), *spread != 0, job))
        }
        Some([version, ..]) => {
            let reason = format!("rank {first} answers in version {version}: use one build of tickwire for all ranks");
            Err(BootstrapError::Launcher { launcher: "the first rank of this host", reason })
        }
        _ => Ok((Part::Head(Head::default()), true, read_job(kvs)?)),
    }
}

/// The rank in a greeting, if its sender can share memory with this host.
fn read_greeting(greeting: &[u8], identity: [u8; 8]) -> Option<u32> {
    let (version, rest) = greeting.split_first()?;
    let (rank, of) = rest.split_first_chunk::<4>()?;
    (*version == VERSION && of == identity).then(|| u32::from_le_bytes(*rank))
}

/// Accepts at most `most` connections until `fence` has returned. `ranks` is the number of ranks of this host. Ranks connect before they
/// reach the fence. The system's queue might be too short for all of them, so a thread accepts them meanwhile.
fn answer_during(
    door: &Door,
    (most, ranks): (usize, usize),
    fence: impl FnOnce() -> Result<(), BootstrapError>,
) -> Result<Vec<Link>, BootstrapError> {
    let failed = |operation| move |source: std::io::Error| BootstrapError::System { operation, source };
    let over = eventfd(0, EventfdFlags::CLOEXEC).map_err(|error| failed("eventfd")(error.into()))?;
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().name("tickwire-meeting".to_owned());
        let callers = thread.spawn_scoped(scope, || let_in(door, &over, most)).map_err(failed("pthread_create"))?;
        let reached = fence();
        // The write cannot fail: the counter is 0.
        let _ = rustix::io::write(&over, &1u64.to_ne_bytes());
        let callers = callers.join().unwrap_or_else(|_| Ok(Vec::new()));
        reached?;
        callers.map_err(|error| match error {
            Errno::MFILE | Errno::NFILE => BootstrapError::Files { ranks, source: error.into() },
            other => failed("accept")(other.into()),
        })
    })
}

fn let_in(door: &Door, over: &OwnedFd, most: usize) -> Result<Vec<Link>, Errno> {
    let mut callers = Vec::new();
    loop {
        let mut fds = [PollFd::new(door.fd(), PollFlags::IN), PollFd::new(over, PollFlags::IN)];
        let _ = poll(&mut fds, None);
        let is_over = !fds[1].revents().is_empty();
        while callers.len() < most
            && let Some(link) = door.answer()?
        {
            callers.push(link);
        }
        if is_over || callers.len() == most {
            return Ok(callers);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bootstrap::hosted::local::Door;
    use crate::bootstrap::hosted::scale_tests;

    #[test]
    fn strangers_of_the_same_user_neither_get_in_nor_hold_the_ranks_up() {
        let (id, here) = (format!("strangers-{}", std::process::id()), *b"this one");
        let wait = Wait::new("a call", Duration::from_secs(10));
        let door = Door::open(&id, 4).unwrap().unwrap();
        let greeting = |version: u8, rank: u32, of: [u8; 8]| [&[version][..], &rank.to_le_bytes(), &of].concat();
        let said = [
            Some(greeting(VERSION, 6, here)),
            Some(b"?".to_vec()),
            Some(Vec::new()),
            None,
            Some(vec![7; GREETING_BYTES_MAX + 1]),
            Some(greeting(VERSION + 1, 5, here)),
            Some(greeting(VERSION, 5, *b"that one")),
            Some(greeting(VERSION, 3, here)),
            Some(greeting(VERSION, 6, here)),
            Some(greeting(VERSION, 5, here)),
        ];
        let callers: Vec<Link> = said
            .iter()
            .map(|words| {
                let link = call(&id, 4, &wait).unwrap().unwrap();
                words.iter().for_each(|words| assert!(link.send(words, &wait).unwrap()));
                link
            })
            .collect();
        let let_in = answer_during(&door, (100, 3), || Ok(())).unwrap();
        assert_eq!(let_in.len(), said.len());
        let mut expected = vec![5, 6, 7];
        let members: Vec<u32> = admit(let_in, &mut expected, here).iter().map(|(rank, _)| *rank).collect();
        assert_eq!((members, expected), (vec![6, 5], vec![7]));
        // A refusal is an empty answer; who was let in has none yet, and who said nothing that could be read has lost its line.
        let answers = [1, 8].map(|at: usize| callers[at].receive(GREETING_BYTES_MAX, &wait).unwrap());
        assert_eq!(answers, [Some(Vec::new()), Some(Vec::new())]);
    }

    /// A host of 101 ranks, whose first rank is met by the others while only `files` more descriptors may be opened: (soft, hard).
    fn lead_within(files: (u64, Option<u64>), id: &str) -> Result<(Part, bool, String), BootstrapError> {
        let (here, wait) = (*b"this one", Wait::new("a call", Duration::from_secs(10)));
        let door = Door::open(id, 0)?;
        let callers: Vec<Link> = (1..=100)
            .map(|rank: u32| {
                let link = call(id, 0, &wait).unwrap().unwrap();
                assert!(link.send(&[&[VERSION][..], &rank.to_le_bytes(), &here].concat(), &wait).unwrap());
                link
            })
            .collect();
        let open = std::fs::read_dir("/proc/self/fd").unwrap().count() as u64;
        let limit = Rlimit { current: Some(open + files.0), maximum: files.1.map(|more| open + more) };
        setrlimit(Resource::Nofile, limit).unwrap();
        let hosts = HostMap::of_names([0; 101]);
        let led = lead(&mut scale_tests::head(0, 101), &hosts, door, "job-1", here, Duration::from_secs(10));
        drop(callers);
        led
    }

    #[test]
    #[ignore = "is run by another test, in a process of its own"]
    fn with_few_open_files() {
        let id = format!("files-{}", std::process::id());
        let hard = getrlimit(Resource::Nofile).maximum;
        assert!(hard.is_none_or(|hard| hard > 1000), "too few for a test");
        // What is here beside the connections: an eventfd.
        let (Part::Head(head), false, _) = lead_within((8, Some(600)), &id).unwrap() else { panic!("no head of all") };
        assert_eq!(head.members.iter().filter(|(_, link)| link.is_some()).count(), 100);
        drop(head);
        let words = lead_within((8, Some(8)), &id).map(|_| ()).unwrap_err().to_string();
        assert!(words.contains("101 ranks") && words.contains("ulimit -n"), "{words}");
    }

    #[test]
    fn the_first_rank_of_a_host_has_room_for_connections_to_all_others_or_says_what_it_needs() {
        let test = "bootstrap::hosted::meeting::tests::with_few_open_files";
        crate::bootstrap::hosted::tests::run_by_itself(test);
    }

    #[test]
    fn a_second_door_of_the_same_name_is_none() {
        let id = format!("twice-{}", std::process::id());
        let first = Door::open(&id, 0).unwrap();
        assert!(first.is_some() && Door::open(&id, 0).unwrap().is_none());
        let wait = Wait::new("a call", Duration::from_secs(10));
        assert!(call(&id, 1, &wait).unwrap().is_none(), "there is no other head");
    }
}
