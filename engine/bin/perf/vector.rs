//! Messages that are not contiguous: every second double, as MPI benchmarks send them with a vector type.

use super::loops::Say;
use std::time::Instant;
use tickwire::internals::components::{LeasedBytes, Pieces};
use tickwire::{Comm, Datatype, Engine, OperationError, Rank, Tag, Typed};

/// Lengths of the messages, bytes.
const SIZES: [usize; 3] = [1 << 10, 64 << 10, 1 << 20];
/// Figures that [`vector`] gives.
pub(crate) const FIGURES: usize = 4 * SIZES.len();

/// Half a round trip of each kind of message between ranks 0 and 1, µs.
///
/// - `contiguous`: contiguous bytes at both ends.
/// - `packed`: the same, but the sender packs every second double into these bytes first.
/// - `strided`: sent from every second double, received into contiguous bytes.
/// - `vector`: every second double at both ends.
pub(crate) fn vector(engine: &mut Engine, say: Say<'_>, quick: bool) -> Result<(), OperationError> {
    let mut pair = Pair { world: engine.comm_world(), rank: engine.rank().0, engine };
    for bytes in SIZES {
        let doubles = bytes / 8;
        let rounds = if bytes <= 1 << 10 { 20_000 } else { (256 << 20) / bytes };
        let rounds = if quick { rounds / 100 + 1 } else { rounds };
        let of = Datatype::vector(doubles, 1, 2, &Datatype::of::<f64>()).expect("a plain vector");
        let numbers: Vec<f64> = (0..2 * doubles).map(|number| number as f64).collect();
        let (mut plain, mut there) = (vec![0u8; bytes], vec![0f64; 2 * doubles]);
        let mut packed = vec![0u8; bytes];
        let sent = Typed::new(&numbers[..], &of, 1).expect("it fits");

        let mut report = |metric: &str, time: f64, rank: u32| {
            if rank == 0 {
                say(metric, bytes, time, "us");
            }
        };
        let time = pair.rounds(rounds, |pair, first| pair.turn(first, &packed[..], &mut plain[..]))?;
        report("contiguous", time, pair.rank);
        let time = pair.rounds(rounds, |pair, first| {
            if !first {
                pair.receive(&mut plain[..])?;
            }
            sent.pack(0, &mut packed);
            pair.send(&packed[..])?;
            if first { pair.receive(&mut plain[..]) } else { Ok(()) }
        })?;
        report("packed", time, pair.rank);
        let typed = || Typed::new(&numbers[..], &of, 1).expect("it fits");
        let time = pair.rounds(rounds, |pair, first| pair.turn(first, typed(), &mut plain[..]))?;
        report("strided", time, pair.rank);
        let time = pair.rounds(rounds, |pair, first| {
            pair.turn(first, typed(), Typed::new(&mut there[..], &of, 1).expect("it fits"))
        })?;
        report("vector", time, pair.rank);
        assert!(there.iter().step_by(2).eq(numbers.iter().step_by(2)), "what was sent has arrived");
    }
    Ok(())
}

/// One of the two ranks.
struct Pair<'a> {
    engine: &'a mut Engine,
    world: Comm,
    rank: u32,
}

impl Pair<'_> {
    /// Half the time of a round, µs. A tenth as many rounds come first as warm-up. The argument of `round`: this rank sends first.
    fn rounds(
        &mut self,
        rounds: usize,
        mut round: impl FnMut(&mut Self, bool) -> Result<(), OperationError>,
    ) -> Result<f64, OperationError> {
        let first = self.rank == 0;
        let mut start = Instant::now();
        for number in 0..rounds + rounds / 10 {
            if number == rounds / 10 {
                start = Instant::now();
            }
            round(self, first)?;
        }
        Ok(start.elapsed().as_secs_f64() / rounds as f64 / 2.0 * 1e6)
    }

    fn turn(&mut self, first: bool, from: impl Pieces, to: impl LeasedBytes) -> Result<(), OperationError> {
        if first {
            self.send(from)?;
            return self.receive(to);
        }
        self.receive(to)?;
        self.send(from)
    }

    fn send(&mut self, from: impl Pieces) -> Result<(), OperationError> {
        let peer = Rank(1 - self.rank);
        let world = self.world;
        self.engine.scope(|scope| {
            let request = scope.isend(from, peer, Tag(1), world)?;
            scope.wait(&request)?;
            scope.take(request)?;
            Ok(())
        })
    }

    fn receive(&mut self, to: impl LeasedBytes) -> Result<(), OperationError> {
        let peer = Rank(1 - self.rank);
        let world = self.world;
        self.engine.scope(|scope| {
            let request = scope.irecv(to, peer, Tag(1), world)?;
            scope.wait(&request)?;
            scope.take(request)?;
            Ok(())
        })
    }
}
