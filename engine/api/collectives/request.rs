//! The request of a collective operation, which has a row of its own.

use tickwire_components::{Car, CarKind, CarState, Request, RequestState, Row, Status};

/// Makes a row the request of a collective operation. The request is inactive.
pub(crate) fn own_request(cars: &mut [Car], requests: &mut [Request], row: Row, word: u32) {
    let Status { source, tag, .. } = Status::NULL;
    let car = Car { kind: CarKind::Graph, state: CarState::Done, context: word, ..Car::default() };
    cars[row as usize] = Car { source: source.0, tag: tag.0, request: row, ..car };
    let generation = requests[row as usize].generation;
    requests[row as usize] = Request { generation, state: RequestState::Inactive, ..Request::FREE };
}
