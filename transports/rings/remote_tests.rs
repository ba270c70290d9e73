//! A ring at a peer whose memory can only be written, never read or mapped: what a network with remote writes offers.
//!
//! Each end has memory of its own. What one end stores in the other's is a write on its way, done later, in order. The
//! writer composes frames by remote writes, the first word last; the reader tells what it has released, and what the writer
//! may send, in the same way. Neither ever waits for the other's memory.

use super::ring::{Reader, RingMemory, Writer};
use super::window::{self, Granter, Spender};
use crate::testing::copy;
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::atomic::Ordering;
use tickwire_components::Span;
use tickwire_components::credit::Credit;
use tickwire_components::wire::{HEADER_BYTES, Header, Kind};

const CAPACITY: usize = 1024;
const MOST: usize = CAPACITY / 4 - HEADER_BYTES;

/// A write on its way to the other side.
enum Write {
    /// A word of the ring.
    Word(u64, u64),
    /// Bytes of the ring.
    Bytes(u64, Vec<u8>),
    /// How far the ring is released.
    Released(u64),
    /// A word of the window value.
    Window(usize, u32),
}

/// What the two ends have in memory, and what is on its way between them.
#[derive(Default)]
struct Net {
    to_reader: RefCell<VecDeque<Write>>,
    to_writer: RefCell<VecDeque<Write>>,
    /// The reader's memory: the ring.
    ring: RefCell<Vec<u64>>,
    /// The writer's memory: what the reader has written there.
    released: Cell<u64>,
    window: [Cell<u32>; window::WORDS],
}

impl Net {
    /// Does the oldest write of each direction.
    fn step(&self) {
        let next = self.to_reader.borrow_mut().pop_front();
        match next {
            Some(Write::Word(offset, word)) => self.ring.borrow_mut()[offset as usize / 8] = word,
            Some(Write::Bytes(offset, bytes)) => {
                let mut ring = self.ring.borrow_mut();
                for (at, byte) in bytes.into_iter().enumerate() {
                    let at = offset as usize + at;
                    let mut word = ring[at / 8].to_ne_bytes();
                    word[at % 8] = byte;
                    ring[at / 8] = u64::from_ne_bytes(word);
                }
            }
            _ => {}
        }
        let next = self.to_writer.borrow_mut().pop_front();
        match next {
            Some(Write::Released(position)) => self.released.set(position),
            Some(Write::Window(word, value)) => self.window[word].set(value),
            _ => {}
        }
    }
}

/// Whose view of the ring it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Side {
    /// Stores over the network, and loads only what is in its own memory: what the reader tells.
    Writer,
    /// Likewise: it loads the ring, and tells what it has released and granted.
    Reader,
}

/// What one side sees of the ring.
struct View {
    net: Rc<Net>,
    side: Side,
}

impl View {
    fn new(net: &Rc<Net>, side: Side) -> Self {
        View { net: net.clone(), side }
    }

    /// Fails unless the view is of this side.
    fn only(&self, side: Side) -> &Net {
        assert_eq!(self.side, side, "a side does what is the other's");
        &self.net
    }
}

#[expect(unsafe_code, reason = "lends local bytes")]
fn span(bytes: &mut [u8]) -> Span {
    // SAFETY: borrowed for the copy that the caller makes.
    unsafe { Span::new(bytes.as_mut_ptr(), bytes.len()) }
}

// SAFETY: its bytes are within the data.
#[expect(unsafe_code, reason = "memory that another process may write")]
unsafe impl RingMemory for View {
    fn capacity(&self) -> u64 {
        CAPACITY as u64
    }
    fn load(&self, offset: u64, _order: Ordering) -> u64 {
        self.only(Side::Reader).ring.borrow()[offset as usize / 8]
    }
    fn store(&self, offset: u64, word: u64, _order: Ordering) {
        self.only(Side::Writer).to_reader.borrow_mut().push_back(Write::Word(offset, word));
    }
    unsafe fn fill(&self, offset: u64, from: Span) {
        let mut bytes = vec![0; from.len()];
        copy(span(&mut bytes), from);
        self.only(Side::Writer).to_reader.borrow_mut().push_back(Write::Bytes(offset, bytes));
    }
    #[expect(unsafe_code, reason = "an address within the ring")]
    fn bytes(&self, offset: u64, length: usize) -> Span {
        let base = self.only(Side::Reader).ring.borrow_mut().as_mut_ptr().cast::<u8>();
        // SAFETY: the reader has checked that the frame lies within the ring, whose vector never grows.
        unsafe { Span::new(base.wrapping_add(offset as usize), length) }
    }
    fn released(&self) -> u64 {
        self.only(Side::Writer).released.get()
    }
    fn release(&self, position: u64) {
        self.only(Side::Reader).to_writer.borrow_mut().push_back(Write::Released(position));
    }
    fn watched(&self) -> bool {
        true
    }
    fn watch(&self, _watched: bool) {}
    fn starving(&self) -> bool {
        false
    }
    fn starve(&self, _starving: bool) {}
    fn load_window(&self, word: usize, _order: Ordering) -> u32 {
        self.only(Side::Writer).window[word].get()
    }
    fn store_window(&self, word: usize, value: u32, _order: Ordering) {
        self.only(Side::Reader).to_writer.borrow_mut().push_back(Write::Window(word, value));
    }
}

fn payload(n: u32) -> Vec<u8> {
    (0..(n as usize * 37) % (MOST + 1)).map(|i| (i as u32 * 5 + n) as u8).collect()
}

#[test]
fn frames_and_credit_go_by_remote_writes_alone() {
    let net = Rc::new(Net { ring: RefCell::new(vec![0; CAPACITY / 8]), ..Net::default() });
    let view = |side| View::new(&net, side);
    let (mut writer, mut reader) = (Writer::new(view(Side::Writer)), Reader::new(view(Side::Reader)));
    let (mut granter, mut spender) = (Granter::default(), Spender::default());
    let (near, far) = (view(Side::Reader), view(Side::Writer));
    let frames = if cfg!(miri) { 20 } else { 500 };
    let (mut sent, mut received, mut credit) = (0, 0, 0);
    granter.grant(&near, Credit { lines: 3, envelopes: 0 });
    for _ in 0..100 * frames {
        credit += spender.collect(&far).lines;
        let bytes = payload(sent);
        let header = Header::new(Kind::Eager, sent, sent, sent, sent, bytes.len() as u64);
        // A frame that was begun is on its way as a whole, so the next one need not wait for it.
        if sent < frames && credit > 0 && writer.push(&header, &bytes) == Ok(true) {
            (sent, credit) = (sent + 1, credit - 1);
        }
        net.step();
        // At no step is there a frame that is not whole.
        while let Some((header, from)) = reader.read().expect("the writer is honest") {
            let mut bytes = vec![0; from.len()];
            copy(span(&mut bytes), from);
            assert_eq!((header.tag(), bytes), (received, payload(received)));
            received += 1;
            let _ = reader.release();
            granter.grant(&near, Credit { lines: 1, envelopes: 0 });
        }
        if received == frames {
            return;
        }
    }
    panic!("{received} of {frames} frames have arrived, {sent} were sent");
}
