//! Messages that an app receives.

use crate::{Comm, Rank, Tag};
use bevy_ecs::prelude::*;
use tickwire_components::bytemuck::{AnyBitPattern, NoUninit};

/// An element of a message: plain data without padding, for which any bytes are a valid value (`bytemuck::Pod`).
pub trait Element: NoUninit + AnyBitPattern + Send + Sync {}

impl<T: NoUninit + AnyBitPattern + Send + Sync> Element for T {}

/// A message that has arrived. It is an event for observers of its [`Subscription`](super::Subscription) and for global observers, then a
/// bevy message for readers.
#[derive(EntityEvent, Message, Clone, Debug)]
pub struct Received<T: Element> {
    /// The entity of the [`Subscription`](super::Subscription) that has received it.
    #[event_target]
    pub subscription: Entity,
    /// The rank of the sender in the communicator.
    pub source: Rank,
    /// The message's tag.
    pub tag: Tag,
    /// The message's communicator.
    pub comm: Comm,
    /// The message's elements.
    pub data: Vec<T>,
}
