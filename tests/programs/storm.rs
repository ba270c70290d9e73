//! A rank of a storm of collective operations: `tests-storm SEED BATCHES`, under `tickwire run`.

use std::error::Error;
use std::time::Duration;
use tickwire::{Bootstrap, Engine};
use tickwire_tests::storm::storm;

fn main() -> Result<(), Box<dyn Error>> {
    let mut words = std::env::args().skip(1).map(|word| word.parse::<u64>());
    let (Some(seed), Some(batches)) = (words.next().transpose()?, words.next().transpose()?) else {
        return Err("tests-storm SEED BATCHES".into());
    };
    let mut engine = Engine::builder().build(Bootstrap::from_env()?)?;
    storm(&mut engine, seed, batches as u32);
    engine.finalize(Duration::from_secs(20))?;
    Ok(())
}
