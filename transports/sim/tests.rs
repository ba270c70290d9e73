mod delivering;
mod moving;
mod reading;
mod windows;

use super::*;
use crate::{Hub, Loopback};
use tickwire_components::NoBytes;
use tickwire_components::wire::Kind;

fn pair(config: SimConfig) -> (SimNet, [Sim<Loopback>; 2]) {
    let (hub, net) = (Hub::new(2, 4096), SimNet::new(2, config));
    let mut sims = [0, 1].map(|me| Sim::new(Loopback::join(&hub, me).unwrap(), me, &net));
    let mut events = Vec::new();
    let link = sims[0].connect(1, &[], 0).unwrap();
    sims[0].control(0, &mut events);
    sims[0].attach(link, 7);
    sims[1].control(0, &mut events);
    assert!(matches!(events[1], LinkEvent::Accepted { link: 0, proc: 0 }), "{events:?}");
    sims[1].attach(0, 9);
    (net, sims)
}

/// Sends frames with numbers as tags; returns (number, ns) as they came.
fn run(seed: u64, frames: u32) -> Vec<(u32, u64)> {
    let (_, [mut a, mut b]) = pair(SimConfig::new(seed));
    let (mut next, mut out, mut now_ns) = (0, Vec::new(), 0);
    let mut arrivals = [Arrival::default(); 8];
    while out.len() < frames as usize {
        let header = Header::new(Kind::Eager, 0, 0, next, 0, 0);
        if next < frames && a.send(0, &header, &NoBytes, &mut SimState::default()) == Sent::Done {
            next += 1;
        }
        let count = b.drain(now_ns, &mut arrivals);
        out.extend(arrivals[..count].iter().map(|a| (a.header.tag(), now_ns)));
        assert!(arrivals[..count].iter().all(|a| a.vc == 9));
        b.release();
        now_ns += 100_000;
        assert!(now_ns < 10_000_000_000, "{out:?}");
    }
    out
}

#[test]
fn a_seed_reproduces_a_run_and_order_stays() {
    let first = run(1, 100);
    assert_eq!(first, run(1, 100));
    assert_ne!(first, run(2, 100));
    assert!(first.iter().map(|(number, _)| *number).eq(0..100));
}

/// Sends frames with numbers as tags and payloads until they have gone; returns what comes in virtual time.
fn send_all(sims: &mut [Sim<Loopback>; 2], frames: u32, credit: Credit) -> Vec<(Header, Vec<u8>)> {
    let [a, b] = sims;
    let (mut next, mut out, mut now_ns) = (0, Vec::new(), 0);
    let (mut arrivals, mut state) = ([Arrival::default(); 8], SimState::default());
    for _ in 0..10_000 {
        let payload = vec![next as u8; next as usize % 100];
        let header = Header::new(Kind::Eager, 0, 0, next, 0, payload.len() as u64).with_credit(credit).0;
        if next < frames && a.send(0, &header, &payload, &mut state) == Sent::Done {
            next += 1;
        }
        a.control(now_ns, &mut Vec::new());
        let count = b.drain(now_ns, &mut arrivals);
        out.extend(arrivals[..count].iter().map(|a| (a.header, bytes(a.payload).into_vec())));
        b.release();
        now_ns += 100_000;
    }
    assert_eq!(next, frames, "all have gone");
    out
}

fn tags(frames: &[(Header, Vec<u8>)]) -> Vec<u32> {
    frames.iter().map(|(header, _)| header.tag()).collect()
}

