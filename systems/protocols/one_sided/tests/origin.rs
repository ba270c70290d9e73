//! The origin's side: answers that arrive.

use super::*;

/// An operation on rank 1's part that a call waits for, with `into` as the place for its answers.
fn post(world: &mut TestWorld, kind: RemoteKind, from: &mut [u8], into: &mut [u8], length: usize) -> u64 {
    let number = world.all().windows.number();
    // SAFETY: the test keeps both until the operation has ended.
    let [from, into] = [from, into].map(|bytes| unsafe { Span::new(bytes.as_mut_ptr(), bytes.len()) });
    let operation = RemoteOperation::new(number, kind, 8, length as u64);
    let operation = RemoteOperation { from, into, awaited: true, ..operation };
    world.step(|rows, _| post_remote(rows, HANDLE, 1, operation));
    world.step(transfer);
    number
}

pub(super) fn answer(world: &mut TestWorld, vc: Row, number: u32, outcome: u32, payload: &[u8]) -> Option<Ended> {
    let header = Header::new(Kind::Answer, word(), 1, outcome, number, payload.len() as u64);
    arrive(world, vc, header, payload)
}

pub(super) fn ended(world: &mut TestWorld) -> Vec<(u64, Result<(), Failure>)> {
    std::mem::take(&mut world.all().windows.ended)
}

#[test]
fn a_long_operation_is_several_requests_and_only_so_many_go_without_an_answer() {
    let (mut world, [vc, _]) = world();
    let length = REMOTE_BYTES as usize * (REMOTE_FRAMES as usize + 1) + 48;
    let mut from: Vec<u8> = (0..length).map(|at| (at * 7) as u8).collect();
    let number = post(&mut world, RemoteKind::Put, &mut from.clone()[..0], &mut [], 0);
    assert_eq!(answer(&mut world, vc, 0, 0, &[]), None);
    assert_eq!(ended(&mut world), [(number, Ok(()))], "one without bytes is one request");
    let number = post(&mut world, RemoteKind::Put, &mut from, &mut [], length);
    let (mut target, mut next) = (vec![0; length], 1);
    for sent in [REMOTE_FRAMES, 2] {
        let frames: Vec<_> = std::mem::take(&mut world.wire().sent);
        let frames: Vec<_> = frames.into_iter().filter(|frame| frame.payload.len() > LEAD).collect();
        assert_eq!(frames.len() as u32, sent);
        for SentFrame { header, payload, .. } in frames {
            assert_eq!((header.kind(), header.message()), (Some(Kind::Remote), next));
            let at = u64::from_ne_bytes(payload[..8].try_into().unwrap()) as usize - 8;
            target[at..at + payload.len() - LEAD].copy_from_slice(&payload[LEAD..]);
            assert_eq!(ended(&mut world), []);
            assert_eq!(answer(&mut world, vc, next, 0, &[]), None);
            next += 1;
        }
    }
    assert_eq!(ended(&mut world), [(number, Ok(()))]);
    assert!(target == from);
    assert!(window(&mut world).targets[1].operations.is_empty());
}

#[test]
fn answers_that_no_honest_target_sends_end_the_link_and_write_nothing() {
    let [done, outside] = [RemoteOutcome::Done, RemoteOutcome::OutOfBounds].map(RemoteOutcome::word);
    let wrong: [(u32, u32, usize); 10] = [
        // Another number than that of the first request that is still to be answered.
        (1, done, 32),
        (u32::MAX, done, 32),
        // Another length than was asked for.
        (0, done, 33),
        (0, done, 64),
        (0, done, 31),
        (0, done, 0),
        // Bytes, though it was not done.
        (0, outside, 32),
        // No outcome.
        (0, 4, 0),
        (0, 1 << 8, 32),
        (0, u32::MAX, 0),
    ];
    let (mut world, [vc, other]) = world();
    let mut buffer = [0xEE; 64];
    let (got, _) = buffer.split_at_mut(32);
    let number = post(&mut world, RemoteKind::Get, &mut [], got, 32);
    for (message, outcome, bytes) in wrong {
        let ended = answer(&mut world, vc, message, outcome, &vec![1; bytes]);
        assert!(matches!(ended, Some(Ended::Corrupt(_))), "{message} {outcome} {bytes}");
    }
    // Of another rank, over another VC, in another plane or window.
    let frame = |word, source| Header::new(Kind::Answer, word, source, done, 0, 32);
    let base = context::word(HANDLE, INCARNATION);
    let of_others = [
        (vc, frame(word(), 0)),
        (vc, frame(word(), 2)),
        (vc, frame(word(), 3)),
        (other, frame(word(), 1)),
        (other, frame(word(), 2)),
        (vc, frame(base, 1)),
        (vc, frame(base | context::BLOCK, 1)),
        (vc, frame(context::word(HANDLE + 1, INCARNATION) | context::WINDOW, 1)),
        (vc, frame(context::word(HANDLE, INCARNATION - 1) | context::WINDOW, 1)),
    ];
    for (vc, header) in of_others {
        let ended = arrive(&mut world, vc, header, &[1; 32]);
        assert!(matches!(ended, Some(Ended::Corrupt(_))), "{header:?}");
    }
    assert_eq!(buffer, [0xEE; 64], "nothing is written");
    assert_eq!(ended(&mut world), []);
    assert_eq!(answer(&mut world, vc, 0, done, &[1; 32]), None, "what was asked for is still taken");
    assert_eq!(buffer, [[1; 32], [0xEE; 32]].concat()[..]);
    assert_eq!(ended(&mut world), [(number, Ok(()))]);
    assert!(matches!(answer(&mut world, vc, 1, done, &[]), Some(Ended::Corrupt(_))), "there is nothing to answer");
}

