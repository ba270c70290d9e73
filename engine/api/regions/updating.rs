//! Updates of elements of regions. An update reads and writes its element as a whole, whoever else updates it.

use super::span::span_of;
use crate::api::windows::PostedUpdate;
use crate::run::engine::Engine;
use tickwire_components::{Integer, Number, Pieces, RegionKey, RemoteKind, Span, Update, WindowError, bytemuck};
use tickwire_transports::windows::Updater;

impl Engine {
    /// Combines an element of a region with a value, and returns the element's old value. With [`op::Sum`](crate::op::Sum) this is a fetch
    /// and add, with [`op::Replace`](crate::op::Replace) a swap, with [`op::Keep`](crate::op::Keep) an atomic read.
    ///
    /// # Errors
    /// As [`Engine::region_get`], or the element is not aligned.
    pub fn region_fetch_and_op<T: Number, O: Update<T>>(
        &mut self,
        value: T,
        _operation: O,
        key: &RegionKey,
        offset: usize,
    ) -> Result<T, WindowError> {
        let (mut operand, mut old) = ([value], [T::zeroed()]);
        let runs = (span_of(&mut operand), span_of(&mut old));
        let kind = RemoteKind::FetchUpdate(Updater::of::<T, O>().code);
        self.region_run("region_fetch_and_op", kind, runs, key, offset)?;
        Ok(old[0])
    }

    /// Writes a value to an element of a region if the element has the expected value. Returns the old value.
    ///
    /// # Errors
    /// As [`Engine::region_fetch_and_op`].
    pub fn region_compare_and_swap<T: Integer>(
        &mut self,
        expected: T,
        new: T,
        key: &RegionKey,
        offset: usize,
    ) -> Result<T, WindowError> {
        let mut operands = words_of(expected, new);
        let mut old = [T::zeroed()];
        let runs = (span_of(&mut operands), span_of(&mut old));
        self.region_run("region_compare_and_swap", RemoteKind::CompareSwap(T::TYPE), runs, key, offset)?;
        Ok(old[0])
    }

    /// As [`Engine::region_fetch_and_op`], with a request. When the request is done, the second buffer has the old value as its only
    /// element.
    ///
    /// ```
    /// # use tickwire::{Bootstrap, Engine, RegionAccess, op};
    /// # let mut engine = Engine::builder().build(Bootstrap::solo())?;
    /// let region = engine.expose(vec![5u64], RegionAccess::ALL)?;
    /// let request = engine.region_rfetch_and_op(2u64, op::Sum, &region.key(), 0)?;
    /// let ((_, old), _) = engine.wait_take(request)?;
    /// assert_eq!(old, [5]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`Engine::region_fetch_and_op`], or no row is free. The error gives the buffers back.
    pub fn region_rfetch_and_op<T: Number, O: Update<T>>(
        &mut self,
        value: T,
        _operation: O,
        key: &RegionKey,
        offset: usize,
    ) -> PostedUpdate<(Vec<T>, Vec<T>)> {
        let kind = RemoteKind::FetchUpdate(Updater::of::<T, O>().code);
        self.post_update(("region_rfetch_and_op", kind), (vec![value], vec![T::zeroed()]), key, offset)
    }

    /// As [`Engine::region_compare_and_swap`], with a request. When the request is done, the second buffer has the old value as its only
    /// element.
    ///
    /// # Errors
    /// As [`Engine::region_compare_and_swap`], or no row is free. The error gives the buffers back.
    pub fn region_rcompare_and_swap<T: Integer>(
        &mut self,
        expected: T,
        new: T,
        key: &RegionKey,
        offset: usize,
    ) -> PostedUpdate<(Vec<u64>, Vec<T>)> {
        let operands = words_of(expected, new).to_vec();
        let what = ("region_rcompare_and_swap", RemoteKind::CompareSwap(T::TYPE));
        self.post_update(what, (operands, vec![T::zeroed()]), key, offset)
    }

    /// Posts an update of one element. The first buffer has the operands, the second one receives the old value.
    fn post_update<S: Number, T: Number>(
        &mut self,
        what: (&'static str, RemoteKind),
        buffers: (Vec<S>, Vec<T>),
        key: &RegionKey,
        offset: usize,
    ) -> PostedUpdate<(Vec<S>, Vec<T>)> {
        let runs: (Span, Span) = (buffers.0.piece(0), buffers.1.piece(0));
        self.region_request(what, runs, key, offset, buffers)
    }
}

/// The operands of a compare and swap, each in a word of its own.
fn words_of<T: Integer>(expected: T, new: T) -> [u64; 2] {
    [expected, new].map(|value| {
        let mut word = 0u64;
        bytemuck::bytes_of_mut(&mut word)[..size_of::<T>()].copy_from_slice(bytemuck::bytes_of(&value));
        word
    })
}
