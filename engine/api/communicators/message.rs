//! The messages by which members of a communicator agree on a new one, and their encoding. Bytes from a peer are not
//! trusted: they are checked when they are decoded.

use tickwire_components::limits::CONTEXTS_MAX;
use tickwire_components::{CommError, ProcId};
use tickwire_systems::procs::communicators::{USED_WORDS, UsedIds};

/// Length limit of the reason in a [`Message::Failed`]. Bytes.
const WORDS_MAX: usize = 200;
/// Length of the four words that every message starts with. Bytes.
const HEAD_BYTES: usize = 16;
/// Length of the three numbers before the bitmap of a [`Message::Gather`]. Bytes.
const RANGE_BYTES: usize = 12;
/// Length of an encoded [`Entry`]. Bytes.
const ENTRY_BYTES: usize = 12;

/// The color and key that one member passed to a split.
pub(super) type Entry = (Option<u32>, i32);

/// A message between neighbours of the tree. In each round, an edge carries two messages up and two down. See
/// [`super::negotiation`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Message {
    /// Up: the context ids in use by the sender and all members below it, and their entries in rank order.
    Gather {
        /// The number of the operation that was called.
        operation: u32,
        /// Context ids in use.
        used: UsedIds,
        /// The smallest number of context ids that any of these members can have.
        most: u32,
        /// For a split: one entry for each of these members, in the first round only. Else empty.
        entries: Vec<Entry>,
    },
    /// Down: a context id that is free on all members, and the entries of all.
    Propose {
        /// The context id.
        id: u32,
        /// For a split: one entry for each member, in rank order. Else empty.
        entries: Vec<Entry>,
    },
    /// Up: whether the sender and all members below it have reserved the id.
    Vote {
        /// Whether all of them have.
        yes: bool,
        /// The highest incarnation of the id that any of them knows; 0 if the vote is no.
        incarnation: u32,
    },
    /// Down: the new communicator has the id, or another round follows.
    Decide {
        /// Whether the communicator has the id.
        commit: bool,
        /// The incarnation of the id, if it does. In place of a proposal: the smallest id that the next round looks at.
        incarnation: u32,
    },
    /// Up or down, in place of any other message: the sender has failed, and there will be no communicator.
    Failed(CommError),
}

impl Message {
    /// Length limit of a message with so many entries. Bytes.
    pub(super) fn bytes_max(entries: u32) -> usize {
        HEAD_BYTES + WORDS_MAX + RANGE_BYTES + USED_WORDS * 8 + entries as usize * ENTRY_BYTES
    }

    /// Encodes the message: four words, then its lists. `me` is named where an error names no proc.
    pub(super) fn encode(&self, me: ProcId) -> Vec<u8> {
        match self {
            Message::Gather { operation, used: UsedIds { base, end, words }, most, entries } => {
                let mut bytes = head([1, *operation, words.len() as u32, entries.len() as u32]);
                [base, end, most].iter().for_each(|number| bytes.extend_from_slice(&number.to_le_bytes()));
                words.iter().for_each(|word| bytes.extend_from_slice(&word.to_le_bytes()));
                put_entries(&mut bytes, entries);
                bytes
            }
            Message::Propose { id, entries } => {
                let mut bytes = head([2, *id, 0, entries.len() as u32]);
                put_entries(&mut bytes, entries);
                bytes
            }
            Message::Vote { yes, incarnation } => head([3, u32::from(*yes), *incarnation, 0]),
            Message::Decide { commit, incarnation } => head([4, u32::from(*commit), *incarnation, 0]),
            Message::Failed(error) => {
                let (code, proc, words) = match error {
                    CommError::MemberFailed { proc, reason } => (1, *proc, reason.clone()),
                    CommError::Mismatch => (2, me, String::new()),
                    CommError::Exhausted => (3, me, String::new()),
                    CommError::Refused { proc, reason } => (4, *proc, reason.clone()),
                    other => (4, me, other.to_string()),
                };
                let end = (0..=WORDS_MAX.min(words.len())).rev().find(|&at| words.is_char_boundary(at)).unwrap_or(0);
                let words = &words[..end];
                let mut bytes = head([5, code, proc.0, words.len() as u32]);
                bytes.extend_from_slice(words.as_bytes());
                bytes
            }
        }
    }

    /// Decodes a message. `None` if the bytes are malformed.
    pub(super) fn decode(bytes: &[u8]) -> Option<Message> {
        let (head, rest) = bytes.split_at_checked(HEAD_BYTES)?;
        let word = |index: usize| u32::from_le_bytes(std::array::from_fn(|byte| head[index * 4 + byte]));
        let (first, second, third) = (word(1), word(2), word(3));
        match word(0) {
            1 => {
                let (range, rest) = rest.split_at_checked(RANGE_BYTES)?;
                let (range, _) = range.as_chunks::<4>();
                let [base, end, most] = [0, 1, 2].map(|index: usize| u32::from_le_bytes(range[index]));
                let (words, rest) = rest.split_at_checked((second as usize).checked_mul(8)?)?;
                let fits = base.is_multiple_of(64) && base <= end && end.max(most) as usize <= CONTEXTS_MAX;
                if second as usize > USED_WORDS || !fits {
                    return None;
                }
                let (words, _) = words.as_chunks::<8>();
                let words = words.iter().map(|word| u64::from_le_bytes(*word)).collect();
                let used = UsedIds { base, end, words };
                Some(Message::Gather { operation: first, used, most, entries: entries(rest, third)? })
            }
            2 if (first as usize) < CONTEXTS_MAX => {
                Some(Message::Propose { id: first, entries: entries(rest, third)? })
            }
            3 if first <= 1 => Some(Message::Vote { yes: first == 1, incarnation: second }),
            4 if first <= 1 => Some(Message::Decide { commit: first == 1, incarnation: second }),
            5 => {
                let reason = String::from_utf8_lossy(rest.get(..third as usize)?).into_owned();
                let proc = ProcId(second);
                Some(Message::Failed(match first {
                    1 => CommError::MemberFailed { proc, reason },
                    2 => CommError::Mismatch,
                    3 => CommError::Exhausted,
                    4 => CommError::Refused { proc, reason },
                    _ => return None,
                }))
            }
            _ => None,
        }
    }
}

