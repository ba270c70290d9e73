//! Closing connections from this side.

use super::medium::Medium;
use super::sockets::Socket;
use super::table::Stage;
use super::{line, numbers};
use crate::LinkEvent;
use crate::handshake::Packet;
use rustix::net::Shutdown;

/// Closes a link in order.
pub(crate) fn close_link<M: Medium>(medium: &mut M, link: u32) {
    medium.say_goodbye(link);
    drop_link(medium, link);
}

/// Closes a link, or ends a call, and tells the peer why.
pub(crate) fn give_up<M: Medium>(medium: &mut M, link: u32, reason: &str) {
    tell_reason(medium, link, reason);
    drop_link(medium, link);
}

/// Takes a link down, tells its peer why, and reports it as failed.
pub(crate) fn fail_telling<M: Medium>(medium: &mut M, link: u32, reason: String, events: &mut Vec<LinkEvent>) {
    tell_reason(medium, link, &reason);
    take_down(medium, link);
    events.push(LinkEvent::Failed { link, reason });
}

/// Closes all connections, and the listener.
pub(crate) fn close<M: Medium>(medium: &mut M) {
    if !medium.connections().is_open() {
        return;
    }
    medium.say_goodbyes();
    for link in medium.connections().links() {
        take_down(medium, link);
    }
    let connections = medium.connections_mut();
    connections.queued.clear();
    let (visitors, listener) = (std::mem::take(&mut connections.visitors), connections.listener.take());
    for visitor in visitors.into_iter().flatten() {
        line::hang_up(medium.watched(), &visitor.socket);
    }
    if let Some(listener) = listener {
        // A child process may hold the listener too.
        medium.watched().forget(&listener);
        let _ = rustix::net::shutdown(&listener, Shutdown::Both);
    }
}

/// Takes a link down and reports it as failed. The peer of a call is told why, since it may answer later.
pub(crate) fn fail<M: Medium>(medium: &mut M, link: u32, reason: String, events: &mut Vec<LinkEvent>) {
    if let Some(Stage::Calling(call)) = medium.connections_mut().stage(link) {
        call.refuse(&reason);
    }
    take_down(medium, link);
    events.push(LinkEvent::Failed { link, reason });
}

/// Takes a link down, whatever its stage.
pub(super) fn take_down<M: Medium>(medium: &mut M, link: u32) {
    let connections = medium.connections_mut();
    let Some(peer) = connections.table.get_mut(link as usize) else { return };
    let (proc, stage) = (peer.proc, std::mem::replace(&mut peer.stage, Stage::Gone));
    if let Stage::Free = stage {
        peer.stage = Stage::Free;
    }
    if connections.procs.get(&proc) == Some(&link) {
        connections.procs.remove(&proc);
    }
    connections.calls.retain(|&other| other != link);
    connections.endings.retain(|&other| other != link);
    match stage {
        Stage::Free | Stage::Gone => {}
        Stage::Calling(call) => call.hang_up(medium.watched()),
        Stage::Open(line) => line.cut(medium.watched()),
        Stage::Ending(ending) => {
            if let Some(line) = ending.line {
                line.cut(medium.watched());
            }
        }
    }
    medium.shut_link(link);
}

/// Tells the peer of a connection or call why it ends.
fn tell_reason<M: Medium>(medium: &mut M, link: u32, reason: &str) {
    match medium.connections_mut().stage(link) {
        Some(Stage::Open(line)) => line.socket.send_packet(&Packet::Refused(reason.to_owned())),
        Some(Stage::Calling(call)) => call.refuse(reason),
        _ => {}
    }
}

/// Takes a link down at the engine's request, so that its number may be reused.
fn drop_link<M: Medium>(medium: &mut M, link: u32) {
    take_down(medium, link);
    numbers::free_number(medium, link);
    medium.connections_mut().queued.retain(|event| *event != LinkEvent::Connected { link });
}
