//! Findings from dumps that were made by hand.

use super::*;
use crate::dump::{CollectiveDump, CommunicatorDump, MessageDump, PeerDump, QueueBytes, StartDump};

fn receive(peer: Option<u32>, tag: Option<u32>) -> OperationDump {
    OperationDump { rank: peer, peer, tag, bytes: 8, awaited: true, ..Default::default() }
}

fn offer(peer: u32, tag: u32) -> OperationDump {
    let (kind, stage) = (Kind::Send, Stage::Offered);
    OperationDump { kind, stage, rank: Some(peer), bytes: 1 << 20, ..receive(Some(peer), Some(tag)) }
}

fn message(peer: u32, tag: u32) -> MessageDump {
    MessageDump { rank: peer, peer: Some(peer), tag, bytes: 8, ..Default::default() }
}

/// A rank that waits in a call for these operations.
fn waiting(operations: Vec<OperationDump>, unexpected: Vec<MessageDump>) -> RankReport {
    let active = operations.len() as u32;
    let dump = Dump { activity: Activity::Waiting, active, operations, unexpected, ..Default::default() };
    RankReport::Dumped(vec![dump])
}

fn ticking() -> RankReport {
    RankReport::Dumped(vec![Dump::default()])
}

fn said(ranks: &[RankReport]) -> String {
    who_waits(ranks).to_string()
}

#[test]
fn a_circle_is_named_and_nobody_is_to_blame() {
    let ranks = [1, 2, 0].map(|next| waiting(vec![receive(Some(next), Some(1))], vec![]));
    let findings = who_waits(&ranks);
    assert_eq!((findings.cycles.clone(), findings.culprits.len()), (vec![vec![0, 1, 2]], 0));
    let expected = "\
rank 0 waits for tag 1 from rank 1
rank 1 waits for tag 1 from rank 2
rank 2 waits for tag 1 from rank 0
cycle: rank 0 → 1 → 2 → 0: each waits for the next
";
    assert_eq!(findings.to_string(), expected);
}

#[test]
fn two_circles_and_a_tail_are_told_apart() {
    let ranks = [1, 0, 3, 2, 0].map(|next| waiting(vec![receive(Some(next), None)], vec![]));
    assert_eq!(who_waits(&ranks).cycles, [vec![0, 1], vec![2, 3]]);
}

/// Each of many ranks waits for all others. There are more cycles than could be listed: no rank is named in two.
#[test]
fn a_rank_is_in_one_cycle_at_most() {
    let ranks: Vec<_> = (0..200u32)
        .map(|rank| waiting((0..200).filter(|&on| on != rank).map(|on| receive(Some(on), None)).collect(), vec![]))
        .collect();
    let findings = who_waits(&ranks);
    let mut named: Vec<u32> = findings.cycles.concat();
    let count = named.len();
    named.sort_unstable();
    named.dedup();
    assert!(named.len() == count && count > 1, "{count} ranks in cycles, {} different ones", named.len());
    assert_eq!(findings.culprits, []);
}

#[test]
fn a_wrong_tag_is_named_on_both_sides() {
    let ranks = [ticking(), ticking(), waiting(vec![receive(Some(0), Some(7))], vec![message(0, 8), message(1, 7)])];
    let expected = "\
rank 2 waits for tag 7 from rank 0; rank 0 has sent tag 8
rank 2 waits for rank 0, which ticks, and waits in no call
";
    assert_eq!(said(&ranks), expected);
    let large = MessageDump { offered: true, ..message(0, 8) };
    let ranks = [waiting(vec![offer(1, 8)], vec![]), waiting(vec![receive(Some(0), Some(7))], vec![large])];
    let expected = "\
rank 0 waits for rank 1 to receive tag 8, 1.0 MiB; rank 1 receives tag 7 from rank 0
rank 1 waits for tag 7 from rank 0; rank 0 offers tag 8
cycle: rank 0 → 1 → 0: each waits for the next
";
    assert_eq!(said(&ranks), expected);
}

