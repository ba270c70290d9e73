//! What an endpoint has for itself, and the one `epoll` instance that all its descriptors are in.

use super::{ShmConfig, segment, socket};
use crate::handshake::Greeting;
use rustix::event::epoll;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use smallvec::SmallVec;
use std::sync::Arc;

/// What stays the same while an endpoint is open.
pub(super) struct Own {
    pub(super) config: ShmConfig,
    pub(super) uid: u32,
    pub(super) card: [u8; 8],
    pub(super) greeting: Greeting,
    pub(super) inbox: OwnedFd,
    pub(super) doorbell: Arc<OwnedFd>,
    pub(super) epoll: OwnedFd,
    /// The process's shared heap, if peers get it.
    pub(super) heap: Option<BorrowedFd<'static>>,
}

/// What a descriptor in the `epoll` instance is.
#[derive(Clone, Copy)]
pub(super) enum Token {
    Doorbell,
    Listener,
    Visitor(u32),
    Call(u32),
    Line(u32),
    Process(u32),
}

impl Token {
    pub(super) fn pack(self) -> u64 {
        let (kind, number) = match self {
            Token::Doorbell => (0, 0),
            Token::Listener => (1, 0),
            Token::Visitor(place) => (2, place),
            Token::Call(link) => (3, link),
            Token::Line(link) => (4, link),
            Token::Process(link) => (5, link),
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
            5 => Token::Process(number),
            _ => Token::Doorbell,
        }
    }
}

impl Own {
    pub(super) fn watch(&self, descriptor: &OwnedFd, token: Token) -> Result<(), Errno> {
        let data = epoll::EventData::new_u64(token.pack());
        epoll::add(&self.epoll, descriptor, data, epoll::EventFlags::IN)
    }

    /// Takes a descriptor out before it is closed: a child may hold it, which would keep it in.
    pub(super) fn forget(&self, descriptor: &OwnedFd) {
        let _ = epoll::delete(&self.epoll, descriptor);
    }

    /// Closes a socket for its peer, though a child may hold it.
    pub(super) fn hang_up(&self, socket: &OwnedFd) {
        self.forget(socket);
        socket::hang_up(socket);
    }

    pub(super) fn greeting(&self, slot: u32) -> Greeting {
        Greeting { slot, ..self.greeting.clone() }
    }

    /// What a greeting passes besides the segment of the pair.
    pub(super) fn passed<'a>(&'a self, pair: Option<BorrowedFd<'a>>) -> SmallVec<[BorrowedFd<'a>; 4]> {
        pair.into_iter().chain([self.inbox.as_fd(), self.doorbell.as_fd()]).chain(self.heap).collect()
    }

    pub(super) fn place(&self) -> segment::Place<'_> {
        let ShmConfig { job, me, directory, named, .. } = &self.config;
        segment::Place { directory, job, me: *me, named: *named }
    }
}
