use tickwire::{Comm, Engine, Rank, Tag};

fn receive(engine: &mut Engine) {
    let mut numbers = [0f64; 4];
    let _ = engine.irecv(&mut numbers, Rank(0), Tag(1), Comm::WORLD);
}

fn main() {}
