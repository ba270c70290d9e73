//! Any type does what its type map says.

use super::maps::{Map, apart, plan};
use crate::Pieces;
use crate::datatype::*;
use proptest::prelude::*;

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
