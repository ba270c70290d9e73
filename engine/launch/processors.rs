//! Chooses the processor to which each rank of a job is bound: one that the launcher may use, and that nothing else of its user uses.

use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::fs;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::path::Path;

use rustix::process::geteuid;
use rustix::thread::{CpuSet, sched_getaffinity};

use super::error::LaunchError;

/// The flag of kernel threads in `/proc/PID/stat`; root owns them too.
const PF_KTHREAD: u64 = 0x0020_0000;

/// A processor that the launcher may use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Processor {
    number: usize,
    /// Its NUMA node.
    node: usize,
    /// The index among the hardware threads of its core.
    thread: usize,
    /// Threads of the same user that are bound to it, alone or with some others.
    bound: u32,
    /// Threads of the same user that run on it now.
    running: u32,
}

impl Processor {
    fn is_free(&self) -> bool {
        (self.bound, self.running) == (0, 0)
    }

    /// The order of processors that are equally used.
    fn place(&self) -> (usize, usize, usize) {
        (self.thread, self.node, self.number)
    }
}

/// The processors of a job, in the order of its ranks. While this lives, other launchers of the same user see that they are taken.
#[derive(Debug, Default)]
pub(super) struct Processors {
    numbers: Vec<usize>,
    /// For each processor, a socket whose name claims it. The kernel closes the socket however this process ends.
    _claims: Vec<UnixDatagram>,
}

impl Processors {
    /// Chooses processors for this many ranks, among those that the launcher's affinity, and so its cpuset, allows.
    pub(super) fn choose(ranks: usize) -> Result<Self, LaunchError> {
        let allowed = sched_getaffinity(None)
            .map_err(|source| LaunchError::System { operation: "sched_getaffinity", source: source.into() })?;
        let allowed: BTreeSet<usize> = (0..CpuSet::MAX_CPU).filter(|&number| allowed.is_set(number)).collect();
        let mut found = topology(Path::new("/sys/devices/system/cpu"), &allowed);
        count_users(Path::new("/proc"), &mut found);
        let mut claims = Vec::new();
        let claim = |processor: &Processor| match claimed(processor.number) {
            Some(claim) => {
                claims.push(claim);
                true
            }
            None => false,
        };
        Ok(Self { numbers: chosen(found, ranks, claim), _claims: claims })
    }

    /// The processor to which a rank is bound. `None` if none was chosen.
    pub(super) fn of(&self, rank: usize) -> Option<CpuSet> {
        let number = self.numbers.get(rank % self.numbers.len().max(1))?;
        let mut set = CpuSet::new();
        set.set(*number);
        Some(set)
    }
}

/// Claims a processor by a socket with its name. `None` if another launcher of this user has claimed it. So if two launchers start at once,
/// only one gets it.
fn claimed(number: usize) -> Option<UnixDatagram> {
    let name = format!("tickwire-processor-{}-{number}", geteuid().as_raw());
    UnixDatagram::bind_addr(&SocketAddr::from_abstract_name(name).ok()?).ok()
}

/// The numbers of at most `ranks` processors, in the order of their places. The least used are taken first. Those that cannot be claimed
/// are taken only after all others.
fn chosen(mut found: Vec<Processor>, ranks: usize, mut claim: impl FnMut(&Processor) -> bool) -> Vec<usize> {
    // A job that fits one node should not be spread over two.
    let free_of = |node: usize| found.iter().filter(|other| other.node == node && other.is_free()).count();
    let free: Vec<usize> = (0..=found.iter().map(|one| one.node).max().unwrap_or(0)).map(free_of).collect();
    found.sort_by_key(|one| (one.bound, one.running, one.thread, Reverse(free[one.node]), one.place()));
    let (mut taken, mut others) = (Vec::new(), Vec::new());
    for processor in found {
        let list = if taken.len() < ranks && claim(&processor) { &mut taken } else { &mut others };
        list.push(processor);
    }
    taken.extend(others);
    taken.truncate(ranks);
    taken.sort_by_key(Processor::place);
    taken.iter().map(|one| one.number).collect()
}

