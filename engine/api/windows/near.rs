//! Operations on memory that a proc on this host lists in its directory: exposed regions, and what is attached to windows. The owner does
//! nothing for them. This process reads, writes and updates what it maps of the owner's shared heap; the kernel reaches all other memory.
//! The directory is locked meanwhile.

use crate::run::engine::Engine;
use smallvec::SmallVec;
use tickwire_components::limits::{KERNEL_RUNS_INLINE, LOCKED_BYTES, LOCKED_RUNS, LOCKED_UPDATE_BYTES};
use tickwire_components::{NIL, Rank, RegionAccess, RemoteKind, RequestError, Span, WindowError};
use tickwire_systems::procs::windows::Reach;
use tickwire_systems::procs::windows::regions::{REGIONS, needed, region_of};
use tickwire_transports::SharedMemory;
use tickwire_transports::windows::{HeldBy, Part, UpdateGuard, Updater, get_bytes, put_bytes};

/// What became of an operation.
enum Near {
    Done,
    /// The directory does not say that this is possible. The owner's engine does it, or says why not.
    Elsewhere,
    /// The link has closed. The owner's engine does it.
    Closed,
    /// The owner's memory cannot be reached any more.
    Lost,
}

/// A piece of a run, and where it goes or comes from.
struct Piece {
    at: usize,
    run: Span,
    /// Bytes of the whole run from the piece on.
    left: usize,
}

/// Cuts runs into turns: pieces that are moved while the lock is held once.
struct Turns<'a> {
    runs: &'a [(usize, Span)],
    /// Bytes of the first run that were in an earlier turn.
    done: usize,
}

impl Iterator for Turns<'_> {
    type Item = SmallVec<[Piece; KERNEL_RUNS_INLINE]>;

    fn next(&mut self) -> Option<Self::Item> {
        let (mut turn, mut room) = (SmallVec::new(), LOCKED_BYTES);
        while room > 0
            && turn.len() < LOCKED_RUNS
            && let Some((&(at, run), behind)) = self.runs.split_first()
        {
            let piece = Piece { at: at + self.done, run: run.part(self.done, room), left: run.len() - self.done };
            (room, self.done) = (room - piece.run.len(), self.done + piece.run.len());
            if self.done == run.len() {
                (self.runs, self.done) = (behind, 0);
            }
            turn.push(piece);
        }
        (!turn.is_empty()).then_some(turn)
    }
}

impl Near {
    /// What became of an operation by the kernel.
    fn done_if(moved: bool) -> Self {
        if moved { Near::Done } else { Near::Lost }
    }
}

impl Engine {
    /// Does an operation and counts it; `false` if the owner's engine has to do it.
    pub(crate) fn move_listed(
        &mut self,
        kind: RemoteKind,
        at: usize,
        (from, into): (Span, Span),
        length: usize,
        (rank, handle): (Rank, u32),
    ) -> Result<bool, WindowError> {
        if kind.is_of_epoch() || !matches!(self.target(rank, handle)?.reach, Reach::Listed { .. }) {
            return Ok(false);
        }
        let mut done = 0;
        let most = if matches!(kind, RemoteKind::Put | RemoteKind::Get) { LOCKED_BYTES } else { LOCKED_UPDATE_BYTES };
        loop {
            let bytes = (length - done).min(most);
            let runs = match kind {
                RemoteKind::CompareSwap(_) => (from, into),
                _ => (from.part(done, bytes), into.part(done, bytes)),
            };
            let tried =
                |engine: &mut Engine| engine.try_listed(kind, (at + done, length - done), runs, bytes, (rank, handle));
            match self.wait_on_holder(handle, tried)? {
                Near::Done => done += bytes,
                Near::Lost => return Err(self.out_of_reach(rank, handle)),
                Near::Closed if done > 0 => return Err(self.out_of_reach(rank, handle)),
                // The memory was listed a moment ago. The engine must not do again what is done already.
                Near::Elsewhere if done > 0 => return Err(RequestError::OutOfBounds.into()),
                Near::Closed | Near::Elsewhere => return Ok(false),
            }
            if done == length {
                return self.count_done(rank, handle).map(|()| true);
            }
        }
    }

    /// Moves several runs, each to or from a place in memory that is listed, in as few calls of the kernel as it takes, and counts that as
    /// one operation. `false` if it is not done: a run is not listed.
    pub(super) fn runs_listed(
        &mut self,
        runs: &[(usize, Span)],
        writes: bool,
        (rank, handle): (Rank, u32),
    ) -> Result<bool, WindowError> {
        if !matches!(self.target(rank, handle)?.reach, Reach::Listed { .. }) {
            return Ok(false);
        }
        for some in (Turns { runs, done: 0 }) {
            match self.wait_on_holder(handle, |engine| engine.try_runs(&some, writes, (rank, handle)))? {
                Near::Done => {}
                Near::Lost => return Err(self.out_of_reach(rank, handle)),
                // Runs that were moved before are moved once more.
                Near::Closed | Near::Elsewhere => return Ok(false),
            }
        }
        self.count_done(rank, handle).map(|()| true)
    }

