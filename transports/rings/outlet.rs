//! The sender's side of splicing: what a peer may ask for, what it has asked for, and the pipes that carry the pages.
//!
//! A receiver that reads a message out of this process's memory may ask that a part of it be spliced ([`Question`]). The answer consists of
//! pieces of the message's own pages, put into two pipes in turn; [`super::pieces`] records which of them are in the pipes. If a question
//! is not answered in time, the receiver loses only that time.
//!
//! The receiver may be hostile. So an outlet knows which runs were offered to its peer ([`Outlet::expose`]), and splices nothing else. The
//! engine owns a run until its send ends; then the run is withdrawn, and [`Outlet::withdraw`] forgets all questions about it. **Every
//! question in the list is for bytes that are exposed at this moment**: this is why they are valid.
//!
//! The length of the list, the pieces that one call puts into pipes, and the calls that a piece waits for room are all bounded.

use super::mark::Mark;
use super::pieces::{self, PIPES, PieceMemory, Room};
use super::ring::Corrupt;
use rustix::fd::{AsRawFd, OwnedFd};
use rustix::io::Errno;
use rustix::pipe::{PipeFlags, fcntl_setpipe_size, pipe_with};
use std::collections::VecDeque;
use tickwire_components::Span;
use tickwire_components::limits::{
    PAGE_BYTES, PIPE_BYTES, READS_A_CALL, SPLICE_BYTES, SPLICE_CALLS_MAX, SPLICE_QUESTIONS_MAX, SPLICED_A_CALL,
};
use tickwire_components::wire::{Header, Kind};

/// Both ends of a pipe: the end to read, and the end to write.
pub type Pipe = (OwnedFd, OwnedFd);

/// Makes the pipes of one direction of a connection.
///
/// # Errors
/// If there are no more descriptors, or the user's pipes hold as much as they may.
pub fn pipes() -> Result<[Pipe; PIPES], Errno> {
    Ok([pipe()?, pipe()?])
}

/// A pipe that has room for a piece, wherever in a page the piece starts and ends.
fn pipe() -> Result<Pipe, Errno> {
    let (out, into) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?;
    // The kernel counts pages, whatever their size.
    fcntl_setpipe_size(&into, PIPE_BYTES / PAGE_BYTES * rustix::param::page_size())?;
    Ok((out, into))
}

/// A receiver's question to its sender: to splice bytes at an address of the sender, as pieces numbered from `first` on.
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
    /// The header of the frame that carries the question.
    pub const fn header(self) -> Header {
        let header =
            Header { lead: Mark::Question as u64, ..Header::new(Kind::Eager, 0, 0, self.first, 0, self.length) };
        Header { origin: self.address, ..header }
    }

    /// Reads the question from such a header.
    ///
    /// # Errors
    /// If the header has fields set that a question does not use.
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
    /// How many calls have found no room for that piece.
    waited: u32,
    /// The requested bytes that are not put yet: a part of an exposed run.
    rest: Span,
}

/// The result of putting a piece into its pipe.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Put {
    /// The piece is in its pipe, and the peer can see that.
    Done,
    /// Its pipe is not empty yet.
    Full,
    /// The peer no longer wants this piece, nor any later one of the question.
    Over,
}

/// Splices parts of offered messages to one peer. See the module.
#[derive(Default)]
pub struct Outlet {
    /// Runs that were offered to the peer and not withdrawn, oldest first.
    exposed: VecDeque<Span>,
    /// Runs that were withdrawn lately: a question about one of them came too late, but is no error.
    withdrawn: VecDeque<Span>,
    /// Open questions, in the order in which they were asked, which is the order of their pieces.
    answers: VecDeque<Answer>,
    /// The pipes, if any. This process keeps both ends, so that the death of the reader does not break a pipe.
    pipes: Option<[Pipe; PIPES]>,
}

impl Outlet {
    /// Lets the peer ask for parts of a run that has been offered to it.
    ///
    /// # Safety
    /// The run is valid for reads, and nobody writes it, until it is [withdrawn](Outlet::withdraw), or all is, or the outlet is
    /// dropped.
    #[expect(unsafe_code, reason = "keeps an address")]
    #[inline(never)]
    pub unsafe fn expose(&mut self, run: Span) {
        self.exposed.push_back(run);
    }

    /// Withdraws an exposed run, and forgets the questions about it. A run that was exposed several times must be withdrawn as often.
    /// `false` if it is not exposed.
    #[inline(never)]
    pub fn withdraw(&mut self, run: Span) -> bool {
        // Messages mostly end in the order of their offers.
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

    /// Withdraws all runs.
    pub fn withdraw_all(&mut self) {
        self.answers.clear();
        self.exposed.clear();
    }

    /// Whether the outlet has pipes.
    pub fn is_piped(&self) -> bool {
        self.pipes.is_some()
    }

    /// Its pipes.
    #[cfg(all(test, not(miri)))]
    pub(crate) fn pipes(&self) -> Option<&[Pipe; PIPES]> {
        self.pipes.as_ref()
    }

    /// Sets the pipes, whose other ends were passed to the peer.
    pub fn set_pipes(&mut self, pipes: [Pipe; PIPES]) {
        self.pipes = Some(pipes);
    }

    /// Accepts a question. If there are too many, drops the oldest, which the peer no longer waits for.
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
        if self.answers.len() == SPLICE_QUESTIONS_MAX {
            self.answers.pop_front();
        }
        self.answers.push_back(Answer { piece: question.first, waited: 0, rest });
        Ok(())
    }

    /// Puts pieces into pipes as long as there is room, and drops questions that are over. `true` if it must be called again soon: a piece
    /// waits for room, or this call has put as many as it may.
    pub fn look<M: PieceMemory>(&mut self, memory: &M) -> bool {
        let mut left = SPLICED_A_CALL;
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
                    if answer.waited < SPLICE_CALLS_MAX {
                        return true;
                    }
                }
                Put::Over => answer.rest = Span::EMPTY,
            }
            if answer.rest.is_empty() || answer.waited == SPLICE_CALLS_MAX {
                self.answers.pop_front();
            }
        }
        false
    }
}

fn is_same(one: Span, other: Span) -> bool {
    one.start() == other.start() && one.len() == other.len()
}

/// The part of a run that a question asks for, if all of it lies in the run.
fn part_of(run: Span, Question { address, length, .. }: Question) -> Option<Span> {
    let offset = address.checked_sub(run.start().addr() as u64)?;
    let end = offset.checked_add(length)?;
    (length > 0 && end <= run.len() as u64).then(|| run.part(offset as usize, length as usize))
}

/// Whether all of `bytes` lie in one exposed run.
fn is_exposed(exposed: &VecDeque<Span>, bytes: Span) -> bool {
    let question = Question { address: bytes.start().addr() as u64, length: bytes.len() as u64, first: 0 };
    exposed.iter().any(|run| part_of(*run, question).is_some())
}

/// Puts a whole piece into its pipe, and tells the peer.
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
    // The reader takes out only pieces that it was told of, so this one must be removed here.
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

/// Empties a pipe. `false` if it may not be empty.
fn empty(out: &OwnedFd) -> bool {
    let mut bytes = [0; 4096];
    // Read more often than the pipe's size requires.
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
