//! Frames of a ring: none is lost, torn or overwritten.

use super::kit::{Modelled, frame, model, next, push};
use crate::rings::atomics::Ordering;
use crate::rings::ring::{Reader, RingMemory, Writer};
use loom::thread;
use std::ops::RangeInclusive;
use tickwire_components::wire::frame_bytes;

/// Reads these frames, in order and as they come, and then finds no other.
fn take_all(reader: &mut Reader<Modelled>, numbers: RangeInclusive<u32>) {
    let mut numbers = numbers.peekable();
    while let Some(&expected) = numbers.peek() {
        match next(reader) {
            Some(header) => {
                assert_eq!(header, frame(expected));
                numbers.next();
                let _ = reader.release();
            }
            None => thread::yield_now(),
        }
    }
    assert_eq!(next(reader), None);
}

#[test]
fn loom_frames_arrive_whole_and_in_order_around_the_ring() {
    model(3, || {
        let memory = Modelled::new(true);
        let (mut writer, mut reader) = (Writer::new(memory.clone()), Reader::new(memory));
        // Three of the four frames that fit have come and gone, so that the next ones go around.
        for n in 1..=3 {
            assert!(push(&mut writer, n));
            assert_eq!(next(&mut reader), Some(frame(n)));
        }
        let _ = reader.release();
        let thread = thread::spawn(move || {
            let mut sent = 4;
            while sent <= 6 {
                if push(&mut writer, sent) {
                    sent += 1;
                } else {
                    thread::yield_now();
                }
            }
        });
        take_all(&mut reader, 4..=6);
        thread.join().expect("no panic");
    });
}

#[test]
fn loom_a_ring_goes_on_in_a_larger_one_without_a_frame_lost() {
    model(3, || {
        let small = Modelled::new(true);
        let large = small.larger();
        let (mut writer, mut reader) = (Writer::new(small.clone()), Reader::new(small));
        assert!(reader.follow_to(large.clone()));
        for n in 1..=2 {
            assert!(push(&mut writer, n));
        }
        let thread = thread::spawn(move || {
            assert!(push(&mut writer, 3));
            writer.go_over(large);
            for n in 4..=5 {
                assert!(push(&mut writer, n), "what has not been read of the old one takes no more of the new one");
            }
        });
        take_all(&mut reader, 1..=5);
        thread.join().expect("no panic");
    });
}

#[test]
fn loom_who_takes_turns_starts_anew_at_the_front() {
    model(3, || {
        let memory = Modelled::new(true);
        let writer = Writer::new(memory.clone()).turning_within(2 * frame_bytes(0), 1);
        let (mut writer, mut reader) = (writer, Reader::new(memory));
        for n in 1..=2 {
            assert!(push(&mut writer, n));
            writer.hand_over(0);
        }
        let thread = thread::spawn(move || {
            let mut sent = 3;
            while sent <= 5 {
                if push(&mut writer, sent) {
                    writer.hand_over(0);
                    sent += 1;
                } else {
                    thread::yield_now();
                }
            }
        });
        // Whether or not the writer finds that the first two were read, and so that it may.
        take_all(&mut reader, 1..=5);
        thread.join().expect("no panic");
    });
}

#[test]
fn loom_space_is_not_used_before_its_release() {
    model(3, || {
        let memory = Modelled::new(true);
        let (mut writer, mut reader) = (Writer::new(memory.clone()), Reader::new(memory));
        for n in 1..=3 {
            assert!(push(&mut writer, n));
        }
        let thread = thread::spawn(move || {
            // Does not fit: the word behind it is the first frame's until that is released.
            for _ in 0..2 {
                if push(&mut writer, 4) {
                    return true;
                }
                thread::yield_now();
            }
            false
        });
        let first = next(&mut reader);
        let offset = 0;
        // A payload would be used now: its bytes must still be there.
        assert_eq!(reader.memory().load(offset, Ordering::Relaxed), frame(1).lead);
        assert_eq!(first, Some(frame(1)));
        let _ = reader.release();
        assert_eq!(next(&mut reader), Some(frame(2)));
        assert_eq!(next(&mut reader), Some(frame(3)));
        if thread.join().expect("no panic") {
            assert_eq!(next(&mut reader), Some(frame(4)));
        }
        assert_eq!(next(&mut reader), None);
    });
}
