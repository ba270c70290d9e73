//! The header of every frame on transports where the engine matches: 32 bytes in host byte order. The handshake refuses a peer with
//! another byte order.
//!
//! | bytes | field |
//! |---|---|
//! | 0 | kind ([`Kind`]); never 0, so that the first word of a frame also says that the frame is there |
//! | 1 | flags ([`READY`], [`READABLE`], [`DIRECT`], [`WIDER`]) |
//! | 2 | priority, of a [`Kind::Rts`] or a [`Kind::Sync`]; else 0 |
//! | 3 | number of the type of the message's elements, of an envelope where types are checked ([`crate::signatures`]); else 0 |
//! | 4–5, 6–7 | credit granted: lines, envelopes ([`crate::credit`]) |
//! | 8–11 | context word: id, incarnation and plane ([`crate::context`]) |
//! | 12–15 | source: the sender's rank in the communicator |
//! | 16–19 | tag |
//! | 20–23 | bytes of payload for [`Kind::Head`]; else message id: the sender's CAR row for [`Kind::Rts`] and [`Kind::Sync`], the addressed CAR row for [`Kind::Cts`], [`Kind::Piece`], [`Kind::Stop`], [`Kind::Nack`] and [`Kind::Done`] |
//! | 24–31 | length, bytes: of the payload that follows, or of the whole message for [`Kind::Rts`] and [`Kind::Head`] |
//!
//! This table says what each kind may have. [`Header::check`] refuses everything else.
//!
//! | kind | flags | priority | type | length, bytes | payload, bytes |
//! |---|---|---|---|---|---|
//! | [`Kind::Eager`] | none | 0 | any | any | its length |
//! | [`Kind::Sync`] | none | any | 0 | any | its length |
//! | [`Kind::Rts`] | [`READY`], and at most one of [`READABLE`] and [`DIRECT`] | any | any | any | with [`READABLE`] [`ADDRESS_BYTES`]; else 0 |
//! | [`Kind::Cts`] | at most one of [`DIRECT`] and [`WIDER`] | 0 | 0 | any | 0 |
//! | [`Kind::Head`] | none | 0 | any | more than its payload | bytes 20–23, at least 1 |
//! | [`Kind::Piece`], [`Kind::Part`] | none | 0 | 0 | at least 1 | its length |
//! | [`Kind::Type`], [`Kind::Remote`], [`Kind::Answer`] | none | 0 | 0 | any | its length |
//! | [`Kind::Inquiry`], [`Kind::Denial`] | none | 0 | 0 | any: which call and start of an operation is meant | 0 |
//! | [`Kind::Bye`], [`Kind::Nack`], [`Kind::Stop`], [`Kind::Done`], [`Kind::Credit`], [`Kind::Offers`], [`Kind::Call`], [`Kind::Accept`] | none | 0 | 0 | 0 | 0 |
//!
//! The tag field of a [`Kind::Bye`] is 0 if its sender has finalized, else [`UNFINISHED`]. The tag field of a [`Kind::Cts`] is the
//! receiver's CAR row; with [`DIRECT`], its source field is the turn of the message. The tag field of a [`Kind::Offers`] is its count,
//! which wraps. The tag field of a [`Kind::Type`] is the number of the type; its payload is the type's name. The message id of a
//! [`Kind::Remote`] and of its [`Kind::Answer`] is the number of the operation; the source is the rank of the frame's sender in the
//! window's communicator. The tag field of a [`Kind::Call`] and of its [`Kind::Accept`] is the number of the transport's name
//! ([`transport_number`]).
//!
//! A [`Kind::Inquiry`] and its [`Kind::Denial`] have the context, tag and message id of the message that they are about. The message id
//! is the sender's CAR row if the asking side is the sender of that message, and all ones if it is the receiver.
//!
//! First bytes from [`TRANSPORTS_OWN`] on are reserved for a transport's own data between frames. The engine never gets them.

mod messages;

use crate::credit::Credit;

/// Bytes of [`Header`] on the wire.
pub const HEADER_BYTES: usize = 32;

/// First bytes of a handshake.
pub const MAGIC: [u8; 8] = *b"tickwire";
/// Version of the header and of the handshake. Peers of another version are refused.
pub const VERSION: u16 = 24;
/// A number whose bytes show the byte order of its writer.
pub const BYTE_ORDER: u32 = 0x0102_0304;