#[test]
fn a_wrong_communicator_is_named() {
    let other = MessageDump { comm: 2, context: 2, ..message(0, 7) };
    let ranks = [ticking(), waiting(vec![receive(Some(0), Some(7))], vec![message(0, 9), other])];
    let words = said(&ranks);
    let first = "rank 1 waits for tag 7 from rank 0; rank 0 has sent tag 9; rank 0 has sent tag 7 in communicator 2\n";
    assert!(words.starts_with(first), "{words}");
    let again = MessageDump { context: 1 << 13, ..message(0, 7) };
    let ranks = [ticking(), waiting(vec![receive(Some(0), Some(7))], vec![again])];
    assert!(said(&ranks).contains("has sent tag 7 in an earlier or later world"));
}

#[test]
fn a_rank_that_is_not_there_or_computes_is_to_blame_for_all_who_wait() {
    let chain = |last: RankReport| {
        let to = |rank| waiting(vec![receive(Some(rank), Some(1))], vec![]);
        [to(2), to(2), to(3), last]
    };
    let silent = said(&chain(RankReport::Silent { ns: 12_000_000_000 }));
    assert!(
        silent.contains("rank 2 waits for tag 1 from rank 3; rank 3 does not tick: last seen ticking 12.0 s ago\n")
    );
    assert!(silent.ends_with("ranks 0, 1, 2 wait for rank 3, which does not tick: last seen ticking 12.0 s ago\n"));
    let missing = said(&chain(RankReport::Missing));
    assert!(missing.ends_with("wait for rank 3, which has no process: it has ended or was never started\n"));
    let elsewhere = said(&chain(RankReport::Elsewhere { host: 3 }));
    assert!(elsewhere.contains("runs on host 3, which was not asked") && !elsewhere.contains("ended"), "{elsewhere}");
    assert!(said(&chain(RankReport::NoEngine)).ends_with("it has not built one yet, or has closed it\n"));
    assert!(said(&chain(RankReport::Unknown("no".into()))).ends_with("which cannot be asked: no\n"));
}

#[test]
fn those_who_start_wait_for_those_who_do_not() {
    let findings = who_waits(&[RankReport::Starting, RankReport::NoEngine, RankReport::Starting]);
    assert_eq!(
        findings.waits.iter().map(|wait| (wait.rank, wait.on)).collect::<Vec<_>>(),
        [(0, Some(1)), (2, Some(1))]
    );
    let words = findings.to_string();
    assert!(words.starts_with("rank 0 waits for rank 1 to build its engine; rank 1 has no engine"), "{words}");
    assert!(words.contains("ranks 0, 2 wait for rank 1, which has no engine"), "{words}");
}

#[test]
fn what_is_pending_without_being_waited_for_is_no_edge() {
    let mut awaited = waiting(vec![receive(Some(1), Some(1)), receive(Some(0), Some(2))], vec![]);
    if let RankReport::Dumped(dumps) = &mut awaited {
        dumps[0].operations[1].awaited = false;
    }
    let RankReport::Dumped(mut other) = waiting(vec![receive(Some(0), Some(3))], vec![]) else { return };
    other[0].activity = Activity::Ticking;
    let findings = who_waits(&[awaited, RankReport::Dumped(other)]);
    assert_eq!(findings.waits.iter().map(|wait| wait.blocking).collect::<Vec<_>>(), [true, false, false]);
    assert_eq!((findings.cycles.len(), findings.culprits[0].rank), (0, 1));
    assert!(findings.to_string().contains("rank 1 has pending, but does not wait for, tag 3 from rank 0\n"));
}

#[test]
fn a_call_that_waits_for_several_blocks_on_each_and_any_source_on_nobody() {
    let mut several = vec![receive(Some(1), Some(1)), receive(None, None)];
    several.iter_mut().for_each(|operation| operation.awaited = false);
    let findings = who_waits(&[waiting(several, vec![]), waiting(vec![receive(Some(0), Some(4))], vec![])]);
    assert!(findings.waits.iter().all(|wait| wait.blocking));
    assert_eq!(findings.cycles, [[0, 1]]);
    assert_eq!(findings.waits[1].what, "any tag from any rank");
}

