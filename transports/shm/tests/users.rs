//! A process whose effective user is not its real one, such as a program with the set-user-ID bit. The kernel tells peers the effective one.

use super::kit::Net;
use crate::shm::segment::sweep;
use rustix::process::{Uid, geteuid};

/// A user without rights.
const NOBODY: u32 = 65534;

#[test]
#[ignore = "is run by another test, in a process of its own"]
fn as_another_user() {
    rustix::thread::set_thread_res_uid(None, Uid::from_raw(NOBODY), None).expect("root may");
    let mut net = Net::new("users", 2);
    net.connect(0, 1);
    // What this user's processes have left is owned by the effective user, too.
    let directory = std::env::temp_dir().join(format!("tickwire-users-{}", std::process::id()));
    std::fs::create_dir(&directory).expect("a directory");
    std::fs::write(directory.join("tickwire.job.0.1.2"), "left").expect("a file");
    assert_eq!(sweep(&directory), 1);
    std::fs::remove_dir(&directory).expect("it is empty");
}

#[test]
#[cfg_attr(miri, ignore = "it starts a process")]
fn processes_of_one_effective_user_share_memory() {
    // Only root may take another effective user.
    if !geteuid().is_root() {
        return;
    }
    let mut command = std::process::Command::new(std::env::current_exe().expect("the test itself"));
    let args = ["--exact", "shm::tests::users::as_another_user", "--ignored", "--test-threads=1"];
    let output = command.args(args).output().expect("it starts");
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && said.contains("1 passed"), "{said}");
}
