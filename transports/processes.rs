//! Detects whether a process of this host has ended. A process that computes, or is stopped, has not.
//!
//! A process is named by its id and its start time, as in its card and its greeting: the id alone may have been given to another process.
//! If the kernel has a descriptor for it (`pidfd_open(2)`), the descriptor reports its end and can be slept on. Otherwise, and if no
//! descriptor is left, `/proc` and `kill(2)` are asked now and then. A process has ended once all its threads have: its first thread alone
//! may end before.

use rustix::fd::{AsFd, AsRawFd, OwnedFd};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, pidfd_open, test_kill_process};
use std::io;
use std::path::Path;

/// Bytes of a process in a card.
pub(crate) const CARD_BYTES: usize = 7;
/// Bits of a process id: Linux has none from 2^22 on.
const PID_BITS: u32 = 22;
/// Bits of its start time that are kept: five years in hundredths of a second, after which they wrap.
const START_BITS: u32 = 34;
const START_MASK: u64 = (1 << START_BITS) - 1;
const _: () = assert!(PID_BITS + START_BITS == 8 * CARD_BYTES as u32);

/// A process of this host.
#[derive(Debug)]
pub(crate) struct Process {
    pid: u32,
    /// Its start time, in clock ticks since boot; 0 if unknown.
    start_time: u64,
    descriptor: Option<OwnedFd>,
}

impl Process {
    /// Finds the process with this id and start time.
    ///
    /// # Errors
    /// That it has ended, in words.
    pub(crate) fn find(pid: u32, start_time: u64) -> Result<Self, String> {
        let descriptor = match number(pid).map(|pid| pidfd_open(pid, PidfdFlags::empty())) {
            Some(Err(Errno::SRCH)) => return Err(ended(pid)),
            Some(Ok(descriptor)) => Some(descriptor),
            _ => None,
        };
        // Check after opening the descriptor: then it is of this process, and not of a later one with the same id.
        let process = Process { pid, start_time, descriptor };
        if process.is_another() || process.has_ended() { Err(ended(pid)) } else { Ok(process) }
    }

    /// Its process id.
    pub(crate) fn pid(&self) -> u32 {
        self.pid
    }

    /// Whether it is the process with this id and start time.
    pub(crate) fn is(&self, pid: u32, start_time: u64) -> bool {
        (self.pid, self.start_time) == (pid, start_time)
    }

    /// A descriptor that is readable once the process has ended; `None` if the kernel has none.
    pub(crate) fn descriptor(&self) -> Option<&OwnedFd> {
        self.descriptor.as_ref()
    }

    /// Behaves as if the kernel had no descriptor.
    #[cfg(test)]
    pub(crate) fn forget(&mut self) -> Option<OwnedFd> {
        self.descriptor.take()
    }

    /// Whether it has ended. Makes one or two system calls.
    pub(crate) fn has_ended(&self) -> bool {
        match &self.descriptor {
            Some(descriptor) => {
                let mut fds = [rustix::event::PollFd::new(descriptor, rustix::event::PollFlags::IN)];
                let now = rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 };
                rustix::event::poll(&mut fds, Some(&now)) == Ok(1)
            }
            None => self.has_ended_by_proc(),
        }
    }

    /// Whether another process has its id now, as far as `/proc` says.
    fn is_another(&self) -> bool {
        self.start_time != 0 && start_time(self.pid).is_some_and(|started| started != self.start_time)
    }

    /// Whether it has ended, found out without its descriptor.
    fn has_ended_by_proc(&self) -> bool {
        let Some(pid) = number(self.pid) else { return false };
        match stat(Path::new(&format!("/proc/{pid}"))) {
            // Its first thread has ended. The process has if all others have, too: its parent has not waited for it yet.
            Some((state, _)) if has_exited(state) => all_threads_have_exited(pid),
            Some(_) => self.is_another(),
            None => test_kill_process(pid) == Err(Errno::SRCH),
        }
    }
}

/// Whether all threads of a process have ended, as far as `/proc` says. A thread that it does not list has.
fn all_threads_have_exited(pid: Pid) -> bool {
    let Ok(threads) = std::fs::read_dir(format!("/proc/{pid}/task")) else { return true };
    threads.flatten().all(|thread| stat(&thread.path()).is_none_or(|(state, _)| has_exited(state)))
}

fn has_exited(state: char) -> bool {
    matches!(state, 'Z' | 'X')
}

/// State and start time of a process or a thread, by its directory in `/proc`.
fn stat(directory: &Path) -> Option<(char, u64)> {
    parse(&std::fs::read_to_string(directory.join("stat")).ok()?)
}

