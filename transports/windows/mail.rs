//! Short puts into memory that other processes reach only through the kernel. The origin leaves the put in the part's shared lines, and
//! the target's engine writes it to its place, which is several times faster than a call of the kernel. While the target computes, its
//! engine takes no put: then the origin takes its put back, and the kernel writes it. So nobody waits for the target.
//!
//! Each member has one slot, which changes hands as `slot.rs` says.

use super::Part;
use super::slot::{Slot, free, is_free, is_posted, post, take};
use crate::copy;
use crate::rings::atomics::Ordering;
use tickwire_components::Span;
use tickwire_components::limits::MAIL_BYTES;

impl Part {
    /// The slot of a member, if there are slots.
    #[inline(always)]
    fn slot(&self, member: u32) -> Option<(&Slot, Span)> {
        let first = self.slots?;
        // SAFETY: one of as many slots as members, in memory that is kept, of which only the words are referred to; the bytes are reached
        // by their address.
        #[expect(unsafe_code, reason = "a view of shared memory")]
        unsafe {
            let slot = first.as_ptr().add(member as usize);
            let bytes = Span::new((&raw mut (*slot).bytes).cast(), MAIL_BYTES);
            Some((&*slot, bytes))
        }
    }

    /// Leaves a put for the target's engine. `false` if there are no slots, the put is too long, or the one before is still there.
    ///
    /// # Safety
    /// `from` is valid for reads.
    #[expect(unsafe_code, reason = "raw copies")]
    pub unsafe fn post_mail(&self, at: usize, from: Span) -> bool {
        let Some((slot, bytes)) = self.slot(self.control.me) else { return false };
        if from.len() > MAIL_BYTES || !is_free(&slot.state) {
            return false;
        }
        // SAFETY: by this function's contract; the slot is this member's while it is free.
        unsafe { copy::copy_long(bytes, from) };
        slot.length.store(from.len() as u32, Ordering::Relaxed);
        slot.at.store(at as u64, Ordering::Relaxed);
        post(&slot.state);
        true
    }

    /// Whether the own put has been written to where it belongs.
    #[inline(always)]
    pub fn is_mail_taken(&self) -> bool {
        self.slot(self.control.me).is_none_or(|(slot, _)| is_free(&slot.state))
    }

    /// Takes the own put back, unless the target has begun to write it. Returns where it goes, and its bytes. [`Part::end_mail`] frees
    /// the slot. Other members can change the slot: a place that is not within the part is at 0, and the put is empty.
    pub fn take_mail_back(&self) -> Option<(u64, Span)> {
        let (slot, bytes) = self.slot(self.control.me)?;
        if !take(&slot.state) {
            return None;
        }
        let (at, bytes) =
            (slot.at.load(Ordering::Relaxed), bytes.part(0, slot.length.load(Ordering::Relaxed) as usize));
        let is_within = at.checked_add(bytes.len() as u64).is_some_and(|end| end <= self.bytes as u64);
        Some(if is_within { (at, bytes) } else { (0, Span::EMPTY) })
    }

    /// The put that was taken back is written.
    pub fn end_mail(&self) {
        if let Some((slot, _)) = self.slot(self.control.me) {
            free(&slot.state);
        }
    }

    /// Whether others may leave puts here.
    pub fn has_mail(&self) -> bool {
        self.slots.is_some()
    }

    /// Writes what others have left to where it belongs. For the owner of the part; how many puts there were.
    pub fn serve_mail(&self) -> u32 {
        let mut served = 0;
        for member in (0..self.control.members).filter(|&member| member != self.control.me) {
            let Some((slot, bytes)) = self.slot(member) else { break };
            if !is_posted(&slot.state) || !take(&slot.state) {
                continue;
            }
            let at = usize::try_from(slot.at.load(Ordering::Relaxed)).unwrap_or(usize::MAX);
            // An honest origin has checked this. What is not within the part is written nowhere.
            // SAFETY: bytes of the slot, which is this side's now.
            #[expect(unsafe_code, reason = "raw copies")]
            unsafe {
                self.put(at, bytes.part(0, slot.length.load(Ordering::Relaxed) as usize));
            }
            free(&slot.state);
            served += 1;
        }
        served
    }
}
