//! The records of a file, put in their order. The input may contain anything.

use super::*;
use crate::read::error::ReadError;
use std::io::{self, Read};

/// The first word of a file from a machine of the other byte order.
pub(super) const MAGIC_SWAPPED: u64 = MAGIC.swap_bytes();

/// The records of a file, in their order: those of its page, those behind the buffer, and those in the buffer.
#[derive(Debug)]
pub(super) struct Parts<R> {
    page: Vec<u8>,
    behind: io::Take<R>,
    buffer: Vec<u8>,
    /// Bytes that have been read of page, rest and buffer.
    read: [u64; 3],
    /// Bytes that there should be behind the buffer.
    behind_bytes: u64,
    /// Whether the file is too short.
    pub(super) short: bool,
}

/// Reads up to `bytes` bytes; fewer if the file ends.
fn take(input: impl Read, bytes: usize) -> io::Result<Vec<u8>> {
    let mut taken = Vec::new();
    input.take(bytes as u64).read_to_end(&mut taken)?;
    Ok(taken)
}

/// The error about a record at an offset.
pub(super) fn wrong<T>(offset: u64, reason: impl Into<String>) -> Result<T, ReadError> {
    Err(ReadError::Record { offset, reason: reason.into() })
}

impl<R: Read> Parts<R> {
    /// Reads page and buffer.
    pub(super) fn new(mut input: R) -> Result<Self, ReadError> {
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
    pub(super) fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
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
    pub(super) fn offset(&self, byte: u64) -> u64 {
        let (page, behind) = (self.page.len() as u64, self.behind_bytes);
        let buffer_at = PAGE_WORDS as u64 * 8;
        match byte {
            _ if byte < page || behind == 0 && self.buffer.is_empty() => BEGIN_WORDS as u64 * 8 + byte,
            _ if byte < page + behind => buffer_at + BUFFER_WORDS as u64 * 8 + (byte - page),
            _ => buffer_at + (byte - page - behind),
        }
    }
}
