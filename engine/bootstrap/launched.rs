//! The exchange of a rank that our launcher has started. It uses one stream socket to the launcher, with one request at a time and events
//! in between.

use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::event::{EventfdFlags, PollFlags, epoll, eventfd};
use rustix::io::Errno;
use rustix::net::{RecvFlags, recv};

use super::error::BootstrapError;
use super::exchange::{BootstrapEvent, Exchange, check_key, check_value};
use super::inherit::{send_all, take_socket};
use super::place::{ENV_FD, Place};
use super::wait::Wait;
use super::wire::{Malformed, Message, VERSION, next_frame};

/// Bytes read at once: several hundred addresses of a `get_all`.
const READ_BYTES: usize = 32 << 10;

pub(super) struct Launched {
    place: Place,
    socket: OwnedFd,
    /// The descriptor that the application waits on. It is readable when the socket or the bell is.
    watch: OwnedFd,
    /// Readable while `events` is not empty. An event that was read together with an answer is no longer in the socket, so the socket alone
    /// would not wake a waiting application.
    bell: OwnedFd,
    rung: bool,
    events: VecDeque<BootstrapEvent>,
    input: Vec<u8>,
    /// Bytes of `input` that are already parsed.
    used: usize,
    /// Whether a request failed half-way: then a later answer could be taken for that of another request.
    broken: bool,
    gone: bool,
    finished: bool,
}

/// An answer, copied out of the input buffer.
enum Answer {
    Done,
    Refused(String),
    Value(u32, Option<Vec<u8>>),
}

impl Launched {
    /// Takes the descriptor that the launcher passed to this process and introduces this rank.
    pub(super) fn inherit(place: Place) -> Result<Self, BootstrapError> {
        let socket = take_socket(place.fd, ENV_FD)?;
        Self::connect(place, socket)
    }

    fn connect(place: Place, socket: OwnedFd) -> Result<Self, BootstrapError> {
        let failed = |operation| move |source: Errno| BootstrapError::System { operation, source: source.into() };
        let bell = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).map_err(failed("eventfd"))?;
        let watch = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(failed("epoll_create"))?;
        for fd in [&bell, &socket] {
            epoll::add(&watch, fd, epoll::EventData::new_u64(0), epoll::EventFlags::IN).map_err(failed("epoll_ctl"))?;
        }
        let mut launched = Self {
            place,
            socket,
            watch,
            bell,
            rung: false,
            events: VecDeque::new(),
            input: Vec::new(),
            used: 0,
            broken: false,
            gone: false,
            finished: false,
        };
        let Place { rank, size, ref job, .. } = launched.place;
        let mut hello = Vec::new();
        Message::Hello { version: VERSION, rank, size, job }.encode(&mut hello);
        launched.request("the launcher's greeting", &hello, Self::expect_done)?;
        Ok(launched)
    }

    /// Sends one request and reads its answer. If anything goes wrong in between, the connection can no longer be used.
    fn request<T>(
        &mut self,
        operation: &'static str,
        frame: &[u8],
        read: impl FnOnce(&mut Self, &Wait) -> Result<T, BootstrapError>,
    ) -> Result<T, BootstrapError> {
        if self.broken {
            return Err(if self.gone { BootstrapError::LauncherEnded } else { BootstrapError::Broken });
        }
        let wait = Wait::new(operation, self.place.patience);
        let answer = self.send(frame, &wait).and_then(|()| read(self, &wait));
        // A refusal is a whole answer; after any other error the next bytes may still belong to this request.
        self.broken |= self.gone || !matches!(answer, Ok(_) | Err(BootstrapError::Refused(_)));
        self.ring();
        answer
    }

    fn send(&mut self, bytes: &[u8], wait: &Wait) -> Result<(), BootstrapError> {
        if !send_all(&self.socket, bytes, wait)? {
            self.launcher_is_gone();
            return Err(BootstrapError::LauncherEnded);
        }
        Ok(())
    }

    fn answer(&mut self, wait: &Wait) -> Result<Answer, BootstrapError> {
        loop {
            match self.parse() {
                Ok(Some(Answer::Refused(reason))) => return Err(BootstrapError::Refused(reason)),
                Ok(Some(answer)) => return Ok(answer),
                Ok(None) if self.gone => return Err(BootstrapError::LauncherEnded),
                Ok(None) => {}
                Err(Malformed(what)) => return Err(BootstrapError::Protocol(what)),
            }
            if !self.receive() {
                wait.until(self.socket.as_fd(), PollFlags::IN)?;
            }
        }
    }

    fn expect_done(&mut self, wait: &Wait) -> Result<(), BootstrapError> {
        match self.answer(wait)? {
            Answer::Done => Ok(()),
            _ => Err(BootstrapError::Protocol("an answer to another request")),
        }
    }

    fn expect_value(&mut self, wait: &Wait, rank: u32) -> Result<Option<Vec<u8>>, BootstrapError> {
        match self.answer(wait)? {
            Answer::Value(of, value) if of == rank => Ok(value),
            _ => Err(BootstrapError::Protocol("an answer to another request")),
        }
    }

    /// The next complete answer in the input. Events that come before it are kept.
    fn parse(&mut self) -> Result<Option<Answer>, Malformed> {
        while let Some((body, taken)) = next_frame(&self.input[self.used..])? {
            let answer = match Message::decode(body)? {
                Message::Done => Some(Answer::Done),
                Message::Refused { reason } => Some(Answer::Refused(reason.to_owned())),
                Message::Value { rank, value } => Some(Answer::Value(rank, value.map(<[u8]>::to_vec))),
                Message::RankEnded { rank, reason } if rank < self.place.size => {
                    self.events.push_back(BootstrapEvent::RankEnded { rank, reason: reason.to_owned() });
                    None
                }
                _ => return Err(Malformed("a frame that only a rank sends")),
            };
            self.used += taken;
            if answer.is_some() {
                return Ok(answer);
            }
        }
        Ok(None)
    }

    /// Reads what has arrived, without waiting. Returns `false` if nothing has.
    fn receive(&mut self) -> bool {
        self.input.drain(..self.used);
        self.used = 0;
        let old = self.input.len();
        self.input.resize(old + READ_BYTES, 0);
        let got = recv(&self.socket, &mut self.input[old..], RecvFlags::DONTWAIT);
        let bytes = got.map_or(0, |(bytes, _)| bytes);
        self.input.truncate(old + bytes);
        match got {
            Ok(_) if bytes > 0 => true,
            Err(Errno::INTR) => true,
            Err(Errno::AGAIN) => false,
            Ok(_) | Err(_) => {
                self.launcher_is_gone();
                true
            }
        }
    }

    fn launcher_is_gone(&mut self) {
        if !self.gone {
            self.gone = true;
            self.broken = true;
            self.events.push_back(BootstrapEvent::LauncherEnded);
            // A closed socket stays readable, so an application that waits on the descriptor would never sleep again.
            let _ = epoll::delete(&self.watch, &self.socket);
        }
    }

    /// Makes the bell readable exactly while there are events. It cannot fail: the counter is 0 or 1.
    fn ring(&mut self) {
        let wanted = !self.events.is_empty();
        if wanted != self.rung {
            let _ = if wanted {
                rustix::io::write(&self.bell, &1u64.to_ne_bytes())
            } else {
                rustix::io::read(&self.bell, &mut [0u8; 8][..])
            };
            self.rung = wanted;
        }
    }

    fn check_open(&self) -> Result<(), BootstrapError> {
        if self.finished { Err(BootstrapError::Finished) } else { Ok(()) }
    }
}

