//! Operations on memory of another process that only the kernel reaches. The target takes no part.

use crate::run::engine::Engine;
use std::time::Instant;
use tickwire_components::limits::{KERNEL_UPDATE_BYTES, LOCK_HOLDER_ASKED, MAIL_PAUSE, MAIL_POLLS, MAIL_TAKEN_POLLS};
use tickwire_components::{NIL, Rank, RequestError, Span, VcState, WindowError};
use tickwire_systems::procs::connections::ask_whether_ended;
use tickwire_systems::procs::windows::Reach;
use tickwire_transports::SharedMemory;
use tickwire_transports::windows::{HeldBy, Updater};

impl Engine {
    /// Writes bytes. Short ones are left for the target's engine, which the next flush waits for.
    pub(super) fn put_by_kernel(&mut self, at: usize, from: Span, rank: Rank, handle: u32) -> Result<(), WindowError> {
        self.await_mail(rank, handle)?;
        let target = self.target(rank, handle)?;
        target.mail_pause = target.mail_pause.saturating_sub(1);
        if target.mail_pause == 0
            && let Some(part) = target.locks()
        {
            // SAFETY: the caller of the operation lends the run.
            #[expect(unsafe_code, reason = "bytes that are addresses")]
            let posted = unsafe { part.post_mail(at, from) };
            if posted {
                target.has_mail = true;
                target.issued += 1;
                return Ok(());
            }
        }
        self.by_kernel(at, from, true, rank, handle)?;
        self.count_done(rank, handle)
    }

    /// Waits for an earlier short put, so that what the kernel does now comes after it.
    #[inline]
    pub(super) fn await_mail(&mut self, rank: Rank, handle: u32) -> Result<(), WindowError> {
        if self.target(rank, handle)?.has_mail { self.finish_mail(rank, handle) } else { Ok(()) }
    }

    /// Waits until the put that was left for a target's engine is written. A target that does not take it is computing: then the kernel
    /// writes it.
    fn finish_mail(&mut self, rank: Rank, handle: u32) -> Result<(), WindowError> {
        let mut looks = 0;
        while looks < MAIL_POLLS && !self.is_mail_taken(rank, handle) {
            // The target may wait for this side to take what it has left here.
            if !self.store.all().windows.serve_mail() {
                std::hint::spin_loop();
            }
            looks += 1;
        }
        let ended = if looks == MAIL_POLLS { self.take_mail_back(rank, handle) } else { Ok(()) };
        let target = self.target(rank, handle)?;
        target.has_mail = false;
        target.completed = target.issued.min(target.completed + 1);
        ended
    }

    fn is_mail_taken(&mut self, rank: Rank, handle: u32) -> bool {
        let locks = self.target(rank, handle).ok().and_then(|target| target.locks());
        locks.is_none_or(|part| part.is_mail_taken())
    }

    #[cold]
    fn take_mail_back(&mut self, rank: Rank, handle: u32) -> Result<(), WindowError> {
        let target = self.target(rank, handle)?;
        target.mail_pause = MAIL_PAUSE;
        if let Some((at, bytes)) = target.locks().and_then(|part| part.take_mail_back()) {
            let written = self.by_kernel(at as usize, bytes, true, rank, handle);
            if let Some(part) = self.target(rank, handle)?.locks() {
                part.end_mail();
            }
            return written;
        }
        // The target has begun to write it. 4 KiB take less than a microsecond.
        for _ in 0..MAIL_TAKEN_POLLS {
            if self.is_mail_taken(rank, handle) {
                return Ok(());
            }
            std::hint::spin_loop();
        }
        // A target that has died in the middle never ends it.
        self.wait_on_memory(|engine| {
            engine.is_mail_taken(rank, handle) || {
                let vc = engine.target(rank, handle).map_or(NIL, |target| target.vc);
                let vc = engine.store.all().vcs.get(vc as usize);
                vc.is_none_or(|vc| vc.state == VcState::Failed)
            }
        })?;
        if self.is_mail_taken(rank, handle) { Ok(()) } else { Err(self.failed_target(rank, handle)) }
    }

    /// Reads bytes.
    pub(super) fn get_by_kernel(&mut self, at: usize, into: Span, rank: Rank, handle: u32) -> Result<(), WindowError> {
        self.await_mail(rank, handle)?;
        self.by_kernel(at, into, false, rank, handle)
    }

