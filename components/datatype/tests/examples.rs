//! Types by hand: examples of the standard, bounds, overlaps, and what is refused.

use crate::datatype::*;
use crate::{Pieces, Span};

fn double() -> Datatype {
    Datatype::of::<f64>()
}

/// A double and a character: the standard's running example, {(double, 0), (char, 8)}.
fn pair() -> Datatype {
    Datatype::structure(&[(1, 0, &double()), (1, 8, &Datatype::of::<u8>())]).unwrap()
}

/// Every byte of one element, in order, as a receiver of one byte a run would see it.
fn bytes(of: &Datatype) -> Vec<isize> {
    let (lower, upper) = of.0.bounds.truth();
    let origin = lower.min(0).unsigned_abs();
    let buffer = vec![0u8; upper.max(0).unsigned_abs() + origin];
    let start = buffer.as_ptr();
    let typed = Typed::at(buffer, origin, of, 1).unwrap();
    let place = |run: Span| run.start().addr() as isize - start.addr() as isize - origin as isize;
    typed.runs(0, usize::MAX).flat_map(|run| (0..run.len() as isize).map(move |byte| place(run) + byte)).collect()
}

/// Size, extent, lower bound, true extent, true lower bound.
fn measures(of: &Datatype) -> (usize, isize, isize, usize, isize) {
    (of.size(), of.extent(), of.lower_bound(), of.true_extent(), of.true_lower_bound())
}

/// The first byte of each run of a type, and their common length.
fn blocks(of: &Datatype, block: usize) -> Vec<isize> {
    let all = bytes(of);
    all.chunks(block).for_each(|chunk| assert_eq!(chunk.last().unwrap() - chunk[0] + 1, block as isize));
    all.chunks(block).map(|chunk| chunk[0]).collect()
}

#[test]
fn numbers_are_as_in_rust() {
    assert_eq!(measures(&Datatype::of::<u16>()), (2, 2, 0, 2, 0));
    assert_eq!(u128::datatype().alignment(), align_of::<u128>());
    assert_eq!(
        measures(&usize::datatype()),
        (size_of::<usize>(), size_of::<usize>() as isize, 0, size_of::<usize>(), 0)
    );
}

#[test]
fn a_structure_is_rounded_up_to_its_alignment() {
    // MPI 4.1 example 5.1: a type {(double, 0), (char, 8)} has extent 16.
    assert_eq!(measures(&pair()), (9, 16, 0, 9, 0));
    // Example 5.8: 2 floats at 0, 1 of the pair at 16, 3 chars at 26: {(float,0),(float,4),(double,16),(char,24),(char,26)…}.
    let (float, byte) = (Datatype::of::<f32>(), Datatype::of::<u8>());
    let all = Datatype::structure(&[(2, 0, &float), (1, 16, &pair()), (3, 26, &byte)]).unwrap();
    assert_eq!(bytes(&all), (0..8).chain(16..25).chain(26..29).collect::<Vec<_>>());
    assert_eq!((all.size(), all.extent()), (20, 32));
}

#[test]
fn contiguous_and_vector_are_the_examples_of_the_standard() {
    // Examples 5.2, 5.3 and 5.4, with the pair as old type.
    let contiguous = Datatype::contiguous(3, &pair()).unwrap();
    assert_eq!(blocks(&contiguous, 9), [0, 16, 32]);
    assert_eq!(measures(&contiguous), (27, 48, 0, 41, 0));
    let vector = Datatype::vector(2, 3, 4, &pair()).unwrap();
    assert_eq!(blocks(&vector, 9), [0, 16, 32, 64, 80, 96]);
    assert_eq!(vector.extent(), 112);
    let backwards = Datatype::vector(3, 1, -2, &pair()).unwrap();
    assert_eq!(blocks(&backwards, 9), [0, -32, -64]);
    assert_eq!(measures(&backwards), (27, 80, -64, 73, -64));
    assert!(Datatype::vector(4, 2, 2, &double()).unwrap().is_contiguous());
    assert_eq!(blocks(&Datatype::hvector(3, 1, -20, &double()).unwrap(), 8), [0, -20, -40]);
    assert_eq!(measures(&Datatype::vector(0, 3, 4, &pair()).unwrap()), (0, 0, 0, 0, 0));
}

