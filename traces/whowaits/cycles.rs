//! Cycles of ranks that wait for each other, and ranks at the end of chains of waits.

use super::report::{Culprit, RankReport, Wait};
use crate::dump::Activity;
use std::collections::HashSet;

/// For each blocked rank, the ranks that it waits for. A receive from any source waits for any one of several ranks, which is no edge.
fn edges(ranks: usize, waits: &[Wait]) -> Vec<Vec<u32>> {
    let mut edges = vec![Vec::new(); ranks];
    let mut known = HashSet::new();
    for wait in waits.iter().filter(|wait| wait.blocking) {
        if let (Some(on), Some(list)) = (wait.on, edges.get_mut(wait.rank as usize))
            && (on as usize) < ranks
            && known.insert((wait.rank, on))
        {
            list.push(on);
        }
    }
    edges
}

/// Finds cycles. Each begins with its smallest rank, and a rank is in one cycle at most.
pub(super) fn find(ranks: usize, waits: &[Wait]) -> Vec<Vec<u32>> {
    let edges = edges(ranks, waits);
    // 0 not seen, 1 on the path, 2 done.
    let mut seen = vec![0; ranks];
    let mut taken = vec![false; ranks];
    let mut cycles = Vec::new();
    for start in 0..ranks as u32 {
        if seen[start as usize] != 0 {
            continue;
        }
        // The path, and for each rank on it the edge that is followed next.
        let mut path = vec![(start, 0)];
        seen[start as usize] = 1;
        while let Some((rank, edge)) = path.last_mut() {
            let Some(&next) = edges[*rank as usize].get(*edge) else {
                seen[*rank as usize] = 2;
                path.pop();
                continue;
            };
            *edge += 1;
            match seen[next as usize] {
                0 => {
                    seen[next as usize] = 1;
                    path.push((next, 0));
                }
                1 if !taken[next as usize] => {
                    let first = path.iter().position(|(rank, _)| *rank == next).unwrap_or(0);
                    let mut cycle: Vec<u32> = path[first..].iter().map(|(rank, _)| *rank).collect();
                    if cycle.iter().any(|&rank| taken[rank as usize]) {
                        continue;
                    }
                    cycle.iter().for_each(|&rank| taken[rank as usize] = true);
                    let smallest = (0..cycle.len()).min_by_key(|&place| cycle[place]).unwrap_or(0);
                    cycle.rotate_left(smallest);
                    cycles.push(cycle);
                }
                _ => {}
            }
        }
    }
    cycles
}

/// Ranks that wait for no rank and for which others wait.
pub(super) fn culprits(ranks: &[RankReport], waits: &[Wait]) -> Vec<Culprit> {
    // For each rank, the ranks that wait for it.
    let mut waiting = vec![Vec::new(); ranks.len()];
    for (from, list) in (0u32..).zip(edges(ranks.len(), waits)) {
        list.into_iter().for_each(|on| waiting[on as usize].push(from));
    }
    let blocked: HashSet<u32> = waits.iter().filter(|wait| wait.blocking).map(|wait| wait.rank).collect();
    let mut found = Vec::new();
    for (rank, report) in (0..).zip(ranks) {
        let in_call = report.dumps().iter().any(|dump| dump.activity == Activity::Waiting);
        if blocked.contains(&rank) || (in_call && report.dumps().iter().any(|dump| dump.active > 0)) {
            continue;
        }
        let waiting = reaching(&waiting, rank);
        if !waiting.is_empty() {
            found.push(Culprit { rank, waiting, does: report.does() });
        }
    }
    found
}

/// The ranks that wait for `target`, directly or indirectly. `waiting`: for each rank, the ranks that wait for it directly.
fn reaching(waiting: &[Vec<u32>], target: u32) -> Vec<u32> {
    let mut seen = vec![false; waiting.len()];
    seen[target as usize] = true;
    let mut reached = vec![target];
    let mut at = 0;
    while let Some(&rank) = reached.get(at) {
        let more = waiting[rank as usize].iter().filter(|&&from| !std::mem::replace(&mut seen[from as usize], true));
        reached.extend(more);
        at += 1;
    }
    reached.remove(0);
    reached.sort_unstable();
    reached
}
