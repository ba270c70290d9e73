//! Reads a trace file back as data, for pictures and statistics.

pub(crate) mod error;

use crate::json::{Lines, Put};
use crate::records::reader::{Reader, at_one_moment, is_records};
pub use error::ReadError;
use serde::Deserialize;
use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::PathBuf;

/// Longest line, bytes.
const LINE_MAX: usize = 1 << 20;

/// The content of a trace file. Times are ns since its first event.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Reading {
    /// Ranks, by number.
    pub ranks: BTreeMap<u32, Band>,
    /// Messages, in the order in which they were sent.
    pub flights: Vec<Flight>,
    /// The end of the last event.
    pub end_ns: u64,
    /// Incomplete events at the end of a file, which were cut by the death of their rank or a full file system. They are left out.
    pub cut: u64,
}

/// The tracks of a rank.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Band {
    /// The name of the rank.
    pub name: String,
    /// The tracks by number, which is also their order in the display.
    pub tracks: BTreeMap<u32, Track>,
}

/// A track: of ticks, of a system, of collective or of one-sided calls, of sent messages or of received messages. Operations with requests
/// are on none.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Track {
    /// The name of the track.
    pub name: String,
    /// The slices, ordered by their beginning.
    pub slices: Vec<Slice>,
}

/// A slice: an event with a duration. An instant has a duration of 0 ns.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Slice {
    /// The name.
    pub name: String,
    /// When it began.
    pub begin_ns: u64,
    /// When it ended.
    pub end_ns: u64,
    /// Rows that a system handled, or the total work of a tick, or bytes of a message.
    pub value: u64,
}

/// A message on its way.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Flight {
    /// Rank, track and time of its send.
    pub from: (u32, u32, u64),
    /// Rank, track and time of its receive; `None` if the file has none.
    pub to: Option<(u32, u32, u64)>,
}

#[derive(Deserialize)]
struct Line<'a> {
    #[serde(borrow)]
    ph: Cow<'a, str>,
    pid: u32,
    tid: u32,
    #[serde(borrow)]
    name: Cow<'a, str>,
    ts: f64,
    dur: Option<f64>,
    #[serde(borrow)]
    id: Option<Cow<'a, str>>,
    #[serde(default, borrow)]
    args: Args<'a>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Args<'a> {
    #[serde(borrow)]
    name: Option<Cow<'a, str>>,
    rows: u64,
    bytes: u64,
    posted: u64,
    matched: u64,
    sent: u64,
    received: u64,
    completed: u64,
}

impl Args<'_> {
    fn value(&self) -> u64 {
        let Args { name: _, rows, bytes, posted, matched, sent, received, completed } = *self;
        [rows, bytes, posted, matched, sent, received, completed].iter().fold(0, |sum, n| n.saturating_add(sum))
    }
}

/// The latest time of an event, ns: 146 years. Sums of a few such times fit.
const NS_MAX: u64 = 1 << 62;

/// Converts from microseconds, the unit of the format. Negative values and NaNs become 0, and times after [`NS_MAX`] become that.
fn ns(us: f64) -> u64 {
    ((us * 1000.0).round() as u64).min(NS_MAX)
}

/// Reads a line, at most [`LINE_MAX`] bytes of it. Returns its number of bytes.
pub(crate) fn read_line(input: &mut impl BufRead, text: &mut Vec<u8>) -> io::Result<usize> {
    text.clear();
    let count = input.take(LINE_MAX as u64).read_until(b'\n', text)?;
    if count == LINE_MAX && !text.ends_with(b"\n") {
        return Err(io::Error::new(io::ErrorKind::InvalidData, format!("a line of more than {LINE_MAX} bytes")));
    }
    Ok(count)
}

/// The event of a line; `None` if the line has none.
pub(crate) fn event_of(line: &[u8]) -> Option<&[u8]> {
    let event = line.trim_ascii();
    let event = event.strip_suffix(b",").unwrap_or(event);
    (!matches!(event, b"" | b"[" | b"]")).then_some(event)
}

/// Whether the input is a file of records rather than of lines.
pub(crate) fn has_records(input: &mut impl BufRead) -> io::Result<bool> {
    Ok(is_records(input.fill_buf()?))
}

/// Converts records to lines. Returns whether the last record is cut.
pub(crate) fn lines_of_records(input: impl Read, put: &mut Put<'_>) -> Result<bool, ReadError> {
    let (mut reader, mut lines) = (Reader::new(input)?, Lines::default());
    while let Some(event) = reader.next()? {
        lines.event(&event, put)?;
    }
    Ok(reader.cut().is_some())
}

impl Reading {
    /// Reads the content of a file that [`TraceFile`](crate::TraceFile) has written, or that [`join`](crate::join) has made. An event that
    /// is cut at the end is left out, and counted.
    ///
    /// # Errors
    /// If it cannot be read, or is no trace.
    pub fn of(input: impl Read) -> Result<Self, ReadError> {
        let mut gathered = Gathered::default();
        gathered.read(BufReader::new(input))?;
        gathered.reading()
    }

