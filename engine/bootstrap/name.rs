//! The names of jobs.

use std::hash::{BuildHasher, Hash, Hasher};
use std::time::SystemTime;

/// Longest name of a job, bytes. It becomes part of names in /dev/shm and of socket names, which have at most 108 bytes.
pub const JOB_BYTES_MAX: usize = 40;

pub(crate) fn job_is_valid(job: &str) -> bool {
    let allowed = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
    (1..=JOB_BYTES_MAX).contains(&job.len()) && job.bytes().all(allowed)
}

/// A job name that no other job on this host has: it has the process id, and 64 bits that nobody can guess.
pub(crate) fn unique_job(kind: &str) -> String {
    let mut hasher = std::collections::hash_map::RandomState::new().build_hasher();
    SystemTime::now().hash(&mut hasher);
    std::process::id().hash(&mut hasher);
    format!("{kind}-{}-{:016x}", std::process::id(), hasher.finish())
}
