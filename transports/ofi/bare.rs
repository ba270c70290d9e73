//! An endpoint that only sends and receives: the performance that a fabric gives to a program written directly for it.
//!
//! For measurements beside the transport. It has one peer. Receives are posted ahead, one for each message; short messages are injected.
//! Order is not kept, and only lengths are checked. Tagged messages all have one tag. All calls block, and progress the provider meanwhile.

mod one_sided;

pub use one_sided::BareMemory;

use super::slab::{Contexts, Slab};
use super::{
    AddressVector, Choice, Completion, CompletionQueue, Domain, Endpoint, Fabric, Library, MemoryRegion, OfiError,
    ReadError, Refused, message_hints, mode, no_completion,
};
use libfabric_sys as sys;
use std::ffi::c_void;
use std::ptr::null_mut;
use std::time::{Duration, Instant};
use tickwire_components::Span;

/// How long a wait may last without any completion before it is given up.
const PATIENCE: Duration = Duration::from_secs(10);
/// Polls without a completion between two reads of the clock.
const LOOKS: u32 = 1 << 14;
/// The most completions that one call reads.
const COMPLETIONS: usize = 64;
/// The tag of tagged messages.
const TAG: u64 = 1;

/// See the module.
pub struct Bare {
    // Closed in this order: the memory that the provider may touch until then comes last.
    endpoint: Endpoint,
    addresses: AddressVector,
    queue: CompletionQueue,
    /// The regions of both slabs, kept open.
    _regions: Vec<MemoryRegion>,
    sending: Slab,
    receiving: Slab,
    contexts: Contexts,
    descriptors: [*mut c_void; 2],
    inject_max: usize,
    /// Messages are tagged, and the provider matches them.
    tagged: bool,
    /// The most operations of each kind in flight. Contexts of sends come first.
    window: usize,
    free_sends: Vec<u32>,
    free_receives: Vec<u32>,
    peer: sys::fi_addr_t,
    completions: [Completion; COMPLETIONS],
    /// Completed receives that [`Bare::wait_received`] has not returned yet, and their bytes.
    received: (usize, usize),
}

impl Bare {
    /// Opens the first candidate of a choice for messages of up to `bytes` bytes, `window` at a time in each direction. With `tagged`,
    /// messages are tagged.
    ///
    /// # Errors
    /// What is missing or wrong, and what to do.
    pub fn open(choice: &Choice, window: usize, bytes: usize, tagged: bool) -> Result<Self, OfiError> {
        let found = choice.take(choice.candidates(&Library::get()?, &message_hints())?)?;
        let none = || OfiError::NoneLeft { reasons: "there is no candidate".into() };
        let mut info = found.into_iter().next().ok_or_else(none)?;
        if tagged {
            info = mode::tagged_only(info)?;
        }
        let inject_max = info.tx_attr().inject_size;
        let fabric = Fabric::open(&info)?;
        // SAFETY: everything that is opened stays in here, which is not shared between threads.
        #[expect(unsafe_code, reason = "FFI")]
        let domain = unsafe { Domain::open(&fabric, info)? };
        let addresses = AddressVector::open(&domain, 1)?;
        let queue = CompletionQueue::open(&domain, 2 * window, !choice.polls)?;
        let endpoint = Endpoint::open(&domain, domain.info(), &addresses, &queue, &queue)?;
        let (sending, receiving) = (Slab::new(1, bytes), Slab::new(1, bytes));
        let mut regions = Vec::new();
        let mut descriptors = [null_mut(); 2];
        if domain.info().domain_attr().mr_mode as u64 & sys::FI_MR_LOCAL != 0 {
            for (at, (slab, access)) in [(&sending, sys::FI_SEND), (&receiving, sys::FI_RECV)].into_iter().enumerate() {
                // SAFETY: the slabs are freed after the regions are closed.
                #[expect(unsafe_code, reason = "FFI")]
                let region =
                    unsafe { MemoryRegion::register(&domain, slab.whole(), access, at as u64, Some(&endpoint))? };
                descriptors[at] = region.descriptor();
                regions.push(region);
            }
        }
        // Write the slabs once, so that their pages are allocated.
        for slab in [&sending, &receiving] {
            // SAFETY: an own allocation that nobody else touches yet.
            #[expect(unsafe_code, reason = "memory that a provider is given")]
            unsafe {
                slab.whole().start().write_bytes(1, slab.whole().len());
            }
        }
        Ok(Bare {
            endpoint,
            addresses,
            queue,
            _regions: regions,
            sending,
            receiving,
            contexts: Contexts::new(2 * window),
            descriptors,
            inject_max,
            tagged,
            window,
            free_sends: (0..window as u32).collect(),
            free_receives: (window as u32..2 * window as u32).collect(),
            peer: sys::FI_ADDR_NOTAVAIL,
            completions: [no_completion(); COMPLETIONS],
            received: (0, 0),
        })
    }

