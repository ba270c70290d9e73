#[derive(Clone, Copy, tickwire::Datatype)]
enum Colour {
    Red,
    Green,
}

fn main() {}
