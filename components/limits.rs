//! Every limit and per-tick budget, with the sum that argues for it. What an application may change is a field of
//! [`Limits`]; the constants are its defaults and the bounds of the formats.

use crate::credit::Credit;

/// Largest tag of an application; the upper half of the range is reserved for the engine's own traffic.
pub const TAG_MAX: u32 = (1 << 31) - 1;
/// Wire value of "any source" and "any tag" in a posted receive. Never on the wire.
pub const ANY: u32 = u32::MAX;
/// Most procs in one world. Proc numbers and ranks are u32; the top value is [`ANY`].
pub const PROCS_MAX: usize = 1 << 24;
/// What a message in buffered mode takes of the attached buffer besides its bytes: its rows.
pub const BUFFERED_OVERHEAD: usize = 128;
/// Ranks that one local launcher starts. One engine maps 20 KiB a peer, 80 MiB for 4096 of them, and what its rings have grown by.
pub const LOCAL_RANKS_MAX: usize = 4096;

/// Context ids, and so communicators of one proc: 20 bits of a context word. A row costs about 110 B with what bevy keeps of it;
/// there are rows up to the highest id that was in use.
pub const CONTEXTS_MAX: usize = 1 << 20;

/// Bytes that one direction of a pair's ring over shared memory grows to: eight pieces, and half of a common 512 KiB L2 slice.
pub const RING_BYTES: usize = 256 << 10;
/// Bytes of such a ring at first: 128 short messages, and both rings of a pair in the nearest cache. Five pages a pair: 64
/// procs that all talk to each other take 40 MiB.
pub const FIRST_RING_BYTES: usize = 8 << 10;
/// How many times a ring has to be filled while it is too small before it grows: a message of a few frames is no reason.
pub const RING_PATIENCE: u64 = 8;
/// How many times a ring has to be filled at all before it becomes as large as it may: 1 MiB through one of [`FIRST_RING_BYTES`].
pub const RING_LAPS: u64 = 128;
/// Bytes of all rings together that have grown, which a proc writes: 32 of [`RING_BYTES`], for the 26 neighbours of a cell in
/// a grid of three dimensions. A host of 128 procs has 1 GiB of them at most.
pub const GROWN_BYTES: usize = 8 << 20;
/// Bytes of a ring between two engines of one process: a cluster of 64 has 4032 of them, 63 MiB at most.
pub const LOOPBACK_RING_BYTES: usize = 16 << 10;
/// Largest eager payload. Above, one more round trip is cheaper than the copy out of a temporary.
pub const EAGER_MAX: usize = 8 << 10;
/// Shortest payload of a frame over shared memory that is written past the caches. By measurement, 8 KiB in a row: 1.6 times as
/// many, 6 times where a line takes 0.27 µs from one processor to the other; one by one 4 KiB take a quarter longer.
pub const PAST_MIN: usize = 8 << 10;
/// The same of what is packed, which is read in small parts.
pub const PACKED_PAST_MIN: usize = 32 << 10;
/// Payload of a part of a message that is sent without asking and in more than one frame.
pub const PART_BYTES: usize = EAGER_MAX;
/// Payload of one piece of a large message: long enough to hide a frame's cost, short enough for eight in a ring.
pub const PIECE_BYTES: usize = 32 << 10;
/// The same three over a fabric, where asking costs two round trips through a network, a frame a system call of either side,
/// and nothing has to fit in a ring. TCP within a host takes 64 KiB less a header at a time, and is slow with what is a
/// little longer: so these stay below once or four times that. Half as much a piece costs an eighth of the bandwidth.
pub const FABRIC_LENGTHS: Lengths = Lengths { eager_max: 64 << 10, part_bytes: 32 << 10, piece_bytes: 255 << 10 };
/// Longest frame over a fabric.
const FABRIC_FRAME_MAX: usize = 16 << 20;
/// Shortest message that is read out of the sender's memory: below, two copies cost less than a system call.
pub const READ_MIN: usize = EAGER_MAX + 1;
/// The same for what the receiver has mapped: reading it takes a line more, for its end, and saves both a copy of sixteen.
pub const MAPPED_MIN: usize = 1 << 10;
/// Bytes, in whole pages, that are read out of the memory of senders before others have their turn: 200 µs at 10 GB/s.
pub const READ_BYTES_A_TURN: usize = 2 << 20;
/// Turns of one pass at most; all are one message's if it is the only one. There is but one if frames have arrived meanwhile.
pub const READ_TURNS_A_PASS: usize = 2;
/// Reads of one VC that are done by one call at most: each saves a call, and its message waits until all are read.
pub const READS_A_CALL: usize = 8;
/// Default of [`Limits::direct_min`]: below, the port's own places cost less than a question to one more queue.
pub const DIRECT_MIN: usize = 256 << 10;
/// Bytes of a page as most systems have them, and none has fewer.
pub const PAGE_BYTES: usize = 4096;
/// Bytes of a piece of a message that is spliced: with the pages that its ends share, as many as a pipe of [`PIPE_BYTES`] takes.
pub const SPLICE_BYTES: usize = PIPE_BYTES - PAGE_BYTES;
/// Shortest run that a peer may ask to have spliced: what is shorter is sent with its envelope, or read for less than a
/// question costs.
pub const SPLICE_MIN: usize = EAGER_MAX + 1;
/// Pieces that one look puts into pipes for a connection at most: as much as a turn reads.
pub const SPLICED_A_LOOK: usize = READ_BYTES_A_TURN.div_ceil(SPLICE_BYTES);
/// Questions of a connection that are kept at most: more than several calls of its reader ask.
pub const QUESTIONS_MAX: usize = 4 * READS_A_CALL;
/// Looks in vain after which a piece without room is given up: 2 ms and more, far longer than a reader takes that is at it.
/// One that was stopped reads the rest itself.
pub const QUESTION_LOOKS_MAX: u32 = 20_000;
/// Bytes of a pipe, in pages of 4 KiB: twice as many as a pipe has unless asked to. Pieces of 32 KiB cost a fifth of the
/// bandwidth, of 252 KiB a quarter of that with pages of zeros.
pub const PIPE_BYTES: usize = 128 << 10;
/// Address space of a process's shared heap, which it asks for or half of the machine's memory if that is less: the maps of
/// 4096 peers fill half of an address space of 2^47 bytes. It is no memory until it is used.
pub const HEAP_BYTES: usize = 16 << 30;
/// Bytes of a shared heap at most, also of a peer's: 64 of them fill half of such an address space.
pub const HEAP_BYTES_MAX: usize = 1 << 40;
/// Bytes of a shared heap at least: below, the fallback is all there is.
pub const HEAP_BYTES_MIN: usize = 1 << 20;
/// Shortest block that a program's allocator takes from the shared heap. A shorter one is never read there, and most blocks
/// are shorter: they stay with the system's allocator, which has caches for each thread.
pub const HEAP_BLOCK_MIN: usize = 1 << 10;
/// Shortest block of the shared heap whose memory may go back to the system when it is freed: 64 pages, so that the call
/// costs less than the faults it causes.
pub const HEAP_LARGE_MIN: usize = 256 << 10;
/// Freed memory that the shared heap keeps for reuse: sixteen messages of 4 MiB.
pub const HEAP_KEPT_BYTES: usize = 64 << 20;
/// Shortest block of the shared heap that is zeroed by giving its pages back: clearing it would cost more than their faults,
/// and would touch what is perhaps never used.
pub const HEAP_ZEROED_MIN: usize = 32 << 20;
/// Alignment of a buffer of the shared heap: a cache line.
pub const HEAP_ALIGN: usize = 64;
/// Largest message: the length field has 64 bits, addresses have 47.
pub const MESSAGE_MAX: u64 = 1 << 46;
/// Runs of an operation that have rows of their own at most; more are one list, which has one: what an application may have
/// by the million has no rows.
pub const RUN_ROWS_MAX: usize = 16;
/// Levels of loops and lists in a datatype at most: walking over one is recursive, 200 B of stack each.
pub const DATATYPE_DEPTH_MAX: u32 = 64;

