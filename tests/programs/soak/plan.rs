//! What a job does: all of it follows from its case and its seed.

use clap::ValueEnum;
use std::time::Duration;
use tickwire::testing::SplitMix;

/// Above what any job takes on a loaded machine, but for the time that its ranks are away.
const PATIENCE: Duration = Duration::from_secs(40);

/// What is wrong in a job.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, ValueEnum)]
pub(crate) enum Case {
    /// Many small programs over a simulated network, as in `cargo test --test seeds`.
    Simulated,
    /// The engines of one process, each on its own thread; in some, one panics.
    Loopback,
    /// Processes over shared memory, and nothing is wrong.
    Calm,
    /// Ranks end without a word: they kill themselves, are killed, or panic.
    Killed,
    /// Ranks are stopped for a while, some before they have spoken to anybody.
    Stopped,
    /// Ranks start late, or compute for long before their first call and between.
    Late,
    /// `/dev/shm` is nearly full; in some jobs there is no `memfd_create` either, so that connections may be refused.
    Full,
    /// Ranks may open 16 more files.
    Files,
    /// No `process_vm_readv`.
    NoReading,
    /// No `pidfd_open`.
    NoPidfd,
    /// No `io_uring_setup`.
    NoUring,
    /// No `membarrier`.
    NoMembarrier,
    /// None of the four.
    Denied,
    /// Some of the four, and ranks that end, are stopped, start late or compute.
    Mixed,
}

/// A system call that is denied.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Denied {
    Reading,
    Pidfd,
    Uring,
    Membarrier,
    /// `memfd_create`: segments are files of `/dev/shm` then.
    Memfd,
}

/// Those that nothing but time may depend on.
const DENIED: [Denied; 4] = [Denied::Reading, Denied::Pidfd, Denied::Uring, Denied::Membarrier];

/// What happens to a rank.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum What {
    /// Kills itself.
    Die,
    /// Panics: its engine is dropped while its stack unwinds.
    Panic,
    /// Is killed by another process, so many ms after it has an engine.
    Killed(u64),
    /// Stops itself, and is continued so many ms later.
    Stop(u64),
    /// Does not call its engine for so many ms.
    Compute(u64),
    /// Starts so many ms late.
    Late(u64),
}

/// Something that happens to a rank, and when.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Trouble {
    pub(crate) rank: u32,
    /// After so many thousandths of its calls; 0 is before it has spoken to anybody.
    pub(crate) at: u64,
    pub(crate) what: What,
}

/// When a rank's number of open files is bounded.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Files {
    /// Before its engine is built.
    Before,
    /// After.
    After,
}

/// See the module.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) case: Case,
    pub(crate) seed: u64,
    pub(crate) ranks: u32,
    /// Messages of an ordered pair of ranks at most.
    pub(crate) messages: u64,
    /// Longest message, bytes.
    pub(crate) length_max: u64,
    pub(crate) denied: Vec<Denied>,
    /// What a denied call returns.
    pub(crate) errno: i32,
    /// Whose open files are bounded, from rank 0 on how many of them, and when.
    pub(crate) files: Option<(u32, Files)>,
    /// Bytes that are left in `/dev/shm`.
    pub(crate) free_bytes: Option<u64>,
    pub(crate) troubles: Vec<Trouble>,
    /// Whether receives that say that a peer is done are posted before all others. Where not, only what waits for any
    /// source learns of a peer's end, in ranks that receive so.
    pub(crate) control_first: bool,
}

impl Plan {
    /// The plan of a job; no rank is away for longer than `away_ms` at a time.
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
                // As many as it takes that not all of them can be connected.
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

    /// Something happens to one rank, somewhere in its calls.
    fn trouble(&mut self, random: &mut SplitMix, what: impl Fn(&mut SplitMix) -> What) {
        let rank = random.below(self.ranks.into()) as u32;
        // Often before the first call.
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

    /// Whether connections may be refused for want of something.
    pub(crate) fn is_short(&self) -> bool {
        self.files.is_some() || self.denied.contains(&Denied::Memfd)
    }

    /// Whether no operation may fail.
    pub(crate) fn is_whole(&self) -> bool {
        !self.is_short() && !(0..self.ranks).any(|rank| self.is_doomed(rank))
    }

    /// When a rank's open files are bounded, if they are.
    pub(crate) fn files(&self, rank: u32) -> Option<Files> {
        self.files.filter(|&(ranks, _)| rank < ranks).map(|(_, when)| when)
    }

    /// What happens to a rank.
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
