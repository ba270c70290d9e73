//! Credit: a receiver grants more credit to its senders. The [steps](crate::steps::credit) count what was spent and what is owed.

use crate::procs::endpoint::Endpoint;
use crate::rows::Rows;
use crate::steps::credit::{due, granted};
use tickwire_components::wire::{Header, Kind};
use tickwire_components::{Control, Pending, Row};

/// Grants the credit that is due: by the transport's own means, or in a frame of its own, if there is room for a control frame.
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
