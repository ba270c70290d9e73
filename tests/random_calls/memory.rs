//! How the elements of a call are given to the engine: as they are, or packed by a datatype.

use super::block::Block;
use super::buffers::{Buffers, Side};
use super::items::Item;
use super::packed;
use tickwire::{
    Datatype, Element, Engine, InPlace, LeasedBytes, List, Operation, Packed, PackedByte, Sequence, bytemuck, op,
};

/// A kind of buffers, and the operations that reduce them.
pub(crate) trait Memory<T: Item>: 'static {
    /// What the engine takes for the element type.
    type Unit: Element;
    /// A buffer.
    type Block: Side<T> + Buffers<T> + Lend<T, Self::Unit> + Sequence<Item = Self::Unit> + LeasedBytes + Send + 'static;
    /// The operation of the element type.
    type Native: Operation<Self::Unit>;

    /// A buffer with these values. It is in the shared heap of an engine, if there is one and if this kind of buffers can be there.
    fn block(values: &[T], heap: Option<&Engine>) -> Self::Block;
    /// The operation of the element type.
    fn native() -> Self::Native;
    /// A function as an operation.
    fn by(function: fn(T, T) -> T) -> impl Operation<Self::Unit>;
}

/// Elements as they are.
pub(crate) enum Plain {}

impl<T: Item> Memory<T> for Plain {
    type Unit = T;
    type Block = Block<T>;
    type Native = T::Native;

    fn block(values: &[T], heap: Option<&Engine>) -> Block<T> {
        Block::of(values, heap)
    }

    fn native() -> T::Native {
        T::NATIVE
    }

    fn by(function: fn(T, T) -> T) -> impl Operation<T> {
        function
    }
}

/// Packed elements.
pub(crate) enum Packs {}

impl<T: Item> Memory<T> for Packs {
    type Unit = PackedByte;
    type Block = Packed<Vec<T>>;
    type Native = tickwire::OnStructs<T, fn(T, T) -> T>;

    fn block(values: &[T], _: Option<&Engine>) -> Packed<Vec<T>> {
        packed::block(values)
    }

    fn native() -> Self::Native {
        op::on_structs(T::native)
    }

    fn by(function: fn(T, T) -> T) -> impl Operation<PackedByte> {
        op::on_packed(&Datatype::of::<T>(), move |left: &[u8], right: &mut [u8]| {
            let [left, second] = [left, &*right].map(bytemuck::pod_read_unaligned);
            right.copy_from_slice(bytemuck::bytes_of(&function(left, second)));
        })
    }
}

/// A buffer that can be borrowed for a call.
pub(crate) trait Lend<T, U: Element> {
    /// It, borrowed to send.
    type Given<'a>: Sequence<Item = U>
    where
        Self: 'a;
    /// It, borrowed to receive.
    type Room<'a>: Sequence<Item = U> + LeasedBytes + Side<T>
    where
        Self: 'a;

    /// Borrows it to send.
    fn given(&self) -> Self::Given<'_>;
    /// Borrows it to receive.
    fn room(&mut self) -> Self::Room<'_>;
}

impl<T: Item> Lend<T, T> for Block<T> {
    type Given<'a> = &'a [T];
    type Room<'a> = &'a mut [T];

    fn given(&self) -> &[T] {
        self
    }

    fn room(&mut self) -> &mut [T] {
        self
    }
}

impl<T: Item> Lend<T, PackedByte> for Packed<Vec<T>> {
    type Given<'a> = &'a Self;
    type Room<'a> = &'a mut Self;

    fn given(&self) -> &Self {
        self
    }

    fn room(&mut self) -> &mut Self {
        self
    }
}

impl<T, U: Element> Lend<T, U> for InPlace<U> {
    type Given<'a> = Self;
    type Room<'a> = Self;

    fn given(&self) -> Self {
        *self
    }

    fn room(&mut self) -> Self {
        *self
    }
}

/// A list of buffers that can be borrowed for a call.
pub(crate) trait LendAll<T, U: Element> {
    /// A buffer of the list.
    type One: Lend<T, U>;

    /// Borrows all to send.
    fn given(&self) -> List<<Self::One as Lend<T, U>>::Given<'_>>;
    /// Borrows all to receive.
    fn room(&mut self) -> List<<Self::One as Lend<T, U>>::Room<'_>>;
}

impl<T, U: Element, B: Lend<T, U>> LendAll<T, U> for List<B> {
    type One = B;

    fn given(&self) -> List<B::Given<'_>> {
        List(self.0.iter().map(Lend::given).collect())
    }

    fn room(&mut self) -> List<B::Room<'_>> {
        List(self.0.iter_mut().map(Lend::room).collect())
    }
}
