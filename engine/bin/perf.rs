//! `tickwire perf`: measures the engine as applications use it, through the public interface and with the default configuration.

mod block;
mod coll;
mod figures;
mod idle;
mod loops;
mod ranks;
mod raw;
mod rma;
mod vector;

use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::builder::{PossibleValuesParser, RangedU64ValueParser};
use clap::{Args, Subcommand};
use tickwire::bootstrap::is_launched;
use tickwire::internals::transports::ofi::tags::TagMode;
use tickwire::internals::transports::ofi::{Choice, ENV_TAG_MODE};
use tickwire::{Bootstrap, Builder, Engine, Limits, Matching};

use crate::fault::Fault;
use crate::worlds::Extended;
use coll::Collectives;
use figures::{Figures, Form};
use loops::{Bench, Buffers};
use rma::OneSided;

/// How long a rank may take at the end to complete its sends.
pub(crate) const FINALIZE_TIME: Duration = Duration::from_secs(5);

/// Measures latency, message rate, bandwidth, matching, collective and one-sided operations, idle ticks and waiting.
///
/// The command starts its ranks itself, and binds each to one core. If a launcher has started the command, the command is one
/// of the launcher's ranks. It measures the public interface with the default configuration. Figures are steady if nothing
/// else uses the cores.
#[derive(Args, Debug)]
pub(crate) struct PerfArgs {
    /// What to measure
    #[command(subcommand)]
    suite: Suite,
    /// Transports to use, separated by commas: loopback, shm, ofi, or ofi:PROVIDER such as 'ofi:tcp;ofi_rxm'; loopback is
    /// always added, for messages to oneself
    #[arg(long, global = true, value_name = "NAMES", value_delimiter = ',')]
    #[arg(value_parser = transport_name)]
    transport: Vec<String>,
    /// Who matches receives and messages over libfabric: the engine (message) or the provider (tagged). Without this option
    /// TICKWIRE_OFI_TAG_MODE decides; if that is not set, the engine matches. For raw: tagged messages instead of plain ones
    #[arg(long, global = true, value_name = "MODE")]
    #[arg(value_parser = PossibleValuesParser::new(["message", "tagged"]))]
    mode: Option<String>,
    /// Print `METRIC PARAMETER VALUE UNIT` lines as the figures come
    #[arg(long, global = true, conflicts_with = "json")]
    plain: bool,
    /// Print one JSON object at the end
    #[arg(long, global = true)]
    json: bool,
    /// Time between two polls of the sockets, us. For runs under an instruction counter: it slows the program down, so that
    /// far too many polls would be counted with the default
    #[arg(long, global = true, value_name = "US")]
    control_us: Option<u32>,
    /// How posted receives and unexpected messages are found: auto, lists or index
    #[arg(long, global = true, value_name = "HOW", default_value = "auto")]
    #[arg(value_parser = |word: &str| word.parse::<Matching>())]
    matching: Matching,
    /// Take the buffers of p2p, depth and coll from the shared heap, which all peers on this host can read. For rma: the buffer that
    /// becomes a window. p2p then also measures copies within one process, which no message can beat, but not with --plain
    #[arg(long, global = true)]
    shared_heap: bool,
    /// Write data into the buffers of p2p and depth first. MPI benchmarks only allocate their buffers. The kernel maps such a
    /// buffer to one page of zeros, which stays in the nearest cache: long messages are then read faster than real data
    #[arg(long, global = true)]
    written: bool,
    /// A hundredth of the rounds, for tests: the figures are worthless
    #[arg(long, global = true, hide = true)]
    quick: bool,
}

