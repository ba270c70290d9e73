//! The peer of a link: how it introduces itself, and what is known of it.

use super::counts::Counts;
use crate::ofi::card::ADDRESS_BYTES_MAX;
use libfabric_sys as sys;
use tickwire_components::limits::{RMA_CONTEXTS_MAX, RMA_NOTICES_MAX};

/// What a proc tells a peer about its endpoints for one-sided operations.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Introduction {
    /// The address of the endpoints.
    At {
        /// How many contexts can be reached at this address.
        contexts: u8,
        /// The fabric address.
        address: Vec<u8>,
    },
    /// The proc has no such endpoints, and why.
    Nowhere(String),
    /// A proc that is already introduced says that its operations wait for the receiver to poll.
    Waiting,
    /// A proc that is already introduced says that the receiver may write frames into a ring, which is exposed under this key.
    Ring {
        /// The key.
        key: u64,
        /// The address of the ring's first byte, or 0 if peers name bytes by offsets.
        base: u64,
    },
    /// A proc that is already introduced has withdrawn memory: the receiver is to answer with this number once its operations so far are
    /// complete.
    Withdrawn(u32),
    /// The answer.
    Settled {
        /// The number of the withdrawal.
        number: u32,
        /// The sender's endpoints are unusable: nobody knows what is still under way.
        lost: bool,
    },
}

/// Marks [`Introduction::Waiting`], in place of the number of contexts.
const WAITING: u8 = u8::MAX;
/// Marks [`Introduction::Ring`], in the same place.
const RING: u8 = u8::MAX - 1;
/// Marks [`Introduction::Withdrawn`] and [`Introduction::Settled`], in the same place.
const WITHDRAWN: u8 = u8::MAX - 2;
const SETTLED: u8 = u8::MAX - 3;
const _: () = assert!(RMA_CONTEXTS_MAX < SETTLED as usize);

impl Introduction {
    /// Encodes the introduction: the number of contexts, which is 0 for none, or a mark; then the address, the reason, the key and the
    /// address of a ring, or the number of a withdrawal.
    pub(in crate::ofi) fn encode(&self) -> Vec<u8> {
        match self {
            Introduction::At { contexts, address } => [&[*contexts], &address[..]].concat(),
            Introduction::Nowhere(why) => {
                let words = why.bytes().take(ADDRESS_BYTES_MAX);
                std::iter::once(0).chain(words).collect()
            }
            Introduction::Waiting => vec![WAITING],
            Introduction::Withdrawn(number) => [&[WITHDRAWN], &number.to_be_bytes()[..]].concat(),
            Introduction::Settled { number, lost } => {
                [&[SETTLED], &number.to_be_bytes()[..], &[u8::from(*lost)]].concat()
            }
            Introduction::Ring { key, base } => [&[RING], &key.to_be_bytes()[..], &base.to_be_bytes()[..]].concat(),
        }
    }

    /// Decodes an introduction. The bytes may be hostile. `None` if they are no introduction.
    pub(in crate::ofi) fn decode(bytes: &[u8]) -> Option<Self> {
        let (&contexts, rest) = bytes.split_first().filter(|(_, rest)| rest.len() <= ADDRESS_BYTES_MAX)?;
        Some(match contexts {
            0 => Introduction::Nowhere(String::from_utf8_lossy(rest).replace(char::is_control, " ")),
            WAITING => rest.is_empty().then_some(Introduction::Waiting)?,
            RING => {
                let both = u128::from_be_bytes(rest.try_into().ok()?);
                Introduction::Ring { key: (both >> 64) as u64, base: both as u64 }
            }
            WITHDRAWN => Introduction::Withdrawn(u32::from_be_bytes(rest.try_into().ok()?)),
            SETTLED => {
                let (number, lost) = rest.split_first_chunk()?;
                let lost = match lost {
                    [0] => false,
                    [1] => true,
                    _ => return None,
                };
                Introduction::Settled { number: u32::from_be_bytes(*number), lost }
            }
            _ => Introduction::At { contexts, address: rest.to_vec() },
        })
    }
}

