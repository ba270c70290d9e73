//! Values of a reduction in progress.

use super::draft::{Draft, NodeId};
use tickwire_components::{Side, Span};

/// A value that is being reduced: where it is, and the node that makes it.
#[derive(Clone, Copy)]
pub(super) struct Value {
    pub(super) bytes: Span,
    pub(super) made: Option<NodeId>,
}

impl Value {
    pub(super) fn part(self, first: usize, length: usize) -> Value {
        Value { bytes: self.bytes.part(first, length), ..self }
    }
}

/// The side of another leaf's value, relative to this leaf's own.
pub(super) fn side(own: u32, other: u32) -> Side {
    if other < own { Side::Left } else { Side::Right }
}

/// Receives a value into `room`, and combines this rank's own value with it there.
pub(super) fn meet(draft: &mut Draft, own: Value, from: u32, step: u32, room: Span, side: Side) -> Value {
    let came = draft.receive(from, step, room, &[]);
    let before = [came, own.made.unwrap_or(came)];
    let made = draft.reduce(room, own.bytes, side, &before);
    Value { bytes: room, made: Some(made) }
}
