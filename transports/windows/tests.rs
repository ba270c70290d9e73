use super::*;
use crate::rings::fences;
use tickwire_components::limits::{UPDATE_LOCK_TRIES, UPDATED_FREE_MAX};
use tickwire_components::{NumberType, op};

const NOBODY: fn(u32) -> bool = |_| false;

fn span(bytes: &mut [u8]) -> Span {
    // SAFETY: the bytes outlive the test's use.
    #[expect(unsafe_code, reason = "lends local bytes")]
    unsafe {
        Span::new(bytes.as_mut_ptr(), bytes.len())
    }
}

fn run(bytes: usize) -> SharedRun {
    SharedRun::private(bytes).expect("there is memory")
}

/// A part of so many bytes as two members see it.
fn parts(bytes: usize, one_sided: bool) -> [Part; 2] {
    let run = run(control_bytes(2) + bytes);
    [0, 1].map(|me| Part::new(run.clone(), Memory::Behind(bytes), 2, me, one_sided).expect("it is long enough"))
}

#[expect(unsafe_code, reason = "lends local bytes")]
fn put(part: &Part, at: usize, bytes: &[u8]) -> bool {
    // SAFETY: local bytes.
    unsafe { part.put(at, span(&mut bytes.to_vec())) }
}

#[expect(unsafe_code, reason = "lends local bytes")]
fn get(part: &Part, at: usize, length: usize) -> Option<Vec<u8>> {
    let mut bytes = vec![0xEE; length];
    // SAFETY: local bytes.
    unsafe { part.get(at, span(&mut bytes)) }.then_some(bytes)
}

#[expect(unsafe_code, reason = "lends local bytes")]
fn add(part: &Part, at: usize, numbers: &[u64], is_dead: fn(u32) -> bool) -> Result<bool, HeldBy> {
    let mut operands: Vec<u8> = numbers.iter().flat_map(|number| number.to_ne_bytes()).collect();
    let updater = Updater::of::<u64, op::Sum>();
    // SAFETY: local bytes.
    unsafe { part.update(updater, at, span(&mut operands), std::ptr::null_mut(), Claim::waiting(is_dead)) }
}

fn number(part: &Part, at: usize) -> u64 {
    u64::from_ne_bytes(get(part, at, 8).expect("it is there").try_into().expect("8 bytes"))
}

#[test]
fn what_one_member_puts_the_other_one_gets_and_nothing_is_written_outside() {
    // The interpreter is too slow for what goes past the caches.
    let long = if cfg!(miri) { 10_000 } else { STREAMED_MIN + 13 };
    let length = long + 100;
    let [one, other] = parts(length, false);
    for (at, bytes) in [(0, 8), (8, 4), (3, 8), (1, 4), (5, 1), (0, 0), (7, long), (length - 5, 5)] {
        let sent: Vec<u8> = (0..bytes).map(|byte| byte as u8 ^ at as u8 ^ 0x5A).collect();
        assert!(put(&one, at, &sent));
        assert_eq!(get(&other, at, bytes), Some(sent));
    }
    for (at, bytes) in [(length, 1), (length - 7, 8), (usize::MAX, 8), (length + 1, 0), (0, length + 1)] {
        assert!(!put(&one, at, &vec![1; bytes]), "{bytes} at {at}");
        assert_eq!(get(&one, at, bytes), None);
        assert_eq!(add(&one, at, &vec![1; bytes.div_ceil(8).max(1)], NOBODY), Ok(false));
    }
}

#[test]
fn elements_are_updated_where_they_are_aligned() {
    let [one, other] = parts(64, true);
    assert_eq!(add(&one, 8, &[5, 6], NOBODY), Ok(true));
    assert_eq!(add(&other, 16, &[1], NOBODY), Ok(true));
    assert_eq!((number(&one, 8), number(&one, 16)), (5, 7));
    assert_eq!(add(&one, 4, &[5], NOBODY), Ok(false));
    let swapped = one.compare_swap(NumberType::U64, 8, 5u64.to_ne_bytes(), 9u64.to_ne_bytes(), Claim::waiting(NOBODY));
    assert_eq!(swapped, Ok(Some(5u64.to_ne_bytes())));
    assert_eq!(number(&other, 8), 9);
    assert_eq!(one.compare_swap(NumberType::U64, 4, [0; 8], [0; 8], Claim::waiting(NOBODY)), Ok(None));
    assert_eq!(one.compare_swap(NumberType::U32, 62, [0; 8], [0; 8], Claim::waiting(NOBODY)), Ok(None));
}

