//! A picture of the flock: each boid an arrowhead with a tail, in the colour of its rank.

use crate::flock::{Boid, HEIGHT, WIDTH};
use crate::strip::Strip;
use png::{BitDepth, ColorType, Encoder, EncodingError};
use std::fs::File;
use std::io::BufWriter;

/// Pixels of a unit of the plane.
const SCALE: f32 = 1.5;
/// Samples of a pixel in each direction.
const SAMPLES: usize = 4;
const BACKGROUND: [f32; 3] = [13.0, 17.0, 28.0];
const EDGE: [f32; 3] = [34.0, 42.0, 60.0];

/// Half the width of an arrowhead, its length, and the length of its tail, units of the plane.
const HALF: f32 = 1.9;
const HEAD: f32 = 6.5;
const TAIL: f32 = 9.0;

struct Canvas {
    width: usize,
    height: usize,
    pixels: Vec<[f32; 3]>,
}

/// Writes a PNG.
///
/// # Errors
/// The file cannot be written.
pub(crate) fn write(file: File, flock: &[Boid], ranks: u32) -> Result<(), EncodingError> {
    let (width, height) = ((WIDTH * SCALE) as usize, (HEIGHT * SCALE) as usize);
    let mut canvas = Canvas { width, height, pixels: vec![BACKGROUND; width * height] };
    for rank in 1..ranks {
        let column = (WIDTH * SCALE * rank as f32 / ranks as f32) as usize;
        (0..height).for_each(|row| canvas.pixels[row * width + column] = EDGE);
    }
    for boid in flock {
        let rank = (0..ranks).find(|&rank| Strip { rank, ranks }.has(boid)).unwrap_or(0);
        canvas.draw(boid, colour(rank as f32 / ranks as f32));
    }
    file.set_len(0)?;
    let mut encoder = Encoder::new(BufWriter::new(file), width as u32, height as u32);
    encoder.set_color(ColorType::Rgb);
    encoder.set_depth(BitDepth::Eight);
    let mut writer = encoder.write_header()?;
    let pixels: Vec<u8> = canvas.pixels.iter().flatten().map(|part| part.round() as u8).collect();
    writer.write_image_data(&pixels)?;
    writer.finish()
}

/// A bright colour for a part of the circle of hues.
fn colour(part: f32) -> [f32; 3] {
    [0.0, 1.0 / 3.0, 2.0 / 3.0].map(|shift: f32| {
        let wave = (std::f32::consts::TAU * (part + 0.58 - shift)).cos();
        178.0 + 74.0 * wave
    })
}

impl Canvas {
    /// Draws a boid, also where it reaches over the plane's edges.
    fn draw(&mut self, boid: &Boid, colour: [f32; 3]) {
        let length = boid.way[0].hypot(boid.way[1]).max(f32::EPSILON);
        let [u, v] = boid.way.map(|part| part / length);
        let reach = ((HEAD + TAIL) * SCALE) as isize + 1;
        let [left, top] = boid.place.map(|place| (place * SCALE) as isize);
        for row in top - reach..=top + reach {
            for column in left - reach..=left + reach {
                let cover = coverage([column, row], boid.place, [u, v]);
                if cover > 0.0 {
                    let x = column.rem_euclid(self.width as isize) as usize;
                    let y = row.rem_euclid(self.height as isize) as usize;
                    let pixel = &mut self.pixels[y * self.width + x];
                    for (part, of) in pixel.iter_mut().zip(colour) {
                        *part += (of - *part) * cover;
                    }
                }
            }
        }
    }
}

/// How much of a pixel a boid covers, from 0 to 1.
fn coverage([column, row]: [isize; 2], place: [f32; 2], [u, v]: [f32; 2]) -> f32 {
    let mut sum = 0.0;
    for sample in 0..SAMPLES * SAMPLES {
        let part = |index: usize| (index as f32 + 0.5) / SAMPLES as f32;
        let x = (column as f32 + part(sample % SAMPLES)) / SCALE - place[0];
        let y = (row as f32 + part(sample / SAMPLES)) / SCALE - place[1];
        // Distances along the boid's way, and across.
        let (along, across) = (x * u + y * v, (x * v - y * u).abs());
        let head = along + HEAD / 2.0;
        if (0.0..=HEAD).contains(&head) && across <= HALF * (1.0 - head / HEAD) {
            sum += 1.0;
        } else if (-TAIL..0.0).contains(&head) && across <= HALF * 0.4 {
            sum += 0.45 * (1.0 + head / TAIL);
        }
    }
    sum / (SAMPLES * SAMPLES) as f32
}
