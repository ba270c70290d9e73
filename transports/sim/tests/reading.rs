//! Memory of peers: what is read, what is refused, and that nothing is read that is not exposed now.

use super::*;
use crate::testing::GivenMemory;
use crate::{MemoryRead, Other};

/// Bytes of a run.
const LENGTH: usize = 1000;

fn config() -> SimConfig {
    SimConfig { remote_read: true, ..SimConfig::calm(4) }
}

/// A message, as bytes of which each says where it is.
fn message() -> Vec<u8> {
    (0..LENGTH).map(|at| at as u8).collect()
}

fn address(bytes: &mut [u8]) -> u64 {
    bytes.as_mut_ptr().expose_provenance() as u64
}

/// Reads so many bytes over link 0; `None` if it is refused.
fn read(reader: &mut Sim<Loopback>, address: u64, length: usize) -> Option<Vec<u8>> {
    let mut into = vec![0u8; length];
    let reads = [MemoryRead { address, into: span(&mut into) }];
    reader.read_into(0, &reads).is_ok().then_some(into)
}

#[test]
fn what_is_exposed_is_read_and_nothing_else() {
    let (net, [mut a, mut b]) = pair(config());
    let (mut bytes, expected) = (message(), message());
    let at = address(&mut bytes);
    assert!(a.capabilities().remote_read && b.memory().is_some() && b.reads(0, at, LENGTH as u64));
    assert!(!b.reads(1, at, LENGTH as u64), "there is no such link");
    assert_eq!(read(&mut b, at, LENGTH), None, "it is not exposed");
    a.expose_run(0, span(&mut bytes));
    assert_eq!(read(&mut b, at, LENGTH), Some(expected.clone()));
    assert_eq!(read(&mut b, at + 10, LENGTH - 10), Some(expected[10..].to_vec()));
    assert_eq!((net.read_bytes(0, 1), net.read_bytes(1, 0)), (2 * LENGTH as u64 - 10, 0));
    for (at, length) in [(at + 1, LENGTH), (at, LENGTH + 1), (at - 1, 10), (0, 1), (u64::MAX, LENGTH), (!at, 1)] {
        assert_eq!(read(&mut b, at, length), None, "{length} bytes at {at:#x}");
    }
    assert_eq!(read(&mut a, at, LENGTH), None, "it is for the other one");
    let mut into = vec![0u8; LENGTH];
    assert!(b.read_into_at_once(0, at, span(&mut into), true) && into == expected, "nothing else is to be read");
    let mut at_once = || b.read_into_at_once(0, at, span(&mut into), false);
    let (count, done) = (200, (0..200).filter(|_| at_once()).count());
    assert!(0 < done && done < count, "it depends: {done}");
    assert!(!b.read_into_at_once(0, at + 1, span(&mut into), true), "not all of it is exposed");
}

#[test]
fn what_is_withdrawn_is_not_read() {
    let (_, [mut a, mut b]) = pair(config());
    let (mut bytes, mut other) = (message(), message());
    let (at, run) = (address(&mut bytes), span(&mut bytes));
    for _ in 0..2 {
        a.expose_run(0, run);
    }
    a.expose_run(0, span(&mut other));
    a.withdraw(0, run);
    assert!(read(&mut b, at, LENGTH).is_some(), "it is exposed once more");
    a.withdraw(0, run.part(0, LENGTH - 1));
    assert!(read(&mut b, at, LENGTH).is_some(), "that is another one");
    a.withdraw(0, run);
    assert_eq!(read(&mut b, at, LENGTH), None);
    let at = address(&mut other);
    assert!(read(&mut b, at, LENGTH).is_some());
    a.withdraw_all();
    assert_eq!(read(&mut b, at, LENGTH), None);
}

#[test]
fn nothing_is_read_of_what_has_ended() {
    let ends: [fn(&mut Sim<Loopback>); 4] =
        [|a| a.close_link(0), |a| a.give_up(0, "a test"), |a| a.close(), |a| a.open(0, 1)];
    for (number, end) in ends.into_iter().enumerate() {
        let (_, [mut a, mut b]) = pair(config());
        let mut bytes = message();
        let at = address(&mut bytes);
        a.expose_run(0, span(&mut bytes));
        assert!(read(&mut b, at, LENGTH).is_some());
        end(&mut a);
        assert_eq!(read(&mut b, at, LENGTH), None, "end {number}");
    }
    let (_, [mut a, mut b]) = pair(config());
    let mut bytes = message();
    let at = address(&mut bytes);
    a.expose_run(0, span(&mut bytes));
    drop(a);
    drop(bytes);
    assert_eq!(read(&mut b, at, LENGTH), None, "nobody has it any more");
}