    /// Tries the next `length` bytes of an operation, at place `at`. `left` bytes are still to be done from there on.
    fn try_listed(
        &mut self,
        kind: RemoteKind,
        (at, left): (usize, usize),
        runs: (Span, Span),
        length: usize,
        (rank, handle): (Rank, u32),
    ) -> Result<Near, HeldBy> {
        self.try_locked((rank, handle), |shared, link, part, guard| {
            // All that is left must be listed: nothing is done if only a part of it is there.
            let Some(address) = address_of(part, guard, kind, at, left, handle) else { return Near::Elsewhere };
            // SAFETY: the caller of the operation lends both runs. What is listed is the owner's, and stays so while the list is locked; an
            // owner that has died gives nothing up.
            #[expect(unsafe_code, reason = "bytes that are addresses")]
            unsafe {
                operate(shared, link, kind, runs, (address, length))
            }
        })
    }

    /// Tries to move the runs of one turn.
    fn try_runs(&mut self, turn: &[Piece], writes: bool, (rank, handle): (Rank, u32)) -> Result<Near, HeldBy> {
        let kind = if writes { RemoteKind::Put } else { RemoteKind::Get };
        self.try_locked((rank, handle), |shared, link, part, guard| {
            let place = |piece: &Piece| Some((address_of(part, guard, kind, piece.at, piece.left, handle)?, piece.run));
            let places: Option<SmallVec<[_; KERNEL_RUNS_INLINE]>> = turn.iter().map(place).collect();
            let Some(mut places) = places else { return Near::Elsewhere };
            places.retain(|&mut (address, run)| {
                let mapped = mapped(shared, link, kind, (address, run.len()));
                // SAFETY: as in `try_listed`; what is mapped stays so while the link is open.
                #[expect(unsafe_code, reason = "bytes that are addresses")]
                mapped.iter().for_each(|there| unsafe {
                    if writes { put_bytes(there.start(), run) } else { get_bytes(there.start(), run) }
                });
                mapped.is_none()
            });
            // SAFETY: as in `try_listed`.
            #[expect(unsafe_code, reason = "bytes that are addresses")]
            Near::done_if(unsafe {
                places.is_empty()
                    || if writes { shared.store_runs(link, &places) } else { shared.fetch_runs(link, &places) }
            })
        })
    }

