//! Splicing: receiving a large message with the help of a sender that has nothing else to do. This is the receiver's side; the sender's is
//! [`crate::rings::outlet`].
//!
//! When reading a peer's memory, the reader's processor spends more on finding the pages, one by one, than on copying them. A waiting
//! sender can find them meanwhile, in its own page tables: it puts pages, not bytes, into a pipe (vmsplice(2)), and the reader copies them
//! out (read(2)). Two pipes are used in turn, since each has a lock; two words next to the ring tell which pieces are where
//! ([`crate::rings::pieces`]). The reader asks by frames of the ring that no engine sees. A connection gets its pipes with the first
//! message that might use them.
//!
//! The pages remain the sender's, and the reader cannot write to them. But a reader that left them in a pipe could see their later
//! contents. So only peers get pipes that could read this process's memory anyway: those whose memory this process may read itself, unless
//! it has forbidden others to read its own.
//!
//! Which way is faster depends on the machine, the moment, and the sender, which may be busy. So the reader records what each way has cost
//! lately for messages of a size ([`Costs`]), takes the cheaper one, and now and then the other. It waits at most [`SPLICE_WAIT`] for a
//! requested piece, and then reads the rest itself.

mod costs;

use super::reading::{last_error, length};
use super::{Shm, Splicing};
use crate::handshake::Packet;
use crate::rings::memory::RawRing;
use crate::rings::outlet::{self, Question};
use crate::rings::pieces::{self, PIPES};
use crate::{MemoryRead, Sent};
use costs::{Costs, SIZES, Way, size_of_read};
use rustix::fd::{AsFd, AsRawFd, OwnedFd};
use rustix::fs::{FileType, Mode, OFlags};
use rustix::io::Errno;
use rustix::process::{DumpableBehavior, dumpable_behavior};
use std::time::{Duration, Instant};
use tickwire_components::limits::{
    HEAP_READS_UNSPLICED, JOB_PIPE_BYTES, PIPE_BYTES, PIPED_CONNECTIONS_MAX, SPLICE_BYTES, SPLICE_MIN,
    SPLICE_POLLS_A_CLOCK, SPLICE_WAIT, SPLICE_WAIT_ALWAYS,
};
use tickwire_components::{NoBytes, Span};

/// The state of receiving a peer's messages by splicing.
#[derive(Default)]
pub(super) struct Pipes {
    /// By size, how many further reads do not consider splicing.
    quiet: [u8; SIZES],
    incoming: Incoming,
}

/// Whether the connection has pipes.
#[derive(Default)]
enum Incoming {
    /// No message was read yet.
    #[default]
    Unasked,
    /// The peer was asked for pipes.
    Asked,
    /// There are none.
    Never,
    Open(Box<Inlet>),
}

struct Inlet {
    pipes: [OwnedFd; PIPES],
    /// Number of the next piece to ask for.
    next: u32,
    /// By size.
    costs: [Costs; SIZES],
    /// The way of the current read and when it was chosen, if the read is timed.
    timed: Option<(Way, Instant)>,
}

impl Shm {
    /// Asks the peer to splice some reads, if that is likely to cost less than reading them. Returns for how many it was asked, from the
    /// first on. They must be the next ones to be read.
    pub(super) fn ask(&mut self, link: u32, reads: &[MemoryRead]) -> usize {
        let Some(mut first) = self.wants_splice(link, reads) else { return 0 };
        let asked = reads.iter().take_while(|read| {
            let (address, length) = (read.address, read.into.len() as u64);
            // Shorter runs are never exposed.
            if read.into.len() < SPLICE_MIN {
                return false;
            }
            let question = Question { address, length, first };
            first = first.wrapping_add(pieces_of(read.into).count() as u32);
            self.links.send(link, &question.header(), &NoBytes) == Sent::Done
        });
        asked.count()
    }

