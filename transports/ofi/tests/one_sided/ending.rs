//! Links and peers that end while operations are under way, and endpoints that are opened and closed many times.

use super::kit::{Memory, at, bytes_of, channel, configured, worlds};
use crate::ofi::control::Message;
use crate::ofi::rma::Introduction;
use crate::ofi::tests::kit::BOUND;
use crate::{LinkEvent, RemoteAccess, Settled, Transport};
use std::time::Instant;

#[test]
fn operations_of_a_peer_that_has_gone_fail_and_nothing_hangs() {
    for (provider, mut world, links) in worlds(&["tcp;ofi_rxm", "net", "sockets", "udp;ofi_rxd"]) {
        let channel = channel(links[0]);
        let mut memory = Memory::new(1 << 20);
        let key = world.expose(1, memory.bytes(), RemoteAccess::ALL);
        let mut from = vec![bytes_of(1, 1 << 20); 3];
        world.put(0, channel, at(key, 0), &mut from[0][..8]);
        world.flush(0, channel);
        // The target does not look any more, so that what follows stays under way.
        let mut gone = world.all.remove(1);
        gone.own.config.close_ms_max = 0;
        for from in &mut from {
            world.put(0, channel, at(key, 0), from);
        }
        world.put(0, channel, at(key, 0), &mut [7; 100]);
        let issued = world.side(0).issued(channel);
        assert!(world.side(0).completed(channel) < issued, "{provider}");
        drop(gone);
        world.until("an end", |world| world.events[0].iter().any(|event| matches!(event, LinkEvent::Failed { .. })));
        world.until("failures", |world| world.side(0).completed(channel) == issued);
        let failed = std::iter::from_fn(|| world.side(0).failed_operation());
        let failed: Vec<_> = failed.inspect(|failed| assert!(!failed.reason.is_empty())).collect();
        assert!(!failed.is_empty() && failed.len() <= 4, "{provider}: {failed:?}");
        let (run, mut byte) = (at(key, 0), [1]);
        let byte = crate::ofi::tests::kit::span(&mut byte);
        // SAFETY: the byte stays.
        #[expect(unsafe_code, reason = "a run of the caller's")]
        let refused = unsafe { world.side(0).put(channel, run, byte, 0) };
        assert!(refused.is_err_and(|why| why.contains("has ended")), "{provider}");
        world.all[0].close_link(links[0]);
    }
}

#[test]
fn an_endpoint_that_keeps_operations_of_a_closed_link_is_given_up_after_a_time() {
    for (provider, mut world, links) in worlds(&["tcp;ofi_rxm", "net", "sockets"]) {
        let channel = channel(links[0]);
        let mut memory = Memory::new(4 << 20);
        let key = world.expose(1, memory.bytes(), RemoteAccess::ALL);
        let mut from = bytes_of(1, 4 << 20);
        world.put(0, channel, at(key, 0), &mut from[..8]);
        world.flush(0, channel);
        // The peer lives, and does not look.
        let peer = world.all.remove(1);
        world.put(0, channel, at(key, 0), &mut from);
        world.all[0].port.get_mut().rma_for_test().end_within(std::time::Duration::from_millis(30));
        world.all[0].close_link(links[0]);
        assert_eq!(world.side(0).completed(channel), 1, "{provider}: the provider still reads the run");
        world.until("the end of it", |world| {
            world.side(0).progress();
            world.side(0).completed(channel) == 2
        });
        let failed = world.side(0).failed_operation().map(|failed| failed.reason);
        assert!(failed.is_some_and(|why| why.contains("has ended")), "{provider}");
        // SAFETY: nobody uses it, since it is refused.
        #[expect(unsafe_code, reason = "a run that is refused")]
        let refused =
            unsafe { world.side(0).register_exposed(crate::ofi::tests::kit::span(&mut from), RemoteAccess::READ) };
        assert!(refused.is_err_and(|why| why.contains("has kept operations")), "{provider}");
        drop(peer);
    }
}

