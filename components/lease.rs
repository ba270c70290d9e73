//! Who owns the bytes of an operation while it runs.

use std::mem::{ManuallyDrop, MaybeUninit};

const WORDS: usize = 3;
type Room = [MaybeUninit<usize>; WORDS];

/// A cell of a column that owns a buffer of any type. Buffer values of up to three words (a `Vec`, a slice, an `Arc`) are stored in
/// place, larger ones in a box.
///
/// Written when a request is posted. Emptied when the request is taken or freed. 32 B.
#[derive(Default)]
pub struct Lease {
    room: Option<(Room, Dropper)>,
}

type Dropper = unsafe fn(*mut Room);

// SAFETY: the engine is the only user of a lease and moves between threads only as a whole; what is put in by a
// safe call is `Send`, or borrowed by a scope that does not leave its thread.
#[expect(unsafe_code, reason = "type-erased ownership")]
unsafe impl Send for Lease {}
// SAFETY: a shared lease gives no access to what it owns.
#[expect(unsafe_code, reason = "type-erased ownership")]
unsafe impl Sync for Lease {}

impl Lease {
    /// Takes ownership of a buffer.
    #[expect(unsafe_code, reason = "type-erased ownership")]
    #[inline]
    pub fn put<B>(&mut self, buffer: B) {
        if self.room.is_some() {
            self.clear();
        }
        let mut room = [MaybeUninit::uninit(); WORDS];
        let at: *mut Room = &mut room;
        if const { fits::<B>() } {
            // SAFETY: `B` fits the room in size and alignment.
            unsafe { at.cast::<B>().write(buffer) };
            self.room = Some((room, drop_in_place::<B>));
        } else {
            // SAFETY: a thin pointer fits the room.
            unsafe { at.cast::<Box<B>>().write(Box::new(buffer)) };
            self.room = Some((room, drop_in_place::<Box<B>>));
        }
    }

    /// Gives the buffer back; `None` if there is none.
    ///
    /// # Safety
    /// `B` is the type that was given to [`Lease::put`], apart from lifetimes.
    #[expect(unsafe_code, reason = "type-erased ownership")]
    #[inline]
    pub unsafe fn take<B>(&mut self) -> Option<B> {
        let (mut room, _) = self.room.take()?;
        let at: *mut Room = &mut room;
        if const { fits::<B>() } {
            // SAFETY: `put` wrote a `B` here, and the lease has been emptied.
            Some(unsafe { at.cast::<B>().read() })
        } else {
            // SAFETY: `put` wrote a box of `B` here, and the lease has been emptied.
            Some(*unsafe { at.cast::<Box<B>>().read() })
        }
    }

    /// The buffer, if there is one.
    ///
    /// # Safety
    /// `B` is the type that was given to [`Lease::put`], apart from lifetimes.
    #[expect(unsafe_code, reason = "type-erased ownership")]
    pub unsafe fn get<B>(&self) -> Option<&B> {
        let (room, _) = self.room.as_ref()?;
        let at: *const Room = room;
        if const { fits::<B>() } {
            // SAFETY: `put` wrote a `B` here.
            Some(unsafe { &*at.cast::<B>() })
        } else {
            // SAFETY: `put` wrote a box of `B` here.
            Some(unsafe { &*at.cast::<Box<B>>() })
        }
    }

    /// The buffer for writing, if there is one.
    ///
    /// # Safety
    /// As [`Lease::get`].
    #[expect(unsafe_code, reason = "type-erased ownership")]
    pub unsafe fn get_mut<B>(&mut self) -> Option<&mut B> {
        let (room, _) = self.room.as_mut()?;
        let at: *mut Room = room;
        if const { fits::<B>() } {
            // SAFETY: `put` wrote a `B` here.
            Some(unsafe { &mut *at.cast::<B>() })
        } else {
            // SAFETY: `put` wrote a box of `B` here.
            Some(unsafe { &mut *at.cast::<Box<B>>() })
        }
    }

    /// Whether it owns no buffer.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.room.is_none()
    }

    /// Drops the buffer, if there is one.
    #[inline]
    pub fn clear(&mut self) {
        drop(std::mem::take(self));
    }

    /// Empties the cell without dropping the buffer: something else still uses its address.
    pub fn leak(&mut self) {
        let _ = ManuallyDrop::new(std::mem::take(self));
    }
}

impl Drop for Lease {
    #[expect(unsafe_code, reason = "type-erased ownership")]
    #[inline]
    fn drop(&mut self) {
        if let Some((mut room, dropper)) = self.room.take() {
            // SAFETY: `put` chose the function for what it wrote, and the lease has been emptied.
            unsafe { dropper(&mut room) }
        }
    }
}

const fn fits<B>() -> bool {
    size_of::<B>() <= size_of::<Room>() && align_of::<B>() <= align_of::<Room>()
}

/// # Safety
/// A live `T` stands at the start of the room.
#[expect(unsafe_code, reason = "type-erased ownership")]
unsafe fn drop_in_place<T>(room: *mut Room) {
    // SAFETY: by this function's contract.
    unsafe { room.cast::<T>().drop_in_place() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    #[test]
    #[expect(unsafe_code, reason = "the types are the ones that were put")]
    fn small_and_large_owners_come_back_or_are_dropped() {
        let shared: Arc<[u8]> = vec![1, 2, 3].into();
        let mut lease = Lease::default();
        lease.put(vec![1u8, 2]);
        // SAFETY: the type is the one put in.
        assert_eq!(unsafe { lease.take::<Vec<u8>>() }, Some(vec![1, 2]));
        // SAFETY: as above.
        assert_eq!(unsafe { lease.take::<Vec<u8>>() }, None);
        lease.put([shared.clone(), shared.clone(), shared.clone()]);
        assert_eq!(Arc::strong_count(&shared), 4);
        // SAFETY: as above.
        assert_eq!(unsafe { lease.get::<[Arc<[u8]>; 3]>() }.map(|list| list[2].len()), Some(3));
        lease.put(vec![1u8]);
        // SAFETY: as above.
        unsafe { lease.get_mut::<Vec<u8>>() }.into_iter().for_each(|bytes| bytes.push(2));
        // SAFETY: as above.
        assert_eq!(unsafe { lease.get::<Vec<u8>>() }, Some(&vec![1, 2]));
        lease.put(shared.clone());
        assert_eq!(Arc::strong_count(&shared), 2, "replacing drops what was there");
        lease.clear();
        assert_eq!(Arc::strong_count(&shared), 1);
        assert_eq!(size_of::<Lease>(), 32);
    }
}
