//! Staging: receiving a large message with the help of a sender that has nothing else to do. This is the receiver's side; the sender's is
//! [`crate::rings::outlet`].
//!
//! When the kernel reads a peer's memory, it spends more time on finding the pages, one by one, than on copying them. A waiting sender can
//! copy the bytes into a buffer that both share, while the receiver copies earlier ones out: two copies that take place at once take less
//! time than one by the kernel. The receiver asks by frames of the ring that no engine sees. A direction of a connection gets its buffer
//! with the first message that might use it.
//!
//! A sender stages only what it has offered to this peer, and only a copy: what its memory holds later, no peer sees.
//!
//! Which way is faster depends on the machine, the moment, and the sender, which may be busy. So the receiver records what each way has
//! cost lately for messages of a size ([`Costs`]), takes the cheaper one, and now and then the other. It waits at most [`STAGING_WAIT`] for
//! each step of the requested bytes, and then reads the rest itself.

mod costs;

use super::own::Own;
use super::reading::length;
use super::segment::{self, Map, Share};
use super::{Shm, Staging};
use crate::copy::copy_long;
use crate::handshake::Packet;
use crate::rings::memory::RawRing;
use crate::rings::outlet::Question;
use crate::rings::staging::{self, Position, StagingBuffer};
use crate::{MemoryRead, Sent};
use costs::{Costs, SIZES, Way, size_of_read};
use rustix::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use tickwire_components::limits::{
    HEAP_READS_UNSTAGED, STAGING_BYTES, STAGING_MIN, STAGING_POLLS_A_CLOCK, STAGING_STEP_BYTES, STAGING_TAKEN_BYTES,
    STAGING_WAIT, STAGING_WAIT_ALWAYS,
};
use tickwire_components::{NoBytes, Span};

/// The state of receiving a peer's messages by staging.
#[derive(Default)]
pub(super) struct Staged {
    /// By size, how many further reads do not consider staging.
    quiet: [u8; SIZES],
    incoming: Incoming,
}

/// Whether the connection has a staging buffer.
#[derive(Default)]
enum Incoming {
    /// No message was read yet.
    #[default]
    Unasked,
    /// The peer was asked for one.
    Asked,
    /// There is none.
    Never,
    Open(Box<Inlet>),
}

struct Inlet {
    buffer: StagingBuffer,
    /// The position of the next byte to ask for.
    next: Position,
    /// By size.
    costs: [Costs; SIZES],
    /// The way of the current read and when it was chosen, if the read is timed.
    timed: Option<(Way, Instant)>,
}

impl Shm {
    /// Asks the peer to stage some reads, if that is likely to cost less than reading them. Returns for how many it was asked, from the
    /// first on. They must be the next ones to be read.
    pub(super) fn ask(&mut self, link: u32, reads: &[MemoryRead]) -> usize {
        let Some(mut at) = self.wants_staging(link, reads) else { return 0 };
        let asked = reads.iter().take_while(|read| {
            let (address, length) = (read.address, read.into.len() as u64);
            // Shorter runs are never exposed.
            if read.into.len() < STAGING_MIN {
                return false;
            }
            let question = Question { address, length, at };
            at = staging::after(at, length);
            self.links.send(link, &question.header(), &NoBytes) == Sent::Done
        });
        asked.count()
    }

    /// Whether the peer should stage some reads. Returns the position of the first byte if so.
    pub(super) fn wants_staging(&mut self, link: u32, reads: &[MemoryRead]) -> Option<Position> {
        let staging = self.own.config.staging;
        let line = self.connections.line_mut(link)?;
        let bytes = length(reads);
        self.timing = false;
        if line.more.staged.is_quiet(bytes, staging) || reads[0].into.len() < STAGING_MIN {
            return None;
        }
        let size = size_of_read(bytes);
        let in_heap = |read: &MemoryRead| line.heap()?.find(read.address, read.into.len() as u64);
        if reads.iter().any(|read| in_heap(read).is_some()) {
            // The next reads are most likely in the heap too.
            line.more.staged.quiet[size] = HEAP_READS_UNSTAGED;
            return None;
        }
        match &mut line.more.staged.incoming {
            Incoming::Unasked => {
                line.more.staged.incoming = Incoming::Asked;
                line.tell(&Packet::AskStaging);
                None
            }
            Incoming::Asked | Incoming::Never => None,
            Incoming::Open(inlet) => {
                let (way, timed, quiet) = match staging {
                    Staging::Always => (Way::Stage, false, 0),
                    _ => inlet.costs[size].choose(),
                };
                line.more.staged.quiet[size] = quiet;
                inlet.timed = timed.then(|| (way, Instant::now()));
                self.timing = timed;
                (way == Way::Stage).then_some(inlet.next)
            }
        }
    }

    /// Takes the staged bytes of reads that the peer was asked to stage. Returns how many arrived, from the first on.
    pub(super) fn take_staged(&mut self, link: u32, asked: &[MemoryRead]) -> usize {
        let patience = if self.own.config.staging == Staging::Always { STAGING_WAIT_ALWAYS } else { STAGING_WAIT };
        let memory = self.links.memory(link, false);
        let Some(line) = self.connections.line_mut(link) else { return 0 };
        let (Incoming::Open(inlet), Some(memory)) = (&mut line.more.staged.incoming, memory) else { return 0 };
        inlet.take(&memory, asked, patience)
    }

    /// Records what a read has cost, if it was timed.
    pub(super) fn note_cost(&mut self, link: u32, reads: &[MemoryRead], was_asked: bool) {
        if std::mem::take(&mut self.timing)
            && let Some(line) = self.connections.line_mut(link)
            && let Incoming::Open(inlet) = &mut line.more.staged.incoming
            && let Some((way, since)) = inlet.timed.take()
            && was_asked == (way == Way::Stage)
        {
            let bytes = length(reads);
            inlet.costs[size_of_read(bytes)].note(way, bytes, since.elapsed());
        }
    }

