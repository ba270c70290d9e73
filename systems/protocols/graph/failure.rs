//! Failure of graphs. A graph ends as a whole. Each member owes its peers a message for every one that they expect. So a member whose
//! graph fails sends in place of each message that has not begun to leave one that says so ([`context::abandoned`]), and
//! leaves its receives posted, without a buffer, for what its peers send meanwhile. These CARs are the graph's no more, and
//! end by themselves. What is at work on the application's memory is waited for. If two members have drawn different graphs since lengths
//! differ, receives of messages that the peer never sends end once it has said so ([`super::remains`]).
//!
//! Of messages that go on as they come, a send that has been asked for tells its receiver that no more will come ([`Kind::Stop`]); one
//! that has been offered does so when it is asked, and leaves the graph until then. A receive that has asked leaves the graph too: it
//! asks for all of the rest, and throws that away, since the windows that it would wait for are given back.

use super::blocks::{ask_for_all, is_passage, release_windows};
use super::kept::leave_ended;
use super::messages::start_message;
use super::passing::wake;
use super::remains::leave;
use crate::rows::Rows;
use crate::steps::credit::owe_lines;
use crate::steps::finish::{abort, free_car};
use crate::steps::matching::find_posted;
use tickwire_components::wire::{Header, Kind};
use tickwire_components::{
    Arrival, ArrivalState, Body, CarKind, CarState, Large, NIL, Node, Pending, Request, RequestState, Row, Span, Way,
    car_flags, context,
};

/// A graph fails: nodes that have not begun leave it.
pub(super) fn give_up(rows: &mut Rows<'_>, number: u32) {
    let Some(graph) = rows.progress.graphs.get_mut(number) else { return };
    let (owner, nodes) = (graph.request, std::mem::take(&mut graph.nodes));
    let call = graph.blocks.is_none().then_some((graph.call, graph.starts));
    let mut left = Vec::with_capacity(nodes.len());
    for &row in &nodes {
        let (car, node) = (rows.cars[row as usize], rows.nodes[row as usize]);
        let idle = car.state == CarState::Waiting && node.unmet != NIL;
        let begun = is_passage(&rows.cars, row) && leaves_begun(rows, number, row);
        if !(idle || begun || car.state == CarState::Staged || is_only_queued(rows, row)) {
            left.push(row);
            continue;
        }
        if car.state == CarState::Staged {
            rows.progress.graphs.staged.remove(&mut rows.cars, row);
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
    // What a transport may have had a part of stays until it has the rest.
    let begun = |row: &Row| rows.cars[*row as usize].flags & car_flags::REFUSED != 0;
    if !left.iter().any(begun) {
        release_windows(rows, number, None);
    }
    if let Some(graph) = rows.progress.graphs.get_mut(number) {
        graph.nodes = left.into();
    }
}

/// Whether the message of a node, which goes on as it comes and has begun, can leave its graph. One that is asked for stays, to say
/// that no more will come; it need not be waited for longer than that.
fn leaves_begun(rows: &mut Rows<'_>, number: u32, row: Row) -> bool {
    let (car, message) = (rows.cars[row as usize], &rows.large[row as usize]);
    match (car.kind, car.state) {
        (CarKind::Send, CarState::Parked) => {
            wake(rows, number, rows.nodes[row as usize].computation);
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

/// Whether nobody but a queue knows of a node's message yet.
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

/// A request of its own, which nobody asks for, takes a node's CAR over.
fn detach(rows: &mut Rows<'_>, row: Row) {
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
    if matches!(rows.cars[row as usize].state, CarState::Waiting | CarState::Staged) {
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

/// Whether a message is in place of one of a collective operation that its sender cannot go on with.
pub(crate) fn is_abandonment(header: &Header) -> bool {
    let empty = header.kind() == Some(Kind::Eager) && header.length == 0;
    empty && matches!(context::plane(header.context()), context::ABANDONED | context::BLOCK_ABANDONED)
}

/// Such a message ends the receive of the one in whose place it is; `false` if that is not posted.
#[cold]
pub(crate) fn abandon(rows: &mut Rows<'_>, arrival: &mut Arrival) -> bool {
    let header = arrival.header;
    let word = context::abandoned(header.context());
    let meant = Header::new(Kind::Eager, word, header.source(), header.tag(), 0, 0);
    let Rows { progress, cars, vcs, .. } = rows;
    let Some(row) = find_posted(progress, arrival.vc, &meant, cars, vcs) else { return false };
    owe_lines(progress, vcs, arrival.vc, header.length);
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
