//! Short operations that share a request. An origin packs the short operations that it posts to one target until the request can leave. It
//! copies their operands, so the callers can reuse their memory at once. The target performs the operations in their order, and answers
//! once for all of them.
//!
//! The request's payload is the number of operations, the bytes of all entries, and the entries. Each entry is the operation's kind, its
//! displacement in the part and its length, followed by its operands. The answer is the outcome of each operation, a word of four bytes,
//! followed by the bytes that successful operations have read.

use super::frames::{LEAD, fits, fragment};
use super::posting::post_remote;
use super::waiting::{Waiter, tell};
use crate::procs::endpoint::Endpoint;
use crate::procs::windows::{Batch, BatchPart, Failure, RemoteOperation, ServedOperation};
use crate::rows::Rows;
use smallvec::SmallVec;
use tickwire_components::limits::{BATCHED_BYTES, REMOTE_BYTES, REMOTE_FRAMES};
use tickwire_components::{Pending, RemoteKind, RemoteOutcome, Span, VcState};
use tickwire_transports::copy;

/// Bytes of an entry in front of the operands: kind, displacement and length, eight bytes each.
pub(super) const ENTRY: usize = 24;
/// Bytes of an outcome.
const OUTCOME: usize = 4;

/// Posts an operation: in a batch if it is short, else by itself. `None` if the caller may go on at once. Otherwise the number of an
/// operation that must have left first; then memory that the caller lends is free again, unless an answer goes there.
pub fn post(
    rows: &mut Rows<'_>,
    endpoints: &mut [Endpoint],
    handle: u32,
    target: u32,
    operation: RemoteOperation,
) -> Option<u64> {
    let number = operation.number;
    let Some(most) = room(rows, endpoints, handle, target, &operation) else {
        post_remote(rows, handle, target, operation);
        return Some(number);
    };
    let windows = &mut *rows.windows;
    let to = &mut windows.get(handle)?.targets[target as usize];
    to.issued += 1;
    let unsent = to.operations.back_mut().filter(|last| !last.all_sent);
    let before = unsent.as_ref().map(|last| last.number);
    if let Some(last) = unsent
        && let Some(batch) = last.batch.as_deref_mut().filter(|batch| batch.has_room(&operation, most))
    {
        last.length = batch.add(&operation);
        return None;
    }
    let is_idle = to.outstanding == 0;
    let (own, mut batch) = (windows.number(), windows.spare_batches.pop().unwrap_or_default());
    let length = batch.add(&operation);
    let new = RemoteOperation::new(own, RemoteKind::Batch, 0, length);
    let to = &mut windows.get(handle)?.targets[target as usize];
    to.operations.push_back(RemoteOperation { batch: Some(batch), ..new });
    windows.stir(handle);
    rows.progress.pending |= Pending::TRANSFER;
    // A caller may leave one batch behind that has not left yet, and none if nothing is under way.
    before.or(is_idle.then_some(own))
}

/// The most bytes that a batch with this operation may have. `None` if the operation must go by itself.
fn room(
    rows: &mut Rows<'_>,
    endpoints: &[Endpoint],
    handle: u32,
    target: u32,
    operation: &RemoteOperation,
) -> Option<u64> {
    if !operation.kind.is_batched() || operation.length > BATCHED_BYTES {
        return None;
    }
    let to = rows.windows.get(handle)?.targets.get(target as usize)?;
    let vc = rows.vcs.get(to.vc as usize).filter(|vc| vc.state == VcState::Connected)?;
    let most = fragment(endpoints.get(usize::from(vc.endpoint))?);
    Batch::default().has_room(operation, most).then_some(most)
}

impl Batch {
    /// Whether there is room for another operation.
    fn has_room(&self, operation: &RemoteOperation, most: u64) -> bool {
        let entry = ENTRY as u64 + operation.kind.operands(operation.length);
        let answer = self.answer_bytes + answer_of(operation.kind, operation.length);
        !self.is_sealed && self.packed.len() as u64 + entry <= most && answer <= most
    }

    /// Adds an operation. Returns the bytes that are packed so far.
    fn add(&mut self, operation: &RemoteOperation) -> u64 {
        let &RemoteOperation { number, kind, at, length, from, into, request, is_last, awaited, .. } = operation;
        self.packed.extend_from_slice(&u64::from(kind.word()).to_ne_bytes());
        self.packed.extend_from_slice(&at.to_ne_bytes());
        self.packed.extend_from_slice(&length.to_ne_bytes());
        let (start, operands) = (self.packed.len(), kind.operands(length) as usize);
        self.packed.resize(start + operands, 0);
        // SAFETY: the caller lends as many bytes as the operation has operands; the new bytes are this vector's.
        unsafe { copy::copy(Span::new(self.packed[start..].as_mut_ptr(), operands), from) };
        self.answer_bytes += answer_of(kind, length);
        self.parts.push(BatchPart { number, kind, length, into, request, is_last, awaited });
        self.packed.len() as u64
    }

