//! The variables that our own launcher sets for a rank.

use super::error::{BootstrapError, shorten};
use super::name::{JOB_BYTES_MAX, job_is_valid};
use std::ffi::OsString;
use std::os::fd::RawFd;
use std::time::Duration;
use tickwire_components::limits::LOCAL_RANKS_MAX;

/// Environment variable with the number of this process in its job, from 0.
pub const ENV_RANK: &str = "TICKWIRE_RANK";
/// Environment variable with the number of ranks in the job.
pub const ENV_SIZE: &str = "TICKWIRE_SIZE";
/// Environment variable with the number of a rank's program among the programs of its job: 0 unless there are several.
pub const ENV_APPNUM: &str = "TICKWIRE_APPNUM";
/// Environment variable with the job's name, unique on this host.
pub const ENV_JOB: &str = "TICKWIRE_JOB";
/// Environment variable with the number of the inherited socket to the launcher.
pub const ENV_FD: &str = "TICKWIRE_FD";
/// Environment variable with the longest wait for an answer of the launcher, including fences, in ms.
pub const ENV_FENCE_MS: &str = "TICKWIRE_FENCE_MS";
/// Environment variable that, if 1, makes this process a world of one, whatever has started it. `tickwire run` does not pass it on to its
/// ranks.
pub const ENV_SOLO: &str = "TICKWIRE_SOLO";
/// Environment variable that says how this process finds the other ranks: `own` (through `tickwire run`), `pmix`, `pmi`, or `alone`.
/// `tickwire run` does not pass it on to its ranks.
pub const ENV_BOOTSTRAP: &str = "TICKWIRE_BOOTSTRAP";

/// Default of [`ENV_FENCE_MS`]: more than the start of 4096 processes takes at 5 ms each, and less than a person's patience.
const FENCE_MS: u64 = 60_000;
/// A day. A longer time is a mistake, not a wait.
const FENCE_MS_MAX: u64 = 86_400_000;

/// The values of the launcher's variables.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) rank: u32,
    pub(super) size: u32,
    pub(super) job: String,
    pub(super) fd: RawFd,
    pub(super) patience: Duration,
}

impl Place {
    /// Reads the variables. `None` if our launcher has not started this process. `get` stands for the environment, which a test must not
    /// change.
    pub(super) fn read(get: &impl Fn(&str) -> Option<OsString>) -> Result<Option<Self>, BootstrapError> {
        let names = [ENV_RANK, ENV_SIZE, ENV_JOB, ENV_FD];
        let Some(present) = names.into_iter().find(|name| get(name).is_some()) else { return Ok(None) };
        if let Some(name) = names.into_iter().find(|name| get(name).is_none()) {
            return Err(BootstrapError::Missing { name, present });
        }
        let most = LOCAL_RANKS_MAX as u64;
        let size = number(get, ENV_SIZE, 1, most)?;
        let rank = number(get, ENV_RANK, 0, size - 1)?;
        // 0, 1 and 2 are the standard streams; the launcher never passes those.
        let fd = number(get, ENV_FD, 3, i32::MAX as u64)?;
        let patience = patience(get)?;
        let job = get(ENV_JOB).unwrap_or_default().to_string_lossy().into_owned();
        if !job_is_valid(&job) {
            let expected = format!("1 to {JOB_BYTES_MAX} characters of a-z, 0-9 and -");
            return Err(BootstrapError::Variable { name: ENV_JOB, found: shorten(&job), expected });
        }
        Ok(Some(Self { rank: rank as u32, size: size as u32, job, fd: fd as RawFd, patience }))
    }
}

/// The longest time that a request to a launcher may take.
pub(super) fn patience(get: &impl Fn(&str) -> Option<OsString>) -> Result<Duration, BootstrapError> {
    match get(ENV_FENCE_MS) {
        Some(_) => number(get, ENV_FENCE_MS, 1, FENCE_MS_MAX).map(Duration::from_millis),
        None => Ok(Duration::from_millis(FENCE_MS)),
    }
}

/// The value of a variable that must be a number within bounds.
pub(super) fn number(
    get: &impl Fn(&str) -> Option<OsString>,
    name: &'static str,
    least: u64,
    most: u64,
) -> Result<u64, BootstrapError> {
    let text = get(name).unwrap_or_default().to_string_lossy().into_owned();
    match text.parse::<u64>() {
        Ok(n) if (least..=most).contains(&n) => Ok(n),
        _ => {
            let expected = format!("a number from {least} to {most}");
            Err(BootstrapError::Variable { name, found: shorten(&text), expected })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(pairs: &[(&str, &str)]) -> Result<Option<Place>, BootstrapError> {
        Place::read(&|name: &str| pairs.iter().find(|(k, _)| *k == name).map(|(_, v)| OsString::from(v)))
    }

    fn good() -> Vec<(&'static str, &'static str)> {
        vec![(ENV_RANK, "2"), (ENV_SIZE, "4"), (ENV_JOB, "job-1-ab"), (ENV_FD, "7")]
    }

    #[test]
    fn a_complete_environment_is_a_place_and_an_empty_one_is_none() {
        let place = read(&good()).unwrap().unwrap();
        let patience = Duration::from_millis(FENCE_MS);
        assert_eq!(place, Place { rank: 2, size: 4, job: "job-1-ab".into(), fd: 7, patience });
        assert!(read(&[]).unwrap().is_none());
        assert!(read(&[(ENV_FENCE_MS, "5")]).unwrap().is_none());
    }

    #[test]
    fn each_missing_variable_is_named() {
        for (name, _) in good() {
            let rest: Vec<_> = good().into_iter().filter(|(k, _)| *k != name).collect();
            let error = read(&rest).unwrap_err();
            assert!(matches!(error, BootstrapError::Missing { name: n, .. } if n == name), "{error}");
            assert!(error.to_string().contains(&format!("{name} is not")));
        }
    }

    #[test]
    fn each_malformed_variable_is_named_with_what_was_expected() {
        let long = "a".repeat(JOB_BYTES_MAX + 1);
        let bad = [
            (ENV_RANK, "4"),
            (ENV_RANK, "-1"),
            (ENV_RANK, ""),
            (ENV_SIZE, "0"),
            (ENV_SIZE, "4097"),
            (ENV_SIZE, "four"),
            (ENV_JOB, ""),
            (ENV_JOB, "Job"),
            (ENV_JOB, "a/../b"),
            (ENV_JOB, long.as_str()),
            (ENV_FD, "2"),
            (ENV_FD, "99999999999"),
            (ENV_FENCE_MS, "0"),
            (ENV_FENCE_MS, "soon"),
        ];
        for (name, value) in bad {
            let mut all: Vec<(&str, &str)> = good().into_iter().filter(|(k, _)| *k != name).collect();
            all.push((name, value));
            let error = read(&all).unwrap_err();
            assert!(matches!(error, BootstrapError::Variable { name: n, .. } if n == name), "{name}={value}: {error}");
            assert!(error.to_string().contains("expected"), "{error}");
        }
    }

    #[test]
    fn a_value_with_line_breaks_still_makes_one_line() {
        let error = read(&[(ENV_RANK, "1\n2"), (ENV_SIZE, "4"), (ENV_JOB, "a"), (ENV_FD, "7")]).unwrap_err();
        assert_eq!(error.to_string().lines().count(), 1);
    }
}
