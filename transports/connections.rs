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
//! A medium brings what only it has: sockets, what a greeting passes besides, checks of a peer, and how frames go
//! ([`Medium`]). Nothing here is on the path of a message.

mod answering;
mod calling;
mod closing;
mod ending;
mod lines;
mod sockets;
mod table;
#[cfg(all(test, not(miri)))]
mod tests;

#[cfg(all(test, not(miri)))]
pub(crate) use answering::{SILENCE_NS_MAX, VISITORS_MAX};
pub(crate) use calling::{Call, call, unwatched};
pub(crate) use closing::{close, close_link, fail, fail_telling, give_up, say_goodbye};
pub(crate) use lines::{Line, out_of_turn};
pub(crate) use sockets::{accept, has_news};
pub(crate) use table::Connections;
#[cfg(all(test, not(miri)))]
pub(crate) use table::Stage;

use crate::LinkEvent;
use crate::handshake::{Greeting, JOB_BYTES_MAX, Mismatch, Packet};
use crate::processes::{self, Process};
use crate::watching::{Token, Watched};
use rustix::fd::AsFd;

/// Connections that wait for an accept at most; the kernel lowers it to its own limit.
pub(crate) const BACKLOG: i32 = 4096;

/// One end of a control connection. It blocks nobody.
pub(crate) trait Socket: AsFd {
    /// What a greeting says or passes besides.
    type Extra;
    /// What a peer says when it closes in order.
    type Goodbye;
    /// What else is said over an open connection.
    type Word;

    /// The next message. Every byte may be hostile.
    fn receive(&mut self) -> Heard<Self>
    where
        Self: Sized;

    /// Sends a packet with nothing besides, if that goes.
    fn send_packet(&mut self, packet: &Packet);

    /// Says that nothing follows.
    fn say_goodbye(&mut self, goodbye: &Self::Goodbye);

    /// Whether there is something to receive, or the other end is closed.
    fn has_news(&self) -> bool;

    /// Closes it for the peer, which still reads what was sent, also if a child holds the descriptor.
    fn hang_up(&self);
}

/// What reading a control connection gave.
pub(crate) enum Heard<S: Socket> {
    /// A message.
    Message(Message<S>),
    /// Bytes that are no message, and why.
    Wrong(Mismatch),
    /// Nothing yet.
    Nothing,
    /// The other end is closed, or does not answer any more; and why, if the kernel says.
    Ended(Option<String>),
}

/// A message of a control connection.
pub(crate) enum Message<S: Socket> {
    /// A proc asks for a connection.
    Hello(Greeting, S::Extra),
    /// A proc grants one.
    Welcome(Greeting, S::Extra),
    /// A proc refuses or gives up a connection, and why.
    Refused(String),
    /// A proc cannot grant a connection right now: call again.
    Later,
    /// A proc has closed a connection in order.
    Closed(S::Goodbye),
    /// What only this medium knows.
    Other(S::Word),
}

/// What [`Medium::accept`] found.
pub(crate) enum Accepted<S> {
    /// A peer to listen to.
    Visitor(S),
    /// One that has been refused at once.
    Refused,
}

/// What an endpoint brings for its connections.
pub(crate) trait Medium: Sized {
    /// Links at most.
    const LINKS_MAX: usize;
    /// Whether a peer that has closed in order waits for a goodbye once all that it has sent is here.
    const ANSWERS_GOODBYES: bool;

    /// Control connections.
    type Socket: Socket;
    /// What a proc's card says.
    type Card;
    /// What a call keeps besides its socket.
    type Request;
    /// What an open connection keeps besides its socket.
    type Line;
    /// What a link is opened with.
    type Ends;
    /// What tells whether more comes from a peer that has gone.
    type Ending;

    /// All connections.
    fn connections(&self) -> &Connections<Self>;
    /// The same, to change them.
    fn connections_mut(&mut self) -> &mut Connections<Self>;
    /// What the endpoint sleeps on.
    fn watched(&self) -> &Watched;
    /// What the own proc says of itself; its slot is not set.
    fn greeting(&self) -> &Greeting;
    /// How long a living process may take to answer a call, ms; `None` for as long as it lives.
    fn connect_ms_max(&self) -> Option<u32>;

    /// Makes a place for a link, which may be a new one.
    ///
    /// # Errors
    /// Why there is none.
    fn reserve(&mut self, link: u32, is_new: bool) -> Result<(), String>;
    /// Whether the number of a closed link may be used again.
    fn reuses_links(&self) -> bool {
        true
    }
    /// Lets frames through a reserved link.
    ///
    /// # Errors
    /// Why that cannot be, for both sides.
    fn open_link(&mut self, link: u32, ends: Self::Ends) -> Result<(), String>;
    /// Lets no more frames through a link, which may not have been opened.
    fn shut_link(&mut self, link: u32);

