//! What an engine tells, and to whom.

use std::borrow::Cow;
use tickwire_components::{VcState, Work};

/// Something that happened in an engine. Times are those of [`now_ns`](tickwire_components::now_ns).
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Event<'a> {
    /// The first event of an engine: who it is.
    Engine {
        /// Its rank in the world.
        rank: u32,
        /// Procs of the world.
        size: u32,
    },
    /// The name of a system, told before its first run.
    System {
        /// Its number: 0 to 5 in the order of the sets of a tick, [`crate::DELIVER`], and those of the application behind it.
        system: u16,
        /// Its name.
        name: Cow<'a, str>,
    },
    /// A tick that was one run of Deliver. What is pending behind it is done by a tick of its own.
    Delivered {
        /// When it began. Where a wait has looked in vain just before: when that look was over.
        begin_ns: u64,
        /// When all frames had been taken, and messages began to be read out of memory of peers; `end_ns` if none was.
        read_ns: u64,
        /// When it ended.
        end_ns: u64,
        /// What it did. Calls between two ticks are not in it.
        work: Work,
    },
    /// What waits, after a tick that was a run of Deliver. Told every [`Event::MOVED_NS`] at most, and before a sleep.
    Waiting {
        /// What waits.
        depths: Depths,
        /// When.
        at_ns: u64,
    },
    /// A tick begins that runs systems.
    TickBegan {
        /// When.
        at_ns: u64,
    },
    /// A system has run.
    SystemRan {
        /// Its number.
        system: u16,
        /// Rows that it handled; 0 for a system of the application.
        rows: u64,
        /// When it began.
        begin_ns: u64,
        /// When it ended.
        end_ns: u64,
    },
    /// A tick has ended.
    TickEnded {
        /// When.
        at_ns: u64,
        /// What it did. Calls between two ticks are not in it.
        work: Work,
        /// Passes over the systems.
        passes: u32,
        /// What waits now.
        depths: Depths,
    },
    /// A message or the offer of one was given to a transport.
    Sent(Message),
    /// A message or the offer of one was read from a transport.
    Received(Message),
    /// The state of a virtual connection has changed since the tick before.
    VcChanged {
        /// The proc at its other end.
        proc: u32,
        /// The new state.
        state: VcState,
        /// Of one that has failed: why.
        reason: Cow<'a, str>,
        /// When that was noticed.
        at_ns: u64,
    },
    /// Bytes that a transport has moved so far, if they have changed. Told every [`Event::MOVED_NS`] at most, and before a sleep.
    Moved {
        /// The transport's name.
        transport: Cow<'a, str>,
        /// Bytes sent, headers and gaps included.
        sent_bytes: u64,
        /// Bytes received, likewise.
        received_bytes: u64,
        /// When.
        at_ns: u64,
    },
    /// An operation has failed, or the engine was poisoned.
    Error {
        /// What has happened.
        words: Cow<'a, str>,
        /// When.
        at_ns: u64,
    },
}

/// An envelope on its way between two procs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Message {
    /// The proc at the other end.
    pub proc: u32,
    /// Context word of the communicator.
    pub context: u32,
    /// Tag.
    pub tag: u32,
    /// Bytes of the message.
    pub bytes: u64,
    /// Its place among the envelopes from this sender to this receiver, from 0: the same at both ends.
    pub number: u64,
    /// Sent: when the transport was asked to take it. Received: when the last thing before it was over.
    pub begin_ns: u64,
    /// Sent: when the transport had taken it; of one that is shorter than [`Message::TIMED_BYTES`] the same as `begin_ns`.
    /// Received: when it had got to its place.
    pub end_ns: u64,
}

impl Message {
    /// Payloads from this length on take longer than reading a clock. Bytes.
    pub const TIMED_BYTES: u64 = 4096;
}

/// What waits in an engine at the end of a tick.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Depths {
    /// Posted receives that wait for a message. In lists they are counted up to [`Depths::COUNTED_MAX`].
    pub posted: u64,
    /// Those of them that take any source.
    pub wildcard: u64,
    /// Messages that wait for a receive.
    pub unexpected: u64,
    /// Bytes of them.
    pub unexpected_bytes: u64,
    /// CARs that are not free: operations that were posted and not taken.
    pub cars: u64,
    /// Bytes that may be sent to connected peers before they have posted receives, by their word.
    pub credit_bytes: u64,
}

impl Depths {
    /// Rows that are visited at most in order to count what is posted.
    pub const COUNTED_MAX: u64 = 4096;
    /// The names of the fields.
    pub const NAMES: [&'static str; 6] =
        ["posted", "wildcard", "unexpected", "unexpected bytes", "CARs", "credit bytes"];

    /// The fields, in the order of their names.
    pub fn values(&self) -> [u64; 6] {
        [self.posted, self.wildcard, self.unexpected, self.unexpected_bytes, self.cars, self.credit_bytes]
    }
}

impl Event<'_> {
    /// Time between two [`Event::Moved`] of a transport, ns.
    pub const MOVED_NS: u64 = 100_000;

    /// The same event with words of its own.
    pub fn into_owned(self) -> Event<'static> {
        let own = |words: Cow<'_, str>| Cow::Owned(words.into_owned());
        match self {
            Event::Engine { rank, size } => Event::Engine { rank, size },
            Event::System { system, name } => Event::System { system, name: own(name) },
            Event::Delivered { begin_ns, read_ns, end_ns, work } => {
                Event::Delivered { begin_ns, read_ns, end_ns, work }
            }
            Event::Waiting { depths, at_ns } => Event::Waiting { depths, at_ns },
            Event::TickBegan { at_ns } => Event::TickBegan { at_ns },
            Event::SystemRan { system, rows, begin_ns, end_ns } => Event::SystemRan { system, rows, begin_ns, end_ns },
            Event::TickEnded { at_ns, work, passes, depths } => Event::TickEnded { at_ns, work, passes, depths },
            Event::Sent(message) => Event::Sent(message),
            Event::Received(message) => Event::Received(message),
            Event::VcChanged { proc, state, reason, at_ns } => {
                Event::VcChanged { proc, state, reason: own(reason), at_ns }
            }
            Event::Moved { transport, sent_bytes, received_bytes, at_ns } => {
                Event::Moved { transport: own(transport), sent_bytes, received_bytes, at_ns }
            }
            Event::Error { words, at_ns } => Event::Error { words: own(words), at_ns },
        }
    }
}

/// Takes the events of an engine, on the thread that owns the engine and in the order in which they happen. What it does
/// takes the engine's time.
pub trait Sink: Send {
    /// Takes an event.
    fn record(&mut self, event: &Event<'_>);

    /// The engine is about to sleep: what was kept back should be where it belongs.
    fn flush(&mut self) {}

    /// The engine is closed: what it tells from here on is left out.
    fn finish(&mut self) {
        self.flush();
    }
}
