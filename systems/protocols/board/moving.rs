//! Moves the bytes of operations on boards: operands to the own board, and what others show to where it belongs.
//!
//! An operation keeps its buffers until it is done, and seats keep the boards. A hostile peer may change its bytes at any time, which
//! spoils the result and nothing else.

use super::combine::{Combiner, OPERANDS_BYTES, SCRATCH_BYTES, copy, copy_operand};
use super::ending::{abandoned, check_read};
use super::operation::{Around, Failure, NumberedCall, Operation};
use super::shape::{Piece, slice};
use crate::procs::seats::{Seat, Seats};
use std::sync::atomic::{Ordering, fence};
use tickwire_components::limits::CACHE_LINE;
use tickwire_components::{CollectiveKind, Reduction, Span, VcState, car_flags};
use tickwire_transports::boards::Stage;

/// Puts a short operand into the own slot.
#[inline(always)]
pub(super) fn write_short(numbered: &NumberedCall, seats: &Seats) {
    let place = seats.own.short(numbered.number, numbered.shape.short());
    write(numbered, seats, place, numbered.shape.whole());
}

/// Puts the next chunk of the operand into its cell.
#[inline(always)]
pub(super) fn write_chunk(operation: &Operation, seats: &Seats) {
    let piece = operation.numbered.shape.piece(operation.written, operation.numbered.call.part);
    let last = operation.numbered.shape.place(seats.size - 1);
    let place = seats.own.cells(piece.cell, last + piece.length);
    if !operation.two_rounds {
        return write(&operation.numbered, seats, place, piece);
    }
    // Nobody reads the own slice from the board: this member reduces it.
    let (input, element) =
        (operation.numbered.call.input.part(piece.first, piece.length), operation.numbered.call.element);
    let (first, length) = slice(input, seats.rank, seats.size, element);
    give(place.part(0, first), input.part(0, first));
    give(place.part(first + length, usize::MAX), input.part(first + length, usize::MAX));
}

/// Writes a piece of the operand to `place`, on the own board: for each other member its part, or the one piece that all of them read.
#[inline(always)]
fn write(numbered: &NumberedCall, seats: &Seats, place: Span, piece: Piece) {
    let call = &numbered.call;
    if !call.has_parts() {
        return give(place, call.input.part(piece.first, piece.length));
    }
    for rank in (0..seats.size).filter(|&rank| rank != seats.rank) {
        let from = call.input.part(rank as usize * call.part + piece.first, piece.length);
        give(place.part(numbered.shape.place(rank), piece.length), from);
    }
}

/// Takes the short operands of all sources.
#[inline(always)]
pub(super) fn finish_short(
    numbered: &NumberedCall,
    reduction: Option<&Reduction>,
    seats: &Seats,
    around: &mut Around<'_>,
) -> Result<(), Failure> {
    let piece = numbered.shape.whole();
    if piece.length > 0 {
        take(numbered, reduction, seats, piece, around)?;
        check_read(numbered.sources, seats)?;
        take_own(numbered, seats, piece);
    }
    Ok(())
}

/// Takes the next chunk of all sources. In an allreduce of two rounds, their slices of the result.
pub(super) fn consume_chunk(operation: &Operation, seats: &Seats, around: &mut Around<'_>) -> Result<(), Failure> {
    let piece = operation.numbered.shape.piece(operation.consumed, operation.numbered.call.part);
    match operation.two_rounds {
        true => collect_slices(operation, seats, piece, around),
        false => take(&operation.numbered, operation.reduction.as_ref(), seats, piece, around),
    }
}

/// Reduces the own slice of the next chunk from the operands of all, and shows it.
pub(super) fn reduce_slice(operation: &Operation, seats: &Seats, around: &mut Around<'_>) -> Result<(), Failure> {
    let call = &operation.numbered.call;
    let piece = operation.numbered.shape.piece(operation.reduced, call.part);
    let output = call.output.part(piece.first, piece.length);
    let (first, length) = slice(output, seats.rank, seats.size, call.element);
    let own = Piece { first: piece.first + first, length, cell: piece.cell + first };
    let also = if operation.shown[1] { Span::EMPTY } else { seats.own.cells(own.cell, length) };
    combine(&operation.numbered, operation.reduction.as_ref(), seats, (own, also), around)
}

/// Collects the slices of a chunk of the result that others have reduced.
fn collect_slices(operation: &Operation, seats: &Seats, piece: Piece, around: &mut Around<'_>) -> Result<(), Failure> {
    let numbered = &operation.numbered;
    let output = numbered.call.output.part(piece.first, piece.length);
    for (rank, seat) in (0..).zip(&seats.peers) {
        let Some(seat) = seat else { continue };
        let (first, length) = slice(output, rank, seats.size, numbered.call.element);
        let to = output.part(first, length);
        let from = match seat.board.called(numbered.number).result {
            0 => seat.board.cells(piece.cell + first, length),
            result => fetch(
                numbered.number,
                (rank, seat),
                result.wrapping_add((piece.first + first) as u64),
                length,
                to,
                around,
            )?,
        };
        copy_bytes(to, from);
    }
    Ok(())
}

