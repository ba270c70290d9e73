//! A canvas with what a diagram needs: rectangles, curves and words.

use std::fs::File;
use std::io::BufWriter;

use ab_glyph::{Font, FontRef, ScaleFont, point};
use png::{BitDepth, ColorType, Encoder, EncodingError};

/// Red, green and blue.
pub(crate) type Colour = [f32; 3];

/// On which side of their place words are.
#[derive(Clone, Copy)]
pub(crate) enum Side {
    Left,
    Middle,
    Right,
}

/// A canvas. Places are in pixels from the upper left corner; what lies outside is not drawn.
pub(crate) struct Canvas {
    width: usize,
    height: usize,
    pixels: Vec<Colour>,
    font: FontRef<'static>,
}

impl Canvas {
    /// A canvas of one colour.
    pub(crate) fn new(width: usize, height: usize, ground: Colour) -> Self {
        let font = FontRef::try_from_slice(epaint_default_fonts::UBUNTU_LIGHT).expect("it is a font");
        Canvas { width, height, pixels: vec![ground; width * height], font }
    }

    /// Blends a colour over a pixel. `part` is the share of this colour, from 0 to 1.
    fn blend(&mut self, x: i32, y: i32, colour: Colour, part: f32) {
        let (column, row) = (x as usize, y as usize);
        if x < 0 || y < 0 || column >= self.width || row >= self.height {
            return;
        }
        for (channel, over) in self.pixels[row * self.width + column].iter_mut().zip(colour) {
            *channel += (over - *channel) * part.clamp(0.0, 1.0);
        }
    }

    /// Fills the rectangle between two places.
    pub(crate) fn fill(&mut self, (left, top): (f32, f32), (right, bottom): (f32, f32), colour: Colour) {
        let covered = |at: i32, from: f32, to: f32| (to.min(at as f32 + 1.0) - from.max(at as f32)).max(0.0);
        for y in top.floor() as i32..bottom.ceil() as i32 {
            for x in left.floor() as i32..right.ceil() as i32 {
                self.blend(x, y, colour, covered(x, left, right) * covered(y, top, bottom));
            }
        }
    }

    /// Draws a curve from `left` to `right`. `at` gives its height in each column.
    pub(crate) fn curve(&mut self, left: f32, right: f32, width: f32, colour: Colour, at: impl Fn(f32) -> f32) {
        for x in left.ceil() as i32..right.floor() as i32 {
            let middle = x as f32 + 0.5;
            let (here, slope) = (at(middle), at(middle + 0.5) - at(middle - 0.5));
            let stretch = slope.hypot(1.0);
            let reach = (width / 2.0 + 1.0) * stretch;
            for y in (here - reach).floor() as i32..=(here + reach).ceil() as i32 {
                let distance = (y as f32 + 0.5 - here).abs() / stretch;
                self.blend(x, y, colour, width / 2.0 + 0.5 - distance);
            }
        }
    }

    /// Writes words beside a place. Their middle is at the height of the place.
    pub(crate) fn words(&mut self, words: &str, (x, y): (f32, f32), side: Side, size: f32, colour: Colour) {
        let font = self.font.clone();
        let scaled = font.as_scaled(size);
        let width: f32 = words.chars().map(|letter| scaled.h_advance(scaled.glyph_id(letter))).sum();
        let mut left = match side {
            Side::Left => x - width,
            Side::Middle => x - width / 2.0,
            Side::Right => x,
        };
        let baseline = y + (scaled.ascent() + scaled.descent()) / 2.0;
        for letter in words.chars() {
            let id = scaled.glyph_id(letter);
            if let Some(outline) = font.outline_glyph(id.with_scale_and_position(size, point(left, baseline))) {
                let corner = outline.px_bounds().min;
                let (x, y) = (corner.x as i32, corner.y as i32);
                outline.draw(|dx, dy, part| self.blend(x + dx as i32, y + dy as i32, colour, part));
            }
            left += scaled.h_advance(id);
        }
    }

    /// Writes a PNG.
    ///
    /// # Errors
    /// The file cannot be written.
    pub(crate) fn write(&self, file: File) -> Result<(), EncodingError> {
        file.set_len(0)?;
        let mut encoder = Encoder::new(BufWriter::new(file), self.width as u32, self.height as u32);
        encoder.set_color(ColorType::Rgb);
        encoder.set_depth(BitDepth::Eight);
        let mut writer = encoder.write_header()?;
        let bytes: Vec<u8> = self.pixels.iter().flatten().map(|channel| channel.round() as u8).collect();
        writer.write_image_data(&bytes)?;
        writer.finish()
    }
}
