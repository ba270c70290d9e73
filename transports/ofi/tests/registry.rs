//! What is registered, and until when.

use super::kit::{World, span};
use super::one_sided::kit::{Memory, at, bytes_of, channel, configured};
use crate::ofi::domain::REFUSED;
use crate::testing::GivenPlaces;
use crate::{RemoteAccess, Transport};
use std::time::Instant;
use tickwire_components::{Access, Registration, RegistrationCounts};

const LONG: usize = 100_000;

/// Two endpoints that are connected, with providers that are told of local memory; the link of each.
fn told(provider: &str) -> Option<(World, [u32; 2])> {
    let mut world = configured(provider, 2, |config| config.choice.registers = true)?;
    let links = world.connect();
    Some((world, links))
}

impl World {
    fn keep(&mut self, side: usize, bytes: &mut [u8], access: Access) -> Registration {
        self.all[side].registering().expect("it is told of memory").register(span(bytes), access).expect("room")
    }

    fn drop_kept(&mut self, side: usize, registration: Registration) {
        self.all[side].registering().expect("it is told of memory").deregister(registration);
    }

    /// Regions that there are, look-ups that found one, and those that did not.
    fn regions(&mut self, side: usize) -> (usize, u64, u64) {
        let RegistrationCounts { entries, hits, misses, .. } = self.all[side].registered();
        (entries, hits, misses)
    }
}

#[test]
fn memory_that_is_kept_is_registered_once_and_other_memory_for_each_operation() {
    for provider in ["tcp;ofi_rxm", "net", "sockets"] {
        let Some((mut world, links)) = told(provider) else { continue };
        let channel = channel(links[0]);
        let (mut memory, mut from) = (Memory::new(LONG), bytes_of(1, LONG));
        let key = world.expose(1, memory.bytes(), RemoteAccess::ALL);
        // What is short is copied. The provider connects with it; until then each try would register.
        world.put(0, channel, at(key, 0), &mut from[..100]);
        world.flush(0, channel);
        for round in 1..=5 {
            world.put(0, channel, at(key, 0), &mut from);
            world.flush(0, channel);
            assert_eq!(world.regions(0), (0, 0, round), "{provider}: it may be freed from then on");
        }
        let kept = world.keep(0, &mut from, Access::SEND);
        assert_eq!(world.regions(0).0, 0, "{provider}: domains are told of it by operations");
        for round in 0..5 {
            // Parts of it, too, wherever they begin.
            let first = 1000 * round as usize;
            memory.bytes().fill(0);
            world.put(0, channel, at(key, first), &mut from[first..LONG - 10]);
            world.flush(0, channel);
            assert!(memory.bytes()[first..LONG - 10] == from[first..LONG - 10], "{provider}");
            assert_eq!(world.regions(0), (1, round, 6), "{provider}");
        }
        let mut into = vec![0; LONG];
        memory.bytes().copy_from_slice(&from);
        world.get(0, channel, at(key, 0), &mut into);
        world.flush(0, channel);
        assert!(into == from, "{provider}");
        assert_eq!(world.regions(0), (1, 4, 7), "{provider}: it is kept to be sent from");
        world.drop_kept(0, kept);
        assert_eq!(world.regions(0).0, 0, "{provider}");
        world.side(1).withdraw_exposed(&key);
        assert_eq!(world.regions(1).0, 0, "{provider}");
    }
}

#[test]
fn memory_that_was_not_kept_for_a_moment_is_registered_anew() {
    let Some((mut world, links)) = told("sockets") else { return };
    let channel = channel(links[0]);
    let (mut memory, mut from) = (Memory::new(LONG), bytes_of(1, LONG));
    let key = world.expose(1, memory.bytes(), RemoteAccess::ALL);
    world.put(0, channel, at(key, 0), &mut from[..100]);
    world.flush(0, channel);
    let first = world.keep(0, &mut from, Access::SEND);
    // Nobody looks at the peer, so it is not complete; and it uses a part only.
    world.put(0, channel, at(key, 0), &mut from[..LONG / 2]);
    assert_eq!(world.regions(0), (1, 0, 1));
    world.drop_kept(0, first);
    assert_eq!(world.regions(0).0, 1, "an operation uses it");
    let second = world.keep(0, &mut from, Access::SEND);
    world.put(0, channel, at(key, 0), &mut from);
    assert_eq!(world.regions(0), (2, 0, 2), "the other half may be other memory");
    world.flush(0, channel);
    assert_eq!(world.regions(0).0, 1);
    assert!(memory.bytes() == from);
    world.drop_kept(0, second);
    assert_eq!(world.regions(0).0, 0);
}

