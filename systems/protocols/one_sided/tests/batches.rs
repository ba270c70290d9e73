//! Short operations that share a request.

use super::origin::{answer, ended};
use super::*;
use crate::procs::windows::Failure;
use tickwire_components::limits::BATCHED_BYTES;

const ENTRY: usize = 24;

/// An operation of a batch, as its request has it.
fn entry(kind: RemoteKind, at: u64, length: u64, operands: &[u8]) -> Vec<u8> {
    [&u64::from(kind.word()).to_ne_bytes()[..], &at.to_ne_bytes(), &length.to_ne_bytes(), operands].concat()
}

/// The payload of a batch of these.
fn batch(entries: &[Vec<u8>]) -> Vec<u8> {
    request(entries.len() as u64, entries.concat().len() as u64, &entries.concat())
}

fn outcomes(list: &[RemoteOutcome]) -> Vec<u8> {
    list.iter().flat_map(|outcome| outcome.word().to_ne_bytes()).collect()
}

/// Posts an operation on rank 1's part like the API calls do. Returns its number, and the number that it has to wait for.
fn post(
    world: &mut TestWorld,
    kind: RemoteKind,
    from: &mut [u8],
    into: &mut [u8],
    length: usize,
) -> (u64, Option<u64>) {
    let number = world.all().windows.number();
    // SAFETY: the test keeps both until the operation has ended, or its bytes are copied.
    let [from, into] = [from, into].map(|bytes| unsafe { Span::new(bytes.as_mut_ptr(), bytes.len()) });
    let awaited = !into.is_empty();
    let operation = RemoteOperation::new(number, kind, 8, length as u64);
    let operation = RemoteOperation { from, into, awaited, ..operation };
    let mut awaited = None;
    world.step(|rows, wire| awaited = batch::post(rows, wire.endpoints, HANDLE, 1, operation));
    (number, awaited)
}

/// The requests that have left: kind, number of operations or displacement, and the bytes behind that.
fn requests(world: &mut TestWorld) -> Vec<(RemoteKind, u64, Vec<u8>)> {
    world.step(transfer);
    let sent = std::mem::take(&mut world.wire().sent);
    let seen = |SentFrame { header, payload, .. }: SentFrame| {
        let first = u64::from_ne_bytes(payload[..8].try_into().unwrap());
        (RemoteKind::from_word(header.tag()).unwrap(), first, payload[LEAD..].to_vec())
    };
    sent.into_iter().map(seen).collect()
}

#[test]
fn a_batch_is_done_in_its_order_and_answered_once() {
    let (mut world, [vc, _]) = world();
    let payload = batch(&[
        entry(RemoteKind::Put, 8, 16, &words(&[5, 6])),
        entry(RemoteKind::Get, 8, 8, &[]),
        entry(RemoteKind::Update(SUM), 8, 8, &words(&[10])),
        entry(RemoteKind::FetchUpdate(SUM), 8, 16, &words(&[1, 2])),
        // An operation that fails is answered with an error, and does not hold up the next ones.
        entry(RemoteKind::Put, 60, 8, &words(&[7])),
        entry(RemoteKind::FetchUpdate(SUM), 4, 8, &words(&[7])),
        entry(RemoteKind::Get, u64::MAX, 2, &[]),
        entry(RemoteKind::CompareSwap(NumberType::U64), 16, 8, &words(&[8, 9])),
        entry(RemoteKind::Get, 64, 0, &[]),
        entry(RemoteKind::Get, 8, 16, &[]),
    ]);
    assert_eq!(ask(&mut world, vc, 1, RemoteKind::Batch, 3, &payload), None);
    let (done, out) = (RemoteOutcome::Done, RemoteOutcome::OutOfBounds);
    let told = outcomes(&[done, done, done, done, out, out, out, done, done, done]);
    let bytes = [told, words(&[5]), words(&[15, 6]), words(&[8]), words(&[16, 9])].concat();
    assert_eq!(answers(&mut world), [(1, 3, done, bytes)]);
    assert_eq!(memory(&mut world), words(&[0, 16, 9, 0, 0, 0, 0, 0]));
}

