//! The fixed data of an endpoint.

use super::OfiConfig;
use crate::facets::Watcher;
use crate::handshake::Greeting;
use crate::watching::Watched;
use rustix::io::Errno;

/// The data that stays the same while an endpoint is open, and its watchers.
pub(super) struct Own {
    pub(super) config: OfiConfig,
    pub(super) card: Vec<u8>,
    /// The host part of the card.
    pub(super) host: [u8; 8],
    /// The secret that callers must show.
    pub(super) secret: u64,
    /// The fabric address of this process.
    pub(super) address: Vec<u8>,
    pub(super) greeting: Greeting,
    pub(super) watched: Watched,
    /// Watchers that have shown the secret and wait for an answer.
    pub(super) watchers: Vec<Watcher>,
}

/// A secure random number; never 0.
pub(super) fn random() -> Result<u64, Errno> {
    let mut bytes = [0u8; 8];
    let mut filled = 0;
    while filled < bytes.len() {
        match rustix::rand::getrandom(&mut bytes[filled..], rustix::rand::GetRandomFlags::empty()) {
            Ok(count) => filled += count,
            Err(Errno::INTR) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(u64::from_ne_bytes(bytes).max(1))
}
