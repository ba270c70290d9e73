//! The sender's side of staging: what a peer may ask for, what it has asked for, and the staging buffer that carries the bytes.
//!
//! A receiver that reads a message out of this process's memory may ask that a part of it be staged instead ([`Question`]). The answer is a
//! copy of the bytes in the staging buffer ([`super::staging`]). If a question is not answered in time, the receiver loses only that time.
//!
//! The receiver may be hostile. So an outlet knows which runs were offered to its peer ([`Outlet::expose`]), and stages nothing else. The
//! engine owns a run until its send ends; then the run is withdrawn, and [`Outlet::withdraw`] forgets all questions about it. **Every
//! question in the list is for bytes that are exposed at this moment**: this is why they are valid.
//!
//! The length of the list, the bytes that one call copies, and the calls that a question waits for room are all bounded.

use super::distance::Distance;
use super::mark::Mark;
use super::ring::Corrupt;
use super::staging::{self, Position, Room, StagingBuffer, StagingWords};
use crate::copy::{copy_long, copy_past, fence_streams};
use std::collections::VecDeque;
use tickwire_components::Span;
use tickwire_components::limits::{
    READS_A_CALL, STAGED_A_CALL, STAGING_CALLS_MAX, STAGING_QUESTIONS_MAX, STAGING_STEP_BYTES,
};
use tickwire_components::wire::{Header, Kind};

/// A receiver's question to its sender: to stage bytes at an address of the sender, from a position of the staging buffer on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Question {
    /// Where the bytes are at the sender.
    pub address: u64,
    /// How many.
    pub length: u64,
    /// The position of the first one.
    pub at: Position,
}

impl Question {
    /// The header of the frame that carries the question.
    pub const fn header(self) -> Header {
        let header = Header { lead: Mark::Question as u64, ..Header::new(Kind::Eager, 0, 0, 0, 0, self.length) };
        Header { origin: self.address, name: self.at, ..header }
    }

    /// Reads the question from such a header.
    ///
    /// # Errors
    /// If the header has fields set that a question does not use.
    fn of(header: &Header) -> Result<Self, Corrupt> {
        let question = Question { address: header.origin, length: header.length, at: header.name };
        match question.header() == *header {
            true => Ok(question),
            false => Err(Corrupt::Kind(header.lead as u8)),
        }
    }
}

/// A question that is being answered.
struct Answer {
    /// The position of the next byte.
    at: Position,
    /// How many calls have found no room for it.
    waited: u32,
    /// The requested bytes that are not put yet: a part of an exposed run.
    rest: Span,
}

/// Stages parts of offered messages to one peer. See the module.
pub struct Outlet {
    /// Runs that were offered to the peer and not withdrawn, oldest first.
    exposed: VecDeque<Span>,
    /// Runs that were withdrawn lately: a question about one of them came too late, but is no error.
    withdrawn: VecDeque<Span>,
    /// Open questions, in the order in which they were asked, which is the order of their positions.
    answers: VecDeque<Answer>,
    /// The last position whose byte will never be put, because its question was forgotten. If later bytes were put, the receiver would
    /// take them for it. So nothing is put until the receiver has skipped this position.
    lost: Option<Position>,
    /// How far the receiver was when that was last read, and how long reading it takes. The receiver counts as near until that is known.
    taken: Position,
    distance: Distance,
    /// The staging buffer, if there is one.
    buffer: Option<StagingBuffer>,
}

