//! Receiving: ticks, and what has come for each subscription. And a sleep until something comes.

use super::bounds::{Bounds, tick};
use super::error::Told;
use super::inbox::Wanted;
use super::subscription::Subscription;
use crate::run::engine::{Closed, Engine};
use bevy_ecs::prelude::*;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::time::Duration;

/// Ticks the engine and hands out what has come.
///
/// *Reads* the engine. *Writes* it, and queues events and messages as commands. *Bound* `ticks_max` ticks twice, and
/// `messages_max` messages a subscription. *Why* it runs on the engine's thread, and nothing but commands
/// touches the rest of the world.
pub(super) fn receive(
    engine: Option<NonSendMut<Engine>>,
    bounds: Res<Bounds>,
    mut subscriptions: Query<(Entity, &mut Subscription)>,
    mut told: ResMut<Told>,
    mut commands: Commands,
) {
    let Some(mut engine) = engine else { return };
    let engine = &mut *engine;
    if engine.closed != Closed::No {
        return told.tell(engine, &mut commands);
    }
    tick(engine, bounds.ticks_max);
    for (entity, mut subscription) in &mut subscriptions {
        let wanted = wanted(entity, &subscription);
        subscription.inbox().claim(engine, &wanted, bounds.messages_max, &mut commands);
    }
    // What was matched is copied by ticks.
    tick(engine, bounds.ticks_max);
    for (entity, mut subscription) in &mut subscriptions {
        let wanted = wanted(entity, &subscription);
        subscription.inbox().deliver(engine, &wanted, &mut commands);
    }
    told.tell(engine, &mut commands);
}

fn wanted(subscription: Entity, of: &Subscription) -> Wanted {
    Wanted { subscription, source: of.source(), tag: of.tag(), comm: of.comm() }
}

/// A system that sleeps until something comes for the engine, `most` at most: for a headless app without a clock of its own,
/// which would spin. When it has nothing to do is said by a run condition:
///
/// ```
/// # use tickwire::bevy::bevy_app::{App, Last};
/// # use tickwire::bevy::{Received, sleep};
/// # use tickwire::bevy_ecs::prelude::*;
/// # use std::time::Duration;
/// # let mut app = App::new();
/// app.add_systems(Last, sleep(Duration::from_millis(20)).run_if(not(on_message::<Received<f64>>)));
/// ```
///
/// It is woken by frames of peers and by what other threads submit, and does not sleep while the engine has something to do.
pub fn sleep(most: Duration) -> impl FnMut(Option<NonSendMut<Engine>>) {
    move |engine| {
        let Some(mut engine) = engine else { return };
        if engine.prepare_wait() {
            if let Ok(most) = Timespec::try_from(most.min(engine.wait_timeout())) {
                // Whatever ends it, also a signal: the next frame sleeps again.
                let _ = poll(&mut [PollFd::new(&*engine, PollFlags::IN)], Some(&most));
            }
            engine.end_wait();
        }
    }
}
