//! Messages in parts, where they leave again: a piece leaves once its bytes have come and the peer has asked for them. See `blocks.rs`.

use crate::procs::endpoint::Endpoint;
use crate::procs::priorities::{insert, list_sender};
use crate::rows::Rows;
use crate::steps::check::NotTaken;
use crate::steps::finish::{abort, finish_car};
use crate::steps::registering::{self, serve_run};
use crate::steps::supply::hand_out::{self, emptied};
use tickwire_components::limits::PIECES_A_PASS;
use tickwire_components::wire::Header;
use tickwire_components::{
    Blocks, Body, Car, CarKind, CarState, Ended, InletMemory, NIL, NoBytes, Node, OutgoingPassage, PartKind, Payload,
    Pending, Progress, Row, Span, Supply, car_flags,
};
use tickwire_transports::{Sent, copy};

/// Counts one of the things that a node waits for as there. After the last one the node can start.
pub(super) fn meet(progress: &mut Progress, cars: &mut [Car], nodes: &mut [Node], row: Row) {
    if cars[row as usize].state != CarState::Waiting {
        return;
    }
    let node = &mut nodes[row as usize];
    node.unmet -= 1;
    if node.unmet == 0 {
        cars[row as usize].state = CarState::Startable;
        progress.graphs.startable.push(cars, row);
        progress.pending |= Pending::POST;
    }
}

/// The next bytes of a message that have come: a run of them, from `done` on.
fn next_run(blocks: &mut Blocks, supplies: &[Supply], outgoing: u32, done: u64) -> Span {
    let Some(part) = blocks.outgoing[outgoing as usize].passage.part_at(done) else { return Span::EMPTY };
    let offset = (done - part.start) as usize;
    match part.what {
        PartKind::Given(span) => span.part(offset, usize::MAX),
        PartKind::Passed(index) => {
            let inlet = &blocks.inlets[index as usize];
            match inlet.memory {
                InletMemory::Place(place) => place.part(offset, (inlet.come as usize).saturating_sub(offset)),
                InletMemory::Window(row) => supplies.get(row as usize).map_or(Span::EMPTY, hand_out::outgoing),
                InletMemory::None => Span::EMPTY,
            }
        }
        PartKind::Inlet(_) => Span::EMPTY,
    }
}

/// Bytes have come that a message passes on. A parked message goes on. A message that leaves as a whole can start once all its bytes are
/// there.
pub(super) fn wake(rows: &mut Rows<'_>, number: u32, outgoing: u32) {
    let Rows { progress, cars, nodes, supplies, large, vcs, .. } = rows;
    let progress = &mut **progress;
    let Some(graph) = progress.graphs.list.get_mut(number as usize).and_then(Option::as_deref_mut) else { return };
    let (failed, Some(blocks)) = (graph.failed, graph.blocks.as_deref_mut()) else { return };
    let message = &mut blocks.outgoing[outgoing as usize];
    let row = message.passage.row;
    if message.is_whole {
        if message.missing == 0 && !failed && !std::mem::replace(&mut message.opened, true) {
            meet(progress, cars, nodes, row);
        }
        return;
    }
    let Car { state, done, vc, .. } = cars[row as usize];
    // A message of a failed graph goes on in any case, to say that no more will come.
    let goes_on = failed || done < large[row as usize].wanted && !next_run(blocks, supplies, outgoing, done).is_empty();
    if state != CarState::Parked || !goes_on {
        return;
    }
    cars[row as usize].state = CarState::Sending;
    insert(&mut vcs[vc as usize].data, cars, row);
    list_sender(progress, vcs, vc);
}

/// Packs a message that leaves as a whole. Bytes that have come straight to their place there are not copied.
#[expect(unsafe_code, reason = "bytes that are addresses")]
pub(super) fn gather(blocks: &Blocks, outgoing: &OutgoingPassage) {
    for part in &outgoing.passage.parts {
        let from = match part.what {
            PartKind::Given(span) => span,
            PartKind::Passed(index) => match blocks.inlets[index as usize].memory {
                // What goes to several ranks, and is not put together where it comes.
                InletMemory::Place(place) => place,
                _ => continue,
            },
            PartKind::Inlet(_) => continue,
        };
        let place = outgoing.packed.part(part.start as usize, part.bytes as usize);
        if !std::ptr::eq(from.start(), place.start()) {
            // SAFETY: whoever has built the graph keeps its buffers, and memory of its own, until its request is done.
            unsafe { copy::copy(place, from) };
        }
    }
}

/// The receiver of a message asks for more of it. Does nothing if the message was given up meanwhile.
///
/// # Errors
/// If the receiver asks for no more than before, or for more than was offered.
#[cold]
pub(crate) fn widen(rows: &mut Rows<'_>, header: &Header, vc_row: Row) -> Result<(), NotTaken> {
    let (row, wanted) = (header.message(), header.length);
    let Some(car) = rows.cars.get(row as usize) else { return Ok(()) };
    let message = &mut rows.large[row as usize];
    let asked = matches!(car.state, CarState::Sending | CarState::Parked) && matches!(message.body, Body::Passing);
    if car.kind != CarKind::Send || car.vc != vc_row || !asked || message.peer != header.tag() {
        return Ok(());
    }
    if wanted <= message.wanted || wanted > message.length {
        return Err(NotTaken::Wrong("a clear-to-send for less than before, or for more than was offered"));
    }
    message.wanted = wanted;
    let node = rows.nodes[row as usize];
    if node.graph != NIL {
        wake(rows, node.graph, node.outgoing());
    }
    Ok(())
}

