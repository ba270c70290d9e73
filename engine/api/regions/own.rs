//! Updates of regions of this engine's own.

use crate::run::engine::Engine;
use tickwire_components::{Rank, RemoteKind, RequestError, Span, WindowError};
use tickwire_systems::procs::windows::regions::REGIONS;
use tickwire_transports::windows::{Claim, HeldBy, Updater};

impl Engine {
    /// Does an update of a region of this engine's own.
    pub(super) fn update_own_region(
        &mut self,
        kind: RemoteKind,
        (from, into): (Span, Span),
        at: usize,
    ) -> Result<(), WindowError> {
        let tried = |engine: &mut Engine| engine.try_update_own(kind, (from, into), at);
        if !self.wait_on_holder(REGIONS, tried)? {
            return Err(WindowError::Request(RequestError::OutOfBounds));
        }
        let me = self.store.all().procs.me;
        self.count_done(Rank(me), REGIONS)
    }

    /// Returns whether the update was possible.
    fn try_update_own(&mut self, kind: RemoteKind, (from, into): (Span, Span), at: usize) -> Result<bool, HeldBy> {
        let length = into.len();
        let all = self.store.all();
        let procs = &*all.procs;
        let Some(row) = all.windows.get(REGIONS) else { return Ok(false) };
        let Some((part, place)) = row.place(at, length).filter(|_| row.permits(kind, at)) else { return Ok(false) };
        let claim = Claim::waiting(|proc| row.is_gone(procs, proc));
        // SAFETY: the caller of the operation lends both runs, as long as its kind says.
        #[expect(unsafe_code, reason = "bytes that are addresses")]
        unsafe {
            match kind {
                RemoteKind::Update(code) | RemoteKind::FetchUpdate(code) => {
                    let old = if into.is_empty() { std::ptr::null_mut() } else { into.start() };
                    let Some(updater) = Updater::named(code) else { return Ok(false) };
                    part.update(updater, place, from, old, claim)
                }
                RemoteKind::CompareSwap(number) => {
                    let [expected, new] = from.start().cast::<[[u8; 8]; 2]>().read();
                    let old = part.compare_swap(number, place, expected, new, claim)?;
                    Ok(old.is_some_and(|old| {
                        into.start().copy_from_nonoverlapping(old.as_ptr(), into.len().min(old.len()));
                        true
                    }))
                }
                RemoteKind::Put
                | RemoteKind::Get
                | RemoteKind::Lock(_)
                | RemoteKind::Unlock(_)
                | RemoteKind::Batch
                | RemoteKind::LostPuts => Ok(false),
            }
        }
    }
}
