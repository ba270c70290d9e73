//! Forwards the output from the ranks' pipes to the launcher's stdout and stderr.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::event::{Timespec, epoll};
use rustix::io::Errno;

use super::error::LaunchError;
use super::events::{LEFT_BYTES_MAX, PIPES, READ_BYTES, SINK, STREAM, failed, wait, watch};
use super::output::{self, Sink, Source, streams_are_one};
use super::ranks::Rank;

/// How long output of a rank that has ended is waited for, if a process that it has left behind can still write: one that passes it on, as
/// `tee` does.
const LEFT_TIME: Duration = Duration::from_secs(1);

/// A rank that has ended, and whose last output has not been read yet: it does not fit into the sinks, or may still come.
struct Left {
    rank: usize,
    /// Output that has not come until then is not waited for.
    until: Instant,
}

pub(super) struct Forward {
    /// The ranks' pipes have an epoll of their own, so that one change stops reading from all of them.
    pipes: OwnedFd,
    reading: bool,
    /// stdout and stderr. Only the first is used if both are the same file.
    sinks: [Sink; 2],
    one_sink: bool,
    watched: [bool; 2],
    /// The launcher's streams as they are written to, where that is not the inherited descriptor.
    own: [Option<OwnedFd>; 2],
    left: Vec<Left>,
    buffer: Vec<u8>,
    /// The first error of writing the ranks' output.
    lost: Option<String>,
}

impl Forward {
    pub(super) fn new(tag: bool, poll: &OwnedFd) -> Result<Self, LaunchError> {
        let pipes = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(failed("epoll_create"))?;
        watch(poll, &pipes, PIPES, 0)?;
        Ok(Self {
            pipes,
            reading: true,
            sinks: [Sink::new(tag), Sink::new(tag)],
            one_sink: streams_are_one().unwrap_or(false),
            watched: [false; 2],
            own: [0, 1].map(output::stream),
            left: Vec::new(),
            buffer: vec![0; READ_BYTES],
            lost: None,
        })
    }

    pub(super) fn adopt(&mut self, rank: &Rank, number: usize) -> Result<(), LaunchError> {
        for (i, stream) in rank.streams.iter().enumerate() {
            if let Some(pipe) = &stream.pipe {
                watch(&self.pipes, pipe, STREAM + i as u64, number)?;
            }
        }
        Ok(())
    }

    /// Writes a message of the launcher itself, one line, to stderr.
    pub(super) fn say(&mut self, text: &str) {
        let line = format!("tickwire run: {text}\n");
        self.sinks[self.sink_of(1)].put(Source::Launcher, line.as_bytes());
    }

    /// Whether all output of ranks that have ended is written.
    pub(super) fn is_written(&self) -> bool {
        self.left.is_empty() && self.sinks.iter().all(Sink::is_empty)
    }

    /// Why output of the ranks was lost, if some was.
    pub(super) fn lost(&mut self) -> Option<String> {
        self.lost.take()
    }

    /// Reads once from each pipe that is readable.
    pub(super) fn read_ready(&mut self, ranks: &mut [Rank]) -> Result<(), LaunchError> {
        for (about, number, _) in wait(&self.pipes, Some(&Timespec::default()))? {
            self.read(ranks, number, (about - STREAM) as usize);
        }
        Ok(())
    }

    /// Reads the last output of a rank, now or when there is room for it.
    pub(super) fn rank_ended(&mut self, ranks: &mut [Rank], number: usize) {
        for stream in &mut ranks[number].streams {
            stream.left = Some(LEFT_BYTES_MAX);
        }
        if !self.drain(ranks, number) {
            self.left.push(Left { rank: number, until: Instant::now() + LEFT_TIME });
        }
    }

    /// When output of a rank that has ended is not waited for any longer. `None` if there is no such rank, or no room for its output.
    pub(super) fn next_due(&self) -> Option<Instant> {
        self.left.iter().map(|left| left.until).min().filter(|_| !self.is_congested())
    }

    /// Continues with the last output of ranks that have ended, as far as there is room.
    fn read_left(&mut self, ranks: &mut [Rank]) {
        let now = Instant::now();
        for Left { rank, until } in std::mem::take(&mut self.left) {
            if self.drain(ranks, rank) {
                continue;
            }
            if now >= until && !self.is_congested() {
                (0..2).for_each(|i| self.close_stream(ranks, rank, i));
            } else {
                self.left.push(Left { rank, until });
            }
        }
    }