#[test]
fn a_key_that_was_withdrawn_opens_nothing_whoever_uses_the_memory() {
    for provider in ["tcp;ofi_rxm", "net", "sockets"] {
        let Some((mut world, links)) = told(provider) else { continue };
        let [there, back] = links.map(channel);
        let (mut memory, mut other) = (Memory::new(LONG), Memory::new(LONG));
        let key = world.expose(1, memory.bytes(), RemoteAccess::ALL);
        let others = world.expose(0, other.bytes(), RemoteAccess::ALL);
        // Its owner uses it as well, and goes on to keep it.
        let kept = world.keep(1, memory.bytes(), Access::SEND);
        world.put(1, back, at(others, 0), memory.bytes());
        world.flush(1, back);
        assert_eq!(world.regions(1).0, 2, "{provider}: one for peers, one for itself");
        world.side(1).withdraw_exposed(&key);
        assert_eq!(world.regions(1).0, 1, "{provider}");
        let taken = world.put(0, there, at(key, 0), &mut bytes_of(3, 1000));
        world.until("a failure", |world| world.side(0).completed(there) == taken);
        assert!(world.side(0).failed_operation().is_some(), "{provider}");
        assert!(memory.bytes().iter().all(|&byte| byte == 0), "{provider}: a stale key");
        world.drop_kept(1, kept);
    }
}

#[test]
fn memory_of_long_messages_is_registered_once_while_it_is_kept() {
    let Some((mut world, links)) = told("net") else { return };
    let mut place = vec![0; 1 << 20];
    world.until("an endpoint for long messages", |world| {
        world.all[1].expect_into(links[1], 0, span(&mut place)).is_some()
    });
    let mut message = bytes_of(1, 1 << 20);
    let kept = [world.keep(0, &mut message, Access::SEND), world.keep(1, &mut place, Access::RECEIVE)];
    assert!(world.all[0].send_out(links[0], 0, 0, span(&mut message)));
    world.until("a message", |world| world.moved.iter().all(|moved| moved.len() == 1));
    let before = [world.regions(0), world.regions(1)];
    for number in 1..=10 {
        place.fill(0);
        assert_eq!(world.all[1].expect_into(links[1], number, span(&mut place)), Some(number));
        assert!(world.all[0].send_out(links[0], number, number, span(&mut message)));
        world.until("a message", |world| world.moved.iter().all(|moved| moved.len() == number as usize + 1));
        assert!(place == message);
    }
    for (side, before) in before.into_iter().enumerate() {
        let (_, hits, misses) = world.regions(side);
        assert_eq!((hits - before.1, misses - before.2), (10, 0));
    }
    for (side, kept) in kept.into_iter().enumerate() {
        world.drop_kept(side, kept);
        assert_eq!(world.regions(side).0, 1, "the leads");
    }
    // With the connection all goes that its domain knows.
    world.all[0].close_link(links[0]);
    assert_eq!(world.regions(0).0, 0);
}

#[test]
fn what_is_registered_is_closed_in_order_200_times_in_a_row() {
    for provider in ["sockets", "net"] {
        let start = Instant::now();
        for round in 0..200 {
            let Some((mut world, links)) = told(provider) else { break };
            let channel = channel(links[0]);
            let (mut memory, mut from) = (Memory::new(LONG), bytes_of(round, LONG));
            let key = world.expose(1, memory.bytes(), RemoteAccess::ALL);
            let kept = world.keep(0, &mut from, Access::SEND);
            world.put(0, channel, at(key, 0), &mut from);
            if round % 2 == 0 {
                world.flush(0, channel);
                assert!(memory.bytes() == from, "{provider}");
            }
            if round % 3 == 0 {
                world.drop_kept(0, kept);
            }
            for ofi in &mut world.all {
                ofi.own.config.close_ms_max = 1;
                ofi.close();
            }
            drop(world);
            assert!(start.elapsed() < 6 * super::kit::BOUND, "{provider}: round {round}");
        }
    }
    assert_eq!(REFUSED.get(), 0, "everything was closed in order");
}
