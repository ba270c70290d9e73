//! Messages that are taken where they lie, and those that wait to be drained.

use super::kit::{BOUND, World, bytes, config, endpoint_of};
use crate::ofi::*;
use crate::{Other, Sent, Take, Transport};
use std::time::{Duration, Instant};
use tickwire_components::wire::{Header, Kind};
use tickwire_components::{Arrival, Row, Span};

/// Takes messages, except for one the first time.
struct Taker {
    tags: Vec<u32>,
    refuses: Option<u32>,
}

#[expect(unsafe_code, reason = "bytes that are addresses")]
impl Take for Taker {
    fn now_ns(&mut self) -> u64 {
        0
    }

    unsafe fn message(&mut self, header: &Header, payload: Span, vc: Row) -> bool {
        if self.refuses.take_if(|tag| *tag == header.tag()).is_some() {
            return false;
        }
        assert_eq!((header.context(), header.source(), header.length, vc), (1, 2, payload.len() as u64, 100));
        assert!(bytes(payload).iter().all(|&byte| byte == header.tag() as u8));
        self.tags.push(header.tag());
        true
    }

    unsafe fn other(&mut self, _: &Header, _: Span, _: Row) -> Other {
        Other::Left
    }

    unsafe fn matched(&mut self, _: &Header, _: Span, _: Row, _: Row) -> bool {
        false
    }
}

/// Sends a frame at once.
fn send_now(ofi: &mut Ofi, link: u32, kind: Kind, tag: u32, length: usize) -> bool {
    let payload = vec![tag as u8; length];
    let header = Header::new(kind, 1, 2, tag, 0, length as u64);
    ofi.send(link, &header, &payload, &mut ()) == Sent::Done
}

/// How a tick takes messages.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Way {
    /// It looks, and then delivers.
    InTwo,
    /// The look delivers, and the tick what it has left.
    InOne { patient: bool },
}

/// What one tick delivers, and whether more may be for it; no more than `most` a call.
fn tick(ofi: &mut Ofi, way: Way, most: u32, taker: &mut Taker) -> (u32, bool) {
    let (count, rest) = match way {
        Way::InTwo => (0, ofi.ready()),
        Way::InOne { patient } => ofi.look_and_deliver(most, patient, taker),
    };
    assert!(count <= most, "{count} of {most}");
    if !rest {
        return (count, false);
    }
    let (others, _) = ofi.deliver(most - count, taker);
    assert!(count + others <= most, "{count} and {others} of {most}");
    (count + others, true)
}

#[test]
fn no_more_is_delivered_than_was_asked_for_and_what_is_not_taken_keeps_its_place() {
    for provider in ["shm", "net", "tcp;ofi_rxm"] {
        for way in [Way::InTwo, Way::InOne { patient: false }, Way::InOne { patient: true }] {
            // Also where a call reads fewer completions than there are.
            for events in [2, OfiConfig::new("", 0, 1).progress_event_count] {
                let one = |me| endpoint_of(&OfiConfig { progress_event_count: events, ..config(me, provider) });
                let (Some(first), Some(second)) = (one(0), one(1)) else { continue };
                deliver_forty(World::new(vec![first, second]), way, &format!("{provider}, {way:?}, {events}"));
            }
        }
    }
}

fn deliver_forty(mut world: World, way: Way, what: &str) {
    const MOST: u32 = 3;
    const REFUSED: u32 = 12;
    let [link, _] = world.connect();
    let mut taker = Taker { tags: Vec::new(), refuses: Some(REFUSED) };
    let (mut sent, mut delivered, mut drained) = (0, 0, Vec::new());
    let start = Instant::now();
    while taker.tags.len() < 40 {
        assert!(start.elapsed() < BOUND, "{what}: {:?}", taker.tags);
        // Many at a time, so that some go by themselves and others together.
        while sent < 40 {
            let kind = if sent % 9 == 7 { Kind::Rts } else { Kind::Eager };
            let length = if kind == Kind::Rts { 0 } else { sent as usize * 7 };
            if !send_now(&mut world.all[0], link, kind, sent, length) {
                break;
            }
            sent += 1;
        }
        world.all[0].ready();
        let receiver = &mut world.all[1];
        let (count, rest) = tick(receiver, way, MOST, &mut taker);
        delivered += count;
        if rest && count < MOST {
            // The next one is not for there.
            let mut arrivals = [Arrival::default(); 1];
            let count = receiver.drain(0, &mut arrivals);
            for arrival in &arrivals[..count] {
                drained.push(arrival.header.tag());
                taker.tags.push(arrival.header.tag());
            }
            receiver.release();
        }
    }
    assert_eq!(taker.tags, (0..40).collect::<Vec<_>>(), "{what}");
    assert!([7, 16, 25, 34].iter().all(|tag| drained.contains(tag)), "{what}: {drained:?}");
    // What a look has left may be for the same tick.
    assert!(drained.contains(&REFUSED) || (way != Way::InTwo && taker.refuses.is_none()), "{what}: {drained:?}");
    assert!(delivered >= 10 && delivered as usize + drained.len() == 40, "{what}: {delivered}");
}

