//! Heat that spreads over a plate, computed by several ranks: `cargo run --release --example heat -- -n 4`
//!
//! The plate is cut into one block for each rank. In every iteration a rank posts receives for its neighbours' edges, and
//! sends its own edges. It computes the inside of its block in strips, with an `engine.tick()` after each, so that messages
//! move meanwhile. Once the neighbours' edges are there, it computes the rim. The application owns the loop.
//!
//! The program starts its own ranks, or is one of them under `tickwire run -n 4 -- target/release/examples/heat`.

#[path = "heat/field.rs"]
mod field;
#[path = "heat/halo.rs"]
mod halo;
#[path = "heat/picture.rs"]
mod picture;
#[path = "ranks.rs"]
mod ranks;

use std::fs::File;
use std::io::{IsTerminal, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Parser;
use field::{Block, Field, Grid};
use halo::Halo;
use indicatif::{ProgressBar, ProgressStyle};
use ranks::{Fault, start_ranks};
use tickwire::{Bootstrap, Engine, Rank, Tag};

/// Largest difference to the serial answer that passes. Both answers are summed in the same order, so there should be none.
const DIFFERENCE_MAX: f64 = 1e-12;
/// Tags of the messages at the start and at the end. In an iteration, the number of its direction is the tag of a message.
const PLAN: Tag = Tag(100);
const BLOCK: Tag = Tag(101);
const RESULT: Tag = Tag(102);

/// Computes how heat spreads over a plate, with several ranks, and compares with the serial answer.
///
/// The status is 0, 1 if the answers differ or a rank fails, 2 for wrong use.
#[derive(Parser)]
#[command(name = "heat", max_term_width = 100)]
struct Args {
    /// Number of ranks; without effect under a launcher, which decides itself
    #[arg(short = 'n', long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=4096))]
    ranks: u32,
    /// Number of time steps
    #[arg(long, value_name = "K", default_value_t = 500)]
    iterations: u32,
    /// A PNG whose brightness is the temperature at the start, instead of a drawing
    #[arg(long, value_name = "PNG", conflicts_with_all = ["width", "height"])]
    input: Option<PathBuf>,
    /// The picture to write
    #[arg(long, value_name = "PNG", default_value = "heat.png")]
    output: PathBuf,
    /// Cells from left to right
    #[arg(long, value_name = "W", default_value_t = 768, value_parser = clap::value_parser!(u32).range(1..=16384))]
    width: u32,
    /// Cells from top to bottom
    #[arg(long, value_name = "H", default_value_t = 512, value_parser = clap::value_parser!(u32).range(1..=16384))]
    height: u32,
}

fn main() -> ExitCode {
    ranks::run("heat", start, rank)
}

/// Checks the arguments and files, so that a mistake is reported once, and starts the ranks.
fn start(args: &Args) -> Result<ExitCode, Fault> {
    prepare(args, args.ranks)?;
    start_ranks(args.ranks)
}

/// The plate, its division among ranks, and the file for the result.
fn prepare(args: &Args, ranks: u32) -> Result<(Field, Grid, File), Fault> {
    let field = match &args.input {
        Some(path) => picture::read(path).map_err(|words| Fault(2, words))?,
        None => picture::draw(args.width as usize, args.height as usize),
    };
    let grid = Grid::divide(field.width, field.height, ranks).map_err(|words| Fault(2, words))?;
    let output = File::options().write(true).create(true).truncate(false).open(&args.output);
    let output = output.map_err(|e| Fault(2, format!("{} cannot be written: {e}", args.output.display())))?;
    Ok((field, grid, output))
}

fn rank(args: &Args) -> Result<ExitCode, Fault> {
    let mut engine = Engine::builder().build(Bootstrap::from_env()?)?;
    let done = if engine.rank().0 == 0 { lead(args, &mut engine) } else { follow(args, &mut engine) };
    // Also after an error: this completes the sends, and tells the peers that this rank ends.
    let finalized = engine.finalize(Duration::from_secs(10));
    let code = done?;
    finalized?;
    Ok(code)
}

/// Rank 0: deals out the blocks, computes its own, collects, checks, and writes the picture.
fn lead(args: &Args, engine: &mut Engine) -> Result<ExitCode, Fault> {
    let (world, ranks) = (engine.comm_world(), engine.size());
    let prepared = prepare(args, ranks);
    let plan = prepared.as_ref().map_or([0, 0], |(field, ..)| [field.width as u64, field.height as u64]);
    for other in 1..ranks {
        engine.send(&plan, Rank(other), PLAN, world)?;
    }
    let (field, grid, output) = prepared?;
    for other in 1..ranks {
        engine.send(field.cut(&grid.place(other)), Rank(other), BLOCK, world)?;
    }
    let mut block = Block::new(&grid.place(0), &field.cut(&grid.place(0)));
    let start = Instant::now();
    iterate(args, engine, &grid, &mut block)?;

    let mut result = Field::new(field.width, field.height);
    result.paste(&grid.place(0), &block.cells());
    for other in 1..ranks {
        let (cells, _) = engine.recv_vec(Rank(other), RESULT, world)?;
        result.paste(&grid.place(other), &cells);
    }
    let time = start.elapsed().as_secs_f64();
    picture::write(output, &result, field.range())
        .map_err(|e| Fault(1, format!("{} cannot be written: {e}", args.output.display())))?;
    report(args, &grid, time, &result, &field)
}

/// Any other rank.
fn follow(args: &Args, engine: &mut Engine) -> Result<ExitCode, Fault> {
    let world = engine.comm_world();
    let mut plan = [0u64; 2];
    engine.recv(&mut plan, Rank(0), PLAN, world)?;
    let [width, height] = plan.map(|cells| cells as usize);
    if width == 0 {
        // Rank 0 has said why.
        return Ok(ExitCode::SUCCESS);
    }
    let grid = Grid::divide(width, height, engine.size()).map_err(|words| Fault(2, words))?;
    let place = grid.place(engine.rank().0);
    let (cells, _) = engine.recv_vec(Rank(0), BLOCK, world)?;
    let mut block = Block::new(&place, &cells);
    iterate(args, engine, &grid, &mut block)?;
    engine.send(block.cells(), Rank(0), RESULT, world)?;
    Ok(ExitCode::SUCCESS)
}

/// The application's own loop.
fn iterate(args: &Args, engine: &mut Engine, grid: &Grid, block: &mut Block) -> Result<(), Fault> {
    let bar = match engine.rank().0 == 0 && std::io::stderr().is_terminal() {
        true => ProgressBar::new(args.iterations.into()),
        false => ProgressBar::hidden(),
    };
    let style = ProgressStyle::with_template("heat {wide_bar} {pos}/{len} iterations, {eta} left");
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    let mut halo = Halo::new(grid, engine.rank().0, block);
    for _ in 0..args.iterations {
        halo.start(engine, block)?;
        block.compute_inside(|| {
            engine.tick();
        });
        halo.finish(engine, block)?;
        block.compute_rim();
        block.step();
        bar.inc(1);
    }
    bar.finish_and_clear();
    Ok(())
}

/// Compares with the serial answer and says how it went.
fn report(args: &Args, grid: &Grid, time: f64, result: &Field, field: &Field) -> Result<ExitCode, Fault> {
    let mut serial =
        Block::new(&Grid::divide(field.width, field.height, 1).map_err(|w| Fault(1, w))?.place(0), &field.cells);
    let start = Instant::now();
    for _ in 0..args.iterations {
        serial.compute_inside(|| {});
        serial.compute_rim();
        serial.step();
    }
    let serial_time = start.elapsed().as_secs_f64();
    let pairs = result.cells.iter().zip(serial.cells());
    // A cell that is not a number (NaN) counts as an infinite difference.
    let worst = |worst: f64, cell: f64| if cell.is_nan() { f64::INFINITY } else { worst.max(cell) };
    let difference = pairs.map(|(ours, theirs)| (ours - theirs).abs()).fold(0.0, worst);
    let Grid { columns, rows, width, height } = *grid;
    let mut out = std::io::stdout();
    let _ = writeln!(
        out,
        "{width} x {height} cells on {columns} x {rows} ranks: {} iterations in {time:.3} s; one rank alone {serial_time:.3} s",
        args.iterations
    );
    let _ = writeln!(out, "largest difference to the serial answer: {difference:e}");
    let _ = writeln!(out, "wrote {}", args.output.display());
    if difference > DIFFERENCE_MAX {
        return Err(Fault(1, format!("the answers differ by {difference:e}, which is more than {DIFFERENCE_MAX:e}")));
    }
    Ok(ExitCode::SUCCESS)
}
