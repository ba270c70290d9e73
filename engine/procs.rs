//! Procs as an application sees them: their connections, their routes, and progress for one of them.

use crate::core::Engine;
use tickwire_components::{NIL, PostError, ProcId, VcState, Work};
use tickwire_systems::connections::card_of;
use tickwire_transports::Capabilities;

/// What a route is for. Every class takes the best route there is; so far all classes share the VC of point-to-point.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum TrafficClass {
    /// Messages.
    PointToPoint,
}

/// One transport's answer to how a proc can be reached.
#[derive(Clone, Debug)]
pub struct Route {
    /// The transport.
    pub transport: String,
    /// Its priority among those that reach the proc.
    pub priority: u8,
    /// Whether it is the one that is used.
    pub chosen: bool,
    /// Why it does not reach the proc, if it does not.
    pub refused: Option<String>,
}

/// What to progress. See [`Engine::progress`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Only<'a> {
    /// Everything, as a tick does.
    All,
    /// One transport, by name.
    Transport(&'a str),
    /// The connection to one proc.
    Proc(ProcId),
}

impl Engine {
    /// The state of the connection to a proc; `None` if there is no such proc.
    pub fn vc_state(&mut self, proc: ProcId) -> Option<VcState> {
        let all = self.tables.all(&mut self.world);
        let row = all.procs.known.get(proc.0 as usize)?.row;
        Some(all.vcs.get(row as usize).map_or(VcState::Unconnected, |vc| vc.state))
    }

    /// Why the connection to a proc has failed, if it has.
    pub fn vc_failure(&mut self, proc: ProcId) -> Option<&str> {
        let all = self.tables.all(&mut self.world);
        let row = all.procs.known.get(proc.0 as usize)?.row;
        (all.vcs.get(row as usize)?.state == VcState::Failed).then(|| all.procs.reason(row))
    }

    /// Connects to a proc ahead of its first use.
    ///
    /// # Errors
    /// If there is no such proc, or no transport reaches it.
    pub fn connect(&mut self, proc: ProcId) -> Result<(), PostError> {
        self.contact(proc.0).map(drop)
    }

    /// How each transport would reach a proc for a class of traffic, and which one does.
    pub fn routes(&mut self, proc: ProcId, _class: TrafficClass) -> Vec<Route> {
        let all = self.tables.all(&mut self.world);
        let card = all.procs.card(proc.0);
        let mut routes: Vec<Route> = Vec::new();
        for endpoint in all.endpoints.iter_mut() {
            let transport = endpoint.transport.get();
            let part = card_of(card, transport.name()).unwrap_or_default();
            routes.push(Route {
                transport: transport.name().to_owned(),
                priority: transport.capabilities().priority,
                chosen: false,
                refused: transport.reaches(proc.0, part).err(),
            });
        }
        // The first of the highest priority, as contact chooses.
        let best = routes.iter().filter(|r| r.refused.is_none()).map(|r| r.priority).max();
        if let Some(route) = routes.iter_mut().find(|r| r.refused.is_none() && Some(r.priority) == best) {
            route.chosen = true;
        }
        routes
    }

    /// The transports that are open, with what they can do.
    pub fn transports(&mut self) -> Vec<(String, Capabilities)> {
        let endpoints = self.tables.endpoints(&mut self.world);
        endpoints
            .iter_mut()
            .map(|endpoint| endpoint.transport.get())
            .map(|transport| (transport.name().to_owned(), transport.capabilities().clone()))
            .collect()
    }

    /// A tick that reads from one transport or one connection only. Sends and everything that has arrived before
    /// progress as in any tick.
    pub fn progress(&mut self, only: Only<'_>) -> Work {
        let all = self.tables.all(&mut self.world);
        all.progress.only = match only {
            Only::All => (NIL, NIL),
            Only::Transport(name) => {
                let index = all.endpoints.iter_mut().position(|e| e.transport.get().name() == name);
                (index.map_or(NIL - 1, |index| index as u32), NIL)
            }
            Only::Proc(proc) => {
                let row = all.procs.known.get(proc.0 as usize).map_or(NIL, |known| known.row);
                all.vcs.get(row as usize).map_or((NIL - 1, NIL), |vc| (vc.endpoint.into(), vc.link))
            }
        };
        // Only the systems know of it.
        let passes = std::mem::take(&mut self.frequent_passes);
        let work = self.tick();
        self.frequent_passes = passes;
        self.tables.progress(&mut self.world).only = (NIL, NIL);
        work
    }
}