/// Where a member shows a piece that this one takes. A piece that only the kernel can reach is read into `room`.
#[inline(always)]
fn shown(
    numbered: &NumberedCall,
    seats: &Seats,
    (rank, seat): (u32, &Seat),
    piece: Piece,
    room: Span,
    around: &mut Around<'_>,
) -> Result<Span, Failure> {
    let (shape, call) = (&numbered.shape, &numbered.call);
    let place = shape.place(seats.rank);
    if shape.is_short() {
        return Ok(seat.board.short(numbered.number, shape.short()).part(place, piece.length));
    }
    match seat.board.called(numbered.number).address {
        0 => Ok(seat.board.cells(piece.cell + place, piece.length)),
        address => {
            let part = if call.has_parts() { seats.rank as usize * call.part } else { 0 };
            fetch(
                numbered.number,
                (rank, seat),
                address.wrapping_add((part + piece.first) as u64),
                piece.length,
                room,
                around,
            )
        }
    }
}

/// Returns `length` bytes that a member has at an address: in its shared heap, if this process maps that, else read by the kernel into
/// `room`. The chunks that the kernel reads are short enough for the room ([`super::shape`]); others need none.
fn fetch(
    number: u64,
    (rank, seat): (u32, &Seat),
    address: u64,
    length: usize,
    room: Span,
    around: &mut Around<'_>,
) -> Result<Span, Failure> {
    if let Some(found) = seat.board.find(address, length) {
        return Ok(found);
    }
    // A link that has ended may have given its number to one of another process.
    let is_its = around
        .vcs
        .get(seat.vc as usize)
        .is_some_and(|vc| vc.state == VcState::Connected && (vc.endpoint, vc.link) == (seat.endpoint, seat.link));
    let endpoint = around.endpoints.get_mut(seat.endpoint as usize).filter(|_| is_its);
    let boards = endpoint.and_then(|endpoint| endpoint.transport.get().shared_memory());
    // SAFETY: see the module: room for so many bytes, of a buffer or of scratch. No transport within a process has boards.
    #[expect(unsafe_code, reason = "bytes that are addresses")]
    let fetched =
        room.len() == length && boards.is_some_and(|boards| unsafe { boards.fetch(seat.link, address, room) });
    if fetched {
        return Ok(room);
    }
    // A member that has given the operation up has its memory back, and may have freed it.
    fence(Ordering::Acquire);
    Err(match seat.board.begun(number) {
        Stage::Abandoned => abandoned(rank),
        _ => Failure { flags: car_flags::PEER_FAILED, rank, sent: 0, expected: 0 },
    })
}

/// Takes a piece of all sources to where it goes.
#[inline(always)]
fn take(
    numbered: &NumberedCall,
    reduction: Option<&Reduction>,
    seats: &Seats,
    piece: Piece,
    around: &mut Around<'_>,
) -> Result<(), Failure> {
    let call = &numbered.call;
    match call.kind {
        CollectiveKind::Barrier => {}
        CollectiveKind::Broadcast | CollectiveKind::Scatter => {
            if let Some(Some(seat)) = seats.peers.get(call.root as usize) {
                let to = call.output.part(piece.first, piece.length);
                copy_bytes(to, shown(numbered, seats, (call.root, seat), piece, to, around)?);
            }
        }
        CollectiveKind::Gather | CollectiveKind::Allgather | CollectiveKind::Alltoall if numbered.sources != 0 => {
            for (rank, seat) in (0..).zip(&seats.peers) {
                let Some(seat) = seat else { continue };
                let to = call.output.part(rank as usize * call.part + piece.first, piece.length);
                copy_bytes(to, shown(numbered, seats, (rank, seat), piece, to, around)?);
            }
        }
        CollectiveKind::Reduce | CollectiveKind::Allreduce | CollectiveKind::ReduceScatter if numbered.sources != 0 => {
            combine(numbered, reduction, seats, (piece, Span::EMPTY), around)?;
        }
        CollectiveKind::Scan | CollectiveKind::Exscan if seats.rank != 0 => {
            combine(numbered, reduction, seats, (piece, Span::EMPTY), around)?;
        }
        _ => {}
    }
    Ok(())
}

