//! Events in the trace event format of Chrome, which Perfetto and `chrome://tracing` open.
//!
//! An engine is shown as a process, named by its rank. Its systems are tracks. Its collective calls are slices on one more track, its
//! one-sided calls on another, and its messages on two more, with arrows from send to receive. Operations with requests overlap, so they
//! are asynchronous slices. Queue depths are counters. The file is an array with one event on each line.

use crate::counters::DELIVER;
use crate::event::{About, Access, Depths, Event, Message};
use serde::Serialize;
use std::borrow::Cow;
use std::fs::File;
use std::io::{self, Write};
use tickwire_components::{Ended, NIL, VcState, Work, check_file_bytes};

/// Bytes that are buffered before they are written.
const BUFFER_BYTES: usize = 64 << 10;

/// Track numbers. The track of a system is [`SYSTEMS`] plus the system's number.
const TICKS: u32 = 1;
const SYSTEMS: u32 = 2;
const ACCESSES: u32 = 998;
const CALLS: u32 = 999;
const SENT: u32 = 1000;
const RECEIVED: u32 = 1001;
const CONNECTIONS: u32 = 1002;

/// The bits of an operation's number that are in the id of its slice, behind the rank. A rank is less than 2^24.
const OPERATIONS: u64 = (1 << 40) - 1;

/// A function that takes lines. Each line is one event.
pub(crate) type Put<'a> = dyn FnMut(&[u8]) -> io::Result<()> + 'a;

/// Converts the events of an engine to lines.
#[derive(Debug, Default)]
pub(crate) struct Lines {
    rank: u32,
    /// Names of the systems, by number.
    systems: Vec<String>,
    began_ns: u64,
    depths: Option<Depths>,
    /// End of the slice of the last received message. Slices of one track must not overlap.
    received_ns: u64,
    text: Vec<u8>,
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
struct Context {
    context: u32,
}

#[derive(Serialize)]
struct Accessed {
    #[serde(skip_serializing_if = "Option::is_none")]
    window: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    target: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    bytes: Option<u64>,
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

/// Converts to microseconds, the unit of the format.
fn us(ns: u64) -> f64 {
    ns as f64 / 1000.0
}

impl Accessed {
    fn of(access: &Access) -> Self {
        let known = |number: u32| (number != NIL).then_some(number);
        let Access { window, target, bytes } = *access;
        Accessed { window: known(window), target: known(target), bytes: (bytes != 0).then_some(bytes) }
    }
}

impl<'a, A> Line<'a, A> {
    fn new(ph: &'a str, (pid, tid): (u32, u32), name: &'a str, at_ns: u64, args: Option<A>) -> Self {
        Line { ph, pid, tid, name, ts: us(at_ns), dur: None, cat: None, id: None, bp: None, s: None, args }
    }

    fn lasting(self, ns: u64) -> Self {
        Line { dur: Some(us(ns)), ..self }
    }
}

/// A state of a connection in words, and why it is so.
fn words_of(state: VcState, reason: &str) -> &'static str {
    match state {
        VcState::Unconnected => "unconnected",
        VcState::Connecting => "connecting",
        VcState::Connected => "connected",
        // In a trace, an orderly end is not shown as a failure.
        VcState::Failed if reason == Ended::FINALIZED => "finalized",
        VcState::Failed => "failed",
    }
}

impl Lines {
    /// Converts an event to lines.
    ///
    /// # Errors
    /// The errors of `put`.
    pub(crate) fn event(&mut self, event: &Event<'_>, put: &mut Put<'_>) -> io::Result<()> {
        self.text.clear();
        self.tell(event);
        // A line contains no line end, since text is escaped.
        self.text.split(|&byte| byte == b'\n').filter(|line| !line.is_empty()).try_for_each(put)
    }

