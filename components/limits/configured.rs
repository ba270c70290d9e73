//! What an application may configure, and which combinations are invalid.

use super::fabric::FABRIC_FRAME_MAX;
use super::lengths::{Lengths, Matching};
use super::{
    BUFFERS_MAX, CONTEXTS_MAX, CONTROL_US, DEAD_LINK_MS_MAX, DIRECT_MIN, EAGER_MAX, FABRIC_LENGTHS, FAILURE_MS_MAX,
    FIRST_RING_BYTES, FORWARD_BYTES, GRANT_BYTES, GROWN_BYTES, HASH_SEED, MAPPED_MIN, PART_BYTES, PASSES_MAX, PAST_MIN,
    PIECE_BYTES, PROGRESS_EVENTS, READ_MIN, REGISTERED_BYTES, REGISTRATIONS_MAX, RING_BYTES, RING_BYTES_MAX,
    RING_BYTES_MIN, ROWS_MAX, SLEEP_MS_MAX, SPINS, SUBMISSIONS_MAX, TICK_BUDGET, UNEXPECTED_BYTES, WILDCARD_BITS,
    WINDOW_COPY_MAX, YIELDS,
};
use crate::wire::HEADER_BYTES;

/// What an application may configure. Build one with [`Limits::default`] and change fields.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// CAR rows at most, including those of requests that are done and not taken yet. If all are in use, posting returns `Full`.
    pub cars_max: usize,
    /// Buffer rows at most. If the credit that was granted allows more unexpected messages, there may be as many rows as these messages
    /// need: a message that a peer has sent within its credit is always read, so that the frames behind it are read too. If all rows
    /// are in use, the transport is not drained.
    pub buffers_max: usize,
    /// Context ids, and so communicators, at most. The smallest limit of all members of a communicator counts.
    pub contexts_max: usize,
    /// Bytes of temporary buffers that operations which forward bytes may hold.
    pub forward_bytes: usize,
    /// Operations that other threads have submitted and not taken back at most, and likewise calls of theirs that wait; 1 to 1,048,576.
    pub submissions_max: usize,
    /// Registered ranges that stay in the cache while no operation uses them.
    pub registrations_max: usize,
    /// Bytes of such unused ranges.
    pub registered_bytes: usize,
    /// Largest eager payload, bytes.
    pub eager_max: usize,
    /// Bytes of unexpected messages that are kept, from all peers together. Each peer has its share of them as credit, but at least
    /// [`CREDIT_INITIAL`](super::CREDIT_INITIAL).
    pub unexpected_bytes_max: usize,
    /// Payload of one frame of an eager message, bytes. Longer eager messages take several frames.
    pub part_bytes: usize,
    /// Payload of a piece of a large message, bytes.
    pub piece_bytes: usize,
    /// The same three lengths ([`Limits::eager_max`], [`Limits::part_bytes`], [`Limits::piece_bytes`]) over a fabric.
    pub fabric_lengths: Lengths,
    /// Messages of at least this length are read out of the sender's memory, if the transport can do that, bytes; [`usize::MAX`] for
    /// never.
    pub read_min: usize,
    /// The same for messages in the shared heap, which need no system call, bytes; [`usize::MAX`] to treat them as all other messages.
    pub mapped_min: usize,
    /// Messages of at least this length go straight from the sender's memory into the receiver's over fabrics that allow it, bytes;
    /// [`usize::MAX`] for never. The receiver's limit counts. Messages below 64 KiB never do.
    pub direct_min: usize,
    /// Bytes to which a shared-memory ring, one direction of a pair, may grow; a power of two, the same for all procs. It grows beyond
    /// [`ROOMY_RING_BYTES`](super::ROOMY_RING_BYTES), or four of its longest frames, only if much is streamed through it.
    pub ring_bytes: usize,
    /// Bytes of such a ring at the start: a power of two, the same for all procs; [`Limits::ring_bytes`] if that is less. A ring grows
    /// once it has carried [`RING_PATIENCE`](super::RING_PATIENCE) times its length while it was too small, or
    /// [`RING_LAPS`](super::RING_LAPS) times its length in all.
    pub first_ring_bytes: usize,
    /// Bytes of all grown rings together that this proc writes. Rings that are longer than
    /// [`ROOMY_RING_BYTES`](super::ROOMY_RING_BYTES) may take half of them. All other rings stay as they are; messages that are longer
    /// than a quarter of such a ring go through it in parts.
    pub grown_bytes_max: usize,
    /// Payloads of shared-memory frames of at least this length are written past the caches by streaming stores, bytes. Payloads that
    /// are packed from several runs must also have at least [`PACKED_PAST_MIN`](super::PACKED_PAST_MIN). [`usize::MAX`] for never.
    pub past_min: usize,
    /// How posted receives and unexpected messages are found.
    pub matching: Matching,
    /// Seed of the hash functions of matching. A peer that can choose many envelopes should not know it.
    pub hash_seed: u64,
    /// Bits of the counter that orders receives from one source against receives from any source. Less than 32 only in tests.
    pub wildcard_bits: u32,
    /// If true, a short message to the own rank goes to a posted receive within the call that sends it. Otherwise it goes through a
    /// tick, as all other messages do. It always goes through a tick if the application has added systems.
    pub own_at_once: bool,
    /// If true, messages may be handled one by one: a short message leaves within the call that sends it, and an awaited message goes
    /// through the steps of all systems at once (Deliver). Otherwise every message goes through the systems, column by column. The
    /// results are the same. `false` is for tests that compare both ways, and for finding a difference.
    pub deliver: bool,
    /// If true, and if all members of a communicator are on one host, they run collective operations over shared memory. If one member
    /// has `false` here, they use messages.
    pub boards: bool,
    /// Longest buffer of a created window of which there is a copy in shared memory, bytes; 0 for none. Members on the same host reach the
    /// copy by loads and stores. They reach other buffers by the kernel.
    pub window_copy_max: usize,
    /// If true, a receive whose message has another type fails, with an error that names both types. See `Builder::check_types`.
    pub check_types: bool,
    /// Frames that a tick reads at most; at least 2.
    pub tick_budget: usize,
    /// Passes of a tick at most. Without systems of the application, two are always possible.
    pub passes_max: u32,
    /// Time between two polls of the sockets, µs.
    pub control_us: u32,
    /// Unsuccessful polls of `wait` before it starts to yield.
    pub spins: u32,
    /// Yields of `wait` before it sleeps.
    pub yields: u32,
    /// Longest single sleep of `wait`, ms.
    pub sleep_ms_max: u32,
    /// How long a living peer may take to answer a first contact, ms. `None`, the default, means as long as it lives: a peer that
    /// computes, or is stopped, answers when it ticks again.
    pub connect_ms_max: Option<u32>,
    /// How long after its death a peer's requests may still be pending, ms.
    pub failure_ms_max: u32,
    /// How long the kernel of another host may leave data unanswered before the peer counts as dead, ms. A frame that a fabric has lost
    /// is given up after twice that time.
    pub dead_link_ms_max: u32,
    /// Completions that one call reads from a fabric at most. The engine repeats the call until there are none.
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
            hash_seed: HASH_SEED,
            wildcard_bits: WILDCARD_BITS,
            own_at_once: true,
            deliver: true,
            boards: true,
            window_copy_max: WINDOW_COPY_MAX,
            check_types: false,
            tick_budget: TICK_BUDGET,
            passes_max: PASSES_MAX,
            control_us: CONTROL_US,
            spins: SPINS,
            yields: YIELDS,
            sleep_ms_max: SLEEP_MS_MAX,
            connect_ms_max: None,
            failure_ms_max: FAILURE_MS_MAX,
            dead_link_ms_max: DEAD_LINK_MS_MAX,
            progress_event_count: PROGRESS_EVENTS,
        }
    }
}

