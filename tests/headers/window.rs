//! One-sided operations: a window of the engine that its peers know, requests of the peers, and their answers to the
//! engine's requests.

use super::{PAYLOAD_MAX, Run};
use crate::input::Input;
use std::collections::VecDeque;
use tickwire::internals::components::limits::REMOTE_FRAMES;
use tickwire::internals::components::wire::{Header, Kind};
use tickwire::internals::components::{
    Arrival, AtomicsDomain, NIL, NumberType, RemoteKind, RemoteOutcome, Span, UpdateCode, UpdateOperation, context,
};
use tickwire::internals::systems::procs::windows::regions::displacement;
use tickwire::internals::systems::procs::windows::{
    Access, Epochs, ExposedRegion, OwnMemory, Reach, Target, WindowRow,
};
use tickwire::internals::transports::shared::SharedRun;
use tickwire::internals::transports::windows::{Memory, Part, control_bytes};
use tickwire::internals::transports::{RemoteAccess, RemoteKey, Transport};
use tickwire::testing::rows;
use tickwire::{Engine, LockKind, Rank, RegionAccess, Window, op};

/// Bytes of each part, and of each region.
const BYTES: usize = 4096;
/// Regions of an engine that exposes memory by regions.
const REGIONS: usize = 3;
/// Bytes of input for the arguments of a command.
const ARGUMENTS: usize = 15;
/// Most open operations of the engine to each peer.
const OPEN_MAX: u64 = 40;

/// Open requests between the engine and one peer, in both directions. The engine numbers its requests from 0.
#[derive(Default)]
pub(super) struct Asked {
    /// Requests of the peer that the engine has not answered.
    pub(super) open: u32,
    /// The number of the engine's first request that has no answer.
    first: u32,
    /// For each of the engine's requests that the peer has seen and not answered: what it asks for.
    wanted: VecDeque<Wanted>,
    /// Operations that the engine has begun and that have no answer.
    posted: u64,
}

/// What a request of the engine asks for.
#[derive(Clone, Copy, Default)]
struct Wanted {
    /// The number of its operations.
    operations: u64,
    /// Bytes of outcomes at the start of its answer.
    outcomes: u64,
    /// Bytes that follow the outcomes in the answer.
    bytes: u64,
}

impl Asked {
    /// Notes a frame that has come to the peer.
    pub(super) fn see(&mut self, arrival: &Arrival) {
        if arrival.header.kind() != Some(Kind::Remote) {
            return;
        }
        // SAFETY: the payload stays until the peer's transport releases it.
        #[expect(unsafe_code, reason = "bytes that are addresses")]
        let payload = unsafe { std::slice::from_raw_parts(arrival.payload.start(), arrival.payload.len()) };
        let word = |at: usize| u64::from_ne_bytes(payload[at..at + 8].try_into().unwrap());
        let got = |kind: u32, length: u64| if kind == RemoteKind::Get.word() { length } else { 0 };
        let wanted = if arrival.header.tag() == RemoteKind::Batch.word() {
            let (mut at, mut bytes) = (16, 0);
            for _ in 0..word(0) {
                let kind = RemoteKind::from_word(word(at) as u32).unwrap();
                bytes += got(kind.word(), word(at + 16));
                at += 24 + kind.operands(word(at + 16)) as usize;
            }
            assert_eq!(at, payload.len(), "a batch of the engine's is its operations");
            Wanted { operations: word(0), outcomes: word(0) * 4, bytes }
        } else {
            Wanted { operations: 1, outcomes: 0, bytes: got(arrival.header.tag(), word(8)) }
        };
        self.wanted.push_back(wanted);
    }
}

