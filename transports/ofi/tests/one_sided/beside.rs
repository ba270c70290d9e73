//! One-sided operations beside what else a link does: messages, sleeps, and being opened once more.

use super::kit::{Memory, PROVIDERS, at, bytes_of, channel, configured, worlds};
use crate::ofi::tests::kit::BOUND;
use crate::{LinkEvent, RemoteAccess, Transport};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::time::Instant;

#[test]
fn frames_and_operations_go_on_beside_each_other() {
    for (provider, mut world, links) in worlds(&PROVIDERS) {
        let mut memories = [Memory::new(300_000), Memory::new(300_000)];
        let keys = [0, 1].map(|me| world.expose(me, memories[me].bytes(), RemoteAccess::ALL));
        let mut from = [bytes_of(3, 3000), bytes_of(4, 3000)];
        for round in 0..100 {
            for me in [0, 1] {
                world.send(me, links[me], round, vec![round as u8; [10, 20_000][round as usize % 2]]);
                world.put(me, channel(links[me]), at(keys[1 - me], round as usize * 3000), &mut from[me]);
            }
        }
        [0, 1].into_iter().for_each(|me| world.flush(me, channel(links[me])));
        world.until("all frames", |world| world.received.iter().all(|received| received.len() == 100));
        for (me, memory) in memories.iter_mut().enumerate() {
            let tags = world.received[me].iter().map(|(header, _)| header.tag());
            assert!(tags.eq(0..100), "{provider}: frames in their order");
            assert!(memory.bytes().chunks(3000).all(|chunk| *chunk == from[1 - me]), "{provider}");
        }
    }
}

#[test]
fn nobody_sleeps_long_while_something_goes_on_only_by_looks() {
    for (provider, mut world, links) in worlds(&["tcp;ofi_rxm", "net", "sockets"]) {
        let channel = channel(links[0]);
        let mut memory = Memory::new(1 << 20);
        let key = world.expose(1, memory.bytes(), RemoteAccess::ALL);
        let mut from = bytes_of(1, 1 << 20);
        world.put(0, channel, at(key, 0), &mut from);
        assert!(!world.all[0].arm(), "{provider}: an operation is under way");
        world.flush(0, channel);
        assert!(!world.all[1].must_poll(), "{provider}: peers wake it");
    }
}

#[test]
fn a_target_that_sleeps_is_woken_and_told_to_look_on() {
    for (provider, mut world, links) in worlds(&["tcp;ofi_rxm", "net", "sockets"]) {
        let channel = channel(links[0]);
        let mut memory = Memory::new(64);
        let key = world.expose(1, memory.bytes(), RemoteAccess::ALL);
        let mut from = bytes_of(1, 64);
        // Both ends are ready from here on.
        world.put(0, channel, at(key, 0), &mut from[..8]);
        world.flush(0, channel);
        world.until("silence", |world| world.all[1].arm());
        world.side(1).was_reached();
        let Some(descriptor) = world.all[1].wait_fd().map(|fd| fd.try_clone_to_owned().unwrap()) else {
            assert_eq!(provider, "sockets", "the others have a descriptor");
            continue;
        };
        let sleeps = || {
            let mut asked = [PollFd::new(&descriptor, PollFlags::IN)];
            poll(&mut asked, Some(&Timespec::default())).unwrap() == 0
        };
        let start = Instant::now();
        world.put(0, channel, at(key, 0), &mut from);
        while sleeps() {
            world.side(0).progress();
            assert!(start.elapsed() < BOUND, "{provider}: nothing wakes the target");
        }
        world.all[1].disarm();
        world.until("the word", |world| world.side(1).was_reached());
        world.flush(0, channel);
        assert!(memory.bytes() == from, "{provider}");
    }
}

#[test]
fn targets_that_sleep_are_woken_for_the_first_operations_of_all() {
    for provider in ["tcp;ofi_rxm", "net"] {
        let Some(mut world) = configured(provider, 3, |_| ()) else { continue };
        let links = [world.connect()[0], world.connect_to(2)];
        let mut memories = [Memory::new(64), Memory::new(64)];
        let keys = [0, 1].map(|of| world.expose(of + 1, memories[of].bytes(), RemoteAccess::ALL));
        let mut from = bytes_of(1, 64);
        let (start, mut taken, mut refused, mut reached) = (Instant::now(), [false; 2], [0; 2], [false; 2]);
        // The targets look at nothing but what they are told. The provider connects first, and that takes a target that looks.
        while reached != [true; 2] {
            for of in [0, 1] {
                taken[of] = taken[of] || world.puts(channel(links[of]), at(keys[of], 0), &mut from);
                refused[of] += u32::from(!taken[of]);
                reached[of] |= world.side(of + 1).was_reached();
            }
            world.side(0).progress();
            world.hear();
            assert!(start.elapsed() < BOUND, "{provider}: {reached:?} are told, refused were {refused:?}");
        }
        assert!(refused.iter().all(|times| *times > 0), "{provider}: it takes operations before it is connected");
        for of in [0, 1] {
            if !taken[of] {
                world.put(0, channel(links[of]), at(keys[of], 0), &mut from);
            }
            world.flush(0, channel(links[of]));
            assert!(memories[of].bytes() == from, "{provider}");
        }
    }
}

#[test]
fn a_link_that_is_opened_again_counts_anew_and_works() {
    for (provider, mut world, links) in worlds(&PROVIDERS) {
        let mut memory = Memory::new(5000);
        let key = world.expose(1, memory.bytes(), RemoteAccess::ALL);
        let mut links = links;
        for round in 0..4u8 {
            let channel = channel(links[0]);
            let counts = [world.side(0).issued(channel), world.side(0).completed(channel)];
            assert_eq!(counts, [0; 2], "{provider}: round {round}");
            let mut from = vec![round + 1; 5000];
            world.put(0, channel, at(key, 0), &mut from);
            world.flush(0, channel);
            assert!(memory.bytes() == from, "{provider}: round {round}");
            world.all[0].close_link(links[0]);
            let ended = |event: &LinkEvent| matches!(event, LinkEvent::Failed { .. });
            world.until("an end", |world| world.events[1].iter().any(ended));
            world.all[1].close_link(links[1]);
            world.events.iter_mut().for_each(Vec::clear);
            links = world.connect();
        }
    }
}
