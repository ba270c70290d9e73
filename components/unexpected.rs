//! Unexpected messages, which arrived before their receive: one queue of compact entries, in order of arrival.

use crate::credit::cost;
use crate::index::{EnvelopeIndex, EnvelopeKey, FORMS};
use crate::{Body, NIL, Row, Stamp, Stamps};

/// The envelope of an unexpected message, 48 B. It is not an entity, since there can be millions.
#[derive(Clone, Copy, Debug)]
pub struct Unexpected {
    /// Context word.
    pub context: u32,
    /// Rank of the sender in the communicator.
    pub source: u32,
    /// Tag.
    pub tag: u32,
    /// The VC: row of the proc.
    pub vc: Row,
    /// Length of the message, bytes.
    pub length: u64,
    /// See [`Kept`].
    pub kept: Kept,
    /// The next entry in the queue or in the free list.
    pub next: Row,
    /// The previous entry in the queue.
    pub previous: Row,
}

const _: () = assert!(size_of::<Unexpected>() <= 48);

/// How far an unexpected message has come. A temporary buffer is [`NIL`] if there is none, or none yet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kept {
    /// All of the message is here, in a temporary buffer.
    Whole {
        /// The row of the temporary buffer.
        buffer: Row,
    },
    /// Some frames of the message are here. Others have yet to come.
    Arriving {
        /// The row of the temporary buffer.
        buffer: Row,
    },
    /// Some frames of the message are here. The others will not come, since the connection has ended.
    CutOff {
        /// The row of the temporary buffer.
        buffer: Row,
    },
    /// The message was offered (RTS). Its sender has the bytes, and sends them when it is asked.
    Offered {
        /// The row of the sender's CAR.
        message: Row,
    },
    /// The message was offered (RTS). The receiver reads it out of the sender's memory.
    Readable {
        /// The row of the sender's CAR.
        message: Row,
        /// Its address in the sender's process.
        address: u64,
    },
    /// The message was offered (RTS). The transport may move it.
    Movable {
        /// The row of the sender's CAR.
        message: Row,
    },
}

impl Kept {
    /// The state of a message that was offered by a CAR of its sender.
    pub fn offered(message: Row, body: Body) -> Self {
        match body {
            Body::Readable { address } => Kept::Readable { message, address },
            Body::Movable => Kept::Movable { message },
            _ => Kept::Offered { message },
        }
    }
}

impl Unexpected {
    /// The temporary buffer that holds its payload; [`NIL`] if there is none.
    pub const fn buffer(&self) -> Row {
        match self.kept {
            Kept::Whole { buffer } | Kept::Arriving { buffer } | Kept::CutOff { buffer } => buffer,
            _ => NIL,
        }
    }

    /// Sets the temporary buffer of its payload. An offer has none, and is not changed.
    pub fn set_buffer(&mut self, row: Row) {
        if let Kept::Whole { buffer } | Kept::Arriving { buffer } | Kept::CutOff { buffer } = &mut self.kept {
            *buffer = row;
        }
    }

    /// Notes that all of the message is here.
    pub fn complete(&mut self) {
        self.kept = Kept::Whole { buffer: self.buffer() };
    }

    /// Notes that the rest of the message will not come.
    pub fn cut_off(&mut self) {
        self.kept = Kept::CutOff { buffer: self.buffer() };
    }

    /// The sender's CAR row of a message that was offered; [`NIL`] for any other.
    pub const fn message(&self) -> Row {
        match self.kept {
            Kept::Offered { message } | Kept::Readable { message, .. } | Kept::Movable { message } => message,
            _ => NIL,
        }
    }

    /// How the bytes of a message that was offered can be moved.
    pub const fn body(&self) -> Body {
        match self.kept {
            Kept::Readable { address, .. } => Body::Readable { address },
            Kept::Movable { .. } => Body::Movable,
            _ => Body::AtSender,
        }
    }

    /// The key by which receives find it.
    #[inline(always)]
    pub fn key(&self) -> EnvelopeKey {
        EnvelopeKey { context: self.context, source: self.source, tag: self.tag }
    }
}

/// The unexpected queue: a slab of entries in order of arrival. Once a look-up was long, it also has an index.
///
/// Written by Match and SupplyBuffers, which add entries and set their buffers, and by Match and probes, which remove entries.
#[derive(Debug)]
pub struct UnexpectedQueue {
    /// The slab. An entry that is neither in the queue nor in the free list is deferred, or belongs to a message that a probe has
    /// taken.
    pub entries: Vec<Unexpected>,
    /// Oldest entry.
    pub head: Row,
    /// Newest entry.
    pub tail: Row,
    /// First entry of the free list.
    pub free: Row,
    /// Number of entries in the queue.
    pub count: u32,
    /// Payload bytes in temporary buffers.
    pub bytes: u64,
    /// Lines of credit that these messages have cost.
    pub lines: u64,
    /// Entries that a look-up walks past before an index is made: [`u32::MAX`] for never, 0 for always.
    pub walk_max: u32,
    /// Seed of the index.
    pub seed: u64,
    /// An index for each form of key that a receive has asked for while the queue was long.
    forms: [Option<Box<EnvelopeIndex>>; FORMS],
    /// Which of these indices are up to date: all that were built since the queue was last empty.
    live: [bool; FORMS],
    /// When the messages arrived, by row.
    stamps: Stamps,
}

impl Default for UnexpectedQueue {
    fn default() -> Self {
        UnexpectedQueue {
            entries: Vec::new(),
            head: NIL,
            tail: NIL,
            free: NIL,
            count: 0,
            bytes: 0,
            lines: 0,
            walk_max: u32::MAX,
            seed: 0,
            forms: [const { None }; FORMS],
            live: [false; FORMS],
            stamps: Stamps::default(),
        }
    }
}

