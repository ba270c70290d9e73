//! The resources that a process holds: descriptors, shared mappings, children, memory.

use std::collections::BTreeMap;

/// The resources of a process at one moment.
pub(crate) struct Held {
    /// Open descriptors, with the name of what each one refers to.
    descriptors: BTreeMap<String, String>,
    /// Mapped files that are memory, by name, and how often each is mapped.
    mappings: BTreeMap<String, usize>,
}

impl Held {
    pub(crate) fn now() -> Self {
        let mut descriptors = BTreeMap::new();
        for entry in std::fs::read_dir("/proc/self/fd").unwrap().flatten() {
            // The descriptor of this directory itself is closed by then.
            if let Ok(target) = std::fs::read_link(entry.path()) {
                let target = target.to_string_lossy().into_owned();
                if !target.ends_with("/fd") {
                    descriptors.insert(entry.file_name().to_string_lossy().into_owned(), target);
                }
            }
        }
        let mut mappings = BTreeMap::new();
        for line in std::fs::read_to_string("/proc/self/maps").unwrap().lines() {
            let name = line.splitn(6, ' ').nth(5).unwrap_or_default().trim();
            if name.contains("memfd:")
                || name.contains("/dev/shm")
                || name.contains("io_uring")
                || name.contains("(deleted)")
            {
                *mappings.entry(name.to_owned()).or_default() += 1;
            }
        }
        Held { descriptors, mappings }
    }

    /// Describes everything that is held now and was not held before. Empty if there is nothing more.
    pub(crate) fn beyond(&self, before: &Held) -> Vec<String> {
        let descriptors = self.descriptors.iter().filter(|(fd, target)| before.descriptors.get(*fd) != Some(*target));
        let descriptors = descriptors.map(|(fd, target)| format!("descriptor {fd}: {target}"));
        let more = |name: &str, times: usize| times > before.mappings.get(name).copied().unwrap_or(0);
        let mappings = self.mappings.iter().filter(|(name, times)| more(name, **times));
        descriptors.chain(mappings.map(|(name, times)| format!("{times} mappings of {name}"))).collect()
    }
}

/// The number of open descriptors of this process.
pub(crate) fn open_files() -> u64 {
    std::fs::read_dir("/proc/self/fd").unwrap().count() as u64 - 1
}

/// Children of this process that have not been waited for.
pub(crate) fn children() -> Vec<String> {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap().flatten();
    let lists = tasks.filter_map(|task| std::fs::read_to_string(task.path().join("children")).ok());
    lists.flat_map(|list| list.split_whitespace().map(str::to_owned).collect::<Vec<_>>()).collect()
}

/// The most memory that this process has ever had, bytes.
pub(crate) fn most_memory() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() << 10
}

/// The names of a job that are left on this host, of files in `/dev/shm` and of sockets.
pub(crate) fn names(job: &str) -> Vec<String> {
    let files = std::fs::read_dir("/dev/shm").into_iter().flatten().flatten();
    let files = files.map(|file| file.file_name().to_string_lossy().into_owned());
    let sockets = std::fs::read_to_string("/proc/net/unix").unwrap_or_default();
    let sockets: Vec<_> = sockets.lines().filter_map(|line| Some(line.split_once('@')?.1.to_owned())).collect();
    files.chain(sockets).filter(|name| name.contains(job)).collect()
}
