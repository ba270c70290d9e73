//! Apps over loopback, and what they have observed.

use bevy_app::{App, Last, TaskPoolPlugin};
use bevy_ecs::prelude::*;
use std::time::{Duration, Instant};
use tickwire::bevy::{Element, Received, Sent, TickwireApp, TickwireError, TickwirePlugin};
use tickwire::internals::components::limits::LOOPBACK_RING_BYTES;
use tickwire::internals::transports::Hub;
use tickwire::testing::Board;
use tickwire::{Builder, Comm, Engine, Source, Tag};

/// Longest wait for anything.
const BOUND: Duration = Duration::from_secs(60);

/// Engines over one hub, and the board that tells them which rank has ended.
pub(crate) fn engines(ranks: u32, change: impl Fn(Builder) -> Builder + Sync) -> (Board, Vec<Engine>) {
    let (hub, board) = (Hub::new(ranks, LOOPBACK_RING_BYTES), Board::new(ranks));
    let engines = std::thread::scope(|scope| {
        let build = |rank| {
            let (hub, board, change) = (hub.clone(), &board, &change);
            scope.spawn(move || change(Engine::builder().hub(hub)).build(board.bootstrap(rank)).unwrap())
        };
        let threads: Vec<_> = (0..ranks).map(build).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    (board, engines)
}

/// An app with an engine. It notes errors and sends.
pub(crate) fn app(plugin: TickwirePlugin) -> App {
    let mut app = App::new();
    app.add_plugins((TaskPoolPlugin::default(), plugin))
        .init_resource::<Noted>()
        .add_observer(|error: On<TickwireError>, mut noted: ResMut<Noted>| noted.observed.push(error.event().clone()))
        .add_systems(Last, note);
    app
}

/// Apps with the plugin's default settings.
pub(crate) fn apps(ranks: u32) -> Vec<App> {
    engines(ranks, |builder| builder).1.into_iter().map(|engine| app(TickwirePlugin::new(engine))).collect()
}

/// What an app was told, except for messages.
#[derive(Resource, Default)]
pub(crate) struct Noted {
    pub(crate) observed: Vec<TickwireError>,
    pub(crate) errors: Vec<TickwireError>,
    pub(crate) sent: Vec<Sent>,
}

fn note(mut errors: MessageReader<TickwireError>, mut sent: MessageReader<Sent>, mut noted: ResMut<Noted>) {
    noted.errors.extend(errors.read().cloned());
    noted.sent.extend(sent.read().copied());
}

pub(crate) fn noted(app: &App) -> &Noted {
    app.world().resource::<Noted>()
}

/// Messages of elements `T` that a reader of the app has seen: tag, communicator and elements.
#[derive(Resource)]
pub(crate) struct Seen<T: Element>(pub(crate) Vec<(Tag, Comm, Vec<T>)>);

/// Subscribes to messages from any source, with a reader that notes them.
pub(crate) fn see<T: Element>(app: &mut App, tag: Tag, comm: Comm) {
    app.subscribe::<T>(Source::Any, tag, comm);
    if !app.world().contains_resource::<Seen<T>>() {
        app.insert_resource(Seen::<T>(Vec::new())).add_systems(
            Last,
            |mut received: MessageReader<Received<T>>, mut seen: ResMut<Seen<T>>| {
                seen.0.extend(received.read().map(|message| (message.tag, message.comm, message.data.clone())));
            },
        );
    }
}

pub(crate) fn seen<T: Element>(app: &App) -> &[(Tag, Comm, Vec<T>)] {
    &app.world().resource::<Seen<T>>().0
}

/// Updates all apps in turn until a condition holds.
#[track_caller]
pub(crate) fn until(apps: &mut [App], what: &str, mut condition: impl FnMut(&mut [App]) -> bool) {
    let start = Instant::now();
    while !condition(apps) {
        assert!(start.elapsed() < BOUND, "not after {BOUND:?}: {what}");
        apps.iter_mut().for_each(App::update);
    }
}

/// Updates all apps this many times.
pub(crate) fn frames(apps: &mut [App], frames: u32) {
    (0..frames).for_each(|_| apps.iter_mut().for_each(App::update));
}