#[test]
fn batches_that_no_honest_origin_sends_end_the_link_and_change_nothing() {
    let put = || entry(RemoteKind::Put, 0, 8, &words(&[5]));
    let with = |wrong: Vec<u8>| batch(&[put(), wrong]);
    let reads = REMOTE_BYTES / 2;
    let wrong = [
        batch(&[]),
        // More, fewer or other bytes than the request says.
        request(1, 64, &[put(), put()].concat()),
        request(3, 64, &[put(), put()].concat()),
        request(u64::MAX, 64, &[put(), put()].concat()),
        request(2, 63, &[put(), put()].concat()),
        request(2, 65, &[put(), put()].concat()),
        with(put()[..ENTRY - 1].to_vec()),
        with(put()[..ENTRY + 7].to_vec()),
        with(vec![0; 7]),
        // No operations that a batch has.
        with(entry(RemoteKind::Lock(LockKind::Shared), 0, 0, &[])),
        with(entry(RemoteKind::Unlock(LockKind::Exclusive), 0, 0, &[])),
        with(entry(RemoteKind::LostPuts, 0, 0, &[])),
        with(entry(RemoteKind::Batch, 0, 0, &[])),
        with([&(1u64 << 32 | 1).to_ne_bytes()[..], &words(&[0, 8, 5])].concat()),
        with(words(&[0, 0, 8, 5])),
        // Lengths that are not those of their operands.
        with(entry(RemoteKind::Put, 0, u64::MAX, &words(&[5]))),
        with(entry(RemoteKind::Update(SUM), 0, 4, &[1; 4])),
        with(entry(RemoteKind::Get, 0, u64::MAX, &[])),
        with(entry(RemoteKind::CompareSwap(NumberType::U64), 0, u64::MAX, &words(&[5, 6]))),
        with(entry(RemoteKind::CompareSwap(NumberType::U64), 0, 8, &words(&[5]))),
        // Longer than one request may be, or with a longer answer.
        batch(&[put(), entry(RemoteKind::Get, 0, reads, &[]), entry(RemoteKind::Get, 0, reads, &[])]),
        batch(&vec![put(); REMOTE_BYTES as usize / (ENTRY + 8) + 1]),
    ];
    let (mut world, [vc, _]) = world();
    for payload in wrong {
        let ended = ask(&mut world, vc, 1, RemoteKind::Batch, 0, &payload);
        assert!(matches!(ended, Some(Ended::Corrupt(_))), "{payload:?}");
        assert!(world.wire().sent.is_empty(), "{payload:?}");
    }
    assert_eq!(memory(&mut world), [0; BYTES]);
    assert!(window(&mut world).served.is_empty());
}

#[test]
fn a_batch_behind_a_lock_waits_with_it() {
    let (mut world, [vc, other]) = world();
    let (alone, lock) = (RemoteKind::Lock(LockKind::Exclusive), request(0, 0, &[]));
    assert_eq!(ask(&mut world, vc, 1, alone, 0, &lock), None);
    assert_eq!(ask(&mut world, other, 2, alone, 0, &lock), None);
    let payload = batch(&[entry(RemoteKind::Put, 0, 8, &words(&[5])), entry(RemoteKind::Get, 0, 8, &[])]);
    assert_eq!(ask(&mut world, other, 2, RemoteKind::Batch, 1, &payload), None);
    assert_eq!(answers(&mut world).len(), 1);
    assert_eq!(memory(&mut world), [0; BYTES]);
    let unlock = RemoteKind::Unlock(LockKind::Exclusive);
    assert_eq!(ask(&mut world, vc, 1, unlock, 1, &lock), None);
    world.step(transfer);
    let done = RemoteOutcome::Done;
    let bytes = [outcomes(&[done, done]), words(&[5])].concat();
    let mut left = answers(&mut world);
    left.sort_by_key(|answer| answer.0);
    assert_eq!(left, [(1, 1, done, vec![]), (2, 0, done, vec![]), (2, 1, done, bytes)]);
}

