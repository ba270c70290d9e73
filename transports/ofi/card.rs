//! The card: what peers need to know to reach an endpoint. The bootstrap distributes it.
//!
//! | bytes | field |
//! |---|---|
//! | 0 | [`CARD_VERSION`] |
//! | 1 | bytes of the fabric address |
//! | 2–3 | port of the control socket, big-endian |
//! | 4–19 | its address, IPv6 or mapped IPv4 |
//! | 20–27 | secret that a caller shows, so that nobody else is let in |
//! | 28–35 | the host: what two processes must share to reach each other within it |
//! | 36–39 | scope of the address of the control socket: the number of the interface if it is link-local, else 0 |
//! | 40–51 | the process: its number, and when it was started |
//! | 52– | fabric address |
//! | then 4 | who matches: 0 the engine, else the tag mode and the longest message |

use crate::processes;
use std::net::{Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};

/// Version of the card's layout.
const CARD_VERSION: u8 = 5;
/// Bytes before the fabric address.
const FIXED: usize = 40 + processes::CARD_BYTES;
/// The most bytes of a fabric address, since a card has at most 255 bytes.
pub(super) const ADDRESS_BYTES_MAX: usize = 196;

/// See the module.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Card {
    pub(super) control: SocketAddr,
    pub(super) secret: u64,
    pub(super) host: [u8; 8],
    /// Number of the process, and when it was started.
    pub(super) process: (u32, u64),
    pub(super) address: Vec<u8>,
    /// Who matches, and how.
    pub(super) matching: u32,
}

impl Card {
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut bytes = vec![CARD_VERSION, self.address.len() as u8];
        bytes.extend(self.control.port().to_be_bytes());
        let (ip, scope) = match self.control {
            SocketAddr::V4(control) => (control.ip().to_ipv6_mapped(), 0),
            SocketAddr::V6(control) => (*control.ip(), control.scope_id()),
        };
        bytes.extend(ip.octets());
        bytes.extend(self.secret.to_be_bytes());
        bytes.extend(self.host);
        bytes.extend(scope.to_be_bytes());
        bytes.extend(processes::to_card(self.process.0, self.process.1));
        bytes.extend(&self.address);
        bytes.extend(self.matching.to_be_bytes());
        bytes
    }

    /// Reads a card, with nothing but zeros behind it.
    pub(super) fn decode(bytes: &[u8]) -> Result<Card, String> {
        let Some((fixed, rest)) = bytes.split_first_chunk::<FIXED>() else {
            return Err("it has no address on this fabric: open the same transports at all procs".into());
        };
        if fixed[0] != CARD_VERSION {
            return Err(format!("its card is of version {}: use one build of tickwire for all procs", fixed[0]));
        }
        let whole = rest.split_at_checked(fixed[1] as usize);
        let Some((address, Some(matching))) = whole.map(|(address, rest)| (address, rest.first_chunk::<4>())) else {
            return Err("its card is cut off: use one build of tickwire for all procs".into());
        };
        let part = |at: usize| <[u8; 8]>::try_from(&fixed[at..at + 8]).unwrap_or_default();
        let process = fixed.last_chunk().map_or((0, 0), |process| processes::in_card(*process));
        let mut ip = [0; 16];
        ip.copy_from_slice(&fixed[4..20]);
        let (ip, port) = (Ipv6Addr::from(ip), u16::from_be_bytes([fixed[2], fixed[3]]));
        let scope = u32::from_be_bytes([fixed[36], fixed[37], fixed[38], fixed[39]]);
        Ok(Card {
            control: match ip.to_ipv4_mapped() {
                Some(ip) => SocketAddrV4::new(ip, port).into(),
                None => SocketAddrV6::new(ip, port, 0, scope).into(),
            },
            secret: u64::from_be_bytes(part(20)),
            host: part(28),
            process,
            address: address.to_vec(),
            matching: u32::from_be_bytes(*matching),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn card(control: &str) -> Card {
        let control = control.parse().unwrap();
        Card {
            control,
            secret: 0x0123_4567_89AB_CDEF,
            host: *b"thishost",
            process: (7, 1 << 33),
            address: vec![7; 28],
            matching: 9,
        }
    }

    #[test]
    fn cards_come_back_as_they_were() {
        for control in ["10.1.2.3:40000", "[2001:db8::1]:1", "[fe80::1%7]:1"] {
            let card = card(control);
            assert_eq!(Card::decode(&card.encode()), Ok(card.clone()));
        }
        let mut longest = card("10.1.2.3:40000");
        longest.address = vec![1; ADDRESS_BYTES_MAX];
        assert!(longest.encode().len() <= 255);
    }

    #[test]
    fn what_is_no_card_is_refused() {
        let bytes = card("10.1.2.3:40000").encode();
        for length in 0..bytes.len() {
            assert!(Card::decode(&bytes[..length]).is_err(), "{length} bytes");
        }
        let other = [&[9][..], &bytes[1..]].concat();
        assert!(Card::decode(&other).unwrap_err().contains("version 9"));
        assert!(Card::decode(&[]).unwrap_err().contains("no address"));
    }

    #[test]
    fn whatever_a_card_says_nothing_panics() {
        let good = card("10.1.2.3:40000").encode();
        let mut state = 0x9E37_79B9_7F4A_7C15u64;
        for _ in 0..5000 {
            let mut bytes = good.clone();
            for _ in 0..3 {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                let at = (state >> 33) as usize % bytes.len();
                bytes[at] = (state >> 24) as u8;
            }
            bytes.truncate(1 + (state >> 40) as usize % (2 * good.len()));
            if let Ok(read) = Card::decode(&bytes) {
                assert!(read.address.len() <= bytes.len() && Card::decode(&read.encode()) == Ok(read));
            }
        }
    }
}
