//! The facet of a fabric that tells late that its last one-sided operation is complete.

use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use tickwire::internals::components::Span;
use tickwire::internals::transports::{
    AtomicOperation, AtomicWidths, AtomicWord, Channel, FailedOperation, Issued, OneSided, RemoteAccess, RemoteKey,
    RemoteRun, Settled,
};

/// How often a fabric must be progressed before it tells that its last operation is complete.
const LOOKS: u32 = 100;

/// See the module.
#[derive(Default)]
pub(crate) struct Late {
    /// The facet within. Set whenever a caller gets this one.
    inner: Option<NonNull<dyn OneSided>>,
    /// How often it was progressed since an operation was issued.
    looks: AtomicU32,
    /// Whether the last operation is not known to be complete.
    pub(crate) is_open: Arc<AtomicBool>,
}

// SAFETY: the pointer is followed only by the caller that has just got this facet.
#[expect(unsafe_code, reason = "a facet of the transport within")]
unsafe impl Send for Late {}
// SAFETY: as above.
#[expect(unsafe_code, reason = "a facet of the transport within")]
unsafe impl Sync for Late {}

#[expect(unsafe_code, reason = "a facet of the transport within")]
impl Late {
    /// This facet around the one within, as long as both are borrowed.
    pub(crate) fn around<'a>(&'a mut self, inner: &'a mut (dyn OneSided + 'a)) -> &'a mut dyn OneSided {
        // SAFETY: one type but for its lifetime. The pointer is followed only while `inner` is borrowed, as it says above.
        self.inner = Some(unsafe {
            std::mem::transmute::<NonNull<dyn OneSided + 'a>, NonNull<dyn OneSided + 'static>>(NonNull::from(inner))
        });
        self
    }

    fn inner(&self) -> &dyn OneSided {
        // SAFETY: whoever calls has got this facet from `around`, and still borrows the one within.
        unsafe { self.inner.expect("it is around another").as_ref() }
    }

    fn inner_mut(&mut self) -> &mut dyn OneSided {
        // SAFETY: as above.
        unsafe { self.inner.expect("it is around another").as_mut() }
    }

    fn issued_now(&self, issued: Result<Issued, String>) -> Result<Issued, String> {
        self.looks.store(0, Ordering::Relaxed);
        self.is_open.store(true, Ordering::Relaxed);
        issued
    }
}

// SAFETY: the facet within does it all.
#[expect(unsafe_code, reason = "bytes that are addresses")]
unsafe impl OneSided for Late {
    fn contexts(&self) -> u32 {
        self.inner().contexts()
    }

    unsafe fn register_exposed(&mut self, run: Span, access: RemoteAccess) -> Result<RemoteKey, String> {
        // SAFETY: by the same contract, as all below.
        unsafe { self.inner_mut().register_exposed(run, access) }
    }

    fn withdraw_exposed(&mut self, key: &RemoteKey) {
        self.inner_mut().withdraw_exposed(key);
    }

    fn withdraw_for_good(&mut self, key: &RemoteKey) -> u64 {
        self.inner_mut().withdraw_for_good(key)
    }

    fn settled(&mut self, number: u64) -> Settled {
        self.inner_mut().settled(number)
    }

    fn may_use(&mut self, link: u32) -> bool {
        self.inner_mut().may_use(link)
    }

    fn has_left(&mut self, link: u32) {
        self.inner_mut().has_left(link);
    }

    fn refuses_stale_keys(&self) -> bool {
        self.inner().refuses_stale_keys()
    }

    fn atomics(&mut self) -> AtomicWidths {
        self.inner_mut().atomics()
    }

    fn copies_max(&self) -> usize {
        self.inner().copies_max()
    }

    unsafe fn put(&mut self, channel: Channel, to: RemoteRun, from: Span, number: u64) -> Result<Issued, String> {
        // SAFETY: by the same contract.
        let issued = unsafe { self.inner_mut().put(channel, to, from, number) };
        self.issued_now(issued)
    }

    unsafe fn get(&mut self, channel: Channel, from: RemoteRun, into: Span, number: u64) -> Result<Issued, String> {
        // SAFETY: by the same contract.
        let issued = unsafe { self.inner_mut().get(channel, from, into, number) };
        self.issued_now(issued)
    }

    unsafe fn fetch_atomic(
        &mut self,
        channel: Channel,
        target: RemoteRun,
        operation: AtomicOperation,
        operand: AtomicWord,
        into: Span,
        number: u64,
    ) -> Result<Issued, String> {
        // SAFETY: by the same contract.
        unsafe { self.inner_mut().fetch_atomic(channel, target, operation, operand, into, number) }
    }

    unsafe fn compare_swap(
        &mut self,
        channel: Channel,
        target: RemoteRun,
        expected: AtomicWord,
        swap: AtomicWord,
        into: Span,
        number: u64,
    ) -> Result<Issued, String> {
        // SAFETY: by the same contract.
        unsafe { self.inner_mut().compare_swap(channel, target, expected, swap, into, number) }
    }

    fn issued(&self, channel: Channel) -> u64 {
        self.inner().issued(channel)
    }

    fn completed(&self, channel: Channel) -> u64 {
        let (issued, completed) = (self.inner().issued(channel), self.inner().completed(channel));
        if completed < issued {
            return completed;
        }
        if self.looks.load(Ordering::Relaxed) < LOOKS {
            return completed.saturating_sub(1);
        }
        self.is_open.store(false, Ordering::Relaxed);
        completed
    }

    fn failed_operation(&mut self) -> Option<FailedOperation> {
        self.inner_mut().failed_operation()
    }

    fn progress(&mut self) {
        self.looks.fetch_add(1, Ordering::Relaxed);
        self.inner_mut().progress();
    }

    fn was_reached(&mut self) -> bool {
        self.inner_mut().was_reached()
    }
}
