//! The frames between a rank and its launcher: a length (u32, little-endian), then that many bytes. The first of these says the kind of
//! frame. Both sides check every length, and refuse what they do not know.

use tickwire_components::limits::LOCAL_RANKS_MAX;

/// Longest key, bytes: its length is sent in one byte.
pub const KEY_BYTES_MAX: usize = 128;
/// Longest value of one key, bytes. An address is shorter than 256 bytes; this leaves room for a table of memory keys.
pub const VALUE_BYTES_MAX: usize = 16 << 10;

/// Longest text of a refusal or a reason, bytes.
const TEXT_BYTES_MAX: usize = 256;
/// Longest frame without its length field: a put of the longest key and value.
pub(crate) const BODY_BYTES_MAX: usize = 2 + KEY_BYTES_MAX + VALUE_BYTES_MAX;
const LENGTH_BYTES: usize = 4;
/// Changes with any change of a frame, so that a rank and a launcher of different versions part with a clear message.
pub(crate) const VERSION: u16 = 2;

const HELLO: u8 = 1;
const PUT: u8 = 2;
const FENCE: u8 = 3;
const GET: u8 = 4;
const GET_ALL: u8 = 5;
const FINISH: u8 = 6;
const ABORT: u8 = 7;
const DONE: u8 = 16;
const REFUSED: u8 = 17;
const VALUE: u8 = 18;
const RANK_ENDED: u8 = 19;

/// One frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Message<'a> {
    /// The first frame of a rank. Answered by `Done` or `Refused`.
    Hello {
        version: u16,
        rank: u32,
        size: u32,
        job: &'a str,
    },
    /// Answered by `Done` or `Refused`.
    Put {
        key: &'a str,
        value: &'a [u8],
    },
    /// Answered by `Done` once every live rank has reached the fence.
    Fence,
    /// Answered by one `Value`.
    Get {
        rank: u32,
        key: &'a str,
    },
    /// Answered by as many `Value`s as there are ranks, in rank order.
    GetAll {
        key: &'a str,
    },
    /// Not answered.
    Finish,
    /// Ends the job. Not answered.
    Abort {
        code: i32,
    },
    Done,
    Refused {
        reason: &'a str,
    },
    Value {
        rank: u32,
        value: Option<&'a [u8]>,
    },
    /// Sent by the launcher without a request, at any time after `Hello`.
    RankEnded {
        rank: u32,
        reason: &'a str,
    },
}

impl<'a> Message<'a> {
    /// Appends the frame. The caller has checked the lengths of keys and values.
    pub(crate) fn encode(&self, to: &mut Vec<u8>) {
        let start = to.len();
        to.extend_from_slice(&[0; LENGTH_BYTES]);
        match *self {
            Message::Hello { version, rank, size, job } => {
                to.push(HELLO);
                to.extend_from_slice(&version.to_le_bytes());
                to.extend_from_slice(&rank.to_le_bytes());
                to.extend_from_slice(&size.to_le_bytes());
                to.extend_from_slice(job.as_bytes());
            }
            Message::Put { key, value } => {
                to.extend_from_slice(&[PUT, key.len() as u8]);
                to.extend_from_slice(key.as_bytes());
                to.extend_from_slice(value);
            }
            Message::Fence => to.push(FENCE),
            Message::Get { rank, key } => {
                to.push(GET);
                to.extend_from_slice(&rank.to_le_bytes());
                to.extend_from_slice(key.as_bytes());
            }
            Message::GetAll { key } => {
                to.push(GET_ALL);
                to.extend_from_slice(key.as_bytes());
            }
            Message::Finish => to.push(FINISH),
            Message::Abort { code } => {
                to.push(ABORT);
                to.extend_from_slice(&code.to_le_bytes());
            }
            Message::Done => to.push(DONE),
            Message::Refused { reason } => {
                to.push(REFUSED);
                to.extend_from_slice(clip(reason).as_bytes());
            }
            Message::Value { rank, value } => {
                to.push(VALUE);
                to.extend_from_slice(&rank.to_le_bytes());
                to.push(u8::from(value.is_some()));
                to.extend_from_slice(value.unwrap_or_default());
            }
            Message::RankEnded { rank, reason } => {
                to.push(RANK_ENDED);
                to.extend_from_slice(&rank.to_le_bytes());
                to.extend_from_slice(clip(reason).as_bytes());
            }
        }
        let body = to.len() - start - LENGTH_BYTES;
        debug_assert!(body <= BODY_BYTES_MAX, "a frame of {body} bytes");
        to[start..start + LENGTH_BYTES].copy_from_slice(&(body as u32).to_le_bytes());
    }

