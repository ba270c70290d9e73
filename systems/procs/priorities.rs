//! Priorities of messages: what they change, and what they never change.
//!
//! *Reads* CARs (priority, context). *Writes* the order of send queues, data queues, offers and reads, and the order of the VCs that have
//! something to send.
//! *Bound* the length of a queue, for each row with a priority above 0. Without such rows nothing here runs.
//! *Why* all rules are in one place:
//!
//! - Envelopes of one context to one proc are never reordered, as MPI requires. An urgent envelope instead *lifts* the less urgent ones of
//!   its context that are ahead of it: they leave before it, with its priority. If it waited behind them, traffic of any other context
//!   could hold it up. Only envelopes are lifted; their data keeps its own priority.
//! - Otherwise the higher priority goes first, and equal priorities keep their order. This holds for envelopes and replies in a VC's send
//!   queue, for pieces in its data queue, for VCs among each other, over all transports, and for offers at the receiver (so also for
//!   replies and reads).
//! - Nothing starves: in every [`FAIR_TURN`]th pass, each queue first serves the message that it would serve last, with one frame of a VC
//!   or one share of what a pass reads.
//! - A frame of which a transport has taken a part stays at the head, and so does a message that leaves in parts: their rest must follow at
//!   once.

use smallvec::SmallVec;
use tickwire_components::limits::FAIR_TURN;
use tickwire_components::{Car, CarKind, CarState, NIL, Pending, Progress, Queue, Row, Vc, car_flags, context};

/// Puts a row into a queue that is ordered by priority alone.
#[inline]
pub fn insert(queue: &mut Queue, cars: &mut [Car], row: Row) {
    if cars[row as usize].priority == 0 || queue.is_empty() {
        return queue.push(cars, row);
    }
    insert_urgent(queue, cars, row);
}

#[cold]
fn insert_urgent(queue: &mut Queue, cars: &mut [Car], row: Row) {
    let priority = cars[row as usize].priority;
    let (mut previous, mut at) = (NIL, queue.head);
    while let Some(car) = cars.get(at as usize)
        && (car.priority >= priority || (previous == NIL && stays(car)))
    {
        (previous, at) = (at, car.next);
    }
    put_behind(queue, cars, previous, row);
}

/// Whether the head of a data queue must stay there: the transport has taken a part of its frame, and the rest must follow.
fn stays(car: &Car) -> bool {
    car.state == CarState::Sending && car.flags & car_flags::REFUSED != 0
}

/// Puts a row behind another one, or at the head if `previous` is [`NIL`].
pub(crate) fn put_behind(queue: &mut Queue, cars: &mut [Car], previous: Row, row: Row) {
    let next = if previous == NIL { queue.head } else { cars[previous as usize].next };
    cars[row as usize].next = next;
    match previous {
        NIL => queue.head = row,
        previous => cars[previous as usize].next = row,
    }
    if next == NIL {
        queue.tail = row;
    }
}

/// Puts an envelope into a VC's send queue.
#[inline]
pub fn insert_send(progress: &mut Progress, queue: &mut Queue, cars: &mut [Car], row: Row) {
    let car = &mut cars[row as usize];
    car.leaves_with = u16::from(car.priority);
    if car.priority == 0 {
        return queue.push(cars, row);
    }
    progress.urgent = true;
    queue.push(cars, row);
    lift(queue, cars, row);
}

/// Moves a row of a send queue to the place of its priority, with the envelopes ahead of it that it must not overtake.
#[cold]
fn lift(queue: &mut Queue, cars: &mut [Car], row: Row) {
    let Car { leaves_with: priority, context, kind, .. } = cars[row as usize];
    let (mut front, mut lifted, mut rest): (Queue, Queue, Queue) = (Queue::EMPTY, Queue::EMPTY, Queue::EMPTY);
    let (mut first, mut passed) = (true, false);
    while let Some(at) = queue.pop(cars) {
        let car = &cars[at as usize];
        let bound = kind == CarKind::Send && car.kind == CarKind::Send && is_ordered(car.context, context) && !passed;
        // A frame that the transport has taken in part, or a message that leaves in parts.
        let begun = std::mem::take(&mut first) && (car.flags & car_flags::STARTED != 0 || car.done > 0);
        let list = if begun || (car.leaves_with >= priority && at != row && !passed) {
            &mut front
        } else if bound || at == row {
            &mut lifted
        } else {
            &mut rest
        };
        list.push(cars, at);
        if !begun && (bound || at == row) {
            cars[at as usize].leaves_with = cars[at as usize].leaves_with.max(priority);
        }
        passed |= at == row;
    }
    for mut list in [front, lifted, rest] {
        while let Some(at) = list.pop(cars) {
            queue.push(cars, at);
        }
    }
}

