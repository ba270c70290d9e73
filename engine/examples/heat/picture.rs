//! Pictures: any PNG as temperatures, temperatures as a PNG, and a drawing to begin with.

use std::fs::File;
use std::io::{BufReader, BufWriter};
use std::path::Path;

use png::{BitDepth, ColorType, Decoder, Encoder, EncodingError, Transformations};

use super::field::Field;

/// Most cells of a plate.
const CELLS_MAX: u64 = 1 << 28;

/// Colours from cold to hot.
const COLOURS: [[f64; 3]; 9] = [
    [0.0, 0.0, 4.0],
    [31.0, 12.0, 72.0],
    [85.0, 15.0, 109.0],
    [136.0, 34.0, 106.0],
    [186.0, 54.0, 85.0],
    [227.0, 89.0, 51.0],
    [249.0, 140.0, 10.0],
    [249.0, 201.0, 50.0],
    [252.0, 255.0, 164.0],
];

/// Reads a PNG of any kind. Brightness is temperature, and transparent pixels are cold.
///
/// # Errors
/// What is wrong with the file, in one line.
pub(crate) fn read(path: &Path) -> Result<Field, String> {
    let failed = |reason: &dyn std::fmt::Display| format!("{}: {reason}", path.display());
    let file = File::open(path).map_err(|e| failed(&e))?;
    let bad = |e: png::DecodingError| failed(&format_args!("not a PNG that can be read: {e}"));
    let mut decoder = Decoder::new(BufReader::new(file));
    // Palettes become colours, 1 to 4 bits become 8, transparent colours become alpha.
    decoder.set_transformations(Transformations::EXPAND);
    let mut reader = decoder.read_info().map_err(bad)?;
    let (width, height) = reader.info().size();
    if u64::from(width) * u64::from(height) > CELLS_MAX {
        return Err(failed(&format_args!("{width} x {height} cells are more than {CELLS_MAX}: use a smaller picture")));
    }
    let bytes = reader.output_buffer_size().ok_or_else(|| failed(&"too large"))?;
    let mut buffer = vec![0; bytes];
    let info = reader.next_frame(&mut buffer).map_err(bad)?;
    let channels = info.color_type.samples();
    let samples: Vec<f64> = match info.bit_depth {
        BitDepth::Sixteen => {
            let (samples, _) = buffer[..info.buffer_size()].as_chunks::<2>();
            samples.iter().map(|sample| f64::from(u16::from_be_bytes(*sample)) / 65535.0).collect()
        }
        _ => buffer[..info.buffer_size()].iter().map(|&sample| f64::from(sample) / 255.0).collect(),
    };
    let temperature = |pixel: &[f64]| match (info.color_type, pixel) {
        (ColorType::Rgb, [r, g, b]) => luminance(*r, *g, *b),
        (ColorType::Rgba, [r, g, b, alpha]) => luminance(*r, *g, *b) * alpha,
        (ColorType::GrayscaleAlpha, [grey, alpha]) => grey * alpha,
        _ => pixel[0],
    };
    let cells = samples.chunks_exact(channels).map(temperature).collect();
    Ok(Field { width: width as usize, height: height as usize, cells })
}

/// The brightness of a colour by ITU-R BT.709.
fn luminance(r: f64, g: f64, b: f64) -> f64 {
    0.2126 * r + 0.7152 * g + 0.0722 * b
}

/// Writes temperatures in colours, `low` the coldest and `high` the hottest.
///
/// # Errors
/// The file cannot be written.
pub(crate) fn write(file: File, field: &Field, (low, high): (f64, f64)) -> Result<(), EncodingError> {
    file.set_len(0)?;
    let mut encoder = Encoder::new(BufWriter::new(file), field.width as u32, field.height as u32);
    encoder.set_color(ColorType::Rgb);
    encoder.set_depth(BitDepth::Eight);
    let mut writer = encoder.write_header()?;
    let scale = if high > low { 1.0 / (high - low) } else { 0.0 };
    let pixels: Vec<u8> = field.cells.iter().flat_map(|cell| colour((cell - low) * scale)).collect();
    writer.write_image_data(&pixels)?;
    writer.finish()
}

/// A colour for a temperature from 0 to 1.
fn colour(temperature: f64) -> [u8; 3] {
    let place = temperature.clamp(0.0, 1.0) * (COLOURS.len() - 1) as f64;
    let index = (place as usize).min(COLOURS.len() - 2);
    let part = place - index as f64;
    std::array::from_fn(|channel| {
        let (from, to) = (COLOURS[index][channel], COLOURS[index + 1][channel]);
        (from + (to - from) * part).round() as u8
    })
}

