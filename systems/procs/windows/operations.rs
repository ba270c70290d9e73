//! Operations of this process that are under way: by frames, which the target's engine serves, or by a fabric.

use std::any::Any;
use tickwire_components::limits::{FAILURE_LOOK_NS_MAX, FAILURE_NOTICE_NS};
use tickwire_components::{NIL, NumberType, RemoteKind, RemoteOutcome, Row, Span, UpdateCode, UpdateOperation};
use tickwire_transports::{AtomicOperation, AtomicWord, Channel, RemoteRun};

/// How an operation has failed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Failure {
    /// The operation is not within the target's part, or is misaligned there.
    OutOfBounds,
    /// A member that holds a lock has failed.
    HolderFailed(u32),
    /// The target has no epoch open in which this proc may access its part.
    NotExposed,
    /// The target's process has failed.
    TargetFailed,
    /// The fabric could not do it: [`Windows::fabric_reason`](super::Windows::fabric_reason).
    Fabric,
}

impl Failure {
    /// The failure that a target's answer means; `None` if the operation is done.
    pub const fn of(outcome: RemoteOutcome) -> Option<Self> {
        match outcome {
            RemoteOutcome::Done => None,
            RemoteOutcome::OutOfBounds => Some(Failure::OutOfBounds),
            RemoteOutcome::HolderFailed(rank) => Some(Failure::HolderFailed(rank)),
            RemoteOutcome::NotExposed => Some(Failure::NotExposed),
        }
    }
}

/// An operation that goes by one or several frames.
pub struct RemoteOperation {
    /// Its number.
    pub number: u64,
    /// What it does.
    pub kind: RemoteKind,
    /// Displacement in the target's part, bytes.
    pub at: u64,
    /// Bytes that are put, got or updated.
    pub length: u64,
    /// Bytes whose request has left.
    pub sent: u64,
    /// Bytes whose answer has come.
    pub answered: u64,
    /// Whether its last request has left. An operation without bytes has one request.
    pub all_sent: bool,
    /// Bytes of each request except the last one. Set when the first one leaves.
    pub fragment: u64,
    /// How one of its requests has failed.
    pub failure: Option<Failure>,
    /// The bytes to send. The origin keeps them until all have left.
    pub from: Span,
    /// Where the bytes of answers go. The origin keeps the memory until all have come.
    pub into: Span,
    /// Its request, or [`NIL`].
    pub request: Row,
    /// It is the last operation of its request.
    pub is_last: bool,
    /// A call waits for its end, without a request.
    pub awaited: bool,
    /// The state that a transport keeps for a frame of which it has taken a part.
    pub state: Option<Box<dyn Any + Send + Sync>>,
    /// A request that the transport may have taken in part: its length in bytes, and a copy of them. The copy is empty until the caller has
    /// taken its memory back; from then on `from` points to it.
    pub in_part: Option<(u64, Vec<u8>)>,
    /// The short operations that share this request, if its kind is [`RemoteKind::Batch`].
    pub batch: Option<Box<Batch>>,
}

/// Short operations that share one request.
#[derive(Default)]
pub struct Batch {
    /// The request's entries for the operations, one after another, with their operands.
    pub packed: Vec<u8>,
    /// The operations, in the same order.
    pub parts: Vec<BatchPart>,
    /// Bytes of the answer if all operations succeed.
    pub answer_bytes: u64,
    /// How each of them has ended, once the answer has come.
    pub outcomes: Vec<RemoteOutcome>,
    /// The transport may have taken a part of the request, so no operation may be added.
    pub is_sealed: bool,
}

/// A short operation that shares its request with others.
#[derive(Clone, Copy)]
pub struct BatchPart {
    /// Its number.
    pub number: u64,
    /// What it does.
    pub kind: RemoteKind,
    /// Bytes that are put, got or updated.
    pub length: u64,
    /// Where the bytes of its answer go. The origin keeps the memory until the answer has come.
    pub into: Span,
    /// Its request, or [`NIL`].
    pub request: Row,
    /// It is the last operation of its request.
    pub is_last: bool,
    /// A call waits for its end, without a request.
    pub awaited: bool,
}

