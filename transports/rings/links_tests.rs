//! Two tables of connections over rings on the heap.

use super::inbox::Inbox;
use super::links::{Ends, InboxView, Links, ring as ring_doorbell, silence};
use super::memory::{HeapMemory, RawRing};
use crate::testing::copy;
use crate::{CreditWindows, Other, Sent, Take};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::fd::OwnedFd;
use std::sync::Arc;
use tickwire_components::credit::Credit;
use tickwire_components::wire::{Header, Kind, frame_bytes};
use tickwire_components::{Arrival, NIL, NoBytes, Row, Span};

const CAPACITY: usize = 1024;
const RING_MAX: usize = 16 * CAPACITY;

#[expect(unsafe_code, reason = "a view of the heap")]
fn inbox() -> InboxView {
    let memory = Arc::new(HeapMemory::new(size_of::<Inbox>()));
    // SAFETY: zeroed memory of an inbox's size and alignment, kept by the view.
    unsafe { InboxView::new(memory.base(), memory) }
}

#[expect(unsafe_code, reason = "a view of the heap")]
fn ring() -> (RawRing, Arc<HeapMemory>) {
    let memory = Arc::new(HeapMemory::new(RawRing::bytes(CAPACITY)));
    // SAFETY: zeroed memory of the ring's size; the ends keep it.
    (unsafe { RawRing::new(memory.base(), CAPACITY) }, memory)
}

/// A table and its doorbell.
struct Side {
    links: Links,
    inbox: InboxView,
    doorbell: Arc<OwnedFd>,
}

impl Side {
    fn new() -> Self {
        let inbox = inbox();
        let doorbell = Arc::new(eventfd(0, EventfdFlags::NONBLOCK).expect("a doorbell"));
        Side { links: Links::new(inbox.clone()), inbox, doorbell }
    }

    fn rung(&self) -> bool {
        rustix::io::read(&self.doorbell, &mut [0; 8]).is_ok()
    }

    fn drain(&mut self, most: usize) -> Vec<(u32, u32)> {
        let mut arrivals = [Arrival::default(); 32];
        let count = self.links.drain(&mut arrivals[..most]);
        let found = arrivals[..count].iter().map(|a| (a.vc, a.header.tag())).collect();
        self.links.release();
        found
    }

    /// Drains until nothing is left; the bound shows that nothing keeps it going.
    fn all(&mut self) -> Vec<(u32, u32)> {
        let mut found = Vec::new();
        for _ in 0..100 {
            if !self.links.ready() {
                return found;
            }
            found.extend(self.drain(32));
        }
        panic!("ready for ever");
    }
}

/// Connects two sides; one row of each.
fn connect(a: &mut Side, b: &mut Side) -> (u32, u32) {
    let ((there, there_memory), (back, back_memory)) = (ring(), ring());
    let (at_a, at_b) = (a.links.reserve(), b.links.reserve());
    let keep = Arc::new((there_memory, back_memory));
    let ends = |outgoing, incoming, peer: &Side, slot| Ends {
        outgoing,
        incoming,
        inbox: peer.inbox.clone(),
        slot,
        doorbell: peer.doorbell.clone(),
        one_sided: super::fences::one_sided(),
        past_min: 100,
        ring_max: RING_MAX,
        keep: keep.clone(),
    };
    let (of_a, of_b) = (ends(there, back, b, at_b), ends(back, there, a, at_a));
    a.links.open(at_a, at_a, of_a);
    b.links.open(at_b, at_b, of_b);
    (at_a, at_b)
}

fn send(side: &mut Side, link: u32, tag: u32) -> Sent {
    side.links.send(link, &Header::new(Kind::Rts, 0, 0, tag, 0, 0), &NoBytes)
}

