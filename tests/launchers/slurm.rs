//! srun in a small cluster that the test starts and stops: a controller and two nodes on this machine.

use super::kit::{self, Launcher, RANK, comes, run, until, words};
use std::net::TcpListener;
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use tickwire_tests::needs::is_there;
use tickwire_tests::scratch::Directory;

/// Only one cluster may run at a time. A small machine cannot run more daemons.
static ONE: Mutex<()> = Mutex::new(());

/// A cluster. Its daemons end when it is dropped.
struct Slurm {
    directory: Directory,
    daemons: Vec<Child>,
    nodes: &'static str,
}

/// Settings of every cluster in these tests: no accounting and no control groups.
pub(crate) const COMMON: &str = "
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
MpiDefault=pmi2
AccountingStorageType=accounting_storage/none
JobAcctGatherType=jobacct_gather/none
SchedulerParameters=sched_interval=1
SlurmdParameters=config_overrides
ReturnToService=2
KillWait=2
";

/// Settings of this cluster: no accounting, no munge, no control groups, and only the loopback network of this
/// machine.
const CONFIGURATION: &str = "
ClusterName=tickwire
SlurmctldHost=localhost(127.0.0.1)
SlurmctldPort=PORT0
AuthType=auth/none
CredType=cred/none
SlurmUser=USER
SlurmdUser=USER
StateSaveLocation=PLACE/state
SlurmdSpoolDir=PLACE/%n
SlurmctldPidFile=PLACE/slurmctld.pid
SlurmdPidFile=PLACE/%n.pid
SlurmctldLogFile=PLACE/slurmctld.log
SlurmdLogFile=PLACE/%n.log
NodeName=left NodeAddr=127.0.0.1 NodeHostname=HOST Port=PORT1 CPUs=16 State=UNKNOWN
NodeName=right NodeAddr=127.0.0.1 NodeHostname=HOST Port=PORT2 CPUs=16 State=UNKNOWN
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP OverSubscribe=YES
";

/// Whether Slurm is installed and this user may run it.
pub(crate) fn is_slurm_there() -> bool {
    let found = ["slurmctld", "slurmd", "srun"]
        .map(|program| Command::new(program).arg("-V").stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok());
    let missing = match found.contains(&false) {
        true => Err("no Slurm: apt-get install slurmctld slurmd slurm-client slurm-wlm-basic-plugins"),
        false => Ok(()),
    };
    let is_root = rustix::process::getuid().is_root();
    if !is_root {
        eprintln!("SKIPPED: Slurm's daemons are started by root only");
    }
    is_root && is_there(missing)
}

/// The library that Debian's plugin loads. It is PMIx by the name for developers, which comes in another package.
pub(crate) const LIBRARY: &str = "pmix2/lib/libpmix.so";

/// Whether srun's plugin for PMIx and its library are installed. `list` is a command that lists the plugins.
pub(crate) fn has_pmix(list: &mut Command) -> bool {
    let listed = list.output().unwrap();
    let folders = std::fs::read_dir("/usr/lib").into_iter().flatten().flatten();
    String::from_utf8_lossy(&[listed.stdout, listed.stderr].concat()).contains("pmix_v")
        && folders.map(|folder| folder.path().join(LIBRARY)).any(|path| path.exists())
}

impl Slurm {
    /// Calls `test` with a cluster. Skips it where there is no Slurm, or this user may not run it.
    fn with(name: &str, test: impl FnOnce(&Self)) {
        let _one = ONE.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        if is_slurm_there() {
            test(&Self::start(name));
        }
    }

