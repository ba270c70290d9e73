//! Limits the resources of a process: system calls, open files, room in `/dev/shm`.

use crate::leaks::open_files;
use crate::plan::{Denied, Plan};
use rustix::mount::{MountFlags, MountPropagationFlags, mount, mount_change};
use rustix::process::{Resource, Rlimit, getgid, getrlimit, getuid, setrlimit};
use rustix::thread::{UnshareFlags, unshare_unsafe};
use seccompiler::{BpfProgram, SeccompAction, SeccompFilter};
use std::path::Path;

/// Number of further files that a rank with limited files may open.
const FILES_LEFT: u64 = 16;
/// Size of a small `/dev/shm`, bytes.
const SMALL_BYTES: u64 = 16 << 20;

/// Denies the system calls of the plan to this thread, and to threads and processes that it starts from now on.
pub(crate) fn deny(plan: &Plan) {
    if plan.denied.is_empty() {
        return;
    }
    let number = |denied: &Denied| match denied {
        Denied::Reading => libc::SYS_process_vm_readv,
        Denied::Pidfd => libc::SYS_pidfd_open,
        Denied::Uring => libc::SYS_io_uring_setup,
        Denied::Membarrier => libc::SYS_membarrier,
        Denied::Memfd => libc::SYS_memfd_create,
    };
    let rules = plan.denied.iter().map(|denied| (number(denied), Vec::new())).collect();
    let refuse = SeccompAction::Errno(plan.errno as u32);
    let architecture = std::env::consts::ARCH.try_into().expect("an architecture that has seccomp");
    let filter = SeccompFilter::new(rules, SeccompAction::Allow, refuse, architecture).expect("a filter");
    let program = BpfProgram::try_from(filter).expect("a program");
    seccompiler::apply_filter(&program).expect("a process may always be denied something");
}

/// Limits the open files of this process to [`FILES_LEFT`] more.
pub(crate) fn bound_files() {
    let bound = open_files() + FILES_LEFT;
    let limit = Rlimit { current: Some(bound), ..getrlimit(Resource::Nofile) };
    setrlimit(Resource::Nofile, limit).expect("a limit can be lowered");
}

/// Gives this process a small `/dev/shm` of its own, with `left` bytes free. The process must have only one thread.
///
/// # Errors
/// If this system does not allow it.
pub(crate) fn fill_shm(left: u64) -> Result<(), String> {
    let (uid, gid) = (getuid().as_raw(), getgid().as_raw());
    if unshare(UnshareFlags::NEWNS).is_err() {
        unshare(UnshareFlags::NEWNS | UnshareFlags::NEWUSER).map_err(|error| format!("no mount namespace: {error}"))?;
        for (file, words) in [
            ("setgroups", "deny".to_owned()),
            ("uid_map", format!("{uid} {uid} 1")),
            ("gid_map", format!("{gid} {gid} 1")),
        ] {
            let written = std::fs::write(Path::new("/proc/self").join(file), words);
            written.map_err(|error| format!("no user namespace: {file}: {error}"))?;
        }
    }
    let failed = |error: rustix::io::Errno| format!("no tmpfs on /dev/shm: {error}");
    mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC).map_err(failed)?;
    let options = std::ffi::CString::new(format!("size={SMALL_BYTES},mode=1777")).expect("no zero byte");
    mount("tmpfs", "/dev/shm", "tmpfs", MountFlags::NOSUID | MountFlags::NODEV, &*options).map_err(failed)?;
    std::fs::write("/dev/shm/filling", vec![1u8; (SMALL_BYTES - left) as usize]).map_err(|error| error.to_string())
}

/// Free space in `/dev/shm`, bytes.
pub(crate) fn free_shm() -> u64 {
    rustix::fs::statvfs("/dev/shm").map_or(0, |found| found.f_bavail * found.f_frsize)
}

#[expect(unsafe_code, reason = "leaving a namespace is unsafe where threads share descriptors")]
fn unshare(flags: UnshareFlags) -> rustix::io::Result<()> {
    // SAFETY: descriptors stay shared: `FILES` is not among the flags of any caller here.
    unsafe { unshare_unsafe(flags) }
}
