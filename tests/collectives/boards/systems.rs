//! Engines with systems of the application: these see the requests of operations on boards end in Complete.

use crate::kit::on_threads;
use std::time::Duration;
use tickwire::{Engine, op};
use tickwire_tests::systems::SeenEnds;

#[test]
fn systems_of_the_application_see_operations_on_boards_end_in_complete() {
    on_threads(2, |rank, bootstrap| {
        let seen = SeenEnds::default();
        let mut engine = seen.add_to(Engine::builder()).build(bootstrap).unwrap();
        let world = engine.comm_world();
        // This opens the boards.
        engine.barrier(world).unwrap();
        for count in [1, 400, 100_000] {
            seen.forget();
            let sum = engine.iallreduce(vec![u64::from(rank); count], vec![0; count], op::Sum, world).unwrap();
            engine.wait(&sum).unwrap();
            seen.check(1);
            assert_eq!(engine.take(sum).unwrap().0.1, vec![1; count]);
        }
        engine.finalize(Duration::from_secs(20)).unwrap();
    });
}
