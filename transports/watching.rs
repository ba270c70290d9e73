//! The one `epoll` instance of an endpoint: its own descriptor, its listener, and the sockets of its connections.

use rustix::event::epoll;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use smallvec::SmallVec;
use std::mem::MaybeUninit;
use tickwire_components::limits::DESCRIPTORS_A_PASS;

/// The meaning of a watched descriptor.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Token {
    /// The descriptor that reports messages.
    Messages,
    /// The listener.
    Listener,
    /// A visitor, which has not sent a greeting, by its place.
    Visitor(u32),
    /// A connection that this process asks for, by its link.
    Call(u32),
    /// An open connection, by its link.
    Line(u32),
    /// A peer's process, by its link.
    Process(u32),
}

impl Token {
    fn pack(self) -> epoll::EventData {
        let (kind, number) = match self {
            Token::Messages => (0, 0),
            Token::Listener => (1, 0),
            Token::Visitor(place) => (2, place),
            Token::Call(link) => (3, link),
            Token::Line(link) => (4, link),
            Token::Process(link) => (5, link),
        };
        epoll::EventData::new_u64(kind << 32 | u64::from(number))
    }

    fn unpack(packed: u64) -> Self {
        let number = packed as u32;
        match packed >> 32 {
            1 => Token::Listener,
            2 => Token::Visitor(number),
            3 => Token::Call(number),
            4 => Token::Line(number),
            5 => Token::Process(number),
            _ => Token::Messages,
        }
    }
}

/// The set of watched descriptors. It is itself a descriptor to sleep on.
pub(crate) struct Watched(OwnedFd);

impl Watched {
    pub(crate) fn new() -> Result<Self, Errno> {
        epoll::create(epoll::CreateFlags::CLOEXEC).map(Watched)
    }

    /// Watches a descriptor for readability and hang-up.
    pub(crate) fn add(&self, descriptor: &impl AsFd, token: Token) -> Result<(), Errno> {
        epoll::add(&self.0, descriptor, token.pack(), epoll::EventFlags::IN)
    }

    /// As [`Watched::add`], and for writability, which shows that a socket has been connected.
    pub(crate) fn add_connecting(&self, descriptor: &impl AsFd, token: Token) -> Result<(), Errno> {
        epoll::add(&self.0, descriptor, token.pack(), epoll::EventFlags::IN | epoll::EventFlags::OUT)
    }

    /// Stops watching a descriptor before it is closed: a child process may hold it, which would keep it in the set.
    pub(crate) fn forget(&self, descriptor: &impl AsFd) {
        let _ = epoll::delete(&self.0, descriptor);
    }

    /// Pauses or resumes watching the listener.
    pub(crate) fn pause(&self, listener: &impl AsFd, paused: bool) {
        let flags = if paused { epoll::EventFlags::empty() } else { epoll::EventFlags::IN };
        let _ = epoll::modify(&self.0, listener, Token::Listener.pack(), flags);
    }

    /// The descriptors that are ready, at most as many as one pass handles.
    pub(crate) fn look(&self) -> SmallVec<[Token; DESCRIPTORS_A_PASS]> {
        let mut buffer = [const { MaybeUninit::<epoll::Event>::uninit() }; DESCRIPTORS_A_PASS];
        let now = rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 };
        let Ok((found, _)) = epoll::wait(&self.0, &mut buffer[..], Some(&now)) else { return SmallVec::new() };
        let token = |event: &epoll::Event| {
            // The field may be anywhere: an event is packed.
            let data = event.data;
            Token::unpack(data.u64())
        };
        found.iter().map(token).collect()
    }
}

impl AsFd for Watched {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

#[cfg(all(test, not(miri)))]
mod tests {
    use super::*;

    #[test]
    fn a_look_finds_what_is_watched_and_nothing_else() {
        let watched = Watched::new().unwrap();
        let all = [Token::Messages, Token::Listener, Token::Visitor(7), Token::Call(u32::MAX), Token::Line(0)];
        let pipes: Vec<_> = all.iter().map(|_| rustix::pipe::pipe().unwrap()).collect();
        for ((read, _), token) in pipes.iter().zip(all) {
            watched.add(read, token).unwrap();
        }
        assert!(watched.look().is_empty());
        for ((_, write), token) in pipes.iter().zip(all).rev() {
            rustix::io::write(write, b"x").unwrap();
            assert!(watched.look().contains(&token));
        }
        assert_eq!(watched.look().len(), all.len());
        watched.pause(&pipes[1].0, true);
        watched.forget(&pipes[0].0);
        assert_eq!(watched.look().len(), all.len() - 2);
        watched.pause(&pipes[1].0, false);
        assert!(watched.look().contains(&Token::Listener));
        // A socket that is connected can be written to.
        let (one, _other) = rustix::net::socketpair(
            rustix::net::AddressFamily::UNIX,
            rustix::net::SocketType::STREAM,
            rustix::net::SocketFlags::CLOEXEC,
            None,
        )
        .unwrap();
        watched.add_connecting(&one, Token::Process(3)).unwrap();
        assert!(watched.look().contains(&Token::Process(3)));
    }
}
