//! Launchers other than ours, recognised by variables in the environment. If one of them has started this process as one of several ranks,
//! the process is not alone, even if the launcher offers no way to find the others.

use std::ffi::OsString;

use super::error::{BootstrapError, shorten};

/// The variables that a launcher sets for its processes.
struct Launcher {
    name: &'static str,
    /// The variable with the number of this process.
    rank: &'static str,
    /// The variable with the number of processes, if there is one.
    size: Option<&'static str>,
    /// How to ask the launcher for a protocol that we know.
    ask: &'static str,
}

const fn launcher(name: &'static str, rank: &'static str, size: Option<&'static str>, ask: &'static str) -> Launcher {
    Launcher { name, rank, size, ask }
}

/// All launchers that we know. A launcher with a size variable may also set variables of those without one.
const LAUNCHERS: [Launcher; 11] = [
    launcher(
        "mpirun of Open MPI",
        "OMPI_COMM_WORLD_RANK",
        Some("OMPI_COMM_WORLD_SIZE"),
        "use that of Open MPI 4 or later",
    ),
    // A batch script has a SLURM_PROCID too, though srun has not started it. But it has no SLURM_STEP_NUM_TASKS, since it is in no step.
    launcher("srun", "SLURM_PROCID", Some("SLURM_STEP_NUM_TASKS"), "use srun --mpi=pmi2 or --mpi=pmix"),
    launcher("mpiexec (hydra)", "PMI_RANK", Some("PMI_SIZE"), "use it without -pmi-port"),
    launcher("flux run", "FLUX_TASK_RANK", Some("FLUX_JOB_SIZE"), "use flux run -o pmi=simple"),
    launcher("mpirun_rsh of MVAPICH", "MV2_COMM_WORLD_RANK", Some("MV2_COMM_WORLD_SIZE"), "use mpiexec"),
    launcher("jsrun", "JSM_NAMESPACE_RANK", Some("JSM_NAMESPACE_SIZE"), "use prterun"),
    launcher("a launcher with PMIx", "PMIX_RANK", None, "see that it hands on all variables"),
    launcher("a launcher with PMI", "PMI_FD", None, "see that it hands on all variables"),
    launcher("a launcher with PMI", "PMI_RANK", None, "ask it for PMI-1 or PMIx"),
    launcher("mpiexec of PALS", "PALS_RANKID", None, "use mpiexec --pmi=pmix"),
    launcher("aprun", "ALPS_APP_PE", None, "use another launcher"),
];

/// Whether a launcher has started this process.
#[derive(Debug)]
pub(super) enum Started {
    /// No launcher.
    ByNobody,
    /// A launcher, as the only process.
    Alone,
    /// A launcher, as one of several. Holds the error to return if the launcher offers no way to find the others.
    AsOneOfSeveral(BootstrapError),
}

/// Looks for a launcher. `get` stands for the environment.
pub(super) fn look(get: &impl Fn(&str) -> Option<OsString>) -> Started {
    let text = |name: &str| get(name).map(|value| value.to_string_lossy().into_owned());
    let several = |launcher: &Launcher, name: &'static str, found: String| {
        let (launcher, ask) = (launcher.name, launcher.ask);
        Started::AsOneOfSeveral(BootstrapError::Foreign { name, found: shorten(&found), launcher, ask })
    };
    let mut alone = false;
    for launcher in &LAUNCHERS {
        let Some(name) = launcher.size else { continue };
        let (Some(_), Some(size)) = (get(launcher.rank), text(name)) else { continue };
        if size.trim() != "1" {
            return several(launcher, name, size);
        }
        alone = true;
    }
    if alone {
        return Started::Alone;
    }
    let mut without_size = LAUNCHERS.iter().filter(|launcher| launcher.size.is_none());
    let found = without_size.find_map(|launcher| text(launcher.rank).map(|rank| (launcher, rank)));
    found.map_or(Started::ByNobody, |(launcher, rank)| several(launcher, launcher.rank, rank))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn started(pairs: &[(&str, &str)]) -> Started {
        look(&|name: &str| pairs.iter().find(|(k, _)| *k == name).map(|(_, v)| OsString::from(v)))
    }

    #[test]
    fn a_rank_of_another_launcher_is_known_by_the_variable_that_says_so() {
        type Pairs<'a> = &'a [(&'a str, &'a str)];
        let ranks: [(Pairs<'_>, &str, &str); 9] = [
            (
                &[("OMPI_COMM_WORLD_RANK", "0"), ("OMPI_COMM_WORLD_SIZE", "4"), ("PMIX_RANK", "0")],
                "mpirun",
                "SIZE is `4`",
            ),
            (&[("SLURM_PROCID", "1"), ("SLURM_STEP_NUM_TASKS", "2")], "--mpi=pmi2", "SLURM_STEP_NUM_TASKS is `2`"),
            (&[("PMI_RANK", "0"), ("PMI_SIZE", "3"), ("PMI_FD", "7")], "hydra", "PMI_SIZE is `3`"),
            (&[("FLUX_TASK_RANK", "0"), ("FLUX_JOB_SIZE", "8")], "flux", "FLUX_JOB_SIZE is `8`"),
            (&[("PMIX_RANK", "0"), ("PMIX_NAMESPACE", "prterun-1")], "PMIx", "PMIX_RANK is `0`"),
            (&[("PMI_FD", "7")], "PMI", "PMI_FD is `7`"),
            (&[("PALS_RANKID", "3")], "PALS", "PALS_RANKID is `3`"),
            (&[("OMPI_COMM_WORLD_RANK", "0"), ("OMPI_COMM_WORLD_SIZE", "many\nlines")], "mpirun", "many?lines"),
            // A process that was started as a world of one, within a step of several, is not alone.
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
            let Started::AsOneOfSeveral(error) = started(pairs) else { panic!("{pairs:?}") };
            let error = error.to_string();
            assert!(error.contains(launcher) && error.contains(words), "{error}");
            assert!(error.contains("tickwire run") && error.contains("TICKWIRE_SOLO=1"), "{error}");
            assert_eq!(error.lines().count(), 1);
        }
    }

    #[test]
    fn whoever_was_started_alone_is_alone() {
        let by_nobody: [&[(&str, &str)]; 4] = [
            &[],
            // A batch script, and a shell in an allocation.
            &[("SLURM_PROCID", "0"), ("SLURM_NTASKS", "64"), ("SLURM_JOB_ID", "7")],
            &[("SLURM_NTASKS", "64"), ("SLURM_JOB_ID", "7")],
            &[("FLUX_URI", "local:///run/flux")],
        ];
        for pairs in by_nobody {
            assert!(matches!(started(pairs), Started::ByNobody), "{pairs:?}");
        }
        let alone: [&[(&str, &str)]; 2] = [
            &[("OMPI_COMM_WORLD_RANK", "0"), ("OMPI_COMM_WORLD_SIZE", "1"), ("PMIX_RANK", "0")],
            &[("PMI_RANK", "0"), ("PMI_SIZE", "1"), ("PMI_FD", "7")],
        ];
        for pairs in alone {
            assert!(matches!(started(pairs), Started::Alone), "{pairs:?}");
        }
    }
}
