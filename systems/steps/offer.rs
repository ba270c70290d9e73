//! Offers of messages (RTS): in which ways their bytes may be moved, and the queue of the receives that were paired with one.

use crate::procs::priorities::insert;
use tickwire_components::wire::{ADDRESS_BYTES, Header};
use tickwire_components::{Body, Car, CarState, Large, Pending, Pieces, Progress, Row, Span, wire};
use tickwire_transports::copy;

/// What an RTS offers.
pub(crate) struct Offered {
    /// The sender's CAR row.
    pub(crate) message: Row,
    /// Bytes of the message.
    pub(crate) length: u64,
    /// How they may be moved.
    pub(crate) body: Body,
}

impl Offered {
    /// By the frame that came.
    #[inline]
    pub(crate) fn of(header: &Header, payload: Span) -> Self {
        Offered { message: header.message(), length: header.length, body: body_of(header, payload) }
    }
}

/// Queues a receive that was paired with an RTS. SupplyBuffers decides where its data goes.
pub(crate) fn offer(progress: &mut Progress, cars: &mut [Car], large: &mut [Large], row: Row, offered: Offered) {
    let Offered { message, length, body } = offered;
    let car = &mut cars[row as usize];
    car.state = CarState::Matched;
    car.done = 0;
    large[row as usize] = Large { peer: message, body, ..Large::of(length) };
    insert(&mut progress.offers, cars, row);
    progress.pending |= Pending::SUPPLY;
}

/// How the bytes of an offered message may be moved. An offer may name any address: only the memory of its sender's process is read there.
#[inline]
pub(crate) fn body_of(header: &Header, payload: Span) -> Body {
    match header.flags() & (wire::READABLE | wire::DIRECT) {
        0 => Body::AtSender,
        wire::DIRECT => Body::Movable,
        // SAFETY: a payload is there until its transport is told to release it.
        #[expect(unsafe_code, reason = "bytes that are addresses")]
        _ => unsafe { copy::word(payload) }.map_or(Body::AtSender, |address| Body::Readable { address }),
    }
}

/// The payload of an offer to read: the message's address in this process, which the peer passes to the kernel.
pub(crate) struct Offer([u8; ADDRESS_BYTES as usize]);

impl Offer {
    #[inline]
    pub(crate) fn of(run: Span) -> Self {
        Offer((run.start().expose_provenance() as u64).to_ne_bytes())
    }
}

// SAFETY: the bytes stay where they are while they are borrowed, and are only read.
#[expect(unsafe_code, reason = "lends its own bytes as a payload")]
unsafe impl Pieces for Offer {
    fn piece(&self, _index: usize) -> Span {
        // SAFETY: as long as `self` is borrowed, which a send is over within.
        unsafe { Span::new(self.0.as_ptr().cast_mut(), self.0.len()) }
    }
}
