//! The transports that an engine can hold.

use crate::ofi::Ofi;
use crate::rings::links::Links;
use crate::{
    Capabilities, Frame, LinkEvent, Loopback, MemoryRead, Peeked, ReceiveEnvelope, Sent, Shm, Take, Traffic, Transport,
};
use rustix::fd::BorrowedFd;
use std::any::Any;
use std::cell::UnsafeCell;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use tickwire_components::credit::Credit;
use tickwire_components::wire::Header;
use tickwire_components::{Access, Arrival, Payload, Pieces, Registration, Row, Span, Spans, Stretch};

/// Runs of a datatype that a boxed transport is given as such; more are packed before.
const GATHERED_MAX: usize = 8;

/// A transport of an engine. The frequent ones are variants; everything else is boxed.
pub enum AnyTransport {
    /// Within the process.
    Loopback(Own<Loopback>),
    /// Within the host.
    Shm(Own<Shm>),
    /// Other hosts, over libfabric.
    Ofi(Own<Ofi>),
    /// Any other.
    Outside(Own<dyn Outside>),
}

/// A transport on the heap, as a box. Other than a box it may have a [second](AnyTransport::second) owner.
pub struct Own<T: ?Sized>(Arc<UnsafeCell<T>>);

// SAFETY: it is used as the only owner of its value, by the promise of `AnyTransport::second`.
#[expect(unsafe_code, reason = "as a box")]
unsafe impl<T: ?Sized + Send> Send for Own<T> {}

impl<T: ?Sized> Deref for Own<T> {
    type Target = T;

    #[inline(always)]
    fn deref(&self) -> &T {
        // SAFETY: nobody else uses the value meanwhile, by the promise of `AnyTransport::second`.
        #[expect(unsafe_code, reason = "as a box")]
        unsafe {
            &*self.0.get()
        }
    }
}

impl<T: ?Sized> DerefMut for Own<T> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: nobody else uses the value meanwhile, by the promise of `AnyTransport::second`.
        #[expect(unsafe_code, reason = "as a box")]
        unsafe {
            &mut *self.0.get()
        }
    }
}

macro_rules! from {
    ($($transport:ident),*) => {$(
        impl From<$transport> for AnyTransport {
            fn from(transport: $transport) -> Self {
                AnyTransport::$transport(Own(Arc::new(UnsafeCell::new(transport))))
            }
        }
    )*};
}
from!(Loopback, Shm, Ofi);

