//! Which transport each class of traffic would take in this environment. An engine is built, and asked for its routes.

use comfy_table::Table;
use serde::Serialize;
use tickwire::traces::Ring;
use tickwire::{Bootstrap, Engine, ProcId, TrafficClass};

use crate::worlds::OneHost;

/// The routes to a rank.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub(super) struct To {
    /// Which rank.
    to: &'static str,
    /// The transport of each class, in the order of [`TrafficClass::ALL`]. `None` if no transport is left.
    over: [Option<String>; 3],
}

/// The routes to this rank itself, and to another rank of this host.
///
/// # Errors
/// No engine can be built. The words say why.
pub(super) fn gather() -> Result<Vec<To>, String> {
    let exchange = OneHost::new("info", 0, 2);
    // With a sink of its own, this engine replaces no trace file that the environment names.
    let mut engine =
        Engine::builder().trace(Ring::new(1)).build(Bootstrap::custom(exchange)).map_err(|error| error.to_string())?;
    let mut to = |to, proc| {
        let over = TrafficClass::ALL.map(|class| {
            let chosen = engine.routes(proc, class).into_iter().find(|route| route.chosen);
            chosen.map(|route| route.transport)
        });
        To { to, over }
    };
    Ok(vec![to("the rank itself", ProcId(0)), to("a rank of this host", ProcId(1))])
}

/// A row for each rank.
pub(super) fn table(routes: &[To]) -> Table {
    let [messages, one_sided, atomics] = TrafficClass::ALL.map(TrafficClass::name);
    let rows = routes.iter().map(|To { to, over }| {
        let [messages, one_sided, atomics] =
            over.each_ref().map(|over| over.as_deref().unwrap_or("nothing").to_owned());
        [(*to).to_owned(), messages, one_sided, atomics]
    });
    super::table(["routes to", messages, one_sided, atomics], [false; 4], rows)
}