    /// Reads several files, such as those of the ranks of a job whose launcher was killed.
    ///
    /// # Errors
    /// If a file cannot be read, or is no trace. The error names the file.
    pub fn of_files(paths: &[PathBuf]) -> Result<Self, ReadError> {
        let mut gathered = Gathered::default();
        let named = |path: &PathBuf, error| ReadError::File { path: path.clone(), error: Box::new(error) };
        for path in paths {
            let file = File::open(path).and_then(at_one_moment).map_err(ReadError::from);
            file.and_then(|file| gathered.read(BufReader::new(file))).map_err(|error| named(path, error))?;
        }
        gathered.reading().map_err(|error| paths.last().map_or(ReadError::Empty, |path| named(path, error)))
    }

    fn take(&mut self, line: &Line<'_>, arrows: &mut HashMap<String, usize>) {
        let band = self.ranks.entry(line.pid).or_default();
        let place = (line.pid, line.tid, ns(line.ts));
        let named = || line.args.name.as_deref().unwrap_or_default().to_owned();
        match &*line.ph {
            "M" if line.name == "process_name" => band.name = named(),
            "M" if line.name == "thread_name" => band.tracks.entry(line.tid).or_default().name = named(),
            "X" | "i" => {
                let end_ns = place.2 + ns(line.dur.unwrap_or(0.0));
                let (name, value) = (line.name.to_string(), line.args.value());
                let slice = Slice { name, begin_ns: place.2, end_ns, value };
                band.tracks.entry(line.tid).or_default().slices.push(slice);
                self.end_ns = self.end_ns.max(end_ns);
            }
            phase @ ("s" | "f") => {
                let Some(id) = &line.id else { return };
                // The two ends of an arrow are in the parts of two ranks, in either order.
                let index = *arrows.entry(format!("{id} {}", line.name)).or_insert(self.flights.len());
                if index == self.flights.len() {
                    self.flights.push(Flight { from: (line.pid, line.tid, u64::MAX), to: None });
                }
                match phase {
                    "s" => self.flights[index].from = place,
                    _ => self.flights[index].to = Some(place),
                }
            }
            _ => {}
        }
    }

    /// Makes times relative to the first event, and drops messages whose sending is not in the file.
    fn begin_at(&mut self, begin_ns: u64) {
        self.end_ns = self.end_ns.saturating_sub(begin_ns);
        for slice in self.ranks.values_mut().flat_map(|band| band.tracks.values_mut()).flat_map(|t| &mut t.slices) {
            slice.begin_ns = slice.begin_ns.saturating_sub(begin_ns);
            slice.end_ns = slice.end_ns.saturating_sub(begin_ns);
        }
        for track in self.ranks.values_mut().flat_map(|band| band.tracks.values_mut()) {
            track.slices.sort_by_key(|slice| slice.begin_ns);
        }
        self.flights.retain(|flight| flight.from.2 != u64::MAX);
        for flight in &mut self.flights {
            flight.from.2 = flight.from.2.saturating_sub(begin_ns);
            if let Some(to) = &mut flight.to {
                to.2 = to.2.saturating_sub(begin_ns);
            }
        }
    }
}

/// The state of reading.
#[derive(Default)]
struct Gathered {
    reading: Reading,
    /// Messages by the ids and names of their arrows.
    arrows: HashMap<String, usize>,
    /// The time of the first event.
    begin_ns: Option<u64>,
}

impl Gathered {
    /// Reads a file.
    fn read(&mut self, mut input: impl BufRead) -> Result<(), ReadError> {
        if has_records(&mut input)? {
            let cut = lines_of_records(input, &mut |line| Ok(self.line(line)?))?;
            self.reading.cut += u64::from(cut);
            return Ok(());
        }
        let (mut text, mut number) = (Vec::new(), 0);
        while read_line(&mut input, &mut text)? > 0 {
            number += 1;
            match event_of(&text).map(|event| self.line(event)) {
                // The end of a file may be cut. But a file without any complete event is no trace.
                Some(Err(_)) if !text.ends_with(b"\n") && !self.reading.ranks.is_empty() => self.reading.cut += 1,
                Some(Err(error)) => return Err(ReadError::Line { line: number, reason: error.to_string() }),
                _ => {}
            }
        }
        Ok(())
    }

    /// Reads an event.
    fn line(&mut self, event: &[u8]) -> serde_json::Result<()> {
        let line = serde_json::from_slice::<Line<'_>>(event)?;
        if line.ph != "M" {
            let at_ns = ns(line.ts);
            self.begin_ns = Some(self.begin_ns.map_or(at_ns, |begin_ns| begin_ns.min(at_ns)));
        }
        self.reading.take(&line, &mut self.arrows);
        Ok(())
    }

