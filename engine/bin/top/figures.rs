//! Makes the rows of the tables from two samples of a job.

use std::collections::BTreeMap;

use tickwire::internals::traces::page::{PeerFigures, Snapshot};
use tickwire::internals::traces::words::{Bytes, Nanoseconds};

use super::{Sample, Seen};

/// Columns of the table of ranks.
pub(crate) const RANKS: [&str; 15] = [
    "RANK",
    "PID",
    "STATE",
    "TICKS/S",
    "IDLE",
    "ASLEEP",
    "FRAMES OUT/S",
    "FRAMES IN/S",
    "OUT/S",
    "IN/S",
    "READ/S",
    "PENDING",
    "POSTED",
    "SENDS",
    "UNEXPECTED",
];
/// Columns of the table of transports.
pub(crate) const TRANSPORTS: [&str; 7] = ["TRANSPORT", "LINKS", "OUT/S", "IN/S", "READ/S", "OUT AND READ", "IN"];
/// Columns of the table of peers.
pub(crate) const PEERS: [&str; 11] =
    ["PEER", "STATE", "TRANSPORT", "ONE-SIDED", "OUT/S", "IN/S", "READ/S", "OUT", "IN AND READ", "POSTED", "SENDS"];

/// A rank that has not ticked for this long is shown as silent, ns. In a shorter time it may just not have had a processor.
const SILENT_NS: u64 = 500_000_000;

/// A row of a table.
pub(crate) trait Row<const N: usize> {
    /// The cells.
    fn cells(&self) -> [String; N];
}

/// Bytes sent, received and read: a second, and in all.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Flow {
    pub(crate) rates: [f64; 3],
    pub(crate) sums: [u64; 3],
}

impl Flow {
    fn of(before: Option<&PeerFigures>, now: &PeerFigures, seconds: f64) -> Self {
        let sums = [now.sent, now.received, now.read];
        let old = before.map_or(sums, |old| [old.sent, old.received, old.read]);
        Flow { rates: std::array::from_fn(|i| sums[i].saturating_sub(old[i]) as f64 / seconds), sums }
    }

    fn add(&mut self, other: &Flow) {
        for i in 0..3 {
            self.rates[i] += other.rates[i];
            self.sums[i] = self.sums[i].saturating_add(other.sums[i]);
        }
    }
}

/// A peer of a rank.
#[derive(Clone, Debug)]
pub(crate) struct Peer {
    pub(crate) proc: u64,
    pub(crate) state: &'static str,
    pub(crate) transport: String,
    /// The transport of one-sided traffic.
    pub(crate) one_sided: String,
    pub(crate) flow: Flow,
    pub(crate) posted: u64,
    pub(crate) sends: u64,
}

/// A rank of the job.
#[derive(Clone, Debug, Default)]
pub(crate) struct Rank {
    pub(crate) rank: u32,
    pub(crate) pid: Option<u32>,
    pub(crate) state: String,
    /// Ticks, frames sent and frames received a second.
    pub(crate) rates: [f64; 3],
    /// Share of the ticks that found nothing, and share of the time in which the rank slept.
    pub(crate) idle: f64,
    pub(crate) asleep: f64,
    pub(crate) flow: Flow,
    /// Operations not done, receives posted, sends waiting or moving, unexpected messages and their bytes.
    pub(crate) queues: [u64; 5],
    pub(crate) peers: Vec<Peer>,
}

/// A transport of the job.
#[derive(Clone, Debug, Default)]
pub(crate) struct Transport {
    pub(crate) name: String,
    pub(crate) links: u64,
    pub(crate) flow: Flow,
}

/// All ranks of a job, also those that have no process.
pub(crate) fn ranks(before: &Sample, now: &Sample) -> Vec<Rank> {
    let seconds = now.at.duration_since(before.at).as_secs_f64().max(1e-3);
    let of_rank = |rank| {
        let without = |pid, state: &str| Rank { rank, pid, state: state.into(), ..Rank::default() };
        let (pid, page, now_ns) = match now.ranks.get(&rank) {
            None => return without(None, "no process"),
            Some(Seen::Unknown) => return without(None, "no answer"),
            Some(Seen::Process { pid, page: None }) => return without(Some(*pid), "no engine"),
            Some(Seen::Process { pid, page: Some((page, now_ns)) }) => (Some(*pid), page, *now_ns),
        };
        let old = match before.ranks.get(&rank) {
            Some(Seen::Process { page: Some((old, _)), .. }) if old.identity == page.identity => old,
            _ => page,
        };
        Rank { rank, pid, ..rank_of(old, page, seconds, now_ns) }
    };
    (0..now.size).map(of_rank).collect()
}

