//! The data of the one-sided facet: memory that peers have exposed, and operations on it. See [`crate::OneSided`].

use std::ops::BitOr;

/// What peers may do with an exposed run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RemoteAccess(u8);

impl RemoteAccess {
    /// Read it.
    pub const READ: RemoteAccess = RemoteAccess(1);
    /// Write it.
    pub const WRITE: RemoteAccess = RemoteAccess(2);
    /// Do atomic operations on it.
    pub const ATOMIC: RemoteAccess = RemoteAccess(4);
    /// All of these.
    pub const ALL: RemoteAccess = RemoteAccess(7);

    /// Whether this allows what `other` asks for.
    pub const fn covers(self, other: RemoteAccess) -> bool {
        self.0 & other.0 == other.0
    }
}

impl BitOr for RemoteAccess {
    type Output = RemoteAccess;
    fn bitor(self, other: RemoteAccess) -> RemoteAccess {
        RemoteAccess(self.0 | other.0)
    }
}

/// What a peer needs to know of an exposed run. Plain data, to be sent to peers in any way.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RemoteKey {
    /// The name of the run at its process.
    pub key: u64,
    /// The provider's name of its first byte: its virtual address, or 0 if offsets count from the start of the run.
    pub base: u64,
    /// Its bytes.
    pub length: u64,
    /// The operations that are allowed.
    pub access: RemoteAccess,
}

impl RemoteKey {
    /// Bytes of a key that is sent.
    pub const BYTES: usize = 25;

    /// Encodes the key.
    pub fn to_bytes(&self) -> [u8; Self::BYTES] {
        let mut bytes = [self.access.0; Self::BYTES];
        for (place, word) in bytes.chunks_exact_mut(8).zip([self.key, self.base, self.length]) {
            place.copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }

    /// Decodes a key; `None` if the bytes are no key.
    pub fn from_bytes(bytes: &[u8; Self::BYTES]) -> Option<RemoteKey> {
        let mut words = [0u64; 3];
        for (word, place) in words.iter_mut().zip(bytes.chunks_exact(8)) {
            *word = place.try_into().map_or(0, u64::from_le_bytes);
        }
        let [key, base, length] = words;
        let access = RemoteAccess(bytes[Self::BYTES - 1]);
        let fits = RemoteAccess::ALL.covers(access) && base.checked_add(length).is_some();
        fits.then_some(RemoteKey { key, base, length, access })
    }
}

/// Where an operation begins in an exposed run of a peer. The local run gives its length.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RemoteRun {
    /// The exposed run.
    pub key: RemoteKey,
    /// Bytes from its start.
    pub offset: u64,
}

impl RemoteRun {
    /// The provider's name of the first of `length` bytes, if the key allows an operation with `access` on them.
    ///
    /// # Errors
    /// Why not, in words.
    pub fn place(&self, length: usize, access: RemoteAccess) -> Result<u64, String> {
        let RemoteRun { key, offset } = *self;
        if !key.access.covers(access) {
            return Err("the peer has not exposed this run for such an operation: expose it with more access".into());
        }
        let end = offset.checked_add(length as u64);
        if end.is_none_or(|end| end > key.length) {
            let has = key.length;
            return Err(format!(
                "{length} bytes from byte {offset} on are not within the exposed run, which has {has}"
            ));
        }
        key.base.checked_add(offset).ok_or_else(|| "the key of the exposed run is damaged".into())
    }
}

/// What is known of memory that was withdrawn ([`OneSided::withdraw_for_good`](crate::OneSided::withdraw_for_good)).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Settled {
    /// Peers have not answered yet, or operations of this process itself are incomplete.
    InUse,
    /// Nobody uses it any more.
    Unused,
    /// A peer has ended without an answer since the memory was exposed. Bytes of it may still arrive.
    Lost,
}

/// One channel to the peer of a link. Completions are counted per channel; channels of one context share its queue and its room.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Channel {
    /// The link; [`NIL`](tickwire_components::NIL) for runs that this process itself has exposed, which need none.
    pub link: u32,
    /// Which context, below [`OneSided::contexts`](crate::OneSided::contexts).
    pub context: u32,
}

