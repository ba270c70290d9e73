//! Ranks as bands, systems as tracks, messages as arrows.

use std::collections::BTreeSet;

use tickwire::internals::traces::read::{Band, Flight, Reading, Slice};
use tickwire::internals::traces::words::{Nanoseconds, count};

use super::window::Window;
use crate::fault::Fault;
use crate::picture::{Colour, Picture, Point};

/// Pixels: width left of the tracks; margin around the picture; height above the tracks; height of a track; gap between ranks.
const GUTTER: f32 = 190.0;
const MARGIN: f32 = 18.0;
const HEAD: f32 = 62.0;
const TRACK: f32 = 20.0;
const GAP: f32 = 26.0;
/// Height of letters.
const SIZE: f32 = 13.0;
/// Letters of a track's name that are shown at most.
const NAME_MAX: usize = 15;
/// Pixels between two times on the axis, at least.
const STEP_MIN: f32 = 110.0;
/// Most arrows that are drawn. Of more messages only some get an arrow, since nobody could tell so many apart.
const ARROWS_MAX: usize = 600;

const GROUND: Colour = [246, 247, 249];
const PAPER: Colour = [255, 255, 255];
const STRIPE: Colour = [250, 250, 252];
const GRID: Colour = [225, 228, 233];
const INK: Colour = [36, 41, 47];
const FAINT: Colour = [106, 115, 125];
/// A tick that has done nothing, and one that has done something.
const IDLE: Colour = [208, 213, 220];
const BUSY: Colour = [120, 131, 146];
const ERROR: Colour = [200, 30, 30];
/// Colours of systems, by track.
const SYSTEMS: [Colour; 7] =
    [[224, 159, 62], [88, 129, 87], [131, 103, 199], [38, 132, 168], [62, 92, 168], [158, 86, 119], [110, 124, 58]];
/// Colours of ranks, and of the messages that they send.
const RANKS: [Colour; 6] =
    [[205, 62, 48], [28, 104, 196], [20, 140, 92], [196, 116, 12], [130, 62, 180], [12, 134, 150]];

/// Tracks that are no systems; see [`TraceFile`](tickwire::internals::traces::TraceFile).
const TICKS: u32 = 1;
const ACCESSES: u32 = 998;
const CALLS: u32 = 999;
const SENT: u32 = 1000;
const RECEIVED: u32 = 1001;
const INSTANTS: u32 = 1002;

/// How much was drawn.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Drawn {
    pub(super) slices: u64,
    /// Messages that were in flight; how many of them have an arrow; and of how many the trace has no receive.
    pub(super) messages: u64,
    pub(super) arrows: u64,
    pub(super) lost: u64,
}

impl Drawn {
    /// The messages in words.
    pub(super) fn arrows(&self) -> String {
        let mut words = count(self.messages, "message", "messages");
        if self.arrows + self.lost < self.messages {
            words += &format!(", {} of them as arrows", self.arrows);
        }
        if self.lost > 0 {
            words += &format!(", {} without receive", self.lost);
        }
        words
    }
}

/// The layout of the picture.
struct Plan {
    window: Window,
    left: f32,
    right: f32,
    bottom: f32,
    /// The ranks, and the height at which the first track of each begins.
    bands: Vec<(u32, f32)>,
    tracks: Vec<u32>,
}

impl Plan {
    fn new(reading: &Reading, window: Window, width: u32) -> Self {
        let seen = |slice: &&Slice| window.shows(slice);
        let mut tracks = BTreeSet::new();
        for (number, track) in reading.ranks.values().flat_map(|band| &band.tracks) {
            if track.slices.iter().find(seen).is_some() {
                tracks.insert(*number);
            }
        }
        let band = tracks.len() as f32 * TRACK + GAP;
        let bands = reading.ranks.keys().enumerate().map(|(n, rank)| (*rank, HEAD + n as f32 * band)).collect();
        let bottom = HEAD + reading.ranks.len() as f32 * band - GAP;
        let tracks = tracks.into_iter().collect();
        Plan { window, left: GUTTER, right: width as f32 - MARGIN, bottom, bands, tracks }
    }

