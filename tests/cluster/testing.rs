//! The testing kit itself: pairs become idle, and wrong credit is detected.

use tickwire::internals::transports::sim::ProviderConfig;
use tickwire::testing::{Cluster, Pair, SimConfig, SimNet, check_credit, rows};
use tickwire::{Engine, Limits, Rank, Source, Tag};
use tickwire_tests::cases::content;

#[test]
fn a_pair_passes_messages_and_comes_to_rest() {
    let config = SimConfig { partial_of_256: 100, credit_portion: 5, shuffled: true, ..SimConfig::new(3) };
    for mut pair in [Pair::loopback(), Pair::shm(), Pair::sim(&SimNet::new(2, config))] {
        for (from, length) in [(0, 0), (1, 100), (0, 9000), (1, 100_000)] {
            let message = content(length as u64, length);
            let (bytes, status) = pair.pass(from, 5, &message, length + 1);
            assert_eq!((status.source, status.length, &bytes[..length]), (Rank(from), length, &message[..]));
        }
        pair.assert_at_rest();
    }
    let mut pair = Pair::loopback();
    let world = pair.left().comm_world();
    let receive = pair.right().irecv(vec![0u8; 3], Source::Any, Tag(1), world).unwrap();
    let send = pair.left().isend(vec![1u8, 2, 3], Rank(1), Tag(1), world).unwrap();
    assert!(pair.drive() > 1);
    assert!(pair.right().test(&receive).unwrap().is_done() && pair.left().test(&send).unwrap().is_done());
}

#[test]
fn credit_that_comes_of_nothing_or_is_lost_is_found() {
    type Spoil = fn(&mut tickwire::internals::components::Vc);
    let spoils: [Spoil; 4] =
        [|vc| vc.lines += 1, |vc| vc.lines_owed += 1, |vc| vc.envelopes -= 1, |vc| vc.envelopes_left += 1];
    for spoil in spoils {
        let net = SimNet::new(2, SimConfig::calm(1));
        for (mut pair, net) in [(Pair::loopback(), None), (Pair::sim(&net), Some(&net))] {
            pair.pass(0, 1, &[1; 100], 100);
            assert_eq!(check_credit(&mut pair.engines, net), Ok(()));
            spoil(rows(pair.left()).vcs.iter_mut().find(|vc| vc.proc == 1).unwrap());
            let words = check_credit(&mut pair.engines, net).unwrap_err();
            assert!(words.starts_with("credit of proc "), "{words}");
        }
    }
}

/// A seed of a calm network on which one of two procs is ticked in one of ten rounds, and the other one in each.
fn uneven() -> SimConfig {
    let config = |seed| SimConfig { slow_of_256: 128, slow_rounds: 10, ..SimConfig::calm(seed) };
    (0..).map(config).find(|config| (config.pace(0), config.pace(1)) == (1, 10)).unwrap()
}

#[test]
fn a_pair_is_not_quiet_before_a_slow_engine_was_ticked() {
    let mut pair = Pair::sim(&SimNet::new(2, uneven()));
    let world = pair.left().comm_world();
    let receive = pair.right().irecv(vec![0u8; 3], Rank(0), Tag(1), world).unwrap();
    let send = pair.left().isend(vec![7u8; 3], Rank(1), Tag(1), world).unwrap();
    pair.drive();
    assert!(pair.right().test(&receive).unwrap().is_done() && pair.left().test(&send).unwrap().is_done());
}

#[test]
fn slow_engines_are_slow_whoever_matches_their_messages() {
    let net = SimNet::new(2, uneven());
    let clusters =
        [Cluster::sim(2, &net), Cluster::provider(2, &SimNet::new(2, uneven()), |_| ProviderConfig::calm(1))];
    for mut cluster in clusters {
        let ticks = |cluster: &mut Cluster| [0, 1].map(|rank| cluster.engines[rank].dump().tick);
        let before = ticks(&mut cluster);
        cluster.tick_times(40);
        let after = ticks(&mut cluster);
        assert_eq!([after[0] - before[0], after[1] - before[1]], [40, 4]);
    }
}

#[test]
fn an_engine_that_cannot_be_built_is_named_and_the_others_do_not_wait_for_it() {
    let build = || {
        Cluster::build(3, |rank| {
            let tick_budget = if rank == 1 { 0 } else { Limits::default().tick_budget };
            Engine::builder().limits(Limits { tick_budget, ..Limits::default() })
        })
    };
    let panic = std::panic::catch_unwind(build).err().expect("one of them has no budget");
    let words = panic.downcast_ref::<String>().unwrap();
    assert!(words.contains("engine 1: ") && words.contains("tick_budget"), "{words}");
    assert!(!words.contains("a fence"), "{words}");
}
