//! The receiver's answer to an offer (RTS).

use crate::procs::priorities::{insert, list_sender};
use crate::rows::Rows;
use tickwire_components::{CarState, Row};

/// Queues a receive's answer to its sender. The frame itself is made when it leaves, from what the tables contain then.
pub(crate) fn answer(rows: &mut Rows<'_>, row: Row) {
    let car = &mut rows.cars[row as usize];
    car.state = CarState::Queued;
    let vc_row = car.vc;
    insert(&mut rows.progress.replies, &mut rows.cars, row);
    list_sender(&mut rows.progress, &mut rows.vcs, vc_row);
}
