//! Frames between two endpoints.

use super::kit::{BOUND, World, bytes, endpoint};
use super::one_sided::kit::configured;
use crate::ofi::*;
use crate::{LinkEvent, Sent, Transport};
use std::time::Instant;
use tickwire_components::Arrival;
use tickwire_components::wire::{Header, Kind};

#[test]
fn frames_of_all_lengths_arrive_in_order() {
    let registering = ["tcp;ofi_rxm", "net", "sockets"].map(|provider| (provider, true));
    let others = ["tcp;ofi_rxm", "net", "sockets", "shm", "udp;ofi_rxd"].map(|provider| (provider, false));
    let ways = registering.into_iter().chain(others).flat_map(|way| [(way, true), (way, false)]);
    for ((provider, registers), multi) in ways {
        let world = configured(provider, 2, |config| {
            (config.multi_receive, config.choice.registers) = (multi, registers);
        });
        let Some(mut world) = world else { continue };
        eprintln!("{provider}: registers: {registers}, buffers for many frames: {}", world.all[0].is_multi());
        assert_eq!(world.all[0].registering().is_some(), registers);
        assert!(multi || !world.all[0].is_multi());
        let links = world.connect();
        let frame_max = world.all[0].capabilities().frame_max;
        // Long ones before short ones, which providers send in other ways.
        let lengths: Vec<usize> = (0..200).map(|n| [frame_max, 0, 5000, 8, 64, 17_000, 300][n % 7]).collect();
        for (tag, &length) in lengths.iter().enumerate() {
            for (from, link) in links.into_iter().enumerate() {
                world.send(from, link, tag as u32, vec![tag as u8; length]);
            }
        }
        world.until("all frames", |world| world.received.iter().all(|received| received.len() == lengths.len()));
        for received in &world.received {
            for (tag, (header, payload)) in received.iter().enumerate() {
                assert_eq!((header.tag(), payload.len()), (tag as u32, lengths[tag]), "{provider}");
                assert!(payload.iter().all(|&byte| byte == tag as u8), "{provider}");
            }
        }
        let traffic = world.all[0].traffic(links[0]).unwrap();
        assert_eq!((traffic.sent, traffic.sent), (traffic.received, world.all[0].moved().0), "{provider}");
    }
}

/// Sends a frame without looking at anything.
pub(super) fn send_blindly(ofi: &mut Ofi, link: u32, tag: u32, bytes: usize) -> Sent {
    let payload = vec![tag as u8; bytes];
    let header = Header::new(Kind::Eager, 1, 2, tag, 0, bytes as u64);
    ofi.send(link, &header, &payload, &mut ())
}

#[test]
fn a_peer_that_takes_nothing_holds_no_other_up() {
    for provider in ["tcp;ofi_rxm", "net"] {
        let Some(all) = (0..3).map(|me| endpoint(me, provider)).collect::<Option<Vec<_>>>() else { continue };
        let mut world = World::new(all);
        let ([silent, _], other) = (world.connect(), world.connect_to(2));
        let frame_max = world.all[0].capabilities().frame_max;
        // Endpoint 1 computes. Endpoint 0 sends to it until nothing goes any more.
        let (start, mut refused) = (Instant::now(), 0);
        while refused < 1000 {
            assert!(start.elapsed() < BOUND, "{provider}: it takes all");
            match send_blindly(&mut world.all[0], silent, 1, frame_max) {
                Sent::Done => refused = 0,
                _ => refused += 1,
            }
            world.step_those(|index| index != 1);
        }
        let (start, mut sent) = (Instant::now(), 0);
        while world.received[2].len() < 20 {
            assert!(start.elapsed() < BOUND, "{provider}: {sent} of 20 have gone");
            if sent < 20 && send_blindly(&mut world.all[0], other, sent, frame_max) == Sent::Done {
                sent += 1;
            }
            world.step_those(|index| index != 1);
        }
        assert!(world.events[0].iter().all(|event| !matches!(event, LinkEvent::Failed { .. })), "{provider}");
    }
}

