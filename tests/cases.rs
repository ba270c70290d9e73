//! Cases that must hold over every transport, for a cluster of two or more engines.

use tickwire::internals::components::TagFilter;
use tickwire::internals::components::limits::{Limits, Matching};
use tickwire::testing::{Cluster, SimConfig, SimNet, SplitMix};
use tickwire::{List, Rank, Request, RequestError, Source, Tag, Test};

/// Most rounds of any case. They are two seconds of virtual time, twenty times what a loaded simulation needs.
pub const BOUND: u32 = 20_000;

/// Message lengths at and around every limit: cache lines, words, eager limits, pieces, rings.
pub const LENGTHS: [usize; 16] =
    [0, 1, 7, 8, 9, 32, 33, 64, 1000, 4064, 4065, 8192, 8193, 32 << 10, (64 << 10) + 1, 300_000];

/// Bytes that tell which message they belong to, and where in it they are.
pub fn content(name: u64, length: usize) -> Vec<u8> {
    let mut random = SplitMix::new(name);
    let mut bytes: Vec<u8> = (0..length.div_ceil(8)).flat_map(|_| random.next_u64().to_le_bytes()).collect();
    bytes.truncate(length);
    bytes
}

/// Runs a case over each transport and with each implementation of matching.
pub fn everywhere(engines: u32, case: impl Fn(&mut Cluster)) {
    for matching in [Matching::Auto, Matching::Lists, Matching::Index] {
        let limits = Limits { matching, wildcard_bits: 8, ..Limits::default() };
        case(&mut Cluster::loopback_with(engines, |builder| builder.limits(limits.clone())));
    }
    case(&mut Cluster::shm(engines));
    for seed in 0..3 {
        let config = SimConfig { remote_read: seed > 0, unread_of_256: 64, ..SimConfig::new(seed) };
        case(&mut Cluster::sim(engines, &SimNet::new(engines, config)));
    }
}

/// Runs all cases below.
pub fn all(cluster: &mut Cluster) {
    posted_while_connecting(cluster);
    every_length(cluster);
    truncation(cluster);
    pieces(cluster);
    wildcards(cluster);
    oneself(cluster);
    storm(cluster, 7, 12);
}

/// Messages sent before there is a connection arrive in order.
pub fn posted_while_connecting(cluster: &mut Cluster) {
    let last = cluster.engines.len() - 1;
    let world = cluster.engines[0].comm_world();
    let messages: Vec<Vec<u8>> = (0..20).map(|n| content(n, (n as usize * 997) % 12_000)).collect();
    let sends: Vec<Request<Vec<u8>>> =
        messages.iter().map(|m| cluster.engines[last].isend(m.clone(), Rank(0), Tag(1), world).unwrap()).collect();
    for message in &messages {
        let receive = cluster.engines[0].irecv(vec![0u8; 12_000], Rank(last as u32), Tag(1), world).unwrap();
        let (bytes, status) = cluster.finish(BOUND, 0, receive).unwrap();
        assert_eq!((status.length, &bytes[..status.length]), (message.len(), &message[..]));
    }
    for send in sends {
        cluster.finish(BOUND, last, send).unwrap();
    }
    cluster.assert_at_rest();
}

/// Messages of every length in both directions. The receive is posted before the message or after it.
pub fn every_length(cluster: &mut Cluster) {
    let world = cluster.engines[0].comm_world();
    for (from, to) in [(0usize, 1usize), (1, 0)] {
        for expected in [true, false] {
            for length in LENGTHS {
                let message = content(length as u64, length);
                let mut receive = None;
                let post = |cluster: &mut Cluster| {
                    let buffer = vec![0xEEu8; length + 3];
                    cluster.engines[to].irecv(buffer, Rank(from as u32), Tag(2), world).unwrap()
                };
                if expected {
                    receive = Some(post(cluster));
                }
                let send = cluster.engines[from].isend(message.clone(), Rank(to as u32), Tag(2), world).unwrap();
                if !expected {
                    cluster.tick_times(5);
                }
                let receive = receive.unwrap_or_else(|| post(cluster));
                let (bytes, status) = cluster.finish(BOUND, to, receive).unwrap();
                assert_eq!((status.source, status.tag, status.length), (Rank(from as u32), Tag(2), length));
                assert!(bytes[..length] == message && bytes[length..] == [0xEE; 3], "{length} bytes are intact");
                let (sent, _) = cluster.finish(BOUND, from, send).unwrap();
                assert!(sent == message, "the sender has its buffer back");
            }
        }
    }
    cluster.assert_at_rest();
}