/// The object-safe form of [`Transport`], made for every `T: Transport + 'static` by [`AnyTransport::outside`].
///
/// # Safety
/// As [`Transport`].
#[expect(unsafe_code, reason = "the engine trusts the addresses that a transport gives out")]
pub unsafe trait Outside: Send {
    /// See [`Transport::name`].
    fn name(&self) -> &str;
    /// See [`Transport::capabilities`].
    fn capabilities(&self) -> &Capabilities;
    /// See [`Transport::card`].
    fn card(&self) -> Vec<u8>;
    /// See [`Transport::reaches`].
    ///
    /// # Errors
    /// Why not, in words.
    fn reaches(&self, proc: u32, card: &[u8]) -> Result<(), String>;
    /// See [`Transport::moved`].
    fn moved(&self) -> (u64, u64);
    /// See [`Transport::connect`].
    ///
    /// # Errors
    /// Why it cannot even start, in words.
    fn connect(&mut self, proc: u32, card: &[u8], now_ns: u64) -> Result<u32, String>;
    /// See [`Transport::attach`].
    fn attach(&mut self, link: u32, vc: Row);
    /// See [`Transport::fits`].
    fn fits(&mut self, link: u32, payload: u64) -> u64;
    /// See [`Transport::shared_bytes`].
    fn shared_bytes(&self) -> u64;
    /// See [`Transport::reads`].
    fn reads(&self, link: u32, address: u64, length: u64) -> bool;
    /// See [`Transport::traffic`].
    fn traffic(&self, link: u32) -> Option<Traffic>;
    /// See [`Transport::read`].
    ///
    /// # Errors
    /// Why not, in words.
    ///
    /// # Safety
    /// As there.
    unsafe fn read(&mut self, link: u32, reads: &[MemoryRead]) -> Result<(), String>;
    /// See [`Transport::read_at_once`].
    ///
    /// # Safety
    /// As there.
    unsafe fn read_at_once(&mut self, link: u32, address: u64, into: Span, alone: bool) -> bool;
    /// See [`Transport::expose`].
    ///
    /// # Safety
    /// As there.
    unsafe fn expose(&mut self, link: u32, run: Span);
    /// See [`Transport::withdraw`].
    fn withdraw(&mut self, link: u32, run: Span);
    /// See [`Transport::expect`].
    ///
    /// # Safety
    /// As there.
    unsafe fn expect(&mut self, link: u32, row: Row, into: Span) -> Option<u32>;
    /// See [`Transport::send_direct`].
    ///
    /// # Safety
    /// As there.
    unsafe fn send_direct(&mut self, link: u32, row: Row, number: u32, from: Span) -> bool;
    /// See [`Transport::end_direct`].
    fn end_direct(&mut self);
    /// See [`Transport::lend`].
    fn lend(&mut self, link: u32, least: u64, most: u64, into: &mut Spans) -> u64;
    /// See [`Transport::take_back`].
    fn take_back(&mut self, run: Span);
    /// See [`Transport::register`].
    ///
    /// # Errors
    /// Why not, in words.
    fn register(&mut self, span: Span, access: Access) -> Result<Registration, String>;
    /// See [`Transport::deregister`].
    fn deregister(&mut self, registration: Registration);
    /// See [`Transport::post_receive`].
    fn post_receive(&mut self, row: Row, wanted: &ReceiveEnvelope) -> Sent;
    /// See [`Transport::recall`].
    fn recall(&mut self, row: Row, unless_message: bool);
    /// See [`Transport::peek`].
    fn peek(&mut self, wanted: &ReceiveEnvelope, claim: bool) -> Sent;
    /// See [`Transport::peeked`].
    fn peeked(&mut self) -> Peeked;
    /// See [`Transport::leave_matching`].
    fn leave_matching(&mut self);
    /// See [`Transport::grant`].
    fn grant(&mut self, link: u32, credit: Credit);
    /// See [`Transport::granted`].
    fn granted(&mut self, link: u32) -> Credit;
    /// See [`Transport::send`]; `state` is the row's [`Transport::RowState`], or `None` at a first try without a row.
    ///
    /// # Safety
    /// The pieces are valid for reads.
    unsafe fn send(&mut self, link: u32, header: &Header, pieces: &[Span], state: Option<&mut dyn Any>) -> Sent;
    /// See [`Transport::send_batch`]; `state` as for [`Outside::send`].
    ///
    /// # Safety
    /// As there.
    unsafe fn send_batch(&mut self, link: u32, frames: &[Frame], state: Option<&mut dyn Any>) -> (usize, Sent);
    /// See [`Transport::flush`].
    fn flush(&mut self);
    /// See [`Transport::ready`].
    fn ready(&self) -> bool;
    /// See [`Transport::drain`].
    fn drain(&mut self, now_ns: u64, arrivals: &mut [Arrival]) -> usize;
    /// See [`Transport::drain_link`].
    fn drain_link(&mut self, link: u32, now_ns: u64, arrivals: &mut [Arrival]) -> usize;
    /// See [`Transport::deliver`].
    fn deliver(&mut self, most: u32, take: &mut dyn Take) -> (u32, bool);
    /// See [`Transport::release`].
    fn release(&mut self);
    /// See [`Transport::wants_control`].
    fn wants_control(&self) -> bool;
    /// See [`Transport::control`].
    fn control(&mut self, now_ns: u64, events: &mut Vec<LinkEvent>);
    /// See [`Transport::close_link`].
    fn close_link(&mut self, link: u32);
    /// See [`Transport::give_up`].
    fn give_up(&mut self, link: u32, reason: &str);
    /// See [`Transport::has_ended`].
    fn has_ended(&self, proc: u32, card: &[u8]) -> Option<String>;
    /// See [`Transport::wait_fd`].
    fn wait_fd(&self) -> Option<BorrowedFd<'_>>;
    /// See [`Transport::arm`].
    fn arm(&mut self) -> bool;
    /// See [`Transport::must_poll`].
    fn must_poll(&self) -> bool;
    /// See [`Transport::disarm`].
    fn disarm(&mut self);
    /// See [`Transport::close`].
    fn close(&mut self);
}

