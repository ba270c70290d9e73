//! What a job does. All of it follows from the case and the seed.

use clap::ValueEnum;
use std::time::Duration;
use tickwire::testing::SplitMix;

/// Longer than any job takes on a loaded machine. The time that ranks are away is added.
const PATIENCE: Duration = Duration::from_secs(40);

/// The fault of a job.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, ValueEnum)]
pub(crate) enum Case {
    /// Many small programs over a simulated network, as in `cargo test --test seeds`.
    Simulated,
    /// The engines of one process, each on its own thread. In some jobs one of the threads panics.
    Loopback,
    /// Processes over shared memory, without any fault.
    Calm,
    /// Ranks end without a farewell: they kill themselves, are killed, or panic.
    Killed,
    /// Ranks are stopped for a while, some of them before their first message.
    Stopped,
    /// Ranks start late, or compute for a long time before their first call or between calls.
    Late,
    /// `/dev/shm` is nearly full. In some jobs `memfd_create` is denied too, so connections may be refused.
    Full,
    /// Ranks may open only 16 more files.
    Files,
    /// No `process_vm_readv`.
    NoReading,
    /// No `pidfd_open`.
    NoPidfd,
    /// No `io_uring_setup`.
    NoUring,
    /// No `membarrier`.
    NoMembarrier,
    /// None of these four system calls.
    Denied,
    /// Some of these four system calls are denied. Besides, ranks end, are stopped, start late or compute.
    Mixed,
}

/// A system call that is denied.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Denied {
    Reading,
    Pidfd,
    Uring,
    Membarrier,
    /// `memfd_create`. Without it, segments are files in `/dev/shm`.
    Memfd,
}

/// Calls that only make a job faster. Without them, results are the same.
const DENIED: [Denied; 4] = [Denied::Reading, Denied::Pidfd, Denied::Uring, Denied::Membarrier];

/// What happens to a rank.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum What {
    /// Kills itself.
    Die,
    /// Panics: its engine is dropped while its stack unwinds.
    Panic,
    /// Is killed by another process, this many ms after its engine is built.
    Killed(u64),
    /// Stops itself. It is continued this many ms later.
    Stop(u64),
    /// Does not call its engine for this many ms.
    Compute(u64),
    /// Starts this many ms late.
    Late(u64),
}

/// An event that happens to a rank, and its time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Trouble {
    pub(crate) rank: u32,
    /// The share of the rank's calls after which it happens, in thousandths. At 0 it happens before the first
    /// message.
    pub(crate) at: u64,
    pub(crate) what: What,
}

/// When the limit on a rank's open files is set.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Files {
    /// Before the engine is built.
    Before,
    /// After the engine is built.
    After,
}

/// What a job does.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) case: Case,
    pub(crate) seed: u64,
    pub(crate) ranks: u32,
    /// Most messages from one rank to another.
    pub(crate) messages: u64,
    /// Longest message, bytes.
    pub(crate) length_max: u64,
    pub(crate) denied: Vec<Denied>,
    /// The error that a denied call returns.
    pub(crate) errno: i32,
    /// The number of ranks, counted from rank 0, whose open files are limited, and when the limit is set.
    pub(crate) files: Option<(u32, Files)>,
    /// Free space in `/dev/shm`, bytes.
    pub(crate) free_bytes: Option<u64>,
    pub(crate) troubles: Vec<Trouble>,
    /// Whether the receives for the peers' "done" messages are posted before all others. If not, only a receive from
    /// any source can learn that a peer has ended.
    pub(crate) control_first: bool,
}