#[test]
#[cfg_attr(miri, ignore = "takes minutes there, and has no unsafe code that the others have not")]
fn a_frame_that_is_taken_in_parts_arrives_whole_and_nothing_goes_between() {
    let config = SimConfig { partial_of_256: 200, blocked_of_256: 50, ..SimConfig::calm(5) };
    let (_, mut sims) = pair(config);
    assert!(!sims[0].capabilities().whole_frames);
    let header = Header::new(Kind::Eager, 0, 0, 0, 0, 50);
    let (mut first, payload) = (SimState::default(), vec![9u8; 50]);
    assert_eq!(sims[0].send(0, &header, &payload, &mut first), Sent::Blocked);
    while first.begun.is_none() {
        assert_eq!(sims[0].send(0, &header, &payload, &mut first), Sent::Blocked);
    }
    for _ in 0..50 {
        assert_eq!(sims[0].send(0, &header, &NoBytes, &mut SimState::default()), Sent::Blocked);
    }
    while sims[0].send(0, &header, &payload, &mut first) != Sent::Done {}
    let frames = send_all(&mut sims, 200, Credit::NONE);
    assert_eq!(frames[0].1, [9; 50]);
    assert!(tags(&frames[1..]).into_iter().eq(0..200));
    assert!(frames[1..].iter().all(|(h, p)| *p == vec![h.tag() as u8; h.tag() as usize % 100]));
}

#[test]
#[cfg_attr(miri, ignore = "takes minutes there, and has no unsafe code that the others have not")]
fn credit_is_kept_back_and_none_is_lost() {
    let (net, mut sims) = pair(SimConfig { credit_portion: 7, delay_ns: 0..500_000, ..SimConfig::calm(5) });
    let frames = send_all(&mut sims, 50, Credit { lines: 20, envelopes: 3 });
    let most = frames.iter().map(|(header, _)| header.credit().lines.max(header.credit().envelopes)).max();
    assert_eq!(most, Some(7));
    let sum = frames.iter().fold((0, 0), |sum, (h, _)| (sum.0 + h.credit().lines, sum.1 + h.credit().envelopes));
    assert_eq!(sum, (1000, 150), "{} frames", frames.len());
    assert_eq!(net.flight(0, 1), Flight::default());
    let mut tags = tags(&frames);
    tags.retain(|&tag| tag > 0);
    assert!(tags.into_iter().eq(1..50), "frames that bring the rest are in between");
}

#[test]
fn a_storm_refuses_everything_for_its_time() {
    let config = SimConfig { storm_of_256: 255, storm_ns: 5_000_000..5_000_001, ..SimConfig::calm(5) };
    let (_, [mut a, _]) = pair(config);
    let header = Header::new(Kind::Eager, 0, 0, 0, 0, 0);
    let sent: Vec<Sent> = (0..40).map(|_| a.send(0, &header, &NoBytes, &mut SimState::default())).collect();
    let first = sent.iter().position(|&sent| sent == Sent::Blocked).unwrap();
    assert!(sent[first..].iter().all(|&sent| sent == Sent::Blocked));
}

#[test]
#[cfg_attr(miri, ignore = "takes minutes there, and has no unsafe code that the others have not")]
fn frames_are_changed_as_asked() {
    for corruption in [Corruption::Refused, Corruption::Payload, Corruption::Header] {
        let (net, mut sims) = pair(SimConfig { corrupt_of_65536: 6000, corruption, ..SimConfig::calm(8) });
        let frames = send_all(&mut sims, 150, Credit::NONE);
        let good = |header: &Header| header.kind() == Some(Kind::Eager) && header.tag() < 150;
        let bad = frames.iter().filter(|(header, _)| !good(header)).count() as u64;
        let differ = |(h, p): &(Header, Vec<u8>)| p.iter().filter(|&&byte| byte != h.tag() as u8).count() as u64;
        let bytes: u64 = frames.iter().filter(|(header, _)| good(header)).map(differ).sum();
        let changed = net.corrupted(0, 1);
        match corruption {
            Corruption::Refused => assert_eq!((bad, bytes, frames.len()), (changed, 0, 150)),
            Corruption::Payload => assert_eq!((bad, bytes, frames.len()), (0, changed, 150)),
            Corruption::Header => assert!(frames.len() < 150, "the link has ended at the first wrong length"),
        }
        assert!(changed > 0);
    }
}

