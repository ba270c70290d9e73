//! Frames that a provider has lost: nothing may wait for one for ever.
//!
//! Frames are numbered, so a later frame shows that an earlier one is missing. For a frame with nothing behind it, each side says over the
//! control connection how many frames it has sent, now and then while that number grows. A side that misses frames asks the peer how many
//! it has sent, again and again. Each answer shows that the peer's engine ticks, so that its provider makes progress. Only the time between
//! a question and its answer counts: a peer that computes answers nothing, and what it has sent may still be on its way. When that time
//! exceeds twice what a network may be silent for, the frame is lost, and the link is given up: a fabric's own connection may take that
//! much longer to find its way again.
//!
//! Two things may stand in the way of all peers at once: the frames of one peer hold all receive buffers while an earlier frame is missing,
//! or the provider has kept all places for sends since their peers have gone. Neither lasts longer than a bounded time of this engine's own
//! ticks.
//!
//! Messages that a provider matches (tagged mode) have no numbers; for them a provider's word counts.

use super::Ofi;
use super::control::Message;
use super::jam::Jam;
use crate::LinkEvent;
use crate::connections;
use tickwire_components::limits::{FABRIC_ANSWER_NS_MAX, FABRIC_COMPLETIONS_A_POLL, FABRIC_COUNTS_NS};

/// The frame counts of a link.
#[derive(Default)]
pub(super) struct Tally {
    /// How many sent frames the peer was told of, and when, in ns.
    told: u32,
    told_ns: u64,
    /// How many frames the peer says it has sent.
    due: u32,
    /// How many frames had arrived at the last check.
    received: u32,
    /// How long the peer has ticked while a frame of it was missing, in ns.
    missed_ns: u64,
    /// When the peer was last asked how many frames it has sent, in ns, if frames are missing; and whether it has answered since.
    asked_ns: Option<u64>,
    is_answered: bool,
}

/// The result of a check.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Missed {
    /// How long a frame has been missing while the peer ticked, ns.
    time_ns: u64,
    /// The peer must be asked how many frames it has sent.
    asks: bool,
}

impl Tally {
    /// Whether to tell the peer now that `sent` frames have been sent.
    fn tells(&mut self, sent: u32, now_ns: u64) -> bool {
        let tells = sent != self.told && now_ns.saturating_sub(self.told_ns) >= FABRIC_COUNTS_NS;
        if tells {
            (self.told, self.told_ns) = (sent, now_ns);
        }
        tells
    }

    /// Notes how many frames the peer says it has sent.
    pub(super) fn hear(&mut self, sent: u32) {
        (self.due, self.is_answered) = (sent, true);
    }

    /// Checks for missing frames: `received` frames have arrived, and with `has_gap` a frame waits for an earlier one.
    fn look(&mut self, received: u32, has_gap: bool, now_ns: u64) -> Missed {
        let behind = has_gap || (self.due.wrapping_sub(received) as i32) > 0;
        let has_come = received != self.received;
        self.received = received;
        if has_come || !behind {
            (self.missed_ns, self.asked_ns) = (0, None);
            return Missed::default();
        }
        let asks = self.asked_ns.is_none() || self.is_answered;
        if asks {
            let time = self.asked_ns.map_or(0, |asked_ns| now_ns.saturating_sub(asked_ns).min(FABRIC_ANSWER_NS_MAX));
            self.missed_ns += time;
            (self.asked_ns, self.is_answered) = (Some(now_ns), false);
        }
        Missed { time_ns: self.missed_ns, asks }
    }
}

impl Ofi {
    /// Ends what has been in the way of all peers for too long.
    fn end_jams(&mut self, now_ns: u64, events: &mut Vec<LinkEvent>) {
        // Longer than a frame may be missing where its sender answers.
        let most_ns = 2_500_000 * u64::from(self.own.config.dead_link_ms_max);
        let port = self.port.get_mut();
        if self.buffers_jam.look(port.choked_by().is_some(), now_ns) > most_ns
            && let Some(link) = port.choked_by()
        {
            let words = format!(
                "provider {} has lost a frame, or the peer has left one out, and later ones hold all receive buffers",
                self.provider()
            );
            self.buffers_jam = Jam::default();
            connections::fail_telling(self, link, words, events);
        }
        if self.slots_jam.look(self.port.get_mut().has_lost_slots(), now_ns) > most_ns {
            self.port.get_mut().give_up_slots();
        }
    }

    /// Tells peers how many frames were sent, and gives up links with lost frames.
    pub(super) fn report_losses(&mut self, now_ns: u64, events: &mut Vec<LinkEvent>) {
        self.end_jams(now_ns, events);
        let missed_ns_max = 2_000_000 * u64::from(self.own.config.dead_link_ms_max);
        let mut lost = Vec::new();
        for link in self.connections.links() {
            let Some(line) = self.connections.line_mut(link) else { continue };
            // A question or an answer that the kernel has not taken yet.
            line.socket.flush();
            let port = self.port.get_mut();
            let (sent, received) = port.counts(link);
            if line.more.tally.tells(sent, now_ns) {
                line.tell(&Message::Sent(sent));
            }
            let missed = line.more.tally.look(received, port.has_gap(link), now_ns);
            if missed.asks {
                line.tell(&Message::AskSent);
            }
            if missed.time_ns > 0 {
                port.poll(FABRIC_COMPLETIONS_A_POLL);
            }
            if port.is_starved(link) {
                // Without a free buffer, the frame cannot arrive. Its time begins anew once there is one.
                line.more.tally.missed_ns = 0;
            } else if missed.time_ns > missed_ns_max {
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

    /// A look, and what it says: ms, and whether the peer is asked.
    fn look(tally: &mut Tally, received: u32, has_gap: bool, ms: u64) -> (u64, bool) {
        let Missed { time_ns, asks } = tally.look(received, has_gap, ms * MS);
        (time_ns / MS, asks)
    }

    #[test]
    fn time_counts_only_while_frames_are_missing_none_comes_and_the_peer_answers() {
        let mut tally = Tally { due: 10, ..Tally::default() };
        assert_eq!(look(&mut tally, 4, false, 1), (0, false), "frames come");
        assert_eq!(look(&mut tally, 4, false, 101), (0, true));
        // A peer that computes answers nothing, however long that takes.
        assert_eq!(look(&mut tally, 4, false, 201), (0, false));
        assert_eq!(look(&mut tally, 4, false, 3_600_201), (0, false));
        tally.hear(10);
        assert_eq!(look(&mut tally, 4, false, 3_600_301), (200, true), "no more than a question may count for");
        tally.hear(10);
        assert_eq!(look(&mut tally, 4, false, 3_600_401), (300, true));
        assert_eq!(look(&mut tally, 5, false, 3_600_501), (0, false));
        assert_eq!(look(&mut tally, 5, false, 3_600_601), (0, true));
        assert_eq!(look(&mut tally, 10, false, 3_600_701), (0, false), "all have come");
        assert_eq!(look(&mut tally, 10, true, 3_600_801), (0, true), "one waits for one before it");
        tally.hear(10);
        assert_eq!(look(&mut tally, 10, true, 3_600_901), (100, true));
    }

    #[test]
    fn numbers_go_round() {
        let mut tally = Tally { due: 1, received: u32::MAX, ..Tally::default() };
        assert!(tally.look(u32::MAX, false, MS).asks);
        assert_eq!(tally.look(1, false, 2 * MS), Missed::default());
    }
}