    /// Reads the body of a frame.
    pub(crate) fn decode(body: &'a [u8]) -> Result<Self, Malformed> {
        let (&kind, rest) = body.split_first().ok_or(Malformed("an empty frame"))?;
        let message = match kind {
            HELLO => {
                let (version, rest) = take::<2>(rest)?;
                let (rank, rest) = take_rank(rest)?;
                let (size, job) = take::<4>(rest)?;
                let (version, size) = (u16::from_le_bytes(version), u32::from_le_bytes(size));
                Message::Hello { version, rank, size, job: text(job)? }
            }
            PUT => {
                let (&key_bytes, rest) = rest.split_first().ok_or(TOO_SHORT)?;
                let (name, value) = rest.split_at_checked(usize::from(key_bytes)).ok_or(TOO_SHORT)?;
                if value.len() > VALUE_BYTES_MAX {
                    return Err(Malformed("a value that is too long"));
                }
                Message::Put { key: key(name)?, value }
            }
            GET => {
                let (rank, name) = take_rank(rest)?;
                Message::Get { rank, key: key(name)? }
            }
            GET_ALL => Message::GetAll { key: key(rest)? },
            FENCE | FINISH | DONE if !rest.is_empty() => return Err(Malformed("a frame that is too long")),
            FENCE => Message::Fence,
            FINISH => Message::Finish,
            ABORT => match take::<4>(rest)? {
                (code, []) => Message::Abort { code: i32::from_le_bytes(code) },
                _ => return Err(Malformed("a frame that is too long")),
            },
            DONE => Message::Done,
            REFUSED => Message::Refused { reason: text(rest)? },
            VALUE => {
                let (rank, rest) = take_rank(rest)?;
                let (present, value) = take::<1>(rest)?;
                match present {
                    [0] if value.is_empty() => Message::Value { rank, value: None },
                    [1] if value.len() <= VALUE_BYTES_MAX => Message::Value { rank, value: Some(value) },
                    _ => return Err(Malformed("a malformed value")),
                }
            }
            RANK_ENDED => {
                let (rank, reason) = take_rank(rest)?;
                Message::RankEnded { rank, reason: text(reason)? }
            }
            _ => return Err(Malformed("a frame of unknown kind")),
        };
        Ok(message)
    }
}

/// The first frame in `bytes`: its body, and its length with the length field. `None` if it is not complete yet.
pub(crate) fn next_frame(bytes: &[u8]) -> Result<Option<(&[u8], usize)>, Malformed> {
    let Ok((length, rest)) = take::<LENGTH_BYTES>(bytes) else {
        return Ok(None);
    };
    let length = u32::from_le_bytes(length) as usize;
    if length == 0 || length > BODY_BYTES_MAX {
        return Err(Malformed("a frame of impossible length"));
    }
    Ok(rest.get(..length).map(|body| (body, LENGTH_BYTES + length)))
}

/// Bytes that are not of this protocol, and what is wrong with them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Malformed(pub(crate) &'static str);

const TOO_SHORT: Malformed = Malformed("a frame that is too short");

fn take<const N: usize>(bytes: &[u8]) -> Result<([u8; N], &[u8]), Malformed> {
    let (head, rest) = bytes.split_first_chunk::<N>().ok_or(TOO_SHORT)?;
    Ok((*head, rest))
}

fn take_rank(bytes: &[u8]) -> Result<(u32, &[u8]), Malformed> {
    let (rank, rest) = take::<4>(bytes)?;
    match u32::from_le_bytes(rank) {
        rank if (rank as usize) < LOCAL_RANKS_MAX => Ok((rank, rest)),
        _ => Err(Malformed("an impossible rank")),
    }
}

fn key(bytes: &[u8]) -> Result<&str, Malformed> {
    match std::str::from_utf8(bytes) {
        Ok(key) if (1..=KEY_BYTES_MAX).contains(&key.len()) => Ok(key),
        _ => Err(Malformed("a malformed key")),
    }
}

