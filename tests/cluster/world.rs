//! Code of the application damages the engine's world. Whatever it does, the engine must never read freed memory.

use crate::kit::{ME, Seen, assert_poisoned, solo, with_system};
use bevy_ecs::prelude::*;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tickwire::internals::components::slots::EndpointSlot;
use tickwire::internals::components::{
    Arrival, Buffer, Callbacks, Car, Communicator, Held, Large, Node, Request, Supply, Vc,
};
use tickwire::internals::systems::views::ReadColumn;
use tickwire::testing::{Cluster, rows};
use tickwire::{
    Bootstrap, BuildError, Builder, Engine, FinalizeError, PostError, ProcId, ProgressSystems, Rank, RequestError, Tag,
};
use tickwire_tests::cases::BOUND;

/// A damage to a world, and the error that the engine reports.
type Deed = (fn(&mut World), &'static str);

/// Keeps worlds that were taken out of an engine.
static TAKEN: Mutex<Vec<World>> = Mutex::new(Vec::new());

/// All safe functions of bevy that remove rows without calling the hooks that refuse it.
const DEEDS: [Deed; 6] = [
    (|world| world.clear_entities(), "cleared the engine's world"),
    (|world| world.clear_all(), "cleared the engine's world"),
    (|world| *world = World::new(), "another world"),
    (|world| TAKEN.lock().unwrap().push(std::mem::take(world)), "another world"),
    (clear_and_spawn, "cleared the engine's world"),
    (
        |world| {
            world.clear_entities();
            panic!("and then it panicked");
        },
        "and then it panicked",
    ),
];

/// Spawns as many rows as there were, so that counts do not show the damage.
fn clear_and_spawn(world: &mut World) {
    let count = |world: &mut World, id| {
        let archetypes = world.archetypes().iter().filter(|archetype| archetype.contains(id));
        archetypes.map(|archetype| archetype.len() as usize).sum::<usize>()
    };
    let (cars, buffers) = (world.register_component::<Car>(), world.register_component::<Buffer>());
    let (cars, buffers) = (count(world, cars), count(world, buffers));
    world.clear_entities();
    for _ in 0..cars {
        world.spawn((Car::default(), Large::default(), Node::default(), Request::default(), Held::default()));
    }
    for _ in 0..buffers {
        world.spawn(Buffer::default());
    }
    world.spawn_batch([Supply::default(), Supply::default()]).for_each(drop);
    world.spawn((Callbacks::default(), Arrival::default(), Communicator::FREE, Vc::new(0, 0)));
}

#[test]
fn a_world_that_is_cleared_or_replaced_poisons_the_engine() {
    for (deed, words) in DEEDS {
        assert_poisoned(with_system(deed), words);
        // The same damage, done by a command.
        assert_poisoned(with_system(move |mut commands: Commands| commands.queue(deed)), words);
    }
}

/// A builder with a system that damages the world once `told` is set.
fn on_command(deed: fn(&mut World), told: &Arc<AtomicBool>, builder: Builder) -> Builder {
    let told = told.clone();
    builder.systems(move |schedule| {
        let system = move |world: &mut World| {
            if told.load(Ordering::Relaxed) {
                deed(world);
            }
        };
        schedule.add_systems(system.after(ProgressSystems::Complete));
    })
}

/// Two engines. The one that is built first damages its world once `told` is set.
fn pair(shm: bool, deed: fn(&mut World), told: &Arc<AtomicBool>) -> Cluster {
    let first = AtomicU32::new(0);
    let change = |builder: Builder| match first.fetch_add(1, Ordering::Relaxed) {
        0 => on_command(deed, told, builder),
        _ => builder,
    };
    let mut cluster = if shm { Cluster::shm_with(2, change) } else { Cluster::loopback_with(2, change) };
    cluster.checked = false;
    cluster
}

#[test]
fn peers_of_a_lost_world_are_told_and_buffers_in_flight_stay() {
    for (deed, _) in DEEDS {
        for shm in [false, true] {
            let told = Arc::new(AtomicBool::new(false));
            let mut cluster = pair(shm, deed, &told);
            let world = cluster.engines[0].comm_world();
            // A message in each direction, so that the engines are connected.
            for (from, to) in [(0, 1), (1, 0)] {
                let receive = cluster.engines[to].irecv(vec![0u8; 8], Rank(from as u32), Tag(1), world).unwrap();
                let send = cluster.engines[from].isend(vec![1u8; 8], Rank(to as u32), Tag(1), world).unwrap();
                cluster.finish(BOUND, to, receive).unwrap();
                cluster.finish(BOUND, from, send).unwrap();
            }
            let large: Arc<[u8]> = vec![7u8; 1 << 20].into();
            let open: Vec<_> = (0..2)
                .map(|rank| cluster.engines[rank].isend(large.clone(), Rank(1 - rank as u32), Tag(2), world).unwrap())
                .collect();
            let pending: Vec<_> = (0..2)
                .map(|rank| cluster.engines[rank].irecv(vec![0u8; 8], Rank(1 - rank as u32), Tag(3), world).unwrap())
                .collect();
            cluster.tick_times(5);
            let references = Arc::strong_count(&large);
            told.store(true, Ordering::Relaxed);
            // The system only runs if there is something to do. Either engine may have the system.
            for rank in 0..2 {
                let (engine, me) = (&mut cluster.engines[rank], Rank(rank as u32));
                drop((engine.irecv(vec![0u8; 4], me, Tag(9), world), engine.isend(vec![0u8; 4], me, Tag(9), world)));
            }
            cluster.tick_until(BOUND, "a poisoned engine and its peer", |cluster| {
                let ended = |rank: usize, cluster: &mut Cluster| cluster.engines[rank].test(&pending[rank]).is_err();
                ended(0, cluster) && ended(1, cluster)
            });
            let errors = [0, 1].map(|rank| cluster.engines[rank].test(&pending[rank]).unwrap_err());
            let poisoned = errors.iter().position(|error| matches!(error, RequestError::Poisoned(_))).unwrap();
            assert!(matches!(errors[1 - poisoned], RequestError::PeerFailed { .. }), "{errors:?}");
            assert_eq!(Arc::strong_count(&large), references, "a buffer in flight is not freed");
            let ended = cluster.engines[poisoned].finalize(Duration::from_secs(1)).unwrap_err();
            assert!(matches!(ended, FinalizeError::Poisoned(_)), "{ended}");
            drop((open, pending, cluster));
        }
    }
}

#[test]
fn borrowed_buffers_are_the_callers_again_when_a_world_is_lost() {
    for (deed, _) in DEEDS {
        let told = Arc::new(AtomicBool::new(false));
        let mut engine = on_command(deed, &told, Engine::builder()).build(Bootstrap::solo()).unwrap();
        let world = engine.comm_world();
        let (mut into, out) = (vec![0u8; 100_000], vec![1u8; 100_000]);
        engine.scope(|scope| {
            let _receive = scope.irecv(&mut into[..], ME, Tag(1), world).unwrap();
            let _send = scope.isend(&out[..], ME, Tag(2), world).unwrap();
            scope.tick();
            told.store(true, Ordering::Relaxed);
            let _ = scope.isend(&out[..4], ME, Tag(3), world);
            scope.tick();
        });
        into.fill(3);
        drop((into, out));
        let error = engine.recv(&mut [0u8; 4], ME, Tag(4), world).unwrap_err();
        assert!(error.to_string().contains("poisoned"), "{error}");
    }
}

#[test]
fn rows_are_neither_replaced_nor_modified() {
    let words = "written by the engine alone";
    let replace = |mut commands: Commands, rows: Query<Entity, With<Car>>| {
        commands.entity(rows.iter().next().unwrap()).insert(Car::default());
    };
    assert_poisoned(with_system(replace), words);
    let modify = |world: &mut World| {
        let mut rows = world.query_filtered::<Entity, With<Held>>();
        let row = rows.iter(world).next().unwrap();
        let _ = world.modify_component(row, |held: &mut Held| held.clear());
    };
    assert_poisoned(with_system(modify), words);
    let take = |world: &mut World| {
        let mut rows = world.query_filtered::<Entity, With<Request>>();
        let row = rows.iter(world).next().unwrap();
        let _ = world.entity_mut(row).take::<Request>();
    };
    assert_poisoned(with_system(take), words);
    let clone = |world: &mut World| {
        let mut rows = world.query_filtered::<Entity, With<Supply>>();
        let row = rows.iter(world).next().unwrap();
        world.entity_mut(row).clone_and_spawn();
    };
    assert_poisoned(with_system(clone), "spawned, despawned or moved rows");
}

#[test]
fn systems_of_an_application_may_look_at_all_rows() {
    let free = Arc::new(AtomicU32::new(0));
    let seen = free.clone();
    let look = move |cars: ReadColumn<Car>, requests: Query<&Request>| {
        seen.store((cars.len() + requests.iter().len()) as u32, Ordering::Relaxed);
    };
    let mut engine = with_system(look);
    let world = engine.comm_world();
    let receive = engine.irecv(vec![0u8; 4], ME, Tag(0), world).unwrap();
    engine.send(&[1u8; 4], ME, Tag(0), world).unwrap();
    engine.wait(&receive).unwrap();
    let all = rows(&mut engine).cars.len();
    assert_eq!(free.load(Ordering::Relaxed) as usize, 2 * all);
}

#[derive(Component)]
struct Mark;

/// The callback runs in `finalize`, which finds the message.
#[test]
fn a_callback_that_panics_in_finalize_is_its_error() {
    let mut engine = solo();
    let world = engine.comm_world();
    let open = engine.irecv(vec![0u8; 4], ME, Tag(5), world).unwrap();
    let receive = engine.irecv(vec![0u8; 4], ME, Tag(0), world).unwrap();
    engine.on_complete(&receive, |_| panic!("too bad")).unwrap();
    let sent = engine.isend(vec![1u8; 4], ME, Tag(0), world).unwrap();
    let ended = engine.finalize(Duration::from_secs(1)).unwrap_err();
    assert!(matches!(&ended, FinalizeError::Poisoned(why) if why.contains("too bad")), "{ended}");
    drop((open, receive, sent));
}

#[test]
fn a_proc_that_an_observer_moves_is_no_other_one() {
    let prepare = |world: &mut World| {
        world.add_observer(|added: On<Add<Vc>>, vcs: Query<&Vc>, mut commands: Commands| {
            // Not the engine's own, without which it would not be built.
            if vcs.iter().len() > 1 && vcs.get(added.entity).unwrap().proc == 1 {
                commands.entity(added.entity).insert(Mark);
            }
        });
    };
    let mut cluster = Cluster::loopback_with(2, |builder| builder.world(prepare));
    cluster.checked = false;
    let engine = &mut cluster.engines[0];
    let world = engine.comm_world();
    let error = engine.isend(vec![1u8; 4], Rank(1), Tag(0), world).unwrap_err().error;
    assert!(matches!(&error, PostError::Poisoned(words) if words.contains("moved rows")), "{error}");
    let error = engine.isend(vec![1u8; 4], ME, Tag(0), world).unwrap_err().error;
    assert!(matches!(error, PostError::Poisoned(_)), "{error}");
    assert!(engine.proc_slot_row(ProcId(1)).is_err() && engine.proc_slot_row(ProcId(0)).is_err());
    assert!(engine.tick().is_idle());
    assert!(matches!(engine.finalize(Duration::from_secs(1)), Err(FinalizeError::Poisoned(_))));
}

#[test]
fn observers_of_rows_that_grow_are_met_as_systems_are() {
    let deeds: [Deed; 4] = [
        (|world| world.clear_entities(), "cleared"),
        (|world| *world = World::new(), "another world"),
        (|_| panic!("an observer has a bug"), "an observer has a bug"),
        (
            |world| {
                world.spawn((Car::default(), Large::default(), Node::default(), Request::default(), Held::default()));
            },
            "moved rows",
        ),
    ];
    for (deed, words) in deeds {
        let told = Arc::new(AtomicBool::new(false));
        let watched = told.clone();
        let prepare = move |world: &mut World| {
            world.add_observer(move |_: On<Add<Car>>, mut commands: Commands| {
                if watched.swap(false, Ordering::Relaxed) {
                    commands.queue(deed);
                }
            });
        };
        let mut engine = Engine::builder().initial_rows(8).world(prepare).build(Bootstrap::solo()).unwrap();
        let world = engine.comm_world();
        told.store(true, Ordering::Relaxed);
        let mut posted = Vec::new();
        let error = loop {
            match engine.irecv(vec![0u8; 4], ME, Tag(posted.len() as u32), world) {
                Ok(request) => posted.push(request),
                Err(rejected) => break rejected.error,
            }
            assert!(posted.len() < 1000);
        };
        assert!(matches!(&error, PostError::Poisoned(said) if said.contains(words)), "{error}");
        let error = engine.wait(&posted[0]).unwrap_err();
        assert!(matches!(&error, RequestError::Poisoned(said) if said.contains(words)), "{error}");
        assert!(engine.take(posted.remove(0)).unwrap_err().buffer.is_none());
        drop(engine);
    }
}

#[test]
fn a_world_with_rows_of_the_engine_is_refused() {
    let deeds: [fn(&mut World); 3] = [
        |world| {
            world.spawn(Car::default());
        },
        |world| {
            world.spawn((Car::default(), Large::default(), Node::default(), Request::default(), Held::default()));
        },
        |world| {
            world.spawn(Vc::new(7, 0));
        },
    ];
    for deed in deeds {
        match Engine::builder().world(deed).build(Bootstrap::solo()) {
            Err(BuildError::World(words)) => assert!(words.contains("before the engine"), "{words}"),
            other => panic!("{:?}", other.map(drop)),
        }
    }
    // A component that is on some rows only, so that rows of the same kind differ.
    let prepare = |world: &mut World| {
        let mut first = true;
        world.add_observer(move |added: On<Add<Car>>, mut commands: Commands| {
            if std::mem::take(&mut first) {
                commands.entity(added.entity).insert(Mark);
            }
        });
    };
    assert!(matches!(Engine::builder().world(prepare).build(Bootstrap::solo()), Err(BuildError::World(_))));
}

#[test]
fn resources_may_be_cleared() {
    let mut engine = with_system(|world: &mut World| world.clear_resources());
    let world = engine.comm_world();
    for round in 1..20 {
        engine.send(&[1u8; 4], ME, Tag(0), world).unwrap();
        assert_eq!(engine.recv(&mut [0u8; 4], ME, Tag(0), world).unwrap().length, 4);
        engine.tick_at(round << 30);
    }
}

#[test]
fn a_static_slot_is_shared_whoever_registers_it() {
    let builder = Engine::builder().slot::<Seen>().slot::<Seen>();
    let builder = builder.world(|world| world.register_required_components::<Vc, Seen>());
    let mut engine = builder.build(Bootstrap::solo()).unwrap();
    assert_eq!(engine.slots().iter().filter(|slot| slot.name == Seen::NAME).count(), 1);
    assert!(engine.slot::<Seen>(ProcId(0)).is_some());
}

#[test]
fn a_dynamic_slot_is_of_its_engine_and_may_have_any_alignment() {
    use std::alloc::Layout;
    let (mut one, mut other) = (solo(), solo());
    let long = one.register_slot("long", Layout::new::<[u8; 4096]>()).unwrap();
    let short = other.register_slot("short", Layout::new::<u8>()).unwrap();
    assert_eq!(other.dynamic_slot(ProcId(0), short).unwrap().len(), 1);
    assert!(other.dynamic_slot(ProcId(0), long).is_none() && one.dynamic_slot(ProcId(0), short).is_none());
    assert_eq!((other.dynamic_slot_uses(long), other.dynamic_slot_uses(short)), (0, 1));
    for (align, bytes) in [(1, 0), (1, 3), (16, 16), (32, 32), (64, 1), (128, 4096), (4096, 4097)] {
        let slot =
            one.register_slot(&format!("{align}, {bytes}"), Layout::from_size_align(bytes, align).unwrap()).unwrap();
        assert_eq!((slot.align(), slot.bytes()), (align, bytes.next_multiple_of(align)));
        let value = one.dynamic_slot(ProcId(0), slot).unwrap();
        assert!(value.as_ptr().addr().is_multiple_of(align) && value.len() == slot.bytes());
        assert!(value.iter().all(|&byte| byte == 0));
        value.fill(7);
        assert!(one.dynamic_slot(ProcId(0), slot).unwrap().iter().all(|&byte| byte == 7));
    }
}
