//! Facets: what only some transports can do. A transport is asked for one once, and has it or has not: no method stands for
//! something that cannot be done. Wrappers hand on whole facets.

use crate::frames::{MemoryRead, Peeked, ReceiveEnvelope, Sent};
use crate::heap::PeerHeap;
use crate::remote::{
    AtomicOperation, AtomicWidths, AtomicWord, Channel, FailedOperation, Issued, RemoteAccess, RemoteKey, RemoteRun,
};
use crate::shared::SharedRun;
use rustix::fd::OwnedFd;
use std::net::SocketAddr;
use std::sync::Arc;
use tickwire_components::credit::Credit;
use tickwire_components::{Access, Registration, Row, Span, Spans};

/// Reading the memory of peers, and letting them read. How bytes are fetched is the transport's own affair.
///
/// # Safety
/// It uses exposed runs only until they are withdrawn, and other runs only within the call.
#[expect(unsafe_code, reason = "bytes that are addresses")]
pub unsafe trait Memory {
    /// Whether [`Memory::read`] works on a link for `length` bytes that the peer has at `address`, by its own word.
    fn reads(&self, link: u32, address: u64, length: u64) -> bool;

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
    unsafe fn read(&mut self, link: u32, reads: &[MemoryRead]) -> Result<(), String>;

    /// As [`Memory::read`] of one run, if that takes no system call, or if it is `alone`: if nothing else is to be read, and
    /// the peer is not to help with it. `false` if it is not so or cannot be; any of `into` may have been written then.
    ///
    /// # Safety
    /// `into` is valid for writes.
    unsafe fn read_at_once(&mut self, link: u32, address: u64, into: Span, alone: bool) -> bool;

    /// Says that the peer of a link may read a run of this process's memory: it has been offered to it, with its address. The
    /// transport may help the peer with that, whenever it is called, and uses no other memory for it, whatever the peer asks.
    ///
    /// # Safety
    /// The run is valid for reads, and nobody writes it, until [`Memory::withdraw`] of the same run, until the link is
    /// closed, or until [`Memory::withdraw_all`].
    unsafe fn expose(&mut self, link: u32, run: Span);

    /// The send of an exposed run is over: nothing of it is the transport's any more, and whatever the peer has asked for is
    /// forgotten. A run that was not exposed is nothing to withdraw.
    fn withdraw(&mut self, link: u32, run: Span);

    /// Withdraws all runs: nothing that was exposed is the transport's any more.
    fn withdraw_all(&mut self);
}

/// Moving a long message straight from its place at the sender to its place at the receiver.
///
/// # Safety
/// It uses the places only as long as they are its.
#[expect(unsafe_code, reason = "bytes that are addresses")]
pub unsafe trait Direct {
    /// Takes a message of the peer straight into its place, if it can: `into` is the transport's until an arrival with
    /// [`ArrivalState::Moved`] of CAR `row`, or until the link is closed. Returns the message's turn among those of the
    /// link, which the peer is told with the answer to its offer.
    ///
    /// [`ArrivalState::Moved`]: tickwire_components::ArrivalState::Moved
    ///
    /// # Safety
    /// `into` is valid for writes as long as it is the transport's.
    unsafe fn expect(&mut self, link: u32, row: Row, into: Span) -> Option<u32>;

    /// Moves a message straight out of its place to the peer, which expects it in its turn: `from` is the transport's until an
    /// arrival as for [`Direct::expect`], or until the link is closed. `false` if the peer can expect nothing.
    ///
    /// # Safety
    /// `from` is valid for reads, and nobody writes it, as long as it is the transport's.
    unsafe fn send_direct(&mut self, link: u32, row: Row, number: u32, from: Span) -> bool;

    /// Ends all that [`Direct::expect`] and [`Direct::send_direct`] were given: nothing of it is the transport's any more, and no
    /// arrival follows.
    fn end(&mut self);
}

/// Reading, writing and changing memory that peers have exposed, without their doing.
///
/// Operations are taken one by one and go on by themselves, in no order. What a channel has taken is counted, and so is how far
/// it has come: who notes [`OneSided::issued`] and waits until [`OneSided::completed`] is as much has flushed all that was
/// taken before. An operation is complete once the memory of the peer, or the local run, holds what it was to hold, or once it has
/// failed.
///
/// Both ends must be asked to progress, by [`Transport::ready`](crate::Transport::ready) and what follows it or by
/// [`OneSided::progress`]; and until two procs have told each other where they are, also by
/// [`Transport::control`](crate::Transport::control).
///
/// # Safety
/// It uses local runs only until their operation is complete, and exposed runs only until they are withdrawn.
#[expect(unsafe_code, reason = "bytes that are addresses")]
pub unsafe trait OneSided {
    /// Contexts, at least 1.
    fn contexts(&self) -> u32;

