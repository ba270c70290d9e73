//! If the best route cannot connect, the next one is tried. No operation that was posted meanwhile may be lost.

use crate::kit::{Calls, Side, TwoWays};
use std::time::Duration;
use tickwire::internals::components::VcState;
use tickwire::testing::{STEP_NS, rows};
use tickwire::{ProcId, Rank, Rejected, Request, RequestError, Source, Tag, Test, TrafficClass};
use tickwire_tests::cases::{self, BOUND, content};

/// Priorities of a rank that tries the upper transport first.
const UPPER: [u8; 2] = [60, 50];
/// Priorities of a rank that tries the lower transport first.
const LOWER: [u8; 2] = [50, 60];

/// Lengths of the messages that are posted before there is a connection.
const LENGTHS: [usize; 6] = [0, 8, 3000, 100, 40_000, 1];

/// Both ranks send to each other at the same time. All messages must arrive once and in order.
fn exchange(ways: &mut TwoWays, note: &str) {
    let cluster = &mut ways.cluster;
    let world = cluster.engines[0].comm_world();
    let (mut sends, mut receives) = (Vec::new(), Vec::new());
    for (number, length) in (0..).zip(LENGTHS) {
        for from in [0usize, 1] {
            let message = content(number * 2 + from as u64, length);
            sends.push((from, cluster.engines[from].isend(message, Rank(1 - from as u32), Tag(7), world).unwrap()));
        }
    }
    for (number, length) in (0..).zip(LENGTHS) {
        for to in [0usize, 1] {
            let receive = cluster.engines[to].irecv(vec![0u8; 40_000], Rank(1 - to as u32), Tag(7), world).unwrap();
            receives.push((to, receive, content(number * 2 + 1 - to as u64, length)));
        }
    }
    for (to, receive, expected) in receives {
        let (buffer, status) = cluster.finish(BOUND, to, receive).unwrap_or_else(|error| panic!("{note}: {error}"));
        assert!(status.length == expected.len() && buffer[..expected.len()] == expected, "{note}");
    }
    for (from, send) in sends {
        cluster.finish(BOUND, from, send).unwrap_or_else(|error| panic!("{note}: {error}"));
    }
    cluster.assert_at_rest();
}

/// The transport that carries messages to the other rank.
fn chosen(ways: &mut TwoWays, rank: usize) -> String {
    let other = ProcId(1 - rank as u32);
    let routes = ways.cluster.engines[rank].routes(other, TrafficClass::PointToPoint);
    let mut chosen = routes.into_iter().filter(|route| route.chosen);
    let name = chosen.next().unwrap().transport;
    assert!(chosen.next().is_none());
    name
}

#[test]
fn what_was_queued_goes_over_the_next_route_in_order() {
    for calls in [Calls::Refused, Calls::Lost(1), Calls::Lost(20)] {
        let side = Side { priorities: UPPER, calls: [calls, Calls::Open] };
        let mut ways = TwoWays::new(&[side, side]);
        exchange(&mut ways, &format!("{calls:?}"));
        for rank in 0..2 {
            let [upper, lower] = ways.sent(rank);
            assert!(upper == 0 && lower >= LENGTHS.len() as u64, "{calls:?}: {upper} and {lower}");
            let other = ProcId(1 - rank as u32);
            let routes = ways.cluster.engines[rank].routes(other, TrafficClass::PointToPoint);
            let found = routes.iter().map(|route| (&*route.transport, route.chosen)).collect::<Vec<_>>();
            assert_eq!(found, [("loopback", false), ("upper", false), ("lower", true)]);
        }
        // The rank that tried to connect first has seen the failure.
        let routes = ways.cluster.engines[0].routes(ProcId(1), TrafficClass::PointToPoint);
        let words = routes[1].refused.as_deref().unwrap_or_default();
        assert!(words.starts_with("it could not connect: upper "), "{words}");
        let dump = ways.cluster.engines[0].dump();
        let peer = dump.peers.iter().find(|peer| peer.proc == 1).unwrap();
        let failed = peer.failed_routes.iter().map(|of| (&*of.transport, &*of.reason)).collect::<Vec<_>>();
        assert_eq!(failed, [("upper", words)]);
        assert!(peer.to_string().contains(&format!("; all traffic over lower; upper: {words}")), "{peer}");
        cases::every_length(&mut ways.cluster);
    }
}

