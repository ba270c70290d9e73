//! Memory that is registered with transports which need that: what the application says about it, and what it can see of it.

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
/// Any call that takes a buffer takes this one. Before its memory is freed, the engine is told, so that a registration never outlives the
/// memory.
#[derive(Debug)]
pub struct Registered<B> {
    /// `None` only once the buffer has been taken out.
    buffer: Option<B>,
    numbers: Vec<u64>,
    withdrawn: Arc<SegQueue<u64>>,
}

impl<B> Registered<B> {
    /// The buffer. From now on its memory is that of an ordinary buffer.
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
unsafe impl<B: OneRun> OneRun for Registered<B> {
    fn may_alias(&self) -> bool {
        self.buffer.as_ref().is_some_and(OneRun::may_alias)
    }
}

impl Engine {
    /// Says that a buffer will be used for many operations. What a transport needs to know of its memory is then kept between operations,
    /// within the bounds of [`Limits`](crate::Limits), until the buffer is dropped or taken out.
    ///
    /// For other buffers, only operations and persistent requests that hold them keep it. Such a buffer's memory may be freed and its
    /// addresses used again without the engine knowing.
    ///
    /// The buffer must be owned: if the result of a borrowed one were forgotten, the registration would outlive the memory.
    pub fn register<B: Pieces + 'static>(&mut self, buffer: B) -> Registered<B> {
        let registrations = &mut self.store.progress().registrations;
        let runs = (0..buffer.pieces()).map(|index| buffer.piece(index));
        let numbers = runs.filter(|run| !run.is_empty()).map(|run| registrations.announce(run)).collect();
        Registered { numbers, withdrawn: registrations.withdrawn.clone(), buffer: Some(buffer) }
    }

    /// What is registered with transports that need it, and how often a registration was found. All 0 if no transport needs it.
    pub fn registrations(&mut self) -> RegistrationCounts {
        self.store.progress().registrations.counts()
    }

    /// Registers the memory of a persistent request for as long as the request lives: with the transport that it uses, or, for any source,
    /// with each transport that needs it. Memory that cannot be registered now is registered by each start.
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
            // A transport that neither reads remote memory nor matches messages writes only its own memory.
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
