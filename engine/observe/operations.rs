//! Operations with requests, as a sink is told of them: collective ones here, one-sided ones in [`super::one_sided`].

use crate::run::engine::Engine;
use crate::run::watch::NotedStart;
use tickwire_components::{Comm, RequestId, Row};
use tickwire_systems::procs::communicators::live;
use tickwire_traces::About;

impl Engine {
    /// Notes that a collective operation with a request is being started, if a sink is told.
    #[inline(always)]
    pub(crate) fn note_start(&mut self, name: &'static str, comm: Comm) -> Option<NotedStart> {
        if self.watching.tells() { self.tell_start_on(name, comm) } else { None }
    }

    #[cold]
    #[inline(never)]
    fn tell_start_on(&mut self, name: &'static str, comm: Comm) -> Option<NotedStart> {
        // As in `note_called`.
        let context = live(self.store.all().communicators, comm.0).map_or(0, |comm| comm.context);
        self.tell_start(name, About::Comm(context))
    }

    /// Tells a sink that an operation with a request is being started.
    pub(super) fn tell_start(&mut self, name: &'static str, about: About) -> Option<NotedStart> {
        let mut noted = None;
        self.watching.with(|watcher| noted = watcher.start_operation(name, about));
        noted
    }

    /// Notes the row of an operation's request; `None` if its start was refused.
    #[cold]
    #[inline(never)]
    pub(crate) fn note_started(&mut self, noted: NotedStart, row: Option<Row>) {
        let requests = self.store.all().requests;
        let request = row.and_then(|row| {
            let generation = requests.get(row as usize)?.generation;
            Some(RequestId { row, generation })
        });
        self.note_request(noted, request);
    }

    /// Notes the request of an operation; `None` if it has none.
    pub(super) fn note_request(&mut self, noted: NotedStart, request: Option<RequestId>) {
        let Engine { watching, store, .. } = self;
        watching.with(|watcher| watcher.follow_operation(noted, request, &mut store.as_mut()));
    }

    /// Notes the operations that have ended in a poll that is no tick, if a sink is told.
    #[inline(always)]
    pub(crate) fn note_ended(&mut self) {
        if self.watching.tells() {
            self.tell_ended();
        }
    }

    #[cold]
    #[inline(never)]
    fn tell_ended(&mut self) {
        let Engine { watching, store, .. } = self;
        watching.with(|watcher| watcher.end_operations_now(&mut store.as_mut()));
    }
}
