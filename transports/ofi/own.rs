//! What an endpoint has for itself, and the one `epoll` instance that all its descriptors are in.

use super::OfiConfig;
use super::control::{Message, Proof, Socket};
use crate::handshake::Greeting;
use rustix::event::epoll;
use rustix::fd::{AsFd, OwnedFd};
use rustix::io::Errno;

/// What stays the same while an endpoint is open.
pub(super) struct Own {
    pub(super) config: OfiConfig,
    pub(super) card: Vec<u8>,
    /// The host part of the card.
    pub(super) host: [u8; 8],
    /// What callers have to show.
    pub(super) secret: u64,
    /// The own fabric address.
    pub(super) address: Vec<u8>,
    pub(super) greeting: Greeting,
    pub(super) epoll: OwnedFd,
}

/// What a descriptor in the `epoll` instance is.
#[derive(Clone, Copy)]
pub(super) enum Token {
    Queue,
    Listener,
    Visitor(u32),
    Call(u32),
    Line(u32),
}

impl Token {
    pub(super) fn pack(self) -> u64 {
        let (kind, number) = match self {
            Token::Queue => (0, 0),
            Token::Listener => (1, 0),
            Token::Visitor(place) => (2, place),
            Token::Call(link) => (3, link),
            Token::Line(link) => (4, link),
        };
        kind << 32 | u64::from(number)
    }

    pub(super) fn unpack(packed: u64) -> Self {
        let number = packed as u32;
        match packed >> 32 {
            1 => Token::Listener,
            2 => Token::Visitor(number),
            3 => Token::Call(number),
            4 => Token::Line(number),
            _ => Token::Queue,
        }
    }
}

impl Own {
    pub(super) fn watch(&self, descriptor: &impl AsFd, token: Token, out: bool) -> Result<(), Errno> {
        let data = epoll::EventData::new_u64(token.pack());
        let flags = if out { epoll::EventFlags::IN | epoll::EventFlags::OUT } else { epoll::EventFlags::IN };
        epoll::add(&self.epoll, descriptor, data, flags)
    }

    /// Takes a descriptor out before it is closed: a child may hold it, which would keep it in.
    pub(super) fn forget(&self, descriptor: &impl AsFd) {
        let _ = epoll::delete(&self.epoll, descriptor);
    }

    /// Closes a connection for its peer.
    pub(super) fn hang_up(&self, socket: &Socket) {
        self.forget(socket);
        socket.hang_up();
    }

    /// The own greeting, for a link of this number whose frames have to show `token`.
    pub(super) fn hello(&self, slot: u32, secret: u64, token: u64) -> Message {
        let proof = Proof { secret, token, address: self.address.clone() };
        Message::Hello(Greeting { slot, ..self.greeting.clone() }, proof)
    }

    /// The answer to one.
    pub(super) fn welcome(&self, slot: u32, token: u64) -> Message {
        let proof = Proof { secret: 0, token, address: Vec::new() };
        Message::Welcome(Greeting { slot, ..self.greeting.clone() }, proof)
    }
}

/// A number that nobody guesses; never 0.
pub(super) fn random() -> Result<u64, Errno> {
    let mut bytes = [0u8; 8];
    let mut filled = 0;
    while filled < bytes.len() {
        match rustix::rand::getrandom(&mut bytes[filled..], rustix::rand::GetRandomFlags::empty()) {
            Ok(count) => filled += count,
            Err(Errno::INTR) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(u64::from_ne_bytes(bytes).max(1))
}
