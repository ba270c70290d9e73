//! A clock that is cheap to read: CLOCK_MONOTONIC, interpolated by the processor's cycle counter (TSC).
//!
//! Reading CLOCK_MONOTONIC takes as long as delivering a short message, and about twice as long as reading the counter. If the kernel
//! itself derives its time from the counter, this clock does the same, for a millisecond at a time. Then it asks the kernel again, and
//! corrects its length of a tick by the difference. So the clocks of all processes of a host agree within some ten ns.

use rustix::time::{ClockId, clock_gettime};
use std::sync::LazyLock;

/// How long the counter is trusted before the kernel is asked again, ns.
const TRUSTED_NS: u64 = 1_000_000;
/// The counter and the kernel's clock are compared over at least this time before the length of a tick counts as known, ns.
const COMPARED_NS: u64 = 1_000_000;
/// Plausible lengths of a tick, ns. No processor's counter is slower or faster.
const NS_A_TICK: std::ops::Range<f64> = 0.0625..16.0;
/// Fraction bits of the fixed-point length of a tick.
const FRACTION: u32 = 24;
/// How many times one comparison asks the kernel. It keeps the best answer.
const ASKED: usize = 3;

/// The clock by which an engine stamps its events and the stages of receipts.
#[derive(Clone, Debug)]
pub struct Clock {
    /// Whether the processor's counter is used.
    counts: bool,
    /// The first comparison of both clocks: ticks, and ns.
    start: (u64, u64),
    /// The last comparison: ticks, and ns.
    last: (u64, u64),
    /// The length of a tick, ns, as a fixed-point number with [`FRACTION`] fraction bits; 0 if it is not known yet.
    ns_a_tick: u64,
    /// Ticks after the last comparison until the next one.
    trusted: u64,
    /// The last time that was returned, ns. No later call returns less.
    answered_ns: u64,
}

impl Default for Clock {
    fn default() -> Self {
        Clock::new(*COUNTS)
    }
}

impl Clock {
    /// With `counts`, a clock that reads the processor's counter between comparisons with the kernel's clock. Otherwise it reads the
    /// kernel's clock each time.
    pub fn new(counts: bool) -> Self {
        Clock { counts, start: (0, 0), last: (0, 0), ns_a_tick: 0, trusted: 0, answered_ns: 0 }
    }

    /// The time, ns of CLOCK_MONOTONIC.
    #[inline]
    pub fn now_ns(&mut self) -> u64 {
        let stamp = self.stamp();
        self.ns_of(stamp)
    }

    /// A raw reading of the clock. It is cheaper than the time; [`Clock::ns_of`] converts it.
    #[inline]
    pub fn stamp(&self) -> u64 {
        if self.counts { ticks() } else { now_ns() }
    }

    /// The time of a stamp that was taken just now, ns of CLOCK_MONOTONIC.
    #[inline]
    pub fn ns_of(&mut self, stamp: u64) -> u64 {
        if self.counts { self.at(stamp, ask) } else { stamp }
    }

    /// The time at a tick, ns. `ask` asks the kernel, and returns the tick and the time of its answer.
    #[inline(always)]
    fn at(&mut self, tick: u64, ask: impl FnOnce() -> (u64, u64)) -> u64 {
        let since = tick.wrapping_sub(self.last.0);
        let at_ns = match since < self.trusted {
            true => self.last.1 + ((since * self.ns_a_tick) >> FRACTION),
            false => self.compare(ask()),
        };
        self.answered_ns = self.answered_ns.max(at_ns);
        self.answered_ns
    }

    /// Updates the comparison of both clocks with an answer of the kernel. Returns the time, ns.
    #[cold]
    fn compare(&mut self, (tick, at_ns): (u64, u64)) -> u64 {
        let compared_ns = at_ns.wrapping_sub(self.start.1);
        let ns_a_tick = compared_ns as f64 / tick.wrapping_sub(self.start.0) as f64;
        // If the counter has jumped, as when a virtual machine was moved, the comparison starts anew.
        let known = match self.ns_a_tick {
            0 => NS_A_TICK.contains(&ns_a_tick),
            before => (ns_a_tick * f64::from(1 << FRACTION) / before as f64 - 1.0).abs() < 1e-3,
        };
        if self.start.1 == 0 || tick < self.start.0 || (compared_ns >= COMPARED_NS && !known) {
            (self.start, self.ns_a_tick, self.trusted) = ((tick, at_ns), 0, 0);
        } else if compared_ns >= COMPARED_NS {
            self.ns_a_tick = (ns_a_tick * f64::from(1 << FRACTION)) as u64;
            self.trusted = (TRUSTED_NS as f64 / ns_a_tick) as u64;
        }
        self.last = (tick, at_ns);
        at_ns
    }
}

