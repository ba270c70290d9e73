//! How the operand of an operation stands on a board: in a slot, or in chunks.

use crate::procs::seats::Terms;
use tickwire_components::limits::{
    BOARD_CELL_BYTES, BOARD_CELL_BYTES_WIDE, BOARD_CHUNK_MAX, BOARD_CHUNK_MAX_WIDE, BOARD_CHUNK_MIN,
    BOARD_CHUNK_MIN_WIDE, BOARD_CHUNKS_MIN, BOARD_CHUNKS_MIN_WIDE, BOARD_DIRECT_CHUNK, BOARD_DIRECT_MIN,
    BOARD_ELEMENT_MAX, BOARD_HEAP_MIN, BOARD_ONE_ROUND_MAX, CACHE_LINE,
};
use tickwire_components::{Collective, CollectiveKind, Span};
use tickwire_transports::boards::SHORT_MAX;

/// Whether boards can serve an operation: elements are short enough that a chunk has one for each member.
pub fn is_possible(call: &Collective, size: u32) -> bool {
    call.element <= BOARD_ELEMENT_MAX && call.element.next_multiple_of(CACHE_LINE) * size as usize <= BOARD_CHUNK_MAX
}

/// See the module.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shape {
    /// Bytes of a chunk of one part.
    chunk: usize,
    /// Bytes from one part to the next one, in a slot or in a cell; 0 if members have no parts of their own.
    stride: usize,
    /// Bytes from one cell to the next one. 0 if the operand stands in no cell.
    cell: usize,
    /// Bytes in a slot; [`usize::MAX`] if operands are read out of the memory of their owners.
    short: usize,
    /// Chunks of the operand.
    chunks: u64,
    /// Chunks that the cells hold at a time.
    cells: u64,
    /// Where the first cell begins, bytes.
    base: usize,
}

/// A piece of a part: one chunk of it, or all of it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Piece {
    /// Where it begins in the part, bytes.
    pub(super) first: usize,
    /// How long it is, bytes.
    pub(super) length: usize,
    /// The cell that it stands in, as the place of that, bytes.
    pub(super) cell: usize,
}

impl Shape {
    /// Of the operation of this number among so many members.
    #[inline(always)]
    pub(super) fn of(call: &Collective, number: u64, size: u32, terms: Terms) -> Self {
        let parts = if call.has_parts() { size as usize } else { 1 };
        let aligned = call.part.next_multiple_of(size_of::<u128>());
        let short = if parts == 1 { call.part } else { aligned * parts };
        if short <= SHORT_MAX {
            let stride = if parts == 1 { 0 } else { aligned };
            return Shape { chunk: call.part, stride, cell: 0, short, chunks: 1, cells: 0, base: 0 };
        }
        // Field by field, so that the compiler need not make short shapes in memory too.
        let Shape { chunk, stride, cell, short, chunks, cells, base } =
            Shape::of_long(call.kind, [call.part, call.element], parts, (number, size, terms));
        Shape { chunk, stride, cell, short, chunks, cells, base }
    }

    #[inline(never)]
    fn of_long(
        kind: CollectiveKind,
        [part, element]: [usize; 2],
        parts: usize,
        (number, size, terms): (u64, u32, Terms),
    ) -> Self {
        let call = &Collective { kind, part, element, ..Collective::BARRIER };
        match terms.reads && !terms.wide && part >= BOARD_DIRECT_MIN {
            true => Shape::direct(call, size),
            false => Shape::long(call, number, parts, terms),
        }
    }

    fn direct(call: &Collective, size: u32) -> Self {
        let element = call.element.max(1);
        let others = (size as usize - 1).max(1);
        let most = match call.kind {
            // A member reads its slice of the chunk from each other member. A slice is at most an equal share and one element, so the
            // slices fit.
            CollectiveKind::Allreduce => BOARD_DIRECT_CHUNK - others * element,
            // Each reads the chunks of all others before it combines them.
            CollectiveKind::Reduce | CollectiveKind::ReduceScatter | CollectiveKind::Scan | CollectiveKind::Exscan => {
                BOARD_DIRECT_CHUNK / others
            }
            // The kernel reads the bytes straight to where they belong.
            _ => BOARD_DIRECT_CHUNK,
        };
        let chunk = (most / CACHE_LINE * CACHE_LINE / element * element).max(element);
        let chunks = call.part.div_ceil(chunk) as u64;
        Shape { chunk, stride: 0, cell: 0, short: usize::MAX, chunks, cells: 0, base: 0 }
    }

