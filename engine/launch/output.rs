//! The ranks' output on its way to the launcher's own stdout and stderr. Lines stay whole. If the reader of the output does not read, the
//! ranks wait, and the launcher does not.

use std::io::{self, IsTerminal};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

/// A line that gets longer than this is passed on in pieces, bytes.
const LINE_BYTES_MAX: usize = 64 << 10;
/// Bytes written at once: PIPE_BUF, the most that a pipe takes without blocking once it polls as writable.
const WRITE_BYTES: usize = 4096;
/// While more output than this waits, the ranks' pipes are not read. They fill up, and the ranks wait. Bytes.
const QUEUE_BYTES: usize = 1 << 20;

/// One of the two streams of a rank, or the launcher itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Source {
    Launcher,
    Stdout(u32),
    Stderr(u32),
}

/// The start of a line whose end has not come yet.
#[derive(Default)]
pub(super) struct Line(Vec<u8>);

impl Line {
    /// Adds bytes from the rank, and passes complete lines on.
    pub(super) fn push(&mut self, bytes: &[u8], source: Source, sink: &mut Sink) {
        let Some(last) = bytes.iter().rposition(|&b| b == b'\n') else {
            self.0.extend_from_slice(bytes);
            if self.0.len() >= LINE_BYTES_MAX {
                self.flush(source, sink);
            }
            return;
        };
        let (lines, rest) = bytes.split_at(last + 1);
        if self.0.is_empty() {
            sink.put(source, lines);
        } else {
            self.0.extend_from_slice(lines);
            self.flush(source, sink);
        }
        self.0.extend_from_slice(rest);
    }

    /// Passes on the start of the line, complete or not.
    pub(super) fn flush(&mut self, source: Source, sink: &mut Sink) {
        if !self.0.is_empty() {
            sink.put(source, &self.0);
            self.0.clear();
        }
    }
}

/// A stream of the launcher, and the output that waits to be written to it.
pub(super) struct Sink {
    queue: Vec<u8>,
    written: usize,
    tag: bool,
    /// The source of the last line in the queue, if that line has no end yet. Text of any other source starts on a new line.
    open: Option<Source>,
    /// Whether the reader is gone.
    closed: bool,
    error: Option<Errno>,
}

impl Sink {
    pub(super) fn new(tag: bool) -> Self {
        Self { queue: Vec::new(), written: 0, tag, open: None, closed: false, error: None }
    }

    /// Queues lines. The last line may lack its end.
    pub(super) fn put(&mut self, source: Source, text: &[u8]) {
        if self.closed {
            return;
        }
        let continues = self.open == Some(source);
        if self.open.is_some() && !continues {
            self.queue.push(b'\n');
        }
        let tag = match source {
            Source::Stdout(rank) | Source::Stderr(rank) if self.tag => format!("[{rank}] "),
            _ => String::new(),
        };
        for (i, line) in text.split_inclusive(|&b| b == b'\n').enumerate() {
            if i > 0 || !continues {
                self.queue.extend_from_slice(tag.as_bytes());
            }
            self.queue.extend_from_slice(line);
        }
        self.open = (!text.ends_with(b"\n")).then_some(source);
    }

    pub(super) fn is_congested(&self) -> bool {
        self.waiting() > QUEUE_BYTES
    }

    /// Bytes that wait to be written.
    pub(super) fn waiting(&self) -> usize {
        self.queue.len() - self.written
    }

    pub(super) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// Whether the reader is gone, so that nobody takes the output any more.
    pub(super) fn is_closed(&self) -> bool {
        self.closed
    }

