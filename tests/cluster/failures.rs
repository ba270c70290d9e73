//! A proc dies. Operations that need it fail, other operations go on, and every rank that must know learns of the
//! death.

use crate::kit::{ME, told, ways};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tickwire::bootstrap::{BootstrapError, Exchange};
use tickwire::internals::components::{TagFilter, VcState};
use tickwire::testing::{Board, BoardExchange, Cluster, Death, STEP_NS, SimConfig, SimNet};
use tickwire::{Bootstrap, Engine, PostError, Rank, RequestError, Source, Tag};
use tickwire_tests::cases::{self, BOUND, content};

#[test]
fn a_dead_peer_ends_what_needs_it_and_nothing_else() {
    for seed in 0..8 {
        let net = SimNet::new(3, SimConfig::new(seed));
        let mut cluster = Cluster::sim(3, &net);
        let world = cluster.engines[0].comm_world();
        cases::every_length(&mut cluster);
        cases::oneself(&mut cluster);
        cases::wildcards(&mut cluster);
        // Proc 2 dies in the middle of its large message.
        net.kill(2, Death::Frame(net.frames(2) + 3 + seed * 5));
        let large = cluster.engines[2].isend(content(1, 300_000), ME, Tag(1), world).unwrap();
        let from_dead = cluster.engines[0].irecv(vec![0u8; 300_000], Rank(2), Tag(1), world).unwrap();
        let to_dead = cluster.engines[0].isend(content(2, 100_000), Rank(2), Tag(2), world).unwrap();
        let any = cluster.engines[0].irecv(vec![0u8; 100], Source::Any, Tag(3), world).unwrap();
        let from_one = cluster.engines[0].irecv(vec![0u8; 100_000], Rank(1), Tag(1), world).unwrap();
        let to_one = cluster.engines[0].isend(content(3, 100_000), Rank(1), Tag(1), world).unwrap();
        cluster.tick_until(BOUND, "proc 2 dies", |_| net.died_ns(2).is_some());
        let died_ns = net.died_ns(2).unwrap();
        let failed = cluster.finish(BOUND, 0, from_dead).unwrap_err();
        assert!(matches!(failed.error, RequestError::PeerFailed { proc, .. } if proc.0 == 2), "{failed:?}");
        assert_eq!(failed.buffer.map(|buffer| buffer.len()), Some(300_000), "the buffer comes back");
        let failed = cluster.finish(BOUND, 0, to_dead).unwrap_err();
        assert!(matches!(failed.error, RequestError::PeerFailed { .. }), "{failed:?}");
        let noticed_ns = cluster.now_ns - died_ns;
        assert!(noticed_ns <= 1_000_000_000, "noticed after {noticed_ns} ns");
        assert_eq!(cluster.vc_state(0, 2), Some(VcState::Failed));
        let refused = cluster.engines[0].isend(vec![1u8], Rank(2), Tag(1), world).unwrap_err();
        assert!(matches!(refused.error, PostError::PeerFailed { .. }));

        // Operations between the other procs go on.
        let send = cluster.engines[1].isend(content(4, 100_000), ME, Tag(1), world).unwrap();
        let receive = cluster.engines[1].irecv(vec![0u8; 100_000], ME, Tag(1), world).unwrap();
        assert!(cluster.finish(BOUND, 0, from_one).unwrap().0 == content(4, 100_000));
        assert!(cluster.finish(BOUND, 1, receive).unwrap().0 == content(3, 100_000));
        cluster.finish(BOUND, 1, send).unwrap();
        cluster.finish(BOUND, 0, to_one).unwrap();
        let told = cluster.engines[0].wait(&any).unwrap_err();
        assert!(matches!(told, RequestError::PeerFailedPending { proc, .. } if proc.0 == 2), "{told}");
        assert_eq!(cluster.engines[0].test(&any), Err(told), "whoever tests hears it too");
        cluster.engines[0].acknowledge_failures();
        assert!(cases::is_pending(&mut cluster, 0, &any), "it stays posted");
        let send = cluster.engines[1].isend(vec![9u8; 3], ME, Tag(3), world).unwrap();
        assert_eq!(cluster.finish(BOUND, 0, any).unwrap().1.source, Rank(1));
        cluster.finish(BOUND, 1, send).unwrap();
        drop(large);
    }
}

