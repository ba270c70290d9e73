//! Plays a rank's part of a phase on exposed memory.

use super::player::{Returned, wait};
use super::program::{COUNT, Op, TICKET, Update, What};
use std::ops::DerefMut;
use tickwire::{Comm, Engine, LeasedBytes, ProcId, RegionAccess, RegionKey, Sequence, WindowError, WindowReach, op};

/// Exposes a region that begins as `own`, operates on the regions of all, and withdraws it. Returns the values that each
/// operation has returned, and what the region holds at the end. The region is in the shared heap, if there is one.
pub(super) fn play_exposed(engine: &mut Engine, ops: &[Op], own: &[u64], world: Comm) -> (Vec<Vec<u64>>, Vec<u64>) {
    match engine.alloc_elements::<u64>(own.len()) {
        Ok(mut buffer) => {
            buffer.copy_from_slice(own);
            play_in(engine, ops, buffer, world)
        }
        Err(_) => play_in(engine, ops, own.to_vec(), world),
    }
}

fn play_in<B>(engine: &mut Engine, ops: &[Op], buffer: B, world: Comm) -> (Vec<Vec<u64>>, Vec<u64>)
where
    B: Sequence + LeasedBytes + DerefMut<Target = [u64]> + Send + Sync + 'static,
{
    let region = engine.expose(buffer, RegionAccess::ALL).unwrap();
    let mut keys = vec![region.key(); engine.size() as usize];
    engine.allgather(&[region.key()], &mut keys, world).unwrap();
    let posted: Vec<Returned> = ops.iter().map(|op| perform(engine, op, &keys[op.target as usize]).unwrap()).collect();
    let returned = posted.into_iter().map(|returned| wait(engine, returned)).collect();
    engine.region_flush_all().unwrap();
    let reaches: Vec<WindowReach> = keys.iter().map(|key| engine.region_reach(key).unwrap()).collect();
    engine.barrier(world).unwrap();
    let buffer = engine.withdraw(region).unwrap();
    let left = buffer.to_vec();
    // The same memory is exposed again, under another key.
    let again = engine.expose(buffer, RegionAccess::ALL).unwrap();
    engine.barrier(world).unwrap();
    for (key, reach) in keys.iter().zip(reaches) {
        use_stale(engine, key, reach);
    }
    engine.barrier(world).unwrap();
    assert_eq!(engine.withdraw(again).unwrap()[..], left, "what stale keys have written");
    (returned, left)
}

/// Uses a stale key in every way. Each time it is an error.
fn use_stale(engine: &mut Engine, key: &RegionKey, reach: WindowReach) {
    let all = |what, count| Op { what, target: key.proc, at: 0, count, stride: 1, value: 77, held: false };
    let mut ops = vec![all(What::Swap { expected: 0 }, 1), all(What::Fetch(Update::Replace), 1)];
    // Some fabrics end the connection after a stale key.
    if reach != WindowReach::Fabric {
        ops.extend([all(What::Put, COUNT), all(What::Get, COUNT)]);
    }
    for op in ops.iter().flat_map(|op| [op.clone(), Op { held: true, at: TICKET - op.count, ..op.clone() }]) {
        let is_error = match perform(engine, &op, key) {
            Err(_) => true,
            // Only the flush reports the error of a put. Other operations have returned values of the region.
            Ok(Returned::Now(_)) => op.what == What::Put && engine.region_flush(ProcId(key.proc)).is_err(),
            Ok(Returned::Put(request) | Returned::Got(request)) => engine.wait_take(request).is_err(),
            Ok(Returned::Both(request)) => engine.wait_take(request).is_err(),
            Ok(_) => unreachable!("regions have no datatypes"),
        };
        assert!(is_error, "{op:?} with a stale key, by {reach:?}");
        // A flush may report the error of an operation with a request once more.
        let _ = engine.region_flush(ProcId(key.proc));
    }
}

fn perform(engine: &mut Engine, op: &Op, key: &RegionKey) -> Result<Returned, WindowError> {
    let offset = op.at * size_of::<u64>();
    let mut into = vec![0; op.count];
    Ok(match (op.what, op.held) {
        (What::Put, false) => {
            engine.region_put(op.operands(), key, offset)?;
            Returned::Now(Vec::new())
        }
        (What::Put, true) => Returned::Put(engine.region_rput(op.operands(), key, offset)?),
        (What::Get, false) => {
            engine.region_get(&mut into[..], key, offset)?;
            Returned::Now(into)
        }
        (What::Get, true) => Returned::Got(engine.region_rget(into, key, offset)?),
        (What::Swap { expected }, false) => {
            Returned::Now(vec![engine.region_compare_and_swap(expected, op.operand(0), key, offset)?])
        }
        (What::Swap { expected }, true) => {
            Returned::Both(engine.region_rcompare_and_swap(expected, op.operand(0), key, offset)?)
        }
        (What::Update(by) | What::Fetch(by), _) => match by {
            Update::Sum => fetch(engine, op, op::Sum, key)?,
            Update::Xor => fetch(engine, op, op::BitXor, key)?,
            Update::Max => fetch(engine, op, op::Max, key)?,
            Update::Replace => fetch(engine, op, op::Replace, key)?,
            Update::Keep => fetch(engine, op, op::Keep, key)?,
        },
    })
}

fn fetch<O: tickwire::Update<u64>>(
    engine: &mut Engine,
    op: &Op,
    by: O,
    key: &RegionKey,
) -> Result<Returned, WindowError> {
    let (value, offset) = (op.operand(0), op.at * size_of::<u64>());
    Ok(match op.held {
        false => Returned::Now(vec![engine.region_fetch_and_op(value, by, key, offset)?]),
        true => Returned::Both(engine.region_rfetch_and_op(value, by, key, offset)?),
    })
}
