//! Control sockets: the operations of each kind, and functions common to all kinds.

use crate::handshake::{Greeting, Mismatch, Packet};
use rustix::fd::{AsFd, OwnedFd};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SocketFlags};

/// One end of a control connection. No call blocks.
pub(crate) trait Socket: AsFd {
    /// What a greeting carries besides.
    type Extra;
    /// What a peer says when it closes in order.
    type Goodbye;
    /// The other messages of an open connection.
    type Word;

    /// The next message. Every byte may be hostile.
    fn receive(&mut self) -> Heard<Self>
    where
        Self: Sized;

    /// Sends a packet with nothing else, if possible.
    fn send_packet(&mut self, packet: &Packet);

    /// Tells the peer that nothing follows.
    fn say_goodbye(&mut self, goodbye: &Self::Goodbye);

    /// Whether there is something to receive, or the peer has closed the connection.
    fn has_news(&self) -> bool;

    /// Closes the connection for the peer, even if a child process holds the descriptor. The peer can still read what was sent.
    fn hang_up(&self);
}

/// The result of reading a control connection.
pub(crate) enum Heard<S: Socket> {
    /// A message.
    Message(Message<S>),
    /// Bytes that are no message, and why.
    Wrong(Mismatch),
    /// Nothing yet.
    Nothing,
    /// The peer has closed the connection, or does not answer any more; with the reason, if the kernel reports one.
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
    /// A message that only this medium knows.
    Other(S::Word),
}

/// Accepts the next waiting connection. It does not block, and child programs do not inherit it.
pub(crate) fn accept(listener: &OwnedFd) -> Result<OwnedFd, Errno> {
    rustix::net::accept_with(listener, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK)
}

/// The next peer that waited at a listener.
pub(crate) enum Accepted<S> {
    /// A peer whose greeting is expected.
    Visitor(S),
    /// A peer that has been refused at once.
    Refused,
}

/// A descriptor whose only use is to be closed for a moment when this process has no free number for a peer that waits.
pub(crate) struct Spare(Option<OwnedFd>);

impl Spare {
    /// One that duplicates another descriptor.
    ///
    /// # Errors
    /// There is no free number.
    pub(crate) fn of(descriptor: &OwnedFd) -> Result<Self, Errno> {
        rustix::io::fcntl_dupfd_cloexec(descriptor, 0).map(|spare| Spare(Some(spare)))
    }

    /// Accepts the next peer. One for which there is no free number would wait for ever: it is accepted in place of the spare descriptor,
    /// and refused by `refuse`. `None` if nobody waits.
    pub(crate) fn accept<S>(
        &mut self,
        listener: &OwnedFd,
        wrap: impl FnOnce(OwnedFd) -> S,
        refuse: impl FnOnce(S),
    ) -> Option<Accepted<S>> {
        match accept(listener) {
            Ok(socket) => {
                self.renew(listener);
                Some(Accepted::Visitor(wrap(socket)))
            }
            Err(Errno::MFILE | Errno::NFILE) => {
                drop(self.0.take()?);
                let accepted = accept(listener).map(|socket| refuse(wrap(socket)));
                self.renew(listener);
                accepted.ok().map(|()| Accepted::Refused)
            }
            Err(_) => None,
        }
    }

    /// Another thread may have taken the number.
    fn renew(&mut self, descriptor: &OwnedFd) {
        if self.0.is_none() {
            self.0 = Self::of(descriptor).ok().and_then(|spare| spare.0);
        }
    }
}

/// This process has no room for the descriptors of a connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NoRoom;

impl NoRoom {
    /// The text for the peer.
    pub(crate) fn words(self, me: u32) -> String {
        format!("proc {me} may open no more files, and a connection needs up to three: raise its limit (ulimit -n)")
    }
}

/// Whether there is something to read, or the peer has closed the connection.
pub(crate) fn has_news(socket: impl AsFd) -> bool {
    let mut byte = [0u8; 1];
    let peeked = rustix::net::recv(socket, &mut byte, RecvFlags::PEEK | RecvFlags::DONTWAIT);
    !matches!(peeked, Err(Errno::AGAIN | Errno::INTR))
}
