//! Runs a program: by ranks in threads, or by the engines of a cluster, which are ticked in turn.

use super::calls::{Members, Site, post};
use super::items::scramble;
use super::neighbours::Net;
use super::program::{Form, Made, Program, Step};
use super::runs::Run;
use std::sync::atomic::{AtomicUsize, Ordering};
use tickwire::testing::Cluster;
use tickwire::{Agreed, Agreement, Comm, Engine};

/// Most rounds in which no rank gets any further.
const BOUND: u32 = 50_000;
/// Most operations that are open at the same time.
const OPEN_MAX: usize = 12;
/// Most steps that an engine of a cluster takes between two ticks.
const STEPS_A_TICK: u64 = 4;

/// An operation that a rank began in a step.
struct Begun {
    run: Box<dyn Run>,
    step: usize,
    is_persistent: bool,
    is_open: bool,
}

/// One rank of a program.
struct Player<'a> {
    program: &'a Program,
    rank: u32,
    /// Whether buffers may be in the shared heap.
    heap: bool,
    /// By number of the communicator. `None` if this rank is not a member.
    comms: Vec<Option<Members>>,
    begun: Vec<Begun>,
    /// The next step.
    next: usize,
    /// The operations that must end before the next step, as indices in `begun`. The last one is waited for first.
    /// `None` if they are not known yet.
    awaited: Option<Vec<usize>>,
}

impl<'a> Player<'a> {
    fn new(program: &'a Program, rank: u32, heap: bool, comms: &[Option<Comm>]) -> Self {
        let members = |(&(made, net), comm): (&(Made, Net), &Option<Comm>)| {
            let world = made.members(rank, program.ranks);
            let own = world.iter().position(|&other| other == rank)?;
            Some(Members { comm: (*comm)?, world, own, net })
        };
        let comms = program.comms.iter().zip(comms).map(members).collect();
        Player { program, rank, heap, comms, begun: Vec::new(), next: 0, awaited: None }
    }

    /// Gives its communicators their topologies.
    fn set_topologies(&self, engine: &mut Engine) {
        for Members { comm, world, own, net } in self.comms.iter().flatten() {
            engine.comm_set_topology(*comm, net.topology(*own, world.len())).unwrap();
        }
    }

    fn has_ended(&self) -> bool {
        self.next > self.program.steps.len()
    }

    /// All open operations as indices in `begun`, in this rank's own order.
    fn all_open(&self) -> Vec<usize> {
        let mut open: Vec<usize> = (0..self.begun.len()).filter(|&at| self.begun[at].is_open).collect();
        open.sort_by_key(|&at| scramble(u64::from(self.rank) << 32 ^ (at * 64 + self.next) as u64));
        open
    }

    /// The step of the persistent operation that is started again.
    fn again(&self, which: usize) -> Option<usize> {
        let is_persistent =
            |step: &usize| matches!(&self.program.steps[*step], Step::Call(call) if call.form == Form::Persistent);
        let made: Vec<usize> = (0..self.next).filter(is_persistent).collect();
        made.get(which % made.len().max(1)).copied()
    }

    /// The operations that must end before the next step, as indices in `begun`.
    fn awaits(&self) -> Vec<usize> {
        let open = self.all_open();
        match self.program.steps.get(self.next) {
            Some(Step::Call(_)) if open.len() < OPEN_MAX => vec![],
            Some(Step::Again(which)) => {
                let step = self.again(*which);
                open.into_iter().filter(|&at| Some(self.begun[at].step) == step).collect()
            }
            _ => open,
        }
    }

    /// Does the next step, or waits for an open operation. With `waits`, it uses blocking calls. Returns whether it
    /// could go on.
    fn advance(&mut self, engine: &mut Engine, waits: bool) -> bool {
        let awaited = match self.awaited.take() {
            Some(awaited) => awaited,
            None => self.awaits(),
        };
        if let Some((&at, rest)) = awaited.split_last() {
            let begun = &mut self.begun[at];
            if !waits && !begun.run.is_done(engine) {
                self.awaited = Some(awaited);
                return false;
            }
            begun.run.check(engine);
            begun.is_open = false;
            self.awaited = (!rest.is_empty()).then(|| rest.to_vec());
            return true;
        }
        self.step(engine, waits);
        self.next += 1;
        true
    }

