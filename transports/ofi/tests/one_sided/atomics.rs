//! Integers in the memory of a peer that are changed from afar.

use super::kit::{Memory, PROVIDERS, at, channel, configured, worlds};
use crate::ofi::tests::kit::span;
use crate::{AtomicOperation, AtomicWidths, AtomicWord, Issued, RemoteAccess};

/// Providers that have them: `net` only says so in its capabilities, and those of `udp;ofi_rxd` crash.
const CAPABLE: [&str; 3] = ["tcp;ofi_rxm", "sockets", "shm"];

#[test]
fn what_a_provider_cannot_do_is_told_and_refused() {
    for (provider, mut world, links) in worlds(&PROVIDERS) {
        let mut memory = Memory::new(16);
        let key = world.expose(1, memory.bytes(), RemoteAccess::ALL);
        let has = world.side(0).atomics();
        if CAPABLE.contains(&provider) {
            assert_eq!(has, AtomicWidths { four: true, eight: true }, "{provider}");
            continue;
        }
        assert_eq!(has, AtomicWidths::default(), "{provider}");
        let mut result = [0; 8];
        let (operation, operand) = (AtomicOperation::Sum, AtomicWord::Eight(1));
        // SAFETY: the result stays.
        #[expect(unsafe_code, reason = "a run of the caller's")]
        let refused = unsafe {
            let side = world.side(0);
            side.fetch_atomic(channel(links[0]), at(key, 0), operation, operand, span(&mut result), 0)
        };
        assert_eq!(refused, Err(format!("provider {provider} has no atomic operations on integers of 8 bytes")));
    }
}

#[test]
fn each_operation_changes_one_integer_and_gives_what_was_there() {
    use AtomicOperation::{And, Or, Read, Replace, Sum, Xor};
    for (provider, mut world, links) in worlds(&CAPABLE) {
        let (mut memory, channel) = (Memory::new(32), channel(links[0]));
        let key = world.expose(1, memory.bytes(), RemoteAccess::ATOMIC);
        let (high, all) = (1u64 << 40, u64::MAX);
        let steps = [
            (Sum, 5, 5),
            (Sum, high, high + 5),
            (Sum, all, high + 4),
            (Or, 3, high + 7),
            (And, high | 6, high + 6),
            (Xor, 2, high + 4),
            (Read, 99, high + 4),
            (Replace, 77, 77),
        ];
        let mut before = 0;
        for (operation, operand, after) in steps {
            let found = world.fetch(0, channel, at(key, 8), operation, AtomicWord::Eight(operand));
            assert_eq!((found, memory.word(1)), (before, after), "{provider}: {operation:?} {operand}");
            before = after;
        }
        let mut before = 0;
        for (operation, operand, after) in [(Sum, u32::MAX, u32::MAX), (Sum, 3, 2), (Xor, 7, 5), (Replace, 9, 9)] {
            let found = world.fetch(0, channel, at(key, 20), operation, AtomicWord::Four(operand));
            let now = memory.word(2) >> 32;
            assert_eq!((found, now), (before, u64::from(after)), "{provider}: {operation:?} {operand}");
            before = u64::from(after);
        }
        let pair = |one, other| [AtomicWord::Eight(one), AtomicWord::Eight(other)];
        assert_eq!(world.swap(0, channel, at(key, 8), pair(76, 1)), 77, "{provider}");
        assert_eq!(memory.word(1), 77, "{provider}: it is another one");
        assert_eq!(world.swap(0, channel, at(key, 8), pair(77, 1)), 77, "{provider}");
        assert_eq!(memory.word(1), 1, "{provider}");
        let pair = |one, other| [AtomicWord::Four(one), AtomicWord::Four(other)];
        assert_eq!(world.swap(0, channel, at(key, 20), pair(9, 10)), 9, "{provider}");
        assert_eq!([memory.word(0), memory.word(2), memory.word(3)], [0, 10 << 32, 0], "{provider}: nothing beside");
    }
}

