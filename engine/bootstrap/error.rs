//! Why the exchange with the other ranks failed.

use super::wire::{KEY_BYTES_MAX, VALUE_BYTES_MAX};
use std::io;
use std::os::fd::RawFd;
use thiserror::Error;

/// Why the exchange with the other ranks failed.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum BootstrapError {
    /// A variable has a value that the launcher does not write.
    #[error("{name} is `{found}`: expected {expected}; start the program with `tickwire run`, or unset {name}")]
    Variable {
        /// The variable.
        name: &'static str,
        /// Its value.
        found: String,
        /// The values that it may have.
        expected: String,
    },
    /// Some of the launcher's variables are set, but not all.
    #[error("{present} is set but {name} is not: start the program with `tickwire run`, or unset {present}")]
    Missing {
        /// The variable that is not set.
        name: &'static str,
        /// One of the variables that is set.
        present: &'static str,
    },
    /// Another launcher has started this process as one of several ranks.
    #[error(
        "{name} is `{found}`: {launcher} has started this process as a rank, but offers neither PMIx nor PMI-1 to find \
         the others; {ask}, start the program with `tickwire run`, or set TICKWIRE_SOLO=1 if each process is to be a \
         world of its own"
    )]
    Foreign {
        /// The variable that shows this.
        name: &'static str,
        /// Its value.
        found: String,
        /// The launcher.
        launcher: &'static str,
        /// How to ask the launcher for one of these protocols.
        ask: &'static str,
    },
    /// A launcher that has started this process does not do what it should.
    #[error("{launcher}: {reason}")]
    Launcher {
        /// The launcher and its protocol.
        launcher: &'static str,
        /// What is wrong, and what to do.
        reason: String,
    },
    /// The launcher's connection serves one engine only.
    #[error(
        "the launcher's connection was already taken by an earlier Bootstrap::from_env in this process: call it once \
         and keep what it returns"
    )]
    Taken,
    /// The inherited descriptor is not the launcher's socket.
    #[error(
        "{variable} is {fd}, but that descriptor {found}: the program that the launcher starts must pass it on; \
         unset {variable} for a process that is no rank"
    )]
    Descriptor {
        /// The variable that has the descriptor's number.
        variable: &'static str,
        /// The descriptor's number.
        fd: RawFd,
        /// What was found instead.
        found: String,
    },
    /// The launcher is gone.
    #[error("the launcher has ended: nothing more can be exchanged")]
    LauncherEnded,
    /// No answer came in time.
    #[error(
        "{operation} had no answer for {ms} ms: a rank does not come or the launcher is stopped; set \
         TICKWIRE_FENCE_MS to wait longer"
    )]
    Timeout {
        /// The operation that waited.
        operation: &'static str,
        /// How long, ms.
        ms: u64,
    },
    /// An earlier request failed half-way, so that answers can no longer be assigned to requests.
    #[error("an earlier request to the launcher failed: this connection can no longer be used")]
    Broken,
    /// The peer sent bytes that are not of the protocol.
    #[error("the launcher sent {0}: use the launcher and the library of the same version")]
    Protocol(&'static str),
    /// The launcher refused a request.
    #[error("the launcher refused: {0}")]
    Refused(String),
    /// A key is empty or too long.
    #[error("a key of {bytes} bytes: give 1 to {KEY_BYTES_MAX}")]
    Key {
        /// The key's length.
        bytes: usize,
    },
    /// A value is too long.
    #[error("a value of {bytes} bytes: give at most {VALUE_BYTES_MAX}")]
    Value {
        /// The value's length.
        bytes: usize,
    },
    /// There is no such rank.
    #[error("rank {rank} of a job of {size}: give a rank below {size}")]
    Rank {
        /// The rank asked for.
        rank: u32,
        /// Ranks in the job.
        size: u32,
    },
    /// This rank has announced its end.
    #[error("this rank has finished: it can no longer put values or reach a fence")]
    Finished,
    /// The first rank of a host has no room for connections to the others.
    #[error(
        "connections between the {ranks} ranks of this host: {source}; raise the limit of open files with `ulimit -n`"
    )]
    Files {
        /// Ranks of the host.
        ranks: usize,
        /// The system's answer.
        source: io::Error,
    },
    /// The system refused.
    #[error("{operation}: {source}")]
    System {
        /// What was tried.
        operation: &'static str,
        /// The system's answer.
        source: io::Error,
    },
    /// For exchanges that the application provides.
    #[error("{0}")]
    Custom(String),
}

/// Shortens a text, so that an error message stays one readable line, whatever the environment holds.
pub(super) fn shorten(text: &str) -> String {
    let mut short: String = text.chars().take(64).map(|c| if c.is_control() { '?' } else { c }).collect();
    if short.len() < text.len() {
        short.push('…');
    }
    short
}
