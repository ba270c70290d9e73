//! Makes the row of each transport that is opened. Where events are traced, its messages are noted.

use bevy_ecs::prelude::World;
use tickwire_components::limits::Limits;
use tickwire_systems::procs::endpoint::{Endpoint, RowStates};
use tickwire_traces::{Messages, Trace};
use tickwire_transports::{AnyTransport, Transport};

/// The row of a transport that has its own variant of [`AnyTransport`].
pub(super) fn inside(limits: &Limits, trace: Option<&Trace>, transport: impl Into<AnyTransport>) -> Endpoint {
    told(trace, Endpoint::new(transport.into(), limits, None))
}

/// The row of a transport that has no variant of its own. It has a column only if the transport keeps state for each CAR.
pub(super) fn outside<T: Transport + 'static>(
    world: &mut World,
    limits: &Limits,
    trace: Option<&Trace>,
    transport: T,
) -> Endpoint {
    let rows = (size_of::<T::RowState>() > 0).then(|| RowStates::register::<T>(world));
    told(trace, Endpoint::new(AnyTransport::outside(transport), limits, rows))
}

/// The same row; a sink is told of its messages if there is one.
fn told(trace: Option<&Trace>, endpoint: Endpoint) -> Endpoint {
    // SAFETY: the parts of one engine, which has one user at a time.
    #[expect(unsafe_code, reason = "several owners of one sink")]
    let trace = trace.map(|trace| unsafe { trace.second() });
    endpoint.noting(trace.map(|trace| Box::new(Messages::new(trace))))
}

#[cfg(test)]
mod tests {
    use super::*;
    use tickwire_systems::procs::endpoint::Aside;
    use tickwire_traces::Ring;
    use tickwire_transports::{Hub, Loopback, Shm, ShmConfig};

    #[test]
    fn a_sink_changes_nothing_but_that_sends_are_noted() {
        let (limits, trace) = (Limits::default(), Trace::new(Ring::new(8)));
        let job = |number: u32| ShmConfig::new(format!("row-{number}-{}", std::process::id()), 0, 2);
        let [plain, noted] = [None, Some(&trace)].map(|trace| {
            let loopback = Loopback::join(&Hub::alone(0, limits.ring_bytes), 0).expect("it joins");
            let shm = Shm::open(job(u32::from(trace.is_some()))).expect("it opens");
            [inside(&limits, trace, loopback), inside(&limits, trace, shm)]
        });
        for (mut plain, mut noted) in plain.into_iter().zip(noted) {
            assert!(plain.transport.get().has_rings() && noted.transport.get().has_rings());
            assert_eq!((plain.aside, noted.aside), (Aside::No, Aside::Noted));
            assert!(plain.messages.get().is_none() && noted.messages.get().is_some());
            let row = |of: &Endpoint| {
                let lengths = [of.eager_max, of.part_bytes, of.inline_end, of.piece_bytes, of.read_min, of.sure_bytes];
                let ways = [of.windows, of.piggybacks, of.plain, of.by_post, of.matches, of.cheap_poll, of.prompt];
                (lengths, ways, of.rows.is_some())
            };
            assert_eq!(row(&plain), row(&noted));
        }
    }
}
