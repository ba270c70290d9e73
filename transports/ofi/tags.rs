//! Tag modes: how an envelope is encoded in the 64 tag bits that libfabric matches by (reference: OFI MTL readme, "OFI TAG").
//!
//! An envelope is a context, the sender's rank and a tag. From the lowest bit on, the bits hold
//!
//! | mode | tag | protocol | source | context |
//! |---|---|---|---|---|
//! | `ofi_tag_1` | 32 | 2 | 18 | 12 |
//! | `ofi_tag_2` | 20 | 2 | 18 | 24 |
//! | `ofi_tag_full` | 32 | 2 | none: in the CQ data | 28 |
//!
//! `auto` is `ofi_tag_full` where the provider has CQ data and directed receives, and otherwise `ofi_tag_1`. The other two modes need no CQ
//! data. Without 8 bytes of CQ data, a probe takes the message out of the provider to learn its length. If the provider keeps some of the
//! highest bits for itself (leading zeros of its `mem_tag_format`), the context has fewer bits.
//!
//! **The context** is the low bits of an envelope's context word ([`context`]): the communicator's id, 20 bits, and above it as much of its
//! incarnation as fits, 4 bits in `ofi_tag_2` and 8 in `ofi_tag_full`. An id is reused only as often as these bits can tell its
//! communicators apart. So a message that was never received is never matched in a later communicator. In `ofi_tag_1` only 12 bits of the
//! id fit: there are 4096 ids, and each is used once. The plane has no bits: the engine's own messages for a communicator do not go through
//! the provider's matching.
//!
//! **The protocol** says what a message is ([`Protocol`]). A receive ignores both bits, since it matches every kind of message. So an
//! acknowledgement must not be a tagged message, or receives would match it. It is a frame ([`Kind::Done`]) instead, and its protocol bits
//! are the only ones that are never sent.
//!
//! [`context`]: tickwire_components::context
//! [`Kind::Done`]: tickwire_components::wire::Kind::Done

use crate::TagLimits;
use std::fmt;
use std::str::FromStr;
use tickwire_components::limits::{ANY, TAG_MAX};
use tickwire_components::{context, wire::Kind};

/// Bits of [`Protocol`].
const PROTOCOL_BITS: u32 = 2;
/// Bits of a context word that identify a communicator: its id and incarnation.
const WORD_BITS: u32 = context::ID_BITS + context::INCARNATION_BITS;

/// A way to divide the tag bits, as a user names it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum TagMode {
    /// The best mode that the provider supports.
    #[default]
    Auto,
    /// 12 bits of context, 18 of source, 32 of tag.
    One,
    /// 24 bits of context, 18 of source, 20 of tag.
    Two,
    /// 28 bits of context, 32 of tag, the source in the CQ data.
    Full,
}

impl TagMode {
    /// All modes with their names.
    pub const NAMES: [(&'static str, TagMode); 4] = [
        ("auto", TagMode::Auto),
        ("ofi_tag_1", TagMode::One),
        ("ofi_tag_2", TagMode::Two),
        ("ofi_tag_full", TagMode::Full),
    ];

    /// Its name.
    pub fn name(self) -> &'static str {
        Self::NAMES.iter().find(|(_, mode)| *mode == self).map_or("auto", |(name, _)| name)
    }
}

impl fmt::Display for TagMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for TagMode {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let found = Self::NAMES.iter().find(|(known, _)| *known == name).map(|(_, mode)| *mode);
        found.ok_or_else(|| format!("'{name}' is no tag mode: there are auto, ofi_tag_1, ofi_tag_2 and ofi_tag_full"))
    }
}

/// What a provider offers for tags.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ProviderTags {
    /// Its `mem_tag_format`. Leading zeros are bits that the provider keeps for itself.
    pub format: u64,
    /// Bytes of CQ data that go with a message; 0 for none (`FI_REMOTE_CQ_DATA`, `cq_data_size`).
    pub data_bytes: usize,
    /// It can receive from one peer only (`FI_DIRECTED_RECV`).
    pub directed_receive: bool,
}

/// What a message is, encoded in two of its tag bits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Protocol {
    /// A whole message.
    Eager = 0b00,
    /// A whole message behind its header, which names the request to be acknowledged.
    Synchronous = 0b01,
    /// The acknowledgement of a synchronous message. Never sent as a tagged message; see the module.
    Acknowledgement = 0b10,
    /// A header alone: the data follows when asked for.
    Rts = 0b11,
}

