//! The exchange of a rank that a launcher started: one stream socket to the launcher, one request at a time, with
//! events in between.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, FromRawFd, IntoRawFd, OwnedFd, RawFd};
use std::time::Instant;

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, epoll, eventfd, poll};
use rustix::io::Errno;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketType, recv, send, sockopt};

use super::error::BootstrapError;
use super::exchange::{BootstrapEvent, Exchange, check_key, check_value};
use super::place::Place;
use super::wire::{Malformed, Message, VERSION, next_frame};

/// Bytes read at once: several hundred addresses of a `get_all`.
const READ_BYTES: usize = 32 << 10;

pub(super) struct Launched {
    place: Place,
    socket: OwnedFd,
    /// Readable when the socket or the bell is: what the application waits on.
    watch: OwnedFd,
    /// Readable while `events` holds something. An event read together with an answer is no longer in the socket,
    /// so the socket alone would not wake who waits for it.
    bell: OwnedFd,
    rung: bool,
    events: VecDeque<BootstrapEvent>,
    input: Vec<u8>,
    /// Bytes of `input` that were used.
    used: usize,
    /// A request failed half-way: a later answer could be taken for another's.
    broken: bool,
    gone: bool,
    finished: bool,
}

/// An answer, out of the input buffer.
enum Answer {
    Done,
    Refused(String),
    Value(u32, Option<Vec<u8>>),
}

impl Launched {
    /// Takes the descriptor that the launcher passed to this process and introduces this rank.
    pub(super) fn inherit(place: Place) -> Result<Self, BootstrapError> {
        let socket = take_socket(place.fd)?;
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

    /// Sends one request and reads its answer; whatever goes wrong in between spoils the connection.
    fn request<T>(
        &mut self,
        operation: &'static str,
        frame: &[u8],
        read: impl FnOnce(&mut Self, &Wait) -> Result<T, BootstrapError>,
    ) -> Result<T, BootstrapError> {
        if self.broken {
            return Err(if self.gone { BootstrapError::LauncherEnded } else { BootstrapError::Broken });
        }
        let wait = Wait::new(operation, self.place.patience.as_millis() as u64);
        let answer = self.send(frame, &wait).and_then(|()| read(self, &wait));
        // A refusal is a whole answer; after any other error the next bytes may still belong to this request.
        self.broken |= self.gone || !matches!(answer, Ok(_) | Err(BootstrapError::Refused(_)));
        self.ring();
        answer
    }

    fn send(&mut self, mut bytes: &[u8], wait: &Wait) -> Result<(), BootstrapError> {
        while !bytes.is_empty() {
            match send(&self.socket, bytes, SendFlags::NOSIGNAL | SendFlags::DONTWAIT) {
                Ok(sent) => bytes = &bytes[sent..],
                Err(Errno::AGAIN) => wait.until(self.socket.as_fd(), PollFlags::OUT)?,
                Err(Errno::INTR) => {}
                Err(_) => {
                    self.launcher_is_gone();
                    return Err(BootstrapError::LauncherEnded);
                }
            }
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

    /// The next answer in the input; events on the way to it are kept.
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

    /// Reads what is there, without waiting. False: nothing is.
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
            // A closed socket stays readable: whoever waits on the descriptor would never sleep again.
            let _ = epoll::delete(&self.watch, &self.socket);
        }
    }

    /// Keeps the bell in step with the events. It cannot fail: the counter is 0 or 1.
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
            // An answer here belongs to a request that was given up.
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

    fn abandon(&mut self) {
        // The launcher sees the exit, and that nothing was said before it.
        self.finished = true;
    }

    fn finish(&mut self) {
        if !self.finished && !self.gone {
            let mut frame = Vec::new();
            Message::Finish.encode(&mut frame);
            let wait = Wait::new("the farewell", self.place.patience.as_millis() as u64);
            // A launcher that cannot be told has ended or will see the exit.
            let _ = self.send(&frame, &wait);
        }
        self.finished = true;
    }
}

impl Drop for Launched {
    /// Without an engine, which would have said what comes of it: in order unless by a panic, whose exit says so.
    fn drop(&mut self) {
        if !std::thread::panicking() {
            self.finish();
        }
    }
}

/// How long one request may wait.
struct Wait {
    operation: &'static str,
    ms: u64,
    since: Instant,
}

impl Wait {
    fn new(operation: &'static str, ms: u64) -> Self {
        Self { operation, ms, since: Instant::now() }
    }

    /// Returns when `fd` may be ready; the caller tries and comes back if it is not.
    fn until(&self, fd: BorrowedFd<'_>, flags: PollFlags) -> Result<(), BootstrapError> {
        let left_ms = self.ms.saturating_sub(self.since.elapsed().as_millis() as u64);
        if left_ms == 0 {
            return Err(BootstrapError::Timeout { operation: self.operation, ms: self.ms });
        }
        let timeout = Timespec { tv_sec: (left_ms / 1000) as i64, tv_nsec: (left_ms % 1000 * 1_000_000) as i64 };
        match poll(&mut [PollFd::from_borrowed_fd(fd, flags)], Some(&timeout)) {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(source) => Err(BootstrapError::System { operation: "poll", source: source.into() }),
        }
    }
}

/// Makes the inherited descriptor this process's own, closed on exec: a program that the rank starts must not hold it.
fn take_socket(fd: RawFd) -> Result<OwnedFd, BootstrapError> {
    let wrong = |found: String| BootstrapError::Descriptor { fd, found };
    match std::fs::read_link(format!("/proc/self/fd/{fd}")) {
        Ok(target) if target.as_os_str().as_encoded_bytes().starts_with(b"socket:") => {}
        Ok(target) => return Err(wrong(format!("is {}", target.display()))),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Err(wrong("is not open".into())),
        Err(error) => return Err(wrong(format!("cannot be looked at in /proc: {error}"))),
    }
    #[expect(unsafe_code, reason = "a descriptor inherited from the launcher is known by its number only")]
    // SAFETY: it is open, as was just seen; the launcher passes it to this process for this purpose and names it in
    // TICKWIRE_FD, and `Bootstrap::from_env` comes here once in a process, so nothing else owns it.
    let socket = unsafe { OwnedFd::from_raw_fd(fd) };
    let domain = sockopt::socket_domain(&socket).ok();
    let kind = sockopt::socket_type(&socket).ok();
    if (domain, kind) != (Some(AddressFamily::UNIX), Some(SocketType::STREAM)) {
        // Not what the launcher passes, so not ours to close.
        let _ = socket.into_raw_fd();
        return Err(wrong("is a socket of another kind".into()));
    }
    rustix::io::fcntl_setfd(&socket, rustix::io::FdFlags::CLOEXEC)
        .map_err(|source| BootstrapError::System { operation: "fcntl(F_SETFD)", source: source.into() })?;
    Ok(socket)
}

#[cfg(test)]
mod tests;
