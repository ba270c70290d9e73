//! Packed elements of a datatype, and reductions of them.

use crate::pieces::{LeasedBytes, OneRun, Pieces};
use crate::sequence::Sequence;
use crate::{
    Basic, Datatype, DatatypeError, Described, Elements, ElementsMut, Operands, Operation, Span, Typed, Unfit,
};
use bytemuck::allocation::try_zeroed_vec;
use std::cell::Cell;
use std::fmt;
use std::marker::PhantomData;

/// A byte of [`Packed`] elements.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[repr(transparent)]
pub struct PackedByte(pub u8);

// SAFETY: a byte.
#[expect(unsafe_code, reason = "plain data")]
unsafe impl bytemuck::Zeroable for PackedByte {}
// SAFETY: a byte.
#[expect(unsafe_code, reason = "plain data")]
unsafe impl bytemuck::Pod for PackedByte {}

/// A buffer of elements of a [`Datatype`], together with the packed elements. Collective operations and blocks send, receive and reduce
/// the packed bytes. One of its elements is one element of the datatype.
///
/// The elements are packed when the value is made. [`Packed::pack`] packs them again after changes of the buffer. [`Packed::unpack`]
/// copies the packed bytes, for example received ones, back into the buffer.
///
/// ```
/// use tickwire_components::{Datatype, Packed, combine, op};
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// // Column 1 of a matrix of two rows and three columns; its elements are the rows' numbers.
/// let number = Datatype::of::<f64>().resized(0, 24)?;
/// let column = |matrix: Vec<f64>| Packed::at(matrix, 8, &number, 2);
/// let (left, mut right) = (column(vec![0.0, 1.0, 0.0, 0.0, 2.0, 0.0])?, column(vec![9.0, 10.0, 9.0, 9.0, 20.0, 9.0])?);
/// let sum = op::on_packed(&number, |left, right| {
///     let numbers = [left, &*right].map(|bytes| f64::from_ne_bytes(bytes.try_into().expect("a number")));
///     right.copy_from_slice(&(numbers[0] + numbers[1]).to_ne_bytes());
/// });
/// combine(&left, &mut right, &sum);
/// assert_eq!(right.unpack()[..], [9.0, 11.0, 9.0, 9.0, 22.0, 9.0]);
/// # Ok(())
/// # }
/// ```
pub struct Packed<B> {
    typed: Typed<B>,
    /// The packed bytes of all elements.
    bytes: Vec<u8>,
    /// Bytes of a packed element.
    element: usize,
}

impl<B> fmt::Debug for Packed<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Packed({} bytes, {} an element)", self.bytes.len(), self.element)
    }
}

impl<B: Elements<Element: Basic>> Packed<B> {
    /// `count` elements of a type, with displacement 0 at the start of the buffer.
    ///
    /// # Errors
    /// If some bytes of the elements are outside the buffer, or there is no memory for the packed ones. The error gives the buffer back.
    pub fn new(buffer: B, of: &Datatype, count: usize) -> Result<Self, Unfit<B>> {
        Self::at(buffer, 0, of, count)
    }

    /// As [`Packed::new`], with displacement 0 at byte `origin` of the buffer.
    ///
    /// # Errors
    /// As [`Packed::new`].
    pub fn at(buffer: B, origin: usize, of: &Datatype, count: usize) -> Result<Self, Unfit<B>> {
        Self::of(Typed::at(buffer, origin, of, count)?, of.size())
    }
}

impl<B: Elements> Packed<B> {
    /// All elements of a buffer, with the datatype of their Rust type: for example structs with `#[derive(Datatype)]`, without their
    /// padding.
    ///
    /// # Errors
    /// As [`Packed::new`].
    pub fn all(buffer: B) -> Result<Self, Unfit<B>> {
        Self::of(Typed::all(buffer)?, B::Element::layout().size())
    }