impl Protocol {
    /// The protocol of a frame's kind; `None` if that is no envelope.
    pub fn of(kind: Option<Kind>) -> Option<Protocol> {
        match kind {
            Some(Kind::Eager) => Some(Protocol::Eager),
            Some(Kind::Sync) => Some(Protocol::Synchronous),
            Some(Kind::Rts) => Some(Protocol::Rts),
            _ => None,
        }
    }
}

/// What a receive matches: messages whose bits differ from `bits` in `ignored` bits only.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TagPattern {
    /// The bits.
    pub bits: u64,
    /// The bits that may differ.
    pub ignored: u64,
}

impl TagPattern {
    /// Whether it matches a message with these bits.
    pub fn takes(&self, bits: u64) -> bool {
        (self.bits ^ bits) & !self.ignored == 0
    }
}

/// A mode, with the numbers of bits that it has with a provider.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TagFormat {
    mode: TagMode,
    context_bits: u32,
    source_bits: u32,
    tag_bits: u32,
}

impl TagFormat {
    /// The format of a mode with a provider.
    ///
    /// # Errors
    /// What the provider lacks for it, in words.
    pub fn new(mode: TagMode, provider: &ProviderTags) -> Result<TagFormat, String> {
        let lacks = match (provider.data_bytes >= 4, provider.directed_receive) {
            (true, true) => None,
            (false, true) => Some("remote CQ data of 4 bytes (FI_REMOTE_CQ_DATA)"),
            (true, false) => Some("directed receives (FI_DIRECTED_RECV)"),
            (false, false) => Some("remote CQ data (FI_REMOTE_CQ_DATA) and directed receives (FI_DIRECTED_RECV)"),
        };
        let mode = match (mode, lacks) {
            (TagMode::Auto, None) => TagMode::Full,
            (TagMode::Auto, Some(_)) => TagMode::One,
            (TagMode::Full, Some(what)) => {
                return Err(format!("tag mode ofi_tag_full needs {what}, which the provider lacks: use auto"));
            }
            (mode, _) => mode,
        };
        let (most, source_bits, tag_bits) = match mode {
            TagMode::Two => (24, 18, 20),
            TagMode::Full => (28, 0, 32),
            _ => (12, 18, 32),
        };
        let usable = u64::BITS - provider.format.leading_zeros();
        let context_bits = usable.saturating_sub(PROTOCOL_BITS + source_bits + tag_bits).min(most);
        // The world communicator and that of the process alone exist from the start.
        if context_bits < 1 {
            return Err(format!(
                "tag mode {mode} has no bits left for contexts: the provider's tags have {usable} bits"
            ));
        }
        Ok(TagFormat { mode, context_bits, source_bits, tag_bits })
    }

    /// The mode, which is never [`TagMode::Auto`].
    pub fn mode(&self) -> TagMode {
        self.mode
    }

    /// Bits of the context.
    pub fn context_bits(&self) -> u32 {
        self.context_bits
    }

    /// The limits that the numbers of bits impose.
    pub fn limits(&self) -> TagLimits {
        let below = |bits: u32| 1u32.checked_shl(bits).unwrap_or(u32::MAX);
        TagLimits {
            mode: self.mode.name(),
            contexts: below(self.context_bits.min(context::ID_BITS)),
            incarnations: below(self.context_bits.saturating_sub(context::ID_BITS)).min(context::INCARNATIONS),
            ranks: if self.source_bits == 0 { u32::MAX } else { below(self.source_bits) },
            // As in the readme: a tag is a non-negative number in so many bits, including its sign bit.
            tag_max: (below(self.tag_bits - 1) - 1).min(TAG_MAX),
        }
    }

    fn source_shift(&self) -> u32 {
        self.tag_bits + PROTOCOL_BITS
    }

    /// The context's bits, shifted to their position.
    fn context(&self, word: u32) -> u64 {
        let kept = self.context_bits.min(WORD_BITS);
        (u64::from(word) & low(kept)) << (self.source_shift() + self.source_bits)
    }

    /// The bits of a message.
    pub fn message(&self, protocol: Protocol, context: u32, source: u32, tag: u32) -> u64 {
        let source = (u64::from(source) & low(self.source_bits)) << self.source_shift();
        let protocol = (protocol as u64) << self.tag_bits;
        self.context(context) | source | protocol | u64::from(tag) & low(self.tag_bits)
    }

