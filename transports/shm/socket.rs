//! Control sockets: packets with descriptors, and who the kernel says is at the other end.

use super::{ShmConfig, ShmError};
use crate::connections::BACKLOG;
pub(super) use crate::connections::accept;
use crate::handshake::{Mismatch, PACKET_BYTES_MAX, Packet};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::{Errno, IoSlice, IoSliceMut};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags, SocketType,
};
use std::mem::MaybeUninit;
use std::time::Duration;

/// Descriptors of a packet at most; the kernel closes any further ones.
const DESCRIPTORS_MAX: usize = 4;

/// How long the own name may be taken, ms: a child that is being started holds what a closed endpoint had.
const TAKEN_MS_MAX: u32 = 50;

/// A packet and the descriptors that came with it.
pub(super) struct Received {
    pub(super) packet: Result<Packet, Mismatch>,
    /// Or the kernel could not give this process all of them.
    pub(super) descriptors: Result<Vec<OwnedFd>, NoRoom>,
}

/// This process may not have as many descriptors as it was passed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NoRoom;

impl NoRoom {
    /// What its peer is told.
    pub(super) fn words(self, me: u32) -> String {
        format!("proc {me} may open no more files, and a connection needs three: raise its limit (ulimit -n)")
    }
}

/// What reading a control socket gave.
pub(super) enum Read {
    /// A packet, whatever its worth.
    Packet(Received),
    /// Nothing yet.
    Nothing,
    /// The other end is closed.
    Ended,
}

/// Who is at the other end, by the kernel's word.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Credentials {
    pub(super) pid: i32,
    pub(super) uid: u32,
}

/// A socket that blocks nobody and is not inherited.
pub(super) fn socket() -> Result<OwnedFd, Errno> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)
}

/// A socket that listens for calls. A name that a process has had which has just ended is waited for, for a moment.
///
/// # Errors
/// There is none, or another process has the name.
pub(super) fn listen(config: &ShmConfig) -> Result<OwnedFd, ShmError> {
    let descriptors = |source| ShmError::Descriptors { source };
    let listener = socket().map_err(descriptors)?;
    let address = address(&config.job, config.me).map_err(descriptors)?;
    for _ in 0..TAKEN_MS_MAX {
        match rustix::net::bind(&listener, &address) {
            Ok(()) => {
                rustix::net::listen(&listener, BACKLOG).map_err(descriptors)?;
                return Ok(listener);
            }
            Err(Errno::ADDRINUSE) => std::thread::sleep(Duration::from_millis(1)),
            Err(source) => return Err(ShmError::Descriptors { source }),
        }
    }
    Err(ShmError::Taken { me: config.me, job: config.job.clone() })
}

/// Where proc `proc` of `job` listens: a name that goes with its socket, in no directory.
pub(super) fn address(job: &str, proc: u32) -> Result<SocketAddrUnix, Errno> {
    SocketAddrUnix::new_abstract_name(format!("tickwire-{job}-{proc}").as_bytes())
}

/// Who is at the other end.
pub(super) fn credentials(socket: &OwnedFd) -> Result<Credentials, Errno> {
    let found = rustix::net::sockopt::socket_peercred(socket)?;
    // 0 for a process that this one's pid namespace does not contain.
    Ok(Credentials { pid: rustix::process::Pid::as_raw(Some(found.pid)), uid: found.uid.as_raw() })
}

/// Sends a packet. Nothing is sent in part.
pub(super) fn send(socket: &OwnedFd, packet: &Packet, descriptors: &[BorrowedFd<'_>]) -> Result<(), Errno> {
    let bytes = packet.encode();
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !descriptors.is_empty() && !control.push(SendAncillaryMessage::ScmRights(descriptors)) {
        return Err(Errno::TOOMANYREFS);
    }
    let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
    loop {
        match rustix::net::sendmsg(socket, &[IoSlice::new(&bytes)], &mut control, flags) {
            Err(Errno::INTR) => {}
            other => return other.map(drop),
        }
    }
}

/// Reads a packet.
pub(super) fn read(socket: &OwnedFd) -> Read {
    let mut bytes = [0; PACKET_BYTES_MAX + 1];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT;
    let mut reset = false;
    let found = loop {
        match rustix::net::recvmsg(socket, &mut [IoSliceMut::new(&mut bytes)], &mut control, flags) {
            Err(Errno::INTR) => {}
            // The other end was closed with something unread. What it has said before can still be read, and the error is told once.
            Err(Errno::CONNRESET) if !std::mem::replace(&mut reset, true) => {}
            Err(Errno::AGAIN) => return Read::Nothing,
            Err(_) => return Read::Ended,
            Ok(found) => break found,
        }
    };
    let mut descriptors = Vec::new();
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(passed) = message {
            descriptors.extend(passed);
        }
    }
    if found.bytes == 0 {
        return Read::Ended;
    }
    // A packet that was too long has filled the buffer, which is one byte longer than any packet.
    let packet = Packet::decode(&bytes[..found.bytes.min(bytes.len())]);
    let descriptors = match (found.flags.contains(ReturnFlags::CTRUNC), descriptors.len()) {
        (false, _) => Ok(descriptors),
        // More than a packet of ours has.
        (true, DESCRIPTORS_MAX..) => Ok(Vec::new()),
        (true, _) => Err(NoRoom),
    };
    Read::Packet(Received { packet, descriptors })
}

/// Closes a socket for its peer, which still reads what was sent. Closing the descriptor is not enough while a child
/// that was forked meanwhile holds it.
pub(super) fn hang_up(socket: &OwnedFd) {
    let _ = rustix::net::shutdown(socket, rustix::net::Shutdown::Both);
}

/// Whether a descriptor is an event counter that cannot block its writer.
pub(super) fn is_doorbell(descriptor: &OwnedFd) -> bool {
    use rustix::fd::AsRawFd;
    let nonblocking = rustix::fs::fcntl_getfl(descriptor.as_fd())
        .is_ok_and(|flags| flags.contains(rustix::fs::OFlags::NONBLOCK | rustix::fs::OFlags::RDWR));
    let path = format!("/proc/self/fd/{}", descriptor.as_raw_fd());
    nonblocking && std::fs::read_link(path).is_ok_and(|target| target.as_os_str() == "anon_inode:[eventfd]")
}
