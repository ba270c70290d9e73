//! Tests matching against the reference model. Engines in one process carry out random programs, one call after
//! another and all at once. See [`tickwire_tests::model`].
//!
//! Programs follow from a seed, which is new in each run. A failure prints the seed, and `TICKWIRE_TEST_SEED` repeats
//! it.

#![allow(clippy::unwrap_used, reason = "what cannot be done fails the test")]

use proptest::prelude::*;
use proptest::test_runner::TestError;
use std::collections::{HashMap, HashSet};
use std::fmt::Debug;
use std::sync::atomic::{AtomicUsize, Ordering};
use tickwire::internals::components::limits::{Limits, Matching as How, PASSES_MAX};
use tickwire::testing::{Cluster, SimConfig, SimNet};
use tickwire_tests::cases::BOUND;
use tickwire_tests::model::Matching;
use tickwire_tests::model::player::{Call, Seen};
use tickwire_tests::model::program::{
    Mode, Op, Program, Sent, Size, WAYS, What, deep_programs, limits, programs, runner,
};
use tickwire_tests::model::run::{Played, QUIET, Run, at_once_on};

/// Each test of random programs makes at least this many calls.
const CALLS: usize = 10_000;
/// The same for programs with deep queues.
const DEEP_CALLS: usize = 12_000;
/// Each part of a program has fewer calls than this.
const PART: usize = 120;

const _: () = assert!((2 * CALLS + DEEP_CALLS) * WAYS.len() >= 100_000);

/// Runs random cases until this many calls were made. Each case returns how many calls it made.
///
/// Returns how often engines changed from lists to the index, and back.
fn run<S: Strategy>(calls: usize, strategy: S, case: impl Fn(S::Value) -> Played) -> [usize; 2]
where
    S::Value: Debug,
{
    let seed = match std::env::var("TICKWIRE_TEST_SEED") {
        Ok(seed) => seed.parse().unwrap(),
        Err(_) => std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_nanos() as u64,
    };
    let mut runner = runner(seed);
    let (made, switches) = (AtomicUsize::new(0), [const { AtomicUsize::new(0) }; 2]);
    let start = std::time::Instant::now();
    while made.load(Ordering::Relaxed) < calls {
        let tree = strategy.new_tree(&mut runner).unwrap();
        let outcome = runner.run_one(tree, |value| {
            let played = case(value);
            made.fetch_add(played.calls, Ordering::Relaxed);
            for (sum, count) in switches.iter().zip(played.switches) {
                sum.fetch_add(count, Ordering::Relaxed);
            }
            Ok(())
        });
        match outcome {
            Ok(_) => {}
            Err(TestError::Fail(why, value)) => panic!("TICKWIRE_TEST_SEED={seed}: {why}\n{value:?}"),
            Err(error) => panic!("TICKWIRE_TEST_SEED={seed}: {error}"),
        }
    }
    let switches = switches.map(AtomicUsize::into_inner);
    println!("{} calls in {:?}, {switches:?} switches", made.into_inner(), start.elapsed());
    switches
}

// One call after another: the order of arrival is known, and so is each answer.

/// The model's answers in a run. A message is named by its call in the program.
#[derive(Default)]
struct Predicted {
    /// By proc and communicator: the model, and how many entries of the log it has answered.
    models: HashMap<(usize, usize), (Matching, usize)>,
    /// The message that a receive must get, by proc, communicator and call.
    matches: HashMap<(usize, usize, usize), usize>,
    /// Receives that have got a message and are not done yet.
    due: HashSet<(usize, usize, usize)>,
    /// Messages that a receive or a matched probe has taken, and messages whose receive is done.
    taken: HashSet<usize>,
    received: HashSet<usize>,
}

impl Predicted {
    fn arrive(&mut self, op: usize, sent: &Sent) {
        let place = (sent.to as usize, sent.comm);
        let post = self.models.entry(place).or_default().0.arrive(op, sent.envelope);
        self.pair(place, post.map(|post| (post, op)));
    }