    fn x(&self, ns: u64) -> f32 {
        let Window { from_ns, to_ns } = self.window;
        let part = (ns as f64 - from_ns as f64) / (to_ns - from_ns) as f64;
        self.left + part as f32 * (self.right - self.left)
    }

    /// The middle of a track.
    fn y(&self, rank: u32, track: u32) -> Option<f32> {
        let (_, top) = self.bands.iter().find(|(of, _)| *of == rank)?;
        let place = self.tracks.iter().position(|of| *of == track)?;
        Some(top + (place as f32 + 0.5) * TRACK)
    }

    /// The part of a line that is within the tracks, and whether its end is within them.
    fn clip(&self, from: Point, to: Point) -> Option<(Point, Point, bool)> {
        let at = |x: f32| (x, from.1 + (to.1 - from.1) * (x - from.0) / (to.0 - from.0));
        if from.0 > self.right || to.0 < self.left || to.0 < from.0 {
            return None;
        }
        let start = if from.0 < self.left { at(self.left) } else { from };
        let whole = to.0 <= self.right;
        Some((start, if whole { to } else { at(self.right) }, whole))
    }
}

impl Window {
    fn shows(&self, slice: &Slice) -> bool {
        slice.end_ns >= self.from_ns && slice.begin_ns <= self.to_ns
    }
}

/// Draws what is in a window.
///
/// # Errors
/// The picture would be too large, or would show nothing.
pub(super) fn draw(reading: &Reading, window: Window, width: u32) -> Result<(Picture, Drawn), Fault> {
    let plan = Plan::new(reading, window, width);
    if plan.tracks.is_empty() {
        let (from, to) = (Nanoseconds(window.from_ns), Nanoseconds(window.to_ns));
        return Err(Fault::wrong_use(format!("nothing has happened from {from} to {to}")));
    }
    let mut picture = Picture::new(width, (plan.bottom + MARGIN) as u32, GROUND)?;
    let mut drawn = Drawn::default();
    axis(&mut picture, &plan);
    for (rank, band) in &reading.ranks {
        drawn.slices += tracks(&mut picture, &plan, *rank, band);
    }
    arrows(&mut picture, &plan, &reading.flights, &mut drawn);
    let (span, from) = (Nanoseconds(window.to_ns - window.from_ns), Nanoseconds(window.from_ns));
    let ranks = count(reading.ranks.len() as u64, "rank", "ranks");
    let title = format!("{ranks}, {span} from {from} on, {}", drawn.arrows());
    picture.words(&title, (MARGIN, 18.0), SIZE + 2.0, INK);
    Ok((picture, drawn))
}

/// Draws the ground of the tracks, the grid lines and the times.
fn axis(picture: &mut Picture, plan: &Plan) {
    for (_, top) in &plan.bands {
        for place in 0..plan.tracks.len() {
            let (y, paper) = (top + place as f32 * TRACK, if place % 2 == 0 { PAPER } else { STRIPE });
            picture.fill((plan.left, y), (plan.right, y + TRACK), paper);
        }
    }
    let Window { from_ns, to_ns } = plan.window;
    let least = (to_ns - from_ns) as f64 * f64::from(STEP_MIN / (plan.right - plan.left));
    let step = [1u64, 2, 5].iter().flat_map(|first| (0..18).map(move |zeros| first * 10u64.pow(zeros)));
    let step = step.filter(|step| *step as f64 >= least).min().unwrap_or(u64::MAX);
    let mut next = from_ns.checked_next_multiple_of(step);
    while let Some(at) = next.filter(|&at| at <= to_ns) {
        let x = plan.x(at);
        picture.fill((x.floor(), HEAD - 6.0), (x.floor() + 1.0, plan.bottom), GRID);
        let words = moment(at, step);
        let half = picture.letter(SIZE).0 * words.chars().count() as f32 / 2.0;
        picture.words(&words, ((x - half).min(plan.right - 2.0 * half), HEAD - 16.0), SIZE, FAINT);
        next = at.checked_add(step);
    }
}