#[derive(Subcommand, Debug, Clone)]
enum Suite {
    /// Latency, message rate and bandwidth between ranks 0 and 1, by message size
    P2p(Ranks),
    /// Latency behind posted receives and unexpected messages that do not match, by their number
    Depth(Ranks),
    /// Messages of every second double between ranks 0 and 1, compared with contiguous ones and with packing by a call
    Vector(Ranks),
    /// Collective operations of all ranks, by the length of their buffers: time of a call on rank 0
    Coll(Ranks),
    /// One-sided operations of rank 0 on rank 1's part of a window: time of an operation and its flush
    Rma(Ranks),
    /// The figures of p2p by libfabric's own calls, without an engine: what --transport ofi or ofi:PROVIDER gives to a program
    /// that calls libfabric itself; with --mode tagged, by tagged messages
    Raw(raw::RawArgs),
    /// N messages of 8 B from this process to itself, without other processes
    #[command(name = "self")]
    Own {
        /// Number of messages
        #[arg(value_name = "N", default_value = "1000000", value_parser = RangedU64ValueParser::<usize>::new().range(1..))]
        messages: usize,
        /// Send each message through a ring and a tick, as messages to others go; else the send delivers it to the posted receive
        #[arg(long)]
        by_tick: bool,
    },
    Idle(idle::IdleArgs),
    Block(block::BlockArgs),
}

#[derive(Args, Debug, Clone)]
struct Ranks {
    /// Number of ranks; in p2p, depth and vector, ranks above 1 sleep until the end; in rma, fetch_add_all and fence_put are of all ranks
    #[arg(long, value_name = "R", default_value = "2", value_parser = clap::value_parser!(u32).range(2..=4096))]
    ranks: u32,
    /// Reach the ranks above 1 over this transport alone, to see what open and idle connections over it cost
    #[arg(long, value_name = "NAME", value_parser = transport_name)]
    beside: Option<String>,
}

impl Suite {
    fn name(&self) -> &'static str {
        match self {
            Suite::P2p(_) => "p2p",
            Suite::Depth(_) => "depth",
            Suite::Vector(_) => "vector",
            Suite::Coll(_) => "coll",
            Suite::Rma(_) => "rma",
            Suite::Raw(_) => "raw",
            Suite::Own { .. } => "self",
            Suite::Idle(_) => "idle",
            Suite::Block(_) => "block",
        }
    }

    /// Number of processes that the suite needs.
    fn ranks(&self) -> u32 {
        match self {
            Suite::P2p(of) | Suite::Depth(of) | Suite::Vector(of) | Suite::Coll(of) | Suite::Rma(of) => of.ranks,
            Suite::Own { .. } => 1,
            Suite::Idle(args) => args.ranks(),
            Suite::Raw(_) | Suite::Block(_) => 2,
        }
    }

    /// The transport between ranks 0 and 1 and all other ranks, if one was given.
    fn beside(&self) -> Option<&str> {
        match self {
            Suite::P2p(of) | Suite::Depth(of) | Suite::Vector(of) | Suite::Coll(of) | Suite::Rma(of) => {
                of.beside.as_deref()
            }
            _ => None,
        }
    }

    /// Number of figures that the suite gives.
    fn figures(&self) -> usize {
        match self {
            Suite::P2p(_) => loops::P2P_FIGURES,
            Suite::Raw(raw) => raw.figures(),
            Suite::Depth(_) => loops::DEPTH_FIGURES,
            Suite::Vector(_) => vector::FIGURES,
            Suite::Coll(of) => coll::figures(of.ranks),
            Suite::Rma(_) => rma::FIGURES,
            Suite::Own { .. } | Suite::Idle(_) => 1,
            Suite::Block(_) => block::FIGURES,
        }
    }
}

impl PerfArgs {
    /// The configuration of a rank: the default, changed by the options.
    fn builder_of(&self, rank: u32) -> Builder {
        let Some(beside) = self.suite.beside() else { return self.builder() };
        let pair: &[String] = if rank < 2 { &self.transport } else { &[] };
        let mut names = vec!["loopback".to_owned(), beside.to_owned()];
        names.extend(pair.iter().cloned());
        if rank < 2 && pair.is_empty() {
            names.push("shm".into());
        }
        self.builder().include(names)
    }

    /// The same without `--beside`, for any engine.
    fn builder(&self) -> Builder {
        let mut builder = Engine::builder().limits(self.limits());
        if self.shared_heap {
            builder = builder.shared_heap(true);
        }
        if self.is_tagged() {
            builder = builder.ofi(Choice { tags: Some(TagMode::Auto), ..Choice::default() });
        }
        let mut names = self.transport.clone();
        if names.is_empty() {
            return builder;
        }
        if !names.iter().any(|name| name == "loopback") {
            names.push("loopback".into());
        }
        builder.include(names)
    }

