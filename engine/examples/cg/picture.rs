//! The charges, and the potential as a PNG.

use std::fs::File;
use std::io::BufWriter;

use png::{BitDepth, ColorType, Encoder, EncodingError};

/// Number of lines of equal potential between 0 and the greatest.
const LINES: f64 = 12.0;

/// The charges: place, as fractions of the plate, and amount.
const CHARGES: [(f64, f64, f64); 6] = [
    (0.25, 0.35, 1.0),
    (0.70, 0.30, -1.0),
    (0.55, 0.72, 0.8),
    (0.82, 0.78, -0.5),
    (0.15, 0.80, -0.6),
    (0.45, 0.15, 0.3),
];

/// The charge of each point, row by row: discs, so that their potentials are smooth.
pub(crate) fn charges(width: usize, height: usize) -> Vec<f64> {
    let radius = (width.min(height) as f64 / 24.0).max(0.75);
    let charge = |x: f64, y: f64| {
        let amount = |&(cx, cy, amount): &(f64, f64, f64)| {
            let distance = (x - cx * width as f64).hypot(y - cy * height as f64);
            if distance < radius { amount } else { 0.0 }
        };
        CHARGES.iter().map(amount).sum::<f64>()
    };
    let point = |at: usize| charge((at % width) as f64 + 0.5, (at / width) as f64 + 0.5);
    (0..width * height).map(point).collect()
}

/// Writes the potential: red where it is positive, blue where it is negative, with lines where it is equal.
///
/// # Errors
/// The file cannot be written.
pub(crate) fn write(file: File, width: u32, height: u32, potential: &[f64]) -> Result<(), EncodingError> {
    file.set_len(0)?;
    let mut encoder = Encoder::new(BufWriter::new(file), width, height);
    encoder.set_color(ColorType::Rgb);
    encoder.set_depth(BitDepth::Eight);
    let mut writer = encoder.write_header()?;
    let greatest = potential.iter().fold(f64::MIN_POSITIVE, |most, value| most.max(value.abs()));
    let scaled: Vec<f64> = potential.iter().map(|value| value / greatest).collect();
    let stride = width as usize;
    let level = |at: usize| (scaled[at] * LINES).floor();
    let pixel = |at: usize| {
        let right = if (at + 1).is_multiple_of(stride) { at } else { at + 1 };
        let below = if at + stride < scaled.len() { at + stride } else { at };
        let on_line = level(at) != level(right) || level(at) != level(below);
        colour(scaled[at], on_line)
    };
    let pixels: Vec<u8> = (0..scaled.len()).flat_map(pixel).collect();
    writer.write_image_data(&pixels)?;
    writer.finish()
}

/// The colour of a value from -1 to 1: white at 0.
fn colour(value: f64, on_line: bool) -> [u8; 3] {
    let depth = value.abs().min(1.0).sqrt();
    let full = if value > 0.0 { [178.0, 24.0, 43.0] } else { [33.0, 102.0, 172.0] };
    let dark = if on_line { 0.72 } else { 1.0 };
    full.map(|channel| ((250.0 + (channel - 250.0) * depth) * dark).round() as u8)
}
