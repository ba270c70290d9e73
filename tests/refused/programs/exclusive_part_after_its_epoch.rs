use tickwire::{Engine, Window, WindowError};

fn write(engine: &mut Engine, window: Window<f64>) -> Result<(), WindowError> {
    let first = engine.win_exclusive(window)?.first_mut().unwrap();
    *first = 1.0;
    Ok(())
}

fn main() {}