#[test]
fn two_peers_add_to_one_integer_and_each_number_comes_once() {
    const EACH: usize = 400;
    for provider in CAPABLE {
        let Some(mut world) = configured(provider, 3, |_| {}) else { continue };
        let channels = [0, 2].map(|me| (me, channel(world.join(me, 1)[0])));
        let mut memory = Memory::new(16);
        let key = world.expose(1, memory.bytes(), RemoteAccess::ALL);
        let mut tickets = [vec![[0u8; 8]; EACH], vec![[0u8; 8]; EACH]];
        for at_ticket in 0..EACH {
            for (&(me, channel), tickets) in channels.iter().zip(&mut tickets) {
                let into = span(&mut tickets[at_ticket]);
                world.start(|world| {
                    let (add, one) = (AtomicOperation::Sum, AtomicWord::Eight(1));
                    // SAFETY: the tickets stay until the flush.
                    #[expect(unsafe_code, reason = "a run of the caller's")]
                    unsafe {
                        world.side(me).fetch_atomic(channel, at(key, 0), add, one, into, 0)
                    }
                });
            }
        }
        channels.iter().for_each(|&(me, channel)| world.flush(me, channel));
        assert_eq!([memory.word(0), memory.word(1)], [2 * EACH as u64, 0], "{provider}");
        let mut all: Vec<u64> = tickets.iter().flatten().map(|bytes| u64::from_le_bytes(*bytes)).collect();
        all.sort_unstable();
        assert!(all.into_iter().eq(0..2 * EACH as u64), "{provider}: a number twice");
    }
}

#[test]
fn a_lock_taken_by_compare_and_swap_is_held_by_one_peer_at_a_time() {
    for provider in CAPABLE {
        let Some(mut world) = configured(provider, 3, |_| {}) else { continue };
        let channels = [0, 2].map(|me| (me, channel(world.join(me, 1)[0])));
        let mut memory = Memory::new(16);
        let key = world.expose(1, memory.bytes(), RemoteAccess::ALL);
        let (free, mut taken, mut turns) = (AtomicWord::Four(0), 0, [0; 2]);
        for round in 0..60 {
            let at_side = round % 2;
            let (me, channel) = channels[at_side];
            let own = AtomicWord::Four(me as u32 + 1);
            let found = world.swap(me, channel, at(key, 0), [free, own]);
            assert_eq!(found, taken, "{provider}: whoever holds it");
            if found == 0 {
                (taken, turns[at_side]) = (me as u64 + 1, turns[at_side] + 1);
            } else if round % 3 == 0 {
                let (holder, channel) = channels[usize::from(taken == 3)];
                let before = world.fetch(holder, channel, at(key, 0), AtomicOperation::Replace, free);
                assert_eq!(before, taken, "{provider}");
                taken = 0;
            }
        }
        assert!(turns.iter().all(|&turns| turns > 3), "{provider}: {turns:?}");
    }
}

#[test]
fn integers_that_are_none_are_refused_before_the_provider_is_asked() {
    for (provider, mut world, links) in worlds(&["tcp;ofi_rxm"]) {
        let (mut memory, channel) = (Memory::new(32), channel(links[0]));
        let key = world.expose(1, memory.bytes(), RemoteAccess::ALL);
        let mut result = [0; 8];
        let into = span(&mut result);
        let (add, eight, four) = (AtomicOperation::Sum, AtomicWord::Eight(1), AtomicWord::Four(1));
        let side = world.side(0);
        // SAFETY: the result stays.
        #[expect(unsafe_code, reason = "a run of the caller's")]
        let refused: [Result<Issued, String>; 4] = unsafe {
            [
                side.fetch_atomic(channel, at(key, 4), add, eight, into, 0),
                side.fetch_atomic(channel, at(key, 0), add, four, into, 0),
                side.compare_swap(channel, at(key, 0), four, eight, into, 0),
                side.fetch_atomic(channel, at(key, 32), add, eight, into, 0),
            ]
        };
        let words = ["need it aligned", "a result of 4 bytes goes into 8 bytes", "another length", "not within"];
        for (refused, words) in refused.iter().zip(words) {
            assert!(refused.as_ref().is_err_and(|why| why.contains(words)), "{provider}: {refused:?}");
        }
        // SAFETY: nobody uses it, since it is refused.
        #[expect(unsafe_code, reason = "a run that is refused")]
        let odd = unsafe { world.side(1).register_exposed(span(&mut memory.bytes()[4..]), RemoteAccess::ATOMIC) };
        assert!(odd.is_err_and(|why| why.contains("a multiple of 8")), "{provider}");
    }
}
