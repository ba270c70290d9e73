//! Operations of all ranks, drawn as graphs of messages: collective operations, and rings of blocks.

use crate::ends::{Open, counted};
use std::ops::Range;
use tickwire::{Comm, Engine, Pieces, PostError, Posted, Rank, Tag, bytemuck, op};
use tickwire_tests::cases::content;

/// An operation that every rank takes part in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Joint {
    Barrier,
    Bcast,
    Allreduce,
    Allgather,
    Alltoall,
    ReduceScatter,
    Scan,
    Allgatherv,
    Alltoallv,
    /// A persistent sum. It is made once and then started again.
    Persistent,
    /// A block goes from the root around the ring and back to the root. The other ranks pass it on in one of three
    /// ways.
    Forward,
    ReceiveForward,
    CombineForward,
}

impl Joint {
    /// All operations.
    pub(crate) const ALL: [Joint; 13] = [
        Joint::Barrier,
        Joint::Bcast,
        Joint::Allreduce,
        Joint::Allgather,
        Joint::Alltoall,
        Joint::ReduceScatter,
        Joint::Scan,
        Joint::Allgatherv,
        Joint::Alltoallv,
        Joint::Persistent,
        Joint::Forward,
        Joint::ReceiveForward,
        Joint::CombineForward,
    ];

    /// The name in a log.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Joint::Barrier => "barrier",
            Joint::Bcast => "bcast",
            Joint::Allreduce => "allreduce",
            Joint::Allgather => "allgather",
            Joint::Alltoall => "alltoall",
            Joint::ReduceScatter => "reduce_scatter_block",
            Joint::Scan => "scan",
            Joint::Allgatherv => "allgatherv",
            Joint::Alltoallv => "alltoallv",
            Joint::Persistent => "allreduce_init",
            Joint::Forward => "forward",
            Joint::ReceiveForward => "recv_forward",
            Joint::CombineForward => "recv_op_forward",
        }
    }
}

/// A rank's part in a call.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Site {
    /// The call's number.
    pub(crate) call: usize,
    /// The rank.
    pub(crate) rank: usize,
    /// How many ranks there are.
    pub(crate) ranks: usize,
    /// The root, in operations that have one.
    pub(crate) root: usize,
    /// The communicator. It is the same on all ranks.
    pub(crate) comm: Comm,
}

/// An open part of an operation, or the error if it could not begin.
type Begun = Result<Open, PostError>;

/// A function that is neither commutative nor associative. Its result shows which operands have met, and in which
/// order.
fn mix(left: u64, right: u64) -> u64 {
    left.rotate_left(7).wrapping_mul(31) ^ right.wrapping_add(left)
}

/// The elements of a rank for a call.
pub(crate) fn own(site: Site, count: usize) -> Vec<u64> {
    bytemuck::pod_collect_to_vec(&content((site.call as u64) << 8 | site.rank as u64, count * size_of::<u64>()))
}

/// One place for each rank, one behind the other. The length of a place follows from the number, and some places are
/// empty.
fn uneven(part: usize, site: Site, number: impl Fn(usize) -> usize) -> Vec<Range<usize>> {
    let mut end = 0;
    let place = |rank| {
        let first = end;
        end += part * ((number(rank) + site.call) % 3);
        first..end
    };
    (0..site.ranks).map(place).collect()
}

/// An open part of an operation, or the error if it could not begin.
fn begun<B: Pieces + 'static>(of: Joint, site: Site, posted: Posted<B>, bytes: fn(&B) -> Vec<u8>) -> Begun {
    let token = posted.map_err(|rejected| rejected.error)?;
    Ok(counted(of.name(), (site.call, site.rank), token, bytes).by_all())
}

/// Begins a rank's part of an operation. Each rank has at most `length` bytes.
pub(crate) fn post(engine: &mut Engine, of: Joint, site: Site, length: usize) -> Vec<Begun> {
    fn second(both: &(Vec<u64>, Vec<u64>)) -> Vec<u8> {
        bytemuck::cast_slice(&both.1).to_vec()
    }
    let (world, count, root) = (site.comm, length / size_of::<u64>(), Rank(site.root as u32));
    // The elements of all ranks together are no more than `count`.
    let part = count / site.ranks;
    let (all, mixed) = (part * site.ranks, site.call.is_multiple_of(2));
    let one = match of {
        Joint::Barrier => begun(of, site, engine.ibarrier(world), |_| Vec::new()),
        Joint::Bcast => {
            let bytes = if site.rank == site.root { content(site.call as u64, length) } else { vec![0; length] };
            begun(of, site, engine.ibcast(bytes, root, world), Vec::clone)
        }
        Joint::Allreduce if mixed => {
            begun(of, site, engine.iallreduce(own(site, count), vec![0; count], mix, world), second)
        }
        Joint::Allreduce => {
            begun(of, site, engine.iallreduce(own(site, count), vec![0; count], op::Sum, world), second)
        }
        Joint::Allgather => begun(of, site, engine.iallgather(own(site, part), vec![0; all], world), second),
        Joint::Alltoall => begun(of, site, engine.ialltoall(own(site, all), vec![0; all], world), second),
        Joint::ReduceScatter => {
            let posted = match mixed {
                true => engine.ireduce_scatter_block(own(site, all), vec![0; part], mix, world),
                false => engine.ireduce_scatter_block(own(site, all), vec![0; part], op::Sum, world),
            };
            begun(of, site, posted, second)
        }
        Joint::Scan => begun(of, site, engine.iscan(own(site, count), vec![0; count], mix, world), second),
        Joint::Allgatherv => {
            let places = uneven(part, site, |of| of);
            let (mine, end) = (places[site.rank].len(), places.last().map_or(0, |last| last.end));
            begun(of, site, engine.iallgatherv(own(site, mine), vec![0; end], &places, world), second)
        }
        Joint::Alltoallv => {
            // Sender and receiver must agree on a length, so it follows from the sum of both rank numbers.
            let places = uneven(part, site, |of| of + site.rank);
            let end = places.last().map_or(0, |last| last.end);
            begun(of, site, engine.ialltoallv(own(site, end), &places, vec![0; end], &places, world), second)
        }
        Joint::Persistent => return Vec::new(),
        Joint::Forward | Joint::ReceiveForward | Joint::CombineForward => return ring(engine, of, site, count, world),
    };
    vec![one]
}

/// A rank's part of a ring.
fn ring(engine: &mut Engine, of: Joint, site: Site, count: usize, world: Comm) -> Vec<Begun> {
    fn last(buffers: &((), Vec<u64>)) -> Vec<u8> {
        bytemuck::cast_slice(&buffers.1).to_vec()
    }
    let Site { call, rank, ranks, root, .. } = site;
    let (before, behind) = (Rank(((rank + ranks - 1) % ranks) as u32), Rank(((rank + 1) % ranks) as u32));
    let (tag, elements) = (Tag(call as u32), own(site, count));
    if rank == root {
        let first = engine.gather_block(behind, tag, world).send(elements).start();
        let back = engine.scatter_block(before, tag, world).recv(vec![0u64; count]).start();
        return vec![begun(of, site, first, |_| Vec::new()), begun(of, site, back, last)];
    }
    let block = engine.scatter_block(before, tag, world);
    vec![match of {
        Joint::Forward => begun(of, site, block.forward(count * size_of::<u64>(), behind).start(), |_| Vec::new()),
        Joint::CombineForward => begun(of, site, block.recv_op_forward(elements, mix, behind).start(), last),
        _ => begun(of, site, block.recv_forward(vec![0u64; count], behind).start(), last),
    }]
}
