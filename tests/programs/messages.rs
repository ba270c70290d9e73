//! Sends messages of 8 B to oneself. A system of the application makes the engine's systems run as separate
//! functions, so that the bench `budget` can count each of them. `tests-messages N`

use bevy_ecs::prelude::*;
use tickwire::{Bootstrap, Engine, ProgressSystems, Tag};

fn nothing() {}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let messages: usize = std::env::args().nth(1).ok_or("tests-messages N")?.parse()?;
    let systems = |schedule: &mut Schedule| {
        schedule.add_systems(nothing.before(ProgressSystems::Post));
    };
    let mut engine = Engine::builder().systems(systems).build(Bootstrap::solo())?;
    let (me, world) = (engine.rank(), engine.comm_world());
    let mut buffer = vec![0u8; 8];
    for _ in 0..messages {
        let incoming = engine.irecv(buffer, me, Tag(1), world)?;
        let outgoing = engine.isend([7u8; 8].to_vec(), me, Tag(1), world)?;
        engine.wait_all(&[outgoing.id(), incoming.id()])?;
        buffer = engine.take(incoming)?.0;
        engine.take(outgoing)?;
    }
    Ok(())
}
