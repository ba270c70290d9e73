//! Operations with datatypes on both sides: bytes of the origin's buffer that one says, and bytes of the target's part that another one
//! says.

mod requests;

use super::moving::Way;
use super::remote::RemoteMove;
use crate::api::regions::span_of;
use crate::observe::one_sided::OneSidedCall;
use crate::run::engine::Engine;
use std::ops::Range;
use tickwire_components::{
    Datatype, Elements, ElementsMut, Number, Rank, RemoteKind, Span, Typed, Update, Window, WindowError, bytemuck,
};
use tickwire_transports::windows::Updater;

/// Stands for a part of a window, of which only the length matters: it tells where in a part a datatype's bytes are.
struct Shape(Span);

// SAFETY: nobody reads or writes by these addresses: only their differences are used.
#[expect(unsafe_code, reason = "addresses without bytes")]
unsafe impl Elements for Shape {
    type Element = u8;

    fn span(&self) -> Span {
        self.0
    }
}

/// A run of bytes: its range in the packed message, and the place of its first byte in the target's memory.
pub(crate) struct Placed {
    packed: Range<usize>,
    pub(crate) at: usize,
}

/// The runs of `count` elements of a datatype from byte `at` of a part on. All of them are within the part's `bytes`, and they are `needed`
/// bytes in all.
pub(crate) fn runs_within(
    at: usize,
    (of, count): (&Datatype, usize),
    bytes: usize,
    needed: usize,
) -> Result<Vec<Placed>, WindowError> {
    // SAFETY: see `Shape`.
    #[expect(unsafe_code, reason = "addresses without bytes")]
    let shape = Shape(unsafe { Span::new(std::ptr::without_provenance_mut(1), bytes) });
    let typed = Typed::at(shape, at, of, count).map_err(|unfit| unfit.error)?;
    // Before runs are listed: a datatype may have far more of them than the message has bytes.
    let given = typed.size();
    if given != needed {
        return Err(WindowError::Elements { what: "target's datatype (in bytes)", given, needed });
    }
    let mut done = 0;
    let place = |run: Span| {
        let first = done;
        done += run.len();
        Placed { packed: first..done, at: run.start().addr() - 1 }
    };
    Ok(if needed == 0 { Vec::new() } else { typed.runs(0, usize::MAX).map(place).collect() })
}

/// Where the runs of a message are, and where in the part each of them belongs.
fn spans(packed: &mut [u8], runs: &[Placed]) -> Vec<(usize, Span)> {
    let whole = span_of(packed);
    runs.iter().map(|run| (run.at, whole.part(run.packed.start, run.packed.len()))).collect()
}

/// Updates by these operands, run by run; their old values go to `into`, one after another, unless it is empty.
fn updates<T: Number>(operands: &mut [(usize, Vec<T>)], into: Span) -> Vec<RemoteMove> {
    let mut done = 0;
    let update = |(at, operands): &mut (usize, Vec<T>)| {
        let from = span_of(operands);
        let into = into.part(done, from.len());
        done += from.len();
        RemoteMove { at: *at * size_of::<T>(), from, into, length: from.len() }
    };
    operands.iter_mut().map(update).collect()
}

/// The bytes of a message.
fn packed<B: Elements>(from: &Typed<B>) -> Vec<u8> {
    let mut packed = vec![0u8; from.size()];
    from.pack(0, &mut packed);
    packed
}

impl Engine {
    /// As [`Engine::put`], with datatypes: the message of `from` goes to the bytes of `count` elements of `of`, displacement 0 of which
    /// is at `displacement`.
    ///
    /// # Errors
    /// As [`Engine::put`], the datatype is not within the part, or the two have different numbers of bytes.
    pub fn put_typed<B: Elements, T: tickwire_components::Element>(
        &mut self,
        from: &Typed<B>,
        target: Rank,
        displacement: usize,
        (of, count): (&Datatype, usize),
        window: Window<T>,
    ) -> Result<(), WindowError> {
        let call = OneSidedCall::moving("put_typed", from.size(), target, window.handle);
        self.told(call, |engine| engine.put_typed_now(from, target, displacement, (of, count), window))
    }

    fn put_typed_now<B: Elements, T: tickwire_components::Element>(
        &mut self,
        from: &Typed<B>,
        target: Rank,
        displacement: usize,
        (of, count): (&Datatype, usize),
        window: Window<T>,
    ) -> Result<(), WindowError> {
        let runs = self.runs_in::<T>(target, displacement, (of, count), from.size(), window.handle)?;
        self.put_placed(from, &runs, target, window.handle)
    }

