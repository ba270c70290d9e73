#[derive(tickwire::Datatype)]
struct Named {
    number: u32,
    name: String,
}

fn main() {}
