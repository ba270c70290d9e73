//! The events that a sink gets: runs of systems, messages, connections, errors, and what waits.

use crate::kit::{MANY, events, everywhere, messages, runs, simulated, told};
use bevy_ecs::prelude::*;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tickwire::internals::components::VcState;
use tickwire::internals::components::credit::{LINE_BYTES, cost};
use tickwire::internals::traces::{DELIVER, Depths, Event, Message, Ring, Sink};
use tickwire::internals::transports::Hub;
use tickwire::internals::transports::ofi::Choice;
use tickwire::testing::{Board, Cluster, Death, SimConfig, SimNet};
use tickwire::{Bootstrap, Engine, Limits, ProgressSystems, Rank, Source, Tag, Test, op};
use tickwire_tests::cases;
use tickwire_tests::needs::has_libfabric;

#[test]
fn every_run_and_every_message_is_told() {
    everywhere(3, check);
}

#[test]
fn every_message_over_a_fabric_is_told() {
    if !has_libfabric() {
        return;
    }
    // A look at it delivers what it finds. Where a provider matches by itself, receives end in an order of their own.
    let choice = Choice { include: vec!["tcp;ofi_rxm".into()], ..Choice::default() };
    let (cluster, rings) = told(3, |_| Engine::builder().ofi(choice.clone()).exclude(["shm"]));
    check(cluster, rings);
}

/// Runs all cases, and compares what the sinks were told with what the engines have counted, and with each other.
fn check(mut cluster: Cluster, rings: Vec<Ring>) {
    cases::all(&mut cluster);
    let told: Vec<_> = rings.iter().map(events).collect();
    for (rank, events) in told.iter().enumerate() {
        let counted = cluster.engines[rank].counters().runs();
        let (runs, rows) = runs(events);
        assert_eq!(runs, counted, "rank {rank}");
        assert!(runs[DELIVER] > 0, "messages that are awaited are delivered row by row, watched or not");
        assert_eq!(events[0], Event::Engine { rank: rank as u32, size: 3 });
        let ended: Vec<_> = events
            .iter()
            .filter_map(|event| match event {
                Event::TickEnded { work, passes, .. } => Some((*work, u64::from(*passes))),
                Event::Delivered { work, .. } => Some((*work, 1)),
                _ => None,
            })
            .collect();
        let begins = |event: &&Event<'_>| matches!(event, Event::TickBegan { .. } | Event::Delivered { .. });
        assert_eq!(events.iter().filter(begins).count(), ended.len());
        let sum = |value: fn(&tickwire::Work) -> u32| ended.iter().map(|(work, _)| u64::from(value(work))).sum::<u64>();
        let (matched, read) = (sum(|work| work.matched), rows[ProgressSystems::DrainCq as usize]);
        assert!(rows[ProgressSystems::Match as usize] >= read && matched > 0, "rank {rank}: {rows:?}");
        let (delivered, received) = (rows[DELIVER], sum(|work| work.received));
        assert!(read + delivered <= received, "the rest was read out of other processes' memory");
        assert!(read > 0 && delivered > 0, "rank {rank}: {rows:?}");
        assert!(rows[ProgressSystems::Complete as usize] <= sum(|work| work.completed), "rank {rank}");
        let most = ended.iter().map(|(_, passes)| *passes).sum::<u64>();
        assert!(runs.iter().all(|&runs| runs <= most), "at most once a pass: {runs:?} in {most}");
    }
    for (from, to) in (0..3).flat_map(|from| (0..3).map(move |to| (from, to))) {
        let sent = messages(&told[from], to as u32, true);
        let received = messages(&told[to], from as u32, false);
        assert!(sent.iter().zip(0..).all(|(message, number)| message.number == number), "from {from} to {to}");
        assert!(from == to || !sent.is_empty(), "from {from} to {to}");
        let envelope = |m: &Message| (m.context, m.tag, m.bytes, m.number);
        let [sent_to, received_by] = [&sent, &received].map(|all| all.iter().map(envelope).collect::<Vec<_>>());
        assert_eq!(sent_to, received_by, "from {from} to {to}");
        assert!(sent.iter().zip(&received).all(|(sent, received)| sent.begin_ns <= received.end_ns));
    }
}

