//! The end of an app: pending messages are sent, and the engine is finalized.

use super::bounds::Bounds;
use super::error::TickwireError;
use super::send::Outbox;
use crate::run::engine::{Closed, Engine};
use bevy_app::AppExit;
use bevy_ecs::prelude::*;
use std::time::{Duration, Instant};

/// After an `AppExit`, sends the remaining messages and finalizes the engine.
///
/// *Reads* `AppExit`. *Writes* the outbox and the engine, and queues events and messages as commands. *Bound* the plugin's time for
/// finalizing. *Why* peers learn that this rank has ended in order.
pub(super) fn finalize(
    mut exits: MessageReader<AppExit>,
    engine: Option<NonSendMut<Engine>>,
    bounds: Res<Bounds>,
    mut outbox: ResMut<Outbox>,
    mut commands: Commands,
) {
    let exits = exits.read().count() > 0;
    let Some(mut engine) = engine.filter(|_| exits) else { return };
    let engine = &mut *engine;
    if engine.closed == Closed::Finalized {
        return;
    }
    let end = Instant::now().checked_add(bounds.finalize);
    let left = || end.map_or(Duration::MAX, |end| end.saturating_duration_since(Instant::now()));
    while !outbox.post(engine, &mut commands) && !left().is_zero() {
        engine.tick();
        outbox.tell(engine, &mut commands);
        std::thread::yield_now();
    }
    if let Err(error) = engine.finalize(left()) {
        commands.queue(TickwireError::Finalize(error));
    }
    // Messages that still have no row when the time is over are refused by the closed engine.
    outbox.post(engine, &mut commands);
    outbox.tell(engine, &mut commands);
}
