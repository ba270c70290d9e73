//! A picture of the histogram: a bar for each bin in the colour of the rank that has the bin, and the expected curve. A second diagram
//! below shows how far each bar is from the curve.

use std::fs::File;

use png::EncodingError;

use super::canvas::{Canvas, Colour, Side};
use super::keys::{KEYS, expected};
use super::table::bins_of;

const WIDTH: usize = 1280;
const HEIGHT: usize = 800;
/// Left and right edge of both diagrams; top and bottom of the upper one; top and bottom of the lower one.
const LEFT: f32 = 96.0;
const RIGHT: f32 = WIDTH as f32 - 40.0;
const TOP: f32 = 124.0;
const BOTTOM: f32 = 560.0;
const BELOW_TOP: f32 = 618.0;
const BELOW_BOTTOM: f32 = 728.0;
/// Largest distance from the curve that is drawn, standard deviations.
const DEVIATION_MAX: f32 = 4.0;
/// Most ranks that have an entry each in the legend.
const NAMED_MAX: u32 = 8;

const GROUND: Colour = [13.0, 17.0, 28.0];
const GRID: Colour = [38.0, 46.0, 66.0];
const WORDS: Colour = [196.0, 204.0, 220.0];
const FAINT: Colour = [128.0, 138.0, 160.0];
const CURVE: Colour = [255.0, 240.0, 200.0];

/// Writes a PNG.
///
/// # Errors
/// The file cannot be written.
pub(crate) fn write(file: File, keys: u64, ranks: u32, counts: &[u64]) -> Result<(), EncodingError> {
    let mut canvas = Canvas::new(WIDTH, HEIGHT, GROUND);
    let bins = counts.len() as f64;
    // The number of keys that is expected in a bin with this middle.
    let near = |key: f64| {
        let half = KEYS as f64 / bins / 2.0;
        keys as f64 * expected(key - half, key + half)
    };
    let middle = |bin: usize| (bin as f64 + 0.5) * KEYS as f64 / bins;
    let key = |x: f32| f64::from((x - LEFT) / (RIGHT - LEFT)) * KEYS as f64;
    let curve = (LEFT as usize..RIGHT as usize).map(|x| near(key(x as f32)));
    let most = curve.chain(counts.iter().map(|&count| count as f64)).fold(1.0, f64::max);
    let height = |count: f64| BOTTOM - (count / (1.08 * most)) as f32 * (BOTTOM - TOP);
    axes(&mut canvas, most, &height);
    for rank in 0..ranks {
        for bin in bins_of(rank, counts.len(), ranks) {
            let (count, expected) = (counts[bin] as f64, near(middle(bin)));
            let deviation = ((count - expected) / expected.max(1.0).sqrt()) as f32;
            bar(&mut canvas, (bin, counts.len()), (height(count), BOTTOM), colour(rank, ranks));
            let end = deviation_at(deviation);
            let zero = deviation_at(0.0);
            bar(&mut canvas, (bin, counts.len()), (end.min(zero), end.max(zero)), colour(rank, ranks));
        }
    }
    canvas.curve(LEFT, RIGHT, 2.2, CURVE, |x| height(near(key(x))));
    let ranks_said = if ranks == 1 { "one rank".to_owned() } else { format!("{} ranks", grouped(ranks.into())) };
    let title = format!("{} keys, counted by {ranks_said} with one-sided updates", grouped(keys));
    canvas.words(&title, (LEFT, 34.0), Side::Right, 27.0, WORDS);
    legend(&mut canvas, ranks);
    canvas.write(file)
}

/// Grid lines, numbers, and what the axes are.
fn axes(canvas: &mut Canvas, most: f64, height: &impl Fn(f64) -> f32) {
    canvas.words("keys in a bin", (LEFT, TOP - 18.0), Side::Right, 16.0, FAINT);
    let step = step(most);
    for count in (0..).map(|tick| f64::from(tick) * step).take_while(|&count| count <= 1.08 * most) {
        let y = height(count).round();
        canvas.fill((LEFT, y), (RIGHT, y + 1.0), GRID);
        canvas.words(&grouped(count as u64), (LEFT - 10.0, y), Side::Left, 16.0, WORDS);
    }
    canvas.words("distance from the curve, standard deviations", (LEFT, BELOW_TOP - 18.0), Side::Right, 16.0, FAINT);
    for (deviation, words) in [(3.0, "+3"), (0.0, "0"), (-3.0, "−3")] {
        let y = deviation_at(deviation).round();
        canvas.fill((LEFT, y), (RIGHT, y + 1.0), GRID);
        canvas.words(words, (LEFT - 10.0, y), Side::Left, 16.0, WORDS);
    }
    for key in (0..=KEYS).step_by(8192) {
        let x = LEFT + (RIGHT - LEFT) * key as f32 / KEYS as f32;
        canvas.fill((x, BOTTOM), (x + 1.0, BOTTOM + 6.0), FAINT);
        canvas.words(&grouped(key), (x, BELOW_BOTTOM + 20.0), Side::Middle, 16.0, WORDS);
    }
    canvas.words("key", ((LEFT + RIGHT) / 2.0, BELOW_BOTTOM + 48.0), Side::Middle, 16.0, FAINT);
}

