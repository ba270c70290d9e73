//! Which protocol moves a message, by transport and length. The engine's own endpoints are asked.

use comfy_table::Table;
use serde::Serialize;
use tickwire::Limits;
use tickwire::internals::components::Protocol;
use tickwire::internals::systems::procs::endpoint::{Endpoint, Place};
use tickwire::internals::transports::{AnyTransport, Hub, Loopback, Shm, ShmConfig, heap};

/// How messages of a range of lengths go.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub(super) struct Way {
    transport: &'static str,
    /// Shortest and longest message, bytes. `None`: there is no longest one.
    from: u64,
    to: Option<u64>,
    /// The protocol of a message that has credit.
    protocol: String,
    /// The protocol in synchronous mode, or without credit.
    offered: String,
}

/// Opens each transport once. A transport that cannot be opened has no ways.
pub(super) fn all(limits: &Limits) -> Vec<Way> {
    let mut ways = Vec::new();
    let mut add = |name, transport, memory| {
        ways.extend(of(name, &Endpoint::new(transport, limits, None), memory));
    };
    if let Ok(loopback) = Loopback::join(&Hub::alone(0, limits.ring_bytes), 0) {
        add("loopback", AnyTransport::from(loopback), "");
    }
    let config = || ShmConfig::new(format!("info-{}", std::process::id()), 0, 2);
    if let Ok(shm) = Shm::open(config()) {
        add("shm", AnyTransport::from(shm), ", through the kernel, or staged");
    }
    // As an engine with the shared heap. Its receivers read the heap themselves, even if the kernel may not read other memory.
    let mut shared = config();
    (shared.shared_heap, shared.cross_memory_attach) = (true, false);
    if heap::open().is_ok()
        && let Ok(shm) = Shm::open(shared)
    {
        add("shm, out of the shared heap", AnyTransport::from(shm), ", without a system call");
    }
    ways
}

/// The ways of an endpoint. The endpoint is asked at every length at which its answer can change.
fn of(transport: &'static str, endpoint: &Endpoint, memory: &str) -> Vec<Way> {
    let place = if endpoint.mapped.bytes > 0 { Place::Mapped } else { Place::Run };
    let Endpoint { part_bytes, eager_max, read_min, mapped_min, .. } = *endpoint;
    let mut lengths = vec![0, part_bytes.saturating_add(1), eager_max + 1, read_min, mapped_min];
    lengths.retain(|length| *length < u64::MAX);
    lengths.sort_unstable();
    lengths.dedup();
    let mut ways: Vec<Way> = Vec::new();
    for from in lengths {
        let words = |offered| words(endpoint, endpoint.protocol(from, place, offered), memory);
        let way = Way { transport, from, to: None, protocol: words(false), offered: words(true) };
        match ways.last_mut() {
            Some(last) if (&last.protocol, &last.offered) == (&way.protocol, &way.offered) => {}
            last => {
                if let Some(last) = last {
                    last.to = Some(from - 1);
                }
                ways.push(way);
            }
        }
    }
    ways
}

fn words(endpoint: &Endpoint, protocol: Protocol, memory: &str) -> String {
    match protocol {
        Protocol::Eager => "eager, in one frame".into(),
        Protocol::Parts => format!("eager, in parts of {} B", endpoint.part_bytes),
        Protocol::Pieces => format!("pieces of {} B", endpoint.piece_bytes),
        Protocol::Read => format!("read by its receiver{memory}"),
        other => format!("{other:?}"),
    }
}

/// A row for each way.
pub(super) fn table(ways: &[Way]) -> Table {
    let rows = ways.iter().map(|way| {
        let to = way.to.map_or("longer".to_owned(), |to| to.to_string());
        [way.transport.to_owned(), way.from.to_string(), to, way.protocol.clone(), way.offered.clone()]
    });
    let header = ["over", "from B", "to B", "a message goes", "if synchronous, or without credit"];
    super::table(header, [false, true, true, false, false], rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ways(limits: &Limits) -> Vec<(u64, Option<u64>, String, String)> {
        let loopback = Loopback::join(&Hub::alone(0, limits.ring_bytes), 0).unwrap();
        let endpoint = Endpoint::new(AnyTransport::from(loopback), limits, None);
        let ways = of("loopback", &endpoint, "");
        // The answer stays the same within a row, and changes from row to row.
        let words = |length, offered| words(&endpoint, endpoint.protocol(length, Place::Run, offered), "");
        for way in &ways {
            for length in [way.from, way.to.unwrap_or(1 << 40)] {
                assert_eq!((words(length, false), words(length, true)), (way.protocol.clone(), way.offered.clone()));
            }
        }
        ways.into_iter().map(|way| (way.from, way.to, way.protocol, way.offered)).collect()
    }

    #[test]
    fn lengths_are_cut_where_the_endpoint_changes_its_mind() {
        let limits = Limits { part_bytes: 1000, eager_max: 5000, piece_bytes: 7000, ..Limits::default() };
        let pieces = || "pieces of 7000 B".to_owned();
        let expected = [
            (0, Some(1000), "eager, in one frame".to_owned(), pieces()),
            (1001, Some(5000), "eager, in parts of 1000 B".to_owned(), pieces()),
            (5001, None, pieces(), pieces()),
        ];
        assert_eq!(ways(&limits), expected);
        let limits = Limits { eager_max: 500, ..limits };
        assert_eq!(ways(&limits).iter().map(|way| way.0).collect::<Vec<_>>(), [0, 501]);
    }

    #[test]
    fn the_shared_heap_is_read_wherever_it_can_be_opened() {
        let ways = all(&Limits::default());
        let longest = |name| ways.iter().rfind(|way| way.transport == name).map(|way| &*way.protocol);
        assert!(longest("loopback").is_some_and(|words| words.starts_with("pieces")), "{ways:?}");
        if heap::possible().is_ok() && longest("shm").is_some() {
            assert_eq!(longest("shm, out of the shared heap"), Some("read by its receiver, without a system call"));
            let from =
                ways.iter().filter(|way| way.transport.ends_with("heap")).map(|way| way.from).collect::<Vec<_>>();
            assert_eq!(from, [0, Limits::default().mapped_min as u64]);
        }
    }
}
