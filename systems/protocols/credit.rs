//! Credit: a receiver grants its senders more of it. What was spent and what is owed is counted by the
//! [steps](crate::steps::credit).

use crate::procs::endpoint::Endpoint;
use crate::rows::Rows;
use crate::steps::credit::{due, granted};
use tickwire_components::wire::{Header, Kind};
use tickwire_components::{Control, Pending, Row};

/// Grants what is due: by the transport's own way, or in a frame that has nothing else to say, if there is a row for it.
pub fn grant(rows: &mut Rows<'_>, endpoint: &mut Endpoint, vc_row: Row) {
    let Rows { progress, vcs, .. } = rows;
    let vc = &mut vcs[vc_row as usize];
    let credit = due(progress, vc, vc_row, false);
    if credit.is_none() {
        return;
    }
    if endpoint.windows {
        endpoint.transport.get().grant(vc.link, credit);
        return granted(progress, vc, credit);
    }
    let (_, credit) = Header::new(Kind::Credit, 0, 0, 0, 0, 0).with_credit(credit);
    if progress.control.push(vc_row, Control::Credit(credit)) {
        granted(progress, vc, credit);
        progress.pending |= Pending::POST;
    }
}
