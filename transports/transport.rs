//! The trait of all transports: the methods that every one has. An optional ability is a [facet](crate::facets), which a transport has or
//! has not.

use crate::capabilities::Capabilities;
use crate::facets::{CreditWindows, Direct, Lending, Matching, Memory, OneSided, Registering, SharedMemory, Watchers};
use crate::frames::{Frame, LinkEvent, Sent, Traffic};
use crate::take::Take;
use rustix::fd::BorrowedFd;
use tickwire_components::wire::Header;
use tickwire_components::{Arrival, Payload, Pieces, Row};

/// A way to move frames. One instance is one endpoint; the engine that owns it is its only user.
///
/// All calls return at once. `proc` is a proc number of the world, `link` a number that the transport has chosen, `vc` the engine's own
/// number for the peer, which every [`Arrival`] carries.
///
/// # Safety
/// The bytes of every span that it gives out are valid for reads, of an arrival until [`Transport::release`]. It uses spans that
/// it is given only within the call. Its facets keep to what is said there.
#[expect(unsafe_code, reason = "the engine trusts the addresses that a transport gives out")]
pub unsafe trait Transport: Send {
    /// The state that it keeps for a CAR whose frame was taken only in part. The engine makes it a column.
    type RowState: Default + Send + Sync + 'static;

    /// Its name in configuration and reports.
    fn name(&self) -> &str;

    /// The abilities of the transport.
    fn capabilities(&self) -> &Capabilities;

    /// The card: what a peer needs to know to reach this endpoint, at most 255 bytes.
    fn card(&self) -> Vec<u8>;

    /// Checks whether it reaches a proc with this card.
    ///
    /// # Errors
    /// Why not, in words.
    fn reaches(&self, proc: u32, card: &[u8]) -> Result<(), String>;

    /// Bytes that it has sent and received so far, headers and gaps included; 0 if it does not count them.
    fn moved(&self) -> (u64, u64) {
        (0, 0)
    }

    /// The traffic of a link; `None` if the link is not open or the transport does not count.
    fn traffic(&self, link: u32) -> Option<Traffic> {
        let _ = link;
        None
    }

    /// Reading the memory of peers, and letting them read; `None` if it cannot.
    fn memory(&mut self) -> Option<&mut dyn Memory> {
        None
    }

    /// Moving long messages directly between the memory of both processes; `None` if it cannot.
    fn direct(&mut self) -> Option<&mut dyn Direct> {
        None
    }

    /// Reading, writing and updating memory of peers; `None` if it cannot. The first call may open what this needs.
    fn one_sided(&mut self) -> Option<&mut dyn OneSided> {
        None
    }

    /// Matching messages with receives; `None` if the engine does that.
    fn matching(&mut self) -> Option<&mut dyn Matching> {
        None
    }

    /// Lending memory of its own; `None` if it has none to lend.
    fn lending(&mut self) -> Option<&mut dyn Lending> {
        None
    }

    /// Registering memory; `None` if any memory will do. With this facet, payloads are in registered memory, or have at most
    /// [`Capabilities::inject_max`] bytes, and the transport reads into registered memory.
    fn registering(&mut self) -> Option<&mut dyn Registering> {
        None
    }

    /// Granting credit by writing it into the peer's memory; `None` if credit is sent in headers.
    fn credit_windows(&mut self) -> Option<&mut dyn CreditWindows> {
        None
    }

    /// Sharing memory with peers on this host; `None` if it cannot.
    fn shared_memory(&mut self) -> Option<&mut dyn SharedMemory> {
        None
    }

    /// Answering watchers, which inspect the job from other hosts; `None` if only procs can reach it.
    fn watchers(&mut self) -> Option<&mut dyn Watchers> {
        None
    }

    /// Starts to connect; an event reports the result. Sends are possible from [`LinkEvent::Connected`] on.
    ///
    /// # Errors
    /// Why it cannot even start, in words.
    fn connect(&mut self, proc: u32, card: &[u8], now_ns: u64) -> Result<u32, String>;

    /// Tells the transport the engine's own number for the peer of a link. The transport hands out no frame of the link before: what has
    /// come waits, since an engine that does not know whose a frame is refuses it.
    fn attach(&mut self, link: u32, vc: Row);

