//! The endpoint table: one row for each transport that is open.

use bevy_ecs::component::{Component, ComponentId};
use bevy_ecs::ptr::PtrMut;
use bevy_ecs::world::World;
use std::any::Any;
use tickwire_components::limits::{Limits, OPERATION_LOOKS};
use tickwire_components::wire::ADDRESS_BYTES;
use tickwire_components::{
    Abilities, Car, Exclusive, NIL, Protocol, Request, RequestState, Row, Span, TrafficClass, Vc,
};
use tickwire_transports::{AnyTransport, Mapped, Transport};

/// Looks without a find after which an expensive poll is made rarer again, at most.
pub const POLL_INTERVAL_MAX: u32 = 64;

/// Where [`Endpoint::find_operations`] looks.
#[derive(Clone, Copy)]
pub struct OperationRows<'a> {
    /// Requests that are not done.
    pub active: u32,
    /// CARs.
    pub cars: &'a [Car],
    /// Requests, in the rows of their envelope CARs.
    pub requests: &'a [Request],
    /// Contacted procs.
    pub vcs: &'a [Vc],
}

/// Where the bytes of a message are, as far as it decides how they move.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Place {
    /// In several runs, or where a datatype says.
    Runs,
    /// In one run.
    Run,
    /// In one run of memory that its receiver has mapped.
    Mapped,
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
    /// Payloads below this length are sent at once, without a CAR: none where a frame may be taken in part, since the
    /// rest needs a row. Fixed when it is opened.
    pub inline_end: u64,
    /// Messages shorter than this go inline even from the shared heap. Bytes; fixed when it is opened.
    pub inline_end_mapped: u64,
    /// Payload of a piece, bytes. Fixed when it is opened.
    pub piece_bytes: u64,
    /// Messages from this length on are offered to be read. Fixed when it is opened.
    pub read_min: u64,
    /// What is sent from here is offered to be read from [`Endpoint::mapped_min`] on. Fixed when it is opened.
    pub mapped: Mapped,
    /// See [`Endpoint::mapped`]; more than any message where nothing is mapped. Fixed when it is opened.
    pub mapped_min: u64,
    /// What it can do with memory. Fixed when it is opened.
    pub abilities: Abilities,
    /// Credit is granted by writing it into the peer's memory. Fixed when it is opened.
    pub windows: bool,
    /// Credit goes with other frames where there are some. Fixed when it is opened.
    pub piggybacks: bool,
    /// Frames leave at once and need nothing beside themselves: no registered memory, no credit that goes with them, and the
    /// engine matches. Fixed when it is opened.
    pub plain: bool,
    /// Frames leave by Post alone, never within the call that makes them: the transport may take a part of a frame, or
    /// [`Limits::deliver`] is off. Fixed when it is opened.
    pub by_post: bool,
    /// Whether it may carry each class of traffic, in the order of [`TrafficClass::ALL`]. Fixed before the first contact.
    pub classes: [bool; 3],
    /// It matches receives with messages by itself. Fixed when it is opened.
    pub matches: bool,
    /// Looking costs next to nothing, so it is looked at in every tick.
    pub cheap_poll: bool,
    /// A look at it is expensive, so the look itself delivers what it finds. Then `cheap_poll` is not set.
    pub prompt: bool,
    /// Whether an operation waits for something from it, as far as that is known; while one does, it is looked at in every
    /// tick. Written by [`Endpoint::find_operations`]; of one that is expensive to look at only.
    pub outstanding: bool,
    /// The row of the operation that was found last to wait for it.
    pub witness: Row,
    /// The row where the next look for one begins.
    pub cursor: Row,
    /// Ticks between two looks at an expensive one with nothing outstanding: doubled at each look in vain.
    pub interval: u32,
    /// Ticks until the next such look.
    pub countdown: u32,
    /// A look has found something that Deliver has not taken.
    pub found: bool,
    /// Payload of a frame that every connection takes, bytes; of longer ones [`Endpoint::fits`] tells.
    pub sure_bytes: u64,
    /// Its column in the CAR table.
    pub rows: Option<RowStates>,
}

