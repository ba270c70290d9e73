//! `tickwire trace`: a picture of a trace file.

mod draw;
mod window;

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use tickwire::traces::read::Reading;
use tickwire::traces::words::{Nanoseconds, count};

use crate::fault::Fault;
use window::{Messages, Window, time};

/// Draws a trace file that `tickwire run --trace FILE` or TICKWIRE_TRACE has written.
///
/// Each rank is a band, each system a track whose slices say how many rows it handled; arrows lead from the sending of each
/// message to its receipt. Times are those since the first event of the file, in ns, us, ms or s, such as 1.5ms.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  tickwire trace trace.json --png trace.png                      all of it
  tickwire trace trace.json --png trace.png --messages 100..105  while messages 100 to 104 were on their way
  tickwire trace trace.json --png trace.png --from 1ms --to 1.2ms --ranks 0,1")]
pub(crate) struct TraceArgs {
    /// The trace file
    file: PathBuf,
    /// Where the picture goes
    #[arg(long, value_name = "FILE", required = true)]
    png: PathBuf,
    /// Draw from this time on [default: the first event]
    #[arg(long, value_name = "TIME", value_parser = time)]
    from: Option<u64>,
    /// Draw up to this time [default: the last event]
    #[arg(long, value_name = "TIME", value_parser = time)]
    to: Option<u64>,
    /// Draw the time in which these messages were on their way, counted from 0 in the order of their sending
    #[arg(long, value_name = "FIRST..END", conflicts_with_all = ["from", "to"])]
    messages: Option<Messages>,
    /// Draw only these ranks, and the messages between them
    #[arg(long, value_name = "RANK,…", value_delimiter = ',')]
    ranks: Vec<u32>,
    /// Width of the picture, pixels
    #[arg(long, value_name = "PIXELS", default_value_t = 1400, value_parser = clap::value_parser!(u32).range(400..=16384))]
    width: u32,
}

/// Reads, draws, and says what was drawn.
///
/// # Errors
/// The file is no trace, what is to be drawn is not in it, or the picture cannot be written.
pub(crate) fn trace(args: TraceArgs) -> Result<ExitCode, Fault> {
    let name = args.file.display().to_string();
    let mut reading = Reading::of_file(&args.file).map_err(|error| Fault::failure(format!("{name}: {error}")))?;
    if let Some(rank) = args.ranks.iter().find(|rank| !reading.ranks.contains_key(rank)) {
        return Err(Fault::wrong_use(format!("{name}: there is no rank {rank} in it")));
    }
    if !args.ranks.is_empty() {
        let chosen = |rank: &u32| args.ranks.contains(rank);
        reading.ranks.retain(|rank, _| chosen(rank));
        reading.flights.retain(|flight| chosen(&flight.from.0) && flight.to.is_none_or(|to| chosen(&to.0)));
    }
    let window = match args.messages {
        Some(messages) => messages.window(&reading),
        None => Window::between(args.from, args.to, &reading),
    };
    let window = window.map_err(|fault| fault.at(&name))?;
    let (picture, drawn) = draw::draw(&reading, window, args.width)?;
    picture.write(&args.png)?;
    let span = Nanoseconds(window.to_ns - window.from_ns);
    let words = format!(
        "{}: {span} of {}, {}, {}\n",
        args.png.display(),
        count(reading.ranks.len() as u64, "rank", "ranks"),
        count(drawn.slices, "slice", "slices"),
        drawn.arrows(),
    );
    // A closed stdout is no reason to panic.
    let _ = std::io::stdout().write_all(words.as_bytes());
    Ok(ExitCode::SUCCESS)
}
