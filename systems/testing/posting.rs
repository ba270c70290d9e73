//! Operations and frames that a test puts into a [`TestWorld`] by hand.

use super::memory::{Spans, span};
use super::world::TestWorld;
use crate::steps::activate::take_rows;
use crate::steps::arguments::{check_receive, check_send};
use crate::steps::posting::{queue_receive, queue_send, receive_car, send_car};
use tickwire_components::submission::{Operation, Submission, Task};
use tickwire_components::wire::Header;
use tickwire_components::{
    Arrival, ArrivalState, Car, Lease, Lent, NIL, Pieces, Rank, Request, Row, Source, Tag, TagFilter,
};

/// An operation that was posted by hand.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Posted {
    /// The row of its request and envelope CAR.
    pub car: Row,
    /// Where its buffer is kept.
    buffer: usize,
}

impl TestWorld {
    /// Posts a receive of a message into runs of these lengths; `None` stands for any.
    ///
    /// # Panics
    /// If its arguments are wrong or rows are short.
    pub fn receive(&mut self, source: Option<u32>, tag: Option<u32>, lengths: &[usize]) -> Posted {
        let mut pieces: Vec<Vec<u8>> = lengths.iter().map(|&length| vec![0xEE; length]).collect();
        let spans = Spans(pieces.iter_mut().map(|piece| span(piece)).collect());
        let all = self.store.all();
        let source = source.map_or(Source::Any, |rank| Rank(rank).into());
        let tag = tag.map_or(TagFilter::Any, |tag| Tag(tag).into());
        let checked = check_receive(all.communicators, 0, source, tag);
        let Ok(envelope) = checked else { panic!("{checked:?}") };
        let vc_row = if envelope.proc == NIL { NIL } else { all.procs.known[envelope.proc as usize].row };
        let car = receive_car(all.progress, &envelope, vc_row);
        // SAFETY: the world keeps the bytes.
        #[expect(unsafe_code, reason = "bytes that are addresses")]
        let taken = unsafe { take_rows(all.progress, all.cars, all.requests, &spans, car) };
        let Some(car) = taken else { panic!("no rows") };
        queue_receive(all.progress, all.cars, all.vcs, car);
        self.keep(car, pieces)
    }

    /// Posts a send of a message from these runs to a contacted proc.
    ///
    /// # Panics
    /// If its arguments are wrong or rows are short.
    pub fn send(&mut self, to: u32, tag: u32, pieces: &[&[u8]]) -> Posted {
        let mut pieces: Vec<Vec<u8>> = pieces.iter().map(|piece| piece.to_vec()).collect();
        let spans = Spans(pieces.iter_mut().map(|piece| span(piece)).collect());
        let all = self.store.all();
        let checked = check_send(all.communicators, 0, to, tag, spans.total());
        let Ok(envelope) = checked else { panic!("{checked:?}") };
        let vc_row = all.procs.known[envelope.proc as usize].row;
        let car = send_car(&envelope, vc_row, 0);
        // SAFETY: the world keeps the bytes.
        #[expect(unsafe_code, reason = "bytes that are addresses")]
        let taken = unsafe { take_rows(all.progress, all.cars, all.requests, &spans, car) };
        let Some(car) = taken else { panic!("no rows") };
        queue_send(all.progress, all.cars, all.large, all.vcs, car, envelope.length);
        self.keep(car, pieces)
    }

    fn keep(&mut self, car: Row, pieces: Vec<Vec<u8>>) -> Posted {
        self.buffers.push(pieces);
        Posted { car, buffer: self.buffers.len() - 1 }
    }

    /// Submits an operation as another thread does; its answer comes to `slot`.
    ///
    /// # Panics
    /// If the queue is full.
    pub fn submit(&mut self, operation: Operation, bytes: Vec<u8>, slot: u32) {
        // SAFETY: the buffer goes with its addresses.
        #[expect(unsafe_code, reason = "bytes that are addresses")]
        let lent = unsafe { Lent::of(&bytes) };
        let mut lease = Lease::default();
        lease.put(bytes);
        let submission = Submission { operation, flags: 0, priority: None, comm: 0, lent, lease, slot };
        let pushed = self.all().inbound.shared().queue.push(Task::Operation(submission));
        assert!(pushed.is_ok(), "the queue of submissions is full");
    }

    /// Puts a frame into the arrival table as DrainCq would; its row.
    pub fn arrive(&mut self, vc: Row, header: Header, payload: &[u8]) -> Row {
        let mut payload = payload.to_vec();
        let span = span(&mut payload);
        self.payloads.push(payload);
        let all = self.all();
        let row = all.progress.arrivals;
        let state = ArrivalState::New;
        all.arrivals[row as usize] = Arrival { header, payload: span, vc, state, ..Arrival::default() };
        all.progress.arrivals += 1;
        row
    }

    /// The runs of an operation's buffer, one after another.
    pub fn bytes(&self, posted: Posted) -> Vec<u8> {
        self.buffers[posted.buffer].concat()
    }

    /// An operation's envelope CAR.
    pub fn car(&mut self, posted: Posted) -> Car {
        self.all().cars[posted.car as usize]
    }

    /// An operation's request.
    pub fn request(&mut self, posted: Posted) -> Request {
        self.all().requests[posted.car as usize]
    }
}
