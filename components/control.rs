//! Control frames that wait to leave: grants of credit, and answers that belong to no operation of this side.

use crate::Row;
use crate::credit::Credit;
use crate::limits::{CONTROL_FRAMES, CONTROL_GRANTS};
use crate::wire::{Header, Kind};
use std::any::Any;
use std::collections::VecDeque;
use std::fmt;

/// What a control frame says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Control {
    /// Grants this much credit.
    Credit(Credit),
    /// How many offers were made so far over a transport that matches messages itself.
    OfferCount(u32),
    /// Refuses a message: it was offered in ready mode, and no receive was posted.
    Refusal {
        /// The context word of the offer.
        context: u32,
        /// The CAR row of the offer at its sender.
        message: Row,
    },
    /// Acknowledges a synchronous message that the transport has matched with its receive, or ends an offer that nobody will receive.
    Acknowledgement {
        /// The CAR row of the message at its sender.
        message: Row,
    },
    /// Asks whether the peer uses the link over which this call came. Holds the number of the transport.
    Call(u32),
    /// Answers a call: this side uses the link over which the peer has called. Holds the number of the transport.
    Accept(u32),
    /// Asks whether a message of a collective operation will come, or will be taken.
    Inquiry(Inquiry),
    /// Answers an inquiry: the message will not come, or will not be taken. `source` is the rank of the sender of this answer.
    Denial(Inquiry),
}

/// The message of a collective operation that an inquiry or a denial is about.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Inquiry {
    /// The context word of the message.
    pub context: u32,
    /// Rank of the sender of this frame, in the communicator of `context`.
    pub source: u32,
    /// The tag of the message.
    pub tag: u32,
    /// The CAR row of the message at its sender, if the sender asks whether it will be taken. [`NIL`](crate::NIL) if its receiver asks
    /// whether it will come.
    pub message: Row,
    /// Which operation of the communicator the message belongs to. See [`Graph::call`](crate::Graph::call).
    pub call: u32,
    /// Which start of that operation the message belongs to. See [`Graph::starts`](crate::Graph::starts).
    pub start: u32,
}

impl Inquiry {
    /// The message that a frame of kind inquiry or denial is about.
    pub const fn of(header: &Header) -> Self {
        let (context, source, tag, message) = (header.context(), header.source(), header.tag(), header.message());
        Inquiry { context, source, tag, message, call: header.length as u32, start: (header.length >> 32) as u32 }
    }

    fn header(&self, kind: Kind) -> Header {
        let Inquiry { context, source, tag, message, call, start } = *self;
        Header::new(kind, context, source, tag, message, u64::from(call) | u64::from(start) << 32)
    }
}

impl Control {
    /// The header of the frame. A control frame has no payload.
    pub fn header(&self) -> Header {
        match *self {
            Control::Credit(credit) => Header::new(Kind::Credit, 0, 0, 0, 0, 0).with_credit(credit).0,
            Control::OfferCount(count) => Header::new(Kind::Offers, 0, 0, count, 0, 0),
            Control::Refusal { context, message } => Header::refusal(context, message),
            Control::Acknowledgement { message } => Header::done(0, 0, message),
            Control::Call(transport) => Header::new(Kind::Call, 0, 0, transport, 0, 0),
            Control::Accept(transport) => Header::new(Kind::Accept, 0, 0, transport, 0, 0),
            Control::Inquiry(inquiry) => inquiry.header(Kind::Inquiry),
            Control::Denial(inquiry) => inquiry.header(Kind::Denial),
        }
    }

    /// Whether the frame grants credit, or allows the peer to grant some. Other frames wait until there is room. A grant must not wait
    /// for them.
    pub const fn is_grant(&self) -> bool {
        matches!(self, Control::Credit(_) | Control::OfferCount(_))
    }

    /// Whether the frame acknowledges a message.
    pub const fn is_acknowledgement(&self) -> bool {
        matches!(self, Control::Acknowledgement { .. })
    }
}

/// A row of [`ControlFrames`].
pub struct ControlFrame {
    /// The VC that the frame goes over.
    pub vc: Row,
    /// What the frame says.
    pub what: Control,
    /// Whether the transport has refused the frame. If so, no piece of a message may go over the VC before the frame.
    pub refused: bool,
    /// The transport's state of a frame of which it has taken only a part. `None` before the first try, and if the transport keeps no
    /// such state.
    pub state: Option<Box<dyn Any + Send + Sync>>,
}

impl fmt::Debug for ControlFrame {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ControlFrame").field("vc", &self.vc).field("what", &self.what).finish_non_exhaustive()
    }
}

/// Control frames that have yet to leave, oldest first. At most [`CONTROL_FRAMES`], of which [`CONTROL_GRANTS`] are reserved for
/// grants, and those of [`ControlFrames::push_owed`].
#[derive(Debug)]
pub struct ControlFrames {
    /// The frames.
    pub frames: VecDeque<ControlFrame>,
    grants: usize,
    /// How many acknowledgements wait, by VC. VCs beyond the end have none.
    acknowledgements: Vec<u32>,
}

impl Default for ControlFrames {
    fn default() -> Self {
        ControlFrames { frames: VecDeque::with_capacity(CONTROL_FRAMES), grants: 0, acknowledgements: Vec::new() }
    }
}

impl ControlFrames {
    /// Whether no frame waits.
    #[inline(always)]
    pub fn is_empty(&self) -> bool {
        self.frames.is_empty()
    }

    /// Whether there is room for one more frame: for a grant if `grant`, else for another frame.
    pub fn has_room(&self, grant: bool) -> bool {
        match grant {
            true => self.grants < CONTROL_GRANTS,
            false => self.frames.len() - self.grants < CONTROL_FRAMES - CONTROL_GRANTS,
        }
    }

