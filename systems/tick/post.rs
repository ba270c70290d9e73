//! Post: turns submissions of other threads into CARs, and sends the envelopes that can leave.
//!
//! *Reads* submissions, nodes of graphs that can start, VCs with something to send. *Writes* CARs and requests of submissions,
//! the transports (envelopes, replies and control frames out), CARs (state), the finished list.
//! *Bound* [`SUBMISSIONS_A_PASS`] submissions; the queue of each VC up to the first frame that cannot leave.
//! *Why* what cannot leave when it is posted waits in the queue of its VC, which keeps the order, and leaves here.

use crate::procs::endpoint::Endpoint;
use crate::procs::priorities::{is_fair_turn, order_senders, turn_sends};
use crate::protocols::credit::grant;
use crate::protocols::graph::start_nodes;
use crate::protocols::provider_matched;
use crate::rows::{Rows, Wire};
use crate::steps::activate::take_rows;
use crate::steps::arguments::check_operation;
use crate::steps::check::LINK_FAILED;
use crate::steps::credit::replenish;
use crate::steps::offer_counts;
use crate::steps::posting::{asks_when_ready, new_send, queue_receive, queue_send, receive_car};
use crate::steps::registering::serve;
use crate::steps::send::{has_gone, parts_follow, send_control, send_row};
use crate::steps::signatures::{note, tell};
use tickwire_components::limits::SUBMISSIONS_A_PASS;
use tickwire_components::submission::{Answer, Operation, OwedToThread, Submission, Task};
use tickwire_components::{
    Access, Ended, NIL, Panic, Pending, Pieces as _, PostError, Queue, Row, Status, Vc, VcState, car_flags,
};
use tickwire_transports::Sent;

/// The system.
// A function of its own, so that a profile tells the systems apart.
#[inline(never)]
pub fn post(rows: &mut Rows<'_>, wire: &mut Wire<'_>) {
    for _ in 0..SUBMISSIONS_A_PASS {
        let Some(task) = rows.inbound.pop() else { break };
        let Task::Operation(submission) = task else {
            // This task runs after the systems, when the whole engine is free for it. Later tasks wait for it.
            rows.inbound.waiting().push_front(task);
            rows.progress.owed_to_threads.push(OwedToThread::Call);
            break;
        };
        match take_submission(rows, wire.endpoints, submission) {
            Taken::Posted => {}
            Taken::Done(submission) => answer(rows, *submission, Answer::Done(Ok(Status::NULL))),
            Taken::Later(submission) => {
                rows.inbound.waiting().push_front(Task::Operation(*submission));
                rows.progress.pending |= Pending::WORLD;
                break;
            }
            Taken::Refused(submission, error) => answer(rows, *submission, Answer::Refused(error)),
        }
    }
    if !rows.progress.graphs.startable.is_empty() {
        start_nodes(rows, wire);
    }
    let endpoints = &mut *wire.endpoints;
    if rows.progress.has_provider() {
        provider_matched::drive(rows, endpoints);
    }
    if !rows.progress.replies.is_empty() {
        send_replies(rows, endpoints);
    }
    if !rows.progress.control.is_empty() {
        send_control_frames(rows, endpoints);
    }
    if rows.progress.urgent {
        order_senders(&mut rows.progress, &rows.cars, &mut rows.vcs);
    }
    let mut vc_row = rows.progress.senders.head;
    while vc_row != NIL {
        let Vc { next, state, endpoint, .. } = rows.vcs[vc_row as usize];
        if state == VcState::Connected {
            let endpoint = &mut endpoints[endpoint as usize];
            if let Err(words) = drive(rows, endpoint, vc_row) {
                rows.progress.end_vc(vc_row, Ended::Link(words));
            }
            let vc = &rows.vcs[vc_row as usize];
            if endpoint.matches && vc.envelopes == 0 && !vc.sends.is_empty() {
                offer_counts::tell(rows, vc_row);
            }
            grant(rows, endpoint, vc_row);
        }
        vc_row = next;
    }
    rows.progress.probing = false;
}

/// Answers a submission that is not posted: there is nothing to do for it, or it is refused.
#[cold]
fn answer(rows: &mut Rows<'_>, submission: Submission, answer: Answer) {
    if let Some(panic) = rows.inbound.shared().answer(submission.slot, answer, submission.lease) {
        panicked(rows, panic);
    }
}

/// A waker of a thread panicked while the thread was answered. Complete passes the panic on, once all others are told.
#[cold]
fn panicked(rows: &mut Rows<'_>, panic: Panic) {
    rows.callbacks.note_panic(panic);
    rows.progress.late = true;
    rows.progress.pending |= Pending::COMPLETE;
}

enum Taken {
    Posted,
    /// Its peer is no proc: there is nothing to do.
    Done(Box<Submission>),
    /// It needs rows or a first contact. It is the first one of the next pass.
    Later(Box<Submission>),
    Refused(Box<Submission>, PostError),
}

