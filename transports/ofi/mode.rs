//! Whether an endpoint is opened in tagged mode, and why not.

use super::tags::{ProviderTags, TagFormat, TagMode};
use super::{Info, OfiError, tagged_hints};
use libfabric_sys as sys;

/// Bytes of CQ data that tagged mode needs: the sender's rank, and the length of an offered message, which a probe must know.
pub(super) const DATA_BYTES: usize = 8;

/// Providers whose matching cannot be used (measured with libfabric 1.17), up to which version of libfabric, and why.
///
/// `net`, which is `tcp` from 1.18 on, reads nothing more from a peer once an unexpected message of that peer has more than 128
/// bytes, or is the 65th: a receive that takes a message behind it would wait for ever.
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

/// What an endpoint is opened from.
pub(super) struct Opening {
    pub(super) info: Info,
    /// In tagged mode.
    pub(super) format: Option<TagFormat>,
    /// Who matches, and why, in words.
    pub(super) words: String,
}

/// Decides on the mode of a candidate.
///
/// # Errors
/// [`OfiError::Tags`] if a mode was asked for by name that the provider cannot do; [`OfiError::Call`].
pub(super) fn choose(info: Info, mode: Option<TagMode>) -> Result<Opening, OfiError> {
    let message = |info: Info, words: String| Ok(Opening { info, format: None, words });
    let Some(mode) = mode else { return message(info, "message mode: the engine matches".into()) };
    let provider = info.provider().to_owned();
    let version = info.library().version();
    let broken = BROKEN.iter().find(|(name, last, _)| provider == *name && version <= *last);
    if let Some((_, _, why)) = broken {
        let (major, minor) = version;
        let words = format!("message mode: provider {provider} of libfabric {major}.{minor} {why}");
        return message(info, words);
    }
    let lacks = |reason: String| OfiError::Tags { provider: provider.clone(), reason };
    let found = match tagged(&info)? {
        None => Err(UNTAGGED.to_owned()),
        Some(tagged) => {
            let tags = ProviderTags {
                format: tagged.ep_attr().mem_tag_format,
                data_bytes: tagged.domain_attr().cq_data_size,
                directed_receive: tagged.raw().caps & sys::FI_DIRECTED_RECV != 0,
            };
            let format = TagFormat::new(mode, &tags);
            match tags.data_bytes >= DATA_BYTES {
                true => format.map(|format| (tagged, format)),
                false => format.and(Err(format!("has {} bytes of CQ data, and needs {DATA_BYTES}", tags.data_bytes))),
            }
        }
    };
    match found {
        Ok((info, format)) => {
            let words = format!("tagged mode {}: the provider matches", format.mode());
            Ok(Opening { info, format: Some(format), words })
        }
        Err(why) if mode == TagMode::Auto => message(info, format!("message mode: provider {provider} {why}")),
        Err(why) => Err(lacks(why)),
    }
}

/// The same candidate for tagged messages, whatever is known of its matching.
///
/// # Errors
/// [`OfiError::Tags`] if it has none; [`OfiError::Call`].
pub(super) fn tagged_only(info: Info) -> Result<Info, OfiError> {
    let provider = info.provider().to_owned();
    tagged(&info)?.ok_or(OfiError::Tags { provider, reason: UNTAGGED.to_owned() })
}

/// The same candidate with what tagged mode needs, and with directed receives if it has them.
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

/// Who matches, as procs compare it: 0 for the engine, else the tag mode, the bits of its context and the longest message.
pub(super) fn signature(tags: Option<(TagFormat, usize)>) -> u32 {
    tags.map_or(0, |(format, matched_max)| {
        let mode = TagMode::NAMES.iter().position(|(_, mode)| *mode == format.mode()).unwrap_or(0) as u32;
        mode << 30 | format.context_bits() << 24 | (matched_max as u32 & 0x00FF_FFFF)
    })
}
