//! Cycles of ranks that wait for each other, and ranks at the end of chains of waits.

use super::{Culprit, RankReport, Wait};
use crate::dump::Activity;

/// For each blocked rank, the ranks that it waits for. A receive from any source waits for any one of several ranks, which is no edge.
fn edges(ranks: usize, waits: &[Wait]) -> Vec<Vec<u32>> {
    let mut edges = vec![Vec::new(); ranks];
    for wait in waits.iter().filter(|wait| wait.blocking) {
        if let (Some(on), Some(list)) = (wait.on, edges.get_mut(wait.rank as usize))
            && (on as usize) < ranks
            && !list.contains(&on)
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
                1 => {
                    let first = path.iter().position(|(rank, _)| *rank == next).unwrap_or(0);
                    let mut cycle: Vec<u32> = path[first..].iter().map(|(rank, _)| *rank).collect();
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
    let edges = edges(ranks.len(), waits);
    let blocked = |rank: u32| waits.iter().any(|wait| wait.blocking && wait.rank == rank);
    let mut found = Vec::new();
    for (rank, report) in (0..).zip(ranks) {
        let in_call = report.dumps().iter().any(|dump| dump.activity == Activity::Waiting);
        if blocked(rank) || (in_call && report.dumps().iter().any(|dump| dump.active > 0)) {
            continue;
        }
        let waiting = reaching(&edges, rank);
        if !waiting.is_empty() {
            found.push(Culprit { rank, waiting, does: report.does() });
        }
    }
    found
}

/// The ranks from which a chain of edges leads to `target`.
fn reaching(edges: &[Vec<u32>], target: u32) -> Vec<u32> {
    let mut reached = vec![target];
    let mut at = 0;
    while at < reached.len() {
        let rank = reached[at];
        for (from, list) in (0..).zip(edges) {
            if list.contains(&rank) && !reached.contains(&from) {
                reached.push(from);
            }
        }
        at += 1;
    }
    reached.remove(0);
    reached.sort_unstable();
    reached
}
