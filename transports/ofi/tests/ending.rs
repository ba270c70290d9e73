//! Links that end: closed, lost, or opened and closed many times.

use super::frames::send_blindly;
use super::kit::{BOUND, World, endpoint};
use crate::{LinkEvent, Sent, Transport};
use std::time::{Duration, Instant};
use tickwire_components::wire::{Header, Kind};

#[test]
fn what_was_sent_before_a_close_arrives_and_the_close_is_told() {
    for provider in ["tcp;ofi_rxm", "net", "sockets", "shm"] {
        let Some(mut world) = World::pair(provider) else { continue };
        let links = world.connect();
        for tag in 0..50 {
            world.send(0, links[0], tag, vec![tag as u8; [10, 30_000][tag as usize % 2]]);
        }
        // Another thread, since a close waits for its peers.
        let mut closing = world.all.remove(0);
        world.events.remove(0);
        world.received.remove(0);
        closing.own.greeting.pid = 0;
        std::thread::scope(|scope| {
            scope.spawn(move || drop(closing));
            world.until("an end", |world| world.events[0].len() == 2);
        });
        assert_eq!(world.received[0].len(), 50, "{provider}");
        let LinkEvent::Failed { reason, .. } = &world.events[0][1] else { panic!() };
        assert!(reason.contains("has closed the connection"), "{reason}");
    }
}

#[test]
fn frames_that_wait_when_a_link_ends_hold_nothing_up() {
    let Some(mut world) = World::pair("sockets") else { return };
    let [link, theirs] = world.connect();
    for tag in 0..20 {
        assert_eq!(send_blindly(&mut world.all[0], link, tag, 100), Sent::Done);
    }
    world.all[1].close_link(theirs);
    world.until("an end", |world| world.events[0].len() == 2);
    assert!(!world.all[0].port.get_mut().has_packs());
    world.until("nothing under way", |world| !world.all[0].port.get_mut().is_sending());
}

#[test]
fn a_frame_that_the_provider_refuses_does_not_keep_a_process_awake_after_its_link() {
    for provider in ["tcp;ofi_rxm", "net"] {
        let Some(mut world) = World::pair(provider) else { continue };
        let [link, _] = world.connect();
        drop(world.all.remove(1));
        world.events[0].clear();
        // The provider finds that the peer has gone, and refuses all frames from then on.
        let mut refused = 0;
        world.until("an end", |world| {
            if world.events[0].is_empty() {
                refused += u32::from(send_blindly(&mut world.all[0], link, 7, 100) == Sent::Blocked);
            }
            !world.events[0].is_empty()
        });
        world.all[0].close_link(link);
        world.until("nothing under way", |world| !world.all[0].port.get_mut().is_sending());
        println!("{provider}: {refused} frames were refused");
    }
}

#[test]
fn a_frame_that_a_provider_loses_ends_the_link_also_with_nothing_behind_it() {
    for (provider, behind) in [("tcp;ofi_rxm", 0), ("sockets", 1), ("shm", 0), ("shm", 20)] {
        let Some(mut world) = World::pair(provider) else { continue };
        let links = world.connect();
        world.send(0, links[0], 1, vec![1; 100]);
        world.all[0].port.get_mut().lose(links[0]);
        for tag in 0..behind {
            world.send(0, links[0], tag, vec![1; 100]);
            // Each by itself: as many as there are buffers hold all of them.
            world.step();
        }
        // The clock goes faster than the world; a second is as long as any frame takes.
        let dead_ms = u64::from(world.all[1].own.config.dead_link_ms_max);
        let mut ahead = Duration::ZERO;
        world.until("frames", |world| world.received[1].len() == 1);
        world.until("an end", |world| {
            ahead += Duration::from_millis(10);
            world.start = world.start.checked_sub(Duration::from_millis(10)).unwrap();
            world.events[1].len() == 2
        });
        assert!(ahead > Duration::from_millis(2 * dead_ms - 1000), "{provider}: {ahead:?}");
        assert!(ahead < Duration::from_millis(3 * dead_ms), "{provider}: {ahead:?}");
        let LinkEvent::Failed { reason, .. } = &world.events[1][1] else { panic!() };
        assert!(reason.contains("has lost a frame: exclude it"), "{reason}");
        world.until("word of it", |world| world.events[0].len() == 2);
        let LinkEvent::Failed { reason, .. } = &world.events[0][1] else { panic!() };
        assert!(reason.contains("gave the connection up: provider"), "{reason}");
    }
}

#[test]
fn nothing_is_lost_while_the_peer_computes() {
    for provider in ["tcp;ofi_rxm", "sockets"] {
        let Some(mut world) = World::pair(provider) else { continue };
        let links = world.connect();
        // Of three frames the second one is not there yet.
        world.send(0, links[0], 1, vec![1; 100]);
        world.all[0].port.get_mut().lose(links[0]);
        world.send(0, links[0], 2, vec![1; 100]);
        world.until("the third frame", |world| world.all[1].port.get_mut().has_gap(links[1]));
        assert_eq!(world.received[1].len(), 1);
        // Hours in which the other side looks alone.
        let (mut now_ns, mut events) = (world.now_ns(), Vec::new());
        for _ in 0..1000 {
            now_ns += 10_000_000_000;
            world.all[1].control(now_ns, &mut events);
        }
        assert_eq!(events, [], "{provider}");
    }
}

