//! Communicators: who may talk to whom under which context.
//!
//! A communicator's row number is its context id: the smallest number that was free on all its members, so the tables and the ids stay
//! small. The table has a row for every id that this proc has ever used. Rows are recycled until all incarnations of the id have been
//! used. No context word is ever used twice.

use crate::limits::{CONTEXTS_MAX, TAG_MAX};
use crate::{Group, NIL, Row};
use bevy_ecs::component::Component;

/// The context word separates the messages of one kind of traffic in one communicator from all others. It stands in envelopes, in CARs
/// and in unexpected entries.
///
/// | bits | field |
/// |---|---|
/// | 0–19 | context id: the communicator's row |
/// | 20–28 | incarnation of the id, so that a message of a freed communicator is none of the next one's |
/// | 29–31 | plane: whose traffic it is |
pub mod context {
    /// Bits of the context id.
    pub const ID_BITS: u32 = 20;
    /// Bits of the incarnation.
    pub const INCARNATION_BITS: u32 = 9;
    /// Number of incarnations of an id; they count from 0. One value is left out, so that no word has all its bits set. After the last
    /// incarnation the id is not used again. All ids together allow 500 million communicators.
    pub const INCARNATIONS: u32 = (1 << INCARNATION_BITS) - 1;
    /// The application's messages.
    pub const USER: u32 = 0;
    /// The engine's own messages for agreements of all members of a communicator.
    pub const AGREEMENT: u32 = 1 << 29;
    /// The engine's own messages for agreements of a group of its members.
    pub const GROUP: u32 = 2 << 29;
    /// Messages of collective operations that run as graphs.
    pub const COLLECTIVE: u32 = 3 << 29;
    /// Sent in place of a message of a collective operation, when its sender cannot go on with the operation.
    pub const ABANDONED: u32 = 4 << 29;
    /// Messages of blocks and of other graphs that an application builds.
    pub const BLOCK: u32 = 5 << 29;
    /// Sent in place of a message of such a graph, when its sender cannot go on with the graph.
    pub const BLOCK_ABANDONED: u32 = 6 << 29;
    /// One-sided operations on the communicator's window.
    pub const WINDOW: u32 = 7 << 29;

    /// The word of an id in an incarnation, for the application's messages.
    pub const fn word(id: u32, incarnation: u32) -> u32 {
        id | (incarnation & ((1 << INCARNATION_BITS) - 1)) << ID_BITS
    }

    /// The context id in a word: the row of the communicator.
    #[inline(always)]
    pub const fn id(word: u32) -> u32 {
        word & ((1 << ID_BITS) - 1)
    }

    /// Whether a word belongs to messages of collective operations, or to the messages sent in their place.
    pub const fn is_collective(word: u32) -> bool {
        matches!(plane(word), COLLECTIVE | ABANDONED)
    }

    /// A word without its plane: what [`super::Communicator::context`] holds.
    #[inline(always)]
    pub const fn base(word: u32) -> u32 {
        word & ((1 << (ID_BITS + INCARNATION_BITS)) - 1)
    }

    /// Converts between the word of a message of a graph and the word of the message that is sent in its place, in both directions.
    pub const fn abandoned(word: u32) -> u32 {
        let other = match plane(word) {
            COLLECTIVE => ABANDONED,
            ABANDONED => COLLECTIVE,
            BLOCK => BLOCK_ABANDONED,
            _ => BLOCK,
        };
        base(word) | other
    }

    /// The plane of a word.
    pub const fn plane(word: u32) -> u32 {
        word & !((1 << (ID_BITS + INCARNATION_BITS)) - 1)
    }
}

// No row is named by `NIL`, the handle of a row that holds no communicator.
const _: () = assert!(CONTEXTS_MAX <= context::id(NIL) as usize);
// A handle is 32 bits: the id, and in the remaining bits the number of lives. There are at most as many lives as incarnations.
const _: () = assert!(context::INCARNATIONS < (1 << (u32::BITS - context::ID_BITS)) - 1);

/// The procs of a communicator, by rank.
#[derive(Clone, Debug)]
pub enum Members {
    /// Rank r is proc r, for all procs of the world. Takes no memory.
    World,
    /// Rank r is proc `0[r]`.
    List(Box<[u32]>),
}

/// Where a communicator row stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[repr(u8)]
pub enum CommState {
    /// Its id is free.
    #[default]
    Free,
    /// Its id has been proposed to the members of a new communicator. No other communicator may use the id.
    Reserved,
    /// In use.
    Live,
    /// Freed by the application, while operations on it are pending.
    Closing,
}

/// What happens when an operation on a communicator fails (MPI 4.1 §9.3).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[repr(u8)]
pub enum ErrorHandler {
    /// The error is returned (`MPI_ERRORS_RETURN`).
    #[default]
    Return,
    /// One line on stderr, and the process ends with status 1, so that its launcher ends the others
    /// (`MPI_ERRORS_ARE_FATAL`).
    Abort,
}

