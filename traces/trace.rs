//! A sink, shared by the parts of an engine.

use crate::event::{Event, Sink, now_ns};
use crate::ring::Ring;
use std::any::Any;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// A sink as the parts of an engine share it.
#[derive(Clone)]
pub struct Trace {
    sink: Shared,
    /// The time that was read last. Reading a clock takes as long as delivering a short message, so it is done once for things that
    /// follow each other at once.
    last_ns: Arc<AtomicU64>,
}

#[derive(Clone)]
enum Shared {
    /// It is shared by itself: one lock is enough.
    Ring(Ring),
    Other(Arc<Mutex<dyn Sink>>),
}

impl Trace {
    /// Shares a sink.
    pub fn new(sink: impl Sink + 'static) -> Self {
        let ring = (&sink as &dyn Any).downcast_ref::<Ring>().cloned();
        let sink = ring.map_or_else(|| Shared::Other(Arc::new(Mutex::new(sink))), Shared::Ring);
        Trace { sink, last_ns: Arc::default() }
    }

    /// Tells an event.
    #[inline]
    pub fn record(&self, event: &Event<'_>) {
        self.record_all(std::slice::from_ref(event));
    }

    /// Tells events, in order.
    #[inline]
    pub fn record_all(&self, events: &[Event<'_>]) {
        match &self.sink {
            Shared::Ring(ring) => events.iter().for_each(|event| ring.tell(event)),
            Shared::Other(sink) => {
                let mut sink = sink.lock().unwrap_or_else(PoisonError::into_inner);
                events.iter().for_each(|event| sink.record(event));
            }
        }
    }

    /// Reads the clock.
    #[inline]
    pub fn now_ns(&self) -> u64 {
        let at_ns = now_ns();
        self.last_ns.store(at_ns, Ordering::Relaxed);
        at_ns
    }

    /// What the clock said when it was read last, for this engine; 0 if it was not.
    #[inline]
    pub fn last_ns(&self) -> u64 {
        self.last_ns.load(Ordering::Relaxed)
    }

    /// See [`Sink::flush`].
    pub fn flush(&self) {
        if let Shared::Other(sink) = &self.sink {
            sink.lock().unwrap_or_else(PoisonError::into_inner).flush();
        }
    }

    /// See [`Sink::finish`].
    pub fn finish(&self) {
        if let Shared::Other(sink) = &self.sink {
            sink.lock().unwrap_or_else(PoisonError::into_inner).finish();
        }
    }
}

impl fmt::Debug for Trace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Trace")
    }
}
