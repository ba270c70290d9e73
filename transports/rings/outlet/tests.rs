use super::super::atomics::Ordering;
use super::super::staging::tests::Words;
use super::*;
use std::cell::Cell;
use std::ptr::NonNull;
use std::sync::Arc;
use tickwire_components::limits::STAGING_BYTES;

/// All bytes of a staging buffer, as a position.
const ALL: Position = STAGING_BYTES as Position;

fn content(length: usize) -> Vec<u8> {
    (0..length).map(|n| (n * 31 % 251) as u8).collect()
}

#[expect(unsafe_code, reason = "lends bytes of a test")]
fn span(bytes: &[u8]) -> Span {
    // SAFETY: the test keeps them, and nothing writes them.
    unsafe { Span::new(bytes.as_ptr().cast_mut(), bytes.len()) }
}

/// A staging buffer in this process's own memory.
#[expect(unsafe_code, reason = "a buffer of a test")]
fn buffer() -> StagingBuffer {
    let mut bytes = vec![0u64; STAGING_BYTES / 8];
    let start = NonNull::from(&mut bytes[..]).cast::<u8>();
    // SAFETY: the vector is kept as it is, and nobody else has its address.
    unsafe { StagingBuffer::new(start, Arc::new(bytes)) }
}

/// An outlet with a staging buffer, which has offered these.
fn outlet(offered: &[&[u8]]) -> Outlet {
    let mut outlet = Outlet { buffer: Some(buffer()), ..Outlet::default() };
    offered.iter().for_each(|bytes| expose(&mut outlet, bytes));
    outlet
}

#[expect(unsafe_code, reason = "lends bytes of a test")]
fn expose(outlet: &mut Outlet, bytes: &[u8]) {
    // SAFETY: as in `span`.
    unsafe { outlet.expose(span(bytes)) }
}

fn question(bytes: &[u8], at: Position) -> Header {
    Question { address: bytes.as_ptr().addr() as u64, length: bytes.len() as u64, at }.header()
}

/// Looks until the buffer is full: one call copies a part of it.
fn look_until_full(outlet: &mut Outlet, words: &Words) {
    for _ in 0..STAGING_BYTES / STAGED_A_CALL {
        assert!(outlet.look(words));
    }
    assert_eq!(words.put.get(), words.taken.get() + ALL);
}

/// Takes all that is in the buffer from a position on, as its reader does.
fn take(outlet: &Outlet, words: &Words, mut at: Position) -> Vec<u8> {
    let mut bytes = vec![0; staging::there(words, at)];
    let mut done = 0;
    while done < bytes.len() {
        let place = outlet.buffer.as_ref().expect("there").place(at, bytes.len() - done);
        // SAFETY: the place is in the buffer, and the bytes are the test's own.
        #[expect(unsafe_code, reason = "raw copies")]
        let copied = unsafe { copy_long(Span::new(bytes[done..].as_mut_ptr(), place.len()), place) };
        (at, done) = (at.wrapping_add(copied as Position), done + copied);
    }
    staging::skip(words, at);
    bytes
}

/// Words of which something is done before each that is put.
struct WhenPut<F: Fn(&Words, Position)>(Words, F);

impl<F: Fn(&Words, Position)> StagingWords for WhenPut<F> {
    fn load_put(&self, order: Ordering) -> Position {
        self.0.load_put(order)
    }
    fn store_put(&self, put: Position, order: Ordering) {
        self.1(&self.0, put);
        self.0.store_put(put, order);
    }
    fn load_taken(&self, order: Ordering) -> Position {
        self.0.load_taken(order)
    }
    fn store_taken(&self, taken: Position, order: Ordering) {
        self.0.store_taken(taken, order);
    }
}

