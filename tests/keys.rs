//! Uses keys with any content, as a message might bring them, on exposed memory. They must reach no bytes but those that
//! are exposed for it. The fuzz target `keys` calls this, and so do tests that need no fuzzer.
//!
//! The input is a list of rounds. A round makes a key and an offset, and uses them for a put, a get and a
//! compare-and-swap. Each field of a key is that of a true key, or close to it, or arbitrary.

use crate::input::Input;
use std::time::Duration;
use tickwire::internals::components::bytemuck;
use tickwire::internals::components::limits::LOOPBACK_RING_BYTES;
use tickwire::testing::Board;
use tickwire::transport::Hub;
use tickwire::{AtomicsDomain, Engine, ProcId, Rank, RegionAccess, RegionKey, Tag};

/// Length of a region, bytes.
const NAMED: usize = 512;
/// Offsets that are tried often, bytes.
const OFFSETS: [usize; 8] = [0, 8, 500, NAMED - 8, NAMED - 1, NAMED, 1 << 40, usize::MAX - 3];
/// The value of each byte of a region that may only be read.
const READABLE: u8 = 3;

/// How much an input did on a rank.
#[derive(Clone, Copy, Default, Debug)]
pub struct Used {
    /// Rounds.
    pub rounds: u32,
    /// Puts that were done.
    pub written: u32,
    /// Compare-and-swaps that were done.
    pub swapped: u32,
}

/// The fuzz target: runs an input on two ranks, half of it on each. The first byte says whether the ranks reach each
/// other's memory by loads and stores, or by the owner's engine.
///
/// # Panics
/// If a key did something else than it may.
pub fn keys(data: &[u8]) {
    let mut input = Input(data);
    let hub = Hub::new(2, LOOPBACK_RING_BYTES);
    let hub = if input.byte() & 1 == 0 { hub } else { hub.apart() };
    let (board, (first, second)) = (Board::new(2), input.0.split_at(input.0.len() / 2));
    std::thread::scope(|threads| {
        for (rank, half) in [(0, first), (1, second)] {
            let (board, hub) = (&board, hub.clone());
            threads.spawn(move || {
                let builder = Engine::builder().include(["loopback"]).hub(hub);
                let mut engine = builder.build(board.bootstrap(rank)).unwrap();
                use_any_keys(&mut engine, false, &mut Input(half));
                let _ = engine.finalize(Duration::from_secs(20));
            });
        }
    });
}

/// Runs an input on one of two ranks. Both ranks call this. With `by_fabric`, a fabric does puts and gets.
///
/// # Panics
/// If a key did something else than it may.
pub fn use_any_keys(engine: &mut Engine, by_fabric: bool, input: &mut Input<'_>) -> Used {
    let world = engine.comm_world();
    let own = engine.rank();
    let (me, other) = (own.0 as usize, Rank(1 - own.0));
    // This region is exposed first, so that its number is one less than that of the other region. The keys try this
    // number too.
    let for_reading = engine.expose(vec![READABLE; NAMED], RegionAccess::READ).unwrap();
    let region = engine.expose(vec![0u64; NAMED / size_of::<u64>()], RegionAccess::ALL).unwrap();
    let mut truths = [region.key(); 2];
    engine.allgather(&[region.key()], &mut truths, world).unwrap();
    let may_be = [vec![ONLY_ZERO; NAMED], vec![ONLY_ZERO; NAMED]];
    let mut player = Player { engine, truths, me, by_fabric, may_be, used: Used::default() };
    player.round(truths[1 - me], 8);
    // A false key may end the connection for both ranks.
    player.engine.barrier(world).unwrap();
    while !input.0.is_empty() {
        let (key, offset) = (any_key(&truths, me, input), any_offset(input));
        player.round(key, offset);
    }
    let Player { engine, may_be, used, .. } = player;
    engine.barrier(world).unwrap();
    let buffer = engine.withdraw(region).unwrap();
    assert_eq!(engine.withdraw(for_reading).unwrap(), [READABLE; NAMED]);
    let (to_other, mut by_other) = (may_be[1 - me].concat(), vec![0u64; NAMED * size_of::<Values>() / 8]);
    engine.sendrecv(&to_other[..], other, Tag(1), &mut by_other[..], other, Tag(1), world).unwrap();
    let (mine, by_other) = (&may_be[me], by_other.as_chunks::<4>().0);
    for (at, &found) in bytemuck::cast_slice::<u64, u8>(&buffer).iter().enumerate() {
        let (one, another) = (has(&mine[at], found), has(&by_other[at], found));
        // A byte is still 0 only if neither rank has surely written it.
        let is_explained = if found == 0 { one && another } else { one || another };
        assert!(is_explained, "rank {me}: byte {at} is {found} at last");
    }
    used
}

