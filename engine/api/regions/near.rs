//! Operations on regions of a proc on this host, which does nothing for them: their memory is read where this process maps it, and
//! read and written by the kernel otherwise. The owner's [directory](super::directory) is locked meanwhile.

use crate::run::engine::Engine;
use tickwire_components::{Rank, RegionAccess, RemoteKind, Span, VcState, WindowError};
use tickwire_systems::procs::windows::Reach;
use tickwire_systems::procs::windows::regions::{REGIONS, needed, region_of};
use tickwire_transports::windows::Updater;
use tickwire_transports::{SharedMemory, copy};

/// Bytes that are moved under one lock: others wait for no longer than that takes.
const LOCKED_BYTES: usize = 256 << 10;

/// What became of an operation.
enum Near {
    Done,
    /// The lock is held.
    Busy,
    /// The directory does not say that this is possible. The owner's engine does it, or says why not.
    Elsewhere,
    /// The owner's memory cannot be reached any more.
    Lost,
}

impl Engine {
    /// Does an operation; `false` if the owner's engine has to.
    pub(super) fn region_near(
        &mut self,
        kind: RemoteKind,
        (from, into): (Span, Span),
        length: usize,
        (proc, at): (u32, usize),
    ) -> Result<bool, WindowError> {
        let mut done = 0;
        loop {
            let bytes = (length - done).min(LOCKED_BYTES);
            let runs = match kind {
                RemoteKind::CompareSwap(_) => (from, into),
                _ => (from.part(done, bytes), into.part(done, bytes)),
            };
            let mut near = Near::Busy;
            self.wait_at_once(|engine| {
                near = engine.try_near(kind, runs, bytes, (proc, at + done));
                !matches!(near, Near::Busy)
            })?;
            match near {
                Near::Done => done += bytes,
                Near::Lost => return Err(self.out_of_reach(Rank(proc), REGIONS)),
                Near::Busy | Near::Elsewhere => return Ok(false),
            }
            if done == length {
                let target = self.target(Rank(proc), REGIONS)?;
                (target.issued, target.completed) = (target.issued + 1, target.completed + 1);
                return Ok(true);
            }
        }
    }

    fn try_near(&mut self, kind: RemoteKind, runs: (Span, Span), length: usize, (proc, at): (u32, usize)) -> Near {
        let all = self.store.all();
        let vcs = &*all.vcs;
        let Some(row) = all.windows.get(REGIONS) else { return Near::Elsewhere };
        let Reach::Kernel { part, endpoint, link, .. } = &row.targets[proc as usize].reach else {
            return Near::Elsewhere;
        };
        let shared = all.endpoints.get_mut(usize::from(*endpoint)).and_then(|of| of.transport.get().shared_memory());
        let Some(shared) = shared else { return Near::Elsewhere };
        // A holder that has died is passed over, also one that is no target of this proc.
        let dead = |holder| vcs.iter().any(|vc| vc.proc == holder && vc.state == VcState::Failed);
        let Ok(guard) = part.lock_updates(dead) else { return Near::Busy };
        let (number, offset) = region_of(at);
        let Some(region) = part.listed(&guard, number) else { return Near::Elsewhere };
        let fits = (offset as u64).checked_add(length as u64).is_some_and(|end| end <= region.bytes);
        let address = region.address.wrapping_add(offset as u64);
        if !fits || !RegionAccess::from_bits(region.access).covers(needed(kind)) {
            return Near::Elsewhere;
        }
        // SAFETY: the caller of the operation lends both runs.
        #[expect(unsafe_code, reason = "bytes that are addresses")]
        unsafe {
            operate(shared, *link, kind, runs, (address, length))
        }
    }
}

/// Does an operation on memory of the peer of a link.
///
/// # Safety
/// Both runs are valid for what the kind says, `length` bytes of them.
#[expect(unsafe_code, reason = "bytes that are addresses")]
unsafe fn operate(
    shared: &mut dyn SharedMemory,
    link: u32,
    kind: RemoteKind,
    (from, into): (Span, Span),
    (address, length): (u64, usize),
) -> Near {
    let lost_unless = |moved| if moved { Near::Done } else { Near::Lost };
    let size = match kind {
        // SAFETY: by this function's contract.
        RemoteKind::Put => return lost_unless(unsafe { shared.store(link, address, from) }),
        RemoteKind::Get => {
            if let Some(mapped) = shared.heap_of(link).and_then(|heap| heap.find(address, length as u64)) {
                // SAFETY: by this function's contract; what is mapped stays so as long as the heap is kept.
                unsafe { copy::copy_long(into, mapped) };
                return Near::Done;
            }
            // SAFETY: by this function's contract.
            return lost_unless(unsafe { shared.fetch(link, address, into) });
        }
        RemoteKind::Update(code) | RemoteKind::FetchUpdate(code) => code.number.size(),
        RemoteKind::CompareSwap(number) => number.size(),
        RemoteKind::Lock(_) | RemoteKind::Unlock(_) => return Near::Elsewhere,
    };
    let mut element = 0u64;
    if length != size || size > size_of_val(&element) || !address.is_multiple_of(size as u64) {
        return Near::Elsewhere;
    }
    // SAFETY: an element of this function's own, of which nobody has a reference while the span is used.
    let room = unsafe { Span::new((&raw mut element).cast(), size) };
    // SAFETY: as above.
    if !unsafe { shared.fetch(link, address, room) } {
        return Near::Lost;
    }
    let old = element;
    match kind {
        // SAFETY: by this function's contract there are two words.
        RemoteKind::CompareSwap(_) => unsafe {
            let [expected, new] = from.start().cast::<[u64; 2]>().read_unaligned();
            let mask = u64::MAX >> (64 - 8 * size);
            if (element ^ expected) & mask == 0 {
                element = new;
            }
        },
        RemoteKind::Update(code) | RemoteKind::FetchUpdate(code) => match Updater::named(code) {
            // SAFETY: as many bytes as an element has, on both sides.
            Some(updater) => unsafe { updater.together(room.start(), from, std::ptr::null_mut()) },
            None => return Near::Elsewhere,
        },
        _ => {}
    }
    // SAFETY: as above.
    if element != old && !unsafe { shared.store(link, address, room) } {
        return Near::Lost;
    }
    let found = into.len().min(size);
    // SAFETY: within both.
    unsafe { into.start().copy_from_nonoverlapping((&raw const old).cast(), found) };
    Near::Done
}