    fn long(call: &Collective, number: u64, parts: usize, terms: Terms) -> Self {
        let (element, all) = (call.element.max(1), call.part * parts);
        let wanted = match terms {
            Terms { wide: false, .. } => (all / BOARD_CHUNKS_MIN).clamp(BOARD_CHUNK_MIN, BOARD_CHUNK_MAX),
            // Each chunk may cost a turn of all members on a processor, so chunks are long.
            Terms { shares: true, .. } => all.next_multiple_of(CACHE_LINE * parts).min(BOARD_CELL_BYTES_WIDE / 2),
            _ => (all / BOARD_CHUNKS_MIN_WIDE).clamp(BOARD_CHUNK_MIN_WIDE, BOARD_CHUNK_MAX_WIDE),
        };
        // Whole elements, at least one.
        let chunk = (wanted / parts / CACHE_LINE * CACHE_LINE / element * element).max(element);
        let aligned = chunk.next_multiple_of(CACHE_LINE);
        let (cell, chunks) = (aligned * parts, call.part.div_ceil(chunk) as u64);
        let room = if terms.wide { BOARD_CELL_BYTES_WIDE } else { BOARD_CELL_BYTES };
        let cells = ((room / cell) as u64).min(chunks);
        // Successive operations use successive places. Their number is odd: if only every second operation is long, all places are still
        // used.
        let taken = cells as usize * cell;
        let places = match room / taken {
            places @ 0..=2 => places.max(1),
            places => (places - 1) | 1,
        };
        let base = (number % places as u64) as usize * taken;
        Shape { chunk, stride: if parts == 1 { 0 } else { aligned }, cell, short: 0, chunks, cells, base }
    }

    /// Whether an operand that stands in a shared heap is read there.
    pub(super) fn reads_heap(call: &Collective, terms: Terms) -> bool {
        let all_give = matches!(
            call.kind,
            CollectiveKind::Allgather
                | CollectiveKind::Alltoall
                | CollectiveKind::Allreduce
                | CollectiveKind::ReduceScatter
        );
        terms.mapped && (!terms.wide || all_give && call.part >= BOARD_HEAP_MIN)
    }

    /// Whether an allreduce among so many members has two rounds.
    #[inline(always)]
    pub(super) fn two_rounds(&self, call: &Collective, size: u32, terms: Terms) -> bool {
        call.kind == CollectiveKind::Allreduce
            && (size > 2 || self.is_direct() || terms.wide && call.part > BOARD_ONE_ROUND_MAX)
    }

    /// Whether the operand stands in a slot.
    #[inline(always)]
    pub(super) fn is_short(&self) -> bool {
        self.cell == 0 && !self.is_direct()
    }

    /// Whether operands are read out of the memory of their owners.
    #[inline(always)]
    pub(super) fn is_direct(&self) -> bool {
        self.short == usize::MAX
    }

    /// Bytes that it takes in a slot: 0 if it stands elsewhere.
    #[inline(always)]
    pub(super) fn short(&self) -> usize {
        if self.is_direct() { 0 } else { self.short }
    }

    /// Chunks of the operand.
    #[inline(always)]
    pub(super) fn chunks(&self) -> u64 {
        self.chunks
    }

    /// Chunks that the cells hold at a time.
    #[inline(always)]
    pub(super) fn cells(&self) -> u64 {
        self.cells
    }

    /// Where in the cells it stands, as the places of its first byte and of the one behind its last.
    #[inline(always)]
    pub(super) fn range(&self) -> (usize, usize) {
        (self.base, self.base + self.cells as usize * self.cell)
    }

    /// All of a part, in a slot.
    #[inline(always)]
    pub(super) fn whole(&self) -> Piece {
        Piece { first: 0, length: self.chunk, cell: 0 }
    }

    /// A chunk of a part of so many bytes.
    #[inline(always)]
    pub(super) fn piece(&self, chunk: u64, part: usize) -> Piece {
        let first = chunk as usize * self.chunk;
        let cell = self.base + (chunk % self.cells.max(1)) as usize * self.cell;
        Piece { first, length: self.chunk.min(part - first), cell }
    }

    /// Where the part of a member is in a slot, or in a cell.
    #[inline(always)]
    pub(super) fn place(&self, rank: u32) -> usize {
        self.stride * rank as usize
    }
}

/// The slice of a chunk that a member reduces, as its first byte and its length in bytes: whole elements, as equal as they divide.
pub(super) fn slice(of: Span, rank: u32, size: u32, element: usize) -> (usize, usize) {
    let elements = of.len() / element.max(1);
    let each = elements.div_ceil(size as usize);
    let first = (each * rank as usize).min(elements);
    (first * element, each.min(elements - first) * element)
}

#[cfg(test)]
mod tests {
    use super::super::combine::OPERANDS_BYTES;
    use super::*;

    /// What members may have agreed on.
    fn all_terms() -> impl Iterator<Item = Terms> {
        [(false, false), (true, false), (true, true)].into_iter().map(|(wide, shares)| Terms {
            mapped: false,
            reads: false,
            wide,
            shares,
        })
    }

    const READ: Terms = Terms { mapped: false, reads: true, wide: false, shares: false };

