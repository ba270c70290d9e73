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

use super::pieces::{self, PIPES, PieceMemory, Room};
use super::ring::Corrupt;
use rustix::fd::{AsRawFd, OwnedFd};
use rustix::io::Errno;
use rustix::pipe::{PipeFlags, fcntl_setpipe_size, pipe_with};
use std::collections::VecDeque;
use tickwire_components::Span;
use tickwire_components::limits::{
    PAGE_BYTES, PIPE_BYTES, QUESTION_LOOKS_MAX, QUESTIONS_MAX, READS_A_CALL, SPLICE_BYTES, SPLICED_A_LOOK,
};
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
        let header = Header::new(Kind::Question, 0, 0, self.first, 0, self.length);
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
mod tests {
    use super::super::pieces::tests::Words;
    use super::*;
    use std::cell::Cell;

    fn content(length: usize) -> Vec<u8> {
        (0..length).map(|n| (n * 31 % 251) as u8).collect()
    }

    #[expect(unsafe_code, reason = "lends bytes of a test")]
    fn span(bytes: &[u8]) -> Span {
        // SAFETY: the test keeps them, and nothing writes them.
        unsafe { Span::new(bytes.as_ptr().cast_mut(), bytes.len()) }
    }

    /// An outlet with pipes, which has offered these.
    fn outlet(offered: &[&[u8]]) -> Outlet {
        let mut outlet = Outlet { pipes: Some(pipes().expect("pipes")), ..Outlet::default() };
        offered.iter().for_each(|bytes| expose(&mut outlet, bytes));
        outlet
    }

    #[expect(unsafe_code, reason = "lends bytes of a test")]
    fn expose(outlet: &mut Outlet, bytes: &[u8]) {
        // SAFETY: as in `span`.
        unsafe { outlet.expose(span(bytes)) }
    }

    fn question(bytes: &[u8], first: u32) -> Header {
        Question { address: bytes.as_ptr().addr() as u64, length: bytes.len() as u64, first }.header()
    }

    /// Takes a piece out of its pipe, as its reader does.
    fn take(outlet: &Outlet, words: &Words, number: u32) -> Vec<u8> {
        let mut bytes = vec![0; SPLICE_BYTES];
        let out = &outlet.pipes().expect("not closed")[pieces::pipe_of(number)].0;
        let mut length = 0;
        while let Ok(more @ 1..) = rustix::io::read(out, &mut bytes[length..]) {
            length += more;
        }
        bytes.truncate(length);
        pieces::take(words, number);
        bytes
    }

    #[test]
    fn only_what_is_offered_may_be_asked_for() {
        let bytes = content(1000);
        let (run, other) = (&bytes[100..500], &bytes[500..600]);
        let mut outlet = outlet(&[run, other]);
        let start = run.as_ptr().addr() as u64;
        let at = |address, length| Question { address, length, first: 0 };
        for good in [at(start, 400), at(start, 1), at(start + 399, 1), at(start + 400, 100)] {
            assert_eq!(outlet.ask(&good.header()), Ok(()));
        }
        assert_eq!(outlet.answers.len(), 4);
        for wrong in [
            at(start - 1, 2),
            at(start - 1, 1),
            at(start, 401),
            at(start + 399, 2),
            at(start + 500, 1),
            at(start, 0),
            at(start + 500, 0),
            at(start, u64::MAX),
            at(start + 1, u64::MAX),
            at(u64::MAX, 1),
            at(0, 1),
            at(0, u64::MAX),
        ] {
            assert_eq!(outlet.ask(&wrong.header()), Err(Corrupt::Question(wrong.address, wrong.length)));
        }
        let good = at(start, 1).header();
        for wrong in
            [good.with_flags(1), good.with_priority(1), good.with_reserved(1), Header { name: 1 << 32, ..good }]
        {
            assert_eq!(outlet.ask(&wrong), Err(Corrupt::Kind(Kind::Question as u8)));
        }
        assert_eq!(outlet.answers.len(), 4, "nothing has changed");
        assert_eq!(Outlet::default().ask(&good), Err(Corrupt::Question(start, 1)));
    }

    #[test]
    fn pieces_go_in_order_as_far_as_there_is_room() {
        let (first, second) = (content(2 * SPLICE_BYTES + 700), content(5000));
        let mut outlet = outlet(&[&first, &second]);
        let start = u32::MAX;
        let words = Words { put: Cell::new(start), taken: Cell::new(start) };
        let part = &first[600..];
        for header in [question(part, start), question(&first[100..150], 2), question(&second, 3)] {
            assert_eq!(outlet.ask(&header), Ok(()));
        }
        assert!(outlet.look(&words), "there is more than two pipes hold");
        assert!(outlet.look(&words) && words.put.get() == 1);
        let mut whole = Vec::new();
        for number in [u32::MAX, 0, 1] {
            whole.extend(take(&outlet, &words, number));
            assert_eq!(outlet.look(&words), number != 1);
        }
        assert!(whole == part);
        assert_eq!([take(&outlet, &words, 2), take(&outlet, &words, 3)], [first[100..150].to_vec(), second.clone()]);
        assert!(outlet.answers.is_empty() && !outlet.look(&words));
        // Who skips pieces gets none of them, and the next ones.
        for header in [question(part, 4), question(&second, 7)] {
            assert_eq!(outlet.ask(&header), Ok(()));
        }
        assert_eq!(pieces::skip(&words, 4, 7), 0);
        assert!(!outlet.look(&words) && outlet.answers.is_empty());
        assert_eq!((words.put.get(), take(&outlet, &words, 7)), (8, second));
    }

