//! What two procs tell each other before the first frame, and every reason to refuse a peer.
//!
//! A packet starts with the magic bytes and its kind, in this and every later version, so that every version can read a refusal. Numbers
//! are in the sender's byte order; a field near the start tells which one that is.
//!
//! | bytes | field |
//! |---|---|
//! | 0–7 | [`MAGIC`] |
//! | 8 | kind of packet |
//! | 9, 10 | bytes of a word, of a frame's header |
//! | 11 | capability bits |
//! | 12–15 | [`BYTE_ORDER`] |
//! | 16–17 | [`VERSION`] |
//! | 18–19 | reserved, 0 |
//! | 20–23, 24–27, 28–31 | slot, proc number, number of procs |
//! | 32–39, 40–47 | bytes of a ring, of the largest payload in a frame |
//! | 48–51, 52–55 | pid, bytes of a ring at first |
//! | 56–63 | start time of the process, clock ticks since boot |
//! | 64–79 | boot id |
//! | 80–143 | name of the job, padded with 0 |
//! | 144–151, 152–159 | where the shared heap starts in the process, its bytes; 0 without one |
//!
//! The other packets begin with the first nine bytes too. A refusal continues with a sentence, a larger ring with its length in bytes (8
//! bytes), and shared memory with its key (8 bytes).

mod mismatch;

pub use mismatch::Mismatch;

use tickwire_components::limits::PROCS_MAX;
use tickwire_components::wire::{BYTE_ORDER, HEADER_BYTES, MAGIC, VERSION};

/// Bytes of a greeting or an answer.
pub const PACKET_BYTES: usize = 160;
/// Bytes of the longest packet, a refusal.
pub const PACKET_BYTES_MAX: usize = 512;
/// Bytes of the longest job name.
pub const JOB_BYTES_MAX: usize = 64;
/// Capability bit: the process has one-sided fences.
pub const ONE_SIDED: u8 = 1;

/// Offset of the fields about the shared heap.
const HEAP: usize = 144;
/// Offset of the text of a refusal.
const TEXT: usize = 9;

/// The greeting: what a process tells a peer about itself.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Greeting {
    /// Capability bits, [`ONE_SIDED`].
    pub capabilities: u8,
    /// The number under which the receiver of this greeting announces its frames.
    pub slot: u32,
    /// The sender's proc number.
    pub proc: u32,
    /// Procs in the job.
    pub procs: u32,
    /// Bytes that a ring may grow to.
    pub ring_bytes: u64,
    /// Bytes that a ring has at first.
    pub first_ring_bytes: u32,
    /// The most bytes of payload in a frame.
    pub frame_max: u64,
    /// Process id.
    pub pid: u32,
    /// When the process was started, clock ticks since boot.
    pub start_time: u64,
    /// The boot id of the sender's machine.
    pub boot_id: u128,
    /// The name of the job.
    pub job: String,
    /// The address of its shared heap in its own memory.
    pub heap_base: u64,
    /// Bytes of its shared heap, whose descriptor follows the others; 0 if it has none.
    pub heap_bytes: u64,
}

/// The contents of a packet.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Packet {
    /// A proc asks for a connection.
    Hello(Greeting),
    /// A proc grants one.
    Welcome(Greeting),
    /// A proc refuses or gives up a connection, and why.
    Refused(String),
    /// A proc cannot grant a connection right now: ask again.
    Later(String),
    /// A proc has closed a connection in order.
    Closed,
    /// A proc wants messages staged to it, and asks for a staging buffer.
    AskStaging,
    /// The staging buffer, which is passed with this packet; none if there can be none.
    Staging,
    /// A proc could not take the staging buffer that was passed to it.
    NoStaging,
    /// A proc has an endpoint for long messages; its address follows.
    Direct,
    /// A larger place, of this many bytes, for the data of the ring from this proc. It is passed with this packet.
    Ring(u64),
    /// Shared memory of this proc under this key. It is passed with this packet; none if there is none.
    Shared(u64),
    /// A proc has an endpoint for one-sided operations, whose address follows, or why it has none.
    OneSided,
    /// A watcher, which is no proc, asks a question. Its proof and its question follow.
    Ask,
    /// The answer to a watcher follows, up to the end of the connection.
    Answer,
}

