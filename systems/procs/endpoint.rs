//! The endpoint table: one row for each open transport.

use bevy_ecs::component::{Component, ComponentId};
use bevy_ecs::ptr::PtrMut;
use bevy_ecs::world::World;
use std::any::Any;
use tickwire_components::limits::{Limits, OPERATION_LOOKS, POLL_INTERVAL_MAX};
use tickwire_components::wire::ADDRESS_BYTES;
use tickwire_components::{
    Abilities, Car, Exclusive, NIL, Protocol, Request, RequestState, Row, Span, TrafficClass, Vc,
};
use tickwire_traces::Messages;
use tickwire_transports::{AnyTransport, Mapped, Transport};

/// The tables that [`Endpoint::find_operations`] looks at.
#[derive(Clone, Copy)]
pub struct OperationRows<'a> {
    /// Number of requests that are not done.
    pub active: u32,
    /// CARs.
    pub cars: &'a [Car],
    /// Requests, in the rows of their envelope CARs.
    pub requests: &'a [Request],
    /// Contacted procs.
    pub vcs: &'a [Vc],
}

/// Where the bytes of a message are: the part of the answer that decides how they are moved.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Place {
    /// In several runs, or in the layout of a datatype.
    Runs,
    /// In one run.
    Run,
    /// In one run of memory that the receiver has mapped.
    Mapped,
}

/// Which function sends: the plain one, the one of a prompt transport, or the one that records. One value, so that the frequent case takes
/// one branch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Aside {
    /// The plain one.
    No,
    /// That of a [prompt](Endpoint::prompt) transport.
    Prompt,
    /// The one that records each message, whether the transport is prompt or not.
    Noted,
}

/// A row of the endpoint table: an open transport and what protocols need to know of it.
#[derive(Component)]
#[component(immutable, on_discard = tickwire_components::refuse_removal)]
pub struct Endpoint {
    /// The transport.
    pub transport: Exclusive<AnyTransport>,
    /// Largest eager payload, bytes. Fixed when it is opened.
    pub eager_max: u64,
    /// Payload of one frame of an eager message, bytes. Fixed when it is opened.
    pub part_bytes: u64,
    /// Payloads below this length are sent at once, without a CAR. 0 where the transport may take a part of a frame, since sending the rest
    /// needs a row. Fixed when it is opened.
    pub inline_end: u64,
    /// Messages shorter than this go inline even from the shared heap. Bytes; fixed when it is opened.
    pub inline_end_mapped: u64,
    /// Payload of a piece, bytes. Fixed when it is opened.
    pub piece_bytes: u64,
    /// Messages from this length on are offered to be read. Fixed when it is opened.
    pub read_min: u64,
    /// Memory that the receiver may have mapped. Messages in it are offered to be read from [`Endpoint::mapped_min`] on. Fixed when it is
    /// opened.
    pub mapped: Mapped,
    /// See [`Endpoint::mapped`]. [`u64::MAX`] where nothing is mapped. Bytes; fixed when it is opened.
    pub mapped_min: u64,
    /// What its transport can do with memory. Fixed when it is opened.
    pub abilities: Abilities,
    /// Credit is granted by writing it into the peer's memory. Fixed when it is opened.
    pub windows: bool,
    /// Credit is piggybacked on other frames. Fixed when it is opened.
    pub piggybacks: bool,
    /// Frames leave at once, need no registered memory, and matching is done by the engine. Fixed when it is opened.
    pub plain: bool,
    /// Frames leave by Post alone, never within the call that makes them: the transport may take a part of a frame, or
    /// [`Limits::deliver`] is off. Fixed when it is opened.
    pub by_post: bool,
    /// Whether it may carry each class of traffic, in the order of [`TrafficClass::ALL`]. Fixed before the first contact.
    pub classes: [bool; 3],
    /// Its transport matches receives with messages by itself. Fixed when it is opened.
    pub matches: bool,
    /// Polling it costs next to nothing, so it is polled in every tick.
    pub cheap_poll: bool,
    /// Polling is expensive. So one poll both finds messages and delivers them. Then `cheap_poll` is not set.
    pub prompt: bool,
    /// See [`Aside`]. Fixed before the first contact.
    pub aside: Aside,
    /// Whether an operation is known to wait for something from it. While one does, it is polled in every tick. Used only for endpoints
    /// that are expensive to poll. Written by [`Endpoint::find_operations`].
    pub outstanding: bool,
    /// The row of the operation that was last found to wait for it.
    pub witness: Row,
    /// The row where the next search for such an operation begins.
    pub cursor: Row,
    /// Ticks between two polls of an endpoint that is expensive to poll and has nothing outstanding. Doubled after each poll in vain.
    pub interval: u32,
    /// Ticks until the next such poll.
    pub countdown: u32,
    /// A poll has found something that Deliver has not taken.
    pub found: bool,
    /// Largest payload that fits a frame of any of its connections, bytes. For longer ones ask [`Endpoint::fits`].
    pub sure_bytes: u64,
    /// Its transport's column in the CAR table.
    pub rows: Option<RowStates>,
    /// Records messages for the trace. `Some` only if `aside` is [`Aside::Noted`]. Written by whatever sends and receives.
    pub messages: Exclusive<Option<Box<Messages>>>,
}

