//! The start of a job: its description is checked, then its ranks are started and supervised.

use super::error::LaunchError;
use super::job::Job;
use super::outcome::JobOutcome;
use super::programs::Program;
use super::{ranks, supervise, trace};
use std::io::{self, Write};
use tickwire_components::limits::LOCAL_RANKS_MAX;

impl Job {
    /// Starts the ranks, and returns when all have ended. Processes that a rank starts itself are not ended by the launcher.
    ///
    /// Meanwhile SIGINT, SIGTERM, SIGQUIT and SIGHUP are caught, and end the ranks. SIGUSR1 and SIGUSR2 are caught, and each is sent on to
    /// the ranks; so is SIGHUP if all programs have it in [`ENV_DUMP_SIGNAL`](crate::ENV_DUMP_SIGNAL). The soft limit of open files is
    /// raised for the calling process, not for the ranks.
    ///
    /// # Errors
    /// The job cannot be started. Ranks that were started already are ended first.
    pub fn run(mut self) -> Result<JobOutcome, LaunchError> {
        let ranks = self.ranks();
        match ranks as usize {
            0 => return Err(LaunchError::NoRanks),
            1..=LOCAL_RANKS_MAX => {}
            _ => return Err(LaunchError::TooManyRanks { ranks }),
        }
        let files = self.programs().map(Program::check).collect::<Result<Vec<_>, _>>()?;
        ranks::raise_file_limit(&self)?;
        let of_programs = trace::of_programs(&self)?;
        self.trace = trace::prepare(self.trace.or(of_programs).or_else(trace::named), ranks)?;
        // Output of the caller must come before output of the ranks.
        let _ = io::stdout().flush();
        let outcome = supervise::run(&self, &files);
        trace::merge(self.trace.as_deref(), ranks, outcome)
    }
}

#[cfg(test)]
mod tests {
    use super::super::job::{OnFailure, Output};
    use super::super::outcome::RankStatus;
    use super::*;
    use crate::observe::trace::ENV_TRACE;
    use std::time::Duration;

    #[test]
    fn wrong_jobs_are_refused_with_one_line_before_anything_starts() {
        let traced = |path: &str| Job::new(1).program("true").env(ENV_TRACE, path);
        let wrong = [
            (Job::new(0).program("true"), "0 ranks are no job: give 1 to 4096"),
            (Job::new(4097).program("true"), "4097 ranks are too many for one host: give 1 to 4096"),
            (Job::new(1), "no program to start: name one"),
            (Job::new(1).program("no-such-program"), "`no-such-program` was not found in PATH"),
            (Job::new(1).program("./no/such/program"), "`./no/such/program` was not found: check the path"),
            (Job::new(1).program("/etc/passwd"), "`/etc/passwd` is not an executable file"),
            (Job::new(1).program("/tmp"), "`/tmp` is not an executable file"),
            (Job::new(1).program("true").and(0).program("true"), "0 ranks are no job"),
            (Job::new(4000).program("true").and(97).program("true"), "4097 ranks are too many for one host"),
            (Job::new(u32::MAX).program("true").and(u32::MAX).program("true"), "ranks are too many for one host"),
            (Job::new(1).program("true").and(1).program("no-such-program"), "`no-such-program` was not found in PATH"),
            (Job::new(1).program("true").directory("/no/such"), "directory /no/such: No such file or directory"),
            (Job::new(1).program("true").env("A=B", "1"), "`A=B` is no name of a variable"),
            (
                traced("a").and(1).program("true").env(ENV_TRACE, "b"),
                "TICKWIRE_TRACE is `a` and `b`: a job has one trace",
            ),
        ];
        for (job, expected) in wrong {
            let error = job.run().unwrap_err();
            assert!(error.is_wrong_use());
            let text = error.to_string();
            assert!(text.contains(expected) && text.lines().count() == 1, "{text}");
        }
    }

    #[test]
    fn a_job_reports_the_end_of_each_rank() {
        let script = "exit $((TICKWIRE_RANK == 2 ? 7 : 0))";
        let job = Job::new(4).program("/bin/sh").args(["-c", script]);
        let outcome = job.on_failure(OnFailure::Continue).run().unwrap();
        assert_eq!(outcome.first_failure, Some((2, RankStatus::Exited(7))));
        let statuses = [0, 0, 7, 0].map(RankStatus::Exited);
        assert_eq!(outcome.statuses, statuses);
    }

    #[test]
    fn each_program_has_its_own_ranks_arguments_variables_and_directory() {
        let script = "test $0.$TICKWIRE_APPNUM.$TICKWIRE_RANK.$TICKWIRE_SIZE.$LEVEL.$(pwd) = $1";
        let job = |job: Job, name: &str, expected: &str| job.program("sh").args(["-c", script, name, expected]);
        let here = std::env::current_dir().unwrap().display().to_string();
        let first = job(Job::new(1), "one", &format!("one.0.0.3.7.{here}")).env("LEVEL", "7");
        let second = job(first.and(1), "two", "two.1.1.3../").directory("/");
        let third = job(second.and(1), "three", "three.2.2.3.9./bin").directory("/bin").env("LEVEL", "9");
        assert_eq!(third.run().unwrap().statuses, [RankStatus::Exited(0); 3]);
    }

    #[test]
    fn a_job_that_takes_too_long_is_ended() {
        let job = Job::new(2).program("sleep").args(["1000"]).timeout(Duration::from_millis(20));
        let outcome = job.run().unwrap();
        assert!(outcome.timed_out && outcome.first_failure.is_none());
        // On a busy machine the time may be over before the second rank is started. Then it is not started.
        let started = outcome.statuses.len();
        assert!((1..=2).contains(&started));
        assert_eq!((outcome.code(), outcome.statuses), (124, vec![RankStatus::Killed(15); started]));
        let job = Job::new(2).program("true").timeout(Duration::from_secs(1000));
        assert!(!job.run().unwrap().timed_out);
    }

    #[test]
    fn variables_of_the_job_never_replace_the_launchers_own() {
        let script = r#"test "$TICKWIRE_RANK" != 99 && test "$TICKWIRE_SIZE" = 2 && test "$OWN" = yes"#;
        let job = Job::new(2).program("sh").args(["-c", script]).env("TICKWIRE_RANK", "99").env("OWN", "yes");
        assert_eq!(job.output(Output::Inherit).pin(true).run().unwrap().code(), 0);
    }
}
