//! Puts and gets of exposed memory with random datatypes on both sides, compared with a serial copy. Each region has one
//! origin, which knows at any time what the region holds.

use crate::storm::Random;
use std::ops::DerefMut;
use tickwire::{
    Comm, Datatype, Engine, LeasedBytes, ProcId, Rank, RegionAccess, RegionKey, Sequence, Tag, Typed, WindowError,
};

/// Bytes of a region, and of a buffer at an origin.
const BYTES: usize = 1_200_000;
/// Most blocks of a layout. They take several calls of the kernel.
const BLOCKS_MAX: u64 = 3_000;
/// Lengths that the blocks of a layout may have at most. The last one takes several turns with the lock of exposed memory.
const LENGTHS: [u64; 4] = [4, 64, 900, 400_000];

/// Blocks of bytes, and the datatype that says where they are.
struct Layout {
    /// Where displacement 0 of the datatype is.
    origin: usize,
    of: Datatype,
    count: usize,
    /// The position and length of each block, in the order of the message.
    blocks: Vec<(usize, usize)>,
}

impl Layout {
    fn bytes(&self) -> usize {
        self.blocks.iter().map(|(_, length)| length).sum()
    }

    /// The places of the bytes of the message.
    fn places(&self) -> impl Iterator<Item = usize> {
        self.blocks.iter().flat_map(|&(at, length)| at..at + length)
    }

    /// A layout in which no byte is twice.
    fn apart(random: &mut Random) -> Self {
        let longest = LENGTHS[random.below(LENGTHS.len() as u64) as usize];
        let most = BLOCKS_MAX.min(BYTES as u64 / 2 / longest);
        let count = random.below(most + 1) as usize;
        if random.below(2) == 0 {
            Self::strided(random, longest, count)
        } else {
            Self::scattered(random, longest, count)
        }
    }

    /// Blocks of one length at one distance, upwards or downwards.
    fn strided(random: &mut Random, longest: u64, count: usize) -> Self {
        let block = random.below(longest + 1) as usize;
        let stride = block + random.below(longest + 1) as usize;
        let first = random.below((BYTES - stride * count) as u64 + 1) as usize;
        let is_downwards = random.below(2) == 0;
        let (origin, step) = match is_downwards {
            true => (first + stride * count.saturating_sub(1), -(stride as isize)),
            false => (first, stride as isize),
        };
        let blocks = (0..count as isize).map(|at| (origin.wrapping_add_signed(at * step), block)).collect();
        let byte = Datatype::of::<u8>();
        // The distance is that within the datatype, or that from one element to the next.
        let (of, count) = match random.below(2) {
            0 => (Datatype::hvector(count, block, step, &byte).unwrap(), 1),
            _ => (Datatype::contiguous(block, &byte).unwrap().resized(0, step).unwrap(), count),
        };
        Layout { origin, of, count, blocks }
    }

    /// Blocks of any length, in any order.
    fn scattered(random: &mut Random, longest: u64, count: usize) -> Self {
        let mut at = 0;
        let mut block = || {
            let (gap, length) = (random.below(longest + 1) as usize, random.below(longest + 1) as usize);
            at += gap + length;
            (at - length, length)
        };
        let mut blocks: Vec<_> = (0..count).map(|_| block()).collect();
        for last in (1..count).rev() {
            blocks.swap(last, random.below(last as u64 + 1) as usize);
        }
        Self::of_blocks(random, blocks)
    }

    /// Blocks of so many bytes in all. A byte may be in several of them.
    fn any(random: &mut Random, bytes: usize) -> Self {
        let longest = LENGTHS[random.below(LENGTHS.len() as u64) as usize].max(bytes as u64 / BLOCKS_MAX + 1);
        let (mut blocks, mut left) = (Vec::new(), bytes);
        while left > 0 {
            let length = left.min(random.below(2 * longest + 1) as usize);
            blocks.push((random.below((BYTES - length) as u64 + 1) as usize, length));
            left -= length;
        }
        Self::of_blocks(random, blocks)
    }

    fn of_blocks(random: &mut Random, blocks: Vec<(usize, usize)>) -> Self {
        let origin = random.below(BYTES as u64) as usize;
        let placed: Vec<_> = blocks.iter().map(|&(at, length)| (length, at as isize - origin as isize)).collect();
        let of = Datatype::hindexed(&placed, &Datatype::of::<u8>()).unwrap();
        Layout { origin, of, count: 1, blocks }
    }

    /// A buffer with this layout.
    fn over(&self, buffer: Vec<u8>) -> Typed<Vec<u8>> {
        Typed::at(buffer, self.origin, &self.of, self.count).unwrap()
    }

