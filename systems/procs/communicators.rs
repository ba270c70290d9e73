//! Communicators: finds them by handle, reserves their ids, makes and frees their rows. Apart from the look-ups, which systems call, this
//! runs between passes on the whole world, when every arrival has its place.
//!
//! *Reads* CARs (whether they still need a communicator). *Writes* communicator rows, the unexpected queue (entries that no communicator
//! will ever take), `Progress::ended`.
//! *Bound* making and freeing look at each unexpected entry once. Freeing also looks at each CAR row once, however often it is tried.
//! *Why* a message may arrive after its communicator was freed, or before it exists here. An id is reserved before anybody can use it. So a
//! message of an unknown context is early while its id is reserved, and late otherwise. Each use of an id is another incarnation, which is
//! part of every envelope, so a late message never meets a receive of the next communicator. An incarnation is never used twice: once all
//! are used, the id is no longer free. It would not be enough that the members agree on the smallest id that is free on all of them, since
//! a message may still be in a ring when both of its ends have freed the communicator.

mod ids;

pub use ids::{USED_WORDS, UsedIds, first_free, is_free};

use crate::steps::credit::forget;
use crate::steps::dismiss::dismiss;
use crate::steps::supply::pool::give_buffer;
use crate::store::{StoreMut, Tables};
use std::fmt::Debug;
use tickwire_components::limits::CONTEXTS_MAX;
use tickwire_components::wire::Header;
use tickwire_components::{
    Car, CarKind, CarState, CommState, Communicator, Destination, Ended, Graph, Group, Kept, Members, NIL, PostError,
    Row, Unexpected, context,
};

/// The communicator that a handle names.
#[inline(always)]
pub fn alive(comms: &[Communicator], handle: u32) -> Option<&Communicator> {
    match comms.get(Communicator::row(handle)) {
        Some(communicator) if communicator.handle == handle => Some(communicator),
        _ => None,
    }
}

/// As [`alive`], with an error.
///
/// # Errors
/// If the handle is invalid, or the communicator was freed.
pub fn live(comms: &[Communicator], handle: u32) -> Result<&Communicator, PostError> {
    alive(comms, handle).ok_or_else(|| absent(comms, handle))
}

#[cold]
#[inline(never)]
fn absent(comms: &[Communicator], handle: u32) -> PostError {
    match comms.get(Communicator::row(handle)) {
        Some(comm) if comm.was(handle) => PostError::Freed(handle),
        _ => PostError::Communicator(handle),
    }
}

/// The communicator that an envelope's context word names, if it is in use here.
#[inline(always)]
pub fn known(comms: &[Communicator], word: u32) -> Option<&Communicator> {
    comms.get(context::id(word) as usize).filter(|comm| comm.context == context::base(word))
}

/// The proc that has sent a message, by the context and the source in its header. `None` if its communicator is not known, or has no such
/// rank.
pub fn proc_of(comms: &[Communicator], header: &Header) -> Option<u32> {
    known(comms, header.context())?.proc(header.source())
}

/// What to do with a message that matches no posted receive.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unclaimed {
    /// A receive may still be posted.
    Keep,
    /// Its communicator has been freed: no receive will ever take it.
    Drop,
    /// This proc never used the context: the peer is wrong.
    Impossible,
}

/// Decides about a message that matches no posted receive.
#[cold]
pub fn unclaimed(comms: &[Communicator], word: u32) -> Unclaimed {
    let Some(comm) = comms.get(context::id(word) as usize) else { return Unclaimed::Impossible };
    if comm.context == context::base(word) {
        // The application can post no more receives here, but the engine's own exchanges must end normally.
        return match comm.state == CommState::Closing && context::plane(word) == context::USER {
            true => Unclaimed::Drop,
            false => Unclaimed::Keep,
        };
    }
    if comm.state == CommState::Reserved {
        return Unclaimed::Keep;
    }
    if comm.lives > 0 || comm.incarnation > 0 { Unclaimed::Drop } else { Unclaimed::Impossible }
}

/// Reserves an id, given how many incarnations of an id can be told apart. Returns the highest incarnation of the id that is known here, or
/// `None` if the id is not free.
///
/// # Panics
/// If there is no such id.
pub fn reserve(store: &mut StoreMut<'_>, id: u32, incarnations: u32) -> Option<u32> {
    assert!((id as usize) < CONTEXTS_MAX, "context ids end at {CONTEXTS_MAX}");
    store.grow_communicators(id as usize + 1);
    // If the world is lost, there are no rows, and no id is free.
    let comm = store.all().communicators.get_mut(id as usize)?;
    if !is_free(comm, incarnations) {
        return None;
    }
    comm.state = CommState::Reserved;
    Some(comm.incarnation)
}

/// Gives back a reserved id that no communicator was made of here. If other members `may` have made theirs, the next incarnation counts as
/// used.
pub fn release(all: &mut Tables<'_>, id: u32, may: bool) {
    let comm = &mut all.communicators[id as usize];
    debug_assert_eq!(comm.state, CommState::Reserved);
    comm.state = CommState::Free;
    comm.incarnation = comm.incarnation.saturating_add(may.into());
    disown(all, |word| context::id(word) == id);
}

/// Makes a communicator with a reserved id. It inherits the error handler and the tag range of `parent`. Returns its handle.
///
/// Messages that have arrived for it already were kept unchecked. A peer that named a wrong source in one fails now.
pub fn make(all: &mut Tables<'_>, id: u32, incarnation: u32, group: &Group, parent: Row) -> u32 {
    let Communicator { error_handler, tag_max, .. } = all.communicators[parent as usize];
    let (procs, me) = (all.procs.known.len() as u32, all.procs.me);
    let comm = &mut all.communicators[id as usize];
    debug_assert_eq!(comm.state, CommState::Reserved);
    let handle = comm.next_handle(id);
    *comm = Communicator {
        handle,
        context: context::word(id, incarnation),
        size: group.size(),
        rank: group.rank_of(me).unwrap_or(0),
        members: Members::of(group, procs),
        lives: comm.lives + 1,
        tag_max,
        incarnation,
        state: CommState::Live,
        error_handler,
        ..Communicator::FREE
    };
    let word = comm.context;
    disown(all, |other| context::id(other) == id && context::base(other) != word);
    check_early(all, id);
    handle
}

