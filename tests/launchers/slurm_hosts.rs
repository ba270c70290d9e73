//! Slurm on two hosts as on a real site: a controller and a node on the first host, a node on the second. It uses munge
//! if that is installed.

use super::hosts::{draws, has_all_cases, know_their_places, missing, notice};
use super::kit::{until, wait, words};
use super::network::Network;
use super::slurm::{COMMON, LIBRARY, ask_to_end, end, has_pmix, is_slurm_there};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use tickwire_tests::binaries::binary;

/// As in [`super::slurm`], but the nodes are hosts. Each node has its own folder for files of plugins. A node that is
/// silent is soon given up.
const CONFIGURATION: &str = "
ClusterName=tickwire
SlurmctldHost=left(10.213.7.1)
AUTH
SlurmUser=root
SlurmdUser=root
StateSaveLocation=PLACE/state
SlurmdSpoolDir=PLACE/%n
TmpFS=PLACE/%n
SlurmctldPidFile=PLACE/slurmctld.pid
SlurmdPidFile=PLACE/%n.pid-of-slurmd
SlurmctldLogFile=PLACE/slurmctld.log
SlurmdLogFile=PLACE/%n.log
SlurmdTimeout=4
NodeName=left NodeAddr=10.213.7.1 CPUs=16 State=UNKNOWN
NodeName=right NodeAddr=10.213.7.2 CPUs=16 State=UNKNOWN
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP OverSubscribe=YES
";

/// A cluster on a network. Its daemons end when it is dropped.
struct Cluster<'a> {
    network: &'a Network,
    daemons: Vec<Child>,
}

impl<'a> Cluster<'a> {
    fn with(name: &str, test: impl FnOnce(&Cluster<'_>)) {
        if is_slurm_there() {
            Network::with(name, |network| test(&Cluster::start(network)));
        }
    }

    fn start(network: &'a Network) -> Self {
        let mut cluster = Cluster { network, daemons: Vec::new() };
        let auth = match cluster.start_munge() {
            true => "AuthType=auth/munge\nAuthInfo=socket=PLACE/munge/socket\nCredType=cred/munge",
            false => "AuthType=auth/none\nCredType=cred/none",
        };
        let place = &network.place;
        let text = (CONFIGURATION.to_owned() + COMMON).replace("AUTH", auth).replace("PLACE", place.to_str().unwrap());
        for folder in ["state", "left", "right"] {
            std::fs::create_dir(place.join(folder)).unwrap();
        }
        std::fs::write(place.join("slurm.conf"), text).unwrap();
        std::fs::write(place.join("cgroup.conf"), "").unwrap();
        for (host, daemon) in [("left", "slurmctld -D"), ("left", "slurmd -D -N left"), ("right", "slurmd -D -N right")]
        {
            let words: Vec<&str> = daemon.split(' ').collect();
            let child = cluster
                .on(host, words[0], &words[1..])
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .spawn();
            cluster.daemons.push(child.unwrap());
        }
        until("the nodes are up", || {
            let output = cluster.on("left", "sinfo", &["-h", "-N", "-o", "%T"]).output().unwrap();
            String::from_utf8_lossy(&output.stdout).matches("idle").count() == 2
        });
        cluster
    }

    /// Starts munge, which signs the messages of the daemons. The daemons share its socket. Returns `false` if munge
    /// is not installed.
    fn start_munge(&mut self) -> bool {
        let (folder, key) = (self.network.place.join("munge"), self.network.place.join("munge-key"));
        std::fs::create_dir(&folder).unwrap();
        std::fs::write(&key, [7; 1024]).unwrap();
        for (path, mode) in [(&folder, 0o755), (&key, 0o400), (&self.network.place.to_path_buf(), 0o755)] {
            let mode = std::os::unix::fs::PermissionsExt::from_mode(mode);
            std::fs::set_permissions(path, mode).unwrap();
        }
        let option = |name: &str, path: &Path| format!("--{name}={}", path.display());
        let mut command = Command::new("munged");
        command.args(["-F", "--force", &option("key-file", &key), &option("socket", &folder.join("socket"))]);
        command.args([option("pid-file", &folder.join("pid")), option("log-file", &folder.join("log"))]);
        command.arg(option("seed-file", &folder.join("seed")));
        match command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn() {
            Ok(mut child) => {
                until("munge is there, or has ended", || {
                    folder.join("socket").exists() || child.try_wait().unwrap().is_some()
                });
                let is_there = child.try_wait().unwrap().is_none();
                self.daemons.push(child);
                is_there
            }
            Err(error) => {
                eprintln!("no munge ({error}): the daemons trust each other; apt-get install munge");
                false
            }
        }
    }

    /// A command that runs a program of Slurm on a host.
    fn on(&self, host: &str, program: &str, args: &[&str]) -> Command {
        let mut command = self.network.on(host, Path::new(program), args);
        command.env("SLURM_CONF", self.network.place.join("slurm.conf"));
        command
    }

    /// A command that runs this many ranks on each of both hosts.
    fn srun(&self, plugin: &str, each: u32) -> Command {
        let (plugin, each) = (format!("--mpi={plugin}"), format!("--ntasks-per-node={each}"));
        self.on("left", "srun", &[&plugin, "--quit-on-interrupt", "-N", "2", &each])
    }
}

impl Drop for Cluster<'_> {
    fn drop(&mut self) {
        // Daemons on the hosts end with the network, if not before.
        ask_to_end(&self.daemons);
        for name in ["left", "right"] {
            self.network.kill(name);
        }
        end(&mut self.daemons);
    }
}

#[test]
fn ranks_on_two_hosts_find_each_other_by_both_plugins_and_are_seen() {
    Cluster::with("slurm", |cluster| {
        know_their_places(&mut cluster.srun("pmi2", 2), &[0, 0, 1, 1]);
        if has_pmix(&mut cluster.on("left", "srun", &["--mpi=list"])) {
            know_their_places(&mut cluster.srun("pmix", 2), &[0, 0, 1, 1]);
        } else {
            eprintln!("SKIPPED: no PMIx for Slurm ({LIBRARY}): apt-get install libpmix-dev");
        }
        draws(cluster.network, cluster.srun("pmi2", 2));
        has_all_cases(&mut cluster.srun("pmi2", 1), 2);
        let running = missing(cluster.network, &mut cluster.srun("pmi2", 2));
        until("one host shows who is missed on both", || {
            let seen = cluster.network.on("right", &binary("tickwire"), &["whowaits"]);
            let said = words(&super::kit::run(&mut { seen }));
            (0..3).all(|rank| said.contains(&format!("rank {rank} waits for tag 1 from rank 3")))
        });
        drop(running);
    });
}

#[test]
fn a_host_that_loses_its_power_is_noticed_by_the_ranks_and_ends_the_step() {
    Cluster::with("slurm-cut", |cluster| {
        let running = missing(cluster.network, &mut cluster.srun("pmi2", 2));
        cluster.network.cut("right");
        let why = notice(cluster.network);
        assert!(why.contains("proc 3 has failed") && why.contains("has not answered for"), "{why}");
        cluster.network.kill("right");
        // The controller gives the node up after the time in its configuration.
        let output = wait(running);
        assert!(!output.status.success() && words(&output).contains("Node failure on right"), "{}", words(&output));
    });
}