/// A bar of a bin, between two heights.
fn bar(canvas: &mut Canvas, (bin, bins): (usize, usize), (top, bottom): (f32, f32), colour: Colour) {
    let width = (RIGHT - LEFT) / bins as f32;
    let gap = if width >= 4.0 { 1.0 } else { 0.0 };
    let left = LEFT + bin as f32 * width;
    canvas.fill((left, top), (left + width - gap, bottom), colour);
}

/// The height of a distance from the curve in the lower diagram.
fn deviation_at(deviation: f32) -> f32 {
    let part = deviation.clamp(-DEVIATION_MAX, DEVIATION_MAX) / DEVIATION_MAX;
    (BELOW_TOP + BELOW_BOTTOM) / 2.0 - part * (BELOW_BOTTOM - BELOW_TOP) / 2.0
}

/// Draws what the colours mean, from left to right.
fn legend(canvas: &mut Canvas, ranks: u32) {
    const Y: f32 = 72.0;
    let mut x = LEFT;
    canvas.fill((x, Y - 1.0), (x + 26.0, Y + 1.2), CURVE);
    canvas.words("expected", (x + 34.0, Y), Side::Right, 17.0, WORDS);
    x += 128.0;
    let named = if ranks <= NAMED_MAX { ranks } else { 1 };
    for rank in 0..named {
        let words = match ranks {
            1..=NAMED_MAX => format!("bins of rank {rank}"),
            _ => "bins, in a colour for each rank".to_owned(),
        };
        canvas.fill((x, Y - 7.0), (x + 14.0, Y + 7.0), colour(rank, ranks));
        canvas.words(&words, (x + 22.0, Y), Side::Right, 17.0, WORDS);
        x += 140.0;
    }
}

/// The colour of a rank: from blue to red.
fn colour(rank: u32, ranks: u32) -> Colour {
    const COLOURS: [Colour; 5] =
        [[66.0, 113.0, 206.0], [62.0, 166.0, 190.0], [94.0, 186.0, 125.0], [226.0, 178.0, 84.0], [214.0, 96.0, 92.0]];
    let place = if ranks == 1 { 0.0 } else { rank as f32 / (ranks - 1) as f32 * (COLOURS.len() - 1) as f32 };
    let index = (place as usize).min(COLOURS.len() - 2);
    let part = place - index as f32;
    std::array::from_fn(|channel| {
        let (from, to) = (COLOURS[index][channel], COLOURS[index + 1][channel]);
        from + (to - from) * part
    })
}

/// The distance between two numbers on the axis: 1, 2 or 5 with zeros, so that at most six steps reach `most`.
fn step(most: f64) -> f64 {
    let steps = (0..).flat_map(|zeros| [1.0, 2.0, 5.0].map(|digit| digit * 10f64.powi(zeros)));
    steps.into_iter().find(|step| most / step <= 6.0).unwrap_or(most)
}

/// A number with a comma before each three digits.
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut grouped = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_easy_to_read() {
        assert_eq!([0, 999, 1000, 1_234_567].map(grouped), ["0", "999", "1,000", "1,234,567"]);
        assert_eq!([1.0, 6.0, 7.0, 1300.0, 30_000.0].map(step), [1.0, 1.0, 2.0, 500.0, 5_000.0]);
    }

    #[test]
    fn ranks_have_colours_from_the_first_to_the_last() {
        assert_eq!(colour(0, 1), colour(0, 9));
        assert_eq!(colour(8, 9), [214.0, 96.0, 92.0]);
        assert_eq!(colour(4, 9), [94.0, 186.0, 125.0]);
    }
}
