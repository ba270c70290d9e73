//! What a subscription has begun to receive.

use super::error::TickwireError;
use super::received::{Element, Received};
use crate::api::probe::room_for;
use crate::run::engine::Engine;
use crate::{Comm, Message, OperationError, PostError, Request, RequestError, Source, Status, TagFilter, Test};
use bevy_ecs::message::{MessageRegistry, Messages};
use bevy_ecs::prelude::*;
use std::collections::VecDeque;

/// Which messages a subscription wants.
#[derive(Clone, Copy)]
pub(super) struct Wanted {
    pub(super) subscription: Entity,
    pub(super) source: Source,
    pub(super) tag: TagFilter,
    pub(super) comm: Comm,
}

impl Wanted {
    /// That nothing more comes.
    fn over(&self, error: OperationError) -> TickwireError {
        let Wanted { subscription, source, tag, comm } = *self;
        TickwireError::Receive { subscription, from: source, tag, comm, error }
    }

    /// That a message was not received.
    fn lost(&self, status: Status, error: OperationError) -> TickwireError {
        let (from, tag) = (status.source.into(), status.tag.into());
        TickwireError::Receive { subscription: self.subscription, from, tag, comm: self.comm, error }
    }
}

/// The receives of a subscription, whatever its elements are.
pub(super) trait Inbox: Send {
    /// Starts to receive what is there, until so many receives are open.
    fn claim(&mut self, engine: &mut Engine, wanted: &Wanted, most: usize, commands: &mut Commands);

    /// Hands out what is done. A message waits for those before it of the same sender.
    fn deliver(&mut self, engine: &mut Engine, wanted: &Wanted, commands: &mut Commands);
}

/// A receive on its way.
struct Open<T> {
    status: Status,
    request: Request<Vec<T>>,
}

/// Receives of elements `T`.
pub(super) struct Typed<T> {
    /// In the order in which the messages were matched.
    open: VecDeque<Open<T>>,
    /// A message for which the engine had no row.
    held: Option<(Message, Vec<T>)>,
    /// Nothing more comes, and that has been told.
    over: bool,
    /// [`vc_changes`](tickwire_components::Progress::vc_changes) when the source was asked after last.
    asked: Option<u32>,
}

impl<T> Default for Typed<T> {
    fn default() -> Self {
        Typed { open: VecDeque::new(), held: None, over: false, asked: None }
    }
}

impl<T: Element> Inbox for Typed<T> {
    fn claim(&mut self, engine: &mut Engine, wanted: &Wanted, most: usize, commands: &mut Commands) {
        let Wanted { source, tag, comm, .. } = *wanted;
        while !self.over && self.open.len() < most {
            let (message, buffer) = match self.held.take() {
                Some(held) => held,
                None => match engine.claim_next(source, tag, comm) {
                    Ok(Some(message)) => match room_for::<T>(message.status()) {
                        Ok(buffer) => (message, buffer),
                        Err(error) => {
                            // The engine discards a message that is dropped.
                            commands.queue(wanted.lost(message.status(), error));
                            continue;
                        }
                    },
                    Ok(None) => return self.ask_after(engine, wanted, commands),
                    Err(PostError::Full { .. }) => return,
                    Err(error) => return self.end(wanted, error.into(), commands),
                },
            };
            let status = message.status();
            match engine.receive_message(message, buffer, false) {
                Ok(request) => self.open.push_back(Open { status, request }),
                Err(rejected) if matches!(rejected.error, PostError::Full { .. }) => {
                    self.held = Some((rejected.message, rejected.buffer));
                    return;
                }
                Err(rejected) => commands.queue(wanted.lost(status, rejected.error.into())),
            }
        }
    }

    fn deliver(&mut self, engine: &mut Engine, wanted: &Wanted, commands: &mut Commands) {
        let (mut done, mut waiting, mut late) = (Vec::new(), VecDeque::new(), Vec::new());
        for Open { status, request } in self.open.drain(..) {
            if late.contains(&status.source) || engine.test(&request) == Ok(Test::Pending) {
                late.push(status.source);
                waiting.push_back(Open { status, request });
                continue;
            }
            match engine.take(request) {
                Ok((data, Status { source, tag, .. })) => {
                    let Wanted { subscription, comm, .. } = *wanted;
                    done.push(Received { subscription, source, tag, comm, data });
                }
                Err(failed) => commands.queue(wanted.lost(status, failed.error.into())),
            }
        }
        self.open = waiting;
        if !done.is_empty() {
            commands.queue(Deliver(done));
        }
    }
}

impl<T: Element> Typed<T> {
    /// Nothing has come: from a source that has ended nothing will.
    fn ask_after(&mut self, engine: &mut Engine, wanted: &Wanted, commands: &mut Commands) {
        let changes = engine.store.progress().vc_changes;
        if self.open.is_empty() && self.asked.replace(changes) != Some(changes) {
            let Err(error) = engine.source_lives(wanted.source, wanted.comm) else { return };
            self.end(wanted, error.into(), commands);
        }
    }

    fn end(&mut self, wanted: &Wanted, error: OperationError, commands: &mut Commands) {
        self.over = true;
        use OperationError::{Post, Request};
        // Of an engine that is closed no subscription need tell.
        let closed = matches!(
            error,
            Post(PostError::Finalized | PostError::Poisoned(_))
                | Request(RequestError::Finalized | RequestError::Poisoned(_))
        );
        if !closed {
            commands.queue(wanted.over(error));
        }
    }
}

/// Messages of one subscription for observers and readers.
struct Deliver<T: Element>(Vec<Received<T>>);

impl<T: Element> Command for Deliver<T> {
    type Out = ();

    fn apply(mut self, world: &mut World) {
        for message in &mut self.0 {
            world.trigger_ref(message);
        }
        // A subscription that a system has spawned is not registered.
        if !world.contains_resource::<Messages<Received<T>>>() {
            MessageRegistry::register_message::<Received<T>>(world);
        }
        world.write_message_batch(self.0);
    }
}
