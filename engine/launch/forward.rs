//! Forwards the output from the ranks' pipes to the launcher's stdout and stderr.

use std::os::fd::{BorrowedFd, OwnedFd};

use rustix::event::{Timespec, epoll};
use rustix::io::Errno;

use super::error::LaunchError;
use super::events::{PIPES, READ_BYTES, SINK, STREAM, failed, wait, watch};
use super::output::{Sink, Source, streams_are_one};
use super::ranks::Rank;

pub(super) struct Forward {
    /// The ranks' pipes have an epoll of their own, so that one change stops reading from all of them.
    pipes: OwnedFd,
    reading: bool,
    /// stdout and stderr. Only the first is used if both are the same file.
    sinks: [Sink; 2],
    one_sink: bool,
    watched: [bool; 2],
    /// Ranks that have ended, and whose last output does not fit into the sinks yet.
    left: Vec<usize>,
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
        if !self.drain(ranks, number) {
            self.left.push(number);
        }
    }

    /// Writes as much as the launcher's streams take, and continues with output that had no room before.
    pub(super) fn write(&mut self, ranks: &mut [Rank], poll: &OwnedFd) {
        loop {
            for i in 0..2 {
                let empty = self.sinks[i].write(sink_fd(i));
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
            if self.is_congested() {
                return;
            }
            let Some(rank) = self.left.pop() else { return };
            self.rank_ended(ranks, rank);
        }
    }

    fn watch_sink(&mut self, poll: &OwnedFd, i: usize, wanted: bool) {
        if self.watched[i] != wanted {
            self.watched[i] = wanted;
            // This fails for files, which are always writable. For them there is nothing to wait for.
            let _ = if wanted {
                epoll::add(poll, sink_fd(i), epoll::EventData::new_u64(SINK << 32), epoll::EventFlags::OUT)
            } else {
                epoll::delete(poll, sink_fd(i))
            };
        }
    }

    fn sink_of(&self, stream: usize) -> usize {
        if self.one_sink { 0 } else { stream }
    }

    fn is_congested(&self) -> bool {
        self.sinks.iter().any(Sink::is_congested)
    }

    /// Reads once from a rank's stdout or stderr. Returns how many bytes it has read, and `None` if there is nothing more now.
    fn read(&mut self, ranks: &mut [Rank], number: usize, i: usize) -> Option<usize> {
        let sink = self.sink_of(i);
        let stream = &mut ranks[number].streams[i];
        let pipe = stream.pipe.as_ref()?;
        match rustix::io::read(pipe, &mut self.buffer[..]) {
            Ok(bytes @ 1..) if !self.sinks[sink].is_closed() => {
                stream.line.push(&self.buffer[..bytes], source(number, i), &mut self.sinks[sink]);
                Some(bytes)
            }
            Err(Errno::INTR) => Some(0),
            Err(Errno::AGAIN) => None,
            // The pipe is at its end, or nobody reads the launcher's output. Then the rank must learn that, as it would without a launcher.
            Ok(_) | Err(_) => {
                self.close_stream(ranks, number, i);
                None
            }
        }
    }

    /// Reads the last output of a rank that has ended. Returns `false` if the sinks have no room for it now.
    fn drain(&mut self, ranks: &mut [Rank], number: usize) -> bool {
        for i in 0..2 {
            while ranks[number].streams[i].left > 0 {
                if self.is_congested() {
                    return false;
                }
                let Some(bytes) = self.read(ranks, number, i) else { break };
                let left = &mut ranks[number].streams[i].left;
                *left = left.saturating_sub(bytes);
            }
            self.close_stream(ranks, number, i);
        }
        true
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

fn sink_fd(i: usize) -> BorrowedFd<'static> {
    if i == 0 { rustix::stdio::stdout() } else { rustix::stdio::stderr() }
}