/// Arrival rows, and so frames that one pass drains at most.
pub const ARRIVALS: usize = 128;
/// Frames and completions that one tick reads at most, whatever the number of passes.
pub const TICK_BUDGET: usize = 256;
/// Of how many frames of a tick's budget one is left to DrainCq by Deliver, so that what only DrainCq reads is read however
/// much there is to deliver. With the usual budget 32 frames, of at least two rings.
pub const DRAINED_PART: usize = 8;
/// Passes over the systems in one tick. An eager message needs one, a rendezvous step two.
pub const PASSES_MAX: u32 = 8;
/// Submissions of other threads that one pass takes.
pub const SUBMISSIONS_A_PASS: usize = 64;
/// Queue slots and request slots for other threads.
pub const SUBMISSION_SLOTS: usize = 1024;

/// Entries of a matching queue that a look-up walks past before an index is made: 32 of 64 B are as many instructions as
/// two look-ups in the index, and 2 KiB of a near cache.
pub const WALK_MAX: u32 = 32;

/// CAR rows spawned at start: 4096 rows of 128 B and their ticks stay within an L2.
pub const ROWS_INITIAL: usize = 4096;
/// CAR rows at most: a million posted receives and as many again in flight.
pub const ROWS_MAX: usize = 1 << 21;
/// Control frames that wait for room at a transport at most. Where there is none for another one, a message in ready mode is
/// kept as any other, and acknowledgements wait.
pub const CONTROL_FRAMES: usize = 64;
/// Those of them that only grants of credit use: no number of other frames can hold them up.
pub const CONTROL_GRANTS: usize = 8;
/// Buffer rows at start and at most; each holds one unexpected payload.
pub const BUFFERS_INITIAL: usize = 1024;
/// See [`BUFFERS_INITIAL`].
pub const BUFFERS_MAX: usize = 1 << 21;
/// Buffer rows that unexpected messages leave to operations that pass bytes on, an eighth of all at most: two windows.
pub const FORWARD_BUFFERS: usize = 2 * FORWARD_WINDOW / GRANT_BYTES;
/// Buffer rows that are left to the engine's own messages, a sixteenth of all at most: one in each direction.
pub const CONTROL_BUFFERS: usize = 2;
/// Bytes of temporaries that operations which pass bytes on hold at most: 64 of them at their full window.
pub const FORWARD_BYTES: usize = 16 << 20;
/// Bytes of space that one such operation holds at most, at the head of its VC's queue: a ring's worth of pieces.
pub const FORWARD_WINDOW: usize = 256 << 10;
/// Bytes of one grant at most: two pieces, so that one is filled while the other one leaves.
pub const GRANT_BYTES: usize = 2 * PIECE_BYTES;
/// Grants of one pass at most: a window for sixteen operations.
pub const GRANTS_A_PASS: usize = 64;
/// Supply rows at start; there are never more than CAR rows.
pub const SUPPLIES_INITIAL: usize = 32;
/// Shortest run that is registered with a method: below, a copy of 1 µs costs less than two system calls.
pub const REGISTER_MIN: usize = EAGER_MAX + 1;
/// Registered ranges that are kept in the cache while nobody needs them: a look-up is a search among them.
pub const REGISTRATIONS_MAX: usize = 1024;
/// Bytes of such ranges: pages that the system cannot use otherwise.
pub const REGISTERED_BYTES: usize = 256 << 20;
/// Bytes that the pool keeps for reuse after the unexpected queue has been emptied.
pub const POOL_KEPT_BYTES: usize = 32 << 20;

