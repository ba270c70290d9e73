//! A row of the table of connections, and the word that is polled for it.

use super::ends::{InboxView, ring};
use super::places::Grown;
use crate::rings::mark::Mark;
use crate::rings::memory::RawRing;
use crate::rings::outlet::Outlet;
use crate::rings::ring::{Corrupt, Reader, RingMemory, Writer};
use crate::rings::window::{Granter, Spender};
use crate::{Other, Take};
use rustix::fd::OwnedFd;
use std::any::Any;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering, fence};
use tickwire_components::limits::{READS_A_CALL, STAGING_MIN};
use tickwire_components::{NIL, Row, Span};

/// A row: one connection.
pub(super) struct LinkRow {
    pub(super) writer: Writer<RawRing>,
    pub(super) reader: Reader<RawRing>,
    pub(super) granter: Granter,
    pub(super) spender: Spender,
    /// The peer had granted no further credit when the engine last asked.
    pub(super) wants_credit: bool,
    /// The peer's inbox, and the number of this connection in it.
    pub(super) inbox: InboxView,
    pub(super) slot: u32,
    /// The VC that frames of this connection belong to.
    pub(super) vc: Row,
    /// Whether the peer and this process have one-sided fences.
    pub(super) one_sided: bool,
    /// Whether this side polls the ring from the peer directly.
    pub(super) watched: bool,
    /// Frames have been read since the last release.
    pub(super) touched: bool,
    /// The read position when the last frame was handed over, masked by `turns`.
    pub(super) answered: u64,
    /// A mask on read positions: all bits set; 0 on a connection to oneself, since nobody waits for its frames.
    pub(super) turns: u64,
    /// Bytes that were read out of the peer's memory.
    pub(super) direct: u64,
    /// The doorbell that wakes the peer.
    pub(super) doorbell: Arc<OwnedFd>,
    /// The error that was found in either ring.
    pub(super) fault: Option<Corrupt>,
    /// The outlet for staged bytes, if the connection has one.
    pub(super) outlet: Option<Box<Outlet>>,
    pub(super) grown: Grown,
    pub(super) _keep: Arc<dyn Any + Send + Sync>,
}

/// What happened to the next frame of a ring, which is no whole message.
pub(super) enum Next {
    /// It is left for a drain.
    Left,
    /// It was taken.
    Taken,
    /// It was taken, and has ended a send whose bytes are not exposed over this link. They may be exposed over another link to the same
    /// peer.
    Stray(Span),
    /// It was a question or several, which are no frames of the engine's. Whether one waits for room.
    Asked(bool),
}

impl LinkRow {
    /// Hands the next frame to `take`, if it belongs to a message that its receiver reads. A question is answered here.
    #[inline(never)]
    pub(super) fn take_other(&mut self, take: &mut impl Take) -> Next {
        let Some((header, payload)) = self.reader.peek_read() else {
            return match self.take_questions() {
                Ok(Some(waits)) => Next::Asked(waits),
                // A drain reports the error.
                Ok(None) | Err(_) => Next::Left,
            };
        };
        // SAFETY: the ring keeps the payload until it is released, which comes after it was skipped.
        #[expect(unsafe_code, reason = "a payload that is there until it is skipped")]
        let taken = unsafe { take.other(&header, payload, self.vc) };
        match taken {
            Other::Left => return Next::Left,
            Other::Taken => {}
            Other::Ended(run) => {
                self.reader.skip(payload.len());
                let withdrawn = match &mut self.outlet {
                    Some(outlet) if run.len() >= STAGING_MIN => outlet.withdraw(run),
                    _ => true,
                };
                return if withdrawn { Next::Taken } else { Next::Stray(run) };
            }
        }
        self.reader.skip(payload.len());
        Next::Taken
    }

    /// Takes the next frames, a few at most, if they are questions, and answers them as far as there is room. `None` if the next one is none;
    /// otherwise whether a question waits for room.
    ///
    /// # Errors
    /// If a question can never be valid. Its frame stays.
    #[cold]
    pub(super) fn take_questions(&mut self) -> Result<Option<bool>, Corrupt> {
        let mut has_asked = false;
        for _ in 0..READS_A_CALL {
            let Some(question) = self.reader.peek_question() else { break };
            let Some(outlet) = &mut self.outlet else { return Err(Corrupt::Kind(Mark::Question as u8)) };
            outlet.ask(&question)?;
            self.reader.skip(0);
            has_asked = true;
        }
        // One look for all of them: a look may copy many bytes.
        Ok(has_asked.then(|| self.look_at_outlet()))
    }

    /// Stages further bytes that the peer has asked for. Returns whether a question waits for room.
    pub(super) fn look_at_outlet(&mut self) -> bool {
        let memory = *self.writer.memory();
        self.outlet.as_mut().is_some_and(|outlet| outlet.look(&memory))
    }

    /// Asks the peer to announce its next grant. `false` if there may be one already.
    pub(super) fn starve_for_credit(&mut self) -> bool {
        let memory = self.writer.memory();
        memory.starve(true);
        fence(Ordering::SeqCst);
        let still = self.spender.is_current(memory);
        // The flag stays if the writer also waits for room.
        if !still && !self.writer.wants_room() {
            memory.starve(false);
        }
        still
    }

    /// The word at which the next frame from the peer will start.
    #[inline(always)]
    pub(super) fn next_word(&self) -> Word {
        Word(self.reader.memory().address(self.reader.position()))
    }

    /// Rings the peer's doorbell.
    #[cold]
    #[inline(never)]
    pub(super) fn ring(&self) {
        ring(&self.doorbell);
    }

    /// Announces this connection in the peer's inbox, and rings the peer's doorbell if the peer sleeps.
    #[cold]
    #[inline(never)]
    pub(super) fn announce(&self) {
        if self.inbox.announce(self.slot) {
            ring(&self.doorbell);
        }
    }
}

/// The address of a word that becomes something other than 0 when a frame arrives. Valid while its ring is watched.
#[derive(Clone, Copy)]
pub(super) struct Word(NonNull<AtomicU64>);

// SAFETY: the address of an atomic in memory that the ring's row keeps alive.
#[expect(unsafe_code, reason = "an address in shared memory")]
unsafe impl Send for Word {}

/// A word that stays 0.
static NOTHING: AtomicU64 = AtomicU64::new(0);

impl Word {
    /// The word of no ring: it stays 0.
    pub(super) const NONE: Word = Word(NonNull::from_ref(&NOTHING));

    #[expect(unsafe_code, reason = "an address in shared memory")]
    #[inline(always)]
    pub(super) fn load(self) -> u64 {
        // SAFETY: only words of watched rings are asked, and a ring stops being watched before its row goes.
        unsafe { self.0.as_ref() }.load(Ordering::Relaxed)
    }

    /// Whether a frame has arrived.
    #[inline(always)]
    pub(super) fn ready(self) -> bool {
        self.load() != 0
    }
}

/// A ring that is polled directly.
#[derive(Clone, Copy)]
pub(super) struct Watched {
    /// The word that its next frame starts with.
    pub(super) word: Word,
    /// Its connection.
    pub(super) link: u32,
    /// Polls since its last frame.
    pub(super) idle: u32,
}

impl Watched {
    /// A place without a ring.
    pub(super) const NONE: Watched = Watched { word: Word::NONE, link: NIL, idle: 0 };
}
