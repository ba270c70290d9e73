//! Helpers of several files: endpoints of one process under one virtual clock.

use crate::connections::Stage;
use crate::shm::*;
use crate::testing::copy;
use tickwire_components::Span;
use tickwire_components::wire::Kind;

pub(super) const RING: usize = 4096;
pub(super) const TICK_NS: u64 = 100_000;

pub(super) const TICKS_MAX: u32 = 60_000;

/// A frame as it came: vc, tag, payload.
type Frame = (Row, u32, Vec<u8>);

/// Endpoints under one virtual clock.
pub(super) struct Net {
    pub(super) job: String,
    pub(super) now_ns: u64,
    pub(super) shms: Vec<Option<Shm>>,
    pub(super) events: Vec<Vec<LinkEvent>>,
    pub(super) frames: Vec<Vec<Frame>>,
}

/// Small rings, so that tests go around them.
pub(super) fn config(job: &str, me: u32, procs: u32) -> ShmConfig {
    ShmConfig { ring_bytes: RING, ..ShmConfig::new(job, me, procs) }
}

/// A job name that no other test and no other run uses.
pub(super) fn job(name: &str) -> String {
    use std::sync::atomic::{AtomicU32, Ordering};
    static NEXT: AtomicU32 = AtomicU32::new(0);
    format!("{name}-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed))
}

/// Sends a frame with this tag and payload.
pub(super) fn send(shm: &mut Shm, link: u32, tag: u32, payload: &[u8]) -> Sent {
    let header = Header::new(Kind::Eager, 1, 2, tag, 3, payload.len() as u64);
    shm.send(link, &header, &payload, &mut ())
}

/// Takes up to so many frames, and releases them.
pub(super) fn drain(shm: &mut Shm, now_ns: u64, most: usize) -> Vec<Frame> {
    let mut arrivals = [Arrival::default(); 64];
    let count = shm.drain(now_ns, &mut arrivals[..most.min(64)]);
    let frames = arrivals[..count]
        .iter()
        .map(|arrival| {
            let mut bytes = vec![0; arrival.payload.len()];
            // SAFETY: a local buffer that outlives the copy.
            #[expect(unsafe_code, reason = "lends local bytes")]
            let to = unsafe { Span::new(bytes.as_mut_ptr(), bytes.len()) };
            copy(to, arrival.payload);
            (arrival.vc, arrival.header.tag(), bytes)
        })
        .collect();
    shm.release();
    frames
}

/// Payload number `n`: its length and bytes follow from it.
pub(super) fn payload(n: u32, most: usize) -> Vec<u8> {
    let length = n.wrapping_mul(2_654_435_761) as usize % (most + 1);
    (0..length).map(|i| (i as u32 ^ n) as u8).collect()
}

impl Net {
    /// Endpoints of so many procs of one job.
    pub(super) fn new(name: &str, procs: u32) -> Self {
        Self::with(name, procs, |_| ())
    }

    /// As [`Net::new`], with a changed configuration.
    pub(super) fn with(name: &str, procs: u32, change: impl Fn(&mut ShmConfig)) -> Self {
        let job = job(name);
        let open = |me| {
            let mut config = config(&job, me, procs);
            change(&mut config);
            Some(Shm::open(config).expect("opens"))
        };
        let shms = (0..procs).map(open).collect();
        let (events, frames) = ((0..procs).map(|_| vec![]).collect(), (0..procs).map(|_| vec![]).collect());
        Net { job, now_ns: 1, shms, events, frames }
    }

    pub(super) fn shm(&mut self, proc: usize) -> &mut Shm {
        self.shms[proc].as_mut().expect("there")
    }

    /// Lets a proc look at its connections once, and attaches new links.
    pub(super) fn control(&mut self, proc: usize) {
        let now_ns = self.now_ns;
        let Some(shm) = &mut self.shms[proc] else { return };
        let mut events = Vec::new();
        shm.control(now_ns, &mut events);
        for event in &events {
            match *event {
                LinkEvent::Connected { link } | LinkEvent::Accepted { link, .. } => shm.attach(link, link),
                LinkEvent::Replaced { link, by } => {
                    shm.close_link(link);
                    shm.attach(by, by);
                }
                LinkEvent::Failed { link, .. } => shm.close_link(link),
            }
        }
        self.events[proc].append(&mut events);
    }

    pub(super) fn drain(&mut self, proc: usize) {
        let now_ns = self.now_ns;
        if let Some(shm) = &mut self.shms[proc] {
            self.frames[proc].append(&mut drain(shm, now_ns, 64));
        }
    }

    /// Lets all procs look at everything once; the clock goes on.
    pub(super) fn tick(&mut self) {
        self.now_ns += TICK_NS;
        for proc in 0..self.shms.len() {
            self.control(proc);
            self.drain(proc);
        }
    }

    /// Ticks until a condition holds; fails after [`TICKS_MAX`] ticks.
    pub(super) fn until(&mut self, what: &str, mut condition: impl FnMut(&mut Net) -> bool) {
        for _ in 0..TICKS_MAX {
            if condition(self) {
                return;
            }
            self.tick();
        }
        panic!("never {what}: {:?}", self.events);
    }

    /// Begins a connection.
    pub(super) fn call(&mut self, from: usize, to: u32) -> Result<u32, String> {
        let now_ns = self.now_ns;
        let shm = self.shm(from);
        let card = shm.card();
        shm.connect(to, &card, now_ns)
    }

    /// The link of `from` to `to` once both have one.
    pub(super) fn connect(&mut self, from: usize, to: u32) -> (u32, u32) {
        self.call(from, to).expect("starts");
        self.until("connected", |net| net.link(from, to).is_some() && net.link(to as usize, from as u32).is_some());
        (self.link(from, to).expect("open"), self.link(to as usize, from as u32).expect("open"))
    }

    /// The open link of `from` to `to`.
    pub(super) fn link(&mut self, from: usize, to: u32) -> Option<u32> {
        let shm = self.shm(from);
        let link = *shm.connections.procs.get(&to)?;
        matches!(shm.connections.stage(link), Some(Stage::Open(_))).then_some(link)
    }

    pub(super) fn failures(&self, proc: usize) -> Vec<String> {
        let reason = |event: &LinkEvent| match event {
            LinkEvent::Failed { reason, .. } => Some(reason.clone()),
            _ => None,
        };
        self.events[proc].iter().filter_map(reason).collect()
    }

    pub(super) fn fails_with(&mut self, proc: usize, words: &str) {
        self.until(words, |net| net.failures(proc).iter().any(|reason| reason.contains(words)));
    }

    /// Frames go both ways between two procs.
    pub(super) fn talks(&mut self, a: usize, b: usize) {
        let (there, back) = (self.link(a, b as u32).expect("open"), self.link(b, a as u32).expect("open"));
        for (from, to, link, other) in [(a, b, there, back), (b, a, back, there)] {
            self.frames[to].clear();
            assert_eq!(send(self.shm(from), link, 5, b"hello"), Sent::Done);
            self.until("arrived", |net| !net.frames[to].is_empty());
            assert_eq!(self.frames[to], [(other, 5, b"hello".to_vec())]);
        }
    }
}

/// Bytes that outlive what is done with them.
pub(super) fn span(bytes: &mut [u8]) -> Span {
    // SAFETY: valid for as long as the tests use it.
    #[expect(unsafe_code, reason = "lends local bytes")]
    unsafe {
        Span::new(bytes.as_mut_ptr(), bytes.len())
    }
}
