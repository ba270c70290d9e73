//! A message that a matched probe has found.

use crate::run::home::{Dropped, Home};
use std::fmt;
use thiserror::Error;
use tickwire_components::{Comm, NIL, PostError, Row, Status};

/// A message that a matched probe has found. No other receive or probe finds it any more.
///
/// Receive it with [`Engine::mrecv`](crate::Engine::mrecv) or [`Engine::imrecv`](crate::Engine::imrecv). If it is
/// dropped, the engine discards the message.
#[must_use = "dropping a message discards it: receive it"]
pub struct Message {
    pub(super) home: &'static Home,
    /// Its unexpected entry. [`NIL`] if it is from [`Rank::NULL`](crate::Rank::NULL), or was received.
    pub(super) row: Row,
    pub(super) epoch: u64,
    pub(super) comm: Comm,
    pub(super) status: Status,
}

impl Message {
    /// The source, tag and length (bytes) of the message.
    pub fn status(&self) -> Status {
        self.status
    }
}

impl Drop for Message {
    fn drop(&mut self) {
        if self.row != NIL {
            self.home.others.push((Dropped::Message(self.row), self.epoch));
        }
    }
}

impl fmt::Debug for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Message").field("status", &self.status).finish_non_exhaustive()
    }
}

/// The error of a receive of a probed message that could not be posted. Message and buffer come back with it.
#[derive(Error)]
#[error("{error}")]
pub struct RejectedMessage<B> {
    /// Why the receive was not posted.
    pub error: PostError,
    /// The message, which can be received again.
    pub message: Message,
    /// The buffer, which is the caller's again.
    pub buffer: B,
}

impl<B> fmt::Debug for RejectedMessage<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RejectedMessage({:?})", self.error)
    }
}