#[test]
fn busy_and_idle_peers_are_all_heard() {
    let mut reader = Side::new();
    let mut writers: Vec<Side> = (0..9).map(|_| Side::new()).collect();
    let links: Vec<_> = writers.iter_mut().map(|writer| connect(writer, &mut reader)).collect();
    assert!(reader.all().is_empty());
    for round in 0..if cfg!(miri) { 40 } else { 4000u32 } {
        let mut expected = Vec::new();
        for (n, (writer, &(link, at))) in writers.iter_mut().zip(&links).enumerate() {
            // Busy for some rounds each, so that watched ones change.
            if round % 7 == 0 || (round / 1500 + n as u32).is_multiple_of(3) {
                assert_eq!(send(writer, link, round), Sent::Done);
                expected.push((at, round));
            }
        }
        let mut found = reader.all();
        found.sort_unstable();
        assert_eq!(found, expected);
    }
}

#[test]
fn a_small_drain_leaves_the_rest_for_the_next() {
    let (mut a, mut b) = (Side::new(), Side::new());
    let (link, at) = connect(&mut a, &mut b);
    assert!(b.all().is_empty());
    for tag in 0..10 {
        assert_eq!(send(&mut a, link, tag), Sent::Done);
    }
    assert_eq!(b.drain(0), []);
    for tag in 0..10 {
        assert!(b.links.ready());
        assert_eq!(b.links.heard(at), (u64::from(tag) * frame_bytes(0), true));
        assert_eq!(b.drain(1), [(at, tag)]);
    }
    assert_eq!(b.links.heard(at), (10 * frame_bytes(0), false));
    assert!(b.all().is_empty());
}

#[test]
fn an_armed_reader_hears_the_bell() {
    let (mut a, mut b) = (Side::new(), Side::new());
    let (link, at) = connect(&mut a, &mut b);
    assert!(b.all().is_empty());
    for tag in 0..20 {
        assert_eq!(send(&mut a, link, tag), Sent::Done);
        assert!(!b.rung(), "an awake reader needs no bell");
        assert!(!b.links.arm(false), "something is there");
        b.inbox.disarm();
        assert_eq!(b.all(), [(at, tag)]);
        assert!(b.links.arm(false));
        assert_eq!(send(&mut a, link, tag), Sent::Done);
        assert!(b.rung() && b.links.ready());
        b.inbox.disarm();
        assert_eq!(b.all(), [(at, tag)]);
    }
    assert!(b.links.arm(false));
    assert!(b.inbox.call() && b.links.ready());
    assert!(b.inbox.called() && !b.inbox.called());
}

#[test]
fn a_grant_that_is_not_needed_keeps_a_side_awake_once() {
    let (mut a, mut b) = (Side::new(), Side::new());
    let (at_a, at_b) = connect(&mut a, &mut b);
    assert!(a.all().is_empty() && a.links.granted(at_a).is_none());
    assert!(a.links.arm(true), "nothing has come");
    b.links.grant(at_b, Credit { lines: 5, envelopes: 1 });
    assert!(a.rung() && a.all().is_empty());
    assert!(!a.links.arm(true), "a send that waits for credit is to look");
    assert!(a.links.arm(true), "nobody has taken the credit, so nobody waits for it");
    assert_eq!(a.links.granted(at_a), Credit { lines: 5, envelopes: 1 });
}

#[test]
fn any_bits_in_an_inbox_are_survived() {
    let (mut a, mut b) = (Side::new(), Side::new());
    let (link, at) = connect(&mut a, &mut b);
    for slot in [0, 1, 63, 64, 4095, 4096, u32::MAX] {
        assert!(!b.inbox.announce(slot));
    }
    assert!(b.all().is_empty());
    assert_eq!(send(&mut a, link, 7), Sent::Done);
    assert_eq!(b.all(), [(at, 7)]);
}

