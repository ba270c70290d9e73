//! Control connections: TCP beside the fabric, for the handshake and for the end of a peer.
//!
//! A message consists of its length and its packet's length (two bytes each, big-endian), a packet of [`crate::handshake`], and what this
//! transport adds to that packet. A message without a packet is a count of frames (four bytes), or, if it is empty, the question for that
//! count. Every byte may be hostile. Sockets never block.

use super::ask::Ask;
use super::card::ADDRESS_BYTES_MAX;
use super::rma::Introduction;
use crate::connections;
use crate::handshake::{Greeting, Mismatch, PACKET_BYTES_MAX, Packet};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, sockopt};
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;
use tickwire_components::limits::KEEPALIVE_S;
use tickwire_components::wire::MAGIC;

/// Bytes before a packet.
const PREFIX: usize = 4;
/// The most bytes of a message.
const MESSAGE_BYTES_MAX: usize = PREFIX + PACKET_BYTES_MAX + PROOF + ADDRESS_BYTES_MAX;
/// Bytes of a [`Proof`] without its address.
const PROOF: usize = 17;

/// What this transport adds to a greeting.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Proof {
    /// The called proc's secret, from its card; 0 in an answer.
    pub(super) secret: u64,
    /// The token that frames to the sender of this greeting must carry.
    pub(super) token: u64,
    /// The sender's fabric address; empty in an answer.
    pub(super) address: Vec<u8>,
}

/// What a control connection carries.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Message {
    /// A proc asks for a connection.
    Hello(Greeting, Proof),
    /// A proc grants one.
    Welcome(Greeting, Proof),
    /// As [`Packet::Refused`].
    Refused(String),
    /// As [`Packet::Later`].
    Later(String),
    /// How many frames a proc has sent so far.
    Sent(u32),
    /// A proc asks how many frames the peer has sent. The answer, [`Message::Sent`], also shows that the peer's engine ticks.
    AskSent,
    /// A proc closes in order. Or, in return: a proc has received everything from a peer that closes in order.
    Closed {
        /// How many frames it has sent; none follows.
        sent: u32,
        /// How many frames it has received.
        received: u32,
    },
    /// A proc's fabric address for the long messages of this connection.
    Direct(Vec<u8>),
    /// A proc's introduction for one-sided operations.
    OneSided(Introduction),
    /// A watcher asks a question.
    Ask(Ask),
    /// The answer to a watcher's question follows.
    Answer,
}

impl Message {
    pub(super) fn encode(&self) -> Vec<u8> {
        let (packet, more) = match self {
            Message::Sent(count) => return Self::frame(&[], &count.to_be_bytes()),
            Message::AskSent => return Self::frame(&[], &[]),
            Message::Hello(greeting, proof) => (Packet::Hello(greeting.clone()), proof.encode()),
            Message::Welcome(greeting, proof) => (Packet::Welcome(greeting.clone()), proof.encode()),
            Message::Refused(why) => (Packet::Refused(why.clone()), Vec::new()),
            Message::Later(why) => (Packet::Later(why.clone()), Vec::new()),
            Message::Direct(address) => (Packet::Direct, address.clone()),
            Message::OneSided(introduction) => (Packet::OneSided, introduction.encode()),
            Message::Ask(ask) => (Packet::Ask, ask.encode()),
            Message::Answer => (Packet::Answer, Vec::new()),
            Message::Closed { sent, received } => {
                (Packet::Closed, [sent.to_be_bytes(), received.to_be_bytes()].concat())
            }
        };
        Self::frame(&packet.encode(), &more)
    }

