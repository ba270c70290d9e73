//! Sending: commands put messages into the outbox, and a system posts them.

use super::bounds::{Bounds, tick};
use super::error::{TickwireError, Told};
use crate::run::engine::Engine;
use crate::{
    Comm, IntoBuffer, OperationError, Pieces, PostError, Rank, Rejected, Request, SendOptions, Status, Tag, Test,
};
use bevy_ecs::prelude::*;
use std::collections::VecDeque;
use thiserror::Error;
use tickwire_components::Exclusive;

/// Sending from systems.
pub trait TickwireCommands {
    /// Sends a buffer to a rank, in standard mode. Takes any buffer that [`Engine::isend`] takes.
    /// [`TickwireSystems::Send`](super::TickwireSystems::Send) posts it, after everything that was sent before it.
    ///
    /// A [`Sent`] or a [`TickwireError::Send`] reports the end of the send. While the engine has no free row, the message waits.
    fn send<B: IntoBuffer<Buffer: Send + 'static>>(&mut self, buffer: B, to: Rank, tag: Tag, comm: Comm) -> &mut Self {
        self.send_with(buffer, to, tag, comm, SendOptions::new())
    }

    /// As [`TickwireCommands::send`], with a mode and a priority.
    fn send_with<B: IntoBuffer<Buffer: Send + 'static>>(
        &mut self,
        buffer: B,
        to: Rank,
        tag: Tag,
        comm: Comm,
        options: SendOptions,
    ) -> &mut Self;
}

impl TickwireCommands for Commands<'_, '_> {
    fn send_with<B: IntoBuffer<Buffer: Send + 'static>>(
        &mut self,
        buffer: B,
        to: Rank,
        tag: Tag,
        comm: Comm,
        options: SendOptions,
    ) -> &mut Self {
        let envelope = Envelope { to, tag, comm, options };
        let outgoing: Box<dyn Outgoing> = Box::new(Typed { envelope, state: State::New(buffer.into_buffer()) });
        self.queue(move |world: &mut World| match world.get_resource_mut::<Outbox>() {
            Some(mut outbox) => {
                outbox.queues.get().new.push_back(outgoing);
                outbox.has_new = true;
                Ok(())
            }
            None => Err(NoPlugin),
        });
        self
    }
}

/// The error of a command that sends a message in an app without an engine.
#[derive(Debug, Error)]
#[error("a message was sent in a world without an engine: add TickwirePlugin to the app")]
struct NoPlugin;

/// A send that is done. It is an event for observers, then a bevy message for readers.
#[derive(Event, Message, Clone, Copy, PartialEq, Eq, Debug)]
pub struct Sent {
    /// The rank that it was for.
    pub to: Rank,
    /// The message's tag.
    pub tag: Tag,
    /// The message's communicator.
    pub comm: Comm,
    /// The message's length, bytes.
    pub length: usize,
}

impl Command for Sent {
    type Out = ();

    /// Reports the send to observers and readers.
    fn apply(mut self, world: &mut World) {
        world.trigger_ref(&mut self);
        world.write_message(self);
    }
}

/// Messages that are to be sent, and messages that are being sent.
#[derive(Resource, Default)]
pub(super) struct Outbox {
    queues: Exclusive<Queues>,
    /// Whether there is a message that [`Outbox::post`] has not tried to post.
    has_new: bool,
}

#[derive(Default)]
struct Queues {
    /// Messages that are not posted yet.
    new: VecDeque<Box<dyn Outgoing>>,
    posted: Vec<Box<dyn Outgoing>>,
}

impl Outbox {
    /// Whether a message was sent by a command and not tried to be posted since.
    pub(super) fn has_new(&self) -> bool {
        self.has_new
    }

    /// Posts messages while there are free rows. Returns whether all are posted.
    pub(super) fn post(&mut self, engine: &mut Engine, commands: &mut Commands) -> bool {
        engine.full_waits = true;
        self.has_new = false;
        let all = self.post_while_free(engine, commands);
        engine.full_waits = false;
        all
    }