struct Boxed<T>(T);

// SAFETY: it only passes on.
#[expect(unsafe_code, reason = "the engine trusts the addresses that a transport gives out")]
unsafe impl<T: Transport> Outside for Boxed<T> {
    fn name(&self) -> &str {
        self.0.name()
    }
    fn capabilities(&self) -> &Capabilities {
        self.0.capabilities()
    }
    fn card(&self) -> Vec<u8> {
        self.0.card()
    }
    fn reaches(&self, proc: u32, card: &[u8]) -> Result<(), String> {
        self.0.reaches(proc, card)
    }
    fn moved(&self) -> (u64, u64) {
        self.0.moved()
    }
    fn fits(&mut self, link: u32, payload: u64) -> u64 {
        self.0.fits(link, payload)
    }
    fn shared_bytes(&self) -> u64 {
        self.0.shared_bytes()
    }
    fn connect(&mut self, proc: u32, card: &[u8], now_ns: u64) -> Result<u32, String> {
        self.0.connect(proc, card, now_ns)
    }
    fn attach(&mut self, link: u32, vc: Row) {
        self.0.attach(link, vc);
    }
    fn reads(&self, link: u32, address: u64, length: u64) -> bool {
        self.0.reads(link, address, length)
    }
    fn traffic(&self, link: u32) -> Option<Traffic> {
        self.0.traffic(link)
    }
    unsafe fn read(&mut self, link: u32, reads: &[MemoryRead]) -> Result<(), String> {
        // SAFETY: by the same contract.
        unsafe { self.0.read(link, reads) }
    }

    unsafe fn read_at_once(&mut self, link: u32, address: u64, into: Span, alone: bool) -> bool {
        // SAFETY: by the same contract.
        unsafe { self.0.read_at_once(link, address, into, alone) }
    }

    unsafe fn expose(&mut self, link: u32, run: Span) {
        // SAFETY: by the same contract.
        unsafe { self.0.expose(link, run) }
    }

    fn withdraw(&mut self, link: u32, run: Span) {
        self.0.withdraw(link, run);
    }

    unsafe fn expect(&mut self, link: u32, row: Row, into: Span) -> Option<u32> {
        // SAFETY: by the same contract.
        unsafe { self.0.expect(link, row, into) }
    }

    unsafe fn send_direct(&mut self, link: u32, row: Row, number: u32, from: Span) -> bool {
        // SAFETY: by the same contract.
        unsafe { self.0.send_direct(link, row, number, from) }
    }

    fn end_direct(&mut self) {
        self.0.end_direct();
    }