    /// The bytes of a message, from its packet and what this transport adds to it.
    pub(super) fn frame(packet: &[u8], more: &[u8]) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(PREFIX + packet.len() + more.len());
        bytes.extend(((PREFIX + packet.len() + more.len()) as u16).to_be_bytes());
        bytes.extend((packet.len() as u16).to_be_bytes());
        bytes.extend(packet);
        bytes.extend(more);
        bytes
    }

    /// Decodes the first message in `bytes`. Returns it and its length; `None` if it is incomplete.
    pub(super) fn decode(bytes: &[u8]) -> Result<Option<(Message, usize)>, Mismatch> {
        let Some(&[l0, l1, p0, p1]) = bytes.first_chunk::<PREFIX>() else {
            // The first bytes show whether the peer is a stranger.
            return Ok(None);
        };
        let (length, packet) = (u16::from_be_bytes([l0, l1]) as usize, u16::from_be_bytes([p0, p1]) as usize);
        if length > MESSAGE_BYTES_MAX || PREFIX + packet > length {
            return Err(Mismatch::Magic);
        }
        let Some(body) = bytes.get(PREFIX..length) else { return Ok(None) };
        let (packet, more) = body.split_at(packet);
        if packet.is_empty() && more.is_empty() {
            return Ok(Some((Message::AskSent, length)));
        }
        if packet.is_empty() {
            let count = <[u8; 4]>::try_from(more);
            let count = count.map_err(|_| Mismatch::Length { theirs: more.len(), ours: 4 })?;
            return Ok(Some((Message::Sent(u32::from_be_bytes(count)), length)));
        }
        let proof = || Proof::decode(more).ok_or(Mismatch::Length { theirs: more.len(), ours: PROOF });
        let message = match Packet::decode(packet)? {
            Packet::Hello(greeting) => Message::Hello(greeting, proof()?),
            Packet::Welcome(greeting) => Message::Welcome(greeting, proof()?),
            Packet::Refused(why) => Message::Refused(why),
            Packet::Later(why) => Message::Later(why),
            Packet::Closed => {
                let counts = <[u8; 8]>::try_from(more);
                let counts = counts.map_err(|_| Mismatch::Length { theirs: more.len(), ours: 8 })?;
                let both = u64::from_be_bytes(counts);
                Message::Closed { sent: (both >> 32) as u32, received: both as u32 }
            }
            Packet::Direct if more.len() > ADDRESS_BYTES_MAX => {
                return Err(Mismatch::Length { theirs: more.len(), ours: ADDRESS_BYTES_MAX });
            }
            Packet::Direct => Message::Direct(more.to_vec()),
            Packet::OneSided => {
                let wrong = Mismatch::Length { theirs: more.len(), ours: 1 + ADDRESS_BYTES_MAX };
                Message::OneSided(Introduction::decode(more).ok_or(wrong)?)
            }
            Packet::Ask => {
                let wrong = Mismatch::Length { theirs: more.len(), ours: Ask::BYTES };
                Message::Ask(Ask::decode(more).ok_or(wrong)?)
            }
            Packet::Answer => Message::Answer,
            // These packets belong to shared memory and mean nothing over a fabric.
            Packet::AskStaging | Packet::Staging | Packet::NoStaging | Packet::Ring(_) | Packet::Shared(_) => {
                return Err(Mismatch::Kind(packet[MAGIC.len()]));
            }
        };
        Ok(Some((message, length)))
    }
}

impl Proof {
    fn encode(&self) -> Vec<u8> {
        let mut bytes = self.secret.to_be_bytes().to_vec();
        bytes.extend(self.token.to_be_bytes());
        bytes.push(self.address.len() as u8);
        bytes.extend(&self.address);
        bytes
    }

    fn decode(bytes: &[u8]) -> Option<Proof> {
        let (secret, rest) = bytes.split_first_chunk()?;
        let (token, rest) = rest.split_first_chunk()?;
        let (&length, address) = rest.split_first()?;
        let fits = address.len() == length as usize && address.len() <= ADDRESS_BYTES_MAX;
        let (secret, token) = (u64::from_be_bytes(*secret), u64::from_be_bytes(*token));
        fits.then(|| Proof { secret, token, address: address.to_vec() })
    }
}

/// The most bytes that wait for a peer. An honest peer asks for a few answers at a time, so the kernel's buffer is enough for it.
const OUTPUT_BYTES_MAX: usize = 256 << 10;

/// The result of reading a control connection.
#[derive(PartialEq, Eq, Debug)]
pub(super) enum Heard {
    /// A message, or why the bytes are none.
    Message(Result<Message, Mismatch>),
    /// Nothing yet.
    Nothing,
    /// The peer has closed the connection, or does not answer any more; with the reason, if the kernel reports one.
    Ended(Option<String>),
}

/// One end of a control connection.
pub(crate) struct Socket {
    descriptor: OwnedFd,
    /// Bytes received that are not decoded yet.
    input: Vec<u8>,
    /// Bytes that the kernel has not accepted yet.
    output: Vec<u8>,
    /// The peer takes nothing of what it makes this process say.
    is_flooded: bool,
}

impl Socket {
    /// A socket that is being connected to `to`.
    pub(super) fn call(to: SocketAddr, dead_ms_max: u32) -> Result<Self, Errno> {
        let descriptor = new_socket(to.ip())?;
        let socket = Socket::new(descriptor, dead_ms_max);
        match rustix::net::connect(&socket.descriptor, &to) {
            Ok(()) | Err(Errno::INPROGRESS | Errno::INTR) => Ok(socket),
            Err(error) => Err(error),
        }
    }

