//! Hints to the processor's caches: one for before a write, one for after it, and one for before a read.
//!
//! A hint names a cache line by any address in it. It changes no memory, and no address is wrong: a line that does not exist is
//! ignored. What comes of a hint is time only. On processors other than x86-64 the hints do nothing.

/// Before a write: asks for the line, to be this processor's alone. The write then need not wait until other processors have
/// given the line up. Worth it if the write comes later than the line takes to arrive, a hundred nanoseconds or so.
#[inline(always)]
pub(crate) fn before_write(line: *const u8) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: a prefetch has no effect on memory and cannot fault.
    #[expect(unsafe_code, reason = "a cache hint has no safe form")]
    unsafe {
        std::arch::asm!("prefetchw [{}]", in(reg) line, options(nostack, preserves_flags));
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    let _ = line;
}

/// After a write: moves the line from this processor's own caches to the one that all processors share. Another processor that
/// waits for the line has it sooner. A writer that touches the line again soon is slowed down.
#[inline(always)]
pub(super) fn after_write(line: *const u8) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: a hint without effect on memory; processors that do not know the instruction take it for no operation.
    #[expect(unsafe_code, reason = "a cache hint has no safe form")]
    unsafe {
        std::arch::asm!("cldemote [{}]", in(reg) line, options(nostack, preserves_flags));
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    let _ = line;
}

/// Before a read: asks for the line, to be shared with whoever has it.
#[inline(always)]
pub(super) fn before_read(line: *const u8) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: a prefetch has no effect on memory and cannot fault.
    #[expect(unsafe_code, reason = "a cache hint has no safe form")]
    unsafe {
        std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T0 }>(line.cast());
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    let _ = line;
}
