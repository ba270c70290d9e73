//! Plays one rank of a program on an engine. It makes the rank's calls, checks every byte that arrives, and logs what
//! it saw.

use super::program::{COMMS, LENGTH_MAX, Mode, Op, Program, Sent, What, members};
use super::{Envelope, Key};
use crate::cases::content;
use std::collections::HashMap;
use std::mem::take;
use tickwire::internals::components::CarState;
use tickwire::testing::rows;
use tickwire::{
    Comm, Engine, Message, Persistent, Rank, Request, RequestError, RequestId, Source, Status, Tag, TagFilter, Test,
};

/// Room of a receive that is too short for most messages, bytes.
const SHORT: usize = 10;
/// Size of the buffer for sends in buffered mode, bytes: more than any program sends.
const BUFFERED: usize = 64 << 20;

/// What a rank has seen of a message. Together with the communicator this tells which message it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Seen {
    /// Sender's rank, and tag.
    pub envelope: Envelope,
    /// Bytes of the whole message.
    pub length: usize,
}

/// A log entry: a call and its outcome. Entries are in the order of calls.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Call {
    /// A receive was posted, and in the end got this message.
    Post(Key, Option<Seen>),
    /// A receive was posted, and was cancelled before the engine looked at it. So it took no part in matching.
    Withdrawn,
    /// The receive of that entry was cancelled, or it was too late to cancel it.
    Cancel(usize, bool),
    /// A probe, and the message that it saw.
    Probe(Key, Option<Seen>),
    /// A matched probe, and the message that it took.
    Claim(Key, Option<Seen>),
    /// The receive of that entry was found to be done.
    Done(usize),
}

/// A rank of a program.
pub struct Player {
    /// Its proc.
    pub me: u32,
    /// Its communicators.
    pub comms: [Comm; COMMS],
    /// By communicator: the log.
    pub logs: [Vec<Call>; COMMS],
    sizes: [usize; COMMS],
    ranks: u32,
    open: Vec<Receive>,
    claimed: Vec<(usize, usize, Message)>,
    sends: Vec<Sending>,
    /// Inactive persistent requests, by communicator, arguments, and room or length. A send has [`COMMS`] added to
    /// its communicator.
    idle: HashMap<(usize, u32, u32, usize), Persistent<Vec<u8>>>,
}

/// An open operation.
enum Handle {
    Once(Request<Vec<u8>>),
    Again((usize, u32, u32, usize), Persistent<Vec<u8>>),
}

impl Handle {
    fn id(&self) -> RequestId {
        match self {
            Handle::Once(request) => request.id(),
            Handle::Again(_, persistent) => persistent.id(),
        }
    }
}

struct Receive {
    comm: usize,
    /// Its entry in the log.
    call: usize,
    cancelled: bool,
    handle: Handle,
}

struct Sending {
    /// The index of its call in the program.
    op: usize,
    handle: Handle,
}

const ANY: Key = Key { source: None, tag: None };

/// A key in the types of the engine's calls.
fn filters(key: Key) -> (Source, TagFilter) {
    (key.source.map_or(Source::Any, |rank| Rank(rank).into()), key.tag.map_or(TagFilter::Any, |tag| Tag(tag).into()))
}

fn seen(status: Status) -> Seen {
    Seen { envelope: Envelope { source: status.source.0, tag: status.tag.0 }, length: status.length }
}

impl Player {
    /// A rank on an engine that has these communicators.
    pub fn new(engine: &mut Engine, comms: [Comm; COMMS]) -> Self {
        let (me, ranks) = (engine.rank().0, engine.size());
        for (comm, handle) in comms.iter().enumerate() {
            let procs: Vec<u32> = engine.comm_group(*handle).unwrap().procs().collect();
            assert_eq!(procs, members(ranks, comm, me), "communicator {comm} of proc {me}");
        }
        engine.attach_buffer(BUFFERED);
        Player {
            me,
            comms,
            logs: Default::default(),
            sizes: std::array::from_fn(|comm| members(ranks, comm, me).len()),
            ranks,
            open: Vec::new(),
            claimed: Vec::new(),
            sends: Vec::new(),
            idle: HashMap::new(),
        }
    }

