//! Watchers: commands that inspect the job from another host. A watcher connects to the control socket of a proc, shows the secret of the
//! proc's card, asks a question, and reads the answer until the connection ends. The proc's engine writes the answer; this file only
//! decides who may ask.

use super::Ofi;
use super::ask::Ask;
use super::card::Card;
use super::control::{Message, Socket};
use crate::connections::ungreeted;
use crate::facets::{Question, Watcher, WatcherDoor, Watchers};
use crate::handshake::{PACKET_BYTES_MAX, Packet};
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};
use tickwire_components::limits::FABRIC_WATCHERS_MAX;

/// Bytes that are read at a time.
const PART: usize = 1 << 16;

impl Ofi {
    /// Handles a visitor that has sent no greeting. If it is a watcher that knows the secret, it waits for the engine.
    pub(super) fn meet_watcher(&mut self, socket: Socket, word: Message) -> Option<(Socket, Packet)> {
        let Message::Ask(Ask { secret, question }) = word else { return Some((socket, Packet::Refused(ungreeted()))) };
        if secret != self.own.secret {
            let words = "whoever asks does not know this proc's card: ask through a process of the same job".into();
            return Some((socket, Packet::Refused(words)));
        }
        if self.own.watchers.len() >= FABRIC_WATCHERS_MAX {
            return Some((socket, Packet::Later("others are answered: ask again".into())));
        }
        self.own.watchers.push(Watcher { socket: socket.into_descriptor(), question });
        None
    }
}

impl Watchers for Ofi {
    fn door(&self, card: &[u8]) -> Option<WatcherDoor> {
        let card = Card::decode(card).ok()?;
        Some(WatcherDoor { address: card.control, secret: card.secret })
    }

    fn next_watcher(&mut self) -> Option<Watcher> {
        (!self.own.watchers.is_empty()).then(|| self.own.watchers.remove(0))
    }
}

impl Watcher {
    /// Announces an answer. Returns the stream to write it to; a write fails if the watcher does not read for `patience`.
    ///
    /// # Errors
    /// If the watcher has gone.
    pub fn answer(self, patience: Duration) -> io::Result<TcpStream> {
        let mut stream = TcpStream::from(self.socket);
        stream.set_nonblocking(false)?;
        stream.set_write_timeout(Some(patience))?;
        stream.write_all(&Message::Answer.encode())?;
        Ok(stream)
    }

    /// Tells the watcher why there is no answer.
    pub fn refuse(self, words: &str) {
        let packet = Packet::Refused(words.to_owned());
        let mut stream = TcpStream::from(self.socket);
        // If this fails, there is nobody to report it to.
        let _ = stream.write(&Message::frame(&packet.encode(), &[]));
    }
}

/// Asks a proc from outside the job. Blocks until the proc announces an answer, but not beyond `end`. [`hear_all`] reads the answer.
///
/// # Errors
/// Why there is none.
pub fn ask(door: &WatcherDoor, question: Question, end: Instant) -> io::Result<TcpStream> {
    let left = end.saturating_duration_since(Instant::now()).max(Duration::from_millis(1));
    let mut stream = TcpStream::connect_timeout(&door.address, left)?;
    stream.set_write_timeout(Some(left))?;
    stream.write_all(&Message::Ask(Ask { secret: door.secret, question }).encode())?;
    let mut head = [0; 2];
    read_exact(&mut stream, &mut head, end)?;
    let length = usize::from(u16::from_be_bytes(head));
    let wrong = |words: String| io::Error::new(io::ErrorKind::InvalidData, words);
    if length < head.len() || length > 2 * PACKET_BYTES_MAX {
        return Err(wrong("what answers is not tickwire".into()));
    }
    let mut message = head.to_vec();
    message.resize(length, 0);
    read_exact(&mut stream, &mut message[head.len()..], end)?;
    match Message::decode(&message) {
        Ok(Some((Message::Answer, _))) => Ok(stream),
        Ok(Some((Message::Refused(words) | Message::Later(words), _))) => {
            Err(io::Error::new(io::ErrorKind::PermissionDenied, words))
        }
        Ok(_) => Err(wrong("its answer has no head: use one build of tickwire on all hosts".into())),
        Err(mismatch) => Err(wrong(mismatch.to_string())),
    }
}

/// Reads an answer to its end: at most `bytes_max` bytes, and not beyond `end`.
///
/// # Errors
/// If the answer is longer, or does not end in time.
pub fn hear_all(stream: &mut TcpStream, bytes_max: usize, end: Instant) -> io::Result<Vec<u8>> {
    let (mut answer, mut part) = (Vec::new(), vec![0; PART]);
    loop {
        match read(stream, &mut part, end)? {
            0 => return Ok(answer),
            count if answer.len() + count > bytes_max => {
                return Err(io::Error::new(
                    io::ErrorKind::InvalidData,
                    format!("its answer has over {bytes_max} bytes"),
                ));
            }
            count => answer.extend_from_slice(&part[..count]),
        }
    }
}

/// Fills a buffer. Anything that prevents this is an error.
fn read_exact(stream: &mut TcpStream, mut into: &mut [u8], end: Instant) -> io::Result<()> {
    while !into.is_empty() {
        match read(stream, into, end)? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            count => into = &mut into[count..],
        }
    }
    Ok(())
}

/// Reads the bytes that are there, or waits for some until `end`.
fn read(stream: &mut TcpStream, into: &mut [u8], end: Instant) -> io::Result<usize> {
    loop {
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        stream.set_read_timeout(Some(left))?;
        match stream.read(into) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Err(io::ErrorKind::TimedOut.into()),
            other => return other,
        }
    }
}
