//! Checks what peers send against what is known of them.

use crate::procs::communicators::known;
use tickwire_components::limits::{MESSAGE_MAX, TAG_MAX};
use tickwire_components::wire::Header;
use tickwire_components::{
    Arrival, ArrivalState, Car, CarState, Communicator, Ended, NIL, Pending, Progress, Row, Vc, wire,
};
use tickwire_transports::Other;

/// Checks an envelope against what is known of the peer that sent it.
#[inline(always)]
pub(crate) fn check_envelope(
    header: &Header,
    vc: Option<&Vc>,
    communicators: &[Communicator],
) -> Result<(), &'static str> {
    check_envelope_for(header, vc, communicators, |_| true)
}

/// As [`check_envelope`], if the message's context word is also one that `takes` accepts. That is not asked for ordinary messages in the
/// world's communicator, which are the most frequent ones.
#[inline(always)]
pub(crate) fn check_envelope_for(
    header: &Header,
    vc: Option<&Vc>,
    communicators: &[Communicator],
    takes: impl FnOnce(u32) -> bool,
) -> Result<(), &'static str> {
    let Some(vc) = vc else { return Err("a frame on a link that belongs to no proc") };
    if header.tag() > TAG_MAX || header.length > MESSAGE_MAX {
        return Err("an envelope with an impossible tag or length");
    }
    if header.message() == NIL && header.is_offer() {
        return Err("an offer without a message id");
    }
    // The context word of the world's communicator is 0, and there a rank is the proc's number.
    if header.origin == u64::from(vc.proc) << 32 {
        return Ok(());
    }
    if !takes(header.context()) {
        return Err("a message of another kind");
    }
    match known(communicators, header.context()) {
        Some(comm) if comm.proc(header.source()) != Some(vc.proc) => {
            Err("an envelope whose source is not the sender's rank")
        }
        // No receive is posted in a communicator that is unknown here, so `unclaimed` decides.
        _ => Ok(()),
    }
}

/// Whether a CAR is a send that was offered over this VC and is still to be answered.
#[inline]
pub(crate) fn was_offered(car: &Car, vc_row: Row) -> bool {
    car.state == CarState::Offered && car.vc == vc_row
}

/// If a frame answers an offer, the bytes of the offered message. Must be called before the answer changes the row.
pub(crate) fn answered(cars: &[Car], header: &Header, vc_row: Row) -> Other {
    match cars.get(header.message() as usize) {
        Some(car) if was_offered(car, vc_row) && car.chain == NIL && header.flags() & wire::WIDER == 0 => {
            Other::Ended(car.span)
        }
        _ => Other::Taken,
    }
}

/// Why a VC has failed, where the transport gives no reason.
pub(crate) const LINK_FAILED: &str = "the transport reports a failed link";

/// Refuses an invalid frame: ends the VC that it came on, and nothing else.
#[cold]
pub(crate) fn refuse(progress: &mut Progress, arrival: &mut Arrival, wrong: &'static str) {
    arrival.state = ArrivalState::Handled;
    progress.end_vc(arrival.vc, Ended::Corrupt(wrong.into()));
    progress.pending |= Pending::TRANSFER;
}

/// Why a frame was not taken. Nothing has been changed then.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum NotTaken {
    /// The frame is invalid, and what is wrong with it.
    Wrong(&'static str),
    /// An envelope that matches no posted receive.
    Unexpected,
}
