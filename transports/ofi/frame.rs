//! The layout of a frame on a fabric: a preface, the header, the payload.
//!
//! | bytes | field |
//! |---|---|
//! | 0–3 | number of the link at the receiver, below 2^16 |
//! | 4–7 | number of the frame on its link, from 0, wrapping |
//! | 8–15 | the token that the receiver has given for this link |
//! | 16–47 | header ([`tickwire_components::wire`]) |
//! | 48– | payload |
//!
//! Packed frames lie one behind the other, each padded to a multiple of [`FRAME_ALIGN`] bytes.
//!
//! A whole message without flags that is sent by itself has a shorter layout. A shared-memory provider uses another cache line for frames
//! of more than 32 bytes, which costs a sixth of the time of a short message.
//!
//! | bytes | field |
//! |---|---|
//! | 0–1 | number of the link at the receiver |
//! | 2–3 | lowest 15 bits of the frame's number; the highest bit is 1 |
//! | 4–7 | context word |
//! | 8–15 | token |
//! | 16–19 | source |
//! | 20–23 | tag |
//! | 24– | payload: all the rest |
//!
//! Its length is the one that the provider reports.
//!
//! The token identifies the sender, since not all providers do. The number reveals frames that were completed out of order, or lost.
//! Numbers are in host byte order, which the handshake has compared.

use crate::copy;
use tickwire_components::wire::{HEADER_BYTES, Header, Kind, TRANSPORTS_OWN};
use tickwire_components::{Pieces, Span};

/// Bytes of the preface.
const PREFACE_BYTES: usize = 16;
/// Each packed frame starts at a multiple of this.
pub(super) const FRAME_ALIGN: usize = 8;
/// Bytes before the payload of a long frame.
pub(super) const LEAD_BYTES: usize = PREFACE_BYTES + HEADER_BYTES;
/// Bytes before the payload of a short frame.
const SHORT_LEAD_BYTES: usize = 24;
/// A bit of the first word: the frame is short.
const SHORT: u64 = 1 << 31;
/// Which bits of its number a short frame carries, and where they are in the first word.
const SHORT_NUMBER: u32 = 0x7FFF;
const SHORT_NUMBER_AT: u32 = 16;
/// The header of a link's first frame, which has no content and is not passed on.
pub(super) const FIRST: Header = Header { lead: TRANSPORTS_OWN as u64, origin: 0, name: 0, length: 0 };
/// How many links a short frame can name.
pub(super) const LINKS_MAX: usize = 1 << SHORT_NUMBER_AT;

/// Where a frame belongs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Preface {
    pub(super) link: u32,
    pub(super) number: u32,
    pub(super) token: u64,
}

/// The part before the payload of a frame that has arrived.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Lead {
    /// The preface. Its number may be incomplete: use [`Lead::is_number`] and [`Lead::number`].
    pub(super) preface: Preface,
    /// Which bits of the number the frame carries.
    known: u32,
    pub(super) header: Header,
    /// Bytes before the payload.
    bytes: usize,
}

impl Lead {
    /// Whether the frame has the number `due`, as far as its bits tell.
    #[inline]
    pub(super) fn is_number(&self, due: u32) -> bool {
        (self.preface.number ^ due) & self.known == 0
    }

    /// Bytes of the frame with this payload.
    #[inline]
    pub(super) fn length(&self, payload: Span) -> u64 {
        (self.bytes + payload.len()) as u64
    }

    /// The full number: the one nearest to `due` that has the known bits.
    pub(super) fn number(&self, due: u32) -> u32 {
        let ahead = self.preface.number.wrapping_sub(due) & self.known;
        let behind = if ahead > self.known >> 1 { !self.known } else { 0 };
        due.wrapping_add(ahead | behind)
    }
}

/// Whether a frame that is sent by itself uses the short layout.
#[inline]
fn is_short(header: &Header) -> bool {
    header.lead == Kind::Eager as u64 && header.message() == 0
}

/// Bytes of a frame that is sent by itself.
#[inline]
pub(super) fn length(header: &Header) -> usize {
    (if is_short(header) { SHORT_LEAD_BYTES } else { LEAD_BYTES }) + header.payload() as usize
}