    /// Wraps a connected or connecting socket, and sets its options.
    pub(super) fn new(descriptor: OwnedFd, dead_ms_max: u32) -> Self {
        let _ = sockopt::set_tcp_nodelay(&descriptor, true);
        let _ = sockopt::set_socket_keepalive(&descriptor, true);
        let every = Duration::from_secs(KEEPALIVE_S);
        let _ = sockopt::set_tcp_keepidle(&descriptor, every);
        let _ = sockopt::set_tcp_keepintvl(&descriptor, every);
        let asked = (u64::from(dead_ms_max) / (1000 * KEEPALIVE_S)).saturating_sub(1).max(1);
        let _ = sockopt::set_tcp_keepcnt(&descriptor, asked.min(100) as u32);
        let _ = sockopt::set_tcp_user_timeout(&descriptor, dead_ms_max);
        Socket { descriptor, input: Vec::new(), output: Vec::new(), is_flooded: false }
    }

    /// Whether the connection is established.
    pub(super) fn connected(&self) -> Result<bool, Errno> {
        let mut fds = [rustix::event::PollFd::new(&self.descriptor, rustix::event::PollFlags::OUT)];
        let now = rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 };
        if rustix::event::poll(&mut fds, Some(&now)) != Ok(1) {
            return Ok(false);
        }
        match sockopt::socket_error(&self.descriptor) {
            Ok(Ok(())) => Ok(true),
            Ok(Err(error)) | Err(error) => Err(error),
        }
    }

    /// Sends a message. [`Socket::flush`] later sends the bytes that the kernel does not accept now.
    pub(super) fn tell(&mut self, message: &Message) {
        self.send(&message.encode());
    }

    /// As [`Socket::tell`], for an encoded message.
    pub(super) fn send(&mut self, message: &[u8]) {
        self.output.extend(message);
        self.flush();
        self.is_flooded |= self.output.len() > OUTPUT_BYTES_MAX;
    }

    /// Sends the bytes that the kernel has not accepted before.
    pub(super) fn flush(&mut self) {
        while !self.output.is_empty() {
            match rustix::net::send(&self.descriptor, &self.output, SendFlags::NOSIGNAL | SendFlags::DONTWAIT) {
                Ok(sent) => drop(self.output.drain(..sent)),
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return,
                // The next read reports the reason.
                Err(_) => return self.output.clear(),
            }
        }
    }

    /// The next message.
    pub(super) fn hear(&mut self) -> Heard {
        if self.is_flooded {
            return Heard::Ended(Some("it reads no answers".into()));
        }
        loop {
            match Message::decode(&self.input) {
                Ok(Some((message, length))) => {
                    self.input.drain(..length);
                    return Heard::Message(Ok(message));
                }
                Ok(None) => {}
                Err(mismatch) => return Heard::Message(Err(mismatch)),
            }
            let mut bytes = [0; MESSAGE_BYTES_MAX];
            match rustix::net::recv(&self.descriptor, &mut bytes, RecvFlags::DONTWAIT) {
                Ok((0, _)) => return Heard::Ended(None),
                Ok((count, _)) => self.input.extend_from_slice(&bytes[..count]),
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return Heard::Nothing,
                Err(error @ (Errno::TIMEDOUT | Errno::HOSTUNREACH | Errno::NETUNREACH | Errno::NETDOWN)) => {
                    return Heard::Ended(Some(error.to_string()));
                }
                Err(_) => return Heard::Ended(None),
            }
        }
    }

    /// Returns the connection for another use. Bytes that were read and not decoded are lost.
    pub(super) fn into_descriptor(self) -> OwnedFd {
        self.descriptor
    }

    /// Whether there may be a message.
    pub(super) fn has_news(&self) -> bool {
        !self.input.is_empty() || connections::has_news(self)
    }

    /// Closes it for the peer, which still reads what was sent, also if a child holds the descriptor.
    pub(super) fn hang_up(&self) {
        let _ = rustix::net::shutdown(&self.descriptor, rustix::net::Shutdown::Write);
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}

/// Listens at an address. If its port is 0, the kernel chooses one. Returns where.
pub(super) fn listen(at: SocketAddr, backlog: i32) -> Result<(OwnedFd, SocketAddr), Errno> {
    let listener = new_socket(at.ip())?;
    rustix::net::bind(&listener, &at)?;
    rustix::net::listen(&listener, backlog)?;
    let bound = rustix::net::getsockname(&listener)?;
    let bound = SocketAddr::try_from(bound).map_err(|_| Errno::AFNOSUPPORT)?;
    Ok((listener, bound))
}

fn new_socket(ip: IpAddr) -> Result<OwnedFd, Errno> {
    let family = if ip.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    rustix::net::socket_with(family, SocketType::STREAM, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK, None)
}

#[cfg(all(test, not(miri)))]
mod tests;
