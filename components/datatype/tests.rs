//! Types against the values of the standard's text, and against a model that lists every byte.

use super::*;
use crate::{Pieces, Span};
use proptest::prelude::*;

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

/// How a type is described, for the model and for the constructors alike.
#[derive(Clone, Debug)]
enum Plan {
    Basic(usize),
    Vector { count: usize, block: usize, stride: isize, bytes: bool, of: Box<Plan> },
    Indexed { blocks: Vec<(usize, isize)>, bytes: bool, of: Box<Plan> },
    IndexedBlock { block: usize, places: Vec<isize>, bytes: bool, of: Box<Plan> },
    Structure(Vec<(usize, isize, Plan)>),
    Subarray { dimensions: Vec<(usize, usize, usize)>, order: Order, of: Box<Plan> },
    Resized { lower: isize, extent: isize, of: Box<Plan> },
}

fn number(which: usize) -> Datatype {
    [u8::datatype(), u16::datatype(), f32::datatype(), f64::datatype(), u128::datatype()][which].clone()
}

impl Plan {
    fn make(&self) -> Result<Datatype, DatatypeError> {
        match self {
            Plan::Basic(which) => Ok(number(*which)),
            Plan::Vector { count, block, stride, bytes: false, of } => {
                Datatype::vector(*count, *block, *stride, &of.make()?)
            }
            Plan::Vector { count, block, stride, of, .. } => Datatype::hvector(*count, *block, *stride, &of.make()?),
            Plan::Indexed { blocks, bytes: false, of } => Datatype::indexed(blocks, &of.make()?),
            Plan::Indexed { blocks, of, .. } => Datatype::hindexed(blocks, &of.make()?),
            Plan::IndexedBlock { block, places, bytes: false, of } => {
                Datatype::indexed_block(*block, places, &of.make()?)
            }
            Plan::IndexedBlock { block, places, of, .. } => Datatype::hindexed_block(*block, places, &of.make()?),
            Plan::Structure(fields) => {
                let types = fields.iter().map(|field| field.2.make()).collect::<Result<Vec<_>, _>>()?;
                let fields = fields.iter().zip(&types).map(|(field, of)| (field.0, field.1, of));
                Datatype::structure(&fields.collect::<Vec<_>>())
            }
            Plan::Subarray { dimensions, order, of } => {
                let list =
                    |which: fn(&(usize, usize, usize)) -> usize| dimensions.iter().map(which).collect::<Vec<_>>();
                Datatype::subarray(&list(|d| d.0), &list(|d| d.1), &list(|d| d.2), *order, &of.make()?)
            }
            Plan::Resized { lower, extent, of } => of.make()?.resized(*lower, *extent),
        }
    }
}

/// The type map of the standard: every byte's displacement, and the markers among them.
#[derive(Clone, Default)]
struct Map {
    bytes: Vec<isize>,
    marks: Vec<(isize, isize)>,
    alignment: usize,
}

impl Map {
    fn lower(&self) -> isize {
        let marks = self.marks.iter().map(|mark| mark.0).min();
        marks.or_else(|| self.bytes.iter().copied().min()).unwrap_or(0)
    }

    fn extent(&self) -> isize {
        if let Some(upper) = self.marks.iter().map(|mark| mark.1).max() {
            return upper - self.lower();
        }
        let Some(last) = self.bytes.iter().max() else { return 0 };
        let mut extent = last + 1 - self.lower();
        while extent % self.alignment as isize != 0 {
            extent += 1;
        }
        extent
    }

    fn put(&mut self, count: usize, place: isize, of: &Map) {
        for index in 0..count as isize {
            let at = place + index * of.extent();
            self.bytes.extend(of.bytes.iter().map(|byte| byte + at));
            self.marks.extend(of.marks.iter().map(|mark| (mark.0 + at, mark.1 + at)));
            self.alignment = self.alignment.max(of.alignment);
        }
    }