#[test]
fn both_sides_come_to_use_one_route_however_their_calls_go() {
    let ends = [Calls::Open, Calls::Refused, Calls::Lost(1), Calls::Lost(3)];
    let mut runs = 0;
    for number in 0..ends.len().pow(4) {
        let of = |place: u32| ends[number / ends.len().pow(place) % ends.len()];
        let calls = [[of(0), of(1)], [of(2), of(3)]];
        if calls.iter().any(|calls| !calls.contains(&Calls::Open)) {
            continue;
        }
        for priorities in [[UPPER, UPPER], [UPPER, LOWER], [LOWER, UPPER]] {
            let sides = [0, 1].map(|rank| Side { priorities: priorities[rank], calls: calls[rank] });
            let mut ways = TwoWays::new(&sides);
            let note = format!("{sides:?}");
            exchange(&mut ways, &note);
            let names = [0, 1].map(|rank| chosen(&mut ways, rank));
            assert_eq!(names[0], names[1], "{note}");
            let over = usize::from(names[0] == "lower");
            assert!((0..2).all(|rank| ways.sent(rank)[1 - over] == 0), "{note}: all goes over one");
            runs += 1;
        }
    }
    assert_eq!(runs, 49 * 3);
}

#[test]
fn a_call_that_nobody_answers_yields_to_one_of_the_peer() {
    for (first, second) in [(0, 1), (1, 0)] {
        let mut sides = [Side { priorities: UPPER, calls: [Calls::Silent, Calls::Open] }; 2];
        sides[second] = Side { priorities: LOWER, calls: [Calls::Open, Calls::Open] };
        let mut ways = TwoWays::new(&sides);
        exchange(&mut ways, &format!("{first} calls in vain"));
        assert_eq!([0, 1].map(|rank| chosen(&mut ways, rank)), ["lower", "lower"]);
    }
}

#[test]
fn when_no_route_is_left_each_is_named_with_its_reason() {
    for calls in [[Calls::Refused, Calls::Lost(2)], [Calls::Lost(1), Calls::Refused], [Calls::Lost(3), Calls::Lost(1)]]
    {
        let mut ways = TwoWays::new(&[Side { priorities: UPPER, calls }; 2]);
        let cluster = &mut ways.cluster;
        let world = cluster.engines[0].comm_world();
        let sent = cluster.engines[0].isend(vec![1u8; 10], Rank(1), Tag(1), world);
        let received = cluster.engines[0].irecv(vec![0u8; 10], Rank(1), Tag(1), world);
        // An operation that is posted later is refused with the same words.
        let mut words_of = |posted: Result<Request<Vec<u8>>, Rejected<Vec<u8>>>| match posted {
            Ok(request) => cluster.finish(BOUND, 0, request).unwrap_err().error.to_string(),
            Err(rejected) => rejected.error.to_string(),
        };
        let sent = words_of(sent);
        let received = words_of(received);
        for words in [sent, received] {
            let of = |way: usize, name: &str| match calls[way] {
                Calls::Refused => format!("{name}: {name} cannot call proc 1"),
                _ => format!("{name}: {name} was not answered"),
            };
            let expected = format!("no route is left: {}; {}", of(0, "upper"), of(1, "lower"));
            assert!(words.contains(&expected), "{words}");
        }
        assert_eq!(cluster.vc_state(0, 1), Some(VcState::Failed));
        let own = cluster.engines[0].isend(vec![1u8; 10], Rank(0), Tag(1), world).unwrap();
        cluster.finish(BOUND, 0, own).unwrap();
    }
}