#[test]
fn who_holds_the_update_lock_is_waited_for_unless_it_is_dead() {
    let many = vec![1; UPDATED_FREE_MAX / 8 + 1];
    let [one, other] = parts(8 * many.len(), false);
    assert_eq!(other.update_holder(), None);
    let guard = one.lock_updates(NOBODY).expect("nobody has it");
    assert_eq!([&one, &other].map(Part::update_holder), [Some(0); 2]);
    assert_eq!(add(&other, 0, &many, NOBODY), Err(HeldBy(0)));
    assert_eq!(add(&other, 0, &[1], NOBODY), Err(HeldBy(0)), "few take the lock, too, from now on");
    assert_eq!(add(&other, 0, &many, |member| member == 0), Ok(true));
    drop(guard);
    assert_eq!(other.update_holder(), None);
    assert_eq!(add(&one, 0, &[1], NOBODY), Ok(true));
    assert_eq!((number(&one, 0), number(&one, 8)), (2, 1));
}

/// How often a claim asks whether the holder is dead: at each of its tries.
#[expect(unsafe_code, reason = "lends local bytes")]
#[test]
fn a_claim_of_a_tick_tries_once_and_one_of_a_caller_that_waits_several_times() {
    let many = UPDATED_FREE_MAX + 8;
    let [one, other] = parts(many, false);
    let _guard = one.lock_updates(NOBODY).expect("nobody has it");
    let tries = std::cell::Cell::new(0);
    let is_dead = |_| {
        tries.set(tries.get() + 1);
        false
    };
    let updater = Updater::of::<u64, op::Sum>();
    for (claim, expected) in [(Claim::once(is_dead), 1), (Claim::waiting(is_dead), UPDATE_LOCK_TRIES)] {
        assert_eq!(other.take_updates(claim).map(drop), Err(HeldBy(0)));
        assert_eq!(tries.take(), expected);
    }
    // SAFETY: local bytes.
    let added =
        unsafe { other.update(updater, 0, span(&mut vec![1; many]), std::ptr::null_mut(), Claim::once(is_dead)) };
    assert_eq!((added, tries.take()), (Err(HeldBy(0)), 1));
    let swapped = other.compare_swap(NumberType::U64, 0, [0; 8], [1; 8], Claim::once(is_dead));
    assert_eq!((swapped, tries.take()), (Err(HeldBy(0)), 1));
}

#[test]
fn an_access_lock_says_who_has_it() {
    let [one, other] = parts(0, false);
    assert_eq!(one.try_lock(Hold::Shared), Ok(()));
    assert_eq!(other.try_lock(Hold::Shared), Ok(()));
    assert_eq!(one.holders().collect::<Vec<_>>(), [(0, Hold::Shared), (1, Hold::Shared)]);
    one.unlock(Hold::Shared);
    assert_eq!(one.try_lock(Hold::Exclusive), Err(None));
    other.unlock(Hold::Shared);
    assert_eq!(one.try_lock(Hold::Exclusive), Ok(()));
    assert_eq!(other.try_lock(Hold::Shared), Err(Some(0)));
    assert_eq!(other.holders().collect::<Vec<_>>(), [(0, Hold::Exclusive)]);
    assert_eq!((other.dead_holder(|_| true), other.dead_holder(|member| member == 1)), (Some(0), None));
    one.unlock(Hold::Exclusive);
    assert_eq!(other.holders().count(), 0);
}

#[test]
fn as_many_as_there_are_share_an_access_lock_and_are_named() {
    const MEMBERS: u32 = 1024;
    let run = run(control_bytes(MEMBERS));
    let part = |me| Part::new(run.clone(), Memory::Behind(0), MEMBERS, me, false).expect("it is long enough");
    let parts: Vec<Part> = (0..MEMBERS).map(part).collect();
    parts.iter().for_each(|part| assert_eq!(part.try_lock(Hold::Shared), Ok(())));
    assert!(parts[5].holders().eq((0..MEMBERS).map(|member| (member, Hold::Shared))));
    assert_eq!(parts[5].try_lock(Hold::Exclusive), Err(None));
    parts.iter().filter(|part| part.control.me != 999).for_each(|part| part.unlock(Hold::Shared));
    assert_eq!(parts[5].try_lock(Hold::Exclusive), Err(None));
    assert_eq!(parts[5].dead_holder(|member| member >= 990), Some(999));
    assert_eq!(parts[5].dead_holder(|member| member < 990), None);
    parts[999].unlock(Hold::Shared);
    assert_eq!(parts[5].try_lock(Hold::Exclusive), Ok(()));
    assert_eq!(parts[999].try_lock(Hold::Shared), Err(Some(5)));
    assert!(parts[999].holders().eq([(5, Hold::Exclusive)]));
    parts[5].unlock(Hold::Exclusive);
    assert_eq!(parts[999].holders().count(), 0);
}