impl Greeting {
    /// Checks whether this process can work with the peer that sent this greeting. `mine` is its own greeting.
    ///
    /// # Errors
    /// The first thing that does not fit.
    pub fn fits(&self, mine: &Greeting) -> Result<(), Mismatch> {
        if self.job != mine.job {
            return Err(Mismatch::Job { theirs: self.job.clone(), ours: mine.job.clone() });
        }
        if self.procs != mine.procs {
            return Err(Mismatch::Procs { theirs: self.procs, ours: mine.procs });
        }
        if self.proc >= mine.procs || self.proc as usize >= PROCS_MAX {
            return Err(Mismatch::Proc { theirs: self.proc, procs: mine.procs });
        }
        if self.proc == mine.proc {
            return Err(Mismatch::Same(self.proc));
        }
        if self.ring_bytes != mine.ring_bytes {
            return Err(Mismatch::Ring { theirs: self.ring_bytes, ours: mine.ring_bytes });
        }
        if self.first_ring_bytes != mine.first_ring_bytes {
            let (theirs, ours) = (self.first_ring_bytes, mine.first_ring_bytes);
            return Err(Mismatch::FirstRing { theirs, ours });
        }
        if self.frame_max != mine.frame_max {
            return Err(Mismatch::Frame { theirs: self.frame_max, ours: mine.frame_max });
        }
        Ok(())
    }

    /// Checks that the peer runs under the same kernel.
    ///
    /// # Errors
    /// [`Mismatch::Boot`].
    pub fn same_host(&self, mine: &Greeting) -> Result<(), Mismatch> {
        if self.boot_id == mine.boot_id {
            Ok(())
        } else {
            Err(Mismatch::Boot { theirs: self.boot_id, ours: mine.boot_id })
        }
    }

    fn encode(&self, kind: u8) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(PACKET_BYTES);
        bytes.extend(MAGIC);
        bytes.extend([kind, size_of::<usize>() as u8, HEADER_BYTES as u8, self.capabilities]);
        bytes.extend(BYTE_ORDER.to_ne_bytes());
        bytes.extend(VERSION.to_ne_bytes());
        bytes.extend([0; 2]);
        for word in [self.slot, self.proc, self.procs] {
            bytes.extend(word.to_ne_bytes());
        }
        bytes.extend(self.ring_bytes.to_ne_bytes());
        bytes.extend(self.frame_max.to_ne_bytes());
        bytes.extend(self.pid.to_ne_bytes());
        bytes.extend(self.first_ring_bytes.to_ne_bytes());
        bytes.extend(self.start_time.to_ne_bytes());
        bytes.extend(self.boot_id.to_ne_bytes());
        bytes.extend(self.job.bytes().take(JOB_BYTES_MAX));
        bytes.resize(HEAP, 0);
        bytes.extend(self.heap_base.to_ne_bytes());
        bytes.extend(self.heap_bytes.to_ne_bytes());
        bytes
    }

    /// Decodes a greeting whose magic and kind have been checked.
    fn decode(bytes: &[u8]) -> Result<Greeting, Mismatch> {
        // Check byte order and version before the length, since they explain a wrong length.
        if let Some(order) = field(bytes, 12).map(u32::from_ne_bytes)
            && order != BYTE_ORDER
        {
            let names = ["little-endian", "big-endian"];
            let big = usize::from(cfg!(target_endian = "big"));
            let theirs = if order == BYTE_ORDER.swap_bytes() { names[1 - big] } else { "an unknown byte order" };
            return Err(Mismatch::ByteOrder { theirs, ours: names[big] });
        }
        if let Some(version) = field(bytes, 16).map(u16::from_ne_bytes)
            && version != VERSION
        {
            return Err(Mismatch::Version { theirs: version, ours: VERSION });
        }
        let Ok(bytes) = <&[u8; PACKET_BYTES]>::try_from(bytes) else {
            return Err(Mismatch::Length { theirs: bytes.len(), ours: PACKET_BYTES });
        };
        let (word, header) = (size_of::<usize>() as u8, HEADER_BYTES as u8);
        if bytes[9] != word {
            return Err(Mismatch::Word { theirs: bytes[9], ours: word });
        }
        if bytes[10] != header {
            return Err(Mismatch::Header { theirs: bytes[10], ours: header });
        }
        if bytes[11] & !ONE_SIDED != 0 || bytes[18..20] != [0; 2] {
            return Err(Mismatch::Reserved);
        }
        let job = &bytes[80..HEAP];
        let end = job.iter().position(|&b| b == 0).unwrap_or(JOB_BYTES_MAX);
        if job[end..].iter().any(|&b| b != 0) {
            return Err(Mismatch::Text);
        }
        let job = std::str::from_utf8(&job[..end]).map_err(|_| Mismatch::Text)?.to_owned();
        let read = |at| field(bytes, at).map_or(0, u32::from_ne_bytes);
        let long = |at| field(bytes, at).map_or(0, u64::from_ne_bytes);
        Ok(Greeting {
            capabilities: bytes[11],
            slot: read(20),
            proc: read(24),
            procs: read(28),
            ring_bytes: long(32),
            frame_max: long(40),
            pid: read(48),
            first_ring_bytes: read(52),
            start_time: long(56),
            boot_id: field(bytes, 64).map_or(0, u128::from_ne_bytes),
            job,
            heap_base: long(HEAP),
            heap_bytes: long(HEAP + 8),
        })
    }
}