    /// How many bytes of a payload, which has at most [`Capabilities::frame_max`] bytes, are sure to fit into a frame of a link once its
    /// peer has read everything. A longer frame may be refused for as long as the link lives, and must be cut. Never less than it was
    /// before.
    fn fits(&mut self, link: u32, payload: u64) -> u64 {
        let _ = link;
        payload
    }

    /// Bytes of memory, in whole pages, that it has allocated and shares with peers.
    fn shared_bytes(&self) -> u64 {
        0
    }

    /// Sends a frame. `state` is the row state of its CAR, which is fresh at the first try.
    fn send<P: Pieces + ?Sized>(&mut self, link: u32, header: &Header, pieces: &P, state: &mut Self::RowState) -> Sent;

    /// Sends frames until one is not taken. Returns how many were, and the result for the one that was not.
    ///
    /// # Safety
    /// The payloads are valid for reads.
    unsafe fn send_batch(&mut self, link: u32, frames: &[Frame], state: &mut Self::RowState) -> (usize, Sent) {
        for (index, frame) in frames.iter().enumerate() {
            // SAFETY: by this function's contract.
            let payload = unsafe { Payload::new(std::slice::from_ref(&frame.payload)) };
            let sent = self.send(link, &frame.header, &payload, state);
            if sent != Sent::Done {
                return (index, sent);
            }
        }
        (frames.len(), Sent::Done)
    }

    /// Sends the frames that it has held back. See [`Capabilities::holds_back`].
    fn flush(&mut self) {}

    /// Whether [`Transport::drain`] may find something, or [`Transport::control`] must be called. Makes no system call.
    fn ready(&self) -> bool;

    /// Reads frames into arrival rows: header, payload, vc, state. Payloads stay until [`Transport::release`].
    fn drain(&mut self, now_ns: u64, arrivals: &mut [Arrival]) -> usize;

    /// Hands whole messages ([`tickwire_components::wire::Kind::Eager`], without flags, priority or credits) to `take` one by one, each
    /// with its VC, without an arrival row. Stops at another kind of frame, when `take` refuses one, or after `most`. A payload is used
    /// within the call only. Called only while everything that was drained has been released.
    ///
    /// Returns how many were taken, and whether there is (or may be) something that only [`Transport::drain`] reads.
    #[inline]
    fn deliver(&mut self, most: u32, take: &mut impl Take) -> (u32, bool) {
        let _ = (most, take);
        (0, true)
    }

    /// As [`Transport::drain`], from one link only. Frames of other links stay. A transport that matches by itself may hand out whatever it
    /// has matched.
    fn drain_link(&mut self, link: u32, now_ns: u64, arrivals: &mut [Arrival]) -> usize;

    /// Tells the transport that the payloads of all arrivals have been used.
    fn release(&mut self);

    /// Whether [`Transport::control`] should be called now rather than at its usual interval.
    fn wants_control(&self) -> bool {
        false
    }

    /// Does the work of connections. May make system calls.
    fn control(&mut self, now_ns: u64, events: &mut Vec<LinkEvent>);

    /// Closes a link; no event follows. The peer is told.
    fn close_link(&mut self, link: u32);

    /// As [`Transport::close_link`], for a link that has failed. Tells the peer the reason, if possible.
    fn give_up(&mut self, link: u32, reason: &str) {
        let _ = reason;
        self.close_link(link);
    }

    /// Why a proc that is not connected will never answer, if the transport knows: its process has ended. The card names the process. May
    /// make system calls.
    fn has_ended(&self, proc: u32, card: &[u8]) -> Option<String> {
        let _ = (proc, card);
        None
    }

    /// A file descriptor that becomes readable when something has happened since [`Transport::arm`].
    fn wait_fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    /// Prepares to sleep on [`Transport::wait_fd`]; `false` if there is something to do already.
    fn arm(&mut self) -> bool {
        !self.ready()
    }

    /// Whether the sleep that [`Transport::arm`] has allowed must be short, since the descriptor does not report everything at present.
    fn must_poll(&self) -> bool {
        false
    }

    /// The sleep is over.
    fn disarm(&mut self) {}

    /// Ends all links. Idempotent.
    fn close(&mut self);
}