    /// Does something while the list of a target is locked: with what shares memory, the link, and the part that has the list.
    fn try_locked(
        &mut self,
        (rank, handle): (Rank, u32),
        act: impl FnOnce(&mut dyn SharedMemory, u32, &Part, &UpdateGuard<'_>) -> Near,
    ) -> Result<Near, HeldBy> {
        let all = self.store.all();
        let procs = &*all.procs;
        let Some(row) = all.windows.get(handle) else { return Ok(Near::Elsewhere) };
        let Reach::Listed { part, endpoint, link } = &row.targets[rank.0 as usize].reach else {
            return Ok(Near::Elsewhere);
        };
        let shared = all.endpoints.get_mut(usize::from(*endpoint)).and_then(|of| of.transport.get().shared_memory());
        let Some(shared) = shared.filter(|_| *link != NIL) else { return Ok(Near::Closed) };
        let guard = part.lock_updates(|holder| row.is_gone(procs, holder))?;
        Ok(act(shared, *link, part, &guard))
    }
}

/// Where bytes are in the owner's memory, if they are listed for such an operation.
fn address_of(
    part: &Part,
    guard: &UpdateGuard<'_>,
    kind: RemoteKind,
    at: usize,
    length: usize,
    handle: u32,
) -> Option<u64> {
    if handle != REGIONS {
        return part.listed_around(guard, at as u64, length as u64).map(|_| at as u64);
    }
    let (number, offset) = region_of(at);
    let region = part.listed(guard, number)?;
    let end = (offset as u64).checked_add(length as u64)?;
    let may = end <= region.bytes && RegionAccess::from_bits(region.access).covers(needed(kind));
    may.then(|| region.address.wrapping_add(offset as u64))
}

/// Bytes at an address of the peer of a link, as this process maps them: for a get what it may read, for all else what it may write.
fn mapped(shared: &mut dyn SharedMemory, link: u32, kind: RemoteKind, (address, length): (u64, usize)) -> Option<Span> {
    let heap = shared.writable_heap(link).and_then(|heap| heap.find_writable(address, length as u64));
    match (heap, kind) {
        (None, RemoteKind::Get) => shared.heap_of(link).and_then(|heap| heap.find(address, length as u64)),
        _ => heap,
    }
}

/// Does an operation on memory of the peer of a link.
///
/// # Safety
/// Both runs are valid for what the kind says, `length` bytes of them; so are the bytes at the address where the peer is in this process.
#[expect(unsafe_code, reason = "bytes that are addresses")]
unsafe fn operate(
    shared: &mut dyn SharedMemory,
    link: u32,
    kind: RemoteKind,
    (from, into): (Span, Span),
    (address, length): (u64, usize),
) -> Near {
    let size = size_of_element(kind);
    let mapped = mapped(shared, link, kind, (address, length));
    let is_whole = |size: usize| (address | length as u64).is_multiple_of(size as u64);
    match (kind, mapped) {
        (RemoteKind::Lock(_) | RemoteKind::Unlock(_) | RemoteKind::LostPuts, _) => return Near::Elsewhere,
        // SAFETY: by this function's contract; what is mapped stays so while the link is open.
        (RemoteKind::Put, Some(to)) => unsafe { put_bytes(to.start(), from) },
        // SAFETY: as above.
        (RemoteKind::Get, Some(from)) => unsafe { get_bytes(from.start(), into) },
        // SAFETY: by this function's contract.
        (RemoteKind::Put, None) => return Near::done_if(unsafe { shared.store(link, address, from) }),
        // SAFETY: by this function's contract.
        (RemoteKind::Get, None) => return Near::done_if(unsafe { shared.fetch(link, address, into) }),
        _ if length > LOCKED_UPDATE_BYTES || !is_whole(size) => return Near::Elsewhere,
        // SAFETY: by this function's contract; the map is aligned as the peer's memory is.
        (_, Some(elements)) => match unsafe { change(kind, elements, (from, into)) } {
            Some(_) => {}
            None => return Near::Elsewhere,
        },
        (_, None) => {
            let mut room = [0u128; LOCKED_UPDATE_BYTES / size_of::<u128>()];
            // SAFETY: bytes of this function's own, of which nobody has a reference while the span is used.
            let room = unsafe { Span::new(room.as_mut_ptr().cast(), length) };
            // SAFETY: as above.
            if !unsafe { shared.fetch(link, address, room) } {
                return Near::Lost;
            }
            // SAFETY: by this function's contract; the room is aligned for any element.
            return match unsafe { change(kind, room, (from, into)) } {
                // SAFETY: as above.
                Some(true) => Near::done_if(unsafe { shared.store(link, address, room) }),
                Some(false) => Near::Done,
                None => Near::Elsewhere,
            };
        }
    }
    Near::Done
}

/// Bytes of the elements that an operation updates; 1 of others.
fn size_of_element(kind: RemoteKind) -> usize {
    match kind {
        RemoteKind::Update(code) | RemoteKind::FetchUpdate(code) => code.number.size(),
        RemoteKind::CompareSwap(number) => number.size(),
        _ => 1,
    }
}

/// Changes elements as an operation says, under the lock. Whether they may have changed; `None` if there is no such operation.
///
/// # Safety
/// Both runs are valid for what the kind says, with as many bytes as the elements; these are aligned.
#[expect(unsafe_code, reason = "bytes that are addresses")]
unsafe fn change(kind: RemoteKind, elements: Span, (from, into): (Span, Span)) -> Option<bool> {
    match kind {
        // SAFETY: by this function's contract there are two words, and a place for a number.
        RemoteKind::CompareSwap(number) => unsafe {
            let [expected, new] = from.start().cast::<[[u8; 8]; 2]>().read();
            let (size, mut found) = (number.size(), [0; 8]);
            found.as_mut_ptr().copy_from_nonoverlapping(elements.start(), size);
            into.start().copy_from_nonoverlapping(found.as_ptr(), into.len().min(size));
            let is_expected = found[..size] == expected[..size];
            if is_expected {
                put_bytes(elements.start(), Span::new(new.as_ptr().cast_mut(), size));
            }
            Some(is_expected)
        },
        RemoteKind::Update(code) | RemoteKind::FetchUpdate(code) => {
            let old = if into.is_empty() { std::ptr::null_mut() } else { into.start() };
            // SAFETY: as many bytes in all of them.
            unsafe { Updater::named(code)?.together(elements.start(), from, old) };
            Some(code.operation.writes())
        }
        _ => None,
    }
}
