//! The messages that a subscription is receiving.

use super::error::TickwireError;
use super::received::{Element, Received};
use crate::api::probe::room_for;
use crate::run::engine::Engine;
use crate::{Comm, Message, OperationError, PostError, Request, RequestError, Source, Status, TagFilter, Test};
use bevy_ecs::message::{MessageRegistry, Messages};
use bevy_ecs::prelude::*;
use std::collections::VecDeque;

/// The messages that a subscription wants.
#[derive(Clone, Copy)]
pub(super) struct Wanted {
    pub(super) subscription: Entity,
    pub(super) source: Source,
    pub(super) tag: TagFilter,
    pub(super) comm: Comm,
}

impl Wanted {
    /// The error that nothing more will arrive.
    fn over(&self, error: OperationError) -> TickwireError {
        let Wanted { subscription, source, tag, comm } = *self;
        TickwireError::Receive { subscription, from: source, tag, comm, error }
    }

    /// The error that a message could not be received.
    fn lost(&self, status: Status, error: OperationError) -> TickwireError {
        let (from, tag) = (status.source.into(), status.tag.into());
        TickwireError::Receive { subscription: self.subscription, from, tag, comm: self.comm, error }
    }
}

/// The receives of a subscription, with the type of its elements erased.
pub(super) trait Inbox: Send {
    /// Starts to receive messages that have arrived, at most `most`, and until as many receives are open.
    fn claim(&mut self, engine: &mut Engine, wanted: &Wanted, most: usize, commands: &mut Commands);

    /// Delivers the messages that are complete. A message waits for earlier messages of the same sender. Returns whether there may be
    /// messages that were left over by the bound `most`, and could be claimed now.
    fn deliver(&mut self, engine: &mut Engine, wanted: &Wanted, most: usize, commands: &mut Commands) -> bool;
}

/// A receive in progress.
struct Open<T> {
    status: Status,
    request: Request<Vec<T>>,
}

/// Receives of elements `T`.
pub(super) struct Typed<T> {
    /// The open receives, in the order in which their messages were matched.
    open: VecDeque<Open<T>>,
    /// A message that was claimed, and for whose receive the engine had no row.
    held: Option<(Message, Vec<T>)>,
    /// Whether the last claim has stopped at its bound.
    stopped: bool,
    /// Whether nothing more will arrive, and that was reported.
    over: bool,
    /// [`vc_changes`](tickwire_components::Progress::vc_changes) when the source was checked last.
    asked: Option<u32>,
}

impl<T> Default for Typed<T> {
    fn default() -> Self {
        Typed { open: VecDeque::new(), held: None, stopped: false, over: false, asked: None }
    }
}

impl<T: Element> Inbox for Typed<T> {
    fn claim(&mut self, engine: &mut Engine, wanted: &Wanted, most: usize, commands: &mut Commands) {
        let Wanted { source, tag, comm, .. } = *wanted;
        let mut claimed = 0;
        self.stopped = false;
        while !self.over {
            if claimed == most || self.open.len() >= most {
                self.stopped = true;
                return;
            }
            claimed += 1;
            let (message, buffer) = match self.held.take() {
                Some(held) => held,
                None => match engine.claim_next(source, tag, comm) {
                    Ok(Some(message)) => match room_for::<T>(message.status()) {
                        Ok(buffer) => (message, buffer),
                        Err(error) => {
                            // The message is dropped, so the engine discards it.
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

    fn deliver(&mut self, engine: &mut Engine, wanted: &Wanted, most: usize, commands: &mut Commands) -> bool {
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
        self.stopped && self.open.len() < most
    }
}

impl<T: Element> Typed<T> {
    /// No message has arrived. Checks whether the source has ended, and then ends the subscription.
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
        // If the engine is closed, subscriptions do not report that.
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

/// Messages of one subscription, to be delivered to observers and readers.
struct Deliver<T: Element>(Vec<Received<T>>);

impl<T: Element> Command for Deliver<T> {
    type Out = ();

    fn apply(mut self, world: &mut World) {
        for message in &mut self.0 {
            world.trigger_ref(message);
        }
        // If a system has spawned the subscription, its message type may not be registered yet.
        if !world.contains_resource::<Messages<Received<T>>>() {
            MessageRegistry::register_message::<Received<T>>(world);
        }
        world.write_message_batch(self.0);
    }
}
