//! A sink that the parts of an engine share.

use crate::event::{Event, Sink};
use crate::file::TraceFile;
use crate::ring::Ring;
use std::any::Any;
use std::fmt;
use tickwire_components::{Clock, Own};

/// A sink that the parts of an engine share. Only one thread at a time uses them, so recording an event takes no lock.
pub struct Trace {
    shared: Own<Shared>,
}

struct Shared {
    clock: Clock,
    /// The time that was read last, ns. Reading a clock takes as long as delivering a short message, so it is read once for events that
    /// directly follow each other.
    last_ns: u64,
    sink: AnySink,
}

/// A sink. The sinks of this crate are called without a virtual call.
enum AnySink {
    Ring(Ring),
    File(Box<TraceFile>),
    Other(Box<dyn Sink>),
}

impl AnySink {
    fn of<S: Sink + 'static>(sink: S) -> Self {
        let sink: Box<dyn Any> = match (&sink as &dyn Any).downcast_ref::<Ring>() {
            Some(ring) => return AnySink::Ring(ring.clone()),
            None if (&sink as &dyn Any).is::<TraceFile>() => Box::new(sink),
            None => return AnySink::Other(Box::new(sink)),
        };
        sink.downcast().map_or_else(|_| unreachable!("its type was compared"), AnySink::File)
    }

    #[inline]
    fn record(&mut self, event: &Event<'_>) {
        match self {
            AnySink::Ring(ring) => ring.record(event),
            AnySink::File(file) => file.record(event),
            AnySink::Other(sink) => sink.record(event),
        }
    }
}

impl Trace {
    /// Shares a sink.
    pub fn new(sink: impl Sink + 'static) -> Self {
        Trace { shared: Own::new(Shared { clock: Clock::default(), last_ns: 0, sink: AnySink::of(sink) }) }
    }

    /// The same sink, for another part of the engine.
    ///
    /// # Safety
    /// Only one thread at a time uses both.
    #[expect(unsafe_code, reason = "two owners of one sink")]
    pub unsafe fn second(&self) -> Self {
        // SAFETY: by the same contract; no reference to what is shared outlives a call.
        Trace { shared: unsafe { self.shared.second() } }
    }

    /// Records an event.
    #[inline]
    pub fn record(&mut self, event: &Event<'_>) {
        self.shared.sink.record(event);
    }

    /// Reads the clock.
    #[inline]
    pub fn now_ns(&mut self) -> u64 {
        self.ns_of(self.shared.clock.stamp())
    }

    /// As [`Trace::now_ns`], for a [stamp](Clock::stamp) that was taken just now.
    #[inline]
    pub fn ns_of(&mut self, stamp: u64) -> u64 {
        let shared = &mut *self.shared;
        shared.last_ns = shared.clock.ns_of(stamp);
        shared.last_ns
    }

    /// The time that was read last for this engine, ns; 0 if there is none.
    #[inline]
    pub fn last_ns(&self) -> u64 {
        self.shared.last_ns
    }

    /// See [`Sink::flush`].
    pub fn flush(&mut self) {
        match &mut self.shared.sink {
            AnySink::Ring(_) => {}
            AnySink::File(file) => file.flush(),
            AnySink::Other(sink) => sink.flush(),
        }
    }

    /// See [`Sink::finish`].
    pub fn finish(&mut self) {
        match &mut self.shared.sink {
            AnySink::Ring(_) => {}
            AnySink::File(file) => file.finish(),
            AnySink::Other(sink) => sink.finish(),
        }
    }
}

impl fmt::Debug for Trace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Trace")
    }
}