/// Who is at the other end of a local socket, as the kernel reports it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Peer {
    /// The process. `None` if it has no number in this process's pid namespace.
    pub pid: Option<u32>,
    /// The user.
    pub uid: u32,
}

/// Who is at the other end of a local socket. rustix cannot say that of a process that has no number here: to rustix, no number is 0.
///
/// # Errors
/// The system's, such as that it is no local socket.
pub fn peer_of(socket: impl AsFd) -> io::Result<Peer> {
    let mut found = libc::ucred { pid: 0, uid: 0, gid: 0 };
    let mut length = size_of::<libc::ucred>() as libc::socklen_t;
    // SAFETY: the kernel writes at most as many bytes as the structure has, and any bytes are one.
    #[expect(unsafe_code, reason = "a system call")]
    let result = unsafe {
        let socket = socket.as_fd().as_raw_fd();
        libc::getsockopt(socket, libc::SOL_SOCKET, libc::SO_PEERCRED, (&raw mut found).cast(), &mut length)
    };
    match result {
        0 => Ok(Peer { pid: u32::try_from(found.pid).ok().filter(|&pid| pid != 0), uid: found.uid }),
        _ => Err(io::Error::last_os_error()),
    }
}

/// The text for a process that has ended.
pub(crate) fn ended(pid: u32) -> String {
    format!("process {pid} has ended")
}

fn number(pid: u32) -> Option<Pid> {
    i32::try_from(pid).ok().and_then(Pid::from_raw)
}

/// The start time of a process in clock ticks since boot, the lower 34 bits. Together with its id, it names the process.
pub(crate) fn start_time(pid: u32) -> Option<u64> {
    stat(Path::new(&format!("/proc/{pid}"))).map(|(_, started)| started)
}

/// Fields 3 and 22: state and start time. The second field, the program's name, may hold spaces and parentheses.
fn parse(stat: &str) -> Option<(char, u64)> {
    let (_, after_name) = stat.rsplit_once(')')?;
    let mut fields = after_name.split_ascii_whitespace();
    let state = fields.next()?.chars().next()?;
    Some((state, fields.nth(18)?.parse::<u64>().ok()? & START_MASK))
}

/// Id and start time of this process; the latter is 0 if it is unknown.
pub(crate) fn own() -> (u32, u64) {
    let pid = std::process::id();
    (pid, start_time(pid).unwrap_or(0))
}

/// A process as a card encodes it: id and start time in one number, big-endian. An id that does not fit, which no kernel uses, names no
/// process.
pub(crate) fn to_card(pid: u32, start_time: u64) -> [u8; CARD_BYTES] {
    let pid = if pid >> PID_BITS == 0 { u64::from(pid) } else { 0 };
    let [_, card @ ..] = (pid << START_BITS | start_time & START_MASK).to_be_bytes();
    card
}

/// Id and start time of a process, from a card.
pub(crate) fn in_card(card: [u8; CARD_BYTES]) -> (u32, u64) {
    let [a, b, c, d, e, f, g] = card;
    let both = u64::from_be_bytes([0, a, b, c, d, e, f, g]);
    ((both >> START_BITS) as u32, both & START_MASK)
}

#[cfg(all(test, not(miri)))]
mod tests {
    use super::*;
    use std::os::unix::process::CommandExt;
    use std::process::{Child, Command, Stdio};

    /// A process that lives until it is ended.
    fn child() -> Child {
        Command::new("cat").stdin(Stdio::piped()).spawn().expect("cat is there")
    }

    fn of(child: &Child) -> Process {
        let started = start_time(child.id()).expect("it lives");
        Process::find(child.id(), started).expect("it lives")
    }

    #[test]
    fn this_process_can_be_named() {
        let (pid, started) = own();
        assert_eq!(in_card(to_card(pid, started)), (pid, started));
        assert_eq!((pid, Some(started)), (std::process::id(), start_time(pid)));
        assert!(started > 0 && start_time(u32::MAX).is_none());
        assert!(!Process::find(pid, started).expect("it lives").has_ended());
    }

    #[test]
    fn a_name_with_parentheses_does_not_shift_the_fields() {
        let rest = (4..30).map(|n| n.to_string()).collect::<Vec<_>>().join(" ");
        assert_eq!(parse(&format!("7 (a) b (c)) T {rest}")), Some(('T', 22)));
        assert_eq!(parse("7 (a) R 1 2 3"), None);
        assert_eq!(parse(""), None);
    }

