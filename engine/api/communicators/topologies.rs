//! Virtual topologies of communicators (MPI 4.1 chapter 8).

use crate::api::collectives::reduction::reduce_scatter_block;
use crate::api::error::Error;
use crate::api::persistent::Persistent;
use crate::run::engine::Engine;
use tickwire_components::{
    Cartesian, Comm, CommError, NIL, PostError, ProcId, Rank, Source, Tag, Topology, TopologyError,
};
use tickwire_systems::protocols::graph::kept::forget;

/// Tag of the messages by which members of a new communicator tell each other about its edges.
const EDGE: Tag = Tag(0);

/// The ends of an edge, its source first, and 1 if the notice goes to the source.
type Notice = Box<[u32; 3]>;

/// What one member and its peers tell each other about edges. Each message has its row already.
struct Notices {
    sends: Vec<Persistent<Notice>>,
    receive: Persistent<Notice>,
}

impl Engine {
    /// Makes a communicator whose ranks are the points of a grid (`MPI_Cart_create`). It has the first ranks of `comm`, in their order. All
    /// members call it. Returns `None` on ranks for which the grid has no point.
    ///
    /// # Errors
    /// The grid has more points than `comm` has ranks, or as [`Engine::comm_split`].
    pub fn cart_create(&mut self, comm: Comm, grid: &Cartesian) -> Result<Option<Comm>, CommError> {
        let (rank, ranks) = (self.comm_rank(comm)?, self.comm_size(comm)?);
        let points = grid.points();
        if points == 0 || points > u64::from(ranks) {
            return Err(self.raise_comm(comm, "cart_create", TopologyError::Points { points, ranks }.into()));
        }
        let color = (u64::from(rank.0) < points).then_some(0);
        let Some(made) = self.comm_split(comm, color, 0)? else { return Ok(None) };
        let done = self.comm_set_topology(made, Topology::Cartesian(grid.clone()));
        self.made_or_freed(made, done).map(Some)
    }

    /// Divides the communicator of a grid into subgrids (`MPI_Cart_sub`). In each subgrid only the dimensions vary that `stay`. All members
    /// call it.
    ///
    /// # Errors
    /// The communicator has no grid, `stay` has another number of dimensions, or as [`Engine::comm_split`].
    pub fn cart_sub(&mut self, comm: Comm, stay: &[bool]) -> Result<Comm, CommError> {
        let rank = self.comm_rank(comm)?;
        let Some(Topology::Cartesian(grid)) = self.comm_topology(comm) else {
            return Err(self.raise_comm(comm, "cart_sub", CommError::NoTopology));
        };
        let grid = grid.clone();
        if stay.len() != grid.dimensions().len() {
            let error = TopologyError::Dimension { given: stay.len(), dimensions: grid.dimensions().len() };
            return Err(self.raise_comm(comm, "cart_sub", error.into()));
        }
        let at = grid.coordinates(rank).map_err(|error| self.raise_comm(comm, "cart_sub", error.into()))?;
        // Ranks of one subgrid have the other coordinates in common.
        let parts = grid.dimensions().iter().zip(stay).zip(&at);
        let color =
            parts.fold(0, |color, ((&(points, _), &stays), &at)| if stays { color } else { color * points + at });
        let dimensions = grid.dimensions().iter().zip(stay).filter(|(_, stays)| **stays).map(|(&of, _)| of);
        let part = Cartesian::new(&dimensions.collect::<Vec<_>>());
        let made = self.comm_split(comm, Some(color), 0)?.ok_or(CommError::Stale)?;
        let done = self.comm_set_topology(made, Topology::Cartesian(part));
        self.made_or_freed(made, done)
    }

