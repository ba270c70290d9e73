//! As [`super::Bare`], for one-sided operations: it exposes memory to the peer, and reads and writes the peer's memory.

use super::Patience;
use crate::ofi::rma::MemoryMode;
use crate::ofi::slab::{Contexts, Slab};
use crate::ofi::{
    AddressVector, Choice, CompletionQueue, Domain, Endpoint, Fabric, Hints, Library, MemoryRegion, OfiError,
    ReadError, Refused, no_completion, one_sided_hints,
};
use crate::remote::{RemoteAccess, RemoteKey, RemoteRun};
use libfabric_sys as sys;
use std::ffi::c_void;

/// What a write's completion must mean: the target's memory holds the bytes.
const DELIVERED: u64 = sys::FI_COMPLETION | sys::FI_DELIVERY_COMPLETE;
/// The access that the memory is registered for. It is also the local side of operations.
const ACCESS: u64 = sys::FI_READ | sys::FI_WRITE | sys::FI_REMOTE_READ | sys::FI_REMOTE_WRITE;

/// An endpoint that only writes and reads the memory of one peer, one operation after the other. All calls block, and progress the provider
/// meanwhile.
pub struct BareMemory {
    // Closed in this order: the memory that the provider may touch until then comes last.
    endpoint: Endpoint,
    addresses: AddressVector,
    queue: CompletionQueue,
    region: MemoryRegion,
    /// The memory that the peer uses, followed by the memory that local operations use, of equal length.
    memory: Slab,
    contexts: Contexts,
    key: RemoteKey,
    peer: sys::fi_addr_t,
    theirs: Option<RemoteKey>,
}

impl BareMemory {
    /// Opens the first candidate of a choice, with `bytes` bytes for the peer.
    ///
    /// # Errors
    /// What is missing or wrong, and what to do.
    pub fn open(choice: &Choice, bytes: usize) -> Result<Self, OfiError> {
        let hints = Hints { provider: None, ..one_sided_hints("", false) };
        let found = choice.take(choice.candidates(&Library::get()?, &hints)?)?;
        let none = |reasons: &str| OfiError::NoneLeft { reasons: reasons.into() };
        let info = found.into_iter().next().ok_or_else(|| none("there is no candidate"))?;
        let mode = MemoryMode::of(&info).map_err(|why| none(&why))?;
        let fabric = Fabric::open(&info)?;
        // SAFETY: everything that is opened stays in here, which is not shared between threads.
        #[expect(unsafe_code, reason = "FFI")]
        let domain = unsafe { Domain::open(&fabric, info)? };
        let addresses = AddressVector::open(&domain, 1)?;
        let queue = CompletionQueue::open(&domain, 2, false)?;
        let endpoint = Endpoint::open(&domain, domain.info(), &addresses, &queue, &queue)?;
        let memory = Slab::new(2, bytes);
        // SAFETY: the slab is freed after the region is closed.
        #[expect(unsafe_code, reason = "FFI")]
        let region = unsafe { MemoryRegion::register(&domain, memory.whole(), ACCESS, 1, Some(&endpoint))? };
        let base = if mode.virtual_addresses { memory.whole().start() as u64 } else { 0 };
        let access = RemoteAccess::READ | RemoteAccess::WRITE;
        let key = RemoteKey { key: region.key(), base, length: bytes as u64, access };
        let (contexts, peer, theirs) = (Contexts::new(1), sys::FI_ADDR_NOTAVAIL, None);
        Ok(BareMemory { endpoint, addresses, queue, region, memory, contexts, key, peer, theirs })
    }

    /// What the peer needs to know: the key of the memory, and this endpoint's address.
    ///
    /// # Errors
    /// [`OfiError::Call`].
    pub fn card(&self) -> Result<Vec<u8>, OfiError> {
        Ok([&self.key.to_bytes()[..], &self.endpoint.name()?].concat())
    }

    /// Sets the peer by its card.
    ///
    /// # Errors
    /// [`OfiError::Call`], also for what is no card.
    pub fn connect(&mut self, card: &[u8]) -> Result<(), OfiError> {
        let invalid = || self.endpoint.domain().error("reading the peer's card", -i64::from(sys::FI_EINVAL));
        let (key, address) = card.split_first_chunk().ok_or_else(invalid)?;
        let key = RemoteKey::from_bytes(key).ok_or_else(invalid)?;
        self.peer = self.addresses.insert(address)?;
        self.theirs = Some(key);
        Ok(())
    }

    /// Fills the memory that [`BareMemory::put`] writes from.
    pub fn touch(&mut self, byte: u8) {
        let own = self.memory.place(1);
        // SAFETY: an own place that no operation uses: each is waited for.
        #[expect(unsafe_code, reason = "memory that a provider is given")]
        unsafe {
            own.start().write_bytes(byte, own.len());
        }
    }

    /// The first byte of the memory that the peer writes, as it is now.
    pub fn first(&self) -> u8 {
        // SAFETY: an own place; the provider may be writing the byte.
        #[expect(unsafe_code, reason = "memory that a provider is given")]
        unsafe {
            self.memory.place(0).start().read_volatile()
        }
    }

