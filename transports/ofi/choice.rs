//! Which of libfabric's candidates are used, and why the others are not.

use super::tags::TagMode;
use super::{Hints, Info, Library, OfiError};
use libfabric_sys as sys;
use std::collections::BTreeSet;
use std::net::IpAddr;
use std::ptr::null;

/// Contexts at most: as many as one byte tells a peer, and more than there are cores that a process is bound to.
const CONTEXTS_MAX: usize = 64;

/// The variable with the providers to use, by name and with commas.
pub const ENV_INCLUDE: &str = "TICKWIRE_OFI_PROVIDER_INCLUDE";
/// The variable with the providers not to use.
pub const ENV_EXCLUDE: &str = "TICKWIRE_OFI_PROVIDER_EXCLUDE";
/// The variable with the network interface to use.
pub const ENV_INTERFACE: &str = "TICKWIRE_OFI_INTERFACE";
/// The variable that says, unless it is empty or 0, that no descriptor to sleep on is wanted.
pub const ENV_POLL: &str = "TICKWIRE_OFI_POLL";
/// The variable that says, unless it is empty or 0, that local memory is to be registered also where a provider does not ask for it.
pub const ENV_REGISTER: &str = "TICKWIRE_OFI_REGISTER";
/// The variable with the number of peers that may write short frames into rings.
pub const ENV_RINGS: &str = "TICKWIRE_OFI_RINGS";
/// The variable with the number of contexts for one-sided operations.
pub const ENV_CONTEXTS: &str = "TICKWIRE_OFI_CONTEXTS";
/// The variable that says, unless it is empty or 0, that a thread of the provider's may progress one-sided operations.
pub const ENV_THREAD: &str = "TICKWIRE_OFI_THREAD";
/// The variable with the tag mode: `auto`, `ofi_tag_1`, `ofi_tag_2` or `ofi_tag_full`; `message` for message mode.
pub const ENV_TAG_MODE: &str = "TICKWIRE_OFI_TAG_MODE";
/// The variable that says, unless it is empty or 0, that CQ data is not to be used.
pub const ENV_WITHOUT_DATA: &str = "TICKWIRE_OFI_WITHOUT_CQ_DATA";

/// What a user wants of providers.
///
/// A name is a provider's exact one, `tcp;ofi_rxm`, or one of its layers: `tcp`, `ofi_rxm`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Choice {
    /// Only these, if there are any.
    pub include: Vec<String>,
    /// Not these.
    pub exclude: Vec<String>,
    /// Only this network interface or device (the name of the domain).
    pub interface: Option<String>,
    /// Candidates to take, one endpoint each.
    pub devices: usize,
    /// Tagged mode: how envelopes fit into tags. `None` for message mode, unless the environment says otherwise.
    pub tags: Option<TagMode>,
    /// No descriptor to sleep on: a wait that has had nothing for long polls every ms. With one, the kernel does more for each
    /// message that comes over TCP; without, `tcp;ofi_rxm` asks for each peer's socket at each look.
    pub polls: bool,
    /// Local memory is registered also where a provider does not ask for it (`FI_MR_LOCAL`): to test and to measure that.
    pub registers: bool,
    /// Peers that may write short frames into a ring of this proc, by remote writes, and get those of this proc so; 0 for none. Both must
    /// have one for the other. A ring takes 17 KiB. Not in tagged mode.
    pub rings: usize,
    /// Contexts for one-sided operations, each with a queue of its own, 64 at most; 0 for no one-sided operations. Nothing of them is opened
    /// before somebody asks for it. A window has one of them, by its handle. The same for all procs. `None` for what the environment says, else one.
    pub contexts: Option<usize>,
    /// A thread of the provider's may progress one-sided operations, where it has one: peers need not wait for an engine that computes then,
    /// and the thread takes the processor from others.
    pub has_thread: bool,
    /// Tagged mode: a provider is taken as if it had no CQ data, so that `auto` is `ofi_tag_1`. The same for all procs.
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

/// What became of a candidate.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// It is used, and why.
    Taken(String),
    /// It is not, and why.
    Left(String),
}

/// A candidate with its verdict, in libfabric's order.
#[derive(Debug)]
pub struct Candidate {
    /// What libfabric offers; `None` if it only names the provider.
    pub info: Option<Info>,
    /// The provider's exact name.
    pub provider: String,
    /// The network interface or device.
    pub device: String,
    /// Taken or not.
    pub verdict: Verdict,
}

impl Choice {
    /// The same with what the environment says where nothing else has been said.
    ///
    /// # Errors
    /// A variable that should be a number is none.
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
        self.rings = number(ENV_RINGS)?.unwrap_or(self.rings);
        self.contexts = self.contexts.or(number(ENV_CONTEXTS)?);
        self.check()?;
        self.has_thread |= is_set(ENV_THREAD);
        self.without_data |= is_set(ENV_WITHOUT_DATA);
        Ok(self)
    }

    /// Whether it can be.
    ///
    /// # Errors
    /// More contexts than there can be.
    pub(super) fn check(&self) -> Result<(), OfiError> {
        match self.contexts() {
            asked if asked > CONTEXTS_MAX => Err(OfiError::Contexts { asked, most: CONTEXTS_MAX }),
            _ => Ok(()),
        }
    }

    /// How many contexts there are for one-sided operations.
    pub fn contexts(&self) -> usize {
        self.contexts.unwrap_or(1)
    }

    /// The tag mode, if any.
    ///
    /// # Errors
    /// What the environment says that is none.
    pub fn tag_mode(&self) -> Result<Option<TagMode>, OfiError> {
        let said = match (self.tags, std::env::var(ENV_TAG_MODE)) {
            (None, Ok(said)) if said != "message" && !said.is_empty() => said,
            (chosen, _) => return Ok(chosen),
        };
        let wrong = |words| OfiError::TagMode { variable: ENV_TAG_MODE, words };
        said.parse().map(Some).map_err(wrong)
    }

    /// Asks libfabric, and decides on each candidate.
    ///
    /// # Errors
    /// [`OfiError::Call`] if it cannot be asked.
    pub fn candidates(&self, library: &Library, hints: &Hints) -> Result<Vec<Candidate>, OfiError> {
        let mut infos = Info::list(library, hints)?;
        // The same once more with fewer attributes or in another way: the first is the best.
        let mut seen = BTreeSet::new();
        infos.retain(|info| {
            seen.insert((info.provider().to_owned(), info.domain().to_owned(), info.source().to_owned()))
        });
        Ok(self.decide(infos))
    }

    /// As [`Choice::candidates`], with the providers that do not offer what is asked for at the end.
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
    /// [`OfiError::Unknown`], [`OfiError::Interface`], [`OfiError::NoneLeft`]: what was asked for and what there is.
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
            // Better than none: ranks of one host can use it.
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

    /// A candidate by itself.
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

    /// Whether a provider is wanted at all.
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

/// Why an address that only this host, or this cable, has is left.
const NEAR: &str = "other hosts do not reach this address";

/// Names with commas between.
fn names(list: &str) -> Vec<String> {
    list.split(',').map(str::trim).filter(|name| !name.is_empty()).map(str::to_owned).collect()
}

/// Whether a name is a provider's, or one of its layers'.
pub(super) fn is_named(provider: &str, name: &str) -> bool {
    provider == name || provider.split(';').any(|layer| layer == name)
}

/// Whether an address means nothing to other hosts, or needs more than itself.
fn is_near(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => address.is_loopback() || address.is_link_local(),
        IpAddr::V6(address) => address.is_loopback() || address.is_unicast_link_local(),
    }
}

/// All providers that there are, whatever they can do.
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
