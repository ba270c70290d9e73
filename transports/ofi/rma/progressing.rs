//! Reading completions, and completing operations.

use super::Rma;
use super::context::Context;
use super::operation::OF_RING;
use crate::ofi::ReadError;
use crate::remote::FailedOperation;
use std::ffi::c_void;
use tickwire_components::NIL;
use tickwire_components::limits::RMA_READS_A_POLL;

impl Rma {
    /// Progresses the provider, and handles completions. Returns how many pieces have completed.
    #[inline(never)]
    pub(in crate::ofi) fn poll(&mut self) -> usize {
        let mut found = 0;
        for context in 0..self.contexts.len() {
            found += self.read(context);
            if self.broken.is_some() {
                return found;
            }
            self.post_rest(context);
        }
        self.note_look(found);
        let late = |since: &mut std::time::Instant| since.elapsed() > self.ending_time;
        if self.ending > 0 && self.ending_since.as_mut().is_some_and(late) {
            let provider = self.provider();
            self.give_up(format!("provider {provider} has kept operations of a connection that has ended: exclude it"));
        }
        found
    }

    /// Reads and handles the completions of a context.
    fn read(&mut self, context: usize) -> usize {
        let mut found = 0;
        for _ in 0..RMA_READS_A_POLL {
            let Context { queue, completions, .. } = &mut self.contexts[context];
            let most = completions.len();
            match queue.read(completions) {
                Ok(count) => {
                    for index in 0..count {
                        let entry = self.contexts[context].completions[index].op_context;
                        self.piece_completed(context, entry, None);
                    }
                    found += count;
                    if count < most {
                        break;
                    }
                }
                Err(ReadError::Failed(failure)) => {
                    self.disturbed = true;
                    self.piece_completed(context, failure.context, Some(failure.words));
                    found += 1;
                }
                Err(ReadError::Broken(error)) => {
                    self.give_up(error.to_string());
                    break;
                }
            }
        }
        found
    }

    fn piece_completed(&mut self, context: usize, entry: *mut c_void, failed: Option<String>) {
        // A provider may also report operations that peers have issued.
        let Some((piece, slot)) = self.contexts[context].give_back(entry) else { return };
        if piece.operation == NIL {
            return;
        }
        let operation = &mut self.operations[piece.operation as usize];
        operation.under_way -= 1;
        match (failed, piece.into) {
            (Some(words), _) => drop(operation.failed.get_or_insert(words)),
            (None, Some((into, at))) => {
                // SAFETY: the slot has as many bytes there, and the provider is done with it; the caller lends its run until
                // the operation is complete.
                #[expect(unsafe_code, reason = "memory that a provider was given")]
                unsafe {
                    into.copy_from(&slot.part(at, into.len()));
                }
            }
            (None, None) => {}
        }
        if operation.is_over() {
            self.finish(piece.operation);
        }
    }

    /// Fails an operation. It is complete once the provider has given back all its pieces.
    pub(super) fn fail(&mut self, index: u32, words: String) {
        let operation = &mut self.operations[index as usize];
        operation.failed.get_or_insert(words);
        if operation.is_over() {
            self.finish(index);
        }
    }

    /// Completes an operation: counts it, and reports it if it has failed.
    pub(super) fn finish(&mut self, index: u32) {
        let operation = &mut self.operations[index as usize];
        let (channel, number) = (operation.channel, operation.number);
        let (epoch, sequence, ending) = (operation.epoch, operation.sequence, operation.ending);
        let failed = operation.failed.take();
        if let Some(context) = self.contexts.get_mut(channel.context as usize).filter(|_| failed.is_some()) {
            context.unposted.retain(|other| *other != index);
        }
        self.forget(index);
        if ending {
            self.ending -= 1;
            if self.ending == 0 {
                self.ending_since = None;
            }
        }
        if self.peer(channel.link).epoch != epoch {
            return;
        }
        self.counts_mut(channel).complete(sequence);
        match failed {
            Some(reason) if number == OF_RING => self.rings_failed.push((channel.link, reason)),
            failed => self.failed.extend(failed.map(|reason| FailedOperation { channel, number, reason })),
        }
    }

    /// Closes everything, because the whole endpoint is being closed.
    pub(in crate::ofi) fn close(&mut self) {
        if self.broken.is_none() {
            self.give_up("this endpoint is closed".into());
        }
    }

    /// Gives up, as after a time.
    #[cfg(test)]
    pub(in crate::ofi) fn give_up_now(&mut self) {
        self.give_up("it has kept operations".into());
    }

    /// Gives up: closes everything, and fails all operations.
    #[cold]
    pub(super) fn give_up(&mut self, words: String) {
        self.broken = Some(words.clone());
        self.untold = true;
        self.shut();
        // Nobody is waited for any more.
        (self.refused, self.tells) = (false, false);
        self.peers.iter_mut().for_each(|peer| peer.refused = false);
        for index in 0..self.operations.len() as u32 {
            let operation = &mut self.operations[index as usize];
            if operation.is_used {
                operation.under_way = 0;
                operation.failed.get_or_insert_with(|| words.clone());
                self.finish(index);
            }
        }
    }
}
