//! Connections between procs, written once for every medium whose control sockets can carry a greeting.
//!
//! A *link* is the number under which the engine knows a connection. Each link is in one of several stages ([`table::Stage`]): this process
//! calls the peer, the connection is open, the peer has gone and its last frames are still to be read, or the number is unused. A peer that
//! has connected and not sent a greeting has no link yet: it is a *visitor*.
//!
//! - **Calling.** A proc is called until it answers or refuses, or until its process has ended; an engine may bound the time. A peer that
//!   asks to be called later, or hangs up before it has answered, is called again.
//! - **Answering.** A visitor must send its greeting within a bounded time. If the greeting does not fit, the visitor is refused with the
//!   reason. When two procs call each other, the call of the lower number wins; the other call is taken down.
//! - **Ending.** A connection has ended when its socket has ended, when the peer's process has (a child of it may still hold the socket),
//!   or when the peer says so. Frames that the peer has sent before are read first; then the end is reported, once.
//!
//! A medium provides what is specific to it: sockets, what its greetings carry besides, checks of a peer, and how frames travel ([`Parts`]
//! and [`Medium`]). Nothing here is on the path of a message.

mod answering;
mod call;
mod calling;
mod closing;
mod deaths;
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

pub(crate) use call::Call;
pub(crate) use calling::call;
pub(crate) use closing::{close, close_link, fail_telling, give_up};
#[cfg(all(test, not(miri)))]
pub(crate) use deaths::process_ended;
pub(crate) use line::Line;
pub(crate) use medium::{Medium, medium_fields};
pub(crate) use parts::Parts;
#[cfg(all(test, not(miri)))]
pub(crate) use sockets::accept;
pub(crate) use sockets::{Accepted, Heard, Message, NoRoom, Socket, Spare, has_news};
pub(crate) use table::Connections;
#[cfg(all(test, not(miri)))]
pub(crate) use table::Stage;
pub(crate) use words::{out_of_turn, ungreeted, unwatched};

use crate::LinkEvent;
use crate::handshake::{Greeting, JOB_BYTES_MAX};
use crate::processes;
use crate::watching::Token;

/// Handles all descriptors that are ready, in one bounded pass.
pub(crate) fn look<M: Medium>(medium: &mut M, now_ns: u64, events: &mut Vec<LinkEvent>) {
    for token in medium.watched().look() {
        match token {
            Token::Messages => medium.has_rung(),
            Token::Listener => answering::accept(medium, now_ns, events),
            Token::Visitor(place) => answering::hear_visitor(medium, place, events),
            Token::Call(link) => calling::hear_call(medium, link, now_ns, events),
            Token::Line(link) => lines::hear_line(medium, link, now_ns),
            Token::Process(link) => deaths::process_ended(medium, link, now_ns, events),
        }
    }
}

/// Does the work that no descriptor reports.
pub(crate) fn tend<M: Medium>(medium: &mut M, now_ns: u64, events: &mut Vec<LinkEvent>) {
    lines::hear_rest(medium, now_ns);
    deaths::ask_after_processes(medium, now_ns, events);
    calling::hurry_calls(medium, now_ns, events);
    answering::dismiss_visitors(medium, now_ns);
    ending::report_endings(medium, now_ns, events);
}

/// The greeting of this process over any medium. Each link adds its number.
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

/// Checks that a number is that of a peer.
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