    #[test]
    fn a_process_that_is_stopped_lives_and_one_that_is_killed_does_not() {
        for with_descriptor in [true, false] {
            let mut child = child();
            let mut process = of(&child);
            if !with_descriptor {
                process.descriptor = None;
            }
            assert!(!process.has_ended());
            let pid = number(child.id()).expect("a pid");
            rustix::process::kill_process(pid, rustix::process::Signal::STOP).expect("it is this test's own");
            while stat(Path::new(&format!("/proc/{pid}"))).expect("its own").0 != 'T' {
                std::thread::yield_now();
            }
            assert!(!process.has_ended(), "it is stopped");
            child.kill().expect("it is this test's own");
            while !process.has_ended() {
                std::thread::yield_now();
            }
            let started = process.start_time;
            assert_eq!(Process::find(child.id(), started).unwrap_err(), ended(child.id()), "nobody has reaped it");
            child.wait().expect("it has ended");
            assert!(process.has_ended());
            assert_eq!(Process::find(child.id(), started).unwrap_err(), ended(child.id()));
        }
    }

    fn close(descriptor: libc::c_int) {
        // SAFETY: of a child that nothing else uses.
        #[expect(unsafe_code, reason = "a system call of a process without a Rust runtime")]
        unsafe {
            libc::close(descriptor);
        }
    }

    /// The second thread of a child: it waits until its input is closed, and ends the process.
    extern "C" fn second_thread(_: *mut libc::c_void) -> libc::c_int {
        // SAFETY: only system calls on descriptors of a child that nothing else uses, and a byte of this function's own.
        #[expect(unsafe_code, reason = "system calls of a process without a Rust runtime")]
        unsafe {
            // `Command::spawn` waits until a descriptor of the child is closed. Other tests may have opened thousands.
            if libc::syscall(libc::SYS_close_range, 3, libc::c_uint::MAX, 0) != 0 {
                (3..libc::sysconf(libc::_SC_OPEN_MAX) as libc::c_int).for_each(close);
            }
            let mut byte = 0u8;
            while libc::read(0, (&raw mut byte).cast(), 1) > 0 {}
            libc::_exit(0)
        }
    }

    /// A process whose first thread ends at once, and whose second one lives until its input is closed.
    fn child_without_its_first_thread() -> Child {
        const STACK_BYTES: usize = 64 << 10;
        let stack = Box::leak(vec![0u128; STACK_BYTES / size_of::<u128>()].into_boxed_slice()).as_mut_ptr_range().end;
        let stack = stack.expose_provenance();
        let begin = move || {
            let flags = libc::CLONE_VM | libc::CLONE_FS | libc::CLONE_FILES | libc::CLONE_SIGHAND | libc::CLONE_THREAD;
            let stack = std::ptr::with_exposed_provenance_mut(stack);
            // SAFETY: the stack is the new thread's alone, and this one ends.
            #[expect(unsafe_code, reason = "system calls of a process without a Rust runtime")]
            unsafe {
                if libc::clone(second_thread, stack, flags, std::ptr::null_mut()) < 0 {
                    return Err(io::Error::last_os_error());
                }
                libc::syscall(libc::SYS_exit, 0);
            }
            unreachable!("the thread has ended");
        };
        let mut command = Command::new("cat");
        // SAFETY: it makes system calls alone.
        #[expect(unsafe_code, reason = "runs between fork and exec")]
        unsafe {
            command.pre_exec(begin);
        }
        command.stdin(Stdio::piped()).spawn().expect("it begins")
    }

    #[test]
    fn a_process_whose_first_thread_alone_has_ended_lives() {
        let mut child = child_without_its_first_thread();
        let directory = format!("/proc/{}", child.id());
        while !stat(Path::new(&directory)).is_some_and(|(state, _)| has_exited(state)) {
            assert!(child.try_wait().expect("it can be asked").is_none(), "it ended at once");
            std::thread::yield_now();
        }
        for with_descriptor in [true, false] {
            let mut process = of(&child);
            if !with_descriptor {
                process.descriptor = None;
            }
            assert!(!process.has_ended(), "its second thread lives");
        }
        let process = of(&child);
        drop(child.stdin.take());
        while !process.has_ended() {
            std::thread::yield_now();
        }
        assert!(process.has_ended_by_proc());
        child.wait().expect("it has ended");
    }

    #[test]
    fn a_number_that_another_process_has_now_is_of_one_that_has_ended() {
        let (pid, started) = own();
        assert_eq!(Process::find(pid, started + 1).unwrap_err(), ended(pid));
        assert!(Process::find(pid, 0).is_ok(), "of one that nobody knows more of, nothing is said");
    }
}