    /// Passes a staging buffer to a peer that wants messages staged to it, or the news that there is none.
    pub(super) fn pass_staging(&mut self, link: u32) {
        let Some(line) = self.connections.line(link) else { return };
        // There is no outlet if this process does not want to stage.
        let Some(outlet) = self.links.outlet(link) else { return line.tell(&Packet::Staging) };
        if outlet.has_buffer() {
            return;
        }
        // If there is no memory for a buffer, the peer works without one.
        let Some((file, map, share)) = make(&self.own) else { return line.tell(&Packet::Staging) };
        match line.pass(&Packet::Staging, &[file.as_fd()]) {
            Ok(()) => outlet.set_buffer(view(map, Some(share))),
            Err(_) => line.tell(&Packet::Staging),
        }
    }

    /// Drops the staging buffer that a peer could not take.
    pub(super) fn drop_staging(&mut self, link: u32) {
        if let Some(outlet) = self.links.outlet(link) {
            outlet.drop_buffer();
        }
    }

    /// Takes the staging buffer that the peer has made, or the news that there is none. What cannot be one is none. If it could not be
    /// taken, for want of memory or of descriptor numbers, the peer is told and drops it.
    pub(super) fn take_staging(&mut self, link: u32, passed: Vec<OwnedFd>) {
        let Some(line) = self.connections.line_mut(link) else { return };
        let Incoming::Asked = line.more.staged.incoming else { return };
        line.more.staged.incoming = Incoming::Never;
        let file = <[OwnedFd; 1]>::try_from(passed).ok();
        let map = file.and_then(|[file]| segment::receive(file, STAGING_BYTES, self.own.files).ok());
        let Some(map) = map else { return line.tell(&Packet::NoStaging) };
        let inlet = Inlet { buffer: view(map, None), next: 0, costs: Default::default(), timed: None };
        line.more.staged.incoming = Incoming::Open(Box::new(inlet));
    }
}

/// Makes a staging buffer, if the bound on grown rings leaves room for it. As for long rings, that is half of the bound.
fn make(own: &Own) -> Option<(OwnedFd, Map, Share)> {
    let grown = own.grown.load(Ordering::Relaxed);
    if grown + STAGING_BYTES as u64 > own.config.grown_bytes_max as u64 / 2 {
        return None;
    }
    let (file, map) = segment::create(own.place(), STAGING_BYTES).ok()?;
    Some((file, map, Share::of(&own.grown, STAGING_BYTES)))
}

/// A view of a whole segment as a staging buffer. It keeps the segment and its share of the bound.
fn view(map: Map, share: Option<Share>) -> StagingBuffer {
    map.populate();
    // SAFETY: a mapping of this length, allocated and kept by the view. Nobody but the two sides has it.
    #[expect(unsafe_code, reason = "a view of shared memory")]
    unsafe {
        StagingBuffer::new(map.base(), Arc::new((map, share)))
    }
}

impl Staged {
    /// Whether a read of this length need not consider staging. Counts it if so.
    pub(super) fn is_quiet(&mut self, bytes: usize, staging: Staging) -> bool {
        let quiet = &mut self.quiet[size_of_read(bytes)];
        let is = staging == Staging::Never || *quiet > 0;
        *quiet = quiet.saturating_sub(1);
        is
    }
}

impl Inlet {
    /// Takes bytes out of the staging buffer, in order, until some do not arrive in time. Returns how many arrived. The peer stages no more
    /// of them.
    fn take(&mut self, memory: &RawRing, asked: &[MemoryRead], patience: Duration) -> usize {
        let mut at = self.next;
        self.next = asked.iter().fold(at, |at, read| staging::after(at, read.into.len() as u64));
        let mut arrived = 0;
        for read in asked {
            let bytes = self.take_run(memory, at, read.into, patience);
            arrived += bytes;
            if bytes < read.into.len() {
                break;
            }
            at = staging::after(at, bytes as u64);
        }
        staging::skip(memory, self.next);
        arrived
    }

    /// Takes the bytes from a position on into a run, until some do not arrive in time. Returns how many arrived. It takes whole steps, so
    /// that the number of waits is bounded: a sender that tells of single bytes counts as one that tells of none.
    fn take_run(&self, memory: &RawRing, mut at: Position, into: Span, patience: Duration) -> usize {
        let mut rest = into;
        while !rest.is_empty() {
            let step = self.buffer.place(at, rest.len().min(STAGING_STEP_BYTES)).len();
            let there = wait(memory, at, step, patience);
            if there < step {
                break;
            }
            let place = self.buffer.place(at, there.min(rest.len()).min(STAGING_TAKEN_BYTES));
            // SAFETY: the place is in the buffer, and the run is valid for writes by the promise of `Span::new`.
            #[expect(unsafe_code, reason = "bytes that are addresses")]
            let taken = unsafe { copy_long(rest, place) };
            staging::take(memory, at, taken);
            at = at.wrapping_add(taken as Position);
            rest = rest.part(taken, usize::MAX);
        }
        into.len() - rest.len()
    }
}

/// Waits until `least` bytes are there from a position on. Returns how many are; fewer if it takes too long.
fn wait(memory: &RawRing, at: Position, least: usize, patience: Duration) -> usize {
    let mut since = None;
    loop {
        for _ in 0..STAGING_POLLS_A_CLOCK {
            let there = staging::there(memory, at);
            if there >= least {
                return there;
            }
            std::hint::spin_loop();
        }
        if since.get_or_insert_with(Instant::now).elapsed() > patience {
            return 0;
        }
    }
}
