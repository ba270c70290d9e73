use super::*;
use loom::sync::Arc;
use loom::thread;

/// What the origin and the target share.
struct Shared {
    state: AtomicU32,
    /// The bytes of the slot.
    bytes: AtomicU32,
    /// Where the puts belong.
    place: AtomicU32,
    /// How many puts were written there. It is not atomic by itself.
    written: AtomicU32,
}

fn shared() -> Arc<Shared> {
    let zero = || AtomicU32::new(0);
    Arc::new(Shared { state: AtomicU32::new(FREE), bytes: zero(), place: zero(), written: zero() })
}

impl Shared {
    fn leave(&self, put: u32) {
        self.bytes.store(put, Ordering::Relaxed);
        post(&self.state);
    }

    /// Takes the put and writes it to where it belongs. `false` if there is none.
    fn serve(&self) -> bool {
        let is_taken = take(&self.state);
        if is_taken {
            self.place.store(self.bytes.load(Ordering::Relaxed), Ordering::Relaxed);
            self.written.store(self.written.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
            free(&self.state);
        }
        is_taken
    }
}

#[test]
fn loom_a_put_is_written_by_the_target_or_by_the_origin_that_takes_it_back() {
    loom::model(|| {
        let origin = shared();
        let target = origin.clone();
        let serving = thread::spawn(move || is_posted(&target.state) && target.serve());
        origin.leave(7);
        let is_back = origin.serve();
        while !is_free(&origin.state) {
            thread::yield_now();
        }
        let found = [&origin.place, &origin.written].map(|word| word.load(Ordering::Relaxed));
        assert_eq!(found, [7, 1], "the put is where it belongs, and was written once");
        let is_served = serving.join().expect("the target has not panicked");
        assert_ne!(is_back, is_served);
    });
}

#[test]
fn loom_puts_in_one_slot_are_written_whole_and_in_order() {
    loom::model(|| {
        let origin = shared();
        let target = origin.clone();
        let serving = thread::spawn(move || {
            for put in 1..=2 {
                while !target.serve() {
                    thread::yield_now();
                }
                assert_eq!(target.place.load(Ordering::Relaxed), put, "it was half there");
            }
        });
        for put in 1..=2 {
            while !is_free(&origin.state) {
                thread::yield_now();
            }
            assert_eq!(origin.place.load(Ordering::Relaxed), put - 1, "the one before is not written yet");
            origin.leave(put);
        }
        serving.join().expect("the target has not panicked");
    });
}
