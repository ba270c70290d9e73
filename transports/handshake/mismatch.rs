//! Why a packet or a peer is refused, in words that say what to do.

use thiserror::Error;

/// Why a packet or a peer is refused.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[non_exhaustive]
pub enum Mismatch {
    /// Not this protocol.
    #[error("the peer sent something other than a tickwire packet: another program uses its address")]
    Magic,
    /// A packet of a length that its kind does not have.
    #[error("the peer sent a packet of {theirs} bytes where {ours} are due: use one build of tickwire for all procs")]
    Length {
        /// What came.
        theirs: usize,
        /// What was due.
        ours: usize,
    },
    /// No such kind of packet.
    #[error("the peer sent a packet of unknown kind {0}: use one build of tickwire for all procs")]
    Kind(u8),
    /// Another byte order.
    #[error("peer writes {theirs}, this process {ours}: all procs must run on machines of one data format")]
    ByteOrder {
        /// Theirs, in words.
        theirs: &'static str,
        /// Ours, in words.
        ours: &'static str,
    },
    /// Another version of the protocol.
    #[error("peer speaks version {theirs} of the protocol, this process {ours}: use one version for all procs")]
    Version {
        /// Theirs.
        theirs: u16,
        /// Ours.
        ours: u16,
    },
    /// Another word size.
    #[error("peer has words of {theirs} bytes, this process of {ours}: all procs must be of one data format")]
    Word {
        /// Theirs, bytes.
        theirs: u8,
        /// Ours, bytes.
        ours: u8,
    },
    /// Another frame header.
    #[error("peer has frame headers of {theirs} bytes, this process of {ours}: use one version for all procs")]
    Header {
        /// Theirs, bytes.
        theirs: u8,
        /// Ours, bytes.
        ours: u8,
    },
    /// Bits where none may be.
    #[error("the peer set reserved bits of its packet: use one version for all procs")]
    Reserved,
    /// Text that is not text.
    #[error("the peer sent a job name that is not one")]
    Text,
    /// Another job.
    #[error("peer belongs to job {theirs:?}, this process to {ours:?}: give each job a name of its own")]
    Job {
        /// Theirs.
        theirs: String,
        /// Ours.
        ours: String,
    },
    /// Another number of procs.
    #[error("peer knows {theirs} procs, this process {ours}: start all procs by one launcher")]
    Procs {
        /// Theirs.
        theirs: u32,
        /// Ours.
        ours: u32,
    },
    /// A proc number that does not exist.
    #[error("peer says it is proc {theirs} of {procs}: start all procs by one launcher")]
    Proc {
        /// Theirs.
        theirs: u32,
        /// How many there are.
        procs: u32,
    },
    /// Another proc than the one that was asked for, or the own one.
    #[error("peer says it is proc {theirs} where proc {expected} was expected: start all procs by one launcher")]
    Other {
        /// Theirs.
        theirs: u32,
        /// Who was called.
        expected: u32,
    },
    /// The own number.
    #[error("peer says it is proc {0}, which this process is: start each proc once")]
    Same(u32),
    /// Rings of another size.
    #[error("peer has rings of {theirs} bytes, this process of {ours}: give all procs the same ring_bytes")]
    Ring {
        /// Theirs, bytes.
        theirs: u64,
        /// Ours, bytes.
        ours: u64,
    },
    /// Rings of another size at first.
    #[error(
        "peer has rings of {theirs} bytes at first, this process of {ours}: give all procs the same first_ring_bytes"
    )]
    FirstRing {
        /// Theirs, bytes.
        theirs: u32,
        /// Ours, bytes.
        ours: u32,
    },
    /// Frames of another size.
    #[error("peer takes payloads of {theirs} bytes in a frame, this process {ours}: give all procs the same limits")]
    Frame {
        /// Theirs, bytes.
        theirs: u64,
        /// Ours, bytes.
        ours: u64,
    },
    /// Another machine, or another boot of it.
    #[error("peer runs under boot id {theirs:032x}, this process under {ours:032x}: they are not on one host")]
    Boot {
        /// Theirs.
        theirs: u128,
        /// Ours.
        ours: u128,
    },
}
