//! The tree along which members of a communicator exchange messages, and the messages on its edges.

use super::message::Message;
use super::state::{Edge, Key, Owed};
use crate::api::request::Request;
use crate::run::engine::Engine;
use tickwire_components::{CommError, Ended, PostError, ProcId, RequestError, context};
use tickwire_systems::steps::activate::take_rows;
use tickwire_systems::steps::arguments::Envelope;
use tickwire_systems::steps::posting::{new_send, queue_receive, queue_send, receive_car};

/// The children of a node in a binomial tree of `size` nodes. Each comes with the size of its subtree, which has the nodes `child..child +
/// span`.
pub(super) fn children(index: u32, size: u32) -> impl Iterator<Item = (u32, u32)> {
    let steps = if index == 0 { u32::BITS } else { index.trailing_zeros() };
    let child = move |step: u32| 1u32.checked_shl(step).and_then(|step| Some((index.checked_add(step)?, step)));
    let within = move |&(child, _): &(u32, u32)| child < size;
    (0..steps).map_while(child).take_while(within).map(move |(child, span)| (child, span.min(size - child)))
}

impl Owed {
    /// Posts what is owed. `false` if there are not enough rows.
    pub(super) fn post(&self, engine: &mut Engine) -> bool {
        let full = match self {
            Owed::Message(key, own, proc, bytes) => send(engine, *key, *own, *proc, bytes).err(),
            Owed::Receive(key, rank, proc, bytes) => receive(engine, *key, *rank, *proc, *bytes).err(),
        };
        !matches!(full, Some(PostError::Full { .. }))
    }
}

impl Edge {
    /// Leaves the edge's next message to the engine, which receives and drops it.
    pub(super) fn leave(&mut self, engine: &mut Engine) {
        self.receive = None;
        let bytes = std::mem::take(&mut self.bytes);
        if bytes > 0 {
            engine.comms.owed.push_back(Owed::Receive(self.key, self.rank, self.proc, bytes));
        }
    }
}

/// Posts the receive of an edge's next message. If there is no row for it, [`hear`] tries again. [`hear`] also tries later while the
/// receive of an earlier agreement is still owed: the new one would get that agreement's message.
pub(super) fn expect(engine: &mut Engine, edge: &mut Edge) -> Result<(), CommError> {
    let before = |owed: &Owed| matches!(owed, Owed::Receive(key, _, proc, _) if (*key, *proc) == (edge.key, edge.proc));
    if engine.comms.owed.iter().any(before) {
        return Ok(());
    }
    match receive(engine, edge.key, edge.rank, edge.proc, edge.bytes) {
        Ok(receive) => (edge.receive, edge.bytes) = (Some(receive), 0),
        Err(PostError::Full { .. }) => {}
        Err(error) => return Err(error.into()),
    }
    Ok(())
}

/// Sends a message over an edge. A message to a member that has failed is lost: the failure is noticed when that member's answer is
/// missing.
pub(super) fn tell(engine: &mut Engine, own: u32, edge: &Edge, message: &Message) -> Option<Request<Vec<u8>>> {
    let bytes = message.encode(ProcId(engine.rank().0));
    let before = |owed: &Owed| matches!(owed, Owed::Message(key, _, proc, _) if (*key, *proc) == (edge.key, edge.proc));
    if !engine.comms.owed.iter().any(before) {
        match send(engine, edge.key, own, edge.proc, &bytes) {
            Ok(request) => return Some(request),
            Err(PostError::Full { .. }) => {}
            Err(_) => return None,
        }
    }
    engine.comms.owed.push_back(Owed::Message(edge.key, own, edge.proc, bytes));
    None
}

