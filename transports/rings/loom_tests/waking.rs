//! Announcements, watching and sleep: nobody sleeps with something unseen.

use super::kit::{Modelled, fence_of_writer, frame, model, next, push};
use crate::rings::atomics::{AtomicU32, Ordering, fence};
use crate::rings::inbox::Inbox;
use crate::rings::ring::{Reader, RingMemory, Writer};
use loom::sync::Arc;
use loom::thread;

#[test]
fn loom_an_announcement_is_never_lost() {
    model(3, || {
        let inbox = Arc::new(Inbox::default());
        let done = Arc::new([AtomicU32::new(0), AtomicU32::new(0)]);
        // Two slots of one word: the second writer's bit must survive the taking of the first one's.
        let threads: Vec<_> = (0..2u32)
            .map(|slot| {
                let (inbox, done) = (inbox.clone(), done.clone());
                thread::spawn(move || {
                    done[slot as usize].store(1, Ordering::Relaxed);
                    let _ = inbox.announce(slot);
                })
            })
            .collect();
        let mut seen = 0;
        let mut take = || {
            if let Some((first, bits)) = inbox.take() {
                assert_eq!(first, 0);
                for slot in 0..2 {
                    // What was written before an announcement is seen after it.
                    assert!(bits & (1 << slot) == 0 || done[slot].load(Ordering::Relaxed) == 1);
                }
                seen |= bits;
            }
        };
        take();
        take();
        for thread in threads {
            thread.join().expect("no panic");
        }
        take();
        take();
        assert_eq!(seen, 0b11);
    });
}

#[test]
fn loom_no_frame_is_lost_when_watching_stops() {
    model(3, || {
        let memory = Modelled::new(true);
        let inbox = Arc::new(Inbox::default());
        let (mut writer, mut reader) = (Writer::new(memory.clone()), Reader::new(memory));
        let announced = inbox.clone();
        let thread = thread::spawn(move || {
            assert!(push(&mut writer, 1));
            fence_of_writer();
            if !writer.memory().watched() {
                let _ = announced.announce(0);
            }
        });
        // As in `Links::stop_watching`.
        reader.memory().watch(false);
        fence(Ordering::SeqCst);
        let before = next(&mut reader);
        thread.join().expect("no panic");
        if before.is_none() {
            assert_eq!(inbox.take(), Some((0, 1)), "neither seen nor announced");
            assert_eq!(next(&mut reader), Some(frame(1)));
        }
    });
}

#[test]
fn loom_nobody_sleeps_with_a_frame_unseen() {
    model(3, || {
        let memory = Modelled::new(true);
        let inbox = Arc::new(Inbox::default());
        let bell = Arc::new(AtomicU32::new(0));
        let (mut writer, reader) = (Writer::new(memory.clone()), Reader::new(memory));
        let (announced, rung) = (inbox.clone(), bell.clone());
        let thread = thread::spawn(move || {
            assert!(push(&mut writer, 1));
            fence_of_writer();
            if !writer.memory().watched() && announced.announce(0) {
                rung.store(1, Ordering::Relaxed);
            }
        });
        // As in `Links::arm`.
        reader.memory().watch(false);
        fence(Ordering::SeqCst);
        let backlog = reader.ready();
        inbox.arm();
        fence(Ordering::SeqCst);
        let sleeps = !inbox.ready() && !backlog;
        thread.join().expect("no panic");
        assert!(!sleeps || bell.load(Ordering::Relaxed) == 1, "asleep with a frame unseen");
    });
}

#[test]
fn loom_a_call_wakes_a_sleeper() {
    model(3, || {
        let inbox = Arc::new(Inbox::default());
        let caller = inbox.clone();
        let thread = thread::spawn(move || caller.call());
        inbox.arm();
        fence(Ordering::SeqCst);
        let sleeps = !inbox.ready();
        let rings = thread.join().expect("no panic");
        assert!(!sleeps || rings, "asleep with a caller");
        assert!(inbox.called() && !inbox.called());
    });
}

#[test]
fn loom_a_writer_that_sleeps_for_room_is_told_of_it() {
    model(3, || {
        let memory = Modelled::new(true);
        let (mut writer, mut reader) = (Writer::new(memory.clone()), Reader::new(memory));
        // As many as fit: the word behind the last one must be free.
        for n in 1..=3 {
            assert!(push(&mut writer, n));
        }
        assert!(!push(&mut writer, 4));
        let thread = thread::spawn(move || {
            let mut told = false;
            for n in 1..=3 {
                assert_eq!(next(&mut reader), Some(frame(n)));
                told |= reader.release();
            }
            told
        });
        let sleeps = writer.starve();
        let told = thread.join().expect("the reader ends");
        assert!(!sleeps || told, "the writer sleeps, there is room, and nobody has told it");
        assert!(push(&mut writer, 4));
    });
}
