//! The testing kit itself: pairs become idle, and wrong credit is detected.

use tickwire::testing::{Pair, SimConfig, SimNet, check_credit, rows};
use tickwire::{Rank, Source, Tag};
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