/// A receive from any source that has matched a message of a living proc no longer depends on the death of another proc.
#[test]
fn a_message_that_is_coming_is_waited_for_whoever_else_has_died() {
    let net = SimNet::new(3, SimConfig::calm(0));
    let mut cluster = Cluster::sim(3, &net);
    let world = cluster.engines[0].comm_world();
    cases::oneself(&mut cluster);
    cases::wildcards(&mut cluster);
    let any = cluster.engines[0].irecv(vec![0u8; 300_000], Source::Any, Tag(3), world).unwrap();
    net.kill(2, Death::At(cluster.now_ns + 1));
    let to_dead = cluster.engines[0].isend(content(2, 100_000), Rank(2), Tag(2), world).unwrap();
    assert!(cluster.finish(BOUND, 0, to_dead).is_err());
    assert!(matches!(cluster.engines[0].test(&any), Err(RequestError::PeerFailedPending { .. })));
    let send = cluster.engines[1].isend(content(5, 300_000), ME, Tag(3), world).unwrap();
    let (mut looks, mut coming) = (0, 0);
    loop {
        match cluster.engines[0].test(&any) {
            Ok(test) if test.is_done() => break,
            Ok(_) => coming += 1,
            Err(RequestError::PeerFailedPending { .. }) => assert_eq!(coming, 0, "it has met its message"),
            Err(error) => panic!("{error}"),
        }
        cluster.tick_all();
        looks += 1;
        assert!(looks < BOUND, "{}", cluster.report());
    }
    assert!(coming > 0, "it comes in pieces");
    assert!(cluster.finish(BOUND, 0, any).unwrap().0 == content(5, 300_000));
    cluster.finish(BOUND, 1, send).unwrap();
}

#[test]
fn a_look_for_messages_of_who_has_failed_says_so_and_all_failures_are_acknowledged_by_name() {
    let net = SimNet::new(3, SimConfig::calm(0));
    let mut cluster = Cluster::sim(3, &net);
    let world = cluster.engines[0].comm_world();
    for rank in [1, 2] {
        let send = cluster.engines[rank].isend(vec![rank as u8], ME, Tag(1), world).unwrap();
        cluster.finish(BOUND, rank, send).unwrap();
    }
    cluster.tick_until(BOUND, "both have come", |cluster| {
        let mut found = |rank| cluster.engines[0].iprobe(Rank(rank), Tag(1), world).unwrap().is_some();
        found(1) && found(2)
    });
    [1, 2].into_iter().for_each(|proc| net.kill(proc, Death::At(cluster.now_ns)));
    cluster.tick_until(BOUND, "both have failed", |cluster| {
        [1, 2].into_iter().all(|proc| cluster.vc_state(0, proc) == Some(VcState::Failed))
    });
    let engine = &mut cluster.engines[0];
    for rank in [1, 2] {
        // A message that came before the death is still there.
        let found = engine.improbe(Rank(rank), TagFilter::Any, world).unwrap().unwrap();
        let mut byte = [0u8];
        engine.mrecv(found, &mut byte).unwrap();
        assert_eq!(u32::from(byte[0]), rank);
        let of_it = |error| matches!(error, Some(PostError::PeerFailed { proc, .. }) if proc.0 == rank);
        assert!(of_it(engine.iprobe(Rank(rank), TagFilter::Any, world).err()));
        assert!(of_it(engine.improbe(Rank(rank), Tag(1), world).err()));
    }
    assert!(matches!(engine.iprobe(Source::Any, Tag(1), world), Err(PostError::PeerFailed { .. })));
    let acknowledged = engine.acknowledge_failures();
    assert_eq!(acknowledged.iter().map(|(proc, _)| proc.0).collect::<Vec<_>>(), [1, 2]);
    assert!(acknowledged.iter().all(|(_, reason)| !reason.is_empty()));
    assert_eq!(engine.acknowledge_failures(), [], "once");
    // Other procs may still send.
    assert_eq!(engine.iprobe(Source::Any, Tag(1), world).unwrap(), None);
    assert!(engine.iprobe(Rank(1), Tag(1), world).is_err());
}

