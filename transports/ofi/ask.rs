//! The request of a watcher to the control socket of a proc. `watchers.rs` says who may ask, and what the answer is.

use crate::facets::Question;

/// The request of a watcher.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Ask {
    /// The secret of the asked proc, out of its card.
    pub(super) secret: u64,
    pub(super) question: Question,
}

impl Ask {
    /// Bytes of the request, which follow the packet.
    pub(super) const BYTES: usize = size_of::<u64>() + size_of::<Question>();

    pub(super) fn encode(&self) -> Vec<u8> {
        [&self.secret.to_be_bytes()[..], &self.question].concat()
    }

    pub(super) fn decode(bytes: &[u8]) -> Option<Ask> {
        let (secret, question) = bytes.split_first_chunk()?;
        Some(Ask { secret: u64::from_be_bytes(*secret), question: question.try_into().ok()? })
    }
}
