//! Keys of exposed memory with arbitrary content, as a message might bring them.

use crate::kit::{ALL, FABRICS, Over, each_rank};
use crate::regions::exposed;
use tickwire::internals::components::bytemuck;
use tickwire::testing::SplitMix;
use tickwire::{ProcId, Rank, RegionAccess, RegionKey, Tag};

/// Length of the region, bytes.
const NAMED: usize = 512;

/// Places that are tried, bytes.
const OFFSETS: [usize; 8] = [0, 8, 500, NAMED - 8, NAMED - 1, NAMED, 1 << 40, usize::MAX - 3];

/// What a key says about the fabric that does puts and gets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Fabric {
    /// The name of the memory.
    key: u64,
    /// The address of the first byte.
    base: u64,
    /// A hash of the fabric's name.
    name: u64,
}

fn fabric_of(key: &RegionKey) -> Fabric {
    let words: [u64; 8] = bytemuck::cast(*key);
    Fabric { key: words[1], base: words[2], name: words[6] >> 32 }
}

/// A key with arbitrary content. Each word is that of a true key, or close to it, or something else.
fn any_key(truth: &RegionKey, random: &mut SplitMix) -> RegionKey {
    let mut pick = |choices: &[u64]| choices[random.below(choices.len() as u64) as usize];
    let bytes = pick(&[truth.bytes, truth.bytes, 0, 8, 1 << 40, u64::MAX]);
    let proc = pick(&[truth.proc.into(), truth.proc.into(), truth.proc.into(), 2, u32::MAX.into()]) as u32;
    let number = u64::from(truth.number);
    let number = pick(&[number, number, number, number - 1, number + 1, (1 << 24) - 1, u32::MAX.into()]) as u32;
    let access = pick(&[7, 7, 0, 1, 2, 4, u32::MAX.into()]) as u32;
    let Fabric { key, base, name } = fabric_of(truth);
    let key = pick(&[key, key, key, key, key ^ 1, key.wrapping_add(1), u64::MAX]);
    let base = pick(&[base, base, base, base, base + 8, base.wrapping_sub(8), base + NAMED as u64, 0, u64::MAX]);
    let name = pick(&[name, name, name, 0, u32::MAX.into()]);
    let (place, access) = (u64::from(number) << 32 | u64::from(proc), name << 32 | u64::from(access));
    bytemuck::cast([bytes, key, base, random.next_u64(), random.next_u64(), place, access, random.next_u64()])
}

/// Where a put of eight bytes with this key may write, if it may at all.
fn place_of(key: &RegionKey, truth: &RegionKey, offset: usize, over: Over) -> Option<usize> {
    let end = offset.checked_add(8)?;
    if key.proc != truth.proc || !key.access().covers(RegionAccess::WRITE) || end as u64 > key.bytes {
        return None;
    }
    let (said, true_one) = (fabric_of(key), fabric_of(truth));
    let by_fabric = matches!(over, Over::Fabric(_)) && said.name == true_one.name;
    if by_fabric && said.base.checked_add(key.bytes).is_some() {
        // A fabric knows the memory by its own key, and has no numbers.
        let at = usize::try_from(said.base.wrapping_sub(true_one.base).wrapping_add(offset as u64)).ok()?;
        return (said.key == true_one.key && at.checked_add(8)? <= NAMED).then_some(at);
    }
    (key.number == truth.number && end <= NAMED).then_some(offset)
}

/// Uses many arbitrary keys on both of two ranks.
fn use_any_keys(over: Over, rounds: u32) {
    let by_fabric = matches!(over, Over::Fabric(_));
    each_rank(2, over, |engine, rank, world| {
        // This region is exposed first, so that its number is one less than that of the other region. The keys
        // try this number too.
        let for_reading = engine.expose(vec![3u8; NAMED], RegionAccess::READ).unwrap();
        let (region, keys) = exposed(engine, NAMED / size_of::<u64>(), RegionAccess::ALL, world);
        let truth = keys[1 - rank as usize];
        let mut random = SplitMix::new(u64::from(rank) + 1);
        // What each byte may be at last.
        let mut expected = vec![vec![0u8]; NAMED];
        let mut written = 0;
        for round in 0..rounds {
            let (mut key, mut offset) = (any_key(&truth, &mut random), OFFSETS[random.below(8) as usize]);
            if round == 0 {
                (key, offset) = (truth, 8);
            }
            let bytes = [round as u8 | 1; 8];
            let put = engine.region_put(&bytes, &key, offset);
            let done = put.and_then(|()| engine.region_flush(ProcId(key.proc)));
            let place = place_of(&key, &truth, offset, over);
            // A fabric may refuse true keys too after a false one, since some end the connection then.
            let may_refuse = by_fabric && round > 0 && done.is_err();
            assert!(may_refuse || done.is_ok() == place.is_some(), "{over:?}: {key:?} at {offset}: {done:?}");
            if let Some(place) = place {
                for byte in &mut expected[place..place + 8] {
                    byte.retain(|_| done.is_err());
                    byte.push(bytes[0]);
                }
                written += u32::from(done.is_ok());
            }
            // The other calls must not change the memory either. This swap can only replace 0 by 0.
            let _ = engine.region_get(&mut [0u8; 8], &key, offset);
            let swapped = engine.region_compare_and_swap(0u8, 0u8, &key, offset);
            let names_it = key.proc == truth.proc && key.number == truth.number;
            assert!(swapped.is_err() || names_it && offset < NAMED, "{over:?}: {key:?} at {offset}");
            if round == 0 {
                // A false key may end the connection for both ranks.
                engine.barrier(world).unwrap();
            }
        }
        assert!(by_fabric || written > rounds / 30, "{written} were true");
        engine.barrier(world).unwrap();
        let own = engine.withdraw(region).unwrap();
        assert_eq!(engine.withdraw(for_reading).unwrap(), [3; NAMED]);
        let (mut theirs, other) = (vec![0u64; own.len()], Rank(1 - rank));
        engine.sendrecv(&own[..], other, Tag(1), &mut theirs[..], other, Tag(1), world).unwrap();
        let found = bytemuck::cast_slice::<u64, u8>(&theirs);
        assert!(found.iter().zip(&expected).all(|(byte, expected)| expected.contains(byte)), "{over:?}");
    });
}

#[test]
fn keys_of_any_content_write_only_what_is_exposed_for_that() {
    for over in ALL {
        use_any_keys(over, 600);
    }
}

#[test]
fn keys_of_any_content_write_over_a_fabric_only_what_is_exposed_for_that() {
    for over in FABRICS {
        use_any_keys(over, 200);
    }
}
