//! A message that a matched probe has found.

use crate::run::home::Home;
use std::fmt;
use thiserror::Error;
use tickwire_components::{Comm, NIL, PostError, Row, Status};

/// A message that a matched probe has found: no other receive or probe finds it any more.
///
/// Receive it with [`Engine::mrecv`](crate::Engine::mrecv) or [`Engine::imrecv`](crate::Engine::imrecv). Dropping it throws the message away.
#[must_use = "dropping a message throws it away: receive it"]
pub struct Message {
    pub(super) home: &'static Home,
    /// Its row among the unexpected entries; [`NIL`] if it is from no proc or was received.
    pub(super) row: Row,
    pub(super) epoch: u64,
    pub(super) comm: Comm,
    pub(super) status: Status,
}

impl Message {
    /// Its sender, tag and length.
    pub fn status(&self) -> Status {
        self.status
    }
}

impl Drop for Message {
    fn drop(&mut self) {
        if self.row != NIL {
            self.home.messages.push((self.row, self.epoch));
        }
    }
}

impl fmt::Debug for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Message").field("status", &self.status).finish_non_exhaustive()
    }
}

/// A receive of a probed message that could not be posted; message and buffer come back.
#[derive(Error)]
#[error("{error}")]
pub struct RejectedMessage<B> {
    /// Why.
    pub error: PostError,
    /// The message.
    pub message: Message,
    /// The buffer.
    pub buffer: B,
}

impl<B> fmt::Debug for RejectedMessage<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RejectedMessage({:?})", self.error)
    }
}
