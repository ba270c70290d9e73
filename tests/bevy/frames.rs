//! What a frame does: in which schedule, how much, and what happens in the last frame.

use crate::kit::{app, apps, engines, frames, noted, see, seen, until};
use bevy_app::{App, AppExit, First, PreUpdate, ScheduleRunnerPlugin, Startup, Update};
use bevy_ecs::prelude::*;
use bevy_ecs::schedule::ScheduleLabel;
use std::time::Duration;
use tickwire::bevy::{Received, TickwireApp, TickwireCommands, TickwirePlugin, TickwireSystems};
use tickwire::{Bootstrap, Comm, Engine, ErrorHandler, Limits, Rank, RequestError, Source, Tag};

const TAG: Tag = Tag(5);
const WORLD: Comm = Comm::WORLD;

/// The tags of messages that a reader has seen, by frame.
#[derive(Resource, Default)]
struct Met(Vec<Vec<Tag>>);

fn meet(mut received: MessageReader<Received<u32>>, mut met: ResMut<Met>) {
    met.0.push(received.read().map(|message| message.tag).collect());
}

#[test]
fn no_frame_has_more_messages_of_a_subscription_than_it_may_and_none_starves() {
    let (_, mut engines) = engines(2, |builder| builder);
    let (receiver, sender) = (engines.pop().unwrap(), engines.pop().unwrap());
    let mut apps = [app(TickwirePlugin::new(sender)), app(TickwirePlugin::new(receiver).messages_max(3))];
    // A subscription that gets no message is between the two others.
    for tag in [1, 2, 3] {
        apps[1].subscribe::<u32>(Source::Any, Tag(tag), WORLD);
    }
    apps[1].init_resource::<Met>().add_systems(Update, meet);
    for number in 0..10u32 {
        let mut commands = apps[0].world_mut().commands();
        commands.send(vec![number], Rank(1), Tag(1), WORLD).send(vec![number], Rank(1), Tag(3), WORLD);
    }
    frames(&mut apps[..1], 3);
    let met = |apps: &[App]| apps[1].world().resource::<Met>().0.clone();
    until(&mut apps, "all have come", |apps| met(apps).concat().len() == 20);
    let busy: Vec<Vec<Tag>> = met(&apps).into_iter().filter(|frame| !frame.is_empty()).collect();
    let of = |frame: &Vec<Tag>, tag| frame.iter().filter(|met| met.0 == tag).count();
    assert!(busy.iter().all(|frame| of(frame, 1) <= 3 && of(frame, 3) <= 3), "{busy:?}");
    assert!(busy.iter().all(|frame| of(frame, 1) > 0 && of(frame, 3) > 0), "{busy:?}");
}

#[test]
fn no_frame_drops_more_messages_of_a_wrong_size_than_it_may_have() {
    let (_, mut engines) = engines(1, |builder| builder);
    let mut apps = [app(TickwirePlugin::new(engines.remove(0)).messages_max(3))];
    apps[0].subscribe::<u32>(Source::Any, TAG, WORLD);
    let mut commands = apps[0].world_mut().commands();
    for _ in 0..10 {
        commands.send(vec![0u8; 3], Rank(0), TAG, WORLD);
    }
    let mut told = vec![0];
    until(&mut apps, "all are dropped", |apps| {
        told.push(noted(&apps[0]).errors.len());
        told.last() == Some(&10)
    });
    assert!(told.array_windows().all(|[before, after]| after - before <= 3), "{told:?}");
}

/// A schedule of the application.
#[derive(ScheduleLabel, Clone, PartialEq, Eq, Hash, Debug)]
struct Step;

#[test]
fn everything_happens_in_the_schedule_of_choice_in_order() {
    let engine = Engine::builder().build(Bootstrap::solo()).unwrap();
    let mut app = app(TickwirePlugin::new(engine).in_schedule(Step));
    // A step answers, in the same step, what it has received.
    let answer = |mut received: MessageReader<Received<u32>>, mut met: ResMut<Met>, mut commands: Commands| {
        for message in received.read() {
            met.0.push(vec![message.tag]);
            commands.send(message.data.clone(), Rank(0), Tag(message.tag.0 + 1), WORLD);
        }
    };
    app.init_schedule(Step)
        .init_resource::<Met>()
        .subscribe::<u32>(Source::Any, Tag(1), WORLD)
        .subscribe::<u32>(Source::Any, Tag(2), WORLD)
        .add_systems(Step, answer.after(TickwireSystems::Receive).before(TickwireSystems::Send));
    app.world_mut().commands().send(vec![1u32], Rank(0), Tag(1), WORLD);
    frames(std::slice::from_mut(&mut app), 10);
    assert!(app.world().resource::<Met>().0.is_empty() && noted(&app).sent.is_empty(), "no step has run");
    app.world_mut().run_schedule(Step);
    app.world_mut().run_schedule(Step);
    assert_eq!(app.world().resource::<Met>().0, [[Tag(1)]]);
    app.world_mut().run_schedule(Step);
    assert_eq!(app.world().resource::<Met>().0, [[Tag(1)], [Tag(2)]]);
}

