//! What this program is and what this machine offers it.

use std::fmt;

use super::fabric::Fabric;
use serde::Serialize;
use tickwire::internals::components::limits::{NamedLimit, WALK_MAX};
use tickwire::internals::transports::heap::{self, ENV_SHARED_HEAP_BYTES};
use tickwire::internals::transports::ofi::OfiError;
use tickwire::internals::transports::rings::fences;
use tickwire::internals::transports::{
    AtomicWidths, Hub, Loopback, Ofi, OfiConfig, Reach, Shm, ShmConfig, TagLimits, Transport,
};
use tickwire::{AtomicsDomain, Bootstrap, Engine, Limits};

use super::routes::{self, To};
use super::ways::{self, Way};

/// Where segments of shared memory are made if this process may make no memfd.
const SHM_DIRECTORY: &str = "/dev/shm";

/// The report of `tickwire info`.
#[derive(Serialize)]
pub(crate) struct Report {
    versions: Versions,
    /// The launcher of this process, with the number of ranks and hosts.
    launcher: String,
    transports: Vec<Found>,
    /// Which transport each class of traffic takes.
    routes: Vec<To>,
    /// Why there are no routes.
    routes_missing: Option<String>,
    protocols: Vec<Way>,
    libfabric: Fabric,
    machine: Machine,
    limits: Vec<Limit>,
}

#[derive(Serialize)]
struct Versions {
    tickwire: &'static str,
    bevy_ecs: &'static str,
    rustc: Option<String>,
}

/// A transport as it was found.
#[derive(Serialize)]
struct Found {
    name: String,
    /// Why the transport cannot be used.
    missing: Option<String>,
    capabilities: Vec<(&'static str, String)>,
}

#[derive(Serialize)]
struct Machine {
    cores: usize,
    page_bytes: usize,
    one_sided_fences: bool,
    shm_directory: &'static str,
    shm_free_bytes: Option<u64>,
    shm_bytes: Option<u64>,
    /// The size that a shared heap would have. `None` if there cannot be one.
    shared_heap_bytes: Option<usize>,
    /// Why there cannot be a shared heap.
    shared_heap_missing: Option<String>,
}

#[derive(Serialize)]
struct Limit {
    name: &'static str,
    value: u64,
    what: &'static str,
}

impl From<NamedLimit> for Limit {
    fn from(NamedLimit { name, value, what }: NamedLimit) -> Self {
        Limit { name, value, what }
    }
}

impl Report {
    /// Opens each transport once, and asks the system.
    pub(crate) fn gather() -> Self {
        let space = rustix::fs::statvfs(SHM_DIRECTORY).ok();
        let heap = heap::possible();
        let routes = routes::gather();
        // If the environment's limits are wrong, no engine can be built, and the report says why.
        let limits = Engine::builder().effective_limits().unwrap_or_default();
        Report {
            versions: Versions {
                tickwire: env!("CARGO_PKG_VERSION"),
                bevy_ecs: locked_version("bevy_ecs"),
                rustc: compiler(),
            },
            launcher: launcher(),
            transports: transports(),
            routes_missing: routes.as_ref().err().cloned(),
            routes: routes.unwrap_or_default(),
            protocols: ways::all(&limits),
            libfabric: Fabric::gather(),
            machine: Machine {
                cores: std::thread::available_parallelism().map_or(1, usize::from),
                page_bytes: rustix::param::page_size(),
                one_sided_fences: fences::one_sided(),
                shm_directory: SHM_DIRECTORY,
                shm_free_bytes: space.as_ref().map(|space| space.f_bavail * space.f_frsize),
                shm_bytes: space.as_ref().map(|space| space.f_blocks * space.f_frsize),
                shared_heap_bytes: heap.ok(),
                shared_heap_missing: heap.err().map(|why| why.to_string()),
            },
            limits: limits.named().into_iter().map(Limit::from).collect(),
        }
    }
}

/// The version of a dependency that this program was built with.
fn locked_version(name: &str) -> &'static str {
    let lock = include_str!("../../../Cargo.lock");
    let entry = lock.split("[[package]]").find(|entry| entry.contains(&format!("name = \"{name}\"\n")));
    let version = entry.and_then(|entry| entry.split("version = \"").nth(1)?.split('"').next());
    version.unwrap_or("unknown")
}