/// The NUMA node of each processor, and its index in its core. If the system does not say, all processors are alike.
fn topology(place: &Path, allowed: &BTreeSet<usize>) -> Vec<Processor> {
    let of = |&number: &usize| {
        let place = place.join(format!("cpu{number}"));
        let siblings = fs::read_to_string(place.join("topology/thread_siblings_list")).unwrap_or_default();
        let thread = numbers(&siblings).range(..number).filter(|&other| allowed.contains(other)).count();
        let entries = fs::read_dir(&place).into_iter().flatten().flatten();
        let node = |entry: fs::DirEntry| entry.file_name().to_str()?.strip_prefix("node")?.parse().ok();
        Processor { number, node: entries.filter_map(node).next().unwrap_or(0), thread, ..Processor::default() }
    };
    allowed.iter().map(of).collect()
}

/// Counts the other threads of this user that are bound to each processor, or run on it now. Threads of this process do not count. A thread
/// that may run on all of these processors does not count as bound.
fn count_users(proc: &Path, found: &mut [Processor]) {
    let (own, user) = (std::process::id().to_string(), geteuid().as_raw());
    for process in fs::read_dir(proc).into_iter().flatten().flatten() {
        let name = process.file_name();
        let is_process = name.to_str().is_some_and(|name| name != own && name.parse::<u32>().is_ok());
        if !is_process || process.metadata().map_or(true, |about| about.uid() != user) {
            continue;
        }
        // The process may end at any time. Files that cannot be read are skipped.
        for thread in fs::read_dir(process.path().join("task")).into_iter().flatten().flatten() {
            let read = |file: &str| fs::read_to_string(thread.path().join(file)).unwrap_or_default();
            let stat = read("stat");
            let fields: Vec<&str> =
                stat.rsplit_once(") ").map_or_else(Vec::new, |(_, rest)| rest.split_whitespace().collect());
            // The fields of `stat` from the third one on, which is the state (man 5 proc).
            let field = |number: usize| fields.get(number - 3).and_then(|field| field.parse::<u64>().ok());
            if field(9).is_none_or(|flags| flags & PF_KTHREAD != 0) {
                continue;
            }
            let status = read("status");
            let list = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:")).unwrap_or_default();
            let may_use = numbers(list);
            let everywhere = found.iter().all(|one| may_use.contains(&one.number));
            for processor in found.iter_mut().filter(|one| may_use.contains(&one.number)) {
                processor.bound += u32::from(!everywhere);
                let here = field(39) == Some(processor.number as u64);
                processor.running += u32::from(here && fields.first() == Some(&"R"));
            }
        }
    }
}

