//! A rank over shared memory. It is denied what the plan says, does its work, and must hold nothing in the end.

use crate::PartArgs;
use crate::leaks::{Held, children, most_memory};
use crate::plan::{Files, What};
use crate::report::{Report, now_ms, put};
use crate::surroundings::{bound_files, deny};
use crate::worker::Worker;
use rustix::process::{Signal, getppid, set_parent_process_death_signal};
use std::process::ExitCode;
use std::time::Duration;
use tickwire::bootstrap::ENV_RANK;
use tickwire::{Bootstrap, Engine};

/// The status of a rank whose engine could not be built.
pub(crate) const UNBUILT: u8 = 7;
/// Longest time to close an engine.
const CLOSING: Duration = Duration::from_secs(20);
/// Memory that a rank may take besides its messages, bytes: for unexpected messages (32 MiB), tables, rings and
/// temporaries.
const BESIDE: u64 = 96 << 20;

/// Makes this process end when its parent ends.
pub(crate) fn follow(parent: i32) {
    set_parent_process_death_signal(Some(Signal::KILL)).expect("a process may ask for a signal");
    // The parent may have ended before the call.
    if getppid().map(|pid| pid.as_raw_nonzero().get()) != Some(parent) {
        std::process::exit(1);
    }
}

pub(crate) fn run(args: &PartArgs) -> ExitCode {
    follow(args.parent);
    let plan = args.plan();
    let me: u32 = std::env::var(ENV_RANK).expect("started by a job").parse().expect("a number");
    put(&args.place, &format!("started-{me}"), &std::process::id().to_string());
    for trouble in plan.troubles(me) {
        if let What::Late(ms) = trouble.what {
            std::thread::sleep(Duration::from_millis(ms));
        }
    }
    deny(&plan);
    let before = Held::now();
    let memory = most_memory();
    if plan.files(me) == Some(Files::Before) {
        bound_files();
    }
    let mut engine = match Engine::builder().build(Bootstrap::from_env().unwrap()) {
        Ok(engine) => engine,
        Err(error) if plan.is_short() => {
            let report = Report { unbuilt: Some(error.to_string()), ..Report::default() };
            report.write(&args.place, me);
            return ExitCode::from(UNBUILT);
        }
        Err(error) => panic!("rank {me}: {error}"),
    };
    put(&args.place, &format!("ready-{me}"), &now_ms().to_string());
    if plan.files(me) == Some(Files::After) {
        bound_files();
    }
    let (report, held) = Worker::new(&mut engine, &plan, &args.place).run();
    engine.finalize(CLOSING).unwrap();
    drop(engine);
    let left = Held::now().beyond(&before);
    assert!(left.is_empty(), "rank {me}: left over: {left:#?}");
    assert!(children().is_empty(), "rank {me}: it has children: {:?}", children());
    let (grown, most) = (most_memory() - memory, held as u64 + BESIDE);
    assert!(grown <= most, "rank {me}: {grown} bytes of memory, {held} of them of its messages");
    report.write(&args.place, me);
    ExitCode::SUCCESS
}
