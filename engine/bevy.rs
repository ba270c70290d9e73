//! The engine in a bevy `App`: a plugin that ticks it, subscriptions whose messages are bevy messages and events, and sends as
//! commands. Behind the feature `bevy`.
//!
//! ```
//! use tickwire::bevy::bevy_app::{App, AppExit, PostUpdate, ScheduleRunnerPlugin, Startup, Update};
//! use tickwire::bevy::{Received, TickwireApp, TickwireCommands, TickwirePlugin};
//! use tickwire::bevy_ecs::prelude::*;
//! use tickwire::{Bootstrap, Comm, Engine, Rank, Source, Tag};
//!
//! const HELLO: Tag = Tag(1);
//!
//! fn greet(mut commands: Commands) {
//!     commands.send(vec![1.5f64, 2.5], Rank(0), HELLO, Comm::WORLD);
//! }
//!
//! fn listen(mut received: MessageReader<Received<f64>>, mut exit: MessageWriter<AppExit>) {
//!     for message in received.read() {
//!         assert_eq!((message.source, &message.data[..]), (Rank(0), &[1.5, 2.5][..]));
//!         exit.write(AppExit::Success);
//!     }
//! }
//!
//! // An engine that cannot be built says so here, before there is an app.
//! let engine = Engine::builder().build(Bootstrap::from_env()?)?;
//! let exit = App::new()
//!     .add_plugins((ScheduleRunnerPlugin::default(), TickwirePlugin::new(engine)))
//!     .subscribe::<f64>(Source::Any, HELLO, Comm::WORLD)
//!     .add_systems(Startup, greet)
//!     .add_systems(Update, listen)
//!     .run();
//! assert!(exit.is_success());
//! # Ok::<(), tickwire::Error>(())
//! ```
//!
//! # A frame
//!
//! | set | schedule | what it does |
//! |---|---|---|
//! | [`TickwireSystems::Receive`] | `PreUpdate`, or [another](TickwirePlugin::receive_in) | ticks the engine, and hands out what has come for subscriptions |
//! | [`TickwireSystems::Send`] | `PostUpdate`, or [another](TickwirePlugin::send_in) | posts what commands have sent, ticks, and tells of sends that are done |
//! | [`TickwireSystems::Finalize`] | `Last` | after an `AppExit`: sends the rest and finalizes the engine |
//!
//! Both bounds of a frame are the plugin's: [ticks](TickwirePlugin::ticks_max), and
//! [messages of a subscription](TickwirePlugin::messages_max). What is beyond them waits for the next frame.
//!
//! A headless app that waits for messages [sleeps](sleep()) until they come.
//!
//! The engine is non-send data of the app's world. A system of the app's own calls it through `NonSendMut<Engine>`, beside the
//! plugin: receives that it posts get their messages before any subscription does. Whoever removes the engine from the world
//! stops the plugin.
//!
//! # What comes
//!
//! A [`Subscription`] names a source, a tag and a communicator, and the type of a message's elements. What comes for it is a
//! [`Received`]: an event to observers of that subscription and of all, at once, and a bevy message to every `MessageReader`.
//! Messages of one sender to one subscription come in the order in which they were sent.
//!
//! # What goes wrong
//!
//! Everything that fails is told as a [`TickwireError`], once, as an event and as a bevy message: a send that was not done, a
//! message of the wrong size, a peer that has died. Nothing panics, and no subscription ends because of a dead peer.
//!
//! # The end
//!
//! In the frame of an `AppExit` the plugin posts what is still to be sent and calls [`Engine::finalize`], within
//! [a given time](TickwirePlugin::finalize_within). An app that is dropped without one drops the engine, which does the same
//! for half a second.
//!
//! # Versions
//!
//! bevy_ecs and bevy_app are re-exported. A program that derives (`Component`, `Resource`, …) has them, or `bevy`, in its own
//! `Cargo.toml`, of this version: the macros look there.

mod app;
mod bounds;
mod error;
mod finalize;
mod inbox;
mod receive;
mod received;
mod send;
mod subscription;

pub use app::TickwireApp;
pub use bevy_app;
pub use bevy_ecs;
pub use error::TickwireError;
pub use receive::sleep;
pub use received::{Element, Received};
pub use send::{Sent, TickwireCommands};
pub use subscription::Subscription;

