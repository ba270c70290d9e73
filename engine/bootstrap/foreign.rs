//! Launchers that are not ours. A process that one of them has started as one of several ranks is not alone, though there is
//! nobody yet who could tell it of the others.

use std::ffi::OsString;

use super::error::{BootstrapError, shorten};

/// What a launcher says in the environment of a process.
struct Launcher {
    name: &'static str,
    /// The variable with the number of this process.
    rank: &'static str,
    /// The variable with the number of processes, if there is one.
    size: Option<&'static str>,
}

const fn launcher(name: &'static str, rank: &'static str, size: Option<&'static str>) -> Launcher {
    Launcher { name, rank, size }
}

/// All launchers that are known. One with a size may speak to a process in the ways of those without too.
const LAUNCHERS: [Launcher; 11] = [
    launcher("mpirun of Open MPI", "OMPI_COMM_WORLD_RANK", Some("OMPI_COMM_WORLD_SIZE")),
    // A batch script has a number too, though srun has not started it: it is in no step.
    launcher("srun", "SLURM_PROCID", Some("SLURM_STEP_NUM_TASKS")),
    launcher("mpiexec (hydra)", "PMI_RANK", Some("PMI_SIZE")),
    launcher("flux run", "FLUX_TASK_RANK", Some("FLUX_JOB_SIZE")),
    launcher("mpirun_rsh of MVAPICH", "MV2_COMM_WORLD_RANK", Some("MV2_COMM_WORLD_SIZE")),
    launcher("jsrun", "JSM_NAMESPACE_RANK", Some("JSM_NAMESPACE_SIZE")),
    launcher("a launcher with PMIx", "PMIX_RANK", None),
    launcher("a launcher with PMI", "PMI_FD", None),
    launcher("a launcher with PMI", "PMI_RANK", None),
    launcher("mpiexec of PALS", "PALS_RANKID", None),
    launcher("aprun", "ALPS_APP_PE", None),
];

/// Refuses if another launcher has started this process, unless as the only one. `get` stands for the environment.
///
/// # Errors
/// [`BootstrapError::Foreign`] with the variable that says so.
pub(super) fn refuse(get: impl Fn(&str) -> Option<OsString>) -> Result<(), BootstrapError> {
    let text = |name: &str| get(name).map(|value| value.to_string_lossy().into_owned());
    let foreign = |launcher: &Launcher, name: &'static str, found: String| {
        Err(BootstrapError::Foreign { name, found: shorten(&found), launcher: launcher.name })
    };
    let mut alone = false;
    for launcher in &LAUNCHERS {
        let Some(name) = launcher.size else { continue };
        let (Some(_), Some(size)) = (get(launcher.rank), text(name)) else { continue };
        if size.trim() != "1" {
            return foreign(launcher, name, size);
        }
        alone = true;
    }
    if alone {
        return Ok(());
    }
    let mut without_size = LAUNCHERS.iter().filter(|launcher| launcher.size.is_none());
    let found = without_size.find_map(|launcher| text(launcher.rank).map(|rank| (launcher, rank)));
    found.map_or(Ok(()), |(launcher, rank)| foreign(launcher, launcher.rank, rank))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn look(pairs: &[(&str, &str)]) -> Result<(), BootstrapError> {
        refuse(|name| pairs.iter().find(|(k, _)| *k == name).map(|(_, v)| OsString::from(v)))
    }

    #[test]
    fn a_rank_of_another_launcher_is_refused_by_the_variable_that_says_so() {
        type Pairs<'a> = &'a [(&'a str, &'a str)];
        let ranks: [(Pairs<'_>, &str, &str); 9] = [
            (
                &[("OMPI_COMM_WORLD_RANK", "0"), ("OMPI_COMM_WORLD_SIZE", "4"), ("PMIX_RANK", "0")],
                "mpirun",
                "SIZE is `4`",
            ),
            (&[("SLURM_PROCID", "1"), ("SLURM_STEP_NUM_TASKS", "2")], "srun", "SLURM_STEP_NUM_TASKS is `2`"),
            (&[("PMI_RANK", "0"), ("PMI_SIZE", "3"), ("PMI_FD", "7")], "hydra", "PMI_SIZE is `3`"),
            (&[("FLUX_TASK_RANK", "0"), ("FLUX_JOB_SIZE", "8")], "flux", "FLUX_JOB_SIZE is `8`"),
            (&[("PMIX_RANK", "0"), ("PMIX_NAMESPACE", "prterun-1")], "PMIx", "PMIX_RANK is `0`"),
            (&[("PMI_FD", "7")], "PMI", "PMI_FD is `7`"),
            (&[("PALS_RANKID", "3")], "PALS", "PALS_RANKID is `3`"),
            (&[("OMPI_COMM_WORLD_RANK", "0"), ("OMPI_COMM_WORLD_SIZE", "many\nlines")], "mpirun", "many?lines"),
            // A world of one within a step of several is not one.
            (
                &[
                    ("SLURM_PROCID", "0"),
                    ("SLURM_STEP_NUM_TASKS", "2"),
                    ("OMPI_COMM_WORLD_RANK", "0"),
                    ("OMPI_COMM_WORLD_SIZE", "1"),
                ],
                "srun",
                "SLURM_STEP_NUM_TASKS is `2`",
            ),
        ];
        for (pairs, launcher, words) in ranks {
            let error = look(pairs).unwrap_err().to_string();
            assert!(error.contains(launcher) && error.contains(words), "{error}");
            assert!(error.contains("tickwire run") && error.contains("TICKWIRE_SOLO=1"), "{error}");
            assert_eq!(error.lines().count(), 1);
        }
    }

    #[test]
    fn whoever_was_started_alone_is_alone() {
        let alone: [&[(&str, &str)]; 6] = [
            &[],
            &[("OMPI_COMM_WORLD_RANK", "0"), ("OMPI_COMM_WORLD_SIZE", "1"), ("PMIX_RANK", "0")],
            &[("PMI_RANK", "0"), ("PMI_SIZE", "1"), ("PMI_FD", "7")],
            // A batch script, and a shell in an allocation.
            &[("SLURM_PROCID", "0"), ("SLURM_NTASKS", "64"), ("SLURM_JOB_ID", "7")],
            &[("SLURM_NTASKS", "64"), ("SLURM_JOB_ID", "7")],
            &[("FLUX_URI", "local:///run/flux")],
        ];
        for pairs in alone {
            assert!(look(pairs).is_ok(), "{pairs:?}");
        }
    }
}
