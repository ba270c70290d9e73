//! What a suite prints: lines, a table or JSON.

use std::io::IsTerminal;

use comfy_table::{Cell, CellAlignment, Table, presets};
use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;

use crate::fault::{Fault, print};

/// The form of the output.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Form {
    Plain,
    Json,
    Table,
    Nothing,
}

/// One figure.
#[derive(Serialize)]
struct Figure {
    metric: String,
    parameter: usize,
    value: f64,
    unit: String,
}

/// The figures of a run, as they come.
pub(crate) struct Figures {
    form: Form,
    suite: &'static str,
    ranks: u32,
    figures: Vec<Figure>,
    bar: Option<ProgressBar>,
    /// Whether all figures so far could be printed.
    printed: Result<(), Fault>,
}

impl Figures {
    /// For a suite that gives `expected` figures. A progress bar is drawn only for a table on a terminal, and only between measurements.
    pub(crate) fn new(form: Form, suite: &'static str, ranks: u32, expected: usize) -> Self {
        let drawn = form == Form::Table && expected > 1 && std::io::stderr().is_terminal();
        let bar = drawn.then(|| {
            let style = ProgressStyle::with_template("{prefix} {wide_bar} {pos}/{len} {msg:24}");
            let bar = ProgressBar::new(expected as u64).with_prefix(suite);
            bar.with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
        });
        if let Some(bar) = &bar {
            bar.tick();
        }
        Figures { form, suite, ranks, figures: Vec::with_capacity(expected), bar, printed: Ok(()) }
    }

    /// Takes a figure.
    pub(crate) fn say(&mut self, metric: &str, parameter: usize, value: f64, unit: &str) {
        match self.form {
            Form::Nothing => {}
            Form::Plain => {
                let said = print(&format!("{metric} {parameter} {value:.4} {unit}\n"));
                self.printed = std::mem::replace(&mut self.printed, Ok(())).and(said);
            }
            Form::Json | Form::Table => {
                self.figures.push(Figure { metric: metric.into(), parameter, value, unit: unit.into() });
                if let Some(bar) = &self.bar {
                    bar.set_message(format!("{metric} {parameter}: {} {unit}", short(value)));
                    bar.inc(1);
                    bar.tick();
                }
            }
        }
    }

    /// Prints what was not printed yet.
    ///
    /// # Errors
    /// Some of the figures could not be written.
    pub(crate) fn end(self) -> Result<(), Fault> {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
        let text = match self.form {
            Form::Plain | Form::Nothing => return self.printed,
            Form::Json => serde_json::json!({
                "suite": self.suite,
                "version": env!("CARGO_PKG_VERSION"),
                "ranks": self.ranks,
                "figures": self.figures,
            })
            .to_string(),
            Form::Table => table(&self.figures).to_string(),
        };
        print(&(text + "\n"))
    }
}

fn table(figures: &[Figure]) -> Table {
    let mut table = Table::new();
    let preset = if std::io::stdout().is_terminal() { presets::UTF8_FULL_CONDENSED } else { presets::ASCII_MARKDOWN };
    table.load_preset(preset).set_header(["metric", "of", "value", "unit"]);
    let mut figures: Vec<&Figure> = figures.iter().collect();
    // Sorted by metric, in the order in which metrics came first. The sort is stable, so figures of one metric keep their order.
    let metrics: Vec<&str> = figures.iter().map(|figure| &*figure.metric).collect();
    figures.sort_by_key(|figure| metrics.iter().position(|metric| *metric == figure.metric));
    let mut before = "";
    for figure in figures {
        let (name, of) = describe(&figure.metric);
        let name = if figure.metric == before { "" } else { name };
        before = &figure.metric;
        table.add_row([
            Cell::new(name),
            Cell::new(format!("{} {of}", figure.parameter)).set_alignment(CellAlignment::Right),
            Cell::new(short(figure.value)).set_alignment(CellAlignment::Right),
            Cell::new(&figure.unit),
        ]);
    }
    table
}

/// A metric in words, and what its parameter counts.
fn describe(metric: &str) -> (&str, &str) {
    match metric {
        "lat" => ("latency, half a round trip", "B"),
        "rate" => ("message rate", "B"),
        "bw" => ("bandwidth", "B"),
        "put" => ("a write into another rank's memory", "B"),
        "get" => ("a read of another rank's memory", "B"),
        "copy" => ("a copy within one process", "B"),
        "posted" => ("latency behind posted receives", "receives"),
        "posted_any" => ("the same, from any source", "receives"),
        "unexpected" => ("latency behind unexpected messages", "messages"),
        "barrier" => ("barrier", "ranks"),
        "allreduce_init" => ("allreduce, persistent", "B"),
        "allreduce" | "iallreduce" | "bcast" | "reduce" | "allgather" | "alltoall" | "reduce_scatter" | "scan" => {
            (metric, "B")
        }
        "self" => ("a message to oneself", "messages"),
        "idle" => ("an idle tick", "connected peers"),
        "idle_known" => ("an idle tick", "procs known, not contacted"),
        "block_cpu" => ("processor time of a blocked receive", "ms"),
        "wake_min" => ("wake-up of a sleeping rank, shortest", "wake-ups"),
        "wake_median" => ("median", "wake-ups"),
        "wake_max" => ("longest", "wake-ups"),
        "wake_asleep" => ("voluntary switches of the sleeping rank", "wake-ups"),
        other => (other, ""),
    }
}

/// A number with four digits in all, or with as many as its whole part has.
fn short(value: f64) -> String {
    let before = if value.abs() >= 1.0 { value.abs().log10().floor() as usize + 1 } else { 1 };
    format!("{value:.*}", 4usize.saturating_sub(before))
}