#[test]
fn a_look_without_room_takes_nothing_and_loses_nothing() {
    let Some(mut world) = World::pair("shm") else { return };
    let [link, _] = world.connect();
    let mut taker = Taker { tags: Vec::new(), refuses: None };
    let (start, mut rest, mut sent) = (Instant::now(), false, 0);
    while !rest || sent < 2 {
        assert!(start.elapsed() < BOUND, "{sent} sent");
        sent += u32::from(sent < 2 && send_now(&mut world.all[0], link, Kind::Eager, sent + 1, 8));
        world.all[0].ready();
        let looked = world.all[1].look_and_deliver(0, true, &mut taker);
        assert_eq!(looked.0, 0);
        rest = looked.1;
    }
    while taker.tags.len() < 2 {
        assert!(start.elapsed() < BOUND);
        tick(&mut world.all[1], Way::InOne { patient: true }, 1, &mut taker);
    }
    assert_eq!(taker.tags, [1, 2]);
}

#[test]
fn frames_are_in_order_also_when_what_they_say_of_their_number_begins_again() {
    const FRAMES: u32 = 70_000;
    let Some(mut world) = World::pair("shm") else { return };
    let [link, _] = world.connect();
    let mut taker = Taker { tags: Vec::new(), refuses: None };
    let (mut sent, start) = (0, Instant::now());
    while taker.tags.len() < FRAMES as usize {
        assert!(start.elapsed() < BOUND, "{} frames", taker.tags.len());
        // Few enough between two looks that each goes by itself.
        for _ in 0..4 {
            sent += u32::from(sent < FRAMES && send_now(&mut world.all[0], link, Kind::Eager, sent, 8));
        }
        world.all[0].ready();
        tick(&mut world.all[1], Way::InOne { patient: sent % 8 < 4 }, u32::MAX, &mut taker);
    }
    assert!(taker.tags.iter().copied().eq(0..FRAMES));
}

#[test]
fn one_call_reads_no_more_completions_than_are_asked_for() {
    for provider in ["shm", "net", "tcp;ofi_rxm", "sockets"] {
        for events in [2, OfiConfig::new("", 0, 1).progress_event_count] {
            let one = |me| endpoint_of(&OfiConfig { progress_event_count: events, ..config(me, provider) });
            let (Some(first), Some(second)) = (one(0), one(1)) else { continue };
            // `sockets` gives one at a time on some machines.
            let enough = if provider == "sockets" { 1 } else { 3.min(events) };
            let most = most_at_once(World::new(vec![first, second]), enough, &format!("{provider}, {events}"));
            assert!(most <= events, "{provider}: {most} of {events}");
        }
    }
}

/// The most completions that one call has read, once it was `enough`, and for some rounds more.
fn most_at_once(mut world: World, enough: usize, what: &str) -> usize {
    let [link, _] = world.connect();
    let mut taker = Taker { tags: Vec::new(), refuses: None };
    let (start, mut most, mut sent, mut rounds) = (Instant::now(), 0, 0, 0);
    while most < enough || rounds < 20 {
        assert!(start.elapsed() < BOUND, "{what}: {most} of {enough}");
        // Four go by themselves.
        for _ in 0..4 {
            while !send_now(&mut world.all[0], link, Kind::Eager, sent, 8) {
                assert!(start.elapsed() < BOUND, "{what}: frame {sent} does not go");
                world.all[0].ready();
            }
            sent += 1;
        }
        world.all[0].flush();
        // The receiver looks later from round to round, until all have come when it does.
        let sent_at = Instant::now();
        while sent_at.elapsed() < Duration::from_micros(rounds) {
            world.all[0].ready();
            std::thread::yield_now();
        }
        while taker.tags.len() < sent as usize {
            assert!(start.elapsed() < BOUND, "{what}: {} of {sent}", taker.tags.len());
            world.all[0].ready();
            let port = world.all[1].port.get_mut();
            match port.look_plainly(1) {
                Some(count) => {
                    most = most.max(count);
                    port.take_read(count, u32::MAX, &mut taker);
                }
                None => drop(tick(&mut world.all[1], Way::InTwo, u32::MAX, &mut taker)),
            }
        }
        rounds += 1;
    }
    most
}
