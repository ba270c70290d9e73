//! A sink in memory.

use crate::event::{Event, Sink};
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Keeps the last events of an engine. Clones are the same ring: give one to the engine, and look into the other.
#[derive(Clone, Debug)]
pub struct Ring {
    kept: Arc<Mutex<Kept>>,
}

#[derive(Debug)]
struct Kept {
    events: VecDeque<Event<'static>>,
    capacity: usize,
    dropped: u64,
}

impl Ring {
    /// A ring of so many events.
    pub fn new(capacity: usize) -> Self {
        Ring { kept: Arc::new(Mutex::new(Kept { events: VecDeque::new(), capacity: capacity.max(1), dropped: 0 })) }
    }

    /// The events that are kept, oldest first.
    pub fn events(&self) -> Vec<Event<'static>> {
        self.lock().events.iter().cloned().collect()
    }

    /// Takes the events that are kept, oldest first.
    pub fn take(&self) -> Vec<Event<'static>> {
        self.lock().events.drain(..).collect()
    }

    /// How many events have given way to younger ones.
    pub fn dropped(&self) -> u64 {
        self.lock().dropped
    }

    fn lock(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Sink for Ring {
    fn record(&mut self, event: &Event<'_>) {
        let mut kept = self.lock();
        if kept.events.len() == kept.capacity {
            kept.events.pop_front();
            kept.dropped += 1;
        }
        kept.events.push_back(event.clone().into_owned());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
}
