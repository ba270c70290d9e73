//! A frame on a fabric: a preface, the header, the payload.
//!
//! | bytes | field |
//! |---|---|
//! | 0–3 | number of the link at the receiver |
//! | 4–7 | number of the frame on its link, from 0, wrapping |
//! | 8–15 | the token that the receiver has given for this link |
//! | 16–47 | header ([`tickwire_components::wire`]) |
//! | 48– | payload |
//!
//! Frames that go together lie one behind the other, each filled up to a multiple of [`FRAME_ALIGN`] bytes.
//!
//! Who sent a frame is said by its token, since not all providers know; the number finds frames that were completed out of
//! order, or lost. Numbers are in host byte order, which the handshake has compared.

use crate::copy;
use tickwire_components::wire::{HEADER_BYTES, Header, Kind};
use tickwire_components::{Pieces, Span};

/// Bytes of the preface.
const PREFACE_BYTES: usize = 16;
/// What the next frame starts at a multiple of.
pub(super) const FRAME_ALIGN: usize = 8;
/// Bytes before the payload.
pub(super) const LEAD_BYTES: usize = PREFACE_BYTES + HEADER_BYTES;

/// Where a frame belongs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Preface {
    pub(super) link: u32,
    pub(super) number: u32,
    pub(super) token: u64,
}

/// Writes a frame to the start of a place that has room for it; returns its bytes.
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
    debug_assert!(into.len() >= LEAD_BYTES + header.payload() as usize);
    // SAFETY: an own place of at least so many bytes.
    #[expect(unsafe_code, reason = "memory that a provider is given")]
    unsafe {
        into.start().cast::<[u64; 6]>().write_unaligned(words);
    }
    let payload = header.payload() as usize;
    gather(into.part(LEAD_BYTES, payload), pieces);
    into.part(0, LEAD_BYTES + payload)
}

/// Writes a message that a provider matches, behind its header where it has one.
pub(super) fn write_matched<P: Pieces + ?Sized>(into: Span, header: &Header, with_header: bool, pieces: &P) -> Span {
    let (lead, payload) = (if with_header { HEADER_BYTES } else { 0 }, header.payload() as usize);
    debug_assert!(into.len() >= lead + payload);
    if with_header {
        let words = [header.lead, header.origin, header.name, header.length];
        // SAFETY: an own place of at least so many bytes.
        #[expect(unsafe_code, reason = "memory that a provider is given")]
        unsafe {
            into.start().cast::<[u64; 4]>().write_unaligned(words);
        }
    }
    gather(into.part(lead, payload), pieces);
    into.part(0, lead + payload)
}

/// Fills a place with a payload.
#[inline]
fn gather<P: Pieces + ?Sized>(mut rest: Span, pieces: &P) {
    if !rest.is_empty() {
        if let Some(layout) = pieces.layout() {
            layout.pack(rest);
        } else {
            for index in 0..pieces.pieces() {
                rest = rest.part(copy::copy(rest, pieces.piece(index)), usize::MAX);
            }
        }
    }
}

/// Reads where bytes that have come belong; `None` if they are too few.
#[inline]
pub(super) fn preface(bytes: Span) -> Option<Preface> {
    if bytes.len() < LEAD_BYTES {
        return None;
    }
    // SAFETY: so many bytes of an own buffer, which the provider has finished writing.
    #[expect(unsafe_code, reason = "memory that a provider is given")]
    let [place, token] = unsafe { bytes.start().cast::<[u64; 2]>().read_unaligned() };
    Some(Preface { link: place as u32, number: (place >> 32) as u32, token })
}

/// Parts the first frame from those behind it; what is no frame is left whole.
#[inline]
pub(super) fn split(bytes: Span) -> (Span, Span) {
    let rest = bytes.part(bytes.len(), 0);
    if bytes.len() < LEAD_BYTES {
        return (bytes, rest);
    }
    let length = header(bytes.part(PREFACE_BYTES, HEADER_BYTES)).payload().saturating_add(LEAD_BYTES as u64);
    match length.checked_next_multiple_of(FRAME_ALIGN as u64) {
        Some(end) if end <= bytes.len() as u64 => {
            (bytes.part(0, length as usize), bytes.part(end as usize, usize::MAX))
        }
        _ => (bytes, rest),
    }
}

