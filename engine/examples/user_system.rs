//! A system of the application inside the tick: it counts, for each peer, the messages and bytes that arrive.
//!
//! `cargo run --release --example user_system`
//!
//! The count is an endpoint slot: a column of the table of procs, which any library may read by the slot's type. The system
//! has its place between DrainCq, which fills the arrival rows, and Match, which uses them up. A tick goes around: after a
//! pass that finds arrivals comes a pass that matches them. So this place is *before Match*. Post also writes what the system
//! reads, so the system stands *after Post*, too. Without both, `build` reports an ambiguity.
//!
//! The tests below run the system alone, on rows that are made by hand, and in an engine. With the feature `testing`,
//! `tickwire::testing::TestWorld` makes such rows in a few lines.

use std::error::Error;
use std::time::Duration;

use bevy_ecs::prelude::*;
use tickwire::EndpointSlot;
use tickwire::tables::{Arrival, ArrivalState, Column, Kind, Progress, ReadColumn};
use tickwire::{Bootstrap, Engine, ProcId, ProgressSystems, Rank, Tag};

/// The messages and bytes that have come from a proc: 16 B in a column, at the row of the proc.
#[derive(Component, Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Traffic {
    messages: u64,
    bytes: u64,
}

impl EndpointSlot for Traffic {
    const NAME: &'static str = "example.traffic";
}

/// Counts new arrivals by sender.
///
/// *Reads* the arrival rows in use. *Writes* `Traffic`. *Bound*: the arrivals of a pass. *Why*: counting here costs one addition
/// a message. Counting in the application would cost a look-up.
fn count_arrivals(progress: ReadColumn<Progress>, arrivals: ReadColumn<Arrival>, mut traffic: Column<Traffic>) {
    let used = progress.first().map_or(0, |progress| progress.arrivals as usize);
    for arrival in arrivals.iter().take(used) {
        // Other frames are parts of messages that were announced before, or belong to no message.
        let announces = matches!(arrival.header.kind(), Some(Kind::Eager | Kind::Rts));
        if arrival.state == ArrivalState::New && announces {
            let traffic = &mut traffic[arrival.vc as usize];
            traffic.messages += 1;
            traffic.bytes += arrival.header.length;
        }
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut engine = Engine::builder()
        .slot::<Traffic>()
        .systems(|schedule| {
            schedule.add_systems(count_arrivals.after(ProgressSystems::Post).before(ProgressSystems::Match));
        })
        .build(Bootstrap::from_env()?)?;
    let (world, me, size) = (engine.comm_world(), engine.rank(), engine.size());

    // Rank n sends n + 1 messages to its right neighbour. A rank that is alone sends them to itself.
    let (right, left) = (Rank((me.0 + 1) % size), Rank((me.0 + size - 1) % size));
    let mut requests = Vec::new();
    for _ in 0..=left.0 {
        requests.push(engine.irecv(vec![0u8; 64], left, Tag(7), world)?);
    }
    for _ in 0..=me.0 {
        engine.send(&[0u8; 64], right, Tag(7), world)?;
    }
    engine.wait_all(&requests)?;
    for request in requests {
        engine.take(request)?;
    }

    for proc in 0..size {
        if let Some(Traffic { messages, bytes }) = engine.slot::<Traffic>(ProcId(proc)).copied()
            && messages > 0
        {
            println!("rank {me}: {messages} messages, {bytes} B from proc {proc}");
        }
    }
    engine.finalize(Duration::from_secs(5))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use tickwire::tables::Header;

    /// Rows in, one run of the system alone, rows out.
    #[test]
    fn only_new_messages_count_and_only_for_their_sender() {
        let mut world = World::new();
        world.spawn(Progress { arrivals: 3, ..Progress::default() });
        world.spawn_batch([Traffic::default(); 2]).for_each(drop);
        let arrival = |vc, kind, state| {
            let header = Header::new(kind, 0, 0, 0, 0, 100);
            Arrival { header, vc, state, ..Arrival::default() }
        };
        let rows = [
            arrival(1, Kind::Eager, ArrivalState::New),
            arrival(0, Kind::Eager, ArrivalState::Handled),
            arrival(1, Kind::Rts, ArrivalState::New),
            // A row that is not in use.
            arrival(0, Kind::Eager, ArrivalState::New),
        ];
        world.spawn_batch(rows).for_each(drop);

        world.run_system_cached(count_arrivals).expect("the system runs");

        let found: Vec<Traffic> = world.query::<&Traffic>().iter(&world).copied().collect();
        assert_eq!(found, [Traffic::default(), Traffic { messages: 2, bytes: 200 }]);
    }

    /// In an engine: the order is unambiguous, and every message to oneself is counted once.
    #[test]
    fn every_message_is_counted_once() {
        let mut engine = Engine::builder()
            .slot::<Traffic>()
            .systems(|schedule| {
                schedule.add_systems(count_arrivals.after(ProgressSystems::Post).before(ProgressSystems::Match));
            })
            .build(Bootstrap::solo())
            .expect("an engine");
        let world = engine.comm_world();
        // Short messages, and one that is announced and comes in pieces.
        let lengths = [1, 10, 300_000];
        for bytes in lengths {
            let incoming = engine.irecv(vec![0u8; bytes], Rank(0), Tag(1), world).expect("a receive");
            let outgoing = engine.isend(vec![1u8; bytes], Rank(0), Tag(1), world).expect("a send");
            engine.wait(&incoming).expect("it arrives");
            engine.wait(&outgoing).expect("it is sent");
        }
        let traffic = *engine.slot::<Traffic>(ProcId(0)).expect("the own proc is contacted at start");
        assert_eq!(traffic, Traffic { messages: 3, bytes: lengths.iter().sum::<usize>() as u64 });
    }
}