impl UnexpectedQueue {
    /// Appends an entry.
    pub fn push(&mut self, entry: Unexpected) -> Row {
        let row = if self.free == NIL {
            self.entries.push(entry);
            self.entries.len() as Row - 1
        } else {
            let row = self.free;
            self.free = self.entries[row as usize].next;
            self.entries[row as usize] = entry;
            row
        };
        self.restore(row);
        row
    }

    /// Puts an entry that is not in the queue back into it, as the newest.
    pub fn restore(&mut self, row: Row) {
        let entry = &mut self.entries[row as usize];
        (entry.next, entry.previous) = (NIL, self.tail);
        let entry = *entry;
        if self.tail == NIL {
            self.head = row;
        } else {
            self.entries[self.tail as usize].next = row;
        }
        self.tail = row;
        self.count += 1;
        if entry.message() == NIL {
            self.bytes += entry.length;
            self.lines += u64::from(cost(entry.length));
        }
        for form in 0..FORMS {
            if self.live[form]
                && let Some(index) = &mut self.forms[form]
            {
                index.push(entry.key().as_form(form), row, ());
            }
        }
    }

    /// Records when the message of an entry arrived.
    pub fn stamp(&mut self, row: Row, stamp: Stamp) {
        self.stamps.grow(row as usize + 1);
        self.stamps.set(row, stamp);
    }

    /// When the message of an entry arrived, if that was recorded.
    pub fn came(&self, row: Row) -> Option<Stamp> {
        self.stamps.get(row)
    }

    /// Finds the oldest entry that a receive with this key matches. The entry stays in the queue.
    pub fn find(&mut self, wanted: &EnvelopeKey) -> Option<Row> {
        if self.count == 0 {
            return None;
        }
        let form = wanted.form();
        if !self.live[form] {
            let (mut row, mut walked) = (self.head, 0);
            while row != NIL {
                let entry = &self.entries[row as usize];
                if wanted.takes(&entry.key()) {
                    return Some(row);
                }
                row = entry.next;
                walked += 1;
                if walked > self.walk_max {
                    self.build(form);
                    break;
                }
            }
            if row == NIL {
                return None;
            }
        }
        self.forms[form].as_ref()?.first(wanted)
    }

    /// Builds the index of a form.
    #[cold]
    fn build(&mut self, form: usize) {
        let seed = self.seed;
        let mut index = self.forms[form].take().unwrap_or_else(|| Box::new(EnvelopeIndex::new(seed)));
        index.clear();
        let mut row = self.head;
        while row != NIL {
            let entry = &self.entries[row as usize];
            index.push(entry.key().as_form(form), row, ());
            row = entry.next;
        }
        self.forms[form] = Some(index);
        self.live[form] = true;
    }

    /// Whether an entry is older than another one of the queue. Walks the queue between them.
    #[cold]
    pub fn is_before(&self, first: Row, second: Row) -> bool {
        let mut row = self.entries[first as usize].next;
        while row != NIL && row != second {
            row = self.entries[row as usize].next;
        }
        row == second
    }

    /// Takes an entry out of the queue. Its row stays in use until [`UnexpectedQueue::release`].
    pub fn claim(&mut self, row: Row) -> Unexpected {
        let entry = self.entries[row as usize];
        match entry.previous {
            NIL => self.head = entry.next,
            previous => self.entries[previous as usize].next = entry.next,
        }
        match entry.next {
            NIL => self.tail = entry.previous,
            next => self.entries[next as usize].previous = entry.previous,
        }
        self.count -= 1;
        if entry.message() == NIL {
            self.bytes -= entry.length;
            self.lines -= u64::from(cost(entry.length));
        }
        for form in 0..FORMS {
            if self.live[form]
                && let Some(index) = &mut self.forms[form]
            {
                index.remove(&entry.key().as_form(form), row);
            }
        }
        if self.count == 0 {
            // Short queues are searched without an index. The storage of the indices stays for the next long queue.
            self.live = [false; FORMS];
        }
        entry
    }

    /// Frees the row of an entry that is no longer in the queue.
    pub fn release(&mut self, row: Row) {
        self.entries[row as usize].next = self.free;
        self.free = row;
    }

    /// Removes and returns an entry.
    pub fn remove(&mut self, row: Row) -> Unexpected {
        let entry = self.claim(row);
        self.release(row);
        entry
    }

    /// Removes and returns all entries that `wanted` accepts, oldest first.
    pub fn drain(&mut self, mut wanted: impl FnMut(&Unexpected) -> bool) -> Vec<Unexpected> {
        let mut found = Vec::new();
        let mut row = self.head;
        while row != NIL {
            let entry = self.entries[row as usize];
            if wanted(&entry) {
                found.push(self.remove(row));
            }
            row = entry.next;
        }
        found
    }

    /// Lines of credit that the kept messages of one VC have cost.
    pub fn lines_of(&self, vc: Row) -> u64 {
        let (mut row, mut lines) = (self.head, 0);
        while let Some(entry) = self.entries.get(row as usize) {
            if entry.vc == vc && entry.message() == NIL {
                lines += u64::from(cost(entry.length));
            }
            row = entry.next;
        }
        lines
    }

    /// Bytes of storage: of the slab, and of the indices.
    pub fn storage(&self) -> (usize, usize) {
        let indices = self.forms.iter().flatten().map(|index| index.bytes()).sum();
        (self.entries.capacity() * size_of::<Unexpected>(), indices)
    }
}

#[cfg(test)]
mod tests;
