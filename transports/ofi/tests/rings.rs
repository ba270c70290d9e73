//! Short frames by remote writes into rings.

use super::kit::{BOUND, World, bytes as bytes_of_span};
use super::one_sided::kit::configured;
use crate::ofi::domain::REFUSED;
use crate::ofi::ring::{FRAME_MAX, HEAD_BYTES, SLOTS, enclose, slot_at};
use crate::ofi::slab::Slab;
use crate::{LinkEvent, Transport};
use std::time::Instant;

/// Providers that reach another endpoint of the process by remote writes.
const PROVIDERS: [&str; 4] = ["tcp;ofi_rxm", "net", "sockets", "shm"];

/// Two endpoints whose rings may be written; the link of each.
fn ringing(provider: &str) -> Option<(World, [u32; 2])> {
    let mut world = configured(provider, 2, |config| config.choice.rings = 4)?;
    let links = world.connect();
    // Frames go in other ways until the peer has said that it takes them so.
    for (from, &link) in links.iter().enumerate() {
        world.until("a frame in a ring", |world| {
            world.send(from, link, 0, vec![7; 8]);
            world.all[from].port.get_mut().rung(link).0 > 0
        });
    }
    settle(&mut world, links);
    world.received.iter_mut().for_each(Vec::clear);
    Some((world, links))
}

/// Looks until all that was sent has come, and was taken.
fn settle(world: &mut World, links: [u32; 2]) {
    world.until("all frames", |world| {
        let [here, there] = [0, 1].map(|at| world.all[at].port.get_mut().counts(links[at]));
        let is_left = world.all.iter_mut().any(|ofi| ofi.port.get_mut().has_frames());
        here.0 == there.1 && there.0 == here.1 && !is_left
    });
}

fn payload(number: usize, length: usize) -> Vec<u8> {
    (0..length).map(|at| (at * 31 + number * 7) as u8).collect()
}

/// The bytes of frames that a side has received; their tags count from 0.
fn received(world: &mut World, at: usize) -> Vec<Vec<u8>> {
    let frames = std::mem::take(&mut world.received[at]);
    assert!(frames.iter().map(|(header, _)| header.tag()).eq(0..frames.len() as u32), "in order");
    frames.into_iter().map(|(_, bytes)| bytes).collect()
}

#[test]
fn short_frames_go_by_remote_writes_and_all_keep_their_order() {
    for provider in PROVIDERS {
        let Some((mut world, links)) = ringing(provider) else { continue };
        let before = [0, 1].map(|at| world.all[at].port.get_mut().rung(links[at]));
        // One after the other, with looks between them.
        for number in 0..3 * SLOTS as usize {
            for (at, &link) in links.iter().enumerate() {
                world.send(at, link, number as u32, payload(number, number));
            }
            world.step();
        }
        settle(&mut world, links);
        for (at, &link) in links.iter().enumerate() {
            let expected: Vec<_> = (0..3 * SLOTS as usize).map(|number| payload(number, number)).collect();
            assert!(received(&mut world, at) == expected, "{provider}");
            let (written, taken) = world.all[at].port.get_mut().rung(link);
            assert!(written - before[at].0 > SLOTS && taken - before[at].1 > SLOTS, "{provider}: {written} {taken}");
        }
        // Many in a row, short and long ones in turn.
        let lengths: Vec<usize> = (0..500).map(|number| [3, 100, FRAME_MAX, 2_000][number * number % 7 % 4]).collect();
        for (number, &length) in lengths.iter().enumerate() {
            world.send(0, links[0], number as u32, payload(number, length));
            if number % 5 == 0 {
                world.step();
            }
        }
        settle(&mut world, links);
        let expected: Vec<_> = (0..).zip(&lengths).map(|(number, &length)| payload(number, length)).collect();
        assert!(received(&mut world, 1) == expected, "{provider}");
    }
}

#[test]
fn only_so_many_peers_have_rings_and_others_go_without() {
    for provider in ["tcp;ofi_rxm", "sockets"] {
        let Some(mut world) = configured(provider, 3, |config| config.choice.rings = usize::from(config.me != 2) * 2)
        else {
            continue;
        };
        let with = world.join(0, 1);
        let without = world.join(0, 2);
        world.until("a frame in a ring", |world| {
            world.send(0, with[0], 0, vec![1; 8]);
            world.all[0].port.get_mut().rung(with[0]).0 > 0
        });
        world.received[2].clear();
        for number in 0..50 {
            world.send(0, without[0], number, payload(number as usize, 20));
            world.step();
        }
        world.until("frames", |world| world.received[2].len() == 50);
        assert!(received(&mut world, 2).into_iter().eq((0..50).map(|number| payload(number, 20))), "{provider}");
        assert_eq!(world.all[0].port.get_mut().rung(without[0]).0, 0, "{provider}");
    }
}

