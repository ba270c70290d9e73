//! What an app subscribes to.

use super::inbox::{Inbox, Typed};
use super::received::Element;
use crate::{Comm, Source, TagFilter};
use bevy_ecs::prelude::*;
use tickwire_components::Exclusive;

/// Messages that an app wants: those of a source, with a tag, in a communicator, made of elements of one type.
///
/// A component of an entity of its own. It is spawned by [`TickwireApp::subscribe`](super::TickwireApp::subscribe), or at any
/// time by a system:
///
/// ```
/// # use tickwire::bevy::{Received, Subscription};
/// # use tickwire::bevy_ecs::prelude::*;
/// # use tickwire::{Comm, Source, Tag};
/// fn join(mut commands: Commands) {
///     let results = Subscription::new::<f64>(Source::Any, Tag(9), Comm::WORLD);
///     commands.spawn(results).observe(|result: On<Received<f64>>| println!("{:?}", result.data));
/// }
/// # World::new().run_system_cached(join).unwrap();
/// ```
///
/// Despawning it ends it; messages that it has begun to receive are dropped, all others are left to the next subscription. A
/// message that several subscriptions want comes to one of them.
#[derive(Component)]
pub struct Subscription {
    source: Source,
    tag: TagFilter,
    comm: Comm,
    inbox: Exclusive<Box<dyn Inbox>>,
}

impl Subscription {
    /// Subscribes to messages of elements `T`.
    ///
    /// A message that is no whole number of these is dropped, and told as a [`TickwireError`](super::TickwireError). What is
    /// wrong with the arguments is told in the first frame.
    pub fn new<T: Element>(source: impl Into<Source>, tag: impl Into<TagFilter>, comm: Comm) -> Self {
        let (source, tag) = (source.into(), tag.into());
        Subscription { source, tag, comm, inbox: Exclusive::new(Box::new(Typed::<T>::default())) }
    }

    /// Whose messages it wants.
    pub fn source(&self) -> Source {
        self.source
    }

    /// Which tag.
    pub fn tag(&self) -> TagFilter {
        self.tag
    }

    /// In which communicator.
    pub fn comm(&self) -> Comm {
        self.comm
    }

    pub(super) fn inbox(&mut self) -> &mut dyn Inbox {
        &mut **self.inbox.get()
    }
}
