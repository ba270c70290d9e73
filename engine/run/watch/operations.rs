//! Operations with requests: a sink is told when each of them starts and when it ends.
//!
//! No step is told of an operation with a request: whoever watches looks at the requests of those that have started. So an end is told
//! after the tick or the poll in which it came.

use super::Watcher;
use std::collections::BTreeMap;
use tickwire_components::{Request, RequestId, Row};
use tickwire_systems::store::StoreMut;
use tickwire_traces::{About, Event, Trace};

/// Operations with requests of an engine with a sink.
#[derive(Default)]
pub(super) struct Operations {
    /// Those that were started and are not known to have ended, by the rows of their requests.
    open: BTreeMap<Row, Open>,
    /// The number of the next operation.
    next: u64,
}

/// An operation that was started.
struct Open {
    noted: NotedStart,
    /// The generation of its request.
    generation: u64,
}

/// A start that the sink was told of.
#[derive(Clone, Copy)]
pub(crate) struct NotedStart {
    /// The operation's number.
    operation: u64,
    name: &'static str,
}

impl NotedStart {
    fn tell_end(self, trace: &mut Trace, at_ns: u64) {
        let NotedStart { operation, name } = self;
        trace.record(&Event::Ended { operation, name: name.into(), at_ns });
    }
}

impl Open {
    /// Whether the operation goes on, by what its row is now.
    fn goes_on(&self, request: Option<&Request>) -> bool {
        request.is_some_and(|request| request.generation == self.generation && !request.state.is_over())
    }
}

impl Watcher {
    /// Reports that an operation starts. `None` if there is no sink.
    pub(crate) fn start_operation(&mut self, name: &'static str, about: About) -> Option<NotedStart> {
        let trace = self.trace.as_mut()?;
        let operation = self.operations.next;
        self.operations.next += 1;
        let at_ns = trace.now_ns();
        trace.record(&Event::Started { operation, name: name.into(), about, at_ns });
        Some(NotedStart { operation, name })
    }

    /// Goes on with an operation that was started: this is its request. Without a request it has ended, or was refused.
    pub(crate) fn follow_operation(&mut self, noted: NotedStart, request: Option<RequestId>, store: &mut StoreMut<'_>) {
        let Some(trace) = &mut self.trace else { return };
        let RequestId { row, generation } = match request.filter(|request| request.has_row()) {
            Some(request) => request,
            None => {
                let at_ns = trace.now_ns();
                return noted.tell_end(trace, at_ns);
            }
        };
        // An operation that has ended meanwhile may have had the same row.
        let before = self.operations.open.insert(row, Open { noted, generation });
        let goes_on = self.operations.open[&row].goes_on(store.all().requests.get(row as usize));
        if before.is_some() || !goes_on {
            let at_ns = trace.now_ns();
            before.into_iter().for_each(|before| before.noted.tell_end(trace, at_ns));
            if !goes_on {
                self.operations.open.remove(&row);
                noted.tell_end(trace, at_ns);
            }
        }
    }

    /// Reports the operations that have ended since the last look, as of this time.
    pub(super) fn end_operations(&mut self, store: &mut StoreMut<'_>, at_ns: u64) {
        let Watcher { trace: Some(trace), operations, .. } = self else { return };
        if operations.open.is_empty() {
            return;
        }
        let requests = store.all().requests;
        operations.open.retain(|&row, open| {
            let goes_on = open.goes_on(requests.get(row as usize));
            if !goes_on {
                open.noted.tell_end(trace, at_ns);
            }
            goes_on
        });
    }

    /// As [`Watcher::end_operations`], as of now.
    pub(crate) fn end_operations_now(&mut self, store: &mut StoreMut<'_>) {
        if !self.operations.open.is_empty() {
            let at_ns = self.read_clock();
            self.end_operations(store, at_ns);
        }
    }
}
