//! Credit that is written into the peer's memory: when it comes, in which portions, and what the network counts.

use super::*;
use tickwire_components::credit::Credit;

const GRANT: Credit = Credit { lines: 40, envelopes: 7 };

fn collect(sim: &mut Sim<Loopback>, now_ns: u64) -> Credit {
    sim.drain(now_ns, &mut [Arrival::default()]);
    sim.credit_windows().expect("it is asked for").granted(0)
}

#[test]
fn credit_in_memory_comes_after_its_delay_and_once() {
    let config = SimConfig { credit_windows: true, delay_ns: 1000..1001, ..SimConfig::calm(3) };
    let (net, [mut a, mut b]) = pair(config);
    a.credit_windows().expect("it is asked for").grant(0, GRANT);
    assert_eq!(net.flight(0, 1).granted, GRANT);
    assert_eq!(
        (collect(&mut b, 999), collect(&mut b, 1000), collect(&mut b, 5000)),
        (Credit::NONE, GRANT, Credit::NONE)
    );
    assert_eq!((net.flight(0, 1).granted, collect(&mut a, 9000)), (Credit::NONE, Credit::NONE));
}

#[test]
fn credit_in_memory_comes_in_portions_and_whole() {
    let config = SimConfig { credit_windows: true, credit_portion: 5, ..SimConfig::calm(3) };
    let (net, [mut a, mut b]) = pair(config);
    (0..2).for_each(|_| a.credit_windows().expect("it is asked for").grant(0, GRANT));
    let (mut lines, mut envelopes) = (0, 0);
    for now_ns in 1..1000 {
        let Credit { lines: of_lines, envelopes: of_envelopes } = collect(&mut b, now_ns);
        assert!(of_lines <= 10 && of_envelopes <= 10, "of one grant, and what is left of the one before");
        (lines, envelopes) = (lines + of_lines, envelopes + of_envelopes);
    }
    assert_eq!((lines, envelopes), (2 * GRANT.lines, 2 * GRANT.envelopes));
    assert_eq!(net.flight(0, 1).granted, Credit::NONE);
}

#[test]
fn without_windows_credit_goes_with_frames() {
    let (_, [mut a, _b]) = pair(SimConfig::calm(3));
    assert!(a.credit_windows().is_none());
}
