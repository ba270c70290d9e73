//! Which host, which process: what a card and a greeting say.

use super::ShmError;
use std::path::Path;

/// The id of this boot of this machine.
pub(crate) fn boot_id() -> Result<u128, ShmError> {
    let path = "/proc/sys/kernel/random/boot_id";
    let text = std::fs::read_to_string(path).map_err(|source| ShmError::ProcFs { path: path.into(), source })?;
    let digits: String = text.trim().chars().filter(|&c| c != '-').collect();
    u128::from_str_radix(&digits, 16).map_err(|_| ShmError::ProcFs {
        path: path.into(),
        source: std::io::Error::new(std::io::ErrorKind::InvalidData, "not a boot id"),
    })
}

/// When a process was started, clock ticks since boot: with its pid, it names a process for good.
pub(crate) fn start_time(pid: u32) -> Option<u64> {
    parse_start_time(&std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
}

/// Field 22. The second field, the program's name, may hold spaces and parentheses.
fn parse_start_time(stat: &str) -> Option<u64> {
    let (_, after_name) = stat.rsplit_once(')')?;
    after_name.split_ascii_whitespace().nth(19)?.parse().ok()
}

/// A hash of what two processes must share to use shared memory: the boot, the namespaces that sockets' names and
/// pids belong to, and the directory of the segments.
pub(crate) fn host_card(boot_id: u128, directory: &Path) -> Result<[u8; 8], ShmError> {
    use std::os::unix::fs::MetadataExt;
    let mut hash = Fnv::new();
    hash.add(&boot_id.to_ne_bytes());
    for path in [Path::new("/proc/self/ns/net"), Path::new("/proc/self/ns/pid"), directory] {
        let found = std::fs::metadata(path).map_err(|source| ShmError::ProcFs { path: path.into(), source })?;
        hash.add(&found.dev().to_ne_bytes());
        hash.add(&found.ino().to_ne_bytes());
    }
    Ok(hash.0.to_be_bytes())
}

/// FNV-1a, 64 bits: the same in every build, which the standard library's hash does not promise.
struct Fnv(u64);

impl Fnv {
    fn new() -> Self {
        Fnv(0xCBF2_9CE4_8422_2325)
    }

    fn add(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.0 = (self.0 ^ u64::from(byte)).wrapping_mul(0x100_0000_01B3);
        }
    }
}

#[cfg(all(test, not(miri)))]
mod tests {
    use super::*;

    #[test]
    fn this_process_can_be_named() {
        assert_ne!(boot_id().expect("a boot id"), 0);
        assert!(start_time(std::process::id()).expect("a start time") > 0);
        assert_eq!(start_time(u32::MAX), None);
    }

    #[test]
    fn a_name_with_parentheses_does_not_shift_the_fields() {
        let rest = (3..30).map(|n| n.to_string()).collect::<Vec<_>>().join(" ");
        assert_eq!(parse_start_time(&format!("7 (a) b (c)) {rest}")), Some(22));
        assert_eq!(parse_start_time("7 (a) 1 2 3"), None);
        assert_eq!(parse_start_time(""), None);
    }

    #[test]
    fn cards_differ_by_directory_and_boot() {
        let shm = host_card(1, Path::new("/dev/shm")).expect("a card");
        assert_eq!(shm, host_card(1, Path::new("/dev/shm")).expect("a card"));
        assert_ne!(shm, host_card(2, Path::new("/dev/shm")).expect("a card"));
        assert_ne!(shm, host_card(1, Path::new("/proc")).expect("a card"));
        assert!(host_card(1, Path::new("/no/such/place")).is_err());
    }
}
