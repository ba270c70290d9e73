//! Each failure is reported once, to observers and to readers, and the app goes on.

use crate::kit::{app, apps, engines, frames, noted, see, seen, until};
use bevy_app::App;
use bevy_ecs::error::{BevyError, ErrorContext};
use bevy_ecs::prelude::*;
use std::sync::Mutex;
use tickwire::bevy::{TickwireApp, TickwireCommands, TickwireError, TickwirePlugin};
use tickwire::{
    Bootstrap, Comm, Engine, OperationError, PostError, ProcId, ProgressSystems, Rank, RequestError, Source, Tag,
    TagFilter,
};

const TAG: Tag = Tag(5);
const WORLD: Comm = Comm::WORLD;

/// The reported errors. Observers and readers must have the same ones.
#[track_caller]
fn told(app: &App) -> &[TickwireError] {
    assert_eq!(noted(app).errors, noted(app).observed);
    &noted(app).errors
}

#[test]
fn a_dead_peer_is_told_once_and_the_others_go_on() {
    let (board, engines) = engines(3, |builder| builder);
    let mut apps: Vec<App> = engines.into_iter().map(|engine| app(TickwirePlugin::new(engine))).collect();
    see::<u32>(&mut apps[0], TAG, WORLD);
    apps[0].subscribe::<u32>(Rank(2), Tag(6), WORLD);
    for rank in [1, 2] {
        apps[rank].world_mut().commands().send(vec![rank as u32], Rank(0), TAG, WORLD);
    }
    until(&mut apps, "both have come", |apps| seen::<u32>(&apps[0]).len() == 2);
    // A message in flight to a process that dies without receiving it.
    apps[0].world_mut().commands().send(vec![0u8; 1 << 20], Rank(2), TAG, WORLD);
    frames(&mut apps, 3);
    board.end(2, "killed by signal 9 (SIGKILL)");
    drop(apps.pop());
    until(&mut apps, "it is told", |apps| told(&apps[0]).len() == 3 && told(&apps[1]).len() == 1);
    apps[0].world_mut().commands().send(vec![0u8; 4], Rank(2), TAG, WORLD);
    apps[1].world_mut().commands().send(vec![5u32], Rank(0), TAG, WORLD);
    until(&mut apps, "what goes on", |apps| seen::<u32>(&apps[0]).len() == 3 && told(&apps[0]).len() == 4);
    frames(&mut apps, 20);
    assert!(matches!(told(&apps[1]), [TickwireError::Peer { proc: ProcId(2), .. }]));
    let mut told = told(&apps[0]).to_vec();
    let last = told.pop().unwrap();
    assert!(
        matches!(
            last,
            TickwireError::Send {
                to: Rank(2),
                tag: TAG,
                error: OperationError::Post(PostError::PeerFailed { .. }),
                ..
            }
        ),
        "{last}"
    );
    let one = |is: fn(&TickwireError) -> bool| assert_eq!(told.iter().filter(|error| is(error)).count(), 1, "{told:?}");
    one(|error| matches!(error, TickwireError::Peer { proc: ProcId(2), reason } if reason.contains("SIGKILL")));
    one(|error| matches!(error, TickwireError::Send { to: Rank(2), error: OperationError::Request(_), .. }));
    // Only the subscription to messages of that rank alone has ended.
    one(|error| {
        let failed = |error: &OperationError| matches!(error, OperationError::Request(RequestError::PeerFailed { .. }));
        matches!(error, TickwireError::Receive { from: Source::Rank(Rank(2)), tag: TagFilter::Tag(Tag(6)), error, .. } if failed(error))
    });
}

#[test]
fn a_message_of_the_wrong_size_is_told_and_the_next_one_comes() {
    let mut apps = apps(2);
    see::<u32>(&mut apps[1], TAG, WORLD);
    apps[0].world_mut().commands().send(vec![1u8; 7], Rank(1), TAG, WORLD).send(vec![2u32], Rank(1), TAG, WORLD);
    until(&mut apps, "the second", |apps| seen::<u32>(&apps[1]).len() == 1);
    assert_eq!(seen::<u32>(&apps[1])[0].2, [2]);
    let [error @ TickwireError::Receive { from: Source::Rank(Rank(0)), .. }] = told(&apps[1]) else {
        panic!("{:?}", told(&apps[1]))
    };
    let words = error.to_string();
    assert!(words.contains("from rank 0, tag 5") && words.contains("7 bytes"), "{words}");
}

#[test]
fn wrong_arguments_are_told_once() {
    let mut apps = apps(1);
    apps[0].subscribe::<u32>(Source::Any, TAG, Comm(77)).subscribe::<u32>(Rank(4), TAG, WORLD);
    apps[0].world_mut().commands().send(vec![1u8], Rank(9), TAG, WORLD).send(vec![1u8], Rank(0), TAG, Comm(77));
    frames(&mut apps, 10);
    let told = told(&apps[0]);
    let posts = told.iter().map(|error| match error {
        TickwireError::Send { error: OperationError::Post(error), .. } => format!("send: {error}"),
        TickwireError::Receive { error: OperationError::Post(error), .. } => format!("receive: {error}"),
        other => panic!("{other}"),
    });
    let mut posts: Vec<String> = posts.collect();
    posts.sort();
    let starts = ["receive: communicator 77", "receive: rank 4", "send: communicator 77", "send: rank 9"];
    assert!(posts.len() == 4 && posts.iter().zip(starts).all(|(words, start)| words.starts_with(start)), "{posts:?}");
}

#[test]
fn a_poisoned_engine_is_told_once() {
    let engine = Engine::builder().systems(|schedule| {
        schedule.add_systems((|| panic!("a bug of the application")).after(ProgressSystems::Complete));
    });
    let mut apps = [app(TickwirePlugin::new(engine.build(Bootstrap::solo()).unwrap()))];
    apps[0].subscribe::<u32>(Source::Any, TAG, WORLD);
    apps[0].world_mut().commands().send(vec![1u32], Rank(0), TAG, WORLD);
    until(&mut apps, "it is told", |apps| !told(&apps[0]).is_empty());
    frames(&mut apps, 10);
    let told = told(&apps[0]);
    let poisoned = |error: &&TickwireError| matches!(error, TickwireError::Poisoned(words) if words.contains("a bug"));
    assert_eq!(told.iter().filter(poisoned).count(), 1, "{told:?}");
    assert!(!told.iter().any(|error| matches!(error, TickwireError::Receive { .. })), "{told:?}");
}

static SAID: Mutex<Vec<String>> = Mutex::new(Vec::new());

#[test]
fn a_send_without_the_plugin_says_what_to_do() {
    let say = |error: BevyError, _: ErrorContext| SAID.lock().unwrap().push(error.to_string());
    let mut app = App::new();
    app.set_error_handler(say);
    app.world_mut().commands().send(vec![1u8], Rank(0), TAG, WORLD);
    app.update();
    let said = SAID.lock().unwrap();
    assert!(said.len() == 1 && said[0].contains("add TickwirePlugin"), "{said:?}");
}