/// Number of a type, in byte 3 of an envelope's header. 0 if the sender gives no type.
pub type TypeNumber = u8;

/// Flag of an [`Kind::Rts`]: the send is in ready mode (`MPI_Rsend`), so the receive must be posted.
pub const READY: u8 = 1;

/// Flag of an [`Kind::Rts`]: its payload is the address of the message, which the receiver may read itself.
pub const READABLE: u8 = 2;
/// Flag of an [`Kind::Rts`]: the message is one run, which a transport may move itself. Flag of the [`Kind::Cts`] that answers it: the
/// receiver's transport takes the message in this way, and no piece follows.
pub const DIRECT: u8 = 4;
/// Flag of a [`Kind::Cts`]: the receiver has sent one for the same message before, and now takes more of it. It may cross the sender's
/// [`Kind::Stop`], so one that fits no message is ignored.
pub const WIDER: u8 = 8;
/// Bytes of the address in an [`Kind::Rts`] with [`READABLE`].
pub const ADDRESS_BYTES: u64 = 8;

/// Tag of a [`Kind::Bye`] whose sender has not finalized: its engine was dropped early, or it has panicked.
pub const UNFINISHED: u32 = 1;

/// The kind of a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Kind {
    /// An envelope with its whole payload.
    Eager = 1,
    /// An envelope without data (request to send). The data follows when the receiver asks for it.
    Rts = 2,
    /// Clear to send: the receiver of an [`Kind::Rts`] is ready. The sender sends the pieces to the receiver's CAR.
    Cts = 3,
    /// A piece of a message that the receiver has asked for.
    Piece = 4,
    /// The last frame: its sender has finalized, or ends without that (tag [`UNFINISHED`]).
    Bye = 5,
    /// The answer to an [`Kind::Rts`] in ready mode for which no receive was posted: the message is refused.
    Nack = 6,
    /// The receiver of an [`Kind::Rts`] with [`READABLE`] has read the message; or the answer to a [`Kind::Sync`].
    Done = 7,
    /// Only brings the credit in its header.
    Credit = 8,
    /// An envelope with the first part of an eager message. The other parts follow on the same link, with no other head in between.
    Head = 9,
    /// The next part of the message whose head came last.
    Part = 10,
    /// An envelope with its whole payload, whose sender waits for a [`Kind::Done`]. Only on a transport that matches itself.
    Sync = 11,
    /// Announces a type: its sender checks types, and uses this number for this name. The first such frame has number 0 and no name.
    Type = 12,
    /// How many offers its sender has made so far over a transport that matches itself. Sent when it has no credit left for another
    /// one.
    Offers = 13,
    /// A one-sided operation for the receiver's engine: [`crate::RemoteKind`] is in its tag field; offset and length are in front of
    /// its payload.
    Remote = 14,
    /// The answer to a [`Kind::Remote`]: [`crate::RemoteOutcome`] is in its tag field, and the result is its payload.
    Answer = 15,
    /// The sender has connected over this link and could use others. It asks whether to use this link.
    Call = 16,
    /// The answer to a [`Kind::Call`]: this link is used, and no other.
    Accept = 17,
    /// For a receive in a graph that has asked for its message: the sender sends no more of it.
    Stop = 18,
    /// The sender of this frame waits in a collective operation for a message of the receiver, or for the receiver to take one. It asks
    /// whether that will happen. The receiver only answers if it will not.
    Inquiry = 19,
    /// The negative answer to a [`Kind::Inquiry`]: here the operation is over, or was called with other lengths.
    Denial = 20,
}

/// All kinds have first bytes below this.
pub const KINDS_END: u8 = Kind::Denial as u8 + 1;
/// First bytes from here on are reserved for a transport's own data between frames.
pub const TRANSPORTS_OWN: u8 = 0x80;
const _: () = assert!(KINDS_END < TRANSPORTS_OWN);

impl Kind {
    /// The kind of a frame by its first byte; `None` if there is no such kind.
    #[inline]
    pub fn from_byte(byte: u8) -> Option<Kind> {
        Some(match byte {
            1 => Kind::Eager,
            2 => Kind::Rts,
            3 => Kind::Cts,
            4 => Kind::Piece,
            5 => Kind::Bye,
            6 => Kind::Nack,
            7 => Kind::Done,
            8 => Kind::Credit,
            9 => Kind::Head,
            10 => Kind::Part,
            11 => Kind::Sync,
            12 => Kind::Type,
            13 => Kind::Offers,
            14 => Kind::Remote,
            15 => Kind::Answer,
            16 => Kind::Call,
            17 => Kind::Accept,
            18 => Kind::Stop,
            19 => Kind::Inquiry,
            20 => Kind::Denial,
            _ => return None,
        })
    }
}

