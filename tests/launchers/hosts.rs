//! Several hosts under the launchers of others: network, mount, UTS and IPC namespaces of one machine, each with a /dev/shm of its own, with
//! cables to a switch.

use crate::kit::{RANK, Running, comes, reports, run, start, tool, until, wait, words};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;
use std::sync::Mutex;
use tickwire_tests::binaries::example;
use tickwire_tests::needs::{has_libfabric, is_there};
use tickwire_tests::scratch::Directory;

/// Addresses are those of namespaces, but names of hosts are those of files: one network at a time.
static ONE: Mutex<()> = Mutex::new(());

/// A rank of a job with windows.
const WINDOWS: &str = env!("CARGO_BIN_EXE_tests-windows");

const NAMES: [&str; 3] = ["left", "right", "third"];

/// Stands for ssh: `agent [-x] HOST COMMAND…` runs a command of a shell on a host.
const AGENT: &str = r#"#!/bin/sh
[ "$1" = -x ] && shift
host=$1; shift
exec ip netns exec "PREFIX-$host" unshare --mount --uts --ipc sh -c '
    hostname "$1" && mount -t tmpfs none /dev/shm && mount --bind PLACE/hosts /etc/hosts && shift && exec sh -c "$*"
' sh "$host" "$@"
"#;

/// A network. What runs there ends with it.
struct Network {
    prefix: String,
    place: Directory,
}

impl Network {
    /// Calls `test` with three hosts, where this user may make any.
    fn with(name: &str, test: impl FnOnce(&Self)) {
        let _one = ONE.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        if !has_libfabric() {
            return;
        }
        let prefix = format!("tw{}", std::process::id() % 1_000_000);
        let network = Network { prefix, place: Directory::new(&format!("network-{name}")) };
        let why = |why| format!("no network namespaces ({why}): run as root, with iproute2");
        if is_there(network.connect().map_err(why)) {
            test(&network);
        }
    }

    fn connect(&self) -> Result<(), String> {
        let host = |name: &str| format!("{}-{name}", self.prefix);
        let switch = host("switch");
        ip(&["netns", "add", &switch])?;
        ip(&["-n", &switch, "link", "add", "switch", "type", "bridge"])?;
        ip(&["-n", &switch, "link", "set", "switch", "up"])?;
        let mut hosts = "127.0.0.1 localhost\n".to_owned();
        for (number, name) in (1..).zip(NAMES) {
            let (space, end) = (host(name), format!("to-{name}"));
            let address = format!("10.213.7.{number}");
            hosts += &format!("{address} {name}\n");
            ip(&["netns", "add", &space])?;
            ip(&["-n", &space, "link", "add", "cable", "type", "veth", "peer", "name", &end, "netns", &switch])?;
            ip(&["-n", &switch, "link", "set", &end, "master", "switch", "up"])?;
            ip(&["-n", &space, "address", "add", &format!("{address}/24"), "dev", "cable"])?;
            ip(&["-n", &space, "link", "set", "lo", "up"])?;
            ip(&["-n", &space, "link", "set", "cable", "up"])?;
        }
        std::fs::write(self.place.join("hosts"), hosts).unwrap();
        let agent = AGENT.replace("PREFIX", &self.prefix).replace("PLACE", self.place.to_str().unwrap());
        std::fs::write(self.agent(), agent).unwrap();
        std::fs::set_permissions(self.agent(), std::fs::Permissions::from_mode(0o755)).unwrap();
        Ok(())
    }

    fn agent(&self) -> std::path::PathBuf {
        self.place.join("agent")
    }

    /// hydra on the first host.
    fn hydra(&self, mpiexec: &Path, hosts: &str, ranks: u32) -> Command {
        let mut command = Command::new(self.agent());
        command.args(["left".as_ref(), mpiexec.as_os_str()]).args(["-launcher", "ssh", "-launcher-exec"]);
        command.arg(self.agent()).args(["-hosts", hosts, "-n", &ranks.to_string()]);
        command
    }

    /// prterun by its name of mpirun, on the first host.
    fn prte(&self, mpirun: &Path, hosts: &str, ranks: u32) -> Command {
        let mut command = Command::new(self.agent());
        command.args(["left".as_ref(), mpirun.as_os_str()]).args(["--allow-run-as-root", "--prtemca", "plm_ssh_agent"]);
        command.arg(self.agent()).args(["--host", hosts, "-n", &ranks.to_string()]);
        command
    }

    /// A command on the first host.
    fn on_first(&self, program: &Path, args: &[&str]) -> Command {
        let mut command = Command::new(self.agent());
        command.arg("left").arg(program).args(args);
        command
    }

    fn cut(&self, name: &str) {
        ip(&["-n", &format!("{}-{name}", self.prefix), "link", "set", "cable", "down"]).unwrap();
    }

    /// Kills everything that runs on a host.
    fn kill(&self, name: &str) {
        let pids = ip(&["netns", "pids", &format!("{}-{name}", self.prefix)]).unwrap_or_default();
        for pid in pids.split_whitespace().filter_map(|pid| rustix::process::Pid::from_raw(pid.parse().ok()?)) {
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
        }
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        for name in NAMES {
            self.kill(name);
            let _ = ip(&["netns", "delete", &format!("{}-{name}", self.prefix)]);
        }
        let _ = ip(&["netns", "delete", &format!("{}-switch", self.prefix)]);
    }
}