/// Checks the sources of messages that came before their communicator.
fn check_early(all: &mut Tables<'_>, id: u32) {
    let (comm, vcs) = (&all.communicators[id as usize], &*all.vcs);
    let mut liars = Vec::new();
    let wrong = |entry: &Unexpected| {
        let sender = vcs.get(entry.vc as usize).map(|vc| vc.proc);
        let wrong = context::base(entry.context) == comm.context && comm.proc(entry.source) != sender;
        if wrong {
            liars.push(entry.vc);
        }
        wrong
    };
    let lies = all.progress.unexpected.drain(wrong);
    give_back(all, &lies);
    for vc in liars {
        let words = "an envelope whose source is not the sender's rank".to_owned();
        all.progress.end_vc(vc, Ended::Corrupt(words));
    }
}

/// Closes a communicator for its user: its handle is stale from now on.
pub fn close(all: &mut Tables<'_>, row: Row) {
    let comm = &mut all.communicators[row as usize];
    comm.state = CommState::Closing;
    comm.handle = NIL;
    comm.cursor = 0;
}

/// Whether nothing needs a closing communicator any more. If only graphs have CAR rows, looks at those rows. Otherwise looks at each row
/// once, however often it is called. Persistent graphs that are not in progress do not need it: they can never be started again.
pub fn is_unused(all: &mut Tables<'_>, row: Row) -> bool {
    let Some(comm) = all.communicators.get_mut(row as usize) else { return false };
    if comm.agreements > 0 {
        return false;
    }
    // No new operation is posted on it and no persistent one is started, so rows that were found unused need no second look.
    let word = comm.context;
    let (nodes, requests, graphs) = (&*all.nodes, &*all.requests, &*all.progress.graphs);
    let rests = |row: usize| {
        let graph = nodes.get(row).and_then(|node| graphs.get(node.graph)).filter(|graph| graph.persistent);
        let request = graph.and_then(|graph| requests.get(graph.request as usize));
        request.is_some_and(|request| request.counter == 0)
    };
    let uses = |row: usize, car: &Car| {
        context::base(car.context) == word
            && !matches!(car.state, CarState::Free | CarState::Done)
            && !matches!(car.kind, CarKind::None | CarKind::Data)
            && !rests(row)
    };
    let taken = all.cars.len() - all.progress.free_cars.count as usize;
    let rows_of = |graph: &Graph| graph.nodes.len() + usize::from(graph.request != NIL);
    if graphs.list.iter().flatten().map(|graph| rows_of(graph)).sum::<usize>() == taken {
        let uses = |&row: &Row| all.cars.get(row as usize).is_some_and(|car| uses(row as usize, car));
        return !graphs.list.iter().flatten().any(|graph| graph.nodes.iter().chain([&graph.request]).any(uses));
    }
    let left = all.cars.iter().enumerate().skip(comm.cursor as usize);
    comm.cursor += left.take_while(|&(row, car)| !uses(row, car)).count() as Row;
    comm.cursor as usize >= all.cars.len()
}

/// Drops what has come for a closing communicator and was not received: its posted receives match none of it, and there will be no others.
/// Otherwise two members that have sent each other such messages would wait for each other. `false` if a message or a receive has no place
/// yet, so that this must be tried again. What a transport holds that matches messages itself stays there.
pub fn drop_unreceived(all: &mut Tables<'_>, row: Row) -> bool {
    if all.progress.arrivals > 0 || !all.progress.new_receives.is_empty() {
        return false;
    }
    let word = all.communicators[row as usize].context;
    disown(all, |other| context::base(other) == word && context::plane(other) == context::USER);
    true
}

/// Frees the id of a closing communicator. `false` if something still needs it.
pub fn reap(all: &mut Tables<'_>, row: Row) -> bool {
    if !is_unused(all, row) {
        return false;
    }
    let comm = &mut all.communicators[row as usize];
    let word = comm.context;
    comm.state = CommState::Free;
    comm.context = NIL;
    comm.size = 0;
    comm.members = Members::World;
    disown(all, |other| context::base(other) == word);
    true
}

/// Removes the unexpected messages whose context words `whose` accepts.
fn disown(all: &mut Tables<'_>, whose: impl Fn(u32) -> bool) {
    let found = all.progress.unexpected.drain(|entry| whose(entry.context));
    give_back(all, &found);
    for offer in found.iter().filter(|message| message.message() != NIL) {
        dismiss(all.progress, all.vcs, offer.vc, offer.context, offer.message());
    }
}

/// Gives back the temporaries and the credit of messages that nobody will receive. All arrivals have their place by now.
pub(crate) fn give_back(all: &mut Tables<'_>, messages: &[Unexpected]) {
    for message in messages {
        debug_assert!(message.buffer() != NIL || message.message() != NIL || message.length == 0);
        if message.buffer() != NIL {
            give_buffer(all.progress, all.buffers, message.buffer());
        }
        if matches!(message.kept, Kept::Arriving { .. }) {
            let stream = all.progress.streams.iter_mut().find(|stream| stream.vc == message.vc);
            stream.into_iter().for_each(|stream| stream.to = Destination::Nobody);
        }
        forget(all.progress, all.vcs, message);
    }
}

#[cfg(test)]
mod tests;