#[test]
fn short_operations_share_a_request_and_are_told_apart_by_its_answer() {
    let (mut world, [vc, _]) = world();
    let (mut old, mut read, mut swapped) = ([0; 8], [0; 16], [0; 8]);
    // The first batch leaves before its caller goes on, since nothing is under way that others could wait for.
    let first = post(&mut world, RemoteKind::Put, &mut words(&[1]), &mut [], 8);
    assert!(first.1.is_some());
    assert_eq!(requests(&mut world), [(RemoteKind::Batch, 1, entry(RemoteKind::Put, 8, 8, &words(&[1])))]);
    assert_eq!(post(&mut world, RemoteKind::Put, &mut words(&[2]), &mut [], 8).1, None);
    let fetch = post(&mut world, RemoteKind::FetchUpdate(SUM), &mut words(&[3]), &mut old, 8);
    let get = post(&mut world, RemoteKind::Get, &mut [], &mut read, 16);
    let swap = post(&mut world, RemoteKind::CompareSwap(NumberType::U64), &mut words(&[4, 5]), &mut swapped, 8);
    assert_eq!((fetch.1, get.1, swap.1), (None, None, None));
    let entries = [
        entry(RemoteKind::Put, 8, 8, &words(&[2])),
        entry(RemoteKind::FetchUpdate(SUM), 8, 8, &words(&[3])),
        entry(RemoteKind::Get, 8, 16, &[]),
        entry(RemoteKind::CompareSwap(NumberType::U64), 8, 8, &words(&[4, 5])),
    ];
    assert_eq!(requests(&mut world), [(RemoteKind::Batch, 4, entries.concat())]);
    let (done, out) = (RemoteOutcome::Done, RemoteOutcome::OutOfBounds);
    assert_eq!(answer(&mut world, vc, 0, 0, &outcomes(&[done])), None);
    let bytes = [outcomes(&[out, done, done, out]), words(&[7, 8, 9])].concat();
    assert_eq!(answer(&mut world, vc, 1, 0, &bytes), None);
    let expected = [(fetch.0, Ok(())), (get.0, Ok(())), (swap.0, Err(Failure::OutOfBounds))];
    assert_eq!(ended(&mut world), expected);
    assert_eq!((old.to_vec(), read.to_vec()), (words(&[7]), words(&[8, 9])));
    let target = &window(&mut world).targets[1];
    assert_eq!((target.issued, target.completed, target.failure), (5, 5, Some(Failure::OutOfBounds)));
    assert!(target.operations.is_empty());
}

#[test]
fn a_batch_has_so_many_bytes_and_callers_leave_one_behind_at_most() {
    let (mut world, _) = world();
    world.wire().room = Some(1);
    let first = post(&mut world, RemoteKind::Put, &mut [1; 8], &mut [], 8);
    assert_eq!(requests(&mut world).len(), 1);
    let in_one = REMOTE_BYTES as usize / (ENTRY + 8);
    for _ in 0..in_one {
        assert_eq!(post(&mut world, RemoteKind::Put, &mut [2; 8], &mut [], 8).1, None);
    }
    let full = window(&mut world).targets[1].operations.back().unwrap().number;
    assert_eq!(post(&mut world, RemoteKind::Put, &mut [3; 8], &mut [], 8).1, Some(full), "that has to leave first");
    // A long operation goes by itself, and in its turn.
    let length = BATCHED_BYTES as usize + 8;
    let (number, awaited) = post(&mut world, RemoteKind::Put, &mut vec![4; length], &mut [], length);
    assert_eq!(awaited, Some(number));
    assert!(first.0 < number);
    world.wire().room = None;
    let kinds: Vec<_> = requests(&mut world).into_iter().map(|(kind, count, _)| (kind, count)).collect();
    assert_eq!(kinds, [(RemoteKind::Batch, in_one as u64), (RemoteKind::Batch, 1), (RemoteKind::Put, 8)]);
}

#[test]
fn nothing_is_added_to_a_batch_that_a_transport_may_have_begun_with() {
    let (mut world, _) = world();
    world.wire().room = Some(0);
    post(&mut world, RemoteKind::Put, &mut [1; 8], &mut [], 8);
    assert_eq!(requests(&mut world), []);
    let begun = window(&mut world).targets[1].operations.back().unwrap().number;
    assert_eq!(post(&mut world, RemoteKind::Put, &mut [2; 8], &mut [], 8).1, Some(begun));
    world.wire().room = None;
    let counts: Vec<_> = requests(&mut world).into_iter().map(|(_, count, _)| count).collect();
    assert_eq!(counts, [1, 1]);
}

