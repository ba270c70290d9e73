//! The ends of peers' processes.

use super::calling::hear_call;
use super::closing;
use super::ending::end;
use super::lines::hear_line;
use super::medium::Medium;
use super::table::Stage;
use crate::LinkEvent;
use crate::processes::Process;
use tickwire_components::limits::PROCESS_CHECK_NS;

/// Handles the end of a peer's process, even if a child of it still holds its socket.
pub(crate) fn process_ended<M: Medium>(medium: &mut M, link: u32, now_ns: u64, events: &mut Vec<LinkEvent>) {
    if matches!(medium.connections_mut().stage(link), Some(Stage::Calling(_))) {
        // It may have answered, and sent messages, before it ended.
        hear_call(medium, link, now_ns, events);
    }
    // Its last message may tell more about the reason.
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

/// Checks now and then for the end of processes that no descriptor reports.
pub(super) fn ask_after_processes<M: Medium>(medium: &mut M, now_ns: u64, events: &mut Vec<LinkEvent>) {
    let connections = medium.connections_mut();
    if now_ns.wrapping_sub(connections.asked_ns) < PROCESS_CHECK_NS {
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
