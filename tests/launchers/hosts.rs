//! Jobs on several hosts under other launchers.

use super::kit::{RANK, Running, comes, reports, run, start, tool, until, wait, words};
use super::network::Network;
use std::path::Path;
use std::process::Command;
use tickwire_tests::binaries::example;

/// A rank of a job with windows.
const WINDOWS: &str = env!("CARGO_BIN_EXE_tests-windows");

/// Checks that ranks know their places and use the shortest ways. `hosts` has the host of each rank.
pub(crate) fn know_their_places(command: &mut Command, hosts: &[u32]) {
    let lines = reports(&run(command.args([RANK, "ring"])));
    assert_eq!(lines.len(), hosts.len(), "{lines:?}");
    let many = hosts.iter().max().unwrap() + 1;
    for (rank, (line, host)) in lines.iter().zip(hosts).enumerate() {
        let near: Vec<usize> = (0..hosts.len()).filter(|&other| hosts[other] == *host).collect();
        let place = near.iter().position(|&other| other == rank).unwrap();
        let others = (0..hosts.len()).filter(|&other| other != rank);
        let routes: Vec<_> =
            others.map(|other| if hosts[other] == *host { "shm" } else { "ofi:tcp;ofi_rxm" }).collect();
        let ranks = hosts.len();
        let expected = format!(
            "rank {rank} of {ranks}, host {host} of {many}, {place} of {} shared, by {};",
            near.len(),
            routes.join(" ")
        );
        assert!(line.starts_with(&expected), "{line}\n{expected}");
    }
}

/// Checks that `heat` draws the same picture as with one rank.
pub(crate) fn draws(network: &Network, mut command: Command) {
    let heat = |command: &mut Command, name: &str| {
        command.arg(example("heat")).args(["--width", "96", "--height", "64", "--iterations", "50", "--output"]);
        let output = run(command.arg(network.place.join(name)));
        assert!(output.status.success(), "{}", words(&output));
        std::fs::read(network.place.join(name)).unwrap()
    };
    let alone =
        heat(Command::new(tickwire_tests::binaries::binary("tickwire")).args(["run", "-n", "1", "--"]), "alone");
    assert_eq!(heat(&mut command, "several"), alone);
}

/// Checks that `cg` solves its equations as a serial program does. Its sums go by the leaders of the hosts.
fn solves(network: &Network, mut command: Command) {
    command.arg(example("cg")).args(["--width", "64", "--height", "48", "--output"]);
    let output = run(command.arg(network.place.join("potential")));
    assert!(output.status.success(), "{}", words(&output));
}

/// Checks that all ranks have passed the point-to-point cases.
pub(crate) fn has_all_cases(command: &mut Command, ranks: usize) {
    let lines = reports(&run(command.args([RANK, "cases"])));
    let expected: Vec<_> = (0..ranks).map(|rank| format!("rank {rank} has had all cases")).collect();
    assert_eq!(lines, expected);
}

#[test]
fn hydra_on_two_and_three_hosts() {
    let Some(mpiexec) = tool("mpich", "mpiexec") else { return };
    Network::with("hydra", |network| {
        know_their_places(&mut network.hydra(&mpiexec, "left:2,right:2", 4), &[0, 0, 1, 1]);
        know_their_places(&mut network.hydra(&mpiexec, "left,right,third", 5), &[0, 1, 2, 0, 1]);
        draws(network, network.hydra(&mpiexec, "left:2,right:2,third:2", 6));
        solves(network, network.hydra(&mpiexec, "left:2,right:3", 5));
        has_all_cases(&mut network.hydra(&mpiexec, "left:2,right:2", 4), 4);
        has_all_cases(&mut network.hydra(&mpiexec, "left,right,third", 3), 3);
        // Random programs of two ranks, checked by the model of matching.
        let matching = [env!("CARGO_BIN_EXE_tests-matching"), "0", "300", "1", "1"];
        let output = run(network.hydra(&mpiexec, "left,right", 2).args(matching));
        assert!(output.status.success(), "{}", words(&output));
    });
}

#[test]
fn prterun_on_two_and_three_hosts() {
    let Some(mpirun) = tool("openmpi", "mpirun") else { return };
    Network::with("prte", |network| {
        know_their_places(&mut network.prte(&mpirun, "left:2,right:2", 4), &[0, 0, 1, 1]);
        draws(network, network.prte(&mpirun, "left:2,right:1", 3));
        has_all_cases(&mut network.prte(&mpirun, "left:1,right:1,third:1", 3), 3);
    });
}

/// Starts a job with two ranks on each of two hosts. The first three ranks wait for the fourth.
pub(crate) fn missing(network: &Network, command: &mut Command) -> Running {
    let running = start(command.args([RANK, "miss"]).arg(&*network.place));
    until("the ranks wait", || (0..4).all(|rank| network.place.join(format!("waits-{rank}")).exists()));
    running
}

/// Waits until both ranks of the first host notice that the last rank is missing. Returns the reason that the first
/// of them gives.
pub(crate) fn notice(network: &Network) -> String {
    let missed = |rank: u32| std::fs::read_to_string(network.place.join(format!("missed-{rank}")));
    until("the first host has noticed", || (0..2).all(|rank| missed(rank).is_ok()));
    missed(0).unwrap()
}

/// A cable is cut. The launcher does not notice, so a person would have to end the job.
fn notices_a_cut_cable(network: &Network, command: &mut Command) {
    let running = missing(network, command);
    network.cut("right");
    let why = notice(network);
    assert!(why.contains("proc 3 has failed") && why.contains("has not answered for"), "{why}");
    running.signal(rustix::process::Signal::KILL);
}