/// A row of the communicator table.
///
/// Written outside of systems only: when an id is reserved, and when a communicator is made, changed or freed.
#[derive(Component, Clone, Debug)]
#[component(immutable, on_discard = crate::car::refuse_removal)]
pub struct Communicator {
    /// The handle that is valid now: row and life. [`NIL`] if none is valid. Hot.
    pub handle: u32,
    /// The context word of the application's messages; [`NIL`] unless the row is live or closing. Hot.
    pub context: u32,
    /// Number of members. Hot.
    pub size: u32,
    /// This process's rank in the communicator. Hot.
    pub rank: u32,
    /// The highest tag that a message may have. It is less than [`crate::limits::TAG_MAX`] if a transport matches by fewer bits. Hot.
    pub tag_max: u32,
    /// The members. Hot.
    pub members: Members,
    /// How many communicators this row has held so far. It is part of the handle.
    pub lives: u32,
    /// The highest incarnation of its id that this proc knows of.
    pub incarnation: u32,
    /// Agreements of all members on it so far. The count is the tag of their messages, so it keeps the messages of agreements apart.
    pub calls: u32,
    /// Collective operations on it so far.
    pub collectives: u32,
    /// While the communicator is closing: CAR rows below this one no longer use it.
    pub cursor: Row,
    /// Agreements on it that are in progress on this proc.
    pub agreements: u32,
    /// See [`CommState`].
    pub state: CommState,
    /// Whether receives from any source or of any tag are refused.
    pub no_wildcard: bool,
    /// Priority of messages that are posted without a priority.
    pub priority: u8,
    /// See [`ErrorHandler`].
    pub error_handler: ErrorHandler,
}

const _: () = assert!(size_of::<Communicator>() <= 64);

impl Default for Communicator {
    fn default() -> Self {
        Communicator::FREE
    }
}

impl Communicator {
    /// A row whose id was never used.
    pub const FREE: Communicator = Communicator {
        handle: NIL,
        context: NIL,
        size: 0,
        rank: 0,
        tag_max: TAG_MAX,
        members: Members::World,
        lives: 0,
        incarnation: 0,
        calls: 0,
        collectives: 0,
        cursor: 0,
        agreements: 0,
        state: CommState::Free,
        no_wildcard: false,
        priority: 0,
        error_handler: ErrorHandler::Return,
    };

    /// The first life of a row for a communicator that exists from the start, such as that of the world.
    pub fn founding(id: u32, size: u32, rank: u32, members: Members) -> Self {
        let (handle, context, state) = (id, context::word(id, 0), CommState::Live);
        Communicator { handle, context, size, rank, members, lives: 1, state, ..Communicator::FREE }
    }

    /// The row that a handle names.
    #[inline(always)]
    pub const fn row(handle: u32) -> usize {
        context::id(handle) as usize
    }

    /// The handle of the row's next life.
    pub const fn next_handle(&self, row: Row) -> u32 {
        row | self.lives << context::ID_BITS
    }

    /// Whether a handle was valid before. Decides which error a stale handle gets.
    pub const fn was(&self, handle: u32) -> bool {
        handle >> context::ID_BITS < self.lives
    }

    /// The proc of a rank; `None` if there is no such rank.
    #[inline]
    pub fn proc(&self, rank: u32) -> Option<u32> {
        if rank >= self.size {
            return None;
        }
        match &self.members {
            Members::World => Some(rank),
            Members::List(list) => list.get(rank as usize).copied(),
        }
    }

    /// The rank of a proc; `None` if it is not a member.
    #[inline]
    pub fn rank_of(&self, proc: u32) -> Option<u32> {
        match &self.members {
            Members::World => (proc < self.size).then_some(proc),
            Members::List(list) => list.iter().position(|&p| p == proc).map(|r| r as u32),
        }
    }

    /// Its members as a group.
    pub fn group(&self) -> Group {
        match &self.members {
            Members::World => Group::all(self.size),
            Members::List(list) => Group::of_distinct(list),
        }
    }
}

impl Members {
    /// The members of a group, in a world of `procs` procs.
    pub fn of(group: &Group, procs: u32) -> Self {
        if *group == Group::all(procs) { Members::World } else { Members::List(group.procs().collect()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_context_word_gives_back_what_it_was_made_of() {
        let word = context::word(8190, 513);
        assert_eq!((context::id(word), context::base(word), context::plane(word)), (8190, word, context::USER));
        assert_eq!(word >> context::ID_BITS, 1, "an incarnation counts modulo its width");
        for plane in [context::AGREEMENT, context::GROUP, context::COLLECTIVE, context::ABANDONED, context::BLOCK] {
            assert_eq!((context::id(word | plane), context::base(word | plane)), (8190, word));
            assert_eq!(context::plane(word | plane), plane);
        }
        let collective = [context::USER, context::COLLECTIVE, context::ABANDONED, context::BLOCK]
            .map(|plane| context::is_collective(word | plane));
        assert_eq!(collective, [false, true, true, false]);
        let last = context::word(CONTEXTS_MAX as u32 - 1, context::INCARNATIONS - 1);
        assert_ne!(last, context::base(NIL), "no word reads as none");
        assert_ne!(context::word(CONTEXTS_MAX as u32 - 1, context::INCARNATIONS), last, "the last one that is used");
    }

    #[test]
    fn a_handle_names_one_life_of_a_row() {
        let mut row = Communicator::founding(5, 3, 1, Members::List([4, 2, 9].into()));
        assert_eq!((Communicator::row(row.handle), row.handle), (5, 5));
        let next = row.next_handle(5);
        assert_eq!(Communicator::row(next), 5);
        assert!(row.was(5) && !row.was(next));
        row.lives += 1;
        assert!(row.was(next));
    }

    #[test]
    fn members_and_groups_are_the_same_procs() {
        let list = Communicator::founding(2, 3, 0, Members::List([4, 2, 9].into()));
        assert_eq!(list.group().procs().collect::<Vec<_>>(), [4, 2, 9]);
        assert!(matches!(Members::of(&Group::all(7), 7), Members::World));
        assert!(matches!(Members::of(&Group::all(6), 7), Members::List(list) if *list == [0, 1, 2, 3, 4, 5]));
    }
}
