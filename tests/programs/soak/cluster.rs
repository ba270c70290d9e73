//! A job with all engines in one process, each on its own thread.

use crate::leaks::{Held, children};
use crate::plan::Plan;
use crate::report::Report;
use crate::worker::Worker;
use std::path::Path;
use std::time::Duration;
use tickwire::Engine;
use tickwire::internals::components::limits::LOOPBACK_RING_BYTES;
use tickwire::internals::transports::Hub;
use tickwire::testing::{Board, ROWS};

/// Longest time to close an engine.
const CLOSING: Duration = Duration::from_secs(20);

/// Runs a job. Returns the reports of its ranks.
///
/// # Errors
/// Describes what is wrong.
pub(crate) fn run(plan: &Plan, place: &Path) -> Result<Vec<(u32, Report)>, String> {
    let before = Held::now();
    let (board, hub) = (Board::new(plan.ranks), Hub::new(plan.ranks, LOOPBACK_RING_BYTES));
    let ends: Vec<_> = std::thread::scope(|scope| {
        let threads = (0..plan.ranks).map(|rank| {
            let (bootstrap, builder) = (board.bootstrap(rank), Engine::builder().hub(hub.clone()).initial_rows(ROWS));
            scope.spawn(move || {
                let mut engine = builder.build(bootstrap).unwrap();
                let (report, _) = Worker::new(&mut engine, plan, place).run();
                engine.finalize(CLOSING).unwrap();
                report
            })
        });
        let threads: Vec<_> = threads.collect();
        threads.into_iter().map(|thread| thread.join()).collect()
    });
    drop((board, hub));
    let mut reports = Vec::new();
    for (rank, end) in (0..).zip(ends) {
        match end {
            Ok(report) => reports.push((rank, report)),
            Err(_) if plan.is_doomed(rank) => {}
            Err(_) => return Err(format!("rank {rank} panicked")),
        }
    }
    let left = Held::now().beyond(&before);
    if !left.is_empty() || !children().is_empty() {
        return Err(format!("left over: {left:#?}, children {:?}", children()));
    }
    Ok(reports)
}
