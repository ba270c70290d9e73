//! Which launcher has started this process, and which protocol it speaks.

use super::error::{BootstrapError, shorten};
use super::foreign::{Started, look};
use super::place::{ENV_BOOTSTRAP, ENV_SOLO, Place, number, patience};
use super::pmi::{self, PmiPlace};
use super::pmix;
use std::ffi::OsString;
use std::os::fd::RawFd;
use std::time::Duration;
use tickwire_components::limits::PROCS_MAX;

/// How this process finds the other ranks.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Way {
    /// There are no other ranks.
    Alone,
    /// Through our own launcher.
    Own(Place),
    /// Through a launcher that speaks PMIx.
    Pmix(Duration),
    /// Through a launcher that speaks PMI-1.
    Pmi(PmiPlace),
}

/// Variables that launchers other than ours set only for their own processes. `tickwire run` removes them for its ranks, which do not
/// belong to that job.
pub(crate) const OF_OTHERS: [&str; 7] = [
    pmi::ENV_FD,
    pmi::ENV_RANK,
    pmi::ENV_SIZE,
    pmix::ENV_NAMESPACE,
    "PMIX_RANK",
    "OMPI_COMM_WORLD_RANK",
    "OMPI_COMM_WORLD_SIZE",
];

/// Reads the environment, for which `get` stands. `is_socket` says whether a descriptor of this process is a socket.
///
/// # Errors
/// A variable has a wrong value, or a launcher has started this process as one of several and offers no way to find the others.
pub(super) fn find(
    get: &impl Fn(&str) -> Option<OsString>,
    is_socket: impl Fn(RawFd) -> bool,
) -> Result<Way, BootstrapError> {
    if get(ENV_SOLO).is_some() && number(get, ENV_SOLO, 0, 1)? == 1 {
        return Ok(Way::Alone);
    }
    if let Some(word) = get(ENV_BOOTSTRAP) {
        return forced(get, &word.to_string_lossy());
    }
    // Our launcher removes these variables for its ranks. So a process that has them was started by another launcher within one of our
    // jobs.
    let is_within = OF_OTHERS.iter().any(|name| get(name).is_some());
    if !is_within && let Some(place) = Place::read(get)? {
        return Ok(Way::Own(place));
    }
    match look(get) {
        Started::Alone if is_within_alone(get, &is_socket) => patience(get).map(Way::Pmix),
        Started::ByNobody | Started::Alone => Ok(Way::Alone),
        Started::AsOneOfSeveral(refusal) => foreign(get, is_socket, refusal),
    }
}

/// Whether a launcher has started this process, ours or another one.
pub(super) fn is_launched(get: &impl Fn(&str) -> Option<OsString>) -> bool {
    get(super::ENV_RANK).is_some() || !matches!(look(get), Started::ByNobody)
}

/// Whether a launcher with PMIx runs within a job of one process: another launcher has started that process, which handed its variables on.
/// PMIx has no variable that says how many ranks there are, so it must be asked.
fn is_within_alone(get: &impl Fn(&str) -> Option<OsString>, is_socket: &impl Fn(RawFd) -> bool) -> bool {
    let Some(namespace) = get(pmix::ENV_NAMESPACE) else { return false };
    // These launchers speak PMIx themselves, and have said that the process is alone.
    let is_own = ["OMPI_COMM_WORLD_SIZE", "JSM_NAMESPACE_SIZE"].iter().any(|name| get(name).is_some())
        || namespace.to_string_lossy().starts_with("slurm.pmix.");
    // An open descriptor belongs to the inner launcher, as in `foreign`.
    let fd = get(pmi::ENV_FD).and_then(|fd| fd.to_str()?.parse().ok());
    !is_own && !fd.is_some_and(is_socket)
}

/// The way that the environment asks for by name.
fn forced(get: &impl Fn(&str) -> Option<OsString>, word: &str) -> Result<Way, BootstrapError> {
    match word {
        "alone" => Ok(Way::Alone),
        "own" => Place::read(get)?
            .map(Way::Own)
            .ok_or(BootstrapError::Missing { name: super::ENV_RANK, present: ENV_BOOTSTRAP }),
        "pmix" if get(pmix::ENV_NAMESPACE).is_some() => patience(get).map(Way::Pmix),
        "pmix" => Err(BootstrapError::Missing { name: pmix::ENV_NAMESPACE, present: ENV_BOOTSTRAP }),
        "pmi" => read_pmi(get, ENV_BOOTSTRAP),
        _ => {
            let expected = "pmix, pmi, own or alone".to_owned();
            Err(BootstrapError::Variable { name: ENV_BOOTSTRAP, found: shorten(word), expected })
        }
    }
}

/// The way through a launcher other than ours. If there are variables of two launchers, one was started within the other. Then a descriptor
/// that is open belongs to the inner one, because launchers close what they inherit.
fn foreign(
    get: &impl Fn(&str) -> Option<OsString>,
    is_socket: impl Fn(RawFd) -> bool,
    refusal: BootstrapError,
) -> Result<Way, BootstrapError> {
    let (has_pmix, has_pmi) = (get(pmix::ENV_NAMESPACE).is_some(), get(pmi::ENV_FD).is_some());
    match (has_pmix, has_pmi) {
        (true, true) => match read_pmi(get, pmi::ENV_FD) {
            Ok(Way::Pmi(place)) if is_socket(place.fd) => Ok(Way::Pmi(place)),
            _ => patience(get).map(Way::Pmix),
        },
        (true, false) => patience(get).map(Way::Pmix),
        (false, true) => read_pmi(get, pmi::ENV_FD),
        (false, false) => Err(refusal),
    }
}

fn read_pmi(get: &impl Fn(&str) -> Option<OsString>, present: &'static str) -> Result<Way, BootstrapError> {
    let names = [pmi::ENV_FD, pmi::ENV_RANK, pmi::ENV_SIZE];
    if let Some(name) = names.into_iter().find(|name| get(name).is_none()) {
        return Err(BootstrapError::Missing { name, present });
    }
    let size = number(get, pmi::ENV_SIZE, 1, PROCS_MAX as u64)?;
    let rank = number(get, pmi::ENV_RANK, 0, size - 1)?;
    let fd = number(get, pmi::ENV_FD, 0, i32::MAX as u64)?;
    Ok(Way::Pmi(PmiPlace { fd: fd as RawFd, rank: rank as u32, size: size as u32, patience: patience(get)? }))
}

#[cfg(test)]
mod tests;
