//! Hints to the processor's caches: [`prefetch`] before a line is used, [`demote`] after it was written.
//!
//! A hint names a cache line by any address in it. It changes no memory, and no address is an error: a line that does not exist is ignored.
//! A hint affects time only. On processors other than x86-64 hints do nothing.

/// The purpose of prefetching a line.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum For {
    /// To be read: the line is shared with whoever has it.
    Read,
    /// To be written: the line becomes this processor's alone, so that the write need not wait until other processors have given
    /// it up. Worth it if the write comes later than the line takes to arrive, a hundred nanoseconds or so.
    Write,
}

/// Prefetches a line before it is used.
#[inline(always)]
pub(crate) fn prefetch(line: *const u8, wanted: For) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: a prefetch has no effect on memory and cannot fault.
    #[expect(unsafe_code, reason = "a cache hint has no safe form")]
    unsafe {
        match wanted {
            For::Read => std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T0 }>(line.cast()),
            For::Write => std::arch::asm!("prefetchw [{}]", in(reg) line, options(nostack, preserves_flags)),
        }
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    let _ = (line, wanted);
}

/// Moves a line that was written out of this processor's private caches into the shared one. Another processor that waits for the line gets
/// it sooner. A writer that touches the line again soon is slowed down.
#[inline(always)]
pub(crate) fn demote(line: *const u8) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: a hint without effect on memory; processors that do not know the instruction take it for no operation.
    #[expect(unsafe_code, reason = "a cache hint has no safe form")]
    unsafe {
        std::arch::asm!("cldemote [{}]", in(reg) line, options(nostack, preserves_flags));
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    let _ = line;
}
