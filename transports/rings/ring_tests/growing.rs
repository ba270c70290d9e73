//! Rings that go on in a larger one.

use super::*;

#[test]
fn a_ring_goes_on_in_a_larger_one_wherever_it_stands() {
    // However much was written and read before, also none and all that there is room for.
    for (written, read) in (0..=15).flat_map(|w| (0..=w).map(move |r| (w, r))) {
        let Both { mut writer, mut reader, memory: _memory } = both();
        // Not at the front.
        for n in 0..5 {
            assert_eq!(writer.push(&eager(n, 0), &NoBytes), Ok(true));
            assert!(matches!(reader.read(), Ok(Some(_))));
        }
        let _ = reader.release();
        let mut next = 5;
        let push = |writer: &mut Writer<RawRing>, next: &mut u32| {
            let pushed = writer.push(&eager(*next, 0), &NoBytes).expect("honest");
            *next += u32::from(pushed);
        };
        (0..written).for_each(|_| push(&mut writer, &mut next));
        let mut expected = 5;
        let mut check = |reader: &mut Reader<RawRing>, most| {
            for _ in 0..most {
                let Some((header, _)) = reader.read().expect("honest") else { return };
                assert_eq!(header, eager(expected, 0));
                expected += 1;
                let _ = reader.release();
            }
        };
        check(&mut reader, read);
        for bytes in [2 * CAPACITY, 16 * CAPACITY] {
            let (ring, memory) = larger(writer.memory(), bytes);
            assert!(reader.follow_to(ring));
            assert!(!reader.follow_to(ring), "one at a time");
            writer.go_over(ring);
            (0..20).for_each(|_| push(&mut writer, &mut next));
            check(&mut reader, 1000);
            assert_eq!(reader.memory().capacity(), bytes as u64);
            std::mem::forget(memory);
        }
        assert_eq!(expected, next);
        assert!(next >= 45 && !reader.ready());
        let (smaller, _memory) = larger(writer.memory(), CAPACITY);
        assert!(!reader.follow_to(smaller) && !reader.follow_to(*writer.memory()));
    }
}

#[test]
fn a_larger_ring_takes_larger_frames_and_a_small_one_says_what_it_takes() {
    let Both { mut writer, mut reader, memory: _memory } = both();
    let long = vec![7; 4 * MOST];
    let push = |writer: &mut Writer<RawRing>, length: usize| {
        writer.push(&eager(0, length), &Parts(&long[..length], 0)).expect("honest")
    };
    assert_eq!(
        [0, MOST, MOST + 1, 1 << 40].map(|bytes| writer.fits(bytes as u64)),
        [0, MOST, MOST, MOST].map(|b| b as u64)
    );
    assert!(push(&mut writer, 2 * MOST), "an empty ring takes more");
    assert!(push(&mut writer, MOST) && !push(&mut writer, MOST));
    assert!(writer.wants_room());
    assert!(!push(&mut writer, 4 * MOST) && !writer.wants_room(), "nobody waits for what may never go");
    let (ring, _larger) = larger(writer.memory(), 4 * CAPACITY);
    assert!(reader.follow_to(ring));
    writer.go_over(ring);
    assert_eq!(writer.fits(4 * MOST as u64), 4 * MOST as u64);
    assert!(push(&mut writer, 4 * MOST));
    for length in [2 * MOST, MOST, 4 * MOST] {
        assert!(matches!(reader.read(), Ok(Some((_, span))) if span.len() == length));
    }
    assert_eq!(reader.read().map(|found| found.is_none()), Ok(true));
}
