//! Ranks that are hard to reach for a command: very many, and those with another process number.

use crate::kit::{Hanging, PATIENCE, tickwire};
use std::process::{Command, Stdio};
use std::time::Instant;
use tickwire_tests::binaries::binary;

/// `whowaits` and `dump` look at more engines than they may have files open at first.
#[test]
fn jobs_with_more_ranks_than_open_files_are_looked_at_whole() {
    const RANKS: u32 = 40;
    let hanging = Hanging::start("tag", RANKS, &[]);
    hanging.until(&["whowaits"], &["rank 0 waits"]);
    let limited = |args: &[&str]| {
        let mut command = Command::new("prlimit");
        command.arg("--nofile=40:4096").arg(binary("tickwire")).args(args);
        let output = command.output().unwrap();
        String::from_utf8([output.stdout, output.stderr].concat()).unwrap()
    };
    for args in [&["whowaits", &hanging.job][..], &["top", "--once", &hanging.job], &["dump", "--all", &hanging.job]] {
        let said = limited(args);
        assert!(!said.contains("open files") && !said.contains("cannot be asked"), "{args:?} says\n{said}");
    }
    assert!(tickwire::jobs::processes().unwrap().iter().filter(|of| of.job == hanging.job).count() >= RANKS as usize);
}

/// A rank in a container of its own has another number outside.
#[test]
fn a_rank_in_another_pid_namespace_is_dumped() {
    let unshare = ["--pid", "--fork", "--kill-child", "--mount-proc"];
    let may = Command::new("unshare").args(unshare).arg("true").output().is_ok_and(|output| output.status.success());
    if !may {
        return println!("skipped: this user may not make a pid namespace (unshare --pid)");
    }
    let mut command = Command::new("unshare");
    command.args(unshare).arg(env!("CARGO_BIN_EXE_tests-deadlocks")).arg("any");
    let mut outer = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let children = format!("/proc/{0}/task/{0}/children", outer.id());
    let start = Instant::now();
    let said = loop {
        let pid = std::fs::read_to_string(&children).unwrap_or_default();
        let output = tickwire(&["dump", pid.trim()], None);
        if output.status.success() || start.elapsed() > PATIENCE {
            break String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
        }
    };
    outer.kill().and_then(|()| outer.wait()).unwrap();
    assert!(said.contains("receive"), "{said}");
}
