//! Messages in parts, where they come in. The bytes of a part go where they are wanted, and leave again while the rest of the part is
//! still coming (reference: communication agent notes, "collective case"; `PROGRESS_DEPENDENCY` there is a progress edge).
//!
//! A message of a block has one envelope. Its bytes are those of its parts, one behind the other. A *progress edge* leads from a part
//! that comes in (an [`Inlet`]) to the message that passes it on. It carries a number: how many bytes of the part can be passed on. If
//! the bytes are to be combined with the application's, they count once they are combined. How the protocols take part in it:
//!
//! - *Short messages* leave as a whole, as every other message of a graph does, once all bytes have come. They have up to
//!   [`PASSED_WHOLE_MAX`] bytes, and not more than the connection takes without an offer. They are put together in memory of the graph.
//! - *Long messages* are offered, without an address. The offer (RTS) leaves as soon as the first envelope has come of the messages that
//!   it passes on. So offers run ahead of the bytes, all the way down a chain. The answer (CTS) may come before there is a byte to
//!   send. Then the send is parked, and goes on when a byte comes (`passing.rs`).
//! - *The receiver asks in windows.* An answer says how far the sender may go, and another one follows as soon as there is more room
//!   ([`ask`]). So nobody holds more than a window of what it passes on, and nothing arrives that has no place.
//! - *Nothing is read* out of the memory of a rank that passes on, so the bytes always go in pieces. The reason: windows are used again
//!   while the message is under way, and a peer that reads by itself cannot be told so.
//!
//! A part may go on to several ranks. Then the graph has memory for all of it, from which each message takes bytes as fast as it can. A
//! window would move on only as fast as the slowest message, and so hold up the others.
//!
//! An operation combines whole elements. Bytes of an element that is not complete yet wait in `scratch`.

use super::intake::take_in;
use super::passing::meet;
use crate::rows::{Rows, Wire};
use crate::steps::answer::answer;
use crate::steps::check::NotTaken;
use crate::steps::finish::{abort, finish_car};
use crate::steps::supply::hand_out::{SupplyTables, enqueue, ready, release};
use smallvec::SmallVec;
use tickwire_components::limits::PASSED_WHOLE_MAX;
use tickwire_components::{
    Arrival, ArrivalState, Body, Car, CarKind, CarState, Destination, Ended, InletMemory, Large, NIL, PartKind,
    Passage, Pending, Row, Span, Supply, VcState, car_flags,
};

/// Resets the messages in parts of a graph that starts, and asks for its windows.
pub(super) fn start(rows: &mut Rows<'_>, wire: &mut Wire<'_>, number: u32) {
    let Rows { progress, cars, supplies, buffers, vcs, .. } = rows;
    let progress = &mut **progress;
    let graph = progress.graphs.list.get_mut(number as usize).and_then(Option::as_deref_mut);
    // The blocks are taken out of the progress row meanwhile, since the queues of supplies are in that row too.
    let Some(mut blocks) = graph.and_then(|graph| graph.blocks.take()) else { return };
    blocks.incoming.iter_mut().for_each(|message| message.reset());
    blocks.outgoing.iter_mut().for_each(|message| message.reset());
    for Passage { row, parts, .. } in blocks.outgoing.iter().map(|message| &message.passage) {
        for part in parts {
            let PartKind::Passed(index) = part.what else { continue };
            let inlet = &mut blocks.inlets[index as usize];
            let InletMemory::Window(_) = inlet.memory else { continue };
            let minimum = u64::from(inlet.minimum);
            let (to, from) = (*row, blocks.incoming[inlet.from as usize].passage.row);
            let to_vc = cars[to as usize].vc;
            let from_vc = cars[from as usize].vc;
            let supplier = inlet.supplier;
            let supply = Supply { from, from_vc, to, to_vc, supplier, bytes: part.bytes, minimum, ..Supply::default() };
            // There are as many rows as windows of all graphs, but windows of graphs that have just ended may still be in the queue.
            if progress.free_supplies.count == 0 {
                SupplyTables { progress, supplies, buffers, vcs, endpoints: wire.endpoints }.take_all_back();
            }
            let row = enqueue(progress, supplies, supply);
            debug_assert!(row.is_some(), "there is a row for each window");
            inlet.memory = InletMemory::Window(row.unwrap_or(NIL));
        }
    }
    blocks.inlets.iter_mut().for_each(|inlet| inlet.come = 0);
    if let Some(graph) = progress.graphs.get_mut(number) {
        graph.blocks = Some(blocks);
    }
}

