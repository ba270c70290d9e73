//! Counters in windows and in exposed memory, which all ranks count up while others are in the middle of the same.

use tickwire::testing::SplitMix;
use tickwire::{Comm, Engine, LockKind, Rank, RegionAccess, RegionKey, bytemuck, op};

/// Most updates by a rank.
const UPDATES: u64 = 40;
/// The elements of each rank's part of the window: one for updates, and one that who holds the lock alone reads and writes.
const UPDATED: usize = 0;
const LOCKED: usize = 1;

/// Plays a rank.
///
/// # Panics
/// If a call fails, or a count is wrong.
pub(crate) fn play(engine: &mut Engine, ranks: u32, seed: u64) {
    let (me, world) = (engine.rank().0 as usize, Comm::WORLD);
    let mut random = SplitMix::new(seed ^ (me as u64) << 32);
    let window = engine.win_allocate::<u64>(2, world).expect("a window");
    let region = engine.expose(vec![0u64], RegionAccess::ALL).expect("there is room");
    let mut keys = vec![region.key(); ranks as usize];
    let own = [region.key()];
    let bytes = bytemuck::cast_slice_mut::<RegionKey, u8>(&mut keys);
    engine.allgather(bytemuck::cast_slice::<RegionKey, u8>(&own), bytes, world).expect("keys");
    // How often this rank has counted up each of the three counters of each rank.
    let mut counted = vec![[0u64; 3]; ranks as usize];
    for _ in 0..random.below(UPDATES) {
        let to = random.below(ranks.into()) as usize;
        let target = Rank(to as u32);
        let which = random.below(4);
        if which == 3 {
            engine.region_fetch_and_op(1u64, op::Sum, &keys[to], 0).expect("an update");
            counted[to][2] += 1;
            continue;
        }
        let kind = if which == 2 { LockKind::Exclusive } else { LockKind::Shared };
        engine.win_lock(kind, target, window).expect("a lock");
        match which {
            0 => engine.accumulate(&[1u64], op::Sum, target, UPDATED, window).expect("an update"),
            1 => drop(engine.fetch_and_op(1u64, op::Sum, target, UPDATED, window).expect("an update")),
            _ => {
                let mut count = [0u64];
                engine.get(&mut count, target, LOCKED, window).expect("a read");
                engine.put(&[count[0] + 1], target, LOCKED, window).expect("a write");
            }
        }
        engine.win_unlock(target, window).expect("it is held");
        counted[to][usize::from(which == 2)] += 1;
    }
    engine.region_flush_all().expect("all is done");
    let own: Vec<u64> = counted.into_iter().flatten().collect();
    let mut sums = vec![0u64; own.len()];
    // Afterwards all updates are done.
    engine.allreduce(&own, &mut sums, op::Sum, world).expect("sums");
    let mut found = [0u64; 2];
    engine.win_lock(LockKind::Exclusive, Rank(me as u32), window).expect("the own lock");
    engine.get(&mut found, Rank(me as u32), 0, window).expect("the own part");
    engine.win_unlock(Rank(me as u32), window).expect("it is held");
    engine.win_free(window).expect("all free it");
    let exposed = engine.withdraw(region).expect("it is exposed");
    assert_eq!([found[UPDATED], found[LOCKED], exposed[0]], sums[3 * me..][..3], "rank {me}");
}
