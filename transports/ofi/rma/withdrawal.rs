//! Withdrawals of memory that are not over, and the answers that peers wait for.

/// Memory that was withdrawn and may still be in use.
pub(super) struct Withdrawal {
    pub(super) number: u32,
    /// Links whose peers have not answered.
    pub(super) waiting: Vec<u32>,
    /// How many operations this process had issued to itself, by context.
    pub(super) own: Vec<u64>,
    /// A peer has ended without an answer. Bytes of it may still arrive.
    pub(super) lost: bool,
}

/// An answer that a peer waits for.
pub(super) struct OwedAnswer {
    pub(super) link: u32,
    pub(super) number: u32,
    /// How many operations this process had issued over the link when it was asked, by context.
    pub(super) issued: Vec<u64>,
}
