//! Values that are `Sync` because only a unique reference gives access.

/// A value that is accessible only through a unique reference. So it is `Sync` and may stand in a column, whatever its type is.
#[derive(Default)]
pub struct Exclusive<T>(T);

// SAFETY: a shared `Exclusive` gives no access to its value.
#[expect(unsafe_code, reason = "a cell without shared access")]
unsafe impl<T: Send> Sync for Exclusive<T> {}

impl<T> Exclusive<T> {
    /// Wraps a value.
    pub const fn new(value: T) -> Self {
        Exclusive(value)
    }

    /// The value.
    #[inline(always)]
    pub const fn get(&mut self) -> &mut T {
        &mut self.0
    }

    /// The value itself.
    pub fn into_inner(self) -> T {
        self.0
    }
}

impl Exclusive<Box<[u8]>> {
    /// The number of bytes. It is safe on a shared reference, since it does not read the bytes.
    #[inline]
    pub(crate) fn length(&self) -> usize {
        self.0.len()
    }
}