/// A time on the axis, with as many decimal places as the step needs.
fn moment(ns: u64, step: u64) -> String {
    let (unit, of) = match step {
        0..1000 if ns < 100_000 => ("ns", 1),
        0..1_000_000 => ("µs", 1000),
        1_000_000..1_000_000_000 => ("ms", 1_000_000),
        _ => ("s", 1_000_000_000),
    };
    let shows = |places: &u32| step.saturating_mul(10u64.pow(*places)) / of >= 10;
    let places = (1..=9).find(shows).map_or(0, |places| places as usize - 1);
    format!("{:.places$} {unit}", ns as f64 / of as f64)
}

/// Draws the tracks of a rank. Returns how many slices were drawn.
fn tracks(picture: &mut Picture, plan: &Plan, rank: u32, band: &Band) -> u64 {
    let mut drawn = 0;
    for &number in &plan.tracks {
        let Some(middle) = plan.y(rank, number) else { continue };
        if Some(&number) == plan.tracks.first() {
            picture.words(&band.name, (MARGIN, middle), SIZE + 1.0, of_rank(rank));
        }
        let Some(track) = band.tracks.get(&number) else { continue };
        let length = track.name.chars().count();
        let name: String = match length > NAME_MAX {
            true => "…".chars().chain(track.name.chars().skip(length - NAME_MAX + 1)).collect(),
            false => track.name.clone(),
        };
        picture.words(&name, (MARGIN + 52.0, middle), SIZE, FAINT);
        let mut free = plan.left;
        for slice in track.slices.iter().filter(|slice| plan.window.shows(slice)) {
            drawn += 1;
            free = draw_slice(picture, plan, (rank, number, middle), slice, free);
        }
    }
    drawn
}

/// Draws a slice, and its words if there is room. Words of an instant stand beside it, from `free` on. Returns the next `free`.
fn draw_slice(
    picture: &mut Picture,
    plan: &Plan,
    (rank, number, middle): (u32, u32, f32),
    slice: &Slice,
    free: f32,
) -> f32 {
    let colour = match number {
        TICKS if slice.value == 0 => IDLE,
        TICKS => BUSY,
        SENT | RECEIVED => of_rank(rank),
        ACCESSES | CALLS => FAINT,
        INSTANTS if slice.name == "error" || slice.name.ends_with("failed") => ERROR,
        INSTANTS => FAINT,
        system => SYSTEMS[(system as usize).saturating_sub(2) % SYSTEMS.len()],
    };
    let least = if matches!(number, RECEIVED | INSTANTS) { 3.0 } else { 1.0 };
    let left = plan.x(slice.begin_ns).max(plan.left);
    let right = plan.x(slice.end_ns).max(left + least).min(plan.right);
    picture.fill((left, middle - TRACK / 2.0 + 2.5), (right, middle + TRACK / 2.0 - 2.5), colour);
    let words = match number {
        INSTANTS | SENT | ACCESSES | CALLS => slice.name.clone(),
        TICKS | RECEIVED => return free,
        _ if slice.value > 0 => slice.value.to_string(),
        _ => return free,
    };
    let (size, wide) = (SIZE - 2.0, picture.letter(SIZE - 2.0).0 * words.chars().count() as f32);
    if number != INSTANTS {
        if wide + 4.0 <= right - left {
            picture.words(&words, ((left + right - wide) / 2.0, middle), size, PAPER);
        }
        return free;
    }
    let beside = if right + 4.0 + wide <= plan.right { right + 4.0 } else { left - 4.0 - wide };
    if beside < free {
        return free.max(right + 4.0);
    }
    picture.words(&words, (beside, middle), size, INK).max(right) + 8.0
}