/// What is known of the peer of a link.
#[derive(Default)]
pub(super) enum Standing {
    #[default]
    Unknown,
    /// Its number in the address vector, and its contexts.
    Met(sys::fi_addr_t, usize),
    /// It has no endpoint, or has gone, and why.
    Gone(String),
}

/// The peer of a link.
#[derive(Default)]
pub(super) struct Peer {
    pub(super) standing: Standing,
    /// It has been told the address of this process.
    pub(super) told: bool,
    /// How many earlier links had this number. Operations of an earlier epoch do not belong to the present link.
    pub(super) epoch: u32,
    /// Operation counts by context.
    pub(super) counts: Vec<Counts>,
    /// The provider had no room for the last operation on it, and it has not been told since that this process waits. A provider that
    /// connects with the first operation accepts that operation only once the peer has polled.
    pub(super) refused: bool,
    /// It has left in order.
    pub(super) has_left: bool,
    /// Operations on its memory were issued.
    pub(super) has_operated: bool,
    /// Notices that this process waits since it answered last.
    pub(super) notices: u32,
}

impl Peer {
    /// Counts one more notice that this process waits. `Some(true)` if the peer is to be asked for an answer as well; `None` if it has
    /// not answered: it computes and reads nothing, and more notices would only fill its socket.
    pub(super) fn count_notice(&mut self) -> Option<bool> {
        if self.notices == RMA_NOTICES_MAX {
            return None;
        }
        self.notices += 1;
        Some(self.notices == RMA_NOTICES_MAX)
    }

    /// Its engine ticks: it may get notices again.
    pub(super) fn answer(&mut self) {
        self.notices = 0;
    }

    /// Whether it has introduced itself, and operations on it are incomplete or the last one was refused.
    pub(super) fn is_waited_for(&self) -> bool {
        let is_open = |counts: &Counts| counts.completed() < counts.issued();
        matches!(self.standing, Standing::Met(..)) && (self.refused || self.counts.iter().any(is_open))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peer_that_does_not_answer_gets_a_bounded_number_of_notices() {
        let mut peer = Peer::default();
        for _ in 0..3 {
            let counted: Vec<bool> = (0..1000).map_while(|_| peer.count_notice()).collect();
            assert_eq!(counted.len(), RMA_NOTICES_MAX as usize);
            assert!(counted.iter().rev().skip(1).all(|asks| !asks) && counted.last() == Some(&true));
            peer.answer();
        }
    }

    #[test]
    fn introductions_come_back_as_they_were_and_what_is_none_is_refused() {
        let at = |contexts, bytes| Introduction::At { contexts, address: vec![7; bytes] };
        let nowhere = |words: &str| Introduction::Nowhere(words.into());
        let ring = Introduction::Ring { key: u64::MAX - 7, base: 1 << 40 };
        for introduction in [
            at(1, 16),
            at(251, ADDRESS_BYTES_MAX),
            nowhere("turned off"),
            nowhere(""),
            Introduction::Waiting,
            ring,
            Introduction::Withdrawn(1 << 31),
            Introduction::Settled { number: 7, lost: true },
        ] {
            assert_eq!(Introduction::decode(&introduction.encode()), Some(introduction));
        }
        let long = nowhere(&"x".repeat(2 * ADDRESS_BYTES_MAX)).encode();
        assert_eq!(Introduction::decode(&long), Some(nowhere(&"x".repeat(ADDRESS_BYTES_MAX))));
        assert_eq!(Introduction::decode(&[]), None);
        assert_eq!(Introduction::decode(&[WAITING, 0]), None);
        assert_eq!(Introduction::decode(&[WITHDRAWN; 4]), None);
        assert_eq!(Introduction::decode(&[SETTLED; 7]), None);
        assert_eq!(Introduction::decode(&[RING; 16]), None);
        assert_eq!(Introduction::decode(&[RING; 18]), None);
        assert_eq!(Introduction::decode(&[1; ADDRESS_BYTES_MAX + 2]), None);
        assert_eq!(Introduction::decode(&[0, 10, 65, 255]), Some(nowhere(" A\u{fffd}")));
    }
}
