//! Subscriptions that are made while an app is built.

use super::received::{Element, Received};
use super::subscription::Subscription;
use crate::{Comm, Source, TagFilter};
use bevy_app::App;
use bevy_ecs::system::IntoObserverSystem;

/// Methods of an `App` with the plugin that subscribe to messages.
pub trait TickwireApp {
    /// Subscribes to messages with elements `T`. Systems read them by `MessageReader<Received<T>>`, and observers see them.
    ///
    /// If there are several subscriptions with the same `T`, [`Received::tag`] and [`Received::comm`] tell their messages apart.
    fn subscribe<T: Element>(&mut self, source: impl Into<Source>, tag: impl Into<TagFilter>, comm: Comm) -> &mut Self;

    /// As [`TickwireApp::subscribe`], with an observer for this subscription only. It runs for each message, before any reader sees the
    /// message.
    ///
    /// ```
    /// # use tickwire::bevy::bevy_app::App;
    /// # use tickwire::bevy::{Received, TickwireApp, TickwirePlugin};
    /// # use tickwire::bevy_ecs::prelude::*;
    /// # use tickwire::{Bootstrap, Comm, Engine, Rank, Source, Tag};
    /// # let mut engine = Engine::builder().build(Bootstrap::solo())?;
    /// # let _sent = engine.isend(vec![7u32], Rank(0), Tag(3), Comm::WORLD)?;
    /// let mut app = App::new();
    /// app.add_plugins(TickwirePlugin::new(engine)).observe_messages(
    ///     Source::Any,
    ///     Tag(3),
    ///     Comm::WORLD,
    ///     |message: On<Received<u32>>| println!("{:?} from rank {}", message.data, message.source),
    /// );
    /// # app.update();
    /// # assert_eq!(app.world().resource::<Messages<Received<u32>>>().len(), 1);
    /// # Ok::<(), tickwire::Error>(())
    /// ```
    fn observe_messages<T: Element, M>(
        &mut self,
        source: impl Into<Source>,
        tag: impl Into<TagFilter>,
        comm: Comm,
        observer: impl IntoObserverSystem<Received<T>, M>,
    ) -> &mut Self;
}

impl TickwireApp for App {
    fn subscribe<T: Element>(&mut self, source: impl Into<Source>, tag: impl Into<TagFilter>, comm: Comm) -> &mut Self {
        // A reader may run before any message has arrived.
        self.add_message::<Received<T>>();
        self.world_mut().spawn(Subscription::new::<T>(source, tag, comm));
        self
    }

    fn observe_messages<T: Element, M>(
        &mut self,
        source: impl Into<Source>,
        tag: impl Into<TagFilter>,
        comm: Comm,
        observer: impl IntoObserverSystem<Received<T>, M>,
    ) -> &mut Self {
        self.add_message::<Received<T>>();
        self.world_mut().spawn(Subscription::new::<T>(source, tag, comm)).observe(observer);
        self
    }
}
