//! The potential of electric charges on a plate, by conjugate gradients on several ranks:
//! `cargo run --release --example cg -- -n 4`
//!
//! The plate is cut into bands of rows, one for each rank. An iteration exchanges the rows at the cuts with the neighbours,
//! multiplies by the matrix, and adds up two scalar products over all ranks. One persistent allreduce does these sums: it is
//! made once and started again and again. A sum has the same bits on all ranks, so all ranks stop in the same iteration.
//! Rank 0 deals out the charges by `scatterv` and collects the result by `gatherv`.
//!
//! The program starts its own ranks, or is one of them under `tickwire run -n 4 -- target/release/examples/cg`.

#[path = "cg/band.rs"]
mod band;
#[path = "cg/picture.rs"]
mod picture;
#[path = "ranks.rs"]
mod ranks;

use std::fs::File;
use std::io::{IsTerminal, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use band::{Band, dot, places};
use clap::Parser;
use indicatif::{ProgressBar, ProgressStyle};
use ranks::{Fault, start_ranks};
use tickwire::{Bootstrap, Comm, Engine, OperationError, Persistent, Rank, Tag, in_place, op};

/// Largest difference to the serial answer that passes, as a fraction of the greatest potential. The answers differ, since the
/// rounding of a sum depends on the number of ranks.
const DIFFERENCE_MAX: f64 = 1e-6;
/// Tags of rows that go to the rank above, and to the rank below.
const UP: Tag = Tag(1);
const DOWN: Tag = Tag(2);

/// Computes the potential of charges on a grounded plate, with several ranks, and compares with the serial answer.
///
/// The status is 0, 1 if the answers differ or a rank fails, 2 for wrong use.
#[derive(Parser)]
#[command(name = "cg", max_term_width = 100)]
struct Args {
    /// Number of ranks; without effect under a launcher, which decides itself
    #[arg(short = 'n', long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=4096))]
    ranks: u32,
    /// Iterations, at most
    #[arg(long, value_name = "K", default_value_t = 5000)]
    iterations: u32,
    /// The residual to reach, as a fraction of the first one
    #[arg(long, value_name = "R", default_value_t = 1e-9)]
    residual: f64,
    /// The picture to write
    #[arg(long, value_name = "PNG", default_value = "cg.png")]
    output: PathBuf,
    /// Points from left to right
    #[arg(long, value_name = "W", default_value_t = 512, value_parser = clap::value_parser!(u32).range(1..=16384))]
    width: u32,
    /// Points from top to bottom
    #[arg(long, value_name = "H", default_value_t = 384, value_parser = clap::value_parser!(u32).range(1..=16384))]
    height: u32,
}

fn main() -> ExitCode {
    ranks::run("cg", start, rank)
}

/// Checks the arguments and the file, so that a mistake is reported once, and starts the ranks.
fn start(args: &Args) -> Result<ExitCode, Fault> {
    check(args, args.ranks)?;
    open(args)?;
    start_ranks(args.ranks)
}

fn check(args: &Args, ranks: u32) -> Result<(), Fault> {
    let Args { height, residual, .. } = *args;
    if ranks > height {
        return Err(Fault(2, format!("{ranks} ranks cannot share {height} rows: use fewer, or a larger plate")));
    }
    if !(residual > 0.0 && residual < 1.0) {
        return Err(Fault(2, format!("a residual of {residual} cannot be reached: give a part of the first, above 0")));
    }
    Ok(())
}

/// The file for the picture.
fn open(args: &Args) -> Result<File, Fault> {
    let file = File::options().write(true).create(true).truncate(false).open(&args.output);
    file.map_err(|e| Fault(2, format!("{} cannot be written: {e}", args.output.display())))
}

fn rank(args: &Args) -> Result<ExitCode, Fault> {
    let mut engine = Engine::builder().build(Bootstrap::from_env()?)?;
    let done = compute(args, &mut engine);
    // Also after an error: this completes the sends, and tells the peers that this rank ends.
    let finalized = engine.finalize(Duration::from_secs(10));
    let code = done?;
    finalized?;
    Ok(code)
}

/// What every rank does; rank 0 also has the whole plate before and after.
fn compute(args: &Args, engine: &mut Engine) -> Result<ExitCode, Fault> {
    let (world, rank, ranks) = (engine.comm_world(), engine.rank().0, engine.size());
    // All ranks have the same arguments, so either all of them stop here or none.
    check(args, ranks)?;
    let (width, height) = (args.width as usize, args.height as usize);
    let places = places(width, height, ranks);
    let mut all = if rank == 0 { picture::charges(width, height) } else { Vec::new() };
    let mut own = vec![0.0; places[rank as usize].len()];
    engine.scatterv(&all, &mut own, &places, Rank(0), world)?;
    let mut solver = Solver::new(engine, world, Band::new(width, &own))?;
    let start = Instant::now();
    let iterations = solver.solve(args, engine, rank == 0)?;
    let time = start.elapsed().as_secs_f64();
    let charges = std::mem::replace(&mut all, vec![0.0; if rank == 0 { width * height } else { 0 }]);
    engine.gatherv(&solver.potential, &mut all, &places, Rank(0), world)?;
    match rank {
        0 => report(args, ranks, (iterations, time), &charges, &all),
        _ => Ok(ExitCode::SUCCESS),
    }
}

/// Conjugate gradients on the band of a rank.
struct Solver {
    world: Comm,
    band: Band,
    /// The solution.
    potential: Vec<f64>,
    /// Charges minus the matrix times the potential.
    residual: Vec<f64>,
    /// Matrix times direction.
    product: Vec<f64>,
    /// Adds one number up over all ranks, in place.
    sum: Sum,
}

/// A persistent sum.
type Sum = Persistent<(tickwire::InPlace<f64>, Vec<f64>)>;

impl Solver {
    fn new(engine: &mut Engine, world: Comm, band: Band) -> Result<Self, Fault> {
        let residual = band.cells().to_vec();
        let count = residual.len();
        let sum = engine.allreduce_init(in_place(), vec![0.0], op::Sum, world)?;
        Ok(Solver { world, band, potential: vec![0.0; count], residual, product: vec![0.0; count], sum })
    }

    /// Iterates until the residual is small enough. Returns the number of iterations.
    fn solve(&mut self, args: &Args, engine: &mut Engine, shown: bool) -> Result<u32, Fault> {
        let bar = match shown && std::io::stderr().is_terminal() {
            true => ProgressBar::new(args.iterations.into()),
            false => ProgressBar::hidden(),
        };
        let style = ProgressStyle::with_template("cg {wide_bar} {pos}/{len} iterations at most, residual {msg}");
        bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
        let first = add_up(engine, &mut self.sum, dot(&self.residual, &self.residual))?;
        let (mut length, mut iterations) = (first, 0);
        // `length` has the same bits on all ranks, so all stop together.
        while iterations < args.iterations && length > first * args.residual * args.residual {
            self.exchange(engine)?;
            self.band.multiply(&mut self.product);
            let along = add_up(engine, &mut self.sum, dot(self.band.cells(), &self.product))?;
            let step = length / along;
            for (value, direction) in self.potential.iter_mut().zip(self.band.cells()) {
                *value += step * direction;
            }
            for (value, product) in self.residual.iter_mut().zip(&self.product) {
                *value -= step * product;
            }
            let next = add_up(engine, &mut self.sum, dot(&self.residual, &self.residual))?;
            let turn = next / length;
            for (direction, residual) in self.band.cells_mut().iter_mut().zip(&self.residual) {
                *direction = residual + turn * *direction;
            }
            (length, iterations) = (next, iterations + 1);
            bar.set_message(format!("{:.1e}", (length / first).sqrt()));
            bar.inc(1);
        }
        bar.finish_and_clear();
        Ok(iterations)
    }

    /// Receives the neighbours' rows next to the own band, and sends them the outer rows of the own band.
    fn exchange(&mut self, engine: &mut Engine) -> Result<(), OperationError> {
        let (world, rank, last) = (self.world, engine.rank().0, engine.size() - 1);
        let above = if rank == 0 { Rank::NULL } else { Rank(rank - 1) };
        let below = if rank == last { Rank::NULL } else { Rank(rank + 1) };
        let rows = self.band.rows();
        engine.scope(|scope| {
            let receives = [scope.irecv(rows.above, above, DOWN, world)?, scope.irecv(rows.below, below, UP, world)?];
            let sends = [scope.isend(rows.first, above, UP, world)?, scope.isend(rows.last, below, DOWN, world)?];
            for receive in receives {
                scope.wait_take(receive)?;
            }
            for send in sends {
                scope.wait_take(send)?;
            }
            Ok(())
        })
    }
}

/// The sum of a number over all ranks.
fn add_up(engine: &mut Engine, sum: &mut Sum, own: f64) -> Result<f64, OperationError> {
    engine.buffer(sum)?.1[0] = own;
    engine.start(sum)?;
    engine.wait(sum)?;
    Ok(engine.buffer(sum)?.1[0])
}

/// The same computation on one rank, without messages.
fn serial(args: &Args, charges: &[f64]) -> Vec<f64> {
    let mut band = Band::new(args.width as usize, charges);
    let (mut potential, mut residual) = (vec![0.0; charges.len()], charges.to_vec());
    let mut product = vec![0.0; charges.len()];
    let first = dot(&residual, &residual);
    let (mut length, mut iterations) = (first, 0);
    while iterations < args.iterations && length > first * args.residual * args.residual {
        band.multiply(&mut product);
        let step = length / dot(band.cells(), &product);
        potential.iter_mut().zip(band.cells()).for_each(|(value, direction)| *value += step * direction);
        residual.iter_mut().zip(&product).for_each(|(value, product)| *value -= step * product);
        let next = dot(&residual, &residual);
        let turn = next / length;
        for (direction, residual) in band.cells_mut().iter_mut().zip(&residual) {
            *direction = residual + turn * *direction;
        }
        (length, iterations) = (next, iterations + 1);
    }
    potential
}

/// Writes the picture, compares with the serial answer and says how it went.
fn report(
    args: &Args,
    ranks: u32,
    (iterations, time): (u32, f64),
    charges: &[f64],
    result: &[f64],
) -> Result<ExitCode, Fault> {
    picture::write(open(args)?, args.width, args.height, result)
        .map_err(|e| Fault(1, format!("{} cannot be written: {e}", args.output.display())))?;
    let start = Instant::now();
    let expected = serial(args, charges);
    let serial_time = start.elapsed().as_secs_f64();
    let greatest = expected.iter().fold(0.0f64, |most, value| most.max(value.abs()));
    // A point that is not a number (NaN) counts as an infinite difference.
    let worst = |worst: f64, of: f64| if of.is_nan() { f64::INFINITY } else { worst.max(of) };
    let pairs = result.iter().zip(&expected);
    let difference = pairs.map(|(ours, theirs)| (ours - theirs).abs() / greatest).fold(0.0, worst);
    let Args { width, height, .. } = *args;
    let mut out = std::io::stdout();
    let _ = writeln!(
        out,
        "{width} x {height} points on {ranks} ranks: {iterations} iterations in {time:.3} s; one rank alone {serial_time:.3} s"
    );
    let _ = writeln!(out, "largest difference to the serial answer: {difference:e} of the greatest potential");
    let _ = writeln!(out, "wrote {}", args.output.display());
    if difference > DIFFERENCE_MAX {
        return Err(Fault(1, format!("the answers differ by {difference:e}, which is more than {DIFFERENCE_MAX:e}")));
    }
    Ok(ExitCode::SUCCESS)
}
