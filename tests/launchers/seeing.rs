//! Commands that observe a job on several hosts, run on one of these hosts. The second host does not see the
//! processes of the first.

use super::hosts::missing;
use super::kit::{RANK, run, start, tool, until, words};
use super::network::Network;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use tickwire_tests::binaries::binary;

/// Longest time of a look at hosts that do not answer: three times the requested patience, and a second for the way.
const LOOK_MAX: Duration = Duration::from_secs(10);

/// The output of a command on a host.
fn says(network: &Network, host: &str, args: &[&str]) -> String {
    words(&run(&mut network.on(host, &tickwire(), args)))
}

fn tickwire() -> PathBuf {
    Path::new(binary("tickwire").as_os_str()).to_owned()
}

/// The process number that a waiting rank has written.
fn process(network: &Network, rank: u32) -> String {
    std::fs::read_to_string(network.place.join(format!("waits-{rank}"))).unwrap()
}

fn signal(network: &Network, rank: u32, name: &str) {
    let pid = process(network, rank);
    assert!(run(&mut network.on("left", Path::new("kill"), &[name, &pid])).status.success());
}

#[test]
fn one_host_shows_all_ranks_of_two() {
    let Some(mpiexec) = tool("mpich", "mpiexec") else { return };
    Network::with("seeing", |network| {
        let running = missing(network, &mut network.hydra(&mpiexec, "left:2,right:2", 4));
        // A rank is shown as waiting only after it has found nothing to do for some time.
        until("the answers of both hosts say who is missed", || {
            let said = says(network, "right", &["whowaits"]);
            (0..3).all(|rank| said.contains(&format!("rank {rank} waits for tag 1 from rank 3")))
                && (0..3).all(|rank| said.contains(&format!("rank {rank} waits in a call")))
                && said.contains("rank 3 ticks, and waits in no call")
        });
        let dump = says(network, "right", &["dump", "--rank", "0"]);
        assert!(
            dump.contains("rank 0 of 4, process ") && dump.contains("from rank 3, tag 1 in world: posted"),
            "{dump}"
        );
        let all = says(network, "right", &["dump", "--all"]);
        assert!((0..4).all(|rank| all.contains(&format!("rank {rank} of 4, process "))), "{all}");
        let top = says(network, "right", &["top", "--once", "--interval", "50"]);
        let row = |rank: u32, pid: &str| {
            let cells =
                |line: &str| line.split('|').skip(1).take(2).map(|cell| cell.trim().to_owned()).collect::<Vec<_>>();
            top.lines().any(|line| cells(line) == [rank.to_string(), pid.to_owned()])
        };
        assert!(top.contains("4 ranks, 4 with an engine"), "{top}");
        assert!((0..4).all(|rank| row(rank, &process(network, rank))), "{top}");
        // The same from the first host, and through a launcher. The first host sees all processes, so the job must be
        // named.
        let job = all.split_once(", job ").and_then(|(_, rest)| rest.split_once(':')).unwrap().0.to_owned();
        let said = says(network, "left", &["whowaits", &job]);
        assert!(said.contains("rank 2 waits for tag 1 from rank 3") && said.contains("rank 3 ticks, and"), "{said}");
        let mut command = network.hydra(&mpiexec, "left,right", 2);
        let said = words(&run(command.arg(tickwire()).args(["whowaits", "--hosts", &job])));
        assert!((0..3).all(|rank| said.contains(&format!("rank {rank} waits for tag 1 from rank 3"))), "{said}");
        // Another user sees nothing.
        let other = ["--reuid=65534", "--regid=65534", "--clear-groups", "--"];
        for args in [&["whowaits"][..], &["dump", "--rank", "0"], &["top", "--once"]] {
            let program = tickwire();
            let args = [&other[..], &[program.to_str().unwrap()], args].concat();
            let said = words(&run(&mut network.on("right", Path::new("setpriv"), &args)));
            assert!(said.contains("no job runs here that this user may see"), "{said}");
        }
        drop(running);
    });
}

#[test]
fn ranks_and_hosts_that_do_not_answer_are_named_in_a_bounded_time() {
    let Some(mpiexec) = tool("mpich", "mpiexec") else { return };
    Network::with("silent", |network| {
        let mut command = network.hydra(&mpiexec, "left:2,right,third", 4);
        let running = start(command.args([RANK, "miss"]).arg(&*network.place));
        until("the ranks wait", || (0..4).all(|rank| network.place.join(format!("waits-{rank}")).exists()));
        let look = || {
            let start = Instant::now();
            let said = says(network, "right", &["whowaits", "--timeout", "600"]);
            assert!(start.elapsed() < LOOK_MAX, "{:?}: {said}", start.elapsed());
            assert!(!said.contains("has ended"), "{said}");
            said
        };
        until("all are seen", || look().contains("rank 1 waits for tag 1 from rank 3"));
        // Another rank of the same host answers for a rank that is stopped.
        signal(network, 0, "-STOP");
        let said = look();
        assert!(said.contains("rank 0 does not tick") && said.contains("rank 1 waits in a call"), "{said}");
        signal(network, 1, "-STOP");
        let said = look();
        let silent =
            |rank: u32, host: u32| said.contains(&format!("rank {rank} cannot be asked: host {host} does not answer"));
        assert!(silent(0, 0) && silent(1, 0) && said.contains("rank 3 ticks, and"), "{said}");
        let one = says(network, "right", &["dump", "--rank", "0", "--timeout", "600"]);
        assert!(one.contains("tickwire dump: rank 0 cannot be asked: host 0 does not answer"), "{one}");
        signal(network, 0, "-CONT");
        signal(network, 1, "-CONT");
        // A host loses its power: nobody is told.
        network.cut("third");
        network.kill("third");
        let said = look();
        assert!(said.contains("rank 3 cannot be asked: host 2 does not answer"), "{said}");
        assert!(said.contains("rank 0 ") && !said.contains("rank 0 cannot be asked"), "{said}");
        let top = says(network, "right", &["top", "--once", "--interval", "50"]);
        assert!(top.contains("4 ranks, 3 with an engine") && top.contains("no answer"), "{top}");
        running.signal(rustix::process::Signal::KILL);
    });
}
