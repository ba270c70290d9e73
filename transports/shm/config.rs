//! The configuration of an endpoint, and its checks.

use super::error::ShmError;
use super::segment::Files;
use crate::handshake::JOB_BYTES_MAX;
use std::path::PathBuf;
use std::str::FromStr;
use tickwire_components::limits::{FIRST_RING_BYTES, GROWN_BYTES, Limits, PROCS_MAX, RING_BYTES};

/// How to open an endpoint for shared memory. Build one with [`ShmConfig::new`] and change fields.
#[derive(Clone, Debug)]
pub struct ShmConfig {
    /// Name of the job: 1 to 64 of `A`–`Z`, `a`–`z`, `0`–`9`, `-`, `_` and `.`. Procs of other names never meet.
    pub job: String,
    /// The proc number of this process.
    pub me: u32,
    /// Procs in the job.
    pub procs: u32,
    /// Bytes that a ring (one direction of a pair) may grow to; a power of two, the same for all procs.
    pub ring_bytes: usize,
    /// Bytes that a ring has at first; a power of two, the same for all procs. At most `ring_bytes`.
    pub first_ring_bytes: usize,
    /// The most bytes, in all, of grown rings that this proc writes, and of staging buffers that it makes.
    pub grown_bytes_max: usize,
    /// Payloads from this length on, in bytes, are written past this processor's caches.
    pub past_min: usize,
    /// How long a running process may take to answer a call, in ms; `None` for as long as it runs.
    pub connect_ms_max: Option<u32>,
    /// The directory for segments if this process cannot make a `memfd`; a tmpfs.
    pub directory: PathBuf,
    /// Whether peers get the process's [shared heap](crate::heap) to read, if it is open.
    pub shared_heap: bool,
    /// Whether peers' memory outside their shared heaps is read too, if the kernel allows it (cross-memory attach).
    pub cross_memory_attach: bool,
    /// When peers stage messages that this process may read out of their memory, and this process stages its own to peers.
    pub staging: Staging,
    /// The kind of files that segments are made of, even if a better kind is possible.
    pub(super) files: Files,
}

/// When senders stage messages instead of having them read out of their memory. See the module `staging`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Staging {
    /// Never; this process does not stage its messages to peers either.
    Never,
    /// When staging has cost less lately, for messages of such a length from this peer.
    #[default]
    IfCheaper,
    /// Whenever it is possible, waiting up to 2 ms for further bytes: for measurements and tests.
    Always,
}

impl FromStr for Staging {
    type Err = String;

    fn from_str(word: &str) -> Result<Self, String> {
        match word {
            "never" => Ok(Staging::Never),
            "cheaper" => Ok(Staging::IfCheaper),
            "always" => Ok(Staging::Always),
            _ => Err(format!("messages are not staged '{word}': give never, cheaper or always")),
        }
    }
}

impl ShmConfig {
    /// Default limits, and a shared heap that stays with this process.
    pub fn new(job: impl Into<String>, me: u32, procs: u32) -> Self {
        ShmConfig {
            job: job.into(),
            me,
            procs,
            ring_bytes: RING_BYTES,
            first_ring_bytes: FIRST_RING_BYTES,
            grown_bytes_max: GROWN_BYTES,
            past_min: Limits::default().past_min,
            connect_ms_max: Limits::default().connect_ms_max,
            directory: "/dev/shm".into(),
            shared_heap: false,
            cross_memory_attach: true,
            staging: Staging::default(),
            files: Files::default(),
        }
    }

    pub(super) fn check(&self) -> Result<(), ShmError> {
        let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
        if self.job.is_empty() || self.job.len() > JOB_BYTES_MAX || !self.job.bytes().all(allowed) {
            return Err(ShmError::Job { job: self.job.clone() });
        }
        if self.me >= self.procs || self.procs as usize > PROCS_MAX {
            return Err(ShmError::Proc { me: self.me, procs: self.procs });
        }
        for (name, bytes) in [("ring_bytes", self.ring_bytes), ("first_ring_bytes", self.first_ring_bytes)] {
            if !bytes.is_power_of_two() || !(4096..=1 << 30).contains(&bytes) {
                return Err(ShmError::Ring { name, bytes });
            }
        }
        Ok(())
    }

    /// Bytes of a ring at first.
    pub(super) fn first_bytes(&self) -> usize {
        self.first_ring_bytes.min(self.ring_bytes)
    }
}
