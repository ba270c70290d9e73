//! Plays a rank of a program, and records what the rank observes.

use super::exposed::play_exposed;
use super::program::{COUNT, Op, Phase, Program, Section, TICKET, Update, What};
use tickwire::{Comm, Datatype, Engine, LockKind, Rank, Request, Typed, TypedPair, Window, WindowError, op};
use tickwire_tests::one_sided::Parts;

/// The observations of a rank in a phase.
#[derive(Default)]
pub(crate) struct Seen {
    /// The values that each of its operations has returned, in the order of operations.
    pub(crate) returned: Vec<Vec<u64>>,
    /// The ticket number that each of its sections has found.
    pub(crate) tickets: Vec<u64>,
    /// Its own part after the phase.
    pub(crate) after: Vec<u64>,
    /// In a phase on exposed memory: what its region held at the end.
    pub(crate) region: Vec<u64>,
}

/// The observations of a rank, by phase.
pub(crate) type Played = Vec<Seen>;

/// The values that an operation has returned, or the request that will return them.
pub(super) enum Returned {
    Now(Vec<u64>),
    /// A put or an update: it returns no values.
    Put(Request<Vec<u64>>),
    Got(Request<Vec<u64>>),
    Both(Request<(Vec<u64>, Vec<u64>)>),
    TypedPut(Request<Typed<Vec<u64>>>),
    TypedGot(Request<Typed<Vec<u64>>>),
    TypedBoth(Request<TypedPair<Vec<u64>, Vec<u64>>>),
}

/// Plays a rank of a program.
pub(crate) fn play(engine: &mut Engine, program: &Program, rank: u32, parts: &Parts, world: Comm) -> Played {
    let (mut played, window) = (Vec::new(), parts.window);
    for phase in &program.phases {
        let mut seen = Seen::default();
        match phase {
            Phase::Fenced(ops) => {
                engine.win_fence(window).unwrap();
                seen.returned = perform_all(engine, &ops[rank as usize], parts);
                engine.win_fence_last(window).unwrap();
            }
            Phase::Posted(ops, tests) => {
                let group = engine.comm_group(world).unwrap();
                engine.win_post(&group, window).unwrap();
                engine.win_start(&group, window).unwrap();
                seen.returned = perform_all(engine, &ops[rank as usize], parts);
                engine.win_complete(window).unwrap();
                if tests[rank as usize] {
                    while !engine.win_test(window).unwrap() {
                        engine.tick();
                    }
                } else {
                    engine.win_wait(window).unwrap();
                }
            }
            Phase::Shared(ops) => {
                engine.win_lock_all(window).unwrap();
                engine.barrier(world).unwrap();
                seen.returned = perform_all(engine, &ops[rank as usize], parts);
                engine.win_unlock_all(window).unwrap();
            }
            Phase::Locked(sections) => {
                engine.barrier(world).unwrap();
                sections[rank as usize].iter().for_each(|section| {
                    if !(section.target == rank && perform_lent(engine, section, window, &mut seen)) {
                        perform_section(engine, section, parts, &mut seen);
                    }
                });
            }
            Phase::Exposed(ops) => {
                let own = played.last().map_or(vec![0; COUNT + 1], |before: &Seen| before.after.clone());
                (seen.returned, seen.region) = play_exposed(engine, &ops[rank as usize], &own, world);
            }
        }
        engine.barrier(world).unwrap();
        seen.after = vec![0; COUNT + 1];
        engine.win_read(&mut seen.after, parts.at(Rank(rank), 0), window).unwrap();
        engine.barrier(world).unwrap();
        played.push(seen);
    }
    played
}

fn perform_all(engine: &mut Engine, ops: &[Op], parts: &Parts) -> Vec<Vec<u64>> {
    let returned: Vec<Returned> = ops.iter().map(|op| perform(engine, op, parts)).collect();
    returned.into_iter().map(|returned| wait(engine, returned)).collect()
}

fn perform_section(engine: &mut Engine, section: &Section, parts: &Parts, seen: &mut Seen) {
    let (target, window) = (Rank(section.target), parts.window);
    let ticket_at = parts.at(target, TICKET);
    let kind = if section.alone { LockKind::Exclusive } else { LockKind::Shared };
    engine.win_lock(kind, target, window).unwrap();
    let mut ticket = [0];
    engine.get(&mut ticket, target, ticket_at, window).unwrap();
    for op in &section.ops {
        let returned = perform(engine, op, parts);
        seen.returned.push(wait(engine, returned));
        // Only a flush orders a get after a put.
        engine.win_flush(target, window).unwrap();
    }
    if section.alone {
        engine.put(&[ticket[0] + 1], target, ticket_at, window).unwrap();
    }
    engine.win_unlock(target, window).unwrap();
    seen.tickets.push(ticket[0]);
}

