//! Where an engine's events go, and the events that the engine itself records.

use crate::bootstrap::{ENV_RANK, ENV_SIZE, ENV_SOLO, Exchange};
use crate::run::engine::{Closed, Engine};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use tickwire_components::{BuildError, Comm};
use tickwire_systems::procs::communicators::live;
use tickwire_traces::tracy::Zone;
use tickwire_traces::{Event, Trace, TraceFile, now_ns, part, tracy};

/// The variable that names a file for events. See [`TraceFile`].
pub const ENV_TRACE: &str = "TICKWIRE_TRACE";

/// The sink of an engine that is being built: the given one, or the file that the environment names.
pub(crate) fn open(given: Option<Trace>, exchange: &dyn Exchange) -> Result<Option<Trace>, BuildError> {
    let (rank, size) = (exchange.rank(), exchange.size());
    let mut trace = match (given, std::env::var_os(ENV_TRACE).filter(|path| !path.is_empty())) {
        (None, Some(path)) => {
            let (path, is_part) = file_of(path.into(), rank, size);
            let failed = |error| BuildError::Trace { path: path.display().to_string(), reason: format!("{error}") };
            let file = if is_part { TraceFile::create_part(&path) } else { TraceFile::create(&path) };
            Some(Trace::new(file.map_err(failed)?))
        }
        (given, _) => given,
    };
    if let Some(trace) = &mut trace {
        trace.record(&Event::Engine { rank, size });
    }
    Ok(trace)
}

/// The file of an engine, and whether it is a part. One name in the environment serves all ranks of a world, and all engines of a process.
/// The launcher gives each rank a name of its own, and later merges the first file of each rank into one: such a file is a part.
///
/// An engine of another world than the launched one, such as that of a program which a rank has started, gets a file named by its process:
/// it must not replace the rank's own.
fn file_of(path: PathBuf, rank: u32, size: u32) -> (PathBuf, bool) {
    static USED: Mutex<BTreeMap<PathBuf, u32>> = Mutex::new(BTreeMap::new());
    let said = |name| std::env::var(name).ok().and_then(|number| number.parse().ok());
    let is_started = std::env::var_os(ENV_RANK).is_some();
    let launched =
        std::env::var(ENV_SOLO).as_deref() != Ok("1") && (said(ENV_RANK), said(ENV_SIZE)) == (Some(rank), Some(size));
    let path = match (is_started && !launched, size > 1 && !launched) {
        (true, _) => {
            let mut name = path.into_os_string();
            name.push(format!("-{}", std::process::id()));
            name.into()
        }
        (false, true) => part(&path, rank),
        (false, false) => path,
    };
    let mut used = USED.lock().unwrap_or_else(PoisonError::into_inner);
    let times = used.entry(path.clone()).and_modify(|times| *times += 1).or_insert(1);
    if *times == 1 {
        return (path, launched);
    }
    let mut name = path.into_os_string();
    name.push(format!("-{times}"));
    (name.into(), false)
}

/// A call that a sink or a profiler is told of.
pub(crate) struct NotedCall {
    begin_ns: u64,
    /// Ends when the call does, even by a panic.
    _zone: Zone,
}

impl Engine {
    /// Notes that an operation is called, if somebody watches.
    #[inline(always)]
    pub(crate) fn note_call(&mut self, name: &str) -> Option<NotedCall> {
        if self.watching.tells() { Some(self.begin_call(name)) } else { None }
    }

    #[cold]
    #[inline(never)]
    fn begin_call(&mut self, name: &str) -> NotedCall {
        let begin_ns = self.trace.get_mut().as_mut().map_or(0, Trace::now_ns);
        NotedCall { begin_ns, _zone: Zone::of_call(name) }
    }

    /// Reports a call that has returned.
    #[cold]
    #[inline(never)]
    pub(crate) fn note_called(&mut self, NotedCall { begin_ns, .. }: NotedCall, name: &str, comm: Comm) {
        // A call on a communicator that has been freed is told without one.
        let context = live(self.store.all().communicators, comm.0).map_or(0, |comm| comm.context);
        if let Some(trace) = self.trace.get_mut() {
            let end_ns = trace.now_ns();
            trace.record(&Event::Called { name: name.into(), context, begin_ns, end_ns });
        }
    }

    /// Reports an error to the trace and the profiler.
    #[cold]
    pub(crate) fn tell_error(&self, words: &str) {
        tracy::message(self.rank().0, words);
        if let Some(trace) = &mut *self.trace.borrow_mut() {
            trace.record(&Event::Error { words: words.into(), at_ns: now_ns() });
        }
    }

    /// Lets a sink write what it holds back, before a sleep. Once the engine is closed, the sink is finished.
    pub(crate) fn flush_trace(&mut self) {
        if self.watching.is_on() {
            let Engine { watching, store, .. } = self;
            watching.with(|watcher| watcher.rest(&mut store.as_mut()));
        }
        match self.trace.get_mut() {
            Some(trace) if self.closed == Closed::Finalized => trace.finish(),
            Some(trace) => trace.flush(),
            None => {}
        }
    }
}
