//! Outgoing frames: sends that are refused, and frames that are taken in parts.

use super::{Sim, SimState};
use crate::{Sent, Transport};
use tickwire_components::Pieces;
use tickwire_components::wire::{Header, Kind};

impl<T: Transport> Sim<T> {
    /// Whether a send on a link is refused, even if there is room.
    pub(super) fn refuses(&mut self, link: u32) -> bool {
        let config = self.net.config();
        let begins = self.random.happens(config.storm_of_256);
        let length_ns = if begins { self.random.within(&config.storm_ns) } else { 0 };
        let refused = self.random.happens(config.blocked_of_256);
        let now_ns = self.now_ns;
        let link = self.link(link);
        if begins && link.storm_ns <= now_ns {
            link.storm_ns = now_ns + length_ns;
        }
        refused || link.storm_ns > now_ns
    }

    /// Takes a frame; or a further part, or the rest, of a frame that was begun before.
    pub(super) fn send_parts<P: Pieces + ?Sized>(
        &mut self,
        link: u32,
        header: &Header,
        pieces: &P,
        state: &mut SimState<T::RowState>,
    ) -> Sent {
        // A goodbye is not sent a second time.
        let whole = header.kind() == Some(Kind::Bye) || pieces.layout().is_some();
        let (length, writing) = (header.payload() as usize, self.link(link).writing.take());
        let mut taken = match (writing, state.begun) {
            (None, None) if whole || !self.random.happens(self.net.config().partial_of_256) => {
                return self.inner.send(link, header, pieces, &mut state.inner);
            }
            (None, None) => Vec::with_capacity(length),
            (Some(taken), Some(begun)) => {
                assert_eq!(begun, *header, "the rest of a frame is of another one");
                taken
            }
            (writing @ Some(_), None) => {
                self.link(link).writing = writing;
                return Sent::Blocked;
            }
            (None, Some(_)) => panic!("the rest of a frame that was never begun: {header:?}"),
        };
        let rest = length - taken.len();
        let last = state.begun.is_some() && self.random.below(2) == 0;
        let more = if last { rest } else { self.random.below(rest as u64 + 1) as usize };
        gather(pieces, taken.len(), more, &mut taken);
        if last {
            let sent = self.inner.send(link, header, &taken, &mut state.inner);
            if sent != Sent::Blocked {
                state.begun = None;
                return sent;
            }
        }
        // Also if the wrapped transport has no room: then all of the frame has been taken, and the next call tries again.
        state.begun = Some(*header);
        self.link(link).writing = Some(taken);
        Sent::Blocked
    }
}

/// Appends `length` bytes of a payload, from byte `from` on.
#[expect(unsafe_code, reason = "the bytes of a frame that is being sent")]
fn gather<P: Pieces + ?Sized>(pieces: &P, mut from: usize, mut length: usize, into: &mut Vec<u8>) {
    for index in 0..pieces.pieces() {
        let piece = pieces.piece(index);
        let part = piece.part(from, length);
        from = from.saturating_sub(piece.len());
        if length == 0 || part.is_empty() {
            continue;
        }
        length -= part.len();
        // SAFETY: whoever sends keeps the payload until it has been told that it is sent.
        into.extend_from_slice(unsafe { std::slice::from_raw_parts(part.start(), part.len()) });
    }
}
