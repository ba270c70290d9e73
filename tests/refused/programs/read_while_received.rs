use tickwire::{Comm, Engine, Rank, Tag};

fn receive(engine: &mut Engine) {
    let mut numbers = [0f64; 4];
    engine.scope(|scope| {
        let receive = scope.irecv(&mut numbers, Rank(0), Tag(1), Comm::WORLD).unwrap();
        let first = numbers[0];
        scope.wait(&receive).unwrap();
        first
    });
}

fn main() {}
