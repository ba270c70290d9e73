//! Decides whether an endpoint is opened in tagged mode, and why not.

use super::hints::tagged_hints;
use super::tags::{ProviderTags, TagFormat, TagMode};
use super::{ENV_INCLUDE, Info, OfiError};
use libfabric_sys as sys;

/// Bytes of CQ data that are used: the sender's rank, and the length of an offered message, which a probe must report. With fewer bytes, a
/// probe has to claim the message to learn its length.
pub(super) const DATA_BYTES: usize = 8;

/// Providers whose matching is unusable (measured with libfabric 1.17), up to which version of libfabric, and why.
///
/// `net`, which is called `tcp` from 1.18 on, stops reading from a peer once an unexpected message of that peer has more than 128 bytes, or
/// once there are 65 of them. A receive that matches a later message would then wait for ever.
const BROKEN: [(&str, (u32, u32), &str); 4] = [
    ("shm", (2, 5), "posts a receive where it is asked to look for a message (FI_PEEK)"),
    ("udp;ofi_rxd", (u32::MAX, 0), "loses what it is asked to claim (FI_CLAIM), and names wrong sources"),
    ("net", (u32::MAX, 0), STALLS),
    ("tcp", (u32::MAX, 0), STALLS),
];

/// What a provider without tagged messages lacks, in words.
const UNTAGGED: &str = "has no tagged messages with sources (FI_TAGGED, FI_SOURCE)";

/// See [`BROKEN`].
const STALLS: &str = "holds up all that a peer sends behind an unexpected message";

/// What an endpoint is to be opened with.
pub(super) struct Opening {
    pub(super) info: Info,
    /// The tag settings; `None` in message mode.
    pub(super) tags: Option<Tags>,
    /// Which mode was chosen and why, in words.
    pub(super) words: String,
}

/// How a provider that matches is used.
#[derive(Clone, Copy)]
pub(super) struct Tags {
    pub(super) format: TagFormat,
    /// Bytes of CQ data that go with each message, at most [`DATA_BYTES`].
    pub(super) data_bytes: usize,
}

/// Decides on the mode of a candidate. With `without_data`, treats it as if it had no CQ data.
///
/// # Errors
/// [`OfiError::Tags`] if a mode was asked for by name that the provider cannot do; [`OfiError::Call`].
pub(super) fn choose(info: Info, mode: Option<TagMode>, without_data: bool) -> Result<Opening, OfiError> {
    let message = |info: Info, words: String| Ok(Opening { info, tags: None, words });
    let Some(mode) = mode else { return message(info, "message mode: the engine matches".into()) };
    let provider = info.provider().to_owned();
    let refused = |reason: String| Err(OfiError::Tags { provider: provider.clone(), reason });
    let usable = match flaw(&provider, info.library().version()) {
        Some(why) => Err(why),
        None => tagged(&info)?.ok_or_else(|| UNTAGGED.to_owned()),
    };
    let mut tagged = match usable {
        Ok(tagged) => tagged,
        Err(why) if mode == TagMode::Auto => return message(info, format!("message mode: provider {provider} {why}")),
        Err(why) => {
            let instead = format!("use auto or message, or another provider ({ENV_INCLUDE})");
            return refused(format!("tag mode {mode} cannot be: the provider {why}; {instead}"));
        }
    };
    if without_data {
        tagged.forget_data();
    }
    let provided = ProviderTags {
        format: tagged.ep_attr().mem_tag_format,
        data_bytes: tagged.domain_attr().cq_data_size,
        directed_receive: tagged.raw().caps & sys::FI_DIRECTED_RECV != 0,
    };
    match TagFormat::new(mode, &provided) {
        Ok(format) => {
            let words = format!("tagged mode {}: the provider matches", format.mode());
            let tags = Tags { format, data_bytes: provided.data_bytes.min(DATA_BYTES) };
            Ok(Opening { info: tagged, tags: Some(tags), words })
        }
        Err(why) if mode == TagMode::Auto => message(info, format!("message mode: provider {provider}: {why}")),
        Err(why) => refused(why),
    }
}

/// Why the matching of a provider is unusable, if this version of libfabric is known for that.
fn flaw(provider: &str, (major, minor): (u32, u32)) -> Option<String> {
    let known = |&&(name, last, _): &&(&str, (u32, u32), &str)| provider == name && (major, minor) <= last;
    let (_, _, why) = BROKEN.iter().find(known)?;
    Some(format!("of libfabric {major}.{minor} {why}"))
}

/// The same candidate for tagged messages, even if its matching is known to be wrong.
///
/// # Errors
/// [`OfiError::Tags`] if it has none; [`OfiError::Call`].
pub(super) fn tagged_only(info: Info) -> Result<Info, OfiError> {
    let provider = info.provider().to_owned();
    tagged(&info)?.ok_or(OfiError::Tags { provider, reason: UNTAGGED.to_owned() })
}

/// The same candidate with the capabilities of tagged mode, and with directed receives if it has them. `None` if it has no tagged messages.
fn tagged(info: &Info) -> Result<Option<Info>, OfiError> {
    for directed in [true, false] {
        let hints = tagged_hints(info.provider(), directed);
        let same = |other: &Info| other.domain() == info.domain() && other.source() == info.source();
        let mut found = match Info::list(info.library(), &hints) {
            Ok(found) => found,
            Err(error) if directed => {
                let _ = error;
                continue;
            }
            Err(error) => return Err(error),
        };
        if let Some(place) =
            found.iter().position(same).or_else(|| found.iter().position(|o| o.domain() == info.domain()))
        {
            return Ok(Some(found.swap_remove(place)));
        }
    }
    Ok(None)
}

/// The signature by which procs check that they match alike: 0 for message mode, else the tag mode, whether lengths are in the CQ data, the
/// bits of the context, and the longest message.
pub(super) fn signature(tags: Option<(Tags, usize)>) -> u32 {
    tags.map_or(0, |(Tags { format, data_bytes }, matched_max)| {
        let mode = TagMode::NAMES.iter().position(|(_, mode)| *mode == format.mode()).unwrap_or(0) as u32;
        let lengths = u32::from(data_bytes >= DATA_BYTES);
        mode << 30 | lengths << 29 | format.context_bits() << 24 | (matched_max as u32 & 0x00FF_FFFF)
    })
}