    fn is_tagged(&self) -> bool {
        self.mode.as_deref() == Some("tagged")
    }

    /// Refuses a `--mode` without a fabric, or against the environment.
    fn check_mode(&self) -> Result<(), Fault> {
        let Some(mode) = &self.mode else { return Ok(()) };
        let mut names = self.transport.iter().map(String::as_str).chain(self.suite.beside());
        if !names.any(|name| name == "ofi" || name.starts_with("ofi:")) {
            return Err(Fault::wrong_use("--mode is of transports over libfabric: add --transport 'ofi:PROVIDER'"));
        }
        let said = std::env::var(ENV_TAG_MODE).unwrap_or_default();
        if mode == "message" && !said.is_empty() && said != "message" {
            return Err(Fault::wrong_use(format!(
                "--mode message, but {ENV_TAG_MODE} is {said}: leave one of them out"
            )));
        }
        Ok(())
    }

    fn limits(&self) -> Limits {
        let limits = Limits::default();
        Limits {
            control_us: self.control_us.unwrap_or(limits.control_us),
            matching: self.matching,
            own_at_once: !matches!(self.suite, Suite::Own { by_tick: true, .. }),
            ..limits
        }
    }

    /// Whether these transports only connect engines of one process.
    fn within_process(&self) -> bool {
        let mut names = self.transport.iter().map(String::as_str).chain(self.suite.beside());
        !self.transport.is_empty() && names.all(|name| name == "loopback")
    }

    /// The fabric that `raw` measures.
    fn fabric(&self) -> Result<Choice, Fault> {
        let wrong = || Fault::wrong_use("raw measures one fabric: give --transport ofi, or ofi:PROVIDER");
        let [name] = &self.transport[..] else { return Err(wrong()) };
        let provider = name.strip_prefix("ofi").ok_or_else(wrong)?.strip_prefix(':');
        let include = provider.map(str::to_owned).into_iter().collect();
        let choice = Choice { include, ..Choice::default() };
        choice.or_environment().map_err(|error| Fault::wrong_use(error.to_string()))
    }

    fn form(&self) -> Form {
        match (self.plain, self.json) {
            (true, _) => Form::Plain,
            (_, true) => Form::Json,
            _ => Form::Table,
        }
    }

    /// Whether copies within the process are measured, too.
    fn compares(&self) -> bool {
        self.shared_heap && !self.plain && matches!(self.suite, Suite::P2p(_))
    }

    /// Where a rank's figures go: to stdout from rank 0, else nowhere.
    fn sink(&self, rank: u32, ranks: u32) -> Figures {
        let form = if rank == 0 { self.form() } else { Form::Nothing };
        let copies = if self.compares() { loops::COPY_FIGURES } else { 0 };
        Figures::new(form, self.suite.name(), ranks, self.suite.figures() + copies)
    }
}

/// Checks the name of a transport.
fn transport_name(word: &str) -> Result<String, String> {
    let known =
        ["loopback", "shm", "ofi"].contains(&word) || word.strip_prefix("ofi:").is_some_and(|name| !name.is_empty());
    match known {
        true => Ok(word.to_owned()),
        false => Err("give loopback, shm, ofi, or ofi:PROVIDER with a provider that `tickwire info` lists".into()),
    }
}

