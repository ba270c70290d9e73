//! Calling a proc: a socket, and a greeting that passes the segment of the pair.

use super::segment::{self, Map};
use super::socket::{self, Read, Received};
use super::{Call, Own, Shm};
use crate::connections::Medium;
use crate::handshake::Packet;
use crate::processes::peer_of;
use crate::rings::memory::RawRing;
use rustix::fd::{AsFd, OwnedFd};
use rustix::io::Errno;
use std::sync::Arc;
use tickwire_components::limits::CALL_REFUSED_NS_MAX;

/// The segment of a pair: the ring from the caller to the called proc, followed by the ring back.
pub(crate) struct Pair {
    file: OwnedFd,
    pub(super) map: Arc<Map>,
}

/// Bytes of a pair's segment.
pub(super) fn pair_bytes(ring_bytes: usize) -> usize {
    2 * RawRing::bytes(ring_bytes)
}

/// What a call keeps besides its socket.
#[derive(Default)]
pub(crate) struct Request {
    pub(super) pair: Option<Pair>,
    /// Since when nobody has been listening, in ns.
    refused_ns: Option<u64>,
}

impl Shm {
    /// See [`Medium::greet`].
    pub(super) fn greet_listener(&self, link: u32, proc: u32, call: &mut Call, now_ns: u64) -> Result<bool, String> {
        call.wait(now_ns);
        let no_socket = |e: Errno| format!("no socket to proc {proc} ({e}): raise the limit of open files");
        let socket = match call.socket.take() {
            Some(socket) => socket,
            None => socket::socket().map_err(no_socket)?,
        };
        let address = socket::address(&self.own.config.job, proc).map_err(no_socket)?;
        match rustix::net::connect(&socket, &address) {
            Ok(()) | Err(Errno::ISCONN) => call.request.refused_ns = None,
            Err(Errno::AGAIN | Errno::INTR) => {
                call.socket = Some(socket);
                return Ok(false);
            }
            Err(Errno::CONNREFUSED) => return nobody_listens(call, proc, now_ns),
            Err(error) => return Err(format!("proc {proc} cannot be called: {error}")),
        }
        same_user(&socket, &self.own)?;
        self.pass_pair(link, proc, call, socket, now_ns)
    }

    /// Sends the greeting over a connected socket.
    fn pass_pair(&self, link: u32, proc: u32, call: &mut Call, socket: OwnedFd, now_ns: u64) -> Result<bool, String> {
        let pair = match call.request.pair.take() {
            Some(pair) => pair,
            None => {
                let bytes = pair_bytes(self.own.config.first_bytes());
                let (file, map) = segment::create(self.own.place(), bytes).map_err(|e| e.to_string())?;
                Pair { file, map: Arc::new(map) }
            }
        };
        let hello = Packet::Hello(self.introduction(link));
        let sent = socket::send(&socket, &hello, &self.own.passed(Some(pair.file.as_fd())));
        call.request.pair = Some(pair);
        match sent {
            Ok(()) | Err(Errno::AGAIN | Errno::TOOMANYREFS) => {
                call.socket = Some(socket);
                Ok(sent.is_ok())
            }
            // The peer may have sent the reason.
            Err(Errno::PIPE | Errno::CONNRESET | Errno::NOTCONN) => match socket::read(&socket) {
                Read::Packet(Received { packet: Ok(Packet::Refused(reason)), .. }) => {
                    Err(format!("proc {proc} refused the connection: {reason}"))
                }
                _ => nobody_listens(call, proc, now_ns),
            },
            Err(error) => Err(format!("proc {proc} cannot be greeted: {error}")),
        }
    }
}

/// Handles a name that nobody listens under, perhaps not yet: tries again for a while.
fn nobody_listens(call: &mut Call, proc: u32, now_ns: u64) -> Result<bool, String> {
    let since = *call.request.refused_ns.get_or_insert(now_ns);
    if let Some(ended) = call.process_ended() {
        return Err(ended);
    }
    if now_ns.saturating_sub(since) > CALL_REFUSED_NS_MAX {
        return Err(format!("proc {proc} has closed its endpoint, or has finalized"));
    }
    Ok(false)
}

/// Refuses a peer of another user. Returns the peer's process id.
pub(super) fn same_user(socket: &OwnedFd, own: &Own) -> Result<u32, String> {
    let found = peer_of(socket).map_err(|e| format!("the peer cannot be identified: {e}"))?;
    if found.uid != own.uid {
        let (theirs, ours) = (found.uid, own.uid);
        return Err(format!("peer runs as user {theirs}, this process as user {ours}: run a job as one user"));
    }
    found.pid.ok_or_else(|| "peer runs in another pid namespace".into())
}
