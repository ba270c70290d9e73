//! Ways to register memory, also such as the provider does not ask for by itself.

use super::kit::{Memory, PROVIDERS, at, bytes_of, channel, configured};
use crate::ofi::{MR_MODE, sys};
use crate::{AtomicOperation, AtomicWord, RemoteAccess};

/// What providers are offered, and told to ask for besides: the ways that are handled one by one, also with local memory, and
/// the older words.
const WAYS: [(u64, u64); 4] =
    [(MR_MODE, 0), (MR_MODE, sys::FI_MR_LOCAL), (sys::FI_MR_BASIC as u64, 0), (sys::FI_MR_SCALABLE as u64, 0)];

#[test]
fn memory_is_registered_in_every_way_that_a_provider_can_be_given() {
    for provider in PROVIDERS {
        for (offered, forced) in WAYS {
            let Some(mut world) = configured(provider, 2, |_| {}) else { continue };
            world.all.iter_mut().for_each(|ofi| ofi.port.get_mut().force_mr_mode(offered, forced));
            let links = world.connect();
            let case = format!("{provider}, {offered:#x} offered, {forced:#x} forced");
            let lends = !["shm", "udp;ofi_rxd"].contains(&provider);
            everything_goes(&mut world, links[0], lends && forced != 0, &case);
        }
    }
}

/// Puts and gets bytes of all kinds of places, and adds; says whether long local runs are to be registered.
fn everything_goes(world: &mut crate::ofi::tests::kit::World, link: u32, registers: bool, case: &str) {
    let channel = channel(link);
    let (mut memory, mut own) = (Memory::new(2 << 20), Memory::new(1 << 20));
    let key = world.expose(1, memory.bytes(), RemoteAccess::ALL);
    // Local runs within an exposed one need no region of their own.
    world.expose(0, own.bytes(), RemoteAccess::READ);
    for (length, offset) in [(8, 3), (4096, 5), (4097, 9), (700_001, 11)] {
        own.bytes()[..length].copy_from_slice(&bytes_of(length as u32, length));
        let mut from = [bytes_of(1, length), own.bytes()[..length].to_vec()];
        world.put(0, channel, at(key, offset), &mut from[0]);
        world.put(0, channel, at(key, (1 << 20) + offset), &mut own.bytes()[..length]);
        let registered = world.all[0].port.get_mut().rma_for_test().registered() > 0;
        assert_eq!(registered, registers && length > 4096, "{case}: {length} bytes");
        world.flush(0, channel);
        for (at, from) in from.iter().enumerate() {
            assert!(memory.bytes()[(at << 20) + offset..][..length] == *from, "{case}: {length} bytes");
        }
        let mut into = vec![0; length];
        world.get(0, channel, at(key, offset), &mut into);
        world.get(0, channel, at(key, offset), &mut own.bytes()[1..=length]);
        world.flush(0, channel);
        assert!(into == from[0] && own.bytes()[1..=length] == from[0], "{case}: {length} bytes");
    }
    if world.side(0).atomics().eight {
        let before = memory.word(100);
        let found = world.fetch(0, channel, at(key, 800), AtomicOperation::Sum, AtomicWord::Eight(3));
        assert_eq!((found, memory.word(100)), (before, before.wrapping_add(3)), "{case}");
    }
}

#[test]
fn a_run_can_be_exposed_again_and_again_and_one_of_no_bytes_too() {
    for provider in PROVIDERS {
        let Some(mut world) = configured(provider, 2, |_| {}) else { continue };
        let links = world.connect();
        let channel = channel(links[0]);
        let mut memory = Memory::new(64);
        let mut keys = Vec::new();
        for round in 0..20u8 {
            let key = world.expose(1, memory.bytes(), RemoteAccess::ALL);
            assert!(!keys.contains(&key.key), "{provider}: a key twice");
            keys.push(key.key);
            world.put(0, channel, at(key, 1), &mut [round; 5]);
            world.flush(0, channel);
            assert_eq!(memory.bytes()[..7], [0, round, round, round, round, round, 0], "{provider}");
            world.side(1).withdraw_exposed(&key);
        }
        let none = world.expose(1, &mut [], RemoteAccess::ALL);
        assert_eq!(none.length, 0);
        let taken = world.put(0, channel, at(none, 0), &mut []);
        assert_eq!(world.side(0).completed(channel), taken, "{provider}: nothing is to be done");
        world.side(1).withdraw_exposed(&none);
    }
}
