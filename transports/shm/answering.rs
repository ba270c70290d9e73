//! Answering peers: accepting at the listener, checking a peer, and making the rings of a connection.

use super::calling::{Request, pair_bytes, same_user};
use super::lines::PeerMemory;
use super::segment::{self, Map};
use super::socket;
use super::{Own, Shm, reading};
use crate::connections::{Accepted, NoRoom};
use crate::handshake::{Greeting, ONE_SIDED, Packet};
use crate::processes::{self, Process};
use crate::rings::inbox::{Inbox, SLOTS};
use crate::rings::links::{Ends, InboxView};
use crate::rings::memory::RawRing;
use rustix::fd::OwnedFd;
use std::sync::Arc;

impl Shm {
    /// See [`crate::connections::Medium::accept`].
    pub(super) fn accept_peer(&mut self) -> Option<Accepted<OwnedFd>> {
        let me = self.own.config.me;
        let refuse = |socket: OwnedFd| {
            let _ = socket::send(&socket, &Packet::Refused(NoRoom.words(me)), &[]);
            socket::hang_up(&socket);
        };
        let accepted = self.spare.accept(self.connections.listener.as_ref()?, |socket| socket, refuse)?;
        if let Accepted::Visitor(socket) = &accepted
            && let Err(reason) = same_user(socket, &self.own)
        {
            let _ = socket::send(socket, &Packet::Refused(reason), &[]);
            return Some(Accepted::Refused);
        }
        Some(accepted)
    }

    /// See [`crate::connections::Medium::meet`].
    pub(super) fn meet_peer(
        &self,
        theirs: &Greeting,
        passed: Result<Vec<OwnedFd>, NoRoom>,
        process: Option<&Process>,
        request: Option<Request>,
    ) -> Result<(PeerMemory, Ends), String> {
        let mut passed = passed.map_err(|no_room| no_room.words(self.own.config.me))?;
        let heap = self.take_heap(theirs, &mut passed);
        let ends = match request {
            Some(request) => match (<[OwnedFd; 2]>::try_from(passed), request.pair) {
                (Ok([inbox, doorbell]), Some(pair)) => ends(&self.own, theirs, pair.map, inbox, doorbell, true)?,
                _ => return Err("the peer did not answer with two descriptors".into()),
            },
            None => {
                let Ok([pair, inbox, doorbell]) = <[OwnedFd; 3]>::try_from(passed) else {
                    return Err("the peer did not greet with three descriptors".into());
                };
                let bytes = pair_bytes(self.own.config.first_bytes());
                let pair = segment::receive(pair, bytes, self.own.files)?;
                ends(&self.own, theirs, Arc::new(pair), inbox, doorbell, false)?
            }
        };
        let named = process.and_then(Process::descriptor).is_some();
        let readable = self.own.config.cross_memory_attach && named && reading::allowed(theirs.pid);
        Ok((PeerMemory::new(readable, heap?), ends))
    }
}

/// Checks a peer's greeting against what the kernel reports. Returns the peer's process. That which was `called` may have ended.
pub(super) fn identify(
    own: &Own,
    socket: &OwnedFd,
    theirs: &Greeting,
    called: Option<Process>,
) -> Result<Process, String> {
    theirs.same_host(&own.greeting).map_err(|mismatch| mismatch.to_string())?;
    let pid = same_user(socket, own)?;
    let Greeting { pid: said, start_time, slot, .. } = *theirs;
    if pid != said {
        return Err(format!("peer says it is process {said}, the kernel says {pid}"));
    }
    if slot as usize >= SLOTS {
        return Err(format!("peer names slot {slot} of {SLOTS}"));
    }
    if let Some(found) = processes::start_time(pid).filter(|&found| found != start_time) {
        return Err(format!("peer says process {pid} was started at {start_time}, the kernel says {found}"));
    }
    match called.filter(|process| process.is(pid, start_time)) {
        Some(process) => Ok(process),
        None => Process::find(pid, start_time),
    }
}

/// Maps the memory that a peer has passed, and makes the ends of the connection.
///
/// `outgoing_first`: whether this process is the caller.
fn ends(
    own: &Own,
    theirs: &Greeting,
    pair: Arc<Map>,
    inbox: OwnedFd,
    doorbell: OwnedFd,
    outgoing_first: bool,
) -> Result<Ends, String> {
    if !socket::is_doorbell(&doorbell) {
        return Err("the peer passed something other than an event descriptor as its doorbell".into());
    }
    let inbox = segment::receive(inbox, size_of::<Inbox>(), own.files)?;
    let base = inbox.base();
    // SAFETY: a mapping of an inbox's size, aligned to a page, allocated and kept by the view.
    #[expect(unsafe_code, reason = "a view of shared memory")]
    let inbox = unsafe { InboxView::new(base, Arc::new(inbox)) };
    let ring_bytes = own.config.first_bytes();
    // SAFETY: the segment has room for two rings (`pair_bytes`), one behind the other and both aligned to 128 bytes;
    // it is new, so its bytes are zero unless the peer is hostile, which the ends survive. Each side makes one writer
    // and one reader, of different rings, and keeps the map with them.
    #[expect(unsafe_code, reason = "a view of shared memory")]
    let (first, second) = unsafe {
        let behind = pair.base().add(RawRing::bytes(ring_bytes));
        (RawRing::new(pair.base(), ring_bytes), RawRing::new(behind, ring_bytes))
    };
    let (outgoing, incoming) = if outgoing_first { (first, second) } else { (second, first) };
    let one_sided = theirs.capabilities & own.greeting.capabilities & ONE_SIDED != 0;
    let past_min = own.config.past_min as u64;
    let (doorbell, ring_max) = (Arc::new(doorbell), own.config.ring_bytes);
    Ok(Ends { outgoing, incoming, inbox, slot: theirs.slot, doorbell, one_sided, past_min, ring_max, keep: pair })
}
