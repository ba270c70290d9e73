//! Options of a send besides buffer, rank, tag and communicator: its mode and its priority.

use crate::api::request::{Rejected, Request};
use crate::run::engine::Engine;
use tickwire_components::{Comm, IntoBuffer, Pieces, Rank, Tag, car_flags};

/// How a message is sent, for [`Engine::isend_with`].
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # use tickwire::{Bootstrap, Engine, Rank, SendOptions, Tag};
/// # let mut engine = Engine::builder().build(Bootstrap::solo())?;
/// # let world = engine.comm_world();
/// let urgent = SendOptions::new().priority(200);
/// let request = engine.isend_with(vec![1u8, 2, 3], Rank(0), Tag(7), world, urgent)?;
/// # engine.recv(&mut [0u8; 3], Rank(0), Tag(7), world)?;
/// # engine.wait(&request)?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[must_use]
pub struct SendOptions {
    priority: Option<u8>,
    flags: u16,
}

impl SendOptions {
    /// Standard mode, with the priority of the communicator.
    pub const fn new() -> Self {
        SendOptions { priority: None, flags: 0 }
    }

    /// Sets the priority of the message: from 0, the default, to 255, the most urgent.
    ///
    /// More urgent messages go first, over all transports. That holds for their envelopes, for their data, which go between pieces of less
    /// urgent messages, and for the receiver's answers to their offers. Matching still keeps the order of messages of one communicator to
    /// one rank: the envelopes of earlier messages are sent along in front of an urgent one, their data are not. Less urgent messages
    /// always make some progress.
    pub const fn priority(self, priority: u8) -> Self {
        SendOptions { priority: Some(priority), ..self }
    }

    /// Synchronous mode. See [`Engine::issend`].
    pub const fn synchronous(self) -> Self {
        SendOptions { flags: car_flags::SYNCHRONOUS, ..self }
    }

    /// Ready mode. See [`Engine::irsend`].
    pub const fn ready(self) -> Self {
        SendOptions { flags: car_flags::READY, ..self }
    }

    /// Options with only the flags of a mode.
    pub(crate) const fn of(flags: u16) -> Self {
        SendOptions { priority: None, flags }
    }

    /// The flags of the mode, for the CAR.
    pub(crate) const fn flags(&self) -> u16 {
        self.flags
    }

    /// The message's own priority. `None` if it has that of the communicator.
    pub(crate) const fn own_priority(&self) -> Option<u8> {
        self.priority
    }
}

impl Engine {
    /// Starts a send with options.
    ///
    /// # Errors
    /// As [`Engine::isend`].
    pub fn isend_with<B: IntoBuffer<Buffer: Send + 'static>>(
        &mut self,
        buffer: B,
        to: Rank,
        tag: Tag,
        comm: Comm,
        options: SendOptions,
    ) -> Result<Request<B::Buffer>, Rejected<B::Buffer>> {
        self.post_with(buffer.into_buffer(), to, tag, comm, false, options)
    }

    pub(crate) fn post_with<B: Pieces>(
        &mut self,
        buffer: B,
        to: Rank,
        tag: Tag,
        comm: Comm,
        scoped: bool,
        options: SendOptions,
    ) -> Result<Request<B>, Rejected<B>> {
        let options = self.asking(options, to, comm, buffer.total());
        // A message that can leave at once leaves before all that wait, whatever their priority.
        if options.flags == 0 && self.send_at_once(&buffer, to, tag, comm) {
            return Ok(Request::ready(self.home, buffer, to.0, tag.0));
        }
        self.post_send_rows(buffer, to, tag, comm, scoped, options)
    }

    /// The same options, but without ready mode if the message cannot ask whether its receiver is ready.
    pub(crate) fn asking(&mut self, options: SendOptions, to: Rank, comm: Comm, length: usize) -> SendOptions {
        let asks = match options.flags {
            car_flags::READY => self.asks_when_ready(to, comm, length),
            _ => true,
        };
        SendOptions { flags: if asks { options.flags } else { 0 }, ..options }
    }
}