    /// Moves runs, each to or from a place in the part, in as few calls of the kernel as it takes. Does not wait for an earlier short put.
    pub(super) fn runs_by_kernel(
        &mut self,
        runs: &[(usize, Span)],
        writes: bool,
        rank: Rank,
        handle: u32,
    ) -> Result<(), WindowError> {
        let moved = self.memory_of(rank, handle).is_some_and(|(shared, link, address)| {
            let runs: Vec<_> = runs.iter().map(|&(at, run)| (address.wrapping_add(at as u64), run)).collect();
            // SAFETY: as in `by_kernel`.
            #[expect(unsafe_code, reason = "bytes that are addresses")]
            unsafe {
                if writes { shared.store_runs(link, &runs) } else { shared.fetch_runs(link, &runs) }
            }
        });
        if !moved {
            return Err(self.out_of_reach(rank, handle));
        }
        self.count_done(rank, handle)
    }

    fn by_kernel(&mut self, at: usize, run: Span, writes: bool, rank: Rank, handle: u32) -> Result<(), WindowError> {
        let moved = self.memory_of(rank, handle).is_some_and(|(shared, link, address)| {
            let address = address.wrapping_add(at as u64);
            // SAFETY: the caller of the operation lends the run. The kernel checks the address: what is within this process is
            // reached as memory.
            #[expect(unsafe_code, reason = "bytes that are addresses")]
            unsafe {
                if writes { shared.store(link, address, run) } else { shared.fetch(link, address, run) }
            }
        });
        if moved { Ok(()) } else { Err(self.out_of_reach(rank, handle)) }
    }

    /// What reaches a part that only the kernel reaches: the facet, the link, and the address of its first byte.
    #[inline]
    fn memory_of(&mut self, rank: Rank, handle: u32) -> Option<(&mut dyn SharedMemory, u32, u64)> {
        let all = self.store.all();
        let Reach::Kernel { endpoint, link, address, .. } = all.windows.get(handle)?.targets[rank.0 as usize].reach
        else {
            return None;
        };
        Some((all.endpoints.get_mut(usize::from(endpoint))?.transport.get().shared_memory()?, link, address))
    }

    /// Updates elements under the target's lock. Their old values go to `old`, unless that is null.
    ///
    /// # Safety
    /// `operands` are valid for reads, and `old` for writes of as many bytes.
    #[expect(unsafe_code, reason = "addresses of elements")]
    pub(super) unsafe fn update_by_kernel(
        &mut self,
        updater: &Updater,
        at: usize,
        operands: Span,
        old: *mut u8,
        (rank, handle): (Rank, u32),
    ) -> Result<(), WindowError> {
        self.await_mail(rank, handle)?;
        let mut scratch = std::mem::take(&mut self.store.all().windows.scratch);
        if scratch.is_empty() {
            scratch = vec![0; KERNEL_UPDATE_BYTES / size_of::<u128>()].into();
        }
        // SAFETY: memory of this function's own until its end.
        let room = unsafe { Span::new(scratch.as_mut_ptr().cast(), KERNEL_UPDATE_BYTES) };
        let mut done = 0;
        let mut ended = Ok(());
        while done < operands.len() && ended.is_ok() {
            let chunk = operands.part(done, KERNEL_UPDATE_BYTES);
            let old = if old.is_null() { old } else { old.wrapping_add(done) };
            // SAFETY: by this function's contract; chunks are whole elements.
            let update = |target: Span| unsafe {
                updater.together(target.start(), chunk, old);
                updater.code.operation.writes()
            };
            ended = self.locked_by_kernel(at + done, room.part(0, chunk.len()), (rank, handle), update);
            done += chunk.len();
        }
        self.store.all().windows.scratch = scratch;
        ended
    }

    /// Reads bytes under the target's lock, changes them, and writes them back if `change` says that it has changed them: the owner may
    /// store there without the lock, and what only reads must not undo that.
    pub(super) fn locked_by_kernel(
        &mut self,
        at: usize,
        room: Span,
        (rank, handle): (Rank, u32),
        mut change: impl FnMut(Span) -> bool,
    ) -> Result<(), WindowError> {
        let tried = |engine: &mut Engine| engine.try_locked_by_kernel(at, room, (rank, handle), &mut change);
        match self.wait_on_holder(handle, tried)? {
            true => Ok(()),
            false => Err(self.out_of_reach(rank, handle)),
        }
    }

