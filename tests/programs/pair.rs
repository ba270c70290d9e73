//! Messages of 8 B from one engine to another one over shared memory, both in this thread, so that neither waits for the
//! other: what the bench `budget` counts as a message between two processes. `tests-pair N`

use tickwire::testing::Pair;
use tickwire::{Rank, Tag};

/// Ticks in which a message must have come.
const BOUND: u32 = 1_000;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let messages: usize = std::env::args().nth(1).ok_or("tests-pair N")?.parse()?;
    let mut pair = Pair::shm();
    pair.pass(0, 1, &[7; 8], 8);
    pair.drive();
    let (now_ns, world) = (pair.now_ns, pair.left().comm_world());
    let [sender, receiver] = &mut pair.engines[..] else { return Err("a pair has two engines".into()) };
    let mut buffer = vec![0u8; 8];
    for _ in 0..messages {
        let incoming = receiver.irecv(buffer, Rank(0), Tag(1), world)?;
        let outgoing = sender.isend([7u8; 8].to_vec(), Rank(1), Tag(1), world)?;
        let mut ticks = 0;
        // The sender's tick takes what the receiver has granted.
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