#[test]
fn nothing_is_lost_while_frames_come_or_nobody_looks() {
    let Some(mut world) = World::pair("tcp;ofi_rxm") else { return };
    let links = world.connect();
    for round in 0..40 {
        world.send(0, links[0], round, vec![1; 100]);
        // Long without a look.
        world.start = world.start.checked_sub(Duration::from_secs(3600)).unwrap();
        world.until("a frame", |world| world.received[1].len() == round as usize + 1);
    }
    assert_eq!([world.events[0].len(), world.events[1].len()], [1, 1]);
}

#[test]
fn sockets_opens_carries_and_closes_200_times_in_a_row() {
    let start = Instant::now();
    for round in 0..200 {
        let Some(mut world) = World::pair("sockets") else { return };
        let links = world.connect();
        world.send(0, links[0], round, vec![1; 3000]);
        world.send(1, links[1], round, vec![2; 30]);
        if round % 2 == 0 {
            world.until("both frames", |world| world.received.iter().all(|received| received.len() == 1));
        }
        for ofi in &mut world.all {
            ofi.own.config.close_ms_max = 1;
            ofi.close();
            ofi.close();
        }
        assert!(start.elapsed() < 3 * BOUND, "round {round}");
    }
}

#[test]
fn what_has_arrived_is_read_before_a_send_that_has_failed_ends_the_link() {
    for provider in ["tcp;ofi_rxm", "net", "sockets"] {
        let Some(mut world) = World::pair(provider) else { continue };
        let [link, theirs] = world.connect();
        world.send(0, link, 1, vec![1; 100]);
        let start = Instant::now();
        while !(world.all[1].ready() && world.all[1].port.get_mut().has_frames()) {
            world.step_those(|rank| rank == 0);
            assert!(start.elapsed() < BOUND, "{provider}: it does not arrive");
        }
        world.all[1].port.get_mut().fault(theirs, "a send has failed");
        world.until("an end", |world| world.events[1].len() == 2);
        assert_eq!(world.received[1].len(), 1, "{provider}");
    }
}

#[test]
fn a_peer_whose_frames_hold_all_buffers_while_one_is_missing_is_given_up() {
    let open = |me| endpoint(me, "shm");
    let Some(all) = (0..3).map(open).collect::<Option<Vec<_>>>() else { return };
    let mut world = World::new(all);
    let [link, theirs] = world.connect();
    // Another peer of endpoint 1.
    let (card, now_ns) = (world.all[1].card(), world.now_ns());
    let other = world.all[2].connect(1, &card, now_ns).unwrap();
    world.until("a connection", |world| world.all[2].port.get_mut().is_ready(other));
    world.all[0].port.get_mut().lose(link);
    for tag in 0..40 {
        let header = Header::new(Kind::Eager, 1, 2, tag, 0, 100);
        let _ = world.all[0].send(link, &header, &vec![1u8; 100], &mut ());
        world.step();
        if world.all[1].port.get_mut().choked_by() == Some(theirs) {
            break;
        }
    }
    assert_eq!(world.all[1].port.get_mut().choked_by(), Some(theirs));
    // The peer does not look any more, and answers nothing.
    let header = Header::new(Kind::Eager, 1, 2, 77, 0, 100);
    assert_eq!(world.all[2].send(other, &header, &vec![2u8; 100], &mut ()), Sent::Done);
    let dead_ms = u64::from(world.all[1].own.config.dead_link_ms_max);
    let (mut ahead, start) = (Duration::ZERO, Instant::now());
    while world.received[1].iter().all(|(header, _)| header.tag() != 77) {
        ahead += Duration::from_millis(10);
        world.start = world.start.checked_sub(Duration::from_millis(10)).unwrap();
        world.step_those(|rank| rank != 0);
        assert!(start.elapsed() < BOUND, "{:?}", world.events);
    }
    assert!(ahead > Duration::from_millis(2 * dead_ms) && ahead < Duration::from_millis(3 * dead_ms), "{ahead:?}");
    let failed = world.events[1].iter().any(|event| {
        matches!(event, LinkEvent::Failed { link, reason } if *link == theirs && reason.contains("hold all receive buffers"))
    });
    assert!(failed, "{:?}", world.events[1]);
}

#[test]
fn an_endpoint_whose_places_for_sends_are_all_kept_for_peers_that_have_gone_says_so() {
    for provider in ["tcp;ofi_rxm", "sockets"] {
        let Some(mut world) = World::pair(provider) else { continue };
        world.connect();
        world.all[0].port.get_mut().lose_slots();
        world.until("an end", |world| {
            world.start = world.start.checked_sub(Duration::from_millis(10)).unwrap();
            world.events[0].len() == 2
        });
        let LinkEvent::Failed { reason, .. } = &world.events[0][1] else { panic!() };
        assert!(reason.contains("has kept all sends"), "{reason}");
    }
}
