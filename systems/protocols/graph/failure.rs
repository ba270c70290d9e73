//! Failure of graphs. A graph ends as a whole, and each member owes its peers every message that they expect. So a member whose graph
//! fails replaces each message that has not begun to leave. The replacement says that the message will not come ([`context::abandoned`]).
//! Receives stay posted, without a buffer, for what peers send meanwhile. These CARs leave the graph, and end by themselves. The graph
//! waits for CARs that use the application's memory. Members that have called with different lengths may have different graphs. Then a
//! receive may wait for a message that its peer never sends. It ends once the peer has said so ([`super::remains`]).
//!
//! Messages in parts are passed on while they come. If the receiver of such a send has asked for bytes, the send says that no more will
//! come ([`Kind::Stop`]). If the send was only offered, it leaves the graph, and says so when it is asked. A receive that has asked leaves
//! the graph too. It asks for all of the rest and throws it away, since the windows that it would wait for are given back.
//!
//! [`Kind::Stop`]: tickwire_components::wire::Kind::Stop

use super::blocks::{ask_for_all, release_windows};
use super::kept::leave_ended;
use super::messages::start_message;
use super::passing::wake;
use super::remains::leave;
use crate::rows::Rows;
use crate::steps::chain::is_passage;
use crate::steps::credit::{owe_lines, take_envelope};
use crate::steps::dismiss::dismiss;
use crate::steps::finish::{abort, free_car};
use crate::steps::matching::find_posted;
use crate::steps::registering;
use tickwire_components::wire::Header;
use tickwire_components::{
    Arrival, ArrivalState, Body, Car, CarKind, CarState, Large, NIL, Node, Pending, Request, RequestState, Row, Span,
    Way, car_flags, context,
};

/// A graph fails: nodes that have not begun leave it.
pub(super) fn give_up(rows: &mut Rows<'_>, number: u32) {
    let Some(graph) = rows.progress.graphs.get_mut(number) else { return };
    let (owner, nodes) = (graph.request, std::mem::take(&mut graph.nodes));
    let call = graph.blocks.is_none().then_some((graph.call, graph.starts));
    let mut left = Vec::with_capacity(nodes.len());
    for &row in &nodes {
        let car = rows.cars[row as usize];
        let idle = car.state == CarState::Waiting;
        let begun = is_passage(&rows.cars, row) && leaves_begun(rows, number, row);
        if !(idle || begun || car.state == CarState::Startable || is_only_queued(rows, row)) {
            left.push(row);
            continue;
        }
        if car.state == CarState::Startable {
            rows.progress.graphs.startable.remove(&mut rows.cars, row);
        }
        rows.requests[owner as usize].counter -= 1;
        rows.nodes[row as usize] = Node::NONE;
        match car.kind {
            CarKind::Computation => free_car(&mut rows.progress, &mut rows.cars, row),
            CarKind::Receive if begun => throw_away(rows, row),
            CarKind::Receive => {
                leave_receive(rows, row);
                if let Some(call) = call {
                    leave(rows, row, call);
                }
            }
            _ if begun => {
                detach(rows, row);
                rows.cars[row as usize].is_left = true;
            }
            _ => leave_send(rows, row),
        }
    }
    // A transport that has taken a part of a frame needs the rest of its bytes, so the windows stay until then.
    let begun = |row: &Row| rows.cars[*row as usize].flags & car_flags::REFUSED != 0;
    if !left.iter().any(begun) {
        release_windows(rows, number, None);
    }
    if let Some(graph) = rows.progress.graphs.get_mut(number) {
        graph.nodes = left.into();
    }
}

/// Whether a message that goes on as it comes, and has begun, can leave its graph. A send that its receiver has asked for stays, but only
/// until it has said that no more will come.
fn leaves_begun(rows: &mut Rows<'_>, number: u32, row: Row) -> bool {
    let (car, message) = (rows.cars[row as usize], &rows.large[row as usize]);
    match (car.kind, car.state) {
        (CarKind::Send, CarState::Parked) => {
            wake(rows, number, rows.nodes[row as usize].outgoing());
            false
        }
        (CarKind::Send, CarState::Offered | CarState::Queued) => !is_only_queued(rows, row),
        (CarKind::Receive, CarState::Passing | CarState::Queued) => matches!(message.body, Body::Passing),
        _ => false,
    }
}