    #[test]
    fn what_is_withdrawn_is_forgotten() {
        let bytes = content(4 * SPLICE_BYTES);
        let other = content(100);
        let mut outlet = outlet(&[&bytes, &other, &bytes]);
        let words = Words::default();
        for header in [question(&bytes, 0), question(&bytes[1..], 4), question(&other, 8)] {
            assert_eq!(outlet.ask(&header), Ok(()));
        }
        assert!(outlet.look(&words));
        assert!(outlet.withdraw(span(&bytes)) && outlet.answers.len() == 3, "it is offered a second time");
        assert!(outlet.withdraw(span(&bytes)) && outlet.answers.len() == 1);
        assert!(!outlet.withdraw(span(&bytes)) && !outlet.withdraw(span(&bytes[1..])));
        assert!(!outlet.look(&words) && words.put.get() == 2, "what comes behind it is out of order");
        // A question that is late is no lie, and has no answer.
        assert_eq!(outlet.ask(&question(&bytes[5..], 2)), Ok(()));
        assert!(outlet.answers.is_empty() && !outlet.look(&words));
        for _ in 0..READS_A_CALL {
            expose(&mut outlet, &other);
            assert!(outlet.withdraw(span(&other)));
        }
        assert!(outlet.ask(&question(&bytes, 2)).is_err() && outlet.withdrawn.len() == READS_A_CALL, "not for ever");
        assert_eq!(outlet.ask(&question(&other, 2)), Ok(()));
        assert_eq!(outlet.answers.len(), 1);
        outlet.withdraw_all();
        assert!(outlet.answers.is_empty() && outlet.exposed.is_empty() && !outlet.look(&words));
    }

    #[test]
    fn a_peer_that_asks_without_end_is_heard_for_its_last_questions() {
        let bytes = content(100);
        let mut outlet = outlet(&[&bytes]);
        for first in 0..1000 {
            assert_eq!(outlet.ask(&question(&bytes, first)), Ok(()));
        }
        let first = outlet.answers.front().expect("kept").piece as usize;
        assert_eq!((outlet.answers.len(), first), (QUESTIONS_MAX, 1000 - QUESTIONS_MAX));
    }

    #[test]
    fn a_reader_that_has_stopped_is_not_waited_for_without_end() {
        let bytes = content(4 * SPLICE_BYTES);
        let mut outlet = outlet(&[&bytes]);
        let words = Words::default();
        assert_eq!(outlet.ask(&question(&bytes, 0)), Ok(()));
        let mut looks = 1;
        while outlet.look(&words) {
            looks += 1;
        }
        assert_eq!((looks, words.put.get()), (QUESTION_LOOKS_MAX, 2));
        assert!(outlet.answers.is_empty());
        // It takes what is there, and asks again: from where it is.
        take(&outlet, &words, 0);
        take(&outlet, &words, 1);
        assert_eq!(outlet.ask(&question(&bytes[2 * SPLICE_BYTES..], 2)), Ok(()));
        assert!(!outlet.look(&words) && words.put.get() == 4);
    }

    /// A reader that takes each piece at once.
    struct Greedy<'a>(Words, &'a OwnedFd, &'a OwnedFd);

    impl PieceMemory for Greedy<'_> {
        fn load_put(&self, order: super::super::atomics::Ordering) -> u32 {
            self.0.load_put(order)
        }
        fn exchange_put(&self, before: u32, after: u32) -> bool {
            assert!(empty(self.1) && empty(self.2));
            self.0.taken.set(after);
            self.0.exchange_put(before, after)
        }
        fn swap_put(&self, after: u32) -> u32 {
            self.0.swap_put(after)
        }
        fn load_taken(&self, order: super::super::atomics::Ordering) -> u32 {
            self.0.load_taken(order)
        }
        fn store_taken(&self, taken: u32, order: super::super::atomics::Ordering) {
            self.0.store_taken(taken, order);
        }
    }

    #[test]
    fn one_look_puts_so_many_pieces_however_fast_they_are_taken() {
        let bytes = content((2 * SPLICED_A_LOOK + 1) * SPLICE_BYTES);
        let mut outlet = outlet(&[&bytes]);
        let out = |at: usize| outlet.pipes().expect("there")[at].0.try_clone().expect("a descriptor");
        let (one, two) = (out(0), out(1));
        let words = Greedy(Words::default(), &one, &two);
        assert_eq!(outlet.ask(&question(&bytes, 0)), Ok(()));
        let mut put = Vec::new();
        while outlet.look(&words) {
            put.push(words.0.put.get() as usize);
        }
        assert_eq!(put, [SPLICED_A_LOOK, 2 * SPLICED_A_LOOK]);
        assert_eq!(words.0.put.get() as usize, 2 * SPLICED_A_LOOK + 1);
    }

    #[test]
    fn a_piece_that_cannot_be_put_whole_leaves_nothing_in_its_pipe() {
        let bytes = content(3 * SPLICE_BYTES);
        let mut outlet = outlet(&[&bytes]);
        let words = Words::default();
        // The peer's end of the pipe can be written through, too: there is not room for a piece.
        let pipes = outlet.pipes().expect("there");
        assert!(matches!(rustix::io::write(&pipes[0].1, &bytes[..PIPE_BYTES - PAGE_BYTES]), Ok(1..)));
        assert_eq!(outlet.ask(&question(&bytes, 0)), Ok(()));
        assert!(!outlet.look(&words) && outlet.answers.is_empty() && words.put.get() == 0);
        assert!(outlet.is_piped() && take(&outlet, &words, 0).is_empty());
        // Without pipes nothing is put, and nobody waits.
        outlet.pipes = None;
        assert_eq!(outlet.ask(&question(&bytes, 0)), Ok(()));
        words.taken.set(0);
        assert!(!outlet.look(&words) && outlet.answers.is_empty());
    }
}
