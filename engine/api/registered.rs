//! Memory that is registered with transports that need it: what the application says of it, and what it may see.

use crate::run::engine::Engine;
use crossbeam_queue::SegQueue;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use tickwire_components::submission::Operation;
use tickwire_components::{
    Access, Comm, LeasedBytes, NIL, OneRun, Pieces, RegistrationCounts, Row, Source, Span, Stretch,
};
use tickwire_systems::procs::communicators::alive;
use tickwire_systems::procs::routes::endpoint_of;
use tickwire_systems::steps::registering::acquire;

/// A buffer whose memory stays registered between operations, made by [`Engine::register`].
///
/// It is the buffer for every call that takes one. The engine is told before its memory is freed, so that what is
/// registered never outlives it.
#[derive(Debug)]
pub struct Registered<B> {
    /// `None` only once it has been taken out.
    buffer: Option<B>,
    numbers: Vec<u64>,
    withdrawn: Arc<SegQueue<u64>>,
}

impl<B> Registered<B> {
    /// The buffer; its memory is an ordinary buffer's from now on.
    pub fn into_inner(mut self) -> B {
        self.withdraw();
        match self.buffer.take() {
            Some(buffer) => buffer,
            None => unreachable!("the buffer is taken out here alone, which ends the value"),
        }
    }

    fn withdraw(&mut self) {
        self.numbers.drain(..).for_each(|number| self.withdrawn.push(number));
    }
}

impl<B> Drop for Registered<B> {
    fn drop(&mut self) {
        self.withdraw();
    }
}

impl<B: AsRef<[u8]>> Deref for Registered<B> {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        self.buffer.as_ref().map_or(&[], AsRef::as_ref)
    }
}

impl<B: AsRef<[u8]> + AsMut<[u8]>> DerefMut for Registered<B> {
    fn deref_mut(&mut self) -> &mut [u8] {
        self.buffer.as_mut().map_or(&mut [], AsMut::as_mut)
    }
}

impl<B: AsMut<[u8]>> AsMut<[u8]> for Registered<B> {
    fn as_mut(&mut self) -> &mut [u8] {
        self.buffer.as_mut().map_or(&mut [], AsMut::as_mut)
    }
}

// SAFETY: the buffer is as stable in here as by itself: nobody gets it but by taking it out, which ends the value.
#[expect(unsafe_code, reason = "the engine trusts the addresses that a buffer type reports")]
unsafe impl<B: Pieces> Pieces for Registered<B> {
    fn pieces(&self) -> usize {
        self.buffer.as_ref().map_or(0, Pieces::pieces)
    }

    fn piece(&self, index: usize) -> Span {
        self.buffer.as_ref().map_or(Span::EMPTY, |buffer| buffer.piece(index))
    }

    fn total(&self) -> usize {
        self.buffer.as_ref().map_or(0, Pieces::total)
    }

    fn has_overlap(&self) -> bool {
        self.buffer.as_ref().is_some_and(Pieces::has_overlap)
    }

    fn layout(&self) -> Option<Stretch> {
        self.buffer.as_ref()?.layout()
    }

    fn type_name(&self) -> Option<&'static str> {
        self.buffer.as_ref()?.type_name()
    }
}

// SAFETY: as the buffer itself.
#[expect(unsafe_code, reason = "the engine trusts the addresses that a buffer type reports")]
unsafe impl<B: LeasedBytes> LeasedBytes for Registered<B> {}

// SAFETY: as the buffer itself, which is there until the value ends.
#[expect(unsafe_code, reason = "the engine trusts what a buffer type reports")]
unsafe impl<B: OneRun> OneRun for Registered<B> {}

impl Engine {
    /// Says that a buffer will be used for many operations: what a transport needs to know of its memory is kept between
    /// them, up to the bounds of [`Limits`](crate::Limits), until it is dropped or taken out.
    ///
    /// Of other buffers only the operations and persistent requests that have them keep it: their memory may be freed and
    /// its addresses be used again without the engine knowing.
    pub fn register<B: Pieces>(&mut self, buffer: B) -> Registered<B> {
        let registrations = &mut self.store.progress().registrations;
        let runs = (0..buffer.pieces()).map(|index| buffer.piece(index));
        let numbers = runs.filter(|run| !run.is_empty()).map(|run| registrations.announce(run)).collect();
        Registered { numbers, withdrawn: registrations.withdrawn.clone(), buffer: Some(buffer) }
    }

    /// What is registered with transports that need it, and how often that was found. All 0 where none does.
    pub fn registrations(&mut self) -> RegistrationCounts {
        self.store.progress().registrations.counts()
    }

    /// Registers the memory of a persistent request for as long as it lives: with the method that it goes over, or for any
    /// source with each that needs it. What cannot be registered now is registered by each start.
    pub(crate) fn register_persistent(&mut self, row: Row, buffer: &impl Pieces, operation: Operation, comm: Comm) {
        let mut all = self.store.all();
        if !all.endpoints.iter().any(|endpoint| endpoint.abilities.registers) {
            return;
        }
        let (receive, peer) = match operation {
            Operation::Send { to, .. } => (false, Source::from(to)),
            Operation::Receive { source, .. } => (true, source),
        };
        let access = if receive { Access::RECEIVE } else { Access::SEND };
        let route = match peer {
            Source::Any => None,
            Source::Rank(rank) => {
                let proc = alive(all.communicators, comm.0).and_then(|comm| comm.proc(rank.0)).unwrap_or(NIL);
                Some(endpoint_of(&mut all, proc))
            }
        };
        for (number, endpoint) in (0u8..).zip(all.endpoints.iter_mut()) {
            let serves = route.is_none_or(|route| route == Some(number)) && endpoint.abilities.registers;
            // A method that neither reads memory nor moves messages fills none but its own.
            let transport = endpoint.transport.get();
            let fills = transport.capabilities().remote_read || transport.direct().is_some();
            if !serves || (receive && !fills) || buffer.total() as u64 <= endpoint.abilities.copies {
                continue;
            }
            for run in (0..buffer.pieces()).map(|index| buffer.piece(index)).filter(|run| !run.is_empty()) {
                if let Ok(reference) = acquire(all.progress, endpoint, number, run, access) {
                    all.progress.registrations.hold(row, reference, true);
                }
            }
        }
    }
}
