//! Connections that peers ask for.

use super::line::{self, Line};
use super::medium::Medium;
use super::parts::Extra;
use super::sockets::{Accepted, Heard, Message, Socket};
use super::table::{Stage, Visitor};
use super::words::ungreeted;
use super::{closing, lines, numbers};
use crate::LinkEvent;
use crate::handshake::{Greeting, Packet};
use crate::processes::Process;
use crate::watching::Token;
use tickwire_components::limits::{ACCEPTS_A_PASS, VISITOR_SILENCE_NS_MAX, VISITORS_MAX};

/// Accepts waiting peers. Most have sent their greeting by now.
pub(super) fn accept<M: Medium>(medium: &mut M, now_ns: u64, events: &mut Vec<LinkEvent>) {
    for _ in 0..ACCEPTS_A_PASS {
        if visitor_count(medium) >= VISITORS_MAX {
            return crowd(medium, true);
        }
        let mut socket = match medium.accept() {
            Some(Accepted::Visitor(socket)) => socket,
            Some(Accepted::Refused) => continue,
            None => return,
        };
        match socket.receive() {
            Heard::Nothing => seat(medium, socket, now_ns),
            heard => answer(medium, socket, heard, events),
        }
    }
}

/// Handles a visitor that has sent something, or left.
pub(super) fn hear_visitor<M: Medium>(medium: &mut M, place: u32, events: &mut Vec<LinkEvent>) {
    let Some(seat) = medium.connections_mut().visitors.get_mut(place as usize) else { return };
    let Some(visitor) = seat else { return };
    let heard = visitor.socket.receive();
    if matches!(heard, Heard::Nothing) {
        return;
    }
    let Some(Visitor { socket, .. }) = seat.take() else { return };
    medium.watched().forget(&socket);
    answer(medium, socket, heard, events);
}

/// Disconnects visitors that were silent for too long.
pub(super) fn dismiss_visitors<M: Medium>(medium: &mut M, now_ns: u64) {
    for place in 0..medium.connections().visitors.len() {
        let seat = &mut medium.connections_mut().visitors[place];
        if let Some(visitor) = seat.take_if(|visitor| visitor.deadline_ns < now_ns) {
            line::hang_up(medium.watched(), &visitor.socket);
        }
    }
    if medium.connections().crowded && visitor_count(medium) < VISITORS_MAX {
        crowd(medium, false);
    }
}

/// The number of visitors.
fn visitor_count<M: Medium>(medium: &M) -> usize {
    medium.connections().visitors.iter().flatten().count()
}

/// Makes a peer a visitor, until it sends its greeting.
fn seat<M: Medium>(medium: &mut M, socket: M::Socket, now_ns: u64) {
    let visitors = &mut medium.connections_mut().visitors;
    let place = visitors.iter().position(Option::is_none).unwrap_or_else(|| {
        visitors.push(None);
        visitors.len() - 1
    });
    if medium.watched().add(&socket, Token::Visitor(place as u32)).is_ok() {
        let deadline_ns = now_ns.saturating_add(VISITOR_SILENCE_NS_MAX);
        medium.connections_mut().visitors[place] = Some(Visitor { socket, deadline_ns });
    }
}

/// Stops or resumes listening.
fn crowd<M: Medium>(medium: &mut M, crowded: bool) {
    let connections = medium.connections();
    let Some(listener) = &connections.listener else { return };
    if connections.crowded != crowded {
        medium.watched().pause(listener, crowded);
        medium.connections_mut().crowded = crowded;
    }
}

/// Grants or refuses a connection.
fn answer<M: Medium>(medium: &mut M, mut socket: M::Socket, heard: Heard<M::Socket>, events: &mut Vec<LinkEvent>) {
    let answer = match heard {
        Heard::Message(Message::Hello(theirs, extra)) => match judge(medium, &socket, &theirs, extra) {
            Ok(granted) => return grant(medium, socket, &theirs, granted, events),
            Err(answer) => answer,
        },
        Heard::Message(Message::Other(word)) => match medium.meet_stranger(socket, word) {
            None => return,
            Some((back, answer)) => {
                socket = back;
                answer
            }
        },
        Heard::Message(_) => Packet::Refused(ungreeted()),
        Heard::Wrong(mismatch) => Packet::Refused(mismatch.to_string()),
        Heard::Ended(_) | Heard::Nothing => return,
    };
    socket.send_packet(&answer);
    socket.hang_up();
}

/// The result of checking a visitor that may have a connection.
struct Granted<M: Medium> {
    /// Its process, if this host's kernel knows it.
    process: Option<Process>,
    /// What the medium keeps about it.
    more: M::Line,
    /// What its link is opened with.
    ends: M::Ends,
}

/// Checks a peer that asks for a connection. On failure, returns the answer that refuses it.
fn judge<M: Medium>(
    medium: &mut M,
    socket: &M::Socket,
    theirs: &Greeting,
    extra: Extra<M>,
) -> Result<Granted<M>, Packet> {
    medium.admits(&extra).map_err(Packet::Refused)?;
    let process = medium.check(socket, theirs, None).map_err(Packet::Refused)?;
    has_place(medium, theirs.proc)?;
    let (more, ends) = medium.meet(theirs, extra, process.as_ref(), None).map_err(Packet::Refused)?;
    Ok(Granted { process, more, ends })
}

/// Whether a connection with this proc may be opened now.
fn has_place<M: Medium>(medium: &M, proc: u32) -> Result<(), Packet> {
    let (me, connections) = (medium.greeting().proc, medium.connections());
    let Some(&link) = connections.procs.get(&proc) else {
        return match connections.has_number() {
            true => Ok(()),
            false => Err(Packet::Refused(format!("proc {me} has {} connections and can have no more", M::LINKS_MAX))),
        };
    };
    match connections.table.get(link as usize).map(|peer| &peer.stage) {
        // The call of the lower number wins: the peer will receive this process's call.
        Some(Stage::Calling(_)) if me < proc => Err(Packet::Later(format!("proc {me} calls proc {proc}"))),
        Some(Stage::Open(line)) if !line.socket.has_news() => {
            Err(Packet::Refused(format!("proc {proc} is connected to proc {me} already")))
        }
        Some(Stage::Open(_) | Stage::Ending(_)) => {
            Err(Packet::Later(format!("proc {me} still reads what an earlier proc {proc} has sent")))
        }
        _ => Ok(()),
    }
}

/// Answers a peer that has passed every check, and opens the link.
fn grant<M: Medium>(
    medium: &mut M,
    mut socket: M::Socket,
    theirs: &Greeting,
    granted: Granted<M>,
    events: &mut Vec<LinkEvent>,
) {
    let Ok(link) = numbers::number(medium, theirs.proc) else {
        socket.send_packet(&Packet::Later("no number is free".into()));
        return socket.hang_up();
    };
    let opened = medium.open_link(link, granted.ends);
    if let Err(reason) = &opened {
        socket.send_packet(&Packet::Refused(reason.clone()));
    }
    if opened.is_err() || !medium.welcome(link, &mut socket) {
        // If the visitor has gone meanwhile, this process's own call to the peer, if any, continues.
        socket.hang_up();
        medium.shut_link(link);
        medium.connections_mut().free.push(link);
        return;
    }
    let event = match medium.connections().procs.get(&theirs.proc).copied() {
        Some(mine) => {
            closing::take_down(medium, mine);
            LinkEvent::Replaced { link: mine, by: link }
        }
        None => LinkEvent::Accepted { link, proc: theirs.proc },
    };
    let line = Line::new(socket, granted.process, theirs.pid, granted.more);
    lines::open(medium, link, line, event, events);
}
