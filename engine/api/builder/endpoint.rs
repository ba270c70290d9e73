//! Makes the row of each transport that is opened. Where events are traced, the transport gets a tap.

use bevy_ecs::prelude::World;
use tickwire_components::limits::Limits;
use tickwire_systems::procs::endpoint::{Endpoint, RowStates};
use tickwire_traces::Trace;
use tickwire_transports::{AnyTransport, Tapped, Transport};

/// The row of a transport that has its own variant of [`AnyTransport`], with a tap if events are traced.
pub(super) fn inside<T: Transport + 'static>(limits: &Limits, trace: Option<&Trace>, transport: T) -> Endpoint
where
    AnyTransport: From<T> + From<Tapped<T>>,
{
    let transport = match trace {
        Some(trace) => tapped(transport, trace).into(),
        None => transport.into(),
    };
    Endpoint::new(transport, limits, None)
}

/// The row of a transport that has no variant of its own, with a tap if events are traced.
pub(super) fn outside<T: Transport + 'static>(
    world: &mut World,
    limits: &Limits,
    trace: Option<&Trace>,
    transport: T,
) -> Endpoint {
    match trace {
        Some(trace) => boxed(world, limits, tapped(transport, trace)),
        None => boxed(world, limits, transport),
    }
}

fn tapped<T: Transport>(transport: T, trace: &Trace) -> Tapped<T> {
    // SAFETY: the parts of one engine, which has one user at a time.
    #[expect(unsafe_code, reason = "several owners of one sink")]
    Tapped::new(transport, unsafe { trace.second() })
}

/// The row of a boxed transport. It has a column only if the transport keeps state for each CAR.
fn boxed<T: Transport + 'static>(world: &mut World, limits: &Limits, transport: T) -> Endpoint {
    let rows = (size_of::<T::RowState>() > 0).then(|| RowStates::register::<T>(world));
    Endpoint::new(AnyTransport::outside(transport), limits, rows)
}
