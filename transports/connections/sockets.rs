//! Control sockets: what each kind must do, what is read from one, and what is done with all kinds.

use crate::handshake::{Greeting, Mismatch, Packet};
use rustix::fd::{AsFd, OwnedFd};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SocketFlags};

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

/// The next connection that waits. It blocks nobody and is not inherited.
pub(crate) fn accept(listener: &OwnedFd) -> Result<OwnedFd, Errno> {
    rustix::net::accept_with(listener, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK)
}

/// Whether there is something to read, or the other end is closed.
pub(crate) fn has_news(socket: impl AsFd) -> bool {
    let mut byte = [0u8; 1];
    let peeked = rustix::net::recv(socket, &mut byte, RecvFlags::PEEK | RecvFlags::DONTWAIT);
    !matches!(peeked, Err(Errno::AGAIN | Errno::INTR))
}
