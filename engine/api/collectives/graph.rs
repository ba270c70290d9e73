//! Posting the graph of a collective operation.

use super::boards::Posting;
use super::choice::{Choice, Run};
use super::request::own_request;
use super::{AnyCall, Call, Draw};
use crate::api::graphs::{add_edges, add_graph};
use crate::api::request::{OperationError, Posted};
use crate::run::engine::Engine;
use std::any::TypeId;
use std::mem::ManuallyDrop;
use tickwire_components::{
    Asking, Car, CarKind, CarState, Comm, Communicator, Computation, Graph, GraphKey, NIL, NoBytes, Node, NodeWork,
    Pieces, PostError, RequestId, RequestState, Row, Span, context,
};
use tickwire_systems::collectives::draft::{Act, Draft, PERSISTENT_TAG, STEP_BITS, STEPS_MAX};
use tickwire_systems::procs::communicators::{known, live};
use tickwire_systems::protocols::graph::failure::cancel;
use tickwire_systems::protocols::graph::kept::{NextCall, renew};
use tickwire_systems::steps::signatures::note;
use tickwire_systems::tick::complete::start_graph;

impl Engine {
    /// Starts an operation.
    pub(crate) fn post_collective<B: Pieces>(
        &mut self,
        call: Call<B, impl Draw<B>>,
        comm: Comm,
        scoped: bool,
    ) -> Posted<B> {
        let name = call.name;
        let (buffer, posted) = call.with(comm, |call| self.post_any(call));
        self.token_of(posted, (name, comm), buffer, scoped)
    }

    /// Starts an operation. Returns the row of its request, or [`NIL`] if there is nothing to do.
    fn post_any(&mut self, call: &mut AnyCall<'_>) -> Result<Row, PostError> {
        let comm = call.comm;
        let noted = self.note_start(call.name, comm);
        let posted = self.lending(|engine| match engine.choose_boards(call)? {
            Choice::Boards(collective, reduction) => {
                let row = engine.request_row(comm)?;
                engine.post_on_boards(comm, collective, &Posting::Once(reduction), row);
                Ok(row)
            }
            Choice::Drawn(draft) => engine.start_drawn((call.name, comm), call.key(), draft),
            Choice::NotYet => engine.start_undrawn(call),
        });
        if let Some(noted) = noted {
            self.note_started(noted, posted.as_ref().ok().copied());
        }
        posted
    }

    /// Starts an operation and waits for it. Its buffers stay with the caller.
    pub(crate) fn run_collective<B: Pieces>(
        &mut self,
        call: Call<B, impl Draw<B>>,
        comm: Comm,
    ) -> Result<(), OperationError> {
        let name = call.name;
        let noted = self.note_call(name);
        let ended = self.run_at_once(call, comm);
        if let Some(noted) = noted {
            self.note_called(noted, name, comm);
        }
        ended
    }

    #[inline(always)]
    fn run_at_once<B: Pieces, D: Draw<B>>(&mut self, call: Call<B, D>, comm: Comm) -> Result<(), OperationError> {
        let member = match self.member_on_boards(comm) {
            Ok(Some(member)) => member,
            Ok(None) => return self.run_apart(call, comm),
            Err(error) => return Err(self.raise_post(comm, call.name, error).into()),
        };
        let Call { name, buffer, draw, same } = call;
        // After a panic a peer may still read the buffers that were lent, so they are not freed.
        let buffer = ManuallyDrop::new(buffer);
        let ended = match self.lending(|engine| engine.run_on_boards(comm, member, &*buffer, draw)) {
            Run::Ended(ended) => ended,
            run => self.finish_run((name, comm), run, key((name, comm), same, &*buffer)),
        };
        drop(ManuallyDrop::into_inner(buffer));
        ended
    }

