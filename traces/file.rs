//! A sink that writes a file. While the engine runs, the file has [records](crate::records). At the end it becomes a file for Perfetto.
//!
//! An event costs a few stores into a mapped part of the file: no formatting, no allocation, and one system call for each 64 KiB of
//! events. A stored event is in the file at once, so a process that is killed loses none.

use crate::event::{Event, Sink};
use crate::merge::join;
use crate::records::{BEGIN_WORDS, BUFFER_WORDS, IN_PAGE, MAGIC, PAGE_WORDS, Recorder, STATE, State, VERSION, Words};
use crate::window::Window;
use std::fs::{File, Metadata};
use std::io::{self, Write as _};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{Ordering, fence};
use tickwire_components::check_file_bytes;

/// Writes the events of an engine to a file.
///
/// While the engine runs, the file has a format of its own, which `tickwire trace` reads, even if the process was killed. When the
/// engine is finalized or dropped, the file becomes an array in the trace event format of Chrome, which <https://ui.perfetto.dev> and
/// `chrome://tracing` open.
#[derive(Debug)]
pub struct TraceFile {
    recorder: Recorder,
    records: BufferedFile,
    /// Whether the file becomes an array at the end.
    becomes_array: bool,
    /// Whether the engine is closed.
    finished: bool,
}

/// A file of records. See [`records`](crate::records) for the format.
#[derive(Debug)]
struct BufferedFile {
    file: File,
    path: PathBuf,
    /// The mapped page, or page and buffer once the page is full; `None` once the file has ended.
    window: Option<Window>,
    /// Index in the window where the next record goes.
    at: usize,
    /// How much is in the file behind its page; `None` while the page is not full.
    state: Option<State>,
    /// Bytes that are being moved from the buffer to the end of the file.
    moved: Vec<u8>,
}

impl TraceFile {
    /// Creates the file. Replaces an existing one.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn create(path: impl AsRef<Path>) -> io::Result<Self> {
        Self::open(path.as_ref(), true)
    }

    /// The same for a rank of a job. The file keeps its records, for [`merge`](crate::merge) or [`join`](crate::join).
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn create_part(path: impl AsRef<Path>) -> io::Result<Self> {
        Self::open(path.as_ref(), false)
    }

    fn open(path: &Path, becomes_array: bool) -> io::Result<Self> {
        Ok(TraceFile {
            recorder: Recorder::default(),
            records: BufferedFile::open(path)?,
            becomes_array,
            finished: false,
        })
    }

    /// Converts the file to an array, if no other file has taken its place.
    fn become_array(&self) {
        let path = &self.records.path;
        if !self.records.is_in_place() {
            return;
        }
        if let Err(error) = join(path, std::slice::from_ref(path)) {
            let path = path.display();
            // A closed stderr is no reason to fail.
            let _ = writeln!(
                io::stderr(),
                "tickwire: {error}; `tickwire trace {path} --json OTHER` makes what Perfetto opens of it"
            );
        }
    }
}

impl Sink for TraceFile {
    #[inline]
    fn record(&mut self, event: &Event<'_>) {
        self.recorder.record(event, &mut self.records);
    }

    fn finish(&mut self) {
        if std::mem::replace(&mut self.finished, true) {
            return;
        }
        self.records.end();
        if self.becomes_array {
            self.become_array();
        }
    }
}

impl Drop for TraceFile {
    fn drop(&mut self) {
        self.finish();
    }
}

impl BufferedFile {
    fn open(path: &Path) -> io::Result<Self> {
        // Another process may have mapped the file of this name, so the file is removed rather than changed. If it cannot be removed,
        // it is truncated.
        if let Ok(known) = path.canonicalize()
            && known.is_file()
        {
            let _ = std::fs::remove_file(known);
        }
        let file = File::options().read(true).write(true).create(true).truncate(true).open(path)?;
        if !file.metadata()?.is_file() {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is no regular file"));
        }
        // The process may change its working directory, so the path is made absolute.
        let path = path.canonicalize()?;
        let window = Window::map(&file, PAGE_WORDS)?;
        window.words()[1].store(VERSION, Ordering::Relaxed);
        window.words()[0].store(MAGIC, Ordering::Release);
        Ok(BufferedFile { file, path, window: Some(window), at: BEGIN_WORDS, state: None, moved: Vec::new() })
    }

