//! Bounds on what the plugin's systems do in a frame.

use crate::run::engine::Engine;
use bevy_ecs::prelude::Resource;
use std::time::Duration;

/// The bounds of a frame, and the time that finalizing may take.
#[derive(Resource, Clone, Copy, Debug)]
pub(super) struct Bounds {
    pub(super) ticks_max: u32,
    pub(super) messages_max: usize,
    pub(super) finalize: Duration,
}

/// Ticks until there is nothing to do, at most `most` times.
pub(super) fn tick(engine: &mut Engine, most: u32) {
    for _ in 0..most {
        if engine.tick().is_idle() {
            return;
        }
    }
}
