//! A socket that a launcher passes to its ranks by its number.

use super::error::BootstrapError;
use super::wait::Wait;
use rustix::event::PollFlags;
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, SocketType, recv, send, sockopt};
use std::io;
use std::os::fd::{AsFd, FromRawFd, IntoRawFd, OwnedFd, RawFd};

/// Whether a descriptor of this process is a socket.
pub(super) fn is_socket(fd: RawFd) -> bool {
    let target = std::fs::read_link(format!("/proc/self/fd/{fd}"));
    target.is_ok_and(|target| target.as_os_str().as_encoded_bytes().starts_with(b"socket:"))
}

/// Takes ownership of the inherited descriptor, and closes it on exec: a program that the rank starts must not hold it. `variable` is the
/// one that had its number, for errors.
pub(super) fn take_socket(fd: RawFd, variable: &'static str) -> Result<OwnedFd, BootstrapError> {
    let wrong = |found: String| BootstrapError::Descriptor { variable, fd, found };
    match std::fs::read_link(format!("/proc/self/fd/{fd}")) {
        Ok(target) if target.as_os_str().as_encoded_bytes().starts_with(b"socket:") => {}
        Ok(target) => return Err(wrong(format!("is {}", target.display()))),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Err(wrong("is not open".into())),
        Err(error) => return Err(wrong(format!("cannot be looked at in /proc: {error}"))),
    }
    #[expect(unsafe_code, reason = "a descriptor inherited from the launcher is known by its number only")]
    // SAFETY: it is open, as was just seen; the launcher passes it to this process for this purpose and names it in
    // the variable, and `Bootstrap::from_env` comes here once in a process, so nothing else owns it.
    let socket = unsafe { OwnedFd::from_raw_fd(fd) };
    if sockopt::socket_type(&socket) != Ok(SocketType::STREAM) {
        // Not what the launcher passes, so not ours to close.
        let _ = socket.into_raw_fd();
        return Err(wrong("is a socket of another kind".into()));
    }
    rustix::io::fcntl_setfd(&socket, rustix::io::FdFlags::CLOEXEC)
        .map_err(|source| BootstrapError::System { operation: "fcntl(F_SETFD)", source: source.into() })?;
    Ok(socket)
}

/// Sends all bytes. Returns `false` if the other end is closed.
///
/// # Errors
/// The wait has taken too long.
pub(super) fn send_all(socket: &OwnedFd, mut bytes: &[u8], wait: &Wait) -> Result<bool, BootstrapError> {
    while !bytes.is_empty() {
        match send(socket, bytes, SendFlags::NOSIGNAL | SendFlags::DONTWAIT) {
            Ok(sent) => bytes = &bytes[sent..],
            Err(Errno::AGAIN) => wait.until(socket.as_fd(), PollFlags::OUT)?,
            Err(Errno::INTR) => {}
            Err(_) => return Ok(false),
        }
    }
    Ok(true)
}

/// Waits for bytes and appends at most `most` of them. Returns `false` if the other end is closed.
///
/// # Errors
/// The wait has taken too long.
pub(super) fn receive_some(
    socket: &OwnedFd,
    to: &mut Vec<u8>,
    most: usize,
    wait: &Wait,
) -> Result<bool, BootstrapError> {
    let old = to.len();
    to.resize(old + most, 0);
    let got = loop {
        match recv(socket, &mut to[old..], RecvFlags::DONTWAIT) {
            Ok((bytes, _)) => break Ok(bytes),
            Err(Errno::AGAIN) => match wait.until(socket.as_fd(), PollFlags::IN) {
                Ok(()) => {}
                Err(error) => break Err(error),
            },
            Err(Errno::INTR) => {}
            Err(_) => break Ok(0),
        }
    };
    to.truncate(old + *got.as_ref().unwrap_or(&0));
    got.map(|bytes| bytes > 0)
}
