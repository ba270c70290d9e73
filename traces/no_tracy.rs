//! The stand-in without the feature `tracy`: no profiler is ever connected, and these functions do nothing.

use crate::event::Depths;
use tickwire_components::Work;

/// Whether a profiler is connected.
#[inline(always)]
pub const fn connected() -> bool {
    false
}

/// A message of an engine.
#[inline(always)]
pub fn message(_rank: u32, _words: &str) {}

/// A run of a system.
pub struct Zone;

impl Zone {
    /// Begins the zone.
    #[inline(always)]
    pub fn begin(_system: u16, _name: &str) -> Self {
        Zone
    }

    /// A zone for a call of a collective operation, or a one-sided call. It ends when the value is dropped.
    #[inline(always)]
    pub fn of_call(_name: &str) -> Self {
        Zone
    }

    /// A zone for the part of Deliver that reads messages out of memory of peers. It ends when the value is dropped.
    #[inline(always)]
    pub fn of_reading() -> Self {
        Zone
    }

    /// Ends the zone, with the number of rows that were handled.
    #[inline(always)]
    pub fn end(self, _rows: u64) {}
}

/// The profiler's view of one engine.
pub struct Profile;

impl Profile {
    /// For an engine of a rank.
    pub fn new(_rank: u32) -> Self {
        Profile
    }

    /// Whether a profiler is connected in this tick.
    #[inline(always)]
    pub fn begin_tick(&mut self) -> bool {
        false
    }

    /// Reports the end of a tick, and the queue depths if they were counted.
    #[inline(always)]
    pub fn end_tick(&mut self, _work: &Work, _passes: u32, _depths: Option<&Depths>) {}

    /// Reports the bytes that a transport has moved so far.
    #[inline(always)]
    pub fn moved(&mut self, _transport: &str, _sent_bytes: u64, _received_bytes: u64) {}
}