/// A receive that has asked for a part of its message asks for the rest too, and takes none of it.
fn throw_away(rows: &mut Rows<'_>, row: Row) {
    detach(rows, row);
    // What is in the queue leaves first.
    if rows.cars[row as usize].state != CarState::Queued {
        ask_for_all(rows, row);
    }
}

/// Whether a node's message is only in a queue of this proc, so that neither peer nor transport has any of it.
fn is_only_queued(rows: &Rows<'_>, row: Row) -> bool {
    let car = &rows.cars[row as usize];
    match car.state {
        CarState::Posted | CarState::New => true,
        CarState::Queued => {
            let begun = car_flags::STARTED | car_flags::REFUSED;
            car.kind == CarKind::Send && rows.large[row as usize].way == Way::Undecided && car.flags & begun == 0
        }
        _ => false,
    }
}

/// Gives a node's CAR a detached request of its own.
fn detach(rows: &mut Rows<'_>, row: Row) {
    // Its memory may be freed from now on. What the transport has taken in part keeps it.
    if rows.progress.registered != 0 && rows.cars[row as usize].flags & car_flags::REFUSED == 0 {
        registering::release(&mut rows.progress, row);
    }
    let request = &mut rows.requests[row as usize];
    let generation = request.generation;
    *request = Request { generation, counter: 1, state: RequestState::Detached, ..Request::FREE };
    let car = &mut rows.cars[row as usize];
    (car.request, car.span) = (row, Span::EMPTY);
    rows.progress.active += 1;
    let data = std::mem::replace(&mut car.chain, NIL);
    if data != NIL {
        free_car(&mut rows.progress, &mut rows.cars, data);
    }
}

/// A receive stays for what its peer sends, and takes none of it.
fn leave_receive(rows: &mut Rows<'_>, row: Row) {
    detach(rows, row);
    if matches!(rows.cars[row as usize].state, CarState::Waiting | CarState::Startable) {
        start_message(rows, row);
    }
}

/// A send tells its peer that there is nothing to come.
fn leave_send(rows: &mut Rows<'_>, row: Row) {
    detach(rows, row);
    let car = &mut rows.cars[row as usize];
    car.context = context::abandoned(car.context);
    match car.state {
        CarState::Queued => rows.large[row as usize] = Large::of(0),
        _ => start_message(rows, row),
    }
}

/// Whether a message replaces one of a collective operation that its sender could not go on with. It is an offer if its sender had no
/// credit for a message.
pub(crate) fn is_abandonment(header: &Header) -> bool {
    let empty = (header.is_eager() || header.is_offer()) && header.length == 0;
    empty && matches!(context::plane(header.context()), context::ABANDONED | context::BLOCK_ABANDONED)
}

/// Whether a message is one of a graph.
#[inline(always)]
pub(crate) fn is_of_graph(car: &Car) -> bool {
    matches!(context::plane(car.context), context::COLLECTIVE | context::BLOCK)
}

/// Ends the receive of the message that was replaced. `false` if that receive is not posted.
#[cold]
pub(crate) fn abandon(rows: &mut Rows<'_>, arrival: &mut Arrival) -> bool {
    let header = arrival.header;
    let word = context::abandoned(header.context());
    let meant = Header::eager(word, header.source(), header.tag(), 0);
    let Rows { progress, cars, vcs, .. } = rows;
    let Some(row) = find_posted(progress, arrival.vc, &meant, cars, vcs) else { return false };
    if header.is_offer() {
        take_envelope(progress, vcs, arrival.vc);
        dismiss(progress, vcs, arrival.vc, header.context(), header.message());
    } else {
        owe_lines(progress, vcs, arrival.vc, header.length);
    }
    abort(progress, cars, row, car_flags::ABANDONED);
    arrival.state = ArrivalState::Handled;
    progress.pending |= Pending::TRANSFER;
    true
}

/// Ends a graph before its time: it fails as if a node had. Complete ends its request, at once or with the last of its nodes
/// that are at work.
pub fn cancel(rows: &mut Rows<'_>, number: u32) {
    let Some(graph) = rows.progress.graphs.get_mut(number) else { return };
    let owner = graph.request;
    if rows.requests[owner as usize].counter == 0 || std::mem::replace(&mut graph.failed, true) {
        return;
    }
    rows.cars[owner as usize].flags |= car_flags::CANCELLED;
    give_up(rows, number);
    if rows.requests[owner as usize].counter == 0 {
        leave_ended(rows, number);
        rows.requests[owner as usize].counter = 1;
        abort(&mut rows.progress, &mut rows.cars, owner, car_flags::CANCELLED);
    }
}
