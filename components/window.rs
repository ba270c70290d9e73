//! The size of a peer's credit.

use crate::credit::{Credit, KEPT_BYTES, LINE_BYTES};
use crate::limits::{CREDIT_ENVELOPES_MAX, CREDIT_INITIAL, CREDIT_LINES_MAX, Limits};

impl Credit {
    /// The credit that each of `peers` procs gets from a proc with these limits.
    pub fn window(limits: &Limits, peers: u32) -> Credit {
        let lines = limits.unexpected_bytes_max / LINE_BYTES / peers.max(1) as usize;
        let lines = lines.clamp(CREDIT_INITIAL.lines as usize, CREDIT_LINES_MAX as usize) as u32;
        Credit::of_lines(lines)
    }

    /// The credit for a transport where each kept message takes `bytes` bytes of memory besides its payload: fewer messages, so that
    /// they take as much memory as before.
    pub fn with_kept(self, bytes: usize) -> Credit {
        let lines = u64::from(self.lines) * KEPT_BYTES / KEPT_BYTES.max(bytes as u64);
        Credit::of_lines((lines as u32).max(CREDIT_INITIAL.lines))
    }

    fn of_lines(lines: u32) -> Credit {
        Credit { lines, envelopes: (lines / 32).clamp(CREDIT_INITIAL.envelopes, CREDIT_ENVELOPES_MAX) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::credit::cost;

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
