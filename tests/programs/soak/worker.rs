//! The work of every rank: it sends and receives its messages, whatever happens to it or to its peers.

mod ending;
mod outcomes;

use crate::calls::{CONTROL, Call, Message, Mode, ROOM, calls, count};
use crate::plan::{Plan, Trouble, What};
use crate::report::{self, Report};
use rustix::process::{Signal, getpid, kill_process};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::{Duration, Instant};
use tickwire::testing::SplitMix;
use tickwire::{Agreement, Comm, Engine, PostError, Rank, Rejected, Request, Source, Tag, TagFilter};

/// Size of the buffer for sends in buffered mode, bytes.
const ATTACHED: usize = 1 << 20;
/// The longest time that a patient rank sleeps in one wait.
const NAP: Duration = Duration::from_millis(5);

/// A send in progress.
struct Sending {
    request: Request<Vec<u8>>,
    to: u32,
    number: u32,
    posted_ms: u64,
}

/// A receive in progress.
struct Receiving {
    request: Request<Vec<u8>>,
    from: Option<u32>,
    tag: Option<u32>,
    /// Its position in the order of posting.
    place: u64,
    cancelled: bool,
    posted_ms: u64,
}

/// An operation that failed because its peer ended: the peer, and the times of posting and of the failure.
struct Ended {
    peer: u32,
    posted_ms: u64,
    ended_ms: u64,
}

/// One rank at work.
pub(crate) struct Worker<'a> {
    engine: &'a mut Engine,
    plan: &'a Plan,
    place: &'a Path,
    world: Comm,
    me: u32,
    random: SplitMix,
    /// Whether it waits in calls that sleep, instead of polling.
    patient: bool,
    deadline: Instant,
    sends: Vec<Sending>,
    receives: Vec<Receiving>,
    /// Source and tag of probes that have found nothing yet.
    probes: Vec<(Option<u32>, Option<u32>)>,
    agreement: Option<Agreement>,
    /// The number of the next message to each rank.
    next: Vec<u32>,
    /// By sender: the messages received, as position of the receive and number of the message.
    got: Vec<Vec<(u64, u32)>>,
    /// Control messages that have arrived, as sender and tag.
    control: BTreeSet<(u32, u32)>,
    failed: BTreeMap<u32, String>,
    ended: Vec<Ended>,
    places: u64,
    bytes: u64,
    /// Bytes of the buffers in use now, and the most so far.
    held: usize,
    held_most: usize,
    last_tick: Instant,
    /// The longest time between two ticks.
    gap: Duration,
}

impl<'a> Worker<'a> {
    pub(crate) fn new(engine: &'a mut Engine, plan: &'a Plan, place: &'a Path) -> Self {
        let (me, ranks, now) = (engine.rank().0, plan.ranks as usize, Instant::now());
        let mut random = SplitMix::new(plan.seed ^ u64::from(me) << 40 ^ 0xCA11);
        let world = engine.comm_world();
        Worker {
            engine,
            plan,
            place,
            world,
            me,
            patient: random.below(2) == 0,
            random,
            deadline: now + plan.patience(),
            sends: Vec::new(),
            receives: Vec::new(),
            probes: Vec::new(),
            agreement: None,
            next: vec![0; ranks],
            got: vec![Vec::new(); ranks],
            control: BTreeSet::new(),
            failed: BTreeMap::new(),
            ended: Vec::new(),
            places: 0,
            bytes: 0,
            held: 0,
            held_most: 0,
            last_tick: now,
            gap: Duration::ZERO,
        }
    }

    /// Does all the work of the rank.
    ///
    /// # Panics
    /// If something is not as it must be.
    pub(crate) fn run(mut self) -> (Report, usize) {
        self.engine.attach_buffer(ATTACHED);
        let calls = calls(self.plan, self.me, &mut self.random);
        let mut troubles: Vec<Trouble> = self.plan.troubles(self.me).copied().collect();
        // Events at 0 come before the first message.
        self.suffer(&mut troubles, 0);
        if self.plan.control_first {
            self.await_done();
        }
        self.agreement = Some(self.engine.start_dup(self.world).unwrap());
        for (at, &call) in (1..).zip(&calls) {
            self.suffer(&mut troubles, at * 999 / calls.len() as u64);
            self.call(call);
            match self.random.below(8) {
                0..=2 => self.tick(),
                3 => self.collect(),
                _ => {}
            }
            self.check_time("calls");
        }
        self.suffer(&mut troubles, 999);
        self.receive_all();
        self.end();
        let messages = self.got.iter().map(|got| got.len() as u64).sum();
        let failed = std::mem::take(&mut self.failed).into_iter().collect();
        (Report { messages, bytes: self.bytes, failed, unbuilt: None }, self.held_most)
    }