/// Whether a message that has come is as long as the parts of its receive. If not, returns the flag with which the receive ends.
fn misfit(rows: &Rows<'_>, row: Row, length: u64) -> Option<u16> {
    let node = rows.nodes[row as usize];
    let incoming = rows.progress.graphs.get(node.graph)?.blocks.as_deref().map(|blocks| &blocks.incoming)?;
    let expected = incoming.get(node.incoming() as usize)?.passage.bytes;
    match length {
        _ if length > expected => Some(car_flags::TRUNCATED),
        _ if length < expected => Some(car_flags::SHORT),
        _ => None,
    }
}

/// The envelope of a message has come: messages that pass it on may be offered, and its windows are ready for space.
fn open(rows: &mut Rows<'_>, row: Row) {
    let node = rows.nodes[row as usize];
    let (number, index) = (node.graph, node.incoming());
    let mut fed: SmallVec<[u32; 8]> = SmallVec::new();
    {
        let Rows { progress, supplies, .. } = rows;
        let progress = &mut **progress;
        let Some(blocks) =
            progress.graphs.list.get_mut(number as usize).and_then(|graph| graph.as_mut()?.blocks.take())
        else {
            return;
        };
        for part in &blocks.incoming[index as usize].passage.parts {
            let PartKind::Inlet(index) = part.what else { continue };
            let inlet = &blocks.inlets[index as usize];
            if let Some(supply) = inlet.supply() {
                ready(progress, supplies, supply);
            }
            for &outgoing in &inlet.outgoing {
                if !fed.contains(&outgoing) {
                    fed.push(outgoing);
                }
            }
        }
        if let Some(graph) = progress.graphs.get_mut(number) {
            graph.blocks = Some(blocks);
        }
    }
    for index in fed {
        let Rows { progress, cars, nodes, .. } = &mut *rows;
        let progress = &mut **progress;
        let Some(graph) = progress.graphs.list.get_mut(number as usize).and_then(Option::as_deref_mut) else { return };
        let failed = graph.failed;
        let Some(message) = graph.blocks.as_deref_mut().and_then(|blocks| blocks.outgoing.get_mut(index as usize))
        else {
            continue;
        };
        if !message.is_whole && !failed && !std::mem::replace(&mut message.opened, true) {
            let row = message.passage.row;
            meet(progress, cars, nodes, row);
        }
    }
}

/// A receive of a message in parts has been paired with an offer: it asks for as much as it has room for.
#[cold]
pub(crate) fn reply(rows: &mut Rows<'_>, row: Row) {
    let length = rows.large[row as usize].length;
    let Rows { progress, cars, vcs, .. } = rows;
    if vcs[cars[row as usize].vc as usize].state == VcState::Failed {
        return abort(progress, cars, row, car_flags::PEER_FAILED);
    }
    let failed = rows.progress.graphs.get(rows.nodes[row as usize].graph).is_none_or(|graph| graph.failed);
    let refused = if failed { Some(car_flags::ABANDONED) } else { misfit(rows, row, length) };
    let message = &mut rows.large[row as usize];
    message.wanted = 0;
    if let Some(flags) = refused {
        // The receive takes no bytes, and ends once it has told the sender so.
        message.body = Body::AtSender;
        rows.cars[row as usize].flags |= flags;
        return answer(rows, row);
    }
    message.body = Body::Passing;
    rows.cars[row as usize].state = CarState::Passing;
    open(rows, row);
    if length == 0 {
        return answer(rows, row);
    }
    ask(rows, row);
}