    fn post_while_free(&mut self, engine: &mut Engine, commands: &mut Commands) -> bool {
        let Queues { new, posted } = self.queues.get();
        while let Some(mut outgoing) = new.pop_front() {
            match outgoing.post(engine) {
                Ok(()) => posted.push(outgoing),
                Err(PostError::Full { .. }) => {
                    new.push_front(outgoing);
                    return false;
                }
                Err(error) => commands.queue(outgoing.envelope().failed(error.into())),
            }
        }
        true
    }

    /// Reports sends that have ended, which frees their rows. Returns whether there were any.
    pub(super) fn tell(&mut self, engine: &mut Engine, commands: &mut Commands) -> bool {
        let posted = &mut self.queues.get().posted;
        let before = posted.len();
        posted.retain_mut(|outgoing| {
            let Some(ended) = outgoing.end(engine) else { return true };
            let envelope = outgoing.envelope();
            match ended {
                Ok(status) => {
                    let Envelope { to, tag, comm, .. } = envelope;
                    commands.queue(Sent { to, tag, comm, length: status.length });
                }
                Err(error) => commands.queue(envelope.failed(error)),
            }
            false
        });
        posted.len() < before
    }
}

/// What is known of a message besides its bytes.
#[derive(Clone, Copy)]
struct Envelope {
    to: Rank,
    tag: Tag,
    comm: Comm,
    options: SendOptions,
}

impl Envelope {
    fn failed(&self, error: OperationError) -> TickwireError {
        let Envelope { to, tag, comm, .. } = *self;
        TickwireError::Send { to, tag, comm, error }
    }
}

/// A message to be sent, with the type of its buffer erased.
trait Outgoing: Send {
    fn envelope(&self) -> Envelope;

    /// Posts the message.
    fn post(&mut self, engine: &mut Engine) -> Result<(), PostError>;

    /// The result of the send, once it has ended; else `None`. Frees the buffer.
    fn end(&mut self, engine: &mut Engine) -> Option<Result<Status, OperationError>>;
}

struct Typed<B> {
    envelope: Envelope,
    state: State<B>,
}

enum State<B> {
    New(B),
    Posted(Request<B>),
    Over,
}

impl<B: Pieces + Send + 'static> Outgoing for Typed<B> {
    fn envelope(&self) -> Envelope {
        self.envelope
    }

    fn post(&mut self, engine: &mut Engine) -> Result<(), PostError> {
        let Envelope { to, tag, comm, options } = self.envelope;
        match std::mem::replace(&mut self.state, State::Over) {
            State::New(buffer) => match engine.isend_with(buffer, to, tag, comm, options) {
                Ok(request) => self.state = State::Posted(request),
                Err(Rejected { error, buffer }) => {
                    self.state = State::New(buffer);
                    return Err(error);
                }
            },
            posted => self.state = posted,
        }
        Ok(())
    }

    fn end(&mut self, engine: &mut Engine) -> Option<Result<Status, OperationError>> {
        if let State::Posted(request) = &self.state
            && engine.test(request) == Ok(Test::Pending)
        {
            return None;
        }
        match std::mem::replace(&mut self.state, State::Over) {
            State::Posted(request) => match engine.take(request) {
                Ok((_, status)) => Some(Ok(status)),
                Err(failed) => Some(Err(failed.error.into())),
            },
            state => {
                self.state = state;
                None
            }
        }
    }
}

/// Posts messages that commands have sent, ticks the engine, and reports sends that are done.
///
/// *Reads* the outbox. *Writes* it and the engine, and queues events and messages as commands. *Bound* all messages sent since the last
/// run, and `ticks_max` ticks for as many of them as there are rows. *Why* the messages of a frame leave together, at one known place.
pub(super) fn send(
    engine: Option<NonSendMut<Engine>>,
    bounds: Res<Bounds>,
    mut outbox: ResMut<Outbox>,
    mut told: ResMut<Told>,
    mut commands: Commands,
) {
    let Some(mut engine) = engine else { return };
    let engine = &mut *engine;
    loop {
        let all = outbox.post(engine, &mut commands);
        tick(engine, bounds.ticks_max);
        let freed = outbox.tell(engine, &mut commands);
        // Messages without a row wait, as long as no send ends. Something arrives then, which wakes an app that sleeps.
        if all || !freed {
            break;
        }
    }
    told.tell(engine, &mut commands);
}