#[test]
fn a_connection_that_was_there_and_ends_is_not_moved_to_another_route() {
    let side = Side { priorities: UPPER, calls: [Calls::Open, Calls::Open] };
    let mut ways = TwoWays::new(&[side, side]);
    exchange(&mut ways, "before");
    assert_eq!(chosen(&mut ways, 0), "upper");
    let cluster = &mut ways.cluster;
    let world = cluster.engines[0].comm_world();
    let waits = cluster.engines[1].irecv(vec![0u8; 1], Rank(0), Tag(1), world).unwrap();
    let all = rows(&mut cluster.engines[0]);
    let vc = *all.vcs.iter().find(|vc| vc.proc == 1).unwrap();
    all.endpoints[usize::from(vc.endpoint)].transport.get().close_link(vc.link);
    let error = cluster.finish(BOUND, 1, waits).unwrap_err().error;
    assert!(matches!(error, RequestError::PeerFailed { .. }), "{error}");
    let late = cluster.engines[1].isend(vec![0u8; 1], Rank(0), Tag(1), world);
    assert!(late.is_err(), "it stays so");
}

#[test]
fn who_leaves_before_its_call_is_answered_says_goodbye() {
    let side = Side { priorities: UPPER, calls: [Calls::Open, Calls::Open] };
    let mut ways = TwoWays::new(&[side, side, side]);
    let cluster = &mut ways.cluster;
    let world = cluster.engines[0].comm_world();
    let any = cluster.engines[1].irecv(vec![0u8; 1], Source::Any, Tag(1), world).unwrap();
    cluster.engines[0].connect(ProcId(1)).unwrap();
    for _ in 0..3 {
        cluster.tick(1);
    }
    assert_eq!((cluster.vc_state(0, 1), cluster.vc_state(1, 0)), (Some(VcState::Connecting), Some(VcState::Connected)));
    cluster.engines[0].finalize(Duration::from_secs(5)).unwrap();
    for _ in 0..BOUND {
        if cluster.vc_state(1, 0) == Some(VcState::Failed) {
            break;
        }
        cluster.now_ns += STEP_NS;
        cluster.tick(1);
    }
    assert_eq!(cluster.vc_state(1, 0), Some(VcState::Failed), "it has left");
    assert_eq!(cluster.engines[1].test(&any), Ok(Test::Pending), "an end in order disturbs nobody");
}

#[test]
fn one_that_only_listens_hears_who_comes_by_the_second_route() {
    let silent = Side { priorities: UPPER, calls: [Calls::Refused, Calls::Refused] };
    let caller = Side { priorities: UPPER, calls: [Calls::Lost(2), Calls::Open] };
    for caller_rank in [0usize, 1] {
        let mut sides = [silent; 2];
        sides[caller_rank] = caller;
        let mut ways = TwoWays::new(&sides);
        let cluster = &mut ways.cluster;
        let (world, other) = (cluster.engines[0].comm_world(), 1 - caller_rank);
        let sends: Vec<_> = (0..5u8)
            .map(|number| {
                let to = Rank(other as u32);
                cluster.engines[caller_rank].isend(vec![number; 2000], to, Tag(1), world).unwrap()
            })
            .collect();
        cluster.tick_until(BOUND, "it has called", |cluster| {
            cluster.vc_state(other, caller_rank as u32) == Some(VcState::Connected)
        });
        for number in 0..5u8 {
            let from = Rank(caller_rank as u32);
            let receive = cluster.engines[other].irecv(vec![0u8; 2000], from, Tag(1), world).unwrap();
            assert_eq!(cluster.finish(BOUND, other, receive).unwrap().0, vec![number; 2000]);
        }
        for send in sends {
            cluster.finish(BOUND, caller_rank, send).unwrap();
        }
        let back = cluster.engines[other].isend(vec![9u8; 1], Rank(caller_rank as u32), Tag(2), world).unwrap();
        assert!(!matches!(cluster.engines[other].test(&back), Err(_) | Ok(Test::Pending)));
        cluster.finish(BOUND, other, back).unwrap();
    }
}
