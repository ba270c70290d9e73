//! The format of events in a ring: a fixed number of 64-bit words each.

use crate::event::{About, Access, Depths, Event, Message};
use std::borrow::Cow;
use tickwire_components::Work;

/// Words of the longest event.
pub(super) const WORDS: usize = 4 + 1 + DEPTHS;
/// Number of values of [`Depths`].
const DEPTHS: usize = Depths::NAMES.len();

/// The kind of an entry: the lower half of its first word.
const DELIVERED: u32 = 1;
const WAITING: u32 = 2;
const TICK_BEGAN: u32 = 3;
const SYSTEM_RAN: u32 = 4;
const TICK_ENDED: u32 = 5;
const SENT: u32 = 6;
const RECEIVED: u32 = 7;
const MOVED: u32 = 8;
const APART: u32 = 9;
const CALLED: u32 = 10;
const ACCESSED: u32 = 11;
const STARTED: u32 = 12;
const STARTED_ACCESS: u32 = 13;
const ENDED: u32 = 14;

/// A decoded entry.
#[derive(PartialEq, Debug)]
pub(super) enum Entry {
    /// The complete event.
    Event(Event<'static>),
    /// An event of a transport, a call or an operation whose name has this number. The event still needs the name.
    Named(usize, Event<'static>),
    /// An event with text, which is stored separately.
    Apart,
}

fn pair(low: u32, high: u32) -> u64 {
    u64::from(low) | u64::from(high) << 32
}

fn halves(word: u64) -> (u32, u32) {
    (word as u32, (word >> 32) as u32)
}

#[inline(always)]
pub(super) fn delivered(begin_ns: u64, read_ns: u64, end_ns: u64, work: &Work) -> [u64; 6] {
    let [first, second, third] = work_words(DELIVERED, work);
    [first, second, third, begin_ns, read_ns, end_ns]
}

#[inline(always)]
pub(super) fn waiting(at_ns: u64, depths: &Depths) -> [u64; 2 + DEPTHS] {
    let [a, b, c, d, e, f] = depths.values();
    [pair(WAITING, 0), at_ns, a, b, c, d, e, f]
}

#[inline(always)]
pub(super) fn tick_began(at_ns: u64) -> [u64; 2] {
    [pair(TICK_BEGAN, 0), at_ns]
}

#[inline(always)]
pub(super) fn system_ran(system: u16, rows: u64, begin_ns: u64, end_ns: u64) -> [u64; 4] {
    [pair(SYSTEM_RAN, system.into()), rows, begin_ns, end_ns]
}

#[inline(always)]
pub(super) fn tick_ended(at_ns: u64, work: &Work, passes: u32, depths: &Depths) -> [u64; WORDS] {
    let [first, second, third] = work_words(TICK_ENDED, work);
    let [a, b, c, d, e, f] = depths.values();
    [first, second, third, pair(passes, 0), at_ns, a, b, c, d, e, f]
}

#[inline(always)]
pub(super) fn sent(message: &Message) -> [u64; 6] {
    message_words(SENT, message)
}

#[inline(always)]
pub(super) fn received(message: &Message) -> [u64; 6] {
    message_words(RECEIVED, message)
}

pub(super) fn moved(name: u32, sent_bytes: u64, received_bytes: u64, at_ns: u64) -> [u64; 4] {
    [pair(MOVED, name), sent_bytes, received_bytes, at_ns]
}

pub(super) fn called(name: u32, context: u32, begin_ns: u64, end_ns: u64) -> [u64; 4] {
    [pair(CALLED, name), context.into(), begin_ns, end_ns]
}

pub(super) fn accessed(name: u32, access: &Access, begin_ns: u64, end_ns: u64) -> [u64; 5] {
    let Access { window, target, bytes } = *access;
    [pair(ACCESSED, name), pair(window, target), bytes, begin_ns, end_ns]
}

pub(super) fn started(name: u32, operation: u64, about: &About, at_ns: u64) -> [u64; 5] {
    match *about {
        About::Comm(context) => [pair(STARTED, name), pair(context, 0), 0, operation, at_ns],
        About::Memory(Access { window, target, bytes }) => {
            [pair(STARTED_ACCESS, name), pair(window, target), bytes, operation, at_ns]
        }
    }
}

pub(super) fn ended(name: u32, operation: u64, at_ns: u64) -> [u64; 3] {
    [pair(ENDED, name), operation, at_ns]
}

pub(super) fn apart() -> [u64; 1] {
    [pair(APART, 0)]
}

#[inline(always)]
fn work_words(kind: u32, work: &Work) -> [u64; 3] {
    [pair(kind, work.posted), pair(work.matched, work.sent), pair(work.received, work.completed)]
}

#[inline(always)]
fn message_words(kind: u32, message: &Message) -> [u64; 6] {
    let Message { proc, context, tag, bytes, number, begin_ns, end_ns } = *message;
    [pair(kind, proc), pair(context, tag), bytes, number, begin_ns, end_ns]
}

/// Decodes the words of an entry; `None` if they are invalid.
pub(super) fn read(words: &[u64; WORDS]) -> Option<Entry> {
    let (kind, small) = halves(words[0]);
    let work = || {
        let ((matched, sent), (received, completed)) = (halves(words[1]), halves(words[2]));
        Work { posted: small, matched, sent, received, completed }
    };
    let depths = |at: usize| {
        let [posted, wildcard, unexpected, unexpected_bytes, cars, credit_bytes] =
            std::array::from_fn(|value| words[at + value]);
        Depths { posted, wildcard, unexpected, unexpected_bytes, cars, credit_bytes }
    };
    let message = || {
        let (context, tag) = halves(words[1]);
        let [bytes, number, begin_ns, end_ns] = [words[2], words[3], words[4], words[5]];
        Message { proc: small, context, tag, bytes, number, begin_ns, end_ns }
    };
    Some(Entry::Event(match kind {
        DELIVERED => Event::Delivered { begin_ns: words[3], read_ns: words[4], end_ns: words[5], work: work() },
        WAITING => Event::Waiting { depths: depths(2), at_ns: words[1] },
        TICK_BEGAN => Event::TickBegan { at_ns: words[1] },
        SYSTEM_RAN => Event::SystemRan { system: small as u16, rows: words[1], begin_ns: words[2], end_ns: words[3] },
        TICK_ENDED => {
            let (passes, _) = halves(words[3]);
            Event::TickEnded { at_ns: words[4], work: work(), passes, depths: depths(5) }
        }
        SENT => Event::Sent(message()),
        RECEIVED => Event::Received(message()),
        MOVED | CALLED | ACCESSED | STARTED | STARTED_ACCESS | ENDED => {
            return Some(Entry::Named(small as usize, without_name(kind, words)));
        }
        APART => return Some(Entry::Apart),
        _ => return None,
    }))
}

/// Decodes an event whose name has a number. The name is left empty.
fn without_name(kind: u32, words: &[u64; WORDS]) -> Event<'static> {
    let (name, (low, high)) = (Cow::Borrowed(""), halves(words[1]));
    let access = Access { window: low, target: high, bytes: words[2] };
    match kind {
        MOVED => {
            let [sent_bytes, received_bytes, at_ns] = [words[1], words[2], words[3]];
            Event::Moved { transport: name, sent_bytes, received_bytes, at_ns }
        }
        CALLED => Event::Called { name, context: low, begin_ns: words[2], end_ns: words[3] },
        ACCESSED => Event::Accessed { name, access, begin_ns: words[3], end_ns: words[4] },
        ENDED => Event::Ended { operation: words[1], name, at_ns: words[2] },
        _ => {
            let about = if kind == STARTED { About::Comm(low) } else { About::Memory(access) };
            Event::Started { operation: words[3], name, about, at_ns: words[4] }
        }
    }
}