/// A host dies, and the launcher must end the job. Returns what the launcher has written.
fn ends_with_a_host(network: &Network, command: &mut Command) -> std::process::Output {
    let running = missing(network, command);
    network.kill("right");
    wait(running)
}

#[test]
fn a_cut_cable_is_noticed_by_those_who_wait_behind_it() {
    let Some(mpiexec) = tool("mpich", "mpiexec") else { return };
    Network::with("cut", |network| notices_a_cut_cable(network, &mut network.hydra(&mpiexec, "left:2,right:2", 4)));
}

#[test]
fn a_killed_host_ends_the_job() {
    let Some(mpiexec) = tool("mpich", "mpiexec") else { return };
    Network::with("kill", |network| {
        let output = ends_with_a_host(network, &mut network.hydra(&mpiexec, "left:2,right:2", 4));
        assert!(!output.status.success(), "{}", words(&output));
    });
}

#[test]
fn a_cut_cable_is_noticed_under_prterun() {
    let Some(mpirun) = tool("openmpi", "mpirun") else { return };
    Network::with("prte-cut", |network| notices_a_cut_cable(network, &mut network.prte(&mpirun, "left:2,right:2", 4)));
}

#[test]
fn a_killed_host_ends_the_job_of_prterun() {
    let Some(mpirun) = tool("openmpi", "mpirun") else { return };
    Network::with("prte-kill", |network| {
        // The launcher says that it has lost a daemon. Its exit status may still be that of success.
        let output = ends_with_a_host(network, &mut network.prte(&mpirun, "left:2,right:2", 4));
        assert!(words(&output).contains("daemon"), "{}", words(&output));
    });
}

#[test]
fn ranks_of_one_host_that_cannot_share_memory_say_so_and_use_the_network() {
    let Some(mpiexec) = tool("mpich", "mpiexec") else { return };
    Network::with("container", |network| {
        // As in a container, rank 2 has its own process numbers.
        let script = r#"[ "$PMI_RANK" = 2 ] && exec unshare --pid --fork --mount-proc "$@"; exec "$@""#;
        let mut command = network.hydra(&mpiexec, "left", 3);
        let script_path = network.place.join("script");
        std::fs::write(&script_path, script).unwrap();
        let output = run(command.arg("sh").arg(script_path).args([RANK, "ring"]));
        let lines = reports(&output);
        let expected = [
            "rank 0 of 3, host 0 of 1, 0 of 2 shared, by shm ofi:tcp;ofi_rxm;",
            "rank 1 of 3, host 0 of 1, 1 of 2 shared, by shm ofi:tcp;ofi_rxm;",
            "rank 2 of 3, host 0 of 1, 0 of 1 shared, by ofi:tcp;ofi_rxm ofi:tcp;ofi_rxm;",
        ];
        assert!(
            lines.len() == 3 && lines.iter().zip(expected).all(|(line, start)| line.starts_with(start)),
            "{lines:?}"
        );
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(
            said.matches("tickwire: rank 2 of this host cannot share memory with rank 0: different namespaces").count(),
            1,
            "{said}"
        );
    });
}

#[test]
fn a_window_of_two_hosts_is_shared_memory_on_each_and_the_network_between() {
    let Some(mpiexec) = tool("mpich", "mpiexec") else { return };
    Network::with("windows", |network| {
        let mut command = network.hydra(&mpiexec, "left:2,right:2", 4);
        let output = run(command.args([WINDOWS, "hosts"]).arg(&*network.place));
        assert!(output.status.success(), "{}", words(&output));
    });
}

/// Two ranks on each of two hosts use parts of a window on the other host. Then that host goes away.
fn loses_a_host(name: &str, go: impl Fn(&Network)) {
    let Some(mpiexec) = tool("mpich", "mpiexec") else { return };
    Network::with(name, |network| {
        std::fs::write(network.place.join("on"), "").unwrap();
        // hydra would end the other ranks, or send them a signal when one has ended. The script ignores this signal.
        let mut command = network.hydra(&mpiexec, "left:2,right:2", 4);
        let script = network.place.join("script");
        std::fs::write(&script, r#"trap "" USR1; exec "$@""#).unwrap();
        command.args(["-disable-auto-cleanup", "sh"]).arg(script).args([WINDOWS, "hosts"]);
        let running = start(command.arg(&*network.place));
        let all = |what: &str, ranks: u32| (0..ranks).all(|rank| network.place.join(format!("{what}-{rank}")).exists());
        until("the ranks use the window", || all("pid", 4));
        go(network);
        std::fs::write(network.place.join("gone"), "").unwrap();
        let noticed = comes(|| all("noticed", 2));
        running.signal(rustix::process::Signal::KILL);
        let output = wait(running);
        assert!(noticed, "the first host has not noticed: {}", words(&output));
    });
}

#[test]
fn who_needs_a_part_on_a_host_that_is_killed_is_told() {
    loses_a_host("windows-killed", |network| {
        for rank in [2, 3] {
            let pid = std::fs::read_to_string(network.place.join(format!("pid-{rank}"))).unwrap();
            // This is a process number on that host.
            let output = network.on("right", Path::new("kill"), &["-9", &pid]).output().unwrap();
            assert!(output.status.success(), "{}", words(&output));
        }
    });
}

#[test]
fn who_needs_a_part_on_a_host_that_is_cut_off_is_told() {
    loses_a_host("windows-cut", |network| network.cut("right"));
}