impl RemoteOperation {
    /// An operation of which nothing has left yet.
    pub fn new(number: u64, kind: RemoteKind, at: u64, length: u64) -> Self {
        RemoteOperation {
            number,
            kind,
            at,
            length,
            sent: 0,
            answered: 0,
            all_sent: false,
            fragment: 0,
            failure: None,
            from: Span::EMPTY,
            into: Span::EMPTY,
            request: NIL,
            is_last: true,
            awaited: false,
            state: None,
            in_part: None,
            batch: None,
        }
    }

    /// Whether it is an operation without a request, or a batch with such an operation.
    pub fn is_of_call(&self) -> bool {
        match &self.batch {
            Some(batch) => batch.parts.iter().any(|part| part.request == NIL),
            None => self.request == NIL,
        }
    }

    /// How many operations it stands for.
    pub fn count(&self) -> u64 {
        self.batch.as_ref().map_or(1, |batch| batch.parts.len() as u64)
    }
}

/// What a fabric does with a target's memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FabricKind {
    /// Writes the origin's run to the target.
    Put,
    /// Reads the target's bytes into the origin's run.
    Get,
    /// Combines an integer at the target with an operand. The origin's run gets the old value.
    Fetch(AtomicOperation, AtomicWord),
    /// Replaces an integer at the target by `new` if it is equal to `expected`. The origin's run gets the old value.
    Swap {
        /// The value to compare with.
        expected: AtomicWord,
        /// The new value.
        new: AtomicWord,
    },
}

impl FabricKind {
    /// The fabric's operation for an update with one or two operands, given as bytes. `None` if no fabric can do it: fabrics have integers
    /// of four and eight bytes only, and not all operations.
    pub fn of_update(kind: RemoteKind, [first, second]: [[u8; 8]; 2]) -> Option<Self> {
        let word = |number: NumberType, bytes: [u8; 8]| match (number.size(), bytes) {
            (4, [a, b, c, d, ..]) => Some(AtomicWord::Four(u32::from_ne_bytes([a, b, c, d]))),
            (8, bytes) => Some(AtomicWord::Eight(u64::from_ne_bytes(bytes))),
            _ => None,
        };
        match kind {
            RemoteKind::FetchUpdate(UpdateCode { number, operation }) => {
                let is_float = matches!(number, NumberType::F32 | NumberType::F64);
                let operation = match operation {
                    UpdateOperation::Sum if !is_float => AtomicOperation::Sum,
                    UpdateOperation::BitAnd => AtomicOperation::And,
                    UpdateOperation::BitOr => AtomicOperation::Or,
                    UpdateOperation::BitXor => AtomicOperation::Xor,
                    UpdateOperation::Replace => AtomicOperation::Replace,
                    UpdateOperation::Keep => AtomicOperation::Read,
                    _ => return None,
                };
                Some(FabricKind::Fetch(operation, word(number, first)?))
            }
            RemoteKind::CompareSwap(number) => {
                Some(FabricKind::Swap { expected: word(number, first)?, new: word(number, second)? })
            }
            _ => None,
        }
    }

    /// Whether the origin's run is written to the target.
    pub const fn writes(self) -> bool {
        matches!(self, FabricKind::Put)
    }

    /// Whether it is an update.
    pub const fn updates(self) -> bool {
        matches!(self, FabricKind::Fetch(..) | FabricKind::Swap { .. })
    }
}

/// An update by a fabric that a call waits for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AwaitedUpdate {
    /// Its number, by which the fabric reports a failure.
    pub number: u64,
    /// The window's handle.
    pub handle: u32,
    /// The target's rank.
    pub target: u32,
    /// It has failed.
    pub has_failed: bool,
}

/// A bounded wait for the news that a peer has ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Notice {
    /// The time of the last look, ns.
    looked_ns: u64,
    /// How long it still waits, ns.
    left_ns: u64,
}

impl Notice {
    /// A wait that begins now.
    pub fn new(now_ns: u64) -> Self {
        Notice { looked_ns: now_ns, left_ns: FAILURE_NOTICE_NS }
    }

    /// Looks at the clock. Returns whether the wait is over. Where this process did not look for long, it could hear of nothing: that time
    /// does not count.
    pub fn is_over(&mut self, now_ns: u64) -> bool {
        let passed_ns = now_ns.saturating_sub(self.looked_ns).min(FAILURE_LOOK_NS_MAX);
        (self.looked_ns, self.left_ns) = (now_ns, self.left_ns.saturating_sub(passed_ns));
        self.left_ns == 0
    }
}