#[test]
fn a_rank_that_ends_before_it_is_connected_fails_what_waits_for_it() {
    let mut cluster = Cluster::shm(3);
    let world = cluster.engines[0].comm_world();
    // The endpoint of proc 2 exists, but its engine is not ticked.
    let receive = cluster.engines[0].irecv(vec![0u8; 1], Rank(2), Tag(0), world).unwrap();
    assert_eq!(cluster.vc_state(0, 2), Some(VcState::Connecting));
    cluster.board.end(2, "killed by signal 9 (SIGKILL)");
    for _ in 0..100 {
        cluster.tick(0);
        cluster.now_ns += STEP_NS;
    }
    let error = cluster.engines[0].test(&receive).unwrap_err();
    assert!(error.to_string().contains("killed by signal 9"), "{error}");
}

#[test]
fn a_death_is_told_to_every_receive_from_any_source_of_its_communicators() {
    for mut cluster in ways(4) {
        let world = cluster.engines[0].comm_world();
        let own = cluster.engines[0].comm_self();
        let any =
            |cluster: &mut Cluster, tag| cluster.engines[0].irecv(vec![0u8; 8], Source::Any, Tag(tag), world).unwrap();
        let before = any(&mut cluster, 1);
        let alone = cluster.engines[0].irecv(vec![0u8; 8], Source::Any, Tag(1), own).unwrap();
        // An orderly end is not reported to the receives.
        cluster.board.end(3, "exited");
        cluster.tick_times(500);
        assert_eq!(told(&mut cluster, 0, &before), None);
        cluster.board.end(2, "killed by signal 9 (SIGKILL)");
        cluster.tick_times(2);
        assert_eq!(cluster.vc_state(0, 2), Some(VcState::Failed), "it was never contacted");
        let expected = Some((2, "process of rank 2 has ended: killed by signal 9 (SIGKILL)".to_owned()));
        assert_eq!(told(&mut cluster, 0, &before), expected);
        let waited = cluster.engines[0].wait(&before).unwrap_err();
        assert!(matches!(waited, RequestError::PeerFailedPending { proc, .. } if proc.0 == 2), "{waited}");
        let after = any(&mut cluster, 2);
        let mut again = cluster.engines[0].recv_init(vec![0u8; 8], Source::Any, Tag(3), world).unwrap();
        cluster.engines[0].start(&again).unwrap();
        let submitted = cluster.engines[0].submitter().irecv(vec![5u8; 8], Source::Any, Tag(4), world).unwrap();
        let bound = 50_000_000 / STEP_NS as u32;
        cluster.tick_times(bound);
        assert_eq!(told(&mut cluster, 0, &after), expected);
        assert!(cluster.engines[0].test(&again).is_err());
        let failed = submitted.wait().unwrap_err();
        assert!(matches!(failed.error, RequestError::PeerFailed { proc, .. } if proc.0 == 2), "{failed:?}");
        assert_eq!(failed.buffer, Some(vec![5u8; 8]), "the buffer comes back");
        assert!(cluster.engines[0].on_complete(&after, |_| ()).is_err());
        assert_eq!(told(&mut cluster, 0, &alone), None, "it is in no communicator with it");
        // After the failure is acknowledged, the receives go on.
        cluster.engines[0].acknowledge_failures();
        let later = any(&mut cluster, 5);
        cluster.tick_times(bound);
        assert_eq!([&before, &after, &later].map(|request| told(&mut cluster, 0, request)), [None, None, None]);
        let heard = Arc::new(Mutex::new(None));
        let hears = heard.clone();
        cluster.engines[0].on_complete(&later, move |outcome| *hears.lock().unwrap() = Some(outcome)).unwrap();
        for tag in [1, 2, 3, 5] {
            let send = cluster.engines[1].isend(vec![tag as u8; 8], ME, Tag(tag), world).unwrap();
            cluster.finish(BOUND, 1, send).unwrap();
        }
        for (tag, request) in [(1, before), (2, after), (5, later)] {
            assert_eq!(cluster.finish(BOUND, 0, request).unwrap().0, [tag; 8]);
        }
        assert_eq!(heard.lock().unwrap().take().unwrap().unwrap().source, Rank(1));
        cluster.tick_until(BOUND, "the persistent one is done", |c| c.engines[0].test(&again).unwrap().is_done());
        assert_eq!(cluster.engines[0].buffer(&mut again).unwrap()[0], 3);
        drop(alone);
    }
}