    /// Makes one call of a program.
    pub fn play(&mut self, engine: &mut Engine, program: &Program, op: usize, message: Option<&Sent>) {
        let Op { what, .. } = program.ops[op];
        let place = program.ops[op].place();
        match what {
            What::Receive { key, short, slot } => {
                let room = if short { SHORT } else { LENGTH_MAX };
                self.receive(engine, place, key.of(self.sizes[place]), room, slot.is_some());
            }
            What::Send { mode, .. } => self.send(engine, op, message.unwrap(), mode),
            What::Cancel(which) => self.cancel(engine, which.into()),
            What::Probe(key) => {
                let key = key.of(self.sizes[place]);
                let (source, tag) = filters(key);
                let found = engine.iprobe(source, tag, self.comms[place]).unwrap();
                self.logs[place].push(Call::Probe(key, found.map(seen)));
            }
            What::Claim(key) => self.claim(engine, place, key.of(self.sizes[place])),
            What::Settle(which, thrown) => self.settle(engine, which.into(), thrown),
        }
    }

    fn receive(&mut self, engine: &mut Engine, place: usize, key: Key, room: usize, again: bool) {
        let (source, tag) = filters(key);
        let comm = self.comms[place];
        let handle = if again {
            let name = (place, key.source.unwrap_or(u32::MAX), key.tag.unwrap_or(u32::MAX), room);
            let idle = self.idle.remove(&name);
            let persistent = idle.unwrap_or_else(|| engine.recv_init(vec![0u8; room], source, tag, comm).unwrap());
            engine.start(&persistent).unwrap();
            Handle::Again(name, persistent)
        } else {
            Handle::Once(engine.irecv(vec![0u8; room], source, tag, comm).unwrap())
        };
        let call = self.logs[place].len();
        self.logs[place].push(Call::Post(key, None));
        self.open.push(Receive { comm: place, call, cancelled: false, handle });
    }

    fn send(&mut self, engine: &mut Engine, op: usize, message: &Sent, mode: Mode) {
        let (to, tag, comm) = (Rank(message.rank), Tag(message.envelope.tag), self.comms[message.comm]);
        let bytes = content(Sent::name(self.me, message.length), message.length);
        let handle = match mode {
            Mode::Standard => Handle::Once(engine.isend(bytes, to, tag, comm).unwrap()),
            Mode::Synchronous => Handle::Once(engine.issend(bytes, to, tag, comm).unwrap()),
            Mode::Buffered => Handle::Once(engine.ibsend(bytes, to, tag, comm).unwrap()),
            Mode::Persistent(_) => {
                let name = (message.comm + COMMS, message.rank, message.envelope.tag, message.length);
                let idle = self.idle.remove(&name);
                let persistent = idle.unwrap_or_else(|| engine.send_init(bytes, to, tag, comm).unwrap());
                engine.start(&persistent).unwrap();
                Handle::Again(name, persistent)
            }
        };
        self.sends.push(Sending { op, handle });
    }

    fn cancel(&mut self, engine: &mut Engine, which: usize) {
        let count = self.open.len().max(1);
        let Some(receive) = self.open.get_mut(which % count) else { return };
        if receive.cancelled {
            return;
        }
        let id = receive.handle.id();
        let is_new = rows(engine).cars[id.row as usize].state == CarState::New;
        receive.cancelled = engine.cancel(&id).unwrap();
        assert!(receive.cancelled || !is_new, "a receive that waits to be matched can be cancelled");
        let log = &mut self.logs[receive.comm];
        match is_new {
            true => log[receive.call] = Call::Withdrawn,
            false => log.push(Call::Cancel(receive.call, receive.cancelled)),
        }
    }

    fn claim(&mut self, engine: &mut Engine, place: usize, key: Key) {
        let (source, tag) = filters(key);
        let found = engine.improbe(source, tag, self.comms[place]).unwrap();
        self.logs[place].push(Call::Claim(key, found.as_ref().map(|message| seen(message.status()))));
        if let Some(message) = found {
            self.claimed.push((place, self.logs[place].len() - 1, message));
        }
    }

    /// Receives a message that a matched probe has taken, into a buffer of the same length. With `thrown`, drops it
    /// instead.
    fn settle(&mut self, engine: &mut Engine, which: usize, thrown: bool) {
        if self.claimed.is_empty() || thrown {
            if !self.claimed.is_empty() {
                drop(self.claimed.swap_remove(which % self.claimed.len()));
            }
            return;
        }
        let (comm, call, message) = self.claimed.swap_remove(which % self.claimed.len());
        let length = message.status().length;
        let handle = Handle::Once(engine.imrecv(message, vec![0u8; length]).unwrap());
        self.open.push(Receive { comm, call, cancelled: false, handle });
    }

