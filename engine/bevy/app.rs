//! Subscriptions that are made while an app is put together.

use super::received::{Element, Received};
use super::subscription::Subscription;
use crate::{Comm, Source, TagFilter};
use bevy_app::App;
use bevy_ecs::system::IntoObserverSystem;

/// What an `App` with the plugin is told of messages.
pub trait TickwireApp {
    /// Subscribes to messages of elements `T`: they are read by `MessageReader<Received<T>>`, and observed.
    ///
    /// A reader of several subscriptions of the same `T` tells them apart by [`Received::tag`] and [`Received::comm`].
    fn subscribe<T: Element>(&mut self, source: impl Into<Source>, tag: impl Into<TagFilter>, comm: Comm) -> &mut Self;

    /// The same, with an observer of this subscription alone. It runs for each message, before any reader sees it.
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
        // A reader may run before anything has come.
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
