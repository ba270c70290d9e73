//! A sink that writes the trace event format of Chrome, which Perfetto and `chrome://tracing` open.
//!
//! An engine is a process, named by its rank; its systems are tracks, its messages slices on two more, and arrows lead from
//! a message's sending to its receipt. What waits are counters. The file is one event a line, and an array that ends at any
//! time: what follows is written over its end.

use crate::event::{Depths, Event, Message, Sink};
use serde::Serialize;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use tickwire_components::{Ended, VcState, check_file_bytes};

/// Bytes that are kept back before they are written.
const BUFFER_BYTES: usize = 64 << 10;
/// How long events are kept back at most while others follow, ns.
const BUFFER_NS: u64 = 20_000_000;
/// What the array ends with.
const END: &[u8] = b"\n]\n";

/// Tracks beside those of the systems, which are [`SYSTEMS`] and their number.
const TICKS: u32 = 1;
const SYSTEMS: u32 = 2;
const SENT: u32 = 1000;
const RECEIVED: u32 = 1001;
const CONNECTIONS: u32 = 1002;

/// Writes the events of an engine to a file.
#[derive(Debug)]
pub struct TraceFile {
    file: File,
    path: PathBuf,
    buffer: Vec<u8>,
    /// Bytes in the file before the end of its array.
    written: u64,
    /// The time of the oldest event that is kept back.
    oldest_ns: u64,
    /// Whether writing has failed: nothing more is kept then.
    failed: bool,
    rank: u32,
    /// Names of the systems, by number.
    systems: Vec<String>,
    began_ns: u64,
    depths: Option<Depths>,
    received_ns: u64,
}

/// A line of the file.
#[derive(Serialize)]
struct Line<'a, A> {
    ph: &'a str,
    pid: u32,
    tid: u32,
    name: &'a str,
    ts: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    dur: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cat: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    bp: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    s: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    args: Option<A>,
}

#[derive(Serialize)]
struct Named<'a> {
    name: &'a str,
}

#[derive(Serialize)]
struct Sorted {
    sort_index: u32,
}

#[derive(Serialize)]
struct Rows {
    rows: u64,
}

#[derive(Serialize)]
struct Ticked {
    passes: u32,
    posted: u32,
    matched: u32,
    sent: u32,
    received: u32,
    completed: u32,
}

#[derive(Serialize)]
struct Enveloped {
    proc: u32,
    context: u32,
    tag: u32,
    bytes: u64,
    number: u64,
}

#[derive(Serialize)]
struct Counted {
    value: u64,
}

#[derive(Serialize)]
struct Bytes {
    sent: u64,
    received: u64,
}

#[derive(Serialize)]
struct Told<'a> {
    words: &'a str,
}

/// The format counts in microseconds.
fn us(ns: u64) -> f64 {
    ns as f64 / 1000.0
}

impl<'a, A> Line<'a, A> {
    fn new(ph: &'a str, (pid, tid): (u32, u32), name: &'a str, at_ns: u64, args: Option<A>) -> Self {
        Line { ph, pid, tid, name, ts: us(at_ns), dur: None, cat: None, id: None, bp: None, s: None, args }
    }

    fn lasting(self, ns: u64) -> Self {
        Line { dur: Some(us(ns)), ..self }
    }
}

impl TraceFile {
    /// Creates the file, or empties it.
    ///
    /// # Errors
    /// Why it cannot be written.
    pub fn create(path: impl AsRef<Path>) -> io::Result<Self> {
        let path = path.as_ref().to_owned();
        let file = File::create(&path)?;
        let mut trace = TraceFile {
            file,
            path,
            buffer: Vec::with_capacity(BUFFER_BYTES + 1024),
            written: 0,
            oldest_ns: 0,
            failed: false,
            rank: 0,
            systems: Vec::new(),
            began_ns: 0,
            depths: None,
            received_ns: 0,
        };
        trace.buffer.push(b'[');
        trace.write()?;
        Ok(trace)
    }

    /// Writes what was kept back, and the end of the array behind it.
    fn write(&mut self) -> io::Result<()> {
        let kept = self.buffer.len() as u64;
        self.buffer.extend_from_slice(END);
        let result = check_file_bytes(self.written + self.buffer.len() as u64)
            .map_err(|long| io::Error::new(io::ErrorKind::FileTooLarge, long))
            .and_then(|()| self.file.write_all_at(&self.buffer, self.written));
        self.written += kept;
        self.buffer.clear();
        self.oldest_ns = 0;
        result
    }