    fn lend(&mut self, link: u32, least: u64, most: u64, into: &mut Spans) -> u64 {
        self.0.lend(link, least, most, into)
    }
    fn take_back(&mut self, run: Span) {
        self.0.take_back(run);
    }
    fn register(&mut self, span: Span, access: Access) -> Result<Registration, String> {
        self.0.register(span, access)
    }
    fn deregister(&mut self, registration: Registration) {
        self.0.deregister(registration);
    }
    fn post_receive(&mut self, row: Row, wanted: &ReceiveEnvelope) -> Sent {
        self.0.post_receive(row, wanted)
    }
    fn recall(&mut self, row: Row, unless_message: bool) {
        self.0.recall(row, unless_message);
    }
    fn peek(&mut self, wanted: &ReceiveEnvelope, claim: bool) -> Sent {
        self.0.peek(wanted, claim)
    }
    fn peeked(&mut self) -> Peeked {
        self.0.peeked()
    }
    fn leave_matching(&mut self) {
        self.0.leave_matching();
    }
    fn grant(&mut self, link: u32, credit: Credit) {
        self.0.grant(link, credit);
    }
    fn granted(&mut self, link: u32) -> Credit {
        self.0.granted(link)
    }
    unsafe fn send(&mut self, link: u32, header: &Header, pieces: &[Span], state: Option<&mut dyn Any>) -> Sent {
        // SAFETY: by this function's contract.
        let pieces = unsafe { &Payload::new(pieces) };
        match state.and_then(|state| state.downcast_mut::<T::RowState>()) {
            Some(state) => self.0.send(link, header, pieces, state),
            None => self.0.send(link, header, pieces, &mut T::RowState::default()),
        }
    }
    unsafe fn send_batch(&mut self, link: u32, frames: &[Frame], state: Option<&mut dyn Any>) -> (usize, Sent) {
        let mut fresh = T::RowState::default();
        let state = state.and_then(|state| state.downcast_mut::<T::RowState>()).unwrap_or(&mut fresh);
        // SAFETY: by the same contract.
        unsafe { self.0.send_batch(link, frames, state) }
    }
    fn flush(&mut self) {
        self.0.flush();
    }
    fn ready(&self) -> bool {
        self.0.ready()
    }
    fn drain(&mut self, now_ns: u64, arrivals: &mut [Arrival]) -> usize {
        self.0.drain(now_ns, arrivals)
    }
    fn drain_link(&mut self, link: u32, now_ns: u64, arrivals: &mut [Arrival]) -> usize {
        self.0.drain_link(link, now_ns, arrivals)
    }
    fn deliver(&mut self, most: u32, mut take: &mut dyn Take) -> (u32, bool) {
        self.0.deliver(most, &mut take)
    }
    fn release(&mut self) {
        self.0.release();
    }
    fn wants_control(&self) -> bool {
        self.0.wants_control()
    }
    fn control(&mut self, now_ns: u64, events: &mut Vec<LinkEvent>) {
        self.0.control(now_ns, events);
    }
    fn close_link(&mut self, link: u32) {
        self.0.close_link(link);
    }
    fn give_up(&mut self, link: u32, reason: &str) {
        self.0.give_up(link, reason);
    }
    fn has_ended(&self, proc: u32, card: &[u8]) -> Option<String> {
        self.0.has_ended(proc, card)
    }
    fn wait_fd(&self) -> Option<BorrowedFd<'_>> {
        self.0.wait_fd()
    }
    fn arm(&mut self) -> bool {
        self.0.arm()
    }
    fn must_poll(&self) -> bool {
        self.0.must_poll()
    }
    fn disarm(&mut self) {
        self.0.disarm();
    }
    fn close(&mut self) {
        self.0.close();
    }
}

macro_rules! each {
    ($self:expr, $transport:ident => $call:expr) => {
        match $self {
            AnyTransport::Loopback($transport) => $call,
            AnyTransport::Shm($transport) => $call,
            AnyTransport::Ofi($transport) => $call,
            AnyTransport::Outside($transport) => $call,
        }
    };
}

