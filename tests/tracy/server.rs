//! The profiler's end of the Tracy protocol, as far as it is needed to count what the client reports.
//!
//! The client sends blocks of events, one event after another. Each block is compressed with the 64 KiB before it as
//! dictionary. Strings and source locations are sent as addresses in the client, and the server asks for their content.
//! Sizes are those of `QueueDataSize` in `common/TracyQueue.hpp` of `tracy-client-sys`. The client refuses another
//! version of the protocol.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

/// Version of the protocol: Tracy 0.14.
const PROTOCOL: u32 = 82;
/// Most bytes of a block before compression.
const BLOCK_BYTES: usize = 256 << 10;
/// Bytes of earlier blocks that a block may refer to.
const WINDOW_BYTES: usize = 64 << 10;
/// Bytes of the client's answer to the greeting.
const WELCOME_BYTES: usize = 1170;

/// Bytes of each kind of event, by its first byte. That byte is included, the content of strings is not.
#[rustfmt::skip]
const SIZES: [usize; 132] = [
    1, 1, 10, 13, 10, 13, 9, 9, 9, 1, 1, 1, 13, 9, 7, 13, 9, 7, 10, 17, 13, 11, 17, 13, 11, 9, 5, 3, 17, 17, 13, 17,
    17, 17, 5, 27, 27, 21, 21, 27, 27, 21, 21, 21, 21, 24, 24, 16, 16, 16, 24, 24, 16, 16, 16, 25, 21, 25, 23, 16, 12,
    2, 10, 10, 13, 1, 1, 1, 25, 13, 15, 13, 3, 1, 1, 5, 26, 18, 1, 17, 5, 4, 9, 17, 17, 17, 13, 32, 22, 13, 17, 17,
    20, 17, 20, 28, 17, 13, 25, 17, 17, 17, 17, 17, 17, 17, 16, 18, 1, 5, 1, 17, 1, 1, 1, 1, 9, 9, 24, 9, 9, 9, 9, 9,
    9, 9, 9, 9, 9, 9, 9, 9,
];

/// Kinds of events, by their first byte.
mod event {
    pub(super) const MESSAGE: u8 = 2;
    pub(super) const ZONE_OF_PAYLOAD: u8 = 7;
    pub(super) const ZONE: u8 = 19;
    pub(super) const ZONE_32: u8 = 20;
    pub(super) const ZONE_16: u8 = 21;
    pub(super) const ZONE_END: u8 = 25;
    pub(super) const ZONE_END_16: u8 = 27;
    pub(super) const PLOT_DOUBLE: u8 = 57;
    pub(super) const THREAD: u8 = 75;
    pub(super) const ZONE_VALUE: u8 = 82;
    pub(super) const FRAME: u8 = 83;
    pub(super) const LOCATION: u8 = 87;
    pub(super) const SINGLE: u8 = 112;
    pub(super) const SECOND: u8 = 113;
    pub(super) const SINGLE_8: u8 = 114;
    pub(super) const SECOND_8: u8 = 115;
    /// From this kind on, a length and a string follow.
    pub(super) const STRING: u8 = 119;
    pub(super) const PAYLOAD: u8 = 122;
    /// Kinds whose length has 32 bits.
    pub(super) const LONG: [u8; 3] = [126, 128, 129];
}

/// Questions to the client.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
enum Ask {
    Terminate = 0,
    String = 1,
    Thread = 2,
    Location = 3,
    Plot = 4,
    Frame = 5,
    Disconnect = 9,
}

/// Everything reported under one name.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Told {
    /// How often it was reported.
    pub(crate) count: u64,
    /// For zones: the sum of their values.
    pub(crate) values: u64,
    /// For plots: the sum, the largest and the last value.
    pub(crate) sum: f64,
    pub(crate) most: f64,
    pub(crate) last: f64,
}

/// Everything that was reported, by name.
#[derive(Default, Debug)]
pub(crate) struct Heard {
    pub(crate) pid: u64,
    pub(crate) on_demand: bool,
    pub(crate) zones: BTreeMap<String, Told>,
    pub(crate) plots: BTreeMap<String, Told>,
    pub(crate) frames: BTreeMap<String, u64>,
    pub(crate) threads: BTreeMap<u64, String>,
    pub(crate) messages: Vec<String>,
    /// Zones that have not ended.
    pub(crate) open: usize,
}

