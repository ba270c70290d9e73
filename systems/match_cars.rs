//! Match: pairs new receives with the unexpected messages, and arrivals with the posted receives.
//!
//! *Reads* arrivals, communicators. *Writes* CARs (envelope, state), VCs' posted queues, the wildcard and unexpected
//! queues, arrivals (car, state), pending.
//! *Bound* the staged receives and the arrival rows.
//! *Why* one system owns all queues of matching, so their order is decided in one place (reference: communication
//! agent notes, "findorallocate": a receive looks at the unexpected first and is then queued; a message looks at the
//! VC's queue and the wildcard queue, the older receive wins, ties go to the wildcard).

use crate::complete::abort;
use crate::tables::MatchTables;
use tickwire_components::limits::{ANY, MESSAGE_MAX, TAG_MAX};
use tickwire_components::wire::{Header, Kind};
use tickwire_components::{
    Arrival, ArrivalState, Car, CarState, Communicator, Ended, Large, NIL, Pending, Progress, Queue, Row, Unexpected,
    Vc, VcState, car_flags,
};

/// The system.
#[inline]
pub fn match_cars(tables: MatchTables) {
    let MatchTables { progress, arrivals, cars, large, vcs, communicators } = tables;
    while let Some(row) = progress.staged.pop(cars) {
        match_unexpected(progress, cars, large, vcs, row);
    }
    for arrival in &mut arrivals[..progress.arrivals as usize] {
        if arrival.state == ArrivalState::New {
            match_arrival(progress, arrival, cars, large, vcs, communicators);
        }
    }
}

/// Whether a receive takes an envelope.
#[inline(always)]
fn takes(car: &Car, context: u32, source: u32, tag: u32) -> bool {
    car.context == context && (car.tag == tag || car.tag == ANY) && (car.source == source || car.source == ANY)
}

/// A new receive: the oldest unexpected message that it takes, or its place in a queue.
#[cold]
fn match_unexpected(progress: &mut Progress, cars: &mut [Car], large: &mut [Large], vcs: &mut [Vc], row: Row) {
    let car = &mut cars[row as usize];
    let Some(found) = progress.unexpected.take(|u| takes(car, u.context, u.source, u.tag)) else {
        return enqueue(progress, cars, vcs, row);
    };
    car.source = found.source;
    car.tag = found.tag;
    car.done = found.length;
    if car.vc == NIL {
        vcs[found.vc as usize].outstanding += 1;
    }
    car.vc = found.vc;
    progress.work.matched += 1;
    if found.message == NIL {
        car.state = CarState::Matched;
        car.peer = found.buffer;
        progress.copies.push(cars, row);
        progress.pending |= Pending::TRANSFER;
    } else {
        offer(progress, cars, large, row, found.message, found.length);
    }
}

/// Puts a receive into its VC's queue or the wildcard queue.
#[inline]
pub fn enqueue(progress: &mut Progress, cars: &mut [Car], vcs: &mut [Vc], row: Row) {
    let car = &mut cars[row as usize];
    car.state = CarState::Posted;
    if car.flags & car_flags::ANY_SOURCE != 0 {
        progress.counter = progress.counter.wrapping_add(1);
        car.counter = progress.counter;
        progress.wildcard.push(cars, row);
        return;
    }
    car.counter = progress.counter;
    let vc = &mut vcs[car.vc as usize];
    if vc.state == VcState::Failed {
        return abort(progress, cars, row, car_flags::PEER_FAILED);
    }
    vc.posted.push(cars, row);
}

/// A receive that was paired with an RTS: SupplyBuffers says where the data goes.
fn offer(progress: &mut Progress, cars: &mut [Car], large: &mut [Large], row: Row, message: Row, length: u64) {
    let car = &mut cars[row as usize];
    car.state = CarState::Matched;
    car.peer = message;
    car.done = 0;
    large[row as usize] = Large { length, wanted: length };
    progress.offers.push(cars, row);
    progress.pending |= Pending::SUPPLY;
}

#[inline]
fn match_arrival(
    progress: &mut Progress,
    arrival: &mut Arrival,
    cars: &mut [Car],
    large: &mut [Large],
    vcs: &mut [Vc],
    communicators: &[Communicator],
) {
    let header = arrival.header;
    let kind = header.kind();
    if let Some(Kind::Eager | Kind::Rts) = kind {
        if let Err(wrong) = check_envelope(progress, &header, vcs.get(arrival.vc as usize), communicators) {
            return refuse(progress, arrival, wrong);
        }
        let Some(row) = find_posted(progress, arrival.vc, &header, cars, vcs) else {
            return find_place(progress, arrival, &header);
        };
        progress.work.matched += 1;
        let car = &mut cars[row as usize];
        car.source = header.source();
        car.tag = header.tag();
        if car.vc == NIL {
            car.vc = arrival.vc;
            vcs[arrival.vc as usize].outstanding += 1;
        }
        if kind == Some(Kind::Eager) {
            car.state = CarState::Matched;
            arrival.car = row;
            arrival.state = ArrivalState::Placed;
            progress.pending |= Pending::TRANSFER;
        } else {
            arrival.state = ArrivalState::Handled;
            progress.pending |= Pending::TRANSFER;
            offer(progress, cars, large, row, header.message(), header.length);
        }
        return;
    }
    progress.pending |= Pending::TRANSFER;
    arrival.state = ArrivalState::Handled;
    match kind {
        Some(Kind::Piece) => match cars.get(header.message() as usize) {
            Some(car) if car.state == CarState::Receiving && car.vc == arrival.vc => {
                if header.length == 0 || header.length > large[header.message() as usize].wanted - car.done {
                    return refuse(progress, arrival, "a piece longer than what is missing");
                }
                arrival.car = header.message();
                arrival.state = ArrivalState::Placed;
            }
            _ => refuse(progress, arrival, "a piece for a receive that expects none"),
        },
        Some(Kind::Cts) => match cars.get_mut(header.message() as usize) {
            Some(car) if car.state == CarState::Offered && car.vc == arrival.vc => {
                clear_to_send(progress, &header, cars, large, vcs, arrival.vc);
            }
            _ => refuse(progress, arrival, "a clear-to-send for a message that was not offered"),
        },
        Some(Kind::Bye) => {
            progress.ended.push((arrival.vc, Ended::Finalized));
            progress.pending |= Pending::WORLD;
        }
        _ => refuse(progress, arrival, "a frame of unknown kind"),
    }
}

