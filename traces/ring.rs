//! A sink in memory.

mod entry;
mod lane;

use crate::event::{Event, Sink};
use entry::{Entry, WORDS};
use lane::{Lane, Place};
use std::collections::VecDeque;
use std::fmt;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Names of transports, calls and operations that are stored once at most. Events of further ones hold their names themselves.
const NAMES_MAX: usize = 128;

/// Keeps the last events of an engine. Clones share the same ring: give one to the engine, and read the events from the other.
///
/// Keeping an event takes no lock. The memory of `capacity` events, 88 B each, is reserved at once, and used as it is filled. Only rare
/// events with text allocate more: errors, and connections that fail. If several engines use a ring at the same time, each has
/// `capacity` events, and the events of one engine come after those of the other.
pub struct Ring {
    kept: Arc<Kept>,
    /// The part that this clone writes, after its first event.
    writer: Option<Writer>,
}

/// The state that clones share.
struct Kept {
    capacity: usize,
    /// One part for each simultaneous writer.
    parts: Mutex<Vec<Arc<Part>>>,
}

/// The events of one writer at a time, and of later writers.
struct Part {
    lane: Lane<WORDS>,
    is_written: AtomicBool,
    rest: Mutex<Rest>,
}

/// What does not fit into the fixed-size entries of a lane.
#[derive(Default)]
struct Rest {
    /// Events with text, with their numbers, oldest first.
    texts: VecDeque<(u64, Event<'static>)>,
    /// Names of transports, calls and operations.
    names: Vec<String>,
    /// Events before this number were taken out, or were overwritten.
    taken: u64,
    /// How many of them were overwritten.
    dropped: u64,
}

/// The exclusive right to write a part.
struct Writer {
    part: Arc<Part>,
    place: Place,
}

impl Ring {
    /// A ring of `capacity` events, at least one.
    ///
    /// # Panics
    /// If there is not enough memory.
    pub fn new(capacity: usize) -> Self {
        let first = Arc::new(Part::new(capacity));
        Ring { kept: Arc::new(Kept { capacity, parts: Mutex::new(vec![first]) }), writer: None }
    }

    /// The events that are kept, oldest first.
    pub fn events(&self) -> Vec<Event<'static>> {
        lock(&self.kept.parts).iter().flat_map(|part| part.read(&lock(&part.rest)).1).collect()
    }

    /// Takes out the events that are kept, oldest first.
    pub fn take(&self) -> Vec<Event<'static>> {
        lock(&self.kept.parts).iter().flat_map(|part| part.take()).collect()
    }

    /// How many events were overwritten by newer ones.
    pub fn dropped(&self) -> u64 {
        lock(&self.kept.parts).iter().map(|part| part.dropped()).sum()
    }
}

impl Clone for Ring {
    fn clone(&self) -> Self {
        Ring { kept: self.kept.clone(), writer: None }
    }
}

impl fmt::Debug for Ring {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ring").field("capacity", &self.kept.capacity).finish_non_exhaustive()
    }
}

impl Sink for Ring {
    #[inline]
    fn record(&mut self, event: &Event<'_>) {
        match &mut self.writer {
            Some(writer) => writer,
            none => none.insert(self.kept.writer()),
        }
        .record(event);
    }
}

impl Kept {
    /// A writer of a part that has no other writer now.
    #[cold]
    fn writer(&self) -> Writer {
        let mut parts = lock(&self.parts);
        let free = parts.iter().position(|part| !part.is_written.load(Ordering::Acquire));
        let part = match free {
            Some(place) => &parts[place],
            None => {
                parts.push(Arc::new(Part::new(self.capacity)));
                &parts[parts.len() - 1]
            }
        };
        part.is_written.store(true, Ordering::Relaxed);
        Writer { part: part.clone(), place: part.lane.place() }
    }
}

impl Part {
    fn new(capacity: usize) -> Self {
        Part { lane: Lane::new(capacity), is_written: AtomicBool::new(false), rest: Mutex::default() }
    }

    /// The events that are kept and were not taken out, and their numbers.
    fn read(&self, rest: &Rest) -> (Range<u64>, Vec<Event<'static>>) {
        let (first, entries) = self.lane.read(rest.taken);
        let event = |(words, number): (&[u64; WORDS], u64)| match entry::read(words)? {
            Entry::Event(event) => Some(event),
            Entry::Named(name, event) => Some(event.named(rest.names.get(name)?)),
            Entry::Apart => {
                let place = rest.texts.binary_search_by_key(&number, |(number, _)| *number).ok()?;
                Some(rest.texts[place].1.clone())
            }
        };
        let numbers = first..first + entries.len() as u64;
        (numbers, entries.iter().zip(first..).filter_map(event).collect())
    }