    /// Makes a communicator in which each rank names its neighbours (`MPI_Dist_graph_create_adjacent`): the sources that send to it, and
    /// the destinations that it sends to. If rank a names rank b as a destination n times, b must name a as a source n times. All members
    /// call it.
    ///
    /// # Errors
    /// A neighbour is not a rank, this rank is its own source and its own destination unequally often, or as [`Engine::comm_dup`].
    pub fn graph_create_adjacent(
        &mut self,
        comm: Comm,
        sources: &[Rank],
        destinations: &[Rank],
    ) -> Result<Comm, CommError> {
        let topology = Topology::Graph { sources: sources.to_vec(), destinations: destinations.to_vec() };
        if let Err(error) = topology.check(self.comm_rank(comm)?, self.comm_size(comm)?) {
            return Err(self.raise_comm(comm, "graph_create_adjacent", error.into()));
        }
        let made = self.comm_dup(comm)?;
        let done = self.comm_set_topology(made, topology);
        self.made_or_freed(made, done)
    }

    /// Makes a communicator from edges that its members name together (`MPI_Dist_graph_create`). An edge goes from one rank to another, and
    /// any member may name it. The neighbours of each rank are in the order of ranks. All members call it.
    ///
    /// # Errors
    /// An edge has an end that is not a rank, or as [`Engine::comm_dup`]. A member needs two free rows for each edge that it names, and
    /// some for the call. If they are not free, its call fails with [`PostError::Full`], and that of all others with
    /// [`CommError::Refused`].
    pub fn graph_create(&mut self, comm: Comm, edges: &[(Rank, Rank)]) -> Result<Comm, Error> {
        let ranks = self.comm_size(comm)?;
        let last = ranks - 1;
        if let Some(&Rank(rank)) = edges.iter().flat_map(|(from, to)| [from, to]).find(|rank| rank.0 > last) {
            return Err(self.raise_comm(comm, "graph_create", TopologyError::Rank { rank, last }.into()).into());
        }
        let made = self.comm_dup(comm)?;
        let done = self.meet_neighbors(made, edges, ranks);
        self.made_or_freed(made, done)
    }

    /// A new communicator, if it was given its topology. Otherwise it is freed.
    fn made_or_freed<E>(&mut self, made: Comm, done: Result<(), E>) -> Result<Comm, E> {
        if done.is_err() {
            let _ = self.comm_free(made);
        }
        done.map(|()| made)
    }

    /// Tells the ends of edges of each other, and gives the communicator its topology.
    fn meet_neighbors(&mut self, made: Comm, edges: &[(Rank, Rank)], ranks: u32) -> Result<(), Error> {
        // The notices below are received from any source, whatever the application has promised about its own receives.
        let promised = self.communicator(made, "graph_create")?.no_wildcard;
        self.comm_set_no_wildcard(made, false)?;
        let notices = self.prepare_notices(made, edges);
        let expected = self.count_notices(made, edges, (ranks, notices.is_ok()));
        let notices = notices.map_err(|error| self.raise_post(made, "graph_create", error))?;
        let (mut sources, mut destinations) = self.exchange_notices(made, notices, expected?)?;
        // No message of the application comes to a member that still waits for notices.
        self.barrier(made)?;
        sources.sort_unstable_by_key(|rank| rank.0);
        destinations.sort_unstable_by_key(|rank| rank.0);
        self.comm_set_no_wildcard(made, promised)?;
        self.comm_set_topology(made, Topology::Graph { sources, destinations })?;
        Ok(())
    }

    /// Takes the rows of all notices, so that no other thread can take them meanwhile.
    fn prepare_notices(&mut self, made: Comm, edges: &[(Rank, Rank)]) -> Result<Notices, PostError> {
        // Two for each edge, one for the receive, and those of the reduction that follows.
        let (counts, mut found) = (vec![[0; 2]; self.members_of(made)], [[0; 2]]);
        let counting = reduce_scatter_block(&counts[..], &mut found[..], join_counts);
        let to_count = self.rows_to_open_boards(made)? + self.rows_of(counting, made)?;
        self.need_rows(2 * edges.len() + 1 + to_count)?;
        let receive = self.recv_init([0; 3], Source::Any, EDGE, made).map_err(|rejected| rejected.error)?;
        let mut sends = Vec::with_capacity(2 * edges.len());
        for &(from, to) in edges {
            for (end, to_sender) in [(from, 1), (to, 0)] {
                let send = self.send_init([from.0, to.0, to_sender], end, EDGE, made);
                sends.push(send.map_err(|rejected| rejected.error)?);
            }
        }
        Ok(Notices { sends, receive })
    }

