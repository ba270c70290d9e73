//! A sink in memory.

use crate::event::{Event, Message, Sink};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Events that room is made for at once. A longer ring grows as it is filled.
const ROOM: usize = 1 << 14;
/// Names of transports that are kept once. Events of further ones have names of their own.
const NAMES_MAX: usize = 64;

/// Keeps the last events of an engine. Clones are the same ring: give one to the engine, and look into the other.
///
/// Once it is full nothing is allocated, but for text of events that are few: errors, and connections that fail.
#[derive(Clone, Debug)]
pub struct Ring {
    kept: Arc<Mutex<Kept>>,
}

#[derive(Debug)]
struct Kept {
    /// In the order in which they came, from the oldest one on and around.
    events: Vec<Slot>,
    oldest: usize,
    capacity: usize,
    dropped: u64,
    /// Names of transports.
    names: Vec<String>,
}

/// An event.
#[derive(Debug)]
enum Slot {
    Event(Event<'static>),
    /// [`Event::Moved`] with the number of its name: it comes with many ticks.
    Moved {
        name: usize,
        sent_bytes: u64,
        received_bytes: u64,
        at_ns: u64,
    },
}

impl Ring {
    /// A ring of so many events.
    pub fn new(capacity: usize) -> Self {
        let capacity = capacity.max(1);
        let (events, names) = (Vec::with_capacity(capacity.min(ROOM)), Vec::new());
        Ring { kept: Arc::new(Mutex::new(Kept { events, oldest: 0, capacity, dropped: 0, names })) }
    }

    /// The events that are kept, oldest first.
    pub fn events(&self) -> Vec<Event<'static>> {
        self.lock().events()
    }

    /// Takes the events that are kept, oldest first.
    pub fn take(&self) -> Vec<Event<'static>> {
        let mut kept = self.lock();
        let events = kept.events();
        kept.events.clear();
        kept.oldest = 0;
        events
    }

    /// How many events have given way to younger ones.
    pub fn dropped(&self) -> u64 {
        self.lock().dropped
    }

    /// Keeps messages that have come, and an event behind them.
    #[inline]
    pub(crate) fn tell_behind(&self, messages: &mut Vec<Message>, event: &Event<'_>) {
        let mut kept = self.lock();
        messages.drain(..).for_each(|message| kept.keep(Slot::Event(Event::Received(message))));
        let slot = kept.slot(event);
        kept.keep(slot);
    }

    /// Keeps messages that have come.
    pub(crate) fn tell_messages(&self, messages: &mut Vec<Message>) {
        let mut kept = self.lock();
        messages.drain(..).for_each(|message| kept.keep(Slot::Event(Event::Received(message))));
    }

    fn lock(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Kept {
    fn events(&self) -> Vec<Event<'static>> {
        let (young, old) = self.events.split_at(self.oldest);
        let event = |slot: &Slot| match slot {
            Slot::Event(event) => event.clone(),
            Slot::Moved { name, sent_bytes, received_bytes, at_ns } => {
                let (transport, sent_bytes) = (self.names[*name].clone().into(), *sent_bytes);
                Event::Moved { transport, sent_bytes, received_bytes: *received_bytes, at_ns: *at_ns }
            }
        };
        old.iter().chain(young).map(event).collect()
    }

    /// What is kept of an event.
    #[inline(always)]
    fn slot(&mut self, event: &Event<'_>) -> Slot {
        match event {
            Event::Delivered { begin_ns, read_ns, end_ns, work } => {
                let (begin_ns, read_ns, end_ns, work) = (*begin_ns, *read_ns, *end_ns, *work);
                Slot::Event(Event::Delivered { begin_ns, read_ns, end_ns, work })
            }
            Event::Waiting { depths, at_ns } => Slot::Event(Event::Waiting { depths: *depths, at_ns: *at_ns }),
            Event::TickBegan { at_ns } => Slot::Event(Event::TickBegan { at_ns: *at_ns }),
            Event::SystemRan { system, rows, begin_ns, end_ns } => {
                let (system, rows, begin_ns, end_ns) = (*system, *rows, *begin_ns, *end_ns);
                Slot::Event(Event::SystemRan { system, rows, begin_ns, end_ns })
            }
            Event::TickEnded { at_ns, work, passes, depths } => {
                Slot::Event(Event::TickEnded { at_ns: *at_ns, work: *work, passes: *passes, depths: *depths })
            }
            Event::Sent(message) => Slot::Event(Event::Sent(*message)),
            Event::Received(message) => Slot::Event(Event::Received(*message)),
            Event::Moved { transport, sent_bytes, received_bytes, at_ns } => match self.name(transport) {
                Some(name) => {
                    let (sent_bytes, received_bytes, at_ns) = (*sent_bytes, *received_bytes, *at_ns);
                    Slot::Moved { name, sent_bytes, received_bytes, at_ns }
                }
                None => owned(event),
            },
            _ => owned(event),
        }
    }

    /// The number of a transport.
    #[inline(always)]
    fn name(&mut self, name: &str) -> Option<usize> {
        let known = self.names.iter().position(|known| known == name);
        if known.is_some() { known } else { self.new_name(name) }
    }

    #[cold]
    fn new_name(&mut self, name: &str) -> Option<usize> {
        let number = self.names.len();
        (number < NAMES_MAX).then(|| {
            self.names.push(name.to_owned());
            number
        })
    }

    #[inline(always)]
    fn keep(&mut self, slot: Slot) {
        if self.events.len() < self.capacity {
            return self.events.push(slot);
        }
        self.events[self.oldest] = slot;
        self.oldest += 1;
        if self.oldest == self.capacity {
            self.oldest = 0;
        }
        self.dropped += 1;
    }
}

/// An event that has text.
#[cold]
fn owned(event: &Event<'_>) -> Slot {
    Slot::Event(event.clone().into_owned())
}

impl Sink for Ring {
    fn record(&mut self, event: &Event<'_>) {
        self.tell_behind(&mut Vec::new(), event);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Message;
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
    fn every_event_is_kept_as_it_was() {
        let ring = Ring::new(200);
        let mut sink = ring.clone();
        let message = Message { proc: 1, context: 2, tag: 3, bytes: 4, number: 5, begin_ns: 6, end_ns: 7 };
        let moved = |transport: String| Event::Moved {
            transport: transport.into(),
            sent_bytes: 1,
            received_bytes: 2,
            at_ns: 3,
        };
        let work = tickwire_components::Work { received: 3, ..Default::default() };
        let mut told = vec![
            Event::Engine { rank: 1, size: 2 },
            Event::System { system: 3, name: "post".into() },
            Event::Delivered { begin_ns: 1, read_ns: 2, end_ns: 3, work },
            Event::Waiting { depths: crate::Depths { cars: 3, ..Default::default() }, at_ns: 5 },
            Event::TickBegan { at_ns: 4 },
            Event::SystemRan { system: 3, rows: 7, begin_ns: 8, end_ns: 9 },
            Event::Sent(message),
            Event::Received(message),
            Event::VcChanged { proc: 1, state: VcState::Failed, reason: "gone".into(), at_ns: 5 },
            Event::Error { words: "no".into(), at_ns: 6 },
        ];
        // More transports than have a number, each twice.
        told.extend((0..2 * (NAMES_MAX + 5)).map(|n| moved((n / 2).to_string())));
        told.iter().for_each(|event| sink.record(event));
        assert_eq!((ring.events(), ring.dropped()), (told, 0));
    }
}