    /// The address of this endpoint.
    ///
    /// # Errors
    /// [`OfiError::Call`].
    pub fn address(&self) -> Result<Vec<u8>, OfiError> {
        self.endpoint.name()
    }

    /// Sets the peer by its address.
    ///
    /// # Errors
    /// [`OfiError::Call`].
    pub fn connect(&mut self, address: &[u8]) -> Result<(), OfiError> {
        self.peer = self.addresses.insert(address)?;
        Ok(())
    }

    /// Posts a receive of up to `bytes` bytes, at `offset` of the receive memory. Messages match receives in the order of posting.
    ///
    /// # Errors
    /// [`OfiError::Call`], also if the provider never has room.
    ///
    /// # Panics
    /// If more than the window are posted.
    #[inline]
    pub fn post(&mut self, offset: usize, bytes: usize) -> Result<(), OfiError> {
        let Some(&index) = self.free_receives.last() else { panic!("more receives than the window has") };
        let span = self.receiving.whole().part(offset, bytes);
        let context = self.contexts.of(index as usize);
        let mut patience = Patience::new();
        loop {
            // SAFETY: memory and context outlive the endpoint, and the context is not in use. Receives may share memory: all
            // of it is the provider's, and nobody reads it.
            #[expect(unsafe_code, reason = "FFI")]
            match unsafe { self.receive(span, context) } {
                Ok(()) => break,
                Err(Refused::Failed(error)) => return Err(error),
                Err(Refused::Again) => self.poll(&mut patience)?,
            }
        }
        self.free_receives.pop();
        Ok(())
    }

    /// Sends `bytes` bytes from the start of the send memory. A short message is injected; another one is complete after
    /// [`Bare::wait_sent`].
    ///
    /// # Errors
    /// [`OfiError::Call`], also if the provider never has room.
    ///
    /// # Panics
    /// If more than the window are in flight.
    #[inline]
    pub fn send(&mut self, bytes: usize) -> Result<(), OfiError> {
        let span = self.sending.whole().part(0, bytes);
        let mut patience = Patience::new();
        loop {
            let sent = if bytes <= self.inject_max {
                // SAFETY: own memory.
                #[expect(unsafe_code, reason = "FFI")]
                unsafe {
                    self.inject(span)
                }
            } else {
                let Some(&index) = self.free_sends.last() else { panic!("more sends than the window has") };
                let context = self.contexts.of(index as usize);
                // SAFETY: memory and context outlive the endpoint; the bytes never change, the context is not in use.
                #[expect(unsafe_code, reason = "FFI")]
                let sent = unsafe { self.give(span, context) };
                if sent.is_ok() {
                    self.free_sends.pop();
                }
                sent
            };
            match sent {
                Ok(()) => return Ok(()),
                Err(Refused::Failed(error)) => return Err(error),
                Err(Refused::Again) => self.poll(&mut patience)?,
            }
        }
    }

    /// # Safety
    /// As [`Endpoint::receive`].
    #[inline]
    #[expect(unsafe_code, reason = "FFI")]
    unsafe fn receive(&self, span: Span, context: *mut c_void) -> Result<(), Refused> {
        let descriptor = self.descriptors[1];
        if !self.tagged {
            // SAFETY: by this function's contract.
            return unsafe { self.endpoint.receive(span, descriptor, 0, context) };
        }
        let (start, from) = (span.start().cast(), sys::FI_ADDR_UNSPEC);
        let endpoint = self.endpoint.as_ptr();
        // SAFETY: by this function's contract.
        let code = unsafe { sys::ops::fi_trecv(endpoint, start, span.len(), descriptor, from, TAG, 0, context) };
        self.endpoint.posted("fi_trecv", code)
    }

    /// # Safety
    /// As [`Endpoint::inject`].
    #[inline]
    #[expect(unsafe_code, reason = "FFI")]
    unsafe fn inject(&self, span: Span) -> Result<(), Refused> {
        if !self.tagged {
            // SAFETY: by this function's contract.
            return unsafe { self.endpoint.inject(span, self.peer) };
        }
        let (endpoint, start) = (self.endpoint.as_ptr(), span.start().cast());
        // SAFETY: by this function's contract.
        let code = unsafe { sys::ops::fi_tinject(endpoint, start, span.len(), self.peer, TAG) };
        self.endpoint.posted("fi_tinject", code)
    }

