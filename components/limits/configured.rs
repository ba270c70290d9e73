//! What an application may configure, and which combinations cannot be.

use super::lengths::{Lengths, Matching};
use super::{
    BUFFERS_MAX, CONTEXTS_MAX, CONTROL_US, DIRECT_MIN, EAGER_MAX, FABRIC_FRAME_MAX, FABRIC_LENGTHS, FIRST_RING_BYTES,
    FORWARD_BYTES, GRANT_BYTES, GROWN_BYTES, MAPPED_MIN, PART_BYTES, PASSES_MAX, PAST_MIN, PIECE_BYTES,
    PROGRESS_EVENTS, READ_MIN, REGISTERED_BYTES, REGISTRATIONS_MAX, RING_BYTES, ROWS_MAX, SUBMISSIONS_MAX, TICK_BUDGET,
    UNEXPECTED_BYTES,
};
use crate::wire::HEADER_BYTES;

/// What an application may configure. Build one with [`Limits::default`] and change fields.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// CAR rows at most, those of requests that are done and not yet taken included; posting reports `Full` above.
    pub cars_max: usize,
    /// Buffer rows at most, or as many as messages may come before their receives by the credit that was granted: what a peer
    /// has sent within its credit is always read, so that what comes behind it is. The transport is left undrained above.
    pub buffers_max: usize,
    /// Context ids, and so communicators at most; that of the member with the fewest counts.
    pub contexts_max: usize,
    /// Bytes of temporaries that operations which pass bytes on may hold.
    pub forward_bytes: usize,
    /// Operations that other threads have submitted and not taken back, at most, and calls of theirs that wait; 1 to 1,048,576.
    pub submissions_max: usize,
    /// Registered ranges that are kept while nobody needs them.
    pub registrations_max: usize,
    /// Bytes of such ranges.
    pub registered_bytes: usize,
    /// Largest payload that is sent without asking, bytes.
    pub eager_max: usize,
    /// Bytes that are kept of messages before their receives, from all peers together; each has its share as credit, at
    /// least that of [`CREDIT_INITIAL`](super::CREDIT_INITIAL).
    pub unexpected_bytes_max: usize,
    /// Payload of one frame of a message that is sent without asking, bytes: longer ones come in parts.
    pub part_bytes: usize,
    /// Payload of a piece of a large message, bytes.
    pub piece_bytes: usize,
    /// [`Limits::eager_max`], [`Limits::part_bytes`] and [`Limits::piece_bytes`] over a fabric.
    pub fabric_lengths: Lengths,
    /// Messages from this length on are read out of the sender's memory, where the transport can; [`usize::MAX`] for never.
    pub read_min: usize,
    /// The same for messages out of the shared heap, which need no system call; [`usize::MAX`] for as all others.
    pub mapped_min: usize,
    /// Messages from this length on go straight from the sender's memory into the receiver's over fabrics that allow it;
    /// [`usize::MAX`] for never. The receiver's limit counts; below 64 KiB none does.
    pub direct_min: usize,
    /// Bytes that a shared-memory ring may grow to, one direction of a pair; a power of two, the same for all procs. Beyond
    /// [`ROOMY_RING_BYTES`](super::ROOMY_RING_BYTES), or four of its longest frames, it grows only if much is streamed through it.
    pub ring_bytes: usize,
    /// Bytes of such a ring at first, a power of two, the same for all procs; [`Limits::ring_bytes`] if that is less. A ring grows
    /// once [`RING_PATIENCE`](super::RING_PATIENCE) times as much has gone through it while it was too small, or [`RING_LAPS`](super::RING_LAPS) times as much in all.
    pub first_ring_bytes: usize,
    /// Bytes of all rings together that have grown and that this proc writes; half of them for rings that are longer than
    /// [`ROOMY_RING_BYTES`](super::ROOMY_RING_BYTES). All others stay as they are: messages that are
    /// longer than a quarter of one go through it in parts.
    pub grown_bytes_max: usize,
    /// Payloads in one run of frames over shared memory from this length on are written past the caches, by streaming stores,
    /// bytes, and packed ones if they are of [`PACKED_PAST_MIN`](super::PACKED_PAST_MIN) too; [`usize::MAX`] for never.
    pub past_min: usize,
    /// How posted receives and unexpected messages are found.
    pub matching: Matching,
    /// Seed of the indices of matching. Whoever can choose many envelopes should not know it.
    pub hash_seed: u64,
    /// Bits of the counter that orders receives from one source against those from any: less than 32 in tests only.
    pub wildcard_bits: u32,
    /// A short message to oneself goes to a receive that is posted within the call that sends it. Otherwise it goes through a tick, as all
    /// others do, and as it does in any case where the application has systems.
    pub own_at_once: bool,
    /// Row by row: a message that is short enough leaves within the call that sends it, and one that is awaited goes through
    /// the steps of all systems by itself (Deliver). Otherwise every message goes through the systems column by column. Both
    /// ways do the same; `false` is for tests that compare them, and for whoever looks for a difference.
    pub deliver: bool,
    /// Members of a communicator that are all on one host run collective operations over memory that they share. Otherwise, and if
    /// one member says `false`, by messages.
    pub boards: bool,
    /// A receive whose message is of another type fails, with the names of both. See `Builder::check_types`.
    pub check_types: bool,
    /// Frames that a tick reads at most; at least 2.
    pub tick_budget: usize,
    /// Passes of a tick at most.
    pub passes_max: u32,
    /// Time between two looks at sockets, µs.
    pub control_us: u32,
    /// Empty looks of `wait` before it starts to yield.
    pub spins: u32,
    /// Yields of `wait` before it sleeps.
    pub yields: u32,
    /// Longest single sleep of `wait`, ms.
    pub sleep_ms_max: u32,
    /// How long a peer that lives may take to answer a first contact, ms; `None`, which is the default, for as long as it lives:
    /// a peer that computes, or is stopped, answers when it ticks again.
    pub connect_ms_max: Option<u32>,
    /// How long after its death a peer's requests may still be pending, ms.
    pub failure_ms_max: u32,
    /// How long a peer on another host may be without an answer of its kernel before it counts as dead, ms; a frame that a
    /// fabric has lost is given up after twice that.
    pub dead_link_ms_max: u32,
    /// Completions that are read from a fabric in one call at most; calls are repeated until there is none.
    pub progress_event_count: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            cars_max: ROWS_MAX,
            buffers_max: BUFFERS_MAX,
            contexts_max: CONTEXTS_MAX,
            forward_bytes: FORWARD_BYTES,
            registrations_max: REGISTRATIONS_MAX,
            submissions_max: SUBMISSIONS_MAX,
            registered_bytes: REGISTERED_BYTES,
            eager_max: EAGER_MAX,
            unexpected_bytes_max: UNEXPECTED_BYTES,
            part_bytes: PART_BYTES,
            piece_bytes: PIECE_BYTES,
            fabric_lengths: FABRIC_LENGTHS,
            read_min: READ_MIN,
            mapped_min: MAPPED_MIN,
            direct_min: DIRECT_MIN,
            ring_bytes: RING_BYTES,
            first_ring_bytes: FIRST_RING_BYTES,
            grown_bytes_max: GROWN_BYTES,
            past_min: PAST_MIN,
            matching: Matching::Auto,
            hash_seed: 0x7469_636B_7769_7265,
            wildcard_bits: 32,
            own_at_once: true,
            deliver: true,
            boards: true,
            check_types: false,
            tick_budget: TICK_BUDGET,
            passes_max: PASSES_MAX,
            control_us: CONTROL_US,
            spins: 20_000,
            yields: 200,
            sleep_ms_max: 100,
            connect_ms_max: None,
            failure_ms_max: 1_000,
            dead_link_ms_max: 5_000,
            progress_event_count: PROGRESS_EVENTS,
        }
    }
}

