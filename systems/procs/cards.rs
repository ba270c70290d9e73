//! Cards: a proc's card says how peers can reach it. It has one part for each of its transports, under the transport's name.

/// Longest name and longest part of a transport, bytes: each has a length field of one byte.
pub const CARD_PART_MAX: usize = u8::MAX as usize;

/// One transport's part of a proc's card, which is a list of name length, name, length, bytes.
pub fn card_of<'a>(mut card: &'a [u8], name: &str) -> Option<&'a [u8]> {
    loop {
        let (&length, rest) = card.split_first()?;
        if length == 0 {
            return None;
        }
        let (found, rest) = rest.split_at_checked(length as usize)?;
        let (&length, rest) = rest.split_first()?;
        let (bytes, rest) = rest.split_at_checked(length as usize)?;
        if found == name.as_bytes() {
            return Some(bytes);
        }
        card = rest;
    }
}

/// Adds one transport's part to a card. Name and bytes must be within [`CARD_PART_MAX`]. See [`card_of`].
pub fn add_card(card: &mut Vec<u8>, name: &str, bytes: &[u8]) {
    debug_assert!(name.len() <= CARD_PART_MAX && bytes.len() <= CARD_PART_MAX);
    card.push(name.len() as u8);
    card.extend_from_slice(name.as_bytes());
    card.push(bytes.len() as u8);
    card.extend_from_slice(bytes);
}