#[test]
fn only_what_is_offered_may_be_asked_for() {
    let bytes = content(1000);
    let (run, other) = (&bytes[100..500], &bytes[500..600]);
    let mut outlet = outlet(&[run, other]);
    let start = run.as_ptr().addr() as u64;
    let at = |address, length| Question { address, length, at: 0 };
    for good in [at(start, 400), at(start, 1), at(start + 399, 1), at(start + 400, 100)] {
        assert_eq!(outlet.ask(&good.header()), Ok(()));
    }
    assert_eq!(outlet.answers.len(), 4);
    for wrong in [
        at(start - 1, 2),
        at(start - 1, 1),
        at(start, 401),
        at(start + 399, 2),
        at(start + 500, 1),
        at(start, 0),
        at(start + 500, 0),
        at(start, u64::MAX),
        at(start + 1, u64::MAX),
        at(u64::MAX, 1),
        at(0, 1),
        at(0, u64::MAX),
    ] {
        assert_eq!(outlet.ask(&wrong.header()), Err(Corrupt::Question(wrong.address, wrong.length)));
    }
    let good = at(start, 1).header();
    for wrong in [good.with_flags(1), good.with_priority(1), good.with_type(1)] {
        assert_eq!(outlet.ask(&wrong), Err(Corrupt::Kind(Mark::Question as u8)));
    }
    assert_eq!(outlet.answers.len(), 4, "nothing has changed");
    assert_eq!(Outlet::default().ask(&good), Err(Corrupt::Question(start, 1)));
}

#[test]
fn bytes_go_in_order_as_far_as_there_is_room() {
    [true, false].into_iter().for_each(go_in_order);
}

/// To a receiver that is near, or far.
fn go_in_order(near: bool) {
    let (first, second) = (content(STAGING_BYTES + 700), content(5000));
    let mut outlet = Outlet { distance: Distance::decided(near), ..outlet(&[&first, &second]) };
    let start = 5 << 40;
    let words = Words { put: Cell::new(start), taken: Cell::new(start) };
    let part = &first[600..];
    let short = staging::after(start, part.len() as u64);
    let behind = staging::after(short, 50);
    for header in [question(part, start), question(&first[100..150], short), question(&second, behind)] {
        assert_eq!(outlet.ask(&header), Ok(()));
    }
    look_until_full(&mut outlet, &words);
    assert!(outlet.look(&words) && words.put.get() == start + ALL, "there is more than the buffer holds");
    let mut whole = take(&outlet, &words, start);
    assert!(!outlet.look(&words) && outlet.answers.is_empty());
    let rest = take(&outlet, &words, start + ALL);
    // All that is left: of the first question, a gap up to the next line, and the other two.
    whole.extend(&rest[..100]);
    assert!(whole == part);
    assert_eq!([&rest[128..178], &rest[192..]], [&first[100..150], &second[..]]);
    // Who skips bytes gets none of them, and the next ones.
    let next = staging::after(behind, 5000);
    let later = staging::after(next, part.len() as u64);
    for header in [question(part, next), question(&second, later)] {
        assert_eq!(outlet.ask(&header), Ok(()));
    }
    staging::skip(&words, later);
    assert!(!outlet.look(&words) && outlet.answers.is_empty());
    assert_eq!(take(&outlet, &words, later), second);
}

#[test]
fn a_receiver_is_told_of_the_first_bytes_while_the_next_ones_are_put() {
    let step = STAGING_STEP_BYTES as Position;
    let bytes = content(3 * STAGING_STEP_BYTES);
    let mut outlet = outlet(&[&bytes]);
    // The buffer ends within the second step.
    let start = ALL - step - step / 2;
    let told = std::cell::RefCell::new(Vec::new());
    let words = WhenPut(Words { put: Cell::new(start), taken: Cell::new(start) }, |_, put| told.borrow_mut().push(put));
    assert_eq!(outlet.ask(&question(&bytes, start)), Ok(()));
    assert!(!outlet.look(&words));
    assert_eq!(*told.borrow(), [ALL - step / 2, ALL, ALL + step, ALL + step + step / 2]);
    assert!(take(&outlet, &words.0, start) == bytes);
}

