//! Reductions of packed elements, and packing.

use super::*;
use crate::{combine, op};

/// Two bytes with a gap before the second one.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
#[repr(C)]
struct Gap {
    first: u8,
    second: u32,
}

// SAFETY: two numbers; the padding between them is left out.
#[expect(unsafe_code, reason = "a described type")]
unsafe impl Described for Gap {
    fn layout() -> Datatype {
        crate::layout_of::<Self>(&[(0, Datatype::of::<u8>()), (4, Datatype::of::<u32>())])
    }
}

fn gaps(number: u32) -> Vec<Gap> {
    (0..5).map(|at| Gap { first: at as u8 + number as u8, second: at * 1000 + number }).collect()
}

#[test]
fn structs_are_combined_without_their_padding_whichever_operand_is_written() {
    let sides = |left: Gap, right: Gap| Gap { first: left.first, second: 2 * left.second + right.second };
    let operation = op::on_structs(sides);
    let (left, mut right) = (Packed::all(gaps(1)).unwrap(), Packed::all(gaps(7)).unwrap());
    assert_eq!((left.count(), left.element(), left.bytes().len()), (5, 5, 25));
    let expected: Vec<Gap> = gaps(1).into_iter().zip(gaps(7)).map(|(left, right)| sides(left, right)).collect();
    combine(&left, &mut right, &operation);
    assert_eq!(*right.unpack(), expected);
    let reduction = crate::reduce::<PackedByte>(operation);
    let (into, other, third) = (Packed::all(gaps(1)).unwrap(), Packed::all(gaps(7)).unwrap(), Packed::all(gaps(0)));
    let mut third = third.unwrap();
    // SAFETY: runs of elements of one length that do not overlap.
    #[expect(unsafe_code, reason = "addresses of elements")]
    unsafe {
        reduction.combine(third.piece(0), into.piece(0), other.piece(0));
        reduction.combine_into(into.piece(0), other.piece(0), crate::Side::Left);
    }
    assert_eq!((into.bytes(), third.bytes()), (right.bytes(), right.bytes()));
    assert_eq!(*third.unpack(), expected);
}

#[test]
fn packed_elements_for_which_there_is_no_memory_are_refused_and_the_buffer_comes_back() {
    let number = Datatype::of::<u64>().resized(0, 0).unwrap();
    // All of them are the same number. No memory has so many bytes.
    let count = 1 << 57;
    let refused = Packed::new(vec![7u64], &number, count).unwrap_err();
    assert_eq!((refused.error, refused.buffer), (DatatypeError::Memory { bytes: 8 * count }, vec![7]));
    assert_eq!(Packed::new(vec![7u64], &number, 3).unwrap().bytes(), [7u64; 3].map(u64::to_ne_bytes).concat());
}

/// A function of an operation may reduce packed elements itself.
#[test]
fn reductions_of_packed_elements_may_be_nested() {
    let number = Datatype::of::<u32>();
    let packed = |of: [u32; 2]| Packed::new(of.to_vec(), &Datatype::of::<u32>(), 2).unwrap();
    let sum = |left: &[u8], right: &mut [u8]| {
        let [left, second] = [left, &*right].map(bytemuck::pod_read_unaligned::<u32>);
        right.copy_from_slice(&(left + second).to_ne_bytes());
    };
    let outer = op::on_packed(&number, move |left, right| {
        let (inner, one) = (crate::reduce::<PackedByte>(op::on_packed(&Datatype::of::<u32>(), sum)), packed([100, 0]));
        // SAFETY: runs of two elements that do not overlap.
        #[expect(unsafe_code, reason = "addresses of elements")]
        unsafe {
            inner.combine_into(one.piece(0), packed([10, 0]).piece(0), crate::Side::Left);
        }
        sum(left, right);
        sum(&one.bytes()[..4], right);
    });
    let (into, other) = (packed([1, 2]), packed([3, 4]));
    let reduction = crate::reduce::<PackedByte>(outer);
    // SAFETY: runs of two elements that do not overlap.
    #[expect(unsafe_code, reason = "addresses of elements")]
    unsafe {
        reduction.combine_into(into.piece(0), other.piece(0), crate::Side::Left);
    }
    assert_eq!(into.bytes(), bytemuck::cast_slice::<u32, u8>(&[114, 116]));
}

#[test]
fn what_is_packed_is_what_was_there_when_it_was() {
    let pair = Datatype::vector(2, 1, 2, &Datatype::of::<u16>()).unwrap();
    let mut packed = Packed::new(vec![1u16, 2, 3], &pair, 1).unwrap();
    assert_eq!((packed.count(), packed.element()), (1, 4));
    packed.elements_mut()[2] = 9;
    assert_eq!(packed.bytes(), bytemuck::cast_slice::<u16, u8>(&[1, 3]));
    packed.pack();
    assert_eq!(packed.bytes(), bytemuck::cast_slice::<u16, u8>(&[1, 9]));
    assert!(Packed::new(vec![1u16], &pair, 1).is_err());
    assert_eq!(packed.into_buffer(), [1, 2, 9]);
}
