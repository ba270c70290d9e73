//! Hash indices from envelopes to rows, for look-ups in long matching queues.

use crate::limits::ANY;
use crate::{NIL, Queue, Row};
use ahash::RandomState;
use std::collections::HashMap;
use std::hash::{Hash, Hasher};

/// The envelope that a receive asks for, or by which a message is found. [`ANY`] stands for any source or any tag.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct EnvelopeKey {
    /// Context id.
    pub context: u32,
    /// Rank of the sender, or [`ANY`].
    pub source: u32,
    /// Tag, or [`ANY`].
    pub tag: u32,
}

/// Number of forms of a key: with or without a source, with or without a tag.
pub const FORMS: usize = 4;

impl EnvelopeKey {
    /// The form of the key: bit 0 is set for any source, bit 1 for any tag.
    #[inline]
    pub fn form(&self) -> usize {
        usize::from(self.source == ANY) | usize::from(self.tag == ANY) << 1
    }

    /// This envelope as a key of the given form, with wildcards where the form has them.
    #[inline]
    pub fn as_form(&self, form: usize) -> EnvelopeKey {
        EnvelopeKey {
            context: self.context,
            source: if form & 1 == 0 { self.source } else { ANY },
            tag: if form & 2 == 0 { self.tag } else { ANY },
        }
    }

    /// Whether a receive with this key matches a message with the key `message`.
    #[inline(always)]
    pub fn takes(&self, message: &EnvelopeKey) -> bool {
        self.context == message.context
            && (self.tag == message.tag || self.tag == ANY)
            && (self.source == message.source || self.source == ANY)
    }
}

impl Hash for EnvelopeKey {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(u64::from(self.context) << 32 | u64::from(self.source));
        state.write_u32(self.tag);
    }
}

/// An index from keys to rows. Rows of one key are kept in the order in which they were added. Each row has a value. The map is never
/// iterated.
///
/// Insertion, removal and look-up take constant time, except when the storage grows, which doubles it.
#[derive(Debug)]
pub struct EnvelopeIndex<T = ()> {
    lists: HashMap<EnvelopeKey, Queue, RandomState>,
    places: Vec<Place<T>>,
}

/// The links of a row in the list of its key.
#[derive(Clone, Copy, Debug)]
struct Place<T> {
    next: Row,
    previous: Row,
    value: T,
}

impl<T: Copy + Default> EnvelopeIndex<T> {
    /// An index without rows. The seed selects the hash function.
    pub fn new(seed: u64) -> Self {
        let spread = RandomState::with_seeds(seed, !seed, seed.rotate_left(32), seed ^ 0x9E37_79B9_7F4A_7C15);
        EnvelopeIndex { lists: HashMap::with_hasher(spread), places: Vec::new() }
    }

    /// The oldest row of a key.
    #[inline]
    pub fn first(&self, key: &EnvelopeKey) -> Option<Row> {
        self.lists.get(key).map(|list| list.head)
    }

    /// The value that a row was appended with.
    #[inline]
    pub fn value(&self, row: Row) -> T {
        self.places[row as usize].value
    }

    /// Appends a row.
    pub fn push(&mut self, key: EnvelopeKey, row: Row, value: T) {
        if self.places.len() <= row as usize {
            let nothing = Place { next: NIL, previous: NIL, value: T::default() };
            self.places.resize(row as usize + 1, nothing);
        }
        let list = self.lists.entry(key).or_insert(Queue::EMPTY);
        self.places[row as usize] = Place { next: NIL, previous: list.tail, value };
        match list.tail {
            NIL => list.head = row,
            tail => self.places[tail as usize].next = row,
        }
        list.tail = row;
    }

    /// Removes a row that was appended under this key.
    pub fn remove(&mut self, key: &EnvelopeKey, row: Row) {
        let Place { next, previous, .. } = self.places[row as usize];
        if next == NIL && previous == NIL {
            self.lists.remove(key);
            return;
        }
        if previous != NIL {
            self.places[previous as usize].next = next;
        }
        if next != NIL {
            self.places[next as usize].previous = previous;
        }
        if (next == NIL || previous == NIL)
            && let Some(list) = self.lists.get_mut(key)
        {
            if previous == NIL {
                list.head = next;
            } else {
                list.tail = previous;
            }
        }
    }

    /// Removes all rows, and keeps the storage.
    pub fn clear(&mut self) {
        self.lists.clear();
    }

    /// Bytes of storage.
    pub fn bytes(&self) -> usize {
        let entry = size_of::<(EnvelopeKey, Queue)>() + 1;
        // A map of capacity c has room for 8 c / 7 entries.
        self.lists.capacity() * 8 / 7 * entry + self.places.capacity() * size_of::<Place<T>>()
    }
}