    #[test]
    fn operations_one_behind_the_other_stand_in_places_of_their_own() {
        for (part, step) in [(16 << 10, 1), (64 << 10, 1), (64 << 10, 2), (100_000, 3), (1 << 20, 1)] {
            let call = Collective { kind: CollectiveKind::Broadcast, part, element: 1, ..Collective::BARRIER };
            let terms = Terms { mapped: true, reads: true, wide: true, shares: false };
            let range = |number: u64| Shape::of(&call, number * step, 2, terms).range();
            let places = (BOARD_CELL_BYTES_WIDE / (range(0).1 - range(0).0)) as u64;
            let mut ends = 0;
            for number in 0..places.saturating_sub(2) {
                let (first, end) = range(number);
                assert!(end <= BOARD_CELL_BYTES_WIDE && end - first >= part);
                for other in (0..number).map(range) {
                    assert!(other.1 <= first || end <= other.0, "{part} bytes: {number}");
                }
                ends = ends.max(end);
            }
            assert!(places < 4 || step > 1 || ends > BOARD_CELL_BYTES_WIDE / 2, "{part} bytes come round late");
        }
    }

    #[test]
    fn chunks_cover_a_part_in_whole_elements_and_fit_the_cells() {
        for kind in [CollectiveKind::Allreduce, CollectiveKind::Alltoall] {
            for size in 2..=16u32 {
                for element in [1, 2, 8, 12, 24, 100, 1000] {
                    for count in [0, 1, 7, 100, 1000, 4096, 100_000] {
                        let part = element * count;
                        let call = Collective { kind, part, element, ..Collective::BARRIER };
                        assert!(is_possible(&call, size) || element == 1000);
                        if !is_possible(&call, size) {
                            continue;
                        }
                        all_terms().for_each(|terms| is_covered(&call, size, terms));
                    }
                }
            }
        }
    }

    fn is_covered(call: &Collective, size: u32, terms: Terms) {
        let (part, element) = (call.part, call.element);
        for number in [1, 2, 77] {
            let shape = Shape::of(call, number, size, terms);
            if shape.is_short() {
                assert!(shape.short() <= SHORT_MAX && shape.short() >= part);
                assert!(!call.has_parts() || shape.place(size - 1) + part <= shape.short());
                continue;
            }
            let (mut end, (first, behind)) = (0, shape.range());
            for chunk in 0..shape.chunks() {
                let piece = shape.piece(chunk, part);
                assert_eq!((piece.first, piece.first % element, piece.length % element), (end, 0, 0));
                end += piece.length;
                let last = if call.has_parts() { shape.place(size - 1) } else { 0 };
                assert!(piece.length > 0 && piece.cell >= first && piece.cell + last + piece.length <= behind);
            }
            assert!(behind <= if terms.wide { BOARD_CELL_BYTES_WIDE } else { BOARD_CELL_BYTES });
            assert!(end == part && shape.cells() >= shape.chunks().min(2), "{call:?} {shape:?}");
        }
    }

    #[test]
    fn direct_chunks_leave_room_for_those_of_all_others() {
        for size in 2..=16u32 {
            for (element, count) in [(8, 1 << 17), (24, 40_000), (4096, 300)] {
                let call =
                    Collective { kind: CollectiveKind::Reduce, part: element * count, element, ..Collective::BARRIER };
                let shape = Shape::of(&call, 1, size, READ);
                assert!(shape.is_direct() && !shape.is_short());
                let all: usize = (0..shape.chunks()).map(|chunk| shape.piece(chunk, call.part).length).sum();
                let first = shape.piece(0, call.part).length;
                assert_eq!((all, first % element), (call.part, 0));
                assert!(first * (size as usize - 1) <= BOARD_DIRECT_CHUNK.max(element * (size as usize - 1)));
            }
        }
    }

    #[test]
    fn slices_of_a_direct_chunk_have_room_for_those_of_all_others() {
        for size in 2..=16u32 {
            for element in [1, 8, 24, 280, BOARD_ELEMENT_MAX]
                .into_iter()
                .filter(|&element| is_possible(&Collective { element, ..Collective::BARRIER }, size))
            {
                let (kind, part) = (CollectiveKind::Allreduce, 300 * BOARD_ELEMENT_MAX / element * element);
                let call = Collective { kind, part, element, ..Collective::BARRIER };
                let shape = Shape::of(&call, 1, size, READ);
                assert!(shape.is_direct());
                let length = shape.piece(0, call.part).length;
                // SAFETY: nobody uses the bytes.
                #[expect(unsafe_code, reason = "a length")]
                let chunk = unsafe { Span::new(std::ptr::dangling_mut(), length) };
                let longest = (0..size).map(|rank| slice(chunk, rank, size, element).1).max().unwrap();
                let room = longest.next_multiple_of(CACHE_LINE) * (size as usize - 1);
                assert!(room <= OPERANDS_BYTES, "{size} members, elements of {element}: {room}");
                assert!(length > BOARD_DIRECT_CHUNK / 2, "few calls");
            }
        }
    }

    #[test]
    fn slices_cover_a_chunk() {
        for (size, elements) in [(2, 5), (3, 3), (7, 2), (16, 1000), (5, 0)] {
            // SAFETY: nobody uses the bytes.
            #[expect(unsafe_code, reason = "a length")]
            let chunk = unsafe { Span::new(std::ptr::dangling_mut(), elements * 8) };
            let mut end = 0;
            for rank in 0..size {
                let (first, length) = slice(chunk, rank, size, 8);
                assert_eq!((first, length % 8), (end, 0));
                end += length;
            }
            assert_eq!(end, elements * 8);
        }
    }
}