    fn tell(&mut self, event: &Event<'_>) {
        match event {
            Event::Engine { rank, .. } => self.engine(*rank),
            Event::System { system, name } => {
                self.systems.resize(self.systems.len().max(usize::from(*system) + 1), String::new());
                self.systems[usize::from(*system)] = name.as_ref().to_owned();
                self.name(SYSTEMS + u32::from(*system), name);
            }
            Event::Delivered { begin_ns, read_ns, end_ns, work } => {
                self.tick(*begin_ns, *end_ns, 1, work);
                self.system(DELIVER as u16, "deliver", *begin_ns, *end_ns, work.received.into());
                if read_ns < end_ns {
                    // The number of these messages is not known, so it is 0.
                    self.system(DELIVER as u16, "read", *read_ns, *end_ns, 0);
                }
            }
            Event::Waiting { depths, at_ns } => self.depths(*depths, *at_ns),
            Event::TickBegan { at_ns } => self.began_ns = *at_ns,
            Event::SystemRan { system, rows, begin_ns, end_ns } => {
                let systems = std::mem::take(&mut self.systems);
                let name = systems.get(usize::from(*system)).map_or("", String::as_str);
                self.system(*system, name, *begin_ns, *end_ns, *rows);
                self.systems = systems;
            }
            Event::TickEnded { at_ns, work, passes, depths } => {
                self.tick(self.began_ns, *at_ns, *passes, work);
                self.depths(*depths, *at_ns);
            }
            Event::Sent(message) => self.message(message, true),
            Event::Received(message) => self.message(message, false),
            Event::Called { name, context, begin_ns, end_ns } => {
                let line = Line::new("X", (self.rank, CALLS), name, *begin_ns, Some(Context { context: *context }));
                self.put(&line.lasting(end_ns.saturating_sub(*begin_ns)));
            }
            Event::Accessed { name, access, begin_ns, end_ns } => {
                let line = Line::new("X", (self.rank, ACCESSES), name, *begin_ns, Some(Accessed::of(access)));
                self.put(&line.lasting(end_ns.saturating_sub(*begin_ns)));
            }
            Event::Started { operation, name, about, at_ns } => match about {
                About::Comm(context) => {
                    self.operation("b", *operation, name, *at_ns, Some(Context { context: *context }))
                }
                About::Memory(access) => self.operation("b", *operation, name, *at_ns, Some(Accessed::of(access))),
            },
            Event::Ended { operation, name, at_ns } => {
                self.operation("e", *operation, name, *at_ns, None::<Context>);
            }
            Event::VcChanged { proc, state, reason, at_ns } => {
                self.instant(&format!("rank {proc} {}", words_of(*state, reason)), reason, *at_ns);
            }
            Event::Moved { transport, sent_bytes, received_bytes, at_ns } => {
                let args = Bytes { sent: *sent_bytes, received: *received_bytes };
                self.put(&Line::new("C", (self.rank, 0), &format!("{transport} bytes"), *at_ns, Some(args)));
            }
            Event::Error { words, at_ns } => self.instant("error", words, *at_ns),
        }
    }

    /// The names of a rank and of its tracks.
    fn engine(&mut self, rank: u32) {
        self.rank = rank;
        self.name(0, &format!("rank {rank}"));
        for (tid, name) in [
            (TICKS, "tick"),
            (ACCESSES, "one-sided"),
            (CALLS, "collectives"),
            (SENT, "sent"),
            (RECEIVED, "received"),
            (CONNECTIONS, "connections"),
        ] {
            self.name(tid, name);
        }
    }

    /// One end of an asynchronous slice, which may overlap others: an operation with a request. Both ends have the same name, category and
    /// id, and no other slice has this id.
    fn operation<A: Serialize>(&mut self, ph: &str, operation: u64, name: &str, at_ns: u64, args: Option<A>) {
        let id = format!("{:#x}", u64::from(self.rank) << 40 | operation & OPERATIONS);
        let line = Line::new(ph, (self.rank, CALLS), name, at_ns, args);
        self.put(&Line { cat: Some("operation"), id: Some(&id), ..line });
    }

    /// A slice for a tick.
    fn tick(&mut self, begin_ns: u64, end_ns: u64, passes: u32, work: &Work) {
        let Work { posted, matched, sent, received, completed } = *work;
        let args = Some(Ticked { passes, posted, matched, sent, received, completed });
        let line = Line::new("X", (self.rank, TICKS), "tick", begin_ns, args);
        self.put(&line.lasting(end_ns.saturating_sub(begin_ns)));
    }