#[test]
fn peers_of_an_endpoint_that_has_given_up_get_errors_whether_they_have_met_it_or_not() {
    for provider in ["tcp;ofi_rxm", "net", "sockets"] {
        for has_met in [true, false] {
            let Some(mut world) = configured(provider, 3, |_| {}) else { continue };
            world.connect();
            let calling = world.connect_to(2);
            let [LinkEvent::Accepted { link, .. }] = world.events[2][..] else { panic!("{:?}", world.events[2]) };
            let channel = channel(link);
            let mut memory = Memory::new(64);
            let key = world.expose(0, memory.bytes(), RemoteAccess::ALL);
            let mut own = Memory::new(64);
            let own = world.expose(2, own.bytes(), RemoteAccess::ALL);
            let mut byte = [7];
            if has_met {
                world.put(2, channel, at(key, 0), &mut byte);
                world.flush(2, channel);
            }
            // A peer has disappeared before, so that the endpoints of some providers stay open and unused.
            let rma = world.all[0].port.get_mut().rma_for_test();
            rma.disturb();
            rma.give_up_now();
            let run = crate::ofi::tests::kit::span(&mut byte);
            let mut refused = String::new();
            world.until("an error", |world| {
                // SAFETY: the byte stays.
                #[expect(unsafe_code, reason = "a run of the caller's")]
                let put = unsafe { world.side(2).put(channel, at(key, 0), run, 0) };
                refused = put.err().unwrap_or_default();
                !refused.is_empty()
            });
            // A provider may have noticed first.
            assert!(has_met || refused.contains("no one-sided operations"), "{provider}: {refused}");
            // It had waited for operations on the peer, and says so late.
            let line = world.all[0].connections.line_mut(calling).expect("the connection of the messages stays");
            line.tell(&Message::OneSided(Introduction::Waiting));
            // What the peer had issued by then may still arrive, and nobody can say when it is over.
            let number = world.side(2).withdraw_for_good(&own);
            let mut settled = Settled::InUse;
            world.until("an answer", |world| {
                settled = world.side(2).settled(number);
                settled != Settled::InUse
            });
            assert_eq!(settled, if has_met { Settled::Lost } else { Settled::Unused }, "{provider}");
            world.all[2].port.get_mut().rma_for_test().end_within(std::time::Duration::from_millis(30));
            world.until("the end of what was taken", |world| {
                world.side(2).progress();
                world.side(2).completed(channel) == world.side(2).issued(channel)
            });
            assert!(
                world.events.iter().flatten().all(|event| !matches!(event, LinkEvent::Failed { .. })),
                "{provider}"
            );
        }
    }
}

#[test]
fn endpoints_are_opened_used_and_closed_many_times_in_a_row() {
    for (provider, automatic) in [("sockets", true), ("sockets", false), ("tcp;ofi_rxm", false), ("net", false)] {
        let start = Instant::now();
        // Connections of this provider take ten times as long as those of the others.
        let rounds = if provider == "tcp;ofi_rxm" { 60 } else { 200 };
        for round in 0..rounds {
            let contexts = 1 + round % 3;
            let opened = configured(provider, 2, |config| {
                (config.choice.contexts, config.choice.has_thread) = (Some(contexts), automatic);
            });
            let Some(mut world) = opened else { break };
            let links = world.connect();
            let channel = channel(links[0]);
            let mut memory = Memory::new(70_000);
            let key = world.expose(1, memory.bytes(), RemoteAccess::ALL);
            let mut from = bytes_of(round as u32, 70_000);
            world.put(0, channel, at(key, 0), &mut from);
            if round % 2 == 0 {
                world.flush(0, channel);
                assert!(memory.bytes() == from, "{provider}");
            }
            for ofi in &mut world.all {
                ofi.own.config.close_ms_max = 1;
                ofi.close();
            }
            drop(world);
            assert!(start.elapsed() < 6 * BOUND, "{provider}: round {round}");
        }
    }
    assert_eq!(crate::ofi::domain::REFUSED.get(), 0, "everything was closed in order");
}

#[test]
fn a_close_waits_until_operations_are_complete() {
    for (provider, mut world, links) in worlds(&["tcp;ofi_rxm", "net", "sockets", "shm"]) {
        let channel = channel(links[0]);
        let mut memory = Memory::new(8 << 20);
        let key = world.expose(1, memory.bytes(), RemoteAccess::ALL);
        let mut from = bytes_of(1, 8 << 20);
        world.put(0, channel, at(key, 0), &mut from);
        assert_eq!(world.side(0).completed(channel), 0, "{provider}");
        // Another thread, since a close waits for its peers; in another process, since it waits for them only.
        let mut closing = world.all.remove(0);
        world.events.remove(0);
        closing.own.greeting.pid = 0;
        std::thread::scope(|scope| {
            scope.spawn(move || drop(closing));
            world.until("an end", |world| world.events[0].len() == 2);
        });
        assert!(memory.bytes() == from, "{provider}");
    }
}

#[test]
fn what_was_taken_before_a_close_is_counted_after_it() {
    for (provider, mut world, links) in worlds(&["tcp;ofi_rxm", "net", "sockets"]) {
        let channel = channel(links[0]);
        let mut memory = Memory::new(8 << 20);
        let key = world.expose(1, memory.bytes(), RemoteAccess::ALL);
        let mut from = bytes_of(1, 8 << 20);
        // Nobody looks at the peer meanwhile.
        world.put(0, channel, at(key, 0), &mut from);
        world.all[0].own.config.close_ms_max = 1;
        world.all[0].close();
        let side = world.side(0);
        assert_eq!([side.issued(channel), side.completed(channel)], [1, 1], "{provider}");
        let failed = side.failed_operation();
        assert!(failed.is_some_and(|failed| failed.reason.contains("has ended")), "{provider}");
        // The peer may still be getting the bytes: its memory outlives it.
        drop(world);
        from.fill(0);
    }
}
