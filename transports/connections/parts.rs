//! What the connections over a medium are made of: its types, and what is fixed for it.

use super::sockets::Socket;

/// The types of a medium, and what is fixed for it. What it does is in [`super::Medium`].
pub(crate) trait Parts: Sized {
    /// Links at most.
    const LINKS_MAX: usize;
    /// Whether a peer that has closed in order waits for a goodbye once all that it has sent is here.
    const ANSWERS_GOODBYES: bool;

    /// Control connections.
    type Socket: Socket;
    /// What a proc's card says.
    type Card;
    /// What a call keeps besides its socket.
    type Request;
    /// What an open connection keeps besides its socket.
    type Line;
    /// What a link is opened with.
    type Ends;
    /// What tells whether more comes from a peer that has gone.
    type Ending;
}

/// What a greeting over a medium brings besides.
pub(crate) type Extra<M> = <<M as Parts>::Socket as Socket>::Extra;
/// What is said over a medium when a connection is closed in order.
pub(crate) type Goodbye<M> = <<M as Parts>::Socket as Socket>::Goodbye;
