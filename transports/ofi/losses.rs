//! Frames that a provider has lost: nothing may wait for one for ever.
//!
//! Frames are numbered, so a later one tells that an earlier one is missing. For a frame with nothing behind it, each side says
//! over the control connection how many it has sent, now and then while that grows. Who stays behind such a number, or has a
//! frame that waits for one before it, gives the link up after a time in which it has looked and nothing has come. That is
//! twice what a network may be silent for: a fabric's own connection may take that much longer to find its way again.
//!
//! Messages that a provider matches (tagged mode) have no numbers; for them a provider's word counts.

use super::Ofi;
use super::control::Message;
use super::transport::LOOK_MAX;
use crate::LinkEvent;
use crate::connections;

/// Between two words of how many frames have been sent, ns.
const TELL_NS: u64 = 250_000_000;
/// A silence between two looks counts for so much at most, ns: what had come meanwhile has not been seen.
const LOOK_NS_MAX: u64 = 200_000_000;

/// What is known of one direction each of a link.
#[derive(Default)]
pub(super) struct Tally {
    /// Frames that the peer was told of, and when, ns.
    told: u32,
    told_ns: u64,
    /// Frames that the peer says it has sent.
    pub(super) due: u32,
    /// Frames that had come at the last look, which was when, ns.
    received: u32,
    looked_ns: u64,
    /// How long it has been looked for one that is missing, ns.
    missed_ns: u64,
}

impl Tally {
    /// Whether to say that so many frames have been sent.
    fn tells(&mut self, sent: u32, now_ns: u64) -> bool {
        let tells = sent != self.told && now_ns.saturating_sub(self.told_ns) >= TELL_NS;
        if tells {
            (self.told, self.told_ns) = (sent, now_ns);
        }
        tells
    }

    /// A look: how long a frame has been missed, by what has been gone through.
    fn looked(&mut self, received: u32, has_gap: bool, now_ns: u64) -> u64 {
        let time = now_ns.saturating_sub(self.looked_ns).min(LOOK_NS_MAX);
        let behind = has_gap || (self.due.wrapping_sub(received) as i32) > 0;
        let moves = received != self.received || !behind;
        self.missed_ns = if moves { 0 } else { self.missed_ns + time };
        (self.received, self.looked_ns) = (received, now_ns);
        self.missed_ns
    }
}

impl Ofi {
    /// Tells peers what was sent, and gives up links whose frames do not come.
    pub(super) fn report_losses(&mut self, now_ns: u64, events: &mut Vec<LinkEvent>) {
        let missed_ns_max = 2_000_000 * u64::from(self.own.config.dead_link_ms_max);
        let mut lost = Vec::new();
        for link in self.connections.links() {
            let Some(line) = self.connections.line_mut(link) else { continue };
            let port = self.port.get_mut();
            let (sent, received) = port.counts(link);
            if line.more.tally.tells(sent, now_ns) {
                line.tell(&Message::Sent(sent));
            }
            let missed_ns = line.more.tally.looked(received, port.has_gap(link), now_ns);
            if missed_ns > 0 {
                port.poll(LOOK_MAX);
            }
            // Where no buffer is left for it, it cannot come.
            if missed_ns > missed_ns_max && !port.is_starved(link) {
                lost.push(link);
            }
        }
        for link in lost {
            let provider = self.provider();
            let words = format!("provider {provider} has lost a frame: exclude it (TICKWIRE_OFI_PROVIDER_EXCLUDE)");
            connections::fail_telling(self, link, words, events);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    #[test]
    fn a_number_is_told_once_and_not_too_often() {
        let mut tally = Tally::default();
        let told: Vec<u64> = (0..2000).filter(|ms| tally.tells((*ms as u32).min(600), (1000 + ms) * MS)).collect();
        assert_eq!(told, [1, 251, 501, 751]);
    }

    #[test]
    fn time_counts_only_while_frames_are_missing_and_none_comes() {
        let mut tally = Tally { due: 10, ..Tally::default() };
        let mut look = |received, has_gap, ms: u64| tally.looked(received, has_gap, ms * MS) / MS;
        assert_eq!([look(4, false, 1), look(4, false, 101), look(5, false, 201)], [0, 100, 0]);
        // Who looks seldom has not looked for long.
        assert_eq!([look(5, false, 301), look(5, false, 60_301)], [100, 300]);
        assert_eq!([look(10, false, 60_401), look(10, false, 60_501)], [0, 0]);
        assert_eq!([look(11, false, 60_601), look(11, true, 60_701), look(11, true, 60_801)], [0, 100, 200]);
    }

    #[test]
    fn numbers_go_round() {
        let mut tally = Tally { due: 1, received: u32::MAX, looked_ns: 0, ..Tally::default() };
        assert_eq!(tally.looked(u32::MAX, false, MS), MS);
        assert_eq!(tally.looked(1, false, 2 * MS), 0);
    }
}
