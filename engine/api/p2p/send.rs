//! Posting sends. The frequent cases need no row; the others go through the tables.

use super::run::{Run, only_run};
use crate::api::request::{Rejected, Request};
use crate::api::send_options::SendOptions;
use crate::run::engine::Engine;
use tickwire_components::{Comm, Large, NIL, Pieces, PostError, Rank, Row, Span, Tag};
use tickwire_systems::procs::endpoint::Aside;
use tickwire_systems::rows::Rows;
use tickwire_systems::steps::activate::{rows_of, take_rows};
use tickwire_systems::steps::arguments::{Envelope, check_null_send, check_send, send_envelope};
use tickwire_systems::steps::posting::{Plainly, new_send, queue_send, send_inline, send_noted, send_promptly};
use tickwire_systems::steps::send::{end_sent, offer_now, send_now};

impl Engine {
    #[inline(always)]
    pub(crate) fn post_send<B: Pieces>(
        &mut self,
        buffer: B,
        to: Rank,
        tag: Tag,
        comm: Comm,
        scoped: bool,
    ) -> Result<Request<B>, Rejected<B>> {
        let run = only_run(&buffer);
        let sent = match run {
            Some(run) => self.send_run(run, to, tag, comm),
            None => self.send_at_once(&buffer, to, tag, comm),
        };
        if sent {
            return Ok(Request::ready(self.home, buffer, to.0, tag.0));
        }
        if let Some(run) = run {
            let row = self.offer_run(run, to, tag, comm);
            if row != NIL {
                return Ok(self.hold(row, buffer, scoped));
            }
        }
        self.post_send_rows(buffer, to, tag, comm, scoped, SendOptions::new())
    }

    /// [`Engine::send_at_once`] for one run of bytes.
    #[inline(never)]
    pub(super) fn send_run(&mut self, run: Span, to: Rank, tag: Tag, comm: Comm) -> bool {
        match self.envelope(run.len(), to, tag, comm) {
            Some(envelope) => self.send_run_as(run, envelope),
            None => false,
        }
    }

    #[inline(always)]
    fn send_run_as(&mut self, run: Span, envelope: Envelope) -> bool {
        let Envelope { context, source, tag, proc, .. } = envelope;
        if proc == self.own_at_once {
            return self.send_to_oneself(run, context, tag, source);
        }
        self.send_run_over_vc(run, u64::from(context) | u64::from(source) << 32, tag, proc)
    }

    /// Sends a message if it can leave at once and as a whole. Returns the peer's proc if it has left.
    pub(crate) fn send_whole<B: Pieces>(&mut self, buffer: &B, to: Rank, tag: Tag, comm: Comm) -> Option<u32> {
        let envelope = self.envelope(buffer.total(), to, tag, comm)?;
        let proc = envelope.proc;
        let sent = match only_run(buffer) {
            Some(run) => self.send_run_as(run, envelope),
            None => self.send_pieces_over_vc(&envelope, buffer),
        };
        sent.then_some(proc)
    }

    /// [`Engine::send_over_vc`] for one run of bytes. Context and source share one word, so that all arguments fit into registers.
    #[inline(never)]
    pub(super) fn send_run_over_vc(&mut self, run: Span, origin: u64, tag: u32, proc: u32) -> bool {
        let (context, source, length) = (origin as u32, (origin >> 32) as u32, run.len() as u64);
        self.send_over_vc(&Envelope { context, source, tag, proc, length }, &Run(run))
    }

    /// [`Engine::send_over_vc`] for any buffer.
    #[inline(never)]
    fn send_pieces_over_vc<B: Pieces + ?Sized>(&mut self, envelope: &Envelope, buffer: &B) -> bool {
        self.send_over_vc(envelope, buffer)
    }

    /// Offers a message of one run of bytes at once, if its receiver will read it out of this memory. Returns the row of its request, or
    /// [`NIL`] in any other case.
    #[inline(never)]
    pub(super) fn offer_run(&mut self, run: Span, to: Rank, tag: Tag, comm: Comm) -> Row {
        match self.envelope(run.len(), to, tag, comm) {
            // SAFETY: the callers have the row hold the buffer, or a panic takes the bytes away from it.
            #[expect(unsafe_code, reason = "bytes that are addresses")]
            Some(envelope) => self.lending(|engine| unsafe { offer_now(engine.store.all(), &envelope, comm.0, run) }),
            None => NIL,
        }
    }

    /// As [`Engine::offer_run`], for any buffer: one of several runs is not offered so.
    pub(crate) fn offer_at_once<B: Pieces>(&mut self, buffer: &B, to: Rank, tag: Tag, comm: Comm) -> Row {
        only_run(buffer).map_or(NIL, |run| self.offer_run(run, to, tag, comm))
    }