/// Combines a piece of the own operand with those of the sources. The result goes to the output, and also to `also` unless that is empty.
#[inline(always)]
fn combine(
    numbered: &NumberedCall,
    reduction: Option<&Reduction>,
    seats: &Seats,
    (piece, also): (Piece, Span),
    around: &mut Around<'_>,
) -> Result<(), Failure> {
    let (call, rank, size) = (&numbered.call, seats.rank, seats.size);
    let Some(reduction) = reduction else { return Ok(()) };
    let own = if call.has_parts() { rank as usize * call.part } else { 0 };
    let (input, output) =
        (call.input.part(own + piece.first, piece.length), call.output.part(piece.first, piece.length));
    // SAFETY: the scratch is borrowed, and as large as this.
    #[expect(unsafe_code, reason = "bytes that are addresses")]
    let scratch = unsafe { Span::new(around.scratch.as_mut_ptr().cast(), size_of_val(around.scratch)) };
    let rooms = scratch.part(SCRATCH_BYTES, OPERANDS_BYTES);
    let combiner = Combiner { reduction, element: call.element.max(1), scratch, also };
    if size == 2
        && let Some((other, seat)) = (0..).zip(&seats.peers).find_map(|(other, seat)| Some((other, seat.as_ref()?)))
    {
        let shown = match numbered.sources {
            0 => Span::EMPTY,
            _ => shown(numbered, seats, (other, seat), piece, rooms.part(0, piece.length), around)?,
        };
        let operands = if rank == 0 { [input, shown] } else { [shown, input] };
        // SAFETY: as in `combine_operands`.
        #[expect(unsafe_code, reason = "bytes that are addresses")]
        unsafe {
            match call.kind {
                CollectiveKind::Exscan => copy(output, operands[0]),
                _ => combiner.two(output, operands),
            }
        }
        return Ok(());
    }
    let mut operands = [Span::EMPTY; u32::BITS as usize];
    operands[rank as usize] = input;
    let mut room = 0;
    for (other, seat) in (0..).zip(&seats.peers) {
        let Some(seat) = seat.as_ref().filter(|_| numbered.sources & 1 << other != 0) else { continue };
        let into = rooms.part(room, piece.length);
        operands[other as usize] = shown(numbered, seats, (other, seat), piece, into, around)?;
        room += piece.length.next_multiple_of(CACHE_LINE);
    }
    combine_operands(numbered, seats, &combiner, output, &|rank| operands[rank as usize]);
    Ok(())
}

#[inline(always)]
fn combine_operands(
    numbered: &NumberedCall,
    seats: &Seats,
    combiner: &Combiner<'_>,
    output: Span,
    operand: &dyn Fn(u32) -> Span,
) {
    let (rank, size) = (seats.rank, seats.size);
    // SAFETY: see the module: pieces of one length, of elements of the reduction's type. The output is the own operand, or
    // overlaps with none of these pieces.
    #[expect(unsafe_code, reason = "bytes that are addresses")]
    unsafe {
        match numbered.call.kind {
            CollectiveKind::Scan => combiner.prefix(rank, size, output, operand),
            CollectiveKind::Exscan => combiner.prefix(rank - 1, size, output, operand),
            _ => combiner.all(size, output, operand),
        }
    }
}

/// Takes a piece of what this member gives to itself.
#[inline(always)]
pub(super) fn take_own(numbered: &NumberedCall, seats: &Seats, piece: Piece) {
    let (call, own) = (&numbered.call, seats.rank as usize * numbered.call.part);
    let (from, to) = match call.kind {
        CollectiveKind::Gather | CollectiveKind::Allgather if !call.output.is_empty() && !call.input.is_empty() => {
            (0, own)
        }
        CollectiveKind::Scatter if seats.rank == call.root && !call.output.is_empty() => (own, 0),
        CollectiveKind::Alltoall => (own, own),
        CollectiveKind::Scan if seats.rank == 0 => (0, 0),
        _ => return,
    };
    give(call.output.part(to + piece.first, piece.length), call.input.part(from + piece.first, piece.length));
}

/// Takes the next chunk of what this member gives to itself.
#[inline(always)]
pub(super) fn take_own_chunk(operation: &mut Operation, seats: &Seats) {
    let piece = operation.numbered.shape.piece(operation.own_taken, operation.numbered.call.part);
    take_own(&operation.numbered, seats, piece);
    operation.own_taken += 1;
}

/// Copies bytes, unless they are there.
#[inline(always)]
fn copy_bytes(to: Span, from: Span) {
    // SAFETY: see the module. What is on a board or in another's heap overlaps with no buffer, and what is taken of the own
    // operand is where it goes already or does not overlap with it.
    #[expect(unsafe_code, reason = "bytes that are addresses")]
    unsafe {
        copy(to, from);
    }
}

/// As [`copy_bytes`], of the own operand.
#[inline(always)]
fn give(to: Span, from: Span) {
    // SAFETY: as in `copy_bytes`.
    #[expect(unsafe_code, reason = "bytes that are addresses")]
    unsafe {
        copy_operand(to, from);
    }
}