    /// Lets all events happen that are due at this point.
    fn suffer(&mut self, troubles: &mut Vec<Trouble>, at: u64) {
        while let Some(found) = troubles.iter().position(|trouble| trouble.at <= at) {
            match troubles.swap_remove(found).what {
                What::Die => {
                    self.note_death();
                    kill_process(getpid(), Signal::KILL).unwrap();
                }
                What::Panic => {
                    self.note_death();
                    std::panic::panic_any("a panic of the plan");
                }
                What::Stop(ms) => {
                    // The job reads this note, sees that the process has stopped, and continues it in time.
                    report::put(self.place, &format!("stop-{}-{}", self.me, troubles.len()), &ms.to_string());
                    kill_process(getpid(), Signal::STOP).unwrap();
                }
                What::Compute(ms) => std::thread::sleep(Duration::from_millis(ms)),
                // A late start was before the engine was built. Another process does the killing.
                What::Late(_) | What::Killed(_) => {}
            }
        }
    }

    fn note_death(&self) {
        report::put(self.place, &format!("died-{}", self.me), &report::now_ms().to_string());
    }

    fn call(&mut self, call: Call) {
        match call {
            Call::Send { to } => {
                let number = self.next[to as usize];
                self.next[to as usize] += 1;
                self.send(to, number);
            }
            Call::Receive { from, tag } => self.receive(from, tag),
            Call::Probe { from, tag } => self.probes.push((from, tag)),
            Call::Cancelled { from, tag, at_once } => {
                self.receive(from, tag);
                if at_once && let Some(last) = self.receives.len().checked_sub(1) {
                    self.cancel(last);
                }
            }
        }
    }

    fn send(&mut self, to: u32, number: u32) {
        let message = Message::of(self.plan, self.me, to, number);
        let (bytes, posted_ms) = (message.content(), report::now_ms());
        let (engine, to_rank, tag, world) = (&mut *self.engine, Rank(to), Tag(number), self.world);
        let posted = match message.mode {
            Mode::Synchronous => engine.issend(bytes, to_rank, tag, world),
            Mode::Buffered => match engine.ibsend(bytes, to_rank, tag, world) {
                Err(Rejected { error: PostError::BufferFull { .. }, buffer }) => {
                    engine.isend(buffer, to_rank, tag, world)
                }
                posted => posted,
            },
            Mode::Standard | Mode::Detached => engine.isend(bytes, to_rank, tag, world),
        };
        match posted {
            Ok(_) if message.mode == Mode::Detached => {}
            Ok(request) => self.add_send(Sending { request, to, number, posted_ms }, message.length),
            Err(rejected) => self.note_rejected(&rejected.error, to, posted_ms),
        }
    }

    fn add_send(&mut self, send: Sending, length: usize) {
        self.hold(length);
        self.sends.push(send);
    }

    fn hold(&mut self, bytes: usize) {
        self.held += bytes;
        self.held_most = self.held_most.max(self.held);
    }

    /// Posts a receive. Its buffer has room for the message that it may get.
    fn receive(&mut self, from: Option<u32>, tag: Option<u32>) {
        let room = match (from, tag) {
            (Some(from), Some(tag)) => {
                Message::of(self.plan, from, self.me, tag).length + self.random.below(3) as usize
            }
            _ => ROOM,
        };
        self.receive_into(from, tag, room);
    }

    fn receive_into(&mut self, from: Option<u32>, tag: Option<u32>, room: usize) {
        let posted_ms = report::now_ms();
        let source = from.map_or(Source::Any, |rank| Rank(rank).into());
        let filter = tag.map_or(TagFilter::Any, |tag| Tag(tag).into());
        match self.engine.irecv(vec![0u8; room], source, filter, self.world) {
            Ok(request) => self.add_receive(request, from, tag, posted_ms, room),
            Err(rejected) => self.note_rejected(&rejected.error, from.unwrap_or(self.me), posted_ms),
        }
    }

    fn add_receive(
        &mut self,
        request: Request<Vec<u8>>,
        from: Option<u32>,
        tag: Option<u32>,
        posted_ms: u64,
        room: usize,
    ) {
        self.hold(room);
        let place = self.places;
        self.places += 1;
        self.receives.push(Receiving { request, from, tag, place, cancelled: false, posted_ms });
    }

