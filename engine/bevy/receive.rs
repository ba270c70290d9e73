//! Receiving: ticks the engine, and delivers what has arrived for each subscription. Also a system that sleeps until something arrives.

use super::bounds::{Bounds, tick};
use super::error::Told;
use super::inbox::Wanted;
use super::send::Outbox;
use super::subscription::Subscription;
use crate::run::engine::{Closed, Engine};
use bevy_ecs::prelude::*;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::time::Duration;

/// Ticks the engine and delivers what has arrived.
///
/// *Reads* the engine. *Writes* it, and queues events and messages as commands. *Bound* twice `ticks_max` ticks, and `messages_max`
/// messages a subscription. *Why* the engine stays on its own thread, and only commands touch the rest of the world.
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
    engine.unclaimed = false;
    for (entity, mut subscription) in &mut subscriptions {
        let wanted = wanted(entity, &subscription);
        engine.full_waits = true;
        subscription.inbox().claim(engine, &wanted, bounds.messages_max, &mut commands);
        engine.full_waits = false;
    }
    // Ticks copy the messages that were matched.
    tick(engine, bounds.ticks_max);
    for (entity, mut subscription) in &mut subscriptions {
        let wanted = wanted(entity, &subscription);
        engine.unclaimed |= subscription.inbox().deliver(engine, &wanted, bounds.messages_max, &mut commands);
    }
    told.tell(engine, &mut commands);
}

fn wanted(subscription: Entity, of: &Subscription) -> Wanted {
    Wanted { subscription, source: of.source(), tag: of.tag(), comm: of.comm() }
}

/// A system that sleeps until something arrives for the engine, for at most `most`. For a headless app without a clock of its own, which
/// would spin otherwise. A run condition says when the app has nothing to do:
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
/// Frames of peers and submissions of other threads wake it. It does not sleep while there is something to do: the engine has done some
/// work since the subscriptions were looked after, whoever ticked it, a subscription is new, or a message is still to be posted. A system
/// that sends or subscribes in the same schedule runs before it, by [`before`](IntoScheduleConfigs::before).
pub fn sleep(most: Duration) -> impl System<In = (), Out = ()> {
    let system =
        move |engine: Option<NonSendMut<Engine>>, outbox: Option<Res<Outbox>>, new: Query<(), Added<Subscription>>| {
            let Some(mut engine) = engine else { return };
            // What has come since the subscriptions were looked after rings no more.
            let has_worked = engine.unclaimed || !engine.store.progress().work.get().is_idle();
            let is_busy = has_worked || !new.is_empty() || outbox.is_some_and(|outbox| outbox.has_new());
            if !is_busy && engine.prepare_wait() {
                if let Ok(most) = Timespec::try_from(most.min(engine.wait_timeout())) {
                    // Whatever has ended the sleep, even a signal: the next frame sleeps again.
                    let _ = poll(&mut [PollFd::new(&*engine, PollFlags::IN)], Some(&most));
                }
                engine.end_wait();
            }
        };
    IntoSystem::into_system(system)
}