    /// Whether the peer should splice some reads. Returns the number of the first piece if so.
    pub(super) fn wants_splice(&mut self, link: u32, reads: &[MemoryRead]) -> Option<u32> {
        let splicing = self.own.config.splicing;
        let line = self.connections.line_mut(link)?;
        let bytes = length(reads);
        self.timing = false;
        if line.more.pipes.is_quiet(bytes, splicing) || reads[0].into.len() < SPLICE_MIN {
            return None;
        }
        let size = size_of_read(bytes);
        let in_heap = |read: &MemoryRead| line.heap()?.find(read.address, read.into.len() as u64);
        if reads.iter().any(|read| in_heap(read).is_some()) {
            // The next reads are most likely in the heap too.
            line.more.pipes.quiet[size] = HEAP_READS_UNSPLICED;
            return None;
        }
        match &mut line.more.pipes.incoming {
            Incoming::Unasked => {
                line.more.pipes.incoming = Incoming::Asked;
                line.tell(&Packet::Splice);
                None
            }
            Incoming::Asked | Incoming::Never => None,
            Incoming::Open(inlet) => {
                let (way, timed, quiet) = match splicing {
                    Splicing::Always => (Way::Splice, false, 0),
                    _ => inlet.costs[size].choose(),
                };
                line.more.pipes.quiet[size] = quiet;
                inlet.timed = timed.then(|| (way, Instant::now()));
                self.timing = timed;
                (way == Way::Splice).then_some(inlet.next)
            }
        }
    }

    /// Takes the spliced pieces of reads that the peer was asked to splice. Returns how many bytes arrived, from the first on.
    pub(super) fn take_spliced(&mut self, link: u32, asked: &[MemoryRead]) -> usize {
        let patience = if self.own.config.splicing == Splicing::Always { SPLICE_WAIT_ALWAYS } else { SPLICE_WAIT };
        let memory = self.links.memory(link, false);
        let Some(line) = self.connections.line_mut(link) else { return 0 };
        let (Incoming::Open(inlet), Some(memory)) = (&mut line.more.pipes.incoming, memory) else { return 0 };
        let whole = asked.iter().flat_map(|read| pieces_of(read.into));
        match inlet.take(&memory, whole, patience) {
            Ok(bytes) => bytes,
            Err(bytes) => {
                // The pipes contain something else than expected: never use them again.
                line.more.pipes.incoming = Incoming::Never;
                bytes
            }
        }
    }

    /// Records what a read has cost, if it was timed.
    pub(super) fn note_cost(&mut self, link: u32, reads: &[MemoryRead], was_asked: bool) {
        if std::mem::take(&mut self.timing)
            && let Some(line) = self.connections.line_mut(link)
            && let Incoming::Open(inlet) = &mut line.more.pipes.incoming
            && let Some((way, since)) = inlet.timed.take()
            && was_asked == (way == Way::Splice)
        {
            let bytes = length(reads);
            inlet.costs[size_of_read(bytes)].note(way, bytes, since.elapsed());
        }
    }

    /// Passes pipes to a peer that wants messages spliced to it.
    pub(super) fn pass_pipes(&mut self, link: u32) {
        let with_pipes = self.links.outlets().filter(|outlet| outlet.is_piped()).count();
        let open = dumpable_behavior() == Ok(DumpableBehavior::Dumpable);
        let room = with_pipes < piped_max(self.own.config.procs);
        let Some(line) = self.connections.line(link) else { return };
        // There is no outlet if this process does not want to splice.
        let Some(outlet) = self.links.outlet(link) else { return line.tell(&Packet::Pipes) };
        if outlet.is_piped() {
            return;
        }
        // If pipes cannot be made, the peer works without them.
        let allowed = open && room && line.readable();
        let Ok(pipes) = (if allowed { outlet::pipes() } else { Err(Errno::PERM) }) else {
            return line.tell(&Packet::Pipes);
        };
        // The peer could make the ends that it gets block whoever reads them. So this process opens ends of its own.
        let [Some(first), Some(second)] = pipes.each_ref().map(|(out, _)| own_end(out)) else {
            return line.tell(&Packet::Pipes);
        };
        if line.pass(&Packet::Pipes, &pipes.each_ref().map(|(out, _)| out.as_fd())).is_ok() {
            let [(_, into), (_, into_second)] = pipes;
            outlet.set_pipes([(first, into), (second, into_second)]);
        }
    }

    /// Takes the pipes that the peer has made, or the news that it cannot make any.
    pub(super) fn take_pipes(&mut self, link: u32, passed: Vec<OwnedFd>) {
        let Some(line) = self.connections.line_mut(link) else { return };
        let Incoming::Asked = line.more.pipes.incoming else { return };
        line.more.pipes.incoming = Incoming::Never;
        let Ok(passed) = <[OwnedFd; PIPES]>::try_from(passed) else { return };
        let [Some(first), Some(second)] = passed.map(|pipe| own_end(&pipe)) else { return };
        let inlet = Inlet { pipes: [first, second], next: 0, costs: Default::default(), timed: None };
        line.more.pipes.incoming = Incoming::Open(Box::new(inlet));
    }
}

