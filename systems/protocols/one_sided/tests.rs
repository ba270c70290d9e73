mod batches;
mod origin;

use super::frames::LEAD;
use super::*;
use crate::procs::connections::ask_after_holders;
use crate::procs::ending::fail;
use crate::procs::windows::{Epochs, OwnMemory, Reach, Target};
use crate::testing::{SentFrame, TestWorld};
use crate::tick::match_cars::match_cars;
use crate::tick::transfer::transfer;
use std::collections::VecDeque;
use tickwire_components::limits::REMOTE_BYTES;
use tickwire_components::{AtomicsDomain, Ended, LockKind, NIL, NumberType, Span, UpdateCode, UpdateOperation};
use tickwire_transports::shared::SharedRun;
use tickwire_transports::windows::{Memory, Part, control_bytes};

/// The window's handle, and the id of its context.
const HANDLE: u32 = 4;
/// The incarnation of its context.
const INCARNATION: u32 = 3;
/// Bytes of this process's part; it is rank 0 of three.
const BYTES: usize = 64;
const SUM: UpdateCode = UpdateCode { number: NumberType::U64, operation: UpdateOperation::Sum };

fn word() -> u32 {
    context::word(HANDLE, INCARNATION) | context::WINDOW
}

/// A world of three procs with a window of all of them, and the VCs of the others. The epoch of a fence is open.
fn world() -> (TestWorld, [Row; 2]) {
    let mut world = TestWorld::new(3);
    let vcs = [1, 2].map(|proc| world.contact(proc, VcState::Connected));
    let run = SharedRun::private(control_bytes(3) + BYTES).unwrap();
    let part = Part::new(run, Memory::Behind(BYTES), 3, 0, false).unwrap();
    let own = Target::new(NIL, BYTES as u64, Reach::Memory(part));
    let others = vcs.map(|vc| Target::new(vc, 1 << 20, Reach::Engine));
    let window = WindowRow {
        handle: HANDLE,
        context: context::word(HANDLE, INCARNATION),
        rank: 0,
        targets: std::iter::once(own).chain(others).collect(),
        domain: AtomicsDomain::Engine,
        own: OwnMemory::Allocated,
        epochs: Epochs { fence_exposes: true, ..Epochs::default() },
        served: VecDeque::new(),
        is_retired: false,
        fabric_key: None,
        has_fabric: false,
        has_puts_in_flight: false,
    };
    world.all().windows.add(window);
    (world, vcs)
}

fn window(world: &mut TestWorld) -> &mut WindowRow {
    world.all().windows.list[HANDLE as usize].as_deref_mut().unwrap()
}

/// The payload of a request.
fn request(at: u64, length: u64, operands: &[u8]) -> Vec<u8> {
    [&at.to_ne_bytes()[..], &length.to_ne_bytes(), operands].concat()
}

/// A frame of rank 1, or of the given rank, arrives. Returns what is wrong, if the link ends.
fn arrive(world: &mut TestWorld, vc: Row, header: Header, payload: &[u8]) -> Option<Ended> {
    world.arrive(vc, header, payload);
    world.step(match_cars);
    world.step(transfer);
    let mut ended = world.take_ended();
    assert!(ended.len() <= 1 && ended.iter().all(|(row, _)| *row == vc), "{ended:?}");
    ended.pop().map(|(_, why)| why)
}

fn ask(world: &mut TestWorld, vc: Row, source: u32, kind: RemoteKind, number: u32, payload: &[u8]) -> Option<Ended> {
    let header = Header::new(Kind::Remote, word(), source, kind.word(), number, payload.len() as u64);
    arrive(world, vc, header, payload)
}

/// The answers that have left since the last call: link, number, outcome and bytes.
fn answers(world: &mut TestWorld) -> Vec<(u32, u32, RemoteOutcome, Vec<u8>)> {
    let sent = std::mem::take(&mut world.wire().sent);
    let answer = |SentFrame { link, header, payload, .. }| {
        assert_eq!((header.kind(), header.context(), header.source()), (Some(Kind::Answer), word(), 0));
        (link, header.message(), RemoteOutcome::from_word(header.tag()).unwrap(), payload)
    };
    sent.into_iter().map(answer).collect()
}

fn memory(world: &mut TestWorld) -> Vec<u8> {
    let mut bytes = vec![0; BYTES];
    let part = window(world).own_part().unwrap();
    // SAFETY: a buffer of this function's own.
    assert!(unsafe { part.get(0, Span::new(bytes.as_mut_ptr(), BYTES)) });
    bytes
}

fn words(values: &[u64]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_ne_bytes()).collect()
}