/// Writes a frame that is sent by itself to the start of `into`, which must have room for it. Returns its bytes.
#[inline(always)]
pub(super) fn write_alone<P: Pieces + ?Sized>(into: Span, preface: Preface, header: &Header, pieces: &P) -> Span {
    if !is_short(header) {
        return write(into, preface, header, pieces);
    }
    debug_assert!((preface.link as usize) < LINKS_MAX);
    let number = u64::from(preface.number & SHORT_NUMBER) << SHORT_NUMBER_AT;
    let words = [
        u64::from(preface.link) | number | SHORT | u64::from(header.context()) << 32,
        preface.token,
        u64::from(header.source()) | u64::from(header.tag()) << 32,
    ];
    put(into, words, header, pieces)
}

/// Writes a frame in the long layout to the start of `into`, which must have room for it. Returns its bytes.
#[inline]
pub(super) fn write<P: Pieces + ?Sized>(into: Span, preface: Preface, header: &Header, pieces: &P) -> Span {
    let words = [
        u64::from(preface.link) | u64::from(preface.number) << 32,
        preface.token,
        header.lead,
        header.origin,
        header.name,
        header.length,
    ];
    put(into, words, header, pieces)
}

/// Writes a message that the provider matches, with its header in front if `with_header` is set.
pub(super) fn write_matched<P: Pieces + ?Sized>(into: Span, header: &Header, with_header: bool, pieces: &P) -> Span {
    match with_header {
        true => put(into, [header.lead, header.origin, header.name, header.length], header, pieces),
        false => put(into, [], header, pieces),
    }
}

/// Writes the words before a payload, and the payload, to the start of `into`, which must have room for both. Returns their bytes.
#[inline(always)]
fn put<const N: usize, P: Pieces + ?Sized>(into: Span, words: [u64; N], header: &Header, pieces: &P) -> Span {
    let (lead, payload) = (size_of::<[u64; N]>(), header.payload() as usize);
    debug_assert!(into.len() >= lead + payload);
    // SAFETY: an own place of at least so many bytes.
    #[expect(unsafe_code, reason = "memory that a provider is given")]
    unsafe {
        into.start().cast::<[u64; N]>().write_unaligned(words);
    }
    gather(into.part(lead, payload), pieces);
    into.part(0, lead + payload)
}

/// Copies a payload into memory.
#[inline(always)]
fn gather<P: Pieces + ?Sized>(mut rest: Span, pieces: &P) {
    if !rest.is_empty() {
        // SAFETY: an own place, and a buffer that is borrowed.
        #[expect(unsafe_code, reason = "memory that a provider is given")]
        unsafe {
            if let Some(layout) = pieces.layout() {
                layout.pack(rest);
            } else {
                for index in 0..pieces.pieces() {
                    rest = rest.part(copy::copy_long(rest, pieces.piece(index)), usize::MAX);
                }
            }
        }
    }
}

/// Reads the part before the payload of a short frame, which is all of `bytes`. `None` if they are no short frame.
#[inline(always)]
pub(super) fn short_lead(bytes: Span) -> Option<Lead> {
    if bytes.len() < SHORT_LEAD_BYTES {
        return None;
    }
    // SAFETY: so many bytes of an own buffer, which the provider has finished writing.
    #[expect(unsafe_code, reason = "memory that a provider is given")]
    let [place, token, name] = unsafe { bytes.start().cast::<[u64; 3]>().read_unaligned() };
    if place & SHORT == 0 {
        return None;
    }
    let preface = Preface {
        link: (place as usize % LINKS_MAX) as u32,
        number: (place >> SHORT_NUMBER_AT) as u32 & SHORT_NUMBER,
        token,
    };
    let length = (bytes.len() - SHORT_LEAD_BYTES) as u64;
    let (context, source, tag) = ((place >> 32) as u32, name as u32, (name >> 32) as u32);
    let header = Header::eager(context, source, tag, length);
    Some(Lead { preface, known: SHORT_NUMBER, header, bytes: SHORT_LEAD_BYTES })
}

