//! Messages that the network moves directly: whose bytes go where, when both sides hear of it, and that nothing is written that was taken
//! back.

use super::*;
use tickwire_components::{ArrivalState, Destination};

/// Bytes of a message.
const LENGTH: usize = 1000;

fn config() -> SimConfig {
    SimConfig { moves: true, delay_ns: 500..1000, ..SimConfig::calm(6) }
}

fn expect(sim: &mut Sim<Loopback>, row: Row, into: &mut [u8]) -> Option<u32> {
    // SAFETY: the test keeps the buffer until the end was told or the memory was taken back.
    #[expect(unsafe_code, reason = "lends a local buffer")]
    unsafe {
        sim.direct().expect("it is asked for").expect(0, row, span(into))
    }
}

fn give(sim: &mut Sim<Loopback>, row: Row, number: u32, from: &mut [u8]) -> bool {
    // SAFETY: the bytes are copied within the call.
    #[expect(unsafe_code, reason = "lends a local buffer")]
    unsafe {
        sim.direct().expect("it is asked for").send_direct(0, row, number, span(from))
    }
}

/// The ends that a side is told of until a moment: (VC, row).
fn told(sim: &mut Sim<Loopback>, now_ns: u64) -> Vec<(Row, Destination)> {
    let mut arrivals = [Arrival::default(); 4];
    let count = sim.drain(now_ns, &mut arrivals);
    assert!(arrivals[..count].iter().all(|arrival| arrival.state == ArrivalState::Moved));
    arrivals[..count].iter().map(|arrival| (arrival.vc, arrival.to)).collect()
}

#[test]
fn a_message_goes_into_the_buffer_that_expects_it_and_both_sides_hear_of_it_later() {
    let (_, [mut a, mut b]) = pair(config());
    let (mut first, mut second) = (vec![0u8; LENGTH], vec![0u8; LENGTH]);
    let numbers = [expect(&mut b, 20, &mut first), expect(&mut b, 21, &mut second)].map(Option::unwrap);
    assert_ne!(numbers[0], numbers[1]);
    // In the other order, as a sender may.
    assert!(give(&mut a, 11, numbers[1], &mut [2; LENGTH]) && give(&mut a, 10, numbers[0], &mut [1; LENGTH]));
    assert!(first == [1; LENGTH] && second == [2; LENGTH]);
    assert!(!give(&mut a, 12, numbers[0], &mut [3; LENGTH]), "nobody expects it any more");
    assert!(a.ready() && b.ready());
    assert_eq!((told(&mut a, 499), told(&mut b, 499)), (vec![], vec![]));
    let mut ends = [told(&mut a, 1000), told(&mut b, 1000)];
    ends.iter_mut().for_each(|ends| ends.sort_by_key(|(_, to)| format!("{to:?}")));
    let ended = |vc, rows: [Row; 2]| rows.map(|row| (vc, Destination::Receive(row))).to_vec();
    assert_eq!(ends, [ended(7, [10, 11]), ended(9, [20, 21])]);
    assert!(!a.ready() && !b.ready());
}

#[test]
fn what_is_expected_no_more_or_of_another_length_is_not_written() {
    let (_, [mut a, mut b]) = pair(config());
    let mut into = vec![0u8; LENGTH];
    let number = expect(&mut b, 20, &mut into).unwrap();
    assert!(!give(&mut a, 10, number, &mut [1; LENGTH - 1]) && !give(&mut a, 10, number + 1, &mut [1; LENGTH]));
    assert!(!give(&mut b, 10, number, &mut [1; LENGTH]), "it is expected from the other side");
    b.direct().unwrap().end();
    assert!(!give(&mut a, 10, number, &mut [1; LENGTH]));
    let number = expect(&mut b, 20, &mut into).unwrap();
    b.close_link(0);
    assert!(!give(&mut a, 10, number, &mut [1; LENGTH]) && into == [0; LENGTH]);
    assert_eq!(told(&mut b, 9000), []);
}

#[test]
fn some_messages_are_not_moved_if_the_network_refuses_some() {
    let (_, [_a, mut b]) = pair(SimConfig { unread_of_256: 128, ..config() });
    let mut into = vec![0u8; LENGTH];
    let taken = (0..100).filter(|&row| expect(&mut b, row, &mut into).is_some()).count();
    assert!(0 < taken && taken < 100, "{taken}");
}