#[test]
fn indexed_types_are_the_examples_of_the_standard() {
    // Example 5.5: B = (3, 1), D = (4, 0).
    let indexed = Datatype::indexed(&[(3, 4), (1, 0)], &pair()).unwrap();
    assert_eq!(blocks(&indexed, 9), [64, 80, 96, 0]);
    assert_eq!(measures(&indexed), (36, 112, 0, 105, 0));
    assert_eq!(blocks(&Datatype::hindexed(&[(2, 3), (0, -99), (1, -8)], &double()).unwrap(), 8), [3, 11, -8]);
    let block = Datatype::indexed_block(2, &[5, -2, 0], &double()).unwrap();
    assert_eq!(blocks(&block, 8), [40, 48, -16, -8, 0, 8]);
    assert_eq!(bytes(&Datatype::hindexed_block(1, &[7, 1], &Datatype::of::<u16>()).unwrap()), [7, 8, 1, 2]);
    let regular: Vec<isize> = (0..1000).map(|n| n * 3).collect();
    let regular = Datatype::indexed_block(1, &regular, &double()).unwrap();
    assert!(matches!(regular.0.node.shape, node::Shape::Strided { count: 1000, block: 8, stride: 24 }));
}

#[test]
fn an_empty_block_is_in_nobodys_way() {
    let of = Datatype::of::<u16>().resized(0, 16).unwrap();
    let blocks = Datatype::hindexed(&[(3, -1), (1, 7), (0, 0)], &of).unwrap();
    assert_eq!(bytes(&blocks), [-1, 0, 15, 16, 31, 32, 7, 8]);
}

#[test]
fn a_subarray_has_the_extent_of_its_array() {
    let part = |order| Datatype::subarray(&[4, 6], &[2, 3], &[1, 2], order, &double()).unwrap();
    assert_eq!(blocks(&part(Order::C), 8), [8, 9, 10, 14, 15, 16].map(|element| element * 8));
    assert_eq!(measures(&part(Order::C)), (48, 192, 0, 72, 64));
    assert_eq!(blocks(&part(Order::Fortran), 8), [9, 10, 13, 14, 17, 18].map(|element| element * 8));
    let twice = Datatype::contiguous(2, &part(Order::C)).unwrap();
    assert_eq!((twice.extent(), twice.size()), (384, 96));
    let whole = Datatype::subarray(&[3, 5, 2], &[3, 5, 2], &[0; 3], Order::C, &double()).unwrap();
    assert!(whole.is_contiguous() && whole.size() == 240);
    let wrong = |sizes: &[usize], subsizes: &[usize], starts: &[usize]| {
        Datatype::subarray(sizes, subsizes, starts, Order::C, &double()).unwrap_err()
    };
    assert_eq!(wrong(&[], &[], &[]), DatatypeError::Dimensions(0, 0, 0));
    assert_eq!(wrong(&[3, 3], &[1], &[0, 0]), DatatypeError::Dimensions(2, 1, 2));
    let outside = |subsize, start| DatatypeError::Subarray { dimension: 1, size: 4, subsize, start };
    assert_eq!(wrong(&[3, 4], &[1, 5], &[0, 0]), outside(5, 0));
    assert_eq!(wrong(&[3, 4], &[1, 2], &[0, 3]), outside(2, 3));
    assert_eq!(wrong(&[3, 4], &[1, 0], &[0, 0]), outside(0, 0));
}

#[test]
fn resizing_changes_bounds_and_they_stick() {
    let resized = pair().resized(-4, 40).unwrap();
    assert_eq!(measures(&resized), (9, 40, -4, 9, 0));
    assert_eq!(blocks(&Datatype::contiguous(3, &resized).unwrap(), 9), [0, 40, 80]);
    assert_eq!(measures(&Datatype::contiguous(3, &resized).unwrap()), (27, 120, -4, 89, 0));
    // Bounds are of the marked parts alone: MPI 4.1 §5.1.6.
    let mixed = Datatype::structure(&[(1, 0, &resized), (1, 100, &double())]).unwrap();
    assert_eq!((mixed.lower_bound(), mixed.upper_bound(), mixed.true_extent()), (-4, 36, 108));
    // The standard's transposition: a column, made one element wide, so many times.
    let column = Datatype::vector(3, 1, 4, &double()).unwrap().resized(0, 8).unwrap();
    let transposed = Datatype::contiguous(4, &column).unwrap();
    assert_eq!(blocks(&transposed, 8), [0, 4, 8, 1, 5, 9, 2, 6, 10, 3, 7, 11].map(|element| element * 8));
}

