//! How the boards of a communicator are opened. The first blocking operation does it, since all members call that one. They tell each
//! other whether they can, pass their boards to each other, and tell each other whether they have the boards of all. They tell all this
//! by an operation over messages, so all members come to the same answer.

use crate::api::request::OperationError;
use crate::run::engine::Engine;
use std::collections::VecDeque;
use tickwire_components::limits::{BOARD_MEMBERS, BOARD_POLLS, BOARD_SLOTS, BOARDS_MAX, BOARDS_WIDE, SPINS_SHARED};
use tickwire_components::{Comm, Communicator, NIL, PostError, Row, Span, Vc, VcState};
use tickwire_systems::procs::boards::{CommBoards, Members, Standing};
use tickwire_systems::procs::routes::endpoint_of;
use tickwire_systems::procs::seats::{Seat, Seats, Terms};
use tickwire_systems::protocols::board::{SCRATCH_BYTES, leave};
use tickwire_transports::boards::{BOARD_BYTES, BOARD_BYTES_WIDE, OwnBoard, PeerBoard};

/// A member can take part.
const CAN: u8 = 1;
/// It maps the shared heaps of all others.
const MAPS: u8 = 2;
/// It may read the memory of all others.
const READS: u8 = 4;
/// The boards of all members are wide.
const WIDE: u8 = 8;
/// It has a processor for itself.
const ALONE: u8 = 16;

impl Engine {
    /// Opens the boards of a communicator. `name` is the operation that the caller runs: a member that waits in here waits for members that
    /// have not called that operation. It takes rows that were set `aside` ([`Engine::rows_to_open_boards`]).
    ///
    /// # Errors
    /// A member has failed, or the engine is closed.
    #[cold]
    pub(in super::super) fn open_boards(
        &mut self,
        name: &'static str,
        comm: Comm,
        aside: &mut Vec<Row>,
    ) -> Result<(), OperationError> {
        let (row, context) = self.context_of(comm);
        let size = self.store.all().communicators[row].size;
        if !(2..=BOARD_MEMBERS).contains(&size) {
            self.store.all().boards.set(row, context, Standing::None);
            return Ok(());
        }
        let own = self.make_board(comm);
        let told = self.tell_all(name, comm, if own.is_some() { CAN } else { 0 }, aside);
        let all_can = told.as_ref().is_ok_and(|told| told.iter().all(|told| told & CAN != 0));
        let seats = self.pass_boards(comm, own.filter(|_| all_can));
        let can = seats.as_ref().map_or(0, |seats| CAN | self.reach_of(seats));
        // Also after a failure: others may wait for what this member says.
        let said = self.tell_all(name, comm, can, aside);
        let standing = match (told.and(said), seats) {
            (Ok(said), Some(seats)) if said.iter().all(|said| said & CAN != 0) => {
                let all = |what| said.iter().all(|said| said & what != 0);
                let terms = Terms { mapped: all(MAPS), reads: all(READS), wide: all(WIDE), shares: !all(ALONE) };
                let seats = Seats { terms, ..seats };
                let queue = VecDeque::with_capacity(BOARD_SLOTS);
                Standing::Open(Box::new(Members { seats, queue, ended: Vec::with_capacity(1) }))
            }
            (Ok(_), _) => Standing::None,
            (Err(error), seats) => {
                // Others may have opened theirs.
                let all = self.store.all();
                seats.iter().for_each(|seats| leave(seats, all.endpoints));
                let standing = match error {
                    // Nothing was posted, so nobody was told anything, and the call can be made again. The second telling has its rows,
                    // and knows its peers, so only the first one can be refused.
                    OperationError::Post(_) => Standing::Untried,
                    _ => {
                        // Members that have not heard of the failure yet go on and call the operation, so it is counted here too.
                        self.next_call(comm, false);
                        Standing::None
                    }
                };
                self.store.all().boards.set(row, context, standing);
                return Err(error);
            }
        };
        let (shares, all) = (self.shares_processor(), self.store.all());
        all.boards.set(row, context, standing);
        all.boards.patience = if shares { 0 } else { BOARD_POLLS };
        if all.boards.scratch.is_empty() {
            all.boards.scratch = vec![0; SCRATCH_BYTES / size_of::<u128>()].into();
            all.boards.busy.reserve(BOARDS_MAX);
        }
        Ok(())
    }

    /// What holds for this member: whether it maps, or may read, the memory of all others, whether all boards are wide, and whether it
    /// has a processor for itself.
    fn reach_of(&mut self, seats: &Seats) -> u8 {
        let alone = if self.shares_processor() { 0 } else { ALONE };
        let own = alone | if seats.own.is_wide() { WIDE } else { 0 };
        let all = self.store.all();
        let seen = seats.peers.iter().flatten().map(|seat| {
            let boards =
                all.endpoints.get_mut(seat.endpoint as usize).and_then(|of| of.transport.get().shared_memory());
            let reads = boards.is_some_and(|boards| boards.fetches(seat.link));
            let [mapped, wide] = [(seat.board.has_heap(), MAPS), (seat.board.is_wide(), WIDE)]
                .map(|(is_so, says)| if is_so { says } else { 0 });
            ALONE | mapped | wide | if reads { READS } else { 0 }
        });
        seen.fold(MAPS | READS | own, |all, one| all & one)
    }

    /// Whether ranks share processors, as far as this one knows.
    fn shares_processor(&self) -> bool {
        self.spins <= SPINS_SHARED
    }