/// Looks for the next message of an edge. Returns `true` if it has come.
pub(super) fn hear(engine: &mut Engine, edge: &mut Edge) -> Result<bool, CommError> {
    if edge.bytes > 0 {
        expect(engine, edge)?;
    }
    let Some(receive) = &edge.receive else { return Ok(edge.message.is_some()) };
    if matches!(engine.state(receive.id()), Ok(false)) {
        return Ok(false);
    }
    let Some(receive) = edge.receive.take() else { return Ok(false) };
    match engine.take(receive) {
        Ok((bytes, status)) => match bytes.get(..status.length).and_then(Message::decode) {
            Some(message) => {
                edge.message = Some(message);
                Ok(true)
            }
            None => Err(accuse(engine, edge.proc)),
        },
        Err(failed) => Err(match failed.error {
            RequestError::PeerFailed { proc, reason } => CommError::MemberFailed { proc, reason },
            RequestError::Truncated { .. } => accuse(engine, edge.proc),
            other => CommError::Wait(other),
        }),
    }
}

/// Reports that a peer has sent something invalid. The VC to the peer fails.
#[cold]
pub(super) fn accuse(engine: &mut Engine, proc: u32) -> CommError {
    let words = "a message between members that makes no sense";
    let all = engine.store.all();
    if let Some(known) = all.procs.known.get(proc as usize) {
        all.progress.end_vc(known.row, Ended::Corrupt(words.to_owned()));
    }
    CommError::MemberFailed { proc: ProcId(proc), reason: format!("protocol violation: {words}") }
}

/// The envelope of a message between members. Its context is one of the engine's own, for which the application can post no receive.
fn envelope(key: Key, source: u32, proc: u32, length: usize) -> Envelope {
    let (word, plane, tag) = key;
    debug_assert_ne!(plane, context::USER);
    Envelope { context: word | plane, source, tag, proc, length: length as u64 }
}

/// Posts a send to a member, without the argument checks of an application's call.
fn send(engine: &mut Engine, key: Key, own: u32, proc: u32, bytes: &[u8]) -> Result<Request<Vec<u8>>, PostError> {
    engine.closed.check_post()?;
    let vc_row = engine.reach(proc)?;
    engine.need_rows(1)?;
    let all = engine.store.all();
    let bytes = bytes.to_vec();
    let envelope = envelope(key, own, proc, bytes.len());
    let car = new_send((&*all.communicators, &*all.vcs, &*all.procs), &envelope, vc_row, 0, Some(0))?;
    // SAFETY: the row holds the buffer from below on.
    #[expect(unsafe_code, reason = "bytes that are addresses")]
    let row = unsafe { take_rows(all.progress, all.cars, all.requests, &bytes, car) };
    let Some(row) = row else { return Err(engine.full()) };
    queue_send(all.progress, all.cars, all.large, all.vcs, row, envelope.length);
    Ok(engine.hold(row, bytes, false))
}

/// Posts a receive from a member, without the argument checks of an application's call.
fn receive(engine: &mut Engine, key: Key, rank: u32, proc: u32, bytes: usize) -> Result<Request<Vec<u8>>, PostError> {
    engine.closed.check_post()?;
    let buffer = vec![0; bytes];
    let vc_row = engine.reach(proc)?;
    engine.need_rows(1)?;
    let all = engine.store.all();
    let car = receive_car(all.progress, &envelope(key, rank, proc, 0), vc_row);
    // SAFETY: the row holds the buffer from below on.
    #[expect(unsafe_code, reason = "bytes that are addresses")]
    let row = unsafe { take_rows(all.progress, all.cars, all.requests, &buffer, car) };
    let Some(row) = row else { return Err(engine.full()) };
    queue_receive(all.progress, all.cars, all.vcs, row);
    Ok(engine.hold(row, buffer, false))
}

#[cfg(test)]
mod tests {
    use super::children;

    #[test]
    fn a_tree_has_every_member_once_and_parts_are_contiguous() {
        for size in 1..200u32 {
            let mut parents = vec![0; size as usize];
            for index in 0..size {
                let mut next = index + 1;
                for (child, span) in children(index, size) {
                    assert_eq!(child, next, "the parts follow one another");
                    assert_eq!(child & (child - 1), index, "a child finds its parent");
                    parents[child as usize] += 1;
                    next = child + span;
                }
            }
            assert_eq!(parents[0], 0);
            assert!(parents[1..].iter().all(|&count| count == 1));
            let depth = (0..size).map(u32::count_ones).max().unwrap();
            assert!(depth <= size.next_power_of_two().trailing_zeros());
        }
    }
}
