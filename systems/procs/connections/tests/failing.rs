//! VCs that fail and procs that die: who is told, and why.

use super::*;
use crate::tick::match_cars::match_cars;
use crate::tick::supply_buffers::supply_buffers;
use crate::tick::transfer::transfer;
use tickwire_components::Members;
use tickwire_components::submission::OwedToThread;
use tickwire_components::wire::{Header, Kind};

#[test]
fn a_vc_fails_once_and_does_not_come_back() {
    let mut world = TestWorld::new(4);
    let one = world.contact(1, VcState::Connected);
    let failed = |reason: &str| LinkEvent::Failed { link: 1, reason: reason.into() };
    tell(&mut world, &[failed("first"), failed("second"), LinkEvent::Connected { link: 1 }]);
    tell(&mut world, &[LinkEvent::Accepted { link: 5, proc: 1 }]);
    assert_eq!((world.vc(one).state, world.all().procs.reason(one)), (VcState::Failed, "first"));
    assert_eq!(world.all().procs.reasons.len(), 1);
}

#[test]
fn a_link_that_nobody_will_use_is_given_up_at_once_and_its_peer_told_why() {
    let mut world = TestWorld::new(4);
    world.contact(1, VcState::Connecting);
    tell(&mut world, &[LinkEvent::Failed { link: 1, reason: "no answer".into() }]);
    world.wire().given_up.clear();
    let events = [
        LinkEvent::Accepted { link: 5, proc: 1 },
        LinkEvent::Replaced { link: 1, by: 6 },
        LinkEvent::Accepted { link: 7, proc: 77 },
    ];
    tell(&mut world, &events);
    let given_up = std::mem::take(&mut world.wire().given_up);
    assert_eq!(given_up.iter().map(|(link, _)| *link).collect::<Vec<_>>(), [5, 6, 7]);
    assert_eq!(given_up[0].1, "the connection has failed before: no answer");
    assert!(world.wire().attached.is_empty(), "nothing of them is read");
}

#[test]
fn a_peer_is_told_why_its_link_is_given_up_and_of_a_goodbye_nothing() {
    let mut world = TestWorld::new(4);
    let (one, two) = (world.contact(1, VcState::Connected), world.contact(2, VcState::Connected));
    let ended = &mut world.all().progress.ended;
    ended.extend([(one, Ended::Corrupt("a strange frame".into())), (two, Ended::Finalized)]);
    world.all().progress.pending = Pending::WORLD;
    maintain(&mut world.store.as_mut());
    assert_eq!(world.wire().given_up, [(1, "protocol violation: a strange frame".to_owned())]);
    assert_eq!(world.wire().closed_links, [1, 2]);
}

/// The failed proc that a request from any source is told of.
fn told(world: &mut TestWorld, posted: Posted) -> Option<u32> {
    let context = world.car(posted).context;
    let disturbed = world.request(posted).disturbed;
    let all = world.all();
    disturbed.then(|| all.vcs[failed_member(all.communicators, all.vcs, context).unwrap() as usize].proc)
}

#[test]
fn the_death_of_a_proc_that_was_never_contacted_is_told_to_receives_from_any_source() {
    let mut world = TestWorld::new(5);
    let any = world.receive(None, None, &[1]);
    process_ended(&mut world.store.as_mut(), 3, "exited".into(), false);
    assert_eq!((told(&mut world, any), world.all().vcs.len()), (None, 1), "an end in order");
    process_ended(&mut world.store.as_mut(), 0, "killed".into(), true);
    process_ended(&mut world.store.as_mut(), 77, "killed".into(), true);
    assert_eq!((told(&mut world, any), world.all().vcs.len()), (None, 1), "the own one, and none");
    process_ended(&mut world.store.as_mut(), 4, "killed".into(), true);
    assert_eq!(told(&mut world, any), Some(4));
    assert_eq!(world.all().procs.reason(1), "killed");
    // A receive that is posted while nobody has acknowledged the failure.
    let later = world.receive(None, Some(7), &[1]);
    assert_eq!(told(&mut world, later), None);
    remind(&mut world.all());
    assert_eq!(told(&mut world, later), Some(4));
}