impl Default for Outlet {
    fn default() -> Self {
        Outlet {
            exposed: VecDeque::new(),
            withdrawn: VecDeque::new(),
            answers: VecDeque::new(),
            lost: None,
            taken: 0,
            distance: Distance::assumed(true),
            buffer: None,
        }
    }
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
        let Outlet { exposed, answers, lost, .. } = self;
        answers.retain(|answer| {
            let is_valid = is_exposed(exposed, answer.rest);
            if !is_valid {
                lose(lost, answer.at);
            }
            is_valid
        });
        true
    }

    /// Withdraws all runs.
    pub fn withdraw_all(&mut self) {
        self.answers.drain(..).for_each(|answer| lose(&mut self.lost, answer.at));
        self.exposed.clear();
    }

    /// Whether the outlet has a staging buffer.
    pub fn has_buffer(&self) -> bool {
        self.buffer.is_some()
    }

    /// Sets the staging buffer, which was passed to the peer.
    pub fn set_buffer(&mut self, buffer: StagingBuffer) {
        self.buffer = Some(buffer);
    }

    /// Drops the staging buffer, which the peer could not take. The peer asks nothing then.
    pub fn drop_buffer(&mut self) {
        self.buffer = None;
    }

    /// Accepts a question. If there are too many, forgets the oldest.
    ///
    /// # Errors
    /// If it is for anything but a part of what was offered to the peer.
    pub fn ask(&mut self, header: &Header) -> Result<(), Corrupt> {
        let question = Question::of(header)?;
        let part = |run: &Span| part_of(*run, question);
        let Some(rest) = self.exposed.iter().find_map(part) else {
            let is_late = self.withdrawn.iter().any(|run| part(run).is_some());
            if !is_late {
                return Err(Corrupt::Question(question.address, question.length));
            }
            lose(&mut self.lost, question.at);
            return Ok(());
        };
        if self.answers.len() == STAGING_QUESTIONS_MAX
            && let Some(oldest) = self.answers.pop_front()
        {
            lose(&mut self.lost, oldest.at);
        }
        self.answers.push_back(Answer { at: question.at, waited: 0, rest });
        Ok(())
    }

    /// Copies bytes into the staging buffer as long as there is room, and drops questions that are over. Drops all if the receiver still
    /// waits for a forgotten one, or does not make room for long. `true` if it must be called again soon: a question waits for room, or
    /// this call has copied as much as it may.
    pub fn look<M: StagingWords>(&mut self, memory: &M) -> bool {
        let mut left = STAGED_A_CALL;
        let Outlet { answers, lost, taken, distance, buffer, .. } = self;
        let mut taken = || {
            *taken = distance.look(*taken, || staging::taken(memory));
            (*taken, distance.is_near())
        };
        let is_skipped = |at| staging::room(at, staging::taken(memory)) == Room::Over;
        let Some(buffer) = buffer.as_ref().filter(|_| lost.is_none_or(is_skipped)) else {
            answers.clear();
            return false;
        };
        *lost = None;
        while let Some(answer) = answers.front_mut() {
            let (taken, is_near) = taken();
            match staging::room(answer.at, taken) {
                Room::Free(_) if left == 0 => return true,
                Room::Free(free) => {
                    left -= answer.put(memory, buffer, free.min(STAGING_STEP_BYTES).min(left), is_near);
                }
                Room::Full => {
                    answer.waited += 1;
                    if answer.waited < STAGING_CALLS_MAX {
                        return true;
                    }
                    lose(lost, answer.at);
                    answers.clear();
                    return false;
                }
                Room::Over => answer.rest = Span::EMPTY,
            }
            if answer.rest.is_empty() {
                answers.pop_front();
            }
        }
        false
    }
}

impl Answer {
    /// Copies at most `most` bytes into the buffer, and tells the receiver. Returns how many. A receiver that is far gets them past the
    /// caches: it would fetch them line by line from this processor's.
    fn put<M: StagingWords>(&mut self, memory: &M, buffer: &StagingBuffer, most: usize, is_near: bool) -> usize {
        let place = buffer.place(self.at, most.min(self.rest.len()));
        let copied = place.len();
        // SAFETY: what is left of a question is a part of a run that is exposed: whatever is withdrawn, its questions go with it. By the
        // promise of `expose` it is valid for reads and stays as it is. The place is in the buffer, and the words give it to this side.
        #[expect(unsafe_code, reason = "bytes that are addresses")]
        unsafe {
            if is_near {
                copy_long(place, self.rest);
            } else {
                copy_past(place.start(), self.rest.start(), copied);
                fence_streams();
            }
        }
        (self.at, self.rest) = (self.at.wrapping_add(copied as Position), self.rest.part(copied, usize::MAX));
        // A receiver that makes room byte by byte does not count as one that makes room.
        if copied == STAGING_STEP_BYTES {
            self.waited = 0;
        }
        staging::put(memory, self.at);
        copied
    }
}

/// Notes that the bytes at a position are never put.
fn lose(lost: &mut Option<Position>, at: Position) {
    // The last one counts: the receiver skips all that it has asked for.
    *lost = (*lost).max(Some(at));
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
    let question = Question { address: bytes.start().addr() as u64, length: bytes.len() as u64, at: 0 };
    exposed.iter().any(|run| part_of(*run, question).is_some())
}

#[cfg(all(test, not(miri), not(tickwire_loom)))]
mod tests;