fn text(bytes: &[u8]) -> Result<&str, Malformed> {
    match std::str::from_utf8(bytes) {
        Ok(text) if text.len() <= TEXT_BYTES_MAX => Ok(text),
        _ => Err(Malformed("a malformed text")),
    }
}

fn clip(text: &str) -> &str {
    let end = (0..=text.len().min(TEXT_BYTES_MAX)).rev().find(|&end| text.is_char_boundary(end));
    &text[..end.unwrap_or(0)]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn every_message() -> Vec<Message<'static>> {
        vec![
            Message::Hello { version: VERSION, rank: 3, size: 4, job: "job-1" },
            Message::Put { key: "k", value: b"value" },
            Message::Put { key: "k", value: b"" },
            Message::Fence,
            Message::Get { rank: 7, key: "address" },
            Message::GetAll { key: "address" },
            Message::Finish,
            Message::Abort { code: -3 },
            Message::Done,
            Message::Refused { reason: "no" },
            Message::Value { rank: 1, value: Some(b"v") },
            Message::Value { rank: 1, value: Some(b"") },
            Message::Value { rank: 1, value: None },
            Message::RankEnded { rank: 2, reason: "exited" },
        ]
    }

    #[test]
    fn messages_survive_the_way_there_and_back() {
        let mut bytes = Vec::new();
        for message in every_message() {
            message.encode(&mut bytes);
        }
        let mut rest = &bytes[..];
        for message in every_message() {
            let (body, taken) = next_frame(rest).unwrap().unwrap();
            assert_eq!(Message::decode(body), Ok(message));
            rest = &rest[taken..];
        }
        assert!(rest.is_empty());
    }

    #[test]
    fn the_longest_messages_fit() {
        let (key, value) = ("k".repeat(KEY_BYTES_MAX), vec![7; VALUE_BYTES_MAX]);
        for message in [Message::Put { key: &key, value: &value }, Message::Value { rank: 0, value: Some(&value) }] {
            let mut bytes = Vec::new();
            message.encode(&mut bytes);
            let (body, taken) = next_frame(&bytes).unwrap().unwrap();
            assert_eq!(taken, bytes.len());
            assert_eq!(Message::decode(body), Ok(message));
        }
        let mut bytes = Vec::new();
        Message::Refused { reason: &"é".repeat(300) }.encode(&mut bytes);
        assert!(Message::decode(&bytes[4..]).is_ok());
    }

    #[test]
    fn a_frame_that_is_not_complete_waits_and_an_impossible_length_is_refused() {
        let mut bytes = Vec::new();
        Message::Put { key: "key", value: b"value" }.encode(&mut bytes);
        for cut in 0..bytes.len() {
            assert_eq!(next_frame(&bytes[..cut]), Ok(None));
        }
        assert!(next_frame(&0u32.to_le_bytes()).is_err());
        assert!(next_frame(&u32::MAX.to_le_bytes()).is_err());
        assert!(next_frame(&(BODY_BYTES_MAX as u32 + 1).to_le_bytes()).is_err());
    }

    #[test]
    fn no_bytes_make_the_parser_panic() {
        // Every message with every byte changed to some values and cut at every length.
        for message in every_message() {
            let mut bytes = Vec::new();
            message.encode(&mut bytes);
            let body = &bytes[LENGTH_BYTES..];
            for cut in 0..=body.len() {
                let _ = Message::decode(&body[..cut]);
                for new in [0, 1, 0x7f, 0x80, 0xff] {
                    let mut changed = body.to_vec();
                    if let Some(byte) = changed.get_mut(cut) {
                        *byte = new;
                    }
                    let _ = Message::decode(&changed);
                }
            }
        }
        assert!(Message::decode(&[]).is_err());
        assert!(Message::decode(&[99]).is_err());
        assert!(Message::decode(&[FENCE, 0]).is_err());
        assert!(Message::decode(&[PUT, 200, b'k']).is_err());
        assert!(Message::decode(&[PUT, 0]).is_err());
        assert!(Message::decode(&[GET_ALL, 0xff]).is_err());
        assert!(Message::decode(&[VALUE, 0, 0, 0, 0, 0, 1]).is_err());
        assert!(Message::decode(&[RANK_ENDED, 0xff, 0xff, 0xff, 0xff]).is_err());
    }
}