    /// # Safety
    /// As [`Endpoint::send`].
    #[inline]
    #[expect(unsafe_code, reason = "FFI")]
    unsafe fn give(&self, span: Span, context: *mut c_void) -> Result<(), Refused> {
        let descriptor = self.descriptors[0];
        if !self.tagged {
            // SAFETY: by this function's contract.
            return unsafe { self.endpoint.send(span, descriptor, self.peer, context) };
        }
        let (endpoint, start) = (self.endpoint.as_ptr(), span.start().cast());
        // SAFETY: by this function's contract.
        let code = unsafe { sys::ops::fi_tsend(endpoint, start, span.len(), descriptor, self.peer, TAG, context) };
        self.endpoint.posted("fi_tsend", code)
    }

    /// Waits until all sends are complete.
    ///
    /// # Errors
    /// [`OfiError::Call`], also if nothing happens.
    #[inline]
    pub fn wait_sent(&mut self) -> Result<(), OfiError> {
        let mut patience = Patience::new();
        while self.free_sends.len() < self.window {
            self.poll(&mut patience)?;
        }
        Ok(())
    }

    /// Waits for `count` messages. Returns the sum of their bytes.
    ///
    /// # Errors
    /// [`OfiError::Call`], also if nothing comes.
    #[inline]
    pub fn wait_received(&mut self, count: usize) -> Result<usize, OfiError> {
        let mut patience = Patience::new();
        while self.received.0 < count {
            self.poll(&mut patience)?;
        }
        let bytes = self.received.1;
        self.received = (0, 0);
        Ok(bytes)
    }

    /// Progresses the provider for a time, since it may still hold injected messages.
    ///
    /// # Errors
    /// [`OfiError::Call`].
    pub fn progress(&mut self, time: Duration) -> Result<(), OfiError> {
        let start = Instant::now();
        while start.elapsed() < time {
            self.poll(&mut Patience::new())?;
        }
        Ok(())
    }

    /// Reads completions once.
    #[inline]
    fn poll(&mut self, patience: &mut Patience) -> Result<(), OfiError> {
        let count = match self.queue.read(&mut self.completions) {
            Ok(0) => return patience.lose(self.endpoint.domain()),
            Ok(count) => count,
            Err(error) => return Err(self.why(error)),
        };
        for completion in &self.completions[..count] {
            match self.contexts.index(completion.op_context) {
                Some(index) if index < self.window => self.free_sends.push(index as u32),
                Some(index) => {
                    self.free_receives.push(index as u32);
                    self.received.0 += 1;
                    self.received.1 += completion.len;
                }
                None => {}
            }
        }
        Ok(())
    }

    #[cold]
    fn why(&self, error: ReadError) -> OfiError {
        match error {
            ReadError::Failed(failure) => self.endpoint.domain().error("an operation", -i64::from(failure.code)),
            ReadError::Broken(error) => error,
        }
    }
}

/// How long a wait has had no completion.
struct Patience {
    looks: u32,
    since: Option<Instant>,
}

impl Patience {
    #[inline]
    fn new() -> Self {
        Patience { looks: 0, since: None }
    }

    /// Counts a poll without a completion.
    #[inline]
    fn lose(&mut self, domain: &Domain) -> Result<(), OfiError> {
        self.looks += 1;
        if self.looks.is_multiple_of(LOOKS) && self.since.get_or_insert_with(Instant::now).elapsed() > PATIENCE {
            return Err(domain.error("a wait for the peer", -i64::from(sys::FI_ETIMEDOUT)));
        }
        Ok(())
    }
}

#[cfg(all(test, not(miri)))]
mod tests {
    use super::*;

    #[test]
    fn messages_to_itself_come_with_their_bytes() {
        if let Err(error) = Library::get() {
            assert!(std::env::var_os("CI").is_none(), "{error}");
            return eprintln!("SKIPPED: {error}");
        }
        let choice = Choice { include: vec!["tcp;ofi_rxm".into()], ..Choice::default() };
        for tagged in [false, true] {
            let mut bare = Bare::open(&choice, 4, 10_000, tagged).unwrap();
            bare.connect(&bare.address().unwrap()).unwrap();
            for bytes in [0, 8, 10_000] {
                (0..4).for_each(|_| bare.post(0, bytes).unwrap());
                (0..4).for_each(|_| bare.send(bytes).unwrap());
                assert_eq!(bare.wait_received(4).unwrap(), 4 * bytes);
                bare.wait_sent().unwrap();
            }
        }
    }
}