use crate::run::engine::Engine;
use bevy_app::{App, Last, OnAppExitSystems, Plugin, PostUpdate, PreUpdate};
use bevy_ecs::prelude::*;
use bevy_ecs::schedule::{InternedScheduleLabel, ScheduleLabel};
use bounds::Bounds;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// Ticks of a frame's receiving and of its sending, unless the plugin says otherwise.
const TICKS_MAX: u32 = 16;
/// Messages of one subscription in a frame, unless the plugin says otherwise.
const MESSAGES_MAX: usize = 256;
/// Time of the end, unless the plugin says otherwise.
const FINALIZE: Duration = Duration::from_secs(5);

/// Where the plugin's systems stand. In a schedule that has several of them they run in this order, so that systems of an
/// application stand [`after`](IntoScheduleConfigs::after) the first and [`before`](IntoScheduleConfigs::before) the second.
#[derive(SystemSet, Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum TickwireSystems {
    /// Ticks the engine, and hands out what has come for subscriptions.
    Receive,
    /// Posts what commands have sent, ticks the engine, and tells of sends that are done.
    Send,
    /// After an `AppExit`: sends the rest and finalizes the engine. In `Last`, within bevy's `OnAppExitSystems`.
    Finalize,
}

/// Runs an engine in an `App`. See [the module](self).
pub struct TickwirePlugin {
    /// Taken out when the plugin is added.
    engine: Mutex<Option<Engine>>,
    bounds: Bounds,
    receive_in: InternedScheduleLabel,
    send_in: InternedScheduleLabel,
}

impl TickwirePlugin {
    /// Runs this engine, which the app owns from then on, on the thread that adds the plugin.
    pub fn new(engine: Engine) -> Self {
        let (ticks_max, messages_max) = (TICKS_MAX, MESSAGES_MAX);
        TickwirePlugin {
            engine: Mutex::new(Some(engine)),
            bounds: Bounds { ticks_max, messages_max, finalize: FINALIZE },
            receive_in: PreUpdate.intern(),
            send_in: PostUpdate.intern(),
        }
    }

    /// Receives and sends in this schedule, instead of `PreUpdate` and `PostUpdate`.
    pub fn in_schedule(self, schedule: impl ScheduleLabel + Clone) -> Self {
        self.receive_in(schedule.clone()).send_in(schedule)
    }

    /// Receives in this schedule, instead of `PreUpdate`.
    pub fn receive_in(mut self, schedule: impl ScheduleLabel) -> Self {
        self.receive_in = schedule.intern();
        self
    }

    /// Sends in this schedule, instead of `PostUpdate`.
    pub fn send_in(mut self, schedule: impl ScheduleLabel) -> Self {
        self.send_in = schedule.intern();
        self
    }

    /// How many ticks follow each other at most: 16, unless this says otherwise. They stop at the first tick that finds nothing to do.
    /// The system that receives ticks up to twice as often. The system that sends does so again while messages wait for free rows and
    /// sends end. 0 is as 1.
    pub fn ticks_max(mut self, ticks: u32) -> Self {
        self.bounds.ticks_max = ticks.max(1);
        self
    }

    /// How many messages each subscription gets at most in a run of the system that receives: 256, unless this says otherwise.
    /// 0 is as 1.
    pub fn messages_max(mut self, messages: usize) -> Self {
        self.bounds.messages_max = messages.max(1);
        self
    }

    /// How long the end may take to send what was promised: 5 s, unless this says otherwise.
    pub fn finalize_within(mut self, time: Duration) -> Self {
        self.bounds.finalize = time;
        self
    }
}

impl Plugin for TickwirePlugin {
    fn build(&self, app: &mut App) {
        if let Some(engine) = self.engine.lock().unwrap_or_else(PoisonError::into_inner).take() {
            app.insert_non_send(engine);
        }
        app.insert_resource(self.bounds)
            .init_resource::<send::Outbox>()
            .init_resource::<error::Told>()
            .add_message::<Sent>()
            .add_message::<TickwireError>();
        for schedule in [self.receive_in, self.send_in] {
            app.configure_sets(schedule, TickwireSystems::Receive.before(TickwireSystems::Send));
        }
        app.configure_sets(Last, TickwireSystems::Finalize.in_set(OnAppExitSystems));
        app.add_systems(self.receive_in, receive::receive.in_set(TickwireSystems::Receive))
            .add_systems(self.send_in, send::send.in_set(TickwireSystems::Send))
            .add_systems(Last, finalize::finalize.in_set(TickwireSystems::Finalize));
    }
}
