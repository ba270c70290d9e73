//! Long messages that the network moves directly from the sender's buffer into the receiver's. Frames say only who expects what.
//!
//! All endpoints of a simulated network are in one process, so the network copies the bytes when the sender gives them. Both sides hear of
//! it later, each at a time of its own, as over a fabric.

use super::net::SimNet;
use super::state::{Expected, Told};
use super::{Sim, take_first};
use crate::{Direct, Transport, copy};
use tickwire_components::{Arrival, ArrivalState, Destination, Row, Span};

impl SimNet {
    /// Moves a message to the proc that expects it; the row of its receive. `None` if it expects no such message.
    ///
    /// # Safety
    /// `run` is valid for reads.
    #[expect(unsafe_code, reason = "copies memory that both sides have lent")]
    unsafe fn moves(&self, from: u32, to: u32, number: u32, run: Span) -> Option<Row> {
        let mut state = self.lock();
        let expected = &mut state.pairs.get_mut(&(from, to))?.expected;
        let Expected { row, into, .. } = take_first(expected, |of| (of.number, of.into.len()) == (number, run.len()))?;
        // SAFETY: the source by this function's contract. The target was lent by `Direct::expect` until its receiver has heard of its end,
        // or has taken it back: whatever ends that removes it here before it returns, and needs the lock that is held.
        unsafe { copy::copy_long(into, run) };
        Some(row)
    }

    /// A proc is to hear of the end of a message.
    fn tells(&self, side: u32, told: Told) {
        self.lock().told.entry(side).or_default().push(told);
    }

    /// Whether a proc may hear of an end at a moment.
    pub(super) fn has_told(&self, side: u32, now_ns: u64) -> bool {
        let is_due = |told: &Told| told.due_ns <= now_ns;
        self.config().moves && self.lock().told.get(&side).is_some_and(|told| told.iter().any(is_due))
    }

    /// Takes an end that is due.
    fn take_told(&self, side: u32, now_ns: u64) -> Option<Told> {
        take_first(self.lock().told.get_mut(&side)?, |told| told.due_ns <= now_ns)
    }

    /// A proc takes back the memory that it has lent for messages from another one, and hears of no more ends; `None` for all procs.
    pub(super) fn forget_expected(&self, side: u32, other: Option<u32>) {
        if !self.config().moves {
            return;
        }
        let mut state = self.lock();
        let is_meant = |proc| other.is_none_or(|other| other == proc);
        let pairs = state.pairs.iter_mut().filter(|((from, to), _)| *to == side && is_meant(*from));
        pairs.for_each(|(_, pair)| pair.expected.clear());
        state.told.entry(side).or_default().retain(|told| !is_meant(told.other));
    }
}

impl<T: Transport> Sim<T> {
    /// Adds an arrival for each message that was moved, as far as its end is due and there is room. Returns how many.
    pub(super) fn deliver_moved(&mut self, now_ns: u64, out: &mut [Arrival]) -> usize {
        let mut count = 0;
        while count < out.len()
            && self.net.config().moves
            && let Some(Told { other, row, .. }) = self.net.take_told(self.me, now_ns)
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
        let proc = self.peer_of(link)?;
        // A transport may have no room for it now. Then the message comes in pieces.
        if self.random.happens(self.net.config().unread_of_256) {
            return None;
        }
        let mut net = self.net.lock();
        let pair = net.pairs.entry((proc, self.me)).or_default();
        let number = pair.expected_before;
        pair.expected_before = number.wrapping_add(1);
        pair.expected.push(Expected { number, row, into });
        Some(number)
    }

    unsafe fn send_direct(&mut self, link: u32, row: Row, number: u32, from: Span) -> bool {
        let Some(proc) = self.peer_of(link) else { return false };
        // SAFETY: by the same contract.
        let Some(theirs) = (unsafe { self.net.moves(self.me, proc, number, from) }) else { return false };
        let delay_ns = self.net.config().delay_ns.clone();
        let mut due_ns = || self.now_ns.saturating_add(self.random.within(&delay_ns));
        let (ours_ns, theirs_ns) = (due_ns(), due_ns());
        self.net.tells(self.me, Told { due_ns: ours_ns, other: proc, row });
        self.net.tells(proc, Told { due_ns: theirs_ns, other: self.me, row: theirs });
        true
    }

    fn end(&mut self) {
        self.net.forget_expected(self.me, None);
    }
}