/// A set of values of a byte: one bit each.
type Values = [u64; 4];

const ONLY_ZERO: Values = [1, 0, 0, 0];

fn has(values: &Values, value: u8) -> bool {
    values[usize::from(value) / 64] & 1 << (value % 64) != 0
}

/// A rank that uses keys.
struct Player<'e> {
    engine: &'e mut Engine,
    /// By rank: the true key of its region.
    truths: [RegionKey; 2],
    me: usize,
    /// Whether a fabric does puts and gets.
    by_fabric: bool,
    /// By rank, for each byte of its region: what it may be at last, if only this rank writes.
    may_be: [Vec<Values>; 2],
    used: Used,
}

/// The bytes that a key and an offset name.
struct Place {
    /// The rank that owns them.
    owner: usize,
    /// Whether they are in the region that may only be read.
    is_for_reading: bool,
    /// The first of them.
    at: usize,
}

impl Player<'_> {
    /// Puts, gets and swaps with a key.
    fn round(&mut self, key: RegionKey, offset: usize) {
        let round = self.used.rounds;
        self.used.rounds += 1;
        // A fabric may refuse true keys too after a false one, since some end the connection then.
        let may_refuse = self.by_fabric && round > 0;
        let what = format!("by fabric {}, round {round} of rank {}: {key:?} at {offset}", self.by_fabric, self.me);
        let value = round as u8 | 1;
        let put = self.engine.region_put(&[value; 8], &key, offset);
        let done = put.and_then(|()| self.engine.region_flush(ProcId(key.proc)));
        let place = self.place_of(&key, offset, 8, RegionAccess::WRITE);
        assert!(done.is_ok() == place.is_some() || may_refuse && done.is_err(), "{what}: put, {done:?}");
        if let Some(Place { owner, at, .. }) = place {
            for values in &mut self.may_be[owner][at..at + 8] {
                if done.is_ok() {
                    *values = [0; 4];
                }
                values[usize::from(value) / 64] |= 1 << (value % 64);
            }
            self.used.written += u32::from(done.is_ok());
        }
        let mut bytes = [2u8; 8];
        let got = self.engine.region_get(&mut bytes, &key, offset);
        let place = self.place_of(&key, offset, 8, RegionAccess::READ);
        if !self.by_fabric {
            assert_eq!(got.is_ok(), place.is_some(), "{what}: get, {got:?}");
            // What is put is odd.
            let may_hold = |byte: &u8| match &place {
                Some(place) if place.is_for_reading => *byte == READABLE,
                Some(_) => *byte == 0 || byte % 2 == 1,
                None => *byte == 2,
            };
            assert!(bytes.iter().all(may_hold), "{what}: {bytes:?} were got");
        }
        // This can only replace 0 by 0.
        let swapped = self.engine.region_compare_and_swap(0u8, 0u8, &key, offset);
        let may_swap = self.place_for_swap(&key, offset);
        let is_right = swapped.is_ok() == may_swap || may_refuse && swapped.is_err();
        assert!(is_right, "{what}: swap, {swapped:?}");
        self.used.swapped += u32::from(swapped.is_ok());
    }

    /// The bytes that a put or a get with this key may use, if it may use any.
    fn place_of(&self, key: &RegionKey, offset: usize, bytes: usize, access: RegionAccess) -> Option<Place> {
        let end = offset.checked_add(bytes)?;
        let owner = key.proc as usize;
        if owner >= 2 || !key.access().covers(access) || end as u64 > key.bytes {
            return None;
        }
        let truth = &self.truths[owner];
        let (said, true_one) = (Fabric::of(key), Fabric::of(truth));
        let by_fabric = self.by_fabric && owner != self.me && said.name == true_one.name;
        if by_fabric && said.base.checked_add(key.bytes).is_some() {
            // A fabric knows the memory by its own key, and has no numbers.
            let at = usize::try_from(said.base.wrapping_sub(true_one.base).wrapping_add(offset as u64)).ok()?;
            let is_named = said.key == true_one.key && at.checked_add(bytes)? <= NAMED;
            return is_named.then_some(Place { owner, is_for_reading: false, at });
        }
        let is_for_reading = key.number == truth.number - 1;
        let is_named = key.number == truth.number || is_for_reading && access == RegionAccess::READ;
        (is_named && end <= NAMED).then_some(Place { owner, is_for_reading, at: offset })
    }

    /// Whether a swap of a byte may succeed. The owner's engine does it, or the own one.
    fn place_for_swap(&self, key: &RegionKey, offset: usize) -> bool {
        let is_named = self.truths.get(key.proc as usize).is_some_and(|truth| truth.number == key.number);
        let is_within = offset < NAMED && (offset as u64) < key.bytes;
        is_named && is_within && key.access().covers(RegionAccess::UPDATE) && key.domain() == AtomicsDomain::Engine
    }
}