    /// The complete result.
    fn reading(self) -> Result<Reading, ReadError> {
        let (mut reading, begin_ns) = (self.reading, self.begin_ns.ok_or(ReadError::Empty)?);
        reading.flights.sort_by_key(|flight| flight.from.2);
        reading.begin_at(begin_ns);
        Ok(reading)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Event, Message, Sink, TraceFile, merge, part};

    fn message(proc: u32, number: u64, begin_ns: u64) -> Message {
        Message { proc, context: 1, tag: 7, bytes: 100 + number, number, begin_ns, end_ns: begin_ns + 500 }
    }

    #[test]
    fn what_was_written_is_read() {
        let path = std::env::temp_dir().join(format!("tickwire-read-{}", std::process::id()));
        for rank in 0..2 {
            let mut trace = TraceFile::create(part(&path, rank)).unwrap();
            trace.record(&Event::Engine { rank, size: 2 });
            trace.record(&Event::System { system: 4, name: "drain_cq".into() });
            trace.record(&Event::SystemRan {
                system: 4,
                rows: 3,
                begin_ns: 40_000_000_000_100,
                end_ns: 40_000_000_000_300,
            });
            match rank {
                0 => trace.record(&Event::Sent(message(1, 0, 40_000_000_001_000))),
                _ => trace.record(&Event::Received(message(0, 0, 40_000_000_002_000))),
            }
        }
        merge(&path, 2).unwrap();
        let reading = Reading::of_files(std::slice::from_ref(&path)).unwrap();
        assert_eq!(reading.ranks.keys().copied().collect::<Vec<_>>(), [0, 1]);
        let drains = &reading.ranks[&1].tracks[&6];
        assert_eq!((&*reading.ranks[&1].name, &*drains.name), ("rank 1", "drain_cq"));
        assert_eq!(drains.slices, [Slice { name: "drain_cq".into(), begin_ns: 0, end_ns: 200, value: 3 }]);
        let [flight] = reading.flights[..] else { panic!("{:?}", reading.flights) };
        assert_eq!(flight, Flight { from: (0, 1000, 900), to: Some((1, 1001, 2400)) });
        assert_eq!((reading.ranks[&0].tracks[&1000].slices[0].value, reading.end_ns), (100, 2401));
        std::fs::remove_file(path).unwrap();
    }

    #[test]
    fn messages_of_ranks_that_differ_in_high_bits_only_are_told_apart() {
        let path = std::env::temp_dir().join(format!("tickwire-high-{}", std::process::id()));
        let ranks = [1, 65_537, 2];
        for rank in ranks {
            let mut trace = TraceFile::create(part(&path, rank)).unwrap();
            trace.record(&Event::Engine { rank, size: 65_538 });
            match rank {
                2 => ranks[..2].iter().for_each(|&from| {
                    trace.record(&Event::Received(message(from, 0, 10_000 + u64::from(from))));
                }),
                _ => trace.record(&Event::Sent(message(2, 0, u64::from(rank)))),
            }
        }
        let parts = ranks.map(|rank| part(&path, rank));
        let reading = Reading::of_files(&parts).unwrap();
        let flights: Vec<_> = reading.flights.iter().map(|of| (of.from.0, of.to.map(|to| (to.0, to.2)))).collect();
        assert_eq!(flights, [(1, Some((2, 10_500))), (65_537, Some((2, 76_036)))]);
        parts.iter().for_each(|part| std::fs::remove_file(part).unwrap());
    }

    #[test]
    fn what_is_cut_is_left_out_and_what_is_no_trace_is_an_error() {
        let whole = br#"[
{"ph":"M","pid":0,"tid":0,"name":"process_name","ts":0.0,"args":{"name":"rank 0"}},
{"ph":"i","pid":0,"tid":1002,"name":"error","ts":5.0,"s":"p"},
{"ph":"X","pid":0,"tid":1,"name":"tick","ts":6.0,"dur":1.0}"#;
        for end in 100..whole.len() {
            match Reading::of(&whole[..end]) {
                Ok(reading) => assert!(reading.ranks[&0].tracks.len() <= 2, "{end}"),
                Err(ReadError::Empty) => assert!(end < 160, "{end}"),
                Err(error) => panic!("{end}: {error}"),
            }
        }
        assert!(matches!(Reading::of(&b"[\n]\n"[..]), Err(ReadError::Empty)));
        let words = Reading::of(&b"{\"a\": 1}\n"[..]).unwrap_err().to_string();
        assert!(words.starts_with("line 1 is no event") && words.lines().count() == 1, "{words}");
        let endless = br#"{"ph":"X","pid":0,"tid":1,"name":"tick","ts":-1e300,"dur":1e300}"#;
        assert!(Reading::of(&endless[..]).is_ok(), "times are bounded");
    }
}
