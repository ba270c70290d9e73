//! A rank that plays its part of a program, and notes what it sees.

use super::program::{COUNT, Op, Phase, Program, Section, TICKET, Update, What};
use tickwire::{Comm, Engine, LockKind, Rank, Request, Window, op};

/// What a rank has seen of a phase.
#[derive(Default)]
pub(crate) struct Seen {
    /// What each of its operations has returned, in their order.
    pub(crate) returned: Vec<Vec<u64>>,
    /// The number that each of its sections has found.
    pub(crate) tickets: Vec<u64>,
    /// Its own part after the phase.
    pub(crate) after: Vec<u64>,
}

/// What a rank has seen, by phase.
pub(crate) type Played = Vec<Seen>;

/// What an operation returns, or will.
enum Returned {
    Now(Vec<u64>),
    /// Nothing, once it is done.
    Put(Request<Vec<u64>>),
    Got(Request<Vec<u64>>),
    Both(Request<(Vec<u64>, Vec<u64>)>),
}

/// Plays the part of a rank.
pub(crate) fn play(engine: &mut Engine, program: &Program, rank: u32, window: Window<u64>, world: Comm) -> Played {
    let mut played = Vec::new();
    for phase in &program.phases {
        let mut seen = Seen::default();
        match phase {
            Phase::Fenced(ops) => {
                engine.win_fence(window).unwrap();
                seen.returned = perform_all(engine, &ops[rank as usize], window);
                engine.win_fence_last(window).unwrap();
            }
            Phase::Shared(ops) => {
                engine.win_lock_all(window).unwrap();
                engine.barrier(world).unwrap();
                seen.returned = perform_all(engine, &ops[rank as usize], window);
                engine.win_unlock_all(window).unwrap();
            }
            Phase::Locked(sections) => {
                engine.barrier(world).unwrap();
                sections[rank as usize].iter().for_each(|section| perform_section(engine, section, window, &mut seen));
            }
        }
        engine.barrier(world).unwrap();
        seen.after = vec![0; COUNT + 1];
        engine.win_read(&mut seen.after, 0, window).unwrap();
        engine.barrier(world).unwrap();
        played.push(seen);
    }
    played
}

fn perform_all(engine: &mut Engine, ops: &[Op], window: Window<u64>) -> Vec<Vec<u64>> {
    let returned: Vec<Returned> = ops.iter().map(|op| perform(engine, op, window)).collect();
    returned.into_iter().map(|returned| wait(engine, returned)).collect()
}

fn perform_section(engine: &mut Engine, section: &Section, window: Window<u64>, seen: &mut Seen) {
    let target = Rank(section.target);
    let kind = if section.alone { LockKind::Exclusive } else { LockKind::Shared };
    engine.win_lock(kind, target, window).unwrap();
    let mut ticket = [0];
    engine.get(&mut ticket, target, TICKET, window).unwrap();
    for op in &section.ops {
        let returned = perform(engine, op, window);
        seen.returned.push(wait(engine, returned));
        // A get behind a put is not ordered by itself.
        engine.win_flush(target, window).unwrap();
    }
    if section.alone {
        engine.put(&[ticket[0] + 1], target, TICKET, window).unwrap();
    }
    engine.win_unlock(target, window).unwrap();
    seen.tickets.push(ticket[0]);
}

fn perform(engine: &mut Engine, op: &Op, window: Window<u64>) -> Returned {
    let (target, at) = (Rank(op.target), op.at);
    let mut into = vec![0; op.count];
    match (op.what, op.held) {
        (What::Put, false) => {
            engine.put(&op.operands(), target, at, window).unwrap();
            Returned::Now(Vec::new())
        }
        (What::Put, true) => Returned::Put(engine.rput(op.operands(), target, at, window).unwrap()),
        (What::Get, false) => {
            engine.get(&mut into, target, at, window).unwrap();
            Returned::Now(into)
        }
        (What::Get, true) => Returned::Got(engine.rget(into, target, at, window).unwrap()),
        (What::Swap { expected }, _) => {
            let old = engine.compare_and_swap(expected, op.operand(0), target, at, window).unwrap();
            Returned::Now(vec![old])
        }
        (What::Update(by) | What::Fetch(by), _) => match by {
            Update::Sum => update(engine, op, op::Sum, window),
            Update::Xor => update(engine, op, op::BitXor, window),
            Update::Max => update(engine, op, op::Max, window),
            Update::Replace => update(engine, op, op::Replace, window),
            Update::Keep => update(engine, op, op::Keep, window),
        },
    }
}

fn update<O: tickwire::Update<u64>>(engine: &mut Engine, op: &Op, by: O, window: Window<u64>) -> Returned {
    let (target, at, from) = (Rank(op.target), op.at, op.operands());
    let mut into = vec![0; op.count];
    match (op.what, op.held) {
        (What::Fetch(_), false) if op.count == 1 => {
            Returned::Now(vec![engine.fetch_and_op(from[0], by, target, at, window).unwrap()])
        }
        (What::Fetch(_), false) => {
            engine.get_accumulate(&from, &mut into, by, target, at, window).unwrap();
            Returned::Now(into)
        }
        (What::Fetch(_), true) => Returned::Both(engine.rget_accumulate(from, into, by, target, at, window).unwrap()),
        (_, false) => {
            engine.accumulate(&from, by, target, at, window).unwrap();
            Returned::Now(Vec::new())
        }
        (_, true) => Returned::Put(engine.raccumulate(from, by, target, at, window).unwrap()),
    }
}

fn wait(engine: &mut Engine, returned: Returned) -> Vec<u64> {
    match returned {
        Returned::Now(values) => values,
        Returned::Put(request) => {
            engine.wait_take(request).unwrap();
            Vec::new()
        }
        Returned::Got(request) => engine.wait_take(request).unwrap().0,
        Returned::Both(request) => engine.wait_take(request).unwrap().0.1,
    }
}