/// Hot rings, a wave and warm stripes on a cold plate.
pub(crate) fn draw(width: usize, height: usize) -> Field {
    let mut field = Field::new(width, height);
    let size = width.min(height) as f64;
    for (place, cell) in field.cells.iter_mut().enumerate() {
        let (x, y) = ((place % width) as f64 + 0.5, (place / width) as f64 + 0.5);
        let distance = |cx: f64, cy: f64| (x - cx * width as f64).hypot(y - cy * height as f64) / size;
        let (u, v) = (x / width as f64, y / height as f64);
        let rings = [(0.30, 0.42, 0.26), (0.30, 0.42, 0.14), (0.72, 0.36, 0.18), (0.62, 0.74, 0.12)];
        let in_ring = rings.iter().any(|&(cx, cy, radius)| (distance(cx, cy) - radius).abs() < 0.022);
        let in_disc = distance(0.30, 0.42) < 0.05 || distance(0.72, 0.36) < 0.09;
        let on_wave = (v - 0.86 - 0.05 * (u * 19.0).sin()).abs() < 0.012;
        let on_stripe = u > 0.84 && v > 0.55 && (u * 60.0).fract() < 0.4;
        *cell = match (in_disc, in_ring, on_wave, on_stripe) {
            (true, ..) => 1.0,
            (_, true, ..) => 0.85,
            (_, _, true, _) => 0.7,
            (.., true) => 0.5,
            _ => 0.06 * (1.0 - v),
        };
    }
    field
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every colour type at every depth that PNG has. All pixels are white.
    #[test]
    fn every_kind_of_png_is_read() {
        use {BitDepth::*, ColorType::*};
        let kinds = [
            (Grayscale, &[One, Two, Four, Eight, Sixteen][..]),
            (Rgb, &[Eight, Sixteen]),
            (Indexed, &[One, Two, Four, Eight]),
            (GrayscaleAlpha, &[Eight, Sixteen]),
            (Rgba, &[Eight, Sixteen]),
        ];
        for (kind, depths) in kinds {
            for &depth in depths {
                let path = std::env::temp_dir().join(format!("heat-{}-{kind:?}-{depth:?}.png", std::process::id()));
                encode(&path, kind, depth);
                let field = read(&path).expect("a PNG");
                std::fs::remove_file(&path).expect("it was there");
                assert_eq!((field.width, field.height), (3, 2), "{kind:?} {depth:?}");
                // Palette entry 1 is white; with all bits set, every other kind is white and opaque.
                assert!(
                    field.cells.iter().all(|cell| (cell - 1.0).abs() < 1e-9),
                    "{kind:?} {depth:?} {:?}",
                    field.cells
                );
            }
        }
    }

    fn encode(path: &Path, kind: ColorType, depth: BitDepth) {
        let mut encoder = Encoder::new(File::create(path).expect("a file"), 3, 2);
        encoder.set_color(kind);
        encoder.set_depth(depth);
        let bits = kind.samples() * depth as usize;
        let mut row = vec![0xFFu8; (3 * bits).div_ceil(8)];
        if kind == ColorType::Indexed {
            encoder.set_palette(vec![0, 0, 0, 255, 255, 255]);
            // Three times entry 1.
            let pixels = (0..3).fold(0u32, |all, _| all << bits | 1) << (32 - 3 * bits);
            row = pixels.to_be_bytes()[..row.len()].to_vec();
        }
        let mut writer = encoder.write_header().expect("a header");
        writer.write_image_data(&[row.clone(), row].concat()).expect("pixels");
        writer.finish().expect("an end");
    }

    #[test]
    fn what_is_no_png_is_one_clear_line() {
        let path = std::env::temp_dir().join(format!("heat-{}-bad.png", std::process::id()));
        std::fs::write(&path, b"not a picture").expect("a file");
        let words = read(&path).err().expect("an error");
        std::fs::remove_file(&path).expect("it was there");
        assert!(words.contains("not a PNG") && words.lines().count() == 1, "{words}");
        assert!(read(Path::new("/no/such.png")).is_err());
    }

    #[test]
    fn colours_go_from_black_to_bright() {
        assert_eq!((colour(-1.0), colour(2.0)), ([0, 0, 4], [252, 255, 164]));
    }
}
