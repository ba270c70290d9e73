//! Errors of libfabric, each in one line that says what to do.

use libfabric_sys as sys;
use thiserror::Error;

/// Why libfabric, or a part of it, cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum OfiError {
    /// The requested tag mode does not exist.
    #[error("{variable}: {words}, and message")]
    TagMode {
        /// The environment variable that requests it.
        variable: &'static str,
        /// Its value, and the modes that exist.
        words: String,
    },
    /// A variable that must hold a number does not.
    #[error("{variable} is {value:?}: give a number")]
    Number {
        /// The variable.
        variable: &'static str,
        /// What it says.
        value: String,
    },
    /// More contexts for one-sided operations than there can be.
    #[error("{asked} contexts for one-sided operations: {most} are the most")]
    Contexts {
        /// How many were asked for.
        asked: usize,
        /// How many there can be.
        most: usize,
    },
    /// The provider cannot do the requested tag mode.
    #[error("provider {provider}: {reason}")]
    Tags {
        /// Which provider.
        provider: String,
        /// What it lacks.
        reason: String,
    },
    /// The library cannot be loaded.
    #[error(
        "libfabric cannot be loaded ({reason}): install it (apt-get install libfabric1, dnf install libfabric), or name \
         its file in TICKWIRE_OFI_LIBRARY"
    )]
    Missing {
        /// What the system said.
        reason: String,
    },
    /// The library is too old.
    #[error("libfabric is version {0}.{1}: install 1.17 or later")]
    Old(u32, u32),
    /// A name that is not a provider's.
    #[error("there is no provider {name:?} here: {found}")]
    Unknown {
        /// The name.
        name: String,
        /// What there is instead, or what to do.
        found: String,
    },
    /// There are candidates, but the choice allows none of them.
    #[error("no provider of libfabric is left: {reasons}")]
    NoneLeft {
        /// Each candidate with its reason.
        reasons: String,
    },
    /// A network interface that no candidate has.
    #[error("provider {provider} does not use the interface {interface:?}: it has {found}")]
    Interface {
        /// The provider.
        provider: String,
        /// The interface that was asked for.
        interface: String,
        /// What there is instead.
        found: String,
    },
    /// Control connections cannot be set up.
    #[error(
        "control connections for provider {provider} cannot be had ({reason}): choose another interface (TICKWIRE_OFI_INTERFACE)"
    )]
    Control {
        /// The provider.
        provider: String,
        /// Why.
        reason: String,
    },
    /// A call that failed.
    #[error("{call} of provider {provider} failed: {words} ({code}){advice}")]
    Call {
        /// The function.
        call: &'static str,
        /// The provider.
        provider: String,
        /// The error's number, positive.
        code: i32,
        /// The error in libfabric's words.
        words: String,
        /// What to do.
        advice: &'static str,
    },
}

/// What to do about an error.
pub(super) fn advice(call: &str, code: i32) -> &'static str {
    let memory = matches!(call, "fi_mr_reg" | "fi_mr_regattr");
    match code {
        sys::FI_ENOMEM | sys::FI_EPERM if memory => ": raise the limit of locked memory (ulimit -l unlimited)",
        sys::FI_ENOMEM => ": free memory, and raise the limit of locked memory (ulimit -l unlimited)",
        sys::FI_EMFILE => ": raise the limit of open files (ulimit -n)",
        sys::FI_EACCES | sys::FI_EPERM => ": give this user access to the device, or exclude the provider",
        sys::FI_EBUSY => ": try again, or exclude the provider",
        sys::FI_ENOSPC => ": make room in /dev/shm",
        sys::FI_EADDRNOTAVAIL | sys::FI_EADDRINUSE => ": choose another interface (TICKWIRE_OFI_INTERFACE)",
        sys::FI_ENODEV | sys::FI_ENETDOWN | sys::FI_ENETUNREACH => ": bring its network interface up, or exclude it",
        sys::FI_ENOSYS => ": exclude the provider, which lacks this",
        _ => ": exclude the provider (TICKWIRE_OFI_PROVIDER_EXCLUDE), or set FI_LOG_LEVEL=warn to see more",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn advice_depends_on_what_failed() {
        assert!(advice("fi_mr_regattr", sys::FI_ENOMEM).contains("ulimit -l"));
        assert!(advice("fi_domain", sys::FI_EMFILE).contains("ulimit -n"));
        assert!(advice("fi_enable", sys::FI_EADDRNOTAVAIL).contains("TICKWIRE_OFI_INTERFACE"));
        assert!(advice("fi_enable", 12345).contains("TICKWIRE_OFI_PROVIDER_EXCLUDE"));
    }
}