#[test]
fn bytes_that_are_there_twice_are_found() {
    let byte = Datatype::of::<u8>();
    let twice = |of: Result<Datatype, DatatypeError>| of.unwrap().has_overlap();
    assert!(twice(Datatype::hvector(2, 1, 7, &double())));
    assert!(twice(Datatype::vector(2, 2, 1, &double())));
    assert!(twice(Datatype::vector(3, 1, 0, &double())));
    assert!(twice(Datatype::indexed(&[(3, 4), (2, 3)], &double())));
    assert!(twice(Datatype::structure(&[(1, 0, &double()), (1, 7, &byte)])));
    assert!(twice(Datatype::contiguous(2, &double().resized(0, 0).unwrap())));
    assert!(twice(Datatype::indexed_block(1, &[4, 9, 4], &double())));
    // Within one element of a type that is well apart from the next.
    let odd = Datatype::hvector(2, 1, 7, &double()).unwrap().resized(0, 100).unwrap();
    assert!(twice(Datatype::contiguous(5, &odd)) && twice(Datatype::structure(&[(1, 0, &byte), (1, 1, &odd)])));
    // Combs that fit into each other, and ones that do not.
    let comb = Datatype::hvector(4, 1, 16, &double()).unwrap();
    assert!(!twice(Datatype::hindexed(&[(1, 0), (1, 8)], &comb)));
    assert!(twice(Datatype::hindexed(&[(1, 0), (1, 9)], &comb)));
    assert!(!twice(Datatype::hvector(2, 1, 8, &comb)));
    assert!(twice(Datatype::hvector(3, 1, 8, &comb)));
    assert!(!twice(Datatype::hvector(3, 1, 8, &Datatype::hvector(4, 1, 24, &double()).unwrap())));
    // Large ones are told by their loops alone.
    let column = Datatype::vector(1 << 20, 1, 1 << 20, &double()).unwrap();
    assert!(!twice(Datatype::hvector(1 << 20, 1, 8, &column)));
    let odd = Datatype::hvector(1 << 20, 1, 3, &byte).unwrap();
    assert!(twice(Datatype::hvector(1 << 20, 1, 5, &odd)), "more bytes than room");
}

#[test]
#[cfg_attr(miri, ignore = "takes minutes there")]
fn long_combs_of_different_strides_are_counted_out() {
    // More bytes between the first and the last than are marked at a time.
    for count in [1000, 1_000_000] {
        let one = Datatype::hvector(count, 1, 24, &double()).unwrap();
        let other = Datatype::hvector(3 * count, 1, 48, &double()).unwrap();
        let apart = Datatype::structure(&[(1, 0, &one), (1, 8, &other)]).unwrap();
        assert!(!apart.has_overlap(), "{count}");
        // They meet at one place, near the end of the shorter one.
        let last = 24 * (count as isize - 1);
        let meets = |at| Datatype::structure(&[(1, 0, &one), (1, 8, &other), (1, at, &double())]).unwrap();
        assert!(meets(last).has_overlap() && meets(last + 7).has_overlap() && meets(last - 1).has_overlap());
        assert!(!meets(last + 16).has_overlap() && !meets(last - 8).has_overlap());
    }
    // Few bytes, as far apart as bytes may be.
    for at in [3, 0] {
        let [one, other] =
            [1 << 59, (1 << 59) + 8].map(|way| Datatype::hvector(2, 1, way, &Datatype::of::<u8>()).unwrap());
        let few = Datatype::structure(&[(1, 0, &one), (1, at, &other)]).unwrap();
        assert_eq!(few.has_overlap(), at == 0);
    }
    let far = Datatype::hvector(1 << 20, 1, 30, &Datatype::of::<u8>()).unwrap();
    assert!(!Datatype::hvector(3, 1, 20, &far).unwrap().has_overlap());
    assert!(Datatype::hvector(4, 1, 20, &far).unwrap().has_overlap());
    assert!(!Datatype::hvector(3, 1, -20, &far).unwrap().has_overlap());
    assert!(Datatype::hvector(4, 1, -20, &far).unwrap().has_overlap());
}

#[test]
#[cfg_attr(miri, ignore = "takes minutes there")]
fn long_lists_of_blocks_are_as_long_lists_of_anything() {
    // A permutation, and the same by way of structures, which have no fast way.
    let places: Vec<isize> = (0..100_003).map(|n| n * 7919 % 100_003).collect();
    let quick = Datatype::indexed_block(1, &places, &double()).unwrap();
    let fields: Vec<_> = places.iter().map(|&place| (1, place * 8, double())).collect();
    let fields: Vec<_> = fields.iter().map(|(count, place, of)| (*count, *place, of)).collect();
    let slow = Datatype::structure(&fields).unwrap();
    assert!(quick.0.node == slow.0.node && measures(&quick) == measures(&slow));
    assert!(!quick.has_overlap() && !slow.has_overlap());
    assert!(!Typed::new(vec![0f64; 100_003], &quick, 1).unwrap().has_overlap());
}