    /// Whether the path still leads to this file.
    fn is_in_place(&self) -> bool {
        let (own, there) = (self.file.metadata(), self.path.symlink_metadata());
        let name = |file: Metadata| (file.dev(), file.ino());
        own.is_ok_and(|own| there.is_ok_and(|there| name(own) == name(there)))
    }

    /// Writes a record to the buffer after it was emptied.
    #[cold]
    #[inline(never)]
    fn put_after_emptying(&mut self, words: &[u64]) {
        if self.window.is_none() {
            return;
        }
        match self.empty_buffer() {
            Ok(()) => self.put(words),
            Err(error) => {
                let _ = writeln!(io::stderr(), "tickwire: {}: {error}; the trace ends here", self.path.display());
                self.window = None;
            }
        }
    }

    /// Creates the buffer, or writes its content behind the end of the file.
    fn empty_buffer(&mut self) -> io::Result<()> {
        let Some(state) = self.state else {
            self.window = Some(Window::map(&self.file, PAGE_WORDS + BUFFER_WORDS)?);
            self.moved = vec![0; BUFFER_WORDS * 8];
            (self.at, self.state) = (PAGE_WORDS, Some(State::default()));
            return Ok(());
        };
        let Some(window) = &self.window else { return Ok(()) };
        let buffered = &window.words()[PAGE_WORDS..self.at];
        for (bytes, word) in self.moved.as_chunks_mut().0.iter_mut().zip(buffered) {
            *bytes = word.load(Ordering::Relaxed).to_ne_bytes();
        }
        let moved = &self.moved[..buffered.len() * 8];
        let end = (PAGE_WORDS + BUFFER_WORDS) as u64 * 8 + state.behind * 8;
        check_file_bytes(end + moved.len() as u64).map_err(|long| io::Error::new(io::ErrorKind::FileTooLarge, long))?;
        self.file.write_all_at(moved, end)?;
        let state = State { behind: state.behind + buffered.len() as u64, buffered: 0 };
        window.words()[STATE].store(state.word(), Ordering::Release);
        // The buffer is written anew from here on. Who reads any of that also sees the new state.
        fence(Ordering::Release);
        (self.at, self.state) = (PAGE_WORDS, Some(state));
        Ok(())
    }

    /// Ends the file. The unused rest of a page is cut off.
    fn end(&mut self) {
        self.window = None;
        if self.state.is_none() {
            // Readers stop where the words end, however long the file is.
            let _ = self.file.set_len(self.at as u64 * 8);
        }
    }
}