    fn pair(&mut self, place: (usize, usize), pair: Option<(usize, usize)>) {
        if let Some((call, op)) = pair {
            self.matches.insert((place.0, place.1, call), op);
            self.due.insert((place.0, place.1, call));
            self.taken.insert(op);
        }
    }

    /// Gives the model the calls that a proc has made since the last time, and compares the answers.
    fn answer(&mut self, place: (usize, usize), log: &[Call], messages: &[Option<Sent>]) {
        let (mut model, read) = self.models.remove(&place).unwrap_or_default();
        let name = |op: usize| messages[op].map(|sent| Seen { envelope: sent.envelope, length: sent.length });
        for (call, entry) in log.iter().enumerate().skip(read) {
            let at = |call| (place.0, place.1, call);
            match *entry {
                Call::Post(key, _) => self.pair(place, model.post(call, key).map(|op| (call, op))),
                Call::Cancel(post, done) => assert_eq!(model.cancel(post), done, "{place:?} {call}: {entry:?}"),
                Call::Probe(key, seen) => {
                    assert_eq!(model.probe(key).and_then(name), seen, "{place:?} {call}: {entry:?}")
                }
                Call::Claim(key, seen) => {
                    let found = model.claim(key);
                    assert_eq!(found.and_then(name), seen, "{place:?} {call}: {entry:?}");
                    self.pair(place, found.map(|op| (call, op)));
                    self.due.remove(&at(call));
                }
                Call::Withdrawn => {}
                Call::Done(post) => {
                    let (Call::Post(_, got) | Call::Claim(_, got)) = log[post] else { panic!("{entry:?}") };
                    let op = self.matches.get(&at(post)).copied();
                    assert_eq!(op.and_then(name), got, "{place:?} {call}: what receive {post} got");
                    self.due.remove(&at(post));
                    self.received.extend(op);
                }
            }
        }
        self.models.insert(place, (model, log.len()));
    }
}

/// Ticks until all engines are quiet, and compares them with the model. Returns the sends that are done.
fn settle(run: &mut Run<'_>, predicted: &mut Predicted) -> Vec<usize> {
    let mut quiet = 0;
    for round in 0.. {
        assert!(round < BOUND, "the engines are never quiet\n{}", run.cluster.report());
        quiet = if run.cluster.tick_all() { 0 } else { quiet + 1 };
        if quiet == QUIET {
            break;
        }
    }
    let done = run.collect();
    for (proc, player) in run.players.iter().enumerate() {
        for (comm, log) in player.logs.iter().enumerate() {
            predicted.answer((proc, comm), log, &run.messages);
        }
    }
    assert!(predicted.due.is_empty(), "these receives have a message and are not done: {:?}", predicted.due);
    done
}

/// After each call, ticks all engines until they are quiet. So messages arrive in the order of sending.
fn in_turn(way: usize, program: &Program) -> Played {
    let cluster = Cluster::loopback_with(program.ranks, |builder| builder.limits(limits(way)));
    let (mut run, mut predicted) = (Run::new(cluster, program), Predicted::default());
    let mut sending = HashSet::new();
    for op in 0..program.ops.len() {
        run.play(op);
        if let Some(sent) = run.messages[op] {
            sending.insert(op);
            predicted.arrive(op, &sent);
        }
        for done in settle(&mut run, &mut predicted) {
            sending.remove(&done);
            let synchronous = matches!(program.ops[done].what, What::Send { mode: Mode::Synchronous, .. });
            assert!(!synchronous || predicted.taken.contains(&done), "send {done} is done without a receive");
        }
        let late: Vec<_> = sending.intersection(&predicted.received).collect();
        assert!(late.is_empty(), "sends whose messages were received are not done after call {op}: {late:?}");
    }
    run.wind_up();
    settle(&mut run, &mut predicted);
    let lost = (0..program.ops.len()).find(|op| run.messages[*op].is_some() && !predicted.taken.contains(op));
    assert_eq!(lost, None, "this message was never received");
    let switches = run.switches;
    run.finish();
    Played { calls: program.ops.len(), switches }
}

// All at once: messages are delayed, sends are refused, and ticks come at random.