#[test]
fn what_is_too_large_is_refused() {
    let half = 1usize << 59;
    let big = Datatype::contiguous(half, &Datatype::of::<u8>()).unwrap();
    assert_eq!(Datatype::contiguous(3, &big).unwrap_err(), DatatypeError::Overflow);
    assert_eq!(Datatype::vector(usize::MAX, 1, isize::MIN, &big).unwrap_err(), DatatypeError::Overflow);
    assert_eq!(Datatype::contiguous(usize::MAX, &pair()).unwrap_err(), DatatypeError::Overflow);
    assert_eq!(Datatype::hvector(usize::MAX, 1, 0, &pair()).unwrap_err(), DatatypeError::Overflow);
    assert_eq!(Datatype::indexed(&[(1, isize::MAX), (1, 0)], &double()).unwrap_err(), DatatypeError::Overflow);
    assert_eq!(double().resized(isize::MIN, 0).unwrap_err(), DatatypeError::Overflow);
    let sizes = [1 << 40, 1 << 40, 1 << 40];
    let huge = Datatype::subarray(&sizes, &[1; 3], &[1; 3], Order::C, &double());
    assert_eq!(huge.unwrap_err(), DatatypeError::Overflow);
    let mut deep = Ok(pair());
    for _ in 0..100 {
        deep = deep.and_then(|deep| Datatype::hvector(2, 1, 2 * deep.extent() + 1, &deep));
    }
    assert!(matches!(deep, Err(DatatypeError::Deep(_) | DatatypeError::Overflow)));
}

#[test]
fn a_buffer_is_checked_once_and_comes_back() {
    let every_second = Datatype::vector(4, 1, 2, &double()).unwrap();
    assert_eq!(Typed::new(vec![0f64; 7], &every_second, 1).unwrap().size(), 32);
    let unfit = Typed::new(vec![1f64; 6], &every_second, 1).unwrap_err();
    assert_eq!(unfit.error, DatatypeError::Bounds { first: 0, end: 56, length: 48 });
    assert_eq!(unfit.buffer, [1.0; 6]);
    let backwards = Datatype::vector(4, 1, -2, &double()).unwrap();
    assert_eq!(
        Typed::new(vec![0f64; 9], &backwards, 1).unwrap_err().error,
        DatatypeError::Bounds { first: -48, end: 8, length: 72 }
    );
    assert!(Typed::at(vec![0f64; 7], 48, &backwards, 1).is_ok());
    assert!(Typed::at(vec![0f64; 7], usize::MAX, &backwards, 1).is_err());
    assert!(Typed::at(Vec::<u8>::new(), usize::MAX, &backwards, 0).is_ok(), "nothing fits anywhere");
    // That its elements meet is of no concern to a send.
    let overlapping = every_second.resized(0, 16).unwrap();
    let all: Vec<f64> = (0..99).map(f64::from).collect();
    let [one, two] = [1, 2].map(|count| Typed::new(&all[..], &overlapping, count).unwrap());
    assert_eq!([one.has_overlap(), two.has_overlap()], [false, true]);
    let mut packed = [0; 64];
    assert_eq!(two.pack(0, &mut packed), 64);
    let numbers = packed.chunks(8).map(|word| f64::from_ne_bytes(word.try_into().expect("eight")));
    assert!(numbers.eq([0.0, 2.0, 4.0, 6.0, 2.0, 4.0, 6.0, 8.0]));
}

#[test]
fn the_form_does_not_grow_with_counts() {
    let huge = Datatype::vector(1 << 40, 3, 5, &pair()).unwrap();
    assert!(huge.0.node.depth <= 3, "{huge:?}");
    let nested = Datatype::vector(1 << 10, 1, 2, &Datatype::vector(1 << 10, 1, 2, &double()).unwrap()).unwrap();
    assert!(matches!(nested.0.node.shape, node::Shape::Loop { .. }));
    let merged =
        Datatype::contiguous(8, &Datatype::vector(4, 1, 2, &double()).unwrap().resized(0, 64).unwrap()).unwrap();
    assert!(matches!(merged.0.node.shape, node::Shape::Strided { count: 32, block: 8, stride: 16 }));
}

/// Of one entry, however many elements there are.
#[test]
fn an_array_of_any_length_has_a_datatype() {
    const LENGTH: usize = 1 << 22;
    let layout = <[[u16; 3]; LENGTH] as Described>::layout();
    assert_eq!((layout.size(), layout.extent(), layout.true_extent()), (6 * LENGTH, 6 * LENGTH as isize, 6 * LENGTH));
    let none = <[u64; 0] as Described>::layout();
    assert_eq!((none.size(), none.extent()), (0, 0));
}
