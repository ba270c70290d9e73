//! Who is on: the parts of all ranks, of which some are in the middle of a call.

use super::exchange::{Part, Plan};
use std::cell::RefCell;
use tickwire::Engine;
use tickwire::testing::SplitMix;

/// How many calls may be within each other.
const DEPTH_MAX: usize = 3;
/// A rank that has not begun does so in one of this many steps.
const BEGINS: u64 = 16;
/// Most steps that others make at one moment.
const STEPS_A_MOMENT: u64 = 6;
/// Time between two steps, ns.
const STEP_NS: u64 = 5_000;

/// Makes the engine of a rank.
pub(crate) type Make = Box<dyn FnOnce() -> Engine>;

/// Where a rank is.
enum Place {
    /// It has not begun: its first step makes its engine.
    Before(Make),
    On(Box<Part>),
    /// It is in a call, or has gone.
    Away,
}

struct Stage {
    plan: Plan,
    random: SplitMix,
    places: Vec<Place>,
    depth: usize,
    now_ns: u64,
}

thread_local! {
    /// Empty while engines are built and while the test itself looks at them.
    static STAGE: RefCell<Option<Stage>> = const { RefCell::new(None) };
}

/// Puts the ranks on. From now on they go on in the middle of each other's calls.
pub(crate) fn open(engines: Vec<Make>, plan: &Plan) {
    let places = engines.into_iter().map(Place::Before).collect();
    STAGE.set(Some(Stage { plan: plan.clone(), random: SplitMix::new(plan.seed), places, depth: 0, now_ns: 0 }));
}

/// Takes the ranks off. Those that have gone are missing.
pub(crate) fn close() -> Vec<Part> {
    let places = STAGE.take().expect("it is open").places;
    let on = places.into_iter().filter_map(|place| match place {
        Place::On(part) => Some(*part),
        Place::Before(_) | Place::Away => None,
    });
    on.collect()
}

/// Lets a rank make a step, unless it is in a call or has gone.
pub(crate) fn step() {
    let chosen = STAGE.with_borrow_mut(|stage| {
        let stage = stage.as_mut().filter(|stage| stage.depth < DEPTH_MAX)?;
        let rank = stage.random.below(stage.places.len() as u64) as usize;
        let place = std::mem::replace(&mut stage.places[rank], Place::Away);
        let late = stage.random.below(BEGINS) != 0;
        stage.depth += 1;
        stage.now_ns += STEP_NS;
        Some((rank, place, late, stage.plan.clone(), stage.now_ns))
    });
    let Some((rank, place, late, plan, now_ns)) = chosen else { return };
    let place = match place {
        Place::Before(make) if late => Place::Before(make),
        Place::Before(make) => Place::On(Box::new(Part::new(&plan, rank as u32, make()))),
        Place::On(mut part) => match part.step(now_ns) {
            true => Place::On(part),
            // It goes in the middle of the others' calls, too, and is dropped here.
            false => Place::Away,
        },
        Place::Away => return leave(None),
    };
    leave(Some((rank, place)));
}

/// Ends a step.
fn leave(step: Option<(usize, Place)>) {
    STAGE.with_borrow_mut(|stage| {
        let stage = stage.as_mut().expect("it is open");
        stage.depth -= 1;
        if let Some((rank, place)) = step {
            stage.places[rank] = place;
        }
    });
}

/// A moment in the call of an engine, at which others may go on.
pub(crate) fn moment() {
    let steps = |stage: &mut Option<Stage>| {
        let Stage { random, plan, depth, .. } = stage.as_mut()?;
        (*depth < DEPTH_MAX && random.below(256) < plan.of_256).then(|| 1 + random.below(STEPS_A_MOMENT))
    };
    // After a panic the engines end with the thread, when the stage is gone.
    let steps = STAGE.try_with(|stage| steps(&mut stage.borrow_mut())).ok().flatten();
    (0..steps.unwrap_or(0)).for_each(|_| step());
}

/// Whether all ranks have begun, and something holds of all that have not gone. None may be in a call.
pub(crate) fn all(holds: impl Fn(&Part) -> bool) -> bool {
    let of_place = |place: &Place| match place {
        Place::Before(_) => false,
        Place::On(part) => holds(part),
        Place::Away => true,
    };
    STAGE.with_borrow(|stage| stage.as_ref().expect("it is open").places.iter().all(of_place))
}
