//! The format of events in a file while a job runs: words of 64 bits, in the byte order of the machine.
//!
//! **Records.** Each record begins with a [`Head`]: its kind, its number of words, and the ns since the previous record. Times are
//! differences of 32 bits; for a longer one, an extra record gives the time. Small numbers are packed; the kind says which. The name of
//! a transport, a call or an operation is recorded once, and later records use its number. Text is at the end of its record, padded
//! with zeros.
//!
//! **The file** begins with a page: [`MAGIC`], [`VERSION`], the number of words of records in this page, and the [state](State) of the
//! rest. The page is filled first. After the page comes a buffer of 64 KiB, and then everything that has been in the buffer. Records go
//! to the buffer. When it is full, its content is written to the end of the file, and the buffer is filled anew.
//!
//! Page and buffer are mapped, so what is stored there is in the file at once. A count is stored after the words that it counts, and one
//! word has the counts of both buffer and rest. So each record is in the file once and complete, whenever the process is killed.

mod parts;
pub(crate) mod reader;

use crate::event::{About, Access, Event, Message};
use tickwire_components::Work;

/// The first word of a file of records: these letters, on a little-endian machine.
pub(crate) const MAGIC: u64 = u64::from_le_bytes(*b"tickwtrc");
/// The version of the format.
pub(crate) const VERSION: u64 = 4;
/// Longest text in a record, bytes. Longer text is cut.
pub(crate) const TEXT_MAX: usize = 4096;
/// Words of a record at most.
pub(crate) const WORDS_MAX: usize = 4 + TEXT_MAX / 8;
/// Words of the page, including those before its records.
pub(crate) const PAGE_WORDS: usize = 512;
/// Bytes of the page.
pub(crate) const PAGE_BYTES: usize = PAGE_WORDS * 8;
/// Words before the records of the page.
pub(crate) const BEGIN_WORDS: usize = 4;
/// Index of the word that counts the words of records in the page.
pub(crate) const IN_PAGE: usize = 2;
/// Index of the word with the state.
pub(crate) const STATE: usize = 3;
/// Words of the buffer.
pub(crate) const BUFFER_WORDS: usize = 8192;
/// Names of transports and calls that have a number at the same time, at most.
const NAMES_MAX: usize = 256;

/// Kinds of records. Those with `_WIDE` hold numbers of any size.
const ENGINE: u8 = 1;
const SYSTEM: u8 = 2;
const CLOCK: u8 = 3;
const NAME: u8 = 4;
const TICK_BEGAN: u8 = 5;
const SYSTEM_RAN: u8 = 6;
const SYSTEM_RAN_WIDE: u8 = 7;
const TICK_ENDED: u8 = 8;
const TICK_ENDED_WIDE: u8 = 9;
const SENT: u8 = 10;
const SENT_WIDE: u8 = 11;
const RECEIVED: u8 = 12;
const RECEIVED_WIDE: u8 = 13;
const VC_CHANGED: u8 = 14;
const MOVED: u8 = 15;
const ERROR: u8 = 16;
const DELIVERED: u8 = 17;
const DELIVERED_WIDE: u8 = 18;
const WAITING: u8 = 19;
const CALLED: u8 = 20;
const CALLED_WIDE: u8 = 21;
const ACCESSED: u8 = 22;
const ACCESSED_WIDE: u8 = 23;
const STARTED: u8 = 24;
const STARTED_ACCESS: u8 = 25;
const ENDED: u8 = 26;

/// Number of values of [`Depths`](crate::Depths).
const DEPTHS: usize = crate::Depths::NAMES.len();

/// How much is in a file behind its page.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct State {
    /// Words behind the buffer. 48 bits.
    pub(crate) behind: u64,
    /// Words in the buffer.
    pub(crate) buffered: u16,
}

impl State {
    #[inline(always)]
    pub(crate) fn word(self) -> u64 {
        self.behind << 16 | u64::from(self.buffered)
    }

    pub(crate) fn of_word(word: u64) -> Self {
        State { behind: word >> 16, buffered: word as u16 }
    }
}