/// The version of the compiler, out of the text that compilers and linkers leave in the program.
fn compiler() -> Option<String> {
    let program = std::fs::read("/proc/self/exe").ok()?;
    // In two parts, so that the search does not find this string itself.
    let mark = ["rustc ver", "sion "].concat();
    let mut found = program.windows(mark.len()).enumerate().filter(|(_, bytes)| *bytes == mark.as_bytes());
    found.find_map(|(place, _)| {
        let rest = &program[place + mark.len()..];
        let end = rest.iter().take(64).position(|&byte| byte == 0)?;
        let text = std::str::from_utf8(&rest[..end]).ok()?;
        text.starts_with(|c: char| c.is_ascii_digit()).then(|| text.to_owned())
    })
}

/// What connects this process to other ranks, or why nothing can. All ranks of a job must run this, since they look for each other.
fn launcher() -> String {
    match Bootstrap::from_env() {
        Ok(bootstrap) => bootstrap.describe(),
        Err(error) => format!("not usable: {error}"),
    }
}

fn transports() -> Vec<Found> {
    let limits = Limits::default();
    let loopback = Loopback::join(&Hub::alone(0, limits.ring_bytes), 0);
    let shm = Shm::open(ShmConfig::new(format!("info-{}", std::process::id()), 0, 2));
    let ofi = OfiConfig::new("info", 0, 2);
    // If no endpoint can be opened, the table of candidates says why, unless a tag mode is the reason.
    let opened = ofi.choice.or_environment().and_then(|choice| Ofi::open(&OfiConfig { choice, ..ofi }));
    let (fabrics, refused) = match opened {
        Ok(fabrics) => (fabrics, None),
        Err(error @ OfiError::Tags { .. }) => (Vec::new(), Some(missing("ofi".into(), error.to_string()))),
        Err(_) => (Vec::new(), None),
    };
    let near = [found("loopback", loopback), found("shm", shm.map_err(|error| error.to_string()))];
    near.into_iter().chain(fabrics.into_iter().map(fabric)).chain(refused).collect()
}

/// An endpoint over libfabric. Its description also says who matches, and what fits into its tags.
fn fabric(mut ofi: Ofi) -> Found {
    let mut capabilities = describe(&mut ofi);
    capabilities.push(("matching", ofi.who_matches().to_owned()));
    if ofi.matching().is_some() {
        let TagLimits { contexts, incarnations, ranks, tag_max, .. } = ofi.capabilities().tags;
        let words = format!("{contexts} contexts, each {incarnations} times, {ranks} ranks, tags to {tag_max}");
        capabilities.push(("tag_limits", words));
    }
    Found { name: ofi.name().into(), missing: None, capabilities }
}

fn found(name: &str, opened: Result<impl Transport, String>) -> Found {
    let name = name.into();
    match opened {
        Ok(mut transport) => Found { name, missing: None, capabilities: describe(&mut transport) },
        Err(why) => missing(name, why),
    }
}

fn missing(name: String, why: String) -> Found {
    Found { name, missing: Some(why), capabilities: Vec::new() }
}

fn describe(transport: &mut impl Transport) -> Vec<(&'static str, String)> {
    let (matches, registers) = (transport.matching().is_some(), transport.registering().is_some());
    let shares = transport.shared_memory().is_some();
    let widths = transport.one_sided().map(|facet| facet.atomics());
    let capabilities = transport.capabilities();
    let yes = |value: bool| if value { "yes" } else { "no" }.to_owned();
    let reach = match capabilities.reach {
        Reach::Process => "own process",
        Reach::Host => "own host",
        Reach::Network => "network",
    };
    // Atomics domains of windows whose members all reach each other over this transport, of usual lengths.
    let (allocated, created) = match (shares, capabilities.reach) {
        (true, Reach::Process) => (AtomicsDomain::Processor, AtomicsDomain::Lock),
        (true, _) => (AtomicsDomain::Processor, AtomicsDomain::Processor),
        (false, _) => (AtomicsDomain::Engine, AtomicsDomain::Engine),
    };
    let attached = if shares { AtomicsDomain::Lock } else { AtomicsDomain::Engine };
    vec![
        ("reach", reach.into()),
        ("priority", capabilities.priority.to_string()),
        ("matches_tags", yes(matches)),
        ("remote_read", yes(capabilities.remote_read)),
        ("remote_write", yes(shares || widths.is_some())),
        ("atomics", atomics(shares, widths).into()),
        ("allocated_window", format!("updated by {allocated}")),
        ("created_window", format!("updated by {created}")),
        ("dynamic_window", format!("updated by {attached}")),
        ("directed_receive", yes(capabilities.directed_receive)),
        ("needs_registration", yes(registers)),
        ("whole_frames", yes(capabilities.whole_frames)),
        ("inject_max", capabilities.inject_max.to_string()),
        ("frame_max", capabilities.frame_max.to_string()),
        ("frame_sure", capabilities.frame_sure.to_string()),
        ("completion_data", capabilities.completion_data.to_string()),
        ("can_sleep", if capabilities.can_sleep { "yes" } else { "no: it is polled" }.into()),
        ("holds_back", yes(capabilities.holds_back)),
        ("cheap_poll", yes(capabilities.cheap_poll)),
    ]
}