    /// Writes what `fd` takes without blocking. Returns whether the queue is now empty.
    pub(super) fn write(&mut self, fd: BorrowedFd<'_>) -> bool {
        while self.written < self.queue.len() {
            let mut ready = [PollFd::from_borrowed_fd(fd, PollFlags::OUT)];
            match poll(&mut ready, Some(&Timespec::default())) {
                Ok(0) => break,
                Ok(_) => {}
                Err(Errno::INTR) => continue,
                Err(error) => return self.close(error),
            }
            let end = self.queue.len().min(self.written + WRITE_BYTES);
            match rustix::io::write(fd, &self.queue[self.written..end]) {
                Ok(bytes) => self.written += bytes,
                // The descriptor may be in non-blocking mode: it is shared with others.
                Err(Errno::AGAIN) => break,
                Err(Errno::INTR) => {}
                Err(error) => return self.close(error),
            }
        }
        if self.written == self.queue.len() || self.written > QUEUE_BYTES {
            self.queue.drain(..self.written);
            self.written = 0;
        }
        self.queue.is_empty()
    }

    /// The error that has closed the stream, if it should be reported. Each error is returned once.
    pub(super) fn take_error(&mut self) -> Option<Errno> {
        self.error.take()
    }

    fn close(&mut self, error: Errno) -> bool {
        // A reader that has read enough, such as `head`, is no error.
        let error = (error != Errno::PIPE).then_some(error);
        *self = Self { closed: true, error, ..Self::new(self.tag) };
        true
    }
}

/// The launcher's stdout (0) or stderr (1) if it is a terminal, to write to. It is opened anew, in a mode in which no write waits: it says that
/// there is room as soon as there is any, and a longer write would wait for the rest. The mode of the descriptor that others share stays as
/// it is.
pub(super) fn stream(number: usize) -> Option<OwnedFd> {
    unblocked(inherited(number))
}

/// The launcher's stdout (0) or stderr (1).
pub(super) fn inherited(number: usize) -> BorrowedFd<'static> {
    if number == 0 { rustix::stdio::stdout() } else { rustix::stdio::stderr() }
}

fn unblocked(terminal: BorrowedFd<'_>) -> Option<OwnedFd> {
    if !terminal.is_terminal() {
        return None;
    }
    let path = format!("/proc/self/fd/{}", terminal.as_raw_fd());
    let flags = OFlags::WRONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    rustix::fs::open(path, flags, Mode::empty()).ok()
}

