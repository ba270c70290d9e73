//! How long a wait spins before it yields.

use tickwire_components::limits::{self, Limits};

/// Empty looks of `wait` before it yields. Few where procs share processors: a peer on the same processor cannot answer while this proc
/// spins.
pub(super) fn spins(limits: &Limits, procs: u32) -> u32 {
    if procs > processors() { limits.spins.min(limits::SPINS_SHARED) } else { limits.spins }
}

/// The number of processors that the procs of this host share. A proc that is bound to some of them leaves the others to its peers, so a
/// binding does not count.
fn processors() -> u32 {
    let allowed = std::thread::available_parallelism().map_or(1, |n| n.get() as u32);
    let online = std::fs::read_to_string("/sys/devices/system/cpu/online").unwrap_or_default();
    let online = count_ranges(online.trim()).unwrap_or(allowed);
    match rustix::thread::sched_getaffinity(None) {
        Ok(bound) if bound.count() < online => online,
        _ => allowed,
    }
}

/// How many numbers a list such as `0-3,6` has.
fn count_ranges(list: &str) -> Option<u32> {
    list.split(',').try_fold(0u32, |sum, range| {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let (first, last) = (first.parse::<u32>().ok()?, last.parse::<u32>().ok()?);
        Some(sum + last.checked_sub(first)? + 1)
    })
}

#[cfg(test)]
mod tests {
    use super::count_ranges;

    #[test]
    fn lists_of_processors_are_counted() {
        assert_eq!(count_ranges("0-3,6"), Some(5));
        assert_eq!(count_ranges("0"), Some(1));
        assert_eq!([count_ranges(""), count_ranges("3-1"), count_ranges("x")], [None; 3]);
    }
}
