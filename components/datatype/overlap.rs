//! Whether a type contains a byte twice. This is checked before a receive, since the receive could not decide which value to write
//! there.
//!
//! Cheap checks come first: whether copies or parts are disjoint, and whether loops, ordered by stride, nest. If they do not decide,
//! all runs are marked in a bitmap of the bytes between the first and the last one, a section at a time. If there is much more room than
//! runs, the runs are sorted instead. Both decide for every type, and take time by the number of runs, as a receive does.

use super::node::{Node, Place, Shape};
use std::ops::RangeInclusive;

/// Units of one section of the bitmap: it stays in a near cache.
const MARKED: usize = 1 << 21;

/// With at least so many units for each run, the runs are sorted: marking would clear 8 B a run or more.
const UNITS_A_RUN: u128 = 64;

/// Whether a type contains a byte twice.
pub(super) fn has_twice(node: &Node) -> bool {
    node.size > 0 && Measured::of(node).has_twice()
}

/// A node, with what the checks need to know about it.
struct Measured<'a> {
    node: &'a Node,
    /// Offsets of the lowest byte and of the end, if the origin of the node is at 0.
    lower: isize,
    upper: isize,
    /// Some of its runs overlap, as was found when they were sorted.
    twice: bool,
    inside: Inside<'a>,
}