/// `N` bytes at `at`, if they are there.
fn field<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..at.checked_add(N)?)?.try_into().ok()
}

impl Packet {
    const HELLO: u8 = 1;
    const WELCOME: u8 = 2;
    const REFUSED: u8 = 3;
    const LATER: u8 = 4;
    const CLOSED: u8 = 5;
    const ASK_STAGING: u8 = 6;
    const STAGING: u8 = 7;
    const DIRECT: u8 = 8;
    const RING: u8 = 9;
    const SHARED: u8 = 10;
    const ONE_SIDED: u8 = 11;
    const ASK: u8 = 12;
    const ANSWER: u8 = 13;
    const NO_STAGING: u8 = 14;

    /// Encodes the packet in at most [`PACKET_BYTES_MAX`] bytes. A longer reason is cut.
    pub fn encode(&self) -> Vec<u8> {
        let (kind, text) = match self {
            Packet::Ring(ring) => return [&MAGIC[..], &[Self::RING], &ring.to_ne_bytes()].concat(),
            Packet::Shared(key) => return [&MAGIC[..], &[Self::SHARED], &key.to_ne_bytes()].concat(),
            Packet::Hello(greeting) => return greeting.encode(Self::HELLO),
            Packet::Welcome(greeting) => return greeting.encode(Self::WELCOME),
            Packet::Refused(text) => (Self::REFUSED, text.as_str()),
            Packet::Later(text) => (Self::LATER, text.as_str()),
            Packet::Closed => (Self::CLOSED, ""),
            Packet::AskStaging => (Self::ASK_STAGING, ""),
            Packet::Staging => (Self::STAGING, ""),
            Packet::NoStaging => (Self::NO_STAGING, ""),
            Packet::Direct => (Self::DIRECT, ""),
            Packet::OneSided => (Self::ONE_SIDED, ""),
            Packet::Ask => (Self::ASK, ""),
            Packet::Answer => (Self::ANSWER, ""),
        };
        let mut bytes = MAGIC.to_vec();
        bytes.push(kind);
        bytes.extend(text.bytes().take(PACKET_BYTES_MAX - TEXT));
        bytes
    }

    /// Decodes a packet. Every byte may be hostile.
    ///
    /// # Errors
    /// What is wrong with it, in words for both sides.
    pub fn decode(bytes: &[u8]) -> Result<Packet, Mismatch> {
        if bytes.get(..MAGIC.len()) != Some(&MAGIC[..]) {
            return Err(Mismatch::Magic);
        }
        if bytes.len() > PACKET_BYTES_MAX {
            return Err(Mismatch::Length { theirs: bytes.len(), ours: PACKET_BYTES });
        }
        let Some(&kind) = bytes.get(MAGIC.len()) else {
            return Err(Mismatch::Length { theirs: bytes.len(), ours: PACKET_BYTES });
        };
        let text = || String::from_utf8_lossy(&bytes[TEXT..]).replace(char::is_control, " ");
        match kind {
            Self::HELLO => Ok(Packet::Hello(Greeting::decode(bytes)?)),
            Self::WELCOME => Ok(Packet::Welcome(Greeting::decode(bytes)?)),
            Self::REFUSED => Ok(Packet::Refused(text())),
            Self::LATER => Ok(Packet::Later(text())),
            Self::CLOSED => Ok(Packet::Closed),
            Self::ASK_STAGING => Ok(Packet::AskStaging),
            Self::STAGING => Ok(Packet::Staging),
            Self::NO_STAGING => Ok(Packet::NoStaging),
            Self::DIRECT => Ok(Packet::Direct),
            Self::ONE_SIDED => Ok(Packet::OneSided),
            Self::ASK => Ok(Packet::Ask),
            Self::ANSWER => Ok(Packet::Answer),
            Self::RING | Self::SHARED => match <[u8; 8]>::try_from(&bytes[TEXT..]).map(u64::from_ne_bytes) {
                Ok(ring) if kind == Self::RING => Ok(Packet::Ring(ring)),
                Ok(key) => Ok(Packet::Shared(key)),
                Err(_) => Err(Mismatch::Length { theirs: bytes.len(), ours: TEXT + 8 }),
            },
            unknown => Err(Mismatch::Kind(unknown)),
        }
    }
}

#[cfg(test)]
mod tests;
