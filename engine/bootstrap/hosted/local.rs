//! Connections between the ranks of a group: sockets with abstract names, which only the same user may use. A frame is a length and bytes.
//! The values of a fence are passed as a descriptor of a file in memory.

use super::rounds::Round;
use crate::bootstrap::error::BootstrapError;
use crate::bootstrap::inherit::{receive_some, send_all};
use crate::bootstrap::table::{self, Puts};
use crate::bootstrap::wait::Wait;
use rustix::event::PollFlags;
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, SocketAddrUnix, SocketFlags, SocketType, accept_with, bind, connect, listen, recvmsg, sendmsg,
    socket_with,
};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{IoSlice, IoSliceMut};
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;
use tickwire_transports::peer_of;

/// Most bytes that a rank may put between two fences: of keys, of values, and [`PUT_EXTRA_BYTES`] for each.
pub(super) const PUT_BYTES_MAX: usize = 1 << 20;
/// What a value counts besides its bytes and those of its key, for the numbers beside it in a frame. These can take a few bytes more, so a
/// frame may be longer than [`PUT_BYTES_MAX`].
pub(super) const PUT_EXTRA_BYTES: usize = 8;

/// Bytes of one read.
const READ_BYTES: usize = 4096;
/// Longest greeting, or answer to one, bytes.
pub(super) const GREETING_BYTES_MAX: usize = 256;

/// The address of a head's socket, made from the launcher's name of the job and the head's rank.
fn address(id: &str, head: u32) -> Result<SocketAddrUnix, BootstrapError> {
    // Only a name, so the user of the process on the other side is checked as well.
    let mut hasher = DefaultHasher::new();
    (id, head).hash(&mut hasher);
    let user = rustix::process::geteuid().as_raw();
    let name = format!("tickwire-group-{user}-{head}-{:016x}", hasher.finish());
    SocketAddrUnix::new_abstract_name(name.as_bytes()).map_err(failed("the name of a socket"))
}

fn failed(operation: &'static str) -> impl Fn(Errno) -> BootstrapError {
    move |source| BootstrapError::System { operation, source: source.into() }
}

/// A connection within a group.
pub(super) struct Link(OwnedFd);

impl Link {
    /// Whether the other end is a process of this user.
    fn is_own_users(&self) -> bool {
        peer_of(&self.0).is_ok_and(|of| of.uid == rustix::process::geteuid().as_raw())
    }

    pub(super) fn send(&self, body: &[u8], wait: &Wait) -> Result<bool, BootstrapError> {
        let frame = [&(body.len() as u32).to_le_bytes(), body].concat();
        send_all(&self.0, &frame, wait)
    }

    /// The next frame. `None` if the other end is closed.
    pub(super) fn receive(&self, most: usize, wait: &Wait) -> Result<Option<Vec<u8>>, BootstrapError> {
        let mut bytes = Vec::new();
        let mut wanted = 4;
        while bytes.len() < wanted {
            let step = (wanted - bytes.len()).min(READ_BYTES);
            if !receive_some(&self.0, &mut bytes, step, wait)? {
                return Ok(None);
            }
            if let (4, Some(length)) = (wanted, bytes.first_chunk::<4>()) {
                let length = u32::from_le_bytes(*length) as usize;
                if length > most {
                    return Err(BootstrapError::Protocol("a frame of impossible length"));
                }
                wanted += length;
            }
        }
        bytes.drain(..4);
        Ok(Some(bytes))
    }
}

/// The socket to which the other ranks of a host connect.
pub(super) struct Door(OwnedFd);

impl Door {
    /// Opens the socket. `None` if that is impossible: then each rank is a group by itself.
    pub(super) fn open(id: &str, head: u32) -> Result<Option<Self>, BootstrapError> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None).map_err(failed("socket"))?;
        let bound = bind(&socket, &address(id, head)?).and_then(|()| listen(&socket, i32::MAX));
        Ok(bound.is_ok().then_some(Self(socket)))
    }

    pub(super) fn fd(&self) -> &OwnedFd {
        &self.0
    }

    /// The next connection from a process of this user, without waiting.
    ///
    /// # Errors
    /// The system has no descriptor or memory for it.
    pub(super) fn answer(&self) -> Result<Option<Link>, Errno> {
        loop {
            match accept_with(&self.0, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK) {
                Ok(socket) => {
                    let link = Link(socket);
                    if link.is_own_users() {
                        return Ok(Some(link));
                    }
                }
                Err(Errno::INTR | Errno::CONNABORTED) => {}
                Err(Errno::AGAIN) => return Ok(None),
                Err(error) => return Err(error),
            }
        }
    }
}

