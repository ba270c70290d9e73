//! What a transport can do, as data: protocols are chosen by it.

use tickwire_components::limits::{CONTEXTS_MAX, Lengths, TAG_MAX};
use tickwire_components::{Span, context};

/// Who can be reached at all.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reach {
    /// Engines of the own process.
    Process,
    /// Processes of the own host.
    Host,
    /// Other hosts.
    Network,
}

/// What a transport can do, as data: protocols are chosen by it.
#[derive(Clone, Debug)]
pub struct Capabilities {
    /// Who can be reached.
    pub reach: Reach,
    /// Higher is preferred among those that reach a proc.
    pub priority: u8,
    /// What it can match by, where it does.
    pub tags: TagLimits,
    /// Bytes of a message at most that it takes whole where it matches; longer ones are offered.
    pub matched_max: usize,
    /// Bytes of its memory that a message takes at most, beside its own, while nothing is paired with it where it matches: the
    /// credit of its peers is measured by that.
    pub kept_bytes: usize,
    /// It can read a peer's memory.
    pub remote_read: bool,
    /// Memory of this process that peers have mapped, from which they read without a system call.
    pub mapped: Mapped,
    /// It can write a peer's memory.
    pub remote_write: bool,
    /// It has atomic operations on a peer's memory.
    pub atomics: bool,
    /// It can take receives for one source only.
    pub directed_receive: bool,
    /// It takes and fills several runs of memory as one.
    pub gathers: bool,
    /// Fewest bytes of space that it makes progress with.
    pub progress_min: usize,
    /// A send takes a frame as a whole or not at all, so the engine may send without a CAR.
    pub whole_frames: bool,
    /// Bytes of payload that are copied out before `send` returns.
    pub inject_max: usize,
    /// Bytes of payload in one frame at most.
    pub frame_max: usize,
    /// Bytes of payload in a frame that every link takes; of longer ones, [`Transport::fits`](crate::Transport::fits) tells what a link takes.
    pub frame_sure: usize,
    /// How messages are cut, where that is not as the engine's limits say; at most `frame_max` goes in a frame.
    pub lengths: Option<Lengths>,
    /// Bytes of user data with a completion. With fewer than 8, what [`Matching::peek`](crate::Matching::peek) finds has no length where it matches.
    pub completion_data: usize,
    /// `wait` can sleep on it.
    pub can_sleep: bool,
    /// Short frames that it has taken may wait for others to go with, until it is looked at or told to [`Transport::flush`](crate::Transport::flush).
    pub holds_back: bool,
    /// Looking whether something is there costs next to nothing: no system call, no lock.
    pub cheap_poll: bool,
}

impl Capabilities {
    /// The least a transport can do: it moves frames of up to `frame_max` bytes of payload. One that can do more says so:
    /// `Capabilities { cheap_poll: true, ..Capabilities::least(reach, priority, frame_max) }`.
    pub const fn least(reach: Reach, priority: u8, frame_max: usize) -> Self {
        Capabilities {
            reach,
            priority,
            tags: TagLimits::NONE,
            matched_max: 0,
            kept_bytes: 0,
            remote_read: false,
            mapped: Mapped::NONE,
            remote_write: false,
            atomics: false,
            directed_receive: false,
            gathers: true,
            progress_min: 1,
            whole_frames: false,
            inject_max: 0,
            frame_max,
            frame_sure: frame_max,
            lengths: None,
            completion_data: 0,
            can_sleep: false,
            holds_back: false,
            cheap_poll: false,
        }
    }
}

/// A range of this process's memory that peers have mapped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Mapped {
    /// Its first address.
    pub start: usize,
    /// How long it is, bytes.
    pub bytes: usize,
}

impl Mapped {
    /// There is none.
    pub const NONE: Mapped = Mapped { start: 0, bytes: 0 };

    /// Whether a run of bytes is in it, all of them.
    #[inline]
    pub fn holds(&self, run: Span) -> bool {
        let before = run.start().addr().wrapping_sub(self.start);
        before < self.bytes && run.len() <= self.bytes - before
    }
}

/// What fits the tags of a transport that matches by itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TagLimits {
    /// The name of its tag mode, for errors.
    pub mode: &'static str,
    /// Context ids, from 0 on.
    pub contexts: u32,
    /// Incarnations of each id that can be told apart, from 0 on: how often it is used, and once at least.
    pub incarnations: u32,
    /// Ranks of a communicator, from 0 on.
    pub ranks: u32,
    /// The highest tag.
    pub tag_max: u32,
}

impl TagLimits {
    /// Everything fits.
    pub const NONE: TagLimits = TagLimits {
        mode: "",
        contexts: CONTEXTS_MAX as u32,
        incarnations: context::INCARNATIONS,
        ranks: u32::MAX,
        tag_max: TAG_MAX,
    };
}