/// What a frame of a kind may have: a row of the module's table.
struct Rule {
    flags: u8,
    priority: bool,
    /// Whether it may have a type number.
    typed: bool,
    length: Length,
}

/// Which lengths a header may have.
enum Length {
    Any,
    /// At least 1.
    Some,
    /// 0.
    None,
    /// More than the payload, which is at least 1.
    BeyondPayload,
}

impl Kind {
    /// What a frame of this kind may have.
    fn rule(self) -> Rule {
        let of = |length| Rule { flags: 0, priority: false, typed: false, length };
        let typed = |length| Rule { typed: true, ..of(length) };
        match self {
            Kind::Eager => typed(Length::Any),
            Kind::Sync => Rule { priority: true, ..of(Length::Any) },
            Kind::Rts => Rule { flags: READY | READABLE | DIRECT, priority: true, typed: true, length: Length::Any },
            Kind::Cts => Rule { flags: DIRECT | WIDER, ..of(Length::Any) },
            Kind::Head => typed(Length::BeyondPayload),
            Kind::Type | Kind::Remote | Kind::Answer | Kind::Inquiry | Kind::Denial => of(Length::Any),
            Kind::Piece | Kind::Part => of(Length::Some),
            Kind::Bye
            | Kind::Nack
            | Kind::Stop
            | Kind::Done
            | Kind::Credit
            | Kind::Offers
            | Kind::Call
            | Kind::Accept => of(Length::None),
        }
    }
}

/// A frame's header as four words, in the form in which it is written and read. See the module for the fields.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[repr(C, align(8))]
pub struct Header {
    /// Kind, flags, priority, type, credits.
    pub lead: u64,
    /// Context id (low half) and source (high half).
    pub origin: u64,
    /// Tag (low half) and message id (high half).
    pub name: u64,
    /// Length, bytes.
    pub length: u64,
}

const _: () = assert!(size_of::<Header>() == HEADER_BYTES);

impl Header {
    /// A header with no flags, no priority and no credits.
    #[inline]
    pub const fn new(kind: Kind, context: u32, source: u32, tag: u32, message: u32, length: u64) -> Self {
        Header {
            lead: kind as u64,
            origin: context as u64 | (source as u64) << 32,
            name: tag as u64 | (message as u64) << 32,
            length,
        }
    }

    /// The same header with flags.
    #[inline]
    pub const fn with_flags(self, flags: u8) -> Self {
        Header { lead: self.lead | (flags as u64) << 8, ..self }
    }

    /// The same header with a priority.
    #[inline]
    pub const fn with_priority(self, priority: u8) -> Self {
        Header { lead: self.lead | (priority as u64) << 16, ..self }
    }

    /// The priority of the message.
    #[inline]
    pub const fn priority(&self) -> u8 {
        (self.lead >> 16) as u8
    }

    /// The same header with the number of the message's type.
    #[inline]
    pub const fn with_type(self, number: TypeNumber) -> Self {
        Header { lead: self.lead | (number as u64) << 24, ..self }
    }

    /// The number of the message's type; 0 if there is none.
    #[inline]
    pub const fn type_number(&self) -> TypeNumber {
        (self.lead >> 24) as u8
    }

    /// Whether a frame of its kind may have a type number.
    pub fn has_type(&self) -> bool {
        self.kind().map(Kind::rule).is_some_and(|rule| rule.typed)
    }

    /// The same header with as much of the credit as its fields can hold, and how much that is.
    #[inline]
    pub fn with_credit(self, credit: Credit) -> (Self, Credit) {
        let (lines, envelopes) = (credit.lines.min(u16::MAX.into()), credit.envelopes.min(u16::MAX.into()));
        let lead = self.lead | u64::from(lines) << 32 | u64::from(envelopes) << 48;
        (Header { lead, ..self }, Credit { lines, envelopes })
    }