#[test]
fn operations_of_the_engine_and_bytes_on_their_way_have_words() {
    let agreement = OperationDump { plane: Plane::Agreement, ..receive(Some(1), Some(9)) };
    let part = OperationDump { stage: Stage::Receiving, done: 4, ..receive(Some(1), Some(3)) };
    let sending = OperationDump { stage: Stage::Sending, done: 20_480, ..offer(1, 3) };
    let queued = OperationDump { stage: Stage::Queued, comm: 2, ..offer(1, 3) };
    let connecting = OperationDump { stage: Stage::Queued, obstacle: Obstacle::Connection, ..offer(1, 3) };
    let ranks = [waiting(vec![agreement, part, sending, queued, connecting], vec![]), RankReport::Missing];
    let whats: Vec<String> = who_waits(&ranks).waits.into_iter().map(|wait| wait.what).collect();
    let expected = [
        "rank 1 to take part in an operation of all of world",
        "the rest of tag 3 from rank 1",
        "rank 1 to take the rest of tag 3, 20.0 KiB of 1.0 MiB",
        "rank 1 to make room for tag 3, 1.0 MiB in communicator 2",
        "the connection to rank 1 for tag 3, 1.0 MiB",
    ];
    assert_eq!(whats, expected);
}

#[test]
fn many_messages_of_a_wrong_tag_are_counted() {
    let unexpected = [8, 8, 9, 10, 11, 12].map(|tag| message(0, tag)).to_vec();
    let findings = who_waits(&[ticking(), waiting(vec![receive(Some(0), Some(7))], unexpected)]);
    let because = findings.waits[0].because.join("; ");
    let expected =
        "rank 0 has sent tag 8, 2 times; rank 0 has sent tag 9; rank 0 has sent tag 10; and 2 more that do not fit";
    assert_eq!(because, expected);
}

#[test]
fn nothing_is_said_where_nobody_waits() {
    let done = OperationDump { stage: Stage::Done, ..receive(Some(1), Some(1)) };
    assert_eq!(said(&[waiting(vec![done], vec![]), ticking()]), "nobody waits for a message\n");
}

#[test]
fn a_sender_without_credit_waits_for_what_its_receiver_keeps() {
    let starved = OperationDump { stage: Stage::Queued, obstacle: Obstacle::Credit, ..offer(1, 3) };
    let kept = PeerDump { proc: 0, unexpected: QueueBytes { rows: 5, bytes: 20_480 }, ..Default::default() };
    let RankReport::Dumped(mut dumps) = waiting(vec![receive(Some(0), Some(7))], vec![message(0, 9)]) else { return };
    dumps[0].peers.push(kept);
    let words = said(&[waiting(vec![starved], vec![]), RankReport::Dumped(dumps)]);
    let first = "rank 0 waits for rank 1 to give credit for tag 3, 1.0 MiB; rank 1 has 5 messages of rank 0 that no \
                 receive has taken, 20.0 KiB; rank 1 receives tag 7 from rank 0\n";
    assert!(words.starts_with(first), "{words}");
    assert!(words.contains("rank 0 has tag 3 queued") || words.contains("has sent tag 9"), "{words}");
}

/// What is said of a peer that has made and started persistent operations so often, by a rank that waits for start 3 of number 5.
fn said_of_starts(made: u32, persistent: &[(u32, u32)]) -> String {
    let start = Some(StartDump { made: 5, starts: 3 });
    let collective = Some(CollectiveDump { name: "bcast".into(), number: None, start });
    let own = OperationDump { plane: Plane::Collective, collective, ..receive(Some(1), Some(9)) };
    let persistent = persistent.iter().map(|&(made, starts)| StartDump { made, starts }).collect();
    let world = CommunicatorDump { persistent_made: made, persistent, collectives: 100, ..Default::default() };
    let peer = Dump { communicators: vec![world], ..Default::default() };
    who_waits(&[waiting(vec![own], vec![]), RankReport::Dumped(vec![peer])]).waits.remove(0).because.join("; ")
}

#[test]
fn a_persistent_operation_is_not_made_not_started_or_not_started_again() {
    assert_eq!(said_of_starts(5, &[(4, 9)]), "rank 1 has not made it");
    assert_eq!(said_of_starts(6, &[(4, 9), (5, 0)]), "rank 1 has made it, and has not started it");
    assert_eq!(said_of_starts(6, &[(4, 9), (5, 2)]), "rank 1 has not started it again");
    assert_eq!(said_of_starts(6, &[(4, 0), (5, 3)]), "", "it takes part");
    assert_eq!(said_of_starts(6, &[(4, 0), (5, 4)]), "", "it is ahead");
    assert_eq!(said_of_starts(9, &[(8, 0)]), "", "it has freed it, or the list is cut");
}