fn rank_of(old: &Snapshot, page: &Snapshot, seconds: f64, now_ns: u64) -> Rank {
    let (before, now) = (&old.figures, &page.figures);
    let passed = |now: u64, before: u64| now.saturating_sub(before) as f64;
    let ticks = passed(page.ticks, old.ticks);
    let named = |endpoint: u64| page.endpoints.get(endpoint as usize).cloned();
    let peer = |figures: &PeerFigures| Peer {
        proc: figures.proc,
        state: ["not connected", "connecting", "connected", "failed"].get(figures.state as usize).unwrap_or(&"unknown"),
        transport: named(figures.endpoint).unwrap_or_default(),
        one_sided: figures.one_sided.checked_sub(1).and_then(named).unwrap_or_else(|| "-".to_owned()),
        flow: Flow::of(old.peers.iter().find(|old| old.proc == figures.proc), figures, seconds),
        posted: figures.posted_receives,
        sends: figures.sends,
    };
    let peers: Vec<Peer> = page.peers.iter().map(peer).collect();
    let mut flow = Flow::default();
    peers.iter().for_each(|peer| flow.add(&peer.flow));
    let silent = now_ns.saturating_sub(now.written_ns);
    Rank {
        state: match () {
            () if now.closed != 0 => "closed".into(),
            () if now.written_ns == 0 => "starting".into(),
            () if page.asleep => "asleep".into(),
            () if ticks == 0.0 && silent >= SILENT_NS => format!("silent {}", Nanoseconds(silent)),
            () => "ticking".into(),
        },
        rates: [ticks, passed(now.sent, before.sent), passed(now.received, before.received)].map(|n| n / seconds),
        idle: if ticks > 0.0 { (1.0 - passed(now.busy, before.busy) / ticks).clamp(0.0, 1.0) } else { 1.0 },
        asleep: (passed(now.slept_ns, before.slept_ns) / 1e9 / seconds).clamp(0.0, 1.0),
        flow,
        queues: [
            now.active,
            now.posted_receives,
            now.queued_sends.saturating_add(now.offered_sends).saturating_add(now.moving),
            now.unexpected,
            now.unexpected_bytes,
        ],
        peers,
        ..Rank::default()
    }
}

impl Rank {
    /// The number by which a column is sorted.
    pub(crate) fn key(&self, column: usize) -> f64 {
        match column {
            1 => self.pid.unwrap_or(0).into(),
            3 => self.rates[0],
            4 => self.idle,
            5 => self.asleep,
            6 | 7 => self.rates[column - 5],
            8..=10 => self.flow.rates[column - 8],
            11..=14 => self.queues[column - 11] as f64,
            _ => self.rank.into(),
        }
    }
}

impl Row<15> for Rank {
    fn cells(&self) -> [String; 15] {
        let Rank { rank, pid, state, rates, idle, asleep, flow, queues, .. } = self;
        let [ticks, sent, received] = rates.map(number);
        let [out, into, read] = flow.rates.map(bytes);
        let [active, posted, sends, unexpected, held] = *queues;
        let unexpected = match unexpected {
            0 => "0".to_owned(),
            _ => format!("{unexpected} ({})", Bytes(held)),
        };
        let pid = pid.map_or("-".to_owned(), |pid| pid.to_string());
        let [active, posted, sends] = [active, posted, sends].map(|n| n.to_string());
        let (rank, state) = (rank.to_string(), state.clone());
        let [idle, asleep] = [idle, asleep].map(|share| format!("{:.0} %", share * 100.0));
        [rank, pid, state, ticks, idle, asleep, sent, received, out, into, read, active, posted, sends, unexpected]
    }
}

impl Transport {
    /// The transports of all ranks together.
    pub(crate) fn all(ranks: &[Rank]) -> Vec<Transport> {
        let mut found: BTreeMap<&str, Transport> = BTreeMap::new();
        for peer in ranks.iter().flat_map(|rank| &rank.peers) {
            let transport = found.entry(&peer.transport).or_default();
            transport.name.clone_from(&peer.transport);
            transport.links += u64::from(peer.state == "connected");
            transport.flow.add(&peer.flow);
        }
        found.into_values().collect()
    }
}

impl Row<7> for Transport {
    fn cells(&self) -> [String; 7] {
        let [out, into, read] = self.flow.rates.map(bytes);
        let [sent, received, direct] = self.flow.sums;
        // Bytes that a receiver has read out of a sender's memory were sent, too.
        let [sent, received] = [sent.saturating_add(direct), received].map(|n| Bytes(n).to_string());
        [self.name.clone(), self.links.to_string(), out, into, read, sent, received]
    }
}

