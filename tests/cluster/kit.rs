//! Helpers of several files: single engines, clusters of every kind, and what a poisoned engine must answer.

use bevy_ecs::prelude::*;
use std::time::Duration;
use tickwire::internals::components::slots::EndpointSlot;
use tickwire::testing::{Cluster, SimConfig, SimNet};
use tickwire::{Bootstrap, Engine, FinalizeError, PostError, ProgressSystems, Rank, Request, RequestError, Tag, Test};

/// A single engine, which reaches itself.
pub(crate) fn solo() -> Engine {
    Engine::builder().initial_rows(32).build(Bootstrap::solo()).unwrap()
}

/// The rank of a single engine, and of engine 0 of a cluster.
pub(crate) const ME: Rank = Rank(0);

/// One cluster for each way in which the engines of a process reach each other.
pub(crate) fn ways(engines: u32) -> Vec<Cluster> {
    let net = SimNet::new(engines, SimConfig::calm(1));
    vec![Cluster::loopback(engines), Cluster::shm(engines), Cluster::sim(engines, &net)]
}

/// The failed proc and the reason that a receive from any source reports; `None` while it is pending.
pub(crate) fn told(cluster: &mut Cluster, rank: usize, request: &Request<Vec<u8>>) -> Option<(u32, String)> {
    match cluster.engines[rank].test(request) {
        Ok(Test::Pending) => None,
        Err(RequestError::PeerFailedPending { proc, reason }) => Some((proc.0, reason)),
        other => panic!("{other:?}"),
    }
}

/// An engine with one more system after Complete.
pub(crate) fn with_system<M>(system: impl IntoSystem<(), (), M> + Send + 'static) -> Engine {
    let add = move |schedule: &mut Schedule| {
        schedule.add_systems(IntoSystem::into_system(system).after(ProgressSystems::Complete));
    };
    Engine::builder().systems(add).build(Bootstrap::solo()).unwrap()
}

/// Checks that the first message poisons the engine, that each later call returns that error, and that the engine still cleans up.
pub(crate) fn assert_poisoned(mut engine: Engine, words: &str) {
    let world = engine.comm_world();
    let open = engine.irecv(vec![1u8; 4], ME, Tag(5), world).unwrap();
    let receive = engine.irecv(vec![0u8; 4], ME, Tag(0), world).unwrap();
    let submitter = engine.submitter();
    let submitted = submitter.irecv(vec![0u8; 4], ME, Tag(6), world).unwrap();
    engine.tick();
    let _ = engine.isend(vec![1u8; 4], ME, Tag(0), world);
    engine.tick();
    assert!(matches!(engine.test(&open), Err(RequestError::Poisoned(_))));
    let error = engine.wait(&open).unwrap_err();
    assert!(matches!(&error, RequestError::Poisoned(why) if why.contains(words)), "{error}");
    let refused = engine.isend(vec![1u8], ME, Tag(0), world).unwrap_err();
    assert!(matches!(refused.error, PostError::Poisoned(_)), "{refused}");
    assert!(matches!(engine.irecv(vec![1u8], ME, Tag(0), world).unwrap_err().error, PostError::Poisoned(_)));
    assert!(matches!(engine.cancel(&open), Err(RequestError::Poisoned(_))));
    assert!(matches!(engine.wait_any(&[&open]), Err(RequestError::Poisoned(_))));
    assert!(engine.tick().is_idle());
    assert!(matches!(submitted.wait().unwrap_err().error, RequestError::Poisoned(_)));
    assert!(submitter.isend(vec![1u8], ME, Tag(0), world).is_err());
    let ended = engine.finalize(Duration::from_secs(1)).unwrap_err();
    assert!(matches!(&ended, FinalizeError::Poisoned(why) if why.contains(words)), "{ended}");
    assert_eq!(engine.finalize(Duration::from_secs(1)), Ok(()));
    drop((open, receive));
}

/// An endpoint slot that two users share: a counter for each proc.
#[derive(Component, Default)]
pub(crate) struct Seen(pub(crate) u64);

impl EndpointSlot for Seen {
    const NAME: &'static str = "seen";
}

/// The index of the completed request.
pub(crate) fn one(told: Option<(usize, tickwire::Status)>) -> Option<usize> {
    told.map(|(index, _)| index)
}

/// The indices of the completed requests.
pub(crate) fn some(told: Vec<(usize, tickwire::Status)>) -> Vec<usize> {
    told.into_iter().map(|(index, _)| index).collect()
}
