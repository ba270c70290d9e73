//! A connection from the first contact to its end. If one side gives it up, the other side learns of it.

use crate::kit::{ME, ways};
use tickwire::internals::components::VcState;
use tickwire::testing::{Cluster, ROWS, STEP_NS, rows};
use tickwire::{Engine, Limits, Rank, RequestError, Tag, Test};
use tickwire_tests::cases::{self, BOUND};

#[test]
fn a_first_send_waits_as_long_as_its_receiver_computes() {
    let mut cluster = Cluster::shm(2);
    let world = cluster.engines[0].comm_world();
    let send = cluster.engines[0].isend(vec![7u8; 100], Rank(1), Tag(1), world).unwrap();
    for _ in 0..3600 {
        cluster.now_ns += 1_000_000_000;
        cluster.tick(0);
    }
    assert_eq!(cluster.vc_state(0, 1), Some(VcState::Connecting));
    let dump = cluster.engines[0].dump();
    assert!(dump.to_string().contains("connecting"), "{dump}");
    assert_eq!(cluster.engines[0].test(&send), Ok(Test::Pending));
    let receive = cluster.engines[1].irecv(vec![0u8; 100], ME, Tag(1), world).unwrap();
    assert_eq!(cluster.finish(BOUND, 1, receive).unwrap().0, [7; 100]);
    cluster.finish(BOUND, 0, send).unwrap();
    cluster.assert_at_rest();
}

#[test]
fn a_peer_that_was_given_up_here_is_told_when_it_calls() {
    let within_1_s = 1_000_000_000 / STEP_NS as u32;
    let impatient = Cluster::build(3, |rank| {
        let connect_ms_max = (rank == 0).then_some(5);
        Engine::builder().initial_rows(ROWS).limits(Limits { connect_ms_max, ..Limits::default() })
    });
    for mut cluster in ways(3).into_iter().chain([impatient]) {
        let world = cluster.engines[0].comm_world();
        let send = match cluster.engines[0].limits().connect_ms_max {
            // Proc 1 computes for longer than proc 0 is willing to wait.
            Some(_) => Some(cluster.engines[0].isend(vec![1u8], Rank(1), Tag(1), world).unwrap()),
            None => {
                cluster.board.end(1, "lost from sight");
                None
            }
        };
        for _ in 0..100 {
            cluster.now_ns += STEP_NS;
            cluster.tick(0);
        }
        assert_eq!(cluster.vc_state(0, 1), Some(VcState::Failed));
        // Then proc 1 calls proc 0, by all kinds of operations.
        let receive = cluster.engines[1].irecv(vec![0u8; 1], ME, Tag(1), world).unwrap();
        let large = cluster.engines[1].isend(vec![0u8; 1 << 20], ME, Tag(2), world).unwrap();
        let error = cluster.finish(within_1_s, 1, receive).unwrap_err().error;
        let words = error.to_string();
        assert!(words.contains("gave the connection up: the connection has failed before: "), "{words}");
        let error = cluster.finish(within_1_s, 1, large).unwrap_err().error;
        assert!(matches!(error, RequestError::PeerFailed { .. }), "{error}");
        if let Some(send) = send {
            let words = cluster.finish(1, 0, send).unwrap_err().error.to_string();
            assert!(words.contains("did not answer within 6 ms"), "{words}");
        }
        // Other connections are not affected.
        let send = cluster.engines[0].isend(vec![1u8], Rank(2), Tag(1), world).unwrap();
        let receive = cluster.engines[2].irecv(vec![0u8; 1], ME, Tag(1), world).unwrap();
        assert_eq!(cluster.finish(BOUND, 2, receive).unwrap().0, [1]);
        cluster.finish(BOUND, 0, send).unwrap();
    }
}

#[test]
fn a_link_that_one_side_gives_up_ends_at_the_other_whatever_it_goes_over() {
    for mut cluster in ways(2) {
        let world = cluster.engines[0].comm_world();
        cases::every_length(&mut cluster);
        let waits = cluster.engines[1].irecv(vec![0u8; 1], ME, Tag(1), world).unwrap();
        let mut all = rows(&mut cluster.engines[0]);
        let row = all.vcs.iter().position(|vc| vc.proc == 1).unwrap() as u32;
        tickwire::internals::systems::procs::ending::fail(&mut all, row, "it says what cannot be".into());
        let error = cluster.finish(BOUND, 1, waits).unwrap_err().error.to_string();
        assert!(error.contains("gave the connection up: it says what cannot be"), "{error}");
    }
}

#[test]
fn a_vc_goes_from_unconnected_to_failed() {
    let mut cluster = Cluster::shm(2);
    let world = cluster.engines[0].comm_world();
    assert_eq!(cluster.vc_state(0, 1), None, "never contacted");
    let send = cluster.engines[0].isend(vec![1u8], Rank(1), Tag(0), world).unwrap();
    assert_eq!(cluster.vc_state(0, 1), Some(VcState::Connecting));
    assert_eq!(cluster.engines[0].test(&send), Ok(Test::Pending));
    cluster.tick_until(BOUND, "connected", |c| c.vc_state(0, 1) == Some(VcState::Connected));
    assert_eq!(cluster.vc_state(1, 0), Some(VcState::Connected), "the peer knows, without a call of its own");
    cluster.finish(BOUND, 0, send).unwrap();
    drop(cluster.engines.pop());
    cluster.tick_until(BOUND, "failed", |c| c.vc_state(0, 1) == Some(VcState::Failed));
}

#[test]
fn both_sides_may_connect_at_once() {
    for mut cluster in [Cluster::loopback(4), Cluster::shm(4)] {
        let world = cluster.engines[0].comm_world();
        let mut open = Vec::new();
        for from in 0..4usize {
            for to in 0..4u32 {
                let send = cluster.engines[from].isend(vec![from as u8], Rank(to), Tag(0), world).unwrap();
                open.push((from, send));
            }
        }
        for to in 0..4usize {
            for from in 0..4u32 {
                let receive = cluster.engines[to].irecv(vec![9u8], Rank(from), Tag(0), world).unwrap();
                assert_eq!(cluster.finish(BOUND, to, receive).unwrap().0, [from as u8]);
            }
        }
        for (from, send) in open {
            cluster.finish(BOUND, from, send).unwrap();
        }
        cluster.assert_at_rest();
    }
}
