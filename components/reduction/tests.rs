use super::*;
use crate::{Indexed, op};

fn span<T: Element>(elements: &mut [T]) -> Span {
    // SAFETY: the elements outlive the call.
    unsafe { Span::new(elements.as_mut_ptr().cast(), size_of_val(elements)) }
}

fn apply<T: Element>(operation: impl Operation<T>, mut left: Vec<T>, mut right: Vec<T>) -> Vec<T> {
    let reduction = reduce::<T>(operation);
    let (mut other, mut third) = (left.clone(), vec![T::zeroed(); left.len()]);
    // SAFETY: runs of one type and length, which do not overlap.
    unsafe {
        reduction.combine(span(&mut third), span(&mut left), span(&mut right));
        reduction.combine_into(span(&mut left), span(&mut right), Side::Left);
        reduction.combine_into(span(&mut right), span(&mut other), Side::Right);
    }
    let bytes = |of: &[T]| bytemuck::cast_slice::<T, u8>(of).to_vec();
    assert_eq!(bytes(&left), bytes(&right), "into the left and into the right operand");
    assert_eq!(bytes(&left), bytes(&third), "into a third place");
    left
}

#[test]
fn operations_combine_element_by_element_and_keep_the_sides() {
    assert_eq!(apply(op::Sum, vec![1i32, i32::MAX], vec![2, 1]), [3, i32::MIN]);
    assert_eq!(apply(op::Product, vec![3u8, 16], vec![5, 16]), [15, 0]);
    assert_eq!(apply(op::Min, vec![1.5f64, f64::NAN], vec![-2.0, 7.0]), [-2.0, 7.0]);
    assert_eq!(apply(op::Max, vec![-3i64], vec![-4]), [-3]);
    assert_eq!(apply(op::LogicalAnd, vec![0u16, 7, 7], vec![9, 0, 9]), [0, 0, 1]);
    assert_eq!(apply(op::LogicalOr, vec![0u16, 7], vec![0, 0]), [0, 1]);
    assert_eq!(apply(op::LogicalXor, vec![0u16, 7, 7], vec![9, 9, 0]), [1, 0, 1]);
    assert_eq!(apply(op::BitAnd, vec![6u64], vec![3]), [2]);
    assert_eq!(apply(op::BitOr, vec![6u64], vec![3]), [7]);
    assert_eq!(apply(op::BitXor, vec![6u64], vec![3]), [5]);
    assert_eq!(apply(|left: u32, right: u32| left * 10 + right, vec![1, 2], vec![3, 4]), [13, 24]);
}

#[test]
fn of_equal_values_the_lowest_index_is_taken() {
    let at = |value: f64, index: u64| Indexed { value, index };
    assert_eq!(apply(op::MinLoc, vec![at(1.0, 3), at(2.0, 0)], vec![at(1.0, 2), at(1.0, 9)]), [at(1.0, 2), at(1.0, 9)]);
    assert_eq!(apply(op::MaxLoc, vec![at(1.0, 3), at(2.0, 0)], vec![at(1.0, 5), at(1.0, 9)]), [at(1.0, 3), at(2.0, 0)]);
}

/// Bits are compared, since the zeros are equal.
#[test]
fn the_order_in_which_zeros_meet_does_not_matter() {
    macro_rules! check {
        ($($type:ty)*) => {$(
            let bits = |values: Vec<$type>| values.into_iter().map(<$type>::to_bits).collect::<Vec<_>>();
            let (left, right) = (vec![0.0 as $type, -0.0, 0.0, -0.0], vec![-0.0, 0.0, 0.0, -0.0]);
            assert_eq!(bits(apply(op::Min, left.clone(), right.clone())), bits(vec![-0.0, -0.0, 0.0, -0.0]));
            assert_eq!(bits(apply(op::Max, left, right)), bits(vec![0.0, 0.0, 0.0, -0.0]));
        )*};
    }
    check!(f32 f64);
}

/// The order in which a NaN meets the others does not matter.
#[test]
fn a_number_wins_against_a_nan() {
    let at = |value: f64, index: u64| Indexed { value, index };
    let (nan, one, two) = (at(f64::NAN, 2), at(5.0, 6), at(3.0, 3));
    assert_eq!(apply(op::MinLoc, vec![nan, one], vec![two, nan]), [two, one]);
    assert_eq!(apply(op::MaxLoc, vec![nan, one], vec![two, nan]), [two, one]);
    let later = at(f64::NAN, 7);
    for found in
        [apply(op::MinLoc, vec![nan, later], vec![later, nan]), apply(op::MaxLoc, vec![nan, later], vec![later, nan])]
    {
        assert!(found.iter().all(|of| of.value.is_nan() && of.index == 2), "{found:?}");
    }
}

/// Where a peer has its operands is its own word.
#[test]
fn operands_that_are_not_aligned_are_left_alone() {
    let (mut left, mut right, mut out) = ([1u64, 2, 3], [4u64, 5], [6u64, 7]);
    let odd = span(&mut left).part(1, 16);
    let reduction = reduce::<u64>(op::Sum);
    // SAFETY: runs of this function's own, of one length.
    unsafe {
        reduction.combine(span(&mut out), odd, span(&mut right));
        reduction.combine(span(&mut out), span(&mut right), odd);
    }
    assert_eq!(out, [6, 7]);
}

/// A value with an index of each type that there is.
#[test]
fn all_numbers_have_pairs_with_an_index() {
    macro_rules! pairs {
        ($($value:ty, $index:ty;)*) => {$({
            let at = |value: u8, index: u8| Indexed { value: value as $value, index: index as $index };
            assert_eq!(apply(op::MinLoc, vec![at(5, 1), at(5, 9)], vec![at(7, 0), at(5, 3)]), [at(5, 1), at(5, 3)]);
            assert_eq!(apply(op::MaxLoc, vec![at(5, 1), at(5, 9)], vec![at(7, 0), at(5, 3)]), [at(7, 0), at(5, 3)]);
        })*};
    }
    pairs! {
        i8, u8; i8, i8; u8, u8; i16, u16; i16, i16; u16, u16; i32, u32; i32, i32; u32, u32; i64, u64; i64, i64; u64, u64;
        f32, u32; f32, i32; f64, u64; f64, i64;
    }
}

#[test]
fn predefined_operations_do_not_panic_and_functions_may() {
    assert!(!reduce::<f64>(op::Sum).may_panic());
    assert!(!reduce::<u8>(op::BitXor).may_panic());
    assert!(reduce::<u32>(|left: u32, right: u32| left + right).may_panic());
    let offset = 3;
    assert!(reduce::<u32>(move |left: u32, right: u32| left + right + offset).may_panic());
}