/// An operand of an atomic operation. Whether it is signed makes no difference.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AtomicWord {
    /// Of four bytes.
    Four(u32),
    /// Of eight bytes.
    Eight(u64),
}

impl AtomicWord {
    /// Its bytes.
    pub const fn width(self) -> usize {
        match self {
            AtomicWord::Four(_) => 4,
            AtomicWord::Eight(_) => 8,
        }
    }
}

/// The function that an atomic operation applies to the integer at the target and its operand.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AtomicOperation {
    /// Their sum, wrapping.
    Sum,
    /// Bits that both have (and).
    And,
    /// Bits that either has (or).
    Or,
    /// Bits that exactly one has (exclusive or).
    Xor,
    /// The operand (replace).
    Replace,
    /// The integer at the target, unchanged; the operand is ignored (read).
    Read,
}

/// Integers that a transport does atomic operations on.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct AtomicWidths {
    /// Of four bytes.
    pub four: bool,
    /// Of eight bytes.
    pub eight: bool,
}

impl AtomicWidths {
    /// Whether an operation takes this operand.
    pub const fn take(self, word: AtomicWord) -> bool {
        match word {
            AtomicWord::Four(_) => self.four,
            AtomicWord::Eight(_) => self.eight,
        }
    }
}

/// The result of issuing an operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Issued {
    /// It is in flight, as the operation of its channel with this number, from 1 on. It is complete once
    /// [`OneSided::completed`](crate::OneSided::completed) reaches that number.
    Taken(u64),
    /// No room now, or the peer is not ready yet: try again after progress. Not an error.
    Full,
}

/// An operation that was accepted and has failed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FailedOperation {
    /// Its channel.
    pub channel: Channel,
    /// The number that its caller gave it.
    pub number: u64,
    /// Why, in words.
    pub reason: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: RemoteKey =
        RemoteKey { key: 0x0102_0304_0506_0708, base: 1 << 40, length: 1000, access: RemoteAccess::ALL };

    #[test]
    fn keys_come_back_as_they_were_and_damaged_ones_do_not() {
        for access in [RemoteAccess::READ, RemoteAccess::WRITE | RemoteAccess::ATOMIC, RemoteAccess::ALL] {
            let key = RemoteKey { access, ..KEY };
            assert_eq!(RemoteKey::from_bytes(&key.to_bytes()), Some(key));
        }
        let mut unknown = KEY.to_bytes();
        unknown[24] = 8;
        assert_eq!(RemoteKey::from_bytes(&unknown), None);
        let long = RemoteKey { length: u64::MAX, ..KEY };
        assert_eq!(RemoteKey::from_bytes(&long.to_bytes()), None);
    }

    #[test]
    fn a_place_is_within_the_run_and_allowed() {
        let place = |offset, length, access| RemoteRun { key: KEY, offset }.place(length, access);
        assert_eq!(place(8, 992, RemoteAccess::READ), Ok((1 << 40) + 8));
        assert_eq!(place(1000, 0, RemoteAccess::WRITE), Ok((1 << 40) + 1000));
        for (offset, length) in [(9, 992), (1001, 0), (u64::MAX, 1), (0, usize::MAX)] {
            assert!(place(offset, length, RemoteAccess::READ).unwrap_err().contains("not within the exposed run"));
        }
        let read_only = RemoteRun { key: RemoteKey { access: RemoteAccess::READ, ..KEY }, offset: 0 };
        assert!(read_only.place(1, RemoteAccess::READ).is_ok());
        for access in [RemoteAccess::WRITE, RemoteAccess::ATOMIC, RemoteAccess::ALL] {
            assert!(read_only.place(1, access).unwrap_err().contains("more access"));
        }
        let damaged = RemoteRun { key: RemoteKey { base: u64::MAX, ..KEY }, offset: 1 };
        assert!(damaged.place(1, RemoteAccess::READ).unwrap_err().contains("damaged"));
    }
}
