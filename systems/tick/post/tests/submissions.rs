//! Submissions of other threads: which become rows, and which are answered at once.

use super::*;

#[test]
fn submissions_become_rows() {
    let (mut world, vc) = world();
    world.submit(send(1, 5), b"abc".to_vec(), 2);
    world.submit(Operation::Receive { source: Source::Any, tag: TagFilter::Any }, vec![0; 8], 3);
    world.step(post);
    assert_eq!(kinds(&world), [Some(Kind::Eager)]);
    assert_eq!(world.finished().len(), 1);
    let all = world.all();
    let active = (0u32..).zip(all.requests.iter()).filter(|(_, request)| request.state == RequestState::Active);
    let submitted: Vec<u32> = active.filter_map(|(row, _)| all.callbacks.slot(row)).collect();
    assert_eq!((submitted, all.progress.active), (vec![2, 3], 2));
    assert!(!all.progress.wildcard.is_empty() && all.vcs[vc as usize].posted.is_empty());
}

#[test]
fn submissions_with_no_proc_are_done_at_once_if_their_arguments_are_right() {
    let (mut world, _) = world();
    let receive = |tag| Operation::Receive { source: Rank::NULL.into(), tag };
    world.submit(send(Rank::NULL.0, 5), b"abc".to_vec(), 0);
    world.submit(receive(TagFilter::Any), vec![0; 8], 1);
    world.submit(send(Rank::NULL.0, ANY), b"abc".to_vec(), 2);
    world.submit(receive(TagFilter::Tag(Tag(ANY))), vec![0; 8], 3);
    world.step(post);
    let shared = world.all().inbound.shared().clone();
    let answers = [0, 1, 2, 3].map(|slot: usize| match shared.slots[slot].lock().unwrap().answer.take() {
        Some((Answer::Done(ended), _)) => ended.map_err(|error| panic!("{error}")),
        Some((Answer::Refused(error), _)) => Err(error),
        None => panic!("slot {slot} has no answer"),
    });
    let refused = Err(PostError::Tag { tag: ANY });
    assert_eq!(answers, [Ok(Status::NULL), Ok(Status::NULL), refused.clone(), refused]);
    assert!(world.wire().sent.is_empty() && world.all().progress.active == 0);
}

#[test]
fn wrong_submissions_are_answered_and_hold_nothing_up() {
    let (mut world, _) = world();
    world.submit(send(9, 5), Vec::new(), 0);
    world.submit(send(1, 1 << 31), Vec::new(), 1);
    world.submit(send(1, 5), b"abc".to_vec(), 2);
    world.step(post);
    assert_eq!(world.wire().sent.len(), 1);
    let shared = world.all().inbound.shared().clone();
    let refusals = [0, 1].map(|slot: usize| match shared.slots[slot].lock().unwrap().answer.take() {
        Some((Answer::Refused(error), _)) => error,
        other => panic!("{:?}", other.map(|(answer, _)| answer)),
    });
    assert_eq!(refusals, [PostError::Rank { rank: 9, last: 2 }, PostError::Tag { tag: 1 << 31 }]);
}

#[test]
fn a_submission_to_a_proc_that_was_never_contacted_waits_for_the_contact() {
    let (mut world, _) = world();
    world.submit(send(2, 5), b"abc".to_vec(), 0);
    world.submit(send(1, 6), b"abc".to_vec(), 1);
    world.step(post);
    let all = world.all();
    assert_eq!((&all.progress.to_contact[..], all.inbound.waiting().len()), (&[2][..], 1));
    assert!(all.progress.pending.has(Pending::WORLD) && world.wire().sent.is_empty(), "order is kept");
    world.contact(2, VcState::Connected);
    world.step(post);
    assert_eq!(world.wire().sent.iter().map(|f| (f.link, f.header.tag())).collect::<Vec<_>>(), [(2, 5), (1, 6)]);
}

#[test]
fn without_rows_a_submission_waits_and_at_the_bound_it_is_refused() {
    let mut world = TestWorld::with(2, Limits { cars_max: 2, ..Limits::default() }, 2);
    world.contact(1, VcState::Connecting);
    for _ in 0..2 {
        world.send(1, 1, &[b"x"]);
    }
    world.submit(send(1, 5), b"abc".to_vec(), 0);
    world.step(post);
    assert_eq!(world.all().inbound.waiting().len(), 1);
    world.all().progress.rows_exhausted = true;
    world.step(post);
    let shared = world.all().inbound.shared().clone();
    let answer = shared.slots[0].lock().unwrap().answer.take();
    assert!(matches!(answer, Some((Answer::Refused(PostError::Full { .. }), _))));
}