    fn put<A: Serialize>(&mut self, line: &Line<'_, A>) {
        if self.failed {
            return;
        }
        self.buffer.extend_from_slice(if self.written + self.buffer.len() as u64 > 1 { b",\n" } else { b"\n" });
        // Serializing these to memory does not fail; an event that did would be a cut line, which readers drop.
        let _ = serde_json::to_writer(&mut self.buffer, line);
    }

    /// Writes if much is kept back, or for long.
    fn write_in_time(&mut self, now_ns: u64) {
        if self.oldest_ns == 0 {
            self.oldest_ns = now_ns;
        }
        if self.buffer.len() >= BUFFER_BYTES || now_ns.saturating_sub(self.oldest_ns) >= BUFFER_NS {
            self.flush();
        }
    }

    /// Names a process or a track, and says where it stands.
    fn name(&mut self, tid: u32, name: &str) {
        let what = if tid == 0 { ["process_name", "process_sort_index"] } else { ["thread_name", "thread_sort_index"] };
        let sort_index = if tid == 0 { self.rank } else { tid };
        self.put(&Line::new("M", (self.rank, tid), what[0], 0, Some(Named { name })));
        self.put(&Line::new("M", (self.rank, tid), what[1], 0, Some(Sorted { sort_index })));
    }

    /// A message: a slice, and one end of an arrow.
    fn message(&mut self, message: &Message, sent: bool) {
        let Message { proc, context, tag, bytes, number, begin_ns, end_ns } = *message;
        let (tid, words, phase) = if sent { (SENT, "to", "s") } else { (RECEIVED, "from", "f") };
        let place = (self.rank, tid);
        let args = Some(Enveloped { proc, context, tag, bytes, number });
        // An arrow leads to a slice, so a receipt is as wide as it can be seen, and none has the time of another.
        let begin_ns = if sent { begin_ns } else { end_ns.max(self.received_ns + 1) };
        let ns = if sent { end_ns - begin_ns } else { 1 };
        self.received_ns = if sent { self.received_ns } else { begin_ns };
        let name = format!("{words} {proc}");
        self.put(&Line { cat: Some("message"), ..Line::new("X", place, &name, begin_ns, args).lasting(ns.max(1)) });
        let (from, to) = if sent { (self.rank, proc) } else { (proc, self.rank) };
        let id = format!("{:#x}", u64::from(from as u16) << 48 | u64::from(to as u16) << 32 | number & 0xFFFF_FFFF);
        let arrow = Line::new(phase, place, "message", begin_ns, None::<Told<'_>>);
        self.put(&Line { cat: Some("message"), id: Some(&id), bp: (!sent).then_some("e"), ..arrow });
    }

    fn depths(&mut self, depths: Depths, at_ns: u64) {
        let before = self.depths.replace(depths);
        for (index, (name, value)) in Depths::NAMES.into_iter().zip(depths.values()).enumerate() {
            if before.is_none_or(|before| before.values()[index] != value) {
                self.put(&Line::new("C", (self.rank, 0), name, at_ns, Some(Counted { value })));
            }
        }
    }

    /// Something that has no duration.
    fn instant(&mut self, name: &str, words: &str, at_ns: u64) {
        let args = (!words.is_empty()).then_some(Told { words });
        self.put(&Line { s: Some("p"), ..Line::new("i", (self.rank, CONNECTIONS), name, at_ns, args) });
    }
}

impl Sink for TraceFile {
    fn record(&mut self, event: &Event<'_>) {
        let at = match event {
            Event::Engine { rank, .. } => {
                self.rank = *rank;
                self.name(0, &format!("rank {rank}"));
                for (tid, name) in
                    [(TICKS, "tick"), (SENT, "sent"), (RECEIVED, "received"), (CONNECTIONS, "connections")]
                {
                    self.name(tid, name);
                }
                // Who is killed early has a name at least.
                return self.flush();
            }
            Event::System { system, name } => {
                self.systems.resize(self.systems.len().max(usize::from(*system) + 1), String::new());
                self.systems[usize::from(*system)] = name.as_ref().to_owned();
                return self.name(SYSTEMS + u32::from(*system), name);
            }
            Event::TickBegan { at_ns } => {
                self.began_ns = *at_ns;
                return;
            }
            Event::SystemRan { system, rows, begin_ns, end_ns } => {
                let place = (self.rank, SYSTEMS + u32::from(*system));
                let systems = std::mem::take(&mut self.systems);
                let name = systems.get(usize::from(*system)).map_or("", String::as_str);
                let line = Line::new("X", place, name, *begin_ns, Some(Rows { rows: *rows }));
                self.put(&line.lasting(end_ns.saturating_sub(*begin_ns)));
                self.systems = systems;
                *end_ns
            }
            Event::TickEnded { at_ns, work, passes, depths } => {
                let args = Ticked {
                    passes: *passes,
                    posted: work.posted,
                    matched: work.matched,
                    sent: work.sent,
                    received: work.received,
                    completed: work.completed,
                };
                let line = Line::new("X", (self.rank, TICKS), "tick", self.began_ns, Some(args));
                self.put(&line.lasting(at_ns.saturating_sub(self.began_ns)));
                self.depths(*depths, *at_ns);
                *at_ns
            }
            Event::Sent(message) => {
                self.message(message, true);
                message.end_ns
            }
            Event::Received(message) => {
                self.message(message, false);
                message.end_ns
            }
            Event::VcChanged { proc, state, reason, at_ns } => {
                let state = match state {
                    VcState::Unconnected => "unconnected",
                    VcState::Connecting => "connecting",
                    VcState::Connected => "connected",
                    // An orderly end is no failure to who looks at a trace.
                    VcState::Failed if reason == Ended::FINALIZED => "finalized",
                    VcState::Failed => "failed",
                };
                self.instant(&format!("rank {proc} {state}"), reason, *at_ns);
                *at_ns
            }
            Event::Moved { transport, sent_bytes, received_bytes, at_ns } => {
                let args = Bytes { sent: *sent_bytes, received: *received_bytes };
                self.put(&Line::new("C", (self.rank, 0), &format!("{transport} bytes"), *at_ns, Some(args)));
                *at_ns
            }
            Event::Error { words, at_ns } => {
                self.instant("error", words, *at_ns);
                *at_ns
            }
        };
        self.write_in_time(at);
    }

