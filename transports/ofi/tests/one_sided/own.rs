//! Operations of a proc on what it has exposed itself: no link leads there.

use super::kit::{Memory, at, bytes_of, channel, configured};
use crate::{AtomicOperation, AtomicWord, Channel, RemoteAccess};
use tickwire_components::NIL;

/// Providers that go on without a peer, and have atomic operations.
const CAPABLE: [&str; 3] = ["tcp;ofi_rxm", "sockets", "shm"];

#[test]
fn a_proc_uses_its_own_memory_by_the_fabric() {
    for provider in CAPABLE {
        let Some(mut world) = configured(provider, 2, |_| {}) else { continue };
        world.connect();
        let mut memory = Memory::new(20_000);
        let key = world.expose(0, memory.bytes(), RemoteAccess::ALL);
        let own = channel(NIL);
        assert_eq!(world.fetch(0, own, at(key, 0), AtomicOperation::Sum, AtomicWord::Eight(5)), 0, "{provider}");
        let pair = [AtomicWord::Eight(5), AtomicWord::Eight(6)];
        assert_eq!((world.swap(0, own, at(key, 0), pair), memory.word(0)), (5, 6), "{provider}");
        for length in [8, 4_000, 10_000] {
            let mut from = bytes_of(3, length);
            world.put(0, own, at(key, 8), &mut from);
            world.flush(0, own);
            assert!(memory.bytes()[8..][..length] == from, "{provider}");
            let mut into = vec![0; length];
            world.get(0, own, at(key, 8), &mut into);
            world.flush(0, own);
            assert!(into == from, "{provider}");
        }
        let counts = [world.side(0).issued(own), world.side(0).completed(own)];
        assert_eq!(counts, [8; 2], "{provider}: counted by themselves");
        world.side(0).withdraw_exposed(&key);
    }
}

#[test]
fn own_updates_and_those_of_a_peer_are_atomic_to_each_other() {
    const EACH: usize = 300;
    for provider in CAPABLE {
        let Some(mut world) = configured(provider, 2, |config| config.choice.contexts = Some(2)) else { continue };
        let [_, theirs] = world.connect();
        let mut memory = Memory::new(16);
        let key = world.expose(0, memory.bytes(), RemoteAccess::ALL);
        let ways = [(0, NIL), (1, theirs)];
        let mut tickets = Vec::new();
        for turn in 0..EACH {
            for (side, link) in ways {
                let channel = Channel { link, context: turn as u32 % 2 };
                tickets.push(world.fetch(side, channel, at(key, 8), AtomicOperation::Sum, AtomicWord::Eight(1)));
            }
        }
        tickets.sort_unstable();
        assert!(tickets.into_iter().eq(0..2 * EACH as u64), "{provider}: a number twice");
        assert_eq!(memory.word(1), 2 * EACH as u64, "{provider}");
    }
}
