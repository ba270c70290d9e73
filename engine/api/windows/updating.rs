//! Updates: operations that read and write elements as a whole, whoever else updates them.

mod requests;

use super::PartPlace;
use super::moving::Way;
use super::remote::{RemoteMove, Until};
use crate::api::regions::span_of;
use crate::observe::one_sided::OneSidedCall;
use crate::run::engine::Engine;
use tickwire_components::{
    Integer, LeasedBytes, Number, NumberType, Rank, RemoteKind, Sequence, Span, Update, Window, WindowError, bytemuck,
};
use tickwire_systems::procs::windows::{Access, Reach};
use tickwire_transports::windows::{Claim, HeldBy, Part, Updater};

impl Engine {
    /// Combines elements of a rank's part of a window with these (`MPI_Accumulate`): each element is updated as a whole, and updates of one
    /// origin keep their order. It returns when the buffer may be used again. At [`Rank::NULL`] it does nothing.
    ///
    /// # Errors
    /// As [`Engine::put`], or the elements are not aligned in the target's memory.
    #[inline]
    pub fn accumulate<S: Sequence<Item: Number>, O: Update<S::Item>>(
        &mut self,
        from: S,
        _operation: O,
        target: Rank,
        displacement: usize,
        window: Window<S::Item>,
    ) -> Result<(), WindowError> {
        let updater = Updater::of::<S::Item, O>();
        let place = PartPlace::new(target, displacement, window);
        self.update::<S::Item>("accumulate", updater, from.piece(0), Span::EMPTY, place)
    }

    /// As [`Engine::accumulate`], and gets the values from before (`MPI_Get_accumulate`). With [`op::Keep`](crate::op::Keep) it reads
    /// elements as a whole. At [`Rank::NULL`] it does nothing, and the second buffer stays as it is.
    ///
    /// # Errors
    /// As [`Engine::accumulate`], or the buffers differ in length.
    pub fn get_accumulate<S: Sequence<Item: Number>, R: Sequence<Item = S::Item> + LeasedBytes, O: Update<S::Item>>(
        &mut self,
        from: S,
        into: R,
        _operation: O,
        target: Rank,
        displacement: usize,
        window: Window<S::Item>,
    ) -> Result<(), WindowError> {
        check_lengths(&from, &into)?;
        let updater = Updater::of::<S::Item, O>();
        let place = PartPlace::new(target, displacement, window);
        self.update::<S::Item>("get_accumulate", updater, from.piece(0), into.piece(0), place)
    }

    /// Combines an element of a rank's part of a window with a value, and returns the one from before (`MPI_Fetch_and_op`). At
    /// [`Rank::NULL`] it does nothing, and returns zero.
    ///
    /// # Errors
    /// As [`Engine::accumulate`].
    #[inline]
    pub fn fetch_and_op<T: Number, O: Update<T>>(
        &mut self,
        value: T,
        _operation: O,
        target: Rank,
        displacement: usize,
        window: Window<T>,
    ) -> Result<T, WindowError> {
        let (mut operand, mut old) = ([value], [T::zeroed()]);
        let updater = Updater::of::<T, O>();
        let (operands, into) = (span_of(&mut operand), span_of(&mut old));
        let place = PartPlace::new(target, displacement, window);
        self.update::<T>("fetch_and_op", updater, operands, into, place)?;
        Ok(old[0])
    }

    /// Puts a value into an element of a rank's part of a window if the expected one is there; returns what was there
    /// (`MPI_Compare_and_swap`). At [`Rank::NULL`] it does nothing, and returns zero.
    ///
    /// # Errors
    /// As [`Engine::accumulate`].
    #[inline]
    pub fn compare_and_swap<T: Integer>(
        &mut self,
        expected: T,
        new: T,
        target: Rank,
        displacement: usize,
        window: Window<T>,
    ) -> Result<T, WindowError> {
        let word = |value: T| {
            let mut word = [0; 8];
            word[..size_of::<T>()].copy_from_slice(bytemuck::bytes_of(&value));
            word
        };
        let place = PartPlace::new(target, displacement, window);
        let old = self.swap(T::TYPE, word(expected), word(new), place)?;
        Ok(bytemuck::pod_read_unaligned(&old[..size_of::<T>()]))
    }

    /// Updates elements; their old values go to `into`, unless that is empty.
    #[inline(always)]
    fn update<T: Number>(
        &mut self,
        name: &'static str,
        updater: &Updater,
        operands: Span,
        into: Span,
        place: PartPlace,
    ) -> Result<(), WindowError> {
        if self.is_quick() && self.update_near::<T>(updater, operands, into, place) {
            return Ok(());
        }
        self.update_slowly::<T>(name, updater, operands, into, place)
    }

