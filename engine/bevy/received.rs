//! What comes for an app.

use crate::{Comm, Rank, Tag};
use bevy_ecs::prelude::*;
use tickwire_components::bytemuck::{AnyBitPattern, NoUninit};

/// An element of a message: plain data without padding, of which any bytes are a value (`bytemuck::Pod`).
pub trait Element: NoUninit + AnyBitPattern + Send + Sync {}

impl<T: NoUninit + AnyBitPattern + Send + Sync> Element for T {}

/// A message that has come: an event for observers of its [`Subscription`](super::Subscription) and of all, then a bevy message for readers.
#[derive(EntityEvent, Message, Clone, Debug)]
pub struct Received<T: Element> {
    /// Whose it is: the entity of the [`Subscription`](super::Subscription).
    #[event_target]
    pub subscription: Entity,
    /// Who has sent it: a rank of the communicator.
    pub source: Rank,
    /// Its tag.
    pub tag: Tag,
    /// Its communicator.
    pub comm: Comm,
    /// Its elements.
    pub data: Vec<T>,
}