/// An index of posted receives by the envelope that they ask for. A 64-bit sequence number orders them, since the wildcard counter of
/// the lists cannot order a receive of one tag against one of any tag.
#[derive(Debug)]
pub struct PostedIndex {
    /// The receives, each with its sequence number.
    index: EnvelopeIndex<u64>,
    /// Number of receives of each form. Forms without receives are not looked up.
    forms: [u32; FORMS],
    next: u64,
    /// Number of receives.
    pub count: u32,
}

impl PostedIndex {
    /// An index without receives.
    pub fn new(seed: u64) -> Self {
        PostedIndex { index: EnvelopeIndex::new(seed), forms: [0; FORMS], next: 0, count: 0 }
    }

    /// Appends a receive.
    pub fn push(&mut self, key: EnvelopeKey, row: Row) {
        self.push_at(key, row, self.next);
    }

    /// Appends a receive with a given sequence number, behind the other receives of its key.
    pub fn push_at(&mut self, key: EnvelopeKey, row: Row, sequence: u64) {
        self.next = self.next.max(sequence + 1);
        self.index.push(key, row, sequence);
        self.forms[key.form()] += 1;
        self.count += 1;
    }

    /// The oldest receive that matches a message.
    #[inline]
    pub fn find(&self, message: &EnvelopeKey) -> Option<Row> {
        let mut oldest = None;
        for form in 0..FORMS {
            if self.forms[form] == 0 {
                continue;
            }
            if let Some(row) = self.index.first(&message.as_form(form)) {
                let sequence = self.index.value(row);
                if oldest.is_none_or(|(older, _)| sequence < older) {
                    oldest = Some((sequence, row));
                }
            }
        }
        oldest.map(|(_, row)| row)
    }

    /// Removes a receive.
    pub fn remove(&mut self, key: &EnvelopeKey, row: Row) {
        self.index.remove(key, row);
        self.forms[key.form()] -= 1;
        self.count -= 1;
    }

    /// How many of the receives take any source.
    pub fn any_source(&self) -> u32 {
        (0..FORMS).filter(|form| form & 1 != 0).map(|form| self.forms[form]).sum()
    }

    /// Removes all receives, and keeps the storage.
    pub fn clear(&mut self) {
        self.index.clear();
        self.forms = [0; FORMS];
        (self.count, self.next) = (0, 0);
    }

    /// Bytes of storage.
    pub fn bytes(&self) -> usize {
        self.index.bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(source: u32, tag: u32) -> EnvelopeKey {
        EnvelopeKey { context: 0, source, tag }
    }

    #[test]
    fn rows_of_a_key_keep_their_order_whatever_is_removed() {
        let mut index = EnvelopeIndex::new(7);
        for row in 0..6 {
            index.push(key(1, 1), row, ());
            index.push(key(1, 2), 10 + row, ());
        }
        for row in [0, 5, 3] {
            index.remove(&key(1, 1), row);
        }
        index.push(key(1, 1), 5, ());
        let mut order = Vec::new();
        while let Some(row) = index.first(&key(1, 1)) {
            order.push(row);
            index.remove(&key(1, 1), row);
        }
        assert_eq!(order, [1, 2, 4, 5]);
        assert_eq!(index.first(&key(1, 2)), Some(10));
        index.clear();
        assert_eq!(index.first(&key(1, 2)), None);
    }

    #[test]
    fn the_oldest_receive_of_any_form_wins() {
        let mut posted = PostedIndex::new(1);
        let keys = [key(3, 9), key(ANY, ANY), key(1, 5), key(1, ANY), key(ANY, 5), key(1, 5)];
        for (row, key) in (0u32..).zip(keys) {
            posted.push(key, row);
        }
        let order: Vec<Row> = std::iter::from_fn(|| {
            let row = posted.find(&key(1, 5))?;
            posted.remove(&keys[row as usize], row);
            Some(row)
        })
        .collect();
        assert_eq!(order, [1, 2, 3, 4, 5]);
        assert_eq!((posted.count, posted.find(&key(3, 9)), posted.find(&key(3, 8))), (1, Some(0), None));
    }

    #[test]
    fn keys_have_four_forms() {
        let envelope = key(1, 5);
        let forms: Vec<usize> = (0..FORMS).map(|form| envelope.as_form(form).form()).collect();
        assert_eq!(forms, [0, 1, 2, 3]);
        assert!((0..FORMS).all(|form| envelope.as_form(form).takes(&envelope)));
        assert!(!key(1, 6).takes(&envelope) && !key(2, ANY).takes(&envelope));
    }
}
