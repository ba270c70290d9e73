//! Both ends of a ring on the heap.

mod growing;
mod hostile;

use super::memory::{CONTROL_BYTES, HeapMemory, RawRing};
use super::ring::{Corrupt, Reader, RingMemory, Writer};
use crate::rings::mark::Mark;
use crate::testing::copy;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use tickwire_components::limits::PACKED_PAST_MIN;
use tickwire_components::wire::{ADDRESS_BYTES, HEADER_BYTES, Header, KINDS_END, Kind, READABLE, frame_bytes};
use tickwire_components::{Datatype, NoBytes, Pieces, Span, Typed};

const CAPACITY: usize = 1024;
/// Bytes that a frame without payload takes.
const FRAME: usize = frame_bytes(0) as usize;
const MOST: usize = CAPACITY / 4 - HEADER_BYTES;

struct Both {
    writer: Writer<RawRing>,
    reader: Reader<RawRing>,
    memory: Arc<HeapMemory>,
}

#[expect(unsafe_code, reason = "a view of the heap")]
fn both() -> Both {
    let memory = Arc::new(HeapMemory::new(RawRing::bytes(CAPACITY)));
    // SAFETY: zeroed memory of the ring's size, kept with both ends.
    let ring = unsafe { RawRing::new(memory.base(), CAPACITY) };
    Both { writer: Writer::new(ring), reader: Reader::new(ring), memory }
}

struct Parts<'a>(&'a [u8], usize);

// SAFETY: the bytes are borrowed for as long as the value lives.
#[expect(unsafe_code, reason = "lends local bytes")]
unsafe impl Pieces for Parts<'_> {
    fn pieces(&self) -> usize {
        2
    }
    fn piece(&self, index: usize) -> Span {
        let part = if index == 0 { &self.0[..self.1] } else { &self.0[self.1..] };
        // SAFETY: borrowed, and only read.
        unsafe { Span::new(part.as_ptr().cast_mut(), part.len()) }
    }
}

fn eager(n: u32, length: usize) -> Header {
    Header::new(Kind::Eager, n, n, n, n, length as u64)
}

fn payload(n: u32) -> Vec<u8> {
    (0..(n as usize * 37) % (MOST + 1)).map(|i| (i as u32 * 5 + n) as u8).collect()
}

#[expect(unsafe_code, reason = "lends local bytes")]
fn bytes(span: Span) -> Vec<u8> {
    let mut to = vec![0; span.len()];
    // SAFETY: a local buffer that outlives the copy.
    let target = unsafe { Span::new(to.as_mut_ptr(), to.len()) };
    assert_eq!(copy(target, span), span.len());
    to
}

#[test]
fn frames_of_every_length_come_around_the_ring() {
    [u64::MAX, 100, 0].into_iter().for_each(frames_come_around_the_ring);
}

/// Those with so much payload and more past the caches.
fn frames_come_around_the_ring(past_min: u64) {
    let Both { writer, mut reader, memory: _memory } = both();
    let mut writer = writer.past_caches_from(past_min).at_distance(false);
    // Control frames are told of their messages' buffers, and take nothing of them.
    assert_eq!(writer.push(&Header::new(Kind::Cts, 0, 0, 0, 0, 700), &&[9u8; 700][..]), Ok(true));
    assert_eq!(writer.position(), FRAME as u64);
    assert!(matches!(reader.read(), Ok(Some((header, span))) if header.length == 700 && span.is_empty()));
    assert!(!reader.ready(), "the word behind it is clear");
    let (mut sent, mut read) = (0, 0);
    let total = if cfg!(miri) { 60 } else { 1000 };
    while read < total {
        let before = sent;
        while sent < total {
            let payload = payload(sent);
            let (header, pieces) = (eager(sent, payload.len()), Parts(&payload, payload.len() / 3));
            let pushed = match sent % 2 {
                0 => writer.push(&header, &pieces),
                _ => writer.push(&header, &payload),
            };
            if !pushed.expect("honest") {
                break;
            }
            sent += 1;
        }
        assert!(reader.ready());
        // Some are left, so that blocked pushes meet every state of the ring.
        while sent - read > sent % 3 || sent == total || sent == before {
            let Some((header, span)) = reader.read().expect("honest") else { break };
            let payload = payload(read);
            assert_eq!((header, bytes(span)), (eager(read, payload.len()), payload));
            read += 1;
        }
        let _ = reader.release();
    }
    assert!(!reader.ready());
    assert_eq!(reader.read().map(|found| found.is_none()), Ok(true));
}

/// Where in the ring a payload stands.
fn offset(reader: &Reader<RawRing>, span: Span) -> usize {
    span.start().addr() - reader.memory().bytes(0, 0).start().addr() - HEADER_BYTES
}

