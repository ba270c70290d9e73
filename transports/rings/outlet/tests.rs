use super::super::pieces::tests::Words;
use super::*;
use std::cell::Cell;

fn content(length: usize) -> Vec<u8> {
    (0..length).map(|n| (n * 31 % 251) as u8).collect()
}

#[expect(unsafe_code, reason = "lends bytes of a test")]
fn span(bytes: &[u8]) -> Span {
    // SAFETY: the test keeps them, and nothing writes them.
    unsafe { Span::new(bytes.as_ptr().cast_mut(), bytes.len()) }
}

/// An outlet with pipes, which has offered these.
fn outlet(offered: &[&[u8]]) -> Outlet {
    let mut outlet = Outlet { pipes: Some(pipes().expect("pipes")), ..Outlet::default() };
    offered.iter().for_each(|bytes| expose(&mut outlet, bytes));
    outlet
}

#[expect(unsafe_code, reason = "lends bytes of a test")]
fn expose(outlet: &mut Outlet, bytes: &[u8]) {
    // SAFETY: as in `span`.
    unsafe { outlet.expose(span(bytes)) }
}

fn question(bytes: &[u8], first: u32) -> Header {
    Question { address: bytes.as_ptr().addr() as u64, length: bytes.len() as u64, first }.header()
}

/// Takes a piece out of its pipe, as its reader does.
fn take(outlet: &Outlet, words: &Words, number: u32) -> Vec<u8> {
    let mut bytes = vec![0; SPLICE_BYTES];
    let out = &outlet.pipes().expect("not closed")[pieces::pipe_of(number)].0;
    let mut length = 0;
    while let Ok(more @ 1..) = rustix::io::read(out, &mut bytes[length..]) {
        length += more;
    }
    bytes.truncate(length);
    pieces::take(words, number);
    bytes
}

#[test]
fn only_what_is_offered_may_be_asked_for() {
    let bytes = content(1000);
    let (run, other) = (&bytes[100..500], &bytes[500..600]);
    let mut outlet = outlet(&[run, other]);
    let start = run.as_ptr().addr() as u64;
    let at = |address, length| Question { address, length, first: 0 };
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
    for wrong in [good.with_flags(1), good.with_priority(1), good.with_type(1), Header { name: 1 << 32, ..good }] {
        assert_eq!(outlet.ask(&wrong), Err(Corrupt::Kind(Mark::Question as u8)));
    }
    assert_eq!(outlet.answers.len(), 4, "nothing has changed");
    assert_eq!(Outlet::default().ask(&good), Err(Corrupt::Question(start, 1)));
}

#[test]
fn pieces_go_in_order_as_far_as_there_is_room() {
    let (first, second) = (content(2 * SPLICE_BYTES + 700), content(5000));
    let mut outlet = outlet(&[&first, &second]);
    let start = u32::MAX;
    let words = Words { put: Cell::new(start), taken: Cell::new(start) };
    let part = &first[600..];
    for header in [question(part, start), question(&first[100..150], 2), question(&second, 3)] {
        assert_eq!(outlet.ask(&header), Ok(()));
    }
    assert!(outlet.look(&words), "there is more than two pipes hold");
    assert!(outlet.look(&words) && words.put.get() == 1);
    let mut whole = Vec::new();
    for number in [u32::MAX, 0, 1] {
        whole.extend(take(&outlet, &words, number));
        assert_eq!(outlet.look(&words), number != 1);
    }
    assert!(whole == part);
    assert_eq!([take(&outlet, &words, 2), take(&outlet, &words, 3)], [first[100..150].to_vec(), second.clone()]);
    assert!(outlet.answers.is_empty() && !outlet.look(&words));
    // Who skips pieces gets none of them, and the next ones.
    for header in [question(part, 4), question(&second, 7)] {
        assert_eq!(outlet.ask(&header), Ok(()));
    }
    assert_eq!(pieces::skip(&words, 4, 7), 0);
    assert!(!outlet.look(&words) && outlet.answers.is_empty());
    assert_eq!((words.put.get(), take(&outlet, &words, 7)), (8, second));
}

#[test]
fn what_is_withdrawn_is_forgotten() {
    let bytes = content(4 * SPLICE_BYTES);
    let other = content(100);
    let mut outlet = outlet(&[&bytes, &other, &bytes]);
    let words = Words::default();
    for header in [question(&bytes, 0), question(&bytes[1..], 4), question(&other, 8)] {
        assert_eq!(outlet.ask(&header), Ok(()));
    }
    assert!(outlet.look(&words));
    assert!(outlet.withdraw(span(&bytes)) && outlet.answers.len() == 3, "it is offered a second time");
    assert!(outlet.withdraw(span(&bytes)) && outlet.answers.len() == 1);
    assert!(!outlet.withdraw(span(&bytes)) && !outlet.withdraw(span(&bytes[1..])));
    assert!(!outlet.look(&words) && words.put.get() == 2, "what comes behind it is out of order");
    // A question that is late is no lie, and has no answer.
    assert_eq!(outlet.ask(&question(&bytes[5..], 2)), Ok(()));
    assert!(outlet.answers.is_empty() && !outlet.look(&words));
    for _ in 0..READS_A_CALL {
        expose(&mut outlet, &other);
        assert!(outlet.withdraw(span(&other)));
    }
    assert!(outlet.ask(&question(&bytes, 2)).is_err() && outlet.withdrawn.len() == READS_A_CALL, "not for ever");
    assert_eq!(outlet.ask(&question(&other, 2)), Ok(()));
    assert_eq!(outlet.answers.len(), 1);
    outlet.withdraw_all();
    assert!(outlet.answers.is_empty() && outlet.exposed.is_empty() && !outlet.look(&words));
}

