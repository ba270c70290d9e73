//! Accepting operations, and posting them to the provider piece by piece.

use super::Rma;
use super::calls::{EXPECTED_AT, RESULT_AT, post, write};
use super::operation::What::{Fetch, Get, Put, Swap};
use super::operation::{OF_RING, Operation, Piece, Place, What};
use crate::ofi::Refused;
use crate::ofi::registry::Local;
use crate::remote::{AtomicWord, Channel, Issued, RemoteAccess, RemoteRun};
use libfabric_sys as sys;
use std::ffi::c_void;
use std::ptr::null_mut;
use tickwire_components::Span;
use tickwire_components::limits::RMA_SLOT_BYTES;

impl Operation {
    /// Whether all its bytes are copied through slots. Such an operation needs no region of its own.
    fn is_copied(&self, lends: bool, registers: bool) -> bool {
        let short = self.local.len() <= RMA_SLOT_BYTES;
        match self.what {
            Put => !lends || short,
            Get => !lends || short && registers,
            Fetch(..) | Swap(..) => true,
        }
    }
}

impl Rma {
    /// Accepts an operation. Returns [`Issued::Full`] if the peer has not introduced itself yet, or there is no room.
    ///
    /// # Safety
    /// The local run is valid for reads, or for writes if the operation returns data, until the operation is complete.
    ///
    /// # Errors
    /// Why the operation is impossible, in words.
    #[expect(unsafe_code, reason = "bytes that are addresses")]
    pub(super) unsafe fn issue(
        &mut self,
        channel: Channel,
        remote: RemoteRun,
        what: What,
        local: Span,
        number: u64,
    ) -> Result<Issued, String> {
        let access = self.check_operation(&remote, what, local)?;
        let address = remote.place(local.len(), access)?;
        let Some(to) = self.way(channel)? else { return Ok(Issued::Full) };
        if local.is_empty() {
            let sequence = self.counts_mut(channel).issue();
            self.counts_mut(channel).complete(sequence);
            return Ok(Issued::Taken(sequence));
        }
        let context = &self.contexts[channel.context as usize];
        if context.is_lost() {
            return Err(format!("provider {} gives nothing back from peers that have gone", self.provider()));
        }
        let waits = |&index: &u32| self.operations[index as usize].channel == channel;
        if context.free_slot().is_none() || context.unposted.iter().any(waits) {
            return Ok(Issued::Full);
        }
        let epoch = self.peer(channel.link).epoch;
        let key = remote.key.key;
        let (region, failed) = (None, None);
        let operation = Operation {
            is_used: true,
            channel,
            epoch,
            sequence: 0,
            number,
            what,
            to,
            address,
            key,
            local,
            region,
            given: 0,
            under_way: 0,
            failed,
            ending: false,
        };
        let index = self.enter(operation)?;
        match self.post_piece(index) {
            Ok(true) if self.refused => self.peer(channel.link).refused = false,
            Ok(true) => {}
            Ok(false) => {
                self.forget(index);
                self.refused = true;
                self.peer(channel.link).refused = true;
                return Ok(Issued::Full);
            }
            Err(words) => {
                self.forget(index);
                return Err(words);
            }
        }
        let sequence = self.counts_mut(channel).issue();
        self.peer(channel.link).has_operated |= number != OF_RING;
        self.operations[index as usize].sequence = sequence;
        if !self.operations[index as usize].is_given() {
            self.contexts[channel.context as usize].unposted.push_back(index);
            self.post_rest(channel.context as usize);
        }
        Ok(Issued::Taken(sequence))
    }

    /// Checks an operation's operands. Returns the access that its key must allow.
    fn check_operation(&self, remote: &RemoteRun, what: What, local: Span) -> Result<RemoteAccess, String> {
        let word = match what {
            Put => return Ok(RemoteAccess::WRITE),
            Get => return Ok(RemoteAccess::READ),
            Fetch(_, word) => word,
            Swap(expected, swap) if expected.width() != swap.width() => {
                return Err("an integer is compared with one of another length: give both the same".into());
            }
            Swap(_, swap) => swap,
        };
        let width = word.width();
        if local.len() != width {
            return Err(format!("a result of {width} bytes goes into {} bytes: give it as many", local.len()));
        }
        if !remote.key.base.wrapping_add(remote.offset).is_multiple_of(width as u64) {
            let offset = remote.offset;
            return Err(format!("an integer of {width} bytes at byte {offset}: atomic operations need it aligned"));
        }
        if !self.atomics.take(word) {
            let provider = self.provider();
            return Err(format!("provider {provider} has no atomic operations on integers of {width} bytes"));
        }
        Ok(RemoteAccess::ATOMIC)
    }

