//! Datatypes (MPI 4.1 chapter 5): which bytes of a buffer a message consists of, and in which order.
//!
//! The constructors of MPI make a [`Datatype`] from other datatypes, and at the bottom from the [`Basic`] number types of Rust.
//! [`Typed`] puts a datatype over a buffer; the engine sends from a `Typed` and receives into it. A new datatype is at once what MPI
//! calls committed: it is kept in a normal form of runs and loops, which is as small as its description. A datatype that contains a
//! byte twice can be sent, but not received into.
//!
//! ```
//! use tickwire_components::{Datatype, Typed};
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! // The second column of a matrix of three rows and four columns.
//! let column = Datatype::vector(3, 1, 4, &Datatype::of::<f64>())?;
//! let matrix: Vec<f64> = (0..12).map(f64::from).collect();
//! let column = Typed::at(matrix, 8, &column, 1)?;
//! let mut bytes = [0; 24];
//! assert_eq!(column.pack(0, &mut bytes), 24);
//! assert_eq!(bytes[8..16], 5f64.to_ne_bytes());
//! # Ok(())
//! # }
//! ```

mod bounds;
mod elements;
mod error;
mod moving;
mod node;
mod overlap;
mod segment;
#[cfg(test)]
mod tests;
mod typed;
mod walk;

pub use elements::{Basic, Described, Elements, ElementsMut, layout_of};
pub use error::DatatypeError;
pub use segment::{Runs, Segment, Stretch};
pub use typed::{Typed, TypedPair, Unfit};

use crate::limits::DATATYPE_DEPTH_MAX;
use bounds::{Bounds, REACH_MAX};
use node::{Node, Shape};
use overlap::has_twice;
use std::sync::{Arc, OnceLock};

/// In which order the elements of an array lie in memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Order {
    /// The last dimension's are neighbours, as in Rust and C.
    C,
    /// The first dimension's are neighbours.
    Fortran,
}

/// The layout of an element: its bytes, their order, and how far elements are apart. Clones share it.
///
/// Displacements, strides and bounds are in bytes where a name starts with `h`, and in [`Datatype::extent`]s of the given
/// type elsewhere.
#[derive(Clone, Debug)]
pub struct Datatype(Arc<Form>);

/// Bytes and bounds of a type.
#[derive(Clone, Debug)]
struct Form {
    node: Node,
    bounds: Bounds,
    /// Whether a byte is in it twice, once somebody wanted to know.
    twice: OnceLock<bool>,
}

impl Form {
    fn new(node: Node, bounds: Bounds) -> Form {
        Form { node, bounds, twice: OnceLock::new() }
    }

    /// `count` copies, `stride` bytes apart, the first of them at `offset`.
    fn repeated(&self, count: usize, stride: i128, offset: i128) -> Result<Form, DatatypeError> {
        let bounds = self.bounds.repeated(count, stride, offset)?;
        if count == 0 || self.node.size == 0 {
            return Ok(Form::new(Node::EMPTY, bounds));
        }
        let size = self.node.size.checked_mul(count).ok_or(DatatypeError::Overflow)?;
        if size as i128 > REACH_MAX {
            return Err(DatatypeError::Overflow);
        }
        // What reaches so far only fits the words.
        let (stride, offset) = (if count > 1 { stride as isize } else { 0 }, offset as isize);
        Form::new(self.node.clone().repeated(count, stride).moved(offset), bounds).shallow()
    }

    /// These one after another.
    fn joined(forms: Vec<Form>) -> Result<Form, DatatypeError> {
        let bounds = forms.iter().fold(Bounds::NONE, |all, form| all.joined(&form.bounds));
        let bytes = forms.iter().fold(0, |all: usize, form| all.saturating_add(form.node.size));
        if bytes as i128 > REACH_MAX {
            return Err(DatatypeError::Overflow);
        }
        Form::new(Node::list(forms.into_iter().map(|form| form.node)), bounds).shallow()
    }

