//! Long messages that the network moves directly from the sender's buffer into the receiver's. Frames say only who expects what.
//!
//! All endpoints of a simulated network are in one process, so the network copies the bytes when the sender gives them. Both sides hear of
//! it later, each at a time of its own, as over a fabric.

use super::Sim;
use super::net::SimNet;
use crate::{Direct, Transport, copy};
use tickwire_components::{Arrival, ArrivalState, Destination, Row, Span};

/// A message that a receiver expects from one sender.
#[derive(Debug)]
pub(super) struct Expected {
    number: u32,
    /// The receiver's CAR.
    row: Row,
    into: Span,
}

/// The end of a message that was moved, as one side is to hear of it.
#[derive(Debug)]
pub(super) struct Told {
    due_ns: u64,
    /// The CAR of this side.
    row: Row,
}

impl SimNet {
    /// Moves a message to the proc that expects it; the row of its receive. `None` if it expects no such message.
    ///
    /// # Safety
    /// `run` is valid for reads.
    #[expect(unsafe_code, reason = "copies memory that both sides have lent")]
    unsafe fn moves(&self, from: u32, to: u32, number: u32, run: Span) -> Option<Row> {
        let mut state = self.lock();
        let expected = &mut state.pairs.get_mut(&(from, to))?.expected;
        let place = expected.iter().position(|of| (of.number, of.into.len()) == (number, run.len()))?;
        let Expected { row, into, .. } = expected.remove(place);
        // SAFETY: the source by this function's contract. The target was lent by `Direct::expect` until its receiver has heard of its end,
        // or has taken it back: whatever ends that removes it here before it returns, and needs the lock that is held.
        unsafe { copy::copy_long(into, run) };
        Some(row)
    }

    /// One side of a pair is to hear of the end of a message.
    fn tells(&self, (other, side): (u32, u32), told: Told) {
        self.lock().pairs.entry((other, side)).or_default().told.push(told);
    }

    /// Whether a proc may hear of an end now.
    pub(super) fn has_told(&self, side: u32, now_ns: u64) -> bool {
        self.lock()
            .pairs
            .iter()
            .any(|(&(_, to), pair)| to == side && pair.told.iter().any(|told| told.due_ns <= now_ns))
    }

    /// Takes an end that is due, with the proc at the other side.
    fn take_told(&self, side: u32, now_ns: u64) -> Option<(u32, Row)> {
        self.lock().pairs.iter_mut().filter(|((_, to), _)| *to == side).find_map(|(&(other, _), pair)| {
            let place = pair.told.iter().position(|told| told.due_ns <= now_ns)?;
            Some((other, pair.told.remove(place).row))
        })
    }

    /// A proc takes back the memory that it has lent for messages from another one, and hears of no more ends; `None` for all procs.
    pub(super) fn forget_expected(&self, side: u32, other: Option<u32>) {
        for (&(from, to), pair) in &mut self.lock().pairs {
            if to == side && other.is_none_or(|other| other == from) {
                pair.expected.clear();
                pair.told.clear();
            }
        }
    }
}

impl<T: Transport> Sim<T> {
    /// Adds an arrival for each message that was moved, as far as its end is due and there is room. Returns how many.
    pub(super) fn deliver_moved(&mut self, now_ns: u64, out: &mut [Arrival]) -> usize {
        let mut count = 0;
        while count < out.len()
            && let Some((other, row)) = self.net.take_told(self.me, now_ns)
        {
            let Some(link) = self.links.iter().find(|link| link.proc == other && !link.over) else { continue };
            let (to, state) = (Destination::Receive(row), ArrivalState::Moved);
            out[count] = Arrival { vc: link.vc, to, state, ..Arrival::default() };
            count += 1;
        }
        count
    }
}

// SAFETY: buffers are used under the lock of the network, and only until their end is told or they are taken back.
#[expect(unsafe_code, reason = "bytes that are addresses")]
unsafe impl<T: Transport> Direct for Sim<T> {
    unsafe fn expect(&mut self, link: u32, row: Row, into: Span) -> Option<u32> {
        let state = self.links.get(link as usize).filter(|state| !state.over && state.failed.is_none())?;
        // A transport may have no room for it now. Then the message comes in pieces.
        if self.random.happens(self.net.config().unread_of_256) {
            return None;
        }
        let mut net = self.net.lock();
        let pair = net.pairs.entry((state.proc, self.me)).or_default();
        let number = pair.expected_before;
        pair.expected_before = number.wrapping_add(1);
        pair.expected.push(Expected { number, row, into });
        Some(number)
    }

    unsafe fn send_direct(&mut self, link: u32, row: Row, number: u32, from: Span) -> bool {
        let state = self.links.get(link as usize).filter(|state| !state.over && state.failed.is_none());
        let Some(proc) = state.map(|state| state.proc) else { return false };
        // SAFETY: by the same contract.
        let Some(theirs) = (unsafe { self.net.moves(self.me, proc, number, from) }) else { return false };
        let delay_ns = self.net.config().delay_ns.clone();
        let mut due_ns = || self.now_ns.saturating_add(self.random.within(&delay_ns));
        let (ours_ns, theirs_ns) = (due_ns(), due_ns());
        self.net.tells((proc, self.me), Told { due_ns: ours_ns, row });
        self.net.tells((self.me, proc), Told { due_ns: theirs_ns, row: theirs });
        true
    }

    fn end(&mut self) {
        self.net.forget_expected(self.me, None);
    }
}
