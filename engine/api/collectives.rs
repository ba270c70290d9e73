//! Collective operations (MPI 4.1 chapter 6): all members of a communicator call them, in the same order.
//!
//! An operation is a graph: the engine draws this rank's part of it when it is called, and ticks run it. Any number may be in
//! progress, on one communicator and on several. Each has three forms: one that waits, one whose name begins with `i` and that
//! returns a request at once, and one whose name ends with `_init` and that returns a persistent request.

mod boards;
mod choice;
pub(crate) mod exchange;
mod forms;
pub(crate) mod graph;
mod neighbors;
mod persistent;
mod prefix;
pub(crate) mod reduction;
pub(crate) mod request;
mod spread;
mod telling;

use crate::api::communicators::state::Comms;
pub(crate) use boards::activate;
pub(crate) use persistent::check_buffer;
pub use reduction::reduce_local;
use std::any::TypeId;
use std::mem::ManuallyDrop;
use std::ops::Range;
use tickwire_components::{
    Collective, Comm, Element, List, Neighbors, OneRun, Operation, Pieces, PostError, Rank, Reduction, Sequence, Span,
};
use tickwire_systems::collectives::draft::Draft;
use tickwire_systems::protocols::board::is_possible;

/// Checks the arguments of an operation with these buffers, and plans this rank's part of the operation.
pub(crate) trait Draw<B>: FnOnce(Member<'_>, &B) -> Result<Plan, PostError> {}

impl<B, D: FnOnce(Member<'_>, &B) -> Result<Plan, PostError>> Draw<B> for D {}

/// How this rank's part of an operation runs.
pub(crate) enum Plan {
    /// On boards. The reduction says how elements are combined, if they are.
    Boards(Collective, Option<Reduction>),
    /// By messages.
    Drawn(Box<Draft>),
}

/// The member that calls an operation.
#[derive(Clone, Copy)]
pub(crate) struct Member<'a> {
    /// The member's rank.
    rank: u32,
    /// How many members there are.
    size: u32,
    /// Whether the members have boards. If they do, an operation that can run on boards is not drawn as a graph.
    has_boards: bool,
    /// The communicator, and what is kept about communicators.
    comm: Comm,
    comms: &'a Comms,
}

impl Member<'_> {
    /// Plans an operation: it runs on boards where there are some, else by messages, as `draw` draws it.
    #[inline(always)]
    fn plan(
        self,
        call: Collective,
        reduction: Option<Reduction>,
        draw: impl Fn(&mut Draft),
    ) -> Result<Plan, PostError> {
        if self.has_boards && is_possible(&call, self.size) {
            return Ok(Plan::Boards(call, reduction));
        }
        let on_boards = Some(call).filter(|call| is_possible(call, self.size));
        Ok(Plan::Drawn(self.drawn(reduction, on_boards, &draw)))
    }

    /// Plans an operation that runs by messages even where there are boards.
    #[inline(always)]
    fn draw(self, reduction: Option<Reduction>, draw: impl Fn(&mut Draft)) -> Result<Plan, PostError> {
        Ok(Plan::Drawn(self.drawn(reduction, None, &draw)))
    }

    /// Draws what this member does by messages. `on_boards` is the operation as it would run on boards.
    #[inline(never)]
    fn drawn(
        self,
        reduction: Option<Reduction>,
        on_boards: Option<Collective>,
        draw: &dyn Fn(&mut Draft),
    ) -> Box<Draft> {
        let hosts = self.comms.hosts_of(self.comm);
        let mut draft = Box::new(Draft { reduction, on_boards, hosts, ..Draft::new(self.rank, self.size) });
        draw(&mut draft);
        draft
    }

    /// The neighbours of this rank in the communicator's topology.
    fn neighbors(self) -> Result<Neighbors, PostError> {
        let found = self.comms.topologies.iter().find(|(comm, _)| *comm == self.comm);
        // A topology fits its communicator, so this rank is in it.
        found.and_then(|(_, topology)| topology.neighbors(Rank(self.rank)).ok()).ok_or(PostError::NoTopology)
    }
}

/// A call of a collective operation, whatever its form.
pub(crate) struct Call<B, D> {
    /// The name of the call, for errors.
    name: &'static str,
    /// The buffers of the call.
    buffer: B,
    /// See [`Draw`].
    draw: D,
    /// The root, if there is one, and the types of the elements and of the operation. Calls that have these and the buffers in common share
    /// one graph. `None` for calls whose graph depends on more arguments.
    same: Option<(u32, TypeId)>,
}

impl<B, D: Draw<B>> Call<B, D> {
    /// A call whose graph depends on all of its arguments.
    fn new(name: &'static str, buffer: B, draw: D) -> Self {
        Call { name, buffer, draw, same: None }
    }

    /// A call whose graph depends only on its root, on these types, and on where its buffers are.
    fn like<T: 'static>(self, root: u32) -> Self {
        Call { same: Some((root, TypeId::of::<T>())), ..self }
    }

    /// As [`Call::like`], for a call that reduces elements by an operation. An operation that has state is never shared.
    fn reducing<T: Element, O: Operation<T>>(self, root: u32) -> Self {
        if size_of::<O>() == 0 { self.like::<(T, O)>(root) } else { self }
    }
}

