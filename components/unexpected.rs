//! Messages that arrived before their receive: one queue, in order of arrival, of compact entries.

use crate::{NIL, Row};

/// An unexpected envelope, 40 B. Not an entity: there can be millions.
#[derive(Clone, Copy, Debug)]
pub struct Unexpected {
    /// Context word; [`NIL`] for an entry that nothing takes any more.
    pub context: u32,
    /// Rank of the sender in it.
    pub source: u32,
    /// Tag.
    pub tag: u32,
    /// The VC: row of the proc.
    pub vc: Row,
    /// Length of the message, bytes.
    pub length: u64,
    /// The temporary that holds its payload; [`NIL`] where there is none (yet).
    pub buffer: Row,
    /// The sender's CAR, of an RTS, whose data is still there; [`NIL`] for an eager message.
    pub message: Row,
    /// Next in the queue or in the free list.
    pub next: Row,
}

const _: () = assert!(size_of::<Unexpected>() <= 48);

/// The queue. Written by Match and SupplyBuffers (in), Match (out).
#[derive(Debug)]
pub struct UnexpectedQueue {
    /// The slab; rows in neither list do not exist.
    pub entries: Vec<Unexpected>,
    /// Oldest entry.
    pub head: Row,
    /// Newest entry.
    pub tail: Row,
    /// Free entries.
    pub free: Row,
    /// Entries in the queue.
    pub count: u32,
    /// Payload bytes in temporaries.
    pub bytes: u64,
}

impl Default for UnexpectedQueue {
    fn default() -> Self {
        UnexpectedQueue { entries: Vec::new(), head: NIL, tail: NIL, free: NIL, count: 0, bytes: 0 }
    }
}

impl UnexpectedQueue {
    /// Appends an entry.
    pub fn push(&mut self, entry: Unexpected) -> Row {
        let entry = Unexpected { next: NIL, ..entry };
        let row = if self.free == NIL {
            self.entries.push(entry);
            self.entries.len() as Row - 1
        } else {
            let row = self.free;
            self.free = self.entries[row as usize].next;
            self.entries[row as usize] = entry;
            row
        };
        if self.tail == NIL {
            self.head = row;
        } else {
            self.entries[self.tail as usize].next = row;
        }
        self.tail = row;
        self.count += 1;
        if entry.message == NIL {
            self.bytes += entry.length;
        }
        row
    }

    /// Removes and returns the oldest entry that `wanted` accepts.
    pub fn take(&mut self, mut wanted: impl FnMut(&Unexpected) -> bool) -> Option<Unexpected> {
        let (mut previous, mut row) = (NIL, self.head);
        while row != NIL {
            let entry = self.entries[row as usize];
            if wanted(&entry) {
                if previous == NIL {
                    self.head = entry.next;
                } else {
                    self.entries[previous as usize].next = entry.next;
                }
                if self.tail == row {
                    self.tail = previous;
                }
                self.entries[row as usize].next = self.free;
                self.free = row;
                self.count -= 1;
                if entry.message == NIL {
                    self.bytes -= entry.length;
                }
                return Some(entry);
            }
            (previous, row) = (row, entry.next);
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(tag: u32) -> Unexpected {
        Unexpected { context: 0, source: 0, tag, vc: 0, length: 8, buffer: 1, message: NIL, next: 7 }
    }

    #[test]
    fn taken_from_anywhere_the_order_of_the_rest_stays() {
        let mut queue = UnexpectedQueue::default();
        for tag in 0..5 {
            queue.push(entry(tag));
        }
        assert_eq!(queue.take(|e| e.tag == 2).map(|e| e.tag), Some(2));
        assert_eq!(queue.take(|e| e.tag == 4).map(|e| e.tag), Some(4));
        queue.push(entry(9));
        let order: Vec<u32> = std::iter::from_fn(|| queue.take(|_| true)).map(|e| e.tag).collect();
        assert_eq!(order, [0, 1, 3, 9]);
        assert_eq!((queue.count, queue.bytes, queue.head, queue.tail), (0, 0, NIL, NIL));
        assert_eq!(queue.entries.len(), 5, "freed entries are used again");
    }
}