    /// Runs of so many elements each, from these places on, of a type that is a run without gaps.
    fn runs(&self, blocks: impl Iterator<Item = (usize, i128)>) -> Result<Form, DatatypeError> {
        let (mut places, mut bytes, mut ends) = (Vec::with_capacity(blocks.size_hint().0), 0usize, None);
        for (count, place) in blocks.filter(|&(count, _)| count > 0) {
            let last = (count as i128 - 1).checked_mul(self.extent()).and_then(|way| way.checked_add(place));
            let (first, last) = (place, last.ok_or(DatatypeError::Overflow)?);
            let (lower, upper) = ends.unwrap_or((first, last));
            ends = Some((lower.min(first), upper.max(last)));
            let length = self.node.size.checked_mul(count).ok_or(DatatypeError::Overflow)?;
            bytes = bytes.checked_add(length).filter(|&all| all as i128 <= REACH_MAX).ok_or(DatatypeError::Overflow)?;
            places.push((place, length));
        }
        let Some((lower, upper)) = ends else { return Ok(Form::new(Node::EMPTY, Bounds::NONE)) };
        let reach = upper.checked_sub(lower).ok_or(DatatypeError::Overflow)?;
        let bounds = self.bounds.repeated(2, reach, lower)?;
        // What reaches so far only fits the words.
        let places = places.into_iter().map(|(place, length)| (place as isize + self.node.offset, length));
        Form::new(Node::runs(places), bounds).shallow()
    }

    /// Whether a byte is in it twice.
    fn has_twice(&self) -> bool {
        *self.twice.get_or_init(|| has_twice(&self.node))
    }

    fn shallow(self) -> Result<Form, DatatypeError> {
        if self.node.depth > DATATYPE_DEPTH_MAX { Err(DatatypeError::Deep(self.node.depth)) } else { Ok(self) }
    }

    fn extent(&self) -> i128 {
        self.bounds.extent() as i128
    }
}

impl Datatype {
    fn make(form: Form) -> Self {
        Datatype(Arc::new(form))
    }

    /// `count` elements one after another (`MPI_Type_contiguous`).
    ///
    /// # Errors
    /// As all constructors: too far or too many levels.
    pub fn contiguous(count: usize, of: &Datatype) -> Result<Self, DatatypeError> {
        of.0.repeated(count, of.0.extent(), 0).map(Self::make)
    }

    /// `count` blocks of `block` elements, `stride` elements from start to start (`MPI_Type_vector`).
    ///
    /// # Errors
    /// As [`Datatype::contiguous`].
    pub fn vector(count: usize, block: usize, stride: isize, of: &Datatype) -> Result<Self, DatatypeError> {
        Self::blocks(count, block, stride as i128 * of.0.extent(), of)
    }

    /// As [`Datatype::vector`], with `stride` in bytes (`MPI_Type_create_hvector`).
    ///
    /// # Errors
    /// As [`Datatype::contiguous`].
    pub fn hvector(count: usize, block: usize, stride: isize, of: &Datatype) -> Result<Self, DatatypeError> {
        Self::blocks(count, block, stride as i128, of)
    }

    fn blocks(count: usize, block: usize, stride: i128, of: &Datatype) -> Result<Self, DatatypeError> {
        let block = if count == 0 { 0 } else { block };
        of.0.repeated(block, of.0.extent(), 0)?.repeated(count, stride, 0).map(Self::make)
    }

    /// Blocks of a length and at a displacement each, in elements (`MPI_Type_indexed`).
    ///
    /// # Errors
    /// As [`Datatype::contiguous`].
    pub fn indexed(blocks: &[(usize, isize)], of: &Datatype) -> Result<Self, DatatypeError> {
        Self::placed(blocks.iter().map(|&(count, place)| (count, place as i128 * of.0.extent())), of)
    }

    /// As [`Datatype::indexed`], with displacements in bytes (`MPI_Type_create_hindexed`).
    ///
    /// # Errors
    /// As [`Datatype::contiguous`].
    pub fn hindexed(blocks: &[(usize, isize)], of: &Datatype) -> Result<Self, DatatypeError> {
        Self::placed(blocks.iter().map(|&(count, place)| (count, place as i128)), of)
    }

    /// Blocks of one length, at displacements in elements (`MPI_Type_create_indexed_block`).
    ///
    /// # Errors
    /// As [`Datatype::contiguous`].
    pub fn indexed_block(block: usize, places: &[isize], of: &Datatype) -> Result<Self, DatatypeError> {
        Self::placed(places.iter().map(|&place| (block, place as i128 * of.0.extent())), of)
    }

    /// As [`Datatype::indexed_block`], with displacements in bytes (`MPI_Type_create_hindexed_block`).
    ///
    /// # Errors
    /// As [`Datatype::contiguous`].
    pub fn hindexed_block(block: usize, places: &[isize], of: &Datatype) -> Result<Self, DatatypeError> {
        Self::placed(places.iter().map(|&place| (block, place as i128)), of)
    }

