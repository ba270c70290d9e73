//! Which of libfabric's candidates are used, and why the others are not.

use super::interfaces::is_near;
use super::tags::TagMode;
use super::{Hints, Info, Library, OfiError};
use libfabric_sys as sys;
use std::collections::BTreeSet;
use std::ptr::null;
use tickwire_components::limits::RMA_CONTEXTS_MAX;

/// The variable with the names of the providers to use, separated by commas.
pub const ENV_INCLUDE: &str = "TICKWIRE_OFI_PROVIDER_INCLUDE";
/// The variable with the names of the providers not to use, separated by commas.
pub const ENV_EXCLUDE: &str = "TICKWIRE_OFI_PROVIDER_EXCLUDE";
/// The variable with the network interface to use.
pub const ENV_INTERFACE: &str = "TICKWIRE_OFI_INTERFACE";
/// If this variable is set, and neither empty nor 0, completion queues get no file descriptor to sleep on.
pub const ENV_POLL: &str = "TICKWIRE_OFI_POLL";
/// If this variable is set, and neither empty nor 0, local memory is registered even if the provider does not require it.
pub const ENV_REGISTER: &str = "TICKWIRE_OFI_REGISTER";
/// The variable with the number of peers that may write short frames into rings.
pub const ENV_RINGS: &str = "TICKWIRE_OFI_RINGS";
/// The variable with the number of contexts for one-sided operations.
pub const ENV_CONTEXTS: &str = "TICKWIRE_OFI_CONTEXTS";
/// If this variable is set, and neither empty nor 0, a thread of the provider may progress one-sided operations.
pub const ENV_THREAD: &str = "TICKWIRE_OFI_THREAD";
/// The variable with the tag mode: `auto`, `ofi_tag_1`, `ofi_tag_2` or `ofi_tag_full`; `message` for message mode.
pub const ENV_TAG_MODE: &str = "TICKWIRE_OFI_TAG_MODE";
/// If this variable is set, and neither empty nor 0, CQ data is not used.
pub const ENV_WITHOUT_DATA: &str = "TICKWIRE_OFI_WITHOUT_CQ_DATA";

/// Which providers a user wants, and how they are used.
///
/// A name is a provider's full name, such as `tcp;ofi_rxm`, or that of one of its layers: `tcp`, `ofi_rxm`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Choice {
    /// Only these providers are used. If empty, all may be.
    pub include: Vec<String>,
    /// These providers are not used.
    pub exclude: Vec<String>,
    /// Only this network interface or device (the name of the domain).
    pub interface: Option<String>,
    /// How many candidates to use; each gets one endpoint.
    pub devices: usize,
    /// Tagged mode: how envelopes fit into tags. `None` for message mode, unless the environment says otherwise.
    pub tags: Option<TagMode>,
    /// Completion queues get no file descriptor to sleep on: a wait that has been idle for long polls every ms. With a descriptor, the
    /// kernel does more for each message over TCP. Without one, `tcp;ofi_rxm` reads each peer's socket with each poll.
    pub polls: bool,
    /// Local memory is registered even if the provider does not require it (`FI_MR_LOCAL`), for tests and measurements.
    pub registers: bool,
    /// How many peers may exchange short frames with this proc through rings, by remote writes; 0 for none. Both procs must have a ring for
    /// the other. A ring takes 17 KiB. Not used in tagged mode.
    pub rings: usize,
    /// Contexts for one-sided operations, each with a queue of its own, 64 at most; 0 for no one-sided operations. They are opened on first
    /// use. A window uses one of them, chosen by its handle. The number must be the same for all procs. `None` takes it from the
    /// environment, or else 1.
    pub contexts: Option<usize>,
    /// A thread of the provider may progress one-sided operations, if the provider has one. Then peers need not wait for an engine that
    /// computes, but the thread takes processor time from other work.
    pub has_thread: bool,
    /// In tagged mode, a provider is treated as if it had no CQ data, so that `auto` becomes `ofi_tag_1`. Must be the same for all procs.
    pub without_data: bool,
}

impl Default for Choice {
    fn default() -> Self {
        Choice {
            include: Vec::new(),
            exclude: Vec::new(),
            interface: None,
            devices: 1,
            tags: None,
            polls: false,
            registers: false,
            rings: 0,
            contexts: None,
            has_thread: false,
            without_data: false,
        }
    }
}

/// Whether a candidate is used.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// It is used; the text says why.
    Taken(String),
    /// It is not used; the text says why.
    Left(String),
}

