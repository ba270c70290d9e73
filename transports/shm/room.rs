//! Checks whether there is memory for a segment before it is requested, since the kernel reports some shortages by a signal and not by an
//! error.
//!
//! If a file exceeds the file size limit, SIGXFSZ ends the process. If the memory of the machine, or of a memory cgroup of the process, is
//! used up, the kernel chooses a process to end, no matter which one made the last request. So a segment is refused if it would take more
//! than a sixteenth of the [available] memory: with less left than that, a shortage is near. One check admits as many bytes as it found, so
//! that many short segments need one check only.

use super::error::ShmError;
use rustix::io::Errno;
use std::cell::Cell;
use std::path::Path;
use tickwire_components::check_file_bytes;
use tickwire_components::limits::SEGMENT_MEMORY_PARTS;

/// An endpoint's knowledge of the available memory.
#[derive(Debug, Default)]
pub(super) struct Room {
    /// Bytes that may be taken before the next check.
    left: Cell<u64>,
}

impl Room {
    /// Takes `bytes` bytes.
    ///
    /// # Errors
    /// Which limit they exceed.
    pub(super) fn take(&self, bytes: usize) -> Result<(), ShmError> {
        let wanted = bytes as u64;
        check_file_bytes(wanted)?;
        if self.left.get() < wanted {
            let available = available();
            self.left.set(available.map_or(u64::MAX, |available| available / SEGMENT_MEMORY_PARTS));
            if self.left.get() < wanted {
                let available = available.unwrap_or(0);
                return Err(ShmError::Memory { bytes, available, source: Errno::NOMEM });
            }
        }
        self.left.set(self.left.get() - wanted);
        Ok(())
    }

    /// The error for a failed request for which there seemed to be room.
    pub(super) fn failure(&self, bytes: usize, source: Errno) -> ShmError {
        self.left.set(0);
        match source {
            Errno::MFILE | Errno::NFILE => ShmError::Descriptors { source },
            source => ShmError::Memory { bytes, available: available().unwrap_or(0), source },
        }
    }
}

/// Bytes that can be taken without ending a process, as far as the system tells: of the machine, and of the memory cgroups of this process.
fn available() -> Option<u64> {
    let machine = read(Path::new("/proc/meminfo")).and_then(|text| machine(&text));
    let groups = read(Path::new("/proc/self/cgroup")).and_then(|text| groups(&text, Path::new("/sys/fs/cgroup")));
    machine.into_iter().chain(groups).min()
}

fn read(path: &Path) -> Option<String> {
    std::fs::read_to_string(path).ok()
}

/// The available bytes by `/proc/meminfo`.
fn machine(text: &str) -> Option<u64> {
    let kib = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
        line.split_ascii_whitespace().next()?.parse::<u64>().ok()
    };
    Some((kib("MemAvailable")? + kib("SwapFree").unwrap_or(0)).saturating_mul(1024))
}

/// The available bytes of the memory cgroups that `/proc/self/cgroup` names, and of their parents, of either version. A container may see
/// its own cgroup as the root.
fn groups(text: &str, mounted: &Path) -> Option<u64> {
    let paths = text.lines().filter_map(|line| {
        let (_, rest) = line.split_once(':')?;
        let (controllers, path) = rest.split_once(':')?;
        match controllers {
            "" => Some((mounted.to_owned(), path, &UNIFIED)),
            _ if controllers.split(',').any(|name| name == "memory") => Some((mounted.join("memory"), path, &SEPARATE)),
            _ => None,
        }
    });
    let left = paths.flat_map(|(root, path, names)| {
        let parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty() && *part != "..").collect();
        (0..=parts.len()).filter_map(move |depth| {
            let group = parts[..depth].iter().fold(root.clone(), |group, part| group.join(part));
            left_in(&group, names)
        })
    });
    left.min()
}

/// Files of a cgroup: its limit, its usage, and the entries in `memory.stat` of the memory that the kernel can reclaim at once.
struct Names {
    limit: &'static str,
    used: &'static str,
    files: [&'static str; 2],
}

const UNIFIED: Names = Names { limit: "memory.max", used: "memory.current", files: ["inactive_file", "active_file"] };
const SEPARATE: Names = Names {
    limit: "memory.limit_in_bytes",
    used: "memory.usage_in_bytes",
    files: ["total_inactive_file", "total_active_file"],
};

/// Bytes that a cgroup may still take; `None` if it has no limit.
fn left_in(group: &Path, names: &Names) -> Option<u64> {
    let number = |file| read(&group.join(file))?.trim().parse::<u64>().ok();
    let (limit, used) = (number(names.limit)?, number(names.used)?);
    let stat = read(&group.join("memory.stat")).unwrap_or_default();
    let of = |line: &str| {
        let (name, bytes) = line.split_once(' ')?;
        names.files.contains(&name).then(|| bytes.parse::<u64>().ok())?
    };
    let files: u64 = stat.lines().filter_map(of).sum();
    Some(limit.saturating_sub(used.saturating_sub(files)))
}

#[cfg(all(test, not(miri)))]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn the_machine_says_what_is_available() {
        let text = "MemTotal: 900 kB\nMemFree:  1 kB\nMemAvailable:     700 kB\nSwapFree: 20 kB\n";
        assert_eq!(machine(text), Some(720 << 10));
        assert_eq!(machine("MemAvailable: 7 kB"), Some(7 << 10));
        assert_eq!([machine("MemAvailables: 7 kB"), machine("")], [None, None]);
        assert!(available().is_some_and(|bytes| bytes > 1 << 20), "of this machine");
    }

    #[test]
    fn the_narrowest_group_of_all_counts_with_what_it_can_give_back() {
        let root = std::env::temp_dir().join(format!("tickwire-groups-{}", std::process::id()));
        let group = |path: &str, files: &[(&str, &str)]| {
            let path = root.join(path);
            fs::create_dir_all(&path).expect("a directory");
            for (name, text) in files {
                fs::write(path.join(name), text).expect("written");
            }
        };
        let stat = ("memory.stat", "anon 5\ninactive_file 30\nactive_file 20\nshmem 7\n");
        group("", &[("memory.max", "max\n"), ("memory.current", "1\n")]);
        group("a", &[("memory.max", "1000\n"), ("memory.current", "900\n"), stat]);
        group("a/b", &[("memory.max", "500\n"), ("memory.current", "100\n")]);
        let stat = ("memory.stat", "inactive_file 1\ntotal_inactive_file 4\ntotal_active_file 5\n");
        group("memory/x", &[("memory.limit_in_bytes", "100"), ("memory.usage_in_bytes", "80"), stat]);
        let left = |text| groups(text, &root);
        assert_eq!(left("0::/a/b\n"), Some(150), "of the one above");
        assert_eq!(left("9:name=systemd:/\n4:cpu,memory:/x\n0::/a/b\n"), Some(29));
        assert_eq!([left("0::/\n"), left(""), left("4:cpu:/x"), left("nonsense")], [None; 4]);
        assert_eq!(left("0::/../a\n"), Some(150), "no way out of the root");
        fs::remove_dir_all(&root).expect("removed");
    }

    #[test]
    fn one_look_is_good_for_many_short_segments() {
        let room = Room::default();
        room.take(4096).expect("there is memory");
        let left = room.left.get();
        room.take(4096).expect("there is memory");
        assert_eq!(room.left.get(), left - 4096);
        let error = room.take(1 << 60).expect_err("there is not so much");
        assert!(matches!(error, ShmError::Memory { available, .. } if available > 0), "{error}");
        room.take(4096).expect("there is as much as before");
    }
}
