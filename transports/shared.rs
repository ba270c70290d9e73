//! Memory that procs of one host share: a proc makes it and passes it to peers. See [`crate::SharedMemory`].

use std::alloc::Layout;
use std::any::Any;
use std::fmt;
use std::ptr::NonNull;
use std::sync::Arc;
use tickwire_components::Span;

/// The alignment of a shared run, in bytes.
pub const SHARED_ALIGN: usize = 128;

/// A run of memory that several procs map. Clones are the same run.
#[derive(Clone)]
pub struct SharedRun {
    start: NonNull<u8>,
    bytes: usize,
    /// See [`SharedRun::beside`].
    beside: Option<Span>,
    keep: Arc<dyn Any + Send + Sync>,
}

/// Memory of a run that is private.
struct Block {
    start: NonNull<u8>,
    layout: Layout,
}

// SAFETY: it owns its memory, and does nothing with it but free it.
#[expect(unsafe_code, reason = "owns a block of memory")]
unsafe impl Send for Block {}
// SAFETY: as above.
#[expect(unsafe_code, reason = "owns a block of memory")]
unsafe impl Sync for Block {}

impl Drop for Block {
    fn drop(&mut self) {
        // SAFETY: allocated by `SharedRun::private` with this layout.
        #[expect(unsafe_code, reason = "owns a block of memory")]
        unsafe {
            std::alloc::dealloc(self.start.as_ptr(), self.layout);
        }
    }
}

// SAFETY: an address in memory that is kept; users touch it by atomics and raw copies only.
#[expect(unsafe_code, reason = "a view of shared memory")]
unsafe impl Send for SharedRun {}
// SAFETY: as above.
#[expect(unsafe_code, reason = "a view of shared memory")]
unsafe impl Sync for SharedRun {}

impl SharedRun {
    /// A run of `bytes` at `start`.
    ///
    /// # Panics
    /// A start that is not aligned to [`SHARED_ALIGN`] bytes.
    ///
    /// # Safety
    /// The bytes were written once, if only with zeros, and are valid for reads and writes as long as `keep` lives. Nobody has a
    /// reference to them.
    #[expect(unsafe_code, reason = "a view of shared memory")]
    pub unsafe fn new(start: NonNull<u8>, bytes: usize, keep: Arc<dyn Any + Send + Sync>) -> Self {
        assert!(start.addr().get().is_multiple_of(SHARED_ALIGN), "shared memory starts at a page");
        SharedRun { start, bytes, beside: None, keep }
    }

    /// This run, changed so that it carries `beside`, other memory of its maker, when it is passed within this process. The caller makes
    /// sure that this memory stays for as long as the others may use it.
    pub fn with(self, beside: Span) -> Self {
        SharedRun { beside: Some(beside), ..self }
    }

    /// This run, changed so that it also keeps `other` alive.
    pub fn keeping(self, other: Arc<dyn Any + Send + Sync>) -> Self {
        SharedRun { keep: Arc::new((self.keep, other)), ..self }
    }

    /// The memory that its maker has passed with it. `None` if the maker is in another process, whose memory is out of reach.
    #[inline(always)]
    pub fn beside(&self) -> Option<Span> {
        self.beside
    }

    /// A run of zero bytes in memory of this process alone; `None` if there is no memory.
    pub fn private(bytes: usize) -> Option<Self> {
        let layout = Layout::from_size_align(bytes.max(1), SHARED_ALIGN).ok()?;
        // SAFETY: a new allocation of at least a byte, zeroed, which is freed with the same layout when nobody keeps it any more.
        #[expect(unsafe_code, reason = "owns a block of memory")]
        unsafe {
            let start = NonNull::new(std::alloc::alloc_zeroed(layout))?;
            Some(SharedRun::new(start, bytes, Arc::new(Block { start, layout })))
        }
    }

    /// The first byte.
    #[inline(always)]
    pub fn start(&self) -> NonNull<u8> {
        self.start
    }

    /// How many bytes there are.
    #[inline(always)]
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// All bytes. For use as long as the run is kept.
    #[inline(always)]
    pub fn span(&self) -> Span {
        // SAFETY: the memory is valid while the run is kept, which whoever asks for the span does.
        #[expect(unsafe_code, reason = "a view of shared memory")]
        unsafe {
            Span::new(self.start.as_ptr(), self.bytes)
        }
    }
}

impl fmt::Debug for SharedRun {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedRun").field("bytes", &self.bytes).finish_non_exhaustive()
    }
}
