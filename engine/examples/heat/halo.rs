//! The exchange of edges with the neighbours: posted before the inside is computed, finished after it.

use tickwire::{Engine, OperationError, Rank, Request, Tag};

use super::field::{Block, Grid};

/// The direction as the neighbour sees it.
const OPPOSITE: [u32; 4] = [1, 0, 3, 2];

/// One rank's side of the exchange. Buffers go to the engine and come back.
pub(crate) struct Halo {
    neighbours: [Option<u32>; 4],
    outgoing: [Vec<f64>; 4],
    incoming: [Vec<f64>; 4],
    sends: [Option<Request<Vec<f64>>>; 4],
    receives: [Option<Request<Vec<f64>>>; 4],
}

impl Halo {
    pub(crate) fn new(grid: &Grid, rank: u32, block: &Block) -> Self {
        let place = block.place();
        let buffers = [place.width, place.width, place.height, place.height].map(|cells| vec![0.0; cells]);
        Halo {
            neighbours: grid.neighbours(rank),
            outgoing: buffers.clone(),
            incoming: buffers,
            sends: [const { None }; 4],
            receives: [const { None }; 4],
        }
    }

    /// Posts the receives, and sends the own edges as they are now.
    pub(crate) fn start(&mut self, engine: &mut Engine, block: &Block) -> Result<(), OperationError> {
        let world = engine.comm_world();
        for (direction, theirs) in OPPOSITE.into_iter().enumerate() {
            let Some(neighbour) = self.neighbours[direction] else { continue };
            let buffer = std::mem::take(&mut self.incoming[direction]);
            let tag = Tag(theirs);
            self.receives[direction] = Some(engine.irecv(buffer, Rank(neighbour), tag, world)?);
        }
        for direction in 0..4 {
            let Some(neighbour) = self.neighbours[direction] else { continue };
            let mut buffer = std::mem::take(&mut self.outgoing[direction]);
            buffer.clear();
            buffer.extend(block.edge(direction));
            self.sends[direction] = Some(engine.isend(buffer, Rank(neighbour), Tag(direction as u32), world)?);
        }
        Ok(())
    }

    /// Waits for the neighbours' edges and puts them around the block.
    pub(crate) fn finish(&mut self, engine: &mut Engine, block: &mut Block) -> Result<(), OperationError> {
        engine.wait_all(&self.receives)?;
        for direction in 0..4 {
            let Some(request) = self.receives[direction].take() else { continue };
            let (buffer, status) = engine.take(request)?;
            assert_eq!(status.count::<f64>(), Ok(buffer.len()), "an edge has as many cells on both sides");
            block.set_halo(direction, buffer.iter().copied());
            self.incoming[direction] = buffer;
        }
        engine.wait_all(&self.sends)?;
        for direction in 0..4 {
            if let Some(request) = self.sends[direction].take() {
                (self.outgoing[direction], _) = engine.take(request)?;
            }
        }
        Ok(())
    }
}
