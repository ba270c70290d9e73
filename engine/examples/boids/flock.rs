//! What a boid is, and how it moves: away from those that are close, with those around it, and towards them.
//!
//! A boid adds up its neighbours in the order of their numbers. So the sums have the same bits whichever rank computes them.

use bevy_ecs::prelude::*;

/// The plane of the flock. It wraps around: a boid that leaves it comes in on the other side.
pub(crate) const WIDTH: f32 = 960.0;
pub(crate) const HEIGHT: f32 = 600.0;
/// How far a boid sees.
pub(crate) const RADIUS: f32 = 26.0;
/// A boid turns away from boids that are closer than this.
const CLOSE: f32 = 9.0;
/// The longest and the shortest way of a boid in a frame.
pub(crate) const STEP_MAX: f32 = 2.6;
const STEP_MIN: f32 = 1.4;

/// How much each rule changes a boid's way.
const SEPARATION: f32 = 0.9;
const ALIGNMENT: f32 = 0.07;
const COHESION: f32 = 0.004;

/// A boid in a message: its number, and the bits of its place and way.
pub(crate) type Words = [u32; 5];

/// A boid: its number, where it is, and how far it goes in a frame.
#[derive(Component, Clone, Copy, PartialEq, Debug)]
pub(crate) struct Boid {
    pub(crate) id: u32,
    pub(crate) place: [f32; 2],
    pub(crate) way: [f32; 2],
}

impl Boid {
    pub(crate) fn to_words(self) -> Words {
        let Boid { id, place: [x, y], way: [u, v] } = self;
        [id, x.to_bits(), y.to_bits(), u.to_bits(), v.to_bits()]
    }

    pub(crate) fn from_words([id, x, y, u, v]: Words) -> Self {
        Boid { id, place: [x, y].map(f32::from_bits), way: [u, v].map(f32::from_bits) }
    }

    /// The boid a frame later.
    pub(crate) fn moved(&self, crowd: &Crowd) -> Boid {
        let (mut count, mut away, mut ways, mut offsets) = (0u32, [0.0f32; 2], [0.0f32; 2], [0.0f32; 2]);
        for other in crowd.near(self) {
            let offset = offset(self.place, other.place);
            let square = offset[0] * offset[0] + offset[1] * offset[1];
            if other.id == self.id || square > RADIUS * RADIUS {
                continue;
            }
            count += 1;
            for axis in 0..2 {
                ways[axis] += other.way[axis];
                offsets[axis] += offset[axis];
                if square < CLOSE * CLOSE {
                    away[axis] -= offset[axis] / square.max(0.01);
                }
            }
        }
        let mut way = self.way;
        if count > 0 {
            for axis in 0..2 {
                let (mean_way, mean_offset) = (ways[axis] / count as f32, offsets[axis] / count as f32);
                way[axis] += SEPARATION * away[axis] + ALIGNMENT * (mean_way - self.way[axis]) + COHESION * mean_offset;
            }
        }
        let length = (way[0] * way[0] + way[1] * way[1]).sqrt();
        if length > 0.0 {
            way = way.map(|part| part * (length.clamp(STEP_MIN, STEP_MAX) / length));
        }
        let place = [around(self.place[0] + way[0], WIDTH), around(self.place[1] + way[1], HEIGHT)];
        Boid { id: self.id, place, way }
    }
}

/// A coordinate on a plane that wraps around, from 0 to below its size.
fn around(coordinate: f32, size: f32) -> f32 {
    let coordinate = coordinate.rem_euclid(size);
    // A tiny step below 0 is rounded to the size itself.
    if coordinate < size { coordinate } else { 0.0 }
}

/// The shortest way from one coordinate to another one.
pub(crate) fn difference(from: f32, to: f32, size: f32) -> f32 {
    let difference = to - from;
    if difference > size / 2.0 {
        difference - size
    } else if difference < -size / 2.0 {
        difference + size
    } else {
        difference
    }
}

/// The shortest way from one place to another one.
fn offset(from: [f32; 2], to: [f32; 2]) -> [f32; 2] {
    [difference(from[0], to[0], WIDTH), difference(from[1], to[1], HEIGHT)]
}

