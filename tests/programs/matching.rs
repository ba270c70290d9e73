//! One of two ranks that play the same random programs at the same time. It checks what it saw against the reference
//! model: `tests-matching WAY CALLS SEED THREADS`. It panics if something is wrong, so that its launcher sees a
//! failure.
//!
//! With two threads, the second thread submits some of the sends, and all receives of one communicator. Its sends are
//! ordered among themselves. Its receives are checked like those of the first thread.

#![allow(clippy::unwrap_used, reason = "what cannot be done fails the test")]

use proptest::strategy::{Strategy, ValueTree};
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};
use tickwire::testing::{SplitMix, dump};
use tickwire::{Bootstrap, Comm, Engine, Rank, Source, Submitted, Submitter, Tag, TagFilter};
use tickwire_tests::cases::content;
use tickwire_tests::model::explain::explain;
use tickwire_tests::model::player::{Call, Player, Seen};
use tickwire_tests::model::program::{COMMS, Program, Sent, color, deep_programs, limits, programs, runner};
use tickwire_tests::model::{Envelope, Key};

/// Longer than any wait on a loaded machine.
const PATIENCE: Duration = Duration::from_secs(60);

fn main() {
    let args: Vec<u64> = std::env::args().skip(1).map(|arg| arg.parse().unwrap()).collect();
    let [way, calls, seed, threads] = args[..] else { panic!("tests-matching WAY CALLS SEED THREADS") };
    let mut engine = Engine::builder().limits(limits(way as usize)).build(Bootstrap::from_env().unwrap()).unwrap();
    let world = engine.comm_world();
    let dup = engine.comm_dup(world).unwrap();
    let me = engine.rank().0;
    let part = engine.comm_split(world, Some(color(2, me)), -(me as i32)).unwrap().unwrap();
    let comms = [world, dup, part, engine.comm_self()];
    let (mut runner, mut made) = (runner(seed), 0);
    for number in 0.. {
        let program = match number % 4 {
            3 => deep_programs().prop_map(|program| Program { ranks: 2, ..program }).boxed(),
            _ => programs(2..=2, 120).boxed(),
        };
        let program = program.new_tree(&mut runner).unwrap().current();
        made += program.ops.len();
        let messages = program.messages(threads == 2);
        let part = Part { program: &program, messages: &messages, me, end: Instant::now() + PATIENCE };
        part.play(&mut engine, comms, number, threads == 2);
        // No rank begins the next program before all have ended this one.
        let barrier = engine.comm_dup(world).unwrap();
        engine.comm_free(barrier).unwrap();
        if made >= calls as usize {
            break;
        }
    }
    println!("rank {me}: {made} calls");
    engine.finalize(PATIENCE).unwrap();
}

/// A program, and the rank that this process plays.
struct Part<'a> {
    program: &'a Program,
    messages: &'a [Option<Sent>],
    me: u32,
    end: Instant,
}

impl Part<'_> {
    fn play(&self, engine: &mut Engine, comms: [Comm; COMMS], number: u64, second: bool) {
        let mut player = Player::new(engine, comms);
        let submitter = engine.submitter();
        let mut inboxes: [Vec<Sent>; COMMS] = std::array::from_fn(|comm| Program::inbox(self.messages, self.me, comm));
        std::thread::scope(|scope| {
            let thread = second.then(|| {
                let inbox = std::mem::take(&mut inboxes[1]);
                scope.spawn(move || self.submit(&submitter, comms, &inbox, number))
            });
            self.calls(engine, &mut player, number, second);
            player.cancel_all(engine);
            player.wind_up(engine, std::array::from_fn(|comm| inboxes[comm].len()));
            while !(player.is_idle() && thread.as_ref().is_none_or(|thread| thread.is_finished())) {
                engine.tick();
                player.collect(engine);
                assert!(Instant::now() < self.end, "program {number}: {}", dump(engine));
            }
            if let Some(thread) = thread {
                (player.logs[1], inboxes[1]) = (thread.join().unwrap(), Program::inbox(self.messages, self.me, 1));
            }
        });
        player.free();
        for (comm, (log, inbox)) in player.logs.iter().zip(&inboxes).enumerate() {
            if let Err(why) = explain(log, inbox) {
                panic!("program {number}, rank {}, communicator {comm}: {why}\n{log:?}\n{inbox:?}", self.me);
            }
        }
    }

    /// Makes the calls of the first thread, with ticks at random.
    fn calls(&self, engine: &mut Engine, player: &mut Player, number: u64, second: bool) {
        let mut random = SplitMix::new(number << 1 | u64::from(self.me));
        for (index, op) in self.program.ops.iter().enumerate() {
            if op.proc(2) != self.me || (second && op.is_left_out()) {
                continue;
            }
            player.play(engine, self.program, index, self.messages[index].as_ref());
            match random.below(8) {
                0 => drop(player.collect(engine)),
                1..4 => drop(engine.tick()),
                _ => {}
            }
        }
    }

    /// Makes the calls of the second thread. A submitted receive cannot be cancelled, so there is exactly one receive
    /// for each message that will come. All receives name the source or none does, and likewise the tag.
    fn submit(&self, submitter: &Submitter, comms: [Comm; COMMS], inbox: &[Sent], number: u64) -> Vec<Call> {
        let (mut sends, mut receives, mut coming) = (Vec::new(), Vec::new(), inbox.iter());
        let mut receive = |sent: &Sent| {
            let source = (number & 1 == 0).then_some(sent.envelope.source);
            let key = Key { source, tag: (number & 2 == 0).then_some(sent.envelope.tag) };
            let source = key.source.map_or(Source::Any, |rank| Rank(rank).into());
            let tag = key.tag.map_or(TagFilter::Any, |tag| Tag(tag).into());
            let longest = inbox.iter().map(|sent| sent.length).max().unwrap_or(0);
            receives.push((key, submitter.irecv(vec![0u8; longest], source, tag, comms[1]).unwrap()));
        };
        for (index, op) in self.program.ops.iter().enumerate().filter(|(_, op)| op.proc(2) == self.me) {
            if let (true, Some(sent)) = (op.sent_by_thread(), &self.messages[index]) {
                let bytes = content(Sent::name(self.me, sent.length), sent.length);
                let (to, tag) = (Rank(sent.rank), Tag(sent.envelope.tag));
                sends.push(submitter.isend(bytes, to, tag, comms[sent.comm]).unwrap());
            } else if op.received_by_thread()
                && let Some(sent) = coming.next()
            {
                receive(sent);
            }
        }
        coming.for_each(receive);
        sends.into_iter().for_each(|send| drop(self.outcome(send)));
        let received = receives.into_iter().map(|(key, receive)| {
            let (bytes, status) = self.outcome(receive);
            let (source, tag, length) = (status.source.0, status.tag.0, status.length);
            assert!(bytes[..length] == content(Sent::name(source, length), length), "{status:?}");
            Call::Post(key, Some(Seen { envelope: Envelope { source, tag }, length }))
        });
        received.collect()
    }

    fn outcome(&self, mut submitted: Submitted<Vec<u8>>) -> (Vec<u8>, tickwire::Status) {
        loop {
            match Pin::new(&mut submitted).poll(&mut Context::from_waker(Waker::noop())) {
                Poll::Ready(outcome) => return outcome.unwrap(),
                Poll::Pending => std::thread::yield_now(),
            }
            assert!(Instant::now() < self.end, "a submitted operation does not end");
        }
    }
}
