//! Lists of rows, linked through the rows themselves.

use crate::{NIL, Row};

/// A list of rows, first in first out, linked through the rows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Queue {
    /// First row.
    pub head: Row,
    /// Last row.
    pub tail: Row,
}

impl Queue {
    /// No rows.
    pub const EMPTY: Queue = Queue { head: NIL, tail: NIL };

    /// Whether there are no rows.
    #[inline]
    pub const fn is_empty(&self) -> bool {
        self.head == NIL
    }

    /// Appends a row.
    #[inline(always)]
    pub fn push<L: Link>(&mut self, rows: &mut [L], row: Row) {
        *rows[row as usize].next_mut() = NIL;
        if self.head == NIL {
            self.head = row;
        } else {
            *rows[self.tail as usize].next_mut() = row;
        }
        self.tail = row;
    }

    /// Removes the first row.
    #[inline]
    pub fn pop<L: Link>(&mut self, rows: &mut [L]) -> Option<Row> {
        let row = self.head;
        if row == NIL {
            return None;
        }
        self.pop_first(&mut rows[row as usize]);
        Some(row)
    }

    /// Removes the first row, to which `first` is the reference.
    #[inline(always)]
    pub fn pop_first<L: Link>(&mut self, first: &mut L) {
        self.head = *first.next_mut();
        if self.head == NIL {
            self.tail = NIL;
        }
    }

    /// Removes `row`, which follows `previous`; [`NIL`] if `row` is the first one.
    #[inline]
    pub fn unlink<L: Link>(&mut self, rows: &mut [L], previous: Row, row: Row) {
        let next = *rows[row as usize].next_mut();
        if previous == NIL {
            self.head = next;
        } else {
            *rows[previous as usize].next_mut() = next;
        }
        if next == NIL {
            self.tail = previous;
        }
    }

    /// Removes `row` wherever it is; `false` if it is not in the list.
    pub fn remove<L: Link>(&mut self, rows: &mut [L], row: Row) -> bool {
        self.walk_and_remove(rows, row).is_some()
    }

    /// As [`Queue::remove`]. Returns how many rows are before `row`; `None` if it is not in the list.
    pub fn walk_and_remove<L: Link>(&mut self, rows: &mut [L], row: Row) -> Option<u32> {
        let (mut previous, mut at, mut walked) = (NIL, self.head, 0);
        while at != NIL {
            if at == row {
                self.unlink(rows, previous, row);
                return Some(walked);
            }
            (previous, at) = (at, *rows[at as usize].next_mut());
            walked += 1;
        }
        None
    }
}

/// A row that can be in a list.
pub trait Link {
    /// The link to the next row.
    fn next_mut(&mut self) -> &mut Row;
}

/// Implements [`Link`] for a row whose link is its field `next`.
macro_rules! linked {
    ($row:ty) => {
        impl $crate::queue::Link for $row {
            #[inline]
            fn next_mut(&mut self) -> &mut $crate::handles::Row {
                &mut self.next
            }
        }
    };
}
pub(crate) use linked;

/// Free rows, last in first out: the most recently used is the most likely in cache.
#[derive(Clone, Copy, Debug)]
pub struct FreeList {
    /// The row to use next.
    pub head: Row,
    /// Number of free rows.
    pub count: u32,
}

impl FreeList {
    /// No free rows.
    pub const EMPTY: FreeList = FreeList { head: NIL, count: 0 };

    /// Takes a row.
    #[inline]
    pub fn pop<L: Link>(&mut self, rows: &mut [L]) -> Option<Row> {
        let row = self.head;
        if row == NIL {
            return None;
        }
        self.head = *rows[row as usize].next_mut();
        self.count -= 1;
        Some(row)
    }

    /// Gives a row back.
    #[inline]
    pub fn push<L: Link>(&mut self, rows: &mut [L], row: Row) {
        *rows[row as usize].next_mut() = self.head;
        self.head = row;
        self.count += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Car;

    #[test]
    fn queues_keep_order_whatever_is_taken() {
        let mut rows = vec![Car::default(); 6];
        let mut queue = Queue::EMPTY;
        for row in 0..6 {
            queue.push(&mut rows, row);
        }
        assert!(queue.remove(&mut rows, 0) && queue.remove(&mut rows, 5) && queue.remove(&mut rows, 2));
        assert!(!queue.remove(&mut rows, 2));
        queue.push(&mut rows, 0);
        let order: Vec<Row> = std::iter::from_fn(|| queue.pop(&mut rows)).collect();
        assert_eq!(order, [1, 3, 4, 0]);
        assert_eq!(queue, Queue::EMPTY);
    }

    #[test]
    fn free_lists_count_what_they_hold() {
        let mut rows = vec![Car::default(); 2];
        let mut free = FreeList::EMPTY;
        free.push(&mut rows, 0);
        free.push(&mut rows, 1);
        assert_eq!((free.pop(&mut rows), free.count), (Some(1), 1));
        assert_eq!((free.pop(&mut rows), free.pop(&mut rows), free.count), (Some(0), None, 0));
    }
}
