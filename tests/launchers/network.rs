//! Hosts on one machine. Each host is a set of network, mount, UTS and IPC namespaces with its own `/dev/shm`, and a
//! cable to a switch. All hosts but the first have their own process namespace, so they do not see each other's
//! processes.

use super::kit::until;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use tickwire_tests::needs::{has_libfabric, is_there};
use tickwire_tests::scratch::Directory;

/// Only one network may exist at a time: its namespaces are named after this process.
static ONE: Mutex<()> = Mutex::new(());

const NAMES: [&str; 3] = ["left", "right", "third"];

/// The commands that set up a host: its name, its `/dev/shm`, and the names of the other hosts.
const SETTLE: &str = "hostname $1 && mount -t tmpfs none /dev/shm && mount --bind PLACE/hosts /etc/hosts";

/// Stands for ssh: `agent [-x] HOST COMMAND…` runs a shell command on a host. The first host sees the processes of all
/// others, and is set up anew for each command.
const AGENT: &str = r#"#!/bin/sh
[ "$1" = -x ] && shift
export TMPDIR=PLACE/tmp
host=$1; shift
[ $host = left ] && exec nsenter --net=/run/netns/PREFIX-left unshare --mount --uts --ipc sh -c 'SETTLE && shift && exec sh -c "$*"' sh left "$@"
at=/proc/$(cat PLACE/$host.pid)/ns
exec nsenter --net=$at/net --mount=$at/mnt --uts=$at/uts --ipc=$at/ipc --pid=$at/pid_for_children -- sh -c "$*"
"#;

/// A network. Everything that runs in it ends with it.
pub(crate) struct Network {
    prefix: String,
    pub(crate) place: Directory,
    /// Processes that keep the namespaces of all hosts but the first.
    keepers: Vec<Child>,
}

impl Network {
    /// Calls `test` with a network of three hosts, if this user may make one.
    pub(crate) fn with(name: &str, test: impl FnOnce(&Self)) {
        let _one = ONE.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        if !has_libfabric() {
            return;
        }
        let prefix = format!("tw{}", std::process::id() % 1_000_000);
        let mut network = Network { prefix, place: Directory::new(&format!("network-{name}")), keepers: Vec::new() };
        let why = |why| format!("no network namespaces ({why}): run as root, with iproute2");
        if is_there(network.connect().map_err(why)) {
            test(&network);
        }
    }

    fn connect(&mut self) -> Result<(), String> {
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
        for name in &NAMES[1..] {
            self.keep(name);
        }
        // Each job needs its own directory for temporary files: launchers name files by process numbers, and two
        // hosts may have the same number.
        std::fs::create_dir(self.place.join("tmp")).unwrap();
        let agent = AGENT.replace("SETTLE", SETTLE).replace("PREFIX", &self.prefix);
        let agent = agent.replace("PLACE", self.place.to_str().unwrap());
        std::fs::write(self.agent(), agent).unwrap();
        std::fs::set_permissions(self.agent(), std::fs::Permissions::from_mode(0o755)).unwrap();
        Ok(())
    }

    /// Starts a host with its own processes.
    fn keep(&mut self, name: &str) {
        let settle = SETTLE.replace("PLACE", self.place.to_str().unwrap());
        let up = self.place.join(format!("{name}.up"));
        // `ip netns exec` would hide the control groups that Slurm's daemons look for.
        let mut command = Command::new("nsenter");
        command.arg(format!("--net=/run/netns/{}-{name}", self.prefix)).args(["unshare", "--mount", "--uts", "--ipc"]);
        command.args(["--pid", "--fork", "--kill-child", "--mount-proc", "sh", "-c"]);
        command.arg(format!("{settle} && touch $2 && exec sleep 1000")).args(["sh", name]).arg(&up);
        let keeper = command.stdin(Stdio::null()).spawn().unwrap();
        std::fs::write(self.place.join(format!("{name}.pid")), keeper.id().to_string()).unwrap();
        self.keepers.push(keeper);
        until("a host is up", || up.exists());
    }

    fn agent(&self) -> std::path::PathBuf {
        self.place.join("agent")
    }

    /// A command that runs hydra on the first host.
    pub(crate) fn hydra(&self, mpiexec: &Path, hosts: &str, ranks: u32) -> Command {
        let mut command = Command::new(self.agent());
        command.args(["left".as_ref(), mpiexec.as_os_str()]).args(["-launcher", "ssh", "-launcher-exec"]);
        command.arg(self.agent()).args(["-hosts", hosts, "-n", &ranks.to_string()]);
        command
    }

    /// A command that runs prterun, under its name `mpirun`, on the first host.
    pub(crate) fn prte(&self, mpirun: &Path, hosts: &str, ranks: u32) -> Command {
        let mut command = Command::new(self.agent());
        command.args(["left".as_ref(), mpirun.as_os_str()]).args(["--allow-run-as-root", "--prtemca", "plm_ssh_agent"]);
        command.arg(self.agent()).args(["--host", hosts, "-n", &ranks.to_string()]);
        command
    }

    /// A command that runs a program on a host.
    pub(crate) fn on(&self, host: &str, program: &Path, args: &[&str]) -> Command {
        let mut command = Command::new(self.agent());
        command.arg(host).arg(program).args(args);
        command
    }

    pub(crate) fn cut(&self, name: &str) {
        ip(&["-n", &format!("{}-{name}", self.prefix), "link", "set", "cable", "down"]).unwrap();
    }

    /// Kills everything that runs on a host.
    pub(crate) fn kill(&self, name: &str) {
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
        for keeper in &mut self.keepers {
            let _ = keeper.kill();
            let _ = keeper.wait();
        }
    }
}

/// Runs `ip`. Returns what it prints, or its error message.
fn ip(args: &[&str]) -> Result<String, String> {
    let output = Command::new("ip").args(args).output().map_err(|error| format!("ip: {error}"))?;
    let words = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    if output.status.success() { Ok(said) } else { Err(format!("ip {}: {words}", args.join(" "))) }
}
