//! Two ranks in threads, with several transports between them.

use crate::kit::{Calls, Gate, gate};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::{Duration, Instant};
use tickwire::internals::transports::Hub;
use tickwire::testing::Board;
use tickwire::{Builder, Comm, Engine, ProcId, Rank, RegionKey, Tag, TrafficClass, WindowReach, bytemuck};

/// Longer than any wait on a loaded machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// Bytes of a ring.
pub(crate) const RING_BYTES: usize = 64 << 10;

/// Runs `part` for each of two ranks, in threads. Besides the transports of the builder there is "upper", and messages
/// go over it. The part gets the number of message frames that "upper" has sent.
pub(crate) fn pair(
    change: impl Fn(Builder) -> Builder + Sync,
    part: impl Fn(&mut Engine, u32, Comm, &AtomicU64) + Sync,
) {
    let (board, hub) = (Board::new(2), Hub::new(2, RING_BYTES));
    std::thread::scope(|threads| {
        for rank in 0..2 {
            let (board, part, change, hub) = (&board, &part, &change, hub.clone());
            threads.spawn(move || {
                let sent = Arc::<AtomicU64>::default();
                let upper: Gate = gate("upper", &hub, rank, 200, Calls::Open, sent.clone());
                let builder = change(Engine::builder().transport(upper));
                let mut engine = builder.build(board.bootstrap(rank)).unwrap();
                let world = engine.comm_world();
                part(&mut engine, rank, world, &sent);
                engine.finalize(Duration::from_secs(20)).unwrap();
            });
        }
    });
}

/// The transport of a class of traffic to the other rank.
pub(crate) fn chosen(engine: &mut Engine, rank: u32, class: TrafficClass) -> String {
    let routes = engine.routes(ProcId(1 - rank), class);
    let mut chosen = routes.into_iter().filter(|route| route.chosen);
    let name = chosen.next().unwrap().transport;
    assert!(chosen.next().is_none());
    name
}

pub(crate) fn all_chosen(engine: &mut Engine, rank: u32) -> [String; 3] {
    TrafficClass::ALL.map(|class| chosen(engine, rank, class))
}

/// The words of a dump about the routes to the other rank. Checks first that the dump agrees with [`Engine::routes`].
pub(crate) fn dumped(engine: &mut Engine, rank: u32) -> String {
    let dump = engine.dump();
    let mut peer = dump.peers.into_iter().find(|peer| peer.proc == 1 - rank).unwrap();
    let routes: Vec<_> = peer.routes.iter().map(|route| (&*route.class, route.transport.clone().unwrap())).collect();
    let names = TrafficClass::ALL.map(|class| class.name());
    assert!(routes.into_iter().eq(names.into_iter().zip(all_chosen(engine, rank))), "{peer}");
    peer.credit = None;
    peer.to_string()
}

/// Both ranks exchange a short message.
pub(crate) fn greet(engine: &mut Engine, rank: u32, world: Comm) {
    let other = Rank(1 - rank);
    let sent = engine.isend(vec![rank; 3], other, Tag(1), world).unwrap();
    let mut got = [0; 3];
    engine.recv(&mut got, other, Tag(1), world).unwrap();
    engine.wait(&sent).unwrap();
    assert_eq!(got, [other.0; 3]);
}

/// Exchanges the keys of regions with the other rank.
pub(crate) fn swap_keys(engine: &mut Engine, rank: u32, world: Comm, own: RegionKey) -> RegionKey {
    let mut theirs = [own];
    let sent = engine.isend(bytemuck::bytes_of(&own).to_vec(), Rank(1 - rank), Tag(2), world).unwrap();
    engine.recv(bytemuck::cast_slice_mut::<_, u8>(&mut theirs), Rank(1 - rank), Tag(2), world).unwrap();
    engine.wait(&sent).unwrap();
    theirs[0]
}

/// Puts 1 into the second word of a region, and waits until such puts go by the kernel: the list of regions comes over
/// another link.
pub(crate) fn put_by_kernel(engine: &mut Engine, key: &RegionKey) {
    engine.region_put(&[1u64], key, 8).unwrap();
    engine.region_flush_all().unwrap();
    let since = Instant::now();
    while engine.region_reach(key) != Ok(WindowReach::Kernel) {
        assert!(since.elapsed() < PATIENCE, "the list has not come");
        engine.tick();
    }
}
