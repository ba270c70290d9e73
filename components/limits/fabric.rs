//! Fabrics (libfabric): lengths of frames, queues, polling, one-sided operations, and the end of links.

use super::{Lengths, PAGE_BYTES};
use std::time::Duration;

/// How messages are divided into frames over a fabric, instead of [`EAGER_MAX`](super::EAGER_MAX), [`PART_BYTES`](super::PART_BYTES) and
/// [`PIECE_BYTES`](super::PIECE_BYTES). There, asking costs two round trips through a network, a frame costs a system call on either
/// side, and nothing has to fit into a ring. TCP within a host takes 64 KiB, less a header, at a time, and is slow for slightly longer
/// frames. So these lengths stay below once or four times that. Pieces of half the length cost an eighth of the bandwidth.
pub const FABRIC_LENGTHS: Lengths = Lengths { eager_max: 64 << 10, part_bytes: 32 << 10, piece_bytes: 255 << 10 };
/// Longest frame over a fabric, bytes.
pub(super) const FABRIC_FRAME_MAX: usize = 16 << 20;
/// Default of [`Limits::direct_min`](super::Limits::direct_min), bytes: below, the endpoint's own receive buffers cost less than polling
/// one more queue.
pub const DIRECT_MIN: usize = 256 << 10;
/// Completions that one call reads from a fabric at most. A completion costs 10 ns and a call 100 ns, so that the call adds a tenth.
pub const PROGRESS_EVENTS: usize = 100;

/// How many bytes of a matched message count as sent at once, because `ofi_rxm` does so. For a longer one, the receiver fetches the rest
/// when it is asked for. So claiming such a message would not make all of it available.
pub const FABRIC_MATCHED_MAX: usize = 16 << 10;
/// Frames in flight to all peers at most. With the longest frames, their slots are 16 MiB of address space, which use no memory until they
/// are written.
pub const FABRIC_SENDS: usize = 64;
/// Receive buffers that are posted, for one frame each: another 16 MiB. Half as many would give a tenth more bandwidth with `ofi_rxm`,
/// because the buffers stay in the caches. But a peer's sends should find enough receives: if a peer has died while its message waits in
/// the provider, posting the receive for that message fails.
pub const FABRIC_RECEIVES: usize = 64;
/// As [`FABRIC_RECEIVES`], over `shm`, where an unexpected message costs nothing. There are fewer buffers, so that long messages stay in
/// the caches.
pub const FABRIC_RECEIVES_NEAR: usize = 16;
/// Receive buffers where the provider places many frames in one buffer (`FI_MULTI_RECV`). They are fewer and larger, 2 MiB in all.
pub const FABRIC_MULTI_RECEIVES: usize = 4;
/// How many frames of the greatest length fit into such a buffer.
pub const FABRIC_MULTI_FRAMES: usize = 2;
/// Receives of tagged mode that the completion queue has room for.
pub const FABRIC_MATCHED_RECEIVES: usize = 1024;
/// The most frames taken out of rings in registered memory that may be in use at once: one ring of them.
pub const FABRIC_RING_COPIES: usize = 64;
/// Bytes of room for each of these: those of a slot of such a ring.
pub const FABRIC_RING_COPY_BYTES: usize = 256;
/// Frames to a peer between two polls that are sent at once, each by itself. So an application that sends a few messages and then computes
/// loses no time. Further ones are packed together.
pub const FABRIC_FRAMES_AT_ONCE: u32 = 4;
/// Failed receives in succession after which the endpoint is given up: more than all of its
/// buffers, since messages of a peer that has died may fail each of them once.
pub const FABRIC_RECEIVE_FAILURES_MAX: u32 = 256;
/// Failed receives of tagged mode after which the provider is given up.
pub const FABRIC_MATCHED_FAILURES_MAX: u32 = 256;
/// Probes that have found a message for a receive after which the receive is cancelled nevertheless. So a provider that finds a message
/// and never matches it keeps nobody waiting for ever.
pub const FABRIC_PROBES_MAX: u32 = 100_000;

/// Completions that one poll reads at most, plus those of one call.
pub const FABRIC_COMPLETIONS_A_POLL: usize = 256;
/// How often a patient poll reads a provider that only polls memory: that takes no longer than all other polling of a tick.
pub const FABRIC_NEAR_READS: u32 = 4;
/// Polls without an arrival before polling becomes rarer: half a millisecond of them.
pub const FABRIC_EAGER_POLLS: u32 = 2048;
/// The most calls that ask for a poll from one poll to the next. A poll takes 300 ns and 1024 calls of 9 ns each, so polling costs 3 %.
pub const FABRIC_POLL_INTERVAL_MAX: u32 = 1024;
/// As [`FABRIC_POLL_INTERVAL_MAX`], while sends are in flight.
pub const FABRIC_SENDING_INTERVAL_MAX: u32 = 4;
/// Polls without a message, about 200 µs of them, after which only one of [`FABRIC_QUIET_INTERVAL`] polls reads the message queue while
/// memory is exposed.
pub const FABRIC_QUIET_POLLS: u32 = 256;
/// One of this many such polls reads the message queue, so that it adds a quarter to the time of a read of the other queue.
pub const FABRIC_QUIET_INTERVAL: u32 = 4;
/// How long the blocking read waits that silences a queue's file descriptor, ms. This is the shortest time possible.
pub const FABRIC_SILENCING_MS: i32 = 1;

