//! The events of an engine, and the sinks that receive them.

use std::borrow::Cow;
use tickwire_components::{VcState, Work};

/// Something that happened in an engine. Times are those of [`now_ns`](tickwire_components::now_ns).
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Event<'a> {
    /// The first event of an engine: its identity.
    Engine {
        /// Its rank in the world.
        rank: u32,
        /// Procs of the world.
        size: u32,
    },
    /// The name of a system. Recorded before its first run.
    System {
        /// Its number: 0 to 5 in the order of the system sets of a tick, then [`crate::DELIVER`], then the systems of the application.
        system: u16,
        /// Its name.
        name: Cow<'a, str>,
    },
    /// A tick that consisted of one run of Deliver. Work that is pending after it gets a tick of its own.
    Delivered {
        /// When it began. If a poll of a wait found nothing just before: when that poll ended.
        begin_ns: u64,
        /// When Deliver had taken all frames, and began to read messages out of memory of peers; `end_ns` if it read none.
        read_ns: u64,
        /// When it ended.
        end_ns: u64,
        /// What it did. Calls between two ticks are not in it.
        work: Work,
    },
    /// What waits, after a tick that was a run of Deliver. Recorded every [`Event::MOVED_NS`] at most, and before a sleep.
    Waiting {
        /// What waits.
        depths: Depths,
        /// When.
        at_ns: u64,
    },
    /// A tick that runs systems begins.
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
    /// A call of a collective operation that waits has returned, also if it was refused. Calls such as `win_fence` make some by themselves.
    Called {
        /// The name of the call, such as `allreduce`.
        name: Cow<'a, str>,
        /// Context word of the communicator.
        context: u32,
        /// When it was called.
        begin_ns: u64,
        /// When it returned.
        end_ns: u64,
    },
    /// A one-sided call has returned, also if it was refused. Calls that such a call makes by itself are not told.
    Accessed {
        /// The name of the call, such as `put` or `win_fence`.
        name: Cow<'a, str>,
        /// What the call was about.
        access: Access,
        /// When it was called.
        begin_ns: u64,
        /// When it returned.
        end_ns: u64,
    },
    /// An operation with a request is started: a nonblocking or persistent collective operation, or a one-sided one.
    Started {
        /// Its number among those of this engine, from 0.
        operation: u64,
        /// The name of the operation: that of the blocking call, such as `allreduce`, if it is collective, else that of its call, such as
        /// `rput`.
        name: Cow<'a, str>,
        /// What it is about.
        about: About,
        /// When.
        at_ns: u64,
    },
    /// An operation with a request has ended, or its start was refused.
    Ended {
        /// Its number.
        operation: u64,
        /// Its name.
        name: Cow<'a, str>,
        /// When. If it has ended in a tick or a poll: when that had ended.
        at_ns: u64,
    },
    /// The state of a virtual connection has changed since the tick before.
    VcChanged {
        /// The proc at its other end.
        proc: u32,
        /// The new state.
        state: VcState,
        /// Why the connection has failed; else empty.
        reason: Cow<'a, str>,
        /// When that was noticed.
        at_ns: u64,
    },
    /// Bytes that a transport has moved so far, if they have changed. Recorded every [`Event::MOVED_NS`] at most, and before a sleep.
    Moved {
        /// The transport's name.
        transport: Cow<'a, str>,
        /// Bytes sent, including headers and gaps.
        sent_bytes: u64,
        /// Bytes received, including headers and gaps.
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

/// What an operation with a request is about.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum About {
    /// A communicator, by its context word: the operation is collective.
    Comm(u32),
    /// Memory of a proc: the operation is one-sided.
    Memory(Access),
}

/// What a one-sided call is about.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Access {
    /// Context word of the window's own communicator; [`NIL`](tickwire_components::NIL) for exposed memory, and for a window that there is
    /// not.
    pub window: u32,
    /// The target's rank: in the window, or in the world for exposed memory. [`NIL`](tickwire_components::NIL) for calls about several
    /// ranks.
    pub target: u32,
    /// Bytes that are put, got or updated; 0 for calls that move none.
    pub bytes: u64,
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
    /// Its number among the envelopes from this sender to this receiver, from 0. It is the same on both sides.
    pub number: u64,
    /// Of a sent message: when the transport was asked to take it. Of a received message: when the previous activity ended.
    pub begin_ns: u64,
    /// Of a sent message: when the transport had taken it; the same as `begin_ns` for a message shorter than [`Message::TIMED_BYTES`].
    /// Of a received message: when its bytes were in place.
    pub end_ns: u64,
}

impl Message {
    /// Sending a payload of at least this length takes longer than reading a clock. Bytes.
    pub const TIMED_BYTES: u64 = 4096;
}

/// What waits in an engine at the end of a tick.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Depths {
    /// Posted receives that wait for a message. Receives in lists are counted only up to [`Depths::COUNTED_MAX`].
    pub posted: u64,
    /// Those of them that match any source.
    pub wildcard: u64,
    /// Unexpected messages.
    pub unexpected: u64,
    /// Bytes of the unexpected messages.
    pub unexpected_bytes: u64,
    /// CARs that are not free: operations that were posted and are not taken yet.
    pub cars: u64,
    /// Credit at connected peers: bytes that may be sent to them before they have posted receives.
    pub credit_bytes: u64,
}

impl Depths {
    /// Rows that are visited at most to count posted receives.
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

    /// The name of the transport, the call or the operation, if the event has one.
    pub(crate) fn name(&self) -> Option<&str> {
        match self {
            Event::Moved { transport: name, .. }
            | Event::Called { name, .. }
            | Event::Accessed { name, .. }
            | Event::Started { name, .. }
            | Event::Ended { name, .. } => Some(name),
            _ => None,
        }
    }

    /// The same event with another name, if it has one.
    pub(crate) fn named(mut self, as_named: &str) -> Self {
        match &mut self {
            Event::Moved { transport: name, .. }
            | Event::Called { name, .. }
            | Event::Accessed { name, .. }
            | Event::Started { name, .. }
            | Event::Ended { name, .. } => *name = Cow::Owned(as_named.to_owned()),
            _ => {}
        }
        self
    }

    /// The same event with text of its own.
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
            Event::Called { name, context, begin_ns, end_ns } => {
                Event::Called { name: own(name), context, begin_ns, end_ns }
            }
            Event::Accessed { name, access, begin_ns, end_ns } => {
                Event::Accessed { name: own(name), access, begin_ns, end_ns }
            }
            Event::Started { operation, name, about, at_ns } => {
                Event::Started { operation, name: own(name), about, at_ns }
            }
            Event::Ended { operation, name, at_ns } => Event::Ended { operation, name: own(name), at_ns },
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

/// Receives the events of an engine, in order, on the thread that owns the engine. The time that a sink takes is time of the engine.
pub trait Sink: Send {
    /// Receives an event.
    fn record(&mut self, event: &Event<'_>);

    /// Called when the engine is about to sleep. The sink should write out what it has buffered.
    fn flush(&mut self) {}

    /// Called when the engine is closed. The sink ignores all further events.
    fn finish(&mut self) {
        self.flush();
    }
}