#[test]
fn a_closed_link_is_silent_and_its_number_can_be_opened_again() {
    let (mut a, mut b) = (Side::new(), Side::new());
    let (link, at) = connect(&mut a, &mut b);
    let (other, still) = connect(&mut a, &mut b);
    for tag in 0..3 {
        assert_eq!((send(&mut a, link, tag), send(&mut a, other, tag)), (Sent::Done, Sent::Done));
    }
    assert_eq!(b.drain(1).len(), 1);
    b.links.close(at);
    b.links.close(at);
    b.links.close(99);
    assert!(!b.links.is_open(at) && b.links.is_open(still));
    assert_eq!((send(&mut b, at, 0), b.links.heard(at)), (Sent::Failed, (0, false)));
    // Still announced by a peer that does not know it yet.
    assert_eq!(send(&mut a, link, 9), Sent::Done);
    assert!(b.all().iter().all(|&(vc, _)| vc == still));
    b.links.attach(at, 5);
    b.links.look(at);
    assert!(b.all().is_empty());
}

#[test]
fn payloads_stay_until_they_are_released() {
    let (mut a, mut b) = (Side::new(), Side::new());
    let (link, at) = connect(&mut a, &mut b);
    assert_eq!(a.links.send(link, &Header::new(Kind::Eager, 0, 0, 1, 0, 5), &&b"stays"[..]), Sent::Done);
    let mut arrivals = [Arrival::default(); 4];
    assert_eq!(b.links.drain(&mut arrivals), 1);
    a.links.close(link);
    b.links.close(at);
    let mut found = [0; 5];
    // SAFETY: a local buffer that outlives the copy.
    #[expect(unsafe_code, reason = "lends local bytes")]
    let to = unsafe { Span::new(found.as_mut_ptr(), found.len()) };
    assert_eq!((copy(to, arrivals[0].payload), &found), (5, b"stays"));
    b.links.release();
    assert!(b.all().is_empty());
}

#[test]
fn a_corrupt_ring_is_reported_once_and_others_go_on() {
    let (mut a, mut b) = (Side::new(), Side::new());
    let (link, at) = connect(&mut a, &mut b);
    let (other, still) = connect(&mut a, &mut b);
    let header = Header { lead: 99, ..Header::default() };
    assert_eq!(a.links.send(link, &header, &NoBytes), Sent::Done);
    assert_eq!(send(&mut a, other, 1), Sent::Done);
    for _ in 0..5 {
        b.drain(8);
    }
    assert!(b.links.has_need());
    assert_eq!(b.links.take_need().map(|(link, _)| link), Some(at));
    assert_eq!(b.links.take_need(), None);
    assert_eq!(send(&mut a, other, 2), Sent::Done);
    assert_eq!(b.drain(8), [(still, 2)]);
    b.links.close(at);
    assert!(b.all().is_empty());
}

#[test]
fn a_fault_of_a_closed_link_is_forgotten() {
    let (mut a, mut b) = (Side::new(), Side::new());
    let (link, at) = connect(&mut a, &mut b);
    let header = Header { lead: 99, ..Header::default() };
    assert_eq!(a.links.send(link, &header, &NoBytes), Sent::Done);
    b.drain(8);
    assert!(b.links.has_need());
    b.links.close(at);
    assert_eq!(b.links.take_need(), None);
    assert_eq!(b.links.heard(NIL), (0, false));
}

/// Fills the rings of writers that have more than there is ever room for.
fn flood(writers: &mut [Side], links: &[(u32, u32)]) {
    for (writer, &(link, _)) in writers.iter_mut().zip(links) {
        while eager(writer, link, 0) == Sent::Done {}
    }
}

fn eager(side: &mut Side, link: u32, tag: u32) -> Sent {
    side.links.send(link, &Header::new(Kind::Eager, 0, 0, tag, 0, 0), &NoBytes)
}

