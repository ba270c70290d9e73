use super::*;
use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::thread;

/// A board with one slot and one cell.
struct Model {
    begun: AtomicU64,
    called: [AtomicU64; 4],
    counts: [AtomicU64; 3],
    finished: AtomicU64,
    /// An operand, or a chunk of one. Loom fails if it is read while it is written.
    bytes: UnsafeCell<u64>,
}

// SAFETY: loom checks all uses of the bytes.
#[expect(unsafe_code, reason = "bytes that two threads use")]
unsafe impl Sync for Model {}

impl Model {
    fn new() -> Arc<Self> {
        let word = || AtomicU64::new(0);
        Arc::new(Model {
            begun: word(),
            called: [word(), word(), word(), word()],
            counts: [word(), word(), word()],
            finished: word(),
            bytes: UnsafeCell::new(0),
        })
    }

    fn words(&self) -> SlotWords<'_> {
        let [what, length, address, result] = &self.called;
        SlotWords { begun: &self.begun, called: [what, length, address, result], counts: &self.counts }
    }

    fn write(&self, value: u64) {
        // SAFETY: loom checks that nobody uses it meanwhile.
        #[expect(unsafe_code, reason = "bytes that two threads use")]
        self.bytes.with_mut(|bytes| unsafe { *bytes = value });
    }

    fn bytes(&self) -> u64 {
        // SAFETY: as above.
        #[expect(unsafe_code, reason = "bytes that two threads use")]
        self.bytes.with(|bytes| unsafe { *bytes })
    }
}

fn until(mut is_so: impl FnMut() -> bool) {
    while !is_so() {
        thread::yield_now();
    }
}

fn call_of(operation: u64) -> Called {
    Called { what: 10 + operation, length: 1 << 20, address: 20 + operation, result: 30 + operation }
}

/// A slot is used for the next operation once its reader has finished the one before.
#[test]
fn loom_a_slot_shows_the_operand_and_the_call_of_its_operation() {
    loom::model(|| {
        let (own, reader) = (Model::new(), Model::new());
        let (seen, reading) = (own.clone(), reader.clone());
        let other = thread::spawn(move || {
            for operation in 1..=2 {
                until(|| seen.words().begun(operation) == Stage::At(0));
                assert_eq!(seen.words().called(), call_of(operation));
                assert_eq!(seen.bytes(), 40 + operation);
                say(&reading.finished, operation);
            }
        });
        for operation in 1..=2 {
            until(|| read(&reader.finished) == operation - 1);
            own.write(40 + operation);
            own.words().begin(operation, call_of(operation));
        }
        other.join().expect("the other thread has not panicked");
    });
}

/// A cell is written again once its reader has consumed what was there.
#[test]
fn loom_a_cell_shows_one_chunk_after_the_other() {
    loom::model(|| {
        let (own, reader) = (Model::new(), Model::new());
        let (seen, reading) = (own.clone(), reader.clone());
        let at = |stage: Stage, chunk: u64| matches!(stage, Stage::At(chunks) if chunks >= chunk);
        let other = thread::spawn(move || {
            for chunk in 1..=2 {
                until(|| at(seen.words().count(5, Count::Written), chunk));
                assert_eq!(seen.bytes(), 40 + chunk);
                reading.words().set(5, Count::Consumed, chunk);
            }
        });
        for chunk in 1..=2 {
            until(|| chunk == 1 || at(reader.words().count(5, Count::Consumed), chunk - 1));
            own.write(40 + chunk);
            own.words().set(5, Count::Written, chunk);
        }
        other.join().expect("the other thread has not panicked");
    });
}

/// Whoever waits for a chunk or for the beginning of an operation that is given up hears of it, and nothing of it is read after that.
#[test]
fn loom_an_operation_that_is_given_up_ends_every_wait() {
    loom::model(|| {
        let (own, reader) = (Model::new(), Model::new());
        let (seen, reading) = (own.clone(), reader.clone());
        let other = thread::spawn(move || {
            let stage = || seen.words().count(1, Count::Written);
            until(|| stage() != Stage::Before);
            until(|| matches!(stage(), Stage::Abandoned | Stage::At(2)));
            assert_eq!(stage(), Stage::Abandoned);
            until(|| seen.words().begun(1) == Stage::Abandoned);
            say(&reading.finished, 1);
        });
        own.words().begin(1, call_of(1));
        own.words().set(1, Count::Written, 1);
        own.words().abandon(1);
        // The slot is the next one's when the reader has done with it, too.
        until(|| read(&reader.finished) == 1);
        own.write(7);
        own.words().begin(2, call_of(2));
        assert_eq!(own.words().begun(1), Stage::Before);
        other.join().expect("the other thread has not panicked");
    });
}

/// Where others read an operand in its owner's memory, they look at the count once more behind what they have read. What the owner writes
/// there after it has given the operation up is never taken for the operand.
#[test]
fn loom_memory_that_is_used_again_is_not_taken_for_the_operand() {
    loom::model(|| {
        let (own, operand) = (Model::new(), Arc::new(AtomicU64::new(1)));
        let (seen, reading) = (own.clone(), operand.clone());
        let other = thread::spawn(move || {
            if seen.words().count(1, Count::Written) != Stage::At(1) {
                return;
            }
            let found = reading.load(Ordering::Relaxed);
            fence(Ordering::Acquire);
            if seen.words().count(1, Count::Written) == Stage::At(1) {
                assert_eq!(found, 1);
            }
        });
        own.words().set(1, Count::Written, 1);
        own.words().abandon(1);
        operand.store(2, Ordering::Relaxed);
        other.join().expect("the other thread has not panicked");
    });
}

/// A member that was left behind while it read does not take what it has read for the operand.
#[test]
fn loom_a_member_that_is_left_behind_sees_it_behind_what_it_has_read() {
    loom::model(|| {
        let (behind, operand) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(1)));
        let (seen, reading) = (behind.clone(), operand.clone());
        let other = thread::spawn(move || {
            let found = reading.load(Ordering::Relaxed);
            if !has_left_behind(&seen, 3) {
                assert_eq!(found, 1);
            }
            assert!(!has_left_behind(&seen, 2));
        });
        leave_behind(&behind, 1 << 3);
        operand.store(2, Ordering::Relaxed);
        other.join().expect("the other thread has not panicked");
    });
}