#[cold]
fn take_submission(rows: &mut Rows<'_>, endpoints: &[Endpoint], submission: Submission) -> Taken {
    let Rows { progress, procs, communicators, cars, large, requests, held, callbacks, vcs, .. } = rows;
    let Submission { operation, comm, .. } = submission;
    let receive = matches!(operation, Operation::Receive { .. });
    let envelope = match check_operation(communicators, comm, operation, submission.lent.total()) {
        Ok(Some(envelope)) => envelope,
        Ok(None) => return Taken::Done(Box::new(submission)),
        Err(error) => return Taken::Refused(Box::new(submission), error),
    };
    let vc_row = match envelope.proc {
        NIL => NIL,
        proc => match procs.known[proc as usize].row {
            NIL => {
                progress.to_contact.push(proc);
                return Taken::Later(Box::new(submission));
            }
            row => row,
        },
    };
    let lent = &submission.lent;
    let car = if receive {
        receive_car(progress, &envelope, vc_row)
    } else {
        let endpoint = endpoints.get(vcs[vc_row as usize].endpoint as usize);
        let flags = match submission.flags {
            car_flags::READY if !asks_when_ready(procs.me, endpoint, envelope.proc, envelope.length) => 0,
            flags => flags,
        };
        match new_send((communicators, vcs, procs), &envelope, vc_row, flags, submission.priority) {
            Ok(car) => car,
            Err(error) => return Taken::Refused(Box::new(submission), error),
        }
    };
    // SAFETY: the row holds the buffer from here on.
    #[expect(unsafe_code, reason = "bytes that are addresses")]
    let row = unsafe { take_rows(progress, cars, requests, lent, car) };
    let Some(row) = row else {
        // Graphs that are kept to be used again are freed first.
        if progress.rows_exhausted && progress.graphs.kept == 0 {
            let (table, rows, limit) = ("CAR", cars.len(), "cars_max");
            return Taken::Refused(Box::new(submission), PostError::Full { table, rows, limit });
        }
        return Taken::Later(Box::new(submission));
    };
    note(progress, row, lent.type_name());
    requests[row as usize].notified = true;
    callbacks.await_in(row, submission.slot);
    held[row as usize].0 = submission.lease;
    if receive {
        queue_receive(progress, cars, vcs, row);
    } else {
        queue_send(progress, cars, large, vcs, row, envelope.length);
    }
    Taken::Posted
}

/// Sends the replies of receives. A reply that cannot leave now stays in the queue, for the next pass.
fn send_replies(rows: &mut Rows<'_>, endpoints: &mut [Endpoint]) {
    let mut replies = std::mem::replace(&mut rows.progress.replies, Queue::EMPTY);
    while let Some(row) = replies.pop(&mut rows.cars) {
        let vc_row = rows.cars[row as usize].vc;
        let endpoint = &mut endpoints[rows.vcs[vc_row as usize].endpoint as usize];
        let sent = send_row(rows, endpoint, vc_row, row);
        if sent.is_ok() {
            has_gone(rows, row);
            continue;
        }
        rows.progress.replies.push(&mut rows.cars, row);
        if sent == Err(Sent::Failed) {
            rows.progress.end_vc(vc_row, Ended::Link(LINK_FAILED.into()));
        }
    }
}

/// Sends the control frames that are owed, each as far as its VC has room.
#[cold]
fn send_control_frames(rows: &mut Rows<'_>, endpoints: &mut [Endpoint]) {
    for _ in 0..rows.progress.control.frames.len() {
        let Some(mut frame) = rows.progress.control.pop() else { break };
        let vc_row = frame.vc;
        let endpoint = &mut endpoints[rows.vcs[vc_row as usize].endpoint as usize];
        match send_control(rows, endpoint, &mut frame) {
            Sent::Done => {
                if frame.what.is_acknowledgement() {
                    replenish(&mut rows.progress, &mut rows.vcs, vc_row);
                }
                continue;
            }
            Sent::Failed => rows.progress.end_vc(vc_row, Ended::Link(LINK_FAILED.into())),
            _ => {}
        }
        frame.refused = true;
        rows.progress.control.put_back(frame);
    }
}

/// Sends a VC's envelopes in order until one does not go.
///
/// # Errors
/// Why the VC ends, in words.
fn drive(rows: &mut Rows<'_>, endpoint: &mut Endpoint, vc_row: Row) -> Result<(), String> {
    if is_fair_turn(&rows.progress) {
        turn_sends(&mut rows.vcs[vc_row as usize].sends, &mut rows.cars);
    }
    while !rows.vcs[vc_row as usize].sends.is_empty() {
        let Vc { sends, endpoint: number, .. } = rows.vcs[vc_row as usize];
        let row = sends.head;
        if endpoint.abilities.registers {
            match serve(&mut rows.progress, &rows.cars, endpoint, number, row, Access::SEND) {
                Ok(true) => {}
                Ok(false) => return Ok(()),
                Err(words) => return Err(format!("the memory of a message cannot be registered: {words}")),
            }
        }
        if rows.progress.signatures.is_some() {
            match tell(rows, endpoint, vc_row, row) {
                Sent::Done => {}
                Sent::Failed => return Err(LINK_FAILED.into()),
                _ => return Ok(()),
            }
        }
        match send_row(rows, endpoint, vc_row, row) {
            Ok(header) => {
                if parts_follow(&mut rows.cars, &rows.large, &header, row) {
                    rows.progress.work.sent += 1;
                    continue;
                }
                rows.vcs[vc_row as usize].sends.pop(&mut rows.cars);
                has_gone(rows, row);
            }
            Err(Sent::Failed) => return Err(LINK_FAILED.into()),
            Err(_) => return Ok(()),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
