//! Takes the rows of an operation out of the free list when the operation is posted.

use std::sync::Arc;
use tickwire_components::limits::RUN_ROWS_MAX;
use tickwire_components::{Car, CarKind, CarState, NIL, Pieces, Progress, Request, RequestState, Row, Segment, Span};

/// Takes the rows of an operation. Its first row holds both its request and its envelope CAR. An operation with several pieces takes one
/// more row for each piece, as a data CAR. A datatype's layout, or more than [`RUN_ROWS_MAX`] pieces, takes just one more row.
///
/// `car` is the new content of the envelope CAR, without its span and its links. `None` if there are not enough free rows; nothing is taken
/// then.
///
/// # Safety
/// The bytes outlive the operation: they stay valid until its request is done, or until its CARs no longer refer to them.
#[expect(unsafe_code, reason = "bytes that are addresses")]
#[inline(always)]
pub unsafe fn take_rows<P: Pieces + ?Sized>(
    progress: &mut Progress,
    cars: &mut [Car],
    requests: &mut [Request],
    pieces: &P,
    car: Car,
) -> Option<Row> {
    if pieces.pieces() != 1 {
        // SAFETY: by the same contract.
        return unsafe { take_many_rows(progress, cars, requests, pieces, car) };
    }
    let row = progress.free_cars.head;
    let entry = requests.get_mut(row as usize)?;
    let place = cars.get_mut(row as usize)?;
    progress.free_cars.head = place.next;
    progress.free_cars.count -= 1;
    *place = Car { span: pieces.piece(0), request: row, ..car };
    *entry = Request { generation: entry.generation, counter: 1, state: RequestState::Active, ..Request::FREE };
    progress.active += 1;
    progress.work.posted += 1;
    let stamp = progress.stamp();
    progress.stamps.set(row, stamp);
    Some(row)
}

/// How many rows an operation takes.
pub fn rows_of<P: Pieces + ?Sized>(pieces: &P) -> usize {
    match pieces.pieces() {
        1 => 1,
        count if count > RUN_ROWS_MAX => 2,
        count => count.max(1) + 1,
    }
}

/// # Safety
/// As [`take_rows`].
#[expect(unsafe_code, reason = "bytes that are addresses")]
#[cold]
#[inline(never)]
pub(crate) unsafe fn take_many_rows<P: Pieces + ?Sized>(
    progress: &mut Progress,
    cars: &mut [Car],
    requests: &mut [Request],
    pieces: &P,
    car: Car,
) -> Option<Row> {
    if (progress.free_cars.count as usize) < rows_of(pieces) {
        return None;
    }
    let row = progress.free_cars.pop(cars)?;
    // SAFETY: by the same contract.
    unsafe { activate(progress, cars, requests, pieces, car, row) }.then_some(row)
}

/// Starts an operation in the row of an inactive request, as [`take_rows`] does in a free row. `false` if there are not enough free rows
/// for its data CARs.
///
/// # Safety
/// The bytes outlive the operation: they stay valid until its request is done, or until its CARs no longer refer to them.
#[expect(unsafe_code, reason = "bytes that are addresses")]
pub unsafe fn activate<P: Pieces + ?Sized>(
    progress: &mut Progress,
    cars: &mut [Car],
    requests: &mut [Request],
    pieces: &P,
    car: Car,
    row: Row,
) -> bool {
    let mut count = pieces.pieces() as u32;
    let (mut chain, mut span) = (NIL, Span::EMPTY);
    let is_list = pieces.pieces() > RUN_ROWS_MAX;
    if is_list || pieces.layout().is_some() {
        let Some(data) = progress.free_cars.pop(cars) else { return false };
        let layout = match pieces.layout() {
            Some(layout) => layout,
            None => {
                let runs = (0..pieces.pieces()).map(|index| pieces.piece(index));
                // SAFETY: by this function's contract; the list is there as long as the data CAR.
                let list = Arc::new(unsafe { Segment::of_runs(runs) });
                // SAFETY: as above.
                let stretch = unsafe { list.stretch() };
                progress.run_lists.push((data, list));
                stretch
            }
        };
        let (kind, state, span) = (CarKind::Layout, CarState::Chained, layout.as_span());
        cars[data as usize] = Car { kind, state, request: row, span, ..Car::default() };
        (chain, count) = (data, 1);
    } else if count == 1 {
        span = pieces.piece(0);
    } else if progress.free_cars.count < count {
        return false;
    } else {
        for index in (0..count).rev() {
            let Some(data) = progress.free_cars.pop(cars) else { return false };
            let (kind, state, span) = (CarKind::Data, CarState::Chained, pieces.piece(index as usize));
            cars[data as usize] = Car { kind, state, chain, request: row, span, ..Car::default() };
            chain = data;
        }
    }
    cars[row as usize] = Car { chain, span, request: row, ..car };
    let entry = &mut requests[row as usize];
    let (generation, counter) = (entry.generation, count.max(1));
    *entry = Request { generation, counter, state: RequestState::Active, ..Request::FREE };
    progress.active += 1;
    progress.work.posted += 1;
    let stamp = progress.stamp();
    progress.stamps.set(row, stamp);
    true
}