impl Words for BufferedFile {
    #[inline(always)]
    fn put(&mut self, words: &[u64]) {
        let all = self.window.as_ref().map_or(&[][..], Window::words);
        let end = self.at + words.len();
        // The buffer begins where the page ends. It does not exist while the page is being filled.
        let (Some(places), Some(begin)) = (all.get(self.at..end), all.first_chunk::<BEGIN_WORDS>()) else {
            return self.put_after_emptying(words);
        };
        places.iter().zip(words).for_each(|(place, word)| place.store(*word, Ordering::Relaxed));
        self.at = end;
        match &self.state {
            Some(state) => {
                let state = State { buffered: (end - PAGE_WORDS) as u16, ..*state };
                begin[STATE].store(state.word(), Ordering::Release);
            }
            None => begin[IN_PAGE].store((end - BEGIN_WORDS) as u64, Ordering::Release),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Depths;
    use crate::records::reader::Reader;
    use serde_json::Value;

    fn scratch(name: &str) -> PathBuf {
        std::env::temp_dir().join(format!("tickwire-file-{name}-{}", std::process::id()))
    }

    /// The lines of an array.
    fn read(path: &Path) -> Vec<Value> {
        serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
    }

    /// The events of a file that is no array yet.
    fn events(path: &Path) -> Vec<Event<'static>> {
        let mut reader = Reader::new(io::BufReader::new(File::open(path).unwrap())).unwrap();
        let mut events = Vec::new();
        while let Some(event) = reader.next().unwrap() {
            events.push(event.into_owned());
        }
        assert_eq!(reader.cut(), None);
        events
    }

    #[test]
    fn every_event_is_in_the_file_at_once_and_the_file_becomes_an_array() {
        let path = scratch("whole");
        let mut trace = TraceFile::create(&path).unwrap();
        let mut told = vec![Event::Engine { rank: 3, size: 4 }];
        trace.record(&told[0]);
        assert_eq!(events(&path), told);
        // More than fit a piece, at all places in it, and words that must be escaped.
        for at_ns in 0..6000 {
            let words = ["\"no\"\n\\", "none"][at_ns as usize % 7 / 6].into();
            told.push(Event::Error { words, at_ns: 5_000_000_000 + at_ns });
            trace.record(&told[told.len() - 1]);
            if at_ns % 500 == 0 {
                assert_eq!(events(&path), told);
            }
        }
        assert_eq!(events(&path), told);
        assert!(std::fs::metadata(&path).unwrap().len() > 3 * BUFFER_WORDS as u64 * 8);
        trace.finish();
        let lines = read(&path);
        let names: Vec<&Value> = lines.iter().take_while(|line| line["ph"] == "M").collect();
        assert!(names.iter().all(|line| line["pid"] == 3));
        assert_eq!(names[0]["args"]["name"], "rank 3");
        assert_eq!(lines.len(), names.len() + 6000);
        let last = lines.last().unwrap();
        assert_eq!((&last["args"]["words"], last["ts"].as_f64()), (&"\"no\"\n\\".into(), Some(5_000_005.999)));
        trace.record(&told[1]);
        drop(trace);
        assert_eq!(read(&path), lines, "what comes later is left out");
        std::fs::remove_file(path).unwrap();
    }

    #[test]
    fn a_part_stays_as_it_is_and_is_as_long_as_its_events() {
        let path = scratch("part");
        let mut trace = TraceFile::create_part(&path).unwrap();
        trace.record(&Event::TickBegan { at_ns: 7 });
        drop(trace);
        assert_eq!(events(&path), [Event::TickBegan { at_ns: 7 }]);
        assert_eq!(std::fs::metadata(&path).unwrap().len(), 40);
        std::fs::remove_file(path).unwrap();
    }

    #[test]
    fn a_file_of_the_same_name_takes_the_place_and_harms_nobody() {
        let path = scratch("twice");
        let mut first = TraceFile::create(&path).unwrap();
        let second = TraceFile::create(&path).unwrap();
        (0..10_000).for_each(|at_ns| first.record(&Event::TickBegan { at_ns }));
        assert_eq!(events(&path), []);
        drop((second, first));
        assert_eq!(read(&path), [] as [Value; 0]);

        // Whichever ends first.
        let first = TraceFile::create(&path).unwrap();
        let mut second = TraceFile::create(&path).unwrap();
        let told = [7, 8].map(|at_ns| Event::Error { words: "none".into(), at_ns });
        second.record(&told[0]);
        drop(first);
        second.record(&told[1]);
        assert_eq!(events(&path), told);
        drop(second);
        assert_eq!(read(&path).iter().filter(|line| line["args"]["words"] == "none").count(), 2);
        std::fs::remove_file(path).unwrap();
    }

    #[test]
    fn what_is_no_file_is_an_error() {
        let error = TraceFile::create("/dev/null").unwrap_err();
        assert_eq!(error.to_string(), "it is no regular file");
        assert!(Path::new("/dev/null").exists());
    }

    #[test]
    fn an_array_that_cannot_be_made_leaves_the_events() {
        let path = scratch("kept");
        let mut trace = TraceFile::create(&path).unwrap();
        trace.record(&Event::TickBegan { at_ns: 7 });
        let name = path.file_name().unwrap().to_str().unwrap();
        let place = path.with_file_name(format!(".{name}.unfinished"));
        std::fs::create_dir(&place).unwrap();
        drop(trace);
        std::fs::remove_dir(&place).unwrap();
        assert_eq!(events(&path), [Event::TickBegan { at_ns: 7 }]);
        std::fs::remove_file(path).unwrap();
    }

    #[test]
    #[cfg_attr(miri, ignore = "it starts a process")]
    fn a_trace_that_cannot_say_what_is_wrong_is_no_reason_to_fail() {
        let test = "file::tests::an_array_that_cannot_be_made_leaves_the_events";
        // What it says goes to a pipe that nobody reads any more.
        let (reader, writer) = io::pipe().unwrap();
        drop(reader);
        let mut child = std::process::Command::new(std::env::current_exe().unwrap());
        let child = child.args(["--exact", test, "--nocapture"]).stderr(writer).output().unwrap();
        let said = String::from_utf8_lossy(&child.stdout);
        assert!(child.status.success() && said.contains("1 passed"), "{said}");
    }

    #[test]
    fn what_waits_is_told_when_it_changes() {
        let path = scratch("depths");
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