#[test]
fn what_is_received_first_is_read_in_the_same_frame() {
    let (_, mut engines) = engines(2, |builder| builder);
    let (receiver, sender) = (engines.pop().unwrap(), engines.pop().unwrap());
    let mut apps = [app(TickwirePlugin::new(sender)), app(TickwirePlugin::new(receiver).receive_in(First))];
    see::<u32>(&mut apps[1], TAG, WORLD);
    apps[1].init_resource::<Met>().add_systems(PreUpdate, meet);
    frames(&mut apps, 3);
    apps[0].world_mut().commands().send(vec![1u32], Rank(1), TAG, WORLD);
    until(&mut apps, "it has come", |apps| !seen::<u32>(&apps[1]).is_empty());
    // The last frame is the one in which the reader of `PreUpdate` has seen the message.
    assert_eq!(apps[1].world().resource::<Met>().0.last().unwrap(), &[TAG]);
}

#[test]
fn sends_that_find_no_row_wait_for_one() {
    let limits = Limits { cars_max: 8, ..Limits::default() };
    let (_, mut engines) = engines(2, |builder| builder.initial_rows(4).limits(limits.clone()));
    // It is no error that they wait.
    engines.iter_mut().for_each(|engine| engine.comm_set_error_handler(WORLD, ErrorHandler::Abort).unwrap());
    let mut apps: Vec<App> = engines.into_iter().map(|engine| app(TickwirePlugin::new(engine))).collect();
    see::<u32>(&mut apps[1], TAG, WORLD);
    for number in 0..40u32 {
        apps[0].world_mut().commands().send(vec![number; 20_000], Rank(1), TAG, WORLD);
    }
    apps[0].update();
    assert!(noted(&apps[0]).sent.len() < 40);
    until(&mut apps, "all are sent", |apps| noted(&apps[0]).sent.len() == 40 && seen::<u32>(&apps[1]).len() == 40);
    for (number, (_, _, data)) in (0..).zip(seen::<u32>(&apps[1])) {
        assert!(data.len() == 20_000 && data.iter().all(|&word| word == number), "{number}");
    }
    assert!(apps.iter().all(|app| noted(app).errors.is_empty()));
}

#[test]
fn an_exit_sends_what_was_promised_and_tells_peers_that_all_is_well() {
    let (_, mut engines) = engines(2, |builder| builder);
    let (receiver, sender) = (engines.pop().unwrap(), engines.pop().unwrap());
    let leaving = std::thread::spawn(move || {
        let mut app = App::new();
        app.add_plugins((
            ScheduleRunnerPlugin::default(),
            TickwirePlugin::new(sender).finalize_within(Duration::from_secs(60)),
        ))
        // A receive is open that never gets a message. If the engine was dropped without being finalized, the peers
        // would see a failure.
        .add_systems(Startup, |mut engine: NonSendMut<Engine>, mut commands: Commands| {
            let never = engine.irecv(vec![0u8; 1], Source::Any, Tag(9), WORLD).unwrap();
            drop(never);
            commands.send(vec![7u32; 300_000], Rank(1), TAG, WORLD);
        })
        .add_systems(Update, |mut exit: MessageWriter<AppExit>| {
            exit.write(AppExit::from_code(3));
        });
        app.run()
    });
    let mut apps = [app(TickwirePlugin::new(receiver))];
    see::<u32>(&mut apps[0], TAG, WORLD);
    until(&mut apps, "it has come", |apps| !seen::<u32>(&apps[0]).is_empty());
    assert!(seen::<u32>(&apps[0])[0].2 == [7; 300_000]);
    assert_eq!(leaving.join().unwrap(), AppExit::from_code(3));
    // The receive can only end because the other rank has left, so the farewell has come.
    let mut engine = apps[0].world_mut().non_send_mut::<Engine>();
    let none = engine.irecv(vec![0u8; 1], Rank(0), TAG, WORLD).unwrap();
    assert!(matches!(engine.wait(&none), Err(RequestError::PeerFailed { .. })));
    frames(&mut apps, 5);
    assert_eq!(noted(&apps[0]).errors, [], "an orderly end is no failure");
}

#[test]
fn an_app_goes_on_without_its_engine() {
    let mut apps = apps(1);
    see::<u32>(&mut apps[0], TAG, WORLD);
    let mut engine = apps[0].world_mut().remove_non_send::<Engine>().unwrap();
    engine.finalize(Duration::from_secs(5)).unwrap();
    apps[0].world_mut().write_message(AppExit::Success);
    frames(&mut apps, 3);
    // An engine that is finalized and stays in the app is quiet as well.
    apps[0].world_mut().insert_non_send(engine);
    apps[0].world_mut().write_message(AppExit::Success);
    frames(&mut apps, 3);
    assert_eq!(noted(&apps[0]).errors, []);
}

/// With the features that a bevy `App` switches on, many systems of a frame run on other threads than the engine.
#[cfg(feature = "app")]
#[test]
fn systems_on_other_threads_send_and_read() {
    let mut apps = apps(2);
    apps[1].register_type::<AppExit>();
    assert!(apps[1].world().contains_resource::<AppTypeRegistry>());
    see::<u32>(&mut apps[1], TAG, WORLD);
    for number in 0..16u32 {
        // Each of these systems sends in its first twenty frames.
        apps[0].add_systems(Update, move |mut frames: Local<u32>, mut commands: Commands| {
            *frames += 1;
            if *frames <= 20 {
                commands.send(vec![number], Rank(1), TAG, WORLD);
            }
        });
        apps[1].add_systems(Update, |mut received: MessageReader<Received<u32>>| {
            assert!(received.read().all(|message| message.data.len() == 1));
        });
    }
    until(&mut apps, "all have come", |apps| seen::<u32>(&apps[1]).len() == 16 * 20);
    for number in 0..16 {
        assert_eq!(seen::<u32>(&apps[1]).iter().filter(|(_, _, data)| *data == [number]).count(), 20);
    }
}
