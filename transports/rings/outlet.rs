//! The sender's side of splicing: what a peer may ask for, what it has asked for, and the pipes that this goes through.
//!
//! A receiver that reads a message out of this process's memory may ask that a part of it be spliced ([`Question`]). The
//! answer is pieces of the message's own pages, put into two pipes in turn; [`super::pieces`] says which of them are there. A
//! question that is not answered in time costs its asker nothing but that time.
//!
//! Whoever asks may be hostile. So an outlet knows what was offered to its peer, run by run ([`Outlet::expose`]), and nothing
//! else is spliced. A run is the engine's until its send ends, and then it is withdrawn: [`Outlet::withdraw`] forgets all
//! questions for it. **Every question in the list is for bytes that are exposed at this moment**: this is why they are valid.
//!
//! The list, the pieces that one look puts, and the looks that a piece waits for room are all bounded.

use super::mark::Mark;
use super::pieces::{self, PIPES, PieceMemory, Room};
use super::ring::Corrupt;
use super::splice_limits::{PIPE_BYTES, QUESTION_LOOKS_MAX, QUESTIONS_MAX, SPLICE_BYTES, SPLICED_A_LOOK};
use rustix::fd::{AsRawFd, OwnedFd};
use rustix::io::Errno;
use rustix::pipe::{PipeFlags, fcntl_setpipe_size, pipe_with};
use std::collections::VecDeque;
use tickwire_components::Span;
use tickwire_components::limits::{PAGE_BYTES, READS_A_CALL};
use tickwire_components::wire::{Header, Kind};

/// Both ends of a pipe: out of it, into it.
pub type Pipe = (OwnedFd, OwnedFd);

/// The pipes of a connection and direction.
///
/// # Errors
/// If there are no more descriptors, or the user's pipes hold as much as they may.
pub fn pipes() -> Result<[Pipe; PIPES], Errno> {
    Ok([pipe()?, pipe()?])
}

/// A pipe that a piece fits in, whatever pages it starts and ends in.
fn pipe() -> Result<Pipe, Errno> {
    let (out, into) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?;
    // The kernel counts pages, whatever their size.
    fcntl_setpipe_size(&into, PIPE_BYTES / PAGE_BYTES * rustix::param::page_size())?;
    Ok((out, into))
}

/// What a receiver asks of its sender: bytes at an address of the sender, as the pieces from a number on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Question {
    /// Where the bytes are at the sender.
    pub address: u64,
    /// How many.
    pub length: u64,
    /// Number of the first piece.
    pub first: u32,
}

impl Question {
    /// The frame that asks it.
    pub const fn header(self) -> Header {
        let header =
            Header { lead: Mark::Question as u64, ..Header::new(Kind::Eager, 0, 0, self.first, 0, self.length) };
        Header { origin: self.address, ..header }
    }

    /// What such a frame asks.
    ///
    /// # Errors
    /// If it has more than a question has.
    fn of(header: &Header) -> Result<Self, Corrupt> {
        let question = Question { address: header.origin, length: header.length, first: header.tag() };
        match question.header() == *header {
            true => Ok(question),
            false => Err(Corrupt::Kind(header.lead as u8)),
        }
    }
}

/// A question that is being answered.
struct Answer {
    /// Number of the next piece.
    piece: u32,
    /// Looks that have found no room for it.
    waited: u32,
    /// What is left of the bytes that were asked for: a part of an exposed run.
    rest: Span,
}

/// What becomes of a piece.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Put {
    /// The peer has it.
    Done,
    /// Its pipe is not empty yet.
    Full,
    /// Nobody wants it any more, nor any that follows.
    Over,
}

/// What a peer is given besides frames. See the module.
#[derive(Default)]
pub struct Outlet {
    /// What was offered to the peer and is not withdrawn, oldest first.
    exposed: VecDeque<Span>,
    /// What was withdrawn lately: a question for it came too late, and is no lie.
    withdrawn: VecDeque<Span>,
    /// In the order in which they were asked, which is that of their pieces.
    answers: VecDeque<Answer>,
    /// All ends, so that a reader that has died is no broken pipe.
    pipes: Option<[Pipe; PIPES]>,
}

impl Outlet {
    /// Lets the peer ask for a run, which has been offered to it.
    ///
    /// # Safety
    /// The run is valid for reads, and nobody writes it, until it is [withdrawn](Outlet::withdraw), or all is, or the outlet is
    /// dropped.
    #[expect(unsafe_code, reason = "keeps an address")]
    #[inline(never)]
    pub unsafe fn expose(&mut self, run: Span) {
        self.exposed.push_back(run);
    }

    /// Takes a run back that was exposed, and forgets what was asked of it. The same run may be exposed more than once; then it
    /// is taken back as often. `false` if it is not exposed.
    #[inline(never)]
    pub fn withdraw(&mut self, run: Span) -> bool {
        // Messages end in the order of their offers, most often.
        let Some(at) = self.exposed.iter().position(|other| is_same(*other, run)) else { return false };
        self.exposed.remove(at);
        if self.withdrawn.len() == READS_A_CALL {
            self.withdrawn.pop_front();
        }
        self.withdrawn.push_back(run);
        let exposed = &self.exposed;
        self.answers.retain(|answer| is_exposed(exposed, answer.rest));
        true
    }

    /// Takes back all that was exposed.
    pub fn withdraw_all(&mut self) {
        self.answers.clear();
        self.exposed.clear();
    }

    /// Whether it has pipes.
    pub fn is_piped(&self) -> bool {
        self.pipes.is_some()
    }

