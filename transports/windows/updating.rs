//! Updates of elements of a part: which way they go.

use super::lock;
use super::update::{self, Updater};
use super::{Head, HeldBy, Part};
use crate::rings::atomics::AtomicU32;
use crate::rings::fences;
use tickwire_components::limits::{UPDATE_LOCK_TRIES, UPDATED_FREE_MAX};
use tickwire_components::{NumberType, Span};

/// How a caller takes the update lock of a part.
pub struct Claim<D> {
    /// How often it tries.
    tries: u32,
    /// Whether a member is dead, so that it cannot give the lock back.
    is_dead: D,
}

impl<D: Fn(u32) -> bool> Claim<D> {
    /// The claim of a caller that waits for the lock, and does something else between its claims: several tries.
    pub fn waiting(is_dead: D) -> Self {
        Claim { tries: UPDATE_LOCK_TRIES, is_dead }
    }

    /// The claim of a tick, which comes again: one try.
    pub fn once(is_dead: D) -> Self {
        Claim { tries: 1, is_dead }
    }
}

impl Part {
    /// Updates elements, each as a whole; their old values go to `old`, unless that is null. `Ok(false)` if they are not aligned or not
    /// within its memory, or that is not in this process.
    ///
    /// # Errors
    /// A member that has the update lock.
    ///
    /// # Safety
    /// `operands` are valid for reads, and `old` for writes of as many bytes.
    #[expect(unsafe_code, reason = "addresses of elements")]
    #[inline(always)]
    pub unsafe fn update(
        &self,
        updater: &Updater,
        at: usize,
        operands: Span,
        old: *mut u8,
        claim: Claim<impl Fn(u32) -> bool>,
    ) -> Result<bool, HeldBy> {
        if !self.holds(at, operands.len()) {
            return Ok(false);
        }
        let to = self.start.wrapping_add(at);
        if !(to.addr() | operands.len()).is_multiple_of(updater.size()) {
            return Ok(false);
        }
        if operands.len() <= UPDATED_FREE_MAX && self.begin_free() {
            // SAFETY: aligned and within the memory, and by this function's contract.
            unsafe { updater.each(to, operands, old) };
            self.end_free();
            return Ok(true);
        }
        let _guard = self.take_updates(claim)?;
        // SAFETY: as above, and the lock is held.
        unsafe { updater.together(to, operands, old) };
        Ok(true)
    }

    /// Puts `new` into an element if `expected` is there; what was there, in its first bytes. `Ok(None)` as of [`Part::update`].
    ///
    /// # Errors
    /// As of [`Part::update`].
    #[inline(always)]
    pub fn compare_swap(
        &self,
        number: NumberType,
        at: usize,
        expected: [u8; 8],
        new: [u8; 8],
        claim: Claim<impl Fn(u32) -> bool>,
    ) -> Result<Option<[u8; 8]>, HeldBy> {
        let to = self.start.wrapping_add(at);
        if !self.holds(at, number.size()) || !to.addr().is_multiple_of(number.size()) {
            return Ok(None);
        }
        let free = self.begin_free();
        let _guard = if free { None } else { Some(self.take_updates(claim)?) };
        // SAFETY: aligned and within the memory. Under the lock others use plain loads and stores, but not meanwhile.
        #[expect(unsafe_code, reason = "addresses of elements")]
        let old = unsafe { update::compare_swap(to, number, expected, new) };
        if free {
            self.end_free();
        }
        Ok(Some(old))
    }

    #[inline(always)]
    fn begin_free(&self) -> bool {
        let busy = &self.control.member(self.control.me).busy;
        lock::begin_free(&self.control.head().mode.0, busy, || fences::light(self.control.one_sided))
    }

    #[inline(always)]
    fn end_free(&self) {
        lock::end_free(&self.control.member(self.control.me).busy);
    }

    /// Takes the update lock for a caller that waits for it: by the claim [`Claim::waiting`].
    ///
    /// # Errors
    /// As of [`Part::take_updates`].
    pub fn lock_updates(&self, is_dead: impl Fn(u32) -> bool) -> Result<UpdateGuard<'_>, HeldBy> {
        self.take_updates(Claim::waiting(is_dead))
    }

    /// Takes the update lock, even from a holder that is dead. Within one process no holder counts as dead: its thread gives the lock back
    /// whatever happens to its engine.
    ///
    /// # Errors
    /// Who has it, or is at an update that needs none, after the tries of the claim.
    pub fn take_updates(&self, claim: Claim<impl Fn(u32) -> bool>) -> Result<UpdateGuard<'_>, HeldBy> {
        let Head { update, mode, .. } = self.control.head();
        let is_dead = |member| !self.is_within_process() && (claim.is_dead)(member);
        let mut held_by = 0;
        for left in (0..claim.tries).rev() {
            match lock::try_update(&update.0, self.control.me, is_dead) {
                Ok(()) => {
                    let guard = UpdateGuard { word: &update.0, me: self.control.me };
                    let others = (0..self.control.members).filter(|&member| member != self.control.me);
                    let busy = others.map(|member| (member, &self.control.member(member).busy));
                    match lock::close_free(&mode.0, busy, is_dead, fences::heavy) {
                        Ok(()) => return Ok(guard),
                        Err(member) => held_by = member,
                    }
                }
                Err(member) => held_by = member,
            }
            if left > 0 {
                std::hint::spin_loop();
            }
        }
        Err(HeldBy(held_by))
    }
}

/// The update lock of a part, held as long as this lives.
pub struct UpdateGuard<'a> {
    word: &'a AtomicU32,
    me: u32,
}

impl Drop for UpdateGuard<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        lock::release_update(self.word, self.me);
    }
}