    /// Puts a frame behind the others; `false` if there is no room for it.
    #[must_use]
    pub fn push(&mut self, vc: Row, what: Control) -> bool {
        let room = self.has_room(what.is_grant());
        if room {
            self.put_back(ControlFrame { vc, what, refused: false, state: None });
        }
        room
    }

    /// Puts a frame behind the others, however many there are. For acknowledgements of offers: each counts as an
    /// [offer that is kept](ControlFrames::acknowledgements_to) until it has left, so the envelope credit of peers bounds them.
    pub fn push_owed(&mut self, vc: Row, what: Control) {
        self.put_back(ControlFrame { vc, what, refused: false, state: None });
    }

    /// How many acknowledgements to a VC wait.
    #[inline(always)]
    pub fn acknowledgements_to(&self, vc: Row) -> u32 {
        self.acknowledgements.get(vc as usize).copied().unwrap_or(0)
    }

    /// Takes the oldest.
    pub fn pop(&mut self) -> Option<ControlFrame> {
        let frame = self.frames.pop_front()?;
        self.grants -= usize::from(frame.what.is_grant());
        if frame.what.is_acknowledgement() {
            self.acknowledgements[frame.vc as usize] -= 1;
        }
        Some(frame)
    }

    /// Puts a frame that was taken out back, behind the others.
    pub fn put_back(&mut self, frame: ControlFrame) {
        self.grants += usize::from(frame.what.is_grant());
        if frame.what.is_acknowledgement() {
            let vc = frame.vc as usize;
            self.acknowledgements.resize(self.acknowledgements.len().max(vc + 1), 0);
            self.acknowledgements[vc] += 1;
        }
        self.frames.push_back(frame);
    }

    /// Drops the frames to a VC.
    pub fn forget(&mut self, vc: Row) {
        self.frames.retain(|frame| frame.vc != vc);
        self.grants = self.frames.iter().filter(|frame| frame.what.is_grant()).count();
        if let Some(waiting) = self.acknowledgements.get_mut(vc as usize) {
            *waiting = 0;
        }
    }

    /// Drops all frames.
    pub fn clear(&mut self) {
        self.frames.clear();
        self.grants = 0;
        self.acknowledgements.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::NIL;

    #[test]
    fn answers_leave_room_for_grants_and_none_is_lost() {
        let mut owed = ControlFrames::default();
        let refusal = |message| Control::Refusal { context: 2, message };
        let taken = (0..).take_while(|&message| owed.push(1, refusal(message))).count();
        assert_eq!(taken, CONTROL_FRAMES - CONTROL_GRANTS);
        let credit = Control::Credit(Credit { lines: 7, envelopes: 8 });
        let granted = (0..).take_while(|_| owed.push(2, credit)).count();
        assert_eq!(granted, CONTROL_GRANTS);
        let first = owed.pop().map(|frame| frame.what);
        assert_eq!(first, Some(refusal(0)));
        assert!(owed.has_room(false) && !owed.has_room(true));
        owed.forget(1);
        assert_eq!(owed.frames.len(), CONTROL_GRANTS);
        assert!(owed.pop().is_some_and(|frame| frame.vc == 2) && owed.push(3, Control::OfferCount(5)));
        owed.clear();
        assert!(owed.is_empty() && owed.has_room(true));
    }

    #[test]
    fn acknowledgements_are_counted_by_vc_until_they_have_left() {
        let mut owed = ControlFrames::default();
        for message in 0..CONTROL_FRAMES as u32 + 3 {
            owed.push_owed(1 + message % 2, Control::Acknowledgement { message });
        }
        let count = |owed: &ControlFrames| [0, 1, 2, 3].map(|vc| owed.acknowledgements_to(vc));
        let half = CONTROL_FRAMES as u32 / 2;
        assert_eq!(count(&owed), [0, half + 2, half + 1, 0]);
        let first = owed.pop().unwrap();
        assert_eq!(count(&owed), [0, half + 1, half + 1, 0]);
        owed.put_back(first);
        assert_eq!(count(&owed), [0, half + 2, half + 1, 0]);
        owed.forget(1);
        assert_eq!(count(&owed), [0, 0, half + 1, 0]);
        owed.clear();
        assert_eq!(count(&owed), [0; 4]);
    }

    #[test]
    fn each_says_what_the_wire_has_for_it() {
        let inquiry = Inquiry { context: 1, source: 2, tag: 3, message: NIL, call: 5, start: 6 };
        let frames = [
            (Control::Inquiry(inquiry), Kind::Inquiry),
            (Control::Denial(Inquiry { message: 4, ..inquiry }), Kind::Denial),
            (Control::Credit(Credit { lines: 7, envelopes: 8 }), Kind::Credit),
            (Control::OfferCount(9), Kind::Offers),
            (Control::Refusal { context: 4, message: 5 }, Kind::Nack),
            (Control::Acknowledgement { message: 6 }, Kind::Done),
            (Control::Call(7), Kind::Call),
            (Control::Accept(7), Kind::Accept),
        ];
        for (control, kind) in frames {
            let header = control.header();
            assert_eq!((header.kind(), header.check(0, false)), (Some(kind), Ok(())), "{control:?}");
        }
        assert_eq!([0, 1].map(|at| Inquiry::of(&frames[at].0.header())), [inquiry, Inquiry { message: 4, ..inquiry }]);
        assert_eq!(frames[2].0.header().credit(), Credit { lines: 7, envelopes: 8 });
        assert_eq!((frames[3].0.header().tag(), frames[4].0.header().message()), (9, 5));
    }
}