    /// As [`Engine::run_at_once`], where the boards are not open yet, or never will be.
    #[cold]
    #[inline(never)]
    fn run_apart<B: Pieces>(&mut self, call: Call<B, impl Draw<B>>, comm: Comm) -> Result<(), OperationError> {
        let run = |call: &mut AnyCall<'_>| match self.lending(|engine| engine.run_without_boards(call)) {
            None => self.run_undrawn(call),
            Some(run) => self.finish_run((call.name, comm), run, call.key()),
        };
        call.with(comm, run).1
    }

    /// Runs an operation by messages, and waits for it. Its buffers stay with the caller.
    pub(crate) fn run_graph<B: Pieces>(
        &mut self,
        call: Call<B, impl Draw<B>>,
        comm: Comm,
    ) -> Result<(), OperationError> {
        call.with(comm, |call| self.run_undrawn(call)).1
    }

    fn run_undrawn(&mut self, call: &mut AnyCall<'_>) -> Result<(), OperationError> {
        let started = self.lending(|engine| engine.start_undrawn(call));
        self.finish_graph((call.name, call.comm), started)
    }

    /// Ends a call that waits: it has ended, or its graph was drawn and is to run.
    #[cold]
    #[inline(never)]
    fn finish_run(
        &mut self,
        (name, comm): (&'static str, Comm),
        run: Run,
        key: Option<GraphKey>,
    ) -> Result<(), OperationError> {
        match run {
            Run::Ended(ended) => ended,
            Run::Refused(error) => Err(self.raise_post(comm, name, error).into()),
            Run::Drawn(draft) => {
                let started = self.lending(|engine| engine.start_drawn((name, comm), key, draft));
                self.finish_graph((name, comm), started)
            }
        }
    }

    /// Waits for an operation by messages that was started. Its row is [`NIL`] if there was nothing to do.
    fn finish_graph(
        &mut self,
        (name, comm): (&'static str, Comm),
        started: Result<Row, PostError>,
    ) -> Result<(), OperationError> {
        match started {
            Ok(NIL) => Ok(()),
            Ok(row) => {
                let request = self.hold(row, NoBytes, true);
                self.wait_lent(request).map(drop)
            }
            Err(error) => Err(self.raise_post(comm, name, error).into()),
        }
    }

    /// Starts an operation by messages whose graph is not drawn yet. Returns the row of its request, or [`NIL`] if there is nothing to do.
    fn start_undrawn(&mut self, call: &mut AnyCall<'_>) -> Result<Row, PostError> {
        let (comm, key) = (call.comm, call.key());
        if let Some(row) = self.start_like(comm, key.as_ref())? {
            return Ok(row);
        }
        let draft = self.draw(call)?;
        self.start_draft((call.name, comm), draft, key)
    }

    /// As [`Engine::start_undrawn`], for a drawn graph.
    fn start_drawn(
        &mut self,
        (name, comm): (&'static str, Comm),
        key: Option<GraphKey>,
        draft: Box<Draft>,
    ) -> Result<Row, PostError> {
        match self.start_like(comm, key.as_ref())? {
            Some(row) => Ok(row),
            None => self.start_draft((name, comm), draft, key),
        }
    }

    /// If an earlier call was the same and its graph is free, starts that graph. Returns the row of the request.
    fn start_like(&mut self, comm: Comm, key: Option<&GraphKey>) -> Result<Option<Row>, PostError> {
        self.closed.check_post()?;
        live(self.store.all().communicators, comm.0)?;
        if self.store.progress().free_cars.count == 0 {
            self.need_rows(1)?;
        }
        let kept = key.and_then(|key| Some((self.store.progress().graphs.waiting(key)?, key.buffers)));
        let Some((number, buffers)) = kept else { return Ok(None) };
        self.renew_graph(number, buffers, comm)?;
        Ok(Some(self.start_numbered(number)))
    }

    /// Starts an operation from its drawn graph. Returns the row of its request, or [`NIL`] if there is nothing to do.
    fn start_draft(
        &mut self,
        (name, comm): (&'static str, Comm),
        draft: Box<Draft>,
        key: Option<GraphKey>,
    ) -> Result<Row, PostError> {
        if draft.acts.is_empty() {
            // Other members may have something to do, so the operation is counted here too: all members number operations alike.
            self.next_call(comm, false);
            return Ok(NIL);
        }
        let number = self.build_graph(name, comm, draft, key, None)?;
        Ok(self.start_numbered(number))
    }

    /// Starts a graph. Returns the row of its request.
    fn start_numbered(&mut self, number: u32) -> Row {
        let request = self.store.progress().graphs.get(number).map_or(NIL, |graph| graph.request);
        self.store.with(|rows, wire| start_graph(rows, wire, number));
        request
    }

    /// Takes the rows of a graph, and counts an operation of the communicator. A persistent graph also keeps the addresses of its buffers.
    pub(super) fn build_graph(
        &mut self,
        name: &'static str,
        comm: Comm,
        draft: Box<Draft>,
        key: Option<GraphKey>,
        buffers: Option<Box<[Span]>>,
    ) -> Result<u32, PostError> {
        let peers = self.reach_peers(comm, &draft)?;
        self.need_rows(draft.acts.len() + 1)?;
        let (call, first_tag) = self.next_call(comm, buffers.is_some());
        let mut all = self.store.all();
        let Communicator { context: word, rank: me, priority, .. } = all.communicators[Communicator::row(comm.0)];
        let word = word | context::COLLECTIVE;
        let mut rows = Vec::with_capacity(draft.acts.len() + 1);
        // `need_rows` has made sure that there are as many.
        rows.extend(std::iter::from_fn(|| all.progress.free_cars.pop(all.cars)).take(draft.acts.len() + 1));
        let Some(request) = rows.pop().filter(|_| rows.len() == draft.acts.len()) else { return Err(self.full()) };
        let computations: Vec<Computation> = draft.acts.iter().filter_map(computation).collect();
        let mut needs = vec![0; rows.len()];
        let successors = add_edges(&draft.edges, &rows, &mut needs);
        let mut computed = 0;
        let mut first = 0;
        for ((&row, act), (&vc, (needs, following))) in
            rows.iter().zip(&draft.acts).zip(peers.iter().zip(needs.iter().zip(&successors)))
        {
            let (kind, source, step, span) = match *act {
                Act::Send { step, bytes, .. } => (CarKind::Send, me, step, bytes),
                Act::Receive { from, step, bytes } => (CarKind::Receive, from, step, bytes),
                Act::Compute(_) => (CarKind::Computation, me, 0, Span::EMPTY),
            };
            let tag = first_tag | step;
            let car = Car { kind, state: CarState::Resting, context: word, source, tag, ..Car::default() };
            all.cars[row as usize] = Car { vc, span, request, priority, ..car };
            let count = following.len() as u32;
            let is_computation = kind == CarKind::Computation;
            let work = if is_computation { NodeWork::Computation(computed) } else { NodeWork::Message };
            computed += u32::from(is_computation);
            all.nodes[row as usize] = Node { graph: NIL, needs: *needs, unmet: 0, first, successors: count, work };
            first += count;
            note(all.progress, row, None);
        }
        own_request(all.cars, all.requests, request, word);
        let graph = Graph {
            name,
            comm,
            request,
            call,
            starts: 0,
            asking: Asking::default(),
            nodes: rows.into(),
            successors: successors.concat().into(),
            computations: computations.into(),
            reduce: draft.reduction,
            blocks: None,
            temporaries: ManuallyDrop::new(draft.temporaries),
            persistent: buffers.is_some(),
            buffers: buffers.unwrap_or_default(),
            key,
            used: 0,
            failed: false,
        };
        Ok(add_graph(&mut all, graph))
    }

    /// Gives the graph of an earlier call that was the same a new request, and the buffers of this call.
    fn renew_graph(&mut self, number: u32, buffers: [Span; 2], comm: Comm) -> Result<(), PostError> {
        let (call, first_tag) = self.next_call(comm, false);
        let all = self.store.all();
        let Communicator { context: word, priority, .. } = all.communicators[Communicator::row(comm.0)];
        let Some(request) = all.progress.free_cars.pop(all.cars) else { return Err(self.full()) };
        own_request(all.cars, all.requests, request, word | context::COLLECTIVE);
        let next = NextCall { request, call, first_tag, steps: STEPS_MAX, priority, buffers };
        self.store.with(|rows, _| renew(rows, number, &next));
        Ok(())
    }

    /// The number of the next operation of a communicator that runs by messages, and the tag of its first step.
    pub(super) fn next_call(&mut self, comm: Comm, persistent: bool) -> (u32, u32) {
        let all = self.store.all();
        let tag = |number: u32| number << STEP_BITS & (PERSISTENT_TAG - 1);
        if !persistent {
            let communicator = &mut all.communicators[Communicator::row(comm.0)];
            let number = communicator.collectives;
            communicator.collectives = number.wrapping_add(1);
            self.refuse_on_boards(comm);
            return (number, tag(number));
        }
        let communicators = &*all.communicators;
        let made = &mut all.progress.graphs.made;
        made.retain(|&(word, _)| known(communicators, word).is_some());
        let own = communicators[Communicator::row(comm.0)].context;
        let place = made.iter().position(|&(word, _)| word == own).unwrap_or_else(|| {
            made.push((own, 0));
            made.len() - 1
        });
        let number = made[place].1;
        made[place].1 = number.wrapping_add(1);
        (number, PERSISTENT_TAG | tag(number))
    }

    /// The VC of each act's peer. [`NIL`] for acts without a peer.
    fn reach_peers(&mut self, comm: Comm, draft: &Draft) -> Result<Vec<Row>, PostError> {
        let mut peers = Vec::with_capacity(draft.acts.len());
        for act in &draft.acts {
            let (Act::Send { to: rank, .. } | Act::Receive { from: rank, .. }) = *act else {
                peers.push(NIL);
                continue;
            };
            peers.push(self.reach_member(comm, rank)?);
        }
        Ok(peers)
    }

    /// Cancels graphs and operations on boards whose requests have borrowed buffers: of one request, or all.
    #[cold]
    pub(crate) fn cancel_graphs(&mut self, only: Option<RequestId>) {
        self.cancel_on_boards(only);
        for number in 0..self.store.progress().graphs.list.len() as u32 {
            let all = self.store.all();
            let Some(graph) = all.progress.graphs.get(number) else { continue };
            let Some(request) = all.requests.get(graph.request as usize) else { continue };
            let meant = only.is_none_or(|only| only.row == graph.request && only.generation == request.generation);
            let open = matches!(request.state, RequestState::Active | RequestState::Detached);
            if meant && open && request.scoped {
                self.store.with(|rows, _| cancel(rows, number));
            }
        }
    }
}

impl AnyCall<'_> {
    /// What this call has in common with calls that share its graph.
    fn key(&self) -> Option<GraphKey> {
        key((self.name, self.comm), self.same, self.buffer)
    }
}

fn key((name, comm): (&'static str, Comm), same: Option<(u32, TypeId)>, buffer: &dyn Pieces) -> Option<GraphKey> {
    let (root, types) = same?;
    let piece = |index| if index < buffer.pieces() { buffer.piece(index) } else { Span::EMPTY };
    Some(GraphKey { name, comm, root, types, buffers: [piece(0), piece(1)] })
}

/// The computation of an act, if it computes.
fn computation(act: &Act) -> Option<Computation> {
    match *act {
        Act::Compute(computation) => Some(computation),
        _ => None,
    }
}
