//! Endpoint slots: columns of the application beside the VCs.

use crate::kit::Seen;
use bevy_ecs::prelude::*;
use tickwire::internals::systems::views::Column;
use tickwire::testing::{Cluster, rows};
use tickwire::{Engine, ProgressSystems};
use tickwire_tests::cases;

#[test]
fn two_users_share_a_static_slot() {
    let mut cluster = Cluster::loopback_with(3, |builder| {
        builder.slot::<Seen>().systems(|schedule| {
            let count = |mut slots: Column<Seen>| slots.iter_mut().for_each(|seen| seen.0 += 1);
            schedule.add_systems(count.after(ProgressSystems::Complete));
        })
    });
    cases::wildcards(&mut cluster);
    let engine = &mut cluster.engines[0];
    let slots: Vec<_> = engine.slots().iter().map(|slot| (slot.name.clone(), slot.bytes, slot.dynamic)).collect();
    assert_eq!(slots, [("seen".to_owned(), 8, false)]);
    for proc in 0..3 {
        let row = engine.proc_slot_row(tickwire::ProcId(proc)).unwrap();
        let seen = engine.slot::<Seen>(tickwire::ProcId(proc)).unwrap();
        assert!(seen.0 > 0, "the system counts at every proc");
        seen.0 += 1_000_000;
        assert!(rows(engine).vcs[row as usize].proc == proc, "slots are found by the proc's row");
    }
    cases::storm(&mut cluster, 1, 3);
    for proc in 0..3 {
        assert!(cluster.engines[0].slot::<Seen>(tickwire::ProcId(proc)).unwrap().0 > 1_000_001);
    }
    assert!(cluster.engines[0].slot::<Seen>(tickwire::ProcId(3)).is_none());
}

#[test]
fn a_dynamic_slot_costs_nothing_until_it_is_used_and_moves_no_row() {
    use std::alloc::Layout;
    let mut cluster = Cluster::loopback(3);
    cases::wildcards(&mut cluster);
    let engine = &mut cluster.engines[0];
    let slot = engine.register_slot("credits", Layout::new::<[u32; 5]>()).unwrap();
    assert_eq!(engine.register_slot("credits", Layout::new::<[u32; 5]>()), Ok(slot), "by name, shared");
    let refused = engine.register_slot("credits", Layout::new::<u64>()).unwrap_err();
    assert!(refused.contains("20 bytes aligned to 4"), "{refused}");
    assert_eq!((engine.dynamic_slot_uses(slot), slot.bytes()), (0, 20));
    let proc = tickwire::ProcId(2);
    let where_is = |engine: &mut Engine| {
        let procs: Vec<u32> = rows(engine).vcs.iter().map(|vc| vc.proc).collect();
        (engine.proc_slot_row(proc), procs)
    };
    let before = where_is(engine);
    assert_eq!(engine.dynamic_slot(proc, slot).unwrap(), [0; 20]);
    engine.dynamic_slot(proc, slot).unwrap()[3] = 77;
    assert_eq!((engine.dynamic_slot(proc, slot).unwrap()[3], engine.dynamic_slot_uses(slot)), (77, 1));
    assert_eq!(where_is(engine), before);
    cases::storm(&mut cluster, 2, 3);
    assert_eq!(cluster.engines[0].dynamic_slot(proc, slot).unwrap()[3], 77);
}