/// The first word of a record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Head {
    /// One of the kinds.
    kind: u8,
    /// A small number: which depths have changed, the state of a VC, the number of a name.
    small: u8,
    /// Words of the record, including this one.
    words: u16,
    /// Time since the previous record, ns.
    since_ns: u32,
}

impl Head {
    #[inline(always)]
    fn word(self) -> u64 {
        let Head { kind, small, words, since_ns } = self;
        u64::from(kind) | u64::from(small) << 8 | u64::from(words) << 16 | u64::from(since_ns) << 32
    }

    fn of_word(word: u64) -> Self {
        Head { kind: word as u8, small: (word >> 8) as u8, words: (word >> 16) as u16, since_ns: (word >> 32) as u32 }
    }
}

/// Two numbers in a word.
#[inline(always)]
fn pair(low: u32, high: u32) -> u64 {
    u64::from(low) | u64::from(high) << 32
}

/// Passes and work in one word; `None` if one of them does not fit into a byte.
#[inline(always)]
fn packed(counts: [u32; 6]) -> Option<u64> {
    let narrow = counts.iter().fold(0, |all, count| all | count) <= u32::from(u8::MAX);
    narrow.then(|| counts.iter().rev().fold(0, |word, count| word << 8 | u64::from(*count)))
}

/// Passes and work of any size.
#[inline(always)]
fn unpacked(passes: u32, work: Work) -> [u64; 3] {
    let Work { posted, matched, sent, received, completed } = work;
    [pair(passes, posted), pair(matched, sent), pair(received, completed)]
}

/// A destination of records.
pub(crate) trait Words {
    /// Appends the words of a record.
    fn put(&mut self, words: &[u64]);
}

/// Converts events to records. An event that goes back in time is recorded too, but takes more room.
#[derive(Debug, Default)]
pub(crate) struct Recorder {
    /// The time of the last record with a time, ns.
    clock_ns: u64,
    /// The depths that were recorded last.
    depths: [u64; DEPTHS],
    /// Names of transports and calls by number. A new name replaces the oldest one.
    names: Vec<String>,
    /// The number of the next name.
    next_name: usize,
}

impl Recorder {
    /// Writes the records of an event.
    #[inline(always)]
    pub(crate) fn record(&mut self, event: &Event<'_>, out: &mut impl Words) {
        match event {
            Event::Delivered { begin_ns, read_ns, end_ns, work } => {
                let [lasted_ns, reading_ns] = [begin_ns, read_ns].map(|at_ns| end_ns.wrapping_sub(*at_ns));
                let narrow = packed([0, work.posted, work.matched, work.sent, work.received, work.completed]);
                match (u32::try_from(lasted_ns), u32::try_from(reading_ns), narrow) {
                    (Ok(ns), Ok(reading), Some(counts)) => {
                        self.put(out, DELIVERED, 0, *end_ns, [pair(ns, reading), counts]);
                    }
                    _ => {
                        let [first, second, third] = unpacked(0, *work);
                        self.put(out, DELIVERED_WIDE, 0, *end_ns, [lasted_ns, reading_ns, first, second, third]);
                    }
                }
            }
            Event::Waiting { depths, at_ns } => self.waiting(out, *at_ns, depths.values()),
            Event::TickBegan { at_ns } => self.put(out, TICK_BEGAN, 0, *at_ns, []),
            Event::SystemRan { system, rows, begin_ns, end_ns } => {
                let lasted_ns = end_ns.wrapping_sub(*begin_ns);
                match (u16::try_from(*rows), u32::try_from(lasted_ns)) {
                    (Ok(rows), Ok(ns)) => {
                        let word = pair(u32::from(*system) | u32::from(rows) << 16, ns);
                        self.put(out, SYSTEM_RAN, 0, *end_ns, [word]);
                    }
                    _ => self.put(out, SYSTEM_RAN_WIDE, 0, *end_ns, [(*system).into(), *rows, lasted_ns]),
                }
            }
            Event::TickEnded { at_ns, work, passes, depths } => {
                self.tick_ended(out, *at_ns, *work, *passes, depths.values());
            }
            Event::Sent(message) => self.message(out, [SENT, SENT_WIDE], message),
            Event::Received(message) => self.message(out, [RECEIVED, RECEIVED_WIDE], message),
            Event::Moved { .. }
            | Event::Called { .. }
            | Event::Accessed { .. }
            | Event::Started { .. }
            | Event::Ended { .. } => self.named(event, out),
            Event::Engine { .. } | Event::System { .. } | Event::VcChanged { .. } | Event::Error { .. } => {
                self.seldom(event, out);
            }
        }
    }