/// Runs a suite.
///
/// # Errors
/// Wrong use, or a measurement that failed.
pub(crate) fn perf(args: PerfArgs) -> Result<ExitCode, Fault> {
    args.check_mode()?;
    if args.suite.beside().is_some() && args.suite.ranks() < 3 {
        return Err(Fault::wrong_use("--beside is how ranks above 1 are reached: add --ranks 3"));
    }
    if let Suite::Own { messages, .. } = args.suite {
        own(&args, messages)?;
        return Ok(ExitCode::SUCCESS);
    }
    if let Suite::Raw(raw) = &args.suite {
        args.fabric()?;
        raw.check(args.is_tagged())?;
    }
    let launched = is_launched();
    if matches!(&args.suite, Suite::Idle(idle) if idle.within_process()) {
        return idle::in_process(&args).map(|()| ExitCode::SUCCESS);
    }
    if args.within_process() && !launched {
        return match args.suite {
            Suite::P2p(_) | Suite::Depth(_) | Suite::Vector(_) | Suite::Coll(_) | Suite::Rma(_) => {
                ranks::threads(&args).map(|()| ExitCode::SUCCESS)
            }
            Suite::Idle(_) => Err(Fault::wrong_use("loopback reaches engines of one process: add --in-process")),
            _ => Err(Fault::wrong_use("loopback does not reach other processes: use --transport shm")),
        };
    }
    if launched {
        let bootstrap = Bootstrap::from_env()?;
        let (rank, size, needed) = (bootstrap.rank(), bootstrap.size(), args.suite.ranks());
        let pair =
            matches!(args.suite, Suite::P2p(_) | Suite::Depth(_) | Suite::Vector(_) | Suite::Coll(_) | Suite::Rma(_));
        if (pair && size < 2) || (!pair && size != needed) {
            let words = format!("the number of ranks is {size}, but `{}` needs {needed}", args.suite.name());
            return Err(Fault::wrong_use(words));
        }
        let done = as_rank(&args, bootstrap).map(|()| ExitCode::SUCCESS);
        return done.map_err(|fault| fault.at(&format!("rank {rank}")));
    }
    ranks::start(&args)
}

/// Takes part in a job as one of its ranks.
fn as_rank(args: &PerfArgs, bootstrap: Bootstrap) -> Result<(), Fault> {
    match &args.suite {
        Suite::Idle(idle) => {
            let exchange = Extended::new(bootstrap.into_exchange(), idle.known);
            idle::as_rank(args, idle, Bootstrap::custom(exchange))
        }
        Suite::Raw(raw) => raw::as_rank(args, raw, bootstrap.into_exchange()),
        Suite::Block(block) => block::as_rank(args, block, args.builder().build(bootstrap)?),
        _ => {
            let builder = args.builder_of(bootstrap.rank());
            measure_ranks(args, builder.build(bootstrap)?)
        }
    }
}

/// Runs a suite on one rank. In the suites of ranks 0 and 1, all other ranks wait.
fn measure_ranks(args: &PerfArgs, mut engine: Engine) -> Result<(), Fault> {
    let (rank, size) = (engine.rank().0, engine.size());
    let mut figures = args.sink(rank, size);
    if args.suite.beside().is_some() {
        ranks::greet(&mut engine)?;
    }
    let mut say = |metric: &str, parameter: usize, value: f64, unit: &str| {
        figures.say(metric, parameter, value, unit);
    };
    if let Suite::Coll(_) = args.suite {
        Collectives::new(&mut engine, &mut say, args.shared_heap, args.quick)?.measure()?;
    } else if let Suite::Rma(_) = args.suite {
        OneSided::new(&mut engine, &mut say, args.shared_heap, args.quick).measure()?;
    } else if rank < 2 {
        if let Suite::Vector(_) = args.suite {
            vector::vector(&mut engine, &mut say, args.quick)?;
        } else {
            let buffers = Buffers::new(&engine, args.shared_heap, args.written)?;
            let mut bench = Bench::new(&mut engine, &mut say, buffers, args.quick);
            match args.suite {
                Suite::Depth(_) => bench.depth()?,
                _ => bench.p2p()?,
            }
            if args.compares() {
                bench.copies()?;
            }
        }
    }
    ranks::leave_together(&mut engine)?;
    engine.finalize(FINALIZE_TIME)?;
    figures.end()
}

/// Measures messages to oneself. Starts no process and draws nothing meanwhile, so that the instructions of messages can be counted.
fn own(args: &PerfArgs, messages: usize) -> Result<(), Fault> {
    let mut engine = args.builder().build(Bootstrap::solo())?;
    let mut figures = args.sink(0, 1);
    let mut say = |_: &str, _: usize, _: f64, _: &str| {};
    let buffers = Buffers::new(&engine, args.shared_heap, args.written)?;
    let start = Instant::now();
    Bench::new(&mut engine, &mut say, buffers, args.quick).own(messages)?;
    let time = start.elapsed();
    figures.say("self", messages, time.as_nanos() as f64 / messages.max(1) as f64, "ns");
    engine.finalize(FINALIZE_TIME)?;
    figures.end()
}