    /// Fields: how many elements, at which byte, of which type (`MPI_Type_create_struct`).
    ///
    /// # Errors
    /// As [`Datatype::contiguous`].
    pub fn structure(fields: &[(usize, isize, &Datatype)]) -> Result<Self, DatatypeError> {
        Self::listed(fields.iter().map(|&(count, place, of)| (count, place as i128, of)))
    }

    /// Blocks of one type.
    fn placed(blocks: impl Iterator<Item = (usize, i128)>, of: &Datatype) -> Result<Self, DatatypeError> {
        let Form { node, .. } = &*of.0;
        if node.shape == Shape::Run && node.size > 0 && node.size as i128 == of.0.extent() {
            return of.0.runs(blocks).map(Self::make);
        }
        Self::listed(blocks.map(|(count, place)| (count, place, of)))
    }

    fn listed<'a>(blocks: impl Iterator<Item = (usize, i128, &'a Datatype)>) -> Result<Self, DatatypeError> {
        let place = |(count, place, of): (usize, i128, &Datatype)| of.0.repeated(count, of.0.extent(), place);
        Form::joined(blocks.map(place).collect::<Result<_, _>>()?).map(Self::make)
    }

    /// A part of an array of `sizes` elements: `subsizes` of them from `starts` on, in each dimension
    /// (`MPI_Type_create_subarray`). Its extent is that of the whole array.
    ///
    /// # Errors
    /// As [`Datatype::contiguous`], that the lists are of different lengths, or that the part is not within the array.
    pub fn subarray(
        sizes: &[usize],
        subsizes: &[usize],
        starts: &[usize],
        order: Order,
        of: &Datatype,
    ) -> Result<Self, DatatypeError> {
        if sizes.is_empty() || sizes.len() != subsizes.len() || sizes.len() != starts.len() {
            return Err(DatatypeError::Dimensions(sizes.len(), subsizes.len(), starts.len()));
        }
        let (mut form, mut stride) = (Form::clone(&of.0), of.0.extent());
        for step in 0..sizes.len() {
            let dimension = if order == Order::C { sizes.len() - 1 - step } else { step };
            let (size, subsize, start) = (sizes[dimension], subsizes[dimension], starts[dimension]);
            if subsize == 0 || subsize > size || start > size - subsize {
                return Err(DatatypeError::Subarray { dimension, size, subsize, start });
            }
            let offset = stride.checked_mul(start as i128).ok_or(DatatypeError::Overflow)?;
            form = form.repeated(subsize, stride, offset)?;
            stride = stride.checked_mul(size as i128).ok_or(DatatypeError::Overflow)?;
        }
        let bounds = form.bounds.marked(0, stride)?;
        Ok(Self::make(Form::new(form.node, bounds)))
    }

    /// The same bytes with another lower bound and extent (`MPI_Type_create_resized`).
    ///
    /// # Errors
    /// If the bounds are too far.
    pub fn resized(&self, lower: isize, extent: isize) -> Result<Self, DatatypeError> {
        let bounds = self.0.bounds.marked(lower as i128, extent as i128)?;
        Ok(Self::make(Form::new(self.0.node.clone(), bounds)))
    }

    /// Whether a byte is in an element twice: it can be sent then, and not be received into. Looked up once.
    pub fn has_overlap(&self) -> bool {
        self.0.has_twice()
    }

    /// Bytes of data in an element (`MPI_Type_size`).
    pub fn size(&self) -> usize {
        self.0.node.size
    }

    /// From one element to the next, bytes (`MPI_Type_get_extent`).
    pub fn extent(&self) -> isize {
        self.0.bounds.extent()
    }

    /// Lower bound, bytes.
    pub fn lower_bound(&self) -> isize {
        self.0.bounds.bounds().0
    }

    /// Upper bound, bytes.
    pub fn upper_bound(&self) -> isize {
        self.0.bounds.bounds().1
    }

    /// Where its first byte is (`MPI_Type_get_true_extent`).
    pub fn true_lower_bound(&self) -> isize {
        self.0.bounds.truth().0
    }

    /// From its first byte to its last, bytes (`MPI_Type_get_true_extent`).
    pub fn true_extent(&self) -> usize {
        let (lower, upper) = self.0.bounds.truth();
        (upper - lower).unsigned_abs()
    }

    /// Largest alignment of the numbers in it, bytes.
    pub fn alignment(&self) -> usize {
        self.0.bounds.alignment()
    }

    /// Whether its bytes are one run in the order of the message.
    pub fn is_contiguous(&self) -> bool {
        self.0.node.shape == Shape::Run
    }
}