    /// Packs elements into new memory. Where they lie on each other, they may have far more bytes than the buffer.
    fn of(typed: Typed<B>, element: usize) -> Result<Self, Unfit<B>> {
        let bytes = typed.size();
        let Ok(room) = try_zeroed_vec(bytes) else {
            return Err(Unfit { error: DatatypeError::Memory { bytes }, buffer: typed.into_buffer() });
        };
        let mut packed = Packed { typed, bytes: room, element };
        packed.pack();
        Ok(packed)
    }

    /// Packs the elements that are in the buffer now.
    pub fn pack(&mut self) {
        self.typed.pack(0, &mut self.bytes);
    }

    /// The packed bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }
}

impl<B: ElementsMut> Packed<B> {
    /// Copies the packed bytes to their places in the buffer. If the datatype contains a byte twice, the later value stays.
    pub fn unpack(&mut self) -> &B {
        self.typed.unpack(0, &self.bytes);
        self.typed.buffer()
    }
}

impl<B: ElementsMut + AsMut<[B::Element]>> Packed<B> {
    /// All elements of the buffer, including those that are not packed. Changes take effect with the next [`Packed::pack`].
    pub fn elements_mut(&mut self) -> &mut [B::Element] {
        self.typed.elements_mut()
    }
}

impl<B> Packed<B> {
    /// The buffer.
    pub fn buffer(&self) -> &B {
        self.typed.buffer()
    }

    /// The buffer as it is now. Received bytes are in it only if they have been unpacked.
    pub fn into_buffer(self) -> B {
        self.typed.into_buffer()
    }
}

// SAFETY: the bytes are on the heap, and do not move with the value.
#[expect(unsafe_code, reason = "the engine trusts the addresses that a buffer type reports")]
unsafe impl<B> Pieces for Packed<B> {
    fn piece(&self, index: usize) -> Span {
        self.bytes.piece(index)
    }
}

// SAFETY: it is one run, and has no layout.
#[expect(unsafe_code, reason = "the engine trusts what a buffer type reports")]
unsafe impl<B> OneRun for Packed<B> {}

// SAFETY: the value owns the bytes, which can be any.
#[expect(unsafe_code, reason = "the engine trusts the addresses that a buffer type reports")]
unsafe impl<B> LeasedBytes for Packed<B> {}

// SAFETY: these are bytes.
#[expect(unsafe_code, reason = "the engine trusts what a buffer type reports")]
unsafe impl<B> Sequence for Packed<B> {
    type Item = PackedByte;

    fn element(&self) -> usize {
        self.element
    }
}

/// A function of packed elements. See [`op::on_packed`](crate::op::on_packed).
pub struct OnPacked<F> {
    element: usize,
    function: F,
}

impl<F: Fn(&[u8], &mut [u8])> OnPacked<F> {
    pub(crate) fn new(of: &Datatype, function: F) -> Self {
        OnPacked { element: of.size(), function }
    }
}

impl<F> fmt::Debug for OnPacked<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "OnPacked({} bytes)", self.element)
    }
}

impl<F: Fn(&[u8], &mut [u8]) + Send + Sync + 'static> Operation<PackedByte> for OnPacked<F> {
    fn combine(&self, left: PackedByte, mut right: PackedByte) -> PackedByte {
        (self.function)(&[left.0], std::slice::from_mut(&mut right.0));
        right
    }

    fn element(&self) -> usize {
        self.element
    }

    fn combine_all(&self, operands: Operands<'_, PackedByte>) {
        each(self.element, operands, |left, right| (self.function)(left, right));
    }
}

/// A function of structs. See [`op::on_structs`](crate::op::on_structs).
pub struct OnStructs<T, F> {
    layout: Datatype,
    function: F,
    _type: PhantomData<fn(T) -> T>,
}

impl<T: Described, F: Fn(T, T) -> T> OnStructs<T, F> {
    pub(crate) fn new(function: F) -> Self {
        OnStructs { layout: T::layout(), function, _type: PhantomData }
    }
}

impl<T, F> fmt::Debug for OnStructs<T, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "OnStructs({})", std::any::type_name::<T>())
    }
}

