//! A rank's part of the plane, and what it exchanges with its neighbours in every frame.
//!
//! A boid belongs to the rank in whose strip it is. A rank sends each neighbour the boids near their common edge, among them
//! those that have just crossed it. The neighbour keeps the boids in its own strip, and sees the others for one frame.

use crate::flock::{Boid, Crowd, RADIUS, STEP_MAX, WIDTH, Words, difference};
use bevy_ecs::prelude::*;
use std::collections::VecDeque;
use tickwire::bevy::{Received, TickwireCommands};
use tickwire::{Comm, Rank, Tag};

/// Tags of what is sent to the left neighbour, and to the right one.
pub(crate) const LEFTWARD: Tag = Tag(1);
pub(crate) const RIGHTWARD: Tag = Tag(2);
/// Tag of the boids that a rank has in the end.
pub(crate) const RESULT: Tag = Tag(3);

/// Boids up to this far from an edge are sent to the neighbour: a little more than a boid sees, so that rounding hides nobody.
const HALO: f32 = RADIUS + 1.0;

/// A boid of a neighbour, seen for one frame.
#[derive(Component)]
pub(crate) struct Ghost;

/// The strip of a rank.
#[derive(Resource, Clone, Copy, Debug)]
pub(crate) struct Strip {
    pub(crate) rank: u32,
    pub(crate) ranks: u32,
}

impl Strip {
    /// # Errors
    /// The strips are too narrow for so many ranks.
    pub(crate) fn new(Rank(rank): Rank, ranks: u32) -> Result<Self, String> {
        let most = (WIDTH / (2.0 * (HALO + STEP_MAX))) as u32;
        match ranks <= most {
            true => Ok(Strip { rank, ranks }),
            false => Err(format!("{ranks} ranks are too many for a plane of {WIDTH}: use {most} at most")),
        }
    }

    /// Whose strip a boid is in.
    fn owner(&self, boid: &Boid) -> u32 {
        ((boid.place[0] / WIDTH * self.ranks as f32) as u32).min(self.ranks - 1)
    }

    pub(crate) fn has(&self, boid: &Boid) -> bool {
        self.owner(boid) == self.rank
    }

    fn alone(&self) -> bool {
        self.ranks == 1
    }

    /// The neighbours, each with the tag of what is sent to it and with the common edge.
    fn sides(&self) -> [(Rank, Tag, f32); 2] {
        let edge = |rank: u32| WIDTH * rank as f32 / self.ranks as f32;
        let (left, right) = ((self.rank + self.ranks - 1) % self.ranks, (self.rank + 1) % self.ranks);
        [(Rank(left), LEFTWARD, edge(self.rank)), (Rank(right), RIGHTWARD, edge(self.rank + 1))]
    }
}

/// What has come over each edge, frame after frame: a neighbour may be one frame ahead.
#[derive(Resource, Default)]
pub(crate) struct Halo([VecDeque<Vec<Boid>>; 2]);

/// The right neighbour sends to its left: tag [`LEFTWARD`].
pub(crate) fn from_right(message: On<Received<Words>>, mut halo: ResMut<Halo>) {
    halo.0[0].push_back(boids(&message.data).collect());
}

pub(crate) fn from_left(message: On<Received<Words>>, mut halo: ResMut<Halo>) {
    halo.0[1].push_back(boids(&message.data).collect());
}

pub(crate) fn boids(words: &[Words]) -> impl Iterator<Item = Boid> {
    words.iter().copied().map(Boid::from_words)
}

/// Whether both neighbours have sent what this frame needs.
pub(crate) fn halo_is_here(strip: Res<Strip>, halo: Res<Halo>) -> bool {
    strip.alone() || halo.0.iter().all(|side| !side.is_empty())
}

/// Spawns what the neighbours have sent: boids that are in this strip now, and ghosts of boids that are near.
pub(crate) fn take_halo(strip: Res<Strip>, mut halo: ResMut<Halo>, mut commands: Commands) {
    for boid in halo.0.iter_mut().filter_map(VecDeque::pop_front).flatten() {
        if strip.has(&boid) {
            commands.spawn(boid);
        } else {
            commands.spawn((boid, Ghost));
        }
    }
}

/// Moves the own boids by what they see, ghosts included.
pub(crate) fn move_flock(mut own: Query<&mut Boid, Without<Ghost>>, ghosts: Query<&Boid, With<Ghost>>) {
    let crowd = Crowd::new(own.iter().chain(&ghosts).copied().collect());
    own.iter_mut().for_each(|mut boid| *boid = boid.moved(&crowd));
}

/// Sends the neighbours the boids near the edges. Boids that have crossed an edge become ghosts, and the old ghosts go.
pub(crate) fn hand_over(
    strip: Res<Strip>,
    own: Query<(Entity, &Boid), Without<Ghost>>,
    ghosts: Query<Entity, With<Ghost>>,
    mut commands: Commands,
) {
    ghosts.iter().for_each(|ghost| commands.entity(ghost).despawn());
    if strip.alone() {
        return;
    }
    for (neighbour, tag, edge) in strip.sides() {
        let near = own.iter().filter(|(_, boid)| difference(edge, boid.place[0], WIDTH).abs() <= HALO);
        let words: Vec<Words> = near.map(|(_, boid)| boid.to_words()).collect();
        commands.send(words, neighbour, tag, Comm::WORLD);
    }
    for (entity, _) in own.iter().filter(|(_, boid)| !strip.has(boid)) {
        commands.entity(entity).insert(Ghost);
    }
}
