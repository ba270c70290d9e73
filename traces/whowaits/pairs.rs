//! Why a wait does not end: compares the operations and messages of both sides.

use super::report::RankReport;
use super::windows;
use crate::dump::{CommunicatorDump, Dump, Kind, MessageDump, Obstacle, OperationDump, Plane, Stage, StartDump};
use crate::words::{Bytes, count};
use std::collections::HashMap;

/// Reasons that are given for one operation at most, since there may be many messages with a wrong tag.
const REASONS_MAX: usize = 3;
/// The largest number of a collective operation in its messages. Numbers wrap after it.
const NUMBERS: u32 = (1 << 22) - 1;

/// Why an operation of a rank is still pending.
pub(super) fn because(ranks: &[RankReport], rank: u32, dump: &Dump, operation: &OperationDump) -> Vec<String> {
    let epoch = windows::epoch_missing(ranks, dump, operation);
    let mut reasons = match (operation.kind, operation.stage) {
        _ if epoch.is_some() => epoch.unwrap_or_default(),
        (Kind::Receive, Stage::New | Stage::Posted) => unpaired_receive(ranks, rank, dump, operation),
        (Kind::Send, Stage::Offered) => unpaired_send(ranks, rank, operation),
        (Kind::Send, Stage::Queued) if operation.obstacle == Obstacle::Credit => starved(ranks, rank, operation),
        _ => Vec::new(),
    };
    if let Some(report) = operation.peer.and_then(|peer| ranks.get(peer as usize))
        && !matches!(report, RankReport::Dumped(_))
    {
        reasons.push(format!("rank {} {}", operation.peer.unwrap_or(0), report.does()));
    }
    reasons
}

/// Messages that have arrived, or are on their way, and that the receive does not match.
fn unpaired_receive(ranks: &[RankReport], rank: u32, dump: &Dump, receive: &OperationDump) -> Vec<String> {
    if receive.plane != Plane::User {
        return not_entered(ranks, receive).into_iter().collect();
    }
    let from = |peer: Option<u32>| peer.is_some() && (receive.peer.is_none() || receive.peer == peer);
    let mut reasons = Vec::new();
    let near = |m: &&MessageDump| m.plane == Plane::User && from(m.peer);
    let mut arrived: Vec<&MessageDump> = dump.unexpected.iter().filter(near).collect();
    // A message that differs in only one property is the likeliest mistake, so it comes first.
    arrived.sort_by_key(|m| receive.context != m.context && receive.tag != Some(m.tag));
    for message in arrived {
        let MessageDump { peer, tag, comm, context, .. } = message;
        let verb = if message.offered { "offers" } else { "has sent" };
        let place = difference(dump, receive, *comm, *context);
        reasons.push(format!("rank {} {verb} tag {tag}{place}", peer.unwrap_or(0)));
    }
    // Messages that the sender still has. An offer that has arrived is among the unexpected messages already.
    for (peer, report) in (0..).zip(ranks).filter(|&(peer, _)| from(Some(peer))) {
        for theirs in report.dumps() {
            let queued = |o: &&OperationDump| {
                o.kind == Kind::Send && o.stage == Stage::Queued && o.plane == Plane::User && o.peer == Some(rank)
            };
            for send in theirs.operations.iter().filter(queued) {
                let place = difference(theirs, receive, send.comm, send.context);
                reasons.push(format!("rank {peer} has tag {} queued{place}", send.tag.unwrap_or(0)));
            }
        }
    }
    shorten(reasons)
}

/// Says so if the peer has not called, or not started, the collective operation of a message.
fn not_entered(ranks: &[RankReport], receive: &OperationDump) -> Option<String> {
    let (peer, collective) = (receive.peer?, receive.collective.as_ref()?);
    let theirs = ranks.get(peer as usize)?.dumps().iter().flat_map(|dump| &dump.communicators);
    let theirs = theirs.into_iter().find(|comm| comm.context == receive.context)?;
    if let Some(start) = collective.start {
        return not_started(peer, theirs, start);
    }
    // Numbers wrap after some millions.
    let ahead = collective.number?.wrapping_sub(theirs.collectives) & NUMBERS;
    (ahead <= NUMBERS / 2).then(|| format!("rank {peer} has not entered it"))
}