    /// How many notices this rank will get: both ends of an edge get one. All members call this, also one that has no room for its notices.
    /// The others would wait for these for ever, so then the call fails on all of them.
    fn count_notices(
        &mut self,
        made: Comm,
        edges: &[(Rank, Rank)],
        (ranks, has_room): (u32, bool),
    ) -> Result<u32, Error> {
        let without_room = if has_room { 0 } else { self.comm_rank(made)?.0 + 1 };
        let mut notices = vec![[0, without_room]; ranks as usize];
        edges.iter().flat_map(|(from, to)| [from, to]).for_each(|rank| notices[rank.0 as usize][0] += 1);
        let mut found = [[0; 2]];
        self.reduce_scatter_block(&notices, &mut found, join_counts, made)?;
        let [[expected, without_room]] = found;
        let Some(rank) = without_room.checked_sub(1) else { return Ok(expected) };
        let proc = ProcId(self.communicator(made, "graph_create")?.proc(rank).unwrap_or(NIL));
        let reason = "too few rows are free for its edges: complete some requests there, or raise its limit `cars_max`";
        Err(self.raise_comm(made, "graph_create", CommError::Refused { proc, reason: reason.to_owned() }).into())
    }

    /// Sends the notices of this rank, and receives those of the others: the sources and destinations of this rank.
    fn exchange_notices(
        &mut self,
        made: Comm,
        notices: Notices,
        expected: u32,
    ) -> Result<(Vec<Rank>, Vec<Rank>), Error> {
        let Notices { sends, mut receive } = notices;
        let (own, mut sources, mut destinations) = (self.comm_rank(made)?, Vec::new(), Vec::new());
        // Also after a failure: others wait for their notices.
        let started = sends.iter().map(|send| self.start(send)).fold(Ok(()), Result::and);
        for _ in 0..expected {
            self.start(&receive)?;
            if let Err(error) = self.wait(&receive) {
                let _ = self.cancel(&receive);
                return Err(error.into());
            }
            let [from, to, to_sender] = **self.buffer(&mut receive)?;
            match to_sender {
                1 if from == own.0 => destinations.push(Rank(to)),
                _ => sources.push(Rank(from)),
            }
        }
        started?;
        self.wait_all(&sends)?;
        Ok((sources, destinations))
    }

    /// Sets the topology of a communicator, in place of the one that it may have. Local; all members must do the same.
    ///
    /// # Errors
    /// The topology does not fit, or there is no such communicator.
    pub fn comm_set_topology(&mut self, comm: Comm, topology: Topology) -> Result<(), CommError> {
        if let Err(error) = topology.check(self.comm_rank(comm)?, self.comm_size(comm)?) {
            return Err(self.raise_comm(comm, "comm_set_topology", error.into()));
        }
        self.forget_topology(comm);
        self.comms.topologies.push((comm, topology));
        Ok(())
    }

    /// The topology of a communicator, if it has one (`MPI_Topo_test`).
    pub fn comm_topology(&self, comm: Comm) -> Option<&Topology> {
        let found = self.comms.topologies.iter().find(|(of, _)| *of == comm);
        found.map(|(_, topology)| topology)
    }

    /// Removes a communicator's topology. First removes the graphs that were drawn from it: at once, or as soon as they have ended.
    pub(super) fn forget_topology(&mut self, comm: Comm) {
        self.store.with(|rows, _| {
            for graph in rows.progress.graphs.list.iter_mut().flatten().filter(|graph| graph.comm == comm) {
                if graph.request != NIL {
                    graph.key = None;
                }
            }
            forget(rows, |graph| graph.comm == comm);
        });
        self.comms.topologies.retain(|(of, _)| *of != comm);
    }
}

/// Joins what two members know: numbers of notices, and one more than the last rank that has no room for its own.
fn join_counts([count, rank]: [u32; 2], [more, other]: [u32; 2]) -> [u32; 2] {
    [count.wrapping_add(more), rank.max(other)]
}