#[test]
fn many_short_frames_in_a_row_go_together_and_at_the_latest_with_the_next_look() {
    // With these, what is sent is on its way without another call.
    for provider in ["net", "shm"] {
        let Some(mut world) = World::pair(provider) else { continue };
        let [link, _] = world.connect();
        world.send(0, link, 0, Vec::new());
        world.until("the way is made", |world| world.received[1].len() == 1);
        let [sender, receiver] = &mut world.all[..] else { unreachable!() };
        let mut arrivals = [Arrival::default(); 64];
        let mut found = Vec::new();
        let mut receive = |receiver: &mut Ofi, due: usize| {
            let start = Instant::now();
            while found.len() < due {
                assert!(start.elapsed() < BOUND, "{provider}: {due} frames");
                receiver.ready();
                let count = receiver.drain(0, &mut arrivals);
                for arrival in &arrivals[..count] {
                    assert!(bytes(arrival.payload).iter().all(|byte| *byte == arrival.header.tag() as u8));
                    found.push((arrival.header.tag(), arrival.payload.len()));
                }
                receiver.release();
            }
            for (tag, found) in (0..).zip(&found) {
                assert_eq!(found.0, tag, "in order");
            }
            found.len()
        };
        for tag in 0..10 {
            assert_eq!(send_blindly(sender, link, tag, 8 + tag as usize), Sent::Done);
        }
        assert_eq!(receive(receiver, 4), 4, "{provider}: the first go at once");
        assert!(sender.port.get_mut().has_packs());
        sender.flush();
        assert_eq!(receive(receiver, 10), 10);
        // Full ones go by themselves; a long frame goes behind what has waited.
        let start = Instant::now();
        for tag in 10..210 {
            while send_blindly(sender, link, tag, 1000) == Sent::Blocked {
                assert!(start.elapsed() < BOUND, "{provider}: frame {tag}");
                receiver.ready();
            }
        }
        let most = receive(receiver, 150);
        assert!(most < 210 && sender.port.get_mut().has_packs(), "{provider}: {most} frames");
        while send_blindly(sender, link, 210, 30_000) == Sent::Blocked {
            assert!(receive(receiver, most) <= 210 && start.elapsed() < BOUND, "{provider}");
            receiver.ready();
        }
        assert_eq!(receive(receiver, 211), 211);
        assert!(!sender.port.get_mut().has_packs());
        // A look lets them go, and then frames go at once again.
        for tag in 211..217 {
            assert_eq!(send_blindly(sender, link, tag, 0), Sent::Done);
        }
        sender.ready();
        assert_eq!(receive(receiver, 217), 217);
        assert_eq!(send_blindly(sender, link, 217, 0), Sent::Done);
        assert_eq!(receive(receiver, 218), 218);
        assert_eq!(receiver.port.get_mut().strays(), 0);
    }
}

#[test]
fn it_says_whether_it_can_be_slept_on() {
    for provider in ["tcp;ofi_rxm", "net", "sockets", "shm", "udp;ofi_rxd"] {
        let Some(mut world) = World::pair(provider) else { continue };
        let links = world.connect();
        let can_sleep = world.all[1].capabilities().can_sleep;
        assert_eq!(world.all[1].wait_fd().is_some(), can_sleep, "{provider}");
        // The others have none for queues that only calls progress.
        assert_eq!(can_sleep, ["tcp;ofi_rxm", "net"].contains(&provider), "{provider}");
        if !can_sleep {
            continue;
        }
        world.until("quiet", |world| world.all[1].arm());
        world.send(0, links[0], 1, vec![1; 100]);
        let descriptor = world.all[1].wait_fd().unwrap();
        let mut fds = [rustix::event::PollFd::new(&descriptor, rustix::event::PollFlags::IN)];
        let time = rustix::event::Timespec { tv_sec: 5, tv_nsec: 0 };
        assert_eq!(rustix::event::poll(&mut fds, Some(&time)), Ok(1), "{provider}: it is woken");
        world.all[1].disarm();
        world.until("a frame", |world| world.received[1].len() == 1);
    }
}
