//! The start of a job: what it asks for is checked, then its ranks are started and supervised.

use super::error::LaunchError;
use super::job::Job;
use super::outcome::JobOutcome;
use super::{ranks, supervise, trace};
use crate::observe::trace::ENV_TRACE;
use rustix::fs::Access;
use std::ffi::{OsStr, OsString};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use tickwire_components::limits::LOCAL_RANKS_MAX;

impl Job {
    /// Starts the ranks and returns when all have ended. SIGINT and SIGTERM are caught meanwhile and end the ranks.
    /// The soft limit of open files is raised for the calling process, not for the ranks. What a rank starts itself
    /// is its own to end.
    ///
    /// # Errors
    /// The job cannot be started; ranks that had been started are ended first.
    pub fn run(mut self) -> Result<JobOutcome, LaunchError> {
        match self.ranks as usize {
            0 => return Err(LaunchError::NoRanks),
            1..=LOCAL_RANKS_MAX => {}
            _ => return Err(LaunchError::TooManyRanks { ranks: self.ranks }),
        }
        let program = resolve(&self.program, std::env::var_os("PATH"))?;
        ranks::raise_file_limit(&self)?;
        let named = std::env::var_os(ENV_TRACE).filter(|path| !path.is_empty()).map(PathBuf::from);
        self.trace = trace::prepare(self.trace.or(named), self.ranks)?;
        // What the caller has printed comes before what the ranks print.
        let _ = io::stdout().flush();
        let outcome = supervise::run(&self, &program);
        trace::merge(self.trace.as_deref(), self.ranks, outcome)
    }
}

/// The file that `execvp` would take, so that a wrong name is one message before anything is started.
fn resolve(program: &OsStr, path: Option<OsString>) -> Result<PathBuf, LaunchError> {
    if program.is_empty() {
        return Err(LaunchError::NoProgram);
    }
    let candidates: Vec<PathBuf> = if program.as_encoded_bytes().contains(&b'/') {
        vec![program.into()]
    } else {
        let path = path.unwrap_or_else(|| "/usr/local/bin:/usr/bin:/bin".into());
        // An empty entry means the current directory; without the dot it would be searched in PATH again.
        std::env::split_paths(&path).map(|dir| Path::new(".").join(dir).join(program)).collect()
    };
    let executable = |p: &&PathBuf| p.is_file() && rustix::fs::access(*p, Access::EXEC_OK).is_ok();
    if let Some(found) = candidates.iter().find(executable) {
        return Ok(found.clone());
    }
    match candidates.iter().find(|p| p.exists()) {
        Some(found) => Err(LaunchError::NotExecutable { program: found.display().to_string() }),
        None => Err(LaunchError::ProgramNotFound { program: program.display().to_string() }),
    }
}

#[cfg(test)]
mod tests {
    use super::super::job::{OnFailure, Output};
    use super::super::outcome::RankStatus;
    use super::*;

    #[test]
    fn wrong_jobs_are_refused_with_one_line_before_anything_starts() {
        let wrong = [
            (Job::new(0).program("true"), "0 ranks are no job: give 1 to 4096"),
            (Job::new(4097).program("true"), "4097 ranks are too many for one host: give 1 to 4096"),
            (Job::new(1), "no program to start: name one"),
            (Job::new(1).program("no-such-program"), "`no-such-program` was not found in PATH"),
            (Job::new(1).program("./no/such/program"), "`./no/such/program` was not found: check the path"),
            (Job::new(1).program("/etc/passwd"), "`/etc/passwd` is not an executable file"),
            (Job::new(1).program("/tmp"), "`/tmp` is not an executable file"),
        ];
        for (job, expected) in wrong {
            let error = job.run().unwrap_err();
            assert!(error.is_wrong_use());
            let text = error.to_string();
            assert!(text.contains(expected) && text.lines().count() == 1, "{text}");
        }
    }

    #[test]
    fn a_program_is_searched_in_path_as_execvp_does() {
        let found = resolve("sh".as_ref(), Some("/nowhere:/bin".into())).unwrap();
        assert_eq!(found, Path::new("/bin/sh"));
        assert!(resolve("sh".as_ref(), Some("/nowhere".into())).is_err());
        assert!(resolve("/bin/sh".as_ref(), Some("/nowhere".into())).is_ok());
        assert!(resolve("sh".as_ref(), None).is_ok());
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
    fn variables_of_the_job_never_replace_the_launchers_own() {
        let script = r#"test "$TICKWIRE_RANK" != 99 && test "$TICKWIRE_SIZE" = 2 && test "$OWN" = yes"#;
        let job = Job::new(2).program("sh").args(["-c", script]).env("TICKWIRE_RANK", "99").env("OWN", "yes");
        assert_eq!(job.output(Output::Inherit).pin(true).run().unwrap().code(), 0);
    }
}