#[test]
fn requests_are_done_and_answered_in_their_order() {
    let (mut world, [vc, _]) = world();
    let requests = [
        (RemoteKind::Put, request(8, 16, &words(&[5, 6]))),
        (RemoteKind::Update(SUM), request(8, 8, &words(&[10]))),
        (RemoteKind::FetchUpdate(SUM), request(8, 16, &words(&[1, 2]))),
        (RemoteKind::CompareSwap(NumberType::U64), request(16, 8, &words(&[8, 9]))),
        (RemoteKind::Get, request(8, 16, &[])),
        (RemoteKind::Get, request(64, 0, &[])),
    ];
    for (number, (kind, payload)) in (7..).zip(requests) {
        assert_eq!(ask(&mut world, vc, 1, kind, number, &payload), None);
    }
    let bytes = [vec![], vec![], words(&[15, 6]), words(&[8]), words(&[16, 9]), vec![]];
    let expected: Vec<_> = (7..).zip(bytes).map(|(number, bytes)| (1, number, RemoteOutcome::Done, bytes)).collect();
    assert_eq!(answers(&mut world), expected);
    assert_eq!(memory(&mut world), words(&[0, 16, 9, 0, 0, 0, 0, 0]));
}

#[test]
fn what_is_not_within_the_part_is_answered_so_and_changes_nothing() {
    let (mut world, [vc, _]) = world();
    let last = BYTES as u64;
    let requests = [
        (RemoteKind::Put, request(last - 7, 8, &words(&[5]))),
        (RemoteKind::Put, request(u64::MAX, 8, &words(&[5]))),
        (RemoteKind::Put, request(u64::MAX - 7, 8, &words(&[5]))),
        (RemoteKind::Get, request(last, 1, &[])),
        (RemoteKind::Get, request(u64::MAX, 2, &[])),
        (RemoteKind::Get, request(0, REMOTE_BYTES, &[])),
        (RemoteKind::Update(SUM), request(last, 8, &words(&[5]))),
        (RemoteKind::Update(SUM), request(4, 8, &words(&[5]))),
        (RemoteKind::FetchUpdate(SUM), request(u64::MAX - 7, 8, &words(&[5]))),
        (RemoteKind::FetchUpdate(SUM), request(1, 8, &words(&[5]))),
        (RemoteKind::CompareSwap(NumberType::U64), request(last - 4, 8, &words(&[0, 5]))),
        (RemoteKind::CompareSwap(NumberType::U16), request(3, 2, &words(&[0, 5]))),
        (RemoteKind::Unlock(LockKind::Shared), request(0, 0, &[])),
    ];
    for (kind, payload) in requests {
        assert_eq!(ask(&mut world, vc, 1, kind, 0, &payload), None, "{kind:?}");
        assert_eq!(answers(&mut world), [(1, 0, RemoteOutcome::OutOfBounds, vec![])], "{kind:?}");
    }
    assert_eq!(memory(&mut world), [0; BYTES]);
}

#[test]
fn who_is_in_no_epoch_is_told_so_and_changes_nothing() {
    let (mut world, [vc, other]) = world();
    window(&mut world).epochs.fence_exposes = false;
    let requests = [
        (RemoteKind::Put, request(0, 8, &words(&[5]))),
        (RemoteKind::Get, request(0, 8, &[])),
        (RemoteKind::Update(SUM), request(0, 8, &words(&[5]))),
        (RemoteKind::FetchUpdate(SUM), request(0, 8, &words(&[5]))),
        (RemoteKind::CompareSwap(NumberType::U64), request(0, 8, &words(&[0, 5]))),
    ];
    let outcomes = |world: &mut TestWorld, vc, source, expected| {
        for (kind, payload) in &requests {
            assert_eq!(ask(world, vc, source, *kind, 0, payload), None, "{kind:?}");
            let outcomes: Vec<_> = answers(world).into_iter().map(|(_, _, outcome, _)| outcome).collect();
            assert_eq!(outcomes, [expected], "{kind:?}");
        }
    };
    outcomes(&mut world, vc, 1, RemoteOutcome::NotExposed);
    assert_eq!(memory(&mut world), [0; BYTES]);
    // An epoch that is posted to one rank admits no other one.
    window(&mut world).targets[1].is_admitted = true;
    outcomes(&mut world, vc, 1, RemoteOutcome::Done);
    outcomes(&mut world, other, 2, RemoteOutcome::NotExposed);
    window(&mut world).targets[1].is_admitted = false;
    // Nor does a lock.
    let lock = request(0, 0, &[]);
    for kind in [LockKind::Shared, LockKind::Exclusive] {
        assert_eq!(ask(&mut world, other, 2, RemoteKind::Lock(kind), 0, &lock), None);
        answers(&mut world);
        outcomes(&mut world, other, 2, RemoteOutcome::Done);
        outcomes(&mut world, vc, 1, RemoteOutcome::NotExposed);
        assert_eq!(ask(&mut world, other, 2, RemoteKind::Unlock(kind), 0, &lock), None);
        answers(&mut world);
        outcomes(&mut world, other, 2, RemoteOutcome::NotExposed);
    }
}