impl Exchange for Launched {
    fn rank(&self) -> u32 {
        self.place.rank
    }

    fn size(&self) -> u32 {
        self.place.size
    }

    fn job(&self) -> &str {
        &self.place.job
    }

    fn put(&mut self, key: &str, value: &[u8]) -> Result<(), BootstrapError> {
        self.check_open()?;
        check_key(key)?;
        check_value(value)?;
        let mut frame = Vec::new();
        Message::Put { key, value }.encode(&mut frame);
        self.request("a put", &frame, Self::expect_done)
    }

    fn fence(&mut self) -> Result<(), BootstrapError> {
        self.check_open()?;
        let mut frame = Vec::new();
        Message::Fence.encode(&mut frame);
        self.request("a fence", &frame, Self::expect_done)
    }

    fn get(&mut self, rank: u32, key: &str) -> Result<Option<Vec<u8>>, BootstrapError> {
        check_key(key)?;
        if rank >= self.place.size {
            return Err(BootstrapError::Rank { rank, size: self.place.size });
        }
        let mut frame = Vec::new();
        Message::Get { rank, key }.encode(&mut frame);
        self.request("a get", &frame, |launched, wait| launched.expect_value(wait, rank))
    }

    fn get_all(&mut self, key: &str) -> Result<Vec<Option<Vec<u8>>>, BootstrapError> {
        check_key(key)?;
        let mut frame = Vec::new();
        Message::GetAll { key }.encode(&mut frame);
        let size = self.place.size;
        self.request("a get_all", &frame, |launched, wait| {
            (0..size).map(|rank| launched.expect_value(wait, rank)).collect()
        })
    }

    fn event_fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.watch.as_fd())
    }

    fn poll_event(&mut self) -> Option<BootstrapEvent> {
        if self.events.is_empty() && !self.gone {
            self.receive();
            // An answer that comes now belongs to a request that was given up.
            while let Some(answer) = self.parse().transpose() {
                if answer.is_err() {
                    self.launcher_is_gone();
                    break;
                }
            }
        }
        let event = self.events.pop_front();
        self.ring();
        event
    }

    fn tells_ends(&self) -> bool {
        !self.gone
    }

    fn describe(&self) -> String {
        "tickwire run".to_owned()
    }

    fn abort(&self, code: i32) {
        let mut frame = Vec::new();
        Message::Abort { code }.encode(&mut frame);
        let wait = Wait::new("an abort", self.place.patience);
        // If the launcher is gone, it has ended the job.
        let _ = send_all(&self.socket, &frame, &wait);
    }

    fn abandon(&mut self) {
        // The launcher sees that the process exits without a farewell.
        self.finished = true;
    }

    fn finish(&mut self) {
        if !self.finished && !self.gone {
            let mut frame = Vec::new();
            Message::Finish.encode(&mut frame);
            let wait = Wait::new("the farewell", self.place.patience);
            // A launcher that cannot be told is gone, or will see the exit.
            let _ = self.send(&frame, &wait);
        }
        self.finished = true;
    }
}

impl Drop for Launched {
    /// Matters only for an exchange that was never given to an engine. It finishes, except during a panic: then the exit of the process
    /// shows the failure.
    fn drop(&mut self) {
        if !std::thread::panicking() {
            self.finish();
        }
    }
}

#[cfg(test)]
mod tests;
