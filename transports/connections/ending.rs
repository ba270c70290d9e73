//! How connections end by their peers: what has been sent is read first, then the end is reported.

use super::lines::{self, Line};
use super::table::Stage;
use super::{Goodbye, Medium, Socket, closing};
use crate::LinkEvent;
use crate::processes::{self, Process};

/// A connection whose peer has closed it or is gone.
pub(crate) struct Ending<M: Medium> {
    /// Why, for the engine.
    reason: String,
    /// Its socket, if the peer waits for a goodbye.
    pub(super) line: Option<Line<M>>,
    /// What this medium keeps besides.
    more: M::Ending,
}

/// Ends an open connection; its last frames are still to be read.
pub(super) fn end<M: Medium>(medium: &mut M, link: u32, reason: String, goodbye: Option<Goodbye<M>>, now_ns: u64) {
    let Some(stage @ Stage::Open(_)) = medium.connections_mut().stage(link) else { return };
    let Stage::Open(line) = std::mem::replace(stage, Stage::Gone) else { return };
    let line = if M::ANSWERS_GOODBYES && goodbye.is_some() {
        line.forget_process(medium.watched());
        Some(line)
    } else {
        line.cut(medium.watched());
        None
    };
    let more = medium.start_ending(link, goodbye, now_ns);
    let connections = medium.connections_mut();
    connections.put(link, Stage::Ending(Ending { reason, line, more }));
    connections.endings.push(link);
}

/// Reports ends whose last frames have been read.
pub(super) fn report_endings<M: Medium>(medium: &mut M, now_ns: u64, events: &mut Vec<LinkEvent>) {
    for at in (0..medium.connections().endings.len()).rev() {
        let Some(&link) = medium.connections().endings.get(at) else { continue };
        let Some(stage @ Stage::Ending(_)) = medium.connections_mut().stage(link) else { continue };
        // Out of its row for a moment, so that the endpoint can work with it.
        let Stage::Ending(mut ending) = std::mem::replace(stage, Stage::Gone) else { continue };
        let is_over = medium.is_over(link, &mut ending.more, now_ns);
        let reason = is_over.then(|| std::mem::take(&mut ending.reason));
        if let Some(line) = ending.line.as_mut().filter(|_| is_over) {
            let goodbye = medium.goodbye(link);
            line.socket.say_goodbye(&goodbye);
        }
        medium.connections_mut().put(link, Stage::Ending(ending));
        if let Some(reason) = reason {
            closing::fail(medium, link, reason, events);
        }
    }
}

/// A peer's process has ended, though a child of it may hold its socket.
pub(super) fn process_ended<M: Medium>(medium: &mut M, link: u32, now_ns: u64, events: &mut Vec<LinkEvent>) {
    // What it said last tells more.
    lines::hear_line(medium, link, now_ns);
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
