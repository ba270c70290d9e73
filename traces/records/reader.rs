//! Converts records back to events. The input may contain anything.

use super::parts::{MAGIC_SWAPPED, Parts, wrong};
use super::*;
use crate::Depths;
use crate::read::error::ReadError;
use std::borrow::Cow;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::fs::FileExt;
use tickwire_components::VcState;

/// How often the beginning of a file is read anew at most, because the writer has changed it meanwhile.
const MOMENTS_MAX: usize = 100;

/// Reads events out of records.
#[derive(Debug)]
pub(crate) struct Reader<R> {
    parts: Parts<R>,
    /// Bytes of records before the current one.
    read: u64,
    /// The offset of the record in which the file ends, or before which it ends too early.
    cut: Option<u64>,
    clock_ns: u64,
    depths: [u64; DEPTHS],
    names: Vec<String>,
    /// The words of the current record, including its head.
    words: Vec<u64>,
    text: String,
}

/// Whether a file begins like a file of records, or like one whose process died while creating it.
pub(crate) fn is_records(bytes: &[u8]) -> bool {
    let bytes = &bytes[..bytes.len().min(8)];
    [0, MAGIC, MAGIC_SWAPPED].iter().any(|magic| magic.to_ne_bytes().starts_with(bytes))
}

/// Whether a file of `length` bytes is one of records, or was to become one when its process died. `page` is its beginning, as much as there
/// is of a page. Unlike [`is_records`], this does not take another file for one: what is asked is whether the file may be removed.
pub(crate) fn is_left_part(page: &[u8], length: u64) -> bool {
    let begins = |magic: u64| page.starts_with(&magic.to_ne_bytes());
    // A new file gets room for its page before it is written.
    let is_new = || length == 0 || (length == PAGE_BYTES as u64 && page.iter().all(|byte| *byte == 0));
    begins(MAGIC) || begins(MAGIC_SWAPPED) || is_new()
}

/// Makes a file of records readable while it may still be written. What the writer changes in place, page and buffer, is read as of one
/// moment. What is behind them never changes.
///
/// # Errors
/// The file cannot be read.
pub(crate) fn at_one_moment(file: File) -> io::Result<impl Read> {
    let mut begin = Vec::new();
    // A pipe has no beginning to go back to, and nobody changes what comes out of it.
    let moments = if (&file).stream_position().is_ok() { MOMENTS_MAX } else { 0 };
    for _ in 0..moments {
        begin.clear();
        (&file).seek(SeekFrom::Start(0))?;
        (&file).take((PAGE_WORDS + BUFFER_WORDS) as u64 * 8).read_to_end(&mut begin)?;
        let read = |bytes: &[u8]| bytes.first_chunk().copied().map_or(0, u64::from_ne_bytes);
        let mut now = [0; 8];
        let bytes = file.read_at(&mut now, STATE as u64 * 8)?;
        let before = State::of_word(begin.get(STATE * 8..).map_or(0, read));
        // The buffer was emptied meanwhile if more is behind it.
        if State::of_word(read(&now[..bytes])).behind == before.behind {
            break;
        }
    }
    Ok(io::Cursor::new(begin).chain(file))
}

impl<R: Read> Reader<R> {
    /// Reads the beginning of a file.
    ///
    /// # Errors
    /// If it is no file of records, or one of another version or byte order.
    pub(crate) fn new(input: R) -> Result<Self, ReadError> {
        let (parts, names, words, text) = (Parts::new(input)?, Vec::new(), Vec::new(), String::new());
        Ok(Reader { parts, read: 0, cut: None, clock_ns: 0, depths: [0; DEPTHS], names, words, text })
    }

