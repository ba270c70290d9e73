//! Pictures: rectangles, arrows and words on a canvas, written as a PNG.

use std::fs::File;
use std::io::BufWriter;
use std::path::Path;

use ab_glyph::{Font, FontRef, ScaleFont, point};
use png::{BitDepth, ColorType, Encoder};

use crate::fault::Fault;

/// Red, green and blue.
pub(crate) type Colour = [u8; 3];

/// A place: pixels to the right, and pixels down.
pub(crate) type Point = (f32, f32);

/// Most pixels of a picture: 192 MiB in memory.
const PIXELS_MAX: u64 = 1 << 26;
/// The head of an arrow: half of its width as a fraction of its length, and its length in pixels.
const HEAD_SLOPE: f32 = 0.42;
const HEAD: f32 = 8.0;

/// A canvas. Places are in pixels from the upper left corner; what lies outside is not drawn.
pub(crate) struct Picture {
    width: u32,
    height: u32,
    pixels: Vec<Colour>,
    font: FontRef<'static>,
}

impl Picture {
    /// A canvas of one colour.
    ///
    /// # Errors
    /// The picture would be too large.
    pub(crate) fn new(width: u32, height: u32, ground: Colour) -> Result<Self, Fault> {
        let pixels = u64::from(width) * u64::from(height);
        if pixels > PIXELS_MAX {
            return Err(Fault::wrong_use(format!("a picture of {width} x {height} is too large: choose fewer ranks")));
        }
        let font = FontRef::try_from_slice(epaint_default_fonts::HACK_REGULAR)?;
        Ok(Picture { width, height, pixels: vec![ground; pixels as usize], font })
    }

    /// Blends a colour over a pixel. `part` is the share of this colour, up to 1.
    fn blend(&mut self, x: i64, y: i64, colour: Colour, part: f32) {
        if x < 0 || y < 0 || x >= i64::from(self.width) || y >= i64::from(self.height) || part <= 0.0 {
            return;
        }
        let pixel = &mut self.pixels[y as usize * self.width as usize + x as usize];
        for (channel, over) in pixel.iter_mut().zip(colour) {
            *channel = (f32::from(*channel) + (f32::from(over) - f32::from(*channel)) * part.min(1.0)).round() as u8;
        }
    }

    /// Fills the rectangle between two places.
    pub(crate) fn fill(&mut self, (left, top): Point, (right, bottom): Point, colour: Colour) {
        let (left, right) = (left.max(0.0), right.min(self.width as f32));
        let (top, bottom) = (top.max(0.0), bottom.min(self.height as f32));
        let covered = |at: i64, from: f32, to: f32| (to.min(at as f32 + 1.0) - from.max(at as f32)).clamp(0.0, 1.0);
        for y in top.floor() as i64..bottom.ceil() as i64 {
            for x in left.floor() as i64..right.ceil() as i64 {
                self.blend(x, y, colour, covered(x, left, right) * covered(y, top, bottom));
            }
        }
    }

    /// Draws a line of a pixel's width.
    pub(crate) fn line(&mut self, from: Point, to: Point, colour: Colour) {
        let (dx, dy) = (to.0 - from.0, to.1 - from.1);
        let steep = dy.abs() > dx.abs();
        let (along, across) = if steep { (dy, dx) } else { (dx, dy) };
        let bound = if steep { self.height } else { self.width } as f32;
        let (start, base) = if steep { (from.1, from.0) } else { (from.0, from.1) };
        let slope = if along == 0.0 { 0.0 } else { across / along };
        let (first, last) = (start.min(start + along).max(0.0), start.max(start + along).min(bound));
        for at in first.floor() as i64..=last.floor() as i64 {
            let centre = base + (at as f32 + 0.5 - start) * slope;
            for near in centre.floor() as i64 - 1..=centre.floor() as i64 + 1 {
                let part = 1.0 - (near as f32 + 0.5 - centre).abs();
                let (x, y) = if steep { (near, at) } else { (at, near) };
                self.blend(x, y, colour, part);
            }
        }
    }

    /// Draws a line with a head at its end.
    pub(crate) fn arrow(&mut self, from: Point, to: Point, colour: Colour) {
        self.line(from, to, colour);
        let (dx, dy) = (to.0 - from.0, to.1 - from.1);
        let length = dx.hypot(dy);
        if length < HEAD {
            return;
        }
        let (ux, uy) = (dx / length, dy / length);
        for y in (to.1 - HEAD) as i64..=(to.1 + HEAD) as i64 {
            for x in (to.0 - HEAD) as i64..=(to.0 + HEAD) as i64 {
                let (rx, ry) = (to.0 - x as f32 - 0.5, to.1 - y as f32 - 0.5);
                let (back, side) = (rx * ux + ry * uy, (rx * uy - ry * ux).abs());
                let inside = (back * HEAD_SLOPE - side).min(HEAD - back) + 0.5;
                self.blend(x, y, colour, inside.clamp(0.0, 1.0));
            }
        }
    }

