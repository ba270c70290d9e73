//! Systems of the application in the schedule: where they run, and what they must not do.

use crate::kit::{ME, Seen, assert_poisoned, with_system};
use bevy_ecs::prelude::*;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tickwire::internals::systems::views::Column;
use tickwire::{Bootstrap, BuildError, Engine, ProgressSystems, Tag};
use tickwire_tests::cases::content;

#[derive(Resource, Default)]
struct Runs(Arc<AtomicU64>);

#[test]
fn a_system_of_the_application_runs_once_a_pass_beside_its_set() {
    let runs = Arc::new(AtomicU64::new(0));
    let (after, seen) = (runs.clone(), Arc::new(AtomicU64::new(0)));
    let before = seen.clone();
    let builder = Engine::builder().world(move |world| world.insert_resource(Runs(after))).systems(move |schedule| {
        let count = |runs: Res<Runs>| {
            runs.0.fetch_add(1, Ordering::Relaxed);
        };
        let look = move || {
            before.fetch_add(1, Ordering::Relaxed);
        };
        schedule.add_systems((
            count.after(ProgressSystems::Complete),
            look.after(ProgressSystems::Transfer).before(ProgressSystems::DrainCq),
        ));
    });
    let mut engine = builder.build(Bootstrap::solo()).unwrap();
    let world = engine.comm_world();
    assert_eq!(runs.load(Ordering::Relaxed), engine.counters().runs()[5]);
    for length in [0, 100, 20_000] {
        let receive = engine.irecv(vec![0u8; length], ME, Tag(0), world).unwrap();
        engine.send(content(1, length), ME, Tag(0), world).unwrap();
        engine.wait(&receive).unwrap();
        engine.take(receive).unwrap();
    }
    let complete = engine.counters().runs()[ProgressSystems::Complete as usize];
    assert!(complete > 0);
    assert_eq!(runs.load(Ordering::Relaxed), complete, "as often as Complete");
    assert!(seen.load(Ordering::Relaxed) > 0);
}

#[test]
fn a_panic_in_a_system_poisons_the_engine() {
    fn boom() {
        panic!("the application has a bug");
    }
    assert_poisoned(with_system(boom), "the application has a bug");
}

#[test]
fn systems_that_touch_the_engines_rows_poison_it() {
    use tickwire::internals::components::{Buffer, Car, Held, Large, Node, Request};
    #[derive(Component)]
    struct Mark;
    let spawn = |world: &mut World| {
        world.spawn((Car::default(), Large::default(), Node::default(), Request::default(), Held::default()));
    };
    assert_poisoned(with_system(spawn), "spawned, despawned or moved rows");
    let despawn = |mut commands: Commands, rows: Query<Entity, With<Car>>| {
        commands.entity(rows.iter().next().unwrap()).despawn();
    };
    assert_poisoned(with_system(despawn), "recycled, never despawned");
    let strip = |mut commands: Commands, rows: Query<Entity, With<Buffer>>| {
        commands.entity(rows.iter().next().unwrap()).remove::<Buffer>();
    };
    assert_poisoned(with_system(strip), "nor stripped");
    let extend = |mut commands: Commands, rows: Query<Entity, With<Car>>| {
        commands.entity(rows.iter().next().unwrap()).insert(Mark);
    };
    assert_poisoned(with_system(extend), "spawned, despawned or moved rows");
    let procs = |mut commands: Commands, rows: Query<Entity, With<tickwire::internals::components::Vc>>| {
        commands.entity(rows.iter().next().unwrap()).insert(Mark);
    };
    assert_poisoned(with_system(procs), "spawned, despawned or moved rows");
    let own = |mut commands: Commands, rows: Query<Entity, With<tickwire::internals::components::Progress>>| {
        commands.entity(rows.iter().next().unwrap()).insert(Mark);
    };
    assert_poisoned(with_system(own), "spawned, despawned or moved rows");
    // The first row gets another place, though there are as many rows as before.
    fn touch<T: Component>(mut commands: Commands, rows: Query<Entity, With<T>>) {
        let first = rows.iter().next().unwrap();
        commands.entity(first).insert(Mark).remove::<Mark>();
    }
    let moved = "spawned, despawned or moved rows";
    assert_poisoned(with_system(touch::<Car>), moved);
    assert_poisoned(with_system(touch::<Buffer>), moved);
    assert_poisoned(with_system(touch::<tickwire::internals::components::Vc>), moved);
    // Many rows before the panic, so that the tables have moved in memory.
    fn many(world: &mut World) {
        for _ in 0..10_000 {
            world.spawn((Car::default(), Large::default(), Node::default(), Request::default(), Held::default()));
        }
        panic!("after a mess");
    }
    assert_poisoned(with_system(many), "after a mess");
}

#[test]
fn systems_that_cannot_be_ordered_or_seen_are_refused() {
    let build = |add: fn(&mut Schedule)| match Engine::builder().slot::<Seen>().systems(add).build(Bootstrap::solo()) {
        Err(BuildError::Schedule(words)) => words,
        other => panic!("{:?}", other.map(drop)),
    };
    fn bump(mut slots: Column<Seen>) {
        slots[0].0 += 1;
    }
    fn double(mut slots: Column<Seen>) {
        slots[0].0 *= 2;
    }
    let words = build(|schedule| {
        schedule.add_systems((bump, double));
    });
    assert!(words.contains("conflicting data access") && words.contains("before"), "{words}");
    let words = build(|schedule| {
        schedule.add_systems((|| {}).run_if(|| true).after(ProgressSystems::Complete));
    });
    assert!(words.contains("run condition"), "{words}");
    let words = build(|schedule| {
        schedule.configure_sets(ProgressSystems::Match.run_if(|| false));
    });
    assert!(words.contains("run condition") && words.contains("Match"), "{words}");
    let words = build(|schedule| {
        schedule.configure_sets(ProgressSystems::Complete.before(ProgressSystems::Post));
    });
    assert!(words.contains("cycle"), "{words}");
}

#[test]
fn tables_may_grow_beside_systems_of_the_application() {
    let add = |schedule: &mut Schedule| {
        schedule.add_systems((|| {}).after(ProgressSystems::Complete));
    };
    let mut engine = Engine::builder().initial_rows(8).systems(add).build(Bootstrap::solo()).unwrap();
    let world = engine.comm_world();
    let posted: Vec<_> = (0..100).map(|tag| engine.irecv(vec![0u8; 4], ME, Tag(tag), world).unwrap()).collect();
    for tag in 0..100 {
        engine.send(&[1u8; 4], ME, Tag(tag), world).unwrap();
    }
    engine.wait_all(&posted).unwrap();
    // The application may spawn and change entities of its own.
    let spawn = |mut commands: Commands| {
        commands.spawn(Name);
    };
    let mut engine = with_system(spawn);
    for _ in 0..3 {
        engine.send(&[1u8; 4], ME, Tag(0), world).unwrap();
        engine.recv(&mut [0u8; 4], ME, Tag(0), world).unwrap();
    }
}

#[derive(Component)]
struct Name;