    /// The CQ data of a message; `None` if the tag bits hold the source.
    pub fn data(&self, source: u32) -> Option<u64> {
        (self.source_bits == 0).then_some(source.into())
    }

    /// What a receive matches. [`ANY`] stands for any source and any tag. If the tag bits hold no source, the provider must compare the
    /// source itself.
    pub fn pattern(&self, context: u32, source: u32, tag: u32) -> TagPattern {
        let mut ignored = low(PROTOCOL_BITS) << self.tag_bits;
        let (mut source_bits, mut tag_bits) = (source, tag);
        if source == ANY {
            ignored |= low(self.source_bits) << self.source_shift();
            source_bits = 0;
        }
        if tag == ANY {
            ignored |= low(self.tag_bits);
            tag_bits = 0;
        }
        TagPattern { bits: self.message(Protocol::Eager, context, source_bits, tag_bits), ignored }
    }

    /// What a message is.
    pub fn protocol(&self, bits: u64) -> Protocol {
        match bits >> self.tag_bits & low(PROTOCOL_BITS) {
            0b00 => Protocol::Eager,
            0b01 => Protocol::Synchronous,
            0b10 => Protocol::Acknowledgement,
            _ => Protocol::Rts,
        }
    }

    /// The tag of a message.
    pub fn tag(&self, bits: u64) -> u32 {
        (bits & low(self.tag_bits)) as u32
    }

    /// The rank of a message's sender; `data` is its CQ data.
    pub fn source(&self, bits: u64, data: u64) -> u32 {
        if self.source_bits == 0 { data as u32 } else { (bits >> self.source_shift() & low(self.source_bits)) as u32 }
    }
}

