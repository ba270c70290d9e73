//! Windows in a dump: their epochs, the holders of locks, and what one-sided operations wait for.

use crate::words::count;
use std::fmt;

data! {
    /// A window.
    #[derive(Default)]
    pub struct WindowDump {
        /// The context id of its own communicator.
        pub comm: u32,
        /// The context word of that communicator: the same on all members.
        pub context: u32,
        /// Bytes of this rank's part.
        pub bytes: u64,
        /// What makes updates atomic, as text.
        pub domain: String,
        /// Epochs that are open on this rank, as text.
        pub epochs: Vec<String>,
        /// The members that hold the lock of this rank's part.
        pub holders: Vec<HolderDump>,
        /// The member that holds the update lock of this rank's part.
        #[serde(default)]
        pub update_holder: Option<HolderDump>,
        /// The lock that a call of this rank waits for.
        pub awaited: Option<LockDump>,
        /// Operations that wait for a target's engine, by target.
        pub pending: Vec<PendingDump>,
        /// Operations that wait for a fabric, by target.
        #[serde(default)]
        pub by_fabric: Vec<PendingDump>,
    }

    /// A region that is exposed.
    #[derive(Default)]
    pub struct RegionDump {
        /// Its number.
        pub number: u32,
        /// Its bytes.
        pub bytes: u64,
        /// What others may do with it, as text.
        pub access: String,
        /// What makes updates of it atomic, as text.
        pub domain: String,
    }

    /// A member that holds a lock.
    #[derive(Copy, Default)]
    pub struct HolderDump {
        /// Its rank in the window.
        pub rank: u32,
        /// Its proc.
        pub proc: u32,
        /// Whether the lock is exclusive.
        pub exclusive: bool,
    }

    /// A lock that is waited for.
    #[derive(Default)]
    pub struct LockDump {
        /// The rank in the window whose part the lock protects.
        pub rank: u32,
        /// The proc of that rank.
        pub proc: u32,
        /// The holders of the lock, if they are known.
        pub holders: Vec<HolderDump>,
    }

    /// Operations that are to be done at a target.
    #[derive(Copy, Default)]
    pub struct PendingDump {
        /// The target's rank in the window.
        pub rank: u32,
        /// Its proc.
        pub proc: u32,
        /// Number of operations.
        pub operations: u64,
    }
}

impl fmt::Display for HolderDump {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "rank {} ({})", self.rank, if self.exclusive { "alone" } else { "shared" })
    }
}

impl fmt::Display for RegionDump {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let RegionDump { number, bytes, access, domain } = self;
        write!(f, "region {number}: {}, for others to {access}", count(*bytes, "byte", "bytes"))?;
        if access.contains("update") { write!(f, ", by {domain}") } else { Ok(()) }
    }
}

impl WindowDump {
    /// One of the words in `epochs`: this rank has started an access epoch.
    pub const ACCESS: &str = "an access epoch started";
    /// One of the words in `epochs`: this rank has posted an exposure epoch.
    pub const EXPOSURE: &str = "an exposure epoch posted";

    /// Whether an epoch is open, by its words.
    pub(crate) fn has_epoch(&self, words: &str) -> bool {
        self.epochs.iter().any(|open| open == words)
    }

    /// Its name. The window of the world's communicator stands for the memory regions that all procs have exposed.
    pub(crate) fn name(&self) -> String {
        if self.comm == 0 { "exposed memory".to_owned() } else { format!("window {}", self.comm) }
    }

    /// The window as text.
    pub(super) fn in_words(&self) -> String {
        let WindowDump { comm, bytes, domain, epochs, holders, update_holder, awaited, pending, by_fabric, .. } = self;
        let mut words = match comm {
            0 => self.name(),
            _ => format!(
                "{}: {} here, updates by {domain}; {}",
                self.name(),
                count(*bytes, "byte", "bytes"),
                if epochs.is_empty() { "no epoch".to_owned() } else { listed(epochs) }
            ),
        };
        if !holders.is_empty() {
            words += &format!("; its lock is held by {}", listed(holders));
        }
        if let Some(HolderDump { rank, .. }) = update_holder {
            words += &format!("; rank {rank} is updating it");
        }
        if let Some(LockDump { rank, holders, .. }) = awaited {
            words += &format!("; waits for the lock of rank {rank}");
            if !holders.is_empty() {
                words += &format!(", held by {}", listed(holders));
            }
        }
        for PendingDump { rank, operations, .. } in pending {
            let operations = count(*operations, "operation", "operations");
            words += &format!("; {operations} to be done by rank {rank}'s engine");
        }
        for PendingDump { rank, operations, .. } in by_fabric {
            let operations = count(*operations, "operation", "operations");
            words += &format!("; {operations} to be done by the fabric at rank {rank}");
        }
        words
    }
}

/// A list as text.
fn listed<T: ToString>(items: &[T]) -> String {
    let words: Vec<String> = items.iter().map(ToString::to_string).collect();
    words.join(", ")
}
