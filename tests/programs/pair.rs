//! Two engines over shared memory in one thread, so that neither waits for the other. The bench `budget` counts their
//! instructions as those of two processes. `tests-pair N` sends messages of 8 B. `tests-pair N allreduce` adds up 8 B
//! over both.

use std::error::Error;
use tickwire::testing::Pair;
use tickwire::{Rank, Tag, op};

/// Most ticks until an operation is done.
const BOUND: u32 = 1_000;

fn main() -> Result<(), Box<dyn Error>> {
    let mut words = std::env::args().skip(1);
    let count: usize = words.next().ok_or("tests-pair N [allreduce]")?.parse()?;
    let mut pair = Pair::shm();
    pair.pass(0, 1, &[7; 8], 8);
    pair.drive();
    match words.next().as_deref() {
        None => send(&mut pair, count),
        Some("allreduce") => add_up(&mut pair, count),
        Some(other) => Err(format!("there is no {other:?}").into()),
    }
}

fn send(pair: &mut Pair, messages: usize) -> Result<(), Box<dyn Error>> {
    let (now_ns, world) = (pair.now_ns, pair.left().comm_world());
    let [sender, receiver] = &mut pair.engines[..] else { return Err("a pair has two engines".into()) };
    let mut buffer = vec![0u8; 8];
    for _ in 0..messages {
        let incoming = receiver.irecv(buffer, Rank(0), Tag(1), world)?;
        let outgoing = sender.isend([7u8; 8].to_vec(), Rank(1), Tag(1), world)?;
        let mut ticks = 0;
        // The sender's tick takes the credit that the receiver has granted.
        while !receiver.test(&incoming)?.is_done() || !sender.test(&outgoing)?.is_done() {
            receiver.tick_at(now_ns);
            sender.tick_at(now_ns);
            ticks += 1;
            if ticks == BOUND {
                return Err("a message has not come".into());
            }
        }
        buffer = receiver.take(incoming)?.0;
        sender.take(outgoing)?;
    }
    Ok(())
}

fn add_up(pair: &mut Pair, sums: usize) -> Result<(), Box<dyn Error>> {
    let (now_ns, world) = (pair.now_ns, pair.left().comm_world());
    let [first, second] = &mut pair.engines[..] else { return Err("a pair has two engines".into()) };
    let mut buffers = [(vec![1u64], vec![0u64]), (vec![2], vec![0])];
    for _ in 0..sums {
        let [own, other] = buffers;
        let one = first.iallreduce(own.0, own.1, op::Sum, world)?;
        let two = second.iallreduce(other.0, other.1, op::Sum, world)?;
        let mut ticks = 0;
        while !first.test(&one)?.is_done() || !second.test(&two)?.is_done() {
            first.tick_at(now_ns);
            second.tick_at(now_ns);
            ticks += 1;
            if ticks == BOUND {
                return Err("a sum is not done".into());
            }
        }
        buffers = [first.take(one)?.0, second.take(two)?.0];
        assert!(buffers[0].1 == [3] && buffers[1].1 == [3], "1 and 2");
    }
    Ok(())
}
