//! The Tracy profiler: zones, plots, frame marks and messages, while one is connected.
//!
//! There is one client for each process, which runs from its start. Nothing is sent, and no name is made, before a profiler connects.
//! Until then a tick costs one call that loads one word.

use crate::event::Depths;
use std::collections::HashMap;
use std::sync::{LazyLock, Mutex, PoisonError};
use std::thread::ThreadId;
use tickwire_components::Work;
use tracy_client::{
    Client, FrameName, PlotConfiguration, PlotFormat, PlotLineStyle, PlotName, Span, SpanLocation, span_location,
};

/// Whether a profiler is connected.
#[inline]
pub fn connected() -> bool {
    Client::is_connected()
}

/// A message of an engine.
pub fn message(rank: u32, words: &str) {
    if let Some(client) = client() {
        client.message(&format!("rank {rank}: {words}"), 0);
    }
}

/// The client, if a profiler is connected to it.
fn client() -> Option<Client> {
    Client::running().filter(|_| Client::is_connected())
}

/// A run of a system.
pub struct Zone(Option<Span>);

impl Zone {
    /// Begins the zone.
    #[inline]
    pub fn begin(system: u16, name: &str) -> Self {
        Zone(client().map(|client| match location(system) {
            Some(location) => client.span(location, 0),
            // A system of the application: each run sends its name to the profiler.
            None => client.span_alloc(Some(name), name, "", 0, 0),
        }))
    }

    /// A zone for a call of a collective operation, or a one-sided call. It ends when the value is dropped.
    pub fn of_call(name: &str) -> Self {
        Zone(client().map(|client| client.span_alloc(Some(name), name, "", 0, 0)))
    }

    /// A zone for the part of Deliver that reads messages out of memory of peers. It ends when the value is dropped.
    pub fn of_reading() -> Self {
        Zone(client().map(|client| client.span(span_location!("read"), 0)))
    }

    /// Ends the zone, with the number of rows that were handled.
    #[inline]
    pub fn end(self, rows: u64) {
        if let Some(span) = &self.0 {
            span.emit_value(rows);
        }
    }
}

/// The zones of the engine's own systems, by number.
fn location(system: u16) -> Option<&'static SpanLocation> {
    Some(match system {
        0 => span_location!("post"),
        1 => span_location!("match"),
        2 => span_location!("supply_buffers"),
        3 => span_location!("transfer"),
        4 => span_location!("drain_cq"),
        5 => span_location!("complete"),
        6 => span_location!("deliver"),
        _ => return None,
    })
}

/// The profiler's view of one engine.
pub struct Profile {
    rank: u32,
    connected: bool,
    thread: Option<ThreadId>,
    frame: Option<FrameName>,
    /// Completions and passes a tick.
    ticks: [Plot; 2],
    depths: [Plot; Depths::NAMES.len()],
    moved: Vec<(String, [Plot; 2])>,
}

/// A plot, which is sent when its value changes.
#[derive(Clone, Copy, Debug, Default)]
struct Plot {
    name: Option<PlotName>,
    last: Option<u64>,
}

impl Profile {
    /// For an engine of a rank.
    pub fn new(rank: u32) -> Self {
        let (ticks, depths) = ([Plot::default(); 2], [Plot::default(); Depths::NAMES.len()]);
        Profile { rank, connected: false, thread: None, frame: None, ticks, depths, moved: Vec::new() }
    }

    /// Whether a profiler is connected in this tick.
    #[inline]
    pub fn begin_tick(&mut self) -> bool {
        let connected = connected();
        if connected != self.connected {
            self.connected = connected;
            // A profiler that has just connected knows no values, so all are sent.
            let moved = self.moved.iter_mut().flat_map(|(_, plots)| plots);
            self.ticks.iter_mut().chain(&mut self.depths).chain(moved).for_each(|plot| plot.last = None);
        }
        if connected && self.thread != Some(std::thread::current().id()) {
            self.name_thread();
        }
        connected
    }

    #[cold]
    fn name_thread(&mut self) {
        let thread = std::thread::current();
        self.thread = Some(thread.id());
        if let Some(client) = client() {
            let name = thread.name().unwrap_or("thread").replace('\0', "");
            client.set_thread_name(&format!("{name} (rank {})", self.rank));
        }
    }

    /// Reports the end of a tick, and the queue depths if they were counted.
    pub fn end_tick(&mut self, work: &Work, passes: u32, depths: Option<&Depths>) {
        let Some(client) = client() else { return };
        let rank = self.rank;
        let values = [("completions a tick", work.completed), ("passes", passes)];
        for (plot, (name, value)) in self.ticks.iter_mut().zip(values) {
            plot.tell(&client, rank, name, PlotFormat::Number, value.into());
        }
        let depths = depths.map(Depths::values);
        for ((plot, name), value) in self.depths.iter_mut().zip(Depths::NAMES).zip(depths.into_iter().flatten()) {
            let format = if name.ends_with("bytes") { PlotFormat::Memory } else { PlotFormat::Number };
            plot.tell(&client, rank, name, format, value);
        }
        let frame = *self.frame.get_or_insert_with(|| frame_name(rank));
        client.secondary_frame_mark(frame);
    }

    /// Reports the bytes that a transport has moved so far.
    pub fn moved(&mut self, transport: &str, sent_bytes: u64, received_bytes: u64) {
        let Some(client) = client() else { return };
        let place = self.moved.iter().position(|(name, _)| name == transport).unwrap_or_else(|| {
            self.moved.push((transport.to_owned(), Default::default()));
            self.moved.len() - 1
        });
        let values = [("sent", sent_bytes), ("received", received_bytes)];
        for (plot, (way, value)) in self.moved[place].1.iter_mut().zip(values) {
            if plot.last != Some(value) {
                plot.tell(&client, self.rank, &format!("{transport} bytes {way}"), PlotFormat::Memory, value);
            }
        }
    }
}

impl Plot {
    fn tell(&mut self, client: &Client, rank: u32, name: &str, format: PlotFormat, value: u64) {
        if self.last.replace(value) == Some(value) {
            return;
        }
        let name = *self.name.get_or_insert_with(|| plot_name(client, rank, name, format));
        client.plot(name, value as f64);
    }
}

/// The name of an engine's frames. It is kept for ever, as names of plots are.
#[cold]
fn frame_name(rank: u32) -> FrameName {
    static NAMES: LazyLock<Mutex<HashMap<u32, FrameName>>> = LazyLock::new(Mutex::default);
    let mut names = NAMES.lock().unwrap_or_else(PoisonError::into_inner);
    *names.entry(rank).or_insert_with(|| FrameName::new_leak(format!("tick of rank {rank}")))
}

/// The name of an engine's plot. The profiler may read names at any time, so they are kept for ever, once each.
#[cold]
fn plot_name(client: &Client, rank: u32, name: &str, format: PlotFormat) -> PlotName {
    static NAMES: LazyLock<Mutex<HashMap<String, PlotName>>> = LazyLock::new(Mutex::default);
    let name = format!("{name} (rank {rank})");
    let mut names = NAMES.lock().unwrap_or_else(PoisonError::into_inner);
    let plot = *names.entry(name.clone()).or_insert_with(|| PlotName::new_leak(name));
    client.plot_config(plot, PlotConfiguration::default().format(format).line_style(PlotLineStyle::Stepped));
    plot
}
