//! What goes wrong: told once, as an event and as a bevy message.

use crate::run::engine::{Closed, Engine};
use crate::{Comm, FinalizeError, OperationError, ProcId, Rank, Source, Tag, TagFilter};
use bevy_ecs::prelude::*;
use thiserror::Error;
use tickwire_components::{Row, VcState};

/// What has gone wrong. An event for observers, then a bevy message for readers.
#[derive(Event, Message, Clone, PartialEq, Debug, Error)]
#[non_exhaustive]
pub enum TickwireError {
    /// A send was not posted, or ended so.
    #[error("the message to rank {to} with tag {tag} was not sent: {error}")]
    Send {
        /// Whom it was for.
        to: Rank,
        /// Its tag.
        tag: Tag,
        /// Its communicator.
        comm: Comm,
        /// Why.
        error: OperationError,
    },
    /// A message of a subscription was not received, or nothing will come for it any more.
    #[error("nothing received in communicator {} ({}): {error}", comm.0, wanted(*from, *tag))]
    Receive {
        /// The entity of the subscription.
        subscription: Entity,
        /// Whose message: of the subscription, where no message is meant.
        from: Source,
        /// Its tag: of the subscription, where no message is meant.
        tag: TagFilter,
        /// Its communicator.
        comm: Comm,
        /// Why.
        error: OperationError,
    },
    /// A peer has failed. Subscriptions go on with all others.
    #[error("proc {proc} has failed: {reason}")]
    Peer {
        /// Which proc.
        proc: ProcId,
        /// What is known.
        reason: String,
    },
    /// A callback or a system within the engine has panicked. The engine does nothing any more.
    #[error("the engine is poisoned: {0}; leave the app, and start it anew")]
    Poisoned(String),
    /// The end was not clean.
    #[error(transparent)]
    Finalize(#[from] FinalizeError),
}

/// A source and a tag in words.
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

    /// Tells it.
    fn apply(mut self, world: &mut World) {
        world.trigger_ref(&mut self);
        world.write_message(self);
    }
}

/// Which failures have been told.
#[derive(Resource, Default)]
pub(super) struct Told {
    /// What has been told of.
    peers: Vec<Row>,
    /// What is counted up by every failure and every orderly end, when it was looked at last.
    seen: (u32, usize),
    poisoned: bool,
}

impl Told {
    /// Tells of peers that have failed since the last call, and of a poisoned engine once.
    pub(super) fn tell(&mut self, engine: &mut Engine, commands: &mut Commands) {
        match &engine.closed {
            Closed::No => {}
            // Whoever finalizes leaves the peers.
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
