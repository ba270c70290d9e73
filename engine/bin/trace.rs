//! `tickwire trace`: a picture of a trace file, or what Perfetto opens.

mod draw;
mod window;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{ArgGroup, Args};
use tickwire::internals::traces::join;
use tickwire::internals::traces::read::Reading;
use tickwire::internals::traces::words::{Nanoseconds, count};

use crate::fault::Fault;
use window::{Messages, Window, time};

/// Draws a trace file that `tickwire run --trace FILE` or TICKWIRE_TRACE has written, or makes what ui.perfetto.dev opens.
///
/// A job leaves one file, which ui.perfetto.dev and chrome://tracing open. A program without a launcher that was killed leaves a
/// file in a compact form, and so does each rank of a launcher that was killed: FILE.0, FILE.1 and so on. All events up to the
/// end are in them. Both forms are drawn, and --json makes one file of any of them.
///
/// In a picture each rank is a band, each system a track whose slices say how many rows it handled; arrows lead from the sending
/// of each message to its receipt. Times are those since the first event of the files, in ns, us, ms or s, such as 1.5ms.
#[derive(Args, Debug)]
#[command(group(ArgGroup::new("made").args(["png", "json"]).required(true).multiple(true)), after_help = "Examples:
  tickwire trace trace.json --png trace.png                      all of it
  tickwire trace trace.json --png trace.png --messages 100..105  while messages 100 to 104 were on their way
  tickwire trace trace.json --png trace.png --from 1ms --to 1.2ms --ranks 0,1
  tickwire trace trace.json.* --json trace.json                  one file of those of ranks")]
pub(crate) struct TraceArgs {
    /// The trace file, or several that are put together
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Where the picture goes
    #[arg(long, value_name = "FILE")]
    png: Option<PathBuf>,
    /// Where what ui.perfetto.dev opens goes: all of the files; it may be one of them
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Draw from this time on [default: the first event]
    #[arg(long, value_name = "TIME", value_parser = time, requires = "png")]
    from: Option<u64>,
    /// Draw up to this time [default: the last event]
    #[arg(long, value_name = "TIME", value_parser = time, requires = "png")]
    to: Option<u64>,
    /// Draw the time in which these messages were on their way, counted from 0 in the order of their sending
    #[arg(long, value_name = "FIRST..END", requires = "png", conflicts_with_all = ["from", "to"])]
    messages: Option<Messages>,
    /// Draw only these ranks, and the messages between them
    #[arg(long, value_name = "RANK,…", requires = "png", value_delimiter = ',')]
    ranks: Vec<u32>,
    /// Width of the picture, pixels
    #[arg(long, value_name = "PIXELS", default_value_t = 1400, value_parser = clap::value_parser!(u32).range(400..=16384))]
    width: u32,
}

/// Makes what is asked for, and says what was made.
///
/// # Errors
/// A file is no trace, what is to be drawn is not in it, or what is made cannot be written.
pub(crate) fn trace(args: TraceArgs) -> Result<ExitCode, Fault> {
    let mut words = String::new();
    // First, as the array may take the place of a file.
    if let Some(png) = &args.png {
        words += &picture(&args, png)?;
    }
    if let Some(json) = &args.json {
        words += &array(&args.files, json)?;
    }
    // A closed stdout is no reason to panic.
    let _ = std::io::stdout().write_all(words.as_bytes());
    Ok(ExitCode::SUCCESS)
}

/// Writes the events of all files to one.
fn array(files: &[PathBuf], json: &Path) -> Result<String, Fault> {
    let merged = join(json, files)?;
    let events = count(merged.events, "event", "events");
    let files = count(merged.files.into(), "file", "files");
    Ok(format!("{}: {events} of {files}{}\n", json.display(), left_out(merged.cut)))
}

/// What is said of events that were cut.
fn left_out(cut: u64) -> String {
    match cut {
        0 => String::new(),
        _ => format!("; {} left out, cut at the end of a file", count(cut, "event", "events")),
    }
}

/// Draws.
fn picture(args: &TraceArgs, png: &Path) -> Result<String, Fault> {
    let names: Vec<String> = args.files.iter().map(|file| file.display().to_string()).collect();
    let name = names.join(", ");
    let mut reading = Reading::of_files(&args.files)?;
    if let Some(rank) = args.ranks.iter().find(|rank| !reading.ranks.contains_key(rank)) {
        return Err(Fault::wrong_use(format!("{name}: there is no rank {rank} in it")));
    }
    if !args.ranks.is_empty() {
        let chosen = |rank: &u32| args.ranks.contains(rank);
        reading.ranks.retain(|rank, _| chosen(rank));
        reading.flights.retain(|flight| chosen(&flight.from.0) && flight.to.is_none_or(|to| chosen(&to.0)));
    }
    let window = match &args.messages {
        Some(messages) => messages.window(&reading),
        None => Window::between(args.from, args.to, &reading),
    };
    let window = window.map_err(|fault| fault.at(&name))?;
    let (picture, drawn) = draw::draw(&reading, window, args.width)?;
    picture.write(png)?;
    let span = Nanoseconds(window.to_ns - window.from_ns);
    Ok(format!(
        "{}: {span} of {}, {}, {}{}\n",
        png.display(),
        count(reading.ranks.len() as u64, "rank", "ranks"),
        count(drawn.slices, "slice", "slices"),
        drawn.arrows(),
        left_out(reading.cut),
    ))
}