/// A candidate with its verdict. Candidates are in libfabric's order.
#[derive(Debug)]
pub struct Candidate {
    /// The candidate as libfabric offers it; `None` if libfabric only names the provider.
    pub info: Option<Info>,
    /// The provider's exact name.
    pub provider: String,
    /// The network interface or device.
    pub device: String,
    /// Whether it is used.
    pub verdict: Verdict,
}

impl Choice {
    /// Adds the settings of the environment where `self` has none. It adds to the excluded providers, and can switch on what `self`
    /// leaves off.
    ///
    /// # Errors
    /// [`OfiError::Number`] if a variable that must hold a number does not; [`OfiError::Contexts`] for too many contexts.
    pub fn or_environment(mut self) -> Result<Self, OfiError> {
        let list = |name: &str| std::env::var(name).map(|value| names(&value)).unwrap_or_default();
        if self.include.is_empty() {
            self.include = list(ENV_INCLUDE);
        }
        self.exclude.extend(list(ENV_EXCLUDE));
        self.interface = self.interface.or_else(|| std::env::var(ENV_INTERFACE).ok().filter(|name| !name.is_empty()));
        let is_set = |name: &str| std::env::var(name).is_ok_and(|word| !word.is_empty() && word != "0");
        self.polls |= is_set(ENV_POLL);
        self.registers |= is_set(ENV_REGISTER);
        let number = |variable: &'static str| {
            let value = std::env::var(variable).ok().filter(|value| !value.is_empty());
            let parsed = value.map(|value| value.parse().map_err(|_| OfiError::Number { variable, value }));
            parsed.transpose()
        };
        let rings = number(ENV_RINGS)?.unwrap_or(0);
        self.rings = if self.rings == 0 { rings } else { self.rings };
        self.contexts = self.contexts.or(number(ENV_CONTEXTS)?);
        self.check()?;
        self.has_thread |= is_set(ENV_THREAD);
        self.without_data |= is_set(ENV_WITHOUT_DATA);
        Ok(self)
    }

    /// Checks the choice.
    ///
    /// # Errors
    /// [`OfiError::Contexts`] for too many contexts.
    pub(super) fn check(&self) -> Result<(), OfiError> {
        match self.contexts() {
            asked if asked > RMA_CONTEXTS_MAX => Err(OfiError::Contexts { asked, most: RMA_CONTEXTS_MAX }),
            _ => Ok(()),
        }
    }

    /// How many contexts there are for one-sided operations.
    pub fn contexts(&self) -> usize {
        self.contexts.unwrap_or(1)
    }

    /// The tag mode, also from the environment; `None` for message mode.
    ///
    /// # Errors
    /// [`OfiError::TagMode`] if the environment names an unknown mode.
    pub fn tag_mode(&self) -> Result<Option<TagMode>, OfiError> {
        let said = match (self.tags, std::env::var(ENV_TAG_MODE)) {
            (None, Ok(said)) if said != "message" && !said.is_empty() => said,
            (chosen, _) => return Ok(chosen),
        };
        let wrong = |words| OfiError::TagMode { variable: ENV_TAG_MODE, words };
        said.parse().map(Some).map_err(wrong)
    }

    /// Lists libfabric's candidates, and decides on each.
    ///
    /// # Errors
    /// [`OfiError::Call`] if libfabric cannot list them.
    pub fn candidates(&self, library: &Library, hints: &Hints) -> Result<Vec<Candidate>, OfiError> {
        let mut infos = Info::list(library, hints)?;
        // Libfabric may list a candidate again with fewer or other attributes. The first entry is the best.
        let mut seen = BTreeSet::new();
        infos.retain(|info| {
            seen.insert((info.provider().to_owned(), info.domain().to_owned(), info.source().to_owned()))
        });
        Ok(self.decide(infos))
    }

    /// As [`Choice::candidates`], followed by the providers that do not offer what `hints` ask for.
    ///
    /// # Errors
    /// As [`Choice::candidates`].
    pub fn survey(&self, library: &Library, hints: &Hints) -> Result<Vec<Candidate>, OfiError> {
        let mut found = self.candidates(library, hints)?;
        let mut known: BTreeSet<String> = found.iter().map(|candidate| candidate.provider.clone()).collect();
        for provider in providers(library)? {
            if known.insert(provider.clone()) {
                let verdict = Verdict::Left(format!("offers no reliable datagrams with {}", asked(hints)));
                found.push(Candidate { info: None, provider, device: String::new(), verdict });
            }
        }
        Ok(found)
    }

    /// The candidates to use.
    ///
    /// # Errors
    /// [`OfiError::Unknown`], [`OfiError::Interface`], [`OfiError::NoneLeft`]: each says what was asked for and what there is.
    pub fn take(&self, candidates: Vec<Candidate>) -> Result<Vec<Info>, OfiError> {
        let listed = |all: &mut dyn Iterator<Item = &str>| {
            all.collect::<BTreeSet<_>>().into_iter().collect::<Vec<_>>().join(", ")
        };
        for name in &self.include {
            if !candidates.iter().any(|candidate| is_named(&candidate.provider, name)) {
                let found = listed(&mut candidates.iter().map(|candidate| &*candidate.provider));
                let found = if found.is_empty() { "there is none at all".into() } else { format!("there are {found}") };
                return Err(OfiError::Unknown { name: name.clone(), found });
            }
        }
        if let Some(interface) = &self.interface
            && let of_provider = candidates.iter().filter(|candidate| self.wants(&candidate.provider).is_ok())
            && !of_provider.clone().any(|candidate| candidate.device == *interface)
            && let Some(first) = of_provider.clone().next()
        {
            let provider = first.provider.clone();
            let found = listed(&mut of_provider.map(|candidate| &*candidate.device));
            return Err(OfiError::Interface { provider, interface: interface.clone(), found });
        }
        let mut reasons = Vec::new();
        let mut taken = Vec::new();
        for candidate in candidates {
            match (candidate.info, candidate.verdict) {
                (Some(info), Verdict::Taken(_)) => taken.push(info),
                (_, Verdict::Left(why) | Verdict::Taken(why)) => {
                    reasons.push(format!("{} on {}: {why}", candidate.provider, candidate.device));
                }
            }
        }
        if taken.is_empty() {
            let none = "libfabric offers none with what is needed: install its providers, see `fi_info`";
            let reasons = if reasons.is_empty() { none.into() } else { reasons.join("; ") };
            return Err(OfiError::NoneLeft { reasons });
        }
        Ok(taken)
    }

    fn decide(&self, infos: Vec<Info>) -> Vec<Candidate> {
        let mut candidates: Vec<Candidate> = infos.into_iter().map(|info| self.judge(info)).collect();
        if !candidates.iter().any(|candidate| matches!(candidate.verdict, Verdict::Taken(_))) {
            // A near address is better than none, since ranks of one host can use it.
            let near = candidates.iter_mut().find(|candidate| candidate.verdict == Verdict::Left(NEAR.into()));
            if let Some(candidate) = near {
                candidate.verdict = Verdict::Taken(format!("{NEAR}; there is no other"));
            }
        }
        let mut taken: Vec<(String, String)> = Vec::new();
        for candidate in &mut candidates {
            let device = (candidate.provider.clone(), candidate.device.clone());
            if !matches!(candidate.verdict, Verdict::Taken(_)) {
                continue;
            }
            if taken.contains(&device) {
                candidate.verdict = Verdict::Left("another address of this device is taken".into());
            } else if taken.len() >= self.devices {
                candidate.verdict = Verdict::Left("libfabric ranks it lower".into());
            } else {
                taken.push(device);
            }
        }
        candidates
    }

    /// Decides on a candidate, regardless of the others.
    fn judge(&self, info: Info) -> Candidate {
        let (provider, device) = (info.provider().to_owned(), info.domain().to_owned());
        let verdict = match self.wants(&provider) {
            Err(why) => Verdict::Left(why),
            Ok(why) => match &self.interface {
                Some(interface) if *interface != device => Verdict::Left(format!("not on interface {interface}")),
                None if self.include.is_empty() && is_named(&provider, "shm") => {
                    Verdict::Left("reaches this host only, which the transport shm does".into())
                }
                None if info.ip().is_some_and(is_near) => Verdict::Left(NEAR.into()),
                _ => Verdict::Taken(why),
            },
        };
        Candidate { info: Some(info), provider, device, verdict }
    }

    /// Whether the choice allows a provider, and why.
    fn wants(&self, provider: &str) -> Result<String, String> {
        if let Some(name) = self.exclude.iter().find(|name| is_named(provider, name)) {
            return Err(format!("excluded: {name}"));
        }
        match self.include.iter().find(|name| is_named(provider, name)) {
            Some(name) => Ok(format!("included: {name}")),
            None if self.include.is_empty() => Ok("libfabric ranks it highest".into()),
            None => Err(format!("not among {}", self.include.join(", "))),
        }
    }
}