#[test]
fn requests_that_no_honest_origin_sends_end_the_link() {
    let put = request(0, 8, &words(&[5]));
    let header = |word, source, tag, bytes: &[u8]| Header::new(Kind::Remote, word, source, tag, 0, bytes.len() as u64);
    let of = |kind: RemoteKind, payload: Vec<u8>| (header(word(), 1, kind.word(), &payload), payload);
    let tagged = |tag| (header(word(), 1, tag, &put), put.clone());
    let within = |word| (header(word, 1, RemoteKind::Put.word(), &put), put.clone());
    let from = |source| (header(word(), source, RemoteKind::Put.word(), &put), put.clone());
    let long = vec![0; REMOTE_BYTES as usize + 16];
    let short: Vec<_> = [0, 1, 15].map(|bytes| of(RemoteKind::Get, put[..bytes].to_vec())).into();
    let wrong = [
        // Another source than the sender.
        from(0),
        from(2),
        from(3),
        from(u32::MAX),
        // No such window.
        within(context::word(HANDLE, INCARNATION)),
        within(context::word(HANDLE, INCARNATION) | context::COLLECTIVE),
        within(context::word(HANDLE, INCARNATION + 1) | context::WINDOW),
        within(context::word(HANDLE - 1, INCARNATION) | context::WINDOW),
        within(context::word(HANDLE + 1, INCARNATION) | context::WINDOW),
        within(u32::MAX),
        // No such operation.
        tagged(0),
        tagged(11),
        tagged(3),
        tagged(1 << 8 | 1),
        tagged(u32::MAX),
        // Another number of operands than it says.
        of(RemoteKind::Put, request(0, 9, &words(&[5]))),
        of(RemoteKind::Put, request(0, 7, &words(&[5]))),
        of(RemoteKind::Put, request(0, u64::MAX, &words(&[5]))),
        of(RemoteKind::Put, request(0, long.len() as u64, &long)),
        of(RemoteKind::Get, request(0, 8, &words(&[5]))),
        of(RemoteKind::Get, request(0, REMOTE_BYTES + 1, &[])),
        of(RemoteKind::Get, request(0, u64::MAX, &[])),
        of(RemoteKind::Update(SUM), request(0, 4, &[1; 4])),
        of(RemoteKind::Update(SUM), request(0, 16, &words(&[5]))),
        of(RemoteKind::FetchUpdate(SUM), request(0, long.len() as u64, &long)),
        of(RemoteKind::CompareSwap(NumberType::U64), request(0, 8, &words(&[5]))),
        of(RemoteKind::CompareSwap(NumberType::U64), request(0, 4, &words(&[5, 6]))),
        of(RemoteKind::CompareSwap(NumberType::U64), request(0, 8, &words(&[5, 6, 7]))),
        of(RemoteKind::Lock(LockKind::Shared), request(0, 8, &[])),
        of(RemoteKind::Lock(LockKind::Exclusive), request(0, 0, &words(&[5]))),
        of(RemoteKind::Unlock(LockKind::Exclusive), request(0, 1, &[1])),
        of(RemoteKind::LostPuts, request(0, 8, &[])),
        of(RemoteKind::LostPuts, request(0, 0, &words(&[5]))),
    ];
    // Regions have no epochs.
    let of_regions =
        [RemoteKind::Lock(LockKind::Exclusive), RemoteKind::Unlock(LockKind::Shared), RemoteKind::LostPuts]
            .map(|kind| (Header::new(Kind::Remote, context::WINDOW, 1, kind.word(), 0, 16), request(0, 0, &[])));
    let (mut world, [vc, _]) = world();
    for (header, payload) in wrong.into_iter().chain(short).chain(of_regions) {
        let ended = arrive(&mut world, vc, header, &payload);
        assert!(matches!(ended, Some(Ended::Corrupt(_))), "{header:?} {payload:?}");
        assert!(world.wire().sent.is_empty(), "{header:?} {payload:?}");
    }
    assert_eq!(memory(&mut world), [0; BYTES]);
    assert!(window(&mut world).served.is_empty() && !window(&mut world).has_puts_in_flight);
}

