//! Converts records back to events. The input may contain anything.

use super::*;
use crate::Depths;
use crate::read::error::ReadError;
use std::borrow::Cow;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::fs::FileExt;
use tickwire_components::VcState;

/// The first word of a file from a machine of the other byte order.
const MAGIC_SWAPPED: u64 = MAGIC.swap_bytes();

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

/// The records of a file, in their order: those of its page, those behind the buffer, and those in the buffer.
#[derive(Debug)]
struct Parts<R> {
    page: Vec<u8>,
    behind: io::Take<R>,
    buffer: Vec<u8>,
    /// Bytes that have been read of page, rest and buffer.
    read: [u64; 3],
    /// Bytes that there should be behind the buffer.
    behind_bytes: u64,
    /// Whether the file is too short.
    short: bool,
}

/// Whether a file begins like a file of records, or like one whose process died while creating it.
pub(crate) fn is_records(bytes: &[u8]) -> bool {
    let bytes = &bytes[..bytes.len().min(8)];
    [0, MAGIC, MAGIC_SWAPPED].iter().any(|magic| magic.to_ne_bytes().starts_with(bytes))
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

/// Reads up to `bytes` bytes; fewer if the file ends.
fn take(input: impl Read, bytes: usize) -> io::Result<Vec<u8>> {
    let mut taken = Vec::new();
    input.take(bytes as u64).read_to_end(&mut taken)?;
    Ok(taken)
}

/// The error about a record at an offset.
fn wrong<T>(offset: u64, reason: impl Into<String>) -> Result<T, ReadError> {
    Err(ReadError::Record { offset, reason: reason.into() })
}

impl<R: Read> Parts<R> {
    /// Reads page and buffer.
    fn new(mut input: R) -> Result<Self, ReadError> {
        let page = take(&mut input, PAGE_WORDS * 8)?;
        // If the process was killed while it created the file, the file has zeros here, or is empty.
        let begin = |index: usize| {
            let bytes = page.get(index * 8..).and_then(<[u8]>::first_chunk);
            bytes.copied().map_or(0, u64::from_ne_bytes)
        };
        match begin(0) {
            0 | MAGIC => {}
            MAGIC_SWAPPED => {
                return wrong(
                    0,
                    "a machine of the other byte order has written this trace: read it on one of that kind",
                );
            }
            _ => return wrong(0, "this is no trace: name a file that `--trace` has written"),
        }
        let (version, in_page, state) = (begin(1), begin(IN_PAGE), State::of_word(begin(STATE)));
        if ![0, VERSION].contains(&version) {
            let words = format!("the trace has version {version} of its form, not {VERSION}");
            return wrong(8, words + ": use the tickwire that has written it");
        }
        if in_page > (PAGE_WORDS - BEGIN_WORDS) as u64 || usize::from(state.buffered) > BUFFER_WORDS {
            return wrong(IN_PAGE as u64 * 8, "it is said to have more records than there can be");
        }
        let (in_page, behind_bytes, buffered) =
            (in_page as usize * 8, state.behind * 8, usize::from(state.buffered) * 8);
        let mut buffer = take(&mut input, BUFFER_WORDS * 8)?;
        let mut page = page.get(BEGIN_WORDS * 8..).unwrap_or_default().to_vec();
        let short = page.len() < in_page || buffer.len() < buffered;
        page.truncate(in_page);
        buffer.truncate(buffered);
        // If a part is too short, the records after it do not continue it.
        let behind_bytes = if page.len() < in_page { 0 } else { behind_bytes };
        if page.len() < in_page {
            buffer.clear();
        }
        Ok(Parts { page, behind: input.take(behind_bytes), buffer, read: [0; 3], behind_bytes, short })
    }

    /// Reads bytes; fewer at the end of a part.
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let [page, behind, buffer] = self.read;
        let (part, read) = if page < self.page.len() as u64 {
            (0, (&self.page[page as usize..]).read(into)?)
        } else if behind < self.behind_bytes {
            (1, self.behind.read(into)?)
        } else {
            (2, (&self.buffer[buffer as usize..]).read(into)?)
        };
        // If a part is too short, the records after it do not continue it.
        if read == 0 && part == 1 {
            (self.short, self.behind_bytes, self.buffer) = (true, behind, Vec::new());
        }
        self.read[part] += read as u64;
        Ok(read)
    }

    /// The place in the file of a byte of the records.
    fn offset(&self, byte: u64) -> u64 {
        let (page, behind) = (self.page.len() as u64, self.behind_bytes);
        let buffer_at = PAGE_WORDS as u64 * 8;
        match byte {
            _ if byte < page || behind == 0 && self.buffer.is_empty() => BEGIN_WORDS as u64 * 8 + byte,
            _ if byte < page + behind => buffer_at + BUFFER_WORDS as u64 * 8 + (byte - page),
            _ => buffer_at + (byte - page - behind),
        }
    }
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
            CALLED | CALLED_WIDE => {
                let name = self.names.get(usize::from(head.small)).ok_or("a call that has no name")?;
                let lasted_ns = if head.kind == CALLED_WIDE { number(1) } else { high(0).into() };
                Event::Called { name: name.into(), context: low(0), begin_ns: since(lasted_ns), end_ns: at_ns }
            }
            MOVED => {
                let name = self.names.get(usize::from(head.small)).ok_or("a transport that has no name")?;
                Event::Moved { transport: name.into(), sent_bytes: number(0), received_bytes: number(1), at_ns }
            }
            _ => Event::Error { words: text, at_ns },
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
        ENGINE | CLOCK | SYSTEM_RAN | SYSTEM | NAME | VC_CHANGED | ERROR | CALLED => 2,
        MOVED | CALLED_WIDE => 3,
        SENT | RECEIVED | SYSTEM_RAN_WIDE => 4,
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
