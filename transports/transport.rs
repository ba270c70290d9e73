//! The trait of all transports.

use crate::capabilities::Capabilities;
use crate::frames::{Frame, LinkEvent, MemoryRead, Peeked, ReceiveEnvelope, Sent, Traffic};
use crate::take::Take;
use rustix::fd::BorrowedFd;
use tickwire_components::credit::Credit;
use tickwire_components::wire::Header;
use tickwire_components::{Access, Arrival, Payload, Pieces, Registration, Row, Span, Spans};

/// A way to move frames. One instance is one endpoint; the engine that owns it is its only user.
///
/// All calls return at once. `proc` is a proc number of the world, `link` a number that the transport gave out,
/// `vc` the engine's own number for the peer, which comes back in every [`Arrival`].
///
/// # Safety
/// The bytes of every span that it gives out are valid: payloads for reads (of an arrival until [`Transport::release`]), what
/// it lends for reads and writes until it is taken back. It uses spans that it is given only within the call, where nothing
/// else is said.
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

    /// Whether [`Transport::read`] works on a link for `length` bytes that the peer has at `address`, by its own word.
    fn reads(&self, link: u32, address: u64, length: u64) -> bool {
        let _ = (link, address, length);
        false
    }

    /// What a link has carried; `None` if it is not open or nobody counts.
    fn traffic(&self, link: u32) -> Option<Traffic> {
        let _ = link;
        None
    }

    /// Fills runs of this process with bytes of the peer's memory, at most [`READS_A_CALL`](tickwire_components::limits::READS_A_CALL)
    /// of them, together where that costs less than one after another. Whatever the peer says of its memory, nothing but these
    /// runs is written.
    ///
    /// # Errors
    /// Why one of them cannot be, in words; any may have been filled, also in part. Another way to get the messages may still
    /// work.
    ///
    /// # Safety
    /// The runs are valid for writes.
    unsafe fn read(&mut self, link: u32, reads: &[MemoryRead]) -> Result<(), String> {
        let _ = (link, reads);
        Err("this transport reads no memory".into())
    }

    /// As [`Transport::read`] of one run, if that takes no system call, or if it is `alone`: if nothing else is to be read, and
    /// the peer is not to help with it. `false` if it is not so or cannot be; any of `into` may have been written then.
    ///
    /// # Safety
    /// `into` is valid for writes.
    unsafe fn read_at_once(&mut self, link: u32, address: u64, into: Span, alone: bool) -> bool {
        let _ = (link, address, into, alone);
        false
    }

    /// Says that the peer of a link may read a run of this process's memory: it has been offered to it, with its address. The
    /// transport may help the peer with that, whenever it is called, and uses no other memory for it, whatever the peer asks.
    ///
    /// # Safety
    /// The run is valid for reads, and nobody writes it, until [`Transport::withdraw`] of the same run, until the link is
    /// closed, or until [`Transport::end_direct`].
    unsafe fn expose(&mut self, link: u32, run: Span) {
        let _ = (link, run);
    }

    /// The send of an exposed run is over: nothing of it is the transport's any more, and whatever the peer has asked for is
    /// forgotten. A run that was not exposed is nothing to withdraw.
    fn withdraw(&mut self, link: u32, run: Span) {
        let _ = (link, run);
    }

    /// Takes a message of the peer straight into its place, if it can: `into` is the transport's until an arrival with
    /// [`ArrivalState::Moved`] whose `car` is `row`, or until the link is closed. Returns the message's turn among those of the
    /// link, which the peer is told with the answer to its offer.
    ///
    /// [`ArrivalState::Moved`]: tickwire_components::ArrivalState::Moved
    ///
    /// # Safety
    /// `into` is valid for writes as long as it is the transport's.
    unsafe fn expect(&mut self, link: u32, row: Row, into: Span) -> Option<u32> {
        let _ = (link, row, into);
        None
    }

    /// Moves a message straight out of its place to the peer, which expects it in its turn: `from` is the transport's until an
    /// arrival as for [`Transport::expect`], or until the link is closed. `false` if the peer can expect nothing.
    ///
    /// # Safety
    /// `from` is valid for reads, and nobody writes it, as long as it is the transport's.
    unsafe fn send_direct(&mut self, link: u32, row: Row, number: u32, from: Span) -> bool {
        let _ = (link, row, number, from);
        false
    }

    /// Ends all that [`Transport::expect`], [`Transport::send_direct`] and [`Transport::expose`] were given: nothing of it is the
    /// transport's any more, and no arrival follows.
    fn end_direct(&mut self) {}

    /// Lends runs of its own memory, registered and otherwise fit for use on a link: at least `least` and at most `most`
    /// bytes, at once, or none. They stay where they are until [`Transport::take_back`]. Returns how many bytes.
    fn lend(&mut self, link: u32, least: u64, most: u64, into: &mut Spans) -> u64 {
        let _ = (link, least, most, into);
        0
    }

    /// Takes back a run that it has lent, as a whole.
    fn take_back(&mut self, run: Span) {
        let _ = run;
    }

    /// Makes memory known, so that frames may be sent out of it or messages read into it, until
    /// [`Transport::deregister`]. Called only where [`Capabilities::needs_registration`]. Such a transport is given payload
    /// in memory that it knows, or of at most [`Capabilities::inject_max`] bytes, and reads into memory that it knows.
    ///
    /// # Errors
    /// Why not, in words. Others that are not needed are deregistered then, and it is asked again.
    fn register(&mut self, span: Span, access: Access) -> Result<Registration, String> {
        let _ = (span, access);
        Ok(Registration(0))
    }

    /// Forgets memory, which may be freed already. No operation uses it any more.
    fn deregister(&mut self, registration: Registration) {
        let _ = registration;
    }

    /// Writes into the peer's memory that it may send so much more. Called where [`Capabilities::windows`] says so.
    fn grant(&mut self, link: u32, credit: Credit) {
        let _ = (link, credit);
    }

    /// What the peer has written since it was asked last. Whoever gets nothing wants more: from then on a grant ends a sleep.
    fn granted(&mut self, link: u32) -> Credit {
        let _ = link;
        Credit::NONE
    }

    /// Gives a receive to a transport that matches by itself, for messages with [`Kind::Eager`], [`Kind::Sync`] or [`Kind::Rts`] in
    /// the application's plane ([`tickwire_components::context`]); all other frames come as ever. Receives take messages in
    /// the order in which they were given. For each there is one arrival, whose `car` is `row`:
    /// [`ArrivalState::Matched`] with the message, or [`ArrivalState::Recalled`]. Nothing else is told of the message.
    /// A link that was closed may still be named: what has arrived on it can be received.
    ///
    /// [`Kind::Eager`]: tickwire_components::wire::Kind::Eager
    /// [`Kind::Sync`]: tickwire_components::wire::Kind::Sync
    /// [`Kind::Rts`]: tickwire_components::wire::Kind::Rts
    /// [`ArrivalState::Matched`]: tickwire_components::ArrivalState::Matched
    /// [`ArrivalState::Recalled`]: tickwire_components::ArrivalState::Recalled
    fn post_receive(&mut self, row: Row, wanted: &ReceiveEnvelope) -> Sent {
        let _ = (row, wanted);
        Sent::Failed
    }

    /// Asks for a receive back. Its arrival says whether it came back or had been paired before. With `unless_message`, for one
    /// that nothing else will arrive for, it does not come back while a message is there that it takes.
    fn recall(&mut self, row: Row, unless_message: bool) {
        let _ = (row, unless_message);
    }

    /// Starts to look for the oldest message that nothing has been paired with and that a receive would take; there is one
    /// look at a time. With `claim`, nobody else gets it, and it comes as an arrival ([`ArrivalState::Claimed`]) of a drain that
    /// follows.
    ///
    /// [`ArrivalState::Claimed`]: tickwire_components::ArrivalState::Claimed
    fn peek(&mut self, wanted: &ReceiveEnvelope, claim: bool) -> Sent {
        let _ = (wanted, claim);
        Sent::Failed
    }

    /// What has come of a look; it is over then. Drains are what it gets on with.
    fn peeked(&mut self) -> Peeked {
        Peeked::Pending
    }

    /// Leaves matching to the engine. Called before [`Transport::card`], where another endpoint matches already.
    fn leave_matching(&mut self) {}

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