#[test]
#[cfg_attr(miri, ignore = "takes minutes there, and has no unsafe code that the others have not")]
fn frames_of_one_vc_keep_their_order_and_those_of_two_do_not() {
    let (hub, net) = (Hub::new(3, 4096), SimNet::new(3, SimConfig { shuffled: true, ..SimConfig::calm(1) }));
    let mut sims = [0, 1, 2].map(|me| Sim::new(Loopback::join(&hub, me).unwrap(), me, &net));
    let header = |tag| Header::new(Kind::Eager, 0, 0, tag, 0, 0);
    for me in [1, 2] {
        let link = sims[me].connect(0, &[], 0).unwrap();
        sims[me].control(0, &mut Vec::new());
        for tag in 0..10 {
            let sent = sims[me].send(link, &header(tag), &NoBytes, &mut SimState::default());
            assert_eq!(sent, Sent::Done);
        }
    }
    let (mut events, mut arrivals) = (Vec::new(), [Arrival::default(); 32]);
    sims[0].control(0, &mut events);
    for event in events {
        let LinkEvent::Accepted { link, proc } = event else { panic!("{event:?}") };
        sims[0].attach(link, proc);
    }
    assert_eq!(sims[0].drain(1, &mut arrivals), 20);
    let of = |vc| arrivals[..20].iter().filter(move |a| a.vc == vc).map(|a| a.header.tag());
    assert!(of(1).eq(0..10) && of(2).eq(0..10));
    let changes = arrivals[..20].windows(2).filter(|pair| pair[0].vc != pair[1].vc).count();
    assert!(changes > 3, "{changes}");
}

#[test]
#[cfg_attr(miri, ignore = "takes minutes there, and has no unsafe code that the others have not")]
fn a_closed_link_is_told_to_the_other_side_after_what_was_sent() {
    let (_, [mut a, mut b]) = pair(SimConfig { delay_ns: 1_000_000..1_000_001, ..SimConfig::calm(3) });
    let header = Header::new(Kind::Eager, 0, 0, 0, 0, 0);
    assert_eq!(a.send(0, &header, &NoBytes, &mut SimState::default()), Sent::Done);
    a.close_link(0);
    let (mut events, mut arrivals) = (Vec::new(), [Arrival::default(); 8]);
    b.control(100_000, &mut events);
    assert_eq!((events.len(), b.drain(2_000_000, &mut arrivals)), (0, 1));
    b.control(2_000_000, &mut events);
    assert!(matches!(events[..], [LinkEvent::Failed { link: 0, .. }]), "{events:?}");
}

#[test]
#[cfg_attr(miri, ignore = "takes minutes there, and has no unsafe code that the others have not")]
fn the_dead_are_silent_and_their_end_is_told_after_what_they_said() {
    let config = SimConfig { blocked_of_256: 0, delay_ns: 5_000_000..5_000_001, ..SimConfig::new(3) };
    let (net, [mut a, mut b]) = pair(config);
    net.kill(0, Death::Frame(2));
    let header = Header::new(Kind::Eager, 0, 0, 0, 0, 0);
    let sent: Vec<Sent> = (0..4).map(|_| a.send(0, &header, &NoBytes, &mut SimState::default())).collect();
    assert_eq!(sent, [Sent::Done, Sent::Done, Sent::Failed, Sent::Failed]);
    assert_eq!((net.frames(0), net.died_ns(0)), (2, Some(0)));
    let (mut events, mut arrivals) = (Vec::new(), [Arrival::default(); 8]);
    b.control(1_000_000, &mut events);
    assert_eq!((events.len(), b.drain(1_000_000, &mut arrivals)), (0, 0));
    b.control(200_000_000, &mut events);
    assert!(events.is_empty(), "two frames are still to be read");
    assert_eq!(b.drain(200_000_000, &mut arrivals), 2);
    b.control(200_000_000, &mut events);
    assert!(matches!(events[..], [LinkEvent::Failed { link: 0, .. }]), "{events:?}");
}