/// Makes the calls in the order of the program, with ticks of some engines in between. Some order of arrival must
/// explain what each proc has seen.
fn at_once(way: usize, program: &Program, config: &SimConfig) -> Played {
    let net = SimNet::new(program.ranks, config.clone());
    let cluster = Cluster::sim_with(program.ranks, &net, |builder| {
        // With one pass per tick, frames are read in one tick and matched in the next.
        let passes_max = if config.seed.is_multiple_of(3) { 1 } else { PASSES_MAX };
        builder.limits(Limits { passes_max, ..limits(way) })
    });
    at_once_on(cluster, program, config.seed)
}

macro_rules! each_way {
    ($($way:literal: $in_turn:ident, $at_once:ident, $deep:ident;)*) => {$(
        #[test]
        fn $in_turn() {
            run(CALLS, programs(2..=5, PART), |program| in_turn($way, &program));
        }

        #[test]
        fn $at_once() {
            run(CALLS, (programs(2..=5, PART), configs()), |(program, config)| at_once($way, &program, &config));
        }

        #[test]
        fn $deep() {
            let half = DEEP_CALLS / 2;
            let switches = [
                run(half, deep_programs(), |program| in_turn($way, &program)),
                run(half, (deep_programs(), configs()), |(program, config)| at_once($way, &program, &config)),
            ];
            // With `Auto`, deep queues are moved to the index. With `Lists` they are moved when there are more
            // receives from any source than four bits can number.
            let switched = switches.as_flattened().iter().all(|&count| count > 0);
            assert_eq!(switched, matches!(WAYS[$way], (How::Auto, _) | (How::Lists, 4)), "{switches:?}");
        }
    )*};
}

each_way! {
    0: auto_one_call_after_another, auto_all_at_once, auto_with_deep_queues;
    1: tiny_counter_one_call_after_another, tiny_counter_all_at_once, tiny_counter_with_deep_queues;
    2: short_counter_one_call_after_another, short_counter_all_at_once, short_counter_with_deep_queues;
    3: lists_one_call_after_another, lists_all_at_once, lists_with_deep_queues;
    4: index_one_call_after_another, index_all_at_once, index_with_deep_queues;
}

/// Two procs connect to each other at the same time, between messages. A second link would let later messages
/// overtake earlier ones.
#[test]
fn messages_of_procs_that_connect_at_once_keep_their_order() {
    let send = |rank, to, size, mode| Op { rank, comm: 0, what: What::Send { to, tag: 0, size, mode } };
    let to_two = |rank, size, mode| send(rank, 2, size, mode);
    let mut ops = vec![to_two(4, Size::Empty, Mode::Standard), to_two(1, Size::Empty, Mode::Standard)];
    ops.extend([to_two(0, Size::Empty, Mode::Standard); 3]);
    ops.extend([to_two(1, Size::Empty, Mode::Synchronous), to_two(0, Size::Empty, Mode::Standard)]);
    ops.extend([send(2, 1, Size::Empty, Mode::Standard), to_two(1, Size::Short, Mode::Standard)]);
    let program = Program { ranks: 5, ops };
    for seed in 0..500 {
        let config = SimConfig { delay_ns: 0..1, blocked_of_256: 0, ..SimConfig::new(seed) };
        at_once(3, &program, &config);
    }
}

/// Simulated networks: prompt or slow, with few or many refused sends, with and without reads of the sender's memory.
fn configs() -> impl Strategy<Value = SimConfig> {
    let delays = prop_oneof![Just(0..1u64), Just(0..300_000), Just(0..2_000_000)];
    let blocked = prop_oneof![Just(0u8), Just(32), Just(128)];
    (any::<u64>(), delays, blocked, any::<bool>(), prop_oneof![Just(0u8), Just(60)]).prop_map(
        |(seed, delay_ns, blocked_of_256, remote_read, unread_of_256)| SimConfig {
            delay_ns,
            blocked_of_256,
            remote_read,
            unread_of_256,
            ..SimConfig::new(seed)
        },
    )
}
