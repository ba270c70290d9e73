//! Messages of collective operations that nobody will ever receive, since members have called an operation with different lengths.
//!
//! How an operation is drawn depends on how long its buffers are, and the tags of its messages say in which way that was
//! ([`Draft::way`](crate::collectives::draft::Draft::way)). So members that have drawn one operation in different ways do not take each
//! other's messages: these stay among the unexpected ones. Who finds one there, now and then, fails its part of the operation and tells all
//! other members, of which some may wait for a message that nobody sends.

use super::failure::receive_for_nobody;
use crate::collectives::draft::{CALL_SHIFT, STEPS_MAX, WAYS_MAX, tag_of_way};
use crate::rows::Rows;
use tickwire_components::limits::STRAYS_A_LOOK;
use tickwire_components::{Graph, NIL, Unexpected, context};

/// The lowest tag of messages of persistent operations, which live while others come and go.
pub const PERSISTENT_TAG: u32 = 1 << 30;
/// The bits of a tag that are not the operation's number: of a message that says that members have called an operation differently.
const TOLD: u32 = tag_of_way(WAYS_MAX - 1) | (STEPS_MAX - 1);
/// Operations of a communicator that a message may be late by.
const LATE_MAX: u32 = 256;

/// What was found.
#[derive(Clone, Copy, Debug)]
pub struct Stray {
    /// The row of the communicator.
    pub comm: usize,
    /// The rank that has sent it.
    pub from: u32,
    /// The number of this member's graph of the operation; [`NIL`] if that is over.
    pub graph: u32,
    /// The tag of the message that tells others; `None` if all have been told.
    pub tell: Option<u32>,
}

/// What a message of a collective operation is.
enum Kind {
    /// Its receive is there, or will be.
    Awaited,
    /// Its operation is over here, and it says nothing new.
    Late,
    Stray(Stray),
}

/// Finds the first message among the unexpected ones that nobody will receive, and throws it away. Of each sender only the oldest message
/// of a communicator is looked at: those behind it may be of operations that are still to be called.
#[cold]
pub fn take_stray(rows: &mut Rows<'_>) -> Option<Stray> {
    let mut seen: Vec<(u32, u32)> = Vec::new();
    let mut row = rows.progress.unexpected.head;
    for _ in 0..STRAYS_A_LOOK {
        let entry = *rows.progress.unexpected.entries.get(row as usize)?;
        row = entry.next;
        let plane = context::plane(entry.context);
        let sender = (context::base(entry.context), entry.source);
        if !matches!(plane, context::COLLECTIVE | context::ABANDONED) || seen.contains(&sender) {
            continue;
        }
        let found = look(rows, &entry);
        if let Kind::Awaited = found {
            seen.push(sender);
            continue;
        }
        // Also one that was only offered: its sender waits for somebody to take it.
        if !receive_for_nobody(rows, &entry) {
            return None;
        }
        if let Kind::Stray(stray) = found {
            return Some(stray);
        }
    }
    None
}

fn look(all: &Rows<'_>, entry: &Unexpected) -> Kind {
    let comm = context::id(entry.context) as usize;
    let Some(communicator) = all.communicators.get(comm) else { return Kind::Awaited };
    let number = |tag: u32| tag >> CALL_SHIFT;
    let tells = entry.tag & TOLD == TOLD;
    let is_abandonment = context::plane(entry.context) == context::ABANDONED;
    let stray = |graph| {
        let tell = (!tells).then_some(entry.tag | TOLD);
        Kind::Stray(Stray { comm, from: entry.source, graph, tell })
    };
    let is_its = |(_, graph): &(u32, &Graph)| {
        let is_open = graph.persistent || graph.request != NIL;
        is_open
            && graph.blocks.is_none()
            && graph.comm.0 == communicator.handle
            && number(graph.tag) == number(entry.tag)
    };
    let graphs = (0u32..).zip(&all.progress.graphs.list).filter_map(|(row, graph)| Some((row, graph.as_deref()?)));
    match graphs.into_iter().find(is_its) {
        Some((_, graph)) if !tells && (graph.tag ^ entry.tag) & TOLD & !(STEPS_MAX - 1) == 0 => Kind::Awaited,
        Some((_, graph)) if graph.failed => Kind::Late,
        Some((row, _)) => stray(row),
        // It may be of one that is still to be made.
        None if entry.tag & PERSISTENT_TAG != 0 => Kind::Awaited,
        None => {
            let late = communicator.collectives.wrapping_sub(number(entry.tag)) & (number(PERSISTENT_TAG) - 1);
            match late {
                1..=LATE_MAX if tells || is_abandonment => Kind::Late,
                1..=LATE_MAX => stray(NIL),
                _ => Kind::Awaited,
            }
        }
    }
}