#[test]
fn answers_to_a_batch_that_no_honest_target_sends_end_the_link() {
    let (done, out) = (RemoteOutcome::Done, RemoteOutcome::OutOfBounds);
    let wrong = [
        (0, vec![]),
        (0, outcomes(&[done])),
        (0, outcomes(&[done, done])),
        (0, outcomes(&[done, done, done])),
        (0, [outcomes(&[done, out]), words(&[1])].concat()),
        (0, [outcomes(&[done, done]), words(&[1, 2])].concat()),
        (0, [4u32.to_ne_bytes().to_vec(), outcomes(&[done]), words(&[1])].concat()),
        (out.word(), outcomes(&[done, out])),
        (out.word(), vec![]),
    ];
    for (outcome, payload) in wrong {
        let (mut world, [vc, _]) = world();
        let mut old = [0; 8];
        post(&mut world, RemoteKind::Put, &mut words(&[1]), &mut [], 8);
        post(&mut world, RemoteKind::FetchUpdate(SUM), &mut words(&[3]), &mut old, 8);
        assert_eq!(requests(&mut world).len(), 1);
        let why = answer(&mut world, vc, 0, outcome, &payload);
        assert!(matches!(why, Some(Ended::Corrupt(_))), "{outcome} {payload:?}");
        assert_eq!((ended(&mut world), old), (vec![], [0; 8]));
        assert_eq!(window(&mut world).targets[1].completed, 0);
    }
    // A request that has not left has no answer.
    let (mut world, [vc, _]) = world();
    world.wire().room = Some(0);
    post(&mut world, RemoteKind::Put, &mut words(&[1]), &mut [], 8);
    assert!(matches!(answer(&mut world, vc, 0, 0, &outcomes(&[done])), Some(Ended::Corrupt(_))));
}

#[test]
fn what_a_batch_brings_is_a_copy_and_a_cut_only_takes_its_answers_away() {
    let (mut world, [vc, _]) = world();
    let (mut from, mut old) = (words(&[3]), [0; 8]);
    let (number, _) = post(&mut world, RemoteKind::FetchUpdate(SUM), &mut from, &mut old, 8);
    from.fill(0xEE);
    world.step(|rows, _| cut_operation(rows, HANDLE, 1, number));
    let left = requests(&mut world);
    assert_eq!(left, [(RemoteKind::Batch, 1, entry(RemoteKind::FetchUpdate(SUM), 8, 8, &words(&[3])))]);
    let bytes = [outcomes(&[RemoteOutcome::Done]), words(&[7])].concat();
    assert_eq!(answer(&mut world, vc, 0, 0, &bytes), None);
    assert_eq!((ended(&mut world), old), (vec![], [0; 8]));
    let target = &window(&mut world).targets[1];
    assert_eq!((target.issued, target.completed), (1, 1));
}

#[test]
fn operations_of_a_batch_end_with_its_target() {
    let (mut world, [vc, _]) = world();
    let mut read = [0; 8];
    let (number, _) = post(&mut world, RemoteKind::Get, &mut [], &mut read, 8);
    post(&mut world, RemoteKind::Put, &mut [1; 8], &mut [], 8);
    fail(&mut world.all(), vc, "it has died".into());
    assert_eq!(ended(&mut world), [(number, Err(Failure::TargetFailed))]);
    let target = &window(&mut world).targets[1];
    assert_eq!((target.operations.len(), target.issued, target.completed), (0, 2, 2));
    assert_eq!(target.failure, Some(Failure::TargetFailed));
}

#[test]
fn a_retired_window_still_takes_its_answers() {
    let (mut world, [vc, _]) = world();
    let mut read = [0; 8];
    let (number, _) = post(&mut world, RemoteKind::Get, &mut [], &mut read, 8);
    assert_eq!(requests(&mut world).len(), 1);
    world.all().windows.retire(HANDLE);
    let bytes = [outcomes(&[RemoteOutcome::Done]), words(&[7])].concat();
    assert_eq!(answer(&mut world, vc, 0, 0, &bytes), None);
    assert_eq!((ended(&mut world), read.to_vec()), (vec![(number, Ok(()))], words(&[7])));
}
