//! Credit: what one side of a VC may send to the other before its receives are posted (reference: communication agent
//! notes, "window scheme").
//!
//! A message that is sent without asking may have to be kept until its receive comes, so it costs credit in *lines* of
//! 64 B; an offer (RTS) costs one *envelope*. What is kept no more is granted again. So what peers can make a proc keep is
//! bounded, and nothing is ever dropped: without lines a message is offered, and its data stays with the sender; without
//! envelopes it stays in the sender's queue.

use crate::limits::{CREDIT_ENVELOPES_MAX, CREDIT_INITIAL, CREDIT_LINES_MAX, Limits};

/// Bytes of a line.
pub const LINE_BYTES: usize = 64;

/// Bytes that keeping a message costs besides its payload: its rows, and the rest of the smallest temporary.
const KEPT_BYTES: u64 = 384;

/// Something to send with.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Credit {
    /// For messages with their payload. See [`cost`].
    pub lines: u32,
    /// For offers.
    pub envelopes: u32,
}

impl Credit {
    /// None.
    pub const NONE: Credit = Credit { lines: 0, envelopes: 0 };

    /// Whether it is none.
    #[inline]
    pub const fn is_none(&self) -> bool {
        self.lines == 0 && self.envelopes == 0
    }

    /// What each of `peers` procs may have outstanding at a proc with these limits.
    pub fn window(limits: &Limits, peers: u32) -> Credit {
        let lines = limits.unexpected_bytes_max / LINE_BYTES / peers.max(1) as usize;
        let lines = lines.clamp(CREDIT_INITIAL.lines as usize, CREDIT_LINES_MAX as usize) as u32;
        Credit::of_lines(lines)
    }

    /// The window where a message takes so many bytes of memory beside its own until it is received: as much memory as before, in
    /// fewer messages.
    pub fn with_kept(self, bytes: usize) -> Credit {
        let lines = u64::from(self.lines) * KEPT_BYTES / KEPT_BYTES.max(bytes as u64);
        Credit::of_lines((lines as u32).max(CREDIT_INITIAL.lines))
    }

    fn of_lines(lines: u32) -> Credit {
        Credit { lines, envelopes: (lines / 32).clamp(CREDIT_INITIAL.envelopes, CREDIT_ENVELOPES_MAX) }
    }
}

/// Lines that a message of so many bytes costs when it is sent without asking.
#[inline(always)]
#[expect(clippy::manual_div_ceil, reason = "lengths are bounded, so the sum cannot overflow: three instructions less")]
pub const fn cost(length: u64) -> u32 {
    ((length + KEPT_BYTES + LINE_BYTES as u64 - 1) / LINE_BYTES as u64) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_is_paid_for() {
        assert_eq!([cost(0), cost(1), cost(64), cost(65), cost(1024), cost(8192)], [6, 7, 7, 8, 22, 134]);
        for length in [0u64, 1, 63, 64, 65, 1000, 1 << 20] {
            assert!(u64::from(cost(length)) * LINE_BYTES as u64 >= length + KEPT_BYTES);
        }
    }

    #[test]
    fn a_window_is_a_share_of_the_bound_within_limits() {
        let limits = Limits::default();
        let windows = [1, 3, 1 << 20].map(|peers| Credit::window(&limits, peers));
        assert_eq!(windows[0], Credit { lines: 1 << 19, envelopes: 1 << 14 });
        assert_eq!(windows[1].lines, (1 << 19) / 3);
        assert_eq!(windows[2], CREDIT_INITIAL);
        assert_eq!(Credit::window(&limits, 0), windows[0], "alone, it sends to itself");
        let dear = windows[0].with_kept(17 << 10);
        assert_eq!((windows[0].with_kept(0), windows[2].with_kept(17 << 10)), (windows[0], windows[2]));
        assert!(dear.lines / cost(0) * (17 << 10) <= 32 << 20 && dear.lines / cost(0) * (17 << 10) > 31 << 20);
        assert!(dear.envelopes * (17 << 10) <= 8 << 20);
    }
}