    /// Asks for the cancellation of a receive.
    fn cancel(&mut self, place: usize) {
        let receive = &mut self.receives[place];
        receive.cancelled = true;
        self.engine.cancel(&receive.request.id()).unwrap();
    }

    /// Polls the open probes, and receives the messages that they find.
    fn look(&mut self) {
        let mut at = 0;
        while at < self.probes.len() {
            let (from, tag) = self.probes[at];
            if self.probe(from, tag) {
                self.probes.swap_remove(at);
            } else {
                at += 1;
            }
        }
    }

    /// Polls one probe. Returns whether it needs no more polling.
    fn probe(&mut self, from: Option<u32>, tag: Option<u32>) -> bool {
        let posted_ms = report::now_ms();
        let source = from.map_or(Source::Any, |rank| Rank(rank).into());
        let filter = tag.map_or(TagFilter::Any, |tag| Tag(tag).into());
        let matched = self.random.below(2) == 0;
        let found = if matched {
            let found = self.engine.improbe(source, filter, self.world);
            found.map(|found| found.map(|message| (message.status(), Some(message))))
        } else {
            self.engine.iprobe(source, filter, self.world).map(|found| found.map(|status| (status, None)))
        };
        let (status, message) = match found {
            Ok(None) => return false,
            Ok(Some(found)) => found,
            Err(PostError::PeerFailed { .. }) if from.is_none() => {
                // Other ranks may still send a message for it.
                self.acknowledge();
                return false;
            }
            Err(error) => {
                self.note_rejected(&error, from.unwrap_or(self.me), posted_ms);
                return true;
            }
        };
        let (source, found_tag) = (Some(status.source.0), Some(status.tag.0));
        match message {
            Some(message) => {
                let request = self.engine.imrecv(message, vec![0u8; status.length]).expect("it was there");
                self.add_receive(request, source, found_tag, posted_ms, status.length);
            }
            // No other receive is posted between probe and receive, so the receive gets this message.
            None => self.receive_into(source, found_tag, status.length),
        }
        // A control message does not settle the probe: its own message is still to come.
        status.tag.0 < CONTROL
    }

    fn tick(&mut self) {
        self.engine.tick();
        self.note_tick();
    }

    fn note_tick(&mut self) {
        self.gap = self.gap.max(self.last_tick.elapsed());
        self.last_tick = Instant::now();
    }

    /// Lets the engine work: ticks, or sleeps in a wait.
    fn rest(&mut self) {
        let sends = self.sends.iter().map(|send| send.request.id());
        let open = sends.chain(self.receives.iter().map(|receive| receive.request.id())).last();
        match open {
            // The result may be ignored: the caller tests every operation again.
            Some(id) if self.patient => drop(self.engine.wait_for(&id, NAP)),
            _ => {
                self.engine.tick();
                rustix::thread::sched_yield();
            }
        }
        self.note_tick();
        self.agree();
    }

    fn check_time(&mut self, what: &str) {
        if Instant::now() > self.deadline {
            let (open, due) = (self.receives.len() + self.sends.len(), self.missing());
            let words = format!("rank {}: not in time: {what}; {open} open, due by peer: {due:?}", self.me);
            panic!("{words}; {} probes\n{}", self.probes.len(), self.engine.dump());
        }
    }

    /// Lets time pass until a condition holds.
    fn until(&mut self, what: &str, mut holds: impl FnMut(&mut Self) -> bool) {
        loop {
            self.collect();
            if holds(self) {
                return;
            }
            self.rest();
            self.check_time(what);
        }
    }

    /// Number of messages still to come, by peers that have not failed.
    fn missing(&self) -> Vec<(u32, usize)> {
        let left = |peer: u32| count(self.plan, peer, self.me) as usize - self.got[peer as usize].len();
        let living = (0..self.plan.ranks).filter(|peer| !self.failed.contains_key(peer));
        living.map(|peer| (peer, left(peer))).filter(|&(_, left)| left > 0).collect()
    }

    /// Lets time pass until all messages that can come have come, and all sends have ended.
    fn receive_all(&mut self) {
        self.until("messages", |worker| worker.sends.is_empty() && worker.missing().is_empty());
        // The probes that are left are for messages of peers that have failed.
        self.probes.clear();
    }
}