    /// The datatype at the target.
    fn target(&self) -> (&Datatype, usize) {
        (&self.of, self.count)
    }
}

/// Copies the bytes of a message one by one.
fn copy((from, source): (&[u8], &Layout), (into, target): (&mut [u8], &Layout)) {
    source.places().zip(target.places()).for_each(|(source, target)| into[target] = from[source]);
}

/// Bytes that differ by place and by call.
fn content(random: &mut Random) -> Vec<u8> {
    let salt = random.below(1 << 32) as u32;
    (0..BYTES as u32).map(|at| (at ^ salt).wrapping_mul(0x9E37_79B9).to_be_bytes()[0]).collect()
}

/// Each rank puts to a region of its own and to one of the next rank, and gets from them.
///
/// # Panics
/// If a buffer or a region holds something else than after a serial copy.
///
/// # Errors
/// The errors of one-sided operations.
pub fn play(engine: &mut Engine, world: Comm, seed: u64, rounds: usize) -> Result<(), WindowError> {
    // The regions are in the shared heap, if there is one.
    match [(); 2].map(|()| engine.alloc_elements::<u8>(BYTES)) {
        [Ok(first), Ok(second)] => play_in(engine, world, (seed, rounds), [first, second]),
        _ => play_in(engine, world, (seed, rounds), [(); 2].map(|()| vec![0; BYTES])),
    }
}

fn play_in<B>(
    engine: &mut Engine,
    world: Comm,
    (seed, rounds): (u64, usize),
    buffers: [B; 2],
) -> Result<(), WindowError>
where
    B: Sequence + LeasedBytes + DerefMut<Target = [u8]> + Send + Sync + 'static,
{
    let (me, size) = (engine.rank(), engine.size());
    let (next, previous) = (Rank((me.0 + 1) % size), Rank((me.0 + size - 1) % size));
    let regions = buffers.map(|buffer| engine.expose(buffer, RegionAccess::ALL).unwrap());
    let mut keys = vec![regions[0].key(); 2 * size as usize];
    engine.allgather(&regions.each_ref().map(|region| region.key()), &mut keys, world)?;
    let keys = [keys[2 * me.0 as usize], keys[2 * next.0 as usize + 1]];
    let mut random = Random::new(seed << 8 | u64::from(me.0));
    let mut models = [(); 2].map(|()| vec![0; BYTES]);
    for round in 0..rounds {
        for (key, model) in keys.iter().zip(&mut models) {
            match random.below(2) {
                0 => put(engine, &mut random, key, model)?,
                _ => assert!(get(engine, &mut random, key, model)?, "seed {seed}, round {round}: a get from {key:?}"),
            }
        }
    }
    let [own, sent] = models;
    let mut received = vec![0; BYTES];
    engine.sendrecv(&sent, next, Tag(3), &mut received, previous, Tag(3), world)?;
    for (region, model) in regions.into_iter().zip([own, received]) {
        assert!(engine.withdraw(region)?[..] == model, "seed {seed}: a region of rank {me}");
    }
    Ok(())
}

fn put(engine: &mut Engine, random: &mut Random, key: &RegionKey, model: &mut [u8]) -> Result<(), WindowError> {
    let target = Layout::apart(random);
    let (source, buffer) = (Layout::any(random, target.bytes()), content(random));
    copy((&buffer, &source), (model, &target));
    let from = source.over(buffer);
    if random.below(2) == 0 {
        engine.region_put_typed(&from, key, target.origin, target.target())?;
        return engine.region_flush(ProcId(key.proc));
    }
    let put = engine.region_rput_typed(from, key, target.origin, target.target())?;
    engine.wait_take(put).map_err(|failed| failed.error)?;
    Ok(())
}

/// Returns whether the buffer holds what it should.
fn get(engine: &mut Engine, random: &mut Random, key: &RegionKey, model: &[u8]) -> Result<bool, WindowError> {
    // Bytes may be twice at one of the two sides. In the buffer the later one stays.
    let (first, buffer) = (Layout::apart(random), content(random));
    let second = Layout::any(random, first.bytes());
    let (source, into) = if random.below(4) == 0 { (first, second) } else { (second, first) };
    let mut expected = buffer.clone();
    copy((model, &source), (&mut expected, &into));
    let mut typed = into.over(buffer);
    if random.below(2) == 0 {
        engine.region_get_typed(&mut typed, key, source.origin, source.target())?;
    } else {
        let got = engine.region_rget_typed(typed, key, source.origin, source.target())?;
        typed = engine.wait_take(got).map_err(|failed| failed.error)?.0;
    }
    Ok(typed.into_buffer() == expected)
}