/// The integers in a peer's memory that a transport updates without the peer's help.
fn atomics(shares: bool, widths: Option<AtomicWidths>) -> &'static str {
    match widths.unwrap_or_default() {
        _ if shares => "4 and 8 B",
        AtomicWidths { four: true, eight: true } => "4 and 8 B",
        AtomicWidths { four: true, .. } => "4 B",
        AtomicWidths { eight: true, .. } => "8 B",
        AtomicWidths { .. } => "no",
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Versions { tickwire, bevy_ecs, rustc } = &self.versions;
        writeln!(f, "tickwire {tickwire}, bevy_ecs {bevy_ecs}, rustc {}", rustc.as_deref().unwrap_or("unknown"))?;
        writeln!(f, "launcher {}", self.launcher)?;
        let machine = &self.machine;
        writeln!(f, "cores {}, page {} B", machine.cores, machine.page_bytes)?;
        let fences = if machine.one_sided_fences {
            "one-sided (membarrier): senders pay nothing for a peer that may sleep"
        } else {
            "two-sided: this kernel or sandbox refuses membarrier, so that each send has a fence"
        };
        writeln!(f, "fences {fences}")?;
        match (machine.shared_heap_bytes, &machine.shared_heap_missing) {
            (Some(bytes), _) => writeln!(
                f,
                "shared heap off unless asked for; up to {} MiB, then blocks are the system's ({ENV_SHARED_HEAP_BYTES})",
                bytes >> 20
            )?,
            (None, why) => writeln!(f, "shared heap not available: {}", why.as_deref().unwrap_or("unknown"))?,
        }
        match (machine.shm_free_bytes, machine.shm_bytes) {
            (Some(free), Some(all)) => {
                writeln!(f, "{SHM_DIRECTORY} {} MiB free of {} MiB\n", free >> 20, all >> 20)?;
            }
            _ => writeln!(f, "{SHM_DIRECTORY} cannot be used: only a process that may make no memfd needs it\n")?,
        }
        for missing in self.transports.iter().filter_map(|found| Some((&found.name, found.missing.as_ref()?))) {
            writeln!(f, "transport {} is not available: {}", missing.0, missing.1)?;
        }
        writeln!(f, "{}\n", self.transport_table())?;
        match &self.routes_missing {
            None => writeln!(f, "{}\n", routes::table(&self.routes))?,
            Some(why) => writeln!(f, "routes cannot be told, since no engine can be built: {why}\n")?,
        }
        writeln!(f, "{}\n", ways::table(&self.protocols))?;
        writeln!(f, "{}", self.libfabric)?;
        let rows = self.limits.iter().map(|limit| [limit.name.into(), limit.value.to_string(), limit.what.into()]);
        writeln!(f, "{}", super::table(["limit", "value", "of"], [false, true, false], rows))?;
        writeln!(
            f,
            "matching {:?}: queues are walked up to {WALK_MAX} entries, then looked up; Limits::matching: Lists or Index",
            Limits::default().matching
        )
    }
}

impl Report {
    fn transport_table(&self) -> comfy_table::Table {
        let open: Vec<&Found> = self.transports.iter().filter(|found| found.missing.is_none()).collect();
        let mut table = super::table::<1>(["transport"], [false], []);
        let names = open.iter().map(|found| found.name.as_str());
        table.set_header(std::iter::once("transport").chain(names));
        // Some transports say more than others.
        let Some(longest) = open.iter().max_by_key(|found| found.capabilities.len()) else { return table };
        for (row, (name, _)) in longest.capabilities.iter().enumerate() {
            let values = open.iter().map(|found| found.capabilities.get(row).map_or("", |(_, value)| value.as_str()));
            table.add_row(std::iter::once(*name).chain(values));
        }
        table
    }
}