/// Why a candidate is not used whose address only this host, or only this cable, reaches.
const NEAR: &str = "other hosts do not reach this address";

/// Splits a list of names at its commas.
fn names(list: &str) -> Vec<String> {
    list.split(',').map(str::trim).filter(|name| !name.is_empty()).map(str::to_owned).collect()
}

/// Whether `name` is a provider's full name, or that of one of its layers.
pub(super) fn is_named(provider: &str, name: &str) -> bool {
    provider == name || provider.split(';').any(|layer| layer == name)
}

/// The names of all providers, whatever they can do.
fn providers(library: &Library) -> Result<BTreeSet<String>, OfiError> {
    let mut first = std::ptr::null_mut();
    let mut found = BTreeSet::new();
    // SAFETY: no hints ask for everything; the list is read before it is freed.
    #[expect(unsafe_code, reason = "FFI")]
    unsafe {
        let code = (library.api().getinfo)(sys::API_VERSION, null(), null(), 0, null(), &raw mut first);
        if code < 0 && code != -(sys::FI_ENODATA) {
            return Err(OfiError::call(library, "fi_getinfo", "any", code.into()));
        }
        let mut at = first;
        while let Some(entry) = at.as_ref() {
            found.insert(super::info::text((*entry.fabric_attr).prov_name).to_owned());
            at = entry.next;
        }
        if !first.is_null() {
            (library.api().freeinfo)(first);
        }
    }
    Ok(found)
}