/// Passes of which one serves first what would be served last: with 8 pieces a pass, 3 % of a VC is never taken from a
/// message by more urgent ones.
pub const FAIR_TURN: u32 = 4;

/// Rows whose age is known, of CARs and of unexpected messages each: 1 MiB of stamps, sixteen times the rows at start.
pub const STAMPS_MAX: usize = 1 << 16;

/// Completions that one call reads from a fabric: a tenth of a call's cost each, where one costs 10 ns and the call 100 ns.
pub const PROGRESS_EVENTS: usize = 100;

/// Time between two looks at sockets, µs; a look is two system calls of about 300 ns, so it costs less than 1 %.
pub const CONTROL_US: u32 = 100;
/// Looks between two samples of the clock: 25 ns in 512 looks of 5 ns or more. A tick counts for [`CLOCK_LOOKS_A_TICK`].
pub const CLOCK_LOOKS: u32 = 512;
/// A tick counts as so many looks, so that the clock is sampled at least every 64 ticks.
pub const CLOCK_LOOKS_A_TICK: u32 = 8;
/// Time between two times of writing the statistics page, ns: a microsecond or two of work, so at most 0.2 %.
pub const OBSERVE_NS: u64 = 1_000_000;
/// CAR rows that are counted for it each time: all rows there are at start in 16 ms, 16 KiB of a cache at a time.
pub const ROWS_A_LOOK: usize = 256;
/// The same where it is written rarely, as in a wait that sleeps: 20 µs.
pub const ROWS_A_LOOK_MAX: usize = 4096;
/// Peers whose figures are written each time.
pub const PEERS_A_LOOK: usize = 32;
/// Empty looks of `wait` before it yields where procs outnumber processors: about 2 µs, a round trip between processors.
pub const SPINS_SHARED: u32 = 200;
/// Request rows that a tick looks at twice for an operation that waits for a transport which is expensive to look at: two
/// cache lines each, 10 ns, where such a look costs 100 ns.
pub const OPERATION_LOOKS: u32 = 8;
/// Rings that the owner polls directly; all others announce themselves by a bit.
pub const WATCHED: usize = 4;
/// Frames that a ring which is not watched hands over before the next one has its turn: eight rings have one in each pass.
pub const TURN_FRAMES: usize = ARRIVALS / 8;

