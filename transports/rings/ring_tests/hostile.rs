//! What a hostile other end can do to each end of a ring: nothing but an error.

use super::*;

#[test]
fn every_first_byte_is_a_frame_or_refused() {
    for kind in 0..=255u8 {
        let Both { writer, mut reader, memory: _memory } = both();
        writer.memory().store(0, u64::from(kind) | 0xFF00, Ordering::Release);
        let found = reader.read().map(|found| found.map(|(header, span)| (header.lead as u8, span.len())));
        match kind {
            // With all flags, an offer has an address.
            2 => assert_eq!(found, Ok(Some((kind, ADDRESS_BYTES as usize)))),
            1..KINDS_END => assert_eq!(found, Ok(Some((kind, 0)))),
            kind if kind == Mark::Moved as u8 => assert_eq!(found, Err(Corrupt::Moved(0xFF))),
            _ => assert_eq!(found, Err(Corrupt::Kind(kind))),
        }
        if found.is_err() {
            assert_eq!(reader.read().err(), found.err(), "asking again gives the same");
        }
    }
}

#[test]
fn every_length_fits_or_is_refused() {
    let lengths = (0..2 * CAPACITY as u64)
        .step_by(if cfg!(miri) { 61 } else { 1 })
        .chain((0..64).map(|bit| 1 << bit))
        .chain((0..9).map(|n| u64::MAX - n));
    for length in lengths {
        for start in [0, CAPACITY / 2, CAPACITY - FRAME] {
            let Both { mut writer, mut reader, memory: _memory } = both();
            for n in 0..start / FRAME {
                assert_eq!(writer.push(&eager(n as u32, 0), &NoBytes), Ok(true));
                assert!(matches!(reader.read(), Ok(Some(_))));
                let _ = reader.release();
            }
            writer.memory().store(start as u64 + 24, length, Ordering::Relaxed);
            writer.memory().store(start as u64, Kind::Piece as u64, Ordering::Release);
            let fits = length <= CAPACITY as u64 && start as u64 + frame_bytes(length) <= CAPACITY as u64;
            match reader.read() {
                Ok(Some((_, span))) => assert!(fits && bytes(span).len() as u64 == length),
                other => assert_eq!(other.err(), (!fits).then_some(Corrupt::Length(length))),
            }
        }
    }
}

#[test]
fn any_bytes_in_a_ring_are_read_within_its_bounds() {
    let mut state = 0x1234_5678_9ABC_DEF1u64;
    let mut random = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        state >> 16
    };
    for _ in 0..if cfg!(miri) { 20 } else { 2000 } {
        let Both { writer, mut reader, memory } = both();
        for offset in (0..CAPACITY as u64).step_by(8) {
            // Mostly plausible words, so that the reader gets far.
            let word = if random() % 4 == 0 { random() } else { random() % 8 };
            writer.memory().store(offset, word, Ordering::Relaxed);
        }
        let start = memory.base().as_ptr().addr() + CONTROL_BYTES;
        for _ in 0..200 {
            match reader.read() {
                Ok(Some((_, span))) => {
                    let first = span.start().addr();
                    assert!(first >= start && first + span.len() <= start + CAPACITY);
                    bytes(span);
                    let _ = reader.release();
                }
                Ok(None) | Err(_) => break,
            }
        }
    }
}

#[test]
fn marks_that_cannot_be_are_refused() {
    let mark = |log: u64| Mark::Moved as u64 | log << 8;
    let log = |bytes: usize| u64::from(bytes.trailing_zeros());
    // Not passed.
    let Both { writer, mut reader, memory: _memory } = both();
    writer.memory().store(0, mark(log(2 * CAPACITY)), Ordering::Release);
    assert_eq!(reader.read().err(), Some(Corrupt::Moved(log(2 * CAPACITY) as u8)));
    // Of another size than what was passed.
    let Both { writer, mut reader, memory: _memory } = both();
    let (ring, _larger) = larger(writer.memory(), 2 * CAPACITY);
    assert!(reader.follow_to(ring));
    for bytes in [CAPACITY, 4 * CAPACITY] {
        writer.memory().store(0, mark(log(bytes)), Ordering::Release);
        assert_eq!(reader.read().err(), Some(Corrupt::Moved(log(bytes) as u8)));
    }
    // Behind the mark that the ring goes on at its front, where a frame must be.
    let Both { mut writer, mut reader, memory: _memory } = both();
    let (ring, _larger) = larger(writer.memory(), 2 * CAPACITY);
    assert!(reader.follow_to(ring));
    assert_eq!(writer.push(&eager(0, 0), &NoBytes), Ok(true));
    assert!(matches!(reader.read(), Ok(Some(_))));
    writer.memory().store(FRAME as u64, Mark::Wrap as u64, Ordering::Release);
    writer.memory().store(0, mark(log(2 * CAPACITY)), Ordering::Release);
    assert_eq!(reader.read().err(), Some(Corrupt::Kind(Mark::Moved as u8)));
}

#[test]
fn a_mark_to_wrap_at_the_front_is_refused() {
    let Both { writer, mut reader, memory: _memory } = both();
    writer.memory().store(0, Mark::Wrap as u64, Ordering::Release);
    assert_eq!(reader.read().err(), Some(Corrupt::Kind(Mark::Wrap as u8)));
}

#[test]
fn a_forged_release_is_refused() {
    for forged in [1 << 40, u64::MAX, CAPACITY as u64 + 8] {
        let Both { mut writer, reader, memory: _memory } = both();
        reader.memory().release(forged);
        let refused = (0..100).find_map(|n| writer.push(&eager(n, 0), &NoBytes).err());
        assert_eq!(refused, Some(Corrupt::Released(forged)));
    }
    // Backwards is no better.
    let Both { mut writer, mut reader, memory: _memory } = both();
    for n in 0..100 {
        assert_eq!(writer.push(&eager(n, 0), &NoBytes), Ok(true));
        assert!(matches!(reader.read(), Ok(Some(_))));
        let _ = reader.release();
    }
    reader.memory().release(8);
    let refused = (0..100).find_map(|n| writer.push(&eager(n, 0), &NoBytes).err());
    assert_eq!(refused, Some(Corrupt::Released(8)));
}