#[test]
fn an_answer_without_bytes_has_none_and_failures_are_told() {
    let (mut world, [vc, _]) = world();
    let [done, outside] = [RemoteOutcome::Done, RemoteOutcome::OutOfBounds].map(RemoteOutcome::word);
    let holder = RemoteOutcome::HolderFailed(2).word();
    let numbers = [
        post(&mut world, RemoteKind::Put, &mut [1; 8], &mut [], 8),
        post(&mut world, RemoteKind::Update(SUM), &mut [1; 8], &mut [], 8),
        post(&mut world, RemoteKind::Lock(LockKind::Shared), &mut [], &mut [], 0),
    ];
    for (at, (outcome, failure)) in
        [(outside, Failure::OutOfBounds), (outside, Failure::OutOfBounds), (holder, Failure::HolderFailed(2))]
            .into_iter()
            .enumerate()
    {
        let early = answer(&mut world, vc, at as u32, done, &[0]);
        assert!(matches!(early, Some(Ended::Corrupt(_))), "it has no bytes");
        assert_eq!(answer(&mut world, vc, at as u32, outcome, &[]), None);
        assert_eq!(ended(&mut world), [(numbers[at], Err(failure))]);
    }
}

#[test]
fn an_answer_to_an_operation_whose_buffer_was_taken_away_goes_nowhere() {
    let (mut world, [vc, _]) = world();
    let mut buffer = [0xEE; 32];
    let number = post(&mut world, RemoteKind::Get, &mut [], &mut buffer, 32);
    world.step(|rows, _| cut_operation(rows, HANDLE, 1, number));
    assert_eq!(answer(&mut world, vc, 0, 0, &[1; 32]), None);
    assert_eq!(buffer, [0xEE; 32]);
    let target = &window(&mut world).targets[1];
    assert_eq!((target.operations.len(), target.issued, target.completed), (0, 1, 1));
}

#[test]
fn a_frame_that_was_taken_in_part_is_sent_whole_though_its_buffer_was_taken_away() {
    let length = 2 * REMOTE_BYTES as usize;
    for in_part in [false, true] {
        let (mut world, [vc, _]) = world();
        world.step(|_, wire| wire.endpoints[0].by_post = in_part);
        let mut buffer: Vec<u8> = (0..length).map(|at| at as u8).collect();
        let expected = buffer.clone();
        world.wire().room = Some(1);
        let number = post(&mut world, RemoteKind::Put, &mut buffer, &mut [], length);
        world.step(|rows, _| cut_operation(rows, HANDLE, 1, number));
        buffer.fill(0xEE);
        let mut short = [7; 8];
        let behind = post(&mut world, RemoteKind::Put, &mut short, &mut [], 8);
        world.wire().room = None;
        world.step(transfer);
        let frames: Vec<_> = std::mem::take(&mut world.wire().sent);
        // The transport may have taken a part of the second half.
        let bytes: Vec<&[u8]> = frames.iter().map(|frame| &frame.payload[LEAD..]).collect();
        let halves = expected.chunks(REMOTE_BYTES as usize).take(1 + usize::from(in_part));
        assert!(bytes[..].iter().copied().eq(halves.chain([&short[..]])), "{in_part}: {}", bytes.len());
        for number in 0..frames.len() as u32 {
            assert_eq!(answer(&mut world, vc, number, 0, &[]), None);
        }
        assert_eq!(ended(&mut world), [(behind, Ok(()))], "nobody waits for the other one");
        let target = &window(&mut world).targets[1];
        assert_eq!((target.operations.len(), target.issued, target.completed), (0, 2, 2));
    }
}

#[test]
fn an_operation_to_a_member_that_has_failed_ends_whenever_it_is_posted() {
    let (mut world, [vc, _]) = world();
    let before = post(&mut world, RemoteKind::Get, &mut [], &mut [0; 8], 8);
    fail(&mut world.all(), vc, "it has died".into());
    assert_eq!(ended(&mut world), [(before, Err(Failure::TargetFailed))]);
    world.wire().sent.clear();
    for kind in [RemoteKind::Lock(LockKind::Shared), RemoteKind::Unlock(LockKind::Shared), RemoteKind::Put] {
        let after = post(&mut world, kind, &mut [], &mut [], 0);
        assert_eq!(ended(&mut world), [(after, Err(Failure::TargetFailed))], "{kind:?}");
    }
    let target = &window(&mut world).targets[1];
    assert_eq!((target.operations.len(), target.issued, target.completed), (0, 2, 2));
    assert!(world.wire().sent.is_empty());
}

#[test]
fn a_cut_leaves_nothing_of_an_operation_whose_requests_are_all_answered() {
    let length = 3 * REMOTE_BYTES as usize;
    let (mut world, [vc, _]) = world();
    let mut buffer = vec![1; length];
    world.wire().room = Some(1);
    let number = post(&mut world, RemoteKind::Put, &mut buffer, &mut [], length);
    assert_eq!(world.wire().sent.len(), 1);
    world.wire().room = Some(0);
    assert_eq!(answer(&mut world, vc, 0, 0, &[]), None);
    world.step(|rows, _| cut_operation(rows, HANDLE, 1, number));
    let target = &window(&mut world).targets[1];
    assert_eq!((target.operations.len(), target.issued, target.completed), (0, 1, 1));
    // The next answer belongs to the next operation.
    world.wire().room = None;
    let next = post(&mut world, RemoteKind::Put, &mut buffer[..8], &mut [], 8);
    assert_eq!(answer(&mut world, vc, 1, 0, &[]), None);
    assert_eq!(ended(&mut world), [(next, Ok(()))]);
}