/// Tells the sender of a message how far it may go, if that is farther than before.
pub(crate) fn ask(rows: &mut Rows<'_>, row: Row) {
    let Rows { progress, cars, large, nodes, supplies, .. } = rows;
    let node = nodes[row as usize];
    let (number, index) = (node.graph, node.incoming());
    let (car, message) = (&mut cars[row as usize], &mut large[row as usize]);
    // A receive has one answer in the queue at most. `asked` calls this again when the answer has left.
    if !matches!(message.body, Body::Passing) || car.state != CarState::Passing {
        return;
    }
    let Some(graph) = progress.graphs.list.get_mut(number as usize).and_then(Option::as_deref_mut) else { return };
    let Some(blocks) = graph.blocks.as_deref_mut() else { return };
    let incoming = &mut blocks.incoming[index as usize];
    let passage = &incoming.passage;
    let mut mark = message.wanted;
    for part in &passage.parts[passage.at as usize..] {
        let PartKind::Inlet(index) = part.what else { continue };
        let granted = match blocks.inlets[index as usize].memory {
            InletMemory::Window(supply) => supplies.get(supply as usize).map_or(0, |supply| supply.granted),
            InletMemory::None | InletMemory::Place(_) => part.bytes,
        };
        mark = part.start + granted;
        if granted < part.bytes {
            break;
        }
    }
    let whole = mark == message.length;
    if mark <= message.wanted || !whole && message.length <= PASSED_WHOLE_MAX as u64 {
        return;
    }
    incoming.told = std::mem::replace(&mut message.wanted, mark);
    car.flags &= !car_flags::STARTED;
    answer(rows, row);
}

/// An answer has left: pieces may come, and there may be more room by now.
#[cold]
pub(crate) fn asked(rows: &mut Rows<'_>, row: Row) {
    let car = &mut rows.cars[row as usize];
    car.state = CarState::Passing;
    car.flags |= car_flags::ASKED;
    if rows.nodes[row as usize].graph != NIL {
        return ask(rows, row);
    }
    ask_for_all(rows, row);
}

/// A receive whose graph has failed asks for all that is still to come, and throws it away.
pub(super) fn ask_for_all(rows: &mut Rows<'_>, row: Row) {
    let message = &mut rows.large[row as usize];
    if message.wanted < message.length {
        message.wanted = message.length;
        rows.cars[row as usize].flags &= !car_flags::STARTED;
        answer(rows, row);
    }
}

/// Takes a piece for a receive that is not [`CarState::Receiving`], or a frame in which the sender says that no more will come.
///
/// # Errors
/// If it expects none, or not so much.
#[cold]
pub(crate) fn take_piece(rows: &mut Rows<'_>, arrival: &mut Arrival) -> Result<(), NotTaken> {
    let (row, length) = (arrival.header.message(), arrival.header.length);
    let Some(car) = rows.cars.get(row as usize).filter(|car| is_arriving(car, &rows.large[row as usize])) else {
        return Err(NotTaken::Wrong("a piece for a receive that expects none"));
    };
    if car.vc != arrival.vc {
        return Err(NotTaken::Wrong("a piece for a receive from another proc"));
    }
    if length > missing(rows, row) {
        return Err(NotTaken::Wrong("a piece longer than what was asked for"));
    }
    (arrival.to, arrival.state) = (Destination::Receive(row), ArrivalState::Placed);
    Ok(())
}

/// Bytes of a message that its sender was asked for and that have not come.
fn missing(rows: &Rows<'_>, row: Row) -> u64 {
    let (car, node) = (&rows.cars[row as usize], &rows.nodes[row as usize]);
    let mut may = rows.large[row as usize].wanted;
    if car.state == CarState::Queued
        && let Some(blocks) = rows.progress.graphs.get(node.graph).and_then(|graph| graph.blocks.as_deref())
    {
        may = blocks.incoming[node.incoming() as usize].told;
    }
    may.saturating_sub(car.done)
}