    /// The process that a card names, if this host's kernel can tell of it.
    ///
    /// # Errors
    /// That it has ended, in words.
    fn find_process(&self, card: &Self::Card) -> Result<Option<Process>, String>;
    /// Prepares a call over a reserved link.
    ///
    /// # Errors
    /// Why the proc cannot be called.
    fn prepare_call(&mut self, link: u32, card: Self::Card) -> Result<Self::Request, String>;
    /// The next step towards a peer that has been greeted: `true` once it has.
    ///
    /// # Errors
    /// Why the call cannot succeed.
    fn greet(&mut self, link: u32, proc: u32, call: &mut Call<Self>, now_ns: u64) -> Result<bool, String>;
    /// The peer has hung up before it answered, and is called again.
    fn has_hung_up(&self, _request: &mut Self::Request) {}
    /// That a proc has not answered in time, and what to do.
    fn silent(&self, proc: u32, waited_ms: u64, request: &Self::Request) -> String;

    /// The next peer that waits at the listener.
    fn accept(&mut self) -> Option<Accepted<Self::Socket>>;
    /// Whether a visitor with such a greeting may ask for a connection.
    ///
    /// # Errors
    /// Why not.
    fn admits(&self, _extra: &Extra<Self>) -> Result<(), String> {
        Ok(())
    }
    /// Checks a peer whose greeting fits against what the kernel says of it; gives its process, if the kernel can tell of it.
    ///
    /// # Errors
    /// What does not fit.
    fn identify(&self, socket: &Self::Socket, theirs: &Greeting) -> Result<Option<Process>, String>;
    /// Checks what a greeting brings besides. With the `request` of a call that it answers.
    ///
    /// # Errors
    /// What cannot be used.
    fn meet(
        &mut self,
        theirs: &Greeting,
        extra: Extra<Self>,
        process: Option<&Process>,
        request: Option<Self::Request>,
    ) -> Result<(Self::Line, Self::Ends), String>;
    /// Answers a visitor to whom a link has been opened. `false` if it has gone meanwhile.
    fn welcome(&mut self, link: u32, socket: &mut Self::Socket) -> bool;

    /// A peer has said something that only this medium knows.
    ///
    /// # Errors
    /// Why the connection ends.
    fn hear_word(&mut self, link: u32, word: <Self::Socket as Socket>::Word) -> Result<(), String>;
    /// That a peer has gone without a word, in words; `why`, if the kernel has said.
    fn gone(&self, proc: u32, pid: u32, why: Option<String>) -> String;

    /// A connection has ended, with a goodbye or without: what is still to come of it.
    fn start_ending(&mut self, link: u32, goodbye: Option<Goodbye<Self>>, now_ns: u64) -> Self::Ending;
    /// Whether all has been read that will come of an ended connection.
    fn is_over(&mut self, link: u32, ending: &mut Self::Ending, now_ns: u64) -> bool;
    /// What this side says when it closes a link.
    fn goodbye(&mut self, link: u32) -> Goodbye<Self>;
    /// Says to all peers that nothing follows, and waits as long as they need.
    fn say_goodbyes(&mut self) {
        for link in self.connections().links() {
            say_goodbye(self, link);
        }
    }

    /// What tells of messages has rung.
    fn has_rung(&mut self) {}

    /// The own greeting, for a link of this number.
    fn introduction(&self, link: u32) -> Greeting {
        Greeting { slot: link, ..self.greeting().clone() }
    }
}

/// What a greeting over a medium brings besides.
pub(crate) type Extra<M> = <<M as Medium>::Socket as Socket>::Extra;
/// What is said over a medium when a connection is closed in order.
pub(crate) type Goodbye<M> = <<M as Medium>::Socket as Socket>::Goodbye;

/// One bounded look at all descriptors.
pub(crate) fn look<M: Medium>(medium: &mut M, now_ns: u64, events: &mut Vec<LinkEvent>) {
    for token in medium.watched().look() {
        match token {
            Token::Messages => medium.has_rung(),
            Token::Listener => answering::accept(medium, now_ns, events),
            Token::Visitor(place) => answering::hear_visitor(medium, place, events),
            Token::Call(link) => calling::hear_call(medium, link, now_ns, events),
            Token::Line(link) => lines::hear_line(medium, link, now_ns),
            Token::Process(link) => ending::process_ended(medium, link, now_ns, events),
        }
    }
}

/// Does what no descriptor tells of.
pub(crate) fn tend<M: Medium>(medium: &mut M, now_ns: u64, events: &mut Vec<LinkEvent>) {
    ending::ask_after_processes(medium, now_ns, events);
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
