//! One job: runs its ranks from start to end, and checks their ends and reports.

use crate::plan::{Case, Plan};
use crate::report::Report;
use crate::surroundings::{fill_shm, free_shm};
use crate::watch::watch;
use crate::{PartArgs, cluster, judge, leaks, rank};
use serde_json::{Value, json};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use tickwire::launch::{Job, OnFailure};
use tickwire_tests::faults::runner;

/// The start of the line in which a job reports what it did.
pub(crate) const OUTCOME: &str = "outcome: ";
/// Number of programs in a job over a simulated network.
const PROGRAMS: u64 = 40;

/// Runs a job. The last line of its output reports what it did.
pub(crate) fn run(args: &PartArgs) -> ExitCode {
    rank::follow(args.parent);
    let plan = args.plan();
    let outcome = match plan.case {
        Case::Simulated => simulated(&plan),
        Case::Loopback => cluster::run(&plan, &args.place)
            .and_then(|reports| judge::failures(&plan, &reports).map(|()| sum(&plan, &reports, (0, 0)))),
        _ => processes(args, &plan),
    };
    match outcome {
        Ok(value) => {
            println!("{OUTCOME}{value}");
            ExitCode::SUCCESS
        }
        Err(words) => {
            println!("{words}\n{plan:?}");
            ExitCode::FAILURE
        }
    }
}

fn simulated(plan: &Plan) -> Result<Value, String> {
    // The words of a failed program's panic are in the error, so they are not printed twice.
    std::panic::set_hook(Box::new(|_| ()));
    let first = plan.seed.wrapping_mul(PROGRAMS);
    let sum = runner::run(first, first.saturating_add(PROGRAMS), |_| true)?;
    let _ = std::panic::take_hook();
    Ok(json!({ "ranks": sum.engines, "ends": sum.ran.deaths, "programs": sum.cases }))
}

fn processes(args: &PartArgs, plan: &Plan) -> Result<Value, String> {
    if let Some(left) = plan.free_bytes
        && let Err(words) = fill_shm(left)
    {
        return Ok(json!({ "skipped": words }));
    }
    let (free, over) = (free_shm(), AtomicBool::new(false));
    let program = std::env::current_exe().map_err(|error| error.to_string())?;
    let job = Job::new(plan.ranks).program(program).args(args.words("rank"));
    let job = job.on_failure(OnFailure::Continue).tag_output(true);
    let (outcome, watched) = std::thread::scope(|scope| {
        let watcher = scope.spawn(|| watch(plan, &args.place, &over));
        let outcome = job.run();
        over.store(true, Ordering::Release);
        (outcome, watcher.join().expect("it does not panic"))
    });
    let outcome = outcome.map_err(|error| error.to_string())?;
    let watched = watched.map_err(|words| format!("{words}: {:?}", outcome.statuses))?;
    let reports: Vec<(u32, Report)> =
        (0..plan.ranks).filter_map(|rank| Some((rank, Report::read(&args.place, rank)?))).collect();
    judge::statuses(plan, &outcome.statuses, &reports)?;
    judge::failures(plan, &reports)?;
    let names = leaks::names(&format!("job-{}-", std::process::id()));
    let (children, free_now) = (leaks::children(), free_shm());
    if !names.is_empty() || !children.is_empty() {
        return Err(format!("left over: {names:?}, children {children:?}"));
    }
    if plan.free_bytes.is_some() && free_now != free {
        return Err(format!("{free} bytes of /dev/shm were free, now {free_now}"));
    }
    Ok(sum(plan, &reports, watched))
}

fn sum(plan: &Plan, reports: &[(u32, Report)], (continued, _): (u64, u64)) -> Value {
    let of = |figure: fn(&Report) -> u64| reports.iter().map(|(_, report)| figure(report)).sum::<u64>();
    json!({
        "ranks": plan.ranks,
        "messages": of(|report| report.messages),
        "bytes": of(|report| report.bytes),
        "failed": of(|report| report.failed.len() as u64),
        "ends": plan.ranks as usize - reports.len(),
        "continued": continued,
    })
}