/// Time between two messages about how many frames were sent, ns. Four short messages a second cost nothing.
pub const FABRIC_COUNTS_NS: u64 = 250_000_000;
/// Time that a question about lost frames and its answer count for at most, ns: this process may not have polled meanwhile.
pub const FABRIC_ANSWER_NS_MAX: u64 = 200_000_000;
/// How long the last frames of a peer that has closed in order may take, ns.
pub const FABRIC_CLOSED_NS_MAX: u64 = 1_000_000_000;
/// How long after the last frame a peer that has gone may still deliver another, ns.
pub const FABRIC_GONE_NS_MAX: u64 = 10_000_000;
/// If two polls are farther apart than this, ns, the time beyond it does not count as silence.
pub const FABRIC_UNSEEN_NS_MIN: u64 = 5_000_000;
/// How long a close waits for another engine of this process, which nobody may be ticking meanwhile.
pub const FABRIC_NEAR_CLOSE_TIME: Duration = Duration::from_millis(20);

/// Contexts for one-sided operations at most. The number fits into the one byte that tells it to a peer, and exceeds the number of cores
/// that a process is bound to.
pub const RMA_CONTEXTS_MAX: usize = 64;
/// Pieces of one-sided operations in flight in a context at most.
pub const RMA_SLOTS: usize = 256;
/// Bytes of a slot, into which a short piece is copied. A page takes a tenth of an operation's time to copy.
pub const RMA_SLOT_BYTES: usize = 4 << 10;
/// As [`RMA_SLOTS`], where all bytes go through the slots, which are longer then. They are 4 MiB of address space, which use no memory until
/// they are written.
pub const RMA_LONG_SLOTS: usize = 64;
/// As [`RMA_SLOT_BYTES`], where all bytes go through the slots.
pub const RMA_LONG_SLOT_BYTES: usize = 64 << 10;
/// Completions that one read of a context's queue returns at most.
pub const RMA_COMPLETIONS_A_READ: usize = 16;
/// Reads of a context's queue in one poll at most: as many as return the completions of all its slots.
pub const RMA_READS_A_POLL: usize = 16;
/// Successive polls without a completion, 30 µs of them or more, after which the targets are told that this process waits.
pub const RMA_IDLE_POLLS: u32 = 128;
/// The same, after which they are told again.
pub const RMA_IDLE_POLLS_AGAIN: u32 = 4096;
/// Notices that this process waits that a peer gets at most before it answers.
pub const RMA_NOTICES_MAX: u32 = 64;
/// Withdrawals of exposed memory of one peer that may wait for an answer at the same time. The peer waits for each before it begins the
/// next.
pub const RMA_WITHDRAWALS_MAX: usize = 16;
/// Unused registered regions that are kept for later operations at most, over all domains.
pub const FABRIC_REGIONS_IDLE_MAX: usize = 512;
/// Keys that are tried for a region before it is given up. A random key is practically never in use already.
pub const FABRIC_KEY_TRIES: usize = 8;

/// Connections with an endpoint of their own for long messages at most. Each endpoint takes three or four file descriptors.
pub const DIRECT_ENDPOINTS_MAX: usize = 16;
/// Messages that a peer is asked for at a time at most, over such an endpoint.
pub const DIRECT_MESSAGES: usize = 32;
/// Pieces with posted receives at a time at most.
pub const DIRECT_RECEIVES: usize = 32;
/// Pieces that are sent at a time at most.
pub const DIRECT_SENDS: usize = 4;
/// Completions that one poll of such an endpoint reads at most.
pub const DIRECT_COMPLETIONS: usize = 16;

// A provider on this host needs no more buffers than one between hosts.
const _: () = assert!(FABRIC_RECEIVES_NEAR <= FABRIC_RECEIVES);
// Sends in flight never make polls rarer.
const _: () = assert!(FABRIC_SENDING_INTERVAL_MAX <= FABRIC_POLL_INTERVAL_MAX);
// Two polls in a row, however far apart, never count as the silence of a peer that has gone.
const _: () = assert!(FABRIC_UNSEEN_NS_MIN < FABRIC_GONE_NS_MAX && FABRIC_GONE_NS_MAX < FABRIC_CLOSED_NS_MAX);
const _: () = assert!(RMA_SLOT_BYTES == PAGE_BYTES && RMA_SLOT_BYTES <= RMA_LONG_SLOT_BYTES);
const _: () = assert!(RMA_LONG_SLOTS <= RMA_SLOTS && RMA_LONG_SLOTS * RMA_LONG_SLOT_BYTES == 4 << 20);
// One poll reads the completions of all operations in flight.
const _: () = assert!(RMA_COMPLETIONS_A_READ * RMA_READS_A_POLL >= RMA_SLOTS);
// Polls are counted up to the second limit, and pass the first one once.
const _: () = assert!(RMA_IDLE_POLLS < RMA_IDLE_POLLS_AGAIN);
const _: () = assert!(FABRIC_MATCHED_MAX <= FABRIC_LENGTHS.eager_max);
const _: () = assert!(FABRIC_LENGTHS.frame_max() <= FABRIC_FRAME_MAX && DIRECT_MIN > FABRIC_LENGTHS.eager_max);