#[test]
fn what_is_withdrawn_is_forgotten() {
    let bytes = content(STAGING_BYTES + 100);
    let other = content(100);
    let mut outlet = outlet(&[&bytes, &other, &bytes]);
    let words = Words::default();
    let next = staging::after(0, bytes.len() as u64);
    for header in [question(&bytes, 0), question(&bytes[1..], next), question(&other, 2 * next)] {
        assert_eq!(outlet.ask(&header), Ok(()));
    }
    look_until_full(&mut outlet, &words);
    assert!(outlet.withdraw(span(&bytes)) && outlet.answers.len() == 3, "it is offered a second time");
    assert!(outlet.withdraw(span(&bytes)) && outlet.answers.len() == 1);
    assert!(!outlet.withdraw(span(&bytes)) && !outlet.withdraw(span(&bytes[1..])));
    assert_eq!(words.put.get(), ALL);
    // A question that is late is no lie, and has no answer.
    assert_eq!(outlet.ask(&question(&bytes[5..], 2 * next)), Ok(()));
    assert_eq!(outlet.answers.len(), 1);
    for _ in 0..READS_A_CALL {
        expose(&mut outlet, &other);
        assert!(outlet.withdraw(span(&other)));
    }
    assert!(outlet.ask(&question(&bytes, 2)).is_err() && outlet.withdrawn.len() == READS_A_CALL, "not for ever");
    assert_eq!(outlet.ask(&question(&other, 2)), Ok(()));
    assert_eq!(outlet.answers.len(), 2);
    outlet.withdraw_all();
    assert!(outlet.answers.is_empty() && outlet.exposed.is_empty() && !outlet.look(&words));
}

#[test]
fn a_peer_that_asks_without_end_is_heard_for_its_last_questions() {
    let bytes = content(100);
    let mut outlet = outlet(&[&bytes]);
    for at in 0..1000 {
        assert_eq!(outlet.ask(&question(&bytes, at)), Ok(()));
    }
    let first = outlet.answers.front().expect("kept").at as usize;
    assert_eq!((outlet.answers.len(), first), (STAGING_QUESTIONS_MAX, 1000 - STAGING_QUESTIONS_MAX));
}

#[test]
fn a_reader_that_has_stopped_is_not_waited_for_without_end() {
    let bytes = content(2 * STAGING_BYTES);
    let mut outlet = outlet(&[&bytes]);
    let words = Words::default();
    assert_eq!(outlet.ask(&question(&bytes, 0)), Ok(()));
    look_until_full(&mut outlet, &words);
    let mut looks = 1;
    while outlet.look(&words) {
        looks += 1;
        assert!(looks <= STAGING_CALLS_MAX);
    }
    assert_eq!(words.put.get(), ALL);
    assert!(outlet.answers.is_empty());
    // It takes what is there, reads the rest, and asks again.
    assert!(take(&outlet, &words, 0) == bytes[..STAGING_BYTES]);
    staging::skip(&words, 2 * ALL);
    assert_eq!(outlet.ask(&question(&bytes[STAGING_BYTES..], 2 * ALL)), Ok(()));
    while outlet.look(&words) && words.put.get() < 3 * ALL {}
    assert!(!outlet.look(&words) && words.put.get() == 3 * ALL);
}

