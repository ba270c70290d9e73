use tickwire::{Comm, Engine, Rank, Tag};

fn send(engine: &mut Engine) {
    let _ = engine.isend(vec![String::new()], Rank(0), Tag(1), Comm::WORLD);
}

fn main() {}