/// A profiler that is connected to one process.
pub(crate) struct Server {
    socket: TcpStream,
    pid: u64,
    on_demand: bool,
    window: Vec<u8>,
    /// Zones by the address of their source location, then plots and frames by the address of their name.
    zones: HashMap<u64, Told>,
    plots: HashMap<u64, Told>,
    frames: HashMap<u64, u64>,
    /// Zones that were reported with their name.
    named: BTreeMap<String, Told>,
    /// Zones that have begun and not ended.
    stack: Vec<Begun>,
    threads: HashSet<u64>,
    messages: Vec<String>,
    strings: HashMap<(u8, u64), String>,
    locations: HashMap<u64, (u64, u64)>,
    asked: HashSet<(Ask, u64)>,
    /// Locations that were asked for. The client answers them in this order.
    locations_asked: VecDeque<u64>,
    /// Questions without an answer.
    unanswered: usize,
    text: String,
    payload: String,
}

enum Begun {
    At(u64),
    Named(String),
}

fn word(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap())
}

impl Server {
    /// Connects to a client on a port of this host. The client listens already, or will soon.
    pub(crate) fn connect(port: u16, patience: Duration) -> Self {
        let until = Instant::now() + patience;
        let mut socket = loop {
            match TcpStream::connect(("127.0.0.1", port)) {
                Ok(socket) => break socket,
                Err(error) => assert!(Instant::now() < until, "port {port}: {error}"),
            }
            std::thread::sleep(Duration::from_millis(5));
        };
        socket.set_nodelay(true).unwrap();
        socket.set_read_timeout(Some(patience)).unwrap();
        socket.write_all(b"TracyPrf").unwrap();
        socket.write_all(&PROTOCOL.to_le_bytes()).unwrap();
        let mut status = [0];
        socket.read_exact(&mut status).unwrap();
        assert_eq!(status, [1], "the client speaks another version of the protocol (2), or is taken (3)");
        let mut welcome = [0; WELCOME_BYTES];
        socket.read_exact(&mut welcome).unwrap();
        let on_demand = welcome[64] & 1 != 0;
        if on_demand {
            socket.read_exact(&mut [0; 16]).unwrap();
        }
        Server {
            socket,
            pid: word(&welcome, 48),
            on_demand,
            window: Vec::new(),
            zones: HashMap::new(),
            plots: HashMap::new(),
            frames: HashMap::new(),
            named: BTreeMap::new(),
            stack: Vec::new(),
            threads: HashSet::new(),
            messages: Vec::new(),
            strings: HashMap::new(),
            locations: HashMap::new(),
            asked: HashSet::new(),
            locations_asked: VecDeque::new(),
            unanswered: 0,
            text: String::new(),
            payload: String::new(),
        }
    }

    /// Reads until a message with these words has come and every question is answered.
    pub(crate) fn listen(mut self, last: &str, patience: Duration) -> Heard {
        let until = Instant::now() + patience;
        while !(self.messages.iter().any(|words| words.contains(last)) && self.unanswered == 0) {
            assert!(Instant::now() < until, "{} unanswered, {:?}", self.unanswered, self.messages);
            let block = self.block();
            self.read_block(&block);
        }
        self.ask(Ask::Disconnect, 0);
        self.ask(Ask::Terminate, 0);
        self.heard()
    }

    fn ask(&mut self, ask: Ask, address: u64) {
        if !self.asked.insert((ask, address)) {
            return;
        }
        self.unanswered += usize::from(!matches!(ask, Ask::Disconnect | Ask::Terminate));
        if ask == Ask::Location {
            self.locations_asked.push_back(address);
        }
        let mut question = [0; 13];
        question[0] = ask as u8;
        question[1..9].copy_from_slice(&address.to_le_bytes());
        if let Err(error) = self.socket.write_all(&question) {
            assert!(ask == Ask::Terminate && error.kind() == ErrorKind::BrokenPipe, "{error}");
        }
    }

    /// The next block of events.
    fn block(&mut self) -> Vec<u8> {
        let mut length = [0; 4];
        self.socket.read_exact(&mut length).unwrap();
        let mut packed = vec![0u8; u32::from_le_bytes(length) as usize];
        self.socket.read_exact(&mut packed).unwrap();
        let mut block = vec![0u8; BLOCK_BYTES];
        let bytes = lz4_flex::block::decompress_into_with_dict(&packed, &mut block, &self.window).unwrap();
        block.truncate(bytes);
        self.window.extend_from_slice(&block);
        self.window.drain(..self.window.len().saturating_sub(WINDOW_BYTES));
        block
    }