    fn of(plan: &Plan) -> Map {
        let mut map = Map::default();
        match plan {
            Plan::Basic(which) => {
                let (size, alignment) =
                    [(1, 1), (2, 2), (4, 4), (8, align_of::<f64>()), (16, align_of::<u128>())][*which];
                map = Map { bytes: (0..size).collect(), marks: Vec::new(), alignment };
            }
            Plan::Vector { count, block, stride, bytes, of } => {
                let of = Map::of(of);
                let unit = if *bytes { 1 } else { of.extent() };
                (0..*count as isize).for_each(|index| map.put(*block, index * stride * unit, &of));
            }
            Plan::Indexed { blocks, bytes, of } => {
                let of = Map::of(of);
                let unit = if *bytes { 1 } else { of.extent() };
                blocks.iter().for_each(|&(count, place)| map.put(count, place * unit, &of));
            }
            Plan::IndexedBlock { block, places, bytes, of } => {
                let of = Map::of(of);
                let unit = if *bytes { 1 } else { of.extent() };
                places.iter().for_each(|place| map.put(*block, place * unit, &of));
            }
            Plan::Structure(fields) => {
                fields.iter().for_each(|(count, place, of)| map.put(*count, *place, &Map::of(of)))
            }
            Plan::Subarray { dimensions, order, of } => {
                let (of, all) = (Map::of(of), dimensions.iter().map(|d| d.0).product::<usize>() as isize);
                map.put_array(dimensions, *order, &of, 0, 0);
                map.marks = vec![(0, all * of.extent())];
            }
            Plan::Resized { lower, extent, of } => {
                map = Map::of(of);
                map.marks = vec![(*lower, lower + extent)];
            }
        }
        map
    }

    /// The elements of an array's part, slowest dimension first: `element` is the number of the one so far.
    fn put_array(
        &mut self,
        dimensions: &[(usize, usize, usize)],
        order: Order,
        of: &Map,
        level: usize,
        element: isize,
    ) {
        if level == dimensions.len() {
            return self.put(1, element * of.extent(), of);
        }
        let place = if order == Order::C { level } else { dimensions.len() - 1 - level };
        let (size, subsize, start) = dimensions[place];
        for index in start..start + subsize {
            self.put_array(dimensions, order, of, level + 1, element * size as isize + index as isize);
        }
    }
}

fn plan() -> impl Strategy<Value = Plan> {
    let basic = (0usize..5).prop_map(Plan::Basic);
    basic.prop_recursive(4, 24, 3, |inner| {
        let of = inner.clone().prop_map(Box::new);
        let blocks = prop::collection::vec((0usize..4, -12isize..24), 0..5);
        let apart = prop::collection::vec((0usize..3, 0isize..3), 1..6).prop_map(|steps| {
            let mut at = 0;
            let mut step = |(count, gap): (usize, isize)| {
                at += count as isize + gap;
                (count, at - count as isize - gap)
            };
            steps.into_iter().map(&mut step).collect::<Vec<_>>()
        });
        let places = prop_oneof![
            prop::collection::vec(-12isize..24, 0..5),
            (1isize..5, 1isize..6).prop_map(|(step, count)| (0..count).map(|index| index * step).collect()),
        ];
        let dimensions = prop::collection::vec((1usize..4, 0usize..3, 0usize..3), 1..4).prop_map(|all| {
            let fit = |(size, more, start)| (size + more + start, size, start);
            all.into_iter().map(fit).collect::<Vec<_>>()
        });
        let fields = prop::collection::vec((0usize..3, 0isize..60, inner), 0..4).prop_map(|mut fields| {
            // Half of them in order, so that many do not overlap.
            let mut at = 0;
            for (index, field) in fields.iter_mut().enumerate().filter(|(index, _)| index % 2 == 0 || *index < 3) {
                let map = Map::of(&field.2);
                field.1 = at - map.lower() + index as isize;
                at += map.extent().abs() * field.0 as isize + 2;
            }
            Plan::Structure(fields)
        });
        let order = any::<bool>().prop_map(|c| if c { Order::C } else { Order::Fortran });
        prop_oneof![
            (0usize..5, 0usize..4, prop_oneof![-9isize..9, 4isize..9], of.clone())
                .prop_map(|(count, block, stride, of)| Plan::Vector { count, block, stride, bytes: false, of }),
            (1usize..5, 1usize..3, prop_oneof![-99isize..99, 100isize..300], of.clone())
                .prop_map(|(count, block, stride, of)| Plan::Vector { count, block, stride, bytes: true, of }),
            (prop_oneof![blocks, apart], any::<bool>(), of.clone()).prop_map(|(blocks, bytes, of)| Plan::Indexed {
                blocks,
                bytes,
                of
            }),
            (0usize..3, places, any::<bool>(), of.clone()).prop_map(|(block, places, bytes, of)| Plan::IndexedBlock {
                block,
                places,
                bytes,
                of
            }),
            fields,
            (dimensions, order, of.clone()).prop_map(|(dimensions, order, of)| Plan::Subarray {
                dimensions,
                order,
                of
            }),
            (-9isize..9, 0isize..120, of).prop_map(|(lower, extent, of)| Plan::Resized { lower, extent, of }),
        ]
    })
}

