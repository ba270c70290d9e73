//! `tickwire trace`: draws trace files, or makes a file of them that Perfetto opens.

mod draw;
mod window;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{ArgGroup, Args};
use tickwire::internals::traces::join;
use tickwire::internals::traces::read::Reading;
use tickwire::internals::traces::words::{Nanoseconds, count};

use crate::fault::{Fault, print};
use window::{Messages, Window, time};

/// Draws a trace file that `tickwire run --trace FILE` or TICKWIRE_TRACE has written, or makes a file for ui.perfetto.dev.
///
/// A job that has ended leaves one file, which ui.perfetto.dev and chrome://tracing open. A program without a launcher that was
/// killed leaves a file in a compact form. If a launcher was killed, each of its ranks leaves such a file: FILE.0, FILE.1 and so
/// on. These files have all events up to the end. Both forms can be drawn, and --json joins files of either form in one.
///
/// In a picture, each rank is a band and each system is a track. The slices of a track say how many rows the system handled.
/// Arrows lead from the send of each message to its receive. Times count from the first event of the files, in ns, us, ms or s,
/// such as 1.5ms.
#[derive(Args, Debug)]
#[command(group(ArgGroup::new("made").args(["png", "json"]).required(true).multiple(true)), after_help = "Examples:
  tickwire trace trace.json --png trace.png                      all of it
  tickwire trace trace.json --png trace.png --messages 100..105  while messages 100 to 104 were on their way
  tickwire trace trace.json --png trace.png --from 1ms --to 1.2ms --ranks 0,1
  tickwire trace trace.json.* --json trace.json                  one file of those of ranks")]
pub(crate) struct TraceArgs {
    /// The trace file, or several, which are joined
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// The picture to write
    #[arg(long, value_name = "FILE")]
    png: Option<PathBuf>,
    /// The file to write for ui.perfetto.dev, with the events of all FILEs; it may be one of them
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Draw from this time on [default: the first event]
    #[arg(long, value_name = "TIME", value_parser = time, requires = "png")]
    from: Option<u64>,
    /// Draw up to this time [default: the last event]
    #[arg(long, value_name = "TIME", value_parser = time, requires = "png")]
    to: Option<u64>,
    /// Draw the time in which these messages were in flight; messages are counted from 0, in the order in which they were sent
    #[arg(long, value_name = "FIRST..END", requires = "png", conflicts_with_all = ["from", "to"])]
    messages: Option<Messages>,
    /// Draw only these ranks, and the messages between them
    #[arg(long, value_name = "RANK,…", requires = "png", value_delimiter = ',')]
    ranks: Vec<u32>,
    /// Width of the picture, pixels
    #[arg(long, value_name = "PIXELS", default_value_t = 1400, value_parser = clap::value_parser!(u32).range(400..=16384))]
    width: u32,
}

/// Makes the picture and the file that were asked for, and says what was made.
///
/// # Errors
/// A file is no trace, the trace has nothing of the part to draw, or the output cannot be written.
pub(crate) fn trace(args: TraceArgs) -> Result<ExitCode, Fault> {
    let mut words = String::new();
    // The picture comes first, since the JSON file may replace one of the trace files.
    if let Some(png) = &args.png {
        words += &picture(&args, png)?;
    }
    if let Some(json) = &args.json {
        words += &array(&args.files, json)?;
    }
    print(&words)?;
    Ok(ExitCode::SUCCESS)
}

/// Joins the events of all files in one.
fn array(files: &[PathBuf], json: &Path) -> Result<String, Fault> {
    let merged = join(json, files)?;
    let events = count(merged.events, "event", "events");
    let files = count(merged.files.into(), "file", "files");
    Ok(format!("{}: {events} of {files}{}\n", json.display(), left_out(merged.cut)))
}

/// The words about events that were left out, since they are cut at the end of a file.
fn left_out(cut: u64) -> String {
    match cut {
        0 => String::new(),
        _ => format!("; {} left out, cut at the end of a file", count(cut, "event", "events")),
    }
}

/// Draws the picture, and returns words about it.
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