    /// Exposes a run to all peers that learn of its key. One for atomic operations starts at a multiple of 8. The owner
    /// and its peers agree on when which bytes are used; what peers write may be seen in any order until they have flushed it.
    ///
    /// # Errors
    /// Why not, in words.
    ///
    /// # Safety
    /// The run is valid for reads, and for writes unless `access` is [`RemoteAccess::READ`], until it is withdrawn and no
    /// operation of a peer on it is under way, or until the transport is closed. It is not used by reference while peers write it.
    unsafe fn register_exposed(&mut self, run: Span, access: RemoteAccess) -> Result<RemoteKey, String>;

    /// Withdraws an exposed run. What peers ask for it from then on fails, if [`OneSided::refuses_stale_keys`].
    fn withdraw_exposed(&mut self, key: &RemoteKey);

    /// Whether the key of a run that was withdrawn is refused. Else who still uses it may write to what the memory has become.
    fn refuses_stale_keys(&self) -> bool;

    /// Which atomic operations there are: all of [`AtomicOperation`] and [`OneSided::compare_swap`] on such integers.
    fn atomics(&mut self) -> AtomicWidths;

    /// Puts of at most so many bytes are done with their run when they have been taken.
    fn copies_max(&self) -> usize;

    /// Writes a local run into an exposed run. `number` comes back if that fails later.
    ///
    /// # Errors
    /// Why that cannot be, in words; nothing was done.
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

    /// Replaces an integer at `target` by what `operation` makes of it and of `operand`, and writes what was there before into
    /// `into`, which has as many bytes as the operand. The offset of `target` is a multiple of them. `number` as for [`OneSided::put`].
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

    /// Replaces an integer at `target` by `swap` if it is `expected`, which has as many bytes; else as
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

    /// Operations that a channel has taken since its link was opened.
    fn issued(&self, channel: Channel) -> u64;

    /// How many of the operations of a channel, from the first one on without a gap, are complete. A link that has ended keeps its
    /// counts until its number is used again.
    fn completed(&self, channel: Channel) -> u64;

    /// The next operation that has failed. It is complete.
    fn failed_operation(&mut self) -> Option<FailedOperation>;

    /// Progresses operations now, also those of peers, however often that has been done in vain.
    fn progress(&mut self);

    /// Whether a sleep has been ended by operations of peers since this was asked last. They need this proc to progress, and others
    /// are likely to follow: it should look on for a while before it sleeps again. `false` where peers need no help.
    fn was_reached(&mut self) -> bool {
        false
    }
}

/// Pairing messages with receives.
pub trait Matching {
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
    fn post_receive(&mut self, row: Row, wanted: &ReceiveEnvelope) -> Sent;

    /// Asks for a receive back. Its arrival says whether it came back or had been paired before. With `unless_message`, for one
    /// that nothing else will arrive for, it does not come back while a message is there that it takes.
    fn recall(&mut self, row: Row, unless_message: bool);

    /// Starts to look for the oldest message that nothing has been paired with and that a receive would take; there is one
    /// look at a time. With `claim`, nobody else gets it, and it comes as an arrival ([`ArrivalState::Claimed`]) of a drain that
    /// follows.
    ///
    /// [`ArrivalState::Claimed`]: tickwire_components::ArrivalState::Claimed
    fn peek(&mut self, wanted: &ReceiveEnvelope, claim: bool) -> Sent;

    /// What has come of a look; it is over then. Drains are what it gets on with.
    fn peeked(&mut self) -> Peeked;

    /// Leaves matching to the engine. Called before [`Transport::card`](crate::Transport::card), where another endpoint matches already.
    fn leave(&mut self);
}

/// Lending memory of the transport's own.
///
/// # Safety
/// What it lends is valid for reads and writes until it is taken back.
#[expect(unsafe_code, reason = "bytes that are addresses")]
pub unsafe trait Lending {
    /// Lends runs of its own memory, registered and otherwise fit for use on a link: at least `least` and at most `most`
    /// bytes, at once, or none. They stay where they are until [`Lending::take_back`]. Returns how many bytes.
    fn lend(&mut self, link: u32, least: u64, most: u64, into: &mut Spans) -> u64;

    /// Takes back a run that it has lent, as a whole.
    fn take_back(&mut self, run: Span);
}

/// Making memory known to a transport that uses no other.
pub trait Registering {
    /// Makes memory known, so that frames may be sent out of it or messages read into it, until
    /// [`Registering::deregister`].
    ///
    /// # Errors
    /// Why not, in words. Others that are not needed are deregistered then, and it is asked again.
    fn register(&mut self, span: Span, access: Access) -> Result<Registration, String>;

    /// Forgets memory, which may be freed already. No operation uses it any more.
    fn deregister(&mut self, registration: Registration);
}

/// Writing what a peer may send into the peer's memory.
pub trait CreditWindows {
    /// Writes into the peer's memory that it may send so much more.
    fn grant(&mut self, link: u32, credit: Credit);