#[test]
fn a_goodbye_counts_for_nothing_if_the_process_fails() {
    for order in 0..4 {
        let mut world = TestWorld::new(3);
        let one = world.contact(1, VcState::Connected);
        let any = world.receive(None, None, &[1]);
        let goodbye = |world: &mut TestWorld| {
            world.all().progress.ended.push((one, Ended::Finalized));
            world.all().progress.pending = Pending::WORLD;
        };
        match order {
            0 => {
                goodbye(&mut world);
                maintain(&mut world.store.as_mut());
                assert_eq!(told(&mut world, any), None);
                process_ended(&mut world.store.as_mut(), 1, "exit status 3".into(), true);
            }
            1 => {
                process_ended(&mut world.store.as_mut(), 1, "exit status 3".into(), true);
                assert_eq!(world.vc(one).state, VcState::Connected, "its last frames are read first");
                goodbye(&mut world);
                maintain(&mut world.store.as_mut());
            }
            // A failure that the transport reports after a goodbye does not change how the VC has ended.
            _ => {
                goodbye(&mut world);
                tell(&mut world, &[LinkEvent::Failed { link: 1, reason: "closed".into() }]);
                maintain(&mut world.store.as_mut());
                assert_eq!((world.vc(one).state, world.vc(one).acknowledged), (VcState::Failed, true));
                if order == 2 {
                    assert_eq!(told(&mut world, any), None);
                    continue;
                }
                process_ended(&mut world.store.as_mut(), 1, "exit status 3".into(), true);
            }
        }
        assert_eq!((told(&mut world, any), world.all().procs.reason(one)), (Some(1), "exit status 3"), "{order}");
        assert_eq!(world.all().progress.unacknowledged, 1);
        process_ended(&mut world.store.as_mut(), 1, "exit status 3".into(), true);
        assert_eq!(world.all().progress.unacknowledged, 1, "once");
    }
}

#[test]
fn an_end_half_way_is_a_failure() {
    let mut world = TestWorld::new(3);
    let one = world.contact(1, VcState::Connected);
    let any = world.receive(None, None, &[1]);
    world.all().progress.ended.push((one, Ended::Unfinished));
    world.all().progress.pending = Pending::WORLD;
    maintain(&mut world.store.as_mut());
    assert_eq!((told(&mut world, any), world.all().procs.reason(one)), (Some(1), Ended::UNFINISHED));
}

#[test]
fn procs_that_were_never_contacted_are_asked_after_and_no_others() {
    let mut world = TestWorld::new(200);
    world.contact(7, VcState::Connected);
    let any = world.receive(None, None, &[1]);
    world.wire().ended.extend([0, 7, 150]);
    let mut next = 0;
    ask_after(&mut world.store.as_mut(), &mut next);
    assert_eq!((next, told(&mut world, any)), (PROCS_ASKED_A_LOOK, None), "so many in one look");
    for _ in 0..3 {
        ask_after(&mut world.store.as_mut(), &mut next);
    }
    assert_eq!(told(&mut world, any), Some(150));
    assert_eq!(world.all().progress.unacknowledged, 1);
}

#[test]
fn holders_of_locks_are_asked_after_however_their_connections_stand() {
    let mut world = TestWorld::new(5);
    let [one, two] = [1, 2].map(|proc| world.contact(proc, VcState::Connected));
    fail(&mut world.all(), two, "its call has failed".into());
    let ask = |world: &mut TestWorld| {
        for proc in [0, 1, 2, 3, 9] {
            ask_whether_ended(&mut world.store.as_mut(), proc);
        }
        world.all().procs.gone.clone()
    };
    assert_eq!(ask(&mut world), [NIL; 0]);
    world.wire().ended.extend([0, 1, 2, 3, 9]);
    let three = 3;
    assert_eq!(ask(&mut world), [one, two, three]);
    assert_eq!(ask(&mut world), [one, two, three], "once is enough");
    let all = world.all();
    use VcState::{Connected, Failed};
    // The connection of proc 1 reports its end itself, after what it has sent.
    assert_eq!([one, two, three].map(|row| all.vcs[row as usize].state), [Connected, Failed, Failed]);
    assert_eq!(all.vcs[three as usize].proc, 3);
}

#[test]
fn callbacks_and_submissions_of_receives_from_any_source_hear_of_a_failure() {
    let mut world = TestWorld::new(3);
    let [awaited, submitted] = [1, 2].map(|tag| world.receive(None, Some(tag), &[1]));
    let heard = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
    let all = world.all();
    all.callbacks.await_in(submitted.car, 3);
    all.requests[submitted.car as usize].notified = true;
    all.requests[awaited.car as usize].notified = true;
    let hears = heard.clone();
    all.callbacks.add(awaited.car, Box::new(move |outcome| hears.lock().unwrap().push(outcome)));
    process_ended(&mut world.store.as_mut(), 2, "killed".into(), true);
    world.step(crate::tick::complete::complete);
    let (proc, reason) = (ProcId(2), "killed".to_owned());
    let error = RequestError::PeerFailedPending { proc, reason: reason.clone() };
    assert_eq!(*heard.lock().unwrap(), [Err(error)]);
    assert_eq!(world.car(awaited).state, CarState::Posted, "it stays posted");
    assert_eq!(world.request(submitted).state, RequestState::Done);
    let all = world.all();
    assert_eq!(all.progress.owed_to_threads, [OwedToThread::Outcome(submitted.car)]);
    let outcome = crate::steps::finish::outcome(all.progress, all.cars, all.large, all.vcs, all.procs, submitted.car);
    assert_eq!(outcome, Err(RequestError::PeerFailed { proc, reason }));
}