    /// Rows that this member needs to open the boards of a communicator, besides those of the operation that opens them. None if the
    /// communicator is too large for boards.
    ///
    /// # Errors
    /// The communicator does not exist, or the engine is closed.
    pub(crate) fn rows_to_open_boards(&mut self, comm: Comm) -> Result<usize, PostError> {
        let size = self.store.all().communicators[Communicator::row(comm.0)].size;
        if (2..=BOARD_MEMBERS).contains(&size) { Ok(2 * self.rows_to_tell_all::<u8>(comm)?) } else { Ok(0) }
    }

    /// Makes the own board, and connects to all members. `None` if no endpoint with boards reaches all of them, or there can be no board.
    fn make_board(&mut self, comm: Comm) -> Option<OwnBoard> {
        let (row, context) = self.context_of(comm);
        let mut all = self.store.all();
        if !all.limits.0.boards || all.boards.count() >= BOARDS_MAX {
            return None;
        }
        let Communicator { rank: me, size, .. } = all.communicators[row];
        let procs: Vec<u32> =
            (0..size).filter(|&rank| rank != me).filter_map(|rank| all.communicators[row].proc(rank)).collect();
        // One endpoint with boards must reach all members.
        let shows = endpoint_of(&mut all, *procs.first()?)?;
        let shared = all.endpoints.get_mut(usize::from(shows))?.transport.get().shared_memory()?;
        if !shared.has_boards() {
            return None;
        }
        if !procs.iter().all(|&proc| endpoint_of(&mut all, proc) == Some(shows)) {
            return None;
        }
        let vcs: Vec<Row> = procs.iter().map(|&proc| self.reach(proc)).collect::<Result<_, _>>().ok()?;
        let connected = self.wait_until(|engine| {
            engine.closed.check_request()?;
            let all = engine.store.all();
            let connects = |&vc: &Row| !matches!(all.vcs[vc as usize].state, VcState::Connected | VcState::Failed);
            Ok(!vcs.iter().any(connects))
        });
        let all = self.store.all();
        let is_there = |&vc: &Row| {
            let vc = &all.vcs[vc as usize];
            vc.state == VcState::Connected && vc.endpoint == shows
        };
        if connected.is_err() || !vcs.iter().all(is_there) {
            return None;
        }
        let is_wide = |comm: &&CommBoards| matches!(&comm.standing, Standing::Open(of) if of.seats.own.is_wide());
        let wide = all.boards.comms.iter().filter(is_wide).count() < BOARDS_WIDE;
        let memory = all.endpoints[shows as usize].transport.get().shared_memory()?;
        let made = match wide.then(|| memory.make(context.into(), BOARD_BYTES_WIDE, Span::EMPTY)) {
            Some(Ok(made)) => made,
            _ => memory.make(context.into(), BOARD_BYTES, Span::EMPTY).ok()?,
        };
        OwnBoard::new(made)
    }

    /// Passes the own board to all members, or that there is none, and takes theirs. `None` if one of them has none.
    fn pass_boards(&mut self, comm: Comm, own: Option<OwnBoard>) -> Option<Seats> {
        let (row, context) = self.context_of(comm);
        let has_own = own.is_some();
        let all = self.store.all();
        let Communicator { rank, size, .. } = all.communicators[row];
        let members = (0..size).map(|rank| {
            let known = all.communicators[row].proc(rank).and_then(|proc| all.procs.known.get(proc as usize));
            known.map_or(NIL, |known| known.row)
        });
        let vcs: Vec<Row> = members.collect();
        let mut passed = vec![false; size as usize];
        let mut taken: Vec<Option<Option<Seat>>> = (0..size).map(|other| (other == rank).then_some(None)).collect();
        let waited = self.wait_until(|engine| {
            engine.closed.check_request()?;
            let mut done = true;
            for other in (0..size as usize).filter(|&other| other != rank as usize) {
                done &= engine.pass_board(context, vcs[other], has_own, &mut passed[other], &mut taken[other]);
            }
            if !done {
                // Boards are passed over sockets, at which only this looks.
                engine.look_around();
            }
            Ok(done)
        });
        for endpoint in self.store.endpoints() {
            endpoint.transport.get().shared_memory().into_iter().for_each(|memory| memory.stop_giving(context.into()));
        }
        let own = own.filter(|_| waited.is_ok())?;
        let peers: Box<[Option<Seat>]> = taken.into_iter().map(Option::flatten).collect();
        let missing = (0..).zip(&peers).any(|(other, seat)| other != rank && seat.is_none());
        let (used, terms) = (Default::default(), Terms { mapped: false, reads: false, wide: false, shares: true });
        let seats = Seats { rank, size, own, peers, next: 1, finished: 0, used, terms };
        if missing { None } else { Some(seats) }
    }

    /// Passes the own board to a member, and takes that of it; whether both is done.
    fn pass_board(
        &mut self,
        context: u32,
        vc: Row,
        has_own: bool,
        passed: &mut bool,
        taken: &mut Option<Option<Seat>>,
    ) -> bool {
        let all = self.store.all();
        let memory = match all.vcs.get(vc as usize).filter(|vc| vc.state == VcState::Connected) {
            Some(vc) => all.endpoints[vc.endpoint as usize].transport.get().shared_memory().map(|memory| (vc, memory)),
            None => None,
        };
        let Some((&Vc { endpoint, link, .. }, memory)) = memory else {
            // It has failed, or is elsewhere.
            (*passed, *taken) = (true, Some(None));
            return true;
        };
        if !*passed {
            *passed = memory.give(link, context.into()).unwrap_or(true);
        }
        if !has_own {
            // A member without a board needs none of the others.
            drop(memory.take(link, context.into()));
            return *passed;
        }
        if taken.is_none() {
            *taken = memory.take(link, context.into()).map(|run| {
                let board = PeerBoard::new(run?, memory.heap_of(link))?;
                Some(Seat { board, endpoint, link, vc })
            });
        }
        *passed && taken.is_some()
    }
}
