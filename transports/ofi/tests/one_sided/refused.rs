//! Operations that are not allowed: at the origin, by the key, and at the target, by the provider.

use super::kit::{Memory, PROVIDERS, at, bytes_of, channel, configured, worlds};
use crate::ofi::tests::kit::span;
use crate::{Channel, Issued, RemoteAccess, RemoteKey, Transport};

#[test]
fn what_a_key_does_not_allow_is_refused_before_the_provider_is_asked() {
    for (provider, mut world, links) in worlds(&PROVIDERS) {
        let mut memory = Memory::new(1000);
        let channel = channel(links[0]);
        let keys = [RemoteAccess::READ, RemoteAccess::WRITE].map(|access| world.expose(1, memory.bytes(), access));
        let [readable, writable] = keys;
        let mut bytes = vec![1; 2000];
        let (short, long) = (span(&mut bytes[..10]), span(&mut bytes));
        let far = Channel { context: 1, ..channel };
        let nobody = Channel { link: 77, ..channel };
        let side = world.side(0);
        // SAFETY: the bytes stay.
        #[expect(unsafe_code, reason = "runs of the caller's")]
        let refused: [Result<Issued, String>; 7] = unsafe {
            [
                side.put(channel, at(readable, 0), short, 0),
                side.get(channel, at(writable, 0), short, 0),
                side.put(channel, at(writable, 991), short, 0),
                side.get(channel, at(readable, 0), long, 0),
                side.get(channel, at(readable, usize::MAX), short, 0),
                side.put(far, at(writable, 0), short, 0),
                side.put(nobody, at(writable, 0), short, 0),
            ]
        };
        let words = [
            "more access",
            "more access",
            "10 bytes from byte 991 on",
            "not within",
            "not within",
            "no context 1",
            "not open",
        ];
        for (refused, words) in refused.iter().zip(words) {
            assert!(refused.as_ref().is_err_and(|why| why.contains(words)), "{provider}: {refused:?}");
        }
        assert_eq!(side.issued(channel), 0, "{provider}: nothing was taken");
        world.put(0, channel, at(writable, 990), &mut bytes[..10]);
        world.flush(0, channel);
        assert_eq!(memory.bytes()[989..], [0, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1], "{provider}");
    }
}

#[test]
fn forged_and_stale_keys_are_refused_at_the_target_and_harm_nothing() {
    // The others notice nothing, or wait for ever.
    for (provider, mut world, links) in worlds(&["tcp;ofi_rxm", "net", "sockets"]) {
        let channel = channel(links[0]);
        assert!(world.side(1).refuses_stale_keys(), "{provider}");
        let mut memory = Memory::new(4000);
        let (run, beside) = memory.bytes().split_at_mut(2000);
        let key = world.expose(1, run, RemoteAccess::ALL);
        let read_only = world.expose(1, beside, RemoteAccess::READ);
        let mut from = bytes_of(1, 1000);
        // One after the other: a provider may end the connection, and make another.
        let forged = [
            RemoteKey { length: 4000, ..key },
            RemoteKey { access: RemoteAccess::ALL, ..read_only },
            RemoteKey { key: key.key ^ 1, ..key },
        ];
        for (number, (key, offset)) in forged.into_iter().zip([1500, 0, 0]).enumerate() {
            fails(&mut world, channel, at(key, offset), &mut from, number as u64, provider);
            assert!(memory.bytes().iter().all(|&byte| byte == 0), "{provider}: forged key {number}");
        }
        world.side(1).withdraw_exposed(&key);
        fails(&mut world, channel, at(key, 0), &mut from, 10, provider);
        assert!(memory.bytes().iter().all(|&byte| byte == 0), "{provider}: a stale key");
        // What is allowed goes on, once the provider has connected again.
        let key = world.expose(1, &mut memory.bytes()[..2000], RemoteAccess::ALL);
        let mut done = false;
        while !done {
            world.put(0, channel, at(key, 0), &mut from);
            let issued = world.side(0).issued(channel);
            world.until("a put", |world| world.side(0).completed(channel) == issued);
            done = world.side(0).failed_operation().is_none();
        }
        assert!(memory.bytes()[..1000] == from, "{provider}");
    }
}

/// Puts bytes, and waits until that has failed.
fn fails(
    world: &mut crate::ofi::tests::kit::World,
    channel: Channel,
    to: crate::RemoteRun,
    bytes: &mut [u8],
    number: u64,
    provider: &str,
) {
    let run = span(bytes);
    // SAFETY: the bytes stay until the operation is complete.
    #[expect(unsafe_code, reason = "a run of the caller's")]
    let taken = world.start(|world| unsafe { world.side(0).put(channel, to, run, number) });
    world.until("a failure", |world| world.side(0).completed(channel) == taken);
    let failed = world.side(0).failed_operation();
    let failed = failed.unwrap_or_else(|| panic!("{provider}: put {number} has not failed"));
    assert_eq!((failed.channel, failed.number), (channel, number), "{provider}");
    assert!(!failed.reason.is_empty() && world.side(0).failed_operation().is_none(), "{provider}");
}

#[test]
fn who_has_no_one_sided_operations_says_so() {
    let Some(mut world) = configured("tcp;ofi_rxm", 1, |config| config.choice.contexts = Some(0)) else { return };
    let mut memory = Memory::new(8);
    assert!(world.all[0].one_sided().is_none());
    let Some(other) = configured("tcp;ofi_rxm", 2, |config| config.choice.contexts = Some(usize::from(config.me == 1)))
    else {
        return;
    };
    world = other;
    let link = world.join(0, 1)[1];
    // Somebody who has it asks somebody who has not.
    let key = world.expose(1, memory.bytes(), RemoteAccess::ALL);
    let mut bytes = [1; 8];
    let run = span(&mut bytes);
    let mut why = None;
    world.until("a refusal", |world| {
        // SAFETY: the bytes stay.
        #[expect(unsafe_code, reason = "a run of the caller's")]
        let issued = unsafe { world.side(1).put(channel(link), at(key, 0), run, 0) };
        why = issued.err();
        why.is_some()
    });
    let why = why.unwrap_or_default();
    assert!(why.contains("the peer has no one-sided operations: ") && why.contains("turned off"), "{why}");
}

#[test]
fn who_comes_to_have_them_later_tells_its_peers() {
    for (provider, mut world, links) in worlds(&["tcp;ofi_rxm", "sockets"]) {
        world.all[1].port.get_mut().set_contexts(0);
        let mut memories = [Memory::new(8), Memory::new(8)];
        let key = world.expose(0, memories[0].bytes(), RemoteAccess::ALL);
        let mut bytes = [7; 8];
        let run = span(&mut bytes);
        world.until("a refusal", |world| {
            // SAFETY: the bytes stay.
            #[expect(unsafe_code, reason = "a run of the caller's")]
            let issued = unsafe { world.side(0).put(channel(links[0]), at(key, 0), run, 0) };
            issued.is_err()
        });
        world.all[1].port.get_mut().set_contexts(1);
        world.put(1, channel(links[1]), at(key, 0), &mut bytes);
        world.flush(1, channel(links[1]));
        let key = world.expose(1, memories[1].bytes(), RemoteAccess::ALL);
        world.put(0, channel(links[0]), at(key, 0), &mut bytes);
        world.flush(0, channel(links[0]));
        assert!(memories.iter_mut().all(|memory| memory.bytes() == [7; 8]), "{provider}");
    }
}