/// The numbers of a list such as `0-3,8`, as the kernel writes it.
fn numbers(list: &str) -> BTreeSet<usize> {
    let range = |range: &str| {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let last = last.trim().parse::<usize>().ok()?;
        Some(first.trim().parse().ok()?..=last.min(CpuSet::MAX_CPU))
    };
    list.split(',').filter_map(range).flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::PathBuf;
    use std::sync::atomic::{AtomicU32, Ordering};

    /// A directory that is removed on drop. Each has a name of its own, since tests run at the same time.
    struct Tree(PathBuf);

    impl Tree {
        fn new(name: &str) -> Self {
            static MADE: AtomicU32 = AtomicU32::new(0);
            let number = MADE.fetch_add(1, Ordering::Relaxed);
            let path = std::env::temp_dir().join(format!("tickwire-{name}-{}-{number}", std::process::id()));
            fs::create_dir_all(&path).unwrap();
            Self(path)
        }

        fn write(&self, path: &str, text: &str) {
            let path = self.0.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }

        /// Writes the files of a thread with this state and these flags, which last ran on processor `on` and may run on `may_use`.
        fn thread(&self, (pid, tid): (u32, u32), state: &str, flags: u64, on: usize, may_use: &str) {
            let zeros = |many: usize| "0 ".repeat(many);
            let stat = format!("{tid} (a (strange) name) {state} {}{flags} {}{on} 0", zeros(5), zeros(29));
            self.write(&format!("{pid}/task/{tid}/stat"), &stat);
            self.write(&format!("{pid}/task/{tid}/status"), &format!("Name:\tx\nCpus_allowed_list:\t{may_use}\n"));
        }
    }

    impl Drop for Tree {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    /// A machine with two nodes, each with two cores of two hardware threads. Processors 0-3 are first threads, 4-7 second ones.
    fn machine() -> Vec<Processor> {
        let tree = Tree::new("topology");
        for number in 0..8 {
            let core = number % 4;
            tree.write(&format!("cpu{number}/topology/thread_siblings_list"), &format!("{core},{}\n", core + 4));
            tree.write(&format!("cpu{number}/node{}/cpulist", core / 2), "");
        }
        topology(&tree.0, &(0..8).collect())
    }

    fn taken(found: &[Processor], ranks: usize) -> Vec<usize> {
        chosen(found.to_vec(), ranks, |_| true)
    }

    #[test]
    fn the_kernels_lists_are_read() {
        assert_eq!(numbers("0-2,8\n"), [0, 1, 2, 8].into());
        assert_eq!(numbers(" 5"), [5].into());
        assert!(numbers("").is_empty() && numbers("x-y").is_empty() && numbers("3-1").is_empty());
    }

    #[test]
    fn cores_come_before_their_second_threads_and_a_node_before_the_next() {
        let machine = machine();
        let nodes: Vec<_> = machine.iter().map(|one| (one.node, one.thread)).collect();
        assert_eq!(nodes, [(0, 0), (0, 0), (1, 0), (1, 0), (0, 1), (0, 1), (1, 1), (1, 1)]);
        assert_eq!(taken(&machine, 2), [0, 1]);
        assert_eq!(taken(&machine, 4), [0, 1, 2, 3]);
        assert_eq!(taken(&machine, 6), [0, 1, 2, 3, 4, 5]);
        assert_eq!(taken(&machine, 9), [0, 1, 2, 3, 4, 5, 6, 7]);
    }

    #[test]
    fn what_is_not_allowed_is_not_known() {
        let tree = Tree::new("cpuset");
        let found = topology(&tree.0, &[3, 5].into());
        assert_eq!(taken(&found, 8), [3, 5]);
        // If the first thread of a core is not allowed, the second one counts as the first.
        tree.write("cpu5/topology/thread_siblings_list", "1,5");
        assert_eq!(topology(&tree.0, &[3, 5].into())[1].thread, 0);
        assert_eq!(topology(&tree.0, &[1, 5].into())[1].thread, 1);
    }

    #[test]
    fn a_processor_of_another_job_is_taken_last() {
        let mut machine = machine();
        machine[0].bound = 1;
        // Node 1 has more free processors, and a job should not be spread over two nodes.
        assert_eq!(taken(&machine, 2), [2, 3]);
        assert_eq!(taken(&machine, 3), [1, 2, 3]);
        assert_eq!(taken(&machine, 7), [1, 2, 3, 4, 5, 6, 7]);
        machine[2].running = 1;
        assert_eq!(taken(&machine, 2), [1, 3]);
        // A processor to which a thread is bound is avoided most: that thread will stay.
        assert!(!taken(&machine, 7).contains(&0));
    }

    #[test]
    fn a_processor_that_another_launcher_claims_is_taken_last() {
        let claim = |one: &Processor| one.number > 1;
        assert_eq!(chosen(machine(), 3, claim), [2, 3, 4]);
        assert_eq!(chosen(machine(), 7, claim).len(), 7);
        let mut asked = 0;
        chosen(machine(), 3, |_| {
            asked += 1;
            true
        });
        assert_eq!(asked, 3, "no more than are needed");
        let number = CpuSet::MAX_CPU + std::process::id() as usize;
        let first = claimed(number);
        assert!(first.is_some() && claimed(number).is_none());
        drop(first);
        assert!(claimed(number).is_some());
    }

    #[test]
    fn threads_that_are_bound_or_run_are_counted() {
        let tree = Tree::new("users");
        let mut found = topology(&tree.0, &(0..4).collect());
        // Bound to 0, free to run anywhere, bound to 2 and 3, a kernel thread, and this process itself.
        tree.thread((10, 10), "S", 0, 1, "0");
        tree.thread((10, 11), "R", 0, 1, "0-7");
        tree.thread((12, 12), "R", 0, 2, "2-3");
        tree.thread((13, 13), "R", PF_KTHREAD, 1, "1");
        let own = std::process::id();
        tree.thread((own, own), "R", 0, 1, "1");
        tree.write("14/task/14/stat", "no line of the kernel");
        tree.write("self/task/1/stat", "");
        count_users(&tree.0, &mut found);
        let users: Vec<_> = found.iter().map(|one| (one.bound, one.running)).collect();
        assert_eq!(users, [(1, 0), (0, 1), (1, 1), (1, 0)]);
    }
}