/// A transport's own column in the CAR table, identified by its component.
#[derive(Clone, Copy)]
pub struct RowStates {
    /// The component.
    pub(crate) component: ComponentId,
    /// Casts the value to a typed reference.
    pub(crate) cast: for<'a> fn(PtrMut<'a>) -> &'a mut dyn Any,
    /// Resets the value to what it must be before the first frame of a CAR.
    pub(crate) reset: fn(&mut dyn Any),
    /// Makes a value for a frame that has no row in the CAR table.
    pub(crate) fresh: fn() -> Box<dyn Any + Send + Sync>,
}

/// A transport's value on a CAR row. See [`Transport::RowState`].
#[derive(Component, Default)]
#[component(immutable, on_discard = tickwire_components::refuse_removal)]
pub struct RowState<S: Send + Sync + 'static>(pub S);

impl RowStates {
    /// Registers the column of transport `T`; CAR rows must be spawned after it.
    pub fn register<T: Transport>(world: &mut World) -> Self {
        // Another transport may have the same type of state, and so share the column. That is fine, since each row is on one transport.
        let _ = world.try_register_required_components::<tickwire_components::Car, RowState<T::RowState>>();
        let component = world.register_component::<RowState<T::RowState>>();
        RowStates { component, cast: cast::<T::RowState>, reset: reset::<T::RowState>, fresh: fresh::<T::RowState> }
    }
}

fn fresh<S: Default + Send + Sync + 'static>() -> Box<dyn Any + Send + Sync> {
    Box::new(S::default())
}

fn reset<S: Default + 'static>(value: &mut dyn Any) {
    if let Some(value) = value.downcast_mut::<S>() {
        *value = S::default();
    }
}

#[expect(unsafe_code, reason = "a column whose type only its transport knows")]
fn cast<S: Send + Sync + 'static>(value: PtrMut<'_>) -> &mut dyn Any {
    // SAFETY: called with values of the component that `register` made for this type only.
    &mut unsafe { value.deref_mut::<RowState<S>>() }.0
}

impl Endpoint {
    /// A row for a transport that was just opened.
    pub fn new(mut transport: AnyTransport, limits: &Limits, rows: Option<RowStates>) -> Self {
        let (matches, windows) = (transport.matching().is_some(), transport.credit_windows().is_some());
        let abilities = transport.abilities();
        let can_read = transport.memory().is_some() && transport.capabilities().remote_read;
        let capabilities = transport.capabilities();
        let frame_max = capabilities.frame_max;
        let lengths = capabilities.lengths.unwrap_or(limits.lengths());
        let eager_max = lengths.eager_max.min(if matches { capabilities.matched_max } else { usize::MAX }) as u64;
        // A message that the transport matches must be in one frame.
        let part_bytes = if matches { eager_max } else { lengths.part_bytes.min(frame_max) as u64 };
        // Without a CAR no memory is registered, so only payloads that the transport copies at once can be sent without one. The same holds
        // for the address in an offer.
        let (copies, registers) = (capabilities.inject_max as u64, abilities.registers);
        let inline_max = eager_max.min(part_bytes).min(if registers { copies } else { u64::MAX });
        let reads = can_read && (!registers || copies >= ADDRESS_BYTES);
        let prompt = transport.is_prompt() && !matches;
        let mapped = capabilities.mapped;
        let mapped_min = if reads && mapped.bytes > 0 { limits.mapped_min as u64 } else { u64::MAX };
        let inline_end = if capabilities.whole_frames && limits.deliver { inline_max + 1 } else { 0 };
        // A frame that may be taken in part must stay in a queue until all of it has gone.
        let by_post = rows.is_some() && !capabilities.whole_frames || !limits.deliver;
        let piggybacks = capabilities.whole_frames && !windows && !matches;
        Endpoint {
            eager_max,
            part_bytes,
            inline_end_mapped: inline_end.min(mapped_min),
            inline_end,
            piece_bytes: lengths.piece_bytes.min(frame_max) as u64,
            sure_bytes: capabilities.frame_sure as u64,
            read_min: if reads { limits.read_min as u64 } else { u64::MAX },
            mapped,
            mapped_min,
            abilities,
            windows,
            // A message that the transport matches has no header that could bring credit.
            piggybacks,
            plain: !by_post && !registers && !matches,
            by_post,
            // A fabric does updates only if the user names it for them.
            classes: [true, true, false],
            matches,
            cheap_poll: capabilities.cheap_poll && !matches && !prompt,
            prompt,
            aside: if prompt { Aside::Prompt } else { Aside::No },
            outstanding: false,
            witness: NIL,
            cursor: 0,
            interval: 1,
            countdown: 0,
            found: false,
            rows,
            messages: Exclusive::default(),
            transport: Exclusive::new(transport),
        }
    }