/// Runs `ip`: what it prints, or what it complains of.
fn ip(args: &[&str]) -> Result<String, String> {
    let output = Command::new("ip").args(args).output().map_err(|error| format!("ip: {error}"))?;
    let words = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    if output.status.success() { Ok(said) } else { Err(format!("ip {}: {words}", args.join(" "))) }
}

/// Whether ranks on hosts, which are given in the order of ranks, know all places and go the shortest ways.
fn know_their_places(command: &mut Command, hosts: &[u32]) {
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

/// The picture of heat is that of one rank.
fn draws(network: &Network, mut command: Command) {
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

#[test]
fn hydra_on_two_and_three_hosts() {
    let Some(mpiexec) = tool("mpich", "mpiexec") else { return };
    Network::with("hydra", |network| {
        know_their_places(&mut network.hydra(&mpiexec, "left:2,right:2", 4), &[0, 0, 1, 1]);
        know_their_places(&mut network.hydra(&mpiexec, "left,right,third", 5), &[0, 1, 2, 0, 1]);
        draws(network, network.hydra(&mpiexec, "left:2,right:2,third:2", 6));
    });
}

#[test]
fn prterun_on_two_hosts() {
    let Some(mpirun) = tool("openmpi", "mpirun") else { return };
    Network::with("prte", |network| {
        know_their_places(&mut network.prte(&mpirun, "left:2,right:2", 4), &[0, 0, 1, 1]);
        draws(network, network.prte(&mpirun, "left:2,right:1", 3));
    });
}

/// A job of two ranks on each of two hosts, whose first three wait for the fourth.
fn missing(network: &Network, mpiexec: &Path) -> Running {
    let mut command = network.hydra(mpiexec, "left:2,right:2", 4);
    let running = start(command.args([RANK, "miss"]).arg(&*network.place));
    until("the ranks wait", || (0..4).all(|rank| network.place.join(format!("waits-{rank}")).exists()));
    running
}

#[test]
fn who_waits_for_whom_is_seen_across_hosts() {
    let Some(mpiexec) = tool("mpich", "mpiexec") else { return };
    Network::with("whowaits", |network| {
        let running = missing(network, &mpiexec);
        let tickwire = tickwire_tests::binaries::binary("tickwire");
        // Other jobs may run on this machine: one is named by a process of it.
        until("the last rank is there", || network.place.join("3").exists());
        let last = std::fs::read_to_string(network.place.join("3")).unwrap();
        // A wait says that it is one when it has found nothing to do for long.
        until("the answers of all hosts say who is missed", || {
            let mut command = network.hydra(&mpiexec, "left,right", 2);
            let output = run(command.arg(&tickwire).args(["whowaits", "--hosts", &last]));
            let said = words(&output);
            (0..3).all(|rank| said.contains(&format!("rank {rank} waits for tag 1 from rank 3")))
                && said.contains("rank 2 waits in a call")
                && said.contains("rank 3 ticks, and waits in no call")
        });
        // From one host alone, those of the other cannot be asked, and nobody says that they have ended.
        let said = words(&run(&mut network.on_first(&tickwire, &["whowaits", &last])));
        assert!(said.contains("rank 0 waits in a call"), "{said}");
        assert!(said.contains("rank 3 cannot be asked: process") && !said.contains("has ended"), "{said}");
        drop(running);
    });
}

#[test]
fn a_cut_cable_is_noticed_by_those_who_wait_behind_it() {
    let Some(mpiexec) = tool("mpich", "mpiexec") else { return };
    Network::with("cut", |network| {
        let running = missing(network, &mpiexec);
        network.cut("right");
        let missed = |rank: u32| std::fs::read_to_string(network.place.join(format!("missed-{rank}")));
        until("the first host has noticed", || (0..2).all(|rank| missed(rank).is_ok()));
        assert!(missed(0).unwrap().contains("proc 3 has failed"), "{:?}", missed(0));
        // hydra itself hears nothing of it; a person would end the job.
        running.signal(rustix::process::Signal::KILL);
    });
}

#[test]
fn a_killed_host_ends_the_job() {
    let Some(mpiexec) = tool("mpich", "mpiexec") else { return };
    Network::with("kill", |network| {
        let running = missing(network, &mpiexec);
        network.kill("right");
        let output = wait(running);
        assert!(!output.status.success(), "{}", words(&output));
    });
}

#[test]
fn ranks_of_one_host_that_cannot_share_memory_say_so_and_use_the_network() {
    let Some(mpiexec) = tool("mpich", "mpiexec") else { return };
    Network::with("container", |network| {
        // As in a container: rank 2 has numbers of processes of its own.
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

/// Two ranks on each of two hosts use parts of a window on the other one, which goes.
fn loses_a_host(name: &str, go: impl Fn(&Network)) {
    let Some(mpiexec) = tool("mpich", "mpiexec") else { return };
    Network::with(name, |network| {
        std::fs::write(network.place.join("on"), "").unwrap();
        // hydra would end the others, or tell them of an end by a signal.
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
            let pid = rustix::process::Pid::from_raw(pid.parse().unwrap()).unwrap();
            rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
        }
    });
}

#[test]
fn who_needs_a_part_on_a_host_that_is_cut_off_is_told() {
    loses_a_host("windows-cut", |network| network.cut("right"));
}