impl Pipes {
    /// Whether a read of this length need not consider splicing. Counts it if so.
    pub(super) fn is_quiet(&mut self, bytes: usize, splicing: Splicing) -> bool {
        let quiet = &mut self.quiet[size_of_read(bytes)];
        let is = splicing == Splicing::Never || *quiet > 0;
        *quiet = quiet.saturating_sub(1);
        is
    }
}

impl Inlet {
    /// Takes pieces out of the pipes, in order, until one does not arrive.
    ///
    /// # Errors
    /// The number of bytes so far, if a pipe does not hold what it should.
    fn take(
        &mut self,
        memory: &RawRing,
        whole: impl Iterator<Item = Span> + Clone,
        patience: Duration,
    ) -> Result<usize, usize> {
        let first = self.next;
        self.next = first.wrapping_add(whole.clone().count() as u32);
        let mut bytes = 0;
        // Where no more comes.
        let mut end = None;
        for (place, number) in whole.zip((0..).map(|n| first.wrapping_add(n))) {
            if end.is_none() && !wait(memory, number, patience) {
                end = Some(number.wrapping_add(pieces::skip(memory, number, self.next)));
            }
            if end == Some(number) {
                break;
            }
            if !read_whole(&self.pipes[pieces::pipe_of(number)], place) {
                pieces::skip(memory, number, self.next);
                return Err(bytes);
            }
            bytes += place.len();
            if end.is_none() {
                pieces::take(memory, number);
            }
        }
        Ok(bytes)
    }
}

/// Waits for a piece; `false` if it takes too long.
fn wait(memory: &RawRing, number: u32, patience: Duration) -> bool {
    let mut since = None;
    loop {
        for _ in 0..SPLICE_POLLS_A_CLOCK {
            if pieces::is_put(memory, number) {
                return true;
            }
            std::hint::spin_loop();
        }
        if since.get_or_insert_with(Instant::now).elapsed() > patience {
            return false;
        }
    }
}

/// The pieces that a run is spliced in.
fn pieces_of(run: Span) -> impl Iterator<Item = Span> + Clone {
    (0..run.len().div_ceil(SPLICE_BYTES)).map(move |n| run.part(n * SPLICE_BYTES, SPLICE_BYTES))
}

/// The most connections of a proc that have pipes for its messages. There are few, since all pipes of a user may hold 64 MiB in all by
/// default, of which a job of this many procs takes a quarter.
fn piped_max(procs: u32) -> usize {
    (JOB_PIPE_BYTES / (PIPES * PIPE_BYTES) / procs.max(1) as usize).clamp(1, PIPED_CONNECTIONS_MAX)
}

/// Reopens the end of a pipe that a peer has passed, so that this process decides whether reading blocks.
fn own_end(passed: &OwnedFd) -> Option<OwnedFd> {
    let found = rustix::fs::fstat(passed).ok()?;
    if FileType::from_raw_mode(found.st_mode) != FileType::Fifo {
        return None;
    }
    let path = format!("/proc/self/fd/{}", passed.as_raw_fd());
    rustix::fs::open(path, OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC, Mode::empty()).ok()
}

/// Fills a run from a pipe; `false` if there is not as much in it.
#[expect(unsafe_code, reason = "the crate that is used here has this call for slices only")]
fn read_whole(out: &OwnedFd, run: Span) -> bool {
    let mut done = 0;
    while done < run.len() {
        let rest = run.part(done, usize::MAX);
        // SAFETY: the run is valid for writes by the promise of `Span::new`.
        match unsafe { libc::read(out.as_raw_fd(), rest.start().cast(), rest.len()) } {
            read @ 1.. => done += read as usize,
            -1 if last_error() == Errno::INTR => {}
            _ => return false,
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_of_many_procs_has_pipes_for_few_connections() {
        assert_eq!([1, 2, 4, 8, 64, 5000].map(piped_max), [16, 16, 16, 8, 1, 1]);
    }
}