fn of_rank(rank: u32) -> Colour {
    RANKS[rank as usize % RANKS.len()]
}

/// Draws the messages that were in flight in the window, in the colours of their senders.
fn arrows(picture: &mut Picture, plan: &Plan, flights: &[Flight], drawn: &mut Drawn) {
    let Window { from_ns, to_ns } = plan.window;
    let under_way = |flight: &&Flight| {
        let end = flight.to.map_or(flight.from.2, |to| to.2);
        flight.from.2 <= to_ns && end >= from_ns
    };
    let under_way: Vec<&Flight> = flights.iter().filter(under_way).collect();
    drawn.messages = under_way.len() as u64;
    let received: Vec<_> = under_way.iter().filter_map(|flight| Some((flight.from, flight.to?))).collect();
    drawn.lost = drawn.messages - received.len() as u64;
    for &((from, sent, begin), (to, got, end)) in received.iter().step_by(received.len().div_ceil(ARROWS_MAX).max(1)) {
        // A track with nothing in the window is not drawn. Then this end of the arrow is outside, and takes the height of the other end.
        let (y, to_y) = (plan.y(from, sent), plan.y(to, got));
        let down = if from <= to { 1.0 } else { -1.0 };
        let (Some(y), Some(to_y)) = (y.or(to_y), to_y.or(y)) else { continue };
        let edge = TRACK / 2.0 - 2.5;
        let line = plan.clip((plan.x(begin), y + down * edge), (plan.x(end) + 1.5, to_y - down * edge));
        if let Some((start, end, whole)) = line {
            drawn.arrows += 1;
            match whole {
                true => picture.arrow(start, end, of_rank(from)),
                false => picture.line(start, end, of_rank(from)),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tickwire::internals::traces::read::Track;

    fn slice(name: &str, begin_ns: u64, end_ns: u64, value: u64) -> Slice {
        Slice { name: name.into(), begin_ns, end_ns, value }
    }

    /// Two ranks; rank 0 drains, and sends a message to rank 1.
    fn reading() -> Reading {
        let band = |rank: u32, tracks: Vec<(u32, &str, Slice)>| Band {
            name: format!("rank {rank}"),
            tracks: tracks.into_iter().map(|(n, name, s)| (n, Track { name: name.into(), slices: vec![s] })).collect(),
        };
        let drain = (6, "drain_cq", slice("drain_cq", 100, 200, 3));
        let first = band(
            0,
            vec![(TICKS, "tick", slice("tick", 50, 300, 0)), drain, (SENT, "sent", slice("to 1", 400, 450, 8))],
        );
        let received = (RECEIVED, "received", slice("from 0", 800, 801, 8));
        let flights = vec![Flight { from: (0, SENT, 400), to: Some((1, RECEIVED, 800)) }];
        Reading { ranks: [(0, first), (1, band(1, vec![received]))].into(), flights, end_ns: 1000, cut: 0 }
    }

    #[test]
    fn tracks_and_arrows_are_where_they_should_be() {
        let reading = reading();
        let window = Window { from_ns: 0, to_ns: 1000 };
        let plan = Plan::new(&reading, window, 1000);
        assert_eq!((plan.tracks.clone(), plan.bands.len()), (vec![TICKS, 6, SENT, RECEIVED], 2));
        let (picture, drawn) = draw(&reading, window, 1000).unwrap();
        assert_eq!(drawn, Drawn { slices: 4, messages: 1, arrows: 1, lost: 0 });
        assert_eq!(picture.size(), (1000, (plan.bottom + MARGIN) as u32));
        let at = |ns, rank, track| picture.at(plan.x(ns) as u32, (plan.y(rank, track).unwrap() - 6.0) as u32);
        assert_eq!([60, 290].map(|ns| at(ns, 0, TICKS)), [IDLE; 2]);
        assert_eq!([105, 195].map(|ns| at(ns, 0, 6)), [SYSTEMS[4]; 2]);
        assert_eq!((at(90, 0, 6), at(215, 0, 6), at(105, 1, 6)), (STRIPE, STRIPE, STRIPE));
        assert_eq!(at(445, 0, SENT), RANKS[0]);
        assert_eq!(at(801, 1, RECEIVED), RANKS[1]);
        // The arrow is in the gap between the ranks, in the colour of the sender, and nowhere else there.
        let (y, to_y) = (plan.y(0, SENT).unwrap() + 7.5, plan.y(1, RECEIVED).unwrap() - 7.5);
        let row = plan.bands[1].1 - GAP / 2.0;
        let expected = plan.x(400) + (row - y) / (to_y - y) * (plan.x(800) + 1.5 - plan.x(400));
        let red = |x: &u32| i32::from(picture.at(*x, row as u32)[2]) < 150;
        let found: Vec<u32> = (plan.left as u32..plan.right as u32).filter(red).collect();
        assert!(!found.is_empty() && found.iter().all(|&x| (x as f32 - expected).abs() < 8.0), "{found:?} {expected}");
    }

    #[test]
    fn a_window_shows_its_part() {
        let reading = reading();
        let drawn = |from_ns, to_ns| draw(&reading, Window { from_ns, to_ns }, 800).map(|(_, drawn)| drawn).ok();
        assert_eq!(drawn(500, 600), None, "no track has anything");
        assert_eq!(drawn(420, 600), Some(Drawn { slices: 1, messages: 1, arrows: 1, lost: 0 }));
        assert_eq!(drawn(0, 210), Some(Drawn { slices: 2, messages: 0, arrows: 0, lost: 0 }));
        let mut lost = reading.clone();
        lost.flights[0].to = None;
        let (_, drawn) = draw(&lost, Window { from_ns: 0, to_ns: 1000 }, 800).unwrap();
        assert_eq!(drawn.arrows(), "1 message, 1 without receive");
    }

    #[test]
    fn many_messages_have_some_arrows() {
        let mut reading = reading();
        reading.flights = vec![reading.flights[0]; 100_000];
        let (_, drawn) = draw(&reading, Window { from_ns: 0, to_ns: 1000 }, 400).unwrap();
        assert!(drawn.arrows <= ARROWS_MAX as u64 && drawn.arrows > ARROWS_MAX as u64 / 2, "{drawn:?}");
        assert!(drawn.arrows().starts_with("100000 messages, "), "{}", drawn.arrows());
    }

    #[test]
    fn times_have_the_places_of_their_step() {
        let moments = [
            (0, 1),
            (1500, 500),
            (1_234_500, 500),
            (20_000, 10_000),
            (3_000_000, 1_000_000),
            (2_500_000_000, 500_000_000),
        ];
        let words = moments.map(|(ns, step)| moment(ns, step));
        assert_eq!(words, ["0 ns", "1500 ns", "1234.5 µs", "20 µs", "3 ms", "2500 ms"]);
        assert_eq!(moment(1 << 62, u64::MAX), "4611686018 s");
    }

    #[test]
    fn a_trace_of_any_length_and_of_any_number_of_ranks_is_drawn_or_refused() {
        let mut reading = reading();
        let last = slice("tick", 1 << 62, 1 << 62, 0);
        reading.ranks.get_mut(&0).unwrap().tracks.get_mut(&TICKS).unwrap().slices.push(last);
        assert!(draw(&reading, Window { from_ns: 0, to_ns: 1 << 62 }, 400).is_ok());
        let (band, window) = (reading.ranks[&0].clone(), Window { from_ns: 0, to_ns: 1000 });
        reading.ranks = (0..70_000).map(|rank| (rank, band.clone())).collect();
        assert!(Plan::new(&reading, window, 400).bands.is_sorted_by(|a, b| a.1 < b.1));
        assert!(draw(&reading, window, 400).is_err_and(|fault| fault.words().contains("choose fewer ranks")));
    }
}