    fn flush(&mut self) {
        if self.buffer.is_empty() || self.failed {
            return;
        }
        if let Err(error) = self.write() {
            self.failed = true;
            eprintln!("tickwire: {}: {error}; the trace ends here", self.path.display());
        }
    }
}

impl Drop for TraceFile {
    fn drop(&mut self) {
        self.flush();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;

    fn read(path: &Path) -> Vec<Value> {
        serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
    }

    #[test]
    fn the_file_is_whole_at_any_time() {
        let path = std::env::temp_dir().join(format!("tickwire-trace-{}", std::process::id()));
        let mut trace = TraceFile::create(&path).unwrap();
        assert_eq!(read(&path).len(), 0);
        trace.record(&Event::Engine { rank: 3, size: 4 });
        trace.flush();
        let names = read(&path);
        assert!(names.iter().all(|line| line["ph"] == "M" && line["pid"] == 3));
        assert_eq!(names[0]["args"]["name"], "rank 3");
        // Many more than are kept back, and words that must be escaped.
        for at_ns in 0..2000 {
            trace.record(&Event::Error { words: "\"no\"\n\\".into(), at_ns: 5_000_000_000 + at_ns });
        }
        let written = read(&path).len();
        assert!(written > names.len(), "{written}");
        drop(trace);
        let lines = read(&path);
        assert_eq!(lines.len(), names.len() + 2000);
        let last = lines.last().unwrap();
        assert_eq!((&last["args"]["words"], last["ts"].as_f64()), (&"\"no\"\n\\".into(), Some(5_000_001.999)));
        std::fs::remove_file(path).unwrap();
    }

    #[test]
    fn what_waits_is_told_when_it_changes() {
        let path = std::env::temp_dir().join(format!("tickwire-depths-{}", std::process::id()));
        let mut trace = TraceFile::create(&path).unwrap();
        for posted in [1, 1, 2] {
            let depths = Depths { posted, ..Depths::default() };
            trace.record(&Event::TickEnded { at_ns: 9, work: Default::default(), passes: 1, depths });
        }
        drop(trace);
        let told = |name: &str| -> Vec<u64> {
            let of = read(&path).into_iter().filter(|line| line["name"] == name);
            of.map(|line| line["args"]["value"].as_u64().unwrap()).collect()
        };
        assert_eq!((told("posted"), told("wildcard")), (vec![1, 2], vec![0]));
        std::fs::remove_file(path).unwrap();
    }
}
