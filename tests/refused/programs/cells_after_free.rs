use tickwire::{Engine, Window, WindowError};

fn write(engine: &mut Engine, window: Window<u32>) -> Result<(), WindowError> {
    let cells = engine.win_cells(engine.rank(), window)?;
    engine.win_free(window)?;
    cells.set(0, 1);
    Ok(())
}

fn main() {}