impl Limits {
    /// How messages are divided into frames, unless a transport has lengths of its own.
    pub fn lengths(&self) -> Lengths {
        Lengths { eager_max: self.eager_max, part_bytes: self.part_bytes, piece_bytes: self.piece_bytes }
    }

    /// Checks the limits, and whether they fit together.
    ///
    /// # Errors
    /// A sentence that names the limit and its valid values.
    pub fn check(&self) -> Result<(), String> {
        let frame = self.lengths().frame_max().saturating_add(HEADER_BYTES);
        for (name, bytes) in [("ring_bytes", self.ring_bytes), ("first_ring_bytes", self.first_ring_bytes)] {
            if !bytes.is_power_of_two() || !(RING_BYTES_MIN..=RING_BYTES_MAX).contains(&bytes) {
                return Err(format!("{name} is {bytes}: give a power of two from {RING_BYTES_MIN} to 2^30"));
            }
        }
        if frame > self.ring_bytes / 4 {
            let fits = self.ring_bytes / 4 - HEADER_BYTES;
            return Err(format!(
                "the smaller one of eager_max and part_bytes, and piece_bytes, may be at most {fits} with ring_bytes {}",
                self.ring_bytes
            ));
        }
        for (name, Lengths { eager_max, part_bytes, piece_bytes }) in
            [("", self.lengths()), ("fabric_lengths.", self.fabric_lengths)]
        {
            // The length of a message that is kept has 32 bits.
            if u32::try_from(eager_max).is_err() {
                return Err(format!("{name}eager_max is {eager_max}: give at most {}", u32::MAX));
            }
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
        if !(1..=WILDCARD_BITS).contains(&self.wildcard_bits) {
            return Err(format!("wildcard_bits is {}: give 1 to {WILDCARD_BITS}", self.wildcard_bits));
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
        assert_eq!(wrong(|l| l.eager_max = 1 << 32), "eager_max is 4294967296: give at most 4294967295");
        assert!(wrong(|l| l.fabric_lengths.eager_max = usize::MAX).starts_with("fabric_lengths.eager_max is"));
        assert_eq!(wrong(|l| l.part_bytes = 63), "part_bytes is 63: give at least 64");
        assert_eq!(wrong(|l| l.fabric_lengths.part_bytes = 0), "fabric_lengths.part_bytes is 0: give at least 64");
        assert_eq!(wrong(|l| l.fabric_lengths.piece_bytes = 9), "fabric_lengths.piece_bytes is 9: give at least 64");
        let long = wrong(|l| l.fabric_lengths.piece_bytes = FABRIC_FRAME_MAX + 1);
        assert_eq!(long, "fabric_lengths give frames of 16777217 B: 16777216 is the most");
        assert!(wrong(|l| l.piece_bytes = l.ring_bytes).contains("may be at most"));
        assert!(wrong(|l| l.piece_bytes = usize::MAX).contains("may be at most"));
        assert_eq!(wrong(|l| l.ring_bytes = 5000), "ring_bytes is 5000: give a power of two from 4096 to 2^30");
        assert_eq!(wrong(|l| l.first_ring_bytes = 64), "first_ring_bytes is 64: give a power of two from 4096 to 2^30");
    }
}
