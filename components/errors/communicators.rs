//! The errors of operations on communicators.

use super::{PostError, RequestError};
use crate::ProcId;
use thiserror::Error;

/// Why an operation on a communicator failed.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[non_exhaustive]
pub enum CommError {
    /// The communicator does not exist, the tag is invalid, the engine is closed, or there is no room.
    #[error(transparent)]
    Post(#[from] PostError),
    /// A topology that does not fit.
    #[error(transparent)]
    Topology(#[from] crate::TopologyError),
    /// The communicator has no Cartesian topology.
    #[error("the communicator is no grid: make it by cart_create")]
    NoTopology,
    /// The communicators of the world and of the proc itself cannot be freed. Those of windows are freed with their windows.
    #[error(
        "the communicators of the world, of the proc itself and of windows cannot be freed: win_free frees a window's"
    )]
    Permanent,
    /// A group that is not within the communicator.
    #[error("proc {proc} of the group is not in the communicator: give a part of its group")]
    NotSubset {
        /// Which proc.
        proc: ProcId,
    },
    /// This proc is not in the group. Only members of the group may call.
    #[error("the own proc is not in the group: only its members call comm_create_group")]
    NotMember,
    /// An operation with the same tag is in progress.
    #[error("comm_create_group with tag {0} is in progress on this communicator: give another tag")]
    InProgress(crate::Tag),
    /// A member failed before all had agreed.
    #[error("proc {proc} has failed before all members had agreed: {reason}")]
    MemberFailed {
        /// Which proc.
        proc: ProcId,
        /// What is known.
        reason: String,
    },
    /// Members called different operations.
    #[error("members have called different operations on the communicator: all must call the same, in the same order")]
    Mismatch,
    /// No context id is free on all members.
    #[error("all context ids are in use by some member: free communicators that are not needed")]
    Exhausted,
    /// All context ids of a tag mode are in use, or are used up: a tag mode can tell only so many communicators of one id apart.
    #[error(
        "all {most} context ids of tag mode {mode} are in use or used up by some member: free communicators that are not needed, or use ofi_tag_2 or ofi_tag_full"
    )]
    TagModeContexts {
        /// Context ids that there are.
        most: u32,
        /// The mode.
        mode: &'static str,
    },
    /// A member had no room, or its engine was closed.
    #[error("proc {proc} could not take part: {reason}")]
    Refused {
        /// Which proc.
        proc: ProcId,
        /// What it says.
        reason: String,
    },
    /// The handle belongs to no agreement in progress.
    #[error("the agreement is stale: its result was taken, or it belongs to another engine")]
    Stale,
    /// Waiting failed.
    #[error(transparent)]
    Wait(RequestError),
}