#[test]
fn a_message_to_oneself_needs_no_tick_and_is_told() {
    let ring = Ring::new(MANY);
    let mut engine = Engine::builder().trace(ring.clone()).build(Bootstrap::solo()).unwrap();
    let world = engine.comm_world();
    // No receive is posted yet, so this message goes to the transport.
    let unexpected = engine.isend(vec![0u8; 3], Rank(0), Tag(1), world).unwrap();
    let late = engine.irecv(vec![0u8; 3], Rank(0), Tag(1), world).unwrap();
    engine.wait(&late).unwrap();
    engine.wait(&unexpected).unwrap();
    let ticks = |events: &[Event<'_>]| {
        let begins = |event: &&Event<'_>| matches!(event, Event::TickBegan { .. } | Event::Delivered { .. });
        events.iter().filter(begins).count()
    };
    let before = ticks(&events(&ring));
    let incoming = engine.irecv(vec![0u8; 8], Rank(0), Tag(2), world).unwrap();
    let outgoing = engine.isend(vec![7u8; 8], Rank(0), Tag(2), world).unwrap();
    assert!(matches!(engine.test(&incoming), Ok(Test::Done(_))));
    assert_eq!(engine.take(incoming).unwrap().0, [7; 8]);
    engine.take(outgoing).unwrap();
    let events = events(&ring);
    assert_eq!(ticks(&events), before, "the call that sent it has delivered it");
    for sent in [true, false] {
        let told: Vec<_> =
            messages(&events, 0, sent).iter().map(|message| (message.number, message.tag, message.bytes)).collect();
        assert_eq!(told, [(0, 1, 3), (1, 2, 8)], "sent: {sent}");
    }
    let (sent, received) = (messages(&events, 0, true)[1], messages(&events, 0, false)[1]);
    assert!(sent.begin_ns <= received.begin_ns && received.begin_ns <= received.end_ns);
}

#[test]
fn systems_of_the_application_have_names_and_runs() {
    let (ring, count) = (Ring::new(MANY), Arc::new(AtomicU64::new(0)));
    let counted = count.clone();
    let counts = move || {
        counted.fetch_add(1, Ordering::Relaxed);
    };
    let builder = Engine::builder().systems(|schedule| {
        schedule.add_systems(IntoSystem::into_system(counts).with_name("counts").after(ProgressSystems::DrainCq));
    });
    let mut engine = builder.trace(ring.clone()).build(Bootstrap::solo()).unwrap();
    let world = engine.comm_world();
    for _ in 0..10 {
        let incoming = engine.irecv(vec![0u8; 8], Source::Any, Tag(1), world).unwrap();
        engine.send(&[1u8; 8], Rank(0), Tag(1), world).unwrap();
        engine.wait(&incoming).unwrap();
    }
    let events = events(&ring);
    let (system, name) = events
        .iter()
        .find_map(|event| match event {
            Event::System { system, name } if usize::from(*system) > DELIVER => Some((*system, name.clone())),
            _ => None,
        })
        .unwrap();
    assert!(name.contains("counts"), "{name}");
    let runs = events.iter().filter(|event| matches!(event, Event::SystemRan { system: of, .. } if *of == system));
    assert_eq!(runs.count() as u64, count.load(Ordering::Relaxed));
    assert!(count.load(Ordering::Relaxed) >= 10);
}

