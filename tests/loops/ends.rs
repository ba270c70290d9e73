//! Open operations, how they end, and how many of each kind have ended.

use crate::again::Sum;
use crate::joint::Joint;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use tickwire::internals::components::Pieces;
use tickwire::{Engine, Failed, Request, RequestError, RequestId, Status, Test, bytemuck};

/// Polls an operation. Once it has ended, returns whether it ended well, and a line for the log.
type Poll = Box<dyn FnMut(&mut Engine) -> Option<(bool, String)>>;

/// An open operation.
pub(crate) struct Open {
    /// The number of its call.
    pub(crate) call: usize,
    /// The rank that began it.
    pub(crate) rank: usize,
    /// Its request.
    pub(crate) id: RequestId,
    /// The name of its kind, if the kind is counted.
    pub(crate) kind: Option<&'static str>,
    /// Whether it is one rank's part of an operation of all ranks.
    pub(crate) is_of_all: bool,
    /// See [`Open::poll`].
    poll: Poll,
}

impl Open {
    /// The same operation, marked as one rank's part of an operation of all ranks.
    pub(crate) fn by_all(self) -> Self {
        Open { is_of_all: true, ..self }
    }

    /// Polls the operation: see [`Poll`].
    pub(crate) fn poll(&mut self, engine: &mut Engine) -> Option<(bool, String)> {
        (self.poll)(engine)
    }
}

/// An open send or receive. For a receive, `bytes` gets its bytes. For a send it is `None`: only the length is
/// logged.
pub(crate) fn open<B: Pieces + 'static>(
    call: usize,
    rank: usize,
    request: Request<B>,
    bytes: Option<fn(&B) -> Vec<u8>>,
) -> Open {
    polled(call, rank, None, request, move |taken| match (taken, bytes) {
        (Ok((buffer, status)), Some(bytes)) => format!("{status:?} {:x}", sum(&bytes(&buffer))),
        (Ok((_, status)), None) => format!("{} B", status.length),
        (Err(failed), bytes) => {
            let left = failed.buffer.zip(bytes).map(|(buffer, bytes)| sum(&bytes(&buffer)));
            format!("{:?} {left:x?}", failed.error)
        }
    })
}

/// An operation of a counted kind. If it fails, its buffer is not compared: how much has arrived there by then may
/// differ.
pub(crate) fn counted<B: Pieces + 'static>(
    kind: &'static str,
    (call, rank): (usize, usize),
    request: Request<B>,
    bytes: fn(&B) -> Vec<u8>,
) -> Open {
    polled(call, rank, Some(kind), request, move |taken| match taken {
        Ok((buffer, status)) => format!("{kind} {status:?} {:x}", sum(&bytes(&buffer))),
        Err(failed) => format!("{kind} failed: {:?}", failed.error),
    })
}

/// An operation that is tested until it has ended.
fn polled<B: Pieces + 'static>(
    call: usize,
    rank: usize,
    kind: Option<&'static str>,
    request: Request<B>,
    words: impl Fn(Result<(B, Status), Failed<B>>) -> String + 'static,
) -> Open {
    let (id, mut request) = (request.id(), Some(request));
    let poll = move |engine: &mut Engine| {
        // A receive from any source goes on waiting after it was told of a failure.
        if let Ok(Test::Pending) | Err(RequestError::PeerFailedPending { .. }) = engine.test(request.as_ref()?) {
            return None;
        }
        let taken = engine.take(request.take()?);
        Some((taken.is_ok(), words(taken)))
    };
    Open { call, rank, id, kind, is_of_all: false, poll: Box::new(poll) }
}

