//! Free context ids: what the members of a communicator exchange to find the smallest id that is free on all of them.

use std::fmt::Debug;
use tickwire_components::limits::CONTEXTS_MAX;
use tickwire_components::{CommState, Communicator};

/// Words of a bitmap at most: 8192 ids, 1 KiB, a short message.
pub const USED_WORDS: usize = 128;

/// The ids in a part of the range that are in use on at least one of several procs. Ids below the part are in use on one of them. Ids above
/// it are unknown.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct UsedIds {
    /// First id of the part; a multiple of 64.
    pub base: u32,
    /// One past the last id of the part.
    pub end: u32,
    /// One bit for each id from `base` on, set if it is in use. Trailing zero words are left out.
    pub words: Vec<u64>,
}

impl UsedIds {
    /// No id is in use.
    pub const NONE: UsedIds = UsedIds { base: 0, end: CONTEXTS_MAX as u32, words: Vec::new() };

    /// The ids in use on one proc, from its first free id (`first`) on.
    pub fn of(comms: &[Communicator], first: u32, incarnations: u32) -> Self {
        let base = first & !63;
        let end = (base as usize + 64 * USED_WORDS).min(CONTEXTS_MAX);
        let rows = comms.get(base as usize..end.min(comms.len())).unwrap_or_default();
        let mut words = vec![0; rows.len().div_ceil(64)];
        for (row, comm) in rows.iter().enumerate() {
            let used = base as usize + row < first as usize || !is_free(comm, incarnations);
            words[row / 64] |= u64::from(used) << (row % 64);
        }
        // Ids without a row were never used, but those below `first` must not be taken.
        if first & 63 != 0 && words.is_empty() {
            words.push((1 << (first & 63)) - 1);
        }
        trim(&mut words);
        UsedIds { base, end: end as u32, words }
    }

    /// Adds the ids in use on other procs.
    pub fn add(&mut self, mut other: UsedIds) {
        if other.base > self.base {
            std::mem::swap(self, &mut other);
        }
        let below = ((self.base - other.base) / 64) as usize;
        let words = other.words.get(below..).unwrap_or_default();
        self.words.resize(self.words.len().max(words.len()), 0);
        self.words.iter_mut().zip(words).for_each(|(word, other)| *word |= other);
        self.end = self.end.min(other.end).max(self.base);
        trim(&mut self.words);
    }

    /// The smallest id below `most` that no proc uses, if it is in the known part.
    pub fn smallest_free(&self, most: u32) -> Option<u32> {
        let full = self.words.iter().take_while(|&&word| word == u64::MAX).count();
        let more = self.words.get(full).map_or(0, |word| word.trailing_ones());
        let id = self.base + 64 * full as u32 + more;
        (id < most.min(self.end)).then_some(id)
    }
}

fn trim(words: &mut Vec<u64>) {
    while words.last() == Some(&0) {
        words.pop();
    }
}

/// Whether an id is free, given how many incarnations of an id can be told apart: no communicator has it, and at least one of its
/// incarnations was never used in a message.
pub fn is_free(comm: &Communicator, incarnations: u32) -> bool {
    let is_fresh = comm.lives == 0 && comm.incarnation == 0;
    comm.state == CommState::Free && (is_fresh || comm.incarnation + 1 < incarnations)
}

/// The first free id that is not below `from`.
pub fn first_free(comms: &[Communicator], from: u32, incarnations: u32) -> u32 {
    let rows = comms.get(from as usize..).unwrap_or_default();
    let used = rows.iter().take_while(|comm| !is_free(comm, incarnations)).count();
    from.saturating_add(used as u32).min(CONTEXTS_MAX as u32)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tickwire_components::context::INCARNATIONS;

    /// A table whose rows are used as a pattern says.
    fn table(used: impl Fn(u32) -> bool, rows: u32) -> Vec<Communicator> {
        let state = |row| if used(row) { CommState::Live } else { CommState::Free };
        (0..rows).map(|row| Communicator { state: state(row), ..Communicator::FREE }).collect()
    }

    fn of(comms: &[Communicator], from: u32) -> UsedIds {
        UsedIds::of(comms, first_free(comms, from, INCARNATIONS), INCARNATIONS)
    }

    const MOST: u32 = CONTEXTS_MAX as u32;

    #[test]
    fn the_smallest_id_that_nobody_uses_is_found_over_several_parts_of_the_range() {
        let patterns: [&dyn Fn(u32) -> bool; 6] =
            [&|_| false, &|id| id < 3, &|id| id % 2 == 0, &|id| id < 20_000, &|id| id != 9000, &|id| {
                !(9001..=9100).contains(&id)
            }];
        for one in patterns {
            for other in patterns {
                let tables = [table(one, 25_000), table(other, 12_345)];
                let expected = (0..MOST).find(|&id| {
                    tables.iter().all(|comms| comms.get(id as usize).is_none_or(|c| c.state == CommState::Free))
                });
                let (mut floor, mut found, mut rounds) = (0, None, 0);
                while found.is_none() {
                    let mut union = UsedIds::NONE;
                    tables.iter().for_each(|comms| union.add(of(comms, floor)));
                    assert!(union.words.len() <= USED_WORDS && union.base.is_multiple_of(64));
                    found = union.smallest_free(MOST);
                    assert!(found.is_some() || union.end > floor, "it gets on");
                    (floor, rounds) = (union.end, rounds + 1);
                }
                assert_eq!(found, expected);
                assert!(rounds <= 4, "{rounds}");
            }
        }
    }

    #[test]
    fn the_range_ends_where_it_is_said_to() {
        let full = table(|_| true, 300);
        let union = of(&full, 0);
        assert_eq!((union.base, union.words.clone(), union.smallest_free(MOST)), (256, vec![(1 << 44) - 1], Some(300)));
        assert_eq!((union.smallest_free(300), union.smallest_free(301)), (None, Some(300)));
        let end = UsedIds::of(&full, MOST - 1, INCARNATIONS);
        assert_eq!((end.end, end.smallest_free(MOST), end.smallest_free(MOST - 1)), (MOST, Some(MOST - 1), None));
        assert_eq!(UsedIds::of(&full, MOST, INCARNATIONS).smallest_free(MOST), None);
        // Parts that have nothing in common.
        let mut far = of(&full, 0);
        far.add(of(&[], 900_000));
        assert_eq!((far.base, far.smallest_free(MOST), far.end), (900_000 & !63, None, 900_000 & !63));
    }

    #[test]
    fn an_id_is_free_until_its_incarnations_are_used_up() {
        let freed = |incarnation| Communicator { incarnation, lives: 1, ..Communicator::FREE };
        assert!(
            is_free(&freed(0), 4)
                && is_free(&freed(2), 4)
                && !is_free(&freed(3), 4)
                && !is_free(&freed(u32::MAX - 1), 4)
        );
        assert!(is_free(&Communicator::FREE, 1) && !is_free(&freed(0), 1) && !is_free(&freed(1), 1), "once");
        assert_eq!(first_free(&[freed(3), freed(2)], 0, 4), 1);
        assert_eq!(first_free(&[freed(3), freed(3)], 0, 4), 2);
    }
}
