//! A flock in a bevy `App`, over any number of ranks: `cargo run --release --features bevy --example boids`, or under
//! `tickwire run -n 4 -- target/release/examples/boids`.
//!
//! Boids are entities. The plane is cut into one strip for each rank. In every frame a rank sends its neighbours the boids near
//! their common edge, spawns the boids that they have sent, and moves its own boids by what they see. In the end rank 0 collects the
//! flock, compares it with the serial answer, bit for bit, and draws it.

#[path = "boids/flock.rs"]
mod flock;
#[path = "boids/picture.rs"]
mod picture;
#[path = "program.rs"]
mod program;
#[path = "boids/strip.rs"]
mod strip;

use bevy_ecs::prelude::*;
use clap::Parser;
use flock::{Boid, Words};
use indicatif::{ProgressBar, ProgressStyle};
use program::Fault;
use std::fs::File;
use std::io::{IsTerminal, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};
use strip::{Ghost, Halo, LEFTWARD, RESULT, RIGHTWARD, Strip};
use tickwire::bevy::bevy_app::{App, AppExit, Last, ScheduleRunnerPlugin, Startup, Update};
use tickwire::bevy::{Received, Sent, TickwireApp, TickwireCommands, TickwireError, TickwirePlugin, sleep};
use tickwire::{Bootstrap, Comm, Engine, Rank, Source};

/// How long a frame waits at most for what the neighbours send.
const PATIENCE: Duration = Duration::from_millis(20);
/// How long a rank may take at the end to complete its sends.
const END: Duration = Duration::from_secs(30);

/// Moves a flock with several ranks in a bevy App, and compares with the serial answer.
///
/// The status is 0, 1 if the answers differ or a rank fails, 2 for wrong use.
#[derive(Parser, Resource, Clone)]
#[command(name = "boids", max_term_width = 100)]
struct Args {
    /// Number of boids
    #[arg(long, value_name = "N", default_value_t = 1500, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    boids: u32,
    /// Number of frames
    #[arg(long, value_name = "K", default_value_t = 400)]
    frames: u32,
    /// Seed from which the first flock is drawn
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    seed: u64,
    /// The picture to write
    #[arg(long, value_name = "PNG", default_value = "boids.png")]
    picture: PathBuf,
}

fn main() -> ExitCode {
    program::run("boids", run, run)
}

fn run(args: &Args) -> Result<ExitCode, Fault> {
    let bootstrap = Bootstrap::from_env()?;
    let engine = Engine::builder().build(bootstrap)?;
    let rank = engine.rank();
    let strip = match Strip::new(rank, engine.size()) {
        Ok(strip) => strip,
        Err(words) if rank == Rank(0) => return Err(Fault(2, words)),
        // Rank 0 says why.
        Err(_) => return Ok(ExitCode::SUCCESS),
    };
    let moves = (strip::move_flock, strip::hand_over, count).chain().run_if(flock_moves);
    // There is one exchange more than there are moves, so that boids arrive that cross an edge in the last move.
    let frame = (strip::take_halo, report.run_if(not(flock_moves)), moves).chain();
    let frame = frame.run_if(strip::halo_is_here.and_then(not(has_reported)));
    let mut app = App::new();
    if rank == Rank(0) {
        let picture = File::options().write(true).create(true).truncate(false).open(&args.picture);
        let picture = picture.map_err(|e| Fault(2, format!("{} cannot be written: {e}", args.picture.display())))?;
        app.insert_resource(Lead::new(picture, args.frames)).add_systems(Update, collect.after(report));
    }
    app.add_plugins((ScheduleRunnerPlugin::default(), TickwirePlugin::new(engine).finalize_within(END)))
        .insert_resource(args.clone())
        .insert_resource(strip)
        .init_resource::<Halo>()
        .init_resource::<Frame>()
        .observe_messages(Source::Any, LEFTWARD, Comm::WORLD, strip::from_right)
        .observe_messages(Source::Any, RIGHTWARD, Comm::WORLD, strip::from_left)
        .subscribe::<Words>(Source::Any, RESULT, Comm::WORLD)
        .add_observer(fail)
        .add_systems(Startup, (hatch, strip::hand_over).chain())
        .add_systems(Update, (frame, leave))
        .add_systems(Last, sleep(PATIENCE).run_if(not(strip::halo_is_here)));
    Ok(match app.run() {
        AppExit::Success => ExitCode::SUCCESS,
        AppExit::Error(code) => ExitCode::from(code.get()),
    })
}

/// Writes one line to stderr, at once, so that lines of several ranks do not mix. A closed stderr is no reason to panic.
fn say(words: &str) {
    let _ = std::io::stderr().write_all(format!("boids: {words}\n").as_bytes());
}

/// How many frames the flock has moved, and whether the rank has reported what it has in the end.
#[derive(Resource, Default)]
struct Frame {
    moved: u32,
    reported: bool,
}