    /// Writes words from `left` on, at the height `middle`. Returns where they end.
    pub(crate) fn words(&mut self, words: &str, (left, middle): Point, size: f32, colour: Colour) -> f32 {
        let font = self.font.clone();
        let scaled = font.as_scaled(size);
        let baseline = middle + (scaled.ascent() + scaled.descent()) / 2.0;
        let mut x = left;
        for letter in words.chars() {
            let id = scaled.glyph_id(letter);
            let advance = scaled.h_advance(id);
            if let Some(outline) = font.outline_glyph(id.with_scale_and_position(size, point(x, baseline))) {
                let bounds = outline.px_bounds();
                let (left, top) = (bounds.min.x as i64, bounds.min.y as i64);
                outline.draw(|dx, dy, part| self.blend(left + i64::from(dx), top + i64::from(dy), colour, part));
            }
            x += advance;
        }
        x
    }

    /// Width and height of a letter. All letters have the same width.
    pub(crate) fn letter(&self, size: f32) -> Point {
        let scaled = self.font.as_scaled(size);
        (scaled.h_advance(scaled.glyph_id('m')), scaled.height())
    }

    /// Whether the font has all these characters.
    #[cfg(test)]
    pub(crate) fn knows(&self, words: &str) -> bool {
        words.chars().all(|letter| self.font.glyph_id(letter).0 != 0)
    }

    /// The colour at a place.
    #[cfg(test)]
    pub(crate) fn at(&self, x: u32, y: u32) -> Colour {
        self.pixels[(y * self.width + x) as usize]
    }

    /// Width and height.
    #[cfg(test)]
    pub(crate) fn size(&self) -> (u32, u32) {
        (self.width, self.height)
    }

    /// Writes the picture.
    ///
    /// # Errors
    /// The file cannot be written.
    pub(crate) fn write(&self, path: &Path) -> Result<(), Fault> {
        let failed = |error: &dyn std::fmt::Display| Fault::failure(format!("{}: {error}", path.display()));
        let file = File::create(path).map_err(|error| failed(&error))?;
        let mut encoder = Encoder::new(BufWriter::new(file), self.width, self.height);
        encoder.set_color(ColorType::Rgb);
        encoder.set_depth(BitDepth::Eight);
        encoder.set_compression(png::Compression::High);
        let mut writer = encoder.write_header().map_err(|error| failed(&error))?;
        writer.write_image_data(self.pixels.as_flattened()).map_err(|error| failed(&error))?;
        writer.finish().map_err(|error| failed(&error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WHITE: Colour = [255; 3];
    const RED: Colour = [255, 0, 0];

    fn canvas() -> Picture {
        Picture::new(60, 40, WHITE).unwrap()
    }

    #[test]
    fn what_is_drawn_is_where_it_should_be() {
        let mut picture = canvas();
        picture.fill((10.0, 10.0), (20.5, 12.0), RED);
        let half = [255, 128, 128];
        assert_eq!([9, 10, 19, 20, 21].map(|x| picture.at(x, 11)), [WHITE, RED, RED, half, WHITE]);
        assert_eq!([9, 12].map(|y| picture.at(15, y)), [WHITE; 2]);

        let mut picture = canvas();
        picture.arrow((5.5, 30.5), (50.5, 5.5), RED);
        assert!(picture.at(5, 30) == RED && picture.at(0, 30) == WHITE && picture.at(55, 3) == WHITE);
        let (middle, head) = (picture.at(28, 17), |y| picture.at(45, y));
        assert!(middle[1] < 160, "{middle:?}");
        assert!((7..10).all(|y| head(y)[1] < 100) && head(14) == WHITE && head(2) == WHITE, "a head is wide");

        // Whatever lies outside of the canvas is left out, and takes no time.
        picture.line((-1e9, -1e9), (1e9, 1e9), RED);
        picture.fill((-1e9, -5.0), (1e9, -1.0), RED);
        picture.words("far away", (-1e6, 1e6), 14.0, RED);
    }

    #[test]
    fn words_are_letters_of_one_width() {
        let picture = &mut canvas();
        let (width, height) = picture.letter(14.0);
        let end = picture.words("il", (4.0, 20.0), 14.0, RED);
        assert!((end - 4.0 - 2.0 * width).abs() < 0.01 && height > width, "{end} {width} {height}");
        let picture = &*picture;
        let inked = |from: f32, to: f32| {
            let (from, to) = (from as u32, to as u32);
            (from..to).flat_map(|x| (0..40).map(move |y| (x, y))).filter(|&(x, y)| picture.at(x, y) != WHITE).count()
        };
        assert!(inked(4.0, 4.0 + width) > 8 && inked(4.0 + width, end) > 8 && inked(end + 1.0, 60.0) == 0);
        assert!(picture.knows("aZ09 µ→▲▼│─┌┐└┘↑↓:/%"));
        assert!(!picture.knows("\u{10FFFF}"));
    }

    #[test]
    fn what_is_too_large_or_cannot_be_written_is_an_error() {
        assert!(Picture::new(100_000, 100_000, WHITE).is_err());
        assert!(canvas().write(Path::new("/no/such/place.png")).is_err());
    }
}