    fn clear(&mut self) {
        self.packed.clear();
        self.parts.clear();
        (self.answer_bytes, self.is_sealed) = (0, false);
    }
}

/// Bytes of an operation in an answer, if it is done.
fn answer_of(kind: RemoteKind, length: u64) -> u64 {
    OUTCOME as u64 + if kind.is_answered_by_bytes() { length } else { 0 }
}

/// Takes the answer to the first operation on a target, which is a batch. `None` if no honest target answers so.
pub(super) fn take_batch_answer(rows: &mut Rows<'_>, handle: u32, rank: usize, payload: Span) -> Option<()> {
    let target = rows.windows.answered(handle, rank)?;
    let batch = target.operations.front_mut()?.batch.as_deref_mut()?;
    // Each outcome is read just once: the payload may be in memory that the target can still write.
    batch.outcomes.clear();
    let mut needed = batch.parts.len() * OUTCOME;
    for (index, part) in batch.parts.iter().enumerate() {
        let outcome = outcome(payload, index)?;
        if outcome == RemoteOutcome::Done && part.kind.is_answered_by_bytes() {
            needed += part.length as usize;
        }
        batch.outcomes.push(outcome);
    }
    if needed != payload.len() {
        return None;
    }
    let mut batch = target.operations.pop_front()?.batch?;
    let mut place = batch.parts.len() * OUTCOME;
    for (part, &outcome) in batch.parts.iter().zip(&batch.outcomes) {
        if outcome == RemoteOutcome::Done && part.kind.is_answered_by_bytes() {
            // SAFETY: the origin keeps the place until the operation has ended; the payload is there until it is released.
            unsafe { copy::copy(part.into, payload.part(place, part.length as usize)) };
            place += part.length as usize;
        }
        tell(rows, handle, rank, &Waiter::of_part(part), Failure::of(outcome));
    }
    batch.clear();
    if rows.windows.spare_batches.len() < REMOTE_FRAMES as usize {
        rows.windows.spare_batches.push(batch);
    }
    Some(())
}

/// The outcome of one operation of a batch.
fn outcome(answer: Span, index: usize) -> Option<RemoteOutcome> {
    let mut word = [0; OUTCOME];
    // SAFETY: local bytes; an answer's payload is there until it is released.
    let copied = unsafe { copy::copy(Span::new(word.as_mut_ptr(), OUTCOME), answer.part(index * OUTCOME, OUTCOME)) };
    RemoteOutcome::from_word(u32::from_ne_bytes(word)).filter(|_| copied == OUTCOME)
}

/// Unpacks the `count` operations of a batch that has arrived. `None` if no honest origin sends such a payload.
pub(super) fn unpack(count: u64, payload: Span) -> Option<SmallVec<[ServedOperation; 1]>> {
    if payload.len() as u64 > LEAD as u64 + REMOTE_BYTES {
        return None;
    }
    let mut operations = SmallVec::new();
    let (mut place, mut answer) = (LEAD, 0);
    while place < payload.len() {
        // SAFETY: the payload is there until it is released.
        let word = |index: usize| unsafe { copy::word(payload.part(place + 8 * index, 8)) };
        let (tag, at, length) = (word(0)?, word(1)?, word(2)?);
        let kind = RemoteKind::from_word(u32::try_from(tag).ok()?).filter(|kind| kind.is_batched())?;
        let operands = usize::try_from(kind.operands(length)).ok()?;
        place += ENTRY;
        if !fits(kind, length, payload.part(place, operands).len()) {
            return None;
        }
        answer += answer_of(kind, length);
        operations.push(ServedOperation { kind, at, length, operands: place, outcome: RemoteOutcome::Done });
        place += operands;
    }
    (!operations.is_empty() && operations.len() as u64 == count && answer <= REMOTE_BYTES).then_some(operations)
}

/// Writes the outcome of an operation into the answer of its batch.
pub(super) fn write_outcome(answer: &mut [u8], index: usize, outcome: RemoteOutcome) {
    answer[index * OUTCOME..][..OUTCOME].copy_from_slice(&outcome.word().to_ne_bytes());
}

/// Bytes of `count` outcomes.
pub(super) const fn outcomes(count: usize) -> usize {
    count * OUTCOME
}
