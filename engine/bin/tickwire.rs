//! stub
mod perf;
mod run;
fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    if args[0] == "perf" {
        if let Err(e) = perf::main(&args[1..]) {
            eprintln!("tickwire: {e}");
            std::process::exit(1);
        }
    }
}
