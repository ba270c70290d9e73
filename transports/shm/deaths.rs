//! Knows whether a process has ended, without asking the kernel each time.
//!
//! The kernel is asked once to report the end of the process, by a poll of the process's descriptor in an io_uring. The asking thread
//! itself, in the kernel, writes the answer into this process's memory: the end of a process queues work for the thread that has asked, and
//! a thread does such work before a system call returns to user space. So after a read of a peer's memory, which is a system call, a
//! missing answer means that the peer had not ended when the read began. For another thread there is no such guarantee, so it asks.
//!
//! If this process may not use io_uring (containers, settings), the kernel is asked each time: poll(2).

use io_uring::{IoUring, opcode, types};
use rustix::fd::{AsRawFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use tickwire_components::limits::{DEATH_ANSWERS, DEATH_QUESTIONS};

static THREADS: AtomicU64 = AtomicU64::new(0);

thread_local! {
    /// A number unique to this thread. Like [`std::thread::ThreadId`], but reading that takes a reference count.
    static HERE: u64 = THREADS.fetch_add(1, Ordering::Relaxed);
}

fn here() -> u64 {
    HERE.with(|here| *here)
}

/// An endpoint's knowledge about the ends of its peers' processes.
#[derive(Default)]
pub(super) struct Deaths {
    watch: Watch,
    /// The last number given to a watched process.
    last: u64,
    /// Numbers of the processes that have ended.
    ended: Vec<u64>,
}

#[derive(Default)]
enum Watch {
    /// No process is watched yet.
    #[default]
    Idle,
    /// The kernel reports ends to the thread with this number.
    Told { ring: Box<IoUring>, thread: u64 },
    /// The kernel must be asked each time.
    Asking,
}

/// The number that a process is watched under; 0 before it is watched.
pub(super) type Watched = u64;

impl Deaths {
    /// Whether a process is still running. `watched` is its own number, which is 0 at first.
    #[inline]
    pub(super) fn lives(&mut self, process: &OwnedFd, watched: &mut Watched) -> bool {
        if !self.is_told(watched) && !self.watch(process, watched) {
            return lives(process);
        }
        self.ended.is_empty() || !self.ended.contains(watched)
    }

    /// Whether the kernel reports the end of the process to this thread. If so, all ends reported so far are in `ended`.
    #[inline]
    fn is_told(&mut self, watched: &Watched) -> bool {
        match &mut self.watch {
            Watch::Told { ring, thread } if *watched != 0 && *thread == here() => {
                ring.completion().is_empty() || self.hear()
            }
            _ => false,
        }
    }

    /// Takes the kernel's reports. `false` if some are missing or cancelled: from then on the kernel is asked each time.
    #[cold]
    fn hear(&mut self) -> bool {
        let Watch::Told { ring, .. } = &mut self.watch else { return false };
        let mut whole = !ring.submission().cq_overflow();
        for answer in ring.completion() {
            whole &= answer.result() > 0;
            self.ended.push(answer.user_data());
        }
        if !whole {
            self.watch = Watch::Asking;
        }
        whole
    }

    /// Requests a report when a process ends. `false` if that is not possible.
    #[cold]
    fn watch(&mut self, process: &OwnedFd, watched: &mut Watched) -> bool {
        if let Watch::Idle = self.watch {
            self.watch = match IoUring::builder().setup_cqsize(DEATH_ANSWERS).dontfork().build(DEATH_QUESTIONS) {
                Ok(ring) => Watch::Told { ring: Box::new(ring), thread: here() },
                Err(_) => Watch::Asking,
            };
        }
        let Watch::Told { ring, thread } = &mut self.watch else { return false };
        if *thread != here() || *watched != 0 {
            // Reports go to the thread that has requested them.
            return false;
        }
        self.last += 1;
        let question = opcode::PollAdd::new(types::Fd(process.as_raw_fd()), libc::POLLIN as u32).build();
        let question = question.user_data(self.last);
        // SAFETY: the question refers to no memory, and the kernel holds the file that the descriptor names now.
        #[expect(unsafe_code, reason = "an entry of a ring that the kernel reads")]
        let asked = unsafe { ring.submission().push(&question) }.is_ok();
        if !asked || !matches!(ring.submit(), Ok(1)) {
            self.watch = Watch::Asking;
            return false;
        }
        *watched = self.last;
        self.is_told(watched)
    }
}

/// Asks the kernel whether a process is still running. Uses poll(2) directly, since the call that takes a `timespec` is 12 % slower.
#[expect(unsafe_code, reason = "no crate that is used here has this call")]
fn lives(process: &OwnedFd) -> bool {
    let mut polled = libc::pollfd { fd: process.as_raw_fd(), events: libc::POLLIN, revents: 0 };
    loop {
        // SAFETY: one entry, which is local.
        match unsafe { libc::poll(&raw mut polled, 1, 0) } {
            // A signal interrupted the call, which says nothing about the process.
            -1 if std::io::Error::last_os_error().kind() == std::io::ErrorKind::Interrupted => {}
            ready => return ready == 0,
        }
    }
}

#[cfg(all(test, not(miri), not(tickwire_loom)))]
mod tests {
    use super::*;
    use rustix::process::{Pid, PidfdFlags, pidfd_open};
    use std::process::{Child, Command, Stdio};

    /// A process that lives until it is ended, and its descriptor.
    fn process() -> (Child, OwnedFd) {
        let child = Command::new("cat").stdin(Stdio::piped()).spawn().expect("cat is there");
        let pid = Pid::from_child(&child);
        let descriptor = pidfd_open(pid, PidfdFlags::empty()).expect("it lives");
        (child, descriptor)
    }

    fn end(child: &mut Child) {
        child.kill().expect("it is this test's own");
        child.wait().expect("it has ended");
    }

    fn told(deaths: &Deaths) -> bool {
        matches!(deaths.watch, Watch::Told { .. })
    }

    /// Whether the kernel has io_uring for this process; the ways to ask are tested in any case.
    fn can_be_told() -> bool {
        IoUring::new(2).is_ok()
    }

    #[test]
    fn the_end_of_each_process_is_known_at_once() {
        let mut deaths = Deaths::default();
        let mut processes: Vec<_> = (0..3).map(|_| process()).collect();
        let mut watched = [0; 3];
        for (at, (_, descriptor)) in processes.iter().enumerate() {
            assert!(deaths.lives(descriptor, &mut watched[at]));
            assert!(deaths.lives(descriptor, &mut watched[at]));
        }
        assert_eq!(told(&deaths), can_be_told());
        for ended in [1, 0, 2] {
            end(&mut processes[ended].0);
            for (at, (child, descriptor)) in processes.iter_mut().enumerate() {
                let lives = child.try_wait().expect("its own child").is_none();
                assert_eq!(deaths.lives(descriptor, &mut watched[at]), lives, "process {at} after the end of {ended}");
            }
        }
        assert_eq!(told(&deaths), can_be_told(), "nothing was asked for again");
    }

    #[test]
    fn what_has_ended_before_is_known_too() {
        let (mut child, descriptor) = process();
        end(&mut child);
        let (mut deaths, mut watched) = (Deaths::default(), 0);
        assert!(!deaths.lives(&descriptor, &mut watched));
        assert!(!deaths.lives(&descriptor, &mut watched));
    }

    #[test]
    fn without_io_uring_and_on_other_threads_the_kernel_is_asked() {
        let (mut child, descriptor) = process();
        let mut deaths = Deaths { watch: Watch::Asking, ..Deaths::default() };
        let mut elsewhere = Deaths::default();
        let (mut asked, mut watched) = (0, 0);
        assert!(deaths.lives(&descriptor, &mut asked) && elsewhere.lives(&descriptor, &mut watched));
        std::thread::scope(|scope| {
            let ask = || {
                assert!(elsewhere.lives(&descriptor, &mut watched));
                end(&mut child);
                assert!(!elsewhere.lives(&descriptor, &mut watched));
            };
            scope.spawn(ask).join().expect("no panic");
        });
        assert!(!deaths.lives(&descriptor, &mut asked));
        assert!(!elsewhere.lives(&descriptor, &mut watched));
        assert!(!told(&deaths) && told(&elsewhere) == can_be_told());
    }

    #[test]
    fn when_the_thread_that_was_told_has_ended_the_kernel_is_asked() {
        let (mut child, descriptor) = process();
        let (mut deaths, mut watched) = (Deaths::default(), 0);
        std::thread::scope(|scope| {
            scope.spawn(|| assert!(deaths.lives(&descriptor, &mut watched))).join().expect("no panic");
        });
        assert!(deaths.lives(&descriptor, &mut watched));
        end(&mut child);
        assert!(!deaths.lives(&descriptor, &mut watched));
    }
}