/// Boids by place, in cells. A cell is no smaller than a boid sees, so all that it sees is in the cells around it.
pub(crate) struct Crowd {
    /// All boids in the order of their numbers, each once.
    boids: Vec<Boid>,
    cells: Vec<Vec<u32>>,
}

const COLUMNS: usize = (WIDTH / RADIUS) as usize;
const ROWS: usize = (HEIGHT / RADIUS) as usize;

impl Crowd {
    pub(crate) fn new(mut boids: Vec<Boid>) -> Self {
        boids.sort_by_key(|boid| boid.id);
        boids.dedup_by_key(|boid| boid.id);
        let mut cells = vec![Vec::new(); COLUMNS * ROWS];
        for (index, boid) in (0..).zip(&boids) {
            let [column, row] = cell(boid);
            cells[row * COLUMNS + column].push(index);
        }
        Crowd { boids, cells }
    }

    /// The boids in the cells around a boid, in the order of their numbers.
    fn near(&self, boid: &Boid) -> impl Iterator<Item = &Boid> {
        let [column, row] = cell(boid);
        let mut found: Vec<u32> = Vec::new();
        for down in [ROWS - 1, 0, 1] {
            for right in [COLUMNS - 1, 0, 1] {
                found.extend(&self.cells[(row + down) % ROWS * COLUMNS + (column + right) % COLUMNS]);
            }
        }
        found.sort_unstable();
        found.into_iter().map(|index| &self.boids[index as usize])
    }
}

fn cell(boid: &Boid) -> [usize; 2] {
    let part = |coordinate: f32, size: f32, count: usize| ((coordinate / size * count as f32) as usize).min(count - 1);
    [part(boid.place[0], WIDTH, COLUMNS), part(boid.place[1], HEIGHT, ROWS)]
}

/// The first flock. The same seed gives the same flock.
pub(crate) fn draw(boids: u32, seed: u64) -> Vec<Boid> {
    let mut state = seed;
    let mut part = || {
        // SplitMix64.
        state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut bits = (state ^ (state >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        ((bits ^ (bits >> 31)) >> 40) as f32 / (1u64 << 24) as f32
    };
    let mut draw = |id| {
        let place = [part() * WIDTH, part() * HEIGHT].map(|coordinate| coordinate.max(0.0));
        Boid { id, place, way: [part() - 0.5, part() - 0.5].map(|way| way * 2.0 * STEP_MAX) }
    };
    (0..boids).map(&mut draw).collect()
}

/// The flock after some frames, computed by one rank alone.
pub(crate) fn serial(mut boids: Vec<Boid>, frames: u32) -> Vec<Boid> {
    for _ in 0..frames {
        let crowd = Crowd::new(boids.clone());
        boids = boids.iter().map(|boid| boid.moved(&crowd)).collect();
    }
    boids
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_hide_no_neighbour() {
        let boids = draw(400, 5);
        let crowd = Crowd::new(boids.clone());
        for boid in &boids {
            let sees = |other: &&Boid| {
                let [x, y] = offset(boid.place, other.place);
                x * x + y * y <= RADIUS * RADIUS
            };
            let near: Vec<u32> = crowd.near(boid).filter(sees).map(|other| other.id).collect();
            let all: Vec<u32> = boids.iter().filter(sees).map(|other| other.id).collect();
            assert_eq!(near, all, "{boid:?}");
        }
    }

    #[test]
    fn a_flock_stays_on_the_plane_and_keeps_its_pace() {
        for boid in serial(draw(200, 1), 50) {
            let [x, y] = boid.place;
            assert!((0.0..WIDTH).contains(&x) && (0.0..HEIGHT).contains(&y), "{boid:?}");
            let pace = boid.way[0].hypot(boid.way[1]);
            assert!((STEP_MIN - 0.01..=STEP_MAX + 0.01).contains(&pace), "{boid:?}");
            assert_eq!(Boid::from_words(boid.to_words()), boid);
        }
    }
}
