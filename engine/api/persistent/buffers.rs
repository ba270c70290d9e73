//! The buffers of persistent requests that are not active: their bytes, and giving them back.

use super::Persistent;
use crate::api::request::Failed;
use crate::run::engine::Engine;
use tickwire_components::{Pending, PostError, RequestError};

impl Engine {
    /// The buffer of a persistent request that is not active, for reading and writing.
    ///
    /// The caller may replace the buffer, so the next start registers its memory anew. [`Engine::contents`], and buffers made by
    /// [`Engine::register`], keep the registration.
    ///
    /// # Errors
    /// The request is active or stale, or the engine is closed.
    pub fn buffer<'a, B>(&'a mut self, persistent: &'a mut Persistent<B>) -> Result<&'a mut B, PostError> {
        let row = self.idle_row(persistent)?;
        let tables = self.store.all();
        if tables.progress.registrations.serves_persistent(row) {
            tables.progress.registrations.let_go(row);
            tables.progress.pending |= Pending::WORLD;
        }
        // SAFETY: the token's type is the one its buffer was put with.
        #[expect(unsafe_code, reason = "type-erased ownership")]
        let buffer = unsafe { tables.held[row as usize].0.get_mut::<B>() };
        buffer.ok_or(PostError::Stale)
    }

    /// The bytes in the buffer of a persistent request that is not active, for reading and writing.
    ///
    /// # Errors
    /// As [`Engine::buffer`].
    pub fn contents<'a, B: AsMut<[u8]>>(
        &'a mut self,
        persistent: &'a mut Persistent<B>,
    ) -> Result<&'a mut [u8], PostError> {
        let row = self.idle_row(persistent)?;
        let tables = self.store.all();
        // SAFETY: the token's type is the one its buffer was put with.
        #[expect(unsafe_code, reason = "type-erased ownership")]
        let buffer = unsafe { tables.held[row as usize].0.get_mut::<B>() };
        buffer.map(AsMut::as_mut).ok_or(PostError::Stale)
    }

    /// Frees a persistent request and gives its buffer back (`MPI_Request_free`).
    ///
    /// # Errors
    /// [`RequestError::Pending`] if the request is active, or an error if it is stale. The request comes back. Dropping it frees it and its
    /// buffer once it is done.
    pub fn free<B>(&mut self, mut persistent: Persistent<B>) -> Result<B, Failed<B, Persistent<B>>> {
        let row = match self.idle_row(&persistent) {
            Ok(row) => row,
            Err(PostError::Active) => return Err(Failed::given_back(RequestError::Pending, persistent)),
            Err(PostError::Stale) => return Err(Failed::given_back(RequestError::Stale, persistent)),
            Err(_) => return Err(Failed::given_back(self.closed.request_error(), persistent)),
        };
        persistent.token.disarm();
        let tables = self.store.all();
        // SAFETY: the token's type is the one its buffer was put with.
        #[expect(unsafe_code, reason = "type-erased ownership")]
        let buffer = unsafe { tables.held[row as usize].0.take::<B>() };
        tables.progress.registrations.let_go(row);
        tables.progress.pending |= Pending::WORLD;
        self.free_row(row);
        buffer.ok_or(Failed::ended(RequestError::Stale, None))
    }
}
