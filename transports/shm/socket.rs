//! Control sockets: packets with descriptors, and the peer's identity as the kernel reports it.

use super::{ShmConfig, ShmError};
use crate::connections::NoRoom;
use crate::handshake::{Mismatch, PACKET_BYTES_MAX, Packet};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::{Errno, IoSlice, IoSliceMut};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags, SocketType,
};
use std::mem::MaybeUninit;
use std::time::Duration;
use tickwire_components::limits::{LISTEN_BACKLOG, NAME_TAKEN_MS_MAX};

/// The most descriptors of a packet. The kernel closes any further ones.
const DESCRIPTORS_MAX: usize = 4;

/// A packet and the descriptors that came with it.
pub(super) struct Received {
    pub(super) packet: Result<Packet, Mismatch>,
    /// The descriptors, or that the kernel could not give this process all of them.
    pub(super) descriptors: Result<Vec<OwnedFd>, NoRoom>,
}

/// The result of reading a control socket.
pub(super) enum Read {
    /// A packet, which may be invalid.
    Packet(Received),
    /// Nothing yet.
    Nothing,
    /// The peer has closed the connection.
    Ended,
}

/// A socket that does not block and that child programs do not inherit.
pub(super) fn socket() -> Result<OwnedFd, Errno> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)
}

/// A socket that listens for calls. If the name belongs to a process that has just ended, waits a short time for it.
///
/// # Errors
/// No socket can be made, or another process has the name.
pub(super) fn listen(config: &ShmConfig) -> Result<OwnedFd, ShmError> {
    let descriptors = |source| ShmError::Descriptors { source };
    let listener = socket().map_err(descriptors)?;
    let address = address(&config.job, config.me).map_err(descriptors)?;
    for _ in 0..NAME_TAKEN_MS_MAX {
        match rustix::net::bind(&listener, &address) {
            Ok(()) => {
                rustix::net::listen(&listener, LISTEN_BACKLOG).map_err(descriptors)?;
                return Ok(listener);
            }
            Err(Errno::ADDRINUSE) => std::thread::sleep(Duration::from_millis(1)),
            Err(source) => return Err(ShmError::Descriptors { source }),
        }
    }
    Err(ShmError::Taken { me: config.me, job: config.job.clone() })
}

/// The address at which proc `proc` of `job` listens: an abstract name, which vanishes with its socket.
pub(super) fn address(job: &str, proc: u32) -> Result<SocketAddrUnix, Errno> {
    SocketAddrUnix::new_abstract_name(format!("tickwire-{job}-{proc}").as_bytes())
}

/// Sends a packet, as a whole or not at all.
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
            // The peer has closed the socket with unread data. Its earlier packets can still be read, and the error is reported once.
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
    for descriptor in &descriptors {
        // Closing a peer's socket could wait as long as the peer has chosen. What is no socket refuses this.
        let _ = rustix::net::sockopt::set_socket_linger(descriptor, None);
    }
    if found.bytes == 0 {
        return Read::Ended;
    }
    // A packet that is too long fills the buffer, which is one byte longer than any valid packet.
    let packet = Packet::decode(&bytes[..found.bytes.min(bytes.len())]);
    let descriptors = match (found.flags.contains(ReturnFlags::CTRUNC), descriptors.len()) {
        (false, _) => Ok(descriptors),
        // More descriptors than any valid packet has.
        (true, DESCRIPTORS_MAX..) => Ok(Vec::new()),
        (true, _) => Err(NoRoom),
    };
    Read::Packet(Received { packet, descriptors })
}

/// Closes a socket for its peer, which can still read what was sent. Closing the descriptor is not enough if a child that was forked
/// meanwhile holds it too.
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
