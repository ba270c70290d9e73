//! Facets: abilities that only some transports have. The engine asks a transport for each once, and gets it or not: no method stands for
//! something that is impossible. Wrappers pass on whole facets.

use crate::frames::{MemoryRead, Peeked, ReceiveEnvelope, Sent};
use crate::heap::PeerHeap;
use crate::remote::{
    AtomicOperation, AtomicWidths, AtomicWord, Channel, FailedOperation, Issued, RemoteAccess, RemoteKey, RemoteRun,
    Settled,
};
use crate::shared::SharedRun;
use rustix::fd::OwnedFd;
use std::net::SocketAddr;
use std::sync::Arc;
use tickwire_components::credit::Credit;
use tickwire_components::{Access, Registration, Row, Span, Spans};

/// Reading the memory of peers, and letting them read. The transport decides how bytes are fetched.
///
/// # Safety
/// It uses exposed runs only until they are withdrawn, and other runs only within the call.
#[expect(unsafe_code, reason = "bytes that are addresses")]
pub unsafe trait Memory {
    /// Whether [`Memory::read`] works on a link for `length` bytes at `address`, as the peer names it.
    fn reads(&self, link: u32, address: u64, length: u64) -> bool;

    /// Fills runs of this process with bytes of the peer's memory, at most [`READS_A_CALL`](tickwire_components::limits::READS_A_CALL) of
    /// them, together if that costs less than one after another. Whatever the peer says about its memory, only these runs are written.
    ///
    /// # Errors
    /// Why one of the reads has failed, in words. Any run may have been filled, also in part. Another way to get the messages may still
    /// work.
    ///
    /// # Safety
    /// The runs are valid for writes.
    unsafe fn read(&mut self, link: u32, reads: &[MemoryRead]) -> Result<(), String>;

    /// Reads one run now if that needs no system call. If nothing else is to be read (`alone`) and the peer does not help, it may make one.
    /// On `false`, `into` may be partly written.
    ///
    /// # Safety
    /// `into` is valid for writes.
    unsafe fn read_at_once(&mut self, link: u32, address: u64, into: Span, alone: bool) -> bool;

    /// Lets the peer of a link read a run of this process's memory, which has been offered to it with its address. The transport may help
    /// the peer with that during any call, and uses no other memory for it, whatever the peer asks.
    ///
    /// # Safety
    /// The run is valid for reads, and nobody writes it, until [`Memory::withdraw`] of the same run, until the link is
    /// closed, or until [`Memory::withdraw_all`].
    unsafe fn expose(&mut self, link: u32, run: Span);

    /// Withdraws an exposed run, since its send is over: the transport no longer uses it, and forgets what the peer has asked for. Does
    /// nothing for a run that was not exposed.
    fn withdraw(&mut self, link: u32, run: Span);

    /// Withdraws all runs: the transport no longer uses any exposed memory.
    fn withdraw_all(&mut self);
}

/// Moving a long message directly from the sender's buffer into the receiver's.
///
/// # Safety
/// It uses the places only as long as they are its.
#[expect(unsafe_code, reason = "bytes that are addresses")]
pub unsafe trait Direct {
    /// Expects a message of the peer directly in its buffer, if that is possible. `into` belongs to the transport until an arrival with
    /// [`ArrivalState::Moved`] of CAR `row`, or until the link is closed. Returns the message's number in the sequence of the link, which
    /// the answer to the peer's offer carries.
    ///
    /// [`ArrivalState::Moved`]: tickwire_components::ArrivalState::Moved
    ///
    /// # Safety
    /// `into` is valid for writes as long as it is the transport's.
    unsafe fn expect(&mut self, link: u32, row: Row, into: Span) -> Option<u32>;

    /// Sends a message directly out of its buffer to the peer, which expects it under `number`. `from` belongs to the transport until an
    /// arrival as for [`Direct::expect`], or until the link is closed. `false` if the peer cannot expect it.
    ///
    /// # Safety
    /// `from` is valid for reads, and nobody writes it, as long as it is the transport's.
    unsafe fn send_direct(&mut self, link: u32, row: Row, number: u32, from: Span) -> bool;

    /// Ends all messages of [`Direct::expect`] and [`Direct::send_direct`]: the transport no longer uses their buffers, and no arrival
    /// follows.
    fn end(&mut self);
}