    /// The credit that it grants.
    #[inline]
    pub const fn credit(&self) -> Credit {
        Credit { lines: (self.lead >> 32) as u16 as u32, envelopes: (self.lead >> 48) as u32 }
    }

    /// The kind of the frame; `None` if its first byte is unknown.
    #[inline]
    pub fn kind(&self) -> Option<Kind> {
        Kind::from_byte(self.lead as u8)
    }

    /// The bits of byte 1.
    #[inline]
    pub const fn flags(&self) -> u8 {
        (self.lead >> 8) as u8
    }

    /// The context id.
    #[inline]
    pub const fn context(&self) -> u32 {
        self.origin as u32
    }

    /// The sender's rank in the context.
    #[inline]
    pub const fn source(&self) -> u32 {
        (self.origin >> 32) as u32
    }

    /// The tag; of a [`Kind::Cts`], the receiver's CAR row.
    #[inline]
    pub const fn tag(&self) -> u32 {
        self.name as u32
    }

    /// The message id.
    #[inline]
    pub const fn message(&self) -> u32 {
        (self.name >> 32) as u32
    }

    /// Bytes of payload that follow the header in its frame.
    #[inline(always)]
    pub fn payload(&self) -> u64 {
        if self.is_eager() { self.length } else { self.other_payload() }
    }

    /// As [`Header::payload`], for all kinds.
    fn other_payload(&self) -> u64 {
        match self.kind() {
            Some(Kind::Eager | Kind::Sync | Kind::Piece | Kind::Part | Kind::Type | Kind::Remote | Kind::Answer) => {
                self.length
            }
            Some(Kind::Head) => self.message().into(),
            Some(Kind::Rts) => self.offer_payload(),
            _ => 0,
        }
    }
}

impl Header {
    /// Checks that kind, flags, priority and lengths fit together, as the module's table says. `payload` is the number of bytes that
    /// came behind the header. A type number is only allowed if types are checked here (`types`). Every frame of a transport is checked
    /// once, before the engine uses it.
    ///
    /// # Errors
    /// A description of what is invalid.
    #[inline(always)]
    pub fn check(&self, payload: usize, types: bool) -> Result<(), &'static str> {
        // The frequent case is an eager message without flags, whatever credit its header grants.
        if self.lead as u32 == Kind::Eager as u32 && self.length == payload as u64 {
            return Ok(());
        }
        self.check_other(payload as u64, types)
    }

    #[inline(never)]
    fn check_other(&self, payload: u64, types: bool) -> Result<(), &'static str> {
        let Some(Rule { flags, priority, typed, length }) = self.kind().map(Kind::rule) else {
            return Err("a frame of unknown kind");
        };
        let both = |pair: u8| self.flags() & pair == pair;
        if self.flags() & !flags != 0 || both(READABLE | DIRECT) || both(DIRECT | WIDER) {
            return Err("a frame with flags that its kind cannot have");
        }
        if self.priority() != 0 && !priority {
            return Err("a frame with a priority, which its kind cannot have");
        }
        if self.type_number() != 0 && !(typed && types) {
            return Err("a frame with a type, which its kind cannot have or nobody checks here");
        }
        let fits = match length {
            Length::Any => true,
            Length::Some => self.length > 0,
            Length::None => self.length == 0,
            Length::BeyondPayload => self.payload() > 0 && self.payload() < self.length,
        };
        if !fits {
            return Err("a frame of a length that its kind cannot have");
        }
        if self.payload() != payload { Err("a frame with another payload than it says") } else { Ok(()) }
    }
}

/// The number of a transport's name in frames. Both sides know the transport by the same name.
pub fn transport_number(name: &str) -> u32 {
    // FNV-1a.
    name.bytes().fold(0x811c_9dc5, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193))
}

/// Bytes that a frame takes in a ring: header and payload, in whole cache lines, so that a short message takes one line. A longer frame
/// takes pairs of lines, since processors fetch lines in pairs: a third line alone would also fetch the first line of the next frame,
/// which its writer still needs. By measurement, messages of 128 B one by one take 0.88 of the time; messages of 256 B in a row are 7 %
/// faster.
#[inline]
pub const fn frame_bytes(payload: u64) -> u64 {
    let bytes = HEADER_BYTES as u64 + payload;
    if bytes <= 64 { 64 } else { (bytes + 127) & !127 }
}

#[cfg(test)]
mod tests;