/// Whether no byte is there twice.
fn apart(map: &Map) -> bool {
    let mut sorted = map.bytes.clone();
    sorted.sort_unstable();
    sorted.windows(2).all(|pair| pair[0] != pair[1])
}

/// Many cases, and few where each is slow and there are no files.
fn config() -> ProptestConfig {
    match cfg!(miri) {
        true => ProptestConfig { cases: 4, failure_persistence: None, ..ProptestConfig::default() },
        false => ProptestConfig::with_cases(10_000),
    }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn types_are_their_type_maps(plan in plan(), count in 0usize..4, cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..6)) {
        let map = Map::of(&plan);
        prop_assume!(map.bytes.len() <= 4000);
        let of = plan.make().expect("nothing is too large");
        prop_assert_eq!(of.has_overlap(), !apart(&map));
        let (first, last) = (map.bytes.iter().min(), map.bytes.iter().max());
        let truth = first.zip(last).map_or((0, 0), |(first, last)| (*first, last + 1 - first));
        prop_assert_eq!((of.true_lower_bound(), of.true_extent() as isize), truth);
        prop_assert_eq!((of.size(), of.lower_bound(), of.extent()), (map.bytes.len(), map.lower(), map.extent()));

        let mut all = Map::default();
        all.put(count, 0, &map);
        let origin = all.bytes.iter().min().map_or(0, |&first| (-first).max(0)).unsigned_abs();
        let length = all.bytes.iter().max().map_or(0, |&last| (last + 1 + origin as isize).unsigned_abs());
        let content: Vec<u8> = (0..length + 3).map(|at| (at * 7 + at / 250) as u8).collect();
        let typed = Typed::at(&content[..], origin, &of, count).unwrap();
        prop_assert_eq!(typed.has_overlap(), !apart(&all));
        let place = |byte: &isize| (byte + origin as isize).unsigned_abs();
        let packed: Vec<u8> = all.bytes.iter().map(|byte| content[place(byte)]).collect();
        prop_assert_eq!(typed.size(), packed.len());
        if length > 0 && !packed.is_empty() {
            let short = Typed::at(&content[..length - 1], origin, &of, count);
            let told = matches!(short.map_err(|unfit| unfit.error), Err(DatatypeError::Bounds { .. }));
            prop_assert!(told);
        }
        ranges(&typed, &packed, &content, &cuts)?;

        // In any pieces, in any order, it fills these bytes and no others.
        let mut ends: Vec<usize> = cuts.iter().map(|cut| cut.index(packed.len() + 1)).chain([0, packed.len()]).collect();
        ends.sort_unstable();
        let mut into = Typed::at(vec![0xEEu8; length + 3], origin, &of, count).unwrap();
        for pair in ends.windows(2).rev() {
            prop_assert_eq!(into.unpack(pair[0], &packed[pair[0]..pair[1]]), pair[1] - pair[0]);
        }
        prop_assert_eq!(into.unpack(packed.len(), &[1; 9]), 0);
        let mut expected = vec![0xEE; length + 3];
        all.bytes.iter().for_each(|byte| expected[place(byte)] = content[place(byte)]);
        prop_assert_eq!(into.into_buffer(), expected);
    }
}

/// Any range of the message is what it should be, packed and run by run.
fn ranges(
    typed: &Typed<&[u8]>,
    packed: &[u8],
    content: &[u8],
    cuts: &[prop::sample::Index],
) -> Result<(), TestCaseError> {
    let start = content.as_ptr().addr();
    for pair in cuts.chunks(2) {
        let (a, b) = (pair[0].index(packed.len() + 1), pair[pair.len() - 1].index(packed.len() + 4));
        let (first, length) = (a.min(b), a.max(b) - a.min(b));
        let found = &packed[first.min(packed.len())..(first + length).min(packed.len())];
        let mut out = vec![0xEE; length + 2];
        prop_assert_eq!(typed.pack(first, &mut out[1..length + 1]), found.len());
        prop_assert_eq!(&out[1..=found.len()], found);
        prop_assert!(out[0] == 0xEE && out[found.len() + 1..].iter().all(|&byte| byte == 0xEE));
        let runs: Vec<(usize, usize)> =
            typed.runs(first, length).map(|run| (run.start().addr() - start, run.len())).collect();
        let bytes: Vec<u8> = runs.iter().flat_map(|&(at, length)| &content[at..at + length]).copied().collect();
        prop_assert_eq!(&bytes[..], found);
        prop_assert!(runs.windows(2).all(|pair| pair[0].0 + pair[0].1 != pair[1].0), "neighbours are one run");
    }
    Ok(())
}