/// Bytes that a proc keeps of messages before their receives, from all peers together: half of what would still be called
/// small beside an application, and 30,000 messages of 1 KiB.
pub const UNEXPECTED_BYTES: usize = 32 << 20;
/// Credit that both sides of a VC know of without a word: enough to be busy until the first grant arrives, 64 KiB.
pub const CREDIT_INITIAL: Credit = Credit { lines: 1 << 10, envelopes: 64 };
/// Most lines of a window: 2^24 of 64 B are 1 GiB.
pub const CREDIT_LINES_MAX: u32 = 1 << 24;
/// Most envelopes of a window: a header's field has 16 bits, and two windows may meet in one.
pub const CREDIT_ENVELOPES_MAX: u32 = 1 << 14;

/// How posted receives and unexpected messages are found.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Matching {
    /// Lists while they are short, an index once a look-up has walked past [`WALK_MAX`] entries, until it is empty.
    #[default]
    Auto,
    /// Ordered lists and the wildcard counter, however long they are.
    Lists,
    /// Always an index.
    Index,
}

impl std::str::FromStr for Matching {
    type Err = String;

    fn from_str(word: &str) -> Result<Self, String> {
        match word {
            "auto" => Ok(Matching::Auto),
            "lists" => Ok(Matching::Lists),
            "index" => Ok(Matching::Index),
            _ => Err(format!("{word} is no way of matching: give auto, lists or index")),
        }
    }
}

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
    /// Registered ranges that are kept while nobody needs them.
    pub registrations_max: usize,
    /// Bytes of such ranges.
    pub registered_bytes: usize,
    /// Largest payload that is sent without asking, bytes.
    pub eager_max: usize,
    /// Bytes that are kept of messages before their receives, from all peers together; each has its share as credit, at
    /// least that of [`CREDIT_INITIAL`].
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
    /// Bytes that a shared-memory ring may grow to, one direction of a pair; a power of two, the same for all procs.
    pub ring_bytes: usize,
    /// Bytes of such a ring at first, a power of two, the same for all procs; [`Limits::ring_bytes`] if that is less. A ring grows
    /// once [`RING_PATIENCE`] times as much has gone through it while it was too small, or [`RING_LAPS`] times as much in all.
    pub first_ring_bytes: usize,
    /// Bytes of all rings together that have grown and that this proc writes. All others stay as they are: messages that are
    /// longer than a quarter of one go through it in parts.
    pub grown_bytes_max: usize,
    /// Payloads in one run of frames over shared memory from this length on are written past the caches, by streaming stores,
    /// bytes, and packed ones if they are of [`PACKED_PAST_MIN`] too; [`usize::MAX`] for never.
    pub past_min: usize,
    /// How posted receives and unexpected messages are found.
    pub matching: Matching,
    /// Seed of the indices of matching. Whoever can choose many envelopes should not know it.
    pub hash_seed: u64,
    /// Bits of the counter that orders receives from one source against those from any: less than 32 in tests only.
    pub wildcard_bits: u32,
    /// Short messages to oneself go to receives that are posted within the call that sends them; otherwise through a tick, as
    /// all others do, and as they do in any case where the application has systems, a trace is written, a profiler is
    /// connected or a receipt is open.
    pub own_at_once: bool,
    /// Row by row: a message that is short enough leaves within the call that sends it, and one that is awaited goes through
    /// the steps of all systems by itself (Deliver). Otherwise every message goes through the systems column by column. Both
    /// ways do the same; `false` is for tests that compare them, and for whoever looks for a difference.
    pub deliver: bool,
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

