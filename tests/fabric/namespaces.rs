//! Hosts of a test are network namespaces of one machine.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};
use tickwire_tests::needs::is_there;

/// A separate host with two network devices. It ends with the test.
pub(crate) struct Host(pub(crate) String);

impl Host {
    /// Makes the host. Returns `None` if this user may not.
    pub(crate) fn with_two_devices() -> Option<Self> {
        let host = Host(format!("tickwire-{}-two", std::process::id() % 1_000_000));
        may_make(ip(&["netns", "add", &host.0]))?;
        let own = |words: &[&str]| drop(ip(&[&["-n", &host.0], words].concat()).unwrap());
        own(&["link", "set", "lo", "up"]);
        for (device, end, address) in [("one", "one-end", "10.213.8.1/24"), ("two", "two-end", "10.213.9.1/24")] {
            own(&["link", "add", device, "type", "veth", "peer", "name", end]);
            own(&["address", "add", address, "dev", device]);
            own(&["link", "set", device, "up"]);
            own(&["link", "set", end, "up"]);
        }
        Some(host)
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        let _ = ip(&["netns", "delete", &self.0]);
    }
}

/// Two hosts on one machine: network namespaces with a cable between them. They end with the test.
pub(crate) struct Hosts(pub(crate) [String; 2]);

impl Hosts {
    /// Makes the hosts. Returns `None` if this user may not.
    pub(crate) fn new() -> Option<Self> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let own = format!("{}-{}", std::process::id() % 1_000_000, COUNT.fetch_add(1, Ordering::Relaxed));
        let hosts = Hosts(["a", "b"].map(|name| format!("tickwire-{own}-{name}")));
        let [a, b] = &hosts.0;
        let (left, right) = (format!("tw{own}a"), format!("tw{own}b"));
        let made = ip(&["netns", "add", a])
            .and_then(|_| ip(&["netns", "add", b]))
            .and_then(|_| ip(&["link", "add", &left, "netns", a, "type", "veth", "peer", "name", &right, "netns", b]));
        may_make(made)?;
        for (host, device, address) in [(a, &left, "10.213.7.1/24"), (b, &right, "10.213.7.2/24")] {
            ip(&["-n", host, "link", "set", "lo", "up"]).unwrap();
            ip(&["-n", host, "address", "add", address, "dev", device]).unwrap();
            ip(&["-n", host, "link", "set", device, "name", "cable"]).unwrap();
            ip(&["-n", host, "link", "set", "cable", "up"]).unwrap();
        }
        let start = Instant::now();
        let up = |host: &String| ip(&["-n", host, "link", "show", "cable", "up"]).unwrap().contains("state UP");
        while !hosts.0.iter().all(up) {
            assert!(start.elapsed() < Duration::from_secs(10), "the cable is up");
        }
        Some(hosts)
    }

    /// Cuts or mends the cable.
    pub(crate) fn cable(&self, state: &str) {
        ip(&["-n", &self.0[0], "link", "set", "cable", state]).unwrap();
    }
}

impl Drop for Hosts {
    fn drop(&mut self) {
        for host in &self.0 {
            let _ = ip(&["netns", "delete", host]);
        }
    }
}

/// Returns `None`, and says so, if this user may not make network namespaces.
fn may_make(made: Result<String, String>) -> Option<()> {
    let why = |why| format!("no network namespaces ({why}): run as root, with iproute2");
    is_there(made.map(drop).map_err(why)).then_some(())
}

/// Runs `ip`. Returns what it prints, or its error message.
fn ip(args: &[&str]) -> Result<String, String> {
    let output = std::process::Command::new("ip").args(args).output().map_err(|error| format!("ip: {error}"))?;
    let words = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    if output.status.success() { Ok(said) } else { Err(format!("ip {}: {words}", args.join(" "))) }
}