    /// The frequent case of a send: the peer is connected, nothing waits before the message, and it is short enough. Returns `false` in any
    /// other case.
    #[inline(always)]
    pub(crate) fn send_at_once<B: Pieces + ?Sized>(&mut self, buffer: &B, to: Rank, tag: Tag, comm: Comm) -> bool {
        match self.envelope(buffer.total(), to, tag, comm) {
            Some(envelope) => self.send_pieces_over_vc(&envelope, buffer),
            None => false,
        }
    }

    /// The envelope of a send, if its arguments are right and the engine is open.
    #[inline(always)]
    pub(crate) fn envelope(&mut self, length: usize, to: Rank, tag: Tag, comm: Comm) -> Option<Envelope> {
        let tables = self.store.all();
        if tables.progress.closed() {
            return None;
        }
        send_envelope(tables.communicators, comm.0, to.0, tag.0, length)
    }

    /// Gives a message with a checked envelope to the transport of its VC.
    #[inline(always)]
    fn send_over_vc<B: Pieces + ?Sized>(&mut self, envelope: &Envelope, buffer: &B) -> bool {
        let tables = self.store.all();
        let row = tables.procs.known[envelope.proc as usize].row;
        let Some(vc) = tables.vcs.get_mut(row as usize) else { return false };
        let endpoint = &mut tables.endpoints[vc.endpoint as usize];
        if endpoint.aside != Aside::No {
            // An argument that is passed by reference is kept in memory, even where the call is not made. So the call gets a copy.
            let lent = *envelope;
            return match endpoint.aside {
                Aside::Noted => send_noted(tables.progress, vc, endpoint, &lent, buffer),
                _ => send_promptly(tables.progress, vc, endpoint, &lent, buffer),
            };
        }
        send_inline::<Plainly, B>(tables.progress, vc, endpoint, envelope, buffer)
    }

    /// As [`Engine::post_send`], with options, and always through the tables.
    #[inline(never)]
    pub(crate) fn post_send_rows<B: Pieces>(
        &mut self,
        buffer: B,
        to: Rank,
        tag: Tag,
        comm: Comm,
        scoped: bool,
        options: SendOptions,
    ) -> Result<Request<B>, Rejected<B>> {
        if to == Rank::NULL {
            return match self.check_null(|comms| check_null_send(comms, comm.0, tag.0)) {
                Ok(()) => Ok(Request::ready(self.home, buffer, Rank::NULL.0, tag.0)),
                Err(error) => Err(Rejected { error: self.raise_post(comm, "send", error), buffer }),
            };
        }
        match self.lending(|engine| engine.queue_send_rows(&buffer, to, tag, comm, options)) {
            Ok(row) => Ok(self.hold(row, buffer, scoped)),
            Err(error) => Err(Rejected { error: self.raise_post(comm, "send", error), buffer }),
        }
    }

    pub(crate) fn queue_send_rows(
        &mut self,
        buffer: &impl Pieces,
        to: Rank,
        tag: Tag,
        comm: Comm,
        options: SendOptions,
    ) -> Result<Row, PostError> {
        self.closed.check_post()?;
        let envelope = check_send(self.store.all().communicators, comm.0, to.0, tag.0, buffer.total())?;
        let vc_row = self.reach(envelope.proc)?;
        self.need_rows(rows_of(buffer))?;
        let all = self.store.all();
        let peers = (&*all.communicators, &*all.vcs, &*all.procs);
        let car = new_send(peers, &envelope, vc_row, options.flags(), options.own_priority())?;
        // SAFETY: the caller has the row hold the buffer, or a panic takes the bytes away from it.
        #[expect(unsafe_code, reason = "bytes that are addresses")]
        let row = unsafe { take_rows(all.progress, all.cars, all.requests, buffer, car) };
        let Some(row) = row else { return Err(self.full()) };
        all.large[row as usize] = Large::of(envelope.length);
        let delivers = self.delivers;
        // SAFETY: as above.
        #[expect(unsafe_code, reason = "bytes that are addresses")]
        self.store.with(|rows, wire| unsafe {
            let endpoint = &mut wire.endpoints[rows.vcs[vc_row as usize].endpoint as usize];
            if !send_now(rows, endpoint, vc_row, row) {
                let Rows { progress, cars, large, vcs, .. } = rows;
                queue_send(progress, cars, large, vcs, row, envelope.length);
            } else if delivers {
                end_sent(rows, row);
            }
        });
        Ok(row)
    }
}
