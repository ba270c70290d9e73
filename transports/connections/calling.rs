//! Connections that this process asks for. Nothing here waits: `control` retries a step that is not possible yet.

use super::call::Call;
use super::line::Line;
use super::medium::Medium;
use super::parts::Extra;
use super::sockets::{Heard, Message, Socket};
use super::table::Stage;
use super::words::{out_of_turn, unwatched};
use super::{closing, lines, numbers};
use crate::LinkEvent;
use crate::handshake::{Greeting, Mismatch, Packet};
use crate::processes::Process;
use crate::watching::Token;

/// Starts to connect, unless that has been done already.
///
/// # Errors
/// Why the proc cannot be called.
pub(crate) fn call<M: Medium>(medium: &mut M, proc: u32, card: M::Card, now_ns: u64) -> Result<u32, String> {
    let connections = medium.connections_mut();
    if !connections.is_open() {
        return Err("this endpoint is closed".into());
    }
    if let Some(&link) = connections.procs.get(&proc) {
        return match connections.stage(link) {
            Some(Stage::Open(_)) => {
                connections.queued.push(LinkEvent::Connected { link });
                Ok(link)
            }
            Some(Stage::Calling(_)) => Ok(link),
            _ => Err(format!("the last connection to proc {proc} is ending: ask again after it has failed")),
        };
    }
    let process = medium.find_process(&card)?;
    let link = numbers::number(medium, proc)?;
    let request = match medium.prepare_call(link, card) {
        Ok(request) => request,
        Err(reason) => {
            medium.connections_mut().free.push(link);
            return Err(reason);
        }
    };
    if let Some(descriptor) = process.as_ref().and_then(Process::descriptor) {
        // A process that cannot be watched is checked now and then instead.
        let _ = medium.watched().add(descriptor, Token::Process(link));
    }
    let call = Call { process, socket: None, greeted: false, started_ns: now_ns, next_ns: now_ns, request };
    let connections = medium.connections_mut();
    connections.put(link, Stage::Calling(Box::new(call)));
    connections.procs.insert(proc, link);
    connections.calls.push(link);
    if let Err(reason) = advance(medium, link, now_ns) {
        closing::take_down(medium, link);
        numbers::free_number(medium, link);
        return Err(reason);
    }
    Ok(link)
}

/// Does the next step of every call.
pub(super) fn hurry_calls<M: Medium>(medium: &mut M, now_ns: u64, events: &mut Vec<LinkEvent>) {
    for at in (0..medium.connections().calls.len()).rev() {
        let Some(&link) = medium.connections().calls.get(at) else { continue };
        if let Err(reason) = advance(medium, link, now_ns) {
            closing::fail(medium, link, reason, events);
        }
    }
}

/// Does the next step of a call, if one is due.
fn advance<M: Medium>(medium: &mut M, link: u32, now_ns: u64) -> Result<(), String> {
    let Some((proc, mut call)) = medium.connections_mut().take_call(link) else { return Ok(()) };
    let outcome = step(medium, link, proc, &mut call, now_ns);
    medium.connections_mut().put(link, Stage::Calling(call));
    outcome
}

/// As [`advance`], with the call taken out of its row.
fn step<M: Medium>(medium: &mut M, link: u32, proc: u32, call: &mut Call<M>, now_ns: u64) -> Result<(), String> {
    let waited_ms = now_ns.saturating_sub(call.started_ns) / 1_000_000;
    if medium.connect_ms_max().is_some_and(|most| waited_ms > most.into()) {
        return Err(medium.silent(proc, waited_ms, &call.request));
    }
    if call.greeted || now_ns < call.next_ns || !medium.greet(link, proc, call, now_ns)? {
        return Ok(());
    }
    if let Some(socket) = &call.socket {
        medium.watched().add(socket, Token::Call(link)).map_err(unwatched)?;
    }
    call.greeted = true;
    Ok(())
}

/// Handles a peer that has answered a call, or hung up.
pub(super) fn hear_call<M: Medium>(medium: &mut M, link: u32, now_ns: u64, events: &mut Vec<LinkEvent>) {
    let Some((proc, mut call)) = medium.connections_mut().take_call(link) else { return };
    let heard = call.socket.as_mut().filter(|_| call.greeted).map_or(Heard::Nothing, Socket::receive);
    let failed = match heard {
        Heard::Nothing => None,
        Heard::Ended(_) => {
            medium.has_hung_up(&mut call.request);
            call_again(medium, &mut call, now_ns);
            None
        }
        Heard::Message(Message::Later) => {
            call_again(medium, &mut call, now_ns);
            None
        }
        Heard::Message(Message::Welcome(theirs, extra)) => {
            hear_welcome(medium, link, proc, *call, &theirs, extra, events);
            // What the peer has said behind its welcome may have been read with it, and the descriptor stays silent then.
            return lines::hear_line(medium, link, now_ns);
        }
        Heard::Message(Message::Refused(reason)) => Some(format!("proc {proc} refused the connection: {reason}")),
        Heard::Message(Message::Hello(..) | Message::Closed(_) | Message::Other(_)) => Some(out_of_turn(proc)),
        Heard::Wrong(mismatch) => Some(mismatch.to_string()),
    };
    medium.connections_mut().put(link, Stage::Calling(call));
    if let Some(reason) = failed {
        closing::fail(medium, link, reason, events);
    }
}

/// Calls again, since the peer has hung up before it answered, or asks for that.
fn call_again<M: Medium>(medium: &M, call: &mut Call<M>, now_ns: u64) {
    call.drop_socket(medium.watched());
    call.wait(now_ns);
}

/// Handles a peer that has granted a connection: checks its greeting, and opens the link. The call has been taken out of its row.
fn hear_welcome<M: Medium>(
    medium: &mut M,
    link: u32,
    proc: u32,
    call: Call<M>,
    theirs: &Greeting,
    extra: Extra<M>,
    events: &mut Vec<LinkEvent>,
) {
    call.forget_process(medium.watched());
    let Call { socket: Some(mut socket), request, process: called, .. } = call else { return };
    medium.watched().forget(&socket);
    let opened = medium.check(&socket, theirs, called).and_then(|process| {
        if theirs.proc != proc {
            return Err(Mismatch::Other { theirs: theirs.proc, expected: proc }.to_string());
        }
        let (more, ends) = medium.meet(theirs, extra, process.as_ref(), Some(request))?;
        medium.open_link(link, ends)?;
        Ok((process, more))
    });
    match opened {
        Ok((process, more)) => {
            let line = Line::new(socket, process, theirs.pid, more);
            lines::open(medium, link, line, LinkEvent::Connected { link }, events);
        }
        Err(reason) => {
            socket.send_packet(&Packet::Refused(reason.clone()));
            socket.hang_up();
            closing::fail(medium, link, reason, events);
        }
    }
}