    /// `Ok(false)` if the memory is out of reach.
    fn try_locked_by_kernel(
        &mut self,
        at: usize,
        room: Span,
        (rank, handle): (Rank, u32),
        change: &mut impl FnMut(Span) -> bool,
    ) -> Result<bool, HeldBy> {
        let all = self.store.all();
        let procs = &*all.procs;
        let Some(window) = all.windows.get(handle) else { return Ok(false) };
        let Reach::Kernel { part, endpoint, link, address } = &window.targets[rank.0 as usize].reach else {
            return Ok(false);
        };
        let shared = all.endpoints.get_mut(usize::from(*endpoint)).and_then(|of| of.transport.get().shared_memory());
        let Some(shared) = shared else { return Ok(false) };
        let _guard = part.lock_updates(|member| window.is_gone(procs, member))?;
        let address = address.wrapping_add(at as u64);
        // SAFETY: room of the caller's own; the kernel checks the address, as above.
        #[expect(unsafe_code, reason = "bytes that are addresses")]
        unsafe {
            Ok(shared.fetch(*link, address, room) && (!change(room) || shared.store(*link, address, room)))
        }
    }

    /// Repeats something that takes an update lock until no living member is in its way. Looks cannot be counted to know when to ask after
    /// the holder: where ranks share processors, the wait soon sleeps between them.
    pub(crate) fn wait_on_holder<T>(
        &mut self,
        handle: u32,
        mut tried: impl FnMut(&mut Engine) -> Result<T, HeldBy>,
    ) -> Result<T, RequestError> {
        let (mut done, mut asked) = (None, None::<Instant>);
        self.wait_on_memory(|engine| {
            match tried(engine) {
                Ok(ended) => done = Some(ended),
                Err(HeldBy(holder)) => {
                    let since = *asked.get_or_insert_with(Instant::now);
                    if since.elapsed() >= LOCK_HOLDER_ASKED {
                        engine.ask_whether_ended(handle, holder);
                        asked = None;
                    }
                }
            }
            done.is_some()
        })?;
        Ok(done.expect("the wait ends when it is done"))
    }

    #[cold]
    fn ask_whether_ended(&mut self, handle: u32, member: u32) {
        let all = self.store.all();
        let holder = all.windows.get(handle).and_then(|window| window.proc_of(all.vcs, member));
        if let Some(proc) = holder {
            ask_whether_ended(&mut self.store.as_mut(), proc);
        }
    }

    /// Repeats something until it is done, such as taking a lock. If the first try succeeds, there is no further cost.
    pub(crate) fn wait_at_once(&mut self, mut is_done: impl FnMut(&mut Engine) -> bool) -> Result<(), RequestError> {
        if is_done(self) {
            return Ok(());
        }
        self.wait_until(|engine| {
            engine.closed.check_request()?;
            Ok(is_done(engine))
        })
    }

    /// As [`Engine::wait_at_once`], for something that another process says by a word in shared memory, such as that it gives a lock back.
    /// It rings no doorbell then, so that a sleep must be short.
    pub(crate) fn wait_on_memory(&mut self, mut is_done: impl FnMut(&mut Engine) -> bool) -> Result<(), RequestError> {
        if is_done(self) {
            return Ok(());
        }
        let before = std::mem::replace(&mut self.waiter.on_memory, true);
        let waited = self.wait_at_once(is_done);
        self.waiter.on_memory = before;
        waited
    }

    /// Memory of a member cannot be reached any more.
    #[cold]
    pub(crate) fn out_of_reach(&mut self, rank: Rank, handle: u32) -> WindowError {
        // Its death is found out by a look at its connection.
        self.look_around();
        match self.failed_target(rank, handle) {
            WindowError::PeerFailed { proc, reason } if reason.is_empty() => {
                let reason = "the kernel cannot reach its memory: it has ended, or has given the memory up".into();
                WindowError::PeerFailed { proc, reason }
            }
            error => error,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Bootstrap;
    use std::time::Duration;

    #[test]
    fn a_wait_for_a_word_in_shared_memory_sleeps_shortly() {
        let mut engine = Engine::builder().build(Bootstrap::solo()).unwrap();
        let patient = engine.wait_timeout();
        let mut times = Vec::new();
        let waited = engine.wait_on_memory(|engine| {
            times.push(engine.wait_timeout());
            times.len() == 3
        });
        assert_eq!((waited, &times[1..]), (Ok(()), &[Duration::from_millis(1); 2][..]));
        assert!(patient > times[1] && engine.wait_timeout() == patient, "only as long as it waits");
    }
}
