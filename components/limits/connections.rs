//! Connections: first contact with a peer, strangers that connect, and the end of a peer.

/// Connections that wait for an accept at most. The kernel lowers it to its own limit. Every rank of a host may call at the same time
/// ([`LOCAL_RANKS_MAX`](super::LOCAL_RANKS_MAX)).
pub const LISTEN_BACKLOG: i32 = 4096;
/// Visitors at most: peers that have connected and not sent a greeting. Each takes a descriptor, of which Linux
/// allows a process 1024 by default. Others wait in the listener's queue.
pub const VISITORS_MAX: usize = 64;
/// How long a visitor may stay silent, ns. A peer greets as soon as it has connected, so this is far longer than any peer needs that runs.
pub const VISITOR_SILENCE_NS_MAX: u64 = 2_000_000_000;
/// Connections that one pass accepts at most.
pub const ACCEPTS_A_PASS: usize = 32;
/// Descriptors that are ready and that one pass handles at most. The others stay ready.
pub const DESCRIPTORS_A_PASS: usize = 64;
/// Messages of a peer on a control connection that one pass handles at most: more than one read returns.
pub const PEER_MESSAGES_A_PASS: u32 = 256;
/// Time between two attempts to call a peer, ns. An attempt is a system call, so it costs less than 0.1 %.
pub const CALL_RETRY_NS: u64 = 1_000_000;
/// How long a call within a host may find nobody listening before it fails, ns: the peer may not listen yet.
pub const CALL_REFUSED_NS_MAX: u64 = 250_000_000;
/// How long the name of this proc's socket may still be taken, ms: a child process that is being started holds the sockets of a closed
/// endpoint.
pub const NAME_TAKEN_MS_MAX: u32 = 50;
/// Shared memory runs of one connection that a peer has passed and that no call has asked for yet, at most. They are those of one
/// communicator at a time, which is made, gets its boards, or becomes a window.
pub const SHARED_PASSED: usize = 8;

/// Procs that one check for failed members asks about at most: one or two system calls each, in all up to 40 µs.
pub const PROCS_ASKED_A_LOOK: u32 = 64;
/// Time between two checks of a process without a descriptor, ns. Its end is noticed within a twentieth of
/// [`Limits::failure_ms_max`](super::Limits::failure_ms_max).
pub const PROCESS_CHECK_NS: u64 = 50_000_000;
/// Entries of the submission queue of the ring that watches for deaths. One request is submitted at a time.
pub const DEATH_QUESTIONS: u32 = 2;
/// Entries of the completion queue of that ring. If there are more answers, the ring reports that some are missing.
pub const DEATH_ANSWERS: u32 = 64;
/// How long a failed one-sided operation waits for the news that its peer has ended, ns. If the news comes in time, the error names the
/// failed peer. It comes at the latest once the next check has found the end, and the peer's last frames have been waited for.
pub const FAILURE_NOTICE_NS: u64 = 100_000_000;
/// If two looks for that news are farther apart than this, ns, the time beyond it does not count.
pub const FAILURE_LOOK_NS_MAX: u64 = super::FABRIC_UNSEEN_NS_MIN;
/// How long the last frames of a peer that has gone may stay unread in shared memory before they are given up, ns.
pub const UNREAD_NS_MAX: u64 = 1_000_000_000;
/// Time that two polls for such frames count for at most, however far apart they are, ns: a program that computes between them has read
/// nothing meanwhile.
pub const UNREAD_POLL_NS_MAX: u64 = 20_000_000;
/// How long after its death a peer's requests may still be pending, ms. Its last frames are read meanwhile, for as long as
/// [`UNREAD_NS_MAX`] at most.
pub const FAILURE_MS_MAX: u32 = 1_000;
/// How long the kernel of another host may leave data unanswered before the peer counts as dead, ms: five keepalive probes, so that a few
/// lost packets do not end a connection.
pub const DEAD_LINK_MS_MAX: u32 = 5_000;
/// Time before and between keepalive probes of a silent peer's kernel, s. It is the shortest that the kernel takes.
pub const KEEPALIVE_S: u64 = 1;

const _: () = assert!(DEATH_QUESTIONS <= DEATH_ANSWERS);
const _: () = assert!(ACCEPTS_A_PASS <= VISITORS_MAX && VISITORS_MAX <= LISTEN_BACKLOG as usize);
const _: () = assert!(CALL_RETRY_NS < CALL_REFUSED_NS_MAX);
const _: () = assert!(PROCESS_CHECK_NS + 2 * super::FABRIC_GONE_NS_MAX <= FAILURE_NOTICE_NS);
// One poll alone never gives up what is unread.
const _: () = assert!(UNREAD_POLL_NS_MAX < UNREAD_NS_MAX);
const _: () = assert!(UNREAD_NS_MAX <= FAILURE_MS_MAX as u64 * 1_000_000);
// What is noticed by a check is noticed long before requests of a dead peer must have ended.
const _: () = assert!(2 * PROCESS_CHECK_NS <= FAILURE_MS_MAX as u64 * 1_000_000);
// The dead are told apart by probes, of which there is at least one.
const _: () = assert!(1000 * KEEPALIVE_S <= DEAD_LINK_MS_MAX as u64);