#[test]
fn what_is_exposed_over_a_link_that_is_over_is_read_by_nobody() {
    let (_, [mut a, mut b]) = pair(config());
    let mut bytes = message();
    let at = address(&mut bytes);
    a.close_link(0);
    a.expose_run(0, span(&mut bytes));
    a.expose_run(7, span(&mut bytes));
    assert_eq!(read(&mut b, at, LENGTH), None);
}

#[test]
fn the_dead_neither_read_nor_are_read() {
    for dead in 0..2 {
        let (net, [mut a, mut b]) = pair(config());
        let mut bytes = message();
        let at = address(&mut bytes);
        a.expose_run(0, span(&mut bytes));
        assert!(read(&mut b, at, LENGTH).is_some());
        net.kill(dead, Death::At(0));
        assert!(!b.reads(0, at, LENGTH as u64) && read(&mut b, at, LENGTH).is_none(), "{dead} is dead");
    }
}

#[test]
fn nothing_is_read_over_a_link_that_has_failed_or_is_closed_here() {
    for closed in [false, true] {
        let (_, [mut a, mut b]) = pair(config());
        let mut bytes = message();
        let at = address(&mut bytes);
        a.expose_run(0, span(&mut bytes));
        match closed {
            true => b.close_link(0),
            false => b.links[0].failed = Some("a test".into()),
        }
        assert!(!b.reads(0, at, LENGTH as u64) && read(&mut b, at, LENGTH).is_none());
    }
}

#[test]
fn a_read_that_is_refused_may_have_filled_a_part_and_the_next_one_may_work() {
    let (_, [mut a, mut b]) = pair(SimConfig { unread_of_256: 128, ..config() });
    let (mut bytes, expected) = (message(), message());
    let at = address(&mut bytes);
    a.expose_run(0, span(&mut bytes));
    let mut seen = [0; 3];
    for _ in 0..60 {
        let mut into = vec![0u8; LENGTH];
        let (first, last) = into.split_at_mut(LENGTH / 2);
        let reads = [(at, first), (at + LENGTH as u64 / 2, last)];
        let reads = reads.map(|(address, into)| MemoryRead { address, into: span(into) });
        let is_read = b.read_into(0, &reads).is_ok();
        assert!(!is_read || into == expected);
        seen[if is_read { 0 } else { 1 + usize::from(into != [0; LENGTH]) }] += 1;
    }
    assert!(seen.iter().all(|&count| count > 0), "read, refused, refused after a part: {seen:?}");
}

/// Says of each frame that it has ended the send of a run.
struct Ends(Span);

#[expect(unsafe_code, reason = "payloads are addresses")]
impl Take for Ends {
    fn now_ns(&mut self) -> u64 {
        1
    }

    unsafe fn message(&mut self, _: &Header, _: Span, _: Row) -> bool {
        false
    }

    unsafe fn other(&mut self, _: &Header, _: Span, _: Row) -> Other {
        Other::Ended(self.0)
    }

    unsafe fn matched(&mut self, _: &Header, _: Span, _: Row, _: Row) -> bool {
        false
    }
}

#[test]
fn a_frame_that_ends_a_send_within_the_loop_withdraws_its_run() {
    let (_, [mut a, mut b]) = pair(config());
    let mut bytes = message();
    let at = address(&mut bytes);
    a.expose_run(0, span(&mut bytes));
    let done = Header::new(Kind::Done, 0, 0, 0, 0, 0);
    assert_eq!(b.send(0, &done, &NoBytes, &mut SimState::default()), Sent::Done);
    assert!(read(&mut b, at, LENGTH).is_some());
    // Qualified: `deliver` is also the name of what hands out arrivals.
    let (taken, _) = Transport::deliver(&mut a, 8, &mut Ends(span(&mut bytes)));
    assert_eq!((taken, read(&mut b, at, LENGTH)), (1, None));
}
