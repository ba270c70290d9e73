//! Procs as an application sees them: their connections, their routes, and progress for one of them.

use crate::run::engine::{Closed, Engine};
use tickwire_components::{NIL, PostError, ProcId, ProgressError, TrafficClass, VcState, Work};
use tickwire_systems::procs::endpoint::Endpoint;
use tickwire_systems::procs::routes::{Candidate, candidates, endpoint_for};
use tickwire_transports::Capabilities;

/// How one transport could reach a proc.
#[derive(Clone, Debug)]
pub struct Route {
    /// The transport.
    pub transport: String,
    /// The transport's priority among those that reach the proc.
    pub priority: u8,
    /// Whether this transport is the one that is used.
    pub chosen: bool,
    /// Why the transport does not reach the proc, may not carry the class, or could not connect; `None` if it can be used.
    pub refused: Option<String>,
}

/// What to progress. See [`Engine::progress`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Only<'a> {
    /// Everything, as a tick does.
    All,
    /// One transport, by its name as [`Engine::transports`] gives it.
    Transport(&'a str),
    /// The connection to one proc.
    Proc(ProcId),
}

impl Engine {
    /// The state of the connection to a proc; `None` if there is no such proc.
    pub fn vc_state(&mut self, proc: ProcId) -> Option<VcState> {
        let all = self.store.all();
        let row = all.procs.known.get(proc.0 as usize)?.row;
        Some(all.vcs.get(row as usize).map_or(VcState::Unconnected, |vc| vc.state))
    }

    /// Why the connection to a proc has failed, if it has.
    pub fn vc_failure(&mut self, proc: ProcId) -> Option<&str> {
        let all = self.store.all();
        let row = all.procs.known.get(proc.0 as usize)?.row;
        (all.vcs.get(row as usize)?.state == VcState::Failed).then(|| all.procs.reason(row))
    }

    /// Connects to a proc before its first use.
    ///
    /// # Errors
    /// If there is no such proc, or no transport reaches it.
    pub fn connect(&mut self, proc: ProcId) -> Result<(), PostError> {
        self.contact(proc.0).map(drop)
    }

    /// How each transport could reach a proc for a class of traffic, and which one does. Once the proc is connected, that is the transport
    /// in use. Empty if there is no such proc.
    pub fn routes(&mut self, proc: ProcId, class: TrafficClass) -> Vec<Route> {
        let mut all = self.store.all();
        if all.procs.known.get(proc.0 as usize).is_none() {
            return Vec::new();
        }
        let candidates = candidates(&mut all, proc.0, class);
        let used = endpoint_for(&mut all, proc.0, class);
        let mut name = |endpoint: u8| all.endpoints[usize::from(endpoint)].transport.get().name().to_owned();
        let routes = candidates.into_iter().map(|Candidate { endpoint, priority, refused, .. }| {
            let chosen = used == Some(endpoint);
            Route { transport: name(endpoint), priority, chosen, refused }
        });
        routes.collect()
    }

    /// The open transports, by name, with their capabilities.
    pub fn transports(&mut self) -> Vec<(String, Capabilities)> {
        let endpoints = self.store.endpoints();
        endpoints
            .iter_mut()
            .map(|endpoint| endpoint.transport.get())
            .map(|transport| (transport.name().to_owned(), transport.capabilities().clone()))
            .collect()
    }

    /// A tick that reads from only one transport or one connection. Sends, and everything that has arrived before, make progress as in any
    /// tick.
    ///
    /// ```
    /// # use tickwire::{Bootstrap, Engine, Only, ProcId};
    /// # let mut engine = Engine::builder().build(Bootstrap::solo()).unwrap();
    /// engine.progress(Only::Transport("loopback"))?;
    /// engine.progress(Only::Proc(ProcId(0)))?;
    /// assert!(engine.progress(Only::Transport("carrier pigeon")).is_err());
    /// # Ok::<(), tickwire::ProgressError>(())
    /// ```
    ///
    /// # Errors
    /// No transport is open under this name, or there is no such proc. Then nothing was done.
    pub fn progress(&mut self, only: Only<'_>) -> Result<Work, ProgressError> {
        self.store.progress().only = self.place_of(only)?;
        // Deliver does not obey `only`; the systems do.
        let delivers = self.delivers;
        self.allow_deliver(false);
        let work = self.tick();
        // If the tick has poisoned the engine, Deliver stays off.
        self.allow_deliver(delivers && self.closed == Closed::No);
        self.store.progress().only = (NIL, NIL);
        Ok(work)
    }

    /// Where to read: the number of an endpoint and the number of a link. [`NIL`] stands for all.
    fn place_of(&mut self, only: Only<'_>) -> Result<(u32, u32), ProgressError> {
        /// No endpoint has this number.
        const NOWHERE: (u32, u32) = (NIL - 1, NIL);
        let all = self.store.all();
        match only {
            Only::All => Ok((NIL, NIL)),
            Only::Transport(name) => {
                let named = |endpoint: &mut Endpoint| endpoint.transport.get().name() == name;
                let Some(number) = all.endpoints.iter_mut().position(named) else {
                    let open: Vec<_> = all.endpoints.iter_mut().map(|e| e.transport.get().name().to_owned()).collect();
                    return Err(ProgressError::Transport { name: name.to_owned(), open: open.join(", ") });
                };
                Ok((number as u32, NIL))
            }
            Only::Proc(proc) => {
                let Some(known) = all.procs.known.get(proc.0 as usize) else {
                    return Err(ProgressError::Proc { proc, last: all.procs.known.len() as u32 - 1 });
                };
                // A proc that has no link yet, or none any more, has nothing to read.
                let vc = all.vcs.get(known.row as usize).filter(|vc| vc.link != NIL);
                Ok(vc.map_or(NOWHERE, |vc| (vc.endpoint.into(), vc.link)))
            }
        }
    }
}