impl Row<11> for Peer {
    fn cells(&self) -> [String; 11] {
        let Peer { proc, state, transport, one_sided, flow, posted, sends } = self;
        let [out, into, read] = flow.rates.map(bytes);
        let [sent, received] = [flow.sums[0], flow.sums[1].saturating_add(flow.sums[2])].map(|n| Bytes(n).to_string());
        let (proc, state, posted, sends) =
            (proc.to_string(), (*state).to_owned(), posted.to_string(), sends.to_string());
        [proc, state, transport.clone(), one_sided.clone(), out, into, read, sent, received, posted, sends]
    }
}

/// A rate in few characters.
fn number(rate: f64) -> String {
    match rate {
        r if r >= 1e9 => format!("{:.1} G", r / 1e9),
        r if r >= 1e6 => format!("{:.1} M", r / 1e6),
        r if r >= 1e4 => format!("{:.1} k", r / 1e3),
        r => format!("{r:.0}"),
    }
}

fn bytes(rate: f64) -> String {
    Bytes(rate as u64).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::{Duration, Instant};
    use tickwire::internals::traces::page::{Figures, Identity, Page};

    fn with(rank: u32, page: Snapshot) -> (u32, Seen) {
        (rank, Seen::Process { pid: 100 + rank, page: Some((Box::new(page), 12_000_000_005)) })
    }

    fn page(ticks: u64, busy: u64, sent: u64) -> Snapshot {
        let (received, read) = (64, sent * 2);
        let peer = PeerFigures { proc: 1, state: 2, one_sided: 2, sent, received, read, ..Default::default() };
        let figures = Figures { written_ns: 5, busy, unexpected: 2, unexpected_bytes: 96, ..Default::default() };
        Snapshot {
            ticks,
            figures,
            peers: vec![peer],
            endpoints: vec!["shm".into(), "ofi:net".into()],
            ..Default::default()
        }
    }

    #[test]
    fn figures_are_those_between_two_samples() {
        let at = Instant::now();
        let sample = |seconds: u64, ranks: Vec<(u32, Seen)>| Sample {
            at: at + Duration::from_secs(seconds),
            job: "job-1".into(),
            size: 5,
            ranks: ranks.into_iter().collect(),
        };
        let before = sample(0, vec![with(0, page(1000, 0, 0)), with(1, page(9, 9, 0))]);
        let (first, third) = (with(0, page(41_000, 10_000, 4000)), (2, Seen::Process { pid: 102, page: None }));
        let now = sample(2, vec![first, with(1, page(9, 9, 0)), third, (4, Seen::Unknown)]);
        let ranks = ranks(&before, &now);
        let states: Vec<&str> = ranks.iter().map(|rank| &*rank.state).collect();
        assert_eq!(states, ["ticking", "silent 12.0 s", "no engine", "no process", "no answer"]);
        let expected = ["0", "100", "ticking", "20.0 k", "75 %", "0 %", "0", "0", "2000 B", "0 B", "4000 B"];
        assert_eq!(&ranks[0].cells()[..11], expected);
        assert_eq!(ranks[0].cells()[14], "2 (96 B)");
        assert_eq!((ranks[0].key(3), ranks[0].key(10), ranks[3].key(0)), (20_000.0, 4000.0, 3.0));
        let shm = &Transport::all(&ranks)[0];
        assert_eq!(shm.cells(), ["shm", "2", "2000 B", "0 B", "4000 B", "11.7 KiB", "128 B"]);
        let peer = ranks[0].peers[0].cells();
        assert_eq!(peer, ["1", "connected", "shm", "ofi:net", "2000 B", "0 B", "4000 B", "4000 B", "8064 B", "0", "0"]);
    }

    #[test]
    fn transports_whose_names_begin_alike_have_a_row_each() {
        let names = ["ofi:verbs;ofi_rxm", "ofi:verbs;ofi_rxm@2"];
        let mut page = Page::new(Identity::default(), "job-1", &names, 2);
        let peer = |endpoint| PeerFigures { proc: endpoint, state: 2, endpoint, ..Default::default() };
        page.publish(Figures { peers: 2, ..Default::default() }, 0, (0..2).map(peer));
        let file = std::fs::File::from(page.file().unwrap().try_clone().unwrap());
        let ranks = [(); 2].map(|()| with(0, Snapshot::read(&file).unwrap()));
        let sample = |ranks| Sample { at: Instant::now(), job: "job-1".into(), size: 1, ranks };
        let [before, now] = ranks.map(|rank| sample([rank].into()));
        let transports = Transport::all(&super::ranks(&before, &now));
        assert_eq!(transports.iter().map(|of| (&*of.name, of.links)).collect::<Vec<_>>(), names.map(|name| (name, 1)));
    }
}