    /// Writes as much as the launcher's streams take, and continues with output that had no room before.
    pub(super) fn write(&mut self, ranks: &mut [Rank], poll: &OwnedFd) {
        loop {
            for i in 0..2 {
                let empty = self.sinks[i].write(sink_fd(&self.own, i));
                if let Some(error) = self.sinks[i].take_error() {
                    let words = format!("the ranks' output cannot be written: {error}");
                    self.say(&words);
                    self.lost.get_or_insert(words);
                }
                self.watch_sink(poll, i, !empty);
            }
            if self.is_congested() == self.reading {
                self.reading = !self.reading;
                let flags = if self.reading { epoll::EventFlags::IN } else { epoll::EventFlags::empty() };
                let _ = epoll::modify(poll, &self.pipes, epoll::EventData::new_u64(PIPES << 32), flags);
            }
            if self.is_congested() || self.left.is_empty() {
                return;
            }
            let before = self.waiting();
            self.read_left(ranks);
            if self.waiting() == before {
                return;
            }
        }
    }

    fn watch_sink(&mut self, poll: &OwnedFd, i: usize, wanted: bool) {
        if self.watched[i] != wanted {
            self.watched[i] = wanted;
            // This fails for files, which are always writable. For them there is nothing to wait for.
            let stream = sink_fd(&self.own, i);
            let _ = if wanted {
                epoll::add(poll, stream, epoll::EventData::new_u64(SINK << 32), epoll::EventFlags::OUT)
            } else {
                epoll::delete(poll, stream)
            };
        }
    }

    fn sink_of(&self, stream: usize) -> usize {
        if self.one_sink { 0 } else { stream }
    }

    fn is_congested(&self) -> bool {
        self.sinks.iter().any(Sink::is_congested)
    }

    /// Bytes that wait in the sinks.
    fn waiting(&self) -> usize {
        self.sinks.iter().map(Sink::waiting).sum()
    }

    /// Reads once from a rank's stdout or stderr. `None` if there is nothing more now.
    fn read(&mut self, ranks: &mut [Rank], number: usize, i: usize) -> Option<()> {
        let sink = self.sink_of(i);
        let stream = &mut ranks[number].streams[i];
        let pipe = stream.pipe.as_ref()?;
        match rustix::io::read(pipe, &mut self.buffer[..]) {
            Ok(bytes @ 1..) if !self.sinks[sink].is_closed() => {
                stream.line.push(&self.buffer[..bytes], source(number, i), &mut self.sinks[sink]);
                if let Some(left) = &mut stream.left {
                    *left = left.saturating_sub(bytes);
                    if *left == 0 {
                        self.close_stream(ranks, number, i);
                    }
                }
                Some(())
            }
            Err(Errno::INTR) => Some(()),
            Err(Errno::AGAIN) => None,
            // The pipe is at its end, or nobody reads the launcher's output. Then the rank must learn that, as it would without a launcher.
            Ok(_) | Err(_) => {
                self.close_stream(ranks, number, i);
                None
            }
        }
    }

    /// Reads the last output of a rank that has ended. Returns `false` if more may come, or the sinks have no room for it now.
    fn drain(&mut self, ranks: &mut [Rank], number: usize) -> bool {
        for i in 0..2 {
            while !self.is_congested() && self.read(ranks, number, i).is_some() {}
        }
        ranks[number].streams.iter().all(|stream| stream.pipe.is_none())
    }

    fn close_stream(&mut self, ranks: &mut [Rank], number: usize, i: usize) {
        let sink = self.sink_of(i);
        let stream = &mut ranks[number].streams[i];
        stream.line.flush(source(number, i), &mut self.sinks[sink]);
        if let Some(pipe) = stream.pipe.take() {
            let _ = epoll::delete(&self.pipes, &pipe);
        }
    }
}

fn source(rank: usize, stream: usize) -> Source {
    if stream == 0 { Source::Stdout(rank as u32) } else { Source::Stderr(rank as u32) }
}

fn sink_fd(own: &[Option<OwnedFd>; 2], i: usize) -> BorrowedFd<'_> {
    own[i].as_ref().map_or_else(|| output::inherited(i), OwnedFd::as_fd)
}