    /// Updates elements in memory; `false` if that is not where they are, or anything is wrong. The engine is open.
    #[inline(always)]
    fn update_near<T>(&mut self, updater: &Updater, operands: Span, into: Span, place: PartPlace) -> bool {
        let PartPlace { rank, displacement, handle } = place;
        let Some(at) = displacement.checked_mul(size_of::<T>()) else { return false };
        let all = self.store.all();
        let Some(window) = all.windows.get(handle) else { return false };
        let Some(target) = window.targets.get(rank.0 as usize).filter(|target| target.access != Access::None) else {
            return false;
        };
        let Reach::Memory(part) = &target.reach else { return false };
        let old = if into.is_empty() { std::ptr::null_mut() } else { into.start() };
        let procs = &*all.procs;
        let claim = Claim::waiting(|member| window.is_gone(procs, member));
        // SAFETY: buffers are lent for the call, and the second one is as long as the first.
        #[expect(unsafe_code, reason = "addresses of elements")]
        let updated = unsafe { part.update(updater, at, operands, old, claim) };
        if updated != Ok(true) {
            return false;
        }
        let target = &mut window.targets[rank.0 as usize];
        (target.issued, target.completed) = (target.issued + 1, target.completed + 1);
        true
    }

    #[inline(never)]
    fn update_slowly<T: Number>(
        &mut self,
        name: &'static str,
        updater: &Updater,
        operands: Span,
        into: Span,
        place: PartPlace,
    ) -> Result<(), WindowError> {
        let call = OneSidedCall::moving(name, operands.len(), place.rank, place.handle);
        self.told(call, |engine| engine.update_any_way::<T>(updater, operands, into, place))
    }

    fn update_any_way<T: Number>(
        &mut self,
        updater: &Updater,
        operands: Span,
        into: Span,
        place: PartPlace,
    ) -> Result<(), WindowError> {
        if self.is_untried() && self.update_near::<T>(updater, operands, into, place) {
            return Ok(());
        }
        let PartPlace { rank, displacement, handle } = place;
        if self.is_to_nobody(rank, handle)? {
            return Ok(());
        }
        let at = self.checked::<T>(rank, displacement, operands.len(), handle)?;
        let old = if into.is_empty() { std::ptr::null_mut() } else { into.start() };
        match self.way(rank, handle)? {
            Way::Memory => self.update_in_memory(updater, at, operands, old, place)?,
            Way::Kernel => {
                self.check_aligned(at, size_of::<T>(), place)?;
                // SAFETY: buffers are lent for the call, and the second one is as long as the first.
                #[expect(unsafe_code, reason = "addresses of elements")]
                unsafe {
                    self.update_by_kernel(updater, at, operands, old, (rank, handle))?;
                }
            }
            Way::Fabric | Way::Engine => {
                let (kind, until) = match into.is_empty() {
                    true => (RemoteKind::Update(updater.code), Until::Sent),
                    false => (RemoteKind::FetchUpdate(updater.code), Until::Done),
                };
                let run = RemoteMove { at, from: operands, into, length: operands.len() };
                return self.run_remote(kind, run, until, (rank, handle));
            }
        }
        self.count_done(rank, handle)
    }

    /// Updates elements in memory, once nobody else has the lock.
    fn update_in_memory(
        &mut self,
        updater: &Updater,
        at: usize,
        operands: Span,
        old: *mut u8,
        PartPlace { rank, displacement, handle }: PartPlace,
    ) -> Result<(), WindowError> {
        let updated = self.wait_on_holder(handle, |engine| {
            engine.in_memory(at, operands.len(), (rank, handle), |part, at, gone| {
                // SAFETY: buffers are lent for the call, and the second one is as long as the first.
                #[expect(unsafe_code, reason = "addresses of elements")]
                unsafe {
                    part.update(updater, at, operands, old, Claim::waiting(gone))
                }
            })
        })?;
        match updated {
            true => Ok(()),
            // The elements are within the part, so it is their alignment.
            false => Err(WindowError::Unaligned { target: rank, displacement }),
        }
    }

    #[inline(always)]
    fn swap(
        &mut self,
        number: NumberType,
        expected: [u8; 8],
        new: [u8; 8],
        place: PartPlace,
    ) -> Result<[u8; 8], WindowError> {
        if self.is_quick()
            && let Some(old) = self.swap_near(number, expected, new, place)
        {
            return Ok(old);
        }
        self.swap_slowly(number, expected, new, place)
    }

    /// Compares and swaps in memory; `None` if that is not where the element is, or anything is wrong. The engine is open.
    #[inline(always)]
    fn swap_near(&mut self, number: NumberType, expected: [u8; 8], new: [u8; 8], place: PartPlace) -> Option<[u8; 8]> {
        let PartPlace { rank, displacement, handle } = place;
        let all = self.store.all();
        let window = all.windows.get(handle)?;
        let target = window.targets.get(rank.0 as usize).filter(|target| target.access != Access::None)?;
        let Reach::Memory(part) = &target.reach else { return None };
        let at = displacement.checked_mul(number.size())?;
        let procs = &*all.procs;
        let claim = Claim::waiting(|member| window.is_gone(procs, member));
        let old = part.compare_swap(number, at, expected, new, claim).ok()??;
        let target = &mut window.targets[rank.0 as usize];
        (target.issued, target.completed) = (target.issued + 1, target.completed + 1);
        Some(old)
    }

