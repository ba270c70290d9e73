use super::*;

fn span(start: usize, length: usize) -> Span {
    // SAFETY: nobody follows the address.
    #[expect(unsafe_code, reason = "an address")]
    unsafe {
        Span::new(std::ptr::without_provenance_mut(start), length)
    }
}

fn cache(entries: usize, bytes: usize) -> Registrations {
    let limits = Limits { registrations_max: entries, registered_bytes: bytes, ..Limits::default() };
    Registrations::new(&limits)
}

/// Asks for a range as an operation in `row` does; registers it under `name` if there is none. Whether it was a hit.
fn ask(cache: &mut Registrations, row: Row, (start, length): (usize, usize), name: u64) -> bool {
    let found = cache.find(0, span(start, length), Access::SEND);
    let made = |cache: &mut Registrations| cache.insert(0, span(start, length), Access::SEND, Registration(name));
    let reference = found.unwrap_or_else(|| made(cache));
    cache.hold(row, reference, false);
    found.is_some()
}

#[test]
fn a_range_is_found_within_another_and_only_there() {
    let mut cache = cache(8, 1 << 20);
    assert!(!ask(&mut cache, 1, (1000, 500), 1));
    assert!(ask(&mut cache, 2, (1000, 500), 0) && ask(&mut cache, 3, (1200, 300), 0));
    assert_eq!(cache.find(0, span(1200, 301), Access::SEND), None, "past its end");
    assert_eq!(cache.find(0, span(999, 10), Access::SEND), None, "before its start");
    assert_eq!(cache.find(1, span(1000, 10), Access::SEND), None, "of another endpoint");
    assert_eq!(cache.find(0, span(1000, 10), Access::RECEIVE), None, "for something else");
    let counts = cache.counts();
    assert_eq!((counts.entries, counts.bytes, counts.hits, counts.misses), (1, 500, 2, 5));
}

#[test]
fn memory_that_goes_back_to_its_owner_is_found_no_more() {
    let mut cache = cache(8, 1 << 20);
    ask(&mut cache, 1, (1000, 500), 1);
    ask(&mut cache, 2, (1000, 500), 0);
    assert!(cache.release(1) && cache.dead.is_empty() && !cache.release(1));
    assert!(cache.release(2));
    assert_eq!((&cache.dead[..], cache.counts().entries), (&[(0, Registration(1))][..], 0));
    assert!(!ask(&mut cache, 3, (1000, 500), 2), "a stale address is not believed");
}

#[test]
fn what_only_a_part_is_needed_of_is_found_no_more() {
    let mut cache = cache(8, 1 << 20);
    ask(&mut cache, 1, (1000, 500), 1);
    assert!(ask(&mut cache, 2, (1000, 100), 0), "as long as somebody needs all of it");
    cache.release(1);
    assert!(cache.dead.is_empty(), "a part of it is needed");
    cache.announce(span(1000, 500));
    assert!(!ask(&mut cache, 3, (1400, 50), 2), "this part may be other memory by now");
    assert!(cache.release(2) && cache.dead == [(0, Registration(1))]);
}

#[test]
fn what_was_announced_stays_until_it_is_withdrawn() {
    let mut cache = cache(8, 1 << 20);
    let number = cache.announce(span(1000, 500));
    ask(&mut cache, 1, (1100, 100), 1);
    cache.release(1);
    assert!(ask(&mut cache, 2, (1100, 100), 0));
    cache.withdrawn.push(number);
    assert!(ask(&mut cache, 3, (1100, 100), 0), "an operation that is not done still has it");
    assert!(cache.release(2) && cache.release(3));
    assert!(!ask(&mut cache, 4, (1100, 100), 2));
    assert_eq!(cache.dead, [(0, Registration(1))]);
}

#[test]
fn the_least_recently_used_goes_first_and_nothing_that_is_needed() {
    let mut cache = cache(2, 1 << 20);
    cache.announce(span(0, 10_000));
    for number in 0..3 {
        ask(&mut cache, number, (1000 * number as usize, 500), u64::from(number));
    }
    assert_eq!(cache.counts().entries, 3, "what is needed is not counted");
    ask(&mut cache, 9, (0, 500), 77);
    assert!((0..3).all(|row| cache.release(row)));
    assert!(cache.dead.is_empty(), "two are unused, and one is needed");
    cache.release(9);
    assert_eq!((cache.dead.clone(), cache.counts().evictions), (vec![(0, Registration(1))], 1));
    let mut small = self::cache(8, 900);
    small.announce(span(0, 10_000));
    assert!((0..2).all(|row| !ask(&mut small, row, (1000 * row as usize, 500), u64::from(row))));
    assert!((0..2).all(|row| small.release(row)));
    assert_eq!(small.counts().bytes, 500);
}

#[test]
fn a_persistent_request_holds_its_range_between_two_starts() {
    let mut cache = cache(8, 1 << 20);
    cache.find(0, span(1000, 500), Access::SEND);
    let made = cache.insert(0, span(1000, 500), Access::SEND, Registration(1));
    cache.hold(5, made, true);
    for _ in 0..3 {
        assert!(ask(&mut cache, 5, (1000, 500), 0) && cache.release(5));
    }
    cache.let_go(5);
    assert_eq!(cache.dead, [(0, Registration(1))]);
}