/// A mask of the lowest `bits` bits.
const fn low(bits: u32) -> u64 {
    if bits == 0 { 0 } else { u64::MAX >> (u64::BITS - bits) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WHOLE: ProviderTags = ProviderTags { format: u64::MAX, data_bytes: 8, directed_receive: true };
    /// As the provider `net` says: bit 63 is its own.
    const NET: ProviderTags = ProviderTags { format: 0x5555_5555_5555_5555, ..WHOLE };
    const FORCED: [TagMode; 3] = [TagMode::One, TagMode::Two, TagMode::Full];

    fn format(mode: TagMode, provider: ProviderTags) -> TagFormat {
        TagFormat::new(mode, &provider).unwrap()
    }

    #[test]
    fn modes_share_the_bits_out_as_the_readme_says() {
        let bits = |format: TagFormat| (format.context_bits, format.source_bits, format.tag_bits);
        assert_eq!(FORCED.map(|mode| bits(format(mode, WHOLE))), [(12, 18, 32), (24, 18, 20), (28, 0, 32)]);
        assert_eq!(FORCED.map(|mode| format(mode, NET).context_bits()), [11, 23, 28]);
        let limits = |mode| format(mode, WHOLE).limits();
        let (one, two, full) = (limits(TagMode::One), limits(TagMode::Two), limits(TagMode::Full));
        assert_eq!((one.contexts - 1, one.ranks - 1, one.tag_max), (4095, 262_143, i32::MAX as u32));
        assert_eq!((two.contexts, two.ranks - 1, two.tag_max), (1 << 20, 262_143, 524_287));
        assert_eq!((full.contexts, full.ranks, full.tag_max), (1 << 20, u32::MAX, i32::MAX as u32));
        assert_eq!([one.incarnations, two.incarnations, full.incarnations], [1, 1 << 4, 1 << 8]);
        assert_eq!(format(TagMode::One, NET).limits().contexts, 2048);
        assert_eq!([one.mode, two.mode, full.mode], ["ofi_tag_1", "ofi_tag_2", "ofi_tag_full"]);
    }

    #[test]
    fn auto_is_the_best_that_the_provider_can_do() {
        let without = |data_bytes, directed_receive| ProviderTags { data_bytes, directed_receive, ..WHOLE };
        assert_eq!(format(TagMode::Auto, WHOLE).mode(), TagMode::Full);
        for provider in [without(0, true), without(2, true), without(8, false), without(0, false)] {
            assert_eq!(format(TagMode::Auto, provider).mode(), TagMode::One);
            assert_eq!(format(TagMode::Two, provider).mode(), TagMode::Two);
            let refused = TagFormat::new(TagMode::Full, &provider).unwrap_err();
            assert_eq!(refused.contains("FI_REMOTE_CQ_DATA"), provider.data_bytes < 4, "{refused}");
            assert_eq!(refused.contains("FI_DIRECTED_RECV"), !provider.directed_receive, "{refused}");
        }
    }

    #[test]
    fn a_provider_that_leaves_no_context_is_refused() {
        for (mode, needed) in FORCED.into_iter().zip([52, 40, 34]) {
            let provider = |bits| ProviderTags { format: low(bits), ..WHOLE };
            assert_eq!(format(mode, provider(needed + 1)).context_bits(), 1);
            assert!(TagFormat::new(mode, &provider(needed)).unwrap_err().contains(mode.name()));
            assert!(TagFormat::new(mode, &provider(0)).is_err());
        }
    }

    #[test]
    fn names_are_read_back() {
        for (name, mode) in TagMode::NAMES {
            assert_eq!((name.parse(), mode.to_string()), (Ok(mode), name.to_owned()));
        }
        assert!("ofi_tag_3".parse::<TagMode>().unwrap_err().contains("ofi_tag_full"));
    }

    #[test]
    fn what_goes_in_comes_out_and_stays_within_the_providers_bits() {
        for provider in [WHOLE, NET] {
            for mode in FORCED {
                let format = format(mode, provider);
                let limits = format.limits();
                let contexts = [0, 1, limits.contexts - 1].map(|id| context::word(id, 0));
                let protocols = [Protocol::Eager, Protocol::Synchronous, Protocol::Acknowledgement, Protocol::Rts];
                for (context, source, tag) in contexts
                    .into_iter()
                    .flat_map(|c| [0, 5, limits.ranks.min(1 << 30) - 1].map(|s| (c, s)))
                    .flat_map(|(c, s)| [0, 9, limits.tag_max].map(|t| (c, s, t)))
                {
                    for protocol in protocols {
                        let bits = format.message(protocol, context, source, tag);
                        let data = format.data(source).unwrap_or(0);
                        let found = (format.protocol(bits), format.source(bits, data), format.tag(bits));
                        assert_eq!(found, (protocol, source, tag));
                        assert_eq!(
                            bits.leading_zeros().min(1),
                            provider.format.leading_zeros().max(bits.leading_zeros().min(1))
                        );
                        assert!(format.pattern(context, source, tag).takes(bits), "{mode} {protocol:?}");
                    }
                }
            }
        }
    }

    #[test]
    fn a_receive_takes_what_it_asks_for_and_nothing_else() {
        for mode in FORCED {
            let format = format(mode, WHOLE);
            let message = |context, source, tag| format.message(Protocol::Rts, context, source, tag);
            let exact = format.pattern(3, 7, 11);
            assert!(exact.takes(message(3, 7, 11)));
            assert!(!exact.takes(message(2, 7, 11)) && !exact.takes(message(3, 7, 10)));
            assert_eq!(exact.takes(message(3, 6, 11)), mode == TagMode::Full, "the provider looks at the source");
            let any = format.pattern(3, ANY, ANY);
            assert!(any.takes(message(3, 0, 0)) && any.takes(message(3, 262_143, 524_287)));
            assert!(!any.takes(message(4, 7, 11)));
            let any_tag = format.pattern(3, 7, ANY);
            assert!(any_tag.takes(message(3, 7, 400_000)) && !any_tag.takes(message(1, 7, 400_000)));
        }
    }

    #[test]
    fn incarnations_tell_apart_what_has_one_id_where_there_is_room() {
        let bits =
            |mode, incarnation| format(mode, WHOLE).message(Protocol::Eager, context::word(5, incarnation), 1, 1);
        for mode in [TagMode::Two, TagMode::Full] {
            let incarnations = format(mode, WHOLE).limits().incarnations;
            let all: std::collections::BTreeSet<_> =
                (0..incarnations).map(|incarnation| bits(mode, incarnation)).collect();
            assert_eq!(all.len() as u32, incarnations);
            assert_eq!(bits(mode, 0), bits(mode, incarnations), "no more than these");
        }
        assert_eq!(bits(TagMode::One, 0), bits(TagMode::One, 1));
        // Planes do not go through the provider, so nothing of them is in the bits.
        let format = format(TagMode::Full, WHOLE);
        assert_eq!(format.context(5), format.context(5 | context::AGREEMENT));
    }
}