/// A persistent operation, from a start until it has ended.
pub(crate) fn restarted(id: RequestId, (call, rank): (usize, usize), sum_of: Rc<RefCell<Sum>>) -> Open {
    let kind = Joint::Persistent.name();
    let poll = move |engine: &mut Engine| {
        let Sum { operation, is_open } = &mut *sum_of.borrow_mut();
        let ended = match engine.test(operation) {
            Ok(Test::Pending) => return None,
            Ok(Test::Done(_)) => Ok(()),
            Err(error) => Err(error),
        };
        *is_open = false;
        let bytes = engine.buffer(operation).map(|(_, all)| sum(bytemuck::cast_slice(all)));
        Some(match ended {
            Ok(()) => (true, format!("{kind} {bytes:x?}")),
            Err(error) => (false, format!("{kind} failed: {error:?}")),
        })
    };
    Open { call, rank, id, kind: Some(kind), is_of_all: true, poll: Box::new(poll) }
}

/// A checksum of some bytes (FNV-1a).
pub(crate) fn sum(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xCBF2_9CE4_8422_2325, |sum, &byte| (sum ^ u64::from(byte)).wrapping_mul(0x100_0000_01B3))
}

/// For each counted kind, how many operations were begun and how they have ended.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub(crate) struct Tally(BTreeMap<&'static str, Ends>);

/// Counts of the operations of one kind.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(crate) struct Ends {
    /// Operations that were begun.
    pub(crate) begun: u32,
    /// Operations that have ended well.
    pub(crate) well: u32,
    /// Operations that have failed.
    pub(crate) failed: u32,
}

impl Tally {
    /// The counts of a kind.
    pub(crate) fn of(&mut self, kind: &'static str) -> &mut Ends {
        self.0.entry(kind).or_default()
    }

    /// How many operations of all kinds have ended well, and how many have failed.
    pub(crate) fn ends(&self) -> [u32; 2] {
        [self.0.values().map(|ends| ends.well).sum(), self.0.values().map(|ends| ends.failed).sum()]
    }

    /// Adds the counts of another tally.
    pub(crate) fn add(&mut self, other: &Tally) {
        for (kind, ends) in &other.0 {
            let sum = self.of(kind);
            sum.begun += ends.begun;
            sum.well += ends.well;
            sum.failed += ends.failed;
        }
    }
}

/// How the parts of an operation of all ranks have ended: rank, line for the log, and whether it ended well.
pub(crate) type Parts = Vec<(usize, String, bool)>;

/// # Panics
/// If an operation of all ranks has not ended in the same way in both loops, as far as its end is determined.
///
/// Before `death`, the call in which a rank dies, every end is determined. In that call the rank dies at its frame of a
/// given number. Which message that frame carries depends on the order in which messages became ready. From then on
/// each operation has failed parts. Which parts of the other ranks fail, and by which error, is open: a member whose
/// message to the dead rank is refused may have sent its other messages before or not, and a part that waits only for a
/// member that is already done ends well. But where a part ends well in both loops, it must have got the same.
pub(crate) fn same_parts(
    [rows, columns]: [&BTreeMap<usize, Parts>; 2],
    death: Option<usize>,
    words: impl Fn() -> String,
) {
    assert!(rows.keys().eq(columns.keys()), "operations of all ranks that have ended: {}", words());
    for ((call, by_rows), by_columns) in rows.iter().zip(columns.values()) {
        let all = || format!("call {call}\nby rows {by_rows:?}\nby columns {by_columns:?}\n{}", words());
        if death.is_none_or(|death| *call < death) {
            assert_eq!(by_rows, by_columns, "{}", all());
            continue;
        }
        let sorted = [by_rows, by_columns].map(|parts| {
            let mut parts = parts.clone();
            parts.sort_by_key(|part| part.0);
            parts
        });
        assert_eq!(sorted[0].len(), sorted[1].len(), "parts that have ended: {}", all());
        for (one, other) in sorted[0].iter().zip(&sorted[1]) {
            assert!(!(one.2 && other.2) || one == other, "what a part has got: {}", all());
        }
        let fail = sorted.each_ref().map(|parts| parts.iter().any(|part| !part.2));
        assert!(death == Some(*call) || fail == [true; 2], "a rank that has died takes part: {}", all());
    }
}
