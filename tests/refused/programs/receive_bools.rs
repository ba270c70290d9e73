use tickwire::{Comm, Engine, Rank, Tag};

fn receive(engine: &mut Engine) {
    let _ = engine.irecv(vec![false; 4], Rank(0), Tag(1), Comm::WORLD);
}

fn main() {}