impl AnyTransport {
    /// Boxes a transport that has no variant of its own.
    pub fn outside<T: Transport + 'static>(transport: T) -> Self {
        AnyTransport::Outside(Own(Arc::new(UnsafeCell::new(Boxed(transport)))))
    }

    /// The same transport once more, for who closes it when the first way to it is gone. It ends with the last of its owners.
    ///
    /// # Safety
    /// Both are used as if they were one: by one thread at a time, and neither while a reference that came of the other lives.
    #[expect(unsafe_code, reason = "two owners of one value")]
    pub unsafe fn second(&self) -> Self {
        match self {
            AnyTransport::Loopback(own) => AnyTransport::Loopback(Own(own.0.clone())),
            AnyTransport::Shm(own) => AnyTransport::Shm(Own(own.0.clone())),
            AnyTransport::Ofi(own) => AnyTransport::Ofi(Own(own.0.clone())),
            AnyTransport::Outside(own) => AnyTransport::Outside(Own(own.0.clone())),
        }
    }

    /// See [`Transport::name`].
    pub fn name(&self) -> &str {
        each!(self, t => t.name())
    }

    /// See [`Transport::capabilities`].
    pub fn capabilities(&self) -> &Capabilities {
        each!(self, t => t.capabilities())
    }

    /// See [`Transport::card`].
    pub fn card(&self) -> Vec<u8> {
        each!(self, t => t.card())
    }

    /// See [`Transport::reaches`].
    ///
    /// # Errors
    /// Why not, in words.
    pub fn reaches(&self, proc: u32, card: &[u8]) -> Result<(), String> {
        each!(self, t => t.reaches(proc, card))
    }

    /// The connections of a transport that consists of rings: what is on the message path is there once, not once for each.
    #[inline(always)]
    fn links(&mut self) -> Option<&mut Links> {
        match self {
            AnyTransport::Loopback(t) => Some(t.links_mut()),
            AnyTransport::Shm(t) => Some(t.links_mut()),
            AnyTransport::Ofi(_) | AnyTransport::Outside(_) => None,
        }
    }

    /// See [`Transport::moved`].
    pub fn moved(&self) -> (u64, u64) {
        each!(self, t => t.moved())
    }

    /// See [`Transport::fits`].
    #[inline(never)]
    pub fn fits(&mut self, link: u32, payload: u64) -> u64 {
        each!(self, t => t.fits(link, payload))
    }

    /// See [`Transport::shared_bytes`].
    pub fn shared_bytes(&self) -> u64 {
        each!(self, t => t.shared_bytes())
    }

    /// See [`Transport::reads`].
    pub fn reads(&self, link: u32, address: u64, length: u64) -> bool {
        each!(self, t => t.reads(link, address, length))
    }

    /// See [`Transport::read`].
    ///
    /// # Errors
    /// Why not, in words.
    ///
    /// # Safety
    /// As there.
    #[expect(unsafe_code, reason = "bytes that are addresses")]
    pub unsafe fn read(&mut self, link: u32, reads: &[MemoryRead]) -> Result<(), String> {
        // SAFETY: by the same contract.
        unsafe { each!(self, t => t.read(link, reads)) }
    }

    /// See [`Transport::read_at_once`].
    ///
    /// # Safety
    /// As there.
    #[expect(unsafe_code, reason = "bytes that are addresses")]
    #[inline]
    pub unsafe fn read_at_once(&mut self, link: u32, address: u64, into: Span, alone: bool) -> bool {
        // SAFETY: by the same contract.
        unsafe { each!(self, t => t.read_at_once(link, address, into, alone)) }
    }

    /// See [`Transport::expose`].
    ///
    /// # Safety
    /// As there.
    #[expect(unsafe_code, reason = "bytes that are addresses")]
    #[inline]
    pub unsafe fn expose(&mut self, link: u32, run: Span) {
        // SAFETY: by the same contract.
        unsafe { each!(self, t => t.expose(link, run)) }
    }

    /// See [`Transport::withdraw`].
    #[inline]
    pub fn withdraw(&mut self, link: u32, run: Span) {
        each!(self, t => t.withdraw(link, run));
    }

    /// See [`Transport::expect`].
    ///
    /// # Safety
    /// As there.
    #[expect(unsafe_code, reason = "bytes that are addresses")]
    pub unsafe fn expect(&mut self, link: u32, row: Row, into: Span) -> Option<u32> {
        // SAFETY: by the same contract.
        unsafe { each!(self, t => t.expect(link, row, into)) }
    }

    /// See [`Transport::send_direct`].
    ///
    /// # Safety
    /// As there.
    #[expect(unsafe_code, reason = "bytes that are addresses")]
    pub unsafe fn send_direct(&mut self, link: u32, row: Row, number: u32, from: Span) -> bool {
        // SAFETY: by the same contract.
        unsafe { each!(self, t => t.send_direct(link, row, number, from)) }
    }

    /// See [`Transport::end_direct`].
    pub fn end_direct(&mut self) {
        each!(self, t => t.end_direct());
    }

    /// See [`Transport::lend`].
    pub fn lend(&mut self, link: u32, least: u64, most: u64, into: &mut Spans) -> u64 {
        each!(self, t => t.lend(link, least, most, into))
    }

    /// See [`Transport::take_back`].
    pub fn take_back(&mut self, run: Span) {
        each!(self, t => t.take_back(run));
    }

    /// See [`Transport::register`].
    ///
    /// # Errors
    /// Why not, in words.
    pub fn register(&mut self, span: Span, access: Access) -> Result<Registration, String> {
        each!(self, t => t.register(span, access))
    }

    /// See [`Transport::deregister`].
    pub fn deregister(&mut self, registration: Registration) {
        each!(self, t => t.deregister(registration));
    }

    /// See [`Transport::connect`].
    ///
    /// # Errors
    /// Why it cannot even start, in words.
    pub fn connect(&mut self, proc: u32, card: &[u8], now_ns: u64) -> Result<u32, String> {
        each!(self, t => t.connect(proc, card, now_ns))
    }

    /// See [`Transport::attach`].
    pub fn attach(&mut self, link: u32, vc: Row) {
        each!(self, t => t.attach(link, vc));
    }

    /// See [`Transport::post_receive`].
    pub fn post_receive(&mut self, row: Row, wanted: &ReceiveEnvelope) -> Sent {
        each!(self, t => t.post_receive(row, wanted))
    }

    /// See [`Transport::recall`].
    pub fn recall(&mut self, row: Row, unless_message: bool) {
        each!(self, t => t.recall(row, unless_message));
    }

    /// See [`Transport::peek`].
    pub fn peek(&mut self, wanted: &ReceiveEnvelope, claim: bool) -> Sent {
        each!(self, t => t.peek(wanted, claim))
    }

    /// See [`Transport::peeked`].
    pub fn peeked(&mut self) -> Peeked {
        each!(self, t => t.peeked())
    }

    /// See [`Transport::leave_matching`].
    pub fn leave_matching(&mut self) {
        each!(self, t => t.leave_matching());
    }

    /// See [`Transport::grant`].
    pub fn grant(&mut self, link: u32, credit: Credit) {
        each!(self, t => t.grant(link, credit));
    }

    /// See [`Transport::granted`].
    pub fn granted(&mut self, link: u32) -> Credit {
        each!(self, t => t.granted(link))
    }

    /// See [`Transport::send`]. `state` is the row state, needed only where [`AnyTransport::keeps_rows`].
    #[inline(always)]
    pub fn send<P: Pieces + ?Sized>(
        &mut self,
        link: u32,
        header: &Header,
        pieces: &P,
        state: Option<&mut dyn Any>,
    ) -> Sent {
        match self.links() {
            Some(links) => links.send(link, header, pieces),
            None => self.send_otherwise(link, header, pieces, state),
        }
    }

    /// [`AnyTransport::send`] of a message without a row, for the one place that sends most.
    #[inline(always)]
    pub fn send_inline<P: Pieces + ?Sized>(&mut self, link: u32, header: Header, pieces: &P) -> Sent {
        match self.links() {
            Some(links) => links.send_inline(link, &header, pieces),
            None => {
                // What is lent to a call has to be in memory, also where the call is not made: it gets its own.
                let lent = header;
                self.send_otherwise(link, &lent, pieces, None)
            }
        }
    }

    /// As [`AnyTransport::send_inline`], of a transport that is prompt.
    #[inline(always)]
    pub fn send_promptly<P: Pieces + ?Sized>(&mut self, link: u32, header: Header, pieces: &P) -> Sent {
        match self {
            AnyTransport::Ofi(t) => t.send(link, &header, pieces, &mut ()),
            _ => self.send_inline(link, header, pieces),
        }
    }

    /// Whether all that was sent over a connection of the proc to itself has been read. `false` of transports that do not know.
    #[inline(always)]
    pub fn is_drained(&mut self, link: u32) -> bool {
        match self {
            AnyTransport::Loopback(t) => t.links_mut().is_drained(link),
            _ => false,
        }
    }

    /// As [`AnyTransport::send`], of a transport that is not made of rings.
    #[expect(unsafe_code, reason = "bytes that are addresses")]
    #[inline(never)]
    fn send_otherwise<P: Pieces + ?Sized>(
        &mut self,
        link: u32,
        header: &Header,
        pieces: &P,
        state: Option<&mut dyn Any>,
    ) -> Sent {
        match self {
            AnyTransport::Loopback(t) => t.send(link, header, pieces, &mut ()),
            AnyTransport::Shm(t) => t.send(link, header, pieces, &mut ()),
            AnyTransport::Ofi(t) => t.send(link, header, pieces, &mut ()),
            AnyTransport::Outside(t) => match pieces.layout() {
                None => {
                    let runs: Spans = (0..pieces.pieces()).map(|i| pieces.piece(i)).collect();
                    // SAFETY: the runs of a buffer that is borrowed.
                    unsafe { t.send(link, header, &runs, state) }
                }
                // SAFETY: the layout of a buffer that is borrowed.
                Some(layout) if header.payload() > 0 => unsafe { send_layout(&mut **t, link, header, &layout, state) },
                // SAFETY: there are none.
                Some(_) => unsafe { t.send(link, header, &[], state) },
            },
        }
    }

    /// See [`Transport::send_batch`].
    ///
    /// # Safety
    /// As there.
    #[expect(unsafe_code, reason = "bytes that are addresses")]
    #[inline]
    pub unsafe fn send_batch(&mut self, link: u32, frames: &[Frame], state: Option<&mut dyn Any>) -> (usize, Sent) {
        // SAFETY: by the same contract.
        unsafe {
            match self {
                AnyTransport::Loopback(t) => t.send_batch(link, frames, &mut ()),
                AnyTransport::Shm(t) => t.send_batch(link, frames, &mut ()),
                AnyTransport::Ofi(t) => t.send_batch(link, frames, &mut ()),
                AnyTransport::Outside(t) => t.send_batch(link, frames, state),
            }
        }
    }

    /// Whether it has a row state of its own.
    pub fn keeps_rows(&self) -> bool {
        matches!(self, AnyTransport::Outside(_))
    }

    /// See [`Transport::flush`].
    #[inline(always)]
    pub fn flush(&mut self) {
        match self {
            AnyTransport::Ofi(t) => t.flush(),
            _ => self.flush_otherwise(),
        }
    }

    #[inline(never)]
    fn flush_otherwise(&mut self) {
        each!(self, t => t.flush());
    }

    /// See [`Transport::ready`].
    #[inline(always)]
    pub fn ready(&self) -> bool {
        match self {
            AnyTransport::Loopback(t) => t.ready(),
            AnyTransport::Shm(t) => t.ready(),
            _ => self.is_otherwise_ready(),
        }
    }

    /// As [`AnyTransport::ready`], of a transport that is not made of rings.
    #[inline(never)]
    fn is_otherwise_ready(&self) -> bool {
        each!(self, t => t.ready())
    }

    /// See [`Transport::deliver`].
    #[inline(always)]
    pub fn deliver(&mut self, most: u32, take: &mut impl Take) -> (u32, bool) {
        match self.links() {
            Some(links) => links.deliver(most, take),
            None => self.deliver_otherwise(most, take),
        }
    }

    /// As [`AnyTransport::deliver`], of a transport that is not made of rings.
    #[inline(never)]
    fn deliver_otherwise(&mut self, most: u32, take: &mut impl Take) -> (u32, bool) {
        match self {
            AnyTransport::Ofi(t) => t.deliver(most, take),
            AnyTransport::Outside(t) => t.deliver(most, take),
            _ => (0, self.ready()),
        }
    }

    /// Whether there is more to [`AnyTransport::look_and_deliver`] than [`AnyTransport::ready`].
    pub fn is_prompt(&self) -> bool {
        matches!(self, AnyTransport::Ofi(_))
    }

    /// [`AnyTransport::ready`], and if it is, [`AnyTransport::deliver`] in one. A `patient` look is of somebody who has
    /// nothing else to do.
    #[inline(never)]
    pub fn look_and_deliver(&mut self, most: u32, patient: bool, take: &mut impl Take) -> (u32, bool) {
        match self {
            AnyTransport::Ofi(t) => t.look_and_deliver(most, patient, take),
            _ if self.ready() => self.deliver(most, take),
            _ => (0, false),
        }
    }

    /// See [`Transport::drain`].
    #[inline]
    pub fn drain(&mut self, now_ns: u64, arrivals: &mut [Arrival]) -> usize {
        each!(self, t => t.drain(now_ns, arrivals))
    }

    /// See [`Transport::drain_link`].
    pub fn drain_link(&mut self, link: u32, now_ns: u64, arrivals: &mut [Arrival]) -> usize {
        each!(self, t => t.drain_link(link, now_ns, arrivals))
    }

    /// See [`Transport::release`].
    #[inline]
    pub fn release(&mut self) {
        each!(self, t => t.release());
    }

    /// See [`Transport::wants_control`].
    #[inline]
    pub fn wants_control(&self) -> bool {
        each!(self, t => t.wants_control())
    }

    /// See [`Transport::control`].
    pub fn control(&mut self, now_ns: u64, events: &mut Vec<LinkEvent>) {
        each!(self, t => t.control(now_ns, events));
    }

    /// See [`Transport::close_link`].
    pub fn close_link(&mut self, link: u32) {
        each!(self, t => t.close_link(link));
    }

    /// See [`Transport::give_up`].
    pub fn give_up(&mut self, link: u32, reason: &str) {
        each!(self, t => t.give_up(link, reason));
    }

    /// See [`Transport::has_ended`].
    pub fn has_ended(&self, proc: u32, card: &[u8]) -> Option<String> {
        each!(self, t => t.has_ended(proc, card))
    }

    /// See [`Transport::wait_fd`].
    pub fn wait_fd(&self) -> Option<BorrowedFd<'_>> {
        each!(self, t => t.wait_fd())
    }

    /// See [`Transport::arm`].
    pub fn arm(&mut self) -> bool {
        each!(self, t => t.arm())
    }

    /// See [`Transport::must_poll`].
    pub fn must_poll(&self) -> bool {
        each!(self, t => t.must_poll())
    }

    /// See [`Transport::disarm`].
    pub fn disarm(&mut self) {
        each!(self, t => t.disarm());
    }

    /// See [`Transport::traffic`].
    pub fn traffic(&self, link: u32) -> Option<Traffic> {
        each!(self, t => t.traffic(link))
    }

    /// See [`Transport::close`].
    pub fn close(&mut self) {
        each!(self, t => t.close());
    }
}