impl<B: Pieces, D: Draw<B>> Call<B, D> {
    /// Runs `part` with this call. Returns its result, and the buffer.
    fn with<T>(self, comm: Comm, part: impl FnOnce(&mut AnyCall<'_>) -> T) -> (B, T) {
        let Call { name, buffer, draw, same } = self;
        // After a panic a peer may still read the buffers that were lent, so they are not freed.
        let buffer = ManuallyDrop::new(buffer);
        let mut once = Some(draw);
        let mut draw = |member: Member<'_>| match once.take() {
            Some(draw) => draw(member, &*buffer),
            None => unreachable!("a call is planned once"),
        };
        let done = part(&mut AnyCall { name, comm, buffer: &*buffer, draw: &mut draw, same });
        (ManuallyDrop::into_inner(buffer), done)
    }
}

/// A [`Call`] without the types of its buffers. What takes one is compiled once, and not for each type of buffer.
pub(crate) struct AnyCall<'a> {
    name: &'static str,
    comm: Comm,
    buffer: &'a dyn Pieces,
    /// See [`Draw`]. It is called at most once.
    draw: &'a mut dyn FnMut(Member<'_>) -> Result<Plan, PostError>,
    same: Option<(u32, TypeId)>,
}

/// The size of an element in operations that only copy, bytes: members count bytes, whatever the type of the elements.
const COPIED: usize = 1;

/// Checks that a buffer has as many elements as it must have.
fn check_count(what: &'static str, given: usize, needed: usize) -> Result<(), PostError> {
    if given == needed { Ok(()) } else { Err(PostError::Elements { what, given, needed }) }
}

/// Checks that the elements of both buffers have the size that the operation reduces, bytes. Returns that size.
fn check_element<S: Sequence, R: Sequence>(operation: usize, send: &S, receive: &R) -> Result<usize, PostError> {
    if !send.is_in_place() {
        check_count("element of the send buffer, bytes,", send.element(), operation)?;
    }
    if !receive.is_in_place() && receive.total() > 0 {
        check_count("element of the receive buffer, bytes,", receive.element(), operation)?;
    }
    Ok(operation)
}

/// The runs of both buffers, which have as many elements. In place, both are the receive buffer.
#[inline(always)]
fn operands<S: Sequence, R: Sequence>(send: &S, receive: &R) -> Result<(Span, Span), PostError> {
    check_in_place(receive, false, SENDS)?;
    let output = receive.piece(0);
    if send.is_in_place() {
        return Ok((output, output));
    }
    check_count("receive buffer", receive.count(), send.count())?;
    Ok((send.piece(0), output))
}

/// Checks that elements which are copied from one buffer to the other have the same size in both. Sizes of packed elements may differ.
fn check_same<S: Sequence, R: Sequence>(send: &S, receive: &R) -> Result<(), PostError> {
    if send.is_in_place() || receive.is_in_place() || send.total() == 0 || receive.total() == 0 {
        return Ok(());
    }
    check_count("element of the receive buffer, bytes,", receive.element(), send.element())
}

/// Checks that a root is a rank.
fn check_root(member: Member<'_>, root: Rank) -> Result<u32, PostError> {
    if root.0 < member.size { Ok(root.0) } else { Err(PostError::Rank { rank: root.0, last: member.size - 1 }) }
}

/// What may be in place where a member gives two buffers: not the one that it receives into.
const SENDS: &str = "the buffer to send";

/// Checks that a member which must give a buffer gives one.
fn check_in_place(buffer: &impl OneRun, may: bool, who: &'static str) -> Result<(), PostError> {
    if may || !buffer.is_in_place() { Ok(()) } else { Err(PostError::InPlace { who }) }
}

/// Checks that a member which must give a list of buffers gives buffers in it.
fn check_list(list: &List<impl OneRun>, who: &'static str) -> Result<(), PostError> {
    list.iter().try_for_each(|buffer| check_in_place(buffer, false, who))
}

/// Where the elements of each rank are in a buffer, bytes; checked against the elements that the buffer has.
struct Places {
    places: Box<[Range<usize>]>,
}

impl Places {
    /// Checks that there are `count` places, and that all are within the buffer. Places that are `written` must not overlap.
    fn of<B: Sequence>(
        what: &'static str,
        places: &[Range<usize>],
        buffer: &B,
        count: usize,
        written: bool,
    ) -> Result<Self, PostError> {
        check_count("list of places", places.len(), count)?;
        let given = buffer.count();
        let mut ends: Vec<(usize, usize)> = Vec::with_capacity(places.len());
        for place in places {
            if place.end > given || place.start > place.end {
                return Err(PostError::Elements { what, given, needed: place.end.max(place.start) });
            }
            ends.push((place.start, place.end));
        }
        if written {
            ends.retain(|(start, end)| start < end);
            ends.sort_unstable();
            if ends.windows(2).any(|pair| pair[0].1 > pair[1].0) {
                return Err(PostError::Overlap);
            }
        }
        let size = buffer.element();
        Ok(Places { places: places.iter().map(|place| place.start * size..place.end * size).collect() })
    }

    /// Where the elements of a rank begin, bytes, and how many bytes they are.
    fn of_rank(&self, rank: u32) -> (usize, usize) {
        let place = &self.places[rank as usize];
        (place.start, place.len())
    }

    /// The bytes of a rank in the buffer.
    fn part(&self, all: Span, rank: u32) -> Span {
        let (start, bytes) = self.of_rank(rank);
        all.part(start, bytes)
    }
}

/// Places for so many elements of each rank, one place after the other. More than there can be end at the greatest index, where no buffer
/// has elements.
///
/// ```
/// assert_eq!(tickwire::consecutive(&[2, 0, 3]), [0..2, 2..2, 2..5]);
/// ```
pub fn consecutive(counts: &[usize]) -> Vec<Range<usize>> {
    let mut end = 0usize;
    let place = |&count: &usize| {
        let start = end;
        end = end.saturating_add(count);
        start..end
    };
    counts.iter().map(place).collect()
}