/// How messages are cut: the same for both ends of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Lengths {
    /// Largest payload that is sent without asking, bytes.
    pub eager_max: usize,
    /// Payload of one frame of such a message, bytes.
    pub part_bytes: usize,
    /// Payload of a piece of a longer message, bytes.
    pub piece_bytes: usize,
}

impl Lengths {
    /// Payload of a frame at most, bytes.
    pub const fn frame_max(&self) -> usize {
        let part = if self.eager_max < self.part_bytes { self.eager_max } else { self.part_bytes };
        if part > self.piece_bytes { part } else { self.piece_bytes }
    }
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            cars_max: ROWS_MAX,
            buffers_max: BUFFERS_MAX,
            contexts_max: CONTEXTS_MAX,
            forward_bytes: FORWARD_BYTES,
            registrations_max: REGISTRATIONS_MAX,
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
        let frame = crate::wire::HEADER_BYTES + self.lengths().frame_max();
        for (name, bytes) in [("ring_bytes", self.ring_bytes), ("first_ring_bytes", self.first_ring_bytes)] {
            if !bytes.is_power_of_two() || !(4096..=1 << 30).contains(&bytes) {
                return Err(format!("{name} is {bytes}: give a power of two from 4096 to 2^30"));
            }
        }
        if frame > self.ring_bytes / 4 {
            let fits = self.ring_bytes / 4 - crate::wire::HEADER_BYTES;
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

// A frame never fills more than a quarter of a ring, so that a drained ring always takes the next one.
const _: () = assert!(RING_BYTES.is_power_of_two() && LOOPBACK_RING_BYTES.is_power_of_two());
const _: () =
    assert!(FIRST_RING_BYTES.is_power_of_two() && FIRST_RING_BYTES <= RING_BYTES && RING_BYTES <= GROWN_BYTES);
const _: () = assert!(crate::wire::HEADER_BYTES + EAGER_MAX <= RING_BYTES / 4);
const _: () = assert!(crate::wire::HEADER_BYTES + PIECE_BYTES <= RING_BYTES / 4);
const _: () = assert!(CREDIT_INITIAL.envelopes >= 4 && 2 * CREDIT_ENVELOPES_MAX <= u16::MAX as u32);
const _: () = assert!(HEAP_BLOCK_MIN <= MAPPED_MIN && MAPPED_MIN < READ_MIN);
const _: () = assert!(HEAP_BLOCK_MIN < HEAP_LARGE_MIN && HEAP_LARGE_MIN < HEAP_KEPT_BYTES);
const _: () = assert!(HEAP_BYTES_MIN <= HEAP_BYTES && HEAP_BYTES <= HEAP_BYTES_MAX);
const _: () = assert!(CLOCK_LOOKS.is_power_of_two());
const _: () = assert!(ARRIVALS <= TICK_BUDGET);
const _: () = assert!(TICK_BUDGET / DRAINED_PART >= 2 * TURN_FRAMES);
const _: () = assert!(GRANT_BYTES <= FORWARD_WINDOW && FORWARD_WINDOW <= FORWARD_BYTES);

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
