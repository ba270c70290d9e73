//! What peers of open connections say beside their frames, and the ends of their processes.

use super::ending::end;
use super::line::Line;
use super::medium::Medium;
use super::sockets::{Heard, Message, Socket};
use super::table::{Peer, Stage};
use super::{closing, words};
use crate::LinkEvent;
use crate::processes::{self, Process};

/// Messages of a peer that one look hears: more than one read gives.
const HEARD_MAX: u32 = 256;

/// Watches the connection of a link whose sides have agreed.
pub(super) fn open<M: Medium>(medium: &mut M, link: u32, line: Line<M>, event: LinkEvent, events: &mut Vec<LinkEvent>) {
    let watched = line.watch(medium.watched(), link);
    let connections = medium.connections_mut();
    connections.calls.retain(|&other| other != link);
    connections.procs.insert(connections.table[link as usize].proc, link);
    connections.put(link, Stage::Open(line));
    // The engine has to know the link to hear of its end.
    events.push(event);
    if let Err(error) = watched {
        closing::fail_telling(medium, link, words::unwatched(error), events);
    }
}

/// A peer has said something beside its frames, or its socket has ended. Several words may come at once, and the descriptor
/// may not ring again for those that have been read.
pub(super) fn hear_line<M: Medium>(medium: &mut M, link: u32, now_ns: u64) {
    for _ in 0..HEARD_MAX {
        if !hear_one(medium, link, now_ns) {
            return;
        }
    }
}

/// Hears the next word of a peer; `false` if none follows.
fn hear_one<M: Medium>(medium: &mut M, link: u32, now_ns: u64) -> bool {
    let Some(Peer { proc, stage }) = medium.connections_mut().table.get_mut(link as usize) else { return false };
    let proc = *proc;
    let line = match stage {
        Stage::Open(line) => line,
        Stage::Ending(ending) => {
            // It waits no longer for an answer.
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

/// A peer's process has ended, though a child of it may hold its socket.
pub(super) fn process_ended<M: Medium>(medium: &mut M, link: u32, now_ns: u64, events: &mut Vec<LinkEvent>) {
    // What it said last tells more.
    hear_line(medium, link, now_ns);
    let Some(peer) = medium.connections().table.get(link as usize) else { return };
    match &peer.stage {
        Stage::Open(line) => {
            let reason = medium.gone(peer.proc, line.pid(), None);
            end(medium, link, reason, None, now_ns);
        }
        Stage::Calling(call) => {
            if let Some(reason) = call.process_ended() {
                closing::fail(medium, link, reason, events);
            }
        }
        _ => {}
    }
}

/// Asks now and then after processes that no descriptor tells of.
pub(super) fn ask_after_processes<M: Medium>(medium: &mut M, now_ns: u64, events: &mut Vec<LinkEvent>) {
    let connections = medium.connections_mut();
    if now_ns.wrapping_sub(connections.asked_ns) < processes::ASK_NS {
        return;
    }
    connections.asked_ns = now_ns;
    let silent = |process: &Process| process.descriptor().is_none() && process.has_ended();
    for link in connections.links() {
        let has_ended = match medium.connections_mut().stage(link) {
            Some(Stage::Open(line)) => line.process().is_some_and(silent),
            Some(Stage::Calling(call)) => call.process_ended().is_some(),
            _ => false,
        };
        if has_ended {
            process_ended(medium, link, now_ns, events);
        }
    }
}
