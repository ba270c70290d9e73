//! Apps that sleep: something wakes them, and while they have something to do they do not sleep.

use crate::kit::{app, noted, see, seen, until};
use bevy_app::{App, Last, Update};
use bevy_ecs::prelude::*;
use std::time::{Duration, Instant};
use tickwire::bevy::{Received, Sent, Subscription, TickwireCommands, TickwirePlugin, sleep};
use tickwire::{Bootstrap, Comm, Engine, Limits, Rank, Source, Tag};

const TAG: Tag = Tag(5);
const WORLD: Comm = Comm::WORLD;

/// How long an app sleeps if nothing wakes it.
const MOST: Duration = Duration::from_secs(30);

/// An app of one rank, whose waits have no bound of their own.
fn solo(change: impl FnOnce(&mut Limits)) -> [App; 1] {
    let mut limits = Limits { sleep_ms_max: 60_000, ..Limits::default() };
    change(&mut limits);
    let engine = Engine::builder().limits(limits).build(Bootstrap::solo()).unwrap();
    [app(TickwirePlugin::new(engine))]
}

/// Runs frames until a condition holds, which must not take a sleep.
#[track_caller]
fn awake(mut apps: [App; 1], what: &str, mut condition: impl FnMut(&App) -> bool) {
    let start = Instant::now();
    until(&mut apps, what, |apps| condition(&apps[0]));
    assert!(start.elapsed() < MOST, "it slept: {what}");
}

#[test]
fn whatever_comes_wakes_an_app_that_sleeps() {
    let mut engine = Engine::builder().build(Bootstrap::solo()).unwrap();
    let submitter = engine.submitter();
    let mut apps = [app(TickwirePlugin::new(engine))];
    see::<u32>(&mut apps[0], TAG, WORLD);
    apps[0].add_systems(Update, sleep(MOST).run_if(not(on_message::<Received<u32>>)));
    let start = Instant::now();
    let other = std::thread::spawn(move || submitter.isend(vec![1u32], Rank(0), TAG, WORLD).unwrap());
    until(&mut apps, "it has come", |apps| !seen::<u32>(&apps[0]).is_empty());
    assert!(start.elapsed() < MOST, "{:?}", start.elapsed());
    drop(other.join().unwrap());
}

/// The number of the frame, from 0.
#[derive(Resource, Default)]
struct Frame(u32);

/// Counts frames, and runs a system in that of this number.
fn once<M>(app: &mut App, number: u32, system: impl IntoScheduleConfigs<bevy_ecs::system::ScheduleSystem, M>) {
    app.init_resource::<Frame>()
        .add_systems(Update, system.run_if(move |frame: Res<Frame>| frame.0 == number))
        .add_systems(Last, (|mut frame: ResMut<Frame>| frame.0 += 1).after(SleepHere));
}

/// Where the app sleeps.
#[derive(SystemSet, Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct SleepHere;

#[test]
fn an_app_with_a_message_to_post_does_not_sleep() {
    let mut apps = solo(|_| {});
    let send = |mut commands: Commands, mut sent: Local<bool>| {
        if !std::mem::replace(&mut *sent, true) {
            commands.send(vec![1u32], Rank(0), TAG, WORLD);
        }
    };
    apps[0].add_systems(Last, (send, sleep(MOST).run_if(not(on_message::<Sent>))).chain());
    awake(apps, "it is sent", |app| noted(app).sent.len() == 1);
}

#[test]
fn messages_that_had_no_row_leave_once_others_are_sent_and_no_sleep_comes_between() {
    let mut apps = solo(|limits| limits.cars_max = 64);
    see::<u32>(&mut apps[0], TAG, WORLD);
    let mut commands = apps[0].world_mut().commands();
    for number in 0..1000u32 {
        commands.send(vec![number], Rank(0), TAG, WORLD);
    }
    apps[0].add_systems(Last, sleep(MOST).run_if(not(on_message::<Received<u32>>)));
    awake(apps, "all have come", |app| seen::<u32>(app).len() == 1000);
}

#[test]
fn an_app_with_a_new_subscription_does_not_sleep() {
    let mut apps = solo(|_| {});
    let mut engine = apps[0].world_mut().non_send_mut::<Engine>();
    drop(engine.isend(vec![7u32], Rank(0), TAG, WORLD).unwrap());
    // The subscription comes when the message lies there already.
    once(&mut apps[0], 3, |mut commands: Commands| {
        commands.spawn(Subscription::new::<u32>(Source::Any, TAG, WORLD));
    });
    let waits = |frame: Res<Frame>| frame.0 >= 3;
    apps[0].add_message::<Received<u32>>();
    let sleeps = sleep(MOST).run_if(waits).run_if(not(on_message::<Received<u32>>)).in_set(SleepHere);
    apps[0].init_resource::<Seven>().add_systems(Last, (sleeps, note_seven));
    awake(apps, "it has come", |app| app.world().resource::<Seven>().0);
}

/// Whether a message with a 7 was read.
#[derive(Resource, Default)]
struct Seven(bool);

fn note_seven(mut received: MessageReader<Received<u32>>, mut seven: ResMut<Seven>) {
    seven.0 |= received.read().any(|message| message.data == [7]);
}

#[test]
fn an_app_whose_own_system_has_ticked_does_not_sleep_over_what_came() {
    for blocking in [false, true] {
        let mut apps = solo(|_| {});
        see::<u32>(&mut apps[0], TAG, WORLD);
        once(&mut apps[0], 3, move |mut engine: NonSendMut<Engine>| {
            drop(engine.isend(vec![1u32], Rank(0), TAG, WORLD).unwrap());
            if blocking {
                // What is waited for comes behind the message.
                engine.send(&[2u32], Rank(0), Tag(6), WORLD).unwrap();
                engine.recv(&mut [0u32], Rank(0), Tag(6), WORLD).unwrap();
            } else {
                while !engine.tick().is_idle() {}
            }
        });
        // In the frame before, the subscription is still new to it.
        let waits = |frame: Res<Frame>| frame.0 >= 2;
        let sleeps = sleep(MOST).run_if(waits).run_if(not(on_message::<Received<u32>>)).in_set(SleepHere);
        apps[0].add_systems(Last, sleeps);
        awake(apps, "it has come", |app| !seen::<u32>(app).is_empty());
    }
}