#[test]
#[expect(unsafe_code, reason = "a view of the heap")]
fn who_takes_turns_stays_at_the_front_and_who_streams_goes_around() {
    const TURNS: usize = 8 << 10;
    const ALL: usize = 64 << 10;
    let memory = HeapMemory::new(RawRing::bytes(ALL));
    // SAFETY: zeroed memory of the ring's size, which outlives both ends.
    let ring = unsafe { RawRing::new(memory.base(), ALL) };
    let (mut writer, mut reader) = (Writer::new(ring).turning_within(TURNS as u64, 1), Reader::new(ring));
    let mut written = 0;
    for round in 0..6 {
        let turns = round % 2 == 0;
        let mut offsets = Vec::new();
        for n in 0..600 {
            let bytes = payload(n);
            assert_eq!(writer.push(&eager(n, bytes.len()), &bytes), Ok(true), "there is room: all was read");
            if turns {
                writer.hand_over(bytes.len() as u64);
            }
            written += frame_bytes(bytes.len() as u64);
            let (header, span) = reader.read().expect("honest").expect("a frame");
            assert_eq!((header, self::bytes(span)), (eager(n, bytes.len()), bytes));
            offsets.push(offset(&reader, span));
            let _ = reader.release();
            assert_eq!((writer.written(), reader.taken()), (written, written), "what is skipped is not counted");
        }
        // A writer needs a few frames to notice that something has changed.
        let later = offsets.split_off(150);
        let highest = later.iter().copied().max();
        if turns {
            assert!(highest < Some(TURNS), "{later:?}");
        } else {
            assert!(highest > Some(ALL - TURNS), "{later:?}");
        }
    }
}

#[test]
#[expect(unsafe_code, reason = "a view of the heap")]
fn long_answers_start_anew_after_as_many_frames_as_they_may() {
    const ALL: usize = 64 << 10;
    let long = vec![9u8; 4096];
    for frames in [2, 3, 12] {
        let memory = HeapMemory::new(RawRing::bytes(ALL));
        // SAFETY: zeroed memory of the ring's size, which outlives both ends.
        let ring = unsafe { RawRing::new(memory.base(), ALL) };
        let (mut writer, mut reader) = (Writer::new(ring).turning_within(64, frames), Reader::new(ring));
        let starts = (0..200).filter(|&n| {
            assert_eq!(writer.push(&eager(n, long.len()), &long), Ok(true));
            writer.hand_over(long.len() as u64);
            let (_, span) = reader.read().expect("honest").expect("a frame");
            let _ = reader.release();
            offset(&reader, span) == 0
        });
        let starts: Vec<_> = starts.collect();
        let apart = starts.windows(2).all(|two| u64::from(two[1] - two[0]) == frames);
        assert!(starts.len() > 10 && apart, "{frames}: {starts:?}");
    }
}

#[test]
fn an_answer_is_not_written_over_what_has_not_been_read() {
    let Both { writer, mut reader, memory: _memory } = both();
    let mut writer = writer.turning_within(2 * FRAME as u64, 1);
    let mut sent = 0;
    // All of them are said to be answers, and none is read.
    while writer.push(&eager(sent, 0), &NoBytes).expect("honest") {
        writer.hand_over(0);
        sent += 1;
    }
    assert_eq!(sent as usize, CAPACITY / FRAME - 1, "the whole ring is used for want of room at its front");
    for n in 0..sent {
        assert!(matches!(reader.read(), Ok(Some((header, _))) if header == eager(n, 0)));
    }
    assert!(matches!(reader.read(), Ok(None)));
}

#[test]
fn positions_go_on_behind_the_last_number() {
    for (before, turns) in [(1, u64::MAX), (3, u64::MAX), (1, 128), (5, 256)] {
        let Both { writer, reader, memory: _memory } = both();
        let start = 0u64.wrapping_sub(before * CAPACITY as u64);
        reader.memory().release(start);
        let (mut writer, mut reader) = (writer.turning_within(turns, 1).at(start), reader.at(start));
        let (mut sent, mut read) = (0, 0);
        while read < 300 {
            while sent < read + 3 + sent % 7 {
                let bytes = payload(sent);
                if !writer.push(&eager(sent, bytes.len()), &bytes).expect("honest") {
                    break;
                }
                writer.hand_over(bytes.len() as u64);
                sent += 1;
            }
            let (header, span) = reader.read().expect("honest").expect("a frame");
            assert_eq!((header, bytes(span)), (eager(read, payload(read).len()), payload(read)));
            let _ = reader.release();
            read += 1;
        }
        assert!(writer.position() < start && reader.position() < start, "they have gone beyond it");
    }
}

#[test]
fn a_drained_ring_takes_the_largest_frame_wherever_it_stands() {
    for first in 0..CAPACITY / FRAME {
        let Both { mut writer, mut reader, memory: _memory } = both();
        let mut push = |n, length: usize| writer.push(&eager(n, length), &Parts(&[9; MOST][..length], 0));
        for n in 0..first as u32 {
            assert_eq!(push(n, 0), Ok(true));
            assert!(matches!(reader.read(), Ok(Some(_))));
            let _ = reader.release();
        }
        for n in 0..9 {
            assert_eq!(push(n, MOST), Ok(true), "after {first} frames");
            assert!(matches!(reader.read(), Ok(Some(_))));
            let _ = reader.release();
        }
    }
}