/// Whether an envelope must not overtake an earlier one. What is sent in the place of a graph's message stands in its order.
fn is_ordered(earlier: u32, later: u32) -> bool {
    let of_graph = matches!(context::plane(later), context::COLLECTIVE | context::BLOCK);
    earlier == later || of_graph && earlier == context::abandoned(later)
}

/// Whether this is a pass in which queues first serve what they would serve last.
#[inline]
pub fn is_fair_turn(progress: &Progress) -> bool {
    progress.urgent && progress.turns % FAIR_TURN == FAIR_TURN - 1
}

/// Moves the row that a send queue would serve last to the front, with the rows that it must not overtake. Only one such row is in front at
/// a time, so that the order is not reversed while a peer takes nothing.
#[cold]
pub fn turn_sends(queue: &mut Queue, cars: &mut [Car]) {
    const FIRST: u16 = u8::MAX as u16 + 1;
    let Some(row) = first_of_last(*queue, cars, |car| car.leaves_with) else { return };
    // The head may be a frame that has begun; the row that was moved to the front is behind it then.
    if highest(cars, *queue, |car| car.leaves_with) < FIRST {
        cars[row as usize].leaves_with = FIRST;
        lift(queue, cars, row);
    }
}

/// Moves the row that a queue would serve last to the front.
#[cold]
pub fn turn(queue: &mut Queue, cars: &mut [Car]) {
    if cars.get(queue.head as usize).is_some_and(stays) {
        return;
    }
    let Some(row) = first_of_last(*queue, cars, |car| u16::from(car.priority)) else { return };
    if queue.remove(cars, row) {
        put_behind(queue, cars, NIL, row);
    }
}

/// The first row of the lowest priority, if the queue also has rows of other priorities.
fn first_of_last(queue: Queue, cars: &[Car], priority: impl Fn(&Car) -> u16) -> Option<Row> {
    let lowest = priority(cars.get(queue.tail as usize)?);
    let (mut at, mut mixed) = (queue.head, false);
    while let Some(car) = cars.get(at as usize) {
        if priority(car) == lowest {
            return mixed.then_some(at);
        }
        (at, mixed) = (car.next, true);
    }
    None
}

/// Moves the head of a queue back to the place of its priority, if it was moved to the front.
#[cold]
pub fn reinsert_head(queue: &mut Queue, cars: &mut [Car]) {
    let Some(head) = cars.get(queue.head as usize) else { return };
    let behind = cars.get(head.next as usize).is_some_and(|next| next.priority > head.priority);
    if behind
        && !stays(head)
        && let Some(row) = queue.pop(cars)
    {
        // Its place was in front of the others of its priority.
        let priority = cars[row as usize].priority;
        let (mut previous, mut at) = (NIL, queue.head);
        while let Some(car) = cars.get(at as usize).filter(|car| car.priority > priority) {
            (previous, at) = (at, car.next);
        }
        put_behind(queue, cars, previous, row);
    }
}

/// The highest priority in a queue.
fn highest(cars: &[Car], queue: Queue, priority: impl Fn(&Car) -> u16) -> u16 {
    let Some(head) = cars.get(queue.head as usize) else { return 0 };
    priority(head).max(cars.get(head.next as usize).map_or(0, priority))
}

/// Orders the VCs that have something to send by the highest priority that waits on each. VCs of equal priority keep their turns.
#[cold]
pub fn order_senders(progress: &mut Progress, cars: &[Car], vcs: &mut [Vc]) {
    let mut order: SmallVec<[(u16, Row); 16]> = SmallVec::new();
    let mut at = progress.senders.head;
    while let Some(vc) = vcs.get(at as usize) {
        // The head may have to stay in front whatever its priority. Then the highest priority is second.
        let sends = highest(cars, vc.sends, |car| car.leaves_with);
        let data = highest(cars, vc.data, |car| u16::from(car.priority));
        order.push((sends.max(data), at));
        at = vc.next;
    }
    progress.urgent = order.iter().any(|&(priority, _)| priority > 0) || !progress.reads.is_empty();
    order.sort_by_key(|&(priority, _)| std::cmp::Reverse(priority));
    progress.senders = Queue::EMPTY;
    for (_, row) in order {
        progress.senders.push(vcs, row);
    }
}

/// Lists a VC as one that has something to send.
#[inline]
pub fn list_sender(progress: &mut Progress, vcs: &mut [Vc], vc_row: Row) {
    if !vcs[vc_row as usize].listed {
        vcs[vc_row as usize].listed = true;
        progress.senders.push(vcs, vc_row);
    }
    progress.pending |= Pending::POST | Pending::TRANSFER;
}

#[cfg(test)]
mod tests;