/// What a key says about the fabric that does puts and gets.
struct Fabric {
    /// The name of the memory.
    key: u64,
    /// The address of the first byte.
    base: u64,
    /// A hash of the fabric's name.
    name: u64,
}

impl Fabric {
    fn of(key: &RegionKey) -> Self {
        let words: [u64; 8] = bytemuck::cast(*key);
        Fabric { key: words[1], base: words[2], name: words[6] >> 32 }
    }
}

/// A key with any content.
fn any_key(truths: &[RegionKey; 2], me: usize, input: &mut Input<'_>) -> RegionKey {
    let truth = &truths[1 - me];
    let words: [u64; 8] = bytemuck::cast(*truth);
    let Fabric { key, base, name } = Fabric::of(truth);
    let (number, most) = (u64::from(truth.number), u64::from(u32::MAX));
    let mut any = |truth, near: &[u64]| any_word(truth, near, input);
    let bytes = any(truth.bytes, &[0, 8, 1 << 40, u64::MAX]);
    let proc = any(truth.proc.into(), &[me as u64, 2, most]);
    let number = any(number, &[number - 1, number + 1, (1 << 24) - 1, most]);
    let access = any(words[6] & most, &[0, 1, 2, 4, most]);
    let key = any(key, &[key ^ 1, key.wrapping_add(1), u64::MAX]);
    let base = any(base, &[base.wrapping_add(8), base.wrapping_sub(8), base.wrapping_add(NAMED as u64), 0, u64::MAX]);
    let mover = any(name, &[0, most]);
    let updates = [any(words[3], &[key]), any(words[4], &[base])];
    // No fabric does updates, so the true name is 0.
    let (updater, rest) = (any(0, &[name, 1, most]), any(0, &[most]));
    let low = |word: u64| word & most;
    let places = low(proc) | number << 32;
    bytemuck::cast([
        bytes,
        key,
        base,
        updates[0],
        updates[1],
        places,
        low(access) | mover << 32,
        low(updater) | rest << 32,
    ])
}

/// The true word, or one near it, or one with another bit, or any word.
fn any_word(truth: u64, near: &[u64], input: &mut Input<'_>) -> u64 {
    match input.byte() {
        0..=175 => truth,
        choice @ 176..=239 => near[usize::from(choice) % near.len()],
        240..=247 => truth ^ 1 << (input.byte() % 64),
        _ => input.word(),
    }
}

fn any_offset(input: &mut Input<'_>) -> usize {
    match input.byte() {
        choice @ 0..=191 => OFFSETS[usize::from(choice) % OFFSETS.len()],
        192..=223 => (input.word() % (2 * NAMED as u64)) as usize,
        _ => input.word() as usize,
    }
}