#[test]
fn a_full_ring_takes_nothing_until_enough_is_released() {
    let Both { mut writer, mut reader, memory: _memory } = both();
    let mut count = 0;
    while writer.push(&eager(count, 0), &NoBytes).expect("honest") {
        count += 1;
    }
    // One word stays free: the one that says that no frame follows.
    assert_eq!(count as usize, CAPACITY / FRAME - 1);
    assert!(matches!(reader.read(), Ok(Some(_))));
    let _ = reader.release();
    assert_eq!(writer.push(&eager(99, 0), &NoBytes), Ok(false), "less than three eighths is not published");
    while reader.position() <= CAPACITY as u64 / 8 * 3 {
        assert!(matches!(reader.read(), Ok(Some(_))));
    }
    let _ = reader.release();
    assert_eq!(writer.push(&eager(99, 0), &NoBytes), Ok(true));
}

#[test]
fn a_short_frame_that_goes_does_not_hide_that_a_long_one_waits() {
    let Both { mut writer, mut reader, memory: _memory } = both();
    let mut count = 0;
    while writer.push(&eager(count, 0), &NoBytes).expect("honest") {
        count += 1;
    }
    // Room for short frames only.
    while reader.position() <= CAPACITY as u64 / 8 * 3 {
        assert!(matches!(reader.read(), Ok(Some(_))));
    }
    let _ = reader.release();
    while writer.push(&eager(99, MOST), &[0; MOST].as_slice()).expect("honest") {}
    assert!(writer.wants_room());
    assert_eq!(writer.push(&eager(99, 0), &NoBytes), Ok(true));
    assert!(writer.wants_room() && writer.starve(), "the reader is told that somebody waits");
}

#[test]
fn what_is_shown_can_be_and_all_else_is_left_to_read() {
    let read = |kind, length| Header::new(kind, 0, 1, 5, 33, length);
    let offer = |length| read(Kind::Rts, length).with_flags(READABLE);
    let shown = [offer(0), offer(2), read(Kind::Done, 0)];
    let question = Header { lead: Mark::Question as u64, ..read(Kind::Rts, 1) };
    let left = [offer(9).with_type(1), read(Kind::Done, 1), question, read(Kind::Cts, 1)];
    let flagged = [read(Kind::Done, 0).with_flags(1), offer(9).with_priority(1)];
    for (headers, is_shown) in [(&shown[..], true), (&left, false), (&flagged, false)] {
        for header in headers {
            let Both { writer, reader, memory: _memory } = both();
            writer.memory().store_header(0, header);
            assert_eq!(reader.peek_read().map(|(found, _)| found), is_shown.then_some(*header));
            assert!(!is_shown || header.check(header.payload() as usize, false).is_ok());
        }
    }
}

/// A larger place for the data of a ring.
#[expect(unsafe_code, reason = "a view of the heap")]
fn larger(ring: &RawRing, bytes: usize) -> (RawRing, Arc<HeapMemory>) {
    let memory = Arc::new(HeapMemory::new(bytes));
    // SAFETY: zeroed memory of this length, kept with both ends.
    (unsafe { ring.grown(memory.base(), bytes) }, memory)
}

#[test]
#[expect(unsafe_code, reason = "a view of the heap")]
fn what_is_packed_goes_past_the_caches_whole() {
    const BYTES: usize = if cfg!(miri) { PACKED_PAST_MIN } else { PACKED_PAST_MIN + 999 };
    let memory = HeapMemory::new(RawRing::bytes(256 << 10));
    // SAFETY: zeroed memory of the ring's size, which outlives both ends.
    let ring = unsafe { RawRing::new(memory.base(), 256 << 10) };
    let (mut writer, mut reader) = (Writer::new(ring).past_caches_from(64).at_distance(false), Reader::new(ring));
    let all: Vec<u8> = (0..2 * BYTES).map(|n| (n * 31 % 251) as u8).collect();
    let packed: Vec<u8> = all.iter().copied().step_by(2).collect();
    let every_second = Datatype::vector(BYTES, 1, 2, &Datatype::of::<u8>()).expect("a plain vector");
    let typed = Typed::new(all, &every_second, 1).expect("as long");
    for n in 0..3 {
        assert_eq!(writer.push(&eager(n, BYTES), &typed), Ok(true));
        let (header, span) = reader.read().expect("honest").expect("a frame");
        assert!(header == eager(n, BYTES) && bytes(span) == packed);
        let _ = reader.release();
    }
}

#[test]
fn only_a_writer_that_is_far_from_its_reader_writes_past_the_caches() {
    for (near, configured, now) in [(true, 64, u64::MAX), (false, 64, 64), (true, u64::MAX, u64::MAX)] {
        let Both { writer, mut reader, memory: _memory } = both();
        let mut writer = writer.past_caches_from(configured).at_distance(near);
        assert_eq!(writer.past_min(), configured, "nothing was read of the reader yet");
        // More than the ring holds, so the writer looks how far the reader is.
        for n in 0..200 {
            assert_eq!(writer.push(&eager(n, 0), &NoBytes), Ok(true));
            assert!(matches!(reader.read(), Ok(Some(_))));
            let _ = reader.release();
        }
        assert_eq!(writer.past_min(), now);
    }
}
