//! The names of the segments that provider `shm` creates in `/dev/shm`.
//!
//! By default the provider names a segment by the process id. The segment of a killed process stays, and a later process with the same id
//! cannot open its endpoint. So each segment gets a name that no other process can have, and opening an endpoint removes the segments of
//! processes that have ended.

use crate::shm::identity;
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};

/// The directory of the segments.
const DIRECTORY: &str = "/dev/shm";
/// The prefix of the provider's addresses.
const SCHEME: &str = "fi_shm://";
/// The prefix of the segments' names.
const PREFIX: &str = "tickwire-";

/// How many endpoints this process has named.
static NAMED: AtomicU32 = AtomicU32::new(0);

/// The address for the next endpoint of this process; `None` if no unique name can be made.
pub(super) fn address() -> Option<String> {
    let (host, pid) = (host()?, std::process::id());
    let start_time = identity::start_time(pid)?;
    let number = NAMED.fetch_add(1, Ordering::Relaxed);
    Some(format!("{SCHEME}{PREFIX}{host:016x}-{pid}-{start_time}-{number}"))
}

/// Removes the segments of processes of this host that have ended. Segments that cannot be removed stay.
pub(super) fn sweep() {
    let (Some(host), Ok(entries)) = (host(), std::fs::read_dir(DIRECTORY)) else { return };
    for entry in entries.flatten() {
        if entry.file_name().to_str().and_then(|name| owner(name, host)).is_some_and(is_gone) {
            let _ = std::fs::remove_file(entry.path());
        }
    }
}

/// The scope within which process ids and segment names are unique.
fn host() -> Option<u64> {
    let card = identity::host_card(identity::boot_id().ok()?, Some(Path::new(DIRECTORY))).ok()?;
    Some(u64::from_be_bytes(card))
}

/// The id and the start time of the process that a segment of this host belongs to.
fn owner(name: &str, host: u64) -> Option<(u32, u64)> {
    let mut parts = name.strip_prefix(PREFIX)?.split('-');
    if u64::from_str_radix(parts.next()?, 16) != Ok(host) {
        return None;
    }
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}

/// Whether a process is known to have ended. If it cannot be examined, for lack of file descriptors for example, it may still run.
fn is_gone((pid, start_time): (u32, u64)) -> bool {
    match identity::start_time(pid) {
        Some(found) => found != start_time,
        None => Path::new("/proc").join(pid.to_string()).try_exists().is_ok_and(|exists| !exists),
    }
}

#[cfg(all(test, not(miri)))]
mod tests {
    use super::*;
    use crate::ofi::wrapper_tests::{library, open};
    use std::path::PathBuf;

    fn file(name: &str) -> PathBuf {
        Path::new(DIRECTORY).join(name)
    }

    #[test]
    fn names_say_whose_they_are() {
        let (host, pid) = (host().unwrap(), std::process::id());
        let (one, other) = (address().unwrap(), address().unwrap());
        assert_ne!(one, other);
        let own = (pid, identity::start_time(pid).unwrap());
        let name = one.strip_prefix(SCHEME).unwrap();
        assert_eq!((owner(name, host), owner(name, host ^ 1)), (Some(own), None));
        assert!(!is_gone(own) && is_gone((pid, own.1 + 1)) && is_gone((u32::MAX, own.1)));
        let none = ["", "tickwire-", "tickwire-0-1-2-3", "7:0:1", &format!("tickwire-{host:016x}-x-1-2")];
        assert_eq!(none.map(|name| owner(name, host)), [None; 5]);
    }

    #[test]
    fn a_segment_is_there_as_long_as_its_endpoint_and_those_of_dead_processes_are_not() {
        let Some(library) = library() else { return };
        let host = host().unwrap();
        let pid = std::process::id();
        let start_time = identity::start_time(pid).unwrap();
        // Of an earlier process with this number, of none, of this one, of another host that shares the directory.
        let later = start_time + 1;
        let (old, none) =
            (format!("{PREFIX}{host:016x}-{pid}-{later}-0"), format!("{PREFIX}{host:016x}-4294967295-1-0"));
        let own = format!("{PREFIX}{host:016x}-{pid}-{start_time}-4294967295");
        let foreign = format!("{PREFIX}{:016x}-{pid}-{later}-0", !host);
        for name in [&old, &none, &own, &foreign] {
            std::fs::write(file(name), "").unwrap();
        }
        if let Some(open) = open(&library, "shm", false).unwrap() {
            assert!([&old, &none].iter().all(|name| !file(name).exists()), "what is left of dead processes is gone");
            assert!([&own, &foreign].iter().all(|name| file(name).exists()), "what is others' stays");
            let address = String::from_utf8(open.name.clone()).unwrap();
            let segment = address.trim_end_matches('\0').strip_prefix(SCHEME).unwrap().to_owned();
            assert_eq!(owner(&segment, host), Some((pid, start_time)));
            assert!(file(&segment).exists());
            drop(open);
            assert!(!file(&segment).exists());
        }
        for name in [old, none, own, foreign] {
            let _ = std::fs::remove_file(file(&name));
        }
    }

    #[test]
    fn what_an_earlier_process_of_the_same_number_has_left_is_in_nobodys_way() {
        let Some(library) = library() else { return };
        let Some(first) = open(&library, "shm", false).unwrap() else { return };
        let address = String::from_utf8(first.name.clone()).unwrap();
        let segment = file(address.trim_end_matches('\0').strip_prefix(SCHEME).unwrap());
        // By the names that the provider gives, with the number of a process that lives: this one's.
        let left: Vec<PathBuf> = (0..64)
            .map(|number| file(&format!("{}:{}:{number}", std::process::id(), rustix::process::getuid().as_raw())))
            .collect();
        for path in &left {
            std::fs::copy(&segment, path).unwrap();
        }
        let second = open(&library, "shm", false);
        for path in left {
            let _ = std::fs::remove_file(path);
        }
        assert!(second.unwrap().is_some());
    }
}
