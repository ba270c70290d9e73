//! `tickwire info`: versions, transports, limits and what this machine offers; and what procs cost in memory.

mod fabric;
mod host;
mod memory;
mod routes;
mod ways;

use std::io::IsTerminal;
use std::process::ExitCode;

use clap::Args;
use comfy_table::{Cell, CellAlignment, Table, presets};
use serde::Serialize;
use tickwire::internals::components::limits::PROCS_MAX;

use crate::fault::{Fault, print};

/// Says which transports, limits and facilities there are on this machine, or what procs cost in memory.
///
/// For each transport, the report names the atomics domain of windows whose members all reach each other over this transport: what
/// makes updates of allocated and of created windows atomic. A table of routes names the transport that each class of traffic would
/// take, with TICKWIRE_TRANSPORTS and TICKWIRE_ROUTES of this environment.
///
/// With --procs, the status is 1 if a bound on memory was exceeded.
#[derive(Args, Debug)]
pub(crate) struct InfoArgs {
    /// Build an engine in a world of N procs, contact them all, and report the bytes that each takes
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=PROCS_MAX as i64 - 1))]
    procs: Option<u32>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// Gathers the report and prints it.
///
/// # Errors
/// The engines of `--procs` cannot be built, or cannot contact a proc.
pub(crate) fn info(args: InfoArgs) -> Result<ExitCode, Fault> {
    let Some(procs) = args.procs else {
        let report = host::Report::gather();
        print(&if args.json { json(&report)? } else { report.to_string() })?;
        return Ok(ExitCode::SUCCESS);
    };
    let report = memory::measure(procs)?;
    print(&if args.json { json(&report)? } else { report.to_string() })?;
    Ok(ExitCode::from(u8::from(!report.within_bounds())))
}

fn json(report: &impl Serialize) -> Result<String, Fault> {
    Ok(serde_json::to_string(report)? + "\n")
}

/// A table. `numbers` says which columns hold numbers: their cells are aligned to the right.
pub(crate) fn table<const N: usize>(
    header: [&str; N],
    numbers: [bool; N],
    rows: impl IntoIterator<Item = [String; N]>,
) -> Table {
    let mut table = Table::new();
    let preset = if std::io::stdout().is_terminal() { presets::UTF8_FULL_CONDENSED } else { presets::ASCII_MARKDOWN };
    table.load_preset(preset).set_header(header);
    for row in rows {
        table.add_row(row.into_iter().zip(numbers).map(|(text, number)| {
            let alignment = if number { CellAlignment::Right } else { CellAlignment::Left };
            Cell::new(text).set_alignment(alignment)
        }));
    }
    table
}
