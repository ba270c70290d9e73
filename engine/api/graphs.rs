//! What graphs of collective operations and of blocks have in common when they are built.

use crate::run::engine::Engine;
use tickwire_components::{Comm, Graph, PostError, Row};
use tickwire_systems::procs::communicators::live;
use tickwire_systems::store::Tables;

impl Engine {
    /// The VC of a member of a communicator.
    pub(crate) fn reach_member(&mut self, comm: Comm, rank: u32) -> Result<Row, PostError> {
        let communicator = live(self.store.all().communicators, comm.0)?;
        let last = communicator.size - 1;
        let proc = communicator.proc(rank).ok_or(PostError::Rank { rank, last })?;
        self.reach(proc)
    }
}

/// Adds a graph, and tells its nodes its number. Returns the number.
pub(crate) fn add_graph(all: &mut Tables<'_>, graph: Graph) -> u32 {
    let number = all.progress.graphs.add(graph);
    if let Some(graph) = all.progress.graphs.get(number) {
        graph.nodes.iter().for_each(|&row| all.nodes[row as usize].graph = number);
    }
    number
}

/// Adds the edges to what each node waits for. Returns for each node the rows of the nodes that wait for it.
pub(crate) fn add_edges(edges: &[(u32, u32)], rows: &[Row], needs: &mut [u32]) -> Vec<Vec<Row>> {
    let mut successors = vec![Vec::new(); rows.len()];
    for &(before, node) in edges {
        needs[node as usize] += 1;
        successors[before as usize].push(rows[node as usize]);
    }
    successors
}
