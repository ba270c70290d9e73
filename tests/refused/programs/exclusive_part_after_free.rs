use tickwire::{Engine, Window, WindowError};

fn write(engine: &mut Engine, window: Window<f64>) -> Result<(), WindowError> {
    let mut part = engine.win_exclusive(window)?;
    engine.win_free(window)?;
    part.fill(1.0);
    Ok(())
}

fn main() {}