/// Gives an engine a window on its world, as if its peers had one too. All parts are locked, and the epoch of a fence is
/// open. Without `exposes`, peers may use all of the engine's part. With `exposes`, the window has three regions, and
/// peers may write only the first: the second may only be read, and only a fabric updates the third.
pub(super) fn add(engine: &mut Engine, procs: u32, exposes: bool) {
    let all = rows(engine);
    let world = &all.communicators[0];
    let run = SharedRun::private(control_bytes(procs) + REGIONS * BYTES).unwrap();
    let memory = run.span().part(control_bytes(procs), REGIONS * BYTES);
    let own = Part::new(run, Memory::Behind(REGIONS * BYTES), procs, 0, false).unwrap();
    let accesses = [RegionAccess::ALL, RegionAccess::READ, RegionAccess::UPDATE];
    let key = RemoteKey { key: 0, base: 0, length: BYTES as u64, access: RemoteAccess::ATOMIC };
    let region = |(number, access): (u32, RegionAccess)| ExposedRegion {
        number,
        part: own.with_memory(memory.part(number as usize * BYTES, BYTES)).unwrap(),
        access,
        moves: None,
        updates: (access == RegionAccess::UPDATE).then_some((0, key)),
        buffer: Box::new(()),
    };
    let regions = (0..).zip(accesses).map(region).collect();
    let own_memory = if exposes { OwnMemory::Exposed(regions) } else { OwnMemory::Allocated };
    let mut own = Some(if exposes { own } else { own.with_memory(memory.part(0, BYTES)).unwrap() });
    let targets = (0..procs).map(|proc| {
        let vc = if proc == 0 { NIL } else { all.procs.known[proc as usize].row };
        let reach = own.take().map_or(Reach::Engine, Reach::Memory);
        Target { access: Access::Locked(LockKind::Shared), ..Target::new(vc, BYTES as u64, reach) }
    });
    let window = WindowRow {
        handle: world.handle,
        context: world.context,
        rank: 0,
        targets: targets.collect(),
        domain: AtomicsDomain::Engine,
        own: own_memory,
        epochs: Epochs { all_locked: true, fence_exposes: true, ..Epochs::default() },
        served: VecDeque::new(),
        is_retired: false,
        fabric_key: None,
        has_fabric: false,
        has_puts_in_flight: false,
    };
    all.windows.add(window);
}

/// # Panics
/// If a region was written that no peer may write.
pub(super) fn check(engine: &mut Engine) {
    for window in rows(engine).windows.list.iter().flatten() {
        let OwnMemory::Exposed(regions) = &window.own else { continue };
        for region in &regions[1..] {
            let mut bytes = [0xEE; BYTES];
            // SAFETY: these are local bytes.
            #[expect(unsafe_code, reason = "lends local bytes")]
            let read = unsafe { region.part.get(0, Span::new(bytes.as_mut_ptr(), BYTES)) };
            assert!(read && bytes == [0; BYTES], "region {} was written", region.number);
        }
    }
}