fn flock_moves(frame: Res<Frame>, args: Res<Args>) -> bool {
    frame.moved < args.frames
}

fn has_reported(frame: Res<Frame>) -> bool {
    frame.reported
}

/// Spawns the boids of the own strip.
fn hatch(args: Res<Args>, strip: Res<Strip>, mut commands: Commands) {
    commands
        .spawn_batch(flock::draw(args.boids, args.seed).into_iter().filter(|boid| strip.has(boid)).collect::<Vec<_>>());
}

fn count(mut frame: ResMut<Frame>, lead: Option<Res<Lead>>) {
    frame.moved += 1;
    if let Some(lead) = lead {
        lead.bar.inc(1);
    }
}

/// Sends the own boids to rank 0. After the last exchange each boid belongs to exactly one rank.
fn report(mut frame: ResMut<Frame>, own: Query<&Boid, Without<Ghost>>, mut commands: Commands) {
    frame.reported = true;
    let words: Vec<Words> = own.iter().map(|boid| boid.to_words()).collect();
    commands.send(words, Rank(0), RESULT, Comm::WORLD);
}

/// Ranks other than 0 leave once their result is sent.
fn leave(mut sent: MessageReader<Sent>, strip: Res<Strip>, mut exit: MessageWriter<AppExit>) {
    if sent.read().any(|sent| sent.tag == RESULT) && strip.rank != 0 {
        exit.write(AppExit::Success);
    }
}

/// Any error ends the app.
fn fail(error: On<TickwireError>, strip: Res<Strip>, mut exit: MessageWriter<AppExit>) {
    say(&format!("rank {}: {}", strip.rank, error.event()));
    exit.write(AppExit::error());
}

/// The data that only rank 0 has.
#[derive(Resource)]
struct Lead {
    bar: ProgressBar,
    picture: Option<File>,
    start: Instant,
    /// The flock at the end, as far as it has come, and from how many ranks.
    flock: Vec<Boid>,
    ranks: u32,
}

impl Lead {
    fn new(picture: File, frames: u32) -> Self {
        let bar = match std::io::stderr().is_terminal() {
            true => ProgressBar::new(frames.into()),
            false => ProgressBar::hidden(),
        };
        let style = ProgressStyle::with_template("boids {wide_bar} {pos}/{len} frames, {eta} left");
        bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
        Lead { bar, picture: Some(picture), start: Instant::now(), flock: Vec::new(), ranks: 0 }
    }
}

/// Rank 0 collects the flock. When all ranks have reported, it compares, draws, and leaves.
fn collect(
    mut lead: ResMut<Lead>,
    mut received: MessageReader<Received<Words>>,
    (args, strip): (Res<Args>, Res<Strip>),
    mut exit: MessageWriter<AppExit>,
) {
    for message in received.read().filter(|message| message.tag == RESULT) {
        lead.flock.extend(strip::boids(&message.data));
        lead.ranks += 1;
    }
    let Some(picture) = (lead.ranks == strip.ranks).then(|| lead.picture.take()).flatten() else { return };
    let time = lead.start.elapsed().as_secs_f64();
    lead.bar.finish_and_clear();
    lead.flock.sort_by_key(|boid| boid.id);
    match judge(&args, strip.ranks, &lead.flock, picture, time) {
        Ok(()) => exit.write(AppExit::Success),
        Err(words) => {
            say(&words);
            exit.write(AppExit::error())
        }
    };
}

/// Compares with the serial answer, writes the picture, and says how it went.
fn judge(args: &Args, ranks: u32, flock: &[Boid], picture: File, time: f64) -> Result<(), String> {
    picture::write(picture, flock, ranks).map_err(|e| format!("{} cannot be written: {e}", args.picture.display()))?;
    let start = Instant::now();
    let serial = flock::serial(flock::draw(args.boids, args.seed), args.frames);
    let serial_time = start.elapsed().as_secs_f64();
    let same = |(ours, theirs): (&Boid, &Boid)| ours.to_words() == theirs.to_words();
    let differ = flock.iter().zip(&serial).filter(|&pair| !same(pair)).count();
    let mut out = std::io::stdout();
    let Args { boids, frames, picture, .. } = args;
    let _ = writeln!(
        out,
        "{boids} boids on {ranks} rank{}: {frames} frames in {time:.3} s; one rank alone {serial_time:.3} s",
        if ranks == 1 { "" } else { "s" }
    );
    let _ = writeln!(out, "in the end: {} boids, {differ} not as in the serial answer", flock.len());
    let _ = writeln!(out, "wrote {}", picture.display());
    match flock.len() == serial.len() && differ == 0 {
        true => Ok(()),
        false => Err(format!("{} of {boids} boids have come, and {differ} are not where they should be", flock.len())),
    }
}