    /// Whether it may be used for a class of traffic.
    pub fn may_carry(&self, class: TrafficClass) -> bool {
        TrafficClass::ALL.iter().position(|&of| of == class).is_some_and(|number| self.classes[number])
    }

    /// Whether an eager message goes in one frame.
    #[inline(always)]
    pub const fn is_whole(&self, length: u64) -> bool {
        length <= self.part_bytes
    }

    /// How many bytes of a payload certainly fit one frame of a connection.
    #[inline]
    pub fn fits(&mut self, link: u32, payload: u64) -> u64 {
        match payload <= self.sure_bytes {
            true => payload,
            false => self.transport.get().fits(link, payload),
        }
    }

    /// The [`Place`] of a message that is in one run.
    #[inline(always)]
    pub fn place(&self, length: u64, run: Span) -> Place {
        match length >= self.mapped_min && self.mapped.holds(run) {
            true => Place::Mapped,
            false => Place::Run,
        }
    }

    /// Decides how the bytes of a message move. No other function decides this. `offered`: the sender must ask first, because it lacks
    /// credit, or wants to know of the receive. A single connection may do less than its endpoint: what it cannot read goes in pieces, and
    /// what it cannot take in one frame goes in parts.
    #[inline(always)]
    pub const fn protocol(&self, length: u64, place: Place, offered: bool) -> Protocol {
        let one_run = !matches!(place, Place::Runs);
        let mapped = matches!(place, Place::Mapped) && length >= self.mapped_min;
        let whole = self.is_whole(length);
        if !offered && !mapped && length <= self.eager_max && (one_run || whole) {
            return if whole { Protocol::Eager } else { Protocol::Parts };
        }
        if one_run && (mapped || length >= self.read_min) { Protocol::Read } else { Protocol::Pieces }
    }

    /// Turns off the transport's own matching, because another endpoint matches already.
    pub fn leave_matching(self, limits: &Limits) -> Self {
        let Endpoint { transport, rows, classes, messages, .. } = self;
        let mut transport = transport.into_inner();
        if let Some(matching) = transport.matching() {
            matching.leave();
        }
        Endpoint { classes, ..Endpoint::new(transport, limits, rows) }.noting(messages.into_inner())
    }

    /// The same row, whose messages are noted if there is something to note them with.
    pub fn noting(self, messages: Option<Box<Messages>>) -> Self {
        let aside = if messages.is_some() { Aside::Noted } else { self.aside };
        Endpoint { aside, messages: Exclusive::new(messages), ..self }
    }

    /// Whether to poll it in this tick, and whether there is something to find.
    #[inline(always)]
    pub fn ready(&mut self) -> bool {
        if !self.cheap_poll && !self.due() {
            return false;
        }
        let transport = self.transport.get();
        transport.ready()
    }

    /// Finds out whether an operation waits for something from this endpoint, whose number is `number`: an operation that goes over it, or
    /// a receive from any source. `awaited` is what the application waits for, or [`NIL`].
    ///
    /// It looks at a few rows only: those that it knows of, the first ones, which are used most, and a few of all others in turn. So an
    /// operation in a high row may be found some ticks late. Until then the endpoint is polled as if it were idle.
    pub fn find_operations(&mut self, number: u8, awaited: Row, rows: &OperationRows<'_>) {
        let OperationRows { active, cars, requests, vcs } = *rows;
        let waits = |row: Row| {
            let open = |request: &Request| matches!(request.state, RequestState::Active | RequestState::Detached);
            let Some(car) = cars.get(row as usize) else { return false };
            requests.get(row as usize).is_some_and(open)
                && vcs.get(car.vc as usize).is_none_or(|vc| vc.endpoint == number)
        };
        self.outstanding = active != 0;
        if active == 0 || waits(awaited) || waits(self.witness) {
            return;
        }
        let first = if (self.cursor as usize) < cars.len() { self.cursor } else { 0 };
        self.cursor = first + OPERATION_LOOKS;
        let found = (0..OPERATION_LOOKS).chain(first..self.cursor).find(|&row| waits(row));
        self.outstanding = found.is_some();
        self.witness = found.unwrap_or(self.witness);
    }

    /// The poll policy for transports that are expensive to poll.
    #[cold]
    fn due(&mut self) -> bool {
        if self.prompt || self.outstanding {
            return true;
        }
        if self.countdown > 0 {
            self.countdown -= 1;
            return false;
        }
        if self.transport.get().ready() {
            self.interval = 1;
            return true;
        }
        self.interval = (self.interval * 2).min(POLL_INTERVAL_MAX);
        self.countdown = self.interval;
        false
    }
}