/// Whether the launcher's stdout and stderr are the same file. Then one queue must serve both: otherwise a line of one could come between
/// two pieces of a line of the other.
pub(super) fn streams_are_one() -> io::Result<bool> {
    let stat = |fd: BorrowedFd<'_>| rustix::fs::fstat(fd).map(|s| (s.st_dev, s.st_ino, s.st_rdev));
    Ok(stat(io::stdout().as_fd())? == stat(io::stderr().as_fd())?)
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;

    fn text(sink: &Sink) -> &str {
        std::str::from_utf8(&sink.queue).unwrap()
    }

    #[test]
    fn lines_of_two_ranks_do_not_mix() {
        let mut sink = Sink::new(true);
        let (mut a, mut b) = (Line::default(), Line::default());
        a.push(b"one ", Source::Stdout(0), &mut sink);
        b.push(b"first\nsec", Source::Stdout(1), &mut sink);
        a.push(b"two\nthree", Source::Stdout(0), &mut sink);
        b.push(b"ond\n\n", Source::Stdout(1), &mut sink);
        a.flush(Source::Stdout(0), &mut sink);
        b.flush(Source::Stdout(1), &mut sink);
        assert_eq!(text(&sink), "[1] first\n[0] one two\n[1] second\n[1] \n[0] three");
    }

    #[test]
    fn an_unfinished_last_line_is_ended_only_when_another_follows() {
        let mut sink = Sink::new(false);
        sink.put(Source::Stdout(0), b"no end");
        assert_eq!(text(&sink), "no end");
        sink.put(Source::Launcher, b"tickwire run: news\n");
        assert_eq!(text(&sink), "no end\ntickwire run: news\n");
    }

    #[test]
    fn a_very_long_line_is_passed_on_in_pieces_that_stay_one_line() {
        let mut sink = Sink::new(true);
        let mut line = Line::default();
        for _ in 0..3 {
            line.push(&vec![b'x'; LINE_BYTES_MAX], Source::Stderr(7), &mut sink);
            assert!(line.0.is_empty());
        }
        line.push(b"y\n", Source::Stderr(7), &mut sink);
        let text = text(&sink);
        assert_eq!((text.lines().count(), text.matches("[7] ").count()), (1, 1));
        assert_eq!(text.len(), 4 + 3 * LINE_BYTES_MAX + 2);
    }

    #[test]
    fn a_reader_that_does_not_read_blocks_nobody_and_loses_nothing() {
        let (mut reader, writer) = io::pipe().unwrap();
        let mut sink = Sink::new(false);
        let lines: Vec<u8> = (0..200_000).flat_map(|i| format!("line {i}\n").into_bytes()).collect();
        sink.put(Source::Stdout(0), &lines);
        assert!(!sink.write(writer.as_fd()));
        assert!(sink.is_congested());
        let mut got = Vec::new();
        let mut piece = vec![0; 10_000];
        while got.len() < lines.len() {
            let bytes = reader.read(&mut piece).unwrap();
            got.extend_from_slice(&piece[..bytes]);
            sink.write(writer.as_fd());
        }
        assert!(sink.is_empty() && !sink.is_congested());
        assert_eq!(got, lines);
    }

    #[test]
    fn a_terminal_that_nobody_reads_blocks_nobody_and_loses_nothing() {
        use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
        let screen = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        grantpt(&screen).and_then(|()| unlockpt(&screen)).unwrap();
        let name = ptsname(&screen, Vec::new()).unwrap();
        let terminal = rustix::fs::open(name, OFlags::RDWR | OFlags::NOCTTY, Mode::empty()).unwrap();
        let stream = unblocked(terminal.as_fd()).expect("it is a terminal");
        assert!(!rustix::fs::fcntl_getfl(&terminal).unwrap().contains(OFlags::NONBLOCK), "others share it");
        let lines: Vec<u8> = (0..20_000).flat_map(|i| format!("line {i}\n").into_bytes()).collect();
        let (tell, told) = std::sync::mpsc::channel();
        let (text, written) = (lines.clone(), stream.try_clone().unwrap());
        std::thread::spawn(move || {
            let mut sink = Sink::new(false);
            sink.put(Source::Stdout(0), &text);
            let is_all = sink.write(written.as_fd());
            tell.send((sink, is_all)).unwrap();
        });
        let (mut sink, is_all) = told.recv_timeout(std::time::Duration::from_secs(20)).expect("no write waits");
        assert!(!is_all);
        let mut got = Vec::new();
        let mut piece = vec![0; 10_000];
        while got.iter().filter(|&&byte| byte == b'\n').count() < 20_000 {
            let bytes = rustix::io::read(&screen, &mut piece[..]).unwrap();
            got.extend_from_slice(&piece[..bytes]);
            sink.write(stream.as_fd());
        }
        got.retain(|&byte| byte != b'\r');
        assert!(sink.is_empty());
        assert_eq!(got, lines);
        let (_reader, pipe) = io::pipe().unwrap();
        assert!(unblocked(pipe.as_fd()).is_none(), "a pipe is written to as it is");
    }

    #[test]
    fn a_reader_that_is_gone_ends_the_stream() {
        let (reader, writer) = io::pipe().unwrap();
        drop(reader);
        let mut sink = Sink::new(false);
        sink.put(Source::Stdout(0), b"text\n");
        assert!(sink.write(writer.as_fd()));
        assert!(sink.is_closed() && sink.is_empty() && sink.take_error().is_none());
        let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
        let mut sink = Sink::new(false);
        sink.put(Source::Stdout(0), b"text\n");
        assert!(sink.write(full.as_fd()));
        assert_eq!((sink.take_error(), sink.take_error()), (Some(Errno::NOSPC), None));
    }
}
