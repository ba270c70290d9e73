//! Programs that hang, each in one of the ways in which programs do: what `tickwire whowaits` is tried on. Which way is the
//! first argument. A rank gives up after a minute.

#![allow(clippy::unwrap_used, reason = "what cannot be done fails the test")]

use std::time::{Duration, Instant};
use tickwire::{Bootstrap, Comm, Engine, Limits, Rank, Source, Tag};

/// How long a rank hangs at most.
const PATIENCE: Duration = Duration::from_secs(60);

fn main() {
    let way = std::env::args().nth(1).unwrap_or_default();
    let bootstrap = Bootstrap::from_env().unwrap();
    let (me, last) = (bootstrap.rank(), bootstrap.size() - 1);
    if way == "absent" && me == last {
        // It computes something before it takes part, for longer than anybody waits.
        std::thread::sleep(PATIENCE);
        return;
    }
    let mut builder = Engine::builder();
    if way == "credit" {
        // The smallest window: 64 offers.
        builder = builder.limits(Limits { unexpected_bytes_max: 0, ..Limits::default() });
    }
    let mut engine = builder.build(bootstrap).unwrap();
    let world = engine.comm_world();
    match way.as_str() {
        "cycle" => {
            // Everybody receives from the right before sending to the left.
            let right = Rank((me + 1) % (last + 1));
            hang(&mut engine, right, Tag(1), world);
        }
        "tag" => match me {
            0 => {
                engine.send(b"letter", Rank(2), Tag(8), world).unwrap();
                hang(&mut engine, Rank(2), Tag(9), world);
            }
            2 => hang(&mut engine, Rank(0), Tag(7), world),
            _ => hang(&mut engine, Rank(2), Tag(1), world),
        },
        "large" => match me {
            // As above, with a message that is not sent before it is received.
            0 => {
                let offer = engine.isend(vec![7; 1 << 20], Rank(1), Tag(8), world).unwrap();
                engine.wait_for(&offer, PATIENCE).unwrap_err();
            }
            _ => hang(&mut engine, Rank(0), Tag(7), world),
        },
        "credit" => match me {
            // More large messages than the receiver keeps envelopes of, and none that it receives.
            0 => {
                let mut offers: Vec<_> =
                    (0..65).map(|tag| engine.isend(vec![7; 100 << 10], Rank(1), Tag(tag), world).unwrap()).collect();
                engine.wait_for(&offers.pop().unwrap(), PATIENCE).unwrap_err();
            }
            _ => hang(&mut engine, Rank((me + 1) % (last + 1)), Tag(1), world),
        },
        "communicator" => {
            let other = engine.comm_dup(world).unwrap();
            if me == 0 {
                engine.send(b"letter", Rank(1), Tag(7), other).unwrap();
            }
            hang(&mut engine, Rank(1 - me), Tag(7), world);
        }
        "collective" => {
            // One calls what all must call.
            match me {
                0 => drop(engine.comm_dup(world)),
                _ => hang(&mut engine, Rank(0), Tag(1), world),
            }
        }
        "silent" => {
            // The first rank tells the others that it is there, and then forgets to tick.
            if me == 0 {
                (1..=last).for_each(|rank| engine.send(&[], Rank(rank), Tag(1), world).unwrap());
                let start = Instant::now();
                while start.elapsed() < Duration::from_millis(20) {
                    engine.tick();
                }
                std::thread::sleep(PATIENCE);
            } else {
                engine.recv(&mut [], Rank(0), Tag(1), world).unwrap();
                hang(&mut engine, Rank(0), Tag(2), world);
            }
        }
        "busy" => {
            // No hang: messages go around until the launcher is told to end.
            let (left, right) = (Rank((me + last) % (last + 1)), Rank((me + 1) % (last + 1)));
            let start = Instant::now();
            while start.elapsed() < PATIENCE {
                engine.sendrecv(&[1; 64], right, Tag(1), &mut [0; 64], left, Tag(1), world).unwrap();
            }
        }
        "any" => {
            let nobody = engine.irecv(vec![0; 8], Source::Any, Tag(3), world).unwrap();
            engine.wait_for(&nobody, PATIENCE).unwrap_err();
        }
        _ => unreachable!("no such way to hang: {way}"),
    }
}

/// Waits for a message that does not come.
fn hang(engine: &mut Engine, source: Rank, tag: Tag, comm: Comm) {
    let receive = engine.irecv(vec![0; 64], source, tag, comm).unwrap();
    let _ = engine.wait_for(&receive, PATIENCE);
}
