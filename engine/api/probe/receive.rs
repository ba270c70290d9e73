//! How a message that a matched probe has found is received, or discarded.

use super::message::{Message, RejectedMessage};
use crate::api::request::Request;
use crate::run::engine::{Closed, Engine};
use crate::run::home::Dropped;
use tickwire_components::limits::ANY;
use tickwire_components::{LeasedBytes, NIL, NoBytes, Pieces, PostError, Rank, RequestState, Row, Status, Unexpected};
use tickwire_systems::steps::activate::{rows_of, take_rows};
use tickwire_systems::steps::arguments::check_receive;
use tickwire_systems::steps::posting::receive_car;
use tickwire_systems::steps::unexpected::receive_unexpected;

impl Engine {
    /// Posts the receive of a probed message. `scoped` says that the buffer is borrowed. See [`crate::api::loans`].
    pub(crate) fn receive_message<B: LeasedBytes>(
        &mut self,
        mut message: Message,
        buffer: B,
        scoped: bool,
    ) -> Result<Request<B>, RejectedMessage<B>> {
        if message.row == NIL {
            return Ok(Request::ready(self.home, buffer, Rank::NULL.0, ANY));
        }
        let queued = match buffer.has_overlap() {
            false => self.queue_message(&message, &buffer),
            true => Err(PostError::Overlap),
        };
        match queued {
            Ok(row) => {
                message.row = NIL;
                Ok(self.hold(row, buffer, scoped))
            }
            Err(error) => {
                let error = self.raise_post(message.comm, "receive", error);
                Err(RejectedMessage { error, message, buffer })
            }
        }
    }

    /// Takes rows for the receive, and pairs it with the message.
    fn queue_message(&mut self, message: &Message, buffer: &impl Pieces) -> Result<Row, PostError> {
        self.closed.check_post()?;
        if !std::ptr::eq(message.home, self.home) || message.epoch != self.epoch {
            return Err(PostError::Stale);
        }
        let Status { source, tag, .. } = message.status;
        let communicators = self.store.all().communicators;
        let envelope = check_receive(communicators, message.comm.0, source.into(), tag.into())?;
        self.need_rows(rows_of(buffer))?;
        let all = self.store.all();
        let found = all.progress.unexpected.entries[message.row as usize];
        let car = receive_car(all.progress, &envelope, found.vc);
        // SAFETY: the caller has the row hold the buffer.
        #[expect(unsafe_code, reason = "bytes that are addresses")]
        let row = unsafe { take_rows(all.progress, all.cars, all.requests, buffer, car) };
        let Some(row) = row else { return Err(self.full()) };
        all.progress.unexpected.release(message.row);
        // Notes the type before it is compared with that of the message.
        self.note_type(row, buffer);
        self.store.with(|rows, _| receive_unexpected(rows, row, message.row, &found));
        Ok(row)
    }

    /// Discards the messages whose tokens were dropped, by a receive without a buffer for each.
    pub(crate) fn free_messages(&mut self) {
        // As in `free_dropped`: popping from an empty queue would cost a fence.
        while !self.home.others.is_empty()
            && let Some((dropped, epoch)) = self.home.others.pop()
        {
            if epoch != self.epoch || self.closed != Closed::No {
                continue;
            }
            let entry = match dropped {
                Dropped::Message(entry) => entry,
                Dropped::Comm(comm) => {
                    // It is live: nobody else has its handle.
                    let _ = self.free_comm(comm);
                    continue;
                }
            };
            let all = self.store.all();
            let found = all.progress.unexpected.entries[entry as usize];
            let Unexpected { context, source, tag, vc, .. } = found;
            let envelope = tickwire_systems::steps::arguments::Envelope { context, source, tag, proc: NIL, length: 0 };
            let car = receive_car(all.progress, &envelope, vc);
            // SAFETY: there are no bytes.
            #[expect(unsafe_code, reason = "bytes that are addresses")]
            let row = unsafe { take_rows(all.progress, all.cars, all.requests, &NoBytes, car) };
            let Some(row) = row else {
                // No row is free: it is tried again in a later tick.
                self.home.others.push((Dropped::Message(entry), epoch));
                all.progress.pending |= tickwire_components::Pending::WORLD;
                return;
            };
            all.requests[row as usize].state = RequestState::Detached;
            all.progress.unexpected.release(entry);
            self.store.with(|rows, _| receive_unexpected(rows, row, entry, &found));
        }
    }
}
