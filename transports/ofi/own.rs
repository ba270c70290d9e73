//! What an endpoint has for itself.

use super::OfiConfig;
use crate::facets::Watcher;
use crate::handshake::Greeting;
use crate::watching::Watched;
use rustix::io::Errno;

/// What stays the same while an endpoint is open.
pub(super) struct Own {
    pub(super) config: OfiConfig,
    pub(super) card: Vec<u8>,
    /// The host part of the card.
    pub(super) host: [u8; 8],
    /// What callers have to show.
    pub(super) secret: u64,
    /// The own fabric address.
    pub(super) address: Vec<u8>,
    pub(super) greeting: Greeting,
    pub(super) watched: Watched,
    /// Watchers that have shown the secret, and that nobody has answered yet.
    pub(super) watchers: Vec<Watcher>,
}

/// A number that nobody guesses; never 0.
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