/// Reads the part before the payload of a long frame at the start of `bytes`. `None` if there are too few bytes, or they are a short frame.
#[inline]
pub(super) fn long_lead(bytes: Span) -> Option<Lead> {
    if bytes.len() < LEAD_BYTES {
        return None;
    }
    // SAFETY: so many bytes of an own buffer, which the provider has finished writing.
    #[expect(unsafe_code, reason = "memory that a provider is given")]
    let [place, token, lead, origin, name, length] = unsafe { bytes.start().cast::<[u64; 6]>().read_unaligned() };
    if place & SHORT != 0 {
        return None;
    }
    let preface = Preface { link: place as u32, number: (place >> 32) as u32, token };
    Some(Lead { preface, known: u32::MAX, header: Header { lead, origin, name, length }, bytes: LEAD_BYTES })
}

/// Splits the payload of a frame from the frames behind it, by the length in its header. If that length is impossible, the payload is all
/// that is left.
#[inline]
pub(super) fn payload(bytes: Span, lead: &Lead) -> (Span, Span) {
    let (length, all) = (lead.header.payload(), bytes.part(lead.bytes, usize::MAX));
    if length == all.len() as u64 { (all, Span::EMPTY) } else { split(all, length) }
}

/// Splits a payload of `length` bytes from the bytes behind it.
fn split(all: Span, length: u64) -> (Span, Span) {
    const _: () = assert!(LEAD_BYTES.is_multiple_of(FRAME_ALIGN), "a payload starts at a multiple");
    match length.checked_next_multiple_of(FRAME_ALIGN as u64) {
        Some(end) if end <= all.len() as u64 => (all.part(0, length as usize), all.part(end as usize, usize::MAX)),
        _ => (all, Span::EMPTY),
    }
}

