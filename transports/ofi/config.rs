//! How an endpoint over libfabric is opened.

use super::Choice;
use tickwire_components::limits::{Lengths, Limits};

/// Below loopback and shared memory, which are nearer.
const PRIORITY: u8 = 40;

/// Bytes that `ofi_rxm` sends at once. Of a longer message that is matched it fetches the rest when it is asked for it, so that
/// whoever claims one does not have it yet.
const MATCHED_MAX: usize = 16 << 10;

/// How to open endpoints over libfabric. Build one with [`OfiConfig::new`] and change fields.
#[derive(Clone, Debug)]
pub struct OfiConfig {
    /// Name of the job; procs of other names never meet.
    pub job: String,
    /// The own proc number.
    pub me: u32,
    /// Procs in the job.
    pub procs: u32,
    /// Which providers and devices.
    pub choice: Choice,
    /// Priority of the first endpoint; those behind it have one less each.
    pub priority: u8,
    /// How messages are cut, and so the payload of a frame; the same for all procs.
    pub lengths: Lengths,
    /// Bytes of a message at most that goes whole in tagged mode, with the header of one that is synchronous; the same for
    /// all procs. Each posted receive has a place for so many, which is no memory until it is used.
    pub matched_max: usize,
    /// Messages from this length on go straight between the memory of both ends where the provider allows that, bytes;
    /// [`usize::MAX`] for never.
    pub direct_min: usize,
    /// Completions that are read in one call at most; calls are repeated until there is none.
    pub progress_event_count: usize,
    /// Whether receive buffers take many frames each (`FI_MULTI_RECV`), where a check shows that the provider can do that.
    pub multi_receive: bool,
    /// How long a living process may take to answer a call, ms; `None` for as long as it lives.
    pub connect_ms_max: Option<u32>,
    /// How long a connection may be without an answer of the peer's kernel before it counts as dead, ms.
    pub dead_link_ms_max: u32,
    /// How long a close waits for what was sent to arrive, ms.
    pub close_ms_max: u32,
}

impl OfiConfig {
    /// Default limits, and the provider that libfabric ranks highest.
    pub fn new(job: impl Into<String>, me: u32, procs: u32) -> Self {
        Self::with_limits(job, me, procs, &Limits::default())
    }

    /// The same with an engine's limits.
    pub fn with_limits(job: impl Into<String>, me: u32, procs: u32, limits: &Limits) -> Self {
        OfiConfig {
            job: job.into(),
            me,
            procs,
            choice: Choice::default(),
            priority: PRIORITY,
            lengths: limits.fabric_lengths,
            matched_max: limits.fabric_lengths.eager_max.min(MATCHED_MAX),
            direct_min: limits.direct_min,
            progress_event_count: limits.progress_event_count,
            multi_receive: true,
            connect_ms_max: limits.connect_ms_max,
            dead_link_ms_max: limits.dead_link_ms_max,
            close_ms_max: limits.failure_ms_max,
        }
    }
}
