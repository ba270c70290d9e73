//! The messages that an app receives, and which reader or observer gets them.

use crate::kit::{apps, frames, noted, see, seen, until};
use bevy_app::Last;
use bevy_ecs::prelude::*;
use tickwire::bevy::{Received, Sent, Subscription, TickwireApp, TickwireCommands};
use tickwire::{Comm, Rank, Source, Tag};

const ONE: Tag = Tag(1);
const TWO: Tag = Tag(2);
const WORLD: Comm = Comm::WORLD;

#[test]
fn messages_come_by_communicator_and_tag_and_type() {
    let mut apps = apps(2);
    for (tag, comm) in [(ONE, WORLD), (TWO, WORLD), (ONE, Comm::SELF)] {
        see::<u32>(&mut apps[1], tag, comm);
    }
    see::<f64>(&mut apps[1], Tag(3), WORLD);
    let mut sender = apps[0].world_mut().commands();
    sender.send(vec![1u32, 2], Rank(1), ONE, WORLD).send(vec![3u32], Rank(1), TWO, WORLD);
    sender.send([0.5f64], Rank(1), Tag(3), WORLD).send(vec![4u32], Rank(1), Tag(4), WORLD);
    // A message to itself with the same tag. It is in its own communicator, so subscriptions of the world do not
    // match it.
    apps[1].world_mut().commands().send(vec![9u32], Rank(0), ONE, Comm::SELF);
    until(&mut apps, "all have come", |apps| seen::<u32>(&apps[1]).len() == 3 && seen::<f64>(&apps[1]).len() == 1);
    frames(&mut apps, 10);
    let mut words = seen::<u32>(&apps[1]).to_vec();
    words.sort_by_key(|(tag, comm, _)| (tag.0, comm.0));
    assert_eq!(words, [(ONE, WORLD, vec![1, 2]), (ONE, Comm::SELF, vec![9]), (TWO, WORLD, vec![3])]);
    assert_eq!(seen::<f64>(&apps[1]), [(Tag(3), WORLD, vec![0.5])]);
    // No subscription takes the message with tag 4. It is sent all the same.
    let sent = &noted(&apps[0]).sent;
    let to_one = |tag, length| Sent { to: Rank(1), tag, comm: WORLD, length };
    assert_eq!(*sent, [to_one(ONE, 8), to_one(TWO, 4), to_one(Tag(3), 8), to_one(Tag(4), 4)]);
    assert!(apps.iter().all(|app| noted(app).errors.is_empty()));
}

/// By observer: its name, and the elements that it saw.
#[derive(Resource, Default)]
struct Observed(Vec<(&'static str, Vec<u32>)>);

#[test]
fn observers_run_for_their_subscription_and_before_readers() {
    let mut apps = apps(2);
    let note = |which| {
        move |message: On<Received<u32>>, mut observed: ResMut<Observed>| {
            observed.0.push((which, message.data.clone()));
        }
    };
    apps[1]
        .init_resource::<Observed>()
        .observe_messages(Source::Any, ONE, WORLD, note("one"))
        .observe_messages(Rank(0), TWO, WORLD, note("two"))
        .add_observer(note("all"))
        .add_systems(Last, |mut received: MessageReader<Received<u32>>, mut observed: ResMut<Observed>| {
            observed.0.extend(received.read().map(|message| ("reader", message.data.clone())));
        });
    apps[0].world_mut().commands().send(vec![7u32], Rank(1), ONE, WORLD);
    until(&mut apps, "the first", |apps| apps[1].world().resource::<Observed>().0.len() == 3);
    apps[0].world_mut().commands().send(vec![8u32], Rank(1), TWO, WORLD);
    until(&mut apps, "the second", |apps| apps[1].world().resource::<Observed>().0.len() == 6);
    frames(&mut apps, 5);
    let observed = std::mem::take(&mut apps[1].world_mut().resource_mut::<Observed>().0);
    for (three, (which, data)) in observed.chunks(3).zip([("one", 7), ("two", 8)]) {
        let mut first = [three[0].0, three[1].0];
        first.sort_unstable();
        assert_eq!((first, three[2].0), (["all", which], "reader"), "{observed:?}");
        assert!(three.iter().all(|(_, seen)| *seen == [data]), "{observed:?}");
    }
    assert_eq!(observed.len(), 6);
}

#[test]
fn messages_of_one_sender_come_in_order_long_ones_too() {
    let mut apps = apps(2);
    see::<u32>(&mut apps[1], ONE, WORLD);
    let lengths = [3, 500_000, 1, 0, 200_000, 2];
    for length in lengths {
        apps[0].world_mut().commands().send(vec![length as u32; length], Rank(1), ONE, WORLD);
    }
    until(&mut apps, "all have come", |apps| seen::<u32>(&apps[1]).len() == lengths.len());
    for ((_, _, data), length) in seen::<u32>(&apps[1]).iter().zip(lengths) {
        assert!(data.len() == length && data.iter().all(|&word| word == length as u32), "{length}");
    }
}

#[test]
fn a_subscription_is_made_and_ended_at_any_time() {
    let mut apps = apps(2);
    apps[1].init_resource::<Observed>();
    // A message without a subscription waits.
    apps[0].world_mut().commands().send(vec![1u32], Rank(1), ONE, WORLD);
    frames(&mut apps, 5);
    let once = |message: On<Received<u32>>, mut observed: ResMut<Observed>, mut commands: Commands| {
        observed.0.push(("once", message.data.clone()));
        commands.entity(message.subscription).despawn();
    };
    // This element type was never registered.
    apps[1].world_mut().spawn(Subscription::new::<u32>(Source::Any, ONE, WORLD)).observe(once);
    until(&mut apps, "the first", |apps| !apps[1].world().resource::<Observed>().0.is_empty());
    assert!(apps[1].world().contains_resource::<Messages<Received<u32>>>());
    apps[0].world_mut().commands().send(vec![2u32], Rank(1), ONE, WORLD);
    frames(&mut apps, 20);
    assert_eq!(apps[1].world().resource::<Observed>().0, [("once", vec![1])]);
    // The next subscription gets the second message.
    see::<u32>(&mut apps[1], ONE, WORLD);
    until(&mut apps, "the second", |apps| seen::<u32>(&apps[1]).len() == 1);
    assert_eq!(seen::<u32>(&apps[1])[0].2, [2]);
}

#[test]
fn a_receive_of_the_apps_own_goes_before_subscriptions() {
    let mut apps = apps(2);
    see::<u32>(&mut apps[1], ONE, WORLD);
    let mut engine = apps[1].world_mut().non_send_mut::<tickwire::Engine>();
    let own = engine.irecv(vec![0u32; 1], Source::Any, ONE, WORLD).unwrap();
    apps[0].world_mut().commands().send(vec![1u32], Rank(1), ONE, WORLD).send(vec![2u32], Rank(1), ONE, WORLD);
    until(&mut apps, "the second", |apps| !seen::<u32>(&apps[1]).is_empty());
    assert_eq!(seen::<u32>(&apps[1]), [(ONE, WORLD, vec![2])]);
    assert_eq!(apps[1].world_mut().non_send_mut::<tickwire::Engine>().take(own).unwrap().0, [1]);
}
