//! Watching Deliver: one event for each run, and one for each look at a prompt endpoint that has delivered something.

use super::{Watcher, less};
use tickwire_components::{Progress, Work};
use tickwire_systems::store::StoreMut;
use tickwire_systems::tick::deliver::{deliver, has_offered, look_and_deliver_noted, read_offered, take_frames};
use tickwire_traces::tracy::Zone;
use tickwire_traces::{DELIVER, Event, Trace};

/// A run of Deliver that is watched.
struct Delivery {
    /// The work counters when it began.
    before: Work,
    begin_ns: u64,
    zone: Option<Zone>,
}

impl Watcher {
    /// Runs Deliver as a tick of its own, and reports it as one event. Queue depths and moved bytes are read only now and then, since that
    /// takes longer than a short message.
    #[inline]
    pub(in crate::run) fn deliver(&mut self, store: &mut StoreMut<'_>) {
        let Some(delivery) = self.begin_delivery(store.progress()) else {
            store.with(deliver);
            return;
        };
        let reads = store.with(|rows, wire| {
            take_frames::<true>(rows, wire);
            has_offered(rows)
        });
        let read_ns = self.taken_ns(&delivery);
        let end_ns = match reads {
            true => {
                let _zone = self.profiled.then(Zone::of_reading);
                store.with(read_offered);
                self.read_clock()
            }
            false => read_ns,
        };
        self.end_delivery(store, delivery, read_ns, end_ns);
    }

    /// As [`Watcher::deliver`], by a look at a prompt endpoint. A look in vain is not reported. Returns how many messages were delivered.
    pub(in crate::run) fn look_and_deliver(
        &mut self,
        store: &mut StoreMut<'_>,
        endpoint: usize,
        most: u32,
        patient: bool,
    ) -> u32 {
        let &mut Progress { ref work, looked, ticks, .. } = store.progress();
        let (before, mut delivery) = (work.get(), None);
        let mut found = || {
            if delivery.is_none() {
                delivery = self.begin_delivery_at(before, looked, ticks);
            }
        };
        let count = store
            .with(|rows, wire| look_and_deliver_noted(rows, &mut wire.endpoints[endpoint], most, patient, &mut found));
        match delivery {
            Some(delivery) if count != 0 => {
                let end_ns = self.taken_ns(&delivery);
                self.end_delivery(store, delivery, end_ns, end_ns);
            }
            // Nothing was found, or what was found is left to the systems.
            _ => {}
        }
        count
    }

    /// Begins to watch a run of Deliver. `None` if nobody watches any more.
    #[inline(always)]
    fn begin_delivery(&mut self, progress: &mut Progress) -> Option<Delivery> {
        self.begin_delivery_at(progress.work.get(), progress.looked, progress.ticks)
    }

    #[inline(always)]
    fn begin_delivery_at(&mut self, before: Work, looked: Option<(u64, u64)>, ticks: u64) -> Option<Delivery> {
        self.profiled = self.profile.begin_tick();
        if !self.watches() {
            return None;
        }
        let begin_ns = match (looked, &mut self.trace) {
            // What is found now has come since the previous look.
            (Some((stamp, tick)), Some(trace)) if tick + 1 == ticks => trace.ns_of(stamp),
            _ => self.read_clock(),
        };
        let zone = self.profiled.then(|| Zone::begin(DELIVER as u16, "deliver"));
        Some(Delivery { before, begin_ns, zone })
    }

    /// When frames had been taken, ns. The last thing done with frames is usually a message, whose time the trace has noted.
    #[inline(always)]
    fn taken_ns(&mut self, delivery: &Delivery) -> u64 {
        let noted_ns = self.trace.as_ref().map_or(0, Trace::last_ns);
        if noted_ns > delivery.begin_ns { noted_ns } else { self.read_clock() }
    }

    /// Reports a run of Deliver.
    #[inline(always)]
    fn end_delivery(&mut self, store: &mut StoreMut<'_>, delivery: Delivery, read_ns: u64, end_ns: u64) {
        let Delivery { before, begin_ns, zone } = delivery;
        let progress = store.progress();
        let work = less(progress.work.get(), before);
        if let Some(zone) = zone {
            zone.end(work.received.into());
        }
        let vcs_changed = progress.vc_changes != self.vc_changes;
        if let Some(trace) = &mut self.trace {
            trace.record(&Event::Delivered { begin_ns, read_ns, end_ns, work });
        }
        if work.completed != 0 {
            self.end_operations(store, end_ns);
        }
        if vcs_changed {
            self.look_at_vcs(store);
        }
        let depths = (end_ns.wrapping_sub(self.moved_ns) >= Event::MOVED_NS).then(|| {
            self.look_at_endpoints(store, end_ns);
            self.look_at_depths(store, end_ns)
        });
        if self.profiled {
            self.profile.end_tick(&work, 1, depths.as_ref());
        }
    }
}
