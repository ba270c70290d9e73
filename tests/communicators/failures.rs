//! Agreements in which members disagree, die, come late or have left.

use crate::kit::{WORLD, id, pass};
use std::time::Duration;
use tickwire::testing::{Cluster, Death, SimConfig, SimNet};
use tickwire::{Agreed, Agreement, Comm, CommError, Engine, Group, ProcId, Tag};
use tickwire_tests::agreements::{agree, dup, everyone, settle};
use tickwire_tests::cases::{BOUND, content};

#[test]
fn members_that_disagree_are_told_and_may_go_on() {
    let mut cluster = Cluster::loopback(5);
    for odd in 0..5u32 {
        let ranks = everyone(&cluster);
        let made = agree(&mut cluster, &ranks, |engine| match engine.rank().0 == odd {
            true => engine.start_split(WORLD, Some(1), 0),
            false => engine.start_dup(WORLD),
        });
        assert!(made.iter().all(|made| *made == Err(CommError::Mismatch)), "{made:?}");
        cluster.tick_times(5);
        cluster.assert_at_rest();
        let next = dup(&mut cluster, WORLD);
        assert_eq!(id(&mut cluster, 0, next[0]), 2 + odd);
    }
}

#[test]
fn a_member_that_dies_ends_the_agreement_for_all() {
    // Each member dies at each of its messages. With 0 it dies before it has begun.
    for dead in 0..6usize {
        for frame in 0..7 {
            let seed = (dead * 10 + frame) as u64;
            let net = SimNet::new(6, SimConfig::new(seed));
            let mut cluster = Cluster::sim(6, &net);
            dup(&mut cluster, WORLD);
            let mut begun: Vec<_> = (0..6).map(|rank| cluster.engines[rank].start_dup(WORLD).unwrap()).collect();
            net.kill(dead as u32, Death::Frame(net.frames(dead as u32) + frame as u64));
            let mut results: Vec<Option<Result<Agreed, CommError>>> = vec![None; 6];
            let waited = cluster.tick_until(BOUND, "all have an answer", |cluster| {
                for rank in (0..6).filter(|&rank| rank != dead) {
                    if results[rank].is_none() {
                        let asked = cluster.engines[rank].test_agreement(&mut begun[rank]);
                        results[rank] = (asked != Ok(Agreed::Pending)).then_some(asked);
                    }
                }
                (0..6).all(|rank| rank == dead || results[rank].is_some())
            });
            let bound = 1_500_000_000 / tickwire::testing::STEP_NS as u32;
            assert!(waited <= bound, "{waited} rounds");
            for result in results.iter().flatten() {
                match result {
                    Ok(_) => {}
                    Err(CommError::MemberFailed { proc, .. }) => assert_eq!(proc.0 as usize, dead),
                    other => panic!("seed {seed}: {other:?}"),
                }
            }
            if net.died_ns(dead as u32).is_none() {
                continue;
            }
            let told = results.iter().flatten().filter(|result| result.is_err()).count();
            assert!(frame > 0 || told == 5, "who dies before it has said anything is missed by all: {results:?}");
            // The survivors go on without it.
            let ranks: Vec<usize> = (0..6).filter(|&rank| rank != dead).collect();
            let group = Group::all(6).exclude(&[dead as u32]).unwrap();
            let made = agree(&mut cluster, &ranks, |engine| engine.start_create_group(WORLD, &group, Tag(1)));
            let made: Vec<Comm> = made.into_iter().map(|made| made.unwrap().unwrap()).collect();
            pass(&mut cluster, (ranks[4], made[4]), (ranks[0], made[0]), &content(1, 20_000));
            let ids: Vec<u32> = (0..5).map(|place| id(&mut cluster, ranks[place], made[place])).collect();
            assert!(ids.iter().all(|&id| id == ids[0]), "{ids:?}");
        }
    }
}