#[test]
fn connections_and_errors_are_told() {
    let net = SimNet::new(2, SimConfig::new(9));
    let (mut cluster, rings) = simulated(2, &net);
    cases::storm(&mut cluster, 1, 4);
    net.kill(1, Death::At(cluster.now_ns));
    let world = cluster.engines[0].comm_world();
    let never = cluster.engines[0].irecv(vec![0u8; 8], Rank(1), Tag(9), world).unwrap();
    let error = cluster.finish(cases::BOUND, 0, never).unwrap_err().error;
    let events = events(&rings[0]);
    let states: Vec<VcState> = events
        .iter()
        .filter_map(|event| match event {
            Event::VcChanged { proc: 1, state, reason, .. } => {
                assert_eq!(*state == VcState::Failed, !reason.is_empty(), "{reason}");
                Some(*state)
            }
            _ => None,
        })
        .collect();
    assert_eq!(states.last(), Some(&VcState::Failed));
    assert_eq!(states[states.len() - 2], VcState::Connected, "{states:?}");
    let told = |event: &Event<'_>| matches!(event, Event::Error { words, .. } if words.contains(&error.to_string()));
    assert!(events.iter().any(told), "{error}");
}

#[test]
fn what_waits_is_counted() {
    for matching in [tickwire::Matching::Lists, tickwire::Matching::Index] {
        let hub = Hub::new(2, tickwire::internals::components::limits::LOOPBACK_RING_BYTES);
        let limits = tickwire::Limits { matching, ..Default::default() };
        let (mut cluster, rings) = told(2, |_| Engine::builder().hub(hub.clone()).limits(limits.clone()));
        let world = cluster.engines[0].comm_world();
        let mut posted = Vec::new();
        for tag in 0..5 {
            posted.push(cluster.engines[0].irecv(vec![0u8; 8], Rank(1), Tag(tag), world).unwrap());
        }
        for tag in 10..13 {
            posted.push(cluster.engines[0].irecv(vec![0u8; 8], Source::Any, Tag(tag), world).unwrap());
        }
        for tag in 20..27 {
            let sent = cluster.engines[1].isend(vec![7u8; 100], Rank(0), Tag(tag), world).unwrap();
            cluster.finish(cases::BOUND, 1, sent).unwrap();
        }
        cluster.tick_times(5);
        let [depths, sender] = [0, 1].map(|rank: usize| {
            let ended = rings[rank].events().iter().rev().find_map(|event| match event {
                Event::TickEnded { depths, .. } => Some(*depths),
                _ => None,
            });
            ended.unwrap()
        });
        let credit_bytes = depths.credit_bytes;
        let expected = Depths { posted: 8, wildcard: 3, unexpected: 7, unexpected_bytes: 700, cars: 8, credit_bytes };
        assert_eq!(depths, expected, "{matching:?}");
        // The first message waited for the connection and left in a tick. The others left within their call, which the
        // next tick reports.
        let spent = 7 * u64::from(cost(100)) * LINE_BYTES as u64;
        assert_eq!(sender.credit_bytes, credit_bytes - spent, "both have been granted the same");
    }
}

#[test]
fn reading_a_long_message_is_told_apart_from_taking_frames() {
    // Over shared memory.
    let (mut cluster, rings) = told(2, |_| Engine::builder());
    let world = cluster.engines[0].comm_world();
    let mut exchange = |bytes: usize| {
        rings[1].take();
        let receive = cluster.engines[1].irecv(vec![0u8; bytes], Rank(0), Tag(1), world).unwrap();
        let send = cluster.engines[0].isend(vec![1u8; bytes], Rank(1), Tag(1), world).unwrap();
        cluster.finish(cases::BOUND, 1, receive).unwrap();
        cluster.finish(cases::BOUND, 0, send).unwrap();
        let reads = |event: &Event<'_>| matches!(event, Event::Delivered { read_ns, end_ns, .. } if read_ns < end_ns);
        rings[1].take().iter().filter(|event| reads(event)).count()
    };
    // The first message waits for the connection.
    exchange(8);
    assert_eq!((exchange(8), exchange(4 << 20)), (0, 1));
}