/// If a message is too long for its receive, that receive fails. The next receive is not affected.
pub fn truncation(cluster: &mut Cluster) {
    let world = cluster.engines[0].comm_world();
    for expected in [true, false] {
        for (length, capacity) in [(100, 60), (100, 0), (200_000, 1000), (200_000, 100_000), (200_000, 0)] {
            let (long, next) = (content(1, length), content(2, 50));
            let post = |cluster: &mut Cluster| {
                let first = cluster.engines[1].irecv(vec![0u8; capacity], Source::Any, Tag(3), world).unwrap();
                (first, cluster.engines[1].irecv(vec![0u8; 50], Rank(0), Tag(3), world).unwrap())
            };
            let mut receives = None;
            if expected {
                receives = Some(post(cluster));
            }
            let sends = [&long, &next].map(|m| cluster.engines[0].isend(m.clone(), Rank(1), Tag(3), world).unwrap());
            if !expected {
                cluster.tick_times(5);
            }
            let (first, second) = receives.unwrap_or_else(|| post(cluster));
            let failed = cluster.finish(BOUND, 1, first).unwrap_err();
            let RequestError::Truncated { status, capacity: found } = failed.error else { panic!("{failed:?}") };
            assert_eq!((status.length, status.source, found), (length, Rank(0), capacity));
            assert_eq!(failed.buffer.unwrap(), long[..capacity], "what fits has arrived");
            assert_eq!(cluster.finish(BOUND, 1, second).unwrap().0, next);
            for send in sends {
                cluster.finish(BOUND, 0, send).unwrap();
            }
        }
    }
    cluster.assert_at_rest();
}

/// Messages from buffers of several runs into buffers whose runs are cut at other places.
pub fn pieces(cluster: &mut Cluster) {
    let world = cluster.engines[0].comm_world();
    let cut = |bytes: &[u8], cuts: &[usize]| {
        let mut rest = bytes;
        let mut runs: Vec<Vec<u8>> = Vec::new();
        for &length in cuts {
            let (run, after) = rest.split_at(length.min(rest.len()));
            runs.push(run.to_vec());
            rest = after;
        }
        runs.push(rest.to_vec());
        List(runs)
    };
    let shapes: [(usize, &[usize], &[usize]); 5] = [
        (100, &[10, 0, 50], &[33, 33]),
        (4000, &[1; 30], &[3999]),
        (150_000, &[70_000, 1, 0, 9], &[8, 100_000]),
        (150_000, &[], &[50_000, 50_000, 0]),
        (150_000, &[75_000], &[]),
    ];
    for expected in [true, false] {
        for (length, out, into) in shapes {
            let message = content(9, length);
            let send = cluster.engines[0].isend(cut(&message, out), Rank(1), Tag(4), world).unwrap();
            if !expected {
                cluster.tick_times(5);
            }
            let empty = cut(&vec![0u8; length], into);
            let receive = cluster.engines[1].irecv(empty, Rank(0), Tag(4), world).unwrap();
            let (runs, status) = cluster.finish(BOUND, 1, receive).unwrap();
            assert!(runs.concat() == message && status.length == length, "{length} bytes in runs of {into:?}");
            assert!(cluster.finish(BOUND, 0, send).unwrap().0.concat() == message);
        }
    }
    cluster.assert_at_rest();
}

