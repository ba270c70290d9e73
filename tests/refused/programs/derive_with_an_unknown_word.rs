#[derive(Clone, Copy, tickwire::Datatype)]
struct Particle {
    place: [f64; 3],
    #[datatype(leave)]
    mark: u8,
}

fn main() {}
