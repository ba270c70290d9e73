//! The trait of all transports: what every one of them has. What only some can do is a [facet](crate::facets), which is there
//! or is not.

use crate::capabilities::Capabilities;
use crate::facets::{CreditWindows, Direct, Lending, Matching, Memory, OneSided, Registering, SharedMemory, Watchers};
use crate::frames::{Frame, LinkEvent, Sent, Traffic};
use crate::take::Take;
use rustix::fd::BorrowedFd;
use tickwire_components::wire::Header;
use tickwire_components::{Arrival, Payload, Pieces, Row};

/// A way to move frames. One instance is one endpoint; the engine that owns it is its only user.
///
/// All calls return at once. `proc` is a proc number of the world, `link` a number that the transport gave out,
/// `vc` the engine's own number for the peer, which comes back in every [`Arrival`].
///
/// # Safety
/// The bytes of every span that it gives out are valid for reads, of an arrival until [`Transport::release`]. It uses spans that
/// it is given only within the call. Its facets keep to what is said there.
#[expect(unsafe_code, reason = "the engine trusts the addresses that a transport gives out")]
pub unsafe trait Transport: Send {
    /// What it keeps for a CAR whose frame it could not take as a whole. The engine makes it a column.
    type RowState: Default + Send + Sync + 'static;

    /// Its name in configuration and reports.
    fn name(&self) -> &str;

    /// What it can do.
    fn capabilities(&self) -> &Capabilities;

    /// What a peer needs to know to reach it, at most 255 bytes.
    fn card(&self) -> Vec<u8>;

    /// Whether it reaches a proc with this card.
    ///
    /// # Errors
    /// Why not, in words.
    fn reaches(&self, proc: u32, card: &[u8]) -> Result<(), String>;

    /// Bytes that it has sent and received so far, headers and gaps included; 0 if it does not count them.
    fn moved(&self) -> (u64, u64) {
        (0, 0)
    }

    /// What a link has carried; `None` if it is not open or nobody counts.
    fn traffic(&self, link: u32) -> Option<Traffic> {
        let _ = link;
        None
    }

    /// Reading the memory of peers, and letting them read; `None` if it cannot.
    fn memory(&mut self) -> Option<&mut dyn Memory> {
        None
    }

    /// Moving long messages from place to place by itself; `None` if it cannot.
    fn direct(&mut self) -> Option<&mut dyn Direct> {
        None
    }

    /// Reading, writing and changing memory of peers; `None` if it cannot. Asked for first when somebody needs it: what it takes
    /// is opened then.
    fn one_sided(&mut self) -> Option<&mut dyn OneSided> {
        None
    }

    /// Pairing messages with receives; `None` if that is the engine's work.
    fn matching(&mut self) -> Option<&mut dyn Matching> {
        None
    }

    /// Lending memory of its own; `None` if it has none to lend.
    fn lending(&mut self) -> Option<&mut dyn Lending> {
        None
    }

    /// Making memory known; `None` if any memory will do. With it, payloads are in memory that it knows, or of at most
    /// [`Capabilities::inject_max`] bytes, and it reads into memory that it knows.
    fn registering(&mut self) -> Option<&mut dyn Registering> {
        None
    }

    /// Writing what a peer may send into the peer's memory; `None` if that goes in headers.
    fn credit_windows(&mut self) -> Option<&mut dyn CreditWindows> {
        None
    }

    /// Showing memory to peers on this host; `None` if it cannot.
    fn shared_memory(&mut self) -> Option<&mut dyn SharedMemory> {
        None
    }

    /// Hearing those who look at the job from other hosts; `None` if nobody can reach it who is no proc.
    fn watchers(&mut self) -> Option<&mut dyn Watchers> {
        None
    }

    /// Starts to connect; an event says how that went. Sends are possible from [`LinkEvent::Connected`] on.
    ///
    /// # Errors
    /// Why it cannot even start, in words.
    fn connect(&mut self, proc: u32, card: &[u8], now_ns: u64) -> Result<u32, String>;

    /// Tells the engine's own number of the peer behind a link.
    fn attach(&mut self, link: u32, vc: Row);

    /// How much of a payload, at most [`Capabilities::frame_max`] bytes, a frame of a link takes for certain once its peer has
    /// read all that is there. A longer one may be refused for as long as the link lives, and is to be cut. Never less than it was before.
    fn fits(&mut self, link: u32, payload: u64) -> u64 {
        let _ = link;
        payload
    }

    /// Bytes of memory, in whole pages, that it has made and shares with peers.
    fn shared_bytes(&self) -> u64 {
        0
    }

    /// Sends a frame. `state` is the row state of its CAR, and a fresh one at the first try.
    fn send<P: Pieces + ?Sized>(&mut self, link: u32, header: &Header, pieces: &P, state: &mut Self::RowState) -> Sent;

    /// Sends frames until one does not go; returns how many went, and what became of the one that did not.
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

    /// Sends what it has held back. See [`Capabilities::holds_back`].
    fn flush(&mut self) {}

    /// Whether [`Transport::drain`] may find something, or [`Transport::control`] must be called. No system call.
    fn ready(&self) -> bool;

    /// Reads frames into arrival rows: header, payload, vc, state. Payloads stay until [`Transport::release`].
    fn drain(&mut self, now_ns: u64, arrivals: &mut [Arrival]) -> usize;

    /// Hands messages that came as a whole ([`tickwire_components::wire::Kind::Eager`], without flags, priority or credits)
    /// to `take` one by one, each with its VC, without an arrival row, until there is another kind of frame, one is not
    /// taken, or there have been `most`; a payload is used within the call. Called only while nothing that was drained is unreleased.
    ///
    /// Returns how many were taken, and whether there is (or may be) something that only [`Transport::drain`] reads.
    #[inline]
    fn deliver(&mut self, most: u32, take: &mut impl Take) -> (u32, bool) {
        let _ = (most, take);
        (0, true)
    }

    /// As [`Transport::drain`], from one link only: what has come on others stays. A transport that matches by itself may hand
    /// out whatever it has matched.
    fn drain_link(&mut self, link: u32, now_ns: u64, arrivals: &mut [Arrival]) -> usize;

    /// The payloads of all arrivals have been used.
    fn release(&mut self);

    /// Whether [`Transport::control`] should be called now rather than at its usual interval.
    fn wants_control(&self) -> bool {
        false
    }

    /// Looks after connections; may make system calls.
    fn control(&mut self, now_ns: u64, events: &mut Vec<LinkEvent>);

    /// Closes a link; no event follows. The peer is told.
    fn close_link(&mut self, link: u32);

    /// As [`Transport::close_link`], of a link that is of no use, and tells the peer why, where it can.
    fn give_up(&mut self, link: u32, reason: &str) {
        let _ = reason;
        self.close_link(link);
    }

    /// Why a proc that is not connected will never answer, if the transport knows: its process has ended. The card says which
    /// process it is. May make system calls.
    fn has_ended(&self, proc: u32, card: &[u8]) -> Option<String> {
        let _ = (proc, card);
        None
    }

    /// A descriptor that is readable when something has happened since [`Transport::arm`].
    fn wait_fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    /// Prepares to sleep on [`Transport::wait_fd`]; `false` if something is there already.
    fn arm(&mut self) -> bool {
        !self.ready()
    }

    /// Whether the sleep that [`Transport::arm`] has allowed must be short, since the descriptor does not tell for now.
    fn must_poll(&self) -> bool {
        false
    }

    /// The sleep is over.
    fn disarm(&mut self) {}

    /// Ends all links. Idempotent.
    fn close(&mut self);
}