    fn take(&self) -> Vec<Event<'static>> {
        let mut rest = lock(&self.rest);
        let (numbers, events) = self.read(&rest);
        rest.dropped += numbers.start - rest.taken;
        rest.taken = numbers.end;
        events
    }

    fn dropped(&self) -> u64 {
        let rest = lock(&self.rest);
        rest.dropped + self.lane.oldest(self.lane.done()).saturating_sub(rest.taken)
    }
}

impl Writer {
    #[inline(always)]
    fn record(&mut self, event: &Event<'_>) {
        let Writer { part, place } = self;
        let lane = &part.lane;
        match event {
            Event::Sent(message) => lane.keep(place, entry::sent(message)),
            Event::Received(message) => lane.keep(place, entry::received(message)),
            Event::Delivered { begin_ns, read_ns, end_ns, work } => {
                lane.keep(place, entry::delivered(*begin_ns, *read_ns, *end_ns, work));
            }
            Event::Waiting { depths, at_ns } => lane.keep(place, entry::waiting(*at_ns, depths)),
            Event::TickBegan { at_ns } => lane.keep(place, entry::tick_began(*at_ns)),
            Event::SystemRan { system, rows, begin_ns, end_ns } => {
                lane.keep(place, entry::system_ran(*system, *rows, *begin_ns, *end_ns));
            }
            Event::TickEnded { at_ns, work, passes, depths } => {
                lane.keep(place, entry::tick_ended(*at_ns, work, *passes, depths));
            }
            _ => self.record_named(event),
        }
    }

    /// Keeps an event that has a name or text.
    fn record_named(&mut self, event: &Event<'_>) {
        let Writer { part, place } = self;
        let Some(number) = event.name().and_then(|name| lock(&part.rest).name(name)) else {
            return self.record_apart(event);
        };
        let lane = &part.lane;
        match event {
            Event::Moved { sent_bytes, received_bytes, at_ns, .. } => {
                lane.keep(place, entry::moved(number, *sent_bytes, *received_bytes, *at_ns));
            }
            Event::Called { context, begin_ns, end_ns, .. } => {
                lane.keep(place, entry::called(number, *context, *begin_ns, *end_ns));
            }
            Event::Accessed { access, begin_ns, end_ns, .. } => {
                lane.keep(place, entry::accessed(number, access, *begin_ns, *end_ns));
            }
            Event::Started { operation, about, at_ns, .. } => {
                lane.keep(place, entry::started(number, *operation, about, *at_ns));
            }
            Event::Ended { operation, at_ns, .. } => lane.keep(place, entry::ended(number, *operation, *at_ns)),
            _ => self.record_apart(event),
        }
    }

    /// Keeps an event that has text.
    #[cold]
    fn record_apart(&mut self, event: &Event<'_>) {
        let Writer { part, place } = self;
        let mut rest = lock(&part.rest);
        let oldest = part.lane.oldest(place.count + 1);
        while rest.texts.front().is_some_and(|(number, _)| *number < oldest) {
            rest.texts.pop_front();
        }
        rest.texts.push_back((place.count, event.clone().into_owned()));
        drop(rest);
        part.lane.keep(place, entry::apart());
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.part.is_written.store(false, Ordering::Release);
    }
}

impl Rest {
    /// The number of the name of a transport, a call or an operation, if there is one.
    fn name(&mut self, name: &str) -> Option<u32> {
        let known = self.names.iter().position(|known| known == name);
        let number = known.or_else(|| {
            let is_room = self.names.len() < NAMES_MAX;
            is_room.then(|| {
                self.names.push(name.to_owned());
                self.names.len() - 1
            })
        });
        number.map(|number| number as u32)
    }
}