    /// Writes a message to runs of a target's memory, which were checked.
    pub(crate) fn put_placed<B: Elements>(
        &mut self,
        from: &Typed<B>,
        placed: &[Placed],
        rank: Rank,
        handle: u32,
    ) -> Result<(), WindowError> {
        if placed.is_empty() {
            return Ok(());
        }
        let mut packed = packed(from);
        let runs = spans(&mut packed, placed);
        if let [(at, run)] = runs[..] {
            return self.move_run(at, run, true, rank, handle);
        }
        match self.way(rank, handle)? {
            Way::Memory => self.runs_in_memory(&runs, true, rank, handle),
            Way::Kernel => {
                self.await_mail(rank, handle)?;
                self.runs_by_kernel(&runs, true, rank, handle)
            }
            Way::Fabric => self.runs_by_fabric(&runs, span_of(&mut packed), true, (rank, handle)),
            Way::Engine if self.runs_listed(&runs, true, (rank, handle))? => Ok(()),
            Way::Engine => runs.into_iter().try_for_each(|(at, run)| self.move_run(at, run, true, rank, handle)),
        }
    }

    /// As [`Engine::get`], with datatypes. See [`Engine::put_typed`].
    ///
    /// # Errors
    /// As [`Engine::put_typed`].
    pub fn get_typed<B: ElementsMut, T: tickwire_components::Element>(
        &mut self,
        into: &mut Typed<B>,
        target: Rank,
        displacement: usize,
        (of, count): (&Datatype, usize),
        window: Window<T>,
    ) -> Result<(), WindowError> {
        let call = OneSidedCall::moving("get_typed", into.size(), target, window.handle);
        self.told(call, |engine| engine.get_typed_now(into, target, displacement, (of, count), window))
    }

    fn get_typed_now<B: ElementsMut, T: tickwire_components::Element>(
        &mut self,
        into: &mut Typed<B>,
        target: Rank,
        displacement: usize,
        (of, count): (&Datatype, usize),
        window: Window<T>,
    ) -> Result<(), WindowError> {
        let runs = self.runs_in::<T>(target, displacement, (of, count), into.size(), window.handle)?;
        if runs.is_empty() {
            return Ok(());
        }
        self.await_mail(target, window.handle)?;
        self.get_placed(into, &runs, target, window.handle)
    }

    /// Reads runs of a target's memory, which were checked, into a message. Does not wait for an earlier short put.
    pub(crate) fn get_placed<B: ElementsMut>(
        &mut self,
        into: &mut Typed<B>,
        placed: &[Placed],
        rank: Rank,
        handle: u32,
    ) -> Result<(), WindowError> {
        if placed.is_empty() {
            return Ok(());
        }
        let mut packed = vec![0u8; into.size()];
        let runs = spans(&mut packed, placed);
        match self.way(rank, handle)? {
            Way::Memory => self.runs_in_memory(&runs, false, rank, handle)?,
            Way::Kernel => self.runs_by_kernel(&runs, false, rank, handle)?,
            Way::Fabric => self.runs_by_fabric(&runs, span_of(&mut packed), false, (rank, handle))?,
            Way::Engine => {
                let get = |(at, into): (usize, Span)| RemoteMove { at, from: Span::EMPTY, into, length: into.len() };
                let gets: Vec<_> = runs.into_iter().map(get).collect();
                self.run_answered(RemoteKind::Get, &gets, (rank, handle))?;
            }
        }
        into.unpack(0, &packed);
        Ok(())
    }

    /// As [`Engine::accumulate`], with datatypes whose elements all are `T`s. See [`Engine::put_typed`].
    ///
    /// # Errors
    /// As [`Engine::put_typed`] and [`Engine::accumulate`].
    pub fn accumulate_typed<B: Elements, T: Number, O: Update<T>>(
        &mut self,
        from: &Typed<B>,
        operation: O,
        target: Rank,
        displacement: usize,
        (of, count): (&Datatype, usize),
        window: Window<T>,
    ) -> Result<(), WindowError> {
        let call = OneSidedCall::moving("accumulate_typed", from.size(), target, window.handle);
        self.told(call, |engine| {
            engine.accumulate_typed_now(from, operation, target, displacement, (of, count), window)
        })
    }

    fn accumulate_typed_now<B: Elements, T: Number, O: Update<T>>(
        &mut self,
        from: &Typed<B>,
        operation: O,
        target: Rank,
        displacement: usize,
        (of, count): (&Datatype, usize),
        window: Window<T>,
    ) -> Result<(), WindowError> {
        for (at, operands) in self.operands(from, target, displacement, (of, count), window)? {
            self.accumulate(&operands[..], operation, target, at, window)?;
        }
        Ok(())
    }

