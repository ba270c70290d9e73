//! Which launcher has started this process, and how it is spoken to.

use super::error::{BootstrapError, shorten};
use super::foreign::{Started, look};
use super::place::{ENV_BOOTSTRAP, ENV_SOLO, Place, number, patience};
use super::pmi::{self, PmiPlace};
use super::pmix;
use std::ffi::OsString;
use std::os::fd::RawFd;
use std::time::Duration;
use tickwire_components::limits::PROCS_MAX;

/// How to find the other ranks.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Way {
    /// There are none.
    Alone,
    /// Through our own launcher.
    Own(Place),
    /// Through a launcher that speaks PMIx.
    Pmix(Duration),
    /// Through a launcher that speaks PMI-1.
    Pmi(PmiPlace),
}

/// What launchers of others say to their processes alone. `tickwire run` does not hand it on to its ranks: they are not of that job.
pub(crate) const OF_OTHERS: [&str; 7] = [
    pmi::ENV_FD,
    pmi::ENV_RANK,
    pmi::ENV_SIZE,
    pmix::ENV_NAMESPACE,
    "PMIX_RANK",
    "OMPI_COMM_WORLD_RANK",
    "OMPI_COMM_WORLD_SIZE",
];

/// Looks at the environment, for which `get` stands. `is_socket` says whether a descriptor of this process is one.
///
/// # Errors
/// What is wrong with a variable; or a launcher has started this process as one of several, and there is no way to find the others.
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
    // Our launcher takes these from its ranks: who has them was started by a launcher within one of our jobs.
    let is_within = OF_OTHERS.iter().any(|name| get(name).is_some());
    if !is_within && let Some(place) = Place::read(get)? {
        return Ok(Way::Own(place));
    }
    match look(get) {
        Started::ByNobody | Started::Alone => Ok(Way::Alone),
        Started::AsOneOfSeveral(refusal) => foreign(get, is_socket, refusal),
    }
}

/// Whether a launcher has started this process, ours or another.
pub(super) fn is_launched(get: &impl Fn(&str) -> Option<OsString>) -> bool {
    get(super::ENV_RANK).is_some() || !matches!(look(get), Started::ByNobody)
}

/// The way that the environment asks for.
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

/// A launcher of others. Where variables of two are seen, one was started within the other: then a descriptor that is open is the inner
/// one's, because launchers close what they have inherited.
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