/// Reading, writing and updating memory that peers have exposed, without the peers' CPUs taking part.
///
/// Operations are accepted one by one and progress by themselves, in no order. Each channel counts the operations that it has accepted and
/// those that are complete. A caller that notes [`OneSided::issued`] and waits until [`OneSided::completed`] reaches it has flushed all
/// operations accepted before. An operation is complete once the memory of the peer, or the local run, holds the new bytes, or once it has
/// failed.
///
/// Both ends must be polled for progress, by [`Transport::ready`](crate::Transport::ready) and what follows it or by
/// [`OneSided::progress`]; and until two procs have exchanged their addresses, also by [`Transport::control`](crate::Transport::control).
///
/// # Safety
/// It uses local runs only until their operation is complete, and exposed runs only until they are withdrawn.
#[expect(unsafe_code, reason = "bytes that are addresses")]
pub unsafe trait OneSided {
    /// Contexts, at least 1.
    fn contexts(&self) -> u32;

    /// Exposes a run to all peers that learn its key. A run for atomic operations starts at a multiple of 8. The owner and its peers agree
    /// on when which bytes are used. Bytes that peers write may become visible in any order until the peers have flushed them.
    ///
    /// # Errors
    /// Why not, in words.
    ///
    /// # Safety
    /// The run is valid for reads, and for writes unless `access` is [`RemoteAccess::READ`], until it is withdrawn and no
    /// operation of a peer on it is under way, or until the transport is closed. It is not used by reference while peers write it.
    unsafe fn register_exposed(&mut self, run: Span, access: RemoteAccess) -> Result<RemoteKey, String>;

    /// Withdraws an exposed run. Later operations of peers on it fail if [`OneSided::refuses_stale_keys`].
    fn withdraw_exposed(&mut self, key: &RemoteKey);

    /// As [`OneSided::withdraw_exposed`], for an owner who wants to use the memory for something else while peers may still be using it.
    /// Returns a number for [`OneSided::settled`].
    fn withdraw_for_good(&mut self, key: &RemoteKey) -> u64;

    /// Whether operations of peers on a run are still under way after [`OneSided::withdraw_for_good`] has returned this number.
    /// Peers answer in their ticks, so this may take long. The answer is given once; afterwards the number is forgotten.
    fn settled(&mut self, number: u64) -> Settled;

    /// Whether operations of this process over a link may still be under way. It must not finalize in order towards that peer then.
    fn may_use(&mut self, link: u32) -> bool;

    /// The proc at the other end of a link has finalized in order, so its operations are complete.
    fn has_left(&mut self, link: u32);

    /// Whether the key of a withdrawn run is refused. If not, a peer that still uses it may write to memory that now serves another
    /// purpose.
    fn refuses_stale_keys(&self) -> bool;

    /// The integers that atomic operations work on: all of [`AtomicOperation`] and [`OneSided::compare_swap`].
    fn atomics(&mut self) -> AtomicWidths;

    /// Puts of at most this many bytes are copied: their run may be reused as soon as they are accepted.
    fn copies_max(&self) -> usize;

    /// Writes a local run into an exposed run. `number` is reported if that fails later.
    ///
    /// # Errors
    /// Why that is impossible, in words; nothing was done.
    ///
    /// # Safety
    /// `from` is valid for reads, and nobody writes it, until the operation is complete.
    unsafe fn put(&mut self, channel: Channel, to: RemoteRun, from: Span, number: u64) -> Result<Issued, String>;

    /// Reads an exposed run into a local run. `number` as for [`OneSided::put`].
    ///
    /// # Errors
    /// As [`OneSided::put`].
    ///
    /// # Safety
    /// `into` is valid for writes, and nobody else uses it, until the operation is complete.
    unsafe fn get(&mut self, channel: Channel, from: RemoteRun, into: Span, number: u64) -> Result<Issued, String>;

    /// Replaces an integer at `target` by the result of `operation` on it and `operand`, and writes the previous value into `into`, which
    /// has as many bytes as the operand. The offset of `target` is a multiple of that length. `number` as for [`OneSided::put`].
    ///
    /// # Errors
    /// As [`OneSided::put`].
    ///
    /// # Safety
    /// As [`OneSided::get`].
    unsafe fn fetch_atomic(
        &mut self,
        channel: Channel,
        target: RemoteRun,
        operation: AtomicOperation,
        operand: AtomicWord,
        into: Span,
        number: u64,
    ) -> Result<Issued, String>;

    /// Replaces an integer at `target` by `swap` if it equals `expected`, which has the same length; otherwise as
    /// [`OneSided::fetch_atomic`].
    ///
    /// # Errors
    /// As [`OneSided::put`].
    ///
    /// # Safety
    /// As [`OneSided::get`].
    unsafe fn compare_swap(
        &mut self,
        channel: Channel,
        target: RemoteRun,
        expected: AtomicWord,
        swap: AtomicWord,
        into: Span,
        number: u64,
    ) -> Result<Issued, String>;

