//! Checks the arguments of an operation and makes its envelope from them.

use crate::procs::communicators::{alive, live};
use tickwire_components::limits::{ANY, MESSAGE_MAX, TAG_MAX};
use tickwire_components::submission::Operation;
use tickwire_components::{Communicator, NIL, PostError, Rank, Source, Tag, TagFilter};

/// The checked envelope of an operation.
// Context and source must not be neighbours. The compiler would then write them as two words and soon after read them as one, as in a
// header, and such a load waits until both stores have left the store buffer.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Envelope {
    /// Context word.
    pub context: u32,
    /// Tag or [`ANY`].
    pub tag: u32,
    /// Send: this process's rank. Receive: rank of the source or [`ANY`].
    pub source: u32,
    /// Proc of the peer; [`NIL`] for a receive from any source.
    pub proc: u32,
    /// Send: bytes of the message.
    pub length: u64,
}

/// Checks the arguments of a send.
///
/// # Errors
/// Names the argument that is wrong and what it may be.
pub fn check_send(
    comms: &[Communicator],
    comm: u32,
    rank: u32,
    tag: u32,
    length: usize,
) -> Result<Envelope, PostError> {
    if let Some(envelope) = send_envelope(comms, comm, rank, tag, length) {
        return Ok(envelope);
    }
    let communicator = live(comms, comm)?;
    if communicator.proc(rank).is_none() {
        return Err(PostError::Rank { rank, last: communicator.size - 1 });
    }
    if tag > communicator.tag_max {
        return Err(tag_error(communicator, tag));
    }
    Err(PostError::Length { length: length as u64, most: MESSAGE_MAX })
}

/// As [`check_send`], without saying what is wrong.
#[inline(always)]
pub fn send_envelope(comms: &[Communicator], comm: u32, rank: u32, tag: u32, length: usize) -> Option<Envelope> {
    let communicator = alive(comms, comm)?;
    let proc = communicator.proc(rank)?;
    let length = length as u64;
    let envelope = Envelope { context: communicator.context, source: communicator.rank, tag, proc, length };
    (tag <= communicator.tag_max && length <= MESSAGE_MAX).then_some(envelope)
}

/// Checks the arguments of a receive.
///
/// # Errors
/// Names the argument that is wrong and what it may be.
pub fn check_receive(comms: &[Communicator], comm: u32, source: Source, tag: TagFilter) -> Result<Envelope, PostError> {
    if let Some(envelope) = receive_envelope(comms, comm, source.number(), tag.number()) {
        return Ok(envelope);
    }
    let communicator = live(comms, comm)?;
    if let Source::Rank(Rank(rank)) = source
        && communicator.proc(rank).is_none()
    {
        return Err(PostError::Rank { rank, last: communicator.size - 1 });
    }
    Err(match tag {
        TagFilter::Tag(Tag(tag)) if tag > communicator.tag_max => tag_error(communicator, tag),
        _ => PostError::Wildcard(comm),
    })
}

/// As [`check_receive`], without saying what is wrong; [`ANY`] stands for any rank and any tag.
#[inline(always)]
pub fn receive_envelope(comms: &[Communicator], comm: u32, rank: u32, tag: u32) -> Option<Envelope> {
    if rank != ANY {
        return directed_envelope(comms, comm, rank, tag);
    }
    let communicator = alive(comms, comm)?;
    let envelope = Envelope { context: communicator.context, source: ANY, tag, proc: NIL, length: 0 };
    (!communicator.no_wildcard && (tag <= communicator.tag_max || tag == ANY)).then_some(envelope)
}

/// As [`receive_envelope`], for one source rank. [`ANY`] is not accepted as the rank.
#[inline(always)]
pub fn directed_envelope(comms: &[Communicator], comm: u32, rank: u32, tag: u32) -> Option<Envelope> {
    let communicator = alive(comms, comm)?;
    let proc = communicator.proc(rank)?;
    let envelope = Envelope { context: communicator.context, source: rank, tag, proc, length: 0 };
    (tag <= communicator.tag_max || (tag == ANY && !communicator.no_wildcard)).then_some(envelope)
}

/// Checks the arguments of a send to [`Rank::NULL`], which moves nothing.
///
/// # Errors
/// Names the argument that is wrong and what it may be.
pub fn check_null_send(comms: &[Communicator], comm: u32, tag: u32) -> Result<(), PostError> {
    check_send(comms, comm, live(comms, comm)?.rank, tag, 0).map(drop)
}

/// Checks the arguments of a receive from [`Rank::NULL`], or of a probe, which finds nothing.
///
/// # Errors
/// Names the argument that is wrong and what it may be.
pub fn check_null_receive(comms: &[Communicator], comm: u32, tag: TagFilter) -> Result<(), PostError> {
    check_receive(comms, comm, Source::Rank(Rank(live(comms, comm)?.rank)), tag).map(drop)
}

/// Checks the arguments of an operation. Returns its envelope, or `None` if the peer is [`Rank::NULL`]. `length` is that of a send, bytes.
///
/// # Errors
/// Names the argument that is wrong and what it may be.
pub fn check_operation(
    comms: &[Communicator],
    comm: u32,
    operation: Operation,
    length: usize,
) -> Result<Option<Envelope>, PostError> {
    let null = Source::from(Rank::NULL);
    match operation {
        Operation::Send { to: Rank::NULL, tag } => check_null_send(comms, comm, tag.0).map(|()| None),
        Operation::Send { to, tag } => check_send(comms, comm, to.0, tag.0, length).map(Some),
        Operation::Receive { source, tag } if source == null => check_null_receive(comms, comm, tag).map(|()| None),
        Operation::Receive { source, tag } => check_receive(comms, comm, source, tag).map(Some),
    }
}

#[cold]
pub(crate) fn tag_error(communicator: &Communicator, tag: u32) -> PostError {
    if tag > TAG_MAX { PostError::Tag { tag } } else { PostError::TagMode { tag, most: communicator.tag_max } }
}
