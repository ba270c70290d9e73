//! The paths of this workspace's programs, in the same build as the running test.

#![allow(clippy::unwrap_used, reason = "what cannot be prepared fails the test")]

use std::path::{Path, PathBuf};
use std::process::Command;

/// The program `name` of package `tickwire`.
pub fn binary(name: &str) -> PathBuf {
    built(name, name, "--bin")
}

/// The example `name` of package `tickwire`.
pub fn example(name: &str) -> PathBuf {
    built(&format!("examples/{name}"), name, "--example")
}

/// A file in the build directory of the running test. It is built if it is missing.
fn built(file: &str, name: &str, kind: &str) -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let directory = test.parent().and_then(Path::parent).unwrap();
    let path = directory.join(file);
    if !path.exists() {
        let profile = match directory.file_name().and_then(|profile| profile.to_str()) {
            Some("debug") | None => "dev",
            Some(profile) => profile,
        };
        let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
        cargo.args(["build", "-p", "tickwire", kind, name, "--profile", profile, "--target-dir"]);
        assert!(cargo.arg(directory.parent().unwrap()).status().unwrap().success(), "{name} does not build");
    }
    path
}