impl Limits {
    /// How messages are cut where a transport does not say otherwise.
    pub fn lengths(&self) -> Lengths {
        Lengths { eager_max: self.eager_max, part_bytes: self.part_bytes, piece_bytes: self.piece_bytes }
    }

    /// Says what is wrong with a combination of limits, if anything is.
    ///
    /// # Errors
    /// One sentence that names the limit and what it may be.
    pub fn check(&self) -> Result<(), String> {
        let frame = HEADER_BYTES + self.lengths().frame_max();
        for (name, bytes) in [("ring_bytes", self.ring_bytes), ("first_ring_bytes", self.first_ring_bytes)] {
            if !bytes.is_power_of_two() || !(4096..=1 << 30).contains(&bytes) {
                return Err(format!("{name} is {bytes}: give a power of two from 4096 to 2^30"));
            }
        }
        if frame > self.ring_bytes / 4 {
            let fits = self.ring_bytes / 4 - HEADER_BYTES;
            return Err(format!(
                "the smaller one of eager_max and part_bytes, and piece_bytes, may be at most {fits} with ring_bytes {}",
                self.ring_bytes
            ));
        }
        for (name, Lengths { part_bytes, piece_bytes, .. }) in
            [("", self.lengths()), ("fabric_lengths.", self.fabric_lengths)]
        {
            if part_bytes < 64 {
                return Err(format!("{name}part_bytes is {part_bytes}: give at least 64"));
            }
            if piece_bytes < 64 {
                return Err(format!("{name}piece_bytes is {piece_bytes}: give at least 64"));
            }
        }
        let longest = self.fabric_lengths.frame_max();
        if longest > FABRIC_FRAME_MAX {
            return Err(format!("fabric_lengths give frames of {longest} B: {FABRIC_FRAME_MAX} is the most"));
        }
        if self.forward_bytes < GRANT_BYTES {
            return Err(format!("forward_bytes is {}: give at least {GRANT_BYTES}", self.forward_bytes));
        }
        if !(1..=32).contains(&self.wildcard_bits) {
            return Err(format!("wildcard_bits is {}: give 1 to 32", self.wildcard_bits));
        }
        if !(1..=1 << 16).contains(&self.progress_event_count) {
            return Err(format!("progress_event_count is {}: give 1 to 65536", self.progress_event_count));
        }
        if !(2..=CONTEXTS_MAX).contains(&self.contexts_max) {
            return Err(format!("contexts_max is {}: give 2 to {CONTEXTS_MAX}", self.contexts_max));
        }
        if !(1..=1 << 20).contains(&self.submissions_max) {
            return Err(format!("submissions_max is {}: give 1 to 1048576", self.submissions_max));
        }
        if self.dead_link_ms_max < 1000 {
            return Err(format!("dead_link_ms_max is {}: give at least 1000", self.dead_link_ms_max));
        }
        if self.tick_budget < 2 || self.passes_max == 0 || self.sleep_ms_max == 0 {
            return Err("tick_budget must be at least 2, passes_max and sleep_ms_max at least 1".into());
        }
        let rows = [self.cars_max, self.buffers_max];
        if rows.iter().any(|&n| n == 0 || n > 1 << 30) {
            return Err("cars_max and buffers_max must be from 1 to 2^30".into());
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_that_cannot_be_are_named_with_what_can() {
        assert_eq!(Limits::default().check(), Ok(()));
        let wrong = |change: fn(&mut Limits)| {
            let mut limits = Limits::default();
            change(&mut limits);
            limits.check().unwrap_err()
        };
        assert_eq!(wrong(|l| l.part_bytes = 63), "part_bytes is 63: give at least 64");
        assert_eq!(wrong(|l| l.fabric_lengths.part_bytes = 0), "fabric_lengths.part_bytes is 0: give at least 64");
        assert_eq!(wrong(|l| l.fabric_lengths.piece_bytes = 9), "fabric_lengths.piece_bytes is 9: give at least 64");
        let long = wrong(|l| l.fabric_lengths.piece_bytes = FABRIC_FRAME_MAX + 1);
        assert_eq!(long, "fabric_lengths give frames of 16777217 B: 16777216 is the most");
        assert!(wrong(|l| l.piece_bytes = l.ring_bytes).contains("may be at most"));
        assert_eq!(wrong(|l| l.ring_bytes = 5000), "ring_bytes is 5000: give a power of two from 4096 to 2^30");
        assert_eq!(wrong(|l| l.first_ring_bytes = 64), "first_ring_bytes is 64: give a power of two from 4096 to 2^30");
    }
}
