use super::*;
use loom::sync::Arc;
use loom::thread;

const SHARE: u64 = share_of(0, NAMED_MAX + 1);

/// What a test shares: the locks, and a number that is not atomic by itself.
struct Shared {
    access: AtomicU64,
    update: AtomicU32,
    mode: AtomicU32,
    busy: [AtomicU32; 2],
    low: AtomicU32,
    high: AtomicU32,
}

fn shared() -> Arc<Shared> {
    let zero = || AtomicU32::new(0);
    Arc::new(Shared {
        access: AtomicU64::new(0),
        update: zero(),
        mode: zero(),
        busy: [zero(), zero()],
        low: zero(),
        high: zero(),
    })
}

/// Adds one to both halves, one after the other, by loads and stores.
fn add_slowly(shared: &Shared) {
    for half in [&shared.low, &shared.high] {
        half.store(half.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    }
}

fn light() {
    crate::rings::atomics::fence(Ordering::SeqCst);
}

#[test]
fn loom_who_holds_an_access_lock_alone_sees_all_that_was_done_before() {
    loom::model(|| {
        let one = shared();
        let other = one.clone();
        let adding = thread::spawn(move || {
            while try_access(&other.access, 1, SHARE, Hold::Exclusive).is_err() {
                thread::yield_now();
            }
            add_slowly(&other);
            release_access(&other.access, SHARE, Hold::Exclusive);
        });
        while try_access(&one.access, 0, SHARE, Hold::Shared).is_err() {
            thread::yield_now();
        }
        let halves = [&one.low, &one.high].map(|half| half.load(Ordering::Relaxed));
        assert_eq!(halves[0], halves[1], "half done");
        release_access(&one.access, SHARE, Hold::Shared);
        adding.join().expect("the other thread has not panicked");
    });
}

#[test]
fn loom_who_is_counted_among_many_says_so() {
    loom::model(|| {
        let one = shared();
        let other = one.clone();
        // It is killed once it has the lock.
        let dying = thread::spawn(move || try_among_many(&other.access, &other.busy[1], 1));
        if try_access(&one.access, 0, SHARE, Hold::Exclusive).is_err() {
            assert_eq!(held_by(&one.access, &one.busy[1], 1, NAMED_MAX + 1), Some(Hold::Shared));
        } else {
            release_access(&one.access, SHARE, Hold::Exclusive);
        }
        let taken = dying.join().expect("the other thread has not panicked");
        let named = held_by(&one.access, &one.busy[1], 1, NAMED_MAX + 1);
        assert_eq!(named, taken.ok().map(|()| Hold::Shared));
    });
}

#[test]
fn loom_who_has_given_back_among_many_is_not_named() {
    loom::model(|| {
        let one = shared();
        let other = one.clone();
        let sharing = thread::spawn(move || {
            if try_among_many(&other.access, &other.busy[1], 1).is_ok() {
                assert_eq!(held_by(&other.access, &other.busy[1], 1, NAMED_MAX + 1), Some(Hold::Shared));
                release_among_many(&other.access, &other.busy[1]);
            }
        });
        if try_access(&one.access, 0, SHARE, Hold::Exclusive).is_ok() {
            assert_eq!(held_by(&one.access, &one.busy[1], 1, NAMED_MAX + 1), None, "it is held alone");
            release_access(&one.access, SHARE, Hold::Exclusive);
        }
        sharing.join().expect("the other thread has not panicked");
        assert_eq!((one.access.load(Ordering::Relaxed), one.busy[1].load(Ordering::Relaxed)), (0, 0));
    });
}

#[test]
fn loom_updates_with_and_without_the_lock_lose_nothing() {
    loom::model(|| {
        let one = shared();
        let other = one.clone();
        let free = thread::spawn(move || {
            if begin_free(&other.mode, &other.busy[1], light) {
                other.low.fetch_add(1, Ordering::AcqRel);
                end_free(&other.busy[1]);
                return;
            }
            while try_update(&other.update, 1, |_| false).is_err() {
                thread::yield_now();
            }
            other.low.store(other.low.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
            release_update(&other.update, 1);
        });
        loop {
            while try_update(&one.update, 0, |_| false).is_err() {
                thread::yield_now();
            }
            if close_free(&one.mode, (0..).zip(&one.busy), |_| false, light).is_ok() {
                break;
            }
            release_update(&one.update, 0);
            thread::yield_now();
        }
        one.low.store(one.low.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        release_update(&one.update, 0);
        free.join().expect("the other thread has not panicked");
        assert_eq!(one.low.load(Ordering::Relaxed), 2, "an update is lost");
    });
}

/// Two members take the lock over from one that they take for dead, and that gives it back late.
#[test]
fn loom_a_lock_that_is_taken_over_has_one_holder_at_a_time() {
    loom::model(|| {
        let one = shared();
        assert_eq!(try_update(&one.update, 1, |_| false), Ok(()));
        let try_once = |shared: &Shared, me: u32| {
            let taken = try_update(&shared.update, me, |member| member == 1).is_ok();
            if taken {
                add_slowly(shared);
                release_update(&shared.update, me);
            }
            u32::from(taken)
        };
        let [late, other] = [one.clone(), one.clone()];
        let late = thread::spawn(move || release_update(&late.update, 1));
        let other = thread::spawn(move || try_once(&other, 2));
        let mut taken = try_once(&one, 0);
        taken += other.join().expect("the other thread has not panicked");
        late.join().expect("the late thread has not panicked");
        assert_eq!(one.low.load(Ordering::Relaxed), taken, "two held it at once");
        assert_eq!(one.update.load(Ordering::Relaxed), 0, "it is free in the end");
    });
}
