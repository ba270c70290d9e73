//! Which providers libfabric has on this machine, and which of them would be used.

use std::fmt;

use serde::Serialize;
use tickwire::internals::transports::ofi::{Candidate, Choice, Library, Verdict, message_hints};

/// libfabric as it was found.
#[derive(Serialize)]
pub(super) struct Fabric {
    version: Option<String>,
    /// Why libfabric cannot be used, and what to do.
    missing: Option<String>,
    /// In libfabric's order, the fastest first.
    candidates: Vec<Found>,
}

#[derive(Serialize)]
struct Found {
    provider: String,
    device: String,
    address: Option<String>,
    taken: bool,
    reason: String,
}

impl Fabric {
    /// Loads the library and asks it for providers, with the choice that the environment makes.
    pub(super) fn gather() -> Self {
        let none = |version, missing: String| Fabric { version, missing: Some(missing), candidates: Vec::new() };
        let library = match Library::get() {
            Ok(library) => library,
            Err(error) => return none(None, error.to_string()),
        };
        let (major, minor) = library.version();
        let version = Some(format!("{major}.{minor}"));
        let choice = match Choice::default().or_environment() {
            Ok(choice) => choice,
            Err(error) => return none(version, error.to_string()),
        };
        let hints = message_hints();
        let candidates = match choice.survey(&library, &hints) {
            Ok(candidates) => candidates,
            Err(error) => return none(version, error.to_string()),
        };
        let found = candidates.iter().map(found).collect();
        // Nothing may be taken: the environment may name providers that are not there.
        let missing = choice.take(candidates).err().map(|error| error.to_string());
        Fabric { version, missing, candidates: found }
    }
}

fn found(candidate: &Candidate) -> Found {
    let (taken, reason) = match &candidate.verdict {
        Verdict::Taken(why) => (true, why.clone()),
        Verdict::Left(why) => (false, why.clone()),
    };
    let address = candidate.info.as_ref().and_then(|info| info.ip()).map(|address| address.to_string());
    Found { provider: candidate.provider.clone(), device: candidate.device.clone(), address, taken, reason }
}

impl fmt::Display for Fabric {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(version) = &self.version {
            writeln!(f, "libfabric {version}")?;
        }
        if !self.candidates.is_empty() {
            let rows = self.candidates.iter().map(|found| {
                let taken = if found.taken { "yes" } else { "no" };
                let address = found.address.clone().unwrap_or_default();
                [found.provider.clone(), found.device.clone(), address, taken.into(), found.reason.clone()]
            });
            let header = ["provider", "device", "address", "taken", "because"];
            writeln!(f, "{}", super::table(header, [false; 5], rows))?;
        }
        match &self.missing {
            Some(missing) => writeln!(f, "transport ofi is not available: {missing}"),
            None => Ok(()),
        }
    }
}
