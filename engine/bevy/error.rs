//! Errors. Each is reported once, as an event and as a bevy message.

use crate::run::engine::{Closed, Engine};
use crate::{Comm, FinalizeError, OperationError, ProcId, Rank, Source, Tag, TagFilter};
use bevy_ecs::prelude::*;
use thiserror::Error;
use tickwire_components::{Row, VcState};

/// An error of the plugin. It is an event for observers, then a bevy message for readers.
#[derive(Event, Message, Clone, PartialEq, Debug, Error)]
#[non_exhaustive]
pub enum TickwireError {
    /// A send could not be posted, or ended with an error.
    #[error("the message to rank {to} with tag {tag} was not sent: {error}")]
    Send {
        /// The rank that it was for.
        to: Rank,
        /// The message's tag.
        tag: Tag,
        /// The message's communicator.
        comm: Comm,
        /// Why the send failed.
        error: OperationError,
    },
    /// A message of a subscription could not be received, or nothing will arrive for it any more.
    #[error("nothing received in communicator {} ({}): {error}", comm.0, wanted(*from, *tag))]
    Receive {
        /// The entity of the subscription.
        subscription: Entity,
        /// The source of the message, or that of the subscription if no single message is concerned.
        from: Source,
        /// The tag of the message, or that of the subscription if no single message is concerned.
        tag: TagFilter,
        /// The communicator.
        comm: Comm,
        /// Why nothing was received.
        error: OperationError,
    },
    /// A peer has failed. Subscriptions go on with all others.
    #[error("proc {proc} has failed: {reason}")]
    Peer {
        /// The proc that has failed.
        proc: ProcId,
        /// What is known about the failure.
        reason: String,
    },
    /// A callback or a system within the engine has panicked. The engine does nothing any more.
    #[error("the engine is poisoned: {0}; leave the app, and start it anew")]
    Poisoned(String),
    /// The engine could not be finalized cleanly.
    #[error(transparent)]
    Finalize(#[from] FinalizeError),
}

/// A source and a tag as text.
fn wanted(from: Source, tag: TagFilter) -> String {
    let from = match from {
        Source::Rank(rank) => format!("from rank {rank}"),
        Source::Any => "from any rank".to_owned(),
    };
    match tag {
        TagFilter::Tag(tag) => format!("{from}, tag {tag}"),
        TagFilter::Any => format!("{from}, any tag"),
    }
}

impl Command for TickwireError {
    type Out = ();

    /// Reports the error to observers and readers.
    fn apply(mut self, world: &mut World) {
        world.trigger_ref(&mut self);
        world.write_message(self);
    }
}

/// Which failures have been reported.
#[derive(Resource, Default)]
pub(super) struct Told {
    /// The rows of the peers whose failures were reported.
    peers: Vec<Row>,
    /// Two counters that every failure and every orderly end increases, as they were at the last look.
    seen: (u32, usize),
    poisoned: bool,
}

impl Told {
    /// Reports peers that have failed since the last call, and reports once that the engine is poisoned.
    pub(super) fn tell(&mut self, engine: &mut Engine, commands: &mut Commands) {
        match &engine.closed {
            Closed::No => {}
            // A finalized engine has left its peers, so nothing is reported.
            Closed::Finalized => return,
            Closed::Poisoned(words) => {
                if !std::mem::replace(&mut self.poisoned, true) {
                    commands.queue(TickwireError::Poisoned(words.clone()));
                }
                return;
            }
        }
        let all = engine.store.all();
        let seen = (all.progress.vc_changes, all.procs.departed.len());
        if std::mem::replace(&mut self.seen, seen) == seen {
            return;
        }
        for (row, vc) in (0..).zip(all.vcs.iter()) {
            let failed = vc.state == VcState::Failed && !all.procs.departed.contains(&row);
            if failed && !self.peers.contains(&row) {
                self.peers.push(row);
                let reason = all.procs.reason(row).to_owned();
                commands.queue(TickwireError::Peer { proc: ProcId(vc.proc), reason });
            }
        }
    }
}
