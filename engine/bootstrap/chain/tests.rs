use super::*;
use crate::bootstrap::{ENV_FD, ENV_JOB, ENV_RANK, ENV_SIZE};

type Pairs<'a> = &'a [(&'static str, &'static str)];

const OWN: Pairs<'static> = &[(ENV_RANK, "2"), (ENV_SIZE, "4"), (ENV_JOB, "job-1-ab"), (ENV_FD, "7")];
const PMI: Pairs<'static> = &[("PMI_RANK", "1"), ("PMI_SIZE", "3"), ("PMI_FD", "9")];
const OMPI: Pairs<'static> = &[("OMPI_COMM_WORLD_RANK", "1"), ("OMPI_COMM_WORLD_SIZE", "4")];
const PMIX: Pairs<'static> = &[("PMIX_RANK", "1"), ("PMIX_NAMESPACE", "prterun-host-1@1")];

fn way(parts: &[Pairs<'_>]) -> Result<Way, BootstrapError> {
    let pairs = parts.concat();
    let get = |name: &str| pairs.iter().find(|(k, _)| *k == name).map(|(_, v)| OsString::from(v));
    find(&get, |fd| fd == 9)
}

fn kind(parts: &[Pairs<'_>]) -> &'static str {
    match way(parts).unwrap() {
        Way::Alone => "alone",
        Way::Own(place) => {
            assert_eq!((place.rank, place.size), (2, 4));
            "own"
        }
        Way::Pmix(_) => "pmix",
        Way::Pmi(place) => {
            assert_eq!((place.fd, place.rank, place.size), (9, 1, 3));
            "pmi"
        }
    }
}

#[test]
fn the_first_launcher_that_is_seen_is_asked() {
    assert_eq!(kind(&[]), "alone");
    assert_eq!(kind(&[PMI]), "pmi");
    assert_eq!(kind(&[OWN]), "own");
    let step = [("SLURM_PROCID", "1"), ("SLURM_STEP_NUM_TASKS", "4")];
    assert_eq!(kind(&[&step, OWN]), "own", "our own launcher was nearer");
    assert_eq!(kind(&[OMPI, PMIX]), "pmix");
    assert_eq!(kind(&[PMIX]), "pmix");
    assert_eq!(kind(&[&[("PMI_RANK", "0"), ("PMI_SIZE", "1"), ("PMI_FD", "9")]]), "alone");
}

#[test]
fn of_a_launcher_within_another_the_inner_one_is_asked() {
    assert_eq!(kind(&[OMPI, PMIX, PMI]), "pmi", "its descriptor is open");
    let closed = [("PMI_RANK", "1"), ("PMI_SIZE", "3"), ("PMI_FD", "8")];
    assert_eq!(kind(&[OMPI, PMIX, &closed]), "pmix");
    // Our launcher removes the variables of the launcher that has started it. So these were set within the job.
    assert_eq!((kind(&[OWN, PMI]), kind(&[OWN, OMPI, PMIX])), ("pmi", "pmix"));
}

/// As in `srun -n 1 --pty bash`, where somebody then starts `prterun -n 4`.
#[test]
fn a_launcher_without_a_size_within_a_job_of_one_process_is_asked() {
    let slurm = [("SLURM_PROCID", "0"), ("SLURM_STEP_NUM_TASKS", "1")];
    let flux = [("FLUX_TASK_RANK", "0"), ("FLUX_JOB_SIZE", "1")];
    let closed = [("PMI_RANK", "0"), ("PMI_SIZE", "1"), ("PMI_FD", "8")];
    for outer in [&slurm[..], &flux, &closed] {
        assert_eq!((kind(&[outer]), kind(&[outer, PMIX])), ("alone", "pmix"), "{outer:?}");
    }
    // These have said themselves that they have started one process.
    let of_slurm = [("PMIX_RANK", "0"), ("PMIX_NAMESPACE", "slurm.pmix.7.0")];
    assert_eq!(kind(&[&slurm, &of_slurm]), "alone");
    assert_eq!(kind(&[&[("OMPI_COMM_WORLD_RANK", "0"), ("OMPI_COMM_WORLD_SIZE", "1")], PMIX]), "alone");
    // The descriptor is open, so mpiexec is the inner one.
    let open = [("PMI_RANK", "0"), ("PMI_SIZE", "1"), ("PMI_FD", "9")];
    assert_eq!(kind(&[PMIX, &open]), "alone");
}

#[test]
fn a_way_can_be_forced_and_then_nothing_else_is_tried() {
    let [alone, own, pmi, pmix, other] = ["alone", "own", "pmi", "pmix", "mpi"].map(|word| [(ENV_BOOTSTRAP, word)]);
    assert_eq!(kind(&[&alone, OWN, PMI]), "alone");
    assert_eq!(kind(&[&own, OWN, PMI]), "own");
    assert_eq!(kind(&[&pmi, OWN, PMI]), "pmi");
    assert_eq!(kind(&[&pmix, OWN, PMI, PMIX]), "pmix");
    let words = |parts: &[Pairs<'_>]| way(parts).unwrap_err().to_string();
    assert!(words(&[&pmi, OWN]).contains("PMI_FD is not"));
    assert!(words(&[&pmix, OWN]).contains("PMIX_NAMESPACE is not"));
    assert!(words(&[&own, PMI]).contains("TICKWIRE_RANK is not"));
    assert!(words(&[&other, PMI]).contains("expected pmix, pmi, own or alone"));
}

#[test]
fn a_rank_of_a_launcher_that_offers_nothing_is_alone_only_if_it_is_told_to_be() {
    assert!(matches!(way(&[OMPI]), Err(BootstrapError::Foreign { name: "OMPI_COMM_WORLD_SIZE", .. })));
    assert!(matches!(way(&[OMPI, &[(ENV_SOLO, "0")]]), Err(BootstrapError::Foreign { .. })));
    assert!(matches!(way(&[&[(ENV_SOLO, "yes")]]), Err(BootstrapError::Variable { name: ENV_SOLO, .. })));
    assert_eq!(kind(&[OMPI, &[(ENV_SOLO, "1")]]), "alone");
    assert_eq!(kind(&[OWN, &[(ENV_SOLO, "1")]]), "alone", "who says so within a rank means it");
}

#[test]
fn wrong_variables_of_pmi_are_named() {
    for (name, value) in [("PMI_RANK", "3"), ("PMI_RANK", "-1"), ("PMI_SIZE", "0"), ("PMI_FD", "x")] {
        let mut pairs: Vec<_> = PMI.iter().copied().filter(|(k, _)| *k != name).collect();
        pairs.push((name, value));
        let error = way(&[&[("PALS_RANKID", "0")], &pairs]).map(|way| panic!("{way:?}")).unwrap_err();
        assert!(matches!(error, BootstrapError::Variable { name: of, .. } if of == name), "{error}");
    }
    assert!(way(&[&[("PMI_FD", "9")]]).unwrap_err().to_string().contains("PMI_RANK is not"));
}

#[test]
fn who_has_a_launcher_is_told_from_who_has_none() {
    let launched = |parts: &[Pairs<'_>]| {
        let pairs = parts.concat();
        is_launched(&|name: &str| pairs.iter().find(|(k, _)| *k == name).map(|(_, v)| OsString::from(v)))
    };
    assert!(launched(&[OWN]) && launched(&[PMI]) && launched(&[OMPI]));
    assert!(launched(&[&[("PMI_RANK", "0"), ("PMI_SIZE", "1"), ("PMI_FD", "9")]]), "even as the only process");
    assert!(!launched(&[]) && !launched(&[&[("SLURM_PROCID", "0"), ("SLURM_NTASKS", "64")]]));
}