/// Receives from any source and with any tag, beside a receive from one rank with one tag.
pub fn wildcards(cluster: &mut Cluster) {
    let engines = cluster.engines.len();
    let world = cluster.engines[0].comm_world();
    let known = cluster.engines[0].irecv(vec![0u8; 8], Rank(1), Tag(6), world).unwrap();
    let any: Vec<_> = (1..engines)
        .map(|_| cluster.engines[0].irecv(vec![0u8; 100_000], Source::Any, TagFilter::Any, world).unwrap())
        .collect();
    let mut sends = Vec::new();
    for rank in 1..engines {
        let message = content(rank as u64, if rank % 2 == 0 { 100_000 } else { 100 });
        sends.push((rank, cluster.engines[rank].isend(message, Rank(0), Tag(rank as u32 + 10), world).unwrap()));
    }
    sends.push((1, cluster.engines[1].isend(b"last one".to_vec(), Rank(0), Tag(6), world).unwrap()));
    let mut sources = Vec::new();
    for receive in any {
        let (bytes, status) = cluster.finish(BOUND, 0, receive).unwrap();
        assert_eq!(status.tag.0, status.source.0 + 10);
        assert!(bytes[..status.length] == content(status.source.0.into(), status.length));
        sources.push(status.source.0);
    }
    sources.sort_unstable();
    assert!(sources.into_iter().eq(1..engines as u32), "each message once");
    assert_eq!(cluster.finish(BOUND, 0, known).unwrap().0, b"last one");
    for (rank, send) in sends {
        cluster.finish(BOUND, rank, send).unwrap();
    }
    cluster.assert_at_rest();
}

/// Every engine sends messages to itself.
pub fn oneself(cluster: &mut Cluster) {
    let world = cluster.engines[0].comm_world();
    for rank in 0..cluster.engines.len() {
        for length in [0, 100, 50_000] {
            let message = content(rank as u64, length);
            let me = Rank(rank as u32);
            let send = cluster.engines[rank].isend(message.clone(), me, Tag(7), world).unwrap();
            let receive = cluster.engines[rank].irecv(vec![0u8; length], me, Tag(7), world).unwrap();
            assert!(cluster.finish(BOUND, rank, receive).unwrap().0 == message);
            cluster.finish(BOUND, rank, send).unwrap();
        }
    }
    cluster.assert_at_rest();
}

/// One message of a storm.
struct Planned {
    tag: u32,
    length: usize,
}

/// How an engine receives in a storm.
#[derive(Clone, Copy)]
enum Receives {
    /// From each source with each tag.
    Exact,
    /// From each source with any tag.
    AnyTag,
    /// From any source with any tag.
    Anything,
}

/// All engines send to all. Lengths, tags and the order of calls are random. Content and order are checked for each
/// pair.
pub fn storm(cluster: &mut Cluster, seed: u64, messages: usize) {
    let engines = cluster.engines.len();
    let mut random = SplitMix::new(seed);
    let mut plan = || {
        let length = match random.below(8) {
            0 => 20_000 + random.below(20_000),
            1 => 4000 + random.below(6000),
            2 => 0,
            _ => random.below(300),
        };
        Planned { tag: random.below(3) as u32, length: length as usize }
    };
    let plans: Vec<Vec<Vec<Planned>>> =
        (0..engines).map(|_| (0..engines).map(|_| (0..messages).map(|_| plan()).collect()).collect()).collect();
    Storm { plans: &plans, random, sends: Vec::new(), receives: Vec::new() }.run(cluster);
    cluster.assert_at_rest();
}

/// A receive of a storm: engine, source, tag, request.
type Asked = (usize, Option<usize>, Option<u32>, Request<Vec<u8>>);

/// A storm in progress.
struct Storm<'a> {
    /// The messages, by sender and then by receiver.
    plans: &'a [Vec<Vec<Planned>>],
    random: SplitMix,
    sends: Vec<(usize, Request<Vec<u8>>)>,
    /// The receives, in the order of posting.
    receives: Vec<Asked>,
}

fn name(from: usize, to: usize, number: usize) -> u64 {
    ((from as u64) << 40) | ((to as u64) << 20) | number as u64
}