    /// A slice on the track of a system: a run, or a part of a run.
    fn system(&mut self, system: u16, name: &str, begin_ns: u64, end_ns: u64, rows: u64) {
        let place = (self.rank, SYSTEMS + u32::from(system));
        let line = Line::new("X", place, name, begin_ns, Some(Rows { rows }));
        self.put(&line.lasting(end_ns.saturating_sub(begin_ns)));
    }

    fn put<A: Serialize>(&mut self, line: &Line<'_, A>) {
        // Serializing these values to memory cannot fail.
        let _ = serde_json::to_writer(&mut self.text, line);
        self.text.push(b'\n');
    }

    /// Writes the name and the sort index of a process or of a track.
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
        // An arrow connects two slices, so each slice has a visible width. The arrow ends when the message had arrived.
        let begin_ns = if sent { begin_ns } else { begin_ns.max(self.received_ns) };
        let ns = end_ns.saturating_sub(begin_ns);
        let arrow_ns = if sent { begin_ns } else { begin_ns.saturating_add(ns) };
        let ns = if sent { ns.max(1) } else { ns.saturating_add(1) };
        self.received_ns = if sent { self.received_ns } else { arrow_ns.saturating_add(1) };
        let name = format!("{words} {proc}");
        self.put(&Line { cat: Some("message"), ..Line::new("X", place, &name, begin_ns, args).lasting(ns) });
        let (from, to) = if sent { (self.rank, proc) } else { (proc, self.rank) };
        let (name, id) = arrow(from, to, number);
        let arrow = Line::new(phase, place, &name, arrow_ns, None::<Told<'_>>);
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

    /// An event without a duration.
    fn instant(&mut self, name: &str, words: &str, at_ns: u64) {
        let args = (!words.is_empty()).then_some(Told { words });
        self.put(&Line { s: Some("p"), ..Line::new("i", (self.rank, CONNECTIONS), name, at_ns, args) });
    }
}

/// The name and the id of an arrow, which tell it apart from all others. Perfetto reads an id as a number of 64 bits, and drops arrows with
/// any other id. Ranks from 65536 on have more bits than an id has room for, so their names are different, too.
fn arrow(from: u32, to: u32, number: u64) -> (Cow<'static, str>, String) {
    let id = u64::from(from as u16) << 48 | u64::from(to as u16) << 32 | number & 0xFFFF_FFFF;
    let name = match from.max(to) {
        0..0x1_0000 => "message".into(),
        _ => format!("message from {from} to {to}").into(),
    };
    (name, format!("{id:#x}"))
}

/// Writes an array of lines to a file.
#[derive(Debug)]
pub(crate) struct Array {
    file: File,
    buffer: Vec<u8>,
    /// Bytes that were written so far.
    bytes: u64,
    /// Lines so far.
    pub(crate) lines: u64,
    /// Whether a line could not be written.
    pub(crate) failed: bool,
}

impl Array {
    /// Begins an array in a file that is empty.
    pub(crate) fn new(file: File) -> Self {
        Array { file, buffer: vec![b'['], bytes: 0, lines: 0, failed: false }
    }

    /// Adds a line.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub(crate) fn put(&mut self, line: &[u8]) -> io::Result<()> {
        self.buffer.extend_from_slice(if self.lines == 0 { b"\n" } else { b",\n" });
        self.buffer.extend_from_slice(line);
        self.lines += 1;
        if self.buffer.len() >= BUFFER_BYTES { self.write() } else { Ok(()) }
    }

    /// Ends the array.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub(crate) fn end(mut self) -> io::Result<()> {
        self.buffer.extend_from_slice(b"\n]\n");
        self.write()
    }

    fn write(&mut self) -> io::Result<()> {
        self.bytes += self.buffer.len() as u64;
        let written = check_file_bytes(self.bytes)
            .map_err(|long| io::Error::new(io::ErrorKind::FileTooLarge, long))
            .and_then(|()| self.file.write_all(&self.buffer));
        self.failed = written.is_err();
        self.buffer.clear();
        written
    }
}

#[cfg(test)]
mod tests;
