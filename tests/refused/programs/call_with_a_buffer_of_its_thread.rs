use std::cell::Cell;
use tickwire::{Cells, Comm, Rank, Submitter, Tag};

fn receive(submitter: &Submitter) {
    let posted = submitter.call(|engine| {
        let cells: &'static [Cell<u8>] = Box::leak(Box::new([const { Cell::new(0) }; 4]));
        let request = engine.irecv(Cells(cells), Rank(0), Tag(1), Comm::WORLD);
        std::mem::forget(request);
    });
    drop(posted);
}

fn main() {}