    /// The first byte that [`BareMemory::get`] has read.
    pub fn got(&self) -> u8 {
        // SAFETY: an own place that no operation uses.
        #[expect(unsafe_code, reason = "memory that a provider is given")]
        unsafe {
            self.memory.place(1).start().read()
        }
    }

    /// Writes `bytes` bytes to the start of the peer's memory, and waits until it holds them.
    ///
    /// # Errors
    /// [`OfiError::Call`], also if nothing happens.
    pub fn put(&mut self, bytes: usize) -> Result<(), OfiError> {
        self.operate(bytes, "fi_writemsg", |bare, address, key, context| {
            let own = bare.memory.place(1);
            let mut descriptor = bare.region.descriptor();
            let iov = libc::iovec { iov_base: own.start().cast(), iov_len: bytes };
            let target = sys::fi_rma_iov { addr: address, len: bytes, key };
            let message = sys::fi_msg_rma {
                msg_iov: &raw const iov,
                desc: &raw mut descriptor,
                iov_count: 1,
                addr: bare.peer,
                rma_iov: &raw const target,
                rma_iov_count: 1,
                context,
                data: 0,
            };
            // SAFETY: memory and context outlive the endpoint, and no other operation is under way.
            #[expect(unsafe_code, reason = "FFI")]
            unsafe {
                sys::ops::fi_writemsg(bare.endpoint.as_ptr(), &raw const message, DELIVERED)
            }
        })
    }

    /// Reads `bytes` bytes from the start of the peer's memory, and waits for them.
    ///
    /// # Errors
    /// [`OfiError::Call`], also if nothing happens.
    pub fn get(&mut self, bytes: usize) -> Result<(), OfiError> {
        self.operate(bytes, "fi_read", |bare, address, key, context| {
            let (own, descriptor) = (bare.memory.place(1).start().cast(), bare.region.descriptor());
            let endpoint = bare.endpoint.as_ptr();
            // SAFETY: as above.
            #[expect(unsafe_code, reason = "FFI")]
            unsafe {
                sys::ops::fi_read(endpoint, own, bytes, descriptor, bare.peer, address, key, context)
            }
        })
    }

    #[inline(always)]
    fn operate(
        &mut self,
        bytes: usize,
        call: &'static str,
        post: impl Fn(&Self, u64, u64, *mut c_void) -> isize,
    ) -> Result<(), OfiError> {
        let domain = self.endpoint.domain();
        let invalid = || domain.error(call, -i64::from(sys::FI_EINVAL));
        let key = self.theirs.ok_or_else(invalid)?;
        let address = RemoteRun { key, offset: 0 }.place(bytes, RemoteAccess::READ).map_err(|_| invalid())?;
        let mut patience = Patience::new();
        loop {
            match self.endpoint.posted(call, post(self, address, key.key, self.contexts.of(0))) {
                Ok(()) => break,
                Err(Refused::Failed(error)) => return Err(error),
                Err(Refused::Again) => drop(self.poll(&mut patience)?),
            }
        }
        while self.poll(&mut patience)? == 0 {}
        Ok(())
    }

    /// Progresses the provider once, so that the peer's operations get on.
    ///
    /// # Errors
    /// [`OfiError::Call`], also if operations of the peer have failed.
    pub fn progress(&mut self) -> Result<(), OfiError> {
        self.poll(&mut Patience::new()).map(drop)
    }

    /// Reads completions once. Returns how many operations of this endpoint have completed.
    #[inline]
    fn poll(&self, patience: &mut Patience) -> Result<usize, OfiError> {
        let (domain, mut completions) = (self.endpoint.domain(), [no_completion(); 1]);
        match self.queue.read(&mut completions) {
            Ok(0) => patience.lose(domain).map(|()| 0),
            Ok(_) if completions[0].op_context.is_null() => Ok(0),
            Ok(count) => Ok(count),
            Err(ReadError::Failed(failure)) => Err(domain.error("an operation", -i64::from(failure.code))),
            Err(ReadError::Broken(error)) => Err(error),
        }
    }
}

#[cfg(all(test, not(miri)))]
mod tests {
    use super::*;

    #[test]
    fn its_own_memory_is_written_and_read() {
        if let Err(error) = Library::get() {
            assert!(std::env::var_os("CI").is_none(), "{error}");
            return eprintln!("SKIPPED: {error}");
        }
        for provider in ["tcp;ofi_rxm", "net", "sockets"] {
            let choice = Choice { include: vec![provider.into()], ..Choice::default() };
            let mut bare = BareMemory::open(&choice, 64).unwrap();
            bare.connect(&bare.card().unwrap()).unwrap();
            for round in 1..20 {
                bare.touch(round);
                assert_eq!(bare.first(), round - 1, "{provider}");
                bare.put(8).unwrap();
                assert_eq!(bare.first(), round, "{provider}");
                bare.touch(0);
                bare.get(8).unwrap();
                assert_eq!(bare.got(), round, "{provider}");
            }
            assert!(bare.put(65).is_err() && bare.connect(&[1; 9]).is_err(), "{provider}");
        }
    }
}