    /// The next event; `None` at the end.
    ///
    /// # Errors
    /// If the file cannot be read, or a record is invalid.
    pub(crate) fn next(&mut self) -> Result<Option<Event<'_>>, ReadError> {
        loop {
            let Some(head) = self.load()? else { return Ok(None) };
            self.clock_ns = self.clock_ns.wrapping_add(head.since_ns.into());
            match head.kind {
                CLOCK => self.clock_ns = self.words[1],
                NAME => {
                    let number = usize::from(head.small);
                    self.names.resize(self.names.len().max(number + 1), String::new());
                    self.names[number].clone_from(&self.text);
                }
                _ => {
                    let offset = self.parts.offset(self.read - 8 * self.words.len() as u64);
                    return match self.event(head) {
                        Ok(event) => Ok(Some(event)),
                        Err(reason) => wrong(offset, reason),
                    };
                }
            }
        }
    }

    /// The offset of an incomplete record at the end of the file, which is left out. Known once all records are read.
    pub(crate) fn cut(&self) -> Option<u64> {
        self.cut
    }

    fn wrong<T>(&self, reason: impl Into<String>) -> Result<T, ReadError> {
        wrong(self.parts.offset(self.read), reason)
    }

    /// Reads a word; `None` if the records end before it or within it.
    fn word(&mut self) -> io::Result<Option<u64>> {
        let (mut bytes, mut filled) = ([0; 8], 0);
        while filled < 8 {
            match self.parts.read(&mut bytes[filled..]) {
                Ok(0) => {
                    if filled > 0 || self.parts.short {
                        self.cut = Some(self.parts.offset(self.read));
                    }
                    return Ok(None);
                }
                Ok(read) => filled += read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(Some(u64::from_ne_bytes(bytes)))
    }

    /// Reads a record into `words`, and its text if it has any. `None` at the end.
    fn load(&mut self) -> Result<Option<Head>, ReadError> {
        self.words.clear();
        if self.cut.is_some() {
            return Ok(None);
        }
        let Some(first) = self.word()? else { return Ok(None) };
        let head = Head::of_word(first);
        let Some(least) = words_of(head) else {
            return self.wrong(format!("there is no record of kind {} and {}", head.kind, head.small));
        };
        let (count, text) = (usize::from(head.words), is_text(head.kind));
        if if text { !(least..=WORDS_MAX).contains(&count) } else { count != least } {
            return self.wrong(format!("a record of kind {} has not {count} words", head.kind));
        }
        self.words.push(first);
        while self.words.len() < count {
            let Some(word) = self.word()? else {
                self.cut = Some(self.parts.offset(self.read));
                return Ok(None);
            };
            self.words.push(word);
        }
        if text {
            self.take_text()?;
        }
        self.read += 8 * count as u64;
        Ok(Some(head))
    }

    /// Decodes the text in the words of a record.
    fn take_text(&mut self) -> Result<(), ReadError> {
        let (length, count) = ((self.words[1] >> 32) as usize, self.words.len());
        let bytes: Vec<u8> = self.words[2..].iter().flat_map(|word| word.to_le_bytes()).collect();
        if length.div_ceil(8) + 2 != count {
            return self.wrong(format!("text of {length} bytes in a record of {count} words"));
        }
        match std::str::from_utf8(&bytes[..length]) {
            Ok(text) => text.clone_into(&mut self.text),
            Err(_) => return self.wrong("text that is no UTF-8"),
        }
        Ok(())
    }

    /// The event of the current record, or a description of what is invalid.
    fn event(&mut self, head: Head) -> Result<Event<'_>, &'static str> {
        const NO_SYSTEM: &str = "a system of a number that none has";
        let at_ns = self.clock_ns;
        if matches!(head.kind, TICK_ENDED | TICK_ENDED_WIDE | WAITING) {
            self.take_depths(head);
        }
        let (words, text) = (&self.words[1..], Cow::Borrowed(&*self.text));
        let number = |index: usize| words[index];
        let (low, high) = (|index: usize| words[index] as u32, |index: usize| (words[index] >> 32) as u32);
        let since = |lasted_ns: u64| at_ns.wrapping_sub(lasted_ns);
        Ok(match head.kind {
            ENGINE => Event::Engine { rank: low(0), size: high(0) },
            SYSTEM => Event::System { system: u16::try_from(low(0)).map_err(|_| NO_SYSTEM)?, name: text },
            DELIVERED => {
                let (begin_ns, read_ns) = (since(low(0).into()), since(high(0).into()));
                Event::Delivered { begin_ns, read_ns, end_ns: at_ns, work: packed_work(number(1)) }
            }
            DELIVERED_WIDE => {
                let work = unpacked_work(&words[2..]);
                Event::Delivered { begin_ns: since(number(0)), read_ns: since(number(1)), end_ns: at_ns, work }
            }
            WAITING => Event::Waiting { depths: of_values(self.depths), at_ns },
            TICK_BEGAN => Event::TickBegan { at_ns },
            SYSTEM_RAN => {
                let (system, rows) = (low(0) as u16, u64::from(low(0) >> 16));
                Event::SystemRan { system, rows, begin_ns: since(high(0).into()), end_ns: at_ns }
            }
            SYSTEM_RAN_WIDE => {
                let system = u16::try_from(number(0)).map_err(|_| NO_SYSTEM)?;
                Event::SystemRan { system, rows: number(1), begin_ns: since(number(2)), end_ns: at_ns }
            }
            TICK_ENDED => {
                let (work, passes) = (packed_work(number(0)), number(0) as u32 & 0xFF);
                Event::TickEnded { at_ns, work, passes, depths: of_values(self.depths) }
            }
            TICK_ENDED_WIDE => {
                Event::TickEnded { at_ns, work: unpacked_work(words), passes: low(0), depths: of_values(self.depths) }
            }
            SENT | RECEIVED | SENT_WIDE | RECEIVED_WIDE => {
                let wide = matches!(head.kind, SENT_WIDE | RECEIVED_WIDE);
                let (bytes, number, lasted_ns) = match wide {
                    true => (number(2), number(3), number(4)),
                    false => (low(2).into(), high(2).into(), high(0).into()),
                };
                let (proc, context, tag) = (low(0), low(1), high(1));
                let message = Message { proc, context, tag, bytes, number, begin_ns: since(lasted_ns), end_ns: at_ns };
                if matches!(head.kind, SENT | SENT_WIDE) { Event::Sent(message) } else { Event::Received(message) }
            }
            VC_CHANGED => {
                let states = [VcState::Unconnected, VcState::Connecting, VcState::Connected, VcState::Failed];
                let state = states.get(usize::from(head.small)).ok_or("a connection in a state that there is not")?;
                Event::VcChanged { proc: low(0), state: *state, reason: text, at_ns }
            }
            MOVED | CALLED | CALLED_WIDE | ACCESSED | ACCESSED_WIDE | STARTED | STARTED_ACCESS | ENDED => {
                self.named_event(head)?
            }
            _ => Event::Error { words: text, at_ns },
        })
    }

    /// The event of the current record, whose name has a number.
    fn named_event(&self, head: Head) -> Result<Event<'_>, &'static str> {
        let at_ns = self.clock_ns;
        let name = self.names.get(usize::from(head.small)).ok_or(match head.kind {
            MOVED => "a transport that has no name",
            STARTED | STARTED_ACCESS | ENDED => "an operation that has no name",
            _ => "a call that has no name",
        })?;
        let (name, words) = (Cow::Borrowed(&**name), &self.words[1..]);
        let number = |index: usize| words[index];
        let (low, high) = (|index: usize| words[index] as u32, |index: usize| (words[index] >> 32) as u32);
        let since = |lasted_ns: u64| at_ns.wrapping_sub(lasted_ns);
        Ok(match head.kind {
            CALLED | CALLED_WIDE => {
                let lasted_ns = if head.kind == CALLED_WIDE { number(1) } else { high(0).into() };
                Event::Called { name, context: low(0), begin_ns: since(lasted_ns), end_ns: at_ns }
            }
            ACCESSED | ACCESSED_WIDE => {
                let (bytes, lasted_ns) = match head.kind {
                    ACCESSED_WIDE => (number(1), number(2)),
                    _ => (low(1).into(), high(1).into()),
                };
                let access = Access { window: low(0), target: high(0), bytes };
                Event::Accessed { name, access, begin_ns: since(lasted_ns), end_ns: at_ns }
            }
            STARTED | STARTED_ACCESS => {
                let about = match head.kind {
                    STARTED_ACCESS => About::Memory(Access { window: low(1), target: high(1), bytes: number(2) }),
                    _ => About::Comm(u32::try_from(number(1)).map_err(|_| "a communicator that there is not")?),
                };
                Event::Started { operation: number(0), name, about, at_ns }
            }
            ENDED => Event::Ended { operation: number(0), name, at_ns },
            MOVED => Event::Moved { transport: name, sent_bytes: number(0), received_bytes: number(1), at_ns },
            _ => return Err("a record that has no name"),
        })
    }

    /// Updates the depths that have changed, which are at the end of the record.
    fn take_depths(&mut self, head: Head) {
        let changed = head.small.count_ones() as usize;
        let values = self.words.len() - changed;
        let indices = (0..DEPTHS).filter(|index| head.small >> index & 1 == 1);
        for (index, value) in indices.zip(&self.words[values..]) {
            self.depths[index] = *value;
        }
    }
}

/// Whether a record of this kind ends with text.
fn is_text(kind: u8) -> bool {
    matches!(kind, SYSTEM | NAME | VC_CHANGED | ERROR)
}

/// Number of words of a record; for a record with text, the least number. `None` if there is no such record.
fn words_of(head: Head) -> Option<usize> {
    let depths = head.small.count_ones() as usize;
    Some(match head.kind {
        TICK_BEGAN => 1,
        WAITING if head.small >> DEPTHS == 0 => 1 + depths,
        DELIVERED => 3,
        DELIVERED_WIDE => 6,
        ENGINE | CLOCK | SYSTEM_RAN | SYSTEM | NAME | VC_CHANGED | ERROR | CALLED | ENDED => 2,
        MOVED | CALLED_WIDE | ACCESSED | STARTED => 3,
        SENT | RECEIVED | SYSTEM_RAN_WIDE | ACCESSED_WIDE | STARTED_ACCESS => 4,
        SENT_WIDE | RECEIVED_WIDE => 6,
        TICK_ENDED if head.small >> DEPTHS == 0 => 2 + depths,
        TICK_ENDED_WIDE if head.small >> DEPTHS == 0 => 4 + depths,
        _ => return None,
    })
}

/// The work in a word that has passes and work.
fn packed_work(word: u64) -> Work {
    let [_, posted, matched, sent, received, completed, ..] = word.to_le_bytes().map(u32::from);
    Work { posted, matched, sent, received, completed }
}

/// The work in three words that have passes and work.
fn unpacked_work(words: &[u64]) -> Work {
    let (low, high) = (|index: usize| words[index] as u32, |index: usize| (words[index] >> 32) as u32);
    Work { posted: high(0), matched: low(1), sent: high(1), received: low(2), completed: high(2) }
}

fn of_values([posted, wildcard, unexpected, unexpected_bytes, cars, credit_bytes]: [u64; DEPTHS]) -> Depths {
    Depths { posted, wildcard, unexpected, unexpected_bytes, cars, credit_bytes }
}

#[cfg(test)]
mod tests;
