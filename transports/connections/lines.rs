//! Messages of peers besides frames.

use super::ending::end;
use super::line::Line;
use super::medium::Medium;
use super::sockets::{Heard, Message, Socket};
use super::table::{Peer, Stage};
use super::{closing, words};
use crate::LinkEvent;
use tickwire_components::limits::PEER_MESSAGES_A_PASS;

/// Opens a link whose sides have agreed, and starts to watch its connection.
pub(super) fn open<M: Medium>(medium: &mut M, link: u32, line: Line<M>, event: LinkEvent, events: &mut Vec<LinkEvent>) {
    let watched = line.watch(medium.watched(), link);
    let connections = medium.connections_mut();
    connections.calls.retain(|&other| other != link);
    connections.procs.insert(connections.table[link as usize].proc, link);
    connections.put(link, Stage::Open(line));
    // The engine must know the link before it is told of its end.
    events.push(event);
    if let Err(error) = watched {
        closing::fail_telling(medium, link, words::unwatched(error), events);
    }
}

/// A peer has said something beside its frames, or its socket has ended. Several words may come at once, and the descriptor
/// may not ring again for those that have been read.
pub(super) fn hear_line<M: Medium>(medium: &mut M, link: u32, now_ns: u64) {
    for _ in 0..PEER_MESSAGES_A_PASS {
        if !hear_one(medium, link, now_ns) {
            return;
        }
    }
    let unheard = &mut medium.connections_mut().unheard;
    if !unheard.contains(&link) {
        unheard.push(link);
    }
}

/// Goes on with the peers that had said more than one pass hears.
pub(super) fn hear_rest<M: Medium>(medium: &mut M, now_ns: u64) {
    for link in std::mem::take(&mut medium.connections_mut().unheard) {
        hear_line(medium, link, now_ns);
    }
}

/// Handles the next message of a peer; `false` if none follows.
fn hear_one<M: Medium>(medium: &mut M, link: u32, now_ns: u64) -> bool {
    let Some(Peer { proc, stage }) = medium.connections_mut().table.get_mut(link as usize) else { return false };
    let proc = *proc;
    let line = match stage {
        Stage::Open(line) => line,
        Stage::Ending(ending) => {
            // The peer no longer waits for a goodbye.
            let gone = |line: &mut Line<M>| !matches!(line.socket.receive(), Heard::Nothing | Heard::Message(_));
            if let Some(line) = ending.line.take_if(gone) {
                line.cut(medium.watched());
            }
            return false;
        }
        _ => return false,
    };
    let pid = line.pid();
    let (reason, goodbye) = match line.socket.receive() {
        Heard::Nothing => return false,
        Heard::Ended(why) => (medium.gone(proc, pid, why), None),
        Heard::Message(Message::Other(word)) => match medium.hear_word(link, word) {
            Ok(()) => return true,
            Err(reason) => (reason, None),
        },
        Heard::Message(Message::Closed(goodbye)) => {
            let reason = format!("proc {proc} (process {pid}) has closed the connection without having finalized");
            (reason, Some(goodbye))
        }
        Heard::Message(Message::Refused(why)) => (format!("proc {proc} gave the connection up: {why}"), None),
        Heard::Message(Message::Hello(..) | Message::Welcome(..) | Message::Later) => (words::out_of_turn(proc), None),
        Heard::Wrong(mismatch) => (mismatch.to_string(), None),
    };
    end(medium, link, reason, goodbye, now_ns);
    false
}