enum Inside<'a> {
    Run,
    Strided,
    Loop(Box<Measured<'a>>),
    /// Sorted by offset.
    Runs(Vec<Place>),
    List(Vec<Measured<'a>>),
}

impl<'a> Measured<'a> {
    fn of(node: &'a Node) -> Self {
        let copies = |count: usize, stride: isize, lower: isize, upper: isize| {
            let way = (count as isize - 1) * stride;
            (lower + way.min(0), upper + way.max(0))
        };
        let ((lower, upper), inside) = match &node.shape {
            Shape::Run => ((0, node.size as isize), Inside::Run),
            &Shape::Strided { count, block, stride } => (copies(count, stride, 0, block as isize), Inside::Strided),
            Shape::Loop { count, stride, child } => {
                let child = Measured::of(child);
                (copies(*count, *stride, child.lower, child.upper), Inside::Loop(Box::new(child)))
            }
            Shape::Runs(places) => {
                // A run of length 0, from an empty block, overlaps nothing.
                let mut places: Vec<Place> = places.iter().filter(|place| place.length > 0).copied().collect();
                places.sort_unstable_by_key(|place| place.offset);
                let ends = places.iter().map(|place| place.offset + place.length as isize);
                ((places[0].offset, ends.max().unwrap_or(0)), Inside::Runs(places))
            }
            Shape::List(parts) => {
                let mut parts: Vec<_> = parts.iter().map(|part| Measured::of(&part.node)).collect();
                parts.sort_unstable_by_key(|part| part.lower);
                let upper = parts.iter().map(|part| part.upper).max().unwrap_or(0);
                ((parts[0].lower, upper), Inside::List(parts))
            }
        };
        let twice = match &inside {
            Inside::Runs(places) => {
                places.windows(2).any(|pair| pair[0].offset + pair[0].length as isize > pair[1].offset)
            }
            Inside::Loop(child) => child.twice,
            Inside::List(parts) => parts.iter().any(|part| part.twice),
            _ => false,
        };
        Measured { node, lower: lower + node.offset, upper: upper + node.offset, twice, inside }
    }

    fn has_twice(&self) -> bool {
        if self.twice || self.node.size as u128 > (self.upper - self.lower).unsigned_abs() as u128 {
            return true;
        }
        match (&self.inside, &self.node.shape) {
            (Inside::Loop(child), Shape::Loop { stride, .. }) => {
                if stride.unsigned_abs() >= (child.upper - child.lower).unsigned_abs() {
                    return child.has_twice();
                }
                self.nested().unwrap_or_else(|| self.has_twice_counted())
            }
            (_, &Shape::Strided { block, stride, .. }) => stride.unsigned_abs() < block,
            (Inside::List(parts), _) if parts.windows(2).all(|pair| pair[0].upper <= pair[1].lower) => {
                parts.iter().any(Measured::has_twice)
            }
            (Inside::List(_), _) => self.has_twice_counted(),
            _ => false,
        }
    }

    /// Whether a nest of loops, in any order, over one node has a byte twice. If each stride is at least as long as all shorter loops
    /// reach together, no two iterations overlap. `None` if this does not decide.
    fn nested(&self) -> Option<bool> {
        let (mut loops, mut inner) = (Vec::new(), self);
        while let (Inside::Loop(child), Shape::Loop { count, stride, .. }) = (&inner.inside, &inner.node.shape) {
            loops.push((stride.unsigned_abs(), *count));
            inner = child;
        }
        let mut extent = (inner.upper - inner.lower).unsigned_abs();
        let mut within = false;
        match inner.node.shape {
            Shape::Strided { count, block, stride } => {
                loops.push((stride.unsigned_abs(), count));
                extent = block;
            }
            _ => within = inner.has_twice(),
        }
        loops.sort_unstable();
        let mut reach = extent as u128;
        for (stride, count) in loops {
            if (stride as u128) < reach {
                return None;
            }
            reach += stride as u128 * (count as u128 - 1);
        }
        Some(within)
    }

    /// Decides by sorting or marking every run.
    fn has_twice_counted(&self) -> bool {
        let unit = self.unit(0);
        let units = (self.upper - self.lower) as usize / unit;
        if units as u128 >= UNITS_A_RUN * self.runs() {
            return self.has_twice_sorted();
        }
        let mut map = vec![0u64; units.min(MARKED).div_ceil(64)];
        (0..units).step_by(MARKED).any(|first| {
            map.fill(0);
            let lower = self.lower + (first * unit) as isize;
            let upper = lower + ((units - first).min(MARKED) * unit) as isize;
            self.mark(0, &mut Map { words: &mut map, unit, lower, upper })
        })
    }

    /// How many runs there are.
    fn runs(&self) -> u128 {
        match (&self.inside, &self.node.shape) {
            (Inside::Loop(child), &Shape::Loop { count, .. }) => count as u128 * child.runs(),
            (_, &Shape::Strided { count, .. }) => count as u128,
            (Inside::Runs(places), _) => places.len() as u128,
            (Inside::List(parts), _) => parts.iter().map(Measured::runs).sum(),
            _ => 1,
        }
    }

    /// Decides by sorting every run.
    fn has_twice_sorted(&self) -> bool {
        let mut runs = Vec::new();
        self.list(0, &mut runs);
        runs.sort_unstable();
        runs.windows(2).any(|pair| pair[0].0 + pair[0].1 > pair[1].0)
    }

    /// Lists offset and length of every run, with the origin of the node at `at`.
    fn list(&self, at: isize, runs: &mut Vec<(isize, isize)>) {
        let at = at + self.node.offset;
        match (&self.inside, &self.node.shape) {
            (Inside::Loop(child), &Shape::Loop { count, stride, .. }) => {
                (0..count as isize).for_each(|round| child.list(at + round * stride, runs));
            }
            (_, &Shape::Strided { count, block, stride }) => {
                runs.extend((0..count as isize).map(|round| (at + round * stride, block as isize)));
            }
            (Inside::Runs(places), _) => {
                runs.extend(places.iter().map(|place| (at + place.offset, place.length as isize)));
            }
            (Inside::List(parts), _) => parts.iter().for_each(|part| part.list(at, runs)),
            _ => runs.push((at, self.node.size as isize)),
        }
    }

    /// The greatest common divisor of `of` and of all offsets, lengths and strides in the node, bytes.
    fn unit(&self, of: usize) -> usize {
        let unit = greatest_divisor(of, self.node.offset.unsigned_abs());
        match (&self.inside, &self.node.shape) {
            (Inside::Loop(child), Shape::Loop { stride, .. }) => {
                child.unit(greatest_divisor(unit, stride.unsigned_abs()))
            }
            (_, &Shape::Strided { block, stride, .. }) => {
                greatest_divisor(greatest_divisor(unit, block), stride.unsigned_abs())
            }
            (Inside::Runs(places), _) => places.iter().fold(unit, |unit, place| {
                greatest_divisor(greatest_divisor(unit, place.length), place.offset.unsigned_abs())
            }),
            (Inside::List(parts), _) => parts.iter().fold(unit, |unit, part| part.unit(unit)),
            _ => greatest_divisor(unit, self.node.size),
        }
    }

    /// Marks the runs that are within the map, with the origin of the node at `at`. Returns `true` once a unit was marked already.
    fn mark(&self, at: isize, map: &mut Map<'_>) -> bool {
        if at + self.upper <= map.lower || at + self.lower >= map.upper {
            return false;
        }
        let at = at + self.node.offset;
        match (&self.inside, &self.node.shape) {
            (Inside::Loop(child), &Shape::Loop { count, stride, .. }) => {
                let mut rounds = rounds(count, stride, at + child.lower, at + child.upper, map);
                rounds.any(|round| child.mark(at + round * stride, map))
            }
            (_, &Shape::Strided { count, block, stride }) => {
                let mut rounds = rounds(count, stride, at, at + block as isize, map);
                rounds.any(|round| map.mark(at + round * stride, block))
            }
            (Inside::Runs(places), _) => {
                let from = places.partition_point(|place| at + place.offset + place.length as isize <= map.lower);
                let to = places.partition_point(|place| at + place.offset < map.upper);
                places[from..to.max(from)].iter().any(|place| map.mark(at + place.offset, place.length))
            }
            (Inside::List(parts), _) => parts.iter().any(|part| part.mark(at, map)),
            _ => map.mark(at, self.node.size),
        }
    }
}

/// The iterations of a loop that overlap the map. The loop has `count` iterations, and the first one covers `lower` to `upper`.
fn rounds(count: usize, stride: isize, lower: isize, upper: isize, map: &Map<'_>) -> RangeInclusive<isize> {
    let last = count as isize - 1;
    let (first, last) = match stride {
        0 => (0, last),
        // The first iteration that ends after the map's start, and the last one that starts before its end.
        1.. => ((map.lower - upper).div_euclid(stride) + 1, (map.upper - 1 - lower).div_euclid(stride).min(last)),
        _ => {
            let back = -stride;
            ((lower - map.upper).div_euclid(back) + 1, (upper - 1 - map.lower).div_euclid(back).min(last))
        }
    };
    first.max(0)..=last
}

/// A bitmap with one bit for each unit between two offsets.
struct Map<'a> {
    words: &'a mut [u64],
    unit: usize,
    lower: isize,
    upper: isize,
}

impl Map<'_> {
    /// Marks the part of a run that is within the map. Returns `true` if some of it was marked already.
    fn mark(&mut self, start: isize, length: usize) -> bool {
        let (from, to) = (start.max(self.lower), (start + length as isize).min(self.upper));
        if from >= to {
            return false;
        }
        let [from, to] = [from, to].map(|place| (place - self.lower) as usize / self.unit);
        let mut twice = false;
        for word in from / 64..=(to - 1) / 64 {
            let (first, end) = (from.max(word * 64) % 64, (to - word * 64).min(64));
            let bits = (u64::MAX >> (64 - (end - first))) << first;
            twice |= self.words[word] & bits != 0;
            self.words[word] |= bits;
        }
        twice
    }
}

fn greatest_divisor(a: usize, b: usize) -> usize {
    let (mut a, mut b) = (a, b);
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}