#[test]
fn a_run_that_is_too_short_is_no_part() {
    assert!(Part::new(run(control_bytes(2) + 8), Memory::Behind(9), 2, 0, false).is_none());
    assert!(Part::new(run(control_bytes(2)), Memory::Behind(usize::MAX), 2, 0, false).is_none());
    assert!(Part::new(run(control_bytes(2)), Memory::Elsewhere(1 << 40), 2, 2, false).is_none(), "no such rank");
    let elsewhere =
        Part::new(run(control_bytes(2)), Memory::Elsewhere(1 << 40), 2, 1, false).expect("it is long enough");
    assert!(elsewhere.memory().is_none() && !put(&elsewhere, 0, &[1]) && get(&elsewhere, 0, 1).is_none());
    assert!(control_bytes(2) >= 5 * SHARED_ALIGN && control_bytes(1000).is_multiple_of(PAGE_BYTES));
}

#[test]
fn threads_lose_no_update_whichever_way_they_go() {
    let rounds: u64 = if cfg!(miri) { 20 } else { 20_000 };
    let many = UPDATED_FREE_MAX / 8 + 1;
    for one_sided in [false, fences::one_sided()] {
        let parts = parts(8 * many, one_sided);
        std::thread::scope(|scope| {
            for (part, long) in parts.iter().zip([false, true]) {
                scope.spawn(move || {
                    for round in 0..rounds {
                        // The other thread begins without the lock, and is stopped by the first long update.
                        let operands = if long && round >= rounds / 2 { vec![1; many] } else { vec![1] };
                        while add(part, 0, &operands, NOBODY).is_err() {
                            std::thread::yield_now();
                        }
                    }
                });
            }
        });
        assert_eq!((number(&parts[0], 0), number(&parts[0], 8)), (2 * rounds, rounds / 2));
    }
}

/// A part with memory of its owner's own, as that and as another member see it.
fn mailed(memory: &mut [u8]) -> [Part; 2] {
    let run = run(control_bytes_with_mail(2));
    let bytes = memory.len();
    let places = [Memory::Own(span(memory)), Memory::Elsewhere(bytes)];
    [0, 1].map(|me| Part::new(run.clone(), places[me as usize], 2, me, false).expect("it is long enough"))
}

#[expect(unsafe_code, reason = "lends local bytes")]
fn post(part: &Part, at: usize, bytes: &[u8]) -> bool {
    // SAFETY: local bytes.
    unsafe { part.post_mail(at, span(&mut bytes.to_vec())) }
}

#[test]
fn a_put_that_was_left_is_taken_by_the_owner_or_taken_back() {
    let mut memory = vec![0; 64];
    let [owner, origin] = mailed(&mut memory);
    assert!(owner.has_mail() && origin.is_mail_taken() && owner.serve_mail() == 0);
    assert!(post(&origin, 3, &[7; 5]));
    assert!(!origin.is_mail_taken() && !post(&origin, 0, &[1]), "one at a time");
    assert_eq!((owner.serve_mail(), owner.serve_mail()), (1, 0));
    assert!(origin.is_mail_taken() && origin.take_mail_back().is_none());
    assert!(post(&origin, 40, &[8; 2]));
    let (at, bytes) = origin.take_mail_back().expect("nobody has it");
    assert_eq!((at, bytes.len(), owner.serve_mail(), origin.is_mail_taken()), (40, 2, 0, false));
    origin.end_mail();
    assert!(origin.is_mail_taken());
    assert!(!post(&origin, 0, &[0; tickwire_components::limits::MAIL_BYTES + 1]), "it is too long");
    // An origin that is not honest writes nothing.
    for at in [60, 64, usize::MAX] {
        assert!(post(&origin, at, &[9; 8]));
        assert_eq!(owner.serve_mail(), 1);
    }
    let expected: Vec<u8> = (0..64).map(|at| if (3..8).contains(&at) { 7 } else { 0 }).collect();
    assert_eq!(memory, expected);
    let many = tickwire_components::limits::MAIL_MEMBERS + 1;
    assert_eq!(control_bytes_with_mail(many), control_bytes(many), "too many to look at");
}

#[test]
fn of_an_owner_and_an_origin_that_takes_back_one_has_each_put() {
    let rounds: u64 = if cfg!(miri) { 30 } else { 50_000 };
    let mut memory = vec![0; 8];
    let [owner, origin] = mailed(&mut memory);
    let back = std::thread::scope(|scope| {
        let origin = scope.spawn(move || {
            let mut back = 0;
            for round in 1..=rounds {
                assert!(post(&origin, 0, &round.to_ne_bytes()));
                loop {
                    if origin.is_mail_taken() {
                        break;
                    }
                    if let Some((_, bytes)) = origin.take_mail_back() {
                        assert_eq!(bytes.len(), 8);
                        origin.end_mail();
                        back += 1;
                        break;
                    }
                }
            }
            back
        });
        let mut served = 0;
        while !origin.is_finished() {
            served += u64::from(owner.serve_mail());
        }
        let back: u64 = origin.join().expect("it has not panicked");
        assert_eq!(served + back, rounds, "each put has gone one way");
        back
    });
    assert!(back <= rounds);
}