/// A transport's own column in the CAR table, known by its component.
#[derive(Clone, Copy)]
pub struct RowStates {
    /// The component.
    pub(crate) component: ComponentId,
    /// Makes its value a typed reference again.
    pub(crate) cast: for<'a> fn(PtrMut<'a>) -> &'a mut dyn Any,
    /// Makes its value what it is before the first frame of a CAR.
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
        // Another transport may have the same type of state, and so the same column: each row is on one transport.
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
        // What is matched is whole.
        let part_bytes = if matches { eager_max } else { lengths.part_bytes.min(frame_max) as u64 };
        // Without a CAR nothing is registered, so only what is copied out at once goes so; and so does an offer.
        let (copies, registers) = (capabilities.inject_max as u64, abilities.registers);
        let inline_max = eager_max.min(part_bytes).min(if registers { copies } else { u64::MAX });
        let reads = can_read && (!registers || copies >= ADDRESS_BYTES);
        let prompt = transport.is_prompt() && !matches;
        let mapped = capabilities.mapped;
        let mapped_min = if reads && mapped.bytes > 0 { limits.mapped_min as u64 } else { u64::MAX };
        let inline_end = if capabilities.whole_frames && limits.deliver { inline_max + 1 } else { 0 };
        // A frame that may be taken in part is in a queue until all of it has gone.
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
            // A message that is matched has no header to bring it.
            piggybacks,
            plain: !by_post && rows.is_none() && !registers && !piggybacks && !matches,
            by_post,
            // Updates are given to a fabric by name only.
            classes: [true, true, false],
            matches,
            cheap_poll: capabilities.cheap_poll && !matches && !prompt,
            prompt,
            outstanding: false,
            witness: NIL,
            cursor: 0,
            interval: 1,
            countdown: 0,
            found: false,
            rows,
            transport: Exclusive::new(transport),
        }
    }

    /// Whether it may be used for a class of traffic.
    pub fn may_carry(&self, class: TrafficClass) -> bool {
        TrafficClass::ALL.iter().position(|&of| of == class).is_some_and(|number| self.classes[number])
    }

    /// Whether a message that is sent without asking goes in one frame.
    #[inline(always)]
    pub const fn is_whole(&self, length: u64) -> bool {
        length <= self.part_bytes
    }

    /// How much of a payload goes in one frame of a connection for certain.
    #[inline]
    pub fn fits(&mut self, link: u32, payload: u64) -> u64 {
        match payload <= self.sure_bytes {
            true => payload,
            false => self.transport.get().fits(link, payload),
        }
    }

    /// Where the bytes of a message are that is in one run.
    #[inline(always)]
    pub fn place(&self, length: u64, run: Span) -> Place {
        match length >= self.mapped_min && self.mapped.holds(run) {
            true => Place::Mapped,
            false => Place::Run,
        }
    }

    /// How the bytes of a message move: the one place where this is decided. `offered` if its sender must ask first: for want of
    /// credit, or since it wants to know of the receive. A connection may not do what its endpoint does: what it cannot read or
    /// take in one frame goes in pieces or in parts.
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

    /// Leaves matching to the engine: another endpoint matches already.
    pub fn leave_matching(self, limits: &Limits) -> Self {
        let Endpoint { transport, rows, classes, .. } = self;
        let mut transport = transport.into_inner();
        if let Some(matching) = transport.matching() {
            matching.leave();
        }
        Endpoint { classes, ..Endpoint::new(transport, limits, rows) }
    }

    /// Whether to look at it in this tick, and whether there is something.
    #[inline(always)]
    pub fn ready(&mut self) -> bool {
        if !self.cheap_poll && !self.due() {
            return false;
        }
        let transport = self.transport.get();
        transport.ready()
    }

    /// Finds out whether an operation waits for something from this endpoint, which is `number` of all: one that goes over
    /// it, or a receive from any source. `awaited` is what the application waits for, or [`NIL`].
    ///
    /// It looks at a few rows: those that it knows of, the first ones, which are in use most, and in turn at all others. So an
    /// operation in a high row may be found some ticks late, and until then the endpoint is looked at as if it were idle.
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

    /// The poll policy for transports that are expensive to look at.
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