    /// Takes the operations that are done. Logs the messages received, and returns the calls of the sends in the
    /// program.
    pub fn collect(&mut self, engine: &mut Engine) -> Vec<usize> {
        let mut pending = |handle: &Handle| engine.test(&handle.id()) == Ok(Test::Pending);
        let (open, received): (Vec<_>, _) = take(&mut self.open).into_iter().partition(|one| pending(&one.handle));
        let (sends, sent): (Vec<_>, _) = take(&mut self.sends).into_iter().partition(|one| pending(&one.handle));
        (self.open, self.sends) = (open, sends);
        received.into_iter().for_each(|receive| self.note(engine, receive));
        let mut done = Vec::new();
        for Sending { op, handle } in sent {
            self.take(engine, handle).0.unwrap();
            done.push(op);
        }
        done
    }

    /// Whether all that was begun is done.
    pub fn is_idle(&self) -> bool {
        self.open.is_empty() && self.sends.is_empty()
    }

    /// Frees the persistent requests.
    pub fn free(&mut self) {
        self.idle.clear();
    }

    /// The outcome of an operation and its bytes. A persistent request is kept for its next start.
    fn take(&mut self, engine: &mut Engine, handle: Handle) -> (Result<Status, RequestError>, Vec<u8>) {
        match handle {
            Handle::Once(request) => match engine.take(request) {
                Ok((bytes, status)) => (Ok(status), bytes),
                Err(failed) => (Err(failed.error), failed.buffer.unwrap()),
            },
            Handle::Again(name, mut persistent) => {
                let end = engine.wait(&persistent);
                let bytes = engine.buffer(&mut persistent).unwrap().clone();
                self.idle.insert(name, persistent);
                (end, bytes)
            }
        }
    }

    /// Checks every byte that a receive got, and logs the message.
    fn note(&mut self, engine: &mut Engine, receive: Receive) {
        let Receive { comm, call, cancelled, handle } = receive;
        let (end, bytes) = self.take(engine, handle);
        let status = match end {
            Err(RequestError::Cancelled) if cancelled => return,
            Ok(status) if status.length <= bytes.len() => status,
            Err(RequestError::Truncated { status, capacity }) if capacity < status.length => status,
            other => panic!("receive {call} in communicator {comm}, cancelled: {cancelled}, has ended with {other:?}"),
        };
        assert!(!cancelled, "receive {call} in communicator {comm} was cancelled and got {status:?}");
        let from = members(self.ranks, comm, self.me)[status.source.0 as usize];
        let room = status.length.min(bytes.len());
        let whole = content(Sent::name(from, status.length), status.length);
        assert!(bytes[..room] == whole[..room], "receive {call} in communicator {comm}: bytes of {status:?}");
        let new = Some(seen(status));
        match &mut self.logs[comm][call] {
            Call::Post(_, old @ None) => *old = new,
            Call::Claim(_, old) => assert_eq!(*old, new, "the message that was probed is received"),
            other => panic!("{other:?} has got {status:?}"),
        }
        self.logs[comm].push(Call::Done(call));
    }

    /// After all calls: receives the messages that matched probes have taken, and cancels the open receives.
    pub fn cancel_all(&mut self, engine: &mut Engine) {
        while !self.claimed.is_empty() {
            self.settle(engine, 0, false);
        }
        for index in 0..self.open.len() {
            if matches!(self.logs[self.open[index].comm][self.open[index].call], Call::Post(..)) {
                self.cancel(engine, index);
            }
        }
    }

    /// After [`Player::cancel_all`]: posts a receive for each message that is still left for this proc in each
    /// communicator.
    pub fn wind_up(&mut self, engine: &mut Engine, messages: [usize; COMMS]) {
        for (comm, messages) in messages.into_iter().enumerate() {
            let taken = |call: &Call| match call {
                Call::Post(..) | Call::Claim(_, Some(_)) => 1,
                Call::Cancel(_, true) => -1,
                _ => 0,
            };
            let taken: isize = self.logs[comm].iter().map(taken).sum();
            let left = messages.checked_sub(taken as usize).expect("no more is received than was sent");
            (0..left).for_each(|_| self.receive(engine, comm, ANY, LENGTH_MAX, false));
        }
    }
}