/// One member dies instead of sending a message of an agreement that all begin. With `late`, one member begins only
/// after the death is known. All others must end. Returns whether the member has died, and how the others ended.
fn dies_at(
    size: u32,
    dead: u32,
    frame: u64,
    late: Option<u32>,
    begin: &dyn Fn(&mut Engine) -> Agreement,
) -> (bool, Vec<Result<Agreed, CommError>>) {
    let note = format!("{dead} of {size} dies at its message {frame}, {late:?} is late");
    let net = SimNet::new(size, SimConfig { notice_ns: 1_000_000, ..SimConfig::calm(1) });
    let mut cluster = Cluster::sim(size, &net);
    (cluster.checked, cluster.note) = (false, note.clone());
    dup(&mut cluster, WORLD);
    net.kill(dead, Death::Frame(net.frames(dead) + frame));
    let mut begun: Vec<_> = (0..size as usize).map(|_| None).collect();
    for rank in (0..size).filter(|&rank| Some(rank) != late) {
        begun[rank as usize] = Some(begin(&mut cluster.engines[rank as usize]));
    }
    if let Some(late) = late {
        cluster.tick_times(60);
        begun[late as usize] = Some(begin(&mut cluster.engines[late as usize]));
    }
    let mut results: Vec<Option<Result<Agreed, CommError>>> = vec![None; size as usize];
    // Members that were told may use the connection at once. A late message of this agreement must not be taken for
    // one of the next agreement.
    cluster.tick_until(1000, &note, |cluster| {
        for rank in (0..size as usize).filter(|&rank| rank != dead as usize) {
            if let (None, Some(agreement)) = (&results[rank], &mut begun[rank]) {
                let asked = cluster.engines[rank].test_agreement(agreement);
                results[rank] = (asked != Ok(Agreed::Pending)).then_some(asked);
            }
        }
        (0..size as usize).all(|rank| rank == dead as usize || results[rank].is_some())
    });
    let died = net.died_ns(dead).is_some();
    if died && size > 2 {
        // Nothing may be left that the survivors' next agreement could take for its own message.
        let group = Group::all(size).exclude(&[dead]).unwrap();
        let ranks: Vec<usize> = (0..size as usize).filter(|&rank| rank != dead as usize).collect();
        for _ in 0..2 {
            let made = agree(&mut cluster, &ranks, |engine| engine.start_create_group(WORLD, &group, Tag(3)));
            let made: Vec<Comm> =
                made.into_iter().map(|made| made.unwrap_or_else(|e| panic!("{note}: {e}")).unwrap()).collect();
            let last = ranks.len() - 1;
            pass(&mut cluster, (ranks[last], made[last]), (ranks[0], made[0]), &content(1, 100));
            for (&rank, comm) in ranks.iter().zip(made) {
                cluster.engines[rank].comm_free(comm).unwrap();
            }
        }
    }
    (died, results.into_iter().flatten().collect())
}

#[test]
fn whoever_dies_at_whichever_message_all_other_members_end() {
    let dup: &dyn Fn(&mut Engine) -> Agreement = &|engine| engine.start_dup(WORLD).unwrap();
    let split: &dyn Fn(&mut Engine) -> Agreement = &|engine| {
        let me = engine.rank().0;
        engine.start_split(WORLD, Some(me % 2), 0).unwrap()
    };
    let mut deaths = 0;
    for size in 2..=8 {
        for dead in 0..size {
            for late in (0..size).map(Some).chain([None]) {
                let begin = if (size + dead) % 4 == 0 { split } else { dup };
                // The messages from the first one up to the one after the last, at which the member does not die.
                for frame in 0.. {
                    let (died, results) = dies_at(size, dead, frame, late, begin);
                    if !died {
                        assert!(results.iter().all(|result| matches!(result, Ok(Agreed::Done(_)))), "{results:?}");
                        assert!(frame > 0, "everybody says something");
                        break;
                    }
                    deaths += 1;
                    for result in results {
                        let known = matches!(&result, Err(CommError::MemberFailed { proc, .. }) if proc.0 == dead);
                        assert!(known || result.is_ok(), "{dead} of {size}, {frame}, {late:?}: {result:?}");
                    }
                }
            }
        }
    }
    println!("{deaths} deaths");
    assert!(deaths > 500, "{deaths}");
}

#[test]
fn a_member_that_begins_long_after_the_others_is_waited_for() {
    let mut cluster = Cluster::shm(4);
    let mut begun: Vec<_> = [0, 1, 3].map(|rank: usize| (rank, cluster.engines[rank].start_dup(WORLD).unwrap())).into();
    // It computes for an hour.
    for _ in 0..60 {
        cluster.now_ns += 60_000_000_000;
        for (rank, agreement) in &mut begun {
            cluster.tick(*rank);
            assert_eq!(cluster.engines[*rank].test_agreement(agreement), Ok(Agreed::Pending));
        }
    }
    begun.push((2, cluster.engines[2].start_dup(WORLD).unwrap()));
    let made = settle(&mut cluster, begun);
    assert!(made.iter().all(Result::is_ok), "{made:?}");
}

#[test]
fn a_member_that_has_finalized_ends_a_blocking_call() {
    let mut cluster = Cluster::shm(2);
    dup(&mut cluster, WORLD);
    cluster.engines[1].finalize(Duration::from_secs(1)).unwrap();
    let failed = cluster.engines[0].comm_dup(WORLD).unwrap_err();
    assert!(matches!(failed, CommError::MemberFailed { proc: ProcId(1), .. }), "{failed}");
    let own = cluster.engines[0].comm_self();
    assert!(cluster.engines[0].comm_dup(own).is_ok());
}
