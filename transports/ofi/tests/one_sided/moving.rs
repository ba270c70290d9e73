//! Bytes that are written into memory of a peer, and read out of it.

use super::kit::{Memory, PROVIDERS, at, bytes_of, channel, configured, worlds};
use crate::ofi::tests::kit::BOUND;
use crate::{RemoteAccess, Transport};
use std::time::Instant;

/// Bytes of the longest operation, and of memory for it at any odd offset.
const LONG: usize = 4 << 20;
const ROOM: usize = LONG + 4096;

#[test]
fn bytes_go_into_memory_of_a_peer_and_come_back_whatever_their_number_and_place() {
    for (provider, mut world, links) in worlds(&PROVIDERS) {
        let mut memory = Memory::new(ROOM);
        let key = world.expose(1, memory.bytes(), RemoteAccess::ALL);
        let mut expected = vec![0; ROOM];
        let lengths = [0, 1, 2, 7, 8, 63, 64, 65, 255, 257, 1000, 4095, 4096, 4097, 16_385, 65_537, 300_001, LONG];
        for (round, (length, offset)) in lengths.into_iter().zip([1, 3, 17, 4095].into_iter().cycle()).enumerate() {
            let mut from = bytes_of(round as u32, length);
            let run = at(key, offset.min(ROOM - length));
            world.put(0, channel(links[0]), run, &mut from);
            world.flush(0, channel(links[0]));
            let place = run.offset as usize..run.offset as usize + length;
            expected[place.clone()].copy_from_slice(&from);
            assert!(memory.bytes() == expected, "{provider}: put of {length} bytes at {offset}");
            let mut into = vec![0; length + 2];
            world.get(0, channel(links[0]), run, &mut into[1..=length]);
            world.flush(0, channel(links[0]));
            assert!(into[1..=length] == expected[place], "{provider}: get of {length} bytes at {offset}");
            assert_eq!([into[0], into[length + 1]], [0, 0], "{provider}: nothing beside it");
        }
    }
}

#[test]
fn many_operations_are_under_way_at_once_and_a_flush_waits_for_those_before_it() {
    const COUNT: usize = 600;
    const BYTES: usize = 5000;
    for (provider, mut world, links) in worlds(&PROVIDERS) {
        let channel = channel(links[0]);
        let mut memory = Memory::new(2 * COUNT * BYTES);
        let key = world.expose(1, memory.bytes(), RemoteAccess::WRITE | RemoteAccess::READ);
        let mut sources: Vec<_> = (0..2 * COUNT).map(|at| bytes_of(at as u32, 1 + at * 37 % BYTES)).collect();
        let (first, second) = sources.split_at_mut(COUNT);
        for (index, from) in first.iter_mut().enumerate() {
            world.put(0, channel, at(key, index * BYTES), from);
        }
        let before = world.side(0).issued(channel);
        assert_eq!(before, COUNT as u64);
        for (index, from) in second.iter_mut().enumerate() {
            world.put(0, channel, at(key, (COUNT + index) * BYTES), from);
        }
        world.until("a flush", |world| world.side(0).completed(channel) >= before);
        let is_there =
            |memory: &mut Memory, index: usize, from: &[u8]| memory.bytes()[index * BYTES..][..from.len()] == *from;
        // Nobody looks between the count and the memory.
        assert!((0..COUNT).all(|index| is_there(&mut memory, index, &sources[index])), "{provider}");
        world.flush(0, channel);
        assert!((0..2 * COUNT).all(|index| is_there(&mut memory, index, &sources[index])), "{provider}");
        let mut into: Vec<_> = sources.iter().map(|from| vec![0; from.len()]).collect();
        for (index, into) in into.iter_mut().enumerate() {
            world.get(0, channel, at(key, index * BYTES), into);
        }
        world.flush(0, channel);
        assert!(into == sources, "{provider}");
        let side = world.side(0);
        assert_eq!([side.issued(channel), side.completed(channel)], [4 * COUNT as u64; 2], "{provider}");
    }
}