fn lock<T>(shared: &Mutex<T>) -> MutexGuard<'_, T> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{About, Access, Message};
    use tickwire_components::VcState;

    #[test]
    fn the_oldest_give_way() {
        let ring = Ring::new(3);
        let mut sink = ring.clone();
        for at_ns in 0..5 {
            sink.record(&Event::TickBegan { at_ns });
        }
        let expected: Vec<Event<'_>> = (2..5).map(|at_ns| Event::TickBegan { at_ns }).collect();
        assert_eq!((ring.events(), ring.dropped()), (expected.clone(), 2));
        assert_eq!((ring.take(), ring.events()), (expected, Vec::new()));
    }

    #[test]
    #[should_panic(expected = "no memory for a ring of 18446744073709551615 events")]
    fn a_ring_that_no_memory_has_room_for_says_so() {
        let _ = Ring::new(usize::MAX);
    }

    #[test]
    fn what_was_taken_has_not_given_way() {
        let ring = Ring::new(3);
        let mut sink = ring.clone();
        let mut told = |times: std::ops::Range<u64>| times.for_each(|at_ns| sink.record(&Event::TickBegan { at_ns }));
        told(0..2);
        assert_eq!((ring.take().len(), ring.dropped()), (2, 0));
        told(2..5);
        assert_eq!((ring.events().len(), ring.dropped()), (3, 0));
        told(5..6);
        assert_eq!((ring.take().len(), ring.dropped()), (3, 1));
        assert_eq!((ring.events(), ring.dropped()), (Vec::new(), 1));
    }

    #[test]
    fn text_goes_with_its_event() {
        let ring = Ring::new(4);
        let mut sink = ring.clone();
        let error = |at_ns: u64| Event::Error { words: at_ns.to_string().into(), at_ns };
        for at_ns in 0..100 {
            sink.record(&error(2 * at_ns));
            sink.record(&Event::TickBegan { at_ns: 2 * at_ns + 1 });
        }
        let began = |at_ns| Event::TickBegan { at_ns };
        assert_eq!(ring.events(), [error(196), began(197), error(198), began(199)]);
        let kept = lock(&lock(&ring.kept.parts)[0].rest).texts.len();
        assert!(kept <= 4, "{kept}");
    }

    #[test]
    fn two_engines_at_a_time_have_a_part_each_and_later_ones_have_the_same() {
        let ring = Ring::new(2);
        for round in 0..3 {
            let (mut first, mut second) = (ring.clone(), ring.clone());
            for at_ns in [round, round + 1] {
                first.record(&Event::TickBegan { at_ns });
                second.record(&Event::TickBegan { at_ns: 100 + at_ns });
            }
            let expected = [round, round + 1, 100 + round, 101 + round].map(|at_ns| Event::TickBegan { at_ns });
            assert_eq!((ring.events(), ring.dropped()), (expected.to_vec(), 4 * round));
        }
    }

    #[test]
    fn every_event_is_kept_as_it_was() {
        let ring = Ring::new(400);
        let mut sink = ring.clone();
        let message = Message { proc: 1, context: 2, tag: 3, bytes: 4, number: 5, begin_ns: 6, end_ns: 7 };
        let moved = |transport: String| Event::Moved {
            transport: transport.into(),
            sent_bytes: 1,
            received_bytes: 2,
            at_ns: 3,
        };
        let work = tickwire_components::Work { posted: 1, matched: 2, sent: 3, received: 4, completed: 5 };
        let [posted, wildcard, unexpected, unexpected_bytes, cars, credit_bytes] = [6, 7, 8, 9, 10, 11];
        let access = Access { window: 1, target: 2, bytes: 1 << 40 };
        let depths = crate::Depths { posted, wildcard, unexpected, unexpected_bytes, cars, credit_bytes };
        let mut told = vec![
            Event::Engine { rank: 1, size: 2 },
            Event::System { system: 3, name: "post".into() },
            Event::Delivered { begin_ns: 1, read_ns: 2, end_ns: 3, work },
            Event::Waiting { depths, at_ns: 5 },
            Event::TickBegan { at_ns: 4 },
            Event::SystemRan { system: 3, rows: 7, begin_ns: 8, end_ns: 9 },
            Event::TickEnded { at_ns: 10, work, passes: 2, depths },
            Event::Sent(message),
            Event::Received(message),
            Event::VcChanged { proc: 1, state: VcState::Failed, reason: "gone".into(), at_ns: 5 },
            Event::Error { words: "no".into(), at_ns: 6 },
            Event::Called { name: "barrier".into(), context: 1, begin_ns: 2, end_ns: 3 },
            Event::Accessed { name: "put".into(), access, begin_ns: 2, end_ns: 3 },
            Event::Started { operation: 1 << 40, name: "rput".into(), about: About::Memory(access), at_ns: 5 },
            Event::Started { operation: 7, name: "barrier".into(), about: About::Comm(9), at_ns: 6 },
            Event::Ended { operation: 1 << 40, name: "rput".into(), at_ns: 8 },
        ];
        // More transports than can have a number, each twice.
        told.extend((0..2 * (NAMES_MAX + 5)).map(|n| moved((n / 2).to_string())));
        told.push(Event::Called { name: "one more".into(), context: 1, begin_ns: 2, end_ns: 3 });
        told.push(Event::Ended { operation: 3, name: "and one more".into(), at_ns: 4 });
        told.iter().for_each(|event| sink.record(event));
        assert_eq!((ring.events(), ring.dropped()), (told, 0));
    }
}
