//! `tickwire perf` (first cut)
mod loops;
use loops::Bench;
use tickwire::{Bootstrap, Engine};
pub(crate) fn main(args: &[String]) -> Result<(), Box<dyn std::error::Error>> {
    let suite = args[0].as_str();
    if suite != "self" && std::env::var_os("TICKWIRE_RANK").is_none() {
        let mut a = vec!["perf".to_string()];
        a.extend_from_slice(args);
        let outcome = tickwire::launch::Job::new(2).program(std::env::current_exe()?).args(a).pin(true).run()?;
        std::process::exit(outcome.code());
    }
    let mut engine = Engine::builder().build(if suite == "self" { Bootstrap::solo() } else { Bootstrap::from_env()? })?;
    let mut say = |m: &str, p: usize, v: f64, u: &str| println!("{m} {p} {v:.4} {u}");
    let mut bench = Bench::new(&mut engine, &mut say);
    match suite {
        "p2p" => bench.p2p()?,
        "depth" => bench.depth()?,
        "self" => bench.own(args[1].parse()?)?,
        _ => return Err("suite?".into()),
    }
    engine.finalize(std::time::Duration::from_secs(5))?;
    Ok(())
}
