use tickwire::{Comm, Rank, Submitter, Tag};

fn receive(submitter: &Submitter) {
    let mut numbers = [0f64; 4];
    let received = submitter.call(|engine| engine.recv(&mut numbers, Rank(0), Tag(1), Comm::WORLD));
    drop(received);
}

fn main() {}