/// Says so if the peer has not started a persistent operation as often as this rank.
fn not_started(peer: u32, theirs: &CommunicatorDump, start: StartDump) -> Option<String> {
    let is_behind = |own: u32, other: u32| own.wrapping_sub(other).cast_signed() > 0;
    match theirs.persistent.iter().find(|of| of.made == start.made) {
        Some(of) if is_behind(start.starts, of.starts) => Some(match of.starts {
            0 => format!("rank {peer} has made it, and has not started it"),
            _ => format!("rank {peer} has not started it again"),
        }),
        None if !is_behind(theirs.persistent_made, start.made) => Some(format!("rank {peer} has not made it")),
        _ => None,
    }
}

/// What the receiver waits for instead.
fn unpaired_send(ranks: &[RankReport], rank: u32, send: &OperationDump) -> Vec<String> {
    let Some(peer) = send.peer else { return Vec::new() };
    let mut reasons = Vec::new();
    for theirs in ranks.get(peer as usize).map(RankReport::dumps).unwrap_or_default() {
        let receives = theirs.operations.iter().filter(|o| {
            o.kind == Kind::Receive && matches!(o.stage, Stage::Posted | Stage::New) && o.plane == Plane::User
        });
        for receive in receives.filter(|o| o.peer.is_none_or(|from| from == rank)) {
            let tag = receive.tag.map_or("any tag".to_owned(), |tag| format!("tag {tag}"));
            let source = receive.rank.map_or("any rank".to_owned(), |_| format!("rank {rank}"));
            let place = difference(theirs, send, receive.comm, receive.context);
            reasons.push(format!("rank {peer} receives {tag} from {source}{place}"));
        }
        if reasons.is_empty() {
            reasons.push(format!("rank {peer} has posted no receive from rank {rank}"));
        }
    }
    shorten(reasons)
}

/// Messages of this sender that the receiver keeps and has no receive for.
fn starved(ranks: &[RankReport], rank: u32, send: &OperationDump) -> Vec<String> {
    let Some(peer) = send.peer else { return Vec::new() };
    let dumps = ranks.get(peer as usize).map(RankReport::dumps).unwrap_or_default();
    let kept = dumps.iter().flat_map(|dump| &dump.peers).filter(|of| of.proc == rank).map(|of| of.unexpected);
    let kept = kept.filter(|kept| kept.rows > 0).map(|kept| {
        let messages = count(kept.rows, "message", "messages");
        format!("rank {peer} has {messages} of rank {rank} that no receive has taken, {}", Bytes(kept.bytes))
    });
    kept.chain(unpaired_send(ranks, rank, send)).collect()
}

/// Names the communicator, if it is another one.
fn difference(dump: &Dump, operation: &OperationDump, comm: u32, context: u32) -> String {
    match (operation.context == context, operation.comm == comm) {
        (true, _) => String::new(),
        (false, true) => format!(" in an earlier or later {}", dump.comm_name(comm)),
        (false, false) => format!(" in {}", dump.comm_name(comm)),
    }
}

/// Merges equal reasons, and limits their number.
fn shorten(reasons: Vec<String>) -> Vec<String> {
    let mut short: Vec<(String, usize)> = Vec::new();
    let mut places = HashMap::new();
    for reason in reasons {
        let place = *places.entry(reason.clone()).or_insert(short.len());
        match short.get_mut(place) {
            Some((_, times)) => *times += 1,
            None => short.push((reason, 1)),
        }
    }
    let more = short.len().saturating_sub(REASONS_MAX);
    let said = |(reason, times): (String, usize)| if times > 1 { format!("{reason}, {times} times") } else { reason };
    let mut said: Vec<String> = short.into_iter().take(REASONS_MAX).map(said).collect();
    if more > 0 {
        said.push(format!("and {more} more that do not fit"));
    }
    said
}