impl Storm<'_> {
    fn run(mut self, cluster: &mut Cluster) {
        let engines = self.plans.len();
        // All calls in random order: a send or a receive for each message of each pair. A pair's messages keep their
        // order.
        let mut calls: Vec<(bool, usize, usize)> = (0..engines)
            .flat_map(|from| (0..engines).flat_map(move |to| [(true, from, to), (false, from, to)]))
            .flat_map(|call| std::iter::repeat_n(call, self.plans[0][0].len()))
            .collect();
        for at in (1..calls.len()).rev() {
            calls.swap(at, self.random.below(at as u64 + 1) as usize);
        }
        let mut next = vec![[0usize; 2]; engines * engines];
        for (sends, from, to) in calls {
            let number = &mut next[from * engines + to][usize::from(sends)];
            match sends {
                true => self.send(cluster, from, to, *number),
                false => self.receive(cluster, from, to, *number),
            }
            *number += 1;
            match self.random.below(engines as u64 * 4) {
                0 => drop(cluster.tick_all()),
                n if n < engines as u64 => drop(cluster.tick(n as usize)),
                _ => {}
            }
        }
        self.finish(cluster);
    }

    fn send(&mut self, cluster: &mut Cluster, from: usize, to: usize, number: usize) {
        let Planned { tag, length } = self.plans[from][to][number];
        let bytes = content(name(from, to, number), length);
        let world = cluster.engines[from].comm_world();
        self.sends.push((from, cluster.engines[from].isend(bytes, Rank(to as u32), Tag(tag), world).unwrap()));
    }

    fn receive(&mut self, cluster: &mut Cluster, from: usize, to: usize, number: usize) {
        let how = [Receives::Exact, Receives::AnyTag, Receives::Anything][to % 3];
        let (source, tag) = match how {
            Receives::Exact => (Some(from), Some(self.plans[from][to][number].tag)),
            Receives::AnyTag => (Some(from), None),
            Receives::Anything => (None, None),
        };
        let world = cluster.engines[to].comm_world();
        let source_filter = source.map_or(Source::Any, |rank| Source::Rank(Rank(rank as u32)));
        let tag_filter = tag.map_or(TagFilter::Any, |tag| Tag(tag).into());
        let request = cluster.engines[to].irecv(vec![0u8; 40_000], source_filter, tag_filter, world).unwrap();
        self.receives.push((to, source, tag, request));
    }

    fn finish(self, cluster: &mut Cluster) {
        let engines = self.plans.len();
        // Whether each message of a pair has been received.
        let mut taken: Vec<Vec<bool>> = vec![vec![false; self.plans[0][0].len()]; engines * engines];
        for (to, source, tag, request) in self.receives {
            let (bytes, status) = cluster.finish(BOUND, to, request).unwrap();
            let from = status.source.0 as usize;
            assert!(source.is_none_or(|source| source == from) && tag.is_none_or(|tag| tag == status.tag.0));
            let plan = &self.plans[from][to];
            let taken = &mut taken[from * engines + to];
            // The receives of an engine are in the order of posting. So each one must have got the oldest message
            // that it may take.
            let number = (0..plan.len()).find(|&n| !taken[n] && tag.is_none_or(|tag| plan[n].tag == tag));
            let number = number.expect("a message is left");
            taken[number] = true;
            assert_eq!((status.tag.0, status.length), (plan[number].tag, plan[number].length), "{from} to {to}: order");
            assert!(bytes[..status.length] == content(name(from, to, number), status.length), "{from} to {to}: bytes");
        }
        assert!(taken.iter().flatten().all(|&taken| taken), "every message has arrived once");
        for (from, request) in self.sends {
            cluster.finish(BOUND, from, request).unwrap();
        }
    }
}

/// Whether a request is still pending.
pub fn is_pending<B: tickwire::internals::components::Pieces>(
    cluster: &mut Cluster,
    rank: usize,
    request: &Request<B>,
) -> bool {
    matches!(cluster.engines[rank].test(request), Ok(Test::Pending))
}