#[test]
fn without_a_launcher_a_process_is_known_by_its_card() {
    /// The bootstrap of a world of two procs. The other proc is a process that is known only by its card.
    struct Forged {
        board: BoardExchange,
        process: (u32, u64),
    }
    impl Exchange for Forged {
        fn rank(&self) -> u32 {
            0
        }
        fn size(&self) -> u32 {
            2
        }
        fn job(&self) -> &str {
            self.board.job()
        }
        fn put(&mut self, key: &str, value: &[u8]) -> Result<(), BootstrapError> {
            self.board.put(key, value)
        }
        fn fence(&mut self) -> Result<(), BootstrapError> {
            Ok(())
        }
        fn get(&mut self, _: u32, key: &str) -> Result<Option<Vec<u8>>, BootstrapError> {
            self.board.get(0, key)
        }
        fn get_all(&mut self, key: &str) -> Result<Vec<Option<Vec<u8>>>, BootstrapError> {
            let own = self.board.get(0, key)?.unwrap();
            let shm = tickwire::internals::systems::procs::cards::card_of(&own, "shm").unwrap();
            let (pid, started) = self.process;
            // The process as a card has it: 22 bits of process id and 34 bits of start time, in seven bytes.
            let process = &(u64::from(pid) << 34 | started & ((1 << 34) - 1)).to_be_bytes()[1..];
            let mut theirs = Vec::new();
            let card = [&shm[..shm.len() - process.len()], process].concat();
            tickwire::internals::systems::procs::cards::add_card(&mut theirs, "shm", &card);
            Ok(vec![Some(own), Some(theirs)])
        }
    }
    let mut child = Command::new("cat").stdin(Stdio::piped()).spawn().unwrap();
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", child.id())).unwrap();
    let started = stat.rsplit_once(')').unwrap().1.split_ascii_whitespace().nth(19).unwrap().parse().unwrap();
    let exchange = Forged { board: Board::new(1).exchange(0), process: (child.id(), started) };
    let mut engine = Engine::builder().include(["loopback", "shm"]).build(Bootstrap::custom(exchange)).unwrap();
    let world = engine.comm_world();
    let any = engine.irecv(vec![0u8; 8], Source::Any, Tag(1), world).unwrap();
    let waited = engine.wait_for(&any, Duration::from_millis(100));
    assert_eq!(waited, Err(RequestError::Timeout), "it lives");
    child.kill().unwrap();
    child.wait().unwrap();
    let start = Instant::now();
    let told = engine.wait_for(&any, Duration::from_secs(10)).unwrap_err();
    assert!(matches!(&told, RequestError::PeerFailedPending { proc, .. } if proc.0 == 1), "{told}");
    assert!(told.to_string().contains(&format!("process {} has ended", child.id())), "{told}");
    assert!(start.elapsed() < Duration::from_secs(1), "{:?}", start.elapsed());
    // A probe fails as well.
    let probed = engine.probe(Source::Any, Tag(1), world).unwrap_err();
    assert!(probed.to_string().contains("has ended"), "{probed}");
}
