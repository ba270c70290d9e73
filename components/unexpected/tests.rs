//! Tests of the queue of unexpected messages.

use super::*;
use crate::limits::ANY;

fn entry(source: u32, tag: u32) -> Unexpected {
    let (next, previous) = (7, 7);
    Unexpected { context: 0, source, tag, vc: 0, length: 8, kept: Kept::Whole { buffer: 1 }, next, previous }
}

fn take(queue: &mut UnexpectedQueue, source: u32, tag: u32) -> Option<u32> {
    let row = queue.find(&EnvelopeKey { context: 0, source, tag })?;
    Some(queue.remove(row).length as u32)
}

#[test]
fn taken_from_anywhere_the_order_of_the_rest_stays() {
    for walk_max in [u32::MAX, 2, 0] {
        let mut queue = UnexpectedQueue { walk_max, ..UnexpectedQueue::default() };
        for tag in 0..5 {
            queue.push(Unexpected { length: tag.into(), ..entry(tag % 2, tag) });
        }
        assert_eq!(take(&mut queue, ANY, 2), Some(2));
        assert_eq!(take(&mut queue, 0, 4), Some(4));
        assert_eq!(take(&mut queue, 1, 4), None);
        queue.push(Unexpected { length: 9, ..entry(1, 9) });
        assert_eq!(take(&mut queue, 1, ANY), Some(1));
        let order: Vec<u32> = std::iter::from_fn(|| take(&mut queue, ANY, ANY)).collect();
        assert_eq!(order, [0, 3, 9]);
        assert_eq!((queue.count, queue.bytes, queue.head, queue.tail), (0, 0, NIL, NIL));
        assert_eq!(queue.entries.len(), 5, "freed entries are used again");
    }
}

#[test]
fn a_claimed_entry_is_nobody_elses() {
    let mut queue = UnexpectedQueue::default();
    let first = queue.push(entry(0, 1));
    queue.push(entry(0, 1));
    queue.claim(first);
    assert_eq!(queue.find(&EnvelopeKey { context: 0, source: 0, tag: 1 }), Some(1));
    assert_eq!(queue.push(entry(0, 2)), 2, "its row is still taken");
    queue.release(first);
    assert_eq!(queue.push(entry(0, 3)), first);
    assert_eq!(queue.drain(|entry| entry.tag != 2).len(), 2);
    assert_eq!(queue.count, 1);
}
