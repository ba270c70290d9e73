//! Who owns the bytes of an operation while it runs.

use crate::{Span, Stretch};
use std::cell::Cell;
use std::marker::PhantomData;
use std::mem::{ManuallyDrop, MaybeUninit};
use std::sync::Arc;

/// The runs of bytes that a buffer consists of, in message order.
///
/// Addresses alone are no buffers, since they may outlive what they point to.
///
/// ```compile_fail,E0277
/// # use tickwire_components::{Pieces, Span};
/// fn post<B: Pieces>() {}
/// post::<Span>();
/// ```
///
/// ```compile_fail,E0277
/// # use tickwire_components::{Pieces, Stretch};
/// fn post<B: Pieces>() {}
/// post::<Stretch>();
/// ```
///
/// ```compile_fail,E0277
/// # use tickwire_components::{Pieces, Span};
/// fn post<B: Pieces + ?Sized>() {}
/// post::<[Span]>();
/// ```
///
/// # Safety
/// [`Pieces::piece`] must keep giving the same addresses while the value is moved about, and these must stay valid
/// as long as the value lives: for reads, and if the type is also [`LeasedBytes`] for writes. The same holds for the
/// segment behind [`Pieces::layout`], if there is one; [`Pieces::pieces`] is 0 then, and [`Pieces::total`] its size.
#[expect(unsafe_code, reason = "the engine trusts the addresses that a buffer type reports")]
pub unsafe trait Pieces {
    /// How many runs there are; most buffers have one.
    #[inline]
    fn pieces(&self) -> usize {
        1
    }

    /// Run `index`, below [`Pieces::pieces`].
    fn piece(&self, index: usize) -> Span;

    /// Bytes in all.
    #[inline]
    fn total(&self) -> usize {
        (0..self.pieces()).map(|i| self.piece(i).len()).sum()
    }

    /// Whether a byte is in the message twice: such a buffer can be sent, and not be received into.
    fn has_overlap(&self) -> bool {
        false
    }

    /// What the bytes are of a buffer that has too many runs to count them up: there are no pieces then.
    #[inline(always)]
    fn layout(&self) -> Option<Stretch> {
        None
    }
}

/// A buffer that is one run of bytes, whatever is in it: of these a list is a buffer, each element a run of it.
///
/// Lists of lists are no buffers, nor are lists of elements that a datatype scatters:
///
/// ```
/// # use tickwire_components::Pieces;
/// fn post<B: Pieces>(_: B) {}
/// post(vec![vec![1u8, 2], vec![], vec![3]]);
/// post(vec!["one".to_owned(), "two".to_owned()]);
/// ```
///
/// ```compile_fail,E0277
/// # use tickwire_components::Pieces;
/// fn post<B: Pieces>(_: B) {}
/// post(vec![vec![vec![1u8, 2], vec![3]]]);
/// ```
///
/// ```compile_fail,E0277
/// # use tickwire_components::{Pieces, Typed};
/// fn post<B: Pieces>(_: B) {}
/// fn columns(columns: Vec<Typed<Vec<f64>>>) {
///     post(columns);
/// }
/// ```
///
/// # Safety
/// [`Pieces::pieces`] is always 1 and [`Pieces::layout`] always `None`.
#[expect(unsafe_code, reason = "the engine trusts what a buffer type reports")]
pub unsafe trait OneRun: Pieces {}

/// A buffer that a receive may write: `Vec<u8>` (up to its length), `Box<[u8]>`, lists of these, and, in a scope,
/// `&mut [u8]` and `&[Cell<u8>]`.
///
/// # Safety
/// The runs that [`Pieces`] reports must be valid for writes while the value lives and nobody else uses it.
#[expect(unsafe_code, reason = "the engine trusts the addresses that a buffer type reports")]
pub unsafe trait LeasedBytes: Pieces {}