/// Connects to the head of this host. `None` if it cannot be reached.
pub(super) fn call(id: &str, head: u32, wait: &Wait) -> Result<Option<Link>, BootstrapError> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None).map_err(failed("socket"))?;
    let address = address(id, head)?;
    loop {
        match connect(&socket, &address) {
            Ok(()) => break,
            Err(Errno::INTR) => {}
            // The head's socket exists, but its queue is full. There is nothing to wait on, so try again after a short sleep.
            Err(Errno::AGAIN) if !wait.left().is_zero() => std::thread::sleep(Duration::from_millis(1)),
            Err(_) => return Ok(None),
        }
    }
    let link = Link(socket);
    Ok(link.is_own_users().then_some(link))
}

/// The first rank of a group, and its links to the others.
#[derive(Default)]
pub(super) struct Head {
    /// The other ranks, in rank order. `None` for a rank that has finished.
    pub(super) members: Vec<(u32, Option<Link>)>,
}

impl Head {
    /// Collects what all ranks of the group have put since the last fence. A rank that has finished is not waited for.
    pub(super) fn gather(
        &mut self,
        own: (u32, Puts),
        size: u32,
        patience: Duration,
    ) -> Result<Vec<(u32, Puts)>, BootstrapError> {
        let wait = Wait::new("a fence", patience);
        let mut ranks = vec![own];
        for (rank, link) in &mut self.members {
            let frame = match link {
                Some(open) => open.receive(2 * PUT_BYTES_MAX, &wait)?,
                None => None,
            };
            let mut puts = Puts::new();
            match frame {
                Some(frame) => table::each(&frame, size, |key, of, value| {
                    if of == *rank {
                        puts.push((key.to_owned(), value.to_vec()));
                    }
                })?,
                None => *link = None,
            }
            ranks.push((*rank, puts));
        }
        Ok(ranks)
    }

    /// Hands the values of a fence to the group.
    pub(super) fn scatter(&mut self, round: &Round, patience: Duration) -> Result<(), BootstrapError> {
        let wait = Wait::new("a fence", patience);
        for (_, link) in &mut self.members {
            if let Some(open) = link
                && !send_file(&open.0, round.file(), &wait)?
            {
                *link = None;
            }
        }
        Ok(())
    }

    pub(super) fn close(&mut self) {
        self.members.clear();
    }
}

/// A rank of a group that is not its head.
pub(super) struct Member {
    pub(super) head: u32,
    pub(super) link: Option<Link>,
}

impl Member {
    fn link(&self) -> Result<&Link, BootstrapError> {
        self.link.as_ref().ok_or(BootstrapError::Broken)
    }

    fn ended(&self) -> BootstrapError {
        let words = "it collects the values of this host's ranks; all ranks must reach a fence";
        BootstrapError::Launcher {
            launcher: "fence",
            reason: format!("rank {} has ended or finished: {words}", self.head),
        }
    }

    pub(super) fn send(&mut self, table: &[u8], patience: Duration) -> Result<(), BootstrapError> {
        let wait = Wait::new("a fence", patience);
        if self.link()?.send(table, &wait)? { Ok(()) } else { Err(self.ended()) }
    }

    pub(super) fn receive(&mut self, patience: Duration) -> Result<Round, BootstrapError> {
        let wait = Wait::new("a fence", patience);
        let file = receive_file(&self.link()?.0, &wait)?;
        file.map(Round::received).ok_or_else(|| self.ended())
    }

    pub(super) fn close(&mut self) {
        self.link = None;
    }
}

fn send_file(socket: &OwnedFd, file: &OwnedFd, wait: &Wait) -> Result<bool, BootstrapError> {
    let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    loop {
        let mut control = SendAncillaryBuffer::new(&mut space);
        let files = [file.as_fd()];
        control.push(SendAncillaryMessage::ScmRights(&files));
        match sendmsg(socket, &[IoSlice::new(&[1])], &mut control, SendFlags::NOSIGNAL | SendFlags::DONTWAIT) {
            Ok(_) => return Ok(true),
            Err(Errno::AGAIN) => wait.until(socket.as_fd(), PollFlags::OUT)?,
            Err(Errno::INTR) => {}
            Err(_) => return Ok(false),
        }
    }
}

fn receive_file(socket: &OwnedFd, wait: &Wait) -> Result<Option<OwnedFd>, BootstrapError> {
    let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    loop {
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let mut byte = [0];
        match recvmsg(
            socket,
            &mut [IoSliceMut::new(&mut byte)],
            &mut control,
            RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC,
        ) {
            Ok(got) if got.bytes == 0 => return Ok(None),
            Ok(_) => {
                let files = control.drain().filter_map(|message| match message {
                    RecvAncillaryMessage::ScmRights(files) => Some(files),
                    _ => None,
                });
                let file = files.flatten().next();
                return file.map(Some).ok_or(BootstrapError::Protocol("no file with the values of a fence"));
            }
            Err(Errno::AGAIN) => wait.until(socket.as_fd(), PollFlags::IN)?,
            Err(Errno::INTR) => {}
            Err(_) => return Ok(None),
        }
    }
}