fn head(words: [u32; 4]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

fn put_entries(bytes: &mut Vec<u8>, entries: &[Entry]) {
    for (color, key) in entries {
        bytes.extend_from_slice(&u32::from(color.is_some()).to_le_bytes());
        bytes.extend_from_slice(&color.unwrap_or(0).to_le_bytes());
        bytes.extend_from_slice(&key.to_le_bytes());
    }
}

fn entries(bytes: &[u8], count: u32) -> Option<Vec<Entry>> {
    if bytes.len() != (count as usize).checked_mul(ENTRY_BYTES)? {
        return None;
    }
    let (records, _) = bytes.as_chunks::<ENTRY_BYTES>();
    let word = |record: &[u8; ENTRY_BYTES], at: usize| std::array::from_fn(|byte| record[at + byte]);
    let one = |record: &[u8; ENTRY_BYTES]| {
        let color = u32::from_le_bytes(word(record, 4));
        ((u32::from_le_bytes(word(record, 0)) != 0).then_some(color), i32::from_le_bytes(word(record, 8)))
    };
    Some(records.iter().map(one).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn messages() -> Vec<Message> {
        let entries = vec![(None, -1), (Some(u32::MAX), i32::MIN), (Some(0), 7)];
        let reason = "killed by signal 9".to_owned();
        vec![
            Message::Gather {
                operation: 2,
                used: UsedIds { base: 640, end: 8832, words: vec![3, u64::MAX] },
                most: 9000,
                entries: entries.clone(),
            },
            Message::Gather { operation: 1, used: UsedIds::NONE, most: 2, entries: vec![] },
            Message::Propose { id: CONTEXTS_MAX as u32 - 1, entries },
            Message::Vote { yes: true, incarnation: 9 },
            Message::Decide { commit: false, incarnation: u32::MAX },
            Message::Failed(CommError::MemberFailed { proc: ProcId(3), reason: reason.clone() }),
            Message::Failed(CommError::Mismatch),
            Message::Failed(CommError::Exhausted),
            Message::Failed(CommError::Refused { proc: ProcId(0), reason }),
        ]
    }

    #[test]
    fn a_message_is_read_as_it_was_written() {
        for message in messages() {
            let bytes = message.encode(ProcId(7));
            assert!(bytes.len() <= Message::bytes_max(3), "{message:?}");
            assert_eq!(Message::decode(&bytes), Some(message));
        }
        let long = CommError::Refused { proc: ProcId(1), reason: "ö".repeat(500) };
        let bytes = Message::Failed(long).encode(ProcId(1));
        assert!(bytes.len() <= Message::bytes_max(0));
        assert!(matches!(Message::decode(&bytes), Some(Message::Failed(CommError::Refused { .. }))));
        let own = Message::Failed(CommError::NotMember).encode(ProcId(5));
        let Some(Message::Failed(CommError::Refused { proc: ProcId(5), reason })) = Message::decode(&own) else {
            panic!("{own:?}")
        };
        assert_eq!(reason, CommError::NotMember.to_string());
    }

    #[test]
    fn bytes_that_are_no_message_are_refused() {
        for message in messages() {
            let bytes = message.encode(ProcId(7));
            for length in 0..bytes.len() {
                let _ = Message::decode(&bytes[..length]);
                assert_eq!(Message::decode(&bytes[..length.min(HEAD_BYTES - 1)]), None);
            }
            for at in 0..bytes.len() {
                for bit in 0..8 {
                    let mut wrong = bytes.clone();
                    wrong[at] ^= 1 << bit;
                    if let Some(Message::Propose { id, .. }) = Message::decode(&wrong) {
                        assert!((id as usize) < CONTEXTS_MAX);
                    }
                }
            }
        }
        for head in
            [[0, 0, 0, 0], [1, 1, u32::MAX, 0], [1, 1, 0, u32::MAX], [2, CONTEXTS_MAX as u32, 0, 0], [3, 2, 0, 0]]
        {
            assert_eq!(Message::decode(&super::head(head)), None, "{head:?}");
        }
        let most = CONTEXTS_MAX as u32;
        for (range, fits) in [([0, 64, 9], true), ([32, 64, 9], false), ([64, 0, 9], false), ([0, most + 1, 9], false)]
        {
            let bytes: Vec<u8> = [1, 1, 0, 0].iter().chain(&range).flat_map(|word: &u32| word.to_le_bytes()).collect();
            assert_eq!(Message::decode(&bytes).is_some(), fits, "{range:?}");
        }
        for head in [[5, 9, 0, 0], [5, 1, 0, 1], [6, 0, 0, 0]] {
            assert_eq!(Message::decode(&super::head(head)), None, "{head:?}");
        }
    }
}