    /// Its pipes.
    #[cfg(all(test, not(miri)))]
    pub(crate) fn pipes(&self) -> Option<&[Pipe; PIPES]> {
        self.pipes.as_ref()
    }

    /// Gives it pipes whose other ends the peer has been passed.
    pub fn set_pipes(&mut self, pipes: [Pipe; PIPES]) {
        self.pipes = Some(pipes);
    }

    /// Takes a question. Of more than are kept, the oldest is one that nobody waits for any more.
    ///
    /// # Errors
    /// If it is for anything but a part of what was offered to the peer.
    pub fn ask(&mut self, header: &Header) -> Result<(), Corrupt> {
        let question = Question::of(header)?;
        let part = |run: &Span| part_of(*run, question);
        let Some(rest) = self.exposed.iter().find_map(part) else {
            let is_late = self.withdrawn.iter().any(|run| part(run).is_some());
            return if is_late { Ok(()) } else { Err(Corrupt::Question(question.address, question.length)) };
        };
        if self.answers.len() == QUESTIONS_MAX {
            self.answers.pop_front();
        }
        self.answers.push_back(Answer { piece: question.first, waited: 0, rest });
        Ok(())
    }

    /// Puts pieces that have room, and forgets what nobody wants any more. `true` if it is to be called again soon: something
    /// waits for room, or there has been enough for one look.
    pub fn look<M: PieceMemory>(&mut self, memory: &M) -> bool {
        let mut left = SPLICED_A_LOOK;
        while let Some(answer) = self.answers.front_mut() {
            if left == 0 {
                return true;
            }
            let piece = answer.rest.part(0, SPLICE_BYTES);
            // SAFETY: what is left of a question is a part of a run that is exposed: whatever is withdrawn, its questions go
            // with it. By the promise of `expose` it is valid for reads and stays as it is.
            #[expect(unsafe_code, reason = "bytes that are addresses")]
            let put = unsafe { put_piece(&mut self.pipes, memory, answer.piece, piece) };
            match put {
                Put::Done => {
                    left -= 1;
                    *answer = Answer {
                        piece: answer.piece.wrapping_add(1),
                        waited: 0,
                        rest: answer.rest.part(piece.len(), usize::MAX),
                    };
                }
                Put::Full => {
                    answer.waited += 1;
                    if answer.waited < QUESTION_LOOKS_MAX {
                        return true;
                    }
                }
                Put::Over => answer.rest = Span::EMPTY,
            }
            if answer.rest.is_empty() || answer.waited == QUESTION_LOOKS_MAX {
                self.answers.pop_front();
            }
        }
        false
    }
}

fn is_same(one: Span, other: Span) -> bool {
    one.start() == other.start() && one.len() == other.len()
}

/// The part of a run that is asked for, if all of it is in the run.
fn part_of(run: Span, Question { address, length, .. }: Question) -> Option<Span> {
    let offset = address.checked_sub(run.start().addr() as u64)?;
    let end = offset.checked_add(length)?;
    (length > 0 && end <= run.len() as u64).then(|| run.part(offset as usize, length as usize))
}

/// Whether all of some bytes are in one of some runs.
fn is_exposed(exposed: &VecDeque<Span>, bytes: Span) -> bool {
    let question = Question { address: bytes.start().addr() as u64, length: bytes.len() as u64, first: 0 };
    exposed.iter().any(|run| part_of(*run, question).is_some())
}

/// Puts a piece into its pipe, as a whole, and says so to the peer.
///
/// # Safety
/// It is valid for reads, and nobody writes it until its message ends.
#[expect(unsafe_code, reason = "bytes that are addresses")]
unsafe fn put_piece<M: PieceMemory>(pipes: &mut Option<[Pipe; PIPES]>, memory: &M, number: u32, piece: Span) -> Put {
    match pieces::room(memory, number) {
        Room::Over => return Put::Over,
        Room::Full => return Put::Full,
        Room::Free => {}
    }
    let Some((out, into)) = pipes.as_ref().map(|pipes| &pipes[pieces::pipe_of(number)]) else { return Put::Over };
    // SAFETY: by the same contract.
    let is_whole = unsafe { splice(into, piece) } == Ok(piece.len());
    if is_whole && pieces::put(memory, number) {
        return Put::Done;
    }
    // The reader takes out what it was told of, and so nothing of this.
    if !empty(out) {
        *pipes = None;
    }
    Put::Over
}

/// Puts the pages of a run into a pipe.
///
/// # Safety
/// As [`put_piece`].
#[expect(unsafe_code, reason = "the crate that is used here has this call for slices only")]
unsafe fn splice(into: &OwnedFd, run: Span) -> Result<usize, Errno> {
    let run = libc::iovec { iov_base: run.start().cast(), iov_len: run.len() };
    // SAFETY: the kernel reads the run, by this function's contract, and writes nothing to it. What its pages hold until they
    // are read is the peer's to see, until it says that it is done: they are lent for that long.
    let put = unsafe { libc::vmsplice(into.as_raw_fd(), &raw const run, 1, libc::SPLICE_F_NONBLOCK) };
    usize::try_from(put).map_err(|_| Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO))
}

/// Takes out whatever is in a pipe; `false` if it cannot be said to be empty.
fn empty(out: &OwnedFd) -> bool {
    let mut bytes = [0; 4096];
    // One more than it holds.
    for _ in 0..=2 * PIPE_BYTES / bytes.len() {
        match rustix::io::read(out, &mut bytes) {
            Err(Errno::AGAIN) => return true,
            Ok(1..) | Err(Errno::INTR) => {}
            _ => return false,
        }
    }
    false
}

#[cfg(all(test, not(miri), not(tickwire_loom)))]
mod tests;
