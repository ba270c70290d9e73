//! Operations on regions of this engine's own.

use crate::run::engine::Engine;
use tickwire_components::{Rank, RemoteKind, RequestError, Span, WindowError};
use tickwire_systems::procs::windows::regions::REGIONS;
use tickwire_transports::windows::Updater;

impl Engine {
    /// Does an operation on a region of this engine's own.
    pub(super) fn region_own(
        &mut self,
        kind: RemoteKind,
        (from, into): (Span, Span),
        length: usize,
        at: usize,
    ) -> Result<(), WindowError> {
        let mut done = Some(false);
        self.wait_on_memory(|engine| {
            done = engine.try_region_own(kind, (from, into), length, at);
            done.is_some()
        })?;
        if done != Some(true) {
            return Err(WindowError::Request(RequestError::OutOfBounds));
        }
        let me = self.store.all().procs.me;
        self.count_done(Rank(me), REGIONS)
    }

    /// Returns whether the operation was possible, or `None` if a peer has the lock.
    fn try_region_own(
        &mut self,
        kind: RemoteKind,
        (from, into): (Span, Span),
        length: usize,
        at: usize,
    ) -> Option<bool> {
        let all = self.store.all();
        let vcs = &*all.vcs;
        let Some(row) = all.windows.get(REGIONS) else { return Some(false) };
        let Some((part, place)) = row.place(at, length).filter(|_| row.permits(kind, at)) else { return Some(false) };
        let dead = |proc| row.is_dead(vcs, proc);
        // SAFETY: the caller of the operation lends both runs, as long as its kind says.
        #[expect(unsafe_code, reason = "bytes that are addresses")]
        unsafe {
            match kind {
                RemoteKind::Put => Some(part.put(place, from)),
                RemoteKind::Get => Some(part.get(place, into)),
                RemoteKind::Update(code) | RemoteKind::FetchUpdate(code) => {
                    let old = if into.is_empty() { std::ptr::null_mut() } else { into.start() };
                    let Some(updater) = Updater::named(code) else { return Some(false) };
                    part.update(updater, place, from, old, dead).ok()
                }
                RemoteKind::CompareSwap(number) => {
                    let [expected, new] = from.start().cast::<[[u8; 8]; 2]>().read();
                    let old = part.compare_swap(number, place, expected, new, dead).ok()?;
                    Some(old.is_some_and(|old| {
                        into.start().copy_from_nonoverlapping(old.as_ptr(), into.len().min(old.len()));
                        true
                    }))
                }
                RemoteKind::Lock(_) | RemoteKind::Unlock(_) | RemoteKind::Batch => Some(false),
            }
        }
    }
}
