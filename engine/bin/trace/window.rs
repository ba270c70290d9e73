//! Which part of a trace is drawn.

use std::str::FromStr;

use tickwire::internals::traces::read::Reading;
use tickwire::internals::traces::words::Nanoseconds;

use crate::fault::Fault;

/// The time that is drawn, ns since the first event.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Window {
    pub(crate) from_ns: u64,
    pub(crate) to_ns: u64,
}

/// A range of messages, in the order in which they were sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Messages {
    first: usize,
    end: usize,
}

/// Reads a time with its unit, and returns ns.
///
/// # Errors
/// There is no unit, or no number.
pub(crate) fn time(words: &str) -> Result<u64, String> {
    let bad = || format!("`{words}` is no time: write a number and ns, us, ms or s, such as 1.5ms");
    let units = [("ns", 1.0), ("us", 1e3), ("µs", 1e3), ("ms", 1e6), ("s", 1e9)];
    let parts = units.iter().find_map(|(unit, ns)| Some((words.strip_suffix(unit)?, ns)));
    let (number, ns) = parts.ok_or_else(bad)?;
    let value: f64 = number.trim().parse().map_err(|_| bad())?;
    if !value.is_finite() || value < 0.0 {
        return Err(bad());
    }
    Ok((value * ns).round() as u64)
}

impl FromStr for Messages {
    type Err = String;

    fn from_str(words: &str) -> Result<Self, String> {
        let parts = words.split_once("..").and_then(|(first, end)| Some((first.parse().ok()?, end.parse().ok()?)));
        match parts {
            Some((first, end)) if first < end => Ok(Messages { first, end }),
            _ => Err(format!("`{words}` is no range of messages: write FIRST..END, such as 100..105")),
        }
    }
}

impl Messages {
    /// The time from the first send to the last receive of these messages, and a twentieth of it on each side.
    ///
    /// # Errors
    /// The trace has fewer messages.
    pub(crate) fn window(self, reading: &Reading) -> Result<Window, Fault> {
        let all = reading.flights.len();
        let flights = reading.flights.get(self.first..self.end).ok_or_else(|| {
            let Messages { first, end } = self;
            Fault::wrong_use(format!("there are no messages {first}..{end} in it: it has {all}"))
        })?;
        let begin = flights.iter().map(|flight| flight.from.2).min().unwrap_or(0);
        let ends = flights.iter().map(|flight| flight.to.map_or(flight.from.2, |to| to.2));
        let end = ends.max().unwrap_or(0).max(begin + 1);
        let margin = (end - begin) / 20 + 1;
        Ok(Window { from_ns: begin.saturating_sub(margin), to_ns: end + margin })
    }
}

impl Window {
    /// The time between two moments, or the ends of the trace.
    ///
    /// # Errors
    /// There is nothing between them.
    pub(crate) fn between(from: Option<u64>, to: Option<u64>, reading: &Reading) -> Result<Self, Fault> {
        let end_ns = reading.end_ns.max(1);
        let window = Window { from_ns: from.unwrap_or(0), to_ns: to.unwrap_or(end_ns).min(end_ns) };
        if window.from_ns >= window.to_ns {
            let words = format!("there is nothing from {} to", Nanoseconds(window.from_ns));
            let (to, end) = (Nanoseconds(to.unwrap_or(end_ns)), Nanoseconds(end_ns));
            return Err(Fault::wrong_use(format!("{words} {to}: it lasts {end}")));
        }
        Ok(window)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tickwire::internals::traces::read::Flight;

    #[test]
    fn times_have_units() {
        let times = ["0s", "7ns", "1.5us", "2µs", "3 ms", "1e-3s"].map(|words| time(words).unwrap());
        assert_eq!(times, [0, 7, 1500, 2000, 3_000_000, 1_000_000]);
        for words in ["", "7", "ms", "-1ms", "nans", "infs", "1 h"] {
            assert!(time(words).unwrap_err().contains("such as 1.5ms"), "{words}");
        }
    }

    #[test]
    fn a_window_is_within_the_trace() {
        let flight = |from, to| Flight { from: (0, 1000, from), to: Some((1, 1001, to)) };
        let reading = Reading { flights: vec![flight(100, 300), flight(120, 200)], end_ns: 1000, ..Reading::default() };
        let window = |from, to| Window::between(from, to, &reading).map(|w| (w.from_ns, w.to_ns)).ok();
        assert_eq!(window(None, None), Some((0, 1000)));
        assert_eq!(window(Some(10), Some(5000)), Some((10, 1000)));
        assert_eq!([window(Some(1000), None), window(Some(9), Some(9)), window(Some(9), Some(3))], [None; 3]);
        let messages = |words: &str| words.parse::<Messages>().ok()?.window(&reading).ok();
        assert_eq!(messages("0..1"), Some(Window { from_ns: 89, to_ns: 311 }));
        assert_eq!(messages("1..2"), Some(Window { from_ns: 115, to_ns: 205 }));
        assert_eq!(["0..3", "1..1", "2..1", "1", "a..b"].map(messages), [None; 5]);
    }
}
