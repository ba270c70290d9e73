//! Post: takes what other threads submitted into CARs, and sends the envelopes that may go.
//!
//! *Reads* submissions, VCs with something to send. *Writes* CARs and requests of submissions, the transports
//! (envelopes and replies out), CARs (state), the finished list.
//! *Bound* [`SUBMISSIONS_A_PASS`] submissions; each VC's queue up to the first frame that does not go.
//! *Why* order: whatever could not leave when it was posted leaves here, VC by VC, first in first out.

use crate::endpoint::Endpoint;
use crate::posting::{check_receive, check_send, queue_receive, queue_send, take_rows};
use crate::supply_buffers::capacity;
use crate::tables::{PostTables, RowStateColumns};
use tickwire_components::limits::SUBMISSIONS_A_PASS;
use tickwire_components::submission::{Answer, Submission};
use tickwire_components::wire::{Header, Kind};
use tickwire_components::{
    Car, CarKind, CarState, Ended, Large, NIL, Pending, Pieces, PostError, Progress, Row, Span, Vc, VcState,
};
use tickwire_transports::Sent;

/// The system.
#[inline]
pub fn post(mut tables: PostTables, mut row_states: RowStateColumns) {
    for _ in 0..SUBMISSIONS_A_PASS {
        let inbound = &mut *tables.inbound;
        let Some(submission) = inbound.waiting.pop_front().or_else(|| inbound.shared.queue.pop()) else { break };
        match take_submission(&mut tables, submission) {
            Taken::Posted => {}
            Taken::Later(submission) => {
                tables.inbound.waiting.push_front(*submission);
                tables.progress.pending |= Pending::WORLD;
                break;
            }
            Taken::Refused(submission, error) => {
                tables.inbound.shared.answer(submission.slot, Answer::Refused(error), submission.lease);
            }
        }
    }
    let PostTables { progress, cars, large, vcs, endpoints, .. } = tables;
    let mut vc_row = progress.senders.head;
    while vc_row != NIL {
        let next = vcs[vc_row as usize].next;
        let vc = &mut vcs[vc_row as usize];
        if vc.state == VcState::Connected && !vc.sends.is_empty() {
            let endpoint = &mut endpoints[vc.endpoint as usize];
            if !drive(progress, cars, large, vc, endpoint, &mut row_states) {
                progress.ended.push((vc_row, Ended::Link("the transport reports a failed link".into())));
                progress.pending |= Pending::WORLD;
            }
        }
        vc_row = next;
    }
}

enum Taken {
    Posted,
    /// Needs rows or a first contact; comes first in the next pass.
    Later(Box<Submission>),
    Refused(Box<Submission>, PostError),
}

/// The runs of a submission.
struct Runs<'a>(&'a [Span]);

// SAFETY: a span's address does not depend on where the span is.
#[expect(unsafe_code, reason = "the engine trusts the addresses that a buffer type reports")]
unsafe impl Pieces for Runs<'_> {
    fn pieces(&self) -> usize {
        self.0.len()
    }
    fn piece(&self, index: usize) -> Span {
        self.0[index]
    }
}

#[cold]
fn take_submission(tables: &mut PostTables<'_>, submission: Submission) -> Taken {
    let progress = &mut *tables.progress;
    let Submission { receive, comm, rank, tag, .. } = submission;
    let checked = if receive {
        check_receive(tables.communicators, comm, rank, tag)
    } else {
        check_send(tables.communicators, comm, rank, tag)
    };
    let envelope = match checked {
        Ok(envelope) => envelope,
        Err(error) => return Taken::Refused(Box::new(submission), error),
    };
    let vc_row = match envelope.proc {
        NIL => NIL,
        proc => match tables.procs.known[proc as usize].row {
            NIL => {
                progress.wanted.push(proc);
                return Taken::Later(Box::new(submission));
            }
            row => row,
        },
    };
    if !receive && tables.vcs[vc_row as usize].state == VcState::Failed {
        let (proc, reason) = (tickwire_components::ProcId(envelope.proc), tables.procs.reason(vc_row).to_owned());
        return Taken::Refused(Box::new(submission), PostError::PeerFailed { proc, reason });
    }
    let runs = Runs(&submission.spans);
    let length = runs.total() as u64;
    let Some((request, row)) = take_rows(progress, tables.cars, tables.requests, &runs) else {
        if progress.rows_exhausted {
            let (table, rows, limit) = ("CAR or request", tables.cars.len(), "cars_max, requests_max");
            return Taken::Refused(Box::new(submission), PostError::Full { table, rows, limit });
        }
        return Taken::Later(Box::new(submission));
    };
    tables.requests[request as usize].submission = submission.slot;
    tables.held[request as usize].0 = submission.lease;
    if receive {
        queue_receive(progress, tables.cars, tables.vcs, row, vc_row, &envelope);
    } else {
        queue_send(progress, tables.cars, tables.large, tables.vcs, row, vc_row, &envelope, length);
    }
    Taken::Posted
}

/// Sends a VC's envelopes and replies in order until one does not go; `false` if the link has failed.
fn drive(
    progress: &mut Progress,
    cars: &mut [Car],
    large: &[Large],
    vc: &mut Vc,
    endpoint: &mut Endpoint,
    row_states: &mut RowStateColumns<'_>,
) -> bool {
    while !vc.sends.is_empty() {
        let row = vc.sends.head;
        let car = cars[row as usize];
        let Large { length, wanted } = large[row as usize];
        let transport = endpoint.transport.get();
        let state = endpoint.rows.and_then(|rows| row_states.get(rows, row));
        let eager = length <= endpoint.eager_max && length == capacity(cars, row);
        let header = match car.kind {
            CarKind::Receive => Header::new(Kind::Cts, car.context, 0, row, car.peer, wanted),
            _ if eager => Header::new(Kind::Eager, car.context, car.source, car.tag, 0, length),
            _ => Header::new(Kind::Rts, car.context, car.source, car.tag, row, length),
        };
        let sent = transport.send(vc.link, &header, &Chain { cars, row }, state);
        match sent {
            Sent::Done => {}
            Sent::Blocked => return true,
            Sent::Failed => return false,
        }
        progress.work.sent += 1;
        vc.sends.pop(cars);
        let car = &mut cars[row as usize];
        let finished = match header.kind() {
            Some(Kind::Cts) => {
                car.state = CarState::Receiving;
                wanted == 0
            }
            Some(Kind::Rts) => {
                car.state = CarState::Offered;
                false
            }
            _ => true,
        };
        if finished {
            car.done = length;
            car.state = CarState::Finished;
            progress.finished.push(cars, row);
            progress.pending |= Pending::COMPLETE;
        }
    }
    true
}

/// The runs of an envelope CAR: its own span, or those of its data CARs.
struct Chain<'a> {
    cars: &'a [Car],
    row: Row,
}

// SAFETY: the spans of CARs were promised when they were posted; they do not depend on where the rows are.
#[expect(unsafe_code, reason = "the engine trusts the addresses that a buffer type reports")]
unsafe impl Pieces for Chain<'_> {
    fn pieces(&self) -> usize {
        let mut row = self.cars[self.row as usize].chain;
        let mut count = 0;
        while row != NIL {
            count += 1;
            row = self.cars[row as usize].chain;
        }
        count.max(1)
    }

    fn piece(&self, index: usize) -> Span {
        let car = &self.cars[self.row as usize];
        if car.chain == NIL {
            return car.span;
        }
        let mut row = car.chain;
        for _ in 0..index {
            row = self.cars[row as usize].chain;
        }
        self.cars[row as usize].span
    }
}
