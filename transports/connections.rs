//! Connections between procs, written once for every medium whose control sockets can carry a greeting.
//!
//! A *link* is a number under which the engine knows a connection. It is in one stage of several ([`table::Stage`]): this
//! side calls, the connection is open, its peer has gone and last frames are still to be read, or nothing is there. A peer
//! that has connected and not said who it is has no link yet: it is a *visitor*.
//!
//! - **Calling.** A proc is called until it answers, refuses, or its process has ended; an engine may bound the time. Who
//!   asks for patience, or hangs up before it has answered, is called again.
//! - **Answering.** A visitor greets within a bounded time, and is refused with the reason if what it says does not fit. When
//!   two procs call each other, the call of the lower number wins; the other one is taken down.
//! - **Ending.** A connection has ended when its socket has, when the peer's process has (a child may hold the socket), or
//!   when its peer says so. What the peer has sent before is read first; then the end is reported, once.
//!
//! A medium brings what only it has: sockets, what a greeting passes besides, checks of a peer, and how frames go ([`Parts`]
//! and [`Medium`]). Nothing here is on the path of a message.

mod answering;
mod call;
mod calling;
mod closing;
mod ending;
mod line;
mod lines;
mod medium;
mod numbers;
mod parts;
mod sockets;
mod table;
#[cfg(all(test, not(miri)))]
mod tests;
mod words;

#[cfg(all(test, not(miri)))]
pub(crate) use answering::{SILENCE_NS_MAX, VISITORS_MAX};
pub(crate) use call::Call;
pub(crate) use calling::call;
pub(crate) use closing::{close, close_link, fail, fail_telling, give_up};
pub(crate) use line::Line;
pub(crate) use medium::{Accepted, Medium, medium_fields};
pub(crate) use parts::Parts;
pub(crate) use sockets::{Heard, Message, Socket, accept, has_news};
pub(crate) use table::Connections;
#[cfg(all(test, not(miri)))]
pub(crate) use table::Stage;
pub(crate) use words::{out_of_turn, ungreeted, unwatched};

use crate::LinkEvent;
use crate::handshake::{Greeting, JOB_BYTES_MAX};
use crate::processes;
use crate::watching::Token;

/// Connections that wait for an accept at most; the kernel lowers it to its own limit.
pub(crate) const BACKLOG: i32 = 4096;

/// One bounded look at all descriptors.
pub(crate) fn look<M: Medium>(medium: &mut M, now_ns: u64, events: &mut Vec<LinkEvent>) {
    for token in medium.watched().look() {
        match token {
            Token::Messages => medium.has_rung(),
            Token::Listener => answering::accept(medium, now_ns, events),
            Token::Visitor(place) => answering::hear_visitor(medium, place, events),
            Token::Call(link) => calling::hear_call(medium, link, now_ns, events),
            Token::Line(link) => lines::hear_line(medium, link, now_ns),
            Token::Process(link) => lines::process_ended(medium, link, now_ns, events),
        }
    }
}

/// Does what no descriptor tells of.
pub(crate) fn tend<M: Medium>(medium: &mut M, now_ns: u64, events: &mut Vec<LinkEvent>) {
    lines::ask_after_processes(medium, now_ns, events);
    calling::hurry_calls(medium, now_ns, events);
    answering::dismiss_visitors(medium, now_ns);
    ending::report_endings(medium, now_ns, events);
}

/// What the own proc says of itself over any medium; links add their numbers.
pub(crate) fn greeting(job: &str, me: u32, procs: u32, frame_max: usize, boot_id: u128) -> Greeting {
    let (pid, start_time) = processes::own();
    Greeting {
        capabilities: 0,
        slot: 0,
        proc: me,
        procs,
        ring_bytes: 0,
        first_ring_bytes: 0,
        frame_max: frame_max as u64,
        pid,
        start_time,
        boot_id,
        job: job.chars().take(JOB_BYTES_MAX).collect(),
        heap_base: 0,
        heap_bytes: 0,
    }
}

/// Whether a number is that of a peer.
///
/// # Errors
/// Why it is not.
pub(crate) fn is_peer<M: Medium>(medium: &M, proc: u32) -> Result<(), String> {
    let Greeting { proc: me, procs, .. } = *medium.greeting();
    if proc == me {
        return Err("a proc reaches itself by loopback".into());
    }
    if proc >= procs {
        return Err(format!("there are {procs} procs"));
    }
    Ok(())
}
