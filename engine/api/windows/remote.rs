//! Operations that the target's engine does: how they are posted and waited for. How they go: `tickwire_systems::protocols::one_sided`.

use crate::api::collectives::activate;
use crate::run::engine::Engine;
use smallvec::SmallVec;
use tickwire_components::{Comm, Rank, RemoteKind, RequestError, Row, Span, WindowError};
use tickwire_systems::procs::windows::{Failure, RemoteOperation};
use tickwire_systems::protocols::one_sided::{batch::post, cut_operation};

/// What a caller waits for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Until {
    /// All bytes have left, or were copied: the origin's buffer is free.
    Sent,
    /// It is done at the target.
    Done,
}

/// What an operation does with a run of the target's memory.
#[derive(Clone, Copy)]
pub(crate) struct RemoteMove {
    /// Where in the target's part, bytes.
    pub(crate) at: usize,
    /// What is sent.
    pub(crate) from: Span,
    /// Where the answer goes.
    pub(crate) into: Span,
    /// Bytes that are put, got or updated.
    pub(crate) length: usize,
}

impl RemoteMove {
    /// None: of a request about a lock.
    pub(crate) const NONE: Self = RemoteMove { at: 0, from: Span::EMPTY, into: Span::EMPTY, length: 0 };

    /// It as an operation.
    fn operation(&self, number: u64, kind: RemoteKind) -> RemoteOperation {
        let operation = RemoteOperation::new(number, kind, self.at as u64, self.length as u64);
        RemoteOperation { from: self.from, into: self.into, ..operation }
    }
}

impl Engine {
    /// Does an operation with borrowed bytes. What is listed in the target's directory needs no help of its engine.
    pub(crate) fn run_remote(
        &mut self,
        kind: RemoteKind,
        run: RemoteMove,
        until: Until,
        (rank, handle): (Rank, u32),
    ) -> Result<(), WindowError> {
        if until == Until::Done {
            return self.run_answered(kind, &[run], (rank, handle));
        }
        if self.unlisted(kind, &[run], (rank, handle))?.is_empty() {
            return Ok(());
        }
        let number = self.store.all().windows.number();
        self.lending(|engine| {
            let operation = run.operation(number, kind);
            let awaited = engine.store.with(|rows, wire| post(rows, wire.endpoints, handle, rank.0, operation));
            let Some(awaited) = awaited else {
                engine.let_go();
                return Ok(());
            };
            let waited = engine.wait_open(|engine| engine.has_left(awaited, rank, handle));
            engine.let_go();
            if waited.is_err() {
                engine.store.with(|rows, _| cut_operation(rows, handle, rank.0, number));
            }
            Ok(waited?)
        })
    }

    /// Waits until something is so. Fails if the engine is closed before.
    fn wait_open(&mut self, is_so: impl Fn(&mut Engine) -> bool) -> Result<(), RequestError> {
        self.wait_until(|engine| {
            if is_so(engine) {
                return Ok(true);
            }
            engine.closed.check_request()?;
            Ok(false)
        })
    }

    /// Whether an operation has left. If it has failed, the next flush says so.
    fn has_left(&mut self, number: u64, rank: Rank, handle: u32) -> bool {
        let Some(window) = self.store.all().windows.get(handle) else { return true };
        let mut operations = window.targets[rank.0 as usize].operations.iter();
        operations.find(|operation| operation.number == number).is_none_or(|operation| operation.all_sent)
    }

    /// Does operations of one kind with borrowed bytes, and waits until all of them are done.
    pub(crate) fn run_answered(
        &mut self,
        kind: RemoteKind,
        runs: &[RemoteMove],
        (rank, handle): (Rank, u32),
    ) -> Result<(), WindowError> {
        let left = self.unlisted(kind, runs, (rank, handle))?;
        if left.is_empty() {
            return Ok(());
        }
        let ended = self.lending(|engine| {
            let numbers = engine.store.with(|rows, wire| {
                let first = rows.windows.next + 1;
                let mut last = first;
                for &index in &left {
                    last = rows.windows.number();
                    let operation = RemoteOperation { awaited: true, ..runs[index].operation(last, kind) };
                    post(rows, wire.endpoints, handle, rank.0, operation);
                }
                first..=last
            });
            // They are done in their order.
            let waited = engine.wait_open(|engine| {
                let windows = engine.store.all().windows;
                windows.ended.iter().any(|(number, _)| number == numbers.end()) || windows.get(handle).is_none()
            });
            engine.let_go();
            if waited.is_err() {
                let cut = |number| engine.store.with(|rows, _| cut_operation(rows, handle, rank.0, number));
                numbers.clone().for_each(cut);
            }
            let mut ended: Result<(), Failure> = Ok(());
            engine.store.all().windows.ended.retain(|&(number, end)| {
                let is_own = numbers.contains(&number);
                if is_own {
                    ended = ended.and(end);
                }
                !is_own
            });
            waited.map(|()| ended)
        })?;
        ended.map_err(|failure| self.failed(failure, rank, handle))
    }

    /// Posts operations of one kind with one request: its row, or `None` if all is done. What they lend is kept until the request is done.
    pub(crate) fn post_remote(
        &mut self,
        kind: RemoteKind,
        runs: &[RemoteMove],
        (rank, handle): (Rank, u32),
        comm: Comm,
    ) -> Result<Option<Row>, WindowError> {
        // The row is taken first: if none is free, nothing is done.
        let request = self.request_row(comm)?;
        let left = match self.unlisted(kind, runs, (rank, handle)) {
            Ok(left) if !left.is_empty() => left,
            done => {
                // A world that was lost meanwhile has no such row.
                if !self.is_lost() {
                    self.free_row(request);
                }
                return done.map(|_| None);
            }
        };
        let last = left[left.len() - 1];
        let bytes = |runs: &mut dyn Iterator<Item = &RemoteMove>| runs.map(|run| run.length as u64).sum::<u64>();
        let done = bytes(&mut runs.iter()) - bytes(&mut left.iter().map(|&index| &runs[index]));
        self.store.with(|rows, wire| {
            activate(rows, request);
            rows.cars[request as usize].done = done;
            for &index in &left {
                let number = rows.windows.number();
                let operation = runs[index].operation(number, kind);
                let operation = RemoteOperation { request, is_last: index == last, ..operation };
                post(rows, wire.endpoints, handle, rank.0, operation);
            }
        });
        Ok(Some(request))
    }

    /// Does the operations on memory that the target's directory lists. Returns the indexes of the others, for the target's engine.
    fn unlisted(
        &mut self,
        kind: RemoteKind,
        runs: &[RemoteMove],
        place: (Rank, u32),
    ) -> Result<SmallVec<[usize; 1]>, WindowError> {
        let mut left = SmallVec::new();
        if let (RemoteKind::Put | RemoteKind::Get, 2..) = (kind, runs.len()) {
            let writes = kind == RemoteKind::Put;
            let spans = runs.iter().map(|run| (run.at, if writes { run.from } else { run.into }));
            if self.runs_listed(&spans.collect::<Vec<_>>(), writes, place)? {
                return Ok(left);
            }
        }
        for (index, run) in runs.iter().enumerate() {
            if !self.move_listed(kind, run.at, (run.from, run.into), run.length, place)? {
                left.push(index);
            }
        }
        Ok(left)
    }
}
