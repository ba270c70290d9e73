//! Clusters that keep their events, and functions that pick events.

use tickwire::Engine;
use tickwire::internals::traces::{DELIVER, Event, Message, Ring};
use tickwire::internals::transports::{Hub, Loopback};
use tickwire::testing::{Cluster, ROWS, Sim, SimConfig, SimNet};

/// Capacity of a ring. No run here has more events.
pub(crate) const MANY: usize = 1 << 20;

/// A cluster in which each engine writes its events into its own ring.
pub(crate) fn told(engines: u32, make: impl Fn(u32) -> tickwire::Builder + Sync) -> (Cluster, Vec<Ring>) {
    let rings: Vec<Ring> = (0..engines).map(|_| Ring::new(MANY)).collect();
    let cluster = Cluster::build(engines, |rank| make(rank).initial_rows(ROWS).trace(rings[rank as usize].clone()));
    (cluster, rings)
}

/// Runs a case with such a cluster over each transport.
pub(crate) fn everywhere(engines: u32, case: impl Fn(Cluster, Vec<Ring>)) {
    let hub = Hub::new(engines, tickwire::internals::components::limits::LOOPBACK_RING_BYTES);
    let (cluster, rings) = told(engines, |_| Engine::builder().hub(hub.clone()));
    case(cluster, rings);
    let (cluster, rings) = told(engines, |_| Engine::builder());
    case(cluster, rings);
    let (cluster, rings) = simulated(engines, &SimNet::new(engines, SimConfig::new(5)));
    case(cluster, rings);
}

pub(crate) fn simulated(engines: u32, net: &SimNet) -> (Cluster, Vec<Ring>) {
    let hub = Hub::new(engines, tickwire::internals::components::limits::LOOPBACK_RING_BYTES);
    told(engines, |rank| {
        let inner = Loopback::join(&hub, rank).unwrap();
        Engine::builder().exclude(["loopback", "shm"]).transport(Sim::new(inner, rank, net))
    })
}

pub(crate) fn events(ring: &Ring) -> Vec<Event<'static>> {
    assert_eq!(ring.dropped(), 0);
    ring.events()
}

/// The number of runs of each system, and the number of rows in them.
pub(crate) fn runs(events: &[Event<'_>]) -> (Vec<u64>, Vec<u64>) {
    let (mut runs, mut rows) = (vec![0; DELIVER + 1], vec![0; DELIVER + 1]);
    for event in events {
        let (system, of, begin_ns, end_ns) = match *event {
            Event::SystemRan { system, rows, begin_ns, end_ns } => (usize::from(system), rows, begin_ns, end_ns),
            Event::Delivered { begin_ns, read_ns, end_ns, work } => {
                assert!(begin_ns <= read_ns && read_ns <= end_ns);
                (DELIVER, work.received.into(), begin_ns, end_ns)
            }
            _ => continue,
        };
        assert!(begin_ns <= end_ns);
        runs[system] += 1;
        rows[system] += of;
    }
    (runs, rows)
}

/// The messages between an engine and a peer, as the events of this engine report them.
pub(crate) fn messages(events: &[Event<'_>], peer: u32, sent: bool) -> Vec<Message> {
    let of = events.iter().filter_map(|event| match event {
        Event::Sent(message) if sent => Some(*message),
        Event::Received(message) if !sent => Some(*message),
        _ => None,
    });
    of.filter(|message| message.proc == peer).collect()
}