    /// Writes the events whose names have numbers.
    #[inline]
    fn named(&mut self, event: &Event<'_>, out: &mut impl Words) {
        match event {
            Event::Moved { transport, sent_bytes, received_bytes, at_ns } => {
                let number = self.number(out, transport);
                self.put(out, MOVED, number, *at_ns, [*sent_bytes, *received_bytes]);
            }
            Event::Called { name, context, begin_ns, end_ns } => {
                let number = self.number(out, name);
                let lasted_ns = end_ns.wrapping_sub(*begin_ns);
                match u32::try_from(lasted_ns) {
                    Ok(ns) => self.put(out, CALLED, number, *end_ns, [pair(*context, ns)]),
                    Err(_) => self.put(out, CALLED_WIDE, number, *end_ns, [(*context).into(), lasted_ns]),
                }
            }
            Event::Accessed { name, access, begin_ns, end_ns } => {
                let Access { window, target, bytes } = *access;
                let (number, lasted_ns) = (self.number(out, name), end_ns.wrapping_sub(*begin_ns));
                let place = pair(window, target);
                match (u32::try_from(bytes), u32::try_from(lasted_ns)) {
                    (Ok(bytes), Ok(ns)) => self.put(out, ACCESSED, number, *end_ns, [place, pair(bytes, ns)]),
                    _ => self.put(out, ACCESSED_WIDE, number, *end_ns, [place, bytes, lasted_ns]),
                }
            }
            Event::Started { operation, name, about, at_ns } => {
                let number = self.number(out, name);
                match *about {
                    About::Comm(context) => self.put(out, STARTED, number, *at_ns, [*operation, context.into()]),
                    About::Memory(Access { window, target, bytes }) => {
                        self.put(out, STARTED_ACCESS, number, *at_ns, [*operation, pair(window, target), bytes]);
                    }
                }
            }
            Event::Ended { operation, name, at_ns } => {
                let number = self.number(out, name);
                self.put(out, ENDED, number, *at_ns, [*operation]);
            }
            _ => {}
        }
    }

    /// Writes the rare events, which mostly have text.
    #[cold]
    fn seldom(&mut self, event: &Event<'_>, out: &mut impl Words) {
        match event {
            Event::Engine { rank, size } => self.put(out, ENGINE, 0, self.clock_ns, [pair(*rank, *size)]),
            Event::System { system, name } => self.text(out, SYSTEM, 0, self.clock_ns, (*system).into(), name),
            Event::VcChanged { proc, state, reason, at_ns } => {
                self.text(out, VC_CHANGED, *state as u8, *at_ns, *proc, reason);
            }
            Event::Error { words, at_ns } => self.text(out, ERROR, 0, *at_ns, 0, words),
            _ => {}
        }
    }

    /// Writes a record of a head and some words.
    #[inline(always)]
    fn put<const N: usize>(&mut self, out: &mut impl Words, kind: u8, small: u8, at_ns: u64, rest: [u64; N]) {
        let since_ns = self.since_ns(out, at_ns);
        let mut words = [0; 8];
        words[0] = Head { kind, small, words: N as u16 + 1, since_ns }.word();
        words[1..=N].copy_from_slice(&rest);
        out.put(&words[..=N]);
    }

    /// Advances the clock to a time, with an extra record if the difference is too long. Returns the ns since the previous record.
    #[inline(always)]
    fn since_ns(&mut self, out: &mut impl Words, at_ns: u64) -> u32 {
        let since_ns = at_ns.wrapping_sub(self.clock_ns);
        self.clock_ns = at_ns;
        u32::try_from(since_ns).unwrap_or_else(|_| {
            out.put(&[Head { kind: CLOCK, small: 0, words: 2, since_ns: 0 }.word(), at_ns]);
            0
        })
    }