/// What sending pieces of one message needs.
pub(crate) struct Sender<'a> {
    pub(crate) progress: &'a mut Progress,
    pub(crate) cars: &'a mut [Car],
    pub(crate) nodes: &'a [Node],
    pub(crate) supplies: &'a mut [Supply],
    pub(crate) endpoint: &'a mut Endpoint,
    /// The endpoint's number.
    pub(crate) number: u8,
    pub(crate) link: u32,
    pub(crate) row: Row,
    pub(crate) peer: Row,
    pub(crate) wanted: u64,
    pub(crate) length: u64,
}

/// How a message's turn at sending has ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Turn {
    /// It leaves the queue: it is done, or parked.
    Out,
    /// It stays: it has had its share.
    Share,
    /// It stays: the transport takes no more now.
    Blocked,
    /// The link has failed.
    Failed,
}

impl Sender<'_> {
    /// Sends pieces of a message, as far as bytes have come and were asked for, at most `left` of them.
    #[cold]
    pub(crate) fn send(&mut self, left: &mut usize, mut state: Option<&mut dyn std::any::Any>) -> Turn {
        debug_assert!(*left <= PIECES_A_PASS);
        let node = self.nodes[self.row as usize];
        let (number, outgoing) = (node.graph, node.outgoing());
        while *left > 0 {
            let car = self.cars[self.row as usize];
            let graph = self.progress.graphs.list.get_mut(number as usize).and_then(Option::as_deref_mut);
            let blocks = graph.and_then(|graph| {
                graph.blocks.as_deref_mut().filter(|_| !graph.failed || car.flags & car_flags::REFUSED != 0)
            });
            *left -= 1;
            // A graph that has failed says so, once a piece that has begun to leave is whole.
            let Some(mut blocks) = blocks else { return self.give_up(state) };
            let begun = blocks.outgoing[outgoing as usize].begun;
            let run = next_run(blocks, self.supplies, outgoing, car.done);
            let run = run.part(0, self.wanted.saturating_sub(car.done) as usize);
            if run.is_empty() {
                // While it waits for bytes, or to be asked for more, it holds nothing that others may need.
                if self.progress.registered != 0 {
                    registering::release(self.progress, self.row);
                }
                self.cars[self.row as usize].state = CarState::Parked;
                return Turn::Out;
            }
            let most = self.endpoint.piece_bytes.min(run.len() as u64);
            let piece = if begun > 0 { begun } else { self.endpoint.fits(self.link, most) };
            let run = run.part(0, piece as usize);
            if self.endpoint.abilities.registers {
                if let Some(turn) = self.register(run) {
                    return turn;
                }
                let graph = self.progress.graphs.list.get_mut(number as usize).and_then(Option::as_deref_mut);
                blocks = graph.and_then(|graph| graph.blocks.as_deref_mut()).expect("it was there before");
            }
            let header = Header::piece(car.context, self.peer, piece);
            // SAFETY: whoever has built the graph keeps what its nodes send; what was handed out is there until it has left.
            #[expect(unsafe_code, reason = "bytes that are addresses")]
            let payload = unsafe { Payload::new(std::slice::from_ref(&run)) };
            let transport = self.endpoint.transport.get();
            let sent = transport.send(self.link, &header, &payload, state.as_deref_mut().map(|state| state as _));
            let partly = self.endpoint.rows.is_some() && sent == Sent::Blocked;
            blocks.outgoing[outgoing as usize].begun = if partly { piece } else { 0 };
            let car = &mut self.cars[self.row as usize];
            car.flags &= !car_flags::REFUSED;
            match sent {
                Sent::Done => {}
                Sent::Blocked if partly => {
                    car.flags |= car_flags::REFUSED;
                    return Turn::Blocked;
                }
                Sent::Blocked => return Turn::Blocked,
                Sent::Failed => return Turn::Failed,
            }
            self.progress.work.sent += 1;
            self.progress.moved.transfer += piece;
            if let Some(message) = blocks.outgoing.get_mut(outgoing as usize)
                && let Some(part) = message.passage.part_at(car.done)
                && let PartKind::Passed(index) = part.what
                && let Some(supply) = blocks.inlets[index as usize].supply()
            {
                emptied(self.progress, &mut self.supplies[supply as usize], piece);
            }
            car.done += piece;
            if car.done == self.length {
                finish_car(self.progress, self.cars, self.row, self.length, false);
                return Turn::Out;
            }
        }
        Turn::Share
    }

    /// Registers what is sent next, for a transport that needs this. Returns how the turn ends if that cannot be now.
    #[cold]
    fn register(&mut self, run: Span) -> Option<Turn> {
        let vc = self.cars[self.row as usize].vc;
        match serve_run(self.progress, self.endpoint, self.number, self.row, run) {
            Ok(true) => None,
            Ok(false) => Some(Turn::Blocked),
            Err(words) => {
                let words = format!("the memory of a message cannot be registered: {words}");
                self.progress.end_vc(vc, Ended::Link(words));
                Some(Turn::Failed)
            }
        }
    }

    /// Tells the peer that no more will come.
    fn give_up(&mut self, state: Option<&mut dyn std::any::Any>) -> Turn {
        let header = Header::stop(self.cars[self.row as usize].context, self.peer);
        match self.endpoint.transport.get().send(self.link, &header, &NoBytes, state) {
            Sent::Done => {}
            Sent::Blocked => return Turn::Blocked,
            Sent::Failed => return Turn::Failed,
        }
        self.progress.work.sent += 1;
        abort(self.progress, self.cars, self.row, car_flags::ABANDONED);
        Turn::Out
    }
}
