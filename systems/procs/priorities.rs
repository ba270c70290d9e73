//! The order of priorities: what a message's priority changes, and what it never does.
//!
//! *Reads* CARs (priority, context). *Writes* the order of send queues, data queues, offers, reads, and of the VCs that have
//! something to send.
//! *Bound* a queue's length, for a row of a priority above 0 only; without one nothing here is run.
//! *Why* one place for the rules:
//!
//! - Envelopes of one context to one proc keep the order of their posting. One that is more urgent than others of its context
//!   ahead of it *lifts* them: they leave with its priority, in front of it. Waiting behind them instead would let any other
//!   context's traffic hold up the urgent message. Only envelopes are lifted; their data keeps its own priority.
//! - Otherwise the higher priority goes first, equal ones in the order in which they came: envelopes and replies in a VC's send
//!   queue, pieces in its data queue, VCs among each other whatever their transports, and at the receiver offers (and so
//!   replies and reads).
//! - Nothing starves: in every [`FAIR_TURN`]th pass the message that a queue would serve last goes first, with one frame of a
//!   VC, or one share of what a pass reads.
//! - A frame that a transport has taken in part stays in front, and so does a message that leaves in parts: the rest must
//!   follow at once.

use smallvec::SmallVec;
use tickwire_components::limits::FAIR_TURN;
use tickwire_components::{Car, CarKind, CarState, NIL, Pending, Progress, Queue, Row, Vc, car_flags};

/// Puts a row into a queue that has no order but that of priorities.
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

/// Whether the head of a data queue stays there: what a transport has taken of its frame is followed by the rest.
fn stays(car: &Car) -> bool {
    car.state == CarState::Sending && car.flags & car_flags::REFUSED != 0
}

/// Puts a row behind another one, or at the head behind [`NIL`].
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

/// Moves a row of a send queue, and the envelopes ahead of it that it must not overtake, to the place of its priority.
#[cold]
fn lift(queue: &mut Queue, cars: &mut [Car], row: Row) {
    let Car { leaves_with: priority, context, kind, .. } = cars[row as usize];
    let (mut front, mut lifted, mut rest): (Queue, Queue, Queue) = (Queue::EMPTY, Queue::EMPTY, Queue::EMPTY);
    let (mut first, mut passed) = (true, false);
    while let Some(at) = queue.pop(cars) {
        let car = &cars[at as usize];
        let bound = kind == CarKind::Send && car.kind == CarKind::Send && car.context == context && !passed;
        // In part by its transport, or in parts by itself.
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

/// Whether this pass is one in which what would be served last goes first.
#[inline]
pub fn is_fair_turn(progress: &Progress) -> bool {
    progress.urgent && progress.turns % FAIR_TURN == FAIR_TURN - 1
}

/// Lets the row that a send queue would serve last go first, with those that it must not overtake; one at a time, so that a
/// peer that takes nothing does not turn the order around.
#[cold]
pub fn turn_sends(queue: &mut Queue, cars: &mut [Car]) {
    const FIRST: u16 = u8::MAX as u16 + 1;
    let Some(row) = first_of_last(*queue, cars, |car| car.leaves_with) else { return };
    // The head may be one that had begun before, with what was let go first behind it.
    if highest(cars, *queue, |car| car.leaves_with) < FIRST {
        cars[row as usize].leaves_with = FIRST;
        lift(queue, cars, row);
    }
}

/// Lets the row that a queue would serve last go first.
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

/// The first row of the lowest priority, if the queue has others.
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

/// Puts the head of a queue where its priority belongs, if it was let go first.
#[cold]
pub fn reinsert_head(queue: &mut Queue, cars: &mut [Car]) {
    let Some(head) = cars.get(queue.head as usize) else { return };
    let behind = cars.get(head.next as usize).is_some_and(|next| next.priority > head.priority);
    if behind
        && !stays(head)
        && let Some(row) = queue.pop(cars)
    {
        // In front of those of its priority, where it was.
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

/// Orders the VCs that have something to send by the highest priority that waits on each; those of equal ones stay in turn.
#[cold]
pub fn order_senders(progress: &mut Progress, cars: &[Car], vcs: &mut [Vc]) {
    let mut order: SmallVec<[(u16, Row); 16]> = SmallVec::new();
    let mut at = progress.senders.head;
    while let Some(vc) = vcs.get(at as usize) {
        // The head may be one that stays in front whatever its priority: the highest is second then.
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

/// Notes that a VC has something to send.
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