/// An operation with a request, which a fabric does.
pub struct FabricOperation {
    /// Its number, by which the fabric reports a failure.
    pub number: u64,
    /// The window's handle.
    pub handle: u32,
    /// The target's rank.
    pub target: u32,
    /// The target's VC.
    pub vc: Row,
    /// Its request.
    pub request: Row,
    /// No other operation has the same request.
    pub is_alone: bool,
    /// The endpoint.
    pub endpoint: u8,
    /// Where it goes.
    pub channel: Channel,
    /// The target's bytes.
    pub remote: RemoteRun,
    /// The origin's bytes, which the engine keeps until the request is done.
    pub run: Span,
    /// What it does.
    pub kind: FabricKind,
    /// Its number on the channel, once the fabric has taken it.
    pub turn: Option<u64>,
    /// It has failed, and waits for the news that its target has ended.
    pub failed: Option<Notice>,
    /// Why it has failed, in the fabric's words.
    pub reason: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_for_news_does_not_count_time_without_looks() {
        let mut notice = Notice::new(7);
        let mut now_ns = 7;
        let looks = FAILURE_NOTICE_NS / FAILURE_LOOK_NS_MAX;
        for _ in 1..looks {
            now_ns += 1_000 * FAILURE_NOTICE_NS;
            assert!(!notice.is_over(now_ns));
        }
        assert!(!notice.is_over(now_ns) && !notice.is_over(now_ns + FAILURE_LOOK_NS_MAX - 1));
        assert!(notice.is_over(now_ns + FAILURE_LOOK_NS_MAX));
    }

    #[test]
    fn a_fabric_does_what_its_integers_allow() {
        let word = |value: u64| value.to_ne_bytes();
        let short = |value: u32| std::array::from_fn(|at| value.to_ne_bytes().get(at).copied().unwrap_or(0));
        let fetch = |number, operation, value| {
            FabricKind::of_update(RemoteKind::FetchUpdate(UpdateCode { number, operation }), [value, word(0)])
        };
        let eight = |operation, value| Some(FabricKind::Fetch(operation, AtomicWord::Eight(value)));
        let four = |operation, value| Some(FabricKind::Fetch(operation, AtomicWord::Four(value)));
        for number in [NumberType::U64, NumberType::I64] {
            let of = |operation| fetch(number, operation, word(7));
            assert_eq!(of(UpdateOperation::Sum), eight(AtomicOperation::Sum, 7));
            assert_eq!(of(UpdateOperation::BitAnd), eight(AtomicOperation::And, 7));
            assert_eq!(of(UpdateOperation::BitOr), eight(AtomicOperation::Or, 7));
            assert_eq!(of(UpdateOperation::BitXor), eight(AtomicOperation::Xor, 7));
        }
        assert_eq!(fetch(NumberType::I32, UpdateOperation::Sum, short(9)), four(AtomicOperation::Sum, 9));
        // Operations that only move bits also work for floats.
        let bits = 1.5f32.to_bits();
        assert_eq!(fetch(NumberType::F32, UpdateOperation::Replace, short(bits)), four(AtomicOperation::Replace, bits));
        assert_eq!(fetch(NumberType::F64, UpdateOperation::Keep, word(0)), eight(AtomicOperation::Read, 0));
        for number in NumberType::ALL {
            for operation in UpdateOperation::ALL {
                let (is_float, found) =
                    (matches!(number, NumberType::F32 | NumberType::F64), fetch(number, operation, word(1)));
                let is_moved = matches!(operation, UpdateOperation::Replace | UpdateOperation::Keep);
                let is_bitwise =
                    matches!(operation, UpdateOperation::BitAnd | UpdateOperation::BitOr | UpdateOperation::BitXor);
                let can =
                    number.size() >= 4 && (is_moved || is_bitwise || operation == UpdateOperation::Sum && !is_float);
                assert_eq!(found.is_some(), can, "{number:?} {operation:?}");
            }
        }
        let swap = |number| FabricKind::of_update(RemoteKind::CompareSwap(number), [word(1), word(2)]);
        let (expected, new) = (AtomicWord::Eight(1), AtomicWord::Eight(2));
        assert_eq!(swap(NumberType::U64), Some(FabricKind::Swap { expected, new }));
        assert_eq!(swap(NumberType::U16), None);
        assert_eq!(FabricKind::of_update(RemoteKind::Put, [word(0); 2]), None);
    }
}
