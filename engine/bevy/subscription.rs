//! The messages to which an app subscribes.

use super::inbox::{Inbox, Typed};
use super::received::Element;
use crate::{Comm, Source, TagFilter};
use bevy_ecs::prelude::*;
use tickwire_components::Exclusive;

/// The messages that an app wants: from a source, with a tag, in a communicator, with elements of one type.
///
/// A component that has an entity of its own. [`TickwireApp::subscribe`](super::TickwireApp::subscribe) spawns it, or a system does at any
/// time:
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
/// Despawning it ends the subscription. Messages that it is receiving are dropped, all others are left for the next subscription. If
/// several subscriptions want a message, only one of them gets it.
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
    /// A message that is not a whole number of elements is dropped, and reported as a [`TickwireError`](super::TickwireError). Wrong
    /// arguments are reported in the first frame.
    pub fn new<T: Element>(source: impl Into<Source>, tag: impl Into<TagFilter>, comm: Comm) -> Self {
        let (source, tag) = (source.into(), tag.into());
        Subscription { source, tag, comm, inbox: Exclusive::new(Box::new(Typed::<T>::default())) }
    }

    /// The source whose messages it wants.
    pub fn source(&self) -> Source {
        self.source
    }

    /// The tag of the messages that it wants.
    pub fn tag(&self) -> TagFilter {
        self.tag
    }

    /// The communicator of the messages that it wants.
    pub fn comm(&self) -> Comm {
        self.comm
    }

    pub(super) fn inbox(&mut self) -> &mut dyn Inbox {
        &mut **self.inbox.get()
    }
}
