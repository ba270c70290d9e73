//! How far a reader stays behind the writer of a stream.
//!
//! A reader on its writer's heels takes each line away while the writer is filling the next: the writer has to get lines back
//! before it can go on, and both wait for them to travel. A few lines apart, each line travels once. By measurement a message
//! of 0 B costs its writer 17 ns with its reader far behind, and 24 ns with its reader at its heels; of 64 B, a fifth more
//! go through with this. Once apart the two stay apart, since reading a short frame takes as long as writing one.
//!
//! What is a stream shows afterwards: frames that came without an answer between them. So who has sent a long one is taken to
//! send another one when it has been answered, and is given a moment after its first frame. It costs whoever sends
//! something short instead that moment, once.

use std::time::{Duration, Instant};

/// Bytes of a ring that make a stream of which the next one is given a moment: 32 frames of one line.
const LONG: u64 = 32 * 64;

/// What a writer is given, the time of some 20 short frames. By measurement with windows of 64: 200 ns do little at 0 B, 600
/// cost as much as they bring.
const MOMENT: Duration = Duration::from_nanos(350);

/// What a reader knows of the stream that it reads. Frames that came one by one, while it was waiting, are not looked at.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Lag {
    /// How much had been written the other way when the stream began, bytes.
    answered: u64,
    /// Where in the ring it began, bytes.
    began: u64,
    /// How far it has been read, bytes.
    read: u64,
}

impl Lag {
    /// Notes that there are frames at `position`, when so much has been written the other way. `true` if the writer should be
    /// given a moment before they are read: a stream begins, the one before it was long, and the reader has waited for it,
    /// since its first frame has been read alone.
    #[inline(always)]
    pub(super) fn is_due(&mut self, position: u64, answered: u64) -> bool {
        if answered == self.answered {
            return false;
        }
        let is_due = self.read - self.began >= LONG && position != self.read;
        *self = Lag { answered, began: position, read: position };
        is_due
    }

    /// Notes that frames have been read, up to `position`.
    #[inline(always)]
    pub(super) fn has_read(&mut self, position: u64) {
        self.read = position;
    }
}

/// Gives the writer its moment.
#[cold]
#[inline(never)]
pub(super) fn give_a_moment() {
    let begin = Instant::now();
    while begin.elapsed() < MOMENT {
        std::hint::spin_loop();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a reader does with streams of so many frames of one line each, answered one by one, the first frame of each read
    /// alone if it `waits` for it: which streams have a moment.
    fn moments(streams: &[u64], waits: bool) -> Vec<bool> {
        let (mut lag, mut position) = (Lag::default(), 0);
        let mut of_stream = |(answers, frames): (u64, &u64)| {
            position += if waits { 64 } else { 0 };
            let mut moments = 0;
            for _ in u64::from(waits)..*frames {
                moments += u32::from(lag.is_due(position, 64 * (answers + 1)));
                position += 64;
                lag.has_read(position);
            }
            assert!(moments < 2);
            moments == 1
        };
        (0..).zip(streams).map(&mut of_stream).collect()
    }

    #[test]
    fn a_stream_after_a_long_one_has_one_moment() {
        assert_eq!(moments(&[64, 64, 64], true), [false, true, true]);
        assert_eq!(moments(&[31, 64, 2, 2], true), [false, false, true, false]);
    }

    #[test]
    fn what_is_answered_one_by_one_never_waits() {
        assert_eq!(moments(&[64, 1, 1, 1, 1], true), [false; 5]);
    }

    #[test]
    fn a_reader_that_was_not_waiting_is_behind_anyway() {
        assert_eq!(moments(&[64, 64, 64], false), [false; 3]);
    }
}
