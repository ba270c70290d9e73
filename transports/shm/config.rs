//! How an endpoint is opened, and why it may not be.

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
    /// The own proc number.
    pub me: u32,
    /// Procs in the job.
    pub procs: u32,
    /// Bytes that a ring may grow to, one direction of a pair; a power of two, the same for all procs.
    pub ring_bytes: usize,
    /// Bytes of a ring at first, a power of two, the same for all procs; `ring_bytes` if that is less.
    pub first_ring_bytes: usize,
    /// Bytes of all rings together that have grown and that this proc writes.
    pub grown_bytes_max: usize,
    /// Payloads of frames from this length on are written past the caches of the own processor, bytes.
    pub past_min: usize,
    /// How long a living process may take to answer a call, ms; `None` for as long as it lives.
    pub connect_ms_max: Option<u32>,
    /// Where segments are made if this process may make no `memfd`; a tmpfs.
    pub directory: PathBuf,
    /// Whether peers get the process's [shared heap](crate::heap) to read, if it is open.
    pub shared_heap: bool,
    /// Whether memory of peers that is not in their shared heaps is read too, where the kernel allows it (cross-memory attach).
    pub cross_memory_attach: bool,
    /// When messages that may be read out of peers' memory are spliced by these, and own ones to peers.
    pub splicing: Splicing,
    /// Makes segments of these even where better ones are possible.
    pub(super) files: Files,
}

/// When messages are spliced by their senders rather than read out of their memory. See the module `splicing`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Splicing {
    /// Never; nor are own messages.
    Never,
    /// When that has cost less lately, for messages of such a length from this peer.
    #[default]
    IfCheaper,
    /// Whenever it is possible, and waiting up to 2 ms for each piece: to measure and to test it.
    Always,
}

impl FromStr for Splicing {
    type Err = String;

    fn from_str(word: &str) -> Result<Self, String> {
        match word {
            "never" => Ok(Splicing::Never),
            "cheaper" => Ok(Splicing::IfCheaper),
            "always" => Ok(Splicing::Always),
            _ => Err(format!("messages are not spliced '{word}': give never, cheaper or always")),
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
            splicing: Splicing::default(),
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