    /// Enters an operation into the table, and registers its local run where that is needed.
    fn enter(&mut self, mut operation: Operation) -> Result<u32, String> {
        let registers = self.memory.local;
        if registers && !operation.is_copied(self.lends, registers) {
            let flags = if matches!(operation.what, Put) { sys::FI_WRITE } else { sys::FI_READ };
            let place = self.place(operation.channel.context as usize);
            // SAFETY: the caller lends the run until the operation is complete, which lets go of the region.
            #[expect(unsafe_code, reason = "FFI")]
            let region = unsafe { self.registry.local(place, operation.local, flags)? };
            operation.region = Some(region);
        }
        Ok(match self.free_operations.pop() {
            Some(index) => {
                self.operations[index as usize] = operation;
                index
            }
            None => {
                self.operations.push(operation);
                self.operations.len() as u32 - 1
            }
        })
    }

    /// Frees the table entry of an operation.
    pub(super) fn forget(&mut self, index: u32) {
        let operation = &mut self.operations[index as usize];
        (operation.is_used, operation.region) = (false, None);
        self.free_operations.push(index);
    }

    /// Posts the remaining pieces of a context's operations, as long as there are slots. An operation whose peer accepts nothing now does
    /// not hold up the others.
    pub(super) fn post_rest(&mut self, context: usize) {
        for _ in 0..self.contexts[context].unposted.len() {
            let Some(index) = self.contexts[context].unposted.pop_front() else { return };
            let refused = loop {
                if self.operations[index as usize].is_given() {
                    break None;
                }
                match self.post_piece(index) {
                    Ok(true) => {}
                    Ok(false) => {
                        self.contexts[context].unposted.push_back(index);
                        break None;
                    }
                    Err(words) => break Some(words),
                }
            };
            refused.into_iter().for_each(|words| self.fail(index, words));
        }
    }

    /// Posts the next piece of an operation. `false` if there is no free slot, or the provider has no room.
    fn post_piece(&mut self, index: u32) -> Result<bool, String> {
        let operation = &self.operations[index as usize];
        let at = operation.channel.context as usize;
        let context = &self.contexts[at];
        let Some(slot) = context.free_slot() else { return Ok(false) };
        let part = operation.local.part(operation.given, self.piece_max);
        let place = self.prepare(operation, part, context.slot(slot));
        let address = operation.address + operation.given as u64;
        let (call, code) = post(context.endpoint, operation, &place, address, context.context_of(slot));
        if code != 0 {
            return match Refused::new(&self.domain, call, code) {
                Refused::Again => Ok(false),
                Refused::Failed(error) => Err(self.refused(index, code, error.to_string())),
            };
        }
        self.contexts[at].take(Piece { operation: index, into: place.into });
        let operation = &mut self.operations[index as usize];
        operation.given += part.len();
        operation.under_way += 1;
        Ok(true)
    }

    /// Returns the text of a refusal. If the provider refuses an atomic operation as unknown, it counts as having none of that width from
    /// now on.
    #[cold]
    fn refused(&mut self, index: u32, code: isize, words: String) -> String {
        let unknown = code == -(sys::FI_ENOSYS as isize) || code == -(sys::FI_EOPNOTSUPP as isize);
        match self.operations[index as usize].what {
            Fetch(_, word) | Swap(_, word) if unknown => match word {
                AtomicWord::Four(_) => self.atomics.four = false,
                AtomicWord::Eight(_) => self.atomics.eight = false,
            },
            _ => {}
        }
        words
    }

    /// Prepares the memory that a piece is posted with: copies into the slot, or the caller's own run.
    fn prepare(&self, operation: &Operation, part: Span, (slot, descriptor): (Span, *mut c_void)) -> Place {
        let copied = operation.is_copied(self.lends, self.memory.local);
        let own = slot.part(0, part.len());
        match operation.what {
            Put if copied => {
                // SAFETY: an own place of as many bytes, which no operation uses, and the caller's run, which is valid for reads.
                #[expect(unsafe_code, reason = "memory that a provider is given")]
                unsafe {
                    own.copy_from(&part);
                }
                Place { run: own, descriptor, into: None }
            }
            Get if copied => Place { run: own, descriptor, into: Some((part, 0)) },
            Put | Get => {
                let descriptor = operation.region.as_ref().map_or(null_mut(), Local::descriptor);
                Place { run: part, descriptor, into: None }
            }
            Fetch(_, operand) => {
                write(slot, 0, operand);
                Place { run: slot, descriptor, into: Some((part, RESULT_AT)) }
            }
            Swap(expected, swap) => {
                write(slot, 0, swap);
                write(slot, EXPECTED_AT, expected);
                Place { run: slot, descriptor, into: Some((part, RESULT_AT)) }
            }
        }
    }
}