#[test]
fn a_put_is_complete_only_when_the_memory_of_the_target_holds_it() {
    for (provider, mut world, links) in worlds(&PROVIDERS) {
        let channel = channel(links[0]);
        let mut memory = Memory::new(100_000);
        let key = world.expose(1, memory.bytes(), RemoteAccess::ALL);
        for round in 1..200u8 {
            let length = [8, 100_000][usize::from(round % 8 == 0)];
            let mut from = vec![round; length];
            world.put(0, channel, at(key, 0), &mut from);
            // Only the origin looks for a while: what is complete is in the memory of the target all the same.
            for _ in 0..50 {
                world.side(0).progress();
                let complete = world.side(0).completed(channel) == u64::from(round);
                assert!(!complete || memory.bytes()[..length] == from, "{provider}: round {round}");
            }
            world.flush(0, channel);
            assert!(memory.bytes()[..length] == from, "{provider}: round {round}");
        }
    }
}

#[test]
fn a_long_operation_goes_in_as_many_pieces_as_the_provider_takes() {
    for (provider, mut world, links) in worlds(&PROVIDERS) {
        let channel = channel(links[0]);
        let mut memory = Memory::new(ROOM);
        let key = world.expose(1, memory.bytes(), RemoteAccess::ALL);
        // More pieces than may be under way.
        world.all[0].port.get_mut().rma_for_test().cut(1000);
        let mut from = [bytes_of(1, 600_123), bytes_of(2, 300_001)];
        let sequences = [0, 1].map(|index| world.put(0, channel, at(key, 1 + index * 700_000), &mut from[index]));
        assert_eq!(sequences, [1, 2]);
        world.flush(0, channel);
        for (index, from) in from.iter().enumerate() {
            assert!(memory.bytes()[1 + index * 700_000..][..from.len()] == *from, "{provider}");
        }
        let mut into = vec![0; 600_123];
        world.get(0, channel, at(key, 1), &mut into);
        world.flush(0, channel);
        assert!(into == from[0], "{provider}");
    }
}

#[test]
fn short_puts_are_done_with_their_run_when_they_are_taken() {
    for (provider, mut world, links) in worlds(&PROVIDERS) {
        let channel = channel(links[0]);
        let mut memory = Memory::new(1 << 20);
        let key = world.expose(1, memory.bytes(), RemoteAccess::WRITE);
        let longest = world.side(0).copies_max();
        assert!(longest >= 1024);
        for round in 0..100u8 {
            let mut from = vec![round; longest];
            world.put(0, channel, at(key, usize::from(round) * longest), &mut from);
            from.fill(0xFF);
        }
        world.flush(0, channel);
        let is =
            |round: u8| memory.bytes()[usize::from(round) * longest..][..longest].iter().all(|&byte| byte == round);
        assert!((0..100).all(is), "{provider}");
    }
}

#[test]
fn both_procs_write_into_each_others_memory() {
    for (provider, mut world, links) in worlds(&PROVIDERS) {
        let mut memories = [Memory::new(70_000), Memory::new(70_000)];
        let keys = [0, 1].map(|me| world.expose(me, memories[me].bytes(), RemoteAccess::ALL));
        let mut from = [bytes_of(5, 70_000), bytes_of(6, 70_000)];
        for me in [0, 1] {
            world.put(me, channel(links[me]), at(keys[1 - me], 0), &mut from[me]);
        }
        [0, 1].into_iter().for_each(|me| world.flush(me, channel(links[me])));
        assert!(memories[1].bytes() == from[0] && memories[0].bytes() == from[1], "{provider}");
    }
}

#[test]
fn a_thread_of_the_providers_serves_peers_while_their_target_does_not_look() {
    for provider in ["sockets"] {
        let Some(mut world) = configured(provider, 2, |config| config.choice.has_thread = true) else { continue };
        let links = world.connect();
        let channel = channel(links[0]);
        let mut memory = Memory::new(100_000);
        let key = world.expose(1, memory.bytes(), RemoteAccess::ALL);
        let mut from = bytes_of(1, 100_000);
        world.put(0, channel, at(key, 0), &mut from[..8]);
        world.flush(0, channel);
        assert!(!world.all[1].must_poll(), "{provider}: a sleep may be long");
        let start = Instant::now();
        for round in 2..50 {
            world.put(0, channel, at(key, 0), &mut from);
            while world.side(0).completed(channel) < round {
                world.side(0).progress();
                assert!(start.elapsed() < BOUND, "{provider}: round {round}");
            }
        }
        assert!(memory.bytes() == from, "{provider}");
    }
}