    fn start(name: &str) -> Self {
        let directory = Directory::new(&format!("slurm-{name}"));
        let mut text =
            (CONFIGURATION.to_owned() + COMMON).replace("PLACE", directory.to_str().unwrap()).replace("USER", "root");
        let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
        text = text.replace("HOST", host.split('.').next().unwrap());
        // These ports are free now. The daemons take them at once.
        let sockets: Vec<_> = (0..3).map(|_| TcpListener::bind("127.0.0.1:0").unwrap()).collect();
        for (number, socket) in sockets.iter().enumerate() {
            let port = socket.local_addr().unwrap().port().to_string();
            text = text.replace(&format!("PORT{number}"), &port);
        }
        drop(sockets);
        for folder in ["state", "left", "right"] {
            std::fs::create_dir(directory.join(folder)).unwrap();
        }
        std::fs::write(directory.join("slurm.conf"), text).unwrap();
        std::fs::write(directory.join("cgroup.conf"), "").unwrap();
        let mut slurm = Slurm { directory, daemons: Vec::new(), nodes: "1" };
        for args in [&["slurmctld", "-D"][..], &["slurmd", "-D", "-N", "left"], &["slurmd", "-D", "-N", "right"]] {
            let mut daemon = slurm.tool(args[0]);
            daemon.args(&args[1..]).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
            slurm.daemons.push(daemon.spawn().unwrap());
        }
        until("the nodes are up", || {
            let output = slurm.tool("sinfo").args(["-h", "-N", "-o", "%T"]).output().unwrap();
            String::from_utf8_lossy(&output.stdout).matches("idle").count() == 2
        });
        slurm
    }

    fn tool(&self, name: &str) -> Command {
        let mut command = Command::new(name);
        command.env("SLURM_CONF", self.directory.join("slurm.conf"));
        command
    }
}

/// Asks daemons to end.
pub(crate) fn ask_to_end(daemons: &[Child]) {
    for daemon in daemons {
        let _ = rustix::process::kill_process(rustix::process::Pid::from_child(daemon), rustix::process::Signal::TERM);
    }
}

/// Waits for daemons that were asked to end. Those that do not end are killed: slurmd sometimes waits for its own threads for ever.
pub(crate) fn end(daemons: &mut [Child]) {
    for daemon in daemons {
        if !comes(|| !matches!(daemon.try_wait(), Ok(None))) {
            let _ = daemon.kill();
        }
        let _ = daemon.wait();
    }
}

impl Drop for Slurm {
    fn drop(&mut self) {
        ask_to_end(&self.daemons);
        end(&mut self.daemons);
    }
}

impl Launcher for Slurm {
    fn command(&self, ranks: u32) -> Command {
        let mut command = self.tool("srun");
        command.args(["--mpi=pmi2", "--quit-on-interrupt", "-N", self.nodes, "-n", &ranks.to_string()]);
        command
    }

    fn words(&self) -> &'static str {
        "PMI-1 over PMI_FD: "
    }

    fn ends_others(&self) -> bool {
        // srun ends them only with `--kill-on-bad-exit`.
        false
    }

    fn aborted(&self) -> &'static [i32] {
        // The status is the highest of all ranks, and the other ranks were killed.
        &[7, 128 + 9, 128 + 15]
    }
}

#[test]
fn its_ranks_do_what_ranks_do_on_one_node() {
    Slurm::with("one", |slurm| {
        kit::knows_its_place(slurm);
        kit::draws_the_same_picture(slurm);
        kit::ends_with_its_ranks(slurm);
        kit::has_jobs_inside(slurm);
        let output = run(slurm.tool("srun").args(["--mpi=none", "-n", "2", RANK, "ring"]));
        let said = words(&output);
        assert!(!output.status.success() && said.contains("use srun --mpi=pmi2 or --mpi=pmix"), "{said}");
    });
}

#[test]
fn its_other_plugin_speaks_pmix() {
    Slurm::with("pmix", |slurm| {
        let found = has_pmix(slurm.tool("srun").arg("--mpi=list"));
        if !is_there(found.then_some(()).ok_or("no PMIx for Slurm: apt-get install libpmix-dev")) {
            return;
        }
        let lines = kit::reports(&run(slurm.tool("srun").args(["--mpi=pmix", "-N", "1", "-n", "3", RANK, "ring"])));
        let expected = |rank: usize| format!("rank {rank} of 3, host 0 of 1, {rank} of 3 shared, by shm shm; PMIx (");
        assert!(lines.len() == 3 && (0..3).all(|rank| lines[rank].starts_with(&expected(rank))), "{lines:?}");
    });
}

#[test]
fn ctrl_c_ends_its_ranks() {
    Slurm::with("ctrl-c", |slurm| kit::ends_on_ctrl_c(slurm));
}
