//! What procs cost in memory: known ones and contacted ones. The parts are computed from the engine's tables, and stand next
//! to the growth of memory that the system counts.

use std::fmt;

use bevy_ecs::archetype::ArchetypeEntity;
use bevy_ecs::change_detection::Tick;
use bevy_ecs::component::Component;
use bevy_ecs::entity::{Entity, EntityLocation};
use bevy_ecs::storage::Table;
use indicatif::{ProgressBar, ProgressStyle};
use rustix::fd::BorrowedFd;
use serde::Serialize;
use tickwire::internals::components::slots::EndpointSlot;
use tickwire::internals::components::wire::Header;
use tickwire::internals::components::{Arrival, KnownProc, Pieces, ProcTable, Row, Vc};
use tickwire::internals::transports::rings::memory::RawRing;
use tickwire::internals::transports::{Capabilities, LinkEvent, Reach, Sent, Transport};
use tickwire::traces::Ring;
use tickwire::{Bootstrap, Engine, Limits, ProcId};

use crate::fault::Fault;
use crate::worlds::OneHost;

/// Upper bound of the bytes of columns and their change ticks, for a contacted proc with two slots of 8 B.
const COMPONENTS_MAX: f64 = 96.0;
/// The same bound, with the bytes that bevy keeps for an entity, and slack.
const CONTACTED_MAX: f64 = 160.0;
/// Upper bound of the bytes of a proc that was never contacted.
const KNOWN_MAX: f64 = 24.0;
/// Bytes that bevy keeps for an entity besides its columns: generation, location and spawn tick; its place in the archetype;
/// its place in the table.
const META_BYTES: usize = size_of::<u32>() + size_of::<EntityLocation>() + size_of::<Tick>();
const ENTITY_BYTES: usize = META_BYTES + size_of::<ArchetypeEntity>() + size_of::<Entity>();
/// Contacts between two moves of the progress bar.
const STEP: u32 = 4096;