#[test]
fn messages_that_were_read_before_the_end_of_their_sender_are_received() {
    let mut world = TestWorld::new(3);
    let one = world.contact(1, VcState::Connected);
    let [read, other] = [5, 6].map(|tag| world.receive(Some(1), Some(tag), &[8]));
    world.step(match_cars);
    world.arrive(one, Header::new(Kind::Eager, 0, 1, 5, 0, 4), b"last");
    tell(&mut world, &[LinkEvent::Failed { link: 1, reason: "killed".into() }]);
    assert_eq!((world.vc(one).state, world.all().progress.pending.has(Pending::WORLD)), (VcState::Connected, true));
    world.step(match_cars);
    world.step(supply_buffers);
    world.step(transfer);
    maintain(&mut world.store.as_mut());
    assert_eq!((world.vc(one).state, world.all().procs.reason(one)), (VcState::Failed, "killed"));
    assert_eq!((&world.bytes(read)[..4], world.car(read).flags), (&b"last"[..], 0));
    assert_eq!((world.finished(), world.car(other).flags), (vec![read.car, other.car], car_flags::PEER_FAILED));
}

#[test]
fn a_goodbye_that_was_read_before_the_end_of_the_link_is_no_failure() {
    let mut world = TestWorld::new(3);
    let one = world.contact(1, VcState::Connected);
    world.arrive(one, Header::new(Kind::Bye, 0, 0, 0, 0, 0), &[]);
    tell(&mut world, &[LinkEvent::Failed { link: 1, reason: "closed".into() }]);
    world.step(match_cars);
    world.step(supply_buffers);
    world.step(transfer);
    maintain(&mut world.store.as_mut());
    assert_eq!((world.vc(one).state, world.all().procs.reason(one)), (VcState::Failed, Ended::FINALIZED));
    assert_eq!((world.all().procs.departed.clone(), world.all().progress.unacknowledged), (vec![one], 0));
}

#[test]
fn what_is_known_of_urgent_offers_goes_with_their_sender() {
    let mut world = TestWorld::new(3);
    let [one, two] = [1, 2].map(|proc| world.contact(proc, VcState::Connected));
    for (vc, source) in [(one, 1), (two, 2)] {
        let header = Header::new(Kind::Rts, 0, source, 5, 9, 100_000).with_priority(2);
        world.arrive(vc, header, &[]);
    }
    world.step(match_cars);
    assert_eq!(world.all().progress.offered.len(), 2);
    tell(&mut world, &[LinkEvent::Failed { link: 1, reason: "killed".into() }]);
    world.step(transfer);
    maintain(&mut world.store.as_mut());
    assert!(world.all().progress.offered.keys().eq([&(two, 9)]));
    let all = world.all();
    let found = all.progress.unexpected.drain(|_| true);
    crate::procs::communicators::give_back(&mut world.all(), &found);
    assert!(world.all().progress.offered.is_empty(), "nobody takes it");
}

#[test]
fn a_receive_of_another_thread_is_told_of_the_failed_member_of_its_communicator() {
    let mut world = TestWorld::new(3);
    let posted = world.receive(None, Some(1), &[1]);
    let all = world.all();
    // A communicator of procs 0 and 2.
    let communicator = &mut all.communicators[1];
    (communicator.size, communicator.members) = (2, Members::List([0, 2].into()));
    all.cars[posted.car as usize].context = communicator.context;
    all.callbacks.await_in(posted.car, 3);
    all.requests[posted.car as usize].notified = true;
    process_ended(&mut world.store.as_mut(), 1, "a stranger".into(), true);
    assert_eq!(world.request(posted).state, RequestState::Active);
    process_ended(&mut world.store.as_mut(), 2, "killed".into(), true);
    world.step(crate::tick::complete::complete);
    let all = world.all();
    let outcome = crate::steps::finish::outcome(all.progress, all.cars, all.large, all.vcs, all.procs, posted.car);
    assert_eq!(outcome, Err(RequestError::PeerFailed { proc: ProcId(2), reason: "killed".into() }));
}
