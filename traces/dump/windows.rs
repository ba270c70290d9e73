//! Windows in a dump: epochs, who holds the lock of a part, and what one-sided operations wait for.

use super::Dump;
use crate::words::count;
use std::fmt;

data! {
    /// A window.
    #[derive(Default)]
    pub struct WindowDump {
        /// The context id of its own communicator.
        pub comm: u32,
        /// The context word of that: the same on all members.
        pub context: u32,
        /// Bytes of the own part.
        pub bytes: u64,
        /// Who makes updates atomic, in words.
        pub domain: String,
        /// Epochs that are open here, in words.
        pub epochs: Vec<String>,
        /// Who holds the lock of the own part.
        pub holders: Vec<HolderDump>,
        /// The lock that a call here waits for.
        pub awaited: Option<LockDump>,
        /// Operations that a target's engine is to do, by target.
        pub pending: Vec<PendingDump>,
        /// Operations that a fabric is to do, by target.
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
        /// What others may do with it, in words.
        pub access: String,
        /// Who makes updates of it atomic, in words.
        pub domain: String,
    }

    /// A member that holds a lock.
    #[derive(Copy, Default)]
    pub struct HolderDump {
        /// Its rank in the window.
        pub rank: u32,
        /// Its proc.
        pub proc: u32,
        /// Whether it holds it alone.
        pub exclusive: bool,
    }

    /// A lock that is waited for.
    #[derive(Default)]
    pub struct LockDump {
        /// The rank in the window whose part it is of.
        pub rank: u32,
        /// The proc of that.
        pub proc: u32,
        /// Who holds it, if that can be seen.
        pub holders: Vec<HolderDump>,
    }

    /// Operations that are to be done at a target.
    #[derive(Copy, Default)]
    pub struct PendingDump {
        /// The target's rank in the window.
        pub rank: u32,
        /// Its proc.
        pub proc: u32,
        /// How many.
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
    /// What it is called: the window of the world's communicator is what all procs have exposed.
    pub(crate) fn name(&self) -> String {
        if self.comm == 0 { "exposed memory".to_owned() } else { format!("window {}", self.comm) }
    }
}

/// A list in words.
fn listed<T: ToString>(items: &[T]) -> String {
    let words: Vec<String> = items.iter().map(ToString::to_string).collect();
    words.join(", ")
}

impl Dump {
    /// A window in words.
    pub(super) fn window(&self, window: &WindowDump) -> String {
        let WindowDump { comm, bytes, domain, epochs, holders, awaited, pending, by_fabric, .. } = window;
        let mut words = match comm {
            0 => window.name(),
            _ => format!(
                "{}: {} here, updates by {domain}; {}",
                window.name(),
                count(*bytes, "byte", "bytes"),
                if epochs.is_empty() { "no epoch".to_owned() } else { listed(epochs) }
            ),
        };
        if !holders.is_empty() {
            words += &format!("; its lock is held by {}", listed(holders));
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
