//! The types and constants of a medium's connections.

use super::sockets::Socket;

/// The types and constants of a medium. Its functions are in [`super::Medium`].
pub(crate) trait Parts: Sized {
    /// The most links.
    const LINKS_MAX: usize;
    /// Whether a peer that has closed in order waits for a goodbye, which it gets once all its frames have arrived.
    const ANSWERS_GOODBYES: bool;

    /// A control connection.
    type Socket: Socket;
    /// The contents of a proc's card.
    type Card;
    /// What a call keeps besides its socket.
    type Request;
    /// What an open connection keeps besides its socket.
    type Line;
    /// What a link is opened with.
    type Ends;
    /// What tells whether more frames arrive from a peer that has gone.
    type Ending;
}

/// What a greeting over a medium carries besides.
pub(crate) type Extra<M> = <<M as Parts>::Socket as Socket>::Extra;
/// What a medium sends when a connection is closed in order.
pub(crate) type Goodbye<M> = <<M as Parts>::Socket as Socket>::Goodbye;
