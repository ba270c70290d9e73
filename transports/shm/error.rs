//! Why shared memory cannot be used.

use rustix::io::Errno;
use std::path::PathBuf;
use thiserror::Error;
use tickwire_components::FileTooLong;

/// Why shared memory cannot be used.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ShmError {
    /// An invalid job name.
    #[error("job name {job:?} cannot be used: give 1 to 64 letters, digits, '-', '_' or '.'")]
    Job {
        /// The name.
        job: String,
    },
    /// A proc number that does not exist.
    #[error("proc {me} of {procs} does not exist: number procs from 0, and have at most 2^24")]
    Proc {
        /// The number.
        me: u32,
        /// How many there are.
        procs: u32,
    },
    /// A ring size that cannot be used.
    #[error("{name} is {bytes}: give a power of two from 4096 to 2^30")]
    Ring {
        /// Its limit.
        name: &'static str,
        /// The size.
        bytes: usize,
    },
    /// Another process uses this proc's name.
    #[error("proc {me} of job {job:?} runs on this host already: end it, or give this job another name")]
    Taken {
        /// The number.
        me: u32,
        /// The job.
        job: String,
    },
    /// No memory for a segment.
    #[error(
        "no memory for a segment: {bytes} bytes were asked for, {available} are available to this process ({source}), of which one \
         may take a sixteenth. End what nobody needs, raise the limit of the memory cgroup (containers: --memory), or make \
         first_ring_bytes, ring_bytes and grown_bytes_max smaller"
    )]
    Memory {
        /// How much was asked for.
        bytes: usize,
        /// How much is available, as far as the system tells.
        available: u64,
        /// What the system said, or would have.
        source: Errno,
    },
    /// A segment would be longer than files may be.
    #[error("a segment of {bytes} bytes: {0}", bytes = .0.bytes)]
    FileSize(#[from] FileTooLong),
    /// No room for a segment in the directory.
    #[error(
        "{directory:?} is full: {bytes} bytes were asked for, {free} are free ({source}). Let the process make a memfd \
         (memfd_create), which needs no directory, remove files there that nobody uses, enlarge it (mount -o \
         remount,size=8G {directory:?}; containers: --shm-size), or make first_ring_bytes smaller"
    )]
    Full {
        /// Where.
        directory: PathBuf,
        /// How much was asked for.
        bytes: usize,
        /// How much is free.
        free: u64,
        /// What the system said.
        source: Errno,
    },
    /// The directory of the segments cannot be used.
    #[error(
        "no segment can be made in {directory:?} ({source}): let the process make a memfd (memfd_create), or give a directory of a \
         tmpfs that this user may write"
    )]
    Directory {
        /// Where.
        directory: PathBuf,
        /// What the system said.
        source: Errno,
    },
    /// No more descriptors.
    #[error(
        "no descriptor ({source}): raise the limit of open files (ulimit -n); a connection needs three, and up to six more for long messages"
    )]
    Descriptors {
        /// What the system said.
        source: Errno,
    },
    /// A file of the system that cannot be read.
    #[error("{path:?} cannot be read ({source}): mount /proc")]
    ProcFs {
        /// Which.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
}
