//! The screen of `tickwire top` as a picture.

use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::buffer::{Buffer, Cell};
use ratatui::style::{Color, Modifier};

use super::Sample;
use super::screen::Screen;
use crate::fault::Fault;
use crate::picture::{Colour, Picture, Point};

/// Height of letters, and width of the margin around the screen, pixels.
const SIZE: f32 = 15.0;
const MARGIN: f32 = 12.0;

const GROUND: Colour = [24, 26, 31];
const INK: Colour = [215, 218, 224];

/// Draws what the screen shows after two looks at a job: all columns and all rows.
///
/// # Errors
/// The picture would be too large.
pub(super) fn draw(before: Sample, now: Sample) -> Result<Picture, Fault> {
    let mut screen = Screen::new(before);
    screen.show(now);
    let (width, height) = screen.size();
    // Drawing to memory does not fail.
    let mut terminal = Terminal::new(TestBackend::new(width, height))?;
    terminal.draw(|frame| screen.draw(frame))?;
    of_buffer(terminal.backend().buffer())
}

fn of_buffer(buffer: &Buffer) -> Result<Picture, Fault> {
    // Whole pixels, so that lines from cell to cell have no seams.
    let (wide, high) = Picture::new(1, 1, GROUND)?.letter(SIZE);
    let (wide, high) = (wide.round(), high.ceil());
    let length = |cells: u16, of: f32| (f32::from(cells) * of + 2.0 * MARGIN) as u32;
    let mut picture = Picture::new(length(buffer.area.width, wide), length(buffer.area.height, high), GROUND)?;
    for y in 0..buffer.area.height {
        for x in 0..buffer.area.width {
            let place = (MARGIN + f32::from(x) * wide, MARGIN + f32::from(y) * high);
            draw_cell(&mut picture, &buffer[(x, y)], place, (wide, high));
        }
    }
    Ok(picture)
}

fn draw_cell(picture: &mut Picture, cell: &Cell, (left, top): Point, (wide, high): Point) {
    let bold = cell.modifier.contains(Modifier::BOLD);
    let (mut ink, mut ground) = (colour(cell.fg, if bold { [255; 3] } else { INK }), colour(cell.bg, GROUND));
    if cell.modifier.contains(Modifier::REVERSED) {
        std::mem::swap(&mut ink, &mut ground);
    }
    if ground != GROUND {
        picture.fill((left, top), (left + wide, top + high), ground);
    }
    let (x, y) = ((left + wide / 2.0).floor(), (top + high / 2.0).floor());
    // Whether a line leads from the middle of the cell to the left, to the right, up and down.
    let lines = match cell.symbol() {
        " " | "" => return,
        "─" => [true, true, false, false],
        "│" => [false, false, true, true],
        "┌" => [false, true, false, true],
        "┐" => [true, false, false, true],
        "└" => [false, true, true, false],
        "┘" => [true, false, true, false],
        words => {
            picture.words(words, (left, top + high / 2.0), SIZE, ink);
            return;
        }
    };
    let ends = [(left, y), (left + wide, y), (x, top), (x, top + high)];
    for (end, _) in ends.into_iter().zip(lines).filter(|(_, drawn)| *drawn) {
        picture.fill((x.min(end.0), y.min(end.1)), ((x + 1.0).max(end.0), (y + 1.0).max(end.1)), ink);
    }
}

/// The colours that the screen uses. Any other colour becomes `otherwise`.
fn colour(color: Color, otherwise: Colour) -> Colour {
    match color {
        Color::Cyan => [86, 182, 194],
        Color::Green => [130, 190, 110],
        Color::Yellow => [222, 184, 94],
        Color::Red => [224, 92, 92],
        Color::DarkGray => [120, 126, 138],
        _ => otherwise,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ratatui::layout::Rect;
    use ratatui::style::Style;

    #[test]
    fn cells_are_drawn_in_their_places_and_colours() {
        let mut buffer = Buffer::empty(Rect::new(0, 0, 6, 3));
        buffer.set_string(1, 0, "m", Style::new().fg(Color::Green));
        buffer.set_string(3, 1, "┌─", Style::new());
        buffer.set_string(0, 2, "x", Style::new().add_modifier(Modifier::REVERSED).fg(Color::Red));
        let picture = &of_buffer(&buffer).unwrap();
        let (width, height) = picture.size();
        let (wide, high) = ((width - 24) / 6, (height - 24) / 3);
        let colours = |x: u32, y: u32| -> std::collections::BTreeSet<Colour> {
            let (left, top) = (12 + x * wide, 12 + y * high);
            (left..left + wide).flat_map(|x| (top..top + high).map(move |y| picture.at(x, y))).collect()
        };
        let green = |[red, green, _]: &Colour| *green > 150 && *red < 140;
        assert!(colours(1, 0).iter().any(green) && colours(0, 0).len() == 1 && colours(2, 0).len() == 1);
        assert_eq!((picture.at(12, 12 + 2 * high), colours(1, 2).len()), ([224, 92, 92], 1), "reversed");
        // The corner's line goes on in its neighbour.
        let row = 12 + high + high / 2;
        let from = 12 + 3 * wide + wide / 2;
        assert!((from..12 + 5 * wide).all(|x| picture.at(x, row) == INK) && picture.at(from - 2, row) == GROUND);
        assert!((row..12 + 2 * high).all(|y| picture.at(from, y) == INK) && picture.at(from, row - 2) == GROUND);
    }
}
