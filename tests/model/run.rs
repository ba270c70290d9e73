//! Runs programs on clusters: all ranks of a program in one process.

use super::explain::explain;
use super::player::Player;
use super::program::{COMMS, Program, Sent, color};
use crate::agreements::{agree, everyone};
use crate::cases::BOUND;
use tickwire::testing::{Cluster, SplitMix, rows};
use tickwire::{Agreement, Comm, CommError, Engine};

/// Idle rounds of ticks after which the engines are quiet.
pub const QUIET: u32 = 2;

/// The communicators of a program, on each engine.
fn communicators(cluster: &mut Cluster) -> Vec<[Comm; COMMS]> {
    let world = cluster.engines[0].comm_world();
    let dups = make(cluster, |engine| engine.start_dup(world));
    let parts = make(cluster, |engine| {
        let (me, ranks) = (engine.rank().0, engine.size());
        engine.start_split(world, Some(color(ranks, me)), -(me as i32))
    });
    let own = cluster.engines[0].comm_self();
    dups.into_iter().zip(parts).map(|(dup, part)| [world, dup, part, own]).collect()
}

/// Makes a communicator by an agreement of all engines. Returns its handle on each engine.
fn make(cluster: &mut Cluster, begin: impl FnMut(&mut Engine) -> Result<Agreement, CommError>) -> Vec<Comm> {
    let ranks = everyone(cluster);
    agree(cluster, &ranks, begin).into_iter().filter_map(|made| made.unwrap()).collect()
}

/// Counts of a case.
pub struct Played {
    /// Calls that were made.
    pub calls: usize,
    /// How often engines changed from lists to the index, and back.
    pub switches: [usize; 2],
}

/// A program on a cluster.
pub struct Run<'a> {
    /// Its engines.
    pub cluster: Cluster,
    program: &'a Program,
    /// The message that each call sends, if any.
    pub messages: Vec<Option<Sent>>,
    /// The ranks.
    pub players: Vec<Player>,
    indexed: Vec<bool>,
    /// How often engines changed from lists to the index, and back.
    pub switches: [usize; 2],
}

impl<'a> Run<'a> {
    /// A program that is to be played on a cluster.
    pub fn new(mut cluster: Cluster, program: &'a Program) -> Self {
        let comms = communicators(&mut cluster);
        let players = cluster.engines.iter_mut().zip(comms).map(|(engine, comms)| Player::new(engine, comms)).collect();
        let indexed = vec![false; cluster.engines.len()];
        Run { cluster, program, messages: program.messages(false), players, indexed, switches: [0; 2] }
    }

    /// Makes one call of the program.
    pub fn play(&mut self, op: usize) {
        let proc = self.program.ops[op].proc(self.program.ranks) as usize;
        self.players[proc].play(&mut self.cluster.engines[proc], self.program, op, self.messages[op].as_ref());
    }

    /// Counts the engines that have made an index or left it.
    fn look(&mut self) {
        for (engine, indexed) in self.cluster.engines.iter_mut().zip(&mut self.indexed) {
            let now = rows(engine).progress.indexed();
            if std::mem::replace(indexed, now) != now {
                self.switches[usize::from(!now)] += 1;
            }
        }
    }

    /// Takes the operations that are done, and returns the sends among them.
    pub fn collect(&mut self) -> Vec<usize> {
        self.look();
        let each = self.players.iter_mut().zip(&mut self.cluster.engines);
        each.flat_map(|(player, engine)| player.collect(engine)).collect()
    }

    fn inbox(&self, proc: usize, comm: usize) -> Vec<Sent> {
        Program::inbox(&self.messages, proc as u32, comm)
    }

    /// Cancels the open receives, and posts receives for all messages that are left.
    pub fn wind_up(&mut self) {
        let each = self.players.iter_mut().zip(&mut self.cluster.engines);
        each.for_each(|(player, engine)| player.cancel_all(engine));
        self.look();
        for proc in 0..self.players.len() {
            let messages = std::array::from_fn(|comm| self.inbox(proc, comm).len());
            self.players[proc].wind_up(&mut self.cluster.engines[proc], messages);
        }
    }

    /// Ticks until all operations are done, and checks that nothing is left in any engine.
    pub fn finish(self) -> Vec<Player> {
        let Run { mut cluster, mut players, .. } = self;
        cluster.tick_until(BOUND, "all receives and sends are done", |cluster| {
            for (player, engine) in players.iter_mut().zip(&mut cluster.engines) {
                player.collect(engine);
            }
            players.iter().all(Player::is_idle)
        });
        players.iter_mut().for_each(Player::free);
        // The program does not wait for buffered sends. A send whose memory was read ends later than its receive,
        // too.
        cluster.tick_until(BOUND, "buffered sends are done", |cluster| {
            cluster.engines.iter_mut().all(|engine| rows(engine).progress.active == 0)
        });
        // A slow engine is ticked only once in several rounds.
        let rounds = cluster.net.as_ref().map_or(1, |net| net.config().slow_rounds);
        cluster.tick_times(QUIET * rounds);
        cluster.assert_at_rest();
        players
    }
}

/// Makes the calls in the order of the program, with ticks of some engines in between. Some order of arrival must
/// explain what each proc has seen.
///
/// # Panics
/// If no order of arrival explains it.
pub fn at_once_on(cluster: Cluster, program: &Program, seed: u64) -> Played {
    let mut run = Run::new(cluster, program);
    let mut random = SplitMix::new(seed);
    // Some programs make many calls between two ticks.
    let pace = [8, 8, 30, 100][random.below(4) as usize];
    for op in 0..program.ops.len() {
        run.play(op);
        match random.below(pace) {
            0 => drop(run.cluster.tick_all()),
            1 | 2 => drop(run.cluster.tick(random.below(program.ranks.into()) as usize)),
            3 => drop(run.collect()),
            _ => {}
        }
    }
    run.wind_up();
    let inboxes: Vec<Vec<Vec<Sent>>> =
        (0..run.players.len()).map(|proc| (0..COMMS).map(|comm| run.inbox(proc, comm)).collect()).collect();
    let switches = run.switches;
    let players = run.finish();
    for (player, inbox) in players.iter().zip(&inboxes) {
        for (comm, (log, messages)) in player.logs.iter().zip(inbox).enumerate() {
            if let Err(why) = explain(log, messages) {
                panic!("proc {} in communicator {comm}: {why}\n{log:?}\n{messages:?}", player.me);
            }
        }
    }
    Played { calls: program.ops.len(), switches }
}