#[test]
fn an_origin_has_a_bounded_number_of_requests_without_an_answer() {
    let (mut world, [vc, other]) = world();
    world.wire().room = Some(0);
    for number in 0..REMOTE_FRAMES {
        assert_eq!(ask(&mut world, vc, 1, RemoteKind::Get, number, &request(0, 8, &[])), None);
    }
    assert_eq!(ask(&mut world, other, 2, RemoteKind::Get, 0, &request(0, 8, &[])), None, "each has its own");
    let ended = ask(&mut world, vc, 1, RemoteKind::Get, REMOTE_FRAMES, &request(0, 8, &[]));
    assert!(matches!(ended, Some(Ended::Corrupt(_))));
    // Once there is room, all requests that were taken are answered, and more are taken.
    world.wire().room = None;
    world.step(transfer);
    assert_eq!(answers(&mut world).len() as u32, REMOTE_FRAMES + 1);
    assert_eq!(ask(&mut world, vc, 1, RemoteKind::Get, 0, &request(0, 8, &[])), None);
}

#[test]
fn an_origin_that_takes_no_answer_holds_up_no_other_one() {
    let (mut world, [vc, other]) = world();
    world.wire().full = vec![1];
    for number in 0..2 {
        assert_eq!(ask(&mut world, vc, 1, RemoteKind::Put, number, &request(0, 8, &words(&[5]))), None);
        assert_eq!(ask(&mut world, other, 2, RemoteKind::Get, number, &request(0, 8, &[])), None);
    }
    let done = RemoteOutcome::Done;
    assert_eq!(answers(&mut world), [(2, 0, done, words(&[5])), (2, 1, done, words(&[5]))]);
    world.wire().full.clear();
    world.step(transfer);
    assert_eq!(answers(&mut world), [(1, 0, done, vec![]), (1, 1, done, vec![])], "in their order");
}

#[test]
fn an_answer_that_a_transport_may_have_begun_with_stays_as_it_was() {
    let (mut world, [vc, other]) = world();
    world.step(|_, wire| wire.endpoints[0].by_post = true);
    assert_eq!(ask(&mut world, other, 2, RemoteKind::Put, 0, &request(0, 8, &words(&[5]))), None);
    world.wire().full = vec![1];
    assert_eq!(ask(&mut world, vc, 1, RemoteKind::Get, 0, &request(0, 8, &[])), None);
    assert_eq!(ask(&mut world, other, 2, RemoteKind::Put, 1, &request(0, 8, &words(&[6]))), None);
    answers(&mut world);
    world.wire().full.clear();
    world.step(transfer);
    assert_eq!(answers(&mut world), [(1, 0, RemoteOutcome::Done, words(&[5]))]);
    assert_eq!(memory(&mut world)[..8], words(&[6]));
}

#[test]
fn who_waits_for_a_lock_holds_nobody_else_up_and_keeps_its_order() {
    let (mut world, [vc, other]) = world();
    let [alone, shared] = [LockKind::Exclusive, LockKind::Shared];
    let lock = request(0, 0, &[]);
    assert_eq!(ask(&mut world, vc, 1, RemoteKind::Lock(alone), 0, &lock), None);
    assert_eq!(ask(&mut world, other, 2, RemoteKind::Lock(shared), 0, &lock), None);
    assert_eq!(ask(&mut world, other, 2, RemoteKind::Put, 1, &request(0, 8, &words(&[2]))), None);
    assert_eq!(ask(&mut world, vc, 1, RemoteKind::Put, 1, &request(8, 8, &words(&[1]))), None);
    let done = |link, number| (link, number, RemoteOutcome::Done, vec![]);
    assert_eq!(answers(&mut world), [done(1, 0), done(1, 1)]);
    assert_eq!(memory(&mut world)[..16], words(&[0, 1]), "the put behind the lock waits with it");
    assert_eq!(ask(&mut world, vc, 1, RemoteKind::Unlock(shared), 2, &lock), None);
    assert_eq!(answers(&mut world), [(1, 2, RemoteOutcome::OutOfBounds, vec![])], "it does not share it");
    assert_eq!(ask(&mut world, vc, 1, RemoteKind::Unlock(alone), 3, &lock), None);
    world.step(transfer);
    let mut left = answers(&mut world);
    left.sort_by_key(|answer| answer.0);
    assert_eq!(left, [done(1, 3), done(2, 0), done(2, 1)]);
    assert_eq!(memory(&mut world)[..16], words(&[2, 1]));
}

