//! Checks whether the observations of a program are allowed.

use super::player::Played;
use super::program::{COUNT, Op, Phase, Program, Section, TICKET, UPDATED, What};
use std::collections::HashSet;

/// An operation on one element, as its origin saw it.
#[derive(Clone, Copy)]
struct Step<'a> {
    op: &'a Op,
    /// The index of the element in the operation.
    index: usize,
    /// The previous value, if the operation has returned it.
    old: Option<u64>,
}

/// By rank: the elements of its part.
type Parts = Vec<Vec<u64>>;

/// Explains what all ranks have seen in a program.
///
/// # Panics
/// If no allowed order explains it.
pub(crate) fn explain(program: &Program, played: &[Played]) {
    let mut before: Parts = vec![vec![0; COUNT + 1]; program.ranks as usize];
    for (number, phase) in program.phases.iter().enumerate() {
        let after: Parts = played.iter().map(|played| played[number].after.clone()).collect();
        let returned: Vec<&[Vec<u64>]> = played.iter().map(|played| &played[number].returned[..]).collect();
        let tickets: Vec<&[u64]> = played.iter().map(|played| &played[number].tickets[..]).collect();
        match phase {
            Phase::Fenced(ops) | Phase::Posted(ops, _) => {
                explain_moves(ops, &returned, &before, &after, number);
                explain_updates(ops, &returned, &before, &after, (number, UPDATED));
            }
            Phase::Shared(ops) => explain_updates(ops, &returned, &before, &after, (number, 0)),
            Phase::Locked(sections) => explain_sections(sections, &returned, &tickets, (&before, &after), number),
            Phase::Exposed(ops) => {
                assert_eq!(after, before, "phase {number}: regions are not in the window");
                let left: Parts = played.iter().map(|played| played[number].region.clone()).collect();
                explain_moves(ops, &returned, &before, &left, number);
                explain_updates(ops, &returned, &before, &left, (number, UPDATED));
                let last = |parts: &Parts| parts.iter().map(|part| part[TICKET]).collect::<Vec<u64>>();
                assert_eq!(last(&left), last(&before), "phase {number}: nobody has put the last element of a region");
            }
        }
        before = after;
    }
}

/// Explains puts and gets between fences.
fn explain_moves(ops: &[Vec<Op>], returned: &[&[Vec<u64>]], before: &Parts, after: &Parts, number: usize) {
    for target in 0..before.len() {
        for at in 0..UPDATED {
            let old = before[target][at];
            let steps: Vec<Step<'_>> = histories(ops, returned, target, at).into_iter().flatten().collect();
            let puts: Vec<u64> =
                steps.iter().filter(|step| step.op.what == What::Put).map(|step| step.op.operand(step.index)).collect();
            let left = after[target][at];
            let place = format!("phase {number}, element {at} of rank {target}");
            match puts.is_empty() {
                // If the element is put at the same time, the value of a get is not determined.
                false => assert!(puts.contains(&left), "{place}: nobody has put {left}, but {puts:?}"),
                true => {
                    assert_eq!(left, old, "{place}: nobody has put");
                    let got = steps.iter().filter_map(|step| step.old);
                    got.for_each(|got| assert_eq!(got, old, "{place}: nobody has put, and this was got"));
                }
            }
        }
    }
}

/// Explains updates that ran at the same time, of the elements in a range.
fn explain_updates(
    ops: &[Vec<Op>],
    returned: &[&[Vec<u64>]],
    before: &Parts,
    after: &Parts,
    (number, first): (usize, usize),
) {
    for target in 0..before.len() {
        for at in first..COUNT {
            let histories = histories(ops, returned, target, at);
            let (old, left) = (before[target][at], after[target][at]);
            assert!(
                has_order(old, left, &histories),
                "phase {number}, element {at} of rank {target}: no order of these leads from {old} to {left}: {}",
                words(&histories)
            );
        }
    }
}

/// All steps on one element, by rank. The steps of a rank are in their order.
fn histories<'a>(ops: &'a [Vec<Op>], returned: &[&[Vec<u64>]], target: usize, at: usize) -> Vec<Vec<Step<'a>>> {
    let of_rank = |(ops, returned): (&'a Vec<Op>, &&[Vec<u64>])| {
        let steps =
            ops.iter().zip(*returned).filter(|(op, _)| op.target as usize == target).filter_map(|(op, returned)| {
                let index = op.index_of(at)?;
                Some(Step { op, index, old: returned.get(index).copied() })
            });
        steps.collect()
    };
    ops.iter().zip(returned).map(of_rank).collect()
}

/// Whether some order of all steps explains the returned values and the final value. It must keep the order of each
/// rank.
fn has_order(old: u64, left: u64, histories: &[Vec<Step<'_>>]) -> bool {
    let all: Vec<usize> = histories.iter().map(Vec::len).collect();
    let (mut open, mut known) = (vec![(vec![0; all.len()], old)], HashSet::new());
    while let Some((done, value)) = open.pop() {
        if done == all && value == left {
            return true;
        }
        for (rank, history) in histories.iter().enumerate() {
            let Some(step) = history.get(done[rank]) else { continue };
            if step.old.is_some_and(|old| old != value) {
                continue;
            }
            let mut next = done.clone();
            next[rank] += 1;
            let next = (next, step.op.apply(value, step.index));
            if known.insert(next.clone()) {
                open.push(next);
            }
        }
    }
    false
}

fn words(histories: &[Vec<Step<'_>>]) -> String {
    let of_step = |step: &Step<'_>| match step.old {
        Some(old) => format!("{:?} by {} at {old}", step.op.what, step.op.operand(step.index)),
        None => format!("{:?} by {}", step.op.what, step.op.operand(step.index)),
    };
    let of_rank = |steps: &Vec<Step<'_>>| steps.iter().map(of_step).collect::<Vec<_>>().join(", ");
    histories.iter().map(of_rank).collect::<Vec<_>>().join("; ")
}

/// Explains sections under locks: they run one after another, in the order of their numbers.
fn explain_sections(
    sections: &[Vec<Section>],
    returned: &[&[Vec<u64>]],
    tickets: &[&[u64]],
    (before, after): (&Parts, &Parts),
    number: usize,
) {
    // The order is by target, then by number. Sections that share the lock come first: they see what the section
    // before has left.
    let mut order = Vec::new();
    for (rank, sections) in sections.iter().enumerate() {
        let mut returned = returned[rank];
        for (section, ticket) in sections.iter().zip(tickets[rank]) {
            let (own, rest) = returned.split_at(section.ops.len());
            returned = rest;
            order.push((section.target as usize, *ticket, section.alone, section, own));
        }
    }
    order.sort_by_key(|&(target, ticket, alone, ..)| (target, ticket, alone));
    let mut parts = before.clone();
    for (target, ticket, alone, section, returned) in order {
        let part = &mut parts[target];
        assert_eq!(ticket, part[TICKET], "phase {number}, rank {target}: two sections have met, or one is lost");
        for (op, returned) in section.ops.iter().zip(returned) {
            let old: Vec<u64> = op.places().map(|place| part[place]).collect();
            if !returned.is_empty() {
                assert_eq!(returned, &old, "phase {number}, section {ticket} of rank {target}: {op:?}");
            }
            for (index, place) in op.places().enumerate() {
                part[place] = op.apply(part[place], index);
            }
        }
        part[TICKET] += u64::from(alone);
    }
    assert_eq!(&parts, after, "phase {number}: what the sections leave");
}