    fn step(&mut self, engine: &mut Engine, waits: bool) {
        match self.program.steps.get(self.next) {
            Some(Step::Call(call)) => {
                let Some(members) = self.comms[call.comm % self.comms.len()].clone() else { return };
                let (step, mut call, form) = (self.next, call.clone(), call.form);
                // Engines that are ticked in turn cannot wait in a call or in a scope.
                if !waits && matches!(form, Form::Waits | Form::Scoped | Form::ScopedPersistent) {
                    call.form = Form::Begins;
                }
                let is_persistent = form == Form::Persistent;
                // Most buffers are in the heap, so that often those of all ranks are.
                let place = |side: u64| scramble(side << 32 | (step as u64) << 8 | u64::from(self.rank));
                let in_heap = |side: u64| self.heap && !place(side).is_multiple_of(8);
                let heap = [0, 1].map(in_heap);
                if let Some(run) = post(engine, Site { call, number: step, members, heap }) {
                    self.begun.push(Begun { run, step, is_persistent, is_open: true });
                    if form == Form::Waits {
                        self.awaited = Some(vec![self.begun.len() - 1]);
                    }
                }
            }
            Some(Step::Again(which)) => {
                let step = self.again(*which);
                if let Some(begun) = self.begun.iter_mut().find(|begun| Some(begun.step) == step) {
                    begun.run.start(engine);
                    begun.is_open = true;
                }
            }
            Some(Step::Settle) | None => self.begun.retain(|begun| begun.is_persistent),
        }
    }

    /// Frees its communicators and requests.
    fn leave(self, engine: &mut Engine) {
        drop(self.begun);
        for ((made, _), members) in self.program.comms.iter().zip(self.comms) {
            if let (Some(members), false) = (members, matches!(made, Made::World)) {
                engine.comm_free(members.comm).unwrap();
            }
        }
    }
}

/// Plays a rank of a program by blocking calls. With `heap`, most of its buffers are in the shared heap. `step` always
/// holds the number of the current step.
///
/// # Panics
/// If a call fails, or its result differs from the model.
pub fn play(engine: &mut Engine, rank: u32, heap: bool, program: &Program, step: &AtomicUsize) {
    let world = engine.comm_world();
    let make = |(made, _): &(Made, Net)| match (made, made.color(rank)) {
        (_, Some((color, key))) => engine.comm_split(world, color, key).unwrap(),
        (Made::Dup, None) => Some(engine.comm_dup(world).unwrap()),
        _ => Some(world),
    };
    let comms: Vec<_> = program.comms.iter().map(make).collect();
    let mut player = Player::new(program, rank, heap, &comms);
    player.set_topologies(engine);
    while !player.has_ended() {
        step.store(player.next, Ordering::Relaxed);
        player.advance(engine, true);
    }
    player.leave(engine);
}

/// Plays a program on the engines of a cluster. Some engines are ahead of others.
///
/// # Panics
/// If a call fails, or its result differs from the model.
pub fn play_in_turn(cluster: &mut Cluster, program: &Program) {
    let comms: Vec<Vec<Option<Comm>>> = program.comms.iter().map(|&(made, _)| make(cluster, made)).collect();
    let player = |rank: u32| {
        let own: Vec<Option<Comm>> = comms.iter().map(|comms| comms[rank as usize]).collect();
        Player::new(program, rank, false, &own)
    };
    let mut players: Vec<Player> = (0..program.ranks).map(player).collect();
    players.iter().zip(&mut cluster.engines).for_each(|(player, engine)| player.set_topologies(engine));
    let (mut round, mut idle) = (0, 0);
    while players.iter().any(|player| !player.has_ended()) {
        let mut moved = false;
        for (rank, (player, engine)) in (0..).zip(players.iter_mut().zip(&mut cluster.engines)) {
            let steps = scramble(round * 64 + rank) % (STEPS_A_TICK + 1);
            moved |= (0..steps).any(|_| !player.has_ended() && player.advance(engine, false));
        }
        (round, idle) = (round + 1, if moved { 0 } else { idle + 1 });
        let next = || players.iter().map(|player| player.next).collect::<Vec<_>>();
        assert!(idle < BOUND, "steps {:?} come to no end\n{}", next(), cluster.report());
        cluster.tick_all();
    }
    for (player, engine) in players.into_iter().zip(&mut cluster.engines) {
        player.leave(engine);
    }
}

/// Makes a communicator on all engines. Returns each engine's handle; `None` if it is not a member.
fn make(cluster: &mut Cluster, made: Made) -> Vec<Option<Comm>> {
    let mut agreements: Vec<Option<Agreement>> = (0..)
        .zip(&mut cluster.engines)
        .map(|(rank, engine)| {
            let world = engine.comm_world();
            match (made, made.color(rank)) {
                (_, Some((color, key))) => Some(engine.start_split(world, color, key).unwrap()),
                (Made::Dup, None) => Some(engine.start_dup(world).unwrap()),
                _ => None,
            }
        })
        .collect();
    let mut comms: Vec<Option<Comm>> = cluster.engines.iter_mut().map(|engine| Some(engine.comm_world())).collect();
    cluster.tick_until(BOUND, "a communicator", |cluster| {
        let each = cluster.engines.iter_mut().zip(agreements.iter_mut().zip(&mut comms));
        for (engine, (agreement, comm)) in each {
            if let Some(agreeing) = agreement
                && let Agreed::Done(made) = engine.test_agreement(agreeing).unwrap()
            {
                (*comm, *agreement) = (made, None);
            }
        }
        agreements.iter().all(Option::is_none)
    });
    comms
}