    /// What the peer has written since it was asked last. Whoever gets nothing wants more: from then on a grant ends a sleep.
    fn granted(&mut self, link: u32) -> Credit;
}

/// Sharing memory with peers on this host, and reading and writing what they have by its address.
///
/// Runs go under a key, which both sides know: the context word of a communicator for its [boards](crate::boards), which all have
/// one length, and a key from 2³² on for all others.
pub trait SharedMemory {
    /// Whether communicators show their messages in such memory ([`crate::boards`]).
    fn has_boards(&self) -> bool;

    /// Makes a run of so many zero bytes, which is to be given to peers under a key. Those in this process are given other memory with it,
    /// `beside`, which stays for as long as they may use it ([`SharedRun::beside`]).
    ///
    /// # Errors
    /// Why there is none, in words.
    fn make(&mut self, key: u64, bytes: usize, beside: Span) -> Result<SharedRun, String>;

    /// Passes the run of a key to the peer of a link, or that there is none. `false` if it could not be passed right now.
    ///
    /// # Errors
    /// That the link is not open.
    fn give(&mut self, link: u32, key: u64) -> Result<bool, String>;

    /// All peers have the run of a key, or will never have it: it is passed to nobody any more.
    fn stop_giving(&mut self, key: u64);

    /// What the peer of a link has passed under a key, once: `Some(None)` if that is that it has none. Whoever takes it checks its
    /// length.
    fn take(&mut self, link: u32, key: u64) -> Option<Option<SharedRun>>;

    /// The shared heap of the peer of a link, if this process maps it.
    fn heap_of(&self, link: u32) -> Option<Arc<PeerHeap>>;

    /// The same, if this process maps it for writing, too: where the kernel lets it write the peer's memory. The first call maps it.
    fn writable_heap(&mut self, link: u32) -> Option<&Arc<PeerHeap>>;

    /// Whether [`SharedMemory::fetch`] and [`SharedMemory::store`] work on a link.
    fn fetches(&self, link: u32) -> bool;

    /// Fills a run with bytes that the peer of a link has at an address, by its own word; whether that was possible. Whatever the peer
    /// says, nothing but the run is written.
    ///
    /// # Safety
    /// The run is valid for writes. Over a transport within a process, where no kernel checks the address, as many bytes there are valid
    /// for reads.
    #[expect(unsafe_code, reason = "bytes that are addresses")]
    unsafe fn fetch(&mut self, link: u32, address: u64, into: Span) -> bool;

    /// Writes a run to an address of the peer of a link, which has offered it for that; whether that was possible. A part may have been
    /// written where it was not.
    ///
    /// # Safety
    /// The run is valid for reads. Over a transport within a process, as many bytes at the address are valid for writes.
    #[expect(unsafe_code, reason = "bytes that are addresses")]
    unsafe fn store(&mut self, link: u32, address: u64, from: Span) -> bool;

    /// As [`SharedMemory::fetch`], for several runs, each from an address of its own. Where the kernel does it, one call takes many of them.
    ///
    /// # Safety
    /// As [`SharedMemory::fetch`], of each.
    #[expect(unsafe_code, reason = "bytes that are addresses")]
    unsafe fn fetch_runs(&mut self, link: u32, runs: &[(u64, Span)]) -> bool {
        // SAFETY: by the same contract.
        runs.iter().all(|&(address, into)| unsafe { self.fetch(link, address, into) })
    }

    /// As [`SharedMemory::store`], for several runs, each to an address of its own. Where the kernel does it, one call takes many of them.
    ///
    /// # Safety
    /// As [`SharedMemory::store`], of each.
    #[expect(unsafe_code, reason = "bytes that are addresses")]
    unsafe fn store_runs(&mut self, link: u32, runs: &[(u64, Span)]) -> bool {
        // SAFETY: by the same contract.
        runs.iter().all(|&(address, from)| unsafe { self.store(link, address, from) })
    }

    /// Shared memory has changed: ends the sleep of the peer of a link, if it sleeps.
    fn wake(&mut self, link: u32);
}

/// A question of a watcher, as it came; its bytes mean something to the engine.
pub type Question = [u8; 16];

/// Somebody who looks at the job from another host and has shown that it may: it knows what is in the own card.
#[derive(Debug)]
pub struct Watcher {
    /// The connection, to be answered over; it does not block.
    pub socket: OwnedFd,
    /// What is asked. Every byte may be hostile.
    pub question: Question,
}

/// Where a proc is asked by watchers, and what it has to be shown.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WatcherDoor {
    /// Its address.
    pub address: SocketAddr,
    /// What only the job knows.
    pub secret: u64,
}

/// Hearing those who look at the job from other hosts: commands, no procs.
pub trait Watchers {
    /// Where a proc with this card is asked.
    fn door(&self, card: &[u8]) -> Option<WatcherDoor>;

    /// The next watcher. A bounded number of them waits; others are told to ask again.
    fn next_watcher(&mut self) -> Option<Watcher>;
}
