//! Files and directories of one test, below the directory for temporary files.

use std::ops::Deref;
use std::path::{Path, PathBuf};

/// A path that no other process uses, if its tests use different names. Nothing is created.
pub fn path(name: &str) -> PathBuf {
    std::env::temp_dir().join(format!("tickwire-{name}-{}", std::process::id()))
}

/// An empty directory. It is removed with this value, except when the test fails: then it stays, to be looked at.
#[derive(Debug)]
pub struct Directory(PathBuf);

impl Directory {
    /// Creates it at [`path`] of `name`, after removing what was there.
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