    /// How many operations a channel has accepted since its link was opened.
    fn issued(&self, channel: Channel) -> u64;

    /// How many operations of a channel are complete, counted from the first one up to the first incomplete one. A link that has ended
    /// keeps its counts until its number is reused.
    fn completed(&self, channel: Channel) -> u64;

    /// The next operation that has failed. It is complete.
    fn failed_operation(&mut self) -> Option<FailedOperation>;

    /// Progresses operations now, also those of peers, even if recent polls found nothing.
    fn progress(&mut self);

    /// Whether operations of peers have ended a sleep since the last call. They need this proc to progress, and others are likely to
    /// follow. So it should poll for a while before it sleeps again. `false` if peers need no help.
    fn was_reached(&mut self) -> bool {
        false
    }
}

/// Matching messages with receives.
pub trait Matching {
    /// Posts a receive to a transport that matches by itself, for messages with [`Kind::Eager`], [`Kind::Sync`] or [`Kind::Rts`] in the
    /// application's plane ([`tickwire_components::context`]); all other frames arrive as usual. Receives match messages in the order in
    /// which they were posted. For each there is one arrival, whose `car` is `row`: [`ArrivalState::Matched`] with the message, or
    /// [`ArrivalState::Recalled`]. The message is reported in no other way. A link that was closed may still be named, to receive messages
    /// that have arrived on it.
    ///
    /// [`Kind::Eager`]: tickwire_components::wire::Kind::Eager
    /// [`Kind::Sync`]: tickwire_components::wire::Kind::Sync
    /// [`Kind::Rts`]: tickwire_components::wire::Kind::Rts
    /// [`ArrivalState::Matched`]: tickwire_components::ArrivalState::Matched
    /// [`ArrivalState::Recalled`]: tickwire_components::ArrivalState::Recalled
    fn post_receive(&mut self, row: Row, wanted: &ReceiveEnvelope) -> Sent;

    /// Cancels a receive. Its arrival tells whether it was cancelled or had been matched before. With `unless_message`, for a receive that
    /// no further message will arrive for, it is not cancelled while a message is there that it matches.
    fn recall(&mut self, row: Row, unless_message: bool);

    /// Starts a probe for the oldest unexpected message that a receive would match. There is one probe at a time. With `claim`, the message
    /// is reserved, and a later drain returns it as an arrival ([`ArrivalState::Claimed`]).
    ///
    /// [`ArrivalState::Claimed`]: tickwire_components::ArrivalState::Claimed
    fn peek(&mut self, wanted: &ReceiveEnvelope, claim: bool) -> Sent;

    /// The result of a probe, which ends the probe. Drains make a probe progress.
    fn peeked(&mut self) -> Peeked;

    /// Leaves matching to the engine, since another endpoint matches already. Called before [`Transport::card`](crate::Transport::card).
    fn leave(&mut self);
}

/// Lending memory of the transport's own.
///
/// # Safety
/// What it lends is valid for reads and writes until it is taken back.
#[expect(unsafe_code, reason = "bytes that are addresses")]
pub unsafe trait Lending {
    /// Lends runs of its own memory, registered and otherwise fit for use on a link: at least `least` and at most `most` bytes in one call,
    /// or none. They stay where they are until [`Lending::take_back`]. Returns how many bytes.
    fn lend(&mut self, link: u32, least: u64, most: u64, into: &mut Spans) -> u64;

    /// Takes back a run that it has lent, as a whole.
    fn take_back(&mut self, run: Span);
}

/// Registering memory with a transport that uses no other.
pub trait Registering {
    /// Registers memory, so that frames may be sent out of it or messages read into it, until [`Registering::deregister`].
    ///
    /// # Errors
    /// Why not, in words. The engine then deregisters unused memory, and asks again.
    fn register(&mut self, span: Span, access: Access) -> Result<Registration, String>;

    /// Deregisters memory, which may be freed already. No operation uses it any more.
    fn deregister(&mut self, registration: Registration);
}

/// Granting credit by writing it into the peer's memory.
pub trait CreditWindows {
    /// Grants the peer further credit, by writing it into the peer's memory.
    fn grant(&mut self, link: u32, credit: Credit);

    /// The credit that the peer has granted since the last call. If there is none, this proc wants more: from then on a grant ends its
    /// sleep.
    fn granted(&mut self, link: u32) -> Credit;
}

/// Sharing memory with peers on this host, and reading and writing peers' memory by its address.
///
/// Runs are named by a key, which both sides know: the context word of a communicator for its [boards](crate::boards), which all have one
/// length, and a key from 2³² on for all others.
pub trait SharedMemory {
    /// Whether communicators use such memory for collective operations ([`crate::boards`]).
    fn has_boards(&self) -> bool;

