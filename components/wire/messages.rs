//! The headers of the frames of messages. They are made here and nowhere else, so this file says what stands in which field. All other
//! headers are made where their frames are sent.

use super::{ADDRESS_BYTES, DIRECT, Header, Kind, READABLE, WIDER};

/// The frames of messages.
impl Header {
    /// Of a message of `length` bytes that leaves with its envelope.
    #[inline(always)]
    pub const fn eager(context: u32, source: u32, tag: u32, length: u64) -> Self {
        Header::new(Kind::Eager, context, source, tag, 0, length)
    }

    /// As [`Header::eager`], by the header of the message's envelope as it came.
    #[inline(always)]
    pub const fn eager_of(origin: u64, name: u64, length: u64) -> Self {
        Header { lead: Kind::Eager as u64, origin, name, length }
    }

    /// As [`Header::eager`], of a message whose sender waits in CAR row `row` to hear that a receive has it.
    #[inline]
    pub const fn synchronous(context: u32, source: u32, tag: u32, row: u32, length: u64) -> Self {
        Header::new(Kind::Sync, context, source, tag, row, length)
    }

    /// Of the offer of a message that the sender's CAR row `row` has.
    #[inline]
    pub const fn offer(context: u32, source: u32, tag: u32, row: u32, length: u64) -> Self {
        Header::new(Kind::Rts, context, source, tag, row, length)
    }

    /// Of the first `part` bytes of a message, with its envelope.
    #[inline]
    pub const fn head(context: u32, source: u32, tag: u32, part: u32, length: u64) -> Self {
        Header::new(Kind::Head, context, source, tag, part, length)
    }

    /// Of the next `part` bytes of the message whose head came last.
    #[inline]
    pub const fn part(context: u32, part: u64) -> Self {
        Header::new(Kind::Part, context, 0, 0, 0, part)
    }

    /// Of the answer to the offer of the sender's CAR row `peer`: the receive of CAR row `row` takes the first `length` bytes.
    #[inline]
    pub const fn clear_to_send(context: u32, row: u32, peer: u32, length: u64) -> Self {
        Header::new(Kind::Cts, context, 0, row, peer, length)
    }

    /// As [`Header::clear_to_send`]; the receiver has answered before, and takes more now.
    #[inline]
    pub const fn clear_to_send_more(context: u32, row: u32, peer: u32, length: u64) -> Self {
        Header::clear_to_send(context, row, peer, length).with_flags(WIDER)
    }

    /// As [`Header::clear_to_send`]; the receiver's transport takes the message itself, as the one with this turn.
    #[inline]
    pub const fn clear_to_move(context: u32, turn: u32, row: u32, peer: u32, length: u64) -> Self {
        Header::new(Kind::Cts, context, turn, row, peer, length).with_flags(DIRECT)
    }

    /// Of a piece for the receive of the receiver's CAR row `peer`.
    #[inline(always)]
    pub const fn piece(context: u32, peer: u32, length: u64) -> Self {
        Header::new(Kind::Piece, context, 0, 0, peer, length)
    }

    /// Tells the receive of the receiver's CAR row `peer` that no more pieces come.
    #[inline]
    pub const fn stop(context: u32, peer: u32) -> Self {
        Header::new(Kind::Stop, context, 0, 0, peer, 0)
    }

    /// Tells the sender's CAR row `peer` that no receive takes its message.
    #[inline]
    pub const fn refusal(context: u32, peer: u32) -> Self {
        Header::new(Kind::Nack, context, 0, 0, peer, 0)
    }

    /// Tells the sender's CAR row `peer` that the receive of CAR row `row` has its message.
    #[inline(always)]
    pub const fn done(context: u32, row: u32, peer: u32) -> Self {
        Header::new(Kind::Done, context, 0, row, peer, 0)
    }
}

/// What a frame is of a message.
impl Header {
    /// Whether it is a whole message with its envelope.
    #[inline(always)]
    pub const fn is_eager(&self) -> bool {
        self.lead as u8 == Kind::Eager as u8
    }

    /// Whether it is a whole message whose sender waits to hear that a receive has it.
    #[inline]
    pub const fn is_synchronous(&self) -> bool {
        self.lead as u8 == Kind::Sync as u8
    }

    /// Whether it is an offer.
    #[inline]
    pub const fn is_offer(&self) -> bool {
        self.lead as u8 == Kind::Rts as u8
    }

    /// Whether it is the first part of a message.
    #[inline]
    pub const fn is_head(&self) -> bool {
        self.lead as u8 == Kind::Head as u8
    }

    /// Whether it is a later part of a message.
    #[inline]
    pub const fn is_part(&self) -> bool {
        self.lead as u8 == Kind::Part as u8
    }

    /// Whether it says that no more pieces of a message come.
    #[inline]
    pub const fn is_stop(&self) -> bool {
        self.lead as u8 == Kind::Stop as u8
    }

    /// Whether it has the envelope of a message.
    #[inline]
    pub const fn is_envelope(&self) -> bool {
        self.is_eager() || self.is_synchronous() || self.is_offer() || self.is_head()
    }

    /// Bytes of the message that its envelope or a later part brings.
    #[inline]
    pub fn message_bytes(&self) -> u64 {
        match self.kind() {
            Some(Kind::Eager | Kind::Sync | Kind::Head | Kind::Part) => self.payload(),
            _ => 0,
        }
    }

    /// Bytes of payload behind an offer.
    #[inline]
    pub(super) const fn offer_payload(&self) -> u64 {
        if self.flags() & READABLE != 0 { ADDRESS_BYTES } else { 0 }
    }
}