impl<T, F> Operation<PackedByte> for OnStructs<T, F>
where
    T: Described + Default,
    F: Fn(T, T) -> T + Send + Sync + 'static,
{
    fn combine(&self, left: PackedByte, mut right: PackedByte) -> PackedByte {
        let operands = Operands::Right(&[left], std::slice::from_mut(&mut right));
        self.combine_all(operands);
        right
    }

    fn element(&self) -> usize {
        self.layout.size()
    }

    fn combine_all(&self, operands: Operands<'_, PackedByte>) {
        let size = self.layout.size().max(1);
        let call = |left: &[u8], right: &[u8]| (self.function)(self.unpacked(left), self.unpacked(right));
        match operands {
            Operands::Left(into, right) => {
                let pairs = bytes_mut(into).chunks_exact_mut(size).zip(bytes(right).chunks_exact(size));
                pairs.for_each(|(into, right)| self.pack(call(into, right), into));
            }
            Operands::Right(left, into) => {
                let pairs = bytes(left).chunks_exact(size).zip(bytes_mut(into).chunks_exact_mut(size));
                pairs.for_each(|(left, into)| self.pack(call(left, into), into));
            }
            Operands::Apart(out, left, right) => {
                let pairs = bytes(left).chunks_exact(size).zip(bytes(right).chunks_exact(size));
                let all = bytes_mut(out).chunks_exact_mut(size).zip(pairs);
                all.for_each(|(out, (left, right))| self.pack(call(left, right), out));
            }
        }
    }
}

impl<T: Described + Default, F> OnStructs<T, F> {
    /// Unpacks an element. Bytes that the datatype leaves out are those of `T::default()`.
    fn unpacked(&self, packed: &[u8]) -> T {
        let mut value = T::default();
        // SAFETY: this is the layout of the type.
        #[expect(unsafe_code, reason = "the layout says where bytes go")]
        unsafe {
            self.layout.unpack_value(packed, &mut value);
        }
        value
    }

    /// Packs an element.
    fn pack(&self, mut value: T, out: &mut [u8]) {
        // SAFETY: this is the layout of the type.
        #[expect(unsafe_code, reason = "the layout says where bytes are")]
        unsafe {
            self.layout.pack_value(&mut value, out);
        }
    }
}

thread_local! {
    /// Room for one element, kept from one reduction to the next.
    static ROOM: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// Calls a function with room for an element of so many bytes. Calls may be nested.
fn with_room(bytes: usize, call: impl FnOnce(&mut [u8])) {
    let mut room = ROOM.try_with(Cell::take).unwrap_or_default();
    room.resize(bytes.max(room.len()), 0);
    call(&mut room[..bytes]);
    // Without the room of this thread, which ends, the next call makes another one.
    let _ = ROOM.try_with(|kept| kept.set(room));
}

/// Combines operands element by element, with elements of `element` bytes. `combine` writes its result to its second argument.
fn each(element: usize, operands: Operands<'_, PackedByte>, mut combine: impl FnMut(&[u8], &mut [u8])) {
    let size = element.max(1);
    match operands {
        Operands::Left(into, right) => {
            let pairs = bytes_mut(into).chunks_exact_mut(size).zip(bytes(right).chunks_exact(size));
            with_room(size, |result| {
                for (into, right) in pairs {
                    result.copy_from_slice(right);
                    combine(into, result);
                    into.copy_from_slice(result);
                }
            });
        }
        Operands::Right(left, into) => {
            let pairs = bytes(left).chunks_exact(size).zip(bytes_mut(into).chunks_exact_mut(size));
            pairs.for_each(|(left, into)| combine(left, into));
        }
        Operands::Apart(out, left, right) => {
            let (left, right) = (bytes(left).chunks_exact(size), bytes(right).chunks_exact(size));
            for (out, (left, right)) in bytes_mut(out).chunks_exact_mut(size).zip(left.zip(right)) {
                out.copy_from_slice(right);
                combine(left, out);
            }
        }
    }
}

fn bytes(packed: &[PackedByte]) -> &[u8] {
    bytemuck::cast_slice(packed)
}

fn bytes_mut(packed: &mut [PackedByte]) -> &mut [u8] {
    bytemuck::cast_slice_mut(packed)
}

#[cfg(test)]
mod tests;