/// Sends bytes that a datatype scatters: run by run where there are few, else packed before.
///
/// # Safety
/// The layout's buffer is valid for reads.
#[expect(unsafe_code, reason = "bytes that are addresses")]
#[cold]
unsafe fn send_layout(
    transport: &mut dyn Outside,
    link: u32,
    header: &Header,
    layout: &Stretch,
    state: Option<&mut dyn Any>,
) -> Sent {
    // SAFETY: by this function's contract.
    let runs: Spans = unsafe { layout.runs() }.take(GATHERED_MAX + 1).collect();
    let capabilities = transport.capabilities();
    // Known memory is what it is packed into, for as long as the frame takes.
    let register = capabilities.needs_registration && layout.len() > capabilities.inject_max;
    if runs.len() <= GATHERED_MAX && !register {
        // SAFETY: by this function's contract.
        return unsafe { transport.send(link, header, &runs, state) };
    }
    let mut packed = vec![0; layout.len()];
    // SAFETY: the new bytes, which live until the call returns.
    let run = unsafe { Span::new(packed.as_mut_ptr(), packed.len()) };
    // SAFETY: as above, and by this function's contract.
    unsafe { layout.pack(run) };
    if !register {
        // SAFETY: as above.
        return unsafe { transport.send(link, header, &[run], state) };
    }
    let Ok(registration) = transport.register(run, Access::SEND) else { return Sent::Blocked };
    // SAFETY: as above.
    let sent = unsafe { transport.send(link, header, &[run], state) };
    transport.deregister(registration);
    sent
}