/// Two slots as libraries would register them.
#[derive(Component, Default)]
struct First(#[expect(dead_code, reason = "only its size matters")] u64);
#[derive(Component, Default)]
struct Second(#[expect(dead_code, reason = "only its size matters")] u64);

impl EndpointSlot for First {
    const NAME: &'static str = "first";
}

impl EndpointSlot for Second {
    const NAME: &'static str = "second";
}

/// The report of `tickwire info --procs`. Figures are bytes for each proc, unless a name says otherwise.
#[derive(Serialize)]
pub(crate) struct Report {
    procs: u32,
    known: Known,
    contacted: Contacted,
    /// Computed from the limits. No ring is allocated here.
    rings: Rings,
    bounds: Vec<Bound>,
}

/// What shared memory takes for rings, in whole pages.
#[derive(Serialize)]
struct Rings {
    /// For each connected pair of procs: both rings at their first size. The proc that connects makes them.
    pair: usize,
    /// The size to which one ring of a pair may grow.
    ring_max: usize,
    /// Most bytes of all grown rings and staging buffers together that one proc writes. This is not a figure for each peer.
    grown_max: usize,
}

impl Rings {
    fn of(limits: &Limits) -> Self {
        let (first, page) = (limits.first_ring_bytes.min(limits.ring_bytes), rustix::param::page_size());
        let pair = (2 * RawRing::bytes(first)).next_multiple_of(page);
        Rings { pair, ring_max: limits.ring_bytes, grown_max: limits.grown_bytes_max }
    }
}

#[derive(Serialize)]
struct Known {
    entities: u32,
    address_table: f64,
    index: f64,
    measured_growth: f64,
}

#[derive(Serialize)]
struct Contacted {
    procs: u32,
    components: usize,
    ticks: usize,
    entity: usize,
    /// Spare capacity of columns, which grow by doubling. The system does not count it in large columns, where nobody has touched it.
    slack_columns: f64,
    /// Spare capacity of the entity table, which grows by doubling. The system counts it, since it is written.
    slack_entities: f64,
    measured_growth: f64,
}

#[derive(Serialize)]
struct Bound {
    of: &'static str,
    bytes: f64,
    most: f64,
    holds: bool,
}

/// Builds the world and contacts everyone.
pub(crate) fn measure(procs: u32) -> Result<Report, Fault> {
    // The memory that every engine takes, whatever the size of its world. This engine stays, so that the next one does not get its
    // memory.
    let first = resident_bytes();
    let small = build("info-base", 1)?;
    let base = resident_bytes().saturating_sub(first);
    let before = resident_bytes();
    let mut engine = build("info", procs)?;
    let known_growth = resident_bytes().saturating_sub(before).saturating_sub(base);
    let known = known(&engine, procs, known_growth);

    let (before, reserved) = (resident_bytes(), reserved_entities(&engine));
    contact_all(&mut engine, procs)?;
    let growth = resident_bytes().saturating_sub(before);
    let more = reserved_entities(&engine) - reserved;
    let contacted = contacted(&engine, procs, more, growth)?;
    let bounds = bounds(&known, &contacted);
    let rings = Rings::of(engine.limits());
    drop((engine, small));
    Ok(Report { procs, known, contacted, rings, bounds })
}

/// An engine in a world of itself and `procs` others.
fn build(kind: &str, procs: u32) -> Result<Engine, Fault> {
    let exchange = OneHost::new(kind, 0, procs + 1);
    // With a sink of its own, this engine replaces no trace file that the environment names.
    let builder = Engine::builder().trace(Ring::new(1)).slot::<First>().slot::<Second>().transport(Nowhere::new());
    Ok(builder.include(["loopback", "shm", Nowhere::NAME]).build(Bootstrap::custom(exchange))?)
}

fn contact_all(engine: &mut Engine, procs: u32) -> Result<(), Fault> {
    let bar = ProgressBar::new(procs.into()).with_message("procs contacted");
    let style = ProgressStyle::with_template("{wide_bar} {pos}/{len} {msg}");
    let bar = bar.with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    for proc in 1..=procs {
        engine.proc_slot_row(ProcId(proc))?;
        if proc % STEP == 0 {
            bar.inc(STEP.into());
        }
    }
    bar.finish_and_clear();
    Ok(())
}

fn known(engine: &Engine, procs: u32, growth: usize) -> Known {
    let world = engine.world();
    let tables = world.iter_entities().find_map(|entity| entity.get::<ProcTable>());
    let (index, cards) = tables.map_or((0, 0), |t| (t.known.capacity() * size_of::<KnownProc>(), t.cards.capacity()));
    let all = f64::from(procs + 1);
    Known {
        // Without the own proc, which is contacted at start.
        entities: table_of_procs(engine).map_or(0, |table| table.entity_count().saturating_sub(1)),
        address_table: cards as f64 / all,
        index: index as f64 / all,
        measured_growth: growth as f64 / f64::from(procs),
    }
}

fn contacted(engine: &Engine, procs: u32, more_entities: usize, growth: usize) -> Result<Contacted, Fault> {
    let table = table_of_procs(engine).ok_or_else(|| Fault::failure("there is no table of procs"))?;
    let components = engine.world().components();
    let archetype =
        engine.world().archetypes().iter().find(|a| !a.is_empty() && Some(a.table_id()) == table_id(engine));
    let ids = archetype.map(|a| a.components().to_vec()).unwrap_or_default();
    let columns: usize = ids.iter().filter_map(|id| Some(components.get_info(*id)?.layout().size())).sum();
    let ticks = ids.len() * 2 * size_of::<Tick>();
    let rows = table.entity_count() as usize;
    let spare = table.capacity() - rows;
    let spread = |bytes: usize| bytes as f64 / rows as f64;
    let spare_entities = more_entities.saturating_sub(procs as usize);
    Ok(Contacted {
        procs,
        components: columns,
        ticks,
        entity: ENTITY_BYTES,
        slack_columns: spread(spare * (columns + ticks + ENTITY_BYTES - META_BYTES)),
        slack_entities: spread(spare_entities * META_BYTES),
        measured_growth: growth as f64 / f64::from(procs),
    })
}

/// Places in bevy's table of entities. Entities are numbered in order, and the table doubles, beginning with four places.
fn reserved_entities(engine: &Engine) -> usize {
    (engine.world().entities().count_spawned() as usize).next_power_of_two().max(4)
}

fn table_id(engine: &Engine) -> Option<bevy_ecs::storage::TableId> {
    let component = engine.world().component_id::<Vc>()?;
    let archetypes = engine.world().archetypes();
    archetypes.iter().find(|a| a.contains(component) && !a.is_empty()).map(|a| a.table_id())
}

fn table_of_procs(engine: &Engine) -> Option<&Table> {
    engine.world().storages().tables.get(table_id(engine)?)
}

fn bounds(known: &Known, contacted: &Contacted) -> Vec<Bound> {
    let bound = |of, bytes: f64, most| Bound { of, bytes, most, holds: bytes <= most };
    let Contacted { components, ticks, entity, .. } = contacted;
    let columns = (components + ticks) as f64;
    vec![
        bound("entities of procs never contacted", known.entities.into(), 0.0),
        bound("a proc never contacted", known.address_table + known.index, KNOWN_MAX),
        bound("components and ticks, contacted, two slots of 8 B", columns, COMPONENTS_MAX),
        bound(
            "the same with bevy's entity and slack",
            columns + *entity as f64 + contacted.slack_columns + contacted.slack_entities,
            CONTACTED_MAX,
        ),
    ]
}

/// Resident memory of this process.
fn resident_bytes() -> usize {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages: usize = statm.split_whitespace().nth(1).and_then(|pages| pages.parse().ok()).unwrap_or(0);
    pages * rustix::param::page_size()
}

impl Report {
    /// Whether all bounds hold.
    pub(crate) fn within_bounds(&self) -> bool {
        self.bounds.iter().all(|bound| bound.holds)
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Report { procs, known, contacted, .. } = self;
        writeln!(f, "{procs} procs known, none contacted: {} entities; bytes a proc", known.entities)?;
        let row = |what: &str, bytes: f64| [what.to_owned(), format!("{bytes:.1}")];
        let rows = [
            row("address table: its card, as exchanged", known.address_table),
            row("index: its row once contacted", known.index),
            row("together", known.address_table + known.index),
            row("measured: growth of resident memory", known.measured_growth),
        ];
        writeln!(f, "{}\n", super::table(["known", "B"], [false, true], rows))?;

        writeln!(f, "{} procs contacted, with two endpoint slots of 8 B: further bytes a proc", contacted.procs)?;
        let columns = contacted.components + contacted.ticks;
        let reserved = (columns + contacted.entity) as f64 + contacted.slack_columns + contacted.slack_entities;
        let rows = [
            row("components", contacted.components as f64),
            row("change ticks of components", contacted.ticks as f64),
            row("bevy's entity: meta, archetype, table", contacted.entity as f64),
            row("slack of columns (capacity - length)", contacted.slack_columns),
            row("slack of the entity table", contacted.slack_entities),
            row("together", reserved),
            row("measured: growth of resident memory", contacted.measured_growth),
        ];
        writeln!(f, "{}", super::table(["contacted", "B"], [false, true], rows))?;
        writeln!(
            f,
            "shared memory, not allocated here: {} B for each pair of procs that are connected; a ring grows to {} B, all \
             that one proc writes, with staging buffers, by {} B at most\n",
            self.rings.pair, self.rings.ring_max, self.rings.grown_max
        )?;
        let rows = self.bounds.iter().map(|bound| {
            let verdict = if bound.holds { "ok" } else { "exceeded" };
            [bound.of.to_owned(), format!("{:.1}", bound.bytes), format!("{:.0}", bound.most), verdict.to_owned()]
        });
        writeln!(f, "{}", super::table(["bound", "found", "most", ""], [false, true, true, false], rows))
    }
}

/// A transport that reaches every proc, but never finishes connecting. So a contact opens no socket and no ring.
struct Nowhere {
    capabilities: Capabilities,
    links: u32,
}

impl Nowhere {
    const NAME: &'static str = "nowhere";

    fn new() -> Self {
        let capabilities = Capabilities {
            whole_frames: true,
            inject_max: 1024,
            can_sleep: true,
            cheap_poll: true,
            ..Capabilities::least(Reach::Network, u8::MAX, 1024)
        };
        Nowhere { capabilities, links: 0 }
    }
}

// SAFETY: this transport gives out no span, and reads none that it is given.
#[expect(unsafe_code, reason = "bytes that are addresses")]
unsafe impl Transport for Nowhere {
    type RowState = ();

    fn name(&self) -> &str {
        Self::NAME
    }

    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn card(&self) -> Vec<u8> {
        Vec::new()
    }

    fn reaches(&self, _: u32, _: &[u8]) -> Result<(), String> {
        Ok(())
    }

    fn connect(&mut self, _: u32, _: &[u8], _: u64) -> Result<u32, String> {
        self.links += 1;
        Ok(self.links)
    }

    fn attach(&mut self, _: u32, _: Row) {}

    fn send<P: Pieces + ?Sized>(&mut self, _: u32, _: &Header, _: &P, (): &mut ()) -> Sent {
        Sent::Blocked
    }

    fn ready(&self) -> bool {
        false
    }

    fn drain(&mut self, _: u64, _: &mut [Arrival]) -> usize {
        0
    }

    fn drain_link(&mut self, _: u32, _: u64, _: &mut [Arrival]) -> usize {
        0
    }

    fn release(&mut self) {}

    fn control(&mut self, _: u64, _: &mut Vec<LinkEvent>) {}

    fn close_link(&mut self, _: u32) {}

    fn wait_fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    fn close(&mut self) {}
}
