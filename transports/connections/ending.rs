//! Connections that their peers end: frames already sent are read first, then the end is reported.

use super::closing;
use super::medium::Medium;
use super::parts::Goodbye;
use super::sockets::Socket;
use super::table::{Ending, Stage};
use crate::LinkEvent;

/// Ends an open connection. Its last frames are still to be read.
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
        // The stage is taken out of its row meanwhile, so that the endpoint can work with it.
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
