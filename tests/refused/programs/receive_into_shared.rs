use tickwire::{Comm, Engine, Rank, Tag};

fn receive(engine: &mut Engine) {
    let _ = engine.recv(&[0u8; 4], Rank(0), Tag(1), Comm::WORLD);
}

fn main() {}