/// Checks a header's kind, and its length against its payload.
///
/// # Errors
/// Why it is no frame.
#[inline]
pub(super) fn check(header: &Header, payload: Span) -> Result<(), String> {
    match header.kind() {
        None => Err(format!("a frame of unknown kind {}", header.lead as u8)),
        _ if header.payload() != payload.len() as u64 => {
            Err(format!("a frame of {} bytes with {} in it", header.payload(), payload.len()))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[expect(unsafe_code, reason = "a span over a test's bytes")]
    fn span(bytes: &mut [u8]) -> Span {
        // SAFETY: used while the bytes are there.
        unsafe { Span::new(bytes.as_mut_ptr(), bytes.len()) }
    }

    fn lead(bytes: Span) -> Option<Lead> {
        short_lead(bytes).or_else(|| long_lead(bytes))
    }

    #[test]
    fn frames_come_back_as_they_were() {
        let mut place = vec![0u8; 200];
        let header = Header::new(Kind::Eager, 1, 2, 3, 4, 5);
        let said = Preface { link: 7, number: 8, token: 1 << 60 };
        let frame =
            write(span(&mut place), said, &header, &tickwire_components::List(vec![vec![1u8, 2, 3], vec![4, 5]]));
        let found = lead(frame).unwrap();
        assert_eq!((frame.len(), found.preface, found.header), (LEAD_BYTES + 5, said, header));
        let (bytes, rest) = payload(frame, &found);
        assert_eq!((bytes.len(), rest.len(), check(&header, bytes)), (5, 0, Ok(())));
        assert_eq!(place[LEAD_BYTES..LEAD_BYTES + 6], [1, 2, 3, 4, 5, 0]);
    }

    #[test]
    fn a_whole_message_that_goes_by_itself_says_no_more_than_it_has_to() {
        let mut place = vec![0u8; 200];
        let said = Preface { link: LINKS_MAX as u32 - 1, number: 0x1_2345, token: u64::MAX };
        let plain = Header::new(Kind::Eager, 0xFFFF_FFFE, 0xFFFF_FFFD, 0x7FFF_FFFC, 0, 5);
        let bytes = vec![1u8, 2, 3, 4, 5];
        let frame = write_alone(span(&mut place), said, &plain, &bytes);
        assert_eq!((frame.len(), length(&plain)), (SHORT_LEAD_BYTES + 5, SHORT_LEAD_BYTES + 5));
        let found = lead(frame).unwrap();
        assert_eq!((found.header, found.preface), (plain, Preface { number: 0x2345, ..said }));
        let (payload, rest) = payload(frame, &found);
        assert_eq!((payload.len(), rest.len(), check(&plain, payload)), (5, 0, Ok(())));
        assert_eq!(place[SHORT_LEAD_BYTES..SHORT_LEAD_BYTES + 6], [1, 2, 3, 4, 5, 0]);
        // All else has its whole header.
        let mut flagged = plain;
        flagged.lead |= 1 << 8;
        let counted = Header::new(Kind::Piece, 0, 0, 0, 7, 5);
        for header in [flagged, counted, Header::new(Kind::Eager, 0, 0, 0, 7, 5)] {
            let frame = write_alone(span(&mut place), said, &header, &bytes);
            assert_eq!((frame.len(), length(&header)), (LEAD_BYTES + 5, LEAD_BYTES + 5));
            let found = lead(frame).unwrap();
            assert_eq!((found.preface, found.header), (said, header));
        }
    }

    #[test]
    fn numbers_that_are_said_in_part_are_those_near_the_one_that_is_due() {
        let mut place = vec![0u8; 200];
        let plain = Header::new(Kind::Eager, 0, 1, 2, 0, 0);
        for due in [0u32, 5, 0x7FFF, 0x8000, 0x1_8001, u32::MAX - 2, u32::MAX] {
            for (step, near) in [(0i64, true), (1, true), (0x3FFF, true), (-1, false), (-0x4000, false)] {
                let number = (i64::from(due) + step) as u32;
                let said = Preface { link: 0, number, token: 1 };
                for header in [plain, Header::new(Kind::Piece, 0, 0, 0, 0, 0)] {
                    let found = lead(write_alone(span(&mut place), said, &header, &vec![0u8; 0])).unwrap();
                    assert_eq!((found.number(due), found.is_number(due)), (number, step == 0));
                    assert_eq!(found.number(due).wrapping_sub(due) < 1 << 15, near);
                }
            }
        }
    }

    #[test]
    fn frames_that_go_together_are_parted_again() {
        let mut place = vec![0u8; 400];
        let all = span(&mut place);
        let (mut at, lengths) = (0, [5, 0, 8, 1]);
        for (number, length) in (0..).zip(lengths) {
            let header = Header::new(Kind::Eager, 1, 2, 3, 4, length as u64);
            let frame = write(
                all.part(at, usize::MAX),
                Preface { link: 1, number, token: 2 },
                &header,
                &vec![number as u8; length],
            );
            at = (at + frame.len()).next_multiple_of(FRAME_ALIGN);
        }
        let mut rest = all.part(0, at);
        for (number, length) in (0..).zip(lengths) {
            let found = lead(rest).unwrap();
            let (bytes, behind) = payload(rest, &found);
            let valid = check(&found.header, bytes);
            assert_eq!((found.preface.number, bytes.len(), valid), (number, length, Ok(())));
            rest = behind;
        }
        assert!(rest.is_empty());
        // One that is cut off, and one that says it is longer than all there is.
        let first = lead(all).unwrap();
        let (bytes, behind) = payload(all.part(0, LEAD_BYTES + 4), &first);
        assert!(behind.is_empty() && check(&first.header, bytes).unwrap_err().contains("5 bytes with 4"));
        place[40..48].fill(0xFF);
        let all = span(&mut place);
        let first = lead(all).unwrap();
        let (bytes, behind) = payload(all, &first);
        assert!(bytes.len() == 400 - LEAD_BYTES && behind.is_empty() && check(&first.header, bytes).is_err());
    }

    #[test]
    fn what_is_no_frame_is_refused() {
        let mut place = vec![0u8; 200];
        let said = Preface { link: 0, number: 0, token: 0 };
        let frame = write(span(&mut place), said, &Header::new(Kind::Eager, 0, 0, 0, 0, 5), &vec![0u8; 5]);
        for length in 0..LEAD_BYTES {
            assert_eq!(lead(frame.part(0, length)), None);
        }
        let short = Header::new(Kind::Eager, 0, 0, 0, 0, 5);
        let frame = write_alone(span(&mut place), said, &short, &vec![0u8; 5]);
        for length in 0..SHORT_LEAD_BYTES {
            assert_eq!(lead(frame.part(0, length)), None);
        }
        write(span(&mut place), said, &short, &vec![0u8; 5]);
        for kind in [0, TRANSPORTS_OWN, 200] {
            place[16] = kind;
            let frame = span(&mut place).part(0, LEAD_BYTES + 5);
            let found = lead(frame).unwrap();
            let words = check(&found.header, payload(frame, &found).0).unwrap_err();
            assert!(words.contains(&format!("unknown kind {kind}")), "{words}");
        }
    }
}
