//! Files and directories of one test, below the directory for temporary files. If a test fails or is killed, its files
//! stay until the same test is started again.

use rustix::process::{Pid, test_kill_process};
use std::ops::Deref;
use std::path::{Path, PathBuf};

/// A path that no other process uses, if its tests use different names. Nothing is created. Files under this name from
/// processes that have ended are removed.
pub fn path(name: &str) -> PathBuf {
    let name = format!("tickwire-{name}-");
    let within = std::env::temp_dir();
    remove_left(&within, &name);
    within.join(format!("{name}{}", std::process::id()))
}

/// Removes all files and directories with this name and the number of a process that has ended.
fn remove_left(within: &Path, name: &str) {
    for entry in std::fs::read_dir(within).into_iter().flatten().flatten() {
        let Some(owner) = entry.file_name().to_str().and_then(|file| file.strip_prefix(name)?.parse().ok()) else {
            continue;
        };
        let lives = Pid::from_raw(owner).is_none_or(|owner| test_kill_process(owner) != Err(rustix::io::Errno::SRCH));
        if !lives {
            let _ = std::fs::remove_dir_all(entry.path()).or_else(|_| std::fs::remove_file(entry.path()));
        }
    }
}

/// An empty directory. It is removed with this value. If the test fails, it stays for inspection until the test is
/// started again.
#[derive(Debug)]
pub struct Directory(PathBuf);

impl Directory {
    /// Creates the directory at [`path`] of `name`. Removes first what was there.
    pub fn new(name: &str) -> Self {
        let path = path(name);
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir(&path).unwrap();
        Directory(path)
    }
}

impl Deref for Directory {
    type Target = Path;

    fn deref(&self) -> &Path {
        &self.0
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn what_a_test_has_left_is_removed_when_it_starts_again() {
        let mut ended = Command::new("true").spawn().unwrap();
        ended.wait().unwrap();
        let left = |name: &str| std::env::temp_dir().join(format!("tickwire-scratch-{name}-{}", ended.id()));
        for name in ["directory", "other"] {
            std::fs::create_dir(left(name)).unwrap();
            std::fs::write(left(name).join("word"), "").unwrap();
        }
        std::fs::write(left("file"), "").unwrap();
        let own = Directory::new("scratch-directory");
        assert!(own.is_dir() && !left("directory").exists(), "its owner has ended");
        path("scratch-directory");
        assert!(own.is_dir(), "its owner lives");
        path("scratch-file");
        assert!(!left("file").exists(), "its owner has ended");
        assert!(left("other").is_dir(), "another test's");
        path("scratch-other");
        assert!(!left("other").exists());
        let place = own.to_owned();
        drop(own);
        assert!(!place.exists());
    }
}
