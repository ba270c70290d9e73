//! The identity of host and process, as cards and greetings carry it.

use super::error::ShmError;
use crate::processes;
pub(crate) use crate::processes::start_time;
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

/// A hash of what two processes must have in common to use shared memory: the boot of the machine, and the namespaces that socket names and
/// process ids belong to. Segments are passed as descriptors, so they need no common directory. For processes that meet by names in a
/// directory, it is included; a directory that does not exist counts as its own place.
pub(crate) fn host_card(boot_id: u128, directory: Option<&Path>) -> Result<[u8; 8], ShmError> {
    use std::os::unix::fs::MetadataExt;
    let mut hash = Fnv::new();
    hash.add(&boot_id.to_ne_bytes());
    for path in ["/proc/self/ns/net", "/proc/self/ns/pid"].map(Path::new) {
        let found = std::fs::metadata(path).map_err(|source| ShmError::ProcFs { path: path.into(), source })?;
        hash.add(&found.dev().to_ne_bytes());
        hash.add(&found.ino().to_ne_bytes());
    }
    if let Some(found) = directory.and_then(|directory| std::fs::metadata(directory).ok()) {
        hash.add(&found.dev().to_ne_bytes());
        hash.add(&found.ino().to_ne_bytes());
    }
    Ok(hash.0.to_be_bytes())
}

/// What two processes must have in common to share memory: this boot of this machine, and its namespaces of networks and processes, as
/// a hash.
///
/// # Errors
/// What cannot be read of /proc.
pub fn host_identity() -> Result<[u8; 8], ShmError> {
    host_card(boot_id()?, None)
}

/// The contents of a card: the host, and the process.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct HostCard {
    /// See [`host_card`].
    pub(crate) host: [u8; 8],
    /// The process id.
    pub(crate) pid: u32,
    /// When it was started.
    pub(crate) start_time: u64,
}

impl HostCard {
    /// The card of this process.
    pub(crate) fn own(host: [u8; 8]) -> Self {
        let (pid, start_time) = processes::own();
        HostCard { host, pid, start_time }
    }

    /// Its bytes: the host, then the process.
    pub(crate) fn encode(&self) -> Vec<u8> {
        [&self.host[..], &processes::to_card(self.pid, self.start_time)].concat()
    }

    /// Reads a card; `None` if it is none.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let (host, process) = bytes.split_first_chunk()?;
        let (pid, start_time) = processes::in_card(process.try_into().ok()?);
        Some(HostCard { host: *host, pid, start_time })
    }
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
    fn this_boot_can_be_named() {
        assert_ne!(boot_id().expect("a boot id"), 0);
    }

    #[test]
    fn a_card_comes_back_as_it_was() {
        let card = HostCard::own(*b"the host");
        assert_eq!(HostCard::decode(&card.encode()), Some(card));
        assert_eq!(card.pid, std::process::id());
        for cut in 0..card.encode().len() {
            assert_eq!(HostCard::decode(&card.encode()[..cut]), None);
        }
    }

    #[test]
    fn cards_differ_by_boot_and_directory() {
        let card = |boot_id, directory: Option<&str>| host_card(boot_id, directory.map(Path::new)).expect("a card");
        assert_eq!(card(1, None), card(1, None));
        assert_eq!(card(1, Some("/proc")), card(1, Some("/proc")));
        let all = [card(1, None), card(2, None), card(1, Some("/proc")), card(1, Some("/sys"))];
        assert!((0..4).all(|at| !all[..at].contains(&all[at])), "{all:?}");
        assert_eq!(card(1, Some("/no/such/place")), card(1, None));
    }
}
