//! Messages to the own rank. They bypass the transport if their receive is posted.

use crate::run::engine::Engine;
use tickwire_components::index::EnvelopeKey;
use tickwire_components::wire::Header;
use tickwire_components::{NIL, Row, Span};
use tickwire_systems::protocols::eager::deliver_own;
use tickwire_systems::store::Tables;
use tickwire_traces::tracy::{self, Zone};
use tickwire_traces::{DELIVER, Trace};

/// The row of the own VC.
pub(crate) const OWN_ROW: Row = 0;

impl Engine {
    /// Sends a message to the own rank.
    #[inline(never)]
    pub(super) fn send_to_oneself(&mut self, run: Span, context: u32, tag: u32, source: u32) -> bool {
        let message = EnvelopeKey { context, source, tag };
        if !tracy::connected() && self.deliver_own(self.own_row, &message, run) {
            return true;
        }
        self.send_to_oneself_otherwise(run, &message)
    }

    /// As [`Engine::send_to_oneself`], where somebody watches. If no posted receive takes the message, it goes to the transport like any
    /// other.
    #[inline(never)]
    fn send_to_oneself_otherwise(&mut self, run: Span, message: &EnvelopeKey) -> bool {
        if self.watching.is_on() && self.deliver_own_watched(message, run) {
            return true;
        }
        let EnvelopeKey { context, source, tag } = *message;
        self.send_run_over_vc(run, u64::from(context) | u64::from(source) << 32, tag, self.own_at_once)
    }

    #[inline(always)]
    fn deliver_own(&mut self, row: Row, message: &EnvelopeKey, run: Span) -> bool {
        // SAFETY: the caller of the send has the buffer.
        #[expect(unsafe_code, reason = "bytes that are addresses")]
        self.store.with(|rows, wire| unsafe { deliver_own(rows, wire, row, message, run) })
    }

    fn deliver_own_watched(&mut self, message: &EnvelopeKey, run: Span) -> bool {
        let begin_ns = self.trace.get_mut().as_mut().map(Trace::now_ns);
        let zone = tracy::connected().then(|| Zone::begin(DELIVER as u16, "deliver"));
        let delivered = self.deliver_own(OWN_ROW, message, run);
        if let Some(zone) = zone {
            zone.end(delivered.into());
        }
        if !delivered {
            return false;
        }
        if let Some(begin_ns) = begin_ns {
            let Tables { vcs, endpoints, .. } = self.store.all();
            let vc = &vcs[OWN_ROW as usize];
            let EnvelopeKey { context, source, tag } = *message;
            let header = Header::eager(context, source, tag, run.len() as u64);
            endpoints[vc.endpoint as usize].note_passed(vc.proc, &header, begin_ns);
        }
        if self.observer.receipts {
            self.note_receipts();
        }
        true
    }

    /// Chooses whether the send of a message to the own rank also delivers it. Without Deliver it does not, and the message goes through a
    /// tick like all others. If a trace or receipts watch, the send uses the variant that reports to them.
    pub(crate) fn choose_own_at_once(&mut self) {
        let own = self.delivers && self.limits.own_at_once;
        self.own_at_once = if own { self.rank().0 } else { NIL };
        let watched = self.trace.get_mut().is_some() || self.observer.receipts;
        self.own_row = if watched { NIL } else { OWN_ROW };
    }
}