    fn read_block(&mut self, block: &[u8]) {
        let mut rest = block;
        while let Some(&kind) = rest.first() {
            let size = SIZES[usize::from(kind)];
            let (fixed, behind) = rest.split_at(size);
            let length = match kind {
                event::SINGLE | event::SECOND => 2 + 256 + usize::from(u16::from_le_bytes([behind[0], behind[1]])),
                event::SINGLE_8 | event::SECOND_8 => 1 + usize::from(behind[0]),
                kind if event::LONG.contains(&kind) => 4 + word(&[&behind[..4], &[0; 4]].concat(), 0) as usize,
                kind if kind >= event::STRING => 2 + usize::from(u16::from_le_bytes([behind[0], behind[1]])),
                _ => 0,
            };
            let (string, next) = behind.split_at(length);
            self.take(kind, fixed, string);
            rest = next;
        }
    }

    fn take(&mut self, kind: u8, fixed: &[u8], string: &[u8]) {
        match kind {
            event::SINGLE => self.text = String::from_utf8_lossy(&string[2..]).into_owned(),
            event::SINGLE_8 => self.text = String::from_utf8_lossy(&string[1..]).into_owned(),
            event::MESSAGE => self.messages.push(std::mem::take(&mut self.text)),
            event::ZONE | event::ZONE_32 | event::ZONE_16 => {
                let location = word(fixed, fixed.len() - 8);
                self.zones.entry(location).or_default().count += 1;
                self.stack.push(Begun::At(location));
                self.ask(Ask::Location, location);
            }
            event::ZONE_OF_PAYLOAD => {
                let name = std::mem::take(&mut self.payload);
                self.named.entry(name.clone()).or_default().count += 1;
                self.stack.push(Begun::Named(name));
            }
            event::ZONE_VALUE => {
                let zone = match self.stack.last().unwrap() {
                    Begun::At(location) => self.zones.get_mut(location),
                    Begun::Named(name) => self.named.get_mut(name),
                };
                zone.unwrap().values += word(fixed, 1);
            }
            event::ZONE_END..=event::ZONE_END_16 => drop(self.stack.pop().unwrap()),
            event::PLOT_DOUBLE => {
                let (name, value) = (word(fixed, 1), f64::from_bits(word(fixed, 17)));
                let plot = self.plots.entry(name).or_default();
                (plot.count, plot.sum, plot.last) = (plot.count + 1, plot.sum + value, value);
                plot.most = plot.most.max(value);
                self.ask(Ask::Plot, name);
            }
            event::FRAME => {
                let name = word(fixed, 9);
                *self.frames.entry(name).or_default() += 1;
                self.ask(Ask::Frame, name);
            }
            event::THREAD => {
                let thread = u64::from(u32::from_le_bytes(fixed[1..5].try_into().unwrap()));
                self.threads.insert(thread);
            }
            event::LOCATION => {
                let (location, names) = (self.locations_asked.pop_front().unwrap(), (word(fixed, 1), word(fixed, 9)));
                self.locations.insert(location, names);
                self.unanswered -= 1;
                for name in [names.0, names.1].into_iter().filter(|&name| name != 0) {
                    self.ask(Ask::String, name);
                }
            }
            event::PAYLOAD => {
                // The string has colour and line, then function, file and name.
                let name = string[2 + 8..].rsplit(|&byte| byte == 0).next().unwrap();
                self.payload = String::from_utf8_lossy(name).into_owned();
            }
            kind if kind >= event::STRING && !event::LONG.contains(&kind) => {
                let words = String::from_utf8_lossy(&string[2..]).into_owned();
                self.strings.insert((kind, word(fixed, 1)), words);
                self.unanswered -= 1;
            }
            _ => {}
        }
        // Thread names are asked for at each message: by then the threads have their final names.
        if kind == event::MESSAGE {
            for thread in self.threads.clone() {
                self.ask(Ask::Thread, thread);
            }
        }
    }

    fn string(&self, kind: u8, address: u64) -> String {
        self.strings.get(&(kind, address)).cloned().unwrap_or_default()
    }

    fn heard(mut self) -> Heard {
        let (string, thread, plot, frame) = (event::STRING, event::STRING + 1, event::STRING + 2, 125);
        let mut zones = std::mem::take(&mut self.named);
        for (location, told) in &self.zones {
            let (name, function) = self.locations[location];
            zones.insert(self.string(string, if name == 0 { function } else { name }), *told);
        }
        Heard {
            pid: self.pid,
            on_demand: self.on_demand,
            zones,
            plots: self.plots.iter().map(|(&name, told)| (self.string(plot, name), *told)).collect(),
            frames: self.frames.iter().map(|(&name, count)| (self.string(frame, name), *count)).collect(),
            threads: self.threads.iter().map(|&id| (id, self.string(thread, id))).collect(),
            messages: self.messages.clone(),
            open: self.stack.len(),
        }
    }
}