    /// Makes a run of `bytes` zero bytes, to be passed to peers under a key. Peers in this process also get other memory with it, `beside`,
    /// which stays for as long as they may use it ([`SharedRun::beside`]).
    ///
    /// # Errors
    /// Why there is none, in words.
    fn make(&mut self, key: u64, bytes: usize, beside: Span) -> Result<SharedRun, String>;

    /// Passes the run of a key to the peer of a link, or tells it that there is none. `false` if this was not possible right now.
    ///
    /// # Errors
    /// That the link is not open.
    fn give(&mut self, link: u32, key: u64) -> Result<bool, String>;

    /// All peers have the run of a key, or will never have it: it is not passed any more.
    fn stop_giving(&mut self, key: u64);

    /// Takes what the peer of a link has passed under a key, once: `Some(None)` if the peer has no such run. The caller must check its
    /// length.
    fn take(&mut self, link: u32, key: u64) -> Option<Option<SharedRun>>;

    /// The shared heap of the peer of a link, if this process maps it.
    fn heap_of(&self, link: u32) -> Option<Arc<PeerHeap>>;

    /// The same heap, if this process maps it for writing too, which requires that the kernel lets it write the peer's memory. The first
    /// call maps it.
    fn writable_heap(&mut self, link: u32) -> Option<&Arc<PeerHeap>>;

    /// Whether [`SharedMemory::fetch`] and [`SharedMemory::store`] work on a link.
    fn fetches(&self, link: u32) -> bool;

    /// Fills a run with bytes that the peer of a link has at an address, as the peer names it. Returns whether that was possible. Whatever
    /// the peer says, only the run is written.
    ///
    /// # Safety
    /// The run is valid for writes. Over a transport within a process, where no kernel checks the address, as many bytes there are valid
    /// for reads.
    #[expect(unsafe_code, reason = "bytes that are addresses")]
    unsafe fn fetch(&mut self, link: u32, address: u64, into: Span) -> bool;

    /// Writes a run to an address of the peer of a link, which has offered it for that. Returns whether that was possible; if not, a part
    /// may have been written.
    ///
    /// # Safety
    /// The run is valid for reads. Over a transport within a process, as many bytes at the address are valid for writes.
    #[expect(unsafe_code, reason = "bytes that are addresses")]
    unsafe fn store(&mut self, link: u32, address: u64, from: Span) -> bool;

    /// As [`SharedMemory::fetch`], for several runs, each from an address of its own. If the kernel does it, one call moves many of them.
    ///
    /// # Safety
    /// As [`SharedMemory::fetch`], of each.
    #[expect(unsafe_code, reason = "bytes that are addresses")]
    unsafe fn fetch_runs(&mut self, link: u32, runs: &[(u64, Span)]) -> bool {
        // SAFETY: by the same contract.
        runs.iter().all(|&(address, into)| unsafe { self.fetch(link, address, into) })
    }

    /// As [`SharedMemory::store`], for several runs, each to an address of its own. If the kernel does it, one call moves many of them.
    ///
    /// # Safety
    /// As [`SharedMemory::store`], of each.
    #[expect(unsafe_code, reason = "bytes that are addresses")]
    unsafe fn store_runs(&mut self, link: u32, runs: &[(u64, Span)]) -> bool {
        // SAFETY: by the same contract.
        runs.iter().all(|&(address, from)| unsafe { self.store(link, address, from) })
    }

    /// Wakes the peer of a link if it sleeps, since shared memory has changed.
    fn wake(&mut self, link: u32);
}

/// A watcher's question as it arrived. Only the engine interprets its bytes.
pub type Question = [u8; 16];

/// A watcher, which inspects the job from another host and has proved that it may: it knows the secret in this proc's card.
#[derive(Debug)]
pub struct Watcher {
    /// The connection to answer over; it does not block.
    pub socket: OwnedFd,
    /// The question. Every byte may be hostile.
    pub question: Question,
}

/// Where watchers ask a proc, and the secret that they must show.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WatcherDoor {
    /// Its address.
    pub address: SocketAddr,
    /// The secret that only the job knows.
    pub secret: u64,
}

/// Answering watchers: commands, not procs, that inspect the job from other hosts.
pub trait Watchers {
    /// Where watchers ask a proc with this card.
    fn door(&self, card: &[u8]) -> Option<WatcherDoor>;

    /// The next watcher. A bounded number of them waits; others are told to ask again.
    fn next_watcher(&mut self) -> Option<Watcher>;
}