/// Does the operations of a section in the own part while it is lent. Returns whether it can be lent.
fn perform_lent(engine: &mut Engine, section: &Section, window: Window<u64>, seen: &mut Seen) -> bool {
    if !section.alone || !section.lent {
        return false;
    }
    let mut part = match engine.win_exclusive(window) {
        Ok(part) => part,
        // Attached memory is not lent.
        Err(WindowError::OwnPart { .. }) => return false,
        Err(error) => panic!("{error}"),
    };
    seen.tickets.push(part[TICKET]);
    part[TICKET] += 1;
    for op in &section.ops {
        let old: Vec<u64> = op.places().map(|place| part[place]).collect();
        op.places().zip(&old).enumerate().for_each(|(index, (place, old))| part[place] = op.apply(*old, index));
        seen.returned.push(if matches!(op.what, What::Put | What::Update(_)) { Vec::new() } else { old });
    }
    true
}

fn perform(engine: &mut Engine, op: &Op, parts: &Parts) -> Returned {
    let (target, window) = (Rank(op.target), parts.window);
    let at = parts.at(target, op.at);
    if op.stride > 1 {
        return perform_typed(engine, op, (target, at), window);
    }
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
            Update::Sum => update(engine, op, op::Sum, (target, at), window),
            Update::Xor => update(engine, op, op::BitXor, (target, at), window),
            Update::Max => update(engine, op, op::Max, (target, at), window),
            Update::Replace => update(engine, op, op::Replace, (target, at), window),
            Update::Keep => update(engine, op, op::Keep, (target, at), window),
        },
    }
}

fn update<O: tickwire::Update<u64>>(
    engine: &mut Engine,
    op: &Op,
    by: O,
    (target, at): (Rank, usize),
    window: Window<u64>,
) -> Returned {
    let from = op.operands();
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

/// As `perform`, but with datatypes.
fn perform_typed(engine: &mut Engine, op: &Op, place: (Rank, usize), window: Window<u64>) -> Returned {
    let (number, (target, at)) = (Datatype::of::<u64>(), place);
    let typed = |values: Vec<u64>| Typed::new(values, &number, op.count).unwrap();
    let (from, mut into) = (typed(op.operands()), typed(vec![0; op.count]));
    let strided = Datatype::vector(op.count, 1, op.stride as isize, &number).unwrap();
    let of = (&strided, 1);
    match (op.what, op.held) {
        (What::Put, false) => {
            engine.put_typed(&from, target, at, of, window).unwrap();
            Returned::Now(Vec::new())
        }
        (What::Put, true) => Returned::TypedPut(engine.rput_typed(from, target, at, of, window).unwrap()),
        (What::Get, false) => {
            engine.get_typed(&mut into, target, at, of, window).unwrap();
            Returned::Now(into.into_buffer())
        }
        (What::Get, true) => Returned::TypedGot(engine.rget_typed(into, target, at, of, window).unwrap()),
        (What::Swap { .. }, _) => unreachable!("a swap is of one element"),
        (What::Update(by) | What::Fetch(by), _) => match by {
            Update::Sum => update_typed(engine, op, op::Sum, (from, into), (place, of), window),
            Update::Xor => update_typed(engine, op, op::BitXor, (from, into), (place, of), window),
            Update::Max => update_typed(engine, op, op::Max, (from, into), (place, of), window),
            Update::Replace => update_typed(engine, op, op::Replace, (from, into), (place, of), window),
            Update::Keep => update_typed(engine, op, op::Keep, (from, into), (place, of), window),
        },
    }
}

fn update_typed<O: tickwire::Update<u64>>(
    engine: &mut Engine,
    op: &Op,
    by: O,
    (from, mut into): (Typed<Vec<u64>>, Typed<Vec<u64>>),
    ((target, at), of): ((Rank, usize), (&Datatype, usize)),
    window: Window<u64>,
) -> Returned {
    match (op.what, op.held) {
        (What::Fetch(_), false) => {
            engine.get_accumulate_typed((&from, &mut into), by, target, at, of, window).unwrap();
            Returned::Now(into.into_buffer())
        }
        (What::Fetch(_), true) => {
            Returned::TypedBoth(engine.rget_accumulate_typed((from, into), by, target, at, of, window).unwrap())
        }
        (_, false) => {
            engine.accumulate_typed(&from, by, target, at, of, window).unwrap();
            Returned::Now(Vec::new())
        }
        (_, true) => Returned::TypedPut(engine.raccumulate_typed(from, by, target, at, of, window).unwrap()),
    }
}

pub(super) fn wait(engine: &mut Engine, returned: Returned) -> Vec<u64> {
    match returned {
        Returned::Now(values) => values,
        Returned::Put(request) => {
            engine.wait_take(request).unwrap();
            Vec::new()
        }
        Returned::Got(request) => engine.wait_take(request).unwrap().0,
        Returned::Both(request) => engine.wait_take(request).unwrap().0.1,
        Returned::TypedPut(request) => {
            engine.wait_take(request).unwrap();
            Vec::new()
        }
        Returned::TypedGot(request) => engine.wait_take(request).unwrap().0.into_buffer(),
        Returned::TypedBoth(request) => engine.wait_take(request).unwrap().0.into.into_buffer(),
    }
}