#[test]
fn whatever_a_peer_writes_into_a_ring_is_bounded() {
    let Some((mut world, links)) = ringing("sockets") else { return };
    let ring = world.all[1].port.get_mut().own_ring(links[1]).expect("a ring");
    let write = |at: usize, bytes: &[u8]| {
        assert!(at + bytes.len() <= ring.len());
        // SAFETY: within the ring, which is there as long as its link.
        #[expect(unsafe_code, reason = "bytes of a test")]
        unsafe {
            ring.start().add(at).copy_from_nonoverlapping(bytes.as_ptr(), bytes.len());
        }
    };
    // Frames that are torn, or longer than a slot, are none; the true ones take their places.
    let due = world.all[1].port.get_mut().rung(links[1]).1 + 1;
    for number in due..due + SLOTS {
        write(slot_at(number), &number.to_ne_bytes());
        write(slot_at(number) + 8, &[0xFF; 8]);
        write(slot_at(number) + HEAD_BYTES, &payload(number as usize, 200));
    }
    (0..100).for_each(|_| world.step());
    assert_eq!(world.received[1], []);
    for number in 0..20 {
        world.send(0, links[0], number, payload(number as usize, 30));
        world.step();
    }
    world.until("true frames", |world| world.received[1].len() == 20);
    assert!(received(&mut world, 1).into_iter().eq((0..20).map(|number| payload(number, 30))));
    // Whole ones that belong to nobody are strays, as those that were sent.
    let (strays, due) = (world.all[1].port.get_mut().strays(), world.all[1].port.get_mut().rung(links[1]).1 + 1);
    for number in due..due + SLOTS {
        let place = Slab::new(1, 512);
        let frame = enclose(place.place(0), number, (number % 100) as usize);
        write(slot_at(number), &bytes_of_span(frame));
    }
    world.until("strays", |world| world.all[1].port.get_mut().strays() >= strays + SLOTS);
    assert_eq!(world.received[1], []);
    // What such a peer sends from then on is lost, which ends its connection.
    world.all[0].own.config.dead_link_ms_max = 1000;
    world.all[1].own.config.dead_link_ms_max = 1000;
    world.until("an end", |world| {
        world.send_or_fail(0, links[0]);
        let is_end = |event: &LinkEvent| matches!(event, LinkEvent::Failed { .. });
        world.events[1].iter().any(is_end) || world.events[0].iter().any(is_end)
    });
}

impl World {
    /// Sends a frame if it can be sent now.
    fn send_or_fail(&mut self, from: usize, link: u32) {
        let header = tickwire_components::wire::Header::new(tickwire_components::wire::Kind::Eager, 1, 2, 3, 0, 8);
        let _ = self.all[from].send(link, &header, &vec![1u8; 8], &mut ());
    }
}

#[test]
fn rings_are_closed_in_order_200_times_in_a_row_also_when_the_peer_goes_first() {
    for provider in ["sockets", "net"] {
        let start = Instant::now();
        for round in 0..200 {
            let Some(mut world) = configured(provider, 2, |config| config.choice.rings = 4) else { break };
            let links = world.connect();
            world.until("rings", |world| (0..2).all(|at| world.all[at].port.get_mut().own_ring(links[at]).is_some()));
            for number in 0..round % 10 {
                world.send(0, links[0], number, vec![1; 50]);
                world.step();
            }
            for ofi in &mut world.all {
                ofi.own.config.close_ms_max = 1;
            }
            let mut second = world.all.pop().expect("two");
            if round % 2 == 0 {
                second.close();
            }
            drop(second);
            world.all[0].close();
            drop(world);
            assert!(start.elapsed() < 6 * BOUND, "{provider}: round {round}");
        }
    }
    assert_eq!(REFUSED.get(), 0, "everything was closed in order");
}

#[test]
fn a_writer_that_is_ahead_of_its_reader_sends_what_finds_no_room() {
    for provider in ["tcp;ofi_rxm", "sockets"] {
        let Some((mut world, links)) = ringing(provider) else { continue };
        let before = world.all[0].port.get_mut().rung(links[0]).0;
        let count = 2 * SLOTS as u32;
        // Nobody looks at the reader, unless a send finds no room anywhere.
        for number in 0..count {
            world.all[0].ready();
            world.send(0, links[0], number, payload(number as usize, 60));
        }
        let written = world.all[0].port.get_mut().rung(links[0]).0 - before;
        assert!(written > 0 && written < u64::from(count), "{provider}: {written}");
        settle(&mut world, links);
        assert!(received(&mut world, 1).into_iter().eq((0..count).map(|n| payload(n as usize, 60))), "{provider}");
    }
}