/// A sink that panics on each received message with tag 2. It panics again when its engine reports that it is
/// poisoned.
struct Breaking;

impl Sink for Breaking {
    fn record(&mut self, event: &Event<'_>) {
        let breaks = match event {
            Event::Received(message) => message.tag == 2,
            Event::Error { words, .. } => words.starts_with("the engine is poisoned"),
            _ => false,
        };
        assert!(!breaks, "the sink is broken");
    }
}

#[test]
fn a_sink_that_panics_poisons_its_engine_and_no_other() {
    let mut cluster = Cluster::loopback_with(2, |builder| builder.trace(Breaking));
    cluster.checked = false;
    let world = cluster.engines[0].comm_world();
    let post = |cluster: &mut Cluster, tag| {
        let receive = cluster.engines[1].irecv(vec![0u8; 8], Rank(0), tag, world).unwrap();
        (receive, cluster.engines[0].isend(vec![1u8; 8], Rank(1), tag, world).unwrap())
    };
    let (receive, send) = post(&mut cluster, Tag(1));
    cluster.finish(2000, 1, receive).unwrap();
    cluster.finish(2000, 0, send).unwrap();
    let before = cluster.engines[1].counters().runs()[DELIVER];
    let (receive, send) = post(&mut cluster, Tag(2));
    // The message was delivered before the sink got the event.
    cluster.tick_until(2000, "the message has come", |c| !matches!(c.engines[1].test(&receive), Ok(Test::Pending)));
    assert_eq!(cluster.engines[1].counters().runs()[DELIVER], before + 1, "it was awaited");
    let Err(rejected) = cluster.engines[1].isend(vec![1u8; 8], Rank(0), Tag(1), world) else {
        panic!("it is poisoned")
    };
    assert!(rejected.to_string().contains("the sink is broken"), "{rejected}");
    cluster.finish(2000, 0, send).unwrap();
}

#[test]
fn collective_operations_that_are_waited_for_are_told() {
    const RANKS: u32 = 3;
    // On boards, and by messages.
    for boards in [true, false] {
        let (board, rings) = (Board::new(RANKS), [(); RANKS as usize].map(|()| Ring::new(MANY)));
        std::thread::scope(|threads| {
            for (rank, ring) in (0..).zip(&rings) {
                let board = &board;
                threads.spawn(move || {
                    let limits = Limits { boards, ..Limits::default() };
                    let builder = Engine::builder().limits(limits).trace(ring.clone());
                    let mut engine = builder.build(board.bootstrap(rank)).unwrap();
                    let world = engine.comm_world();
                    engine.barrier(world).unwrap();
                    let mut sum = [0];
                    engine.allreduce(&[rank], &mut sum, op::Sum, world).unwrap();
                    assert_eq!(sum, [3]);
                    let request = engine.ibarrier(world).unwrap();
                    engine.wait(&request).unwrap();
                    engine.bcast(&mut sum, Rank(RANKS), world).unwrap_err();
                    engine.barrier(world).unwrap();
                    let _ = engine.finalize(Duration::from_secs(20));
                });
            }
        });
        let told = rings.map(|ring| {
            let mut calls = Vec::new();
            for event in events(&ring) {
                if let Event::Called { name, begin_ns, end_ns, .. } = event {
                    assert!(begin_ns <= end_ns, "{name}");
                    calls.push((name, begin_ns, end_ns));
                }
            }
            calls
        });
        for calls in &told {
            let names: Vec<&str> = calls.iter().map(|(name, ..)| &**name).collect();
            assert_eq!(names, ["barrier", "allreduce", "bcast", "barrier"], "boards: {boards}");
        }
        for call in [0, 1, 3] {
            let last_begin = told.iter().map(|calls| calls[call].1).max();
            let first_end = told.iter().map(|calls| calls[call].2).min();
            assert!(last_begin <= first_end, "call {call} of all ranks at one time, boards: {boards}");
        }
    }
}