impl Run<'_> {
    /// Begins an operation of the engine, or sends a request or an answer of a peer. Each of them takes the same
    /// number of bytes of the input for its arguments.
    pub(super) fn one_sided(&mut self) {
        let (arguments, rest) = self.input.0.split_at(self.input.0.len().min(ARGUMENTS));
        self.input = Input(arguments);
        match self.input.byte() % 4 {
            0 => self.operation(),
            1 => self.answer_to_operation(),
            _ => self.request(),
        }
        self.input = Input(rest);
    }

    fn operation(&mut self) {
        let (to, what, length) = (self.input.byte() % 2, self.input.byte(), self.input.byte());
        let asked = &mut self.one_sided[usize::from(to)];
        if asked.posted == OPEN_MAX {
            return;
        }
        let (target, length) = (Rank(u32::from(to) + 1), [0, 8, 100][usize::from(length) % 3]);
        let window: Window<u8> = Window::new(self.engine.comm_world().0);
        let posted = match what % 3 {
            0 => self.engine.rput(vec![1; length], target, 8, window),
            1 => self.engine.rget(vec![0; length], target, 8, window),
            _ => self.engine.raccumulate(vec![1; length], op::Sum, target, 8, window),
        };
        if let Ok(request) = posted {
            asked.posted += 1;
            self.requests.push(request);
        }
    }

    /// Answers an operation of the engine as a real peer would, sometimes with something wrong.
    fn answer_to_operation(&mut self) {
        self.drain();
        let (from, twist) = (self.input.byte() % 2, self.input.byte());
        let asked = &mut self.one_sided[usize::from(from)];
        if asked.wanted.is_empty() && twist < 192 {
            return;
        }
        let wanted = asked.wanted.front().copied().unwrap_or_default();
        let mut outcome = RemoteOutcome::Done.word();
        let (mut number, mut length) = (asked.first, wanted.outcomes + wanted.bytes);
        let (mut source, mut first_outcome) = (u32::from(from) + 1, 0);
        match twist {
            0..=191 => {
                asked.first += 1;
                asked.posted -= wanted.operations;
                asked.wanted.pop_front();
            }
            192..=207 => number = number.wrapping_add(u32::from(twist)).wrapping_sub(200),
            208..=215 => length = length.wrapping_add(u64::from(twist)) % 256,
            216..=223 => first_outcome = [1, 3, 0x55][usize::from(twist) % 3],
            224..=239 => outcome = [1, 2, 3, 2 << 8 | 2, u32::MAX][usize::from(twist) % 5],
            _ => source = u32::from(twist) % 4,
        }
        let word = self.window_context();
        let header = Header::new(Kind::Answer, word, source, outcome, number, length);
        let mut payload = vec![0x5A; length as usize];
        payload.iter_mut().take(wanted.outcomes as usize).for_each(|byte| *byte = 0);
        payload.first_mut().filter(|_| wanted.outcomes > 0).into_iter().for_each(|byte| *byte = first_outcome);
        self.send_as(usize::from(from), header, &payload);
    }

    fn request(&mut self) {
        const NUMBERS: [NumberType; 4] = [NumberType::U8, NumberType::I16, NumberType::F32, NumberType::U64];
        let (from, what, twist) = (self.input.byte() % 2, self.input.byte(), self.input.byte());
        let number = NUMBERS[usize::from(what >> 4) % NUMBERS.len()];
        let code = UpdateCode { number, operation: UpdateOperation::Sum };
        let hold = if what & 128 == 0 { LockKind::Shared } else { LockKind::Exclusive };
        let kind = match what % 16 {
            0..=3 => RemoteKind::Put,
            4..=6 => RemoteKind::Get,
            7 | 8 => RemoteKind::Update(code),
            9 | 10 => RemoteKind::FetchUpdate(code),
            11 | 12 => RemoteKind::CompareSwap(number),
            13 | 14 => RemoteKind::Lock(hold),
            _ if twist & 1 == 0 => RemoteKind::Unlock(hold),
            _ => RemoteKind::LostPuts,
        };
        let places = [0, 1, 8, 4000, 4088, 4096, u64::MAX, 1 << 32];
        let choice = usize::from(self.input.byte());
        // The displacement of a byte in a region has the region's number in its high bits.
        let at = places[choice % 8].wrapping_add(displacement([0, 0, 1, 2][choice >> 6], 0));
        let length = [0, 1, 8, 96, 100, 3000, 3984][usize::from(self.input.byte()) % 7];
        let context = self.window_context();
        // One of eight requests has a displacement of any distance from there.
        let distance = if choice >> 3 & 7 == 7 { self.input.word() } else { 0 };
        let at = at.wrapping_add(distance);
        let (mut length, mut operands) = match kind {
            RemoteKind::Get => (length, 0),
            RemoteKind::CompareSwap(number) => (number.size() as u64, 16),
            RemoteKind::Lock(_) | RemoteKind::Unlock(_) | RemoteKind::Batch | RemoteKind::LostPuts => (0, 0),
            RemoteKind::Put => (length, length),
            _ => [length - length % number.size() as u64; 2].into(),
        };
        let (mut tag, mut source) = (kind.word(), u32::from(from) + 1);
        match twist {
            0..=223 => {}
            224..=231 => length = u64::MAX >> ((twist & 7) * 8),
            232..=239 => operands = u64::from(twist),
            240..=247 => tag = [0, 12, 1 << 8, 3, u32::MAX][usize::from(twist) % 5],
            _ => source = u32::from(twist) % 4,
        }
        let operands = operands.min(PAYLOAD_MAX as u64 - 16) as usize;
        let asked = &mut self.one_sided[usize::from(from)];
        if asked.open == REMOTE_FRAMES && twist < 224 {
            self.tick();
            return self.drain();
        }
        asked.open += 1;
        let operands = vec![0xA5; operands];
        let payload = match twist {
            // A batch: the same operation several times. From 216 on, the request states one operation more than it
            // has.
            160..=223 => {
                let entry = [&u64::from(tag).to_ne_bytes()[..], &at.to_ne_bytes(), &length.to_ne_bytes(), &operands];
                let entry = entry.concat();
                let count = (1 + usize::from(twist) % 4).min((PAYLOAD_MAX - 16) / entry.len());
                tag = RemoteKind::Batch.word();
                let (told, entries) = (count as u64 + u64::from(twist >= 216), entry.repeat(count));
                [&told.to_ne_bytes()[..], &(entries.len() as u64).to_ne_bytes(), &entries].concat()
            }
            _ => [&at.to_ne_bytes()[..], &length.to_ne_bytes(), &operands].concat(),
        };
        let header = Header::new(Kind::Remote, context, source, tag, twist.into(), payload.len() as u64);
        self.send_as(usize::from(from), header, &payload);
    }

    /// The context of the window, or rarely a wrong context.
    fn window_context(&mut self) -> u32 {
        let own = rows(&mut self.engine).communicators[0].context | context::WINDOW;
        match self.input.byte() {
            choice @ 224.. => own ^ 1 << (choice & 31),
            _ => own,
        }
    }

    fn send_as(&mut self, peer: usize, header: Header, payload: &[u8]) {
        let peer = &mut self.peers[peer];
        let _ = peer.transport.send(peer.link, &header, &payload, &mut ());
    }
}
