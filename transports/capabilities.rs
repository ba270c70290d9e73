//! What a transport can do, as data: protocols are chosen by it.

use tickwire_components::limits::{CONTEXTS_MAX, Lengths, TAG_MAX};
use tickwire_components::{Span, context};

/// Which procs a transport can reach.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reach {
    /// Engines of this process.
    Process,
    /// Processes of this host.
    Host,
    /// Other hosts.
    Network,
}

/// What a transport can do, as data: protocols are chosen by it.
#[derive(Clone, Debug)]
pub struct Capabilities {
    /// Which procs it can reach.
    pub reach: Reach,
    /// The transport with the highest priority is used among those that reach a proc.
    pub priority: u8,
    /// The limits of its tags, if it matches.
    pub tags: TagLimits,
    /// If it matches: the most bytes of a message that it takes whole. Longer messages are offered (RTS).
    pub matched_max: usize,
    /// If it matches: the most bytes of its memory that an unexpected message takes beside the message itself. The credit of peers is
    /// counted by that.
    pub kept_bytes: usize,
    /// It can read a peer's memory.
    pub remote_read: bool,
    /// Memory of this process that peers have mapped, from which they read without a system call.
    pub mapped: Mapped,
    /// It can take receives for one source only.
    pub directed_receive: bool,
    /// It takes and fills several runs of memory as one.
    pub gathers: bool,
    /// The least bytes of space with which it makes progress.
    pub progress_min: usize,
    /// A send takes a frame as a whole or not at all. So the engine may send without a CAR.
    pub whole_frames: bool,
    /// Payloads of up to this many bytes are copied before `send` returns.
    pub inject_max: usize,
    /// The most bytes of payload in one frame.
    pub frame_max: usize,
    /// Bytes of payload that every link takes in one frame. For longer ones, [`Transport::fits`](crate::Transport::fits) tells what a link
    /// takes.
    pub frame_sure: usize,
    /// How messages are cut into frames, if not as the engine's limits say. At most `frame_max` bytes go in a frame.
    pub lengths: Option<Lengths>,
    /// Bytes of CQ data with a completion. If it matches with fewer than 8, messages that [`Matching::peek`](crate::Matching::peek) finds
    /// have no length.
    pub completion_data: usize,
    /// A wait can sleep on its file descriptor.
    pub can_sleep: bool,
    /// Short frames that it has taken may be held back to be sent with others, until it is polled or told to
    /// [`Transport::flush`](crate::Transport::flush).
    pub holds_back: bool,
    /// Polling it costs next to nothing: no system call, no lock.
    pub cheap_poll: bool,
}

impl Capabilities {
    /// The least abilities of a transport: it moves frames of up to `frame_max` bytes of payload. A transport that can do more says so:
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
    /// Its length in bytes.
    pub bytes: usize,
}

impl Mapped {
    /// No such range.
    pub const NONE: Mapped = Mapped { start: 0, bytes: 0 };

    /// Whether all bytes of a run are in it.
    #[inline]
    pub fn holds(&self, run: Span) -> bool {
        let before = run.start().addr().wrapping_sub(self.start);
        before < self.bytes && run.len() <= self.bytes - before
    }
}

/// The limits of the tags of a transport that matches by itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TagLimits {
    /// The name of its tag mode, for errors.
    pub mode: &'static str,
    /// Context ids, from 0 on.
    pub contexts: u32,
    /// How many incarnations of each id can be told apart, from 0 on, which is how often an id is used; at least 1.
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
