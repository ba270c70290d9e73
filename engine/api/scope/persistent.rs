//! Persistent requests with borrowed buffers. They end with their scope.

use super::{Scope, Takes};
use crate::api::persistent::{Mode, Persistent};
use crate::api::request::{Failed, Rejected};
use tickwire_components::submission::Operation;
use tickwire_components::{Comm, IntoBuffer, LeasedBytes, PostError, Rank, Source, Tag, TagFilter};

macro_rules! send_init {
    ($($(#[$doc:meta])* $name:ident $mode:ident;)*) => {$(
        $(#[$doc])*
        ///
        /// # Errors
        /// A wrong argument or no free row. The error gives the buffer back.
        pub fn $name<B: IntoBuffer<Buffer: 'env>>(
            &mut self,
            buffer: B,
            to: Rank,
            tag: Tag,
            comm: Comm,
        ) -> Result<Persistent<B::Buffer>, Rejected<B::Buffer>>
        where
            L: Takes<B::Buffer>,
        {
            self.engine.init(buffer.into_buffer(), Operation::Send { to, tag }, Mode::$mode, comm, self.lends)
        }
    )*};
}

impl<'env, L> Scope<'_, 'env, L> {
    send_init! {
        /// As [`Engine::send_init`](crate::Engine::send_init), with a borrowed buffer.
        send_init Standard;
        /// As [`Engine::ssend_init`](crate::Engine::ssend_init), with a borrowed buffer.
        ssend_init Synchronous;
        /// As [`Engine::bsend_init`](crate::Engine::bsend_init), with a borrowed buffer.
        bsend_init Buffered;
        /// As [`Engine::rsend_init`](crate::Engine::rsend_init), with a borrowed buffer.
        rsend_init Ready;
    }

    /// As [`Engine::recv_init`](crate::Engine::recv_init), with a borrowed buffer.
    ///
    /// # Errors
    /// As [`Engine::recv_init`](crate::Engine::recv_init).
    pub fn recv_init<B: IntoBuffer<Buffer: LeasedBytes + 'env>>(
        &mut self,
        buffer: B,
        source: impl Into<Source>,
        tag: impl Into<TagFilter>,
        comm: Comm,
    ) -> Result<Persistent<B::Buffer>, Rejected<B::Buffer>>
    where
        L: Takes<B::Buffer>,
    {
        let operation = Operation::Receive { source: source.into(), tag: tag.into() };
        self.engine.init(buffer.into_buffer(), operation, Mode::Standard, comm, self.lends)
    }

    /// See [`Engine::buffer`](crate::Engine::buffer).
    ///
    /// # Errors
    /// As [`Engine::buffer`](crate::Engine::buffer).
    pub fn buffer<'a, B>(&'a mut self, persistent: &'a mut Persistent<B>) -> Result<&'a mut B, PostError> {
        self.engine.buffer(persistent)
    }

    /// See [`Engine::contents`](crate::Engine::contents).
    ///
    /// # Errors
    /// As [`Engine::contents`](crate::Engine::contents).
    pub fn contents<'a, B: AsMut<[u8]>>(
        &'a mut self,
        persistent: &'a mut Persistent<B>,
    ) -> Result<&'a mut [u8], PostError> {
        self.engine.contents(persistent)
    }

    /// See [`Engine::free`](crate::Engine::free).
    ///
    /// # Errors
    /// As [`Engine::free`](crate::Engine::free).
    pub fn free<B>(&mut self, persistent: Persistent<B>) -> Result<B, Failed<B, Persistent<B>>> {
        self.engine.free(persistent)
    }
}