macro_rules! one_run {
    ($(($($generic:tt)*) $type:ty, $writable:tt;)*) => {$(
        // SAFETY: the bytes are on the heap or borrowed, so moving the value does not move them.
        #[expect(unsafe_code, reason = "the engine trusts the addresses that a buffer type reports")]
        unsafe impl $($generic)* Pieces for $type {
            #[inline]
            fn piece(&self, _index: usize) -> Span {
                // SAFETY: valid while `self` lives; the engine holds it until the request is done.
                unsafe { Span::new(self.as_ptr().cast::<u8>().cast_mut(), self.len()) }
            }
        }
        // SAFETY: as `Pieces` says where nothing else is said.
        #[expect(unsafe_code, reason = "the engine trusts what a buffer type reports")]
        unsafe impl $($generic)* OneRun for $type {}
        one_run!(@ $writable ($($generic)*) $type);
    )*};
    (@ write ($($generic:tt)*) $type:ty) => {
        // SAFETY: the value owns or mutably borrows its bytes, or they are cells of this thread.
        #[expect(unsafe_code, reason = "the engine trusts the addresses that a buffer type reports")]
        unsafe impl $($generic)* LeasedBytes for $type {}
    };
    (@ read ($($generic:tt)*) $type:ty) => {};
}

one_run! {
    () Vec<u8>, write;
    () Box<[u8]>, write;
    () Arc<[u8]>, read;
    (<'a>) &'a [u8], read;
    (<'a>) &'a mut [u8], write;
    (<'a>) &'a [Cell<u8>], write;
}

// SAFETY: a string's bytes are on the heap.
#[expect(unsafe_code, reason = "the engine trusts the addresses that a buffer type reports")]
unsafe impl Pieces for String {
    #[inline]
    fn piece(&self, _index: usize) -> Span {
        // SAFETY: valid while `self` lives; only read, since `String` is not `LeasedBytes`.
        unsafe { Span::new(self.as_ptr().cast_mut(), self.len()) }
    }
}

// SAFETY: as `Pieces` says where nothing else is said.
#[expect(unsafe_code, reason = "the engine trusts what a buffer type reports")]
unsafe impl OneRun for String {}

// SAFETY: the elements are on the heap, and each reports one run, which does not move with it.
#[expect(unsafe_code, reason = "the engine trusts the addresses that a buffer type reports")]
unsafe impl<B: OneRun> Pieces for Vec<B> {
    #[inline]
    fn pieces(&self) -> usize {
        self.len()
    }

    #[inline]
    fn piece(&self, index: usize) -> Span {
        self[index].piece(0)
    }
}

// SAFETY: the list owns its elements, and they may be written.
#[expect(unsafe_code, reason = "the engine trusts the addresses that a buffer type reports")]
unsafe impl<B: OneRun + LeasedBytes> LeasedBytes for Vec<B> {}

/// A run of memory that the application lends on its own word.
#[derive(Debug)]
pub struct Ownership<'a>(Span, PhantomData<&'a mut [u8]>);

impl Ownership<'static> {
    /// Lends the bytes of a span.
    ///
    /// # Safety
    /// What [`Span::new`] asks for holds until the request is done.
    #[expect(unsafe_code, reason = "the caller lends memory")]
    pub const unsafe fn new(span: Span) -> Self {
        Ownership(span, PhantomData)
    }
}

// SAFETY: the caller of `Ownership::new` promised it.
#[expect(unsafe_code, reason = "the engine trusts the addresses that a buffer type reports")]
unsafe impl Pieces for Ownership<'_> {
    #[inline]
    fn piece(&self, _index: usize) -> Span {
        self.0
    }
}
// SAFETY: the caller of `Ownership::new` promised it.
#[expect(unsafe_code, reason = "the engine trusts the addresses that a buffer type reports")]
unsafe impl LeasedBytes for Ownership<'_> {}
// SAFETY: as `Pieces` says where nothing else is said.
#[expect(unsafe_code, reason = "the engine trusts what a buffer type reports")]
unsafe impl OneRun for Ownership<'_> {}

const WORDS: usize = 3;
type Room = [MaybeUninit<usize>; WORDS];

/// A column's cell that owns a buffer of any type: up to three words in place (a `Vec`, a slice, an `Arc`), more in a box.
///
/// Written when a request is posted, emptied when it is taken or freed. 32 B.
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
    /// `B` is the type it was put with, but for lifetimes.
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
    /// `B` is the type it was put with, but for lifetimes.
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

    /// Whether there is none.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.room.is_none()
    }

    /// Drops the buffer, if there is one.
    #[inline]
    pub fn clear(&mut self) {
        drop(std::mem::take(self));
    }

    /// Leaves the buffer to whoever holds its address: never dropped.
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

    #[test]
    fn a_list_of_buffers_is_a_list_of_runs() {
        let list = vec![vec![0u8; 3], vec![], vec![0u8; 5]];
        assert_eq!((list.pieces(), list.total()), (3, 8));
        assert_eq!(list.piece(2).len(), 5);
    }
}
