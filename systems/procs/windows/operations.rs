//! Operations of this side that are under way: by frames, which the target's engine serves, or by a fabric.

use std::any::Any;
use tickwire_components::{NIL, NumberType, RemoteKind, RemoteOutcome, Row, Span, UpdateCode, UpdateOperation};
use tickwire_transports::{AtomicOperation, AtomicWord, Channel, RemoteRun};

/// How an operation has failed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Failure {
    /// It is not within the target's part, or not aligned there.
    OutOfBounds,
    /// A member that holds a lock has failed.
    HolderFailed(u32),
    /// The target has failed.
    TargetFailed,
    /// The fabric could not do it: [`Windows::fabric_reason`](super::Windows::fabric_reason).
    Fabric,
}

impl Failure {
    /// How an operation has failed that its target answers so; `None` if it is done.
    pub const fn of(outcome: RemoteOutcome) -> Option<Self> {
        match outcome {
            RemoteOutcome::Done => None,
            RemoteOutcome::OutOfBounds => Some(Failure::OutOfBounds),
            RemoteOutcome::HolderFailed(rank) => Some(Failure::HolderFailed(rank)),
        }
    }
}

/// An operation that goes by frames, one or several.
pub struct RemoteOperation {
    /// Its number.
    pub number: u64,
    /// What it does.
    pub kind: RemoteKind,
    /// Where in the target's part, bytes.
    pub at: u64,
    /// Bytes that are put, got or updated.
    pub length: u64,
    /// Bytes whose request has left.
    pub sent: u64,
    /// Bytes whose answer has come.
    pub answered: u64,
    /// Whether its last request has left: of an operation without bytes, its only one.
    pub all_sent: bool,
    /// Bytes of each request but the last one, once the first one has left.
    pub fragment: u64,
    /// How one of its requests has failed.
    pub failure: Option<Failure>,
    /// What is sent. The origin keeps it until all has left.
    pub from: Span,
    /// Where answers go. The origin keeps it until all have come.
    pub into: Span,
    /// Its request, or [`NIL`].
    pub request: Row,
    /// It is the last one of its request.
    pub is_last: bool,
    /// Somebody waits for its end without a request.
    pub awaited: bool,
    /// The state that a transport keeps for a frame of which it has taken a part.
    pub state: Option<Box<dyn Any + Send + Sync>>,
    /// Bytes of a request that a transport may have taken in part; what `from` names, once its caller has taken its memory back.
    pub in_part: Option<(u64, Vec<u8>)>,
    /// The short operations that it stands for, if its kind is [`RemoteKind::Batch`].
    pub batch: Option<Box<Batch>>,
}

/// Short operations that one request has.
#[derive(Default)]
pub struct Batch {
    /// What the request says of them, one after another, with their operands.
    pub packed: Vec<u8>,
    /// They, in that order.
    pub parts: Vec<BatchPart>,
    /// Bytes of the answer, if all are done.
    pub answer_bytes: u64,
    /// How each of them has ended, once the answer has come.
    pub outcomes: Vec<RemoteOutcome>,
    /// A transport may have begun to take it: nothing is added any more.
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
    /// Where its answer goes. The origin keeps it until that has come.
    pub into: Span,
    /// Its request, or [`NIL`].
    pub request: Row,
    /// It is the last one of its request.
    pub is_last: bool,
    /// Somebody waits for its end without a request.
    pub awaited: bool,
}

impl RemoteOperation {
    /// One of which nothing has left.
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

    /// Whether it is, or has, an operation without a request.
    pub fn is_of_call(&self) -> bool {
        match &self.batch {
            Some(batch) => batch.parts.iter().any(|part| part.request == NIL),
            None => self.request == NIL,
        }
    }

    /// How many operations it is.
    pub fn count(&self) -> u64 {
        self.batch.as_ref().map_or(1, |batch| batch.parts.len() as u64)
    }
}

/// What a fabric does with a target's memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FabricKind {
    /// Writes the run there.
    Put,
    /// Reads the run from there.
    Get,
    /// Combines an integer with another one. The run gets the one from before.
    Fetch(AtomicOperation, AtomicWord),
    /// Puts `new` in place of an integer, if that is `expected`. The run gets the one from before.
    Swap {
        /// What must be there.
        expected: AtomicWord,
        /// What comes there.
        new: AtomicWord,
    },
}

impl FabricKind {
    /// What a fabric does for an update with the bytes of these operands, one or two; `None` if no fabric does: it has integers of four and
    /// eight bytes, and not all operations.
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

    /// Whether the run is what is written there.
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
    /// Its number, by which the fabric tells that it has failed.
    pub number: u64,
    /// The window's handle.
    pub handle: u32,
    /// The target's rank.
    pub target: u32,
    /// It has failed.
    pub has_failed: bool,
}

/// An operation with a request, which a fabric does.
pub struct FabricOperation {
    /// Its number, by which the fabric tells that it has failed.
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
    /// When it was seen to have failed, ns.
    pub failed_ns: Option<u64>,
    /// Why, in the fabric's words.
    pub reason: String,
}

#[cfg(test)]
mod tests {
    use super::*;

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
        // Bits that are moved as they are may be a float's.
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
