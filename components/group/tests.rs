use super::*;
use proptest::prelude::*;

fn group(procs: &[u32]) -> Group {
    Group::from_procs(procs).unwrap()
}

fn list(group: &Group) -> Vec<u32> {
    group.procs().collect()
}

#[test]
fn a_range_and_a_list_of_the_same_procs_are_one_group() {
    assert_eq!(group(&[0, 1, 2, 3]), Group::all(4));
    assert!(matches!(group(&[9, 7, 5]).procs, Procs::Range { first: 9, count: 3, stride: -2 }));
    assert!(matches!(group(&[9, 7, 4]).procs, Procs::List(_)));
    let ends = group(&[0, u32::MAX]);
    assert_eq!((list(&ends), ends.rank_of(u32::MAX), ends.rank_of(7)), (vec![0, u32::MAX], Some(1), None));
    assert!(Group::EMPTY.is_empty() && group(&[]) == Group::EMPTY);
    assert_eq!((Group::EMPTY.proc(0), Group::EMPTY.rank_of(0)), (None, None));
}

#[test]
fn wrong_arguments_are_told_by_name() {
    let four = group(&[8, 6, 7, 1]);
    assert_eq!(Group::from_procs(&[3, 1, 3]), Err(GroupError::ProcTwice(3)));
    assert_eq!(four.include(&[4]), Err(GroupError::Rank { rank: 4, size: 4 }));
    assert_eq!(four.include(&[1, 2, 1]), Err(GroupError::Twice(1)));
    assert_eq!(four.exclude(&[0, 9]), Err(GroupError::Rank { rank: 9, size: 4 }));
    assert_eq!(four.exclude(&[3, 3]), Err(GroupError::Twice(3)));
    assert_eq!(four.translate(&[0, 5], &four), Err(GroupError::Rank { rank: 5, size: 4 }));
    let range = |first, last, stride| four.range_include(&[(first, last, stride)]);
    assert_eq!(range(0, 3, 0), Err(GroupError::Range { first: 0, last: 3, stride: 0 }));
    assert_eq!(range(3, 0, 1), Err(GroupError::Range { first: 3, last: 0, stride: 1 }));
    assert_eq!(range(0, u32::MAX, 1), Err(GroupError::Rank { rank: u32::MAX, size: 4 }));
    assert_eq!(four.range_exclude(&[(0, 2, 1), (3, 2, -1)]), Err(GroupError::Twice(2)));
}

#[test]
fn ranges_are_what_the_standard_says() {
    let ten = Group::all(10);
    assert_eq!(list(&ten.range_include(&[(1, 8, 3), (9, 5, -4)]).unwrap()), [1, 4, 7, 9, 5]);
    assert_eq!(list(&ten.range_exclude(&[(0, 8, 2), (9, 9, 1)]).unwrap()), [1, 3, 5, 7]);
    assert_eq!(list(&ten.range_include(&[(4, 4, -7)]).unwrap()), [4]);
}

#[test]
fn comparison_tells_order_from_members() {
    let (one, two) = (group(&[1, 2, 3]), group(&[3, 1, 2]));
    assert_eq!(one.compare(&one.clone()), Comparison::Identical);
    assert_eq!(one.compare(&two), Comparison::Similar);
    assert_eq!(one.compare(&group(&[1, 2, 4])), Comparison::Unequal);
    assert_eq!(one.compare(&group(&[1, 2])), Comparison::Unequal);
    assert_eq!(Group::EMPTY.compare(&group(&[])), Comparison::Identical);
}

/// Distinct numbers in any order; often at equal distances.
fn procs() -> impl Strategy<Value = Vec<u32>> {
    let scattered = prop::collection::btree_set(0u32..24, 0..16).prop_map(|set| set.into_iter().collect::<Vec<_>>());
    let even = (0u32..8, 0u32..8, 1u32..4)
        .prop_map(|(first, count, stride)| (0..count).map(|step| first + step * stride).collect::<Vec<_>>());
    prop_oneof![scattered.prop_shuffle(), even.clone(), even.prop_map(|list| list.into_iter().rev().collect())]
}

fn kept(list: &[u32], keep: impl Fn(&u32) -> bool) -> Vec<u32> {
    list.iter().copied().filter(keep).collect()
}

/// Files of failures are not for an interpreter without a file system, nor are many cases.
fn config() -> ProptestConfig {
    match cfg!(miri) {
        true => ProptestConfig { cases: 8, failure_persistence: None, ..ProptestConfig::default() },
        false => ProptestConfig::default(),
    }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn operations_are_those_of_plain_lists(a in procs(), b in procs()) {
        let (x, y) = (group(&a), group(&b));
        prop_assert_eq!(list(&x), &a[..]);
        let union: Vec<u32> = a.iter().copied().chain(kept(&b, |p| !a.contains(p))).collect();
        prop_assert_eq!(list(&x.union(&y)), union);
        prop_assert_eq!(list(&x.intersection(&y)), kept(&a, |p| b.contains(p)));
        prop_assert_eq!(list(&x.difference(&y)), kept(&a, |p| !b.contains(p)));
        let ranks: Vec<u32> = (0..x.size()).collect();
        let place = |p: &u32| b.iter().position(|q| q == p).map(|rank| rank as u32);
        prop_assert_eq!(x.translate(&ranks, &y).unwrap(), a.iter().map(place).collect::<Vec<_>>());
        for proc in 0..40 {
            prop_assert_eq!(x.rank_of(proc), a.iter().position(|&p| p == proc).map(|rank| rank as u32));
        }
        let (mut c, mut d) = (a.clone(), b.clone());
        c.sort_unstable();
        d.sort_unstable();
        let alike = match (a == b, c == d) {
            (true, _) => Comparison::Identical,
            (_, true) => Comparison::Similar,
            _ => Comparison::Unequal,
        };
        prop_assert_eq!(x.compare(&y), alike);
    }

    #[test]
    fn choosing_by_rank_is_choosing_from_a_plain_list(a in procs(), chosen in procs()) {
        let x = group(&a);
        let wrong = chosen.iter().any(|&rank| rank as usize >= a.len());
        let (included, excluded) = (x.include(&chosen), x.exclude(&chosen));
        prop_assert_eq!((included.is_err(), excluded.is_err()), (wrong, wrong));
        if let (Ok(included), Ok(excluded)) = (included, excluded) {
            prop_assert_eq!(list(&included), chosen.iter().map(|&rank| a[rank as usize]).collect::<Vec<_>>());
            let rest: Vec<u32> = (0u32..).zip(&a).filter(|(rank, _)| !chosen.contains(rank)).map(|(_, &p)| p).collect();
            prop_assert_eq!(list(&excluded), rest);
        }
    }

    #[test]
    fn ranges_are_the_lists_they_stand_for(a in procs(), first in 0u32..20, last in 0u32..20, stride in -5i32..6) {
        let x = group(&a);
        let (mut ranks, mut at) = (Vec::new(), i64::from(first));
        let (end, step) = (i64::from(last), i64::from(stride));
        while stride != 0 && (if step > 0 { at <= end } else { at >= end }) {
            ranks.push(at as u32);
            at += step;
        }
        let exist = (first as usize) < a.len() && (last as usize) < a.len();
        let (included, excluded) = (x.range_include(&[(first, last, stride)]), x.range_exclude(&[(first, last, stride)]));
        if exist && !ranks.is_empty() {
            prop_assert_eq!(included, x.include(&ranks));
            prop_assert_eq!(excluded, x.exclude(&ranks));
        } else {
            prop_assert!(included.is_err() && excluded.is_err());
        }
    }
}