/// The capabilities that are asked for, in words.
fn asked(hints: &Hints) -> String {
    let known = [
        (sys::FI_MSG, "FI_MSG"),
        (sys::FI_TAGGED, "FI_TAGGED"),
        (sys::FI_RMA, "FI_RMA"),
        (sys::FI_ATOMIC, "FI_ATOMIC"),
        (sys::FI_DIRECTED_RECV, "FI_DIRECTED_RECV"),
    ];
    let found: Vec<_> = known.into_iter().filter(|(bit, _)| hints.caps & bit != 0).map(|(_, name)| name).collect();
    found.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_the_whole_one_or_a_layers() {
        assert!(is_named("tcp;ofi_rxm", "tcp;ofi_rxm") && is_named("tcp;ofi_rxm", "ofi_rxm"));
        assert!(!is_named("tcp;ofi_rxm", "tc") && !is_named("tcp", "tcp;ofi_rxm"));
        assert_eq!(names(" tcp;ofi_rxm, ,net,"), ["tcp;ofi_rxm", "net"]);
    }

    #[test]
    fn addresses_of_this_host_or_cable_are_near() {
        let near = |text: &str| is_near(text.parse().unwrap());
        assert!(near("127.0.0.1") && near("::1") && near("169.254.1.1") && near("fe80::1"));
        assert!(!near("10.0.0.1") && !near("2001:db8::1"));
    }

    #[test]
    fn exclusion_goes_before_inclusion() {
        let choice =
            Choice { include: vec!["tcp".into(), "net".into()], exclude: vec!["ofi_rxm".into()], ..Choice::default() };
        assert_eq!(choice.wants("tcp;ofi_rxm"), Err("excluded: ofi_rxm".into()));
        assert_eq!(choice.wants("net"), Ok("included: net".into()));
        assert_eq!(choice.wants("sockets"), Err("not among tcp, net".into()));
        assert_eq!(Choice::default().wants("sockets"), Ok("libfabric ranks it highest".into()));
    }

    #[test]
    fn what_is_left_and_why_is_one_error() {
        let candidate = |provider: &str, device: &str, why: &str| Candidate {
            info: None,
            provider: provider.into(),
            device: device.into(),
            verdict: Verdict::Left(why.into()),
        };
        let all = || vec![candidate("net", "eth0", "excluded: net"), candidate("sockets", "lo", "excluded: sockets")];
        let take = |choice: Choice| choice.take(all()).map(drop).unwrap_err().to_string();
        let words = take(Choice::default());
        assert!(words.contains("net on eth0: excluded: net; sockets on lo: excluded"), "{words}");
        let words = take(Choice { include: vec!["verbs".into()], ..Choice::default() });
        assert_eq!(words, "there is no provider \"verbs\" here: there are net, sockets");
        let words = take(Choice { include: vec!["net".into()], interface: Some("ib0".into()), ..Choice::default() });
        assert_eq!(words, "provider net does not use the interface \"ib0\": it has eth0");
        let words = Choice::default().take(Vec::new()).map(drop).unwrap_err().to_string();
        assert!(words.contains("fi_info"), "{words}");
    }
}
