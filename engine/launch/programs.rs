//! The programs of a job: the file of each, the directory in which it starts, and its variables.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use rustix::fs::Access;

use super::error::LaunchError;

/// A program that some ranks of a job run.
#[derive(Clone, Debug, Default)]
pub(super) struct Program {
    /// The number of ranks that run it.
    pub(super) ranks: u32,
    /// The name as it was given: a path, or a name that is searched in PATH.
    pub(super) name: OsString,
    pub(super) args: Vec<OsString>,
    pub(super) env: Vec<(OsString, OsString)>,
    /// `None` stands for the launcher's directory.
    pub(super) directory: Option<PathBuf>,
}

impl Program {
    /// The value that a variable has in the ranks' environment.
    pub(super) fn variable(&self, name: &str) -> Option<OsString> {
        self.own_variable(name).map(OsStr::to_owned).or_else(|| std::env::var_os(name))
    }

    /// The value that was given to a variable for this program.
    pub(super) fn own_variable(&self, name: &str) -> Option<&OsStr> {
        self.env.iter().rev().find(|(own, _)| own == name).map(|(_, value)| value.as_os_str())
    }

    /// Checks the program, and returns the file to start.
    pub(super) fn check(&self) -> Result<PathBuf, LaunchError> {
        if self.ranks == 0 {
            return Err(LaunchError::NoRanks);
        }
        for (name, value) in &self.env {
            let (name, value) = (name.as_encoded_bytes(), value.as_encoded_bytes());
            if name.is_empty() || name.contains(&b'=') || [name, value].concat().contains(&0) {
                return Err(LaunchError::Variable { name: String::from_utf8_lossy(name).into_owned() });
            }
        }
        let Some(directory) = &self.directory else {
            return resolve(&self.name, std::env::var_os("PATH"), Path::new("."));
        };
        let failed = |source| LaunchError::Directory { path: directory.display().to_string(), source };
        // Ranks start in this directory, so relative paths start there. The path must be absolute to mean the same file in this process.
        let directory = std::path::absolute(directory).map_err(failed)?;
        if !directory.metadata().map_err(failed)?.is_dir() {
            return Err(failed(std::io::ErrorKind::NotADirectory.into()));
        }
        rustix::fs::access(&directory, Access::EXEC_OK).map_err(|error| failed(error.into()))?;
        resolve(&self.name, std::env::var_os("PATH"), &directory)
    }
}

/// The file that `execvp` would start from a directory. Checked in advance, so that a wrong name gives one message before anything starts.
fn resolve(program: &OsStr, path: Option<OsString>, directory: &Path) -> Result<PathBuf, LaunchError> {
    if program.is_empty() {
        return Err(LaunchError::NoProgram);
    }
    let candidates: Vec<PathBuf> = if program.as_encoded_bytes().contains(&b'/') {
        vec![directory.join(program)]
    } else {
        let path = path.unwrap_or_else(|| "/usr/local/bin:/usr/bin:/bin".into());
        // An empty entry means the current directory. Joined with the directory, its name has a slash, and is not searched in PATH again.
        std::env::split_paths(&path).map(|entry| directory.join(entry).join(program)).collect()
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
    use super::*;

    fn found(program: &str, path: Option<&str>, directory: &str) -> Result<PathBuf, LaunchError> {
        resolve(program.as_ref(), path.map(Into::into), Path::new(directory))
    }

    #[test]
    fn a_program_is_searched_in_path_as_execvp_does() {
        assert_eq!(found("sh", Some("/nowhere:/bin"), ".").unwrap(), Path::new("/bin/sh"));
        assert!(found("sh", Some("/nowhere"), ".").is_err());
        assert!(found("/bin/sh", Some("/nowhere"), ".").is_ok());
        assert!(found("sh", None, ".").is_ok());
    }

    #[test]
    fn a_relative_path_is_one_from_the_working_directory() {
        assert_eq!(found("./sh", None, "/bin").unwrap(), Path::new("/bin/./sh"));
        assert_eq!(found("sh", Some(""), "/bin").unwrap(), Path::new("/bin/sh"));
        assert_eq!(found("sh", Some("bin"), "/").unwrap(), Path::new("/bin/sh"));
        assert!(found("./sh", None, "/").is_err());
    }

    #[test]
    fn wrong_variables_and_directories_are_told() {
        let program = |env: &[(&str, &str)], directory: Option<&str>| Program {
            ranks: 1,
            name: "sh".into(),
            env: env.iter().map(|&(name, value)| (name.into(), value.into())).collect(),
            directory: directory.map(Into::into),
            ..Program::default()
        };
        assert!(program(&[("A", ""), ("B", "=")], Some("/")).check().is_ok());
        for name in ["", "A=B", "A\0"] {
            assert!(matches!(program(&[(name, "1")], None).check(), Err(LaunchError::Variable { .. })), "{name:?}");
        }
        assert!(matches!(program(&[("A", "\0")], None).check(), Err(LaunchError::Variable { .. })));
        for directory in ["/no/such/place", "/etc/passwd", ""] {
            let error = program(&[], Some(directory)).check().unwrap_err();
            assert!(matches!(error, LaunchError::Directory { .. }) && error.is_wrong_use(), "{error}");
        }
    }
}