#[test]
fn nothing_is_put_behind_bytes_that_are_not() {
    let (gone, stays) = (content(1000), content(900));
    let next = staging::after(0, 1000);
    let end = staging::after(next, 900);
    // Each forgets the first question, in one way.
    let withdraw: &dyn Fn(&mut Outlet) = &|outlet| assert!(outlet.withdraw(span(&gone)));
    let withdraw_all: &dyn Fn(&mut Outlet) = &|outlet| {
        outlet.withdraw_all();
        expose(outlet, &stays);
    };
    let late: &dyn Fn(&mut Outlet) = &|_| ();
    let flood: &dyn Fn(&mut Outlet) = &|outlet| {
        for _ in 1..STAGING_QUESTIONS_MAX {
            assert_eq!(outlet.ask(&question(&gone, 0)), Ok(()));
        }
    };
    for (at, forget) in [withdraw, late, flood, withdraw_all].into_iter().enumerate() {
        let mut outlet = outlet(&[&gone, &stays]);
        let words = Words::default();
        if at == 1 {
            outlet.withdraw(span(&gone));
        }
        assert_eq!(outlet.ask(&question(&gone, 0)), Ok(()));
        forget(&mut outlet);
        assert_eq!(outlet.ask(&question(&stays, next)), Ok(()));
        assert!(!outlet.look(&words) && outlet.answers.is_empty());
        assert_eq!((words.put.get(), staging::there(&words, 0)), (0, 0), "way {at}");
        // The receiver has lost its patience: what it asks for next is put.
        staging::skip(&words, end);
        assert_eq!(outlet.ask(&question(&stays, end)), Ok(()));
        assert!(!outlet.look(&words) && take(&outlet, &words, end) == stays, "way {at}");
    }
}

#[test]
fn nothing_is_put_behind_bytes_that_were_given_up_for_lack_of_room() {
    let (long, stays) = (content(STAGING_BYTES + 1000), content(900));
    let mut outlet = outlet(&[&long, &stays]);
    let words = Words::default();
    assert_eq!(outlet.ask(&question(&long, 0)), Ok(()));
    for _ in 0..2 * STAGING_CALLS_MAX {
        if !outlet.look(&words) {
            break;
        }
    }
    assert!(outlet.answers.is_empty() && words.put.get() == ALL);
    // The receiver goes on, and takes what is there. It still waits for the rest, and has asked for more.
    words.taken.set(ALL);
    let next = staging::after(0, long.len() as u64);
    assert_eq!(outlet.ask(&question(&stays, next)), Ok(()));
    assert!(!outlet.look(&words) && words.put.get() == ALL);
    let end = staging::after(next, 900);
    staging::skip(&words, end);
    assert_eq!(outlet.ask(&question(&stays, end)), Ok(()));
    assert!(!outlet.look(&words) && take(&outlet, &words, end) == stays);
}

#[test]
fn a_reader_that_makes_room_byte_by_byte_is_not_waited_for_without_end() {
    let bytes = content(2 * STAGING_BYTES);
    let mut outlet = outlet(&[&bytes]);
    let words = Words::default();
    assert_eq!(outlet.ask(&question(&bytes, 0)), Ok(()));
    look_until_full(&mut outlet, &words);
    for looks in 0.. {
        assert!(looks <= STAGING_CALLS_MAX);
        words.taken.set(words.taken.get() + Position::from(looks % 2 == 0));
        if !outlet.look(&words) {
            break;
        }
    }
    assert!(outlet.answers.is_empty());
}

#[test]
fn one_look_stages_so_many_bytes_however_fast_they_are_taken() {
    let bytes = content(2 * STAGED_A_CALL + 1000);
    let mut outlet = outlet(&[&bytes]);
    // A reader that takes everything at once.
    let words = WhenPut(Words::default(), |words, put| words.taken.set(put));
    assert_eq!(outlet.ask(&question(&bytes, 0)), Ok(()));
    let mut put = Vec::new();
    while outlet.look(&words) {
        put.push(words.0.put.get() as usize);
    }
    assert_eq!(put, [STAGED_A_CALL, 2 * STAGED_A_CALL]);
    assert_eq!(words.0.put.get() as usize, bytes.len());
}

#[test]
fn without_a_buffer_nothing_is_put_and_nobody_waits() {
    let bytes = content(1000);
    let mut outlet = outlet(&[&bytes]);
    outlet.buffer = None;
    let words = Words::default();
    assert_eq!(outlet.ask(&question(&bytes, 0)), Ok(()));
    assert!(!outlet.look(&words) && outlet.answers.is_empty() && words.put.get() == 0);
}
