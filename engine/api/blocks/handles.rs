//! Handles that a graph builder returns: for messages, computations, and elements of buffers.

use std::marker::PhantomData;
use std::ops::Range;
use tickwire_components::{Element, Rank, Span};

/// Elements of a buffer of a graph.
#[derive(Debug)]
pub struct Elements<T> {
    pub(super) span: Span,
    /// Bytes of an element of its buffer. It differs from that of `T` for packed elements.
    pub(super) element: usize,
    /// The number of the builder that has the buffer.
    pub(super) number: u64,
    pub(super) _type: PhantomData<fn() -> T>,
}

/// Elements of a buffer of a graph, which may be written.
#[derive(Debug)]
pub struct Place<T>(pub(super) Elements<T>);

/// An incoming message of a graph.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Incoming(pub(super) GraphNode);

/// An outgoing message of a graph.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Outgoing(pub(super) GraphNode);

/// A message or a computation of a graph.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct GraphNode {
    pub(super) index: u32,
    /// The number of the node's builder.
    pub(super) number: u64,
}

/// Outgoing messages: one, or several that pass on the same part.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Outgoings(pub(super) Vec<Outgoing>);

/// Ranks that a part goes to: one, or several.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Ranks(pub(super) Vec<Rank>);

/// Converts one item, or many, to a list.
macro_rules! several {
    ($all:ident of $one:ident) => {
        impl From<$one> for $all {
            fn from(one: $one) -> Self {
                $all(vec![one])
            }
        }

        impl<const N: usize> From<[$one; N]> for $all {
            fn from(all: [$one; N]) -> Self {
                $all(all.into())
            }
        }

        impl From<&[$one]> for $all {
            fn from(all: &[$one]) -> Self {
                $all(all.into())
            }
        }

        impl From<Vec<$one>> for $all {
            fn from(all: Vec<$one>) -> Self {
                $all(all)
            }
        }
    };
}

several!(Outgoings of Outgoing);
several!(Ranks of Rank);

impl From<Incoming> for GraphNode {
    fn from(message: Incoming) -> Self {
        message.0
    }
}

impl From<Outgoing> for GraphNode {
    fn from(message: Outgoing) -> Self {
        message.0
    }
}

impl<T> Clone for Elements<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Elements<T> {}

impl<T> Clone for Place<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Place<T> {}

impl<T: Element> Elements<T> {
    /// The number of elements. In a [`Packed`](crate::Packed) buffer each byte counts as an element.
    pub fn count(&self) -> usize {
        self.span.len().checked_div(size_of::<T>()).unwrap_or(0)
    }

    /// The elements with these indices.
    ///
    /// # Panics
    /// If an index is out of range.
    pub fn part(&self, range: Range<usize>) -> Self {
        let (count, size) = (self.count(), size_of::<T>());
        assert!(range.start <= range.end && range.end <= count, "elements {range:?} of {count}");
        Elements { span: self.span.part(range.start * size, range.len() * size), ..*self }
    }
}

impl<T: Element> Place<T> {
    /// The same elements, for reading.
    pub fn elements(&self) -> Elements<T> {
        self.0
    }

    /// The number of elements.
    pub fn count(&self) -> usize {
        self.0.count()
    }

    /// The elements with these indices.
    ///
    /// # Panics
    /// If an index is out of range.
    pub fn part(&self, range: Range<usize>) -> Self {
        Place(self.0.part(range))
    }
}