#[test]
fn rings_that_are_always_full_have_their_turn_and_no_more() {
    for (busy, most) in [(1, 1), (1, 8), (1, 32), (4, 1), (4, 3), (7, 1), (7, 8), (7, 32)] {
        let mut reader = Side::new();
        let mut writers: Vec<Side> = (0..=busy).map(|_| Side::new()).collect();
        let links: Vec<_> = writers.iter_mut().map(|writer| connect(writer, &mut reader)).collect();
        // Those who write are found before who has little to say.
        assert!(reader.all().is_empty());
        flood(&mut writers[..busy], &links);
        reader.drain(most);
        let (link, at) = links[busy];
        for tag in 1..=10 {
            assert_eq!(eager(&mut writers[busy], link, tag), Sent::Done);
        }
        let (mut heard, mut counts) = (Vec::new(), vec![0; busy + 1]);
        for round in 0..if cfg!(miri) { 100 } else { 1000 } {
            flood(&mut writers[..busy], &links);
            for (vc, tag) in reader.drain(most) {
                counts[vc as usize] += 1;
                heard.extend(Some(tag).filter(|_| vc == at));
            }
            assert!(heard.len() == 10 || round < 50 * busy, "{busy} busy, {most} at a time: {heard:?} {counts:?}");
        }
        assert!(heard.into_iter().eq(1..=10), "{busy} busy, {most} at a time");
        let (least, greatest) = (counts[..busy].iter().min(), counts[..busy].iter().max());
        assert!(greatest <= least.map(|n| n * 10).as_ref(), "{busy} busy, {most} at a time: {counts:?}");
    }
}

/// Takes all that it is given.
#[derive(Default)]
struct Taken(Vec<(Row, u32)>);

#[expect(unsafe_code, reason = "payloads are addresses")]
impl Take for Taken {
    fn now_ns(&mut self) -> u64 {
        0
    }
    unsafe fn message(&mut self, header: &Header, _: Span, vc: Row) -> bool {
        self.0.push((vc, header.tag()));
        true
    }
    unsafe fn other(&mut self, _: &Header, _: Span, _: Row) -> Other {
        Other::Left
    }
    unsafe fn matched(&mut self, _: &Header, _: Span, _: Row, _: Row) -> bool {
        false
    }
}

#[test]
fn what_is_delivered_is_of_all_watched_rings_in_turn_and_what_is_not_watched_is_told() {
    let mut reader = Side::new();
    let mut writers: Vec<Side> = (0..4).map(|_| Side::new()).collect();
    let links: Vec<_> = writers.iter_mut().map(|writer| connect(writer, &mut reader)).collect();
    assert!(reader.all().is_empty());
    // Each is watched once it has been heard.
    for (writer, &(link, _)) in writers.iter_mut().zip(&links) {
        assert_eq!(eager(writer, link, 0), Sent::Done);
        assert_eq!(reader.all().len(), 1);
    }
    for most in [1, 5, 40] {
        let mut taken = Taken::default();
        for call in 0..8 {
            flood(&mut writers, &links);
            let before = taken.0.len();
            let (count, rest) = reader.links.deliver(most, &mut taken);
            assert_eq!((count as usize, rest), (taken.0.len() - before, false), "call {call}");
            assert!(count > 0 && count <= most);
        }
        let of = |at: u32| taken.0.iter().filter(|&&(vc, _)| vc == at).count();
        assert!(
            links.iter().all(|&(_, at)| of(at) > 0),
            "{most}: {:?}",
            links.iter().map(|l| of(l.1)).collect::<Vec<_>>()
        );
    }
    assert!(reader.links.deliver(0, &mut Taken::default()).1, "there was something, and nothing could be taken");
    // Announced by its bit, and not looked at by a delivery.
    let mut fifth = Side::new();
    let (link, _) = connect(&mut fifth, &mut reader);
    assert_eq!(eager(&mut fifth, link, 0), Sent::Done);
    flood(&mut writers, &links);
    assert!(reader.links.deliver(5, &mut Taken::default()).1);
}

#[test]
fn a_doorbell_that_a_peer_has_made_blocking_holds_nobody_up() {
    let doorbell = eventfd(0, EventfdFlags::empty()).expect("a doorbell");
    silence(&doorbell);
    ring_doorbell(&doorbell);
    silence(&doorbell);
    let mut polled = [PollFd::new(&doorbell, PollFlags::IN)];
    assert_eq!(poll(&mut polled, Some(&Timespec::default())), Ok(0), "it is silent again");
}