/// Reads a header.
#[inline]
fn header(lead: Span) -> Header {
    debug_assert!(lead.len() == HEADER_BYTES);
    // SAFETY: so many bytes of an own buffer, which the provider has finished writing.
    #[expect(unsafe_code, reason = "memory that a provider is given")]
    let [lead, origin, name, length] = unsafe { lead.start().cast::<[u64; 4]>().read_unaligned() };
    Header { lead, origin, name, length }
}

/// Reads the header and finds the payload of bytes that have a preface.
///
/// # Errors
/// Why it is no frame.
#[inline]
pub(super) fn content(bytes: Span) -> Result<(Header, Span), String> {
    let lead = bytes.part(PREFACE_BYTES, HEADER_BYTES);
    if lead.len() < HEADER_BYTES {
        return Err(format!("a frame of {} bytes", bytes.len()));
    }
    let header = header(lead);
    let payload = bytes.part(LEAD_BYTES, usize::MAX);
    match header.kind() {
        None | Some(Kind::Wrap) => Err(format!("a frame of unknown kind {}", header.lead as u8)),
        _ if header.payload() != payload.len() as u64 => {
            Err(format!("a frame of {} bytes with {} in it", header.payload(), payload.len()))
        }
        _ => Ok((header, payload)),
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

    #[test]
    fn frames_come_back_as_they_were() {
        let mut place = vec![0u8; 200];
        let header = Header::new(Kind::Eager, 1, 2, 3, 4, 5);
        let said = Preface { link: 7, number: 8, token: 1 << 60 };
        let payload = vec![vec![1u8, 2, 3], vec![4, 5]];
        let frame = write(span(&mut place), said, &header, &payload);
        assert_eq!((frame.len(), preface(frame)), (LEAD_BYTES + 5, Some(said)));
        let (found, bytes) = content(frame).unwrap();
        assert_eq!((found, bytes.len()), (header, 5));
        assert_eq!(place[LEAD_BYTES..LEAD_BYTES + 6], [1, 2, 3, 4, 5, 0]);
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
            let (frame, behind) = split(rest);
            assert_eq!((frame.len(), preface(frame).unwrap().number), (LEAD_BYTES + length, number));
            assert_eq!(content(frame).unwrap().1.len(), length);
            rest = behind;
        }
        assert!(rest.is_empty());
        // One that is cut off, and one that says it is longer than all there is.
        for (bytes, words) in [(LEAD_BYTES + 4, "5 bytes with 4"), (LEAD_BYTES - 1, "a frame of ")] {
            let (frame, behind) = split(all.part(0, bytes));
            assert!(behind.is_empty() && content(frame).unwrap_err().contains(words));
        }
        place[40..48].fill(0xFF);
        let (frame, behind) = split(span(&mut place));
        assert!(frame.len() == 400 && behind.is_empty() && content(frame).is_err());
    }

    #[test]
    fn what_is_no_frame_is_refused() {
        let mut place = vec![0u8; 200];
        let said = Preface { link: 0, number: 0, token: 0 };
        let frame = write(span(&mut place), said, &Header::new(Kind::Eager, 0, 0, 0, 0, 5), &vec![0u8; 5]);
        for length in 0..LEAD_BYTES {
            assert_eq!(preface(frame.part(0, length)), None);
            assert!(content(frame.part(0, length)).is_err());
        }
        assert!(content(frame.part(0, LEAD_BYTES + 4)).unwrap_err().contains("5 bytes with 4"));
        for kind in [0, 13, 200] {
            place[16] = kind;
            let words = content(span(&mut place).part(0, LEAD_BYTES + 5)).unwrap_err();
            assert!(words.contains(&format!("unknown kind {kind}")), "{words}");
        }
    }
}