#[test]
fn a_peer_that_asks_without_end_is_heard_for_its_last_questions() {
    let bytes = content(100);
    let mut outlet = outlet(&[&bytes]);
    for first in 0..1000 {
        assert_eq!(outlet.ask(&question(&bytes, first)), Ok(()));
    }
    let first = outlet.answers.front().expect("kept").piece as usize;
    assert_eq!((outlet.answers.len(), first), (SPLICE_QUESTIONS_MAX, 1000 - SPLICE_QUESTIONS_MAX));
}

#[test]
fn a_reader_that_has_stopped_is_not_waited_for_without_end() {
    let bytes = content(4 * SPLICE_BYTES);
    let mut outlet = outlet(&[&bytes]);
    let words = Words::default();
    assert_eq!(outlet.ask(&question(&bytes, 0)), Ok(()));
    let mut looks = 1;
    while outlet.look(&words) {
        looks += 1;
    }
    assert_eq!((looks, words.put.get()), (SPLICE_CALLS_MAX, 2));
    assert!(outlet.answers.is_empty());
    // It takes what is there, and asks again: from where it is.
    take(&outlet, &words, 0);
    take(&outlet, &words, 1);
    assert_eq!(outlet.ask(&question(&bytes[2 * SPLICE_BYTES..], 2)), Ok(()));
    assert!(!outlet.look(&words) && words.put.get() == 4);
}

/// A reader that takes each piece at once.
struct Greedy<'a>(Words, &'a OwnedFd, &'a OwnedFd);

impl PieceMemory for Greedy<'_> {
    fn load_put(&self, order: super::super::atomics::Ordering) -> u32 {
        self.0.load_put(order)
    }
    fn exchange_put(&self, before: u32, after: u32) -> bool {
        assert!(empty(self.1) && empty(self.2));
        self.0.taken.set(after);
        self.0.exchange_put(before, after)
    }
    fn swap_put(&self, after: u32) -> u32 {
        self.0.swap_put(after)
    }
    fn load_taken(&self, order: super::super::atomics::Ordering) -> u32 {
        self.0.load_taken(order)
    }
    fn store_taken(&self, taken: u32, order: super::super::atomics::Ordering) {
        self.0.store_taken(taken, order);
    }
}

#[test]
fn one_look_puts_so_many_pieces_however_fast_they_are_taken() {
    let bytes = content((2 * SPLICED_A_CALL + 1) * SPLICE_BYTES);
    let mut outlet = outlet(&[&bytes]);
    let out = |at: usize| outlet.pipes().expect("there")[at].0.try_clone().expect("a descriptor");
    let (one, two) = (out(0), out(1));
    let words = Greedy(Words::default(), &one, &two);
    assert_eq!(outlet.ask(&question(&bytes, 0)), Ok(()));
    let mut put = Vec::new();
    while outlet.look(&words) {
        put.push(words.0.put.get() as usize);
    }
    assert_eq!(put, [SPLICED_A_CALL, 2 * SPLICED_A_CALL]);
    assert_eq!(words.0.put.get() as usize, 2 * SPLICED_A_CALL + 1);
}

#[test]
fn a_piece_that_cannot_be_put_whole_leaves_nothing_in_its_pipe() {
    let bytes = content(3 * SPLICE_BYTES);
    let mut outlet = outlet(&[&bytes]);
    let words = Words::default();
    // The peer's end of the pipe can be written through, too: there is not room for a piece.
    let pipes = outlet.pipes().expect("there");
    assert!(matches!(rustix::io::write(&pipes[0].1, &bytes[..PIPE_BYTES - PAGE_BYTES]), Ok(1..)));
    assert_eq!(outlet.ask(&question(&bytes, 0)), Ok(()));
    assert!(!outlet.look(&words) && outlet.answers.is_empty() && words.put.get() == 0);
    assert!(outlet.is_piped() && take(&outlet, &words, 0).is_empty());
    // Without pipes nothing is put, and nobody waits.
    outlet.pipes = None;
    assert_eq!(outlet.ask(&question(&bytes, 0)), Ok(()));
    words.taken.set(0);
    assert!(!outlet.look(&words) && outlet.answers.is_empty());
}
