//! How an endpoint over libfabric is opened.

use super::Choice;
use tickwire_components::limits::{FABRIC_MATCHED_MAX, Lengths, Limits};

/// Lower than the priorities of loopback and shared memory, which are faster.
const PRIORITY: u8 = 40;

/// How to open endpoints over libfabric. Build one with [`OfiConfig::new`] and change fields.
#[derive(Clone, Debug)]
pub struct OfiConfig {
    /// Name of the job; procs of other names never meet.
    pub job: String,
    /// The proc number of this process.
    pub me: u32,
    /// Procs in the job.
    pub procs: u32,
    /// Which providers and devices to use.
    pub choice: Choice,
    /// Priority of the first endpoint. Each further one has one less.
    pub priority: u8,
    /// How messages are cut into frames, which gives the payload of a frame. Must be the same for all procs.
    pub lengths: Lengths,
    /// The most bytes of a message that is sent whole in tagged mode, including the header of a synchronous one. Must be the same for all
    /// procs. Each posted receive has room for so many bytes, which use no memory until they are written.
    pub matched_max: usize,
    /// Messages from this length on, in bytes, go directly between the memory of both processes, if the provider supports that.
    /// [`usize::MAX`] for never.
    pub direct_min: usize,
    /// The most completions that are read in one call. Calls are repeated until there are none.
    pub progress_event_count: usize,
    /// Whether receive buffers take many frames each (`FI_MULTI_RECV`), if a check shows that this works with the provider.
    pub multi_receive: bool,
    /// How long a running process may take to answer a call, in ms; `None` for as long as it runs.
    pub connect_ms_max: Option<u32>,
    /// How long the peer's kernel may leave a connection unanswered before the connection counts as dead, in ms.
    pub dead_link_ms_max: u32,
    /// How long closing waits for sent frames to arrive, in ms.
    pub close_ms_max: u32,
}

impl OfiConfig {
    /// Default limits, and the provider that libfabric ranks highest.
    pub fn new(job: impl Into<String>, me: u32, procs: u32) -> Self {
        Self::with_limits(job, me, procs, &Limits::default())
    }

    /// As [`OfiConfig::new`], with an engine's limits.
    pub fn with_limits(job: impl Into<String>, me: u32, procs: u32, limits: &Limits) -> Self {
        OfiConfig {
            job: job.into(),
            me,
            procs,
            choice: Choice::default(),
            priority: PRIORITY,
            lengths: limits.fabric_lengths,
            matched_max: limits.fabric_lengths.eager_max.min(FABRIC_MATCHED_MAX),
            direct_min: limits.direct_min,
            progress_event_count: limits.progress_event_count,
            multi_receive: true,
            connect_ms_max: limits.connect_ms_max,
            dead_link_ms_max: limits.dead_link_ms_max,
            close_ms_max: limits.failure_ms_max,
        }
    }
}