/// What a peer says of an envelope is checked against what is known of the peer.
#[inline]
fn check_envelope(
    progress: &Progress,
    header: &Header,
    vc: Option<&Vc>,
    communicators: &[Communicator],
) -> Result<(), &'static str> {
    let Some(vc) = vc else { return Err("a frame on a link that belongs to no proc") };
    let comm = progress.contexts.get(header.context() as usize).and_then(|&row| communicators.get(row as usize));
    let Some(comm) = comm else { return Err("an envelope of an unknown context") };
    if comm.proc(header.source()) != Some(vc.proc) {
        return Err("an envelope whose source is not the sender's rank");
    }
    if header.tag() > TAG_MAX || header.length > MESSAGE_MAX {
        return Err("an envelope with an impossible tag or length");
    }
    if header.message() == NIL && header.kind() == Some(Kind::Rts) {
        return Err("an offer without a message id");
    }
    Ok(())
}

/// The oldest posted receive that takes an envelope: from the VC's queue or the wildcard queue, whichever is older.
#[inline]
fn find_posted(
    progress: &mut Progress,
    vc_row: Row,
    header: &Header,
    cars: &mut [Car],
    vcs: &mut [Vc],
) -> Option<Row> {
    let vc = &mut vcs[vc_row as usize];
    let (context, source, tag) = (header.context(), header.source(), header.tag());
    let known = first_match(&vc.posted, cars, context, source, tag);
    if progress.wildcard.is_empty() {
        let (previous, row) = known?;
        vc.posted.unlink(cars, previous, row);
        return Some(row);
    }
    let wild = first_match(&progress.wildcard, cars, context, source, tag);
    // Receives posted before the wildcard have a smaller counter, those after it an equal one: ties are the wildcard's.
    let wild_first = match (known, wild) {
        (None, None) => return None,
        (Some((_, k)), Some((_, w))) => {
            (cars[k as usize].counter.wrapping_sub(cars[w as usize].counter) as i32) >= 0
        }
        (None, Some(_)) => true,
        (Some(_), None) => false,
    };
    if wild_first {
        let (previous, row) = wild?;
        progress.wildcard.unlink(cars, previous, row);
        Some(row)
    } else {
        let (previous, row) = known?;
        vc.posted.unlink(cars, previous, row);
        Some(row)
    }
}

/// The first receive of a queue that takes an envelope, and the row before it.
#[inline]
fn first_match(queue: &Queue, cars: &[Car], context: u32, source: u32, tag: u32) -> Option<(Row, Row)> {
    let (mut previous, mut row) = (NIL, queue.head);
    while row != NIL {
        let car = &cars[row as usize];
        if takes(car, context, source, tag) {
            return Some((previous, row));
        }
        (previous, row) = (row, car.next);
    }
    None
}

/// An envelope that nobody has posted a receive for.
#[cold]
fn find_place(progress: &mut Progress, arrival: &mut Arrival, header: &Header) {
    let rts = header.kind() == Some(Kind::Rts);
    let entry = progress.unexpected.push(Unexpected {
        context: header.context(),
        source: header.source(),
        tag: header.tag(),
        vc: arrival.vc,
        length: header.length,
        buffer: NIL,
        message: if rts { header.message() } else { NIL },
        next: NIL,
    });
    progress.pending |= Pending::TRANSFER;
    if rts || header.length == 0 {
        arrival.state = ArrivalState::Handled;
    } else {
        arrival.car = entry;
        arrival.state = ArrivalState::Unexpected;
        progress.pending |= Pending::SUPPLY;
    }
}

/// The receiver of a large message is ready.
#[cold]
fn clear_to_send(
    progress: &mut Progress,
    header: &Header,
    cars: &mut [Car],
    large: &mut [Large],
    vcs: &mut [Vc],
    vc_row: Row,
) {
    let row = header.message();
    let wanted = header.length;
    if wanted > large[row as usize].length {
        progress.ended.push((vc_row, Ended::Corrupt("a clear-to-send for more than was offered".into())));
        progress.pending |= Pending::WORLD;
        return;
    }
    large[row as usize].wanted = wanted;
    let car = &mut cars[row as usize];
    car.peer = header.tag();
    car.done = 0;
    if wanted == 0 {
        car.state = CarState::Finished;
        car.done = large[row as usize].length;
        progress.finished.push(cars, row);
        progress.pending |= Pending::COMPLETE;
        return;
    }
    car.state = CarState::Sending;
    vcs[vc_row as usize].data.push(cars, row);
    crate::posting::list_sender(progress, vcs, vc_row);
}

/// A frame that cannot be: the VC it came on ends, nothing else.
#[cold]
fn refuse(progress: &mut Progress, arrival: &mut Arrival, wrong: &'static str) {
    arrival.state = ArrivalState::Handled;
    progress.ended.push((arrival.vc, Ended::Corrupt(wrong.into())));
    progress.pending |= Pending::WORLD | Pending::TRANSFER;
}