    /// Writes a record of a head, a number and text.
    fn text(&mut self, out: &mut impl Words, kind: u8, small: u8, at_ns: u64, number: u32, text: &str) {
        let since_ns = self.since_ns(out, at_ns);
        let end = (0..=text.len().min(TEXT_MAX)).rev().find(|&end| text.is_char_boundary(end)).unwrap_or(0);
        let text = &text.as_bytes()[..end];
        let mut words = [0; WORDS_MAX];
        words[1] = pair(number, text.len() as u32);
        let mut count = 2;
        for chunk in text.chunks(8) {
            let mut bytes = [0; 8];
            bytes[..chunk.len()].copy_from_slice(chunk);
            words[count] = u64::from_le_bytes(bytes);
            count += 1;
        }
        words[0] = Head { kind, small, words: count as u16, since_ns }.word();
        out.put(&words[..count]);
    }

    #[inline(always)]
    fn message(&mut self, out: &mut impl Words, [narrow, wide]: [u8; 2], message: &Message) {
        let Message { proc, context, tag, bytes, number, begin_ns, end_ns } = *message;
        let (lasted_ns, envelope) = (end_ns.wrapping_sub(begin_ns), pair(context, tag));
        match (u32::try_from(lasted_ns), u32::try_from(bytes), u32::try_from(number)) {
            (Ok(ns), Ok(bytes), Ok(number)) => {
                self.put(out, narrow, 0, end_ns, [pair(proc, ns), envelope, pair(bytes, number)]);
            }
            _ => self.put(out, wide, 0, end_ns, [proc.into(), envelope, bytes, number, lasted_ns]),
        }
    }

    /// Writes the end of a tick, with the depths that have changed.
    #[inline(always)]
    fn tick_ended(&mut self, out: &mut impl Words, at_ns: u64, work: Work, passes: u32, depths: [u64; DEPTHS]) {
        let since_ns = self.since_ns(out, at_ns);
        let mut words = [0; 4 + DEPTHS];
        let narrow = packed([passes, work.posted, work.matched, work.sent, work.received, work.completed]);
        let (kind, count) = match narrow {
            Some(counts) => {
                words[1] = counts;
                (TICK_ENDED, 2)
            }
            None => {
                words[1..4].copy_from_slice(&unpacked(passes, work));
                (TICK_ENDED_WIDE, 4)
            }
        };
        let (changed, count) = self.changed(depths, &mut words, count);
        words[0] = Head { kind, small: changed, words: count as u16, since_ns }.word();
        out.put(&words[..count]);
    }

    /// Writes the depths that have changed.
    fn waiting(&mut self, out: &mut impl Words, at_ns: u64, depths: [u64; DEPTHS]) {
        let since_ns = self.since_ns(out, at_ns);
        let mut words = [0; 1 + DEPTHS];
        let (changed, count) = self.changed(depths, &mut words, 1);
        words[0] = Head { kind: WAITING, small: changed, words: count as u16, since_ns }.word();
        out.put(&words[..count]);
    }

    /// Appends the depths that have changed to the first `count` words. Returns which depths these are, as bits, and the new number of
    /// words.
    #[inline(always)]
    fn changed(&mut self, depths: [u64; DEPTHS], words: &mut [u64], mut count: usize) -> (u8, usize) {
        let mut changed = 0;
        for (index, (value, before)) in depths.into_iter().zip(&mut self.depths).enumerate() {
            if std::mem::replace(before, value) != value {
                changed |= 1 << index;
                words[count] = value;
                count += 1;
            }
        }
        (changed, count)
    }

    /// The number of a name. A new name is recorded first.
    #[inline(always)]
    fn number(&mut self, out: &mut impl Words, name: &str) -> u8 {
        match self.names.iter().position(|known| known == name) {
            Some(number) => number as u8,
            None => self.new_number(out, name),
        }
    }

    #[cold]
    fn new_number(&mut self, out: &mut impl Words, name: &str) -> u8 {
        let number = self.next_name;
        self.next_name = (number + 1) % NAMES_MAX;
        self.names.resize(self.names.len().max(number + 1), String::new());
        name.clone_into(&mut self.names[number]);
        self.text(out, NAME, number as u8, self.clock_ns, 0, name);
        number as u8
    }
}