    #[inline(never)]
    fn swap_slowly(
        &mut self,
        number: NumberType,
        expected: [u8; 8],
        new: [u8; 8],
        place: PartPlace,
    ) -> Result<[u8; 8], WindowError> {
        let call = OneSidedCall::moving("compare_and_swap", number.size(), place.rank, place.handle);
        self.told(call, |engine| engine.swap_any_way(number, expected, new, place))
    }

    fn swap_any_way(
        &mut self,
        number: NumberType,
        expected: [u8; 8],
        new: [u8; 8],
        place: PartPlace,
    ) -> Result<[u8; 8], WindowError> {
        if self.is_untried()
            && let Some(old) = self.swap_near(number, expected, new, place)
        {
            return Ok(old);
        }
        let PartPlace { rank, displacement, handle } = place;
        if self.is_to_nobody(rank, handle)? {
            return Ok([0; 8]);
        }
        let size = number.size();
        // Bytes, since the type of the element is known here by its number only.
        let at = match displacement.checked_mul(size) {
            Some(at) => self.checked::<u8>(rank, at, size, handle)?,
            None => {
                return Err(WindowError::OutOfBounds { target: rank, first: usize::MAX, end: usize::MAX, length: 0 });
            }
        };
        let mut old = [0; 8];
        match self.way(rank, handle)? {
            Way::Memory => old = self.swap_in_memory(number, expected, new, at, place)?,
            Way::Kernel => {
                self.check_aligned(at, size, place)?;
                self.await_mail(rank, handle)?;
                let mut word = [0u64];
                let room = span_of(&mut word).part(0, size);
                self.locked_by_kernel(at, room, (rank, handle), |found| {
                    // SAFETY: the word that it was made of.
                    #[expect(unsafe_code, reason = "addresses of elements")]
                    unsafe {
                        old[..size].copy_from_slice(std::slice::from_raw_parts(found.start(), size));
                        let is_expected = old[..size] == expected[..size];
                        if is_expected {
                            found.start().copy_from_nonoverlapping(new.as_ptr(), size);
                        }
                        is_expected
                    }
                })?;
            }
            Way::Fabric | Way::Engine => {
                let mut operands = [u64::from_ne_bytes(expected), u64::from_ne_bytes(new)];
                let mut answer = [0u64];
                let (from, into) = (span_of(&mut operands), span_of(&mut answer).part(0, size));
                let run = RemoteMove { at, from, into, length: size };
                self.run_answered(RemoteKind::CompareSwap(number), &[run], (rank, handle))?;
                return Ok(answer[0].to_ne_bytes());
            }
        }
        self.count_done(rank, handle)?;
        Ok(old)
    }

    fn swap_in_memory(
        &mut self,
        number: NumberType,
        expected: [u8; 8],
        new: [u8; 8],
        at: usize,
        PartPlace { rank, displacement, handle }: PartPlace,
    ) -> Result<[u8; 8], WindowError> {
        let swapped = self.wait_on_holder(handle, |engine| {
            engine.in_memory(at, number.size(), (rank, handle), |part, at, gone| {
                part.compare_swap(number, at, expected, new, Claim::waiting(gone))
            })
        })?;
        swapped.ok_or(WindowError::Unaligned { target: rank, displacement })
    }

    /// Tries to change bytes of a part in memory; those of the own part may be attached. The default, if the bytes are not there.
    fn in_memory<T: Default>(
        &mut self,
        at: usize,
        bytes: usize,
        (rank, handle): (Rank, u32),
        change: impl FnOnce(&Part, usize, &dyn Fn(u32) -> bool) -> Result<T, HeldBy>,
    ) -> Result<T, HeldBy> {
        let all = self.store.all();
        let procs = &*all.procs;
        let Some(window) = all.windows.get(handle) else { return Ok(T::default()) };
        let place = match &window.targets[rank.0 as usize].reach {
            _ if window.rank == rank.0 => window.place(at, bytes),
            Reach::Memory(part) => Some((part, at)),
            _ => None,
        };
        place.map_or(Ok(T::default()), |(part, at)| change(part, at, &|member| window.is_gone(procs, member)))
    }

    /// Says that elements in memory that the kernel reaches are not aligned.
    fn check_aligned(&mut self, at: usize, size: usize, place: PartPlace) -> Result<(), WindowError> {
        let PartPlace { rank, displacement, handle } = place;
        match self.target(rank, handle)?.reach {
            Reach::Kernel { address, .. } if !(address.wrapping_add(at as u64)).is_multiple_of(size as u64) => {
                Err(WindowError::Unaligned { target: rank, displacement })
            }
            _ => Ok(()),
        }
    }
}

/// Says that two buffers differ in length.
fn check_lengths(from: &impl Sequence, into: &impl Sequence) -> Result<(), WindowError> {
    let (needed, given) = (from.count(), into.count());
    if given == needed { Ok(()) } else { Err(WindowError::Elements { what: "receive buffer", given, needed }) }
}