/// CLOCK_MONOTONIC, ns. All processes of a host share it.
pub fn now_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// Asks the kernel several times, and returns the tick and the time of the answer that took least, so that an interrupted one does not
/// count.
#[cold]
fn ask() -> (u64, u64) {
    let answer = || {
        let (before, at_ns, after) = (ticks(), now_ns(), ticks());
        (after.wrapping_sub(before), before.wrapping_add(after.wrapping_sub(before) / 2), at_ns)
    };
    let (_, tick, at_ns) = (0..ASKED).map(|_| answer()).min().unwrap_or_default();
    (tick, at_ns)
}

/// Whether the kernel uses the processor's counter as its clock source. Then the counter runs evenly, never stops, and is the same on
/// all processors.
static COUNTS: LazyLock<bool> = LazyLock::new(|| {
    let source = std::fs::read_to_string("/sys/devices/system/clocksource/clocksource0/current_clocksource");
    cfg!(all(target_arch = "x86_64", not(miri))) && source.is_ok_and(|source| source.trim() == "tsc")
});

/// The processor's counter.
#[cfg(all(target_arch = "x86_64", not(miri)))]
#[inline(always)]
fn ticks() -> u64 {
    // SAFETY: every processor of this architecture has the instruction, and the kernel's own clock uses it.
    #[expect(unsafe_code, reason = "an instruction of the processor")]
    unsafe {
        std::arch::x86_64::_rdtsc()
    }
}

/// No counter is known on this architecture.
#[cfg(not(all(target_arch = "x86_64", not(miri))))]
fn ticks() -> u64 {
    0
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::{Duration, Instant};

    /// A kernel's clock that is not to be asked.
    fn unasked() -> (u64, u64) {
        panic!("the counter is trusted here")
    }

    #[test]
    fn the_counter_is_trusted_for_a_millisecond_once_its_ticks_are_known() {
        let mut clock = Clock::new(false);
        let begin_ns = 7_000_000_000;
        // Two and a half ticks a ns.
        let tick = |ns: u64| 1000 + ns * 5 / 2;
        for ns in [0, 100_000, 999_999, 1_000_000] {
            assert_eq!(clock.at(tick(ns), || (tick(ns), begin_ns + ns)), begin_ns + ns, "they are compared");
        }
        for ns in [1_000_010, 1_500_000, 1_999_990] {
            assert!(clock.at(tick(ns), unasked).abs_diff(begin_ns + ns) <= 1, "{ns}");
        }
        assert_eq!(
            clock.at(tick(2_000_010), || (tick(2_000_010), begin_ns + 2_000_013)),
            begin_ns + 2_000_013,
            "compared again"
        );
        assert!(clock.at(tick(2_500_010), unasked).abs_diff(begin_ns + 2_500_013) <= 4);
    }

    #[test]
    fn time_does_not_go_backwards() {
        let mut clock = Clock::new(false);
        for ns in [1, 1_000_001] {
            clock.at(ns, || (ns, ns));
        }
        assert_eq!(clock.at(1_999_999, unasked), 1_999_999);
        assert_eq!(clock.at(2_000_500, || (2_000_500, 1_999_500)), 1_999_999, "the kernel's clock was slowed down");
        assert_eq!(clock.at(2_000_900, unasked), 1_999_999);
        assert!(clock.at(2_001_500, unasked) > 2_000_000);
    }

    #[test]
    fn a_counter_that_jumps_is_compared_anew() {
        let mut clock = Clock::new(false);
        for ns in [1, 1_000_001] {
            clock.at(ns, || (ns, ns));
        }
        for (tick, ns) in [(9_000_000_000_000, 1_100_000), (9_000_000_000_010, 1_100_020), (5, 1_200_000)] {
            assert_eq!(clock.at(tick, || (tick, ns)), ns);
        }
        assert_eq!(clock.at(1_000_005, || (1_000_005, 2_300_000)), 2_300_000, "known again");
        assert!(clock.at(1_000_015, unasked).abs_diff(2_300_011) <= 1);
    }

    #[test]
    fn it_says_what_the_kernels_clock_says() {
        let (mut clock, start, mut before_ns) = (Clock::default(), Instant::now(), 0);
        while start.elapsed() < Duration::from_millis(20) {
            let (least_ns, at_ns, most_ns) = (now_ns(), clock.now_ns(), now_ns());
            assert!(before_ns <= at_ns && least_ns <= at_ns + 5000 && at_ns <= most_ns + 5000);
            before_ns = at_ns;
        }
    }
}
