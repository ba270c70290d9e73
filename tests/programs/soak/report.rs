//! The report of a rank at its end, and the messages between ranks and job before: files in the job's directory.

use rustix::time::{ClockId, clock_gettime};
use serde_json::{Value, json};
use std::path::Path;

/// The report of a rank.
#[derive(Clone, Debug, Default)]
pub(crate) struct Report {
    /// Number of messages that it has received, and their bytes.
    pub(crate) messages: u64,
    pub(crate) bytes: u64,
    /// Peers that have failed, with the reasons.
    pub(crate) failed: Vec<(u32, String)>,
    /// Why its engine could not be built, if it could not.
    pub(crate) unbuilt: Option<String>,
}

impl Report {
    pub(crate) fn write(&self, place: &Path, rank: u32) {
        let Report { messages, bytes, failed, unbuilt } = self;
        let value = json!({ "messages": messages, "bytes": bytes, "failed": failed, "unbuilt": unbuilt });
        put(place, &format!("report-{rank}"), &value.to_string());
    }

    pub(crate) fn read(place: &Path, rank: u32) -> Option<Self> {
        let value: Value = serde_json::from_str(&get(place, &format!("report-{rank}"))?).ok()?;
        let failed = value["failed"].as_array()?.iter();
        let failed = failed.filter_map(|one| Some((one[0].as_u64()? as u32, one[1].as_str()?.to_owned())));
        Some(Report {
            messages: value["messages"].as_u64()?,
            bytes: value["bytes"].as_u64()?,
            failed: failed.collect(),
            unbuilt: value["unbuilt"].as_str().map(str::to_owned),
        })
    }
}

/// Writes a file that is seen only when it is complete.
pub(crate) fn put(place: &Path, name: &str, words: &str) {
    let draft = place.join(format!(".{name}"));
    std::fs::write(&draft, words).unwrap_or_else(|error| panic!("{name} cannot be written: {error}"));
    std::fs::rename(draft, place.join(name)).unwrap_or_else(|error| panic!("{name} cannot be written: {error}"));
}

/// Reads a file of [`put`], if it is there.
pub(crate) fn get(place: &Path, name: &str) -> Option<String> {
    std::fs::read_to_string(place.join(name)).ok()
}

/// A clock that all processes of this host share, ms.
pub(crate) fn now_ms() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec as u64 * 1000 + now.tv_nsec as u64 / 1_000_000
}