    /// As [`Engine::get_accumulate`], with datatypes whose elements all are `T`s. The values from before go to `into`, in the order of the
    /// target's datatype. See [`Engine::put_typed`].
    ///
    /// # Errors
    /// As [`Engine::accumulate_typed`], also if `into` has another number of bytes.
    pub fn get_accumulate_typed<B: Elements, C: ElementsMut, T: Number, O: Update<T>>(
        &mut self,
        (from, into): (&Typed<B>, &mut Typed<C>),
        operation: O,
        target: Rank,
        displacement: usize,
        (of, count): (&Datatype, usize),
        window: Window<T>,
    ) -> Result<(), WindowError> {
        let call = OneSidedCall::moving("get_accumulate_typed", from.size(), target, window.handle);
        self.told(call, |engine| {
            engine.get_accumulate_typed_now((from, into), operation, target, displacement, (of, count), window)
        })
    }

    fn get_accumulate_typed_now<B: Elements, C: ElementsMut, T: Number, O: Update<T>>(
        &mut self,
        (from, into): (&Typed<B>, &mut Typed<C>),
        operation: O,
        target: Rank,
        displacement: usize,
        (of, count): (&Datatype, usize),
        window: Window<T>,
    ) -> Result<(), WindowError> {
        let mut operands = self.operands(from, target, displacement, (of, count), window)?;
        let (given, needed) = (into.size(), from.size());
        if given != needed {
            return Err(WindowError::Elements { what: "receive buffer (in bytes)", given, needed });
        }
        if operands.is_empty() {
            return Ok(());
        }
        let mut before = vec![T::zeroed(); needed / size_of::<T>()];
        if matches!(self.way(target, window.handle)?, Way::Engine | Way::Fabric) {
            let kind = RemoteKind::FetchUpdate(Updater::of::<T, O>().code);
            self.run_answered(kind, &updates(&mut operands, span_of(&mut before)), (target, window.handle))?;
        } else {
            let mut rest = &mut before[..];
            for (at, operands) in operands {
                let (old, behind) = rest.split_at_mut(operands.len());
                self.get_accumulate(&operands[..], old, operation, target, at, window)?;
                rest = behind;
            }
        }
        into.unpack(0, bytemuck::cast_slice(&before));
        Ok(())
    }

    /// The elements of a message, run by run, and where each run of them goes.
    fn operands<B: Elements, T: Number>(
        &mut self,
        from: &Typed<B>,
        target: Rank,
        displacement: usize,
        of: (&Datatype, usize),
        window: Window<T>,
    ) -> Result<Vec<(usize, Vec<T>)>, WindowError> {
        let runs = self.aligned_runs::<T>(target, displacement, of, from.size(), window.handle)?;
        let (size, packed) = (size_of::<T>(), packed(from));
        let elements = |bytes: &[u8]| bytes.chunks_exact(size).map(bytemuck::pod_read_unaligned).collect();
        Ok(runs.into_iter().map(|run| (run.at / size, elements(&packed[run.packed]))).collect())
    }

    /// As [`Engine::runs_in`], each of whole elements that are aligned in the part.
    fn aligned_runs<T>(
        &mut self,
        target: Rank,
        displacement: usize,
        of: (&Datatype, usize),
        needed: usize,
        handle: u32,
    ) -> Result<Vec<Placed>, WindowError> {
        let (runs, size) = (self.runs_in::<T>(target, displacement, of, needed, handle)?, size_of::<T>());
        let is_unaligned = |run: &&Placed| !(run.at | run.packed.len()).is_multiple_of(size);
        match runs.iter().find(is_unaligned) {
            Some(run) => Err(WindowError::Unaligned { target, displacement: run.at / size }),
            None => Ok(runs),
        }
    }

    /// Where elements of a datatype are in a rank's part; they must be so many bytes. Nobody's part ([`Rank::NULL`]) has none.
    fn runs_in<T>(
        &mut self,
        target: Rank,
        displacement: usize,
        of: (&Datatype, usize),
        needed: usize,
        handle: u32,
    ) -> Result<Vec<Placed>, WindowError> {
        if self.is_to_nobody(target, handle)? {
            return Ok(Vec::new());
        }
        let at = self.checked::<T>(target, displacement, 0, handle)?;
        let bytes = self.target(target, handle)?.bytes as usize;
        runs_within(at, of, bytes, needed)
    }
}