#[test]
fn who_waits_for_a_lock_is_told_that_its_holder_has_failed() {
    let (mut world, [vc, other]) = world();
    let lock = request(0, 0, &[]);
    assert_eq!(ask(&mut world, vc, 1, RemoteKind::Lock(LockKind::Exclusive), 0, &lock), None);
    assert_eq!(ask(&mut world, vc, 1, RemoteKind::Lock(LockKind::Exclusive), 1, &lock), None);
    assert_eq!(ask(&mut world, other, 2, RemoteKind::Lock(LockKind::Shared), 0, &lock), None);
    let twice = (1, 1, RemoteOutcome::OutOfBounds, vec![]);
    assert_eq!(answers(&mut world), [(1, 0, RemoteOutcome::Done, vec![]), twice], "it holds the lock already");
    fail(&mut world.all(), vc, "it has died".into());
    world.step(transfer);
    assert_eq!(answers(&mut world), [(2, 0, RemoteOutcome::HolderFailed(1), vec![])]);
}

#[test]
fn an_origin_says_that_puts_of_it_are_lost_within_and_without_an_epoch() {
    for exposes in [true, false] {
        let (mut world, [vc, other]) = world();
        window(&mut world).epochs.fence_exposes = exposes;
        assert_eq!(ask(&mut world, other, 2, RemoteKind::LostPuts, 0, &request(u64::MAX, 0, &[])), None);
        assert_eq!(answers(&mut world), [(2, 0, RemoteOutcome::Done, vec![])]);
        fail(&mut world.all(), other, "it has died".into());
        assert_eq!(ask(&mut world, vc, 1, RemoteKind::Lock(LockKind::Shared), 0, &request(0, 0, &[])), None);
        assert!(window(&mut world).has_puts_in_flight, "for good");
    }
}

#[test]
fn an_update_lock_is_taken_over_from_a_process_that_has_ended_not_from_one_whose_connection_has_failed() {
    let (mut world, [vc, other]) = world();
    let run = SharedRun::private(control_bytes(3) + BYTES).unwrap();
    let [own, holders] = [0, 1].map(|me| Part::new(run.clone(), Memory::Behind(BYTES), 3, me, false).unwrap());
    window(&mut world).targets[0].reach = Reach::Memory(own);
    let guard = holders.lock_updates(|_| false).unwrap();
    assert_eq!(ask(&mut world, other, 2, RemoteKind::Update(SUM), 0, &request(0, 8, &words(&[5]))), None);
    assert_eq!(
        ask(&mut world, other, 2, RemoteKind::CompareSwap(NumberType::U64), 1, &request(0, 8, &words(&[5, 6]))),
        None
    );
    fail(&mut world.all(), vc, "its call has failed".into());
    let look = |world: &mut TestWorld| {
        ask_after_holders(&mut world.store.as_mut());
        world.step(transfer);
        answers(world)
    };
    assert_eq!(look(&mut world), [], "its process lives");
    world.wire().ended.push(1);
    let done = [(2, 0, RemoteOutcome::Done, vec![]), (2, 1, RemoteOutcome::Done, words(&[5]))];
    assert_eq!(look(&mut world), done);
    assert_eq!((memory(&mut world)[..8].to_vec(), world.all().procs.gone.clone()), (words(&[6]), vec![vc]));
    drop(guard);
}

#[test]
fn what_a_dead_member_waits_for_is_forgotten() {
    let (mut world, [vc, other]) = world();
    let lock = request(0, 0, &[]);
    assert_eq!(ask(&mut world, other, 2, RemoteKind::Lock(LockKind::Shared), 0, &lock), None);
    assert_eq!(ask(&mut world, vc, 1, RemoteKind::Lock(LockKind::Exclusive), 0, &lock), None);
    assert_eq!(answers(&mut world), [(2, 0, RemoteOutcome::Done, vec![])]);
    assert_eq!(window(&mut world).served.len(), 1);
    fail(&mut world.all(), vc, "it has died".into());
    assert_eq!(window(&mut world).served.len(), 0);
}

#[test]
fn a_retired_window_answers_those_that_have_not_heard_of_a_failure() {
    let (mut world, [vc, _]) = world();
    world.all().windows.retire(HANDLE);
    assert!(world.all().windows.get(HANDLE).is_none(), "the application has it no more");
    assert_eq!(ask(&mut world, vc, 1, RemoteKind::Put, 0, &request(0, 8, &words(&[5]))), None);
    assert_eq!(answers(&mut world), [(1, 0, RemoteOutcome::Done, vec![])]);
}