impl Plan {
    /// The plan of a job. No rank is away for longer than `away_ms` at a time.
    pub(crate) fn of(case: Case, seed: u64, away_ms: u64) -> Self {
        let mut random = SplitMix::new(seed ^ 0x50A4_0000);
        let mut plan = Plan {
            case,
            seed,
            ranks: 2 + random.below(4) as u32,
            messages: 4 + random.below(20),
            length_max: 1 << (17 + random.below(6)),
            denied: Vec::new(),
            errno: if random.below(2) == 0 { libc::EPERM } else { libc::ENOSYS },
            files: None,
            free_bytes: None,
            troubles: Vec::new(),
            control_first: random.below(2) == 0,
        };
        match case {
            Case::Simulated | Case::Calm => {}
            Case::Loopback if random.below(2) == 0 => {
                plan.ranks = plan.ranks.max(3);
                plan.trouble(&mut random, |_| What::Panic);
            }
            Case::Loopback => plan.trouble(&mut random, |random| What::Compute(1 + random.below(away_ms.min(300)))),
            Case::Killed => plan.ends(&mut random),
            Case::Stopped => plan.stops(&mut random, away_ms),
            Case::Late => plan.late(&mut random, away_ms),
            Case::Full => {
                plan.free_bytes = Some([0, 64 << 10, 700 << 10, 2 << 20][random.below(4) as usize]);
                plan.denied.extend((random.below(2) == 0).then_some(Denied::Memfd));
            }
            Case::Files => {
                // With this many ranks, not all can be connected to each other.
                plan.ranks = 7 + random.below(2) as u32;
                plan.messages = 1 + random.below(4);
                let when = if random.below(2) == 0 { Files::Before } else { Files::After };
                plan.files = Some((1 + random.below(u64::from(plan.ranks)) as u32, when));
            }
            Case::NoReading => plan.denied = vec![Denied::Reading],
            Case::NoPidfd => plan.denied = vec![Denied::Pidfd],
            Case::NoUring => plan.denied = vec![Denied::Uring],
            Case::NoMembarrier => plan.denied = vec![Denied::Membarrier],
            Case::Denied => plan.denied = DENIED.to_vec(),
            Case::Mixed => {
                plan.denied = DENIED.into_iter().filter(|_| random.below(2) == 0).collect();
                match random.below(3) {
                    0 => plan.ends(&mut random),
                    1 => plan.stops(&mut random, away_ms),
                    _ => plan.late(&mut random, away_ms),
                }
            }
        }
        plan
    }

    /// Lets something happen to one rank, at a random place among its calls.
    fn trouble(&mut self, random: &mut SplitMix, what: impl Fn(&mut SplitMix) -> What) {
        let rank = random.below(self.ranks.into()) as u32;
        // One of four events comes before the first call.
        let at = if random.below(4) == 0 { 0 } else { random.below(1000) };
        let what = what(random);
        self.troubles.push(Trouble { rank, at, what });
    }

    fn ends(&mut self, random: &mut SplitMix) {
        self.ranks = self.ranks.max(3);
        for _ in 0..=random.below(u64::from(self.ranks) - 2) {
            self.trouble(random, |random| match random.below(4) {
                0 => What::Killed(random.below(400)),
                1 => What::Panic,
                _ => What::Die,
            });
        }
    }

    fn stops(&mut self, random: &mut SplitMix, away_ms: u64) {
        for _ in 0..=random.below(2) {
            self.trouble(random, |random| What::Stop(1 + random.below(away_ms)));
        }
    }

    fn late(&mut self, random: &mut SplitMix, away_ms: u64) {
        for _ in 0..=random.below(2) {
            self.trouble(random, |random| match random.below(2) {
                0 => What::Late(1 + random.below(away_ms)),
                _ => What::Compute(1 + random.below(away_ms)),
            });
        }
    }

    /// Whether a rank ends before its work is done.
    pub(crate) fn is_doomed(&self, rank: u32) -> bool {
        let ends = |what| matches!(what, What::Die | What::Panic | What::Killed(_));
        self.troubles.iter().any(|trouble| trouble.rank == rank && ends(trouble.what))
    }

    /// Whether connections may be refused because a resource is missing.
    pub(crate) fn is_short(&self) -> bool {
        self.files.is_some() || self.denied.contains(&Denied::Memfd)
    }

    /// Whether no operation may fail.
    pub(crate) fn is_whole(&self) -> bool {
        !self.is_short() && !(0..self.ranks).any(|rank| self.is_doomed(rank))
    }

    /// When this rank's open files are limited, if they are.
    pub(crate) fn files(&self, rank: u32) -> Option<Files> {
        self.files.filter(|&(ranks, _)| rank < ranks).map(|(_, when)| when)
    }

    /// The events of a rank.
    pub(crate) fn troubles(&self, rank: u32) -> impl Iterator<Item = &Trouble> {
        self.troubles.iter().filter(move |trouble| trouble.rank == rank)
    }

    /// How long the job may take.
    pub(crate) fn patience(&self) -> Duration {
        let away = self.troubles.iter().map(|trouble| match trouble.what {
            What::Stop(ms) | What::Compute(ms) | What::Late(ms) | What::Killed(ms) => ms,
            What::Die | What::Panic => 0,
        });
        PATIENCE + Duration::from_millis(2 * away.sum::<u64>())
    }
}
