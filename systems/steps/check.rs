//! Checks: what a peer says is compared with what is known of it.

use crate::procs::communicators::known;
use tickwire_components::limits::{MESSAGE_MAX, TAG_MAX};
use tickwire_components::wire::{Header, Kind};
use tickwire_components::{
    Arrival, ArrivalState, Car, CarState, Communicator, Ended, NIL, Pending, Progress, Row, Vc, wire,
};
use tickwire_transports::Other;

/// What a peer says of an envelope is checked against what is known of the peer.
#[inline(always)]
pub(crate) fn check_envelope(
    header: &Header,
    vc: Option<&Vc>,
    communicators: &[Communicator],
) -> Result<(), &'static str> {
    let Some(vc) = vc else { return Err("a frame on a link that belongs to no proc") };
    if header.tag() > TAG_MAX || header.length > MESSAGE_MAX {
        return Err("an envelope with an impossible tag or length");
    }
    if header.message() == NIL && header.lead as u8 == Kind::Rts as u8 {
        return Err("an offer without a message id");
    }
    // The world's context word is 0, and a rank in it is the proc.
    if header.origin == u64::from(vc.proc) << 32 {
        return Ok(());
    }
    match known(communicators, header.context()) {
        Some(comm) if comm.proc(header.source()) != Some(vc.proc) => {
            Err("an envelope whose source is not the sender's rank")
        }
        // Of a communicator that is not known here, no receive is posted: `unclaimed` decides.
        _ => Ok(()),
    }
}

/// Whether a CAR is a message that was offered to a VC, which may answer.
#[inline]
pub(crate) fn was_offered(car: &Car, vc_row: Row) -> bool {
    car.state == CarState::Offered && car.vc == vc_row
}

/// The bytes of the offered message that a frame answers, if it is an answer. Looked at before the answer changes the row.
pub(crate) fn answered(cars: &[Car], header: &Header, vc_row: Row) -> Other {
    match cars.get(header.message() as usize) {
        Some(car) if was_offered(car, vc_row) && car.chain == NIL && header.flags() & wire::WIDER == 0 => {
            Other::Ended(car.span)
        }
        _ => Other::Taken,
    }
}

/// A frame that cannot be: the VC it came on ends, nothing else.
#[cold]
pub(crate) fn refuse(progress: &mut Progress, arrival: &mut Arrival, wrong: &'static str) {
    arrival.state = ArrivalState::Handled;
    progress.ended.push((arrival.vc, Ended::Corrupt(wrong.into())));
    progress.pending |= Pending::WORLD | Pending::TRANSFER;
}

/// Why a frame was not taken. Nothing has changed then.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum NotTaken {
    /// It cannot be: what is wrong with it.
    Wrong(&'static str),
    /// An envelope that no posted receive takes.
    Unexpected,
}
