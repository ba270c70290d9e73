//! How a provider requires memory to be registered, and which modes are refused. See fi_mr(3), `mr_mode`.

use crate::ofi::Info;
use crate::ofi::hints::MR_MODE;
use libfabric_sys as sys;

/// The version of libfabric's interface that replaced two fixed modes by separate bits.
const API_MIN: u32 = sys::version(1, 5);
/// The bits that the older mode "basic" stands for.
const BASIC: u64 = sys::FI_MR_VIRT_ADDR | sys::FI_MR_ALLOCATED | sys::FI_MR_PROV_KEY;
/// The bits of the older modes "basic" and "scalable".
const OLD: [u64; 2] = [sys::FI_MR_BASIC as u64, sys::FI_MR_SCALABLE as u64];
/// Modes that are not supported, and why.
const REFUSED: [(u64, &str, &str); 5] = [
    (
        sys::FI_MR_MMU_NOTIFY,
        "FI_MR_MMU_NOTIFY",
        "it must be told when pages of registered memory come and go, which nobody here knows",
    ),
    (
        sys::FI_MR_RMA_EVENT,
        "FI_MR_RMA_EVENT",
        "each region needs a counter before it can be used, and nobody here waits at the target for single operations",
    ),
    (sys::FI_MR_RAW, "FI_MR_RAW", "its keys do not fit into 8 bytes"),
    (sys::FI_MR_HMEM, "FI_MR_HMEM", "it wants to know of each run which device has it"),
    (
        sys::FI_MR_COLLECTIVE,
        "FI_MR_COLLECTIVE",
        "it wants memory of collective operations, which are not its work here",
    ),
];

/// All `mr_mode` bits that exist.
pub(super) const KNOWN: u64 = MR_MODE | {
    let (mut all, mut at) = (0, 0);
    while at < REFUSED.len() {
        all |= REFUSED[at].0;
        at += 1;
    }
    all
};

/// How memory is registered and named.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::ofi) struct MemoryMode {
    /// Peers name bytes by their virtual addresses at the target, not by offsets in the run.
    pub(in crate::ofi) virtual_addresses: bool,
    /// The provider chooses keys.
    pub(in crate::ofi) provider_keys: bool,
    /// Local memory must be registered too.
    pub(in crate::ofi) local: bool,
    /// A region is bound to an endpoint.
    pub(in crate::ofi) endpoint: bool,
    /// The bits that a key may have, where this process chooses it.
    pub(in crate::ofi) key_mask: u64,
}

impl MemoryMode {
    /// The mode of a candidate.
    ///
    /// # Errors
    /// Why it cannot be used, in words.
    pub(in crate::ofi) fn of(info: &Info) -> Result<Self, String> {
        let attr = info.domain_attr();
        Self::new(attr.mr_mode as u64, attr.mr_key_size, info.api_version())
    }

    pub(super) fn new(mr_mode: u64, key_bytes: usize, api: u32) -> Result<Self, String> {
        if api < API_MIN {
            let (major, minor) = (api >> 16, api & 0xFFFF);
            return Err(format!(
                "it speaks version {major}.{minor} of libfabric's interface and one-sided operations need 1.5: install a newer \
                 provider"
            ));
        }
        if let Some((_, name, why)) = REFUSED.iter().find(|(bit, ..)| mr_mode & bit != 0) {
            return Err(format!("it registers memory with {name}: {why}"));
        }
        let [basic, scalable] = OLD.map(|bit| mr_mode & bit != 0);
        if basic && scalable {
            return Err("it registers memory both with FI_MR_BASIC and with FI_MR_SCALABLE".into());
        }
        let mode = if basic { mr_mode | BASIC } else { mr_mode };
        let provider_keys = mode & sys::FI_MR_PROV_KEY != 0;
        if key_bytes == 0 && !provider_keys || key_bytes > size_of::<u64>() {
            return Err(format!("its keys have {key_bytes} bytes, and 1 to 8 are needed"));
        }
        Ok(MemoryMode {
            virtual_addresses: mode & sys::FI_MR_VIRT_ADDR != 0,
            provider_keys,
            local: mode & sys::FI_MR_LOCAL != 0,
            endpoint: mode & sys::FI_MR_ENDPOINT != 0,
            key_mask: u64::MAX >> (64 - 8 * key_bytes.max(1)),
        })
    }

    /// Whether the key of a region that is closed may become that of another one: the provider chooses keys, or there are too few for
    /// random ones.
    pub(super) fn may_repeat_keys(self) -> bool {
        self.provider_keys || self.key_mask < u64::from(u32::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const API: u32 = sys::version(1, 17);

    #[test]
    fn all_ways_that_are_handled_are_told_apart() {
        let bits =
            [sys::FI_MR_LOCAL, sys::FI_MR_VIRT_ADDR, sys::FI_MR_ALLOCATED, sys::FI_MR_PROV_KEY, sys::FI_MR_ENDPOINT];
        for chosen in 0..1u64 << bits.len() {
            let has = |at: usize| chosen >> at & 1 != 0;
            let mr_mode = (0..bits.len()).filter(|&at| has(at)).fold(0, |all, at| all | bits[at]);
            let expected = MemoryMode {
                virtual_addresses: has(1),
                provider_keys: has(3),
                local: has(0),
                endpoint: has(4),
                key_mask: u64::MAX,
            };
            assert_eq!(MemoryMode::new(mr_mode, 8, API), Ok(expected), "{mr_mode:#x}");
        }
    }

    #[test]
    fn basic_and_scalable_are_sets_of_them() {
        let [basic, scalable] = OLD;
        assert_eq!(MemoryMode::new(basic, 8, API), MemoryMode::new(BASIC, 8, API));
        let local = sys::FI_MR_LOCAL;
        assert_eq!(MemoryMode::new(basic | local, 8, API), MemoryMode::new(BASIC | local, 8, API));
        assert_eq!(MemoryMode::new(scalable, 8, API), MemoryMode::new(0, 8, API));
        assert!(MemoryMode::new(basic | scalable, 8, API).unwrap_err().contains("both"));
    }

    #[test]
    fn what_is_not_handled_is_refused_with_its_reason() {
        for (bit, name, why) in REFUSED {
            let words = MemoryMode::new(bit | sys::FI_MR_LOCAL, 8, API).unwrap_err();
            assert!(words.contains(name) && words.contains(why), "{words}");
        }
        let words = MemoryMode::new(0, 8, sys::version(1, 4)).unwrap_err();
        assert!(words.contains("version 1.4") && words.contains("need 1.5"), "{words}");
        assert!(MemoryMode::new(0, 9, API).unwrap_err().contains("9 bytes"));
        assert!(MemoryMode::new(0, 0, API).is_err() && MemoryMode::new(sys::FI_MR_PROV_KEY, 0, API).is_ok());
        assert_eq!(MemoryMode::new(0, 4, API).map(|mode| mode.key_mask), Ok(u64::from(u32::MAX)));
    }
}
