//! The command `tickwire`: starts jobs, watches them, says why they hang, measures the engine, and says what this machine
//! offers it.

mod completions;
mod dump;
mod fault;
mod info;
mod jobs;
mod perf;
mod picture;
mod run;
mod top;
mod trace;
mod worlds;

use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};

/// Starts, watches and measures programs that pass messages with tickwire.
///
/// Every command ends with status 0 if all went well, 2 for wrong use, and 1 for any other failure, unless its help
/// says otherwise. Errors are one line on stderr.
#[derive(Parser)]
#[command(name = "tickwire", version, max_term_width = 100, propagate_version = true, infer_long_args = true)]
#[command(after_help = "Examples:
  tickwire run -n 4 -- ./app        start 4 ranks of ./app
  tickwire top                      what the job that runs does, live
  tickwire dump 4711                what is pending in process 4711
  tickwire whowaits                 who waits for whom in the job that runs
  tickwire trace trace.json --png trace.png   a picture of what a job has done
  tickwire perf p2p                 latency, message rate and bandwidth between two ranks
  tickwire perf self 100000         messages to oneself, for counting instructions
  tickwire info                     transports, limits and what this machine offers
  tickwire info --procs 1000000     memory a proc
  tickwire completions bash         what makes bash complete these words")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Run(run::RunArgs),
    Top(top::TopArgs),
    Dump(dump::DumpArgs),
    #[command(name = "whowaits")]
    WhoWaits(dump::WhoWaitsArgs),
    Trace(trace::TraceArgs),
    Perf(perf::PerfArgs),
    Info(info::InfoArgs),
    Completions(completions::CompletionsArgs),
}

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return fault::usage(&error),
    };
    match cli.command {
        Command::Run(args) => run::run(args).unwrap_or_else(|error| fault::usage(&error)),
        Command::Top(args) => fault::report("top", top::top(args)),
        Command::Dump(args) => fault::report("dump", dump::dump(args)),
        Command::WhoWaits(args) => fault::report("whowaits", dump::who(args)),
        Command::Trace(args) => fault::report("trace", trace::trace(args)),
        Command::Perf(args) => fault::report("perf", perf::perf(args)),
        Command::Info(args) => fault::report("info", info::info(args)),
        Command::Completions(args) => fault::report("completions", completions::completions(args, Cli::command())),
    }
}