/// Whether pieces may come for a receive, as far as its sender was told to go.
fn is_arriving(car: &Car, message: &Large) -> bool {
    let state = matches!(car.state, CarState::Passing | CarState::Queued);
    car.kind == CarKind::Receive && state && matches!(message.body, Body::Passing)
}

/// Puts a piece where its bytes go. `false` if its receive expects none: it comes behind the one that ends the message.
#[cold]
pub(crate) fn place(rows: &mut Rows<'_>, arrival: &Arrival, row: Row) -> bool {
    let message = rows.large[row as usize];
    if !is_arriving(&rows.cars[row as usize], &message) {
        return false;
    }
    if arrival.header.is_stop() {
        let Rows { progress, cars, .. } = rows;
        if cars[row as usize].state == CarState::Queued {
            progress.replies.remove(cars, row);
        }
        abort(progress, cars, row, car_flags::ABANDONED);
        return true;
    }
    let length = arrival.payload.len() as u64;
    let taken = match rows.nodes[row as usize].graph {
        // Match has not counted the pieces that came in the same pass.
        _ if length > missing(rows, row) => 0,
        // Thrown away.
        NIL => length,
        _ => take_in(rows, row, arrival.payload),
    };
    let Rows { progress, cars, .. } = rows;
    cars[row as usize].done += taken;
    progress.moved.transfer += taken;
    if taken < length {
        progress.end_vc(arrival.vc, Ended::Corrupt("more of a message than was asked for".into()));
    } else if cars[row as usize].done == message.length {
        finish_car(progress, cars, row, message.length, false);
    }
    true
}

/// A whole message for a receive of a message in parts, which ends.
#[cold]
pub(crate) fn receive_whole(rows: &mut Rows<'_>, row: Row, length: u64, payload: Span) {
    if length > PASSED_WHOLE_MAX as u64 {
        // Longer ones are offered. There may be no room for it, since nobody has asked for it.
        let Rows { progress, cars, .. } = rows;
        progress
            .ended
            .push((cars[row as usize].vc, Ended::Corrupt("a long message of a block that was not offered".into())));
        progress.pending |= Pending::WORLD;
        return abort(progress, cars, row, car_flags::PEER_FAILED);
    }
    let failed = rows.progress.graphs.get(rows.nodes[row as usize].graph).is_none_or(|graph| graph.failed);
    // The application's buffers may be gone with the failure.
    let misfit = if failed { Some(car_flags::ABANDONED) } else { misfit(rows, row, length) };
    let mut moved = 0;
    if misfit.is_none() {
        open(rows, row);
        rows.cars[row as usize].done = 0;
        moved = take_in(rows, row, payload);
    }
    let Rows { progress, cars, .. } = rows;
    progress.moved.transfer += moved;
    match misfit {
        Some(flags) => {
            cars[row as usize].done = length;
            abort(progress, cars, row, flags);
        }
        None => finish_car(progress, cars, row, length, moved < length),
    }
}

/// Gives windows back, since nobody uses their memory any more: those of what message `of` passes on, or all of the graph.
pub(super) fn release_windows(rows: &mut Rows<'_>, number: u32, of: Option<Row>) {
    let Rows { progress, supplies, .. } = rows;
    let progress = &mut **progress;
    let graph = progress.graphs.list.get_mut(number as usize).and_then(Option::as_deref_mut);
    let Some(mut blocks) = graph.and_then(|graph| graph.blocks.take()) else { return };
    for inlet in &mut blocks.inlets {
        let mut outgoing = inlet.outgoing.iter().filter_map(|&outgoing| blocks.outgoing.get(outgoing as usize));
        let mut is_of = |row: Row| outgoing.any(|message| message.passage.row == row);
        if let Some(supply) = inlet.supply()
            && of.is_none_or(&mut is_of)
        {
            release(progress, supplies, supply);
            inlet.memory = InletMemory::Window(NIL);
        }
    }
    if let Some(graph) = progress.graphs.get_mut(number) {
        graph.blocks = Some(blocks);
    }
}
