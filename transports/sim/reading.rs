//! Memory of peers: what a proc has exposed to another one, which can read it at once, while frames are delayed.
//!
//! The wrapped transport is not involved. All endpoints of a simulated network are in one process, so the network knows what is exposed,
//! and to whom, and copies it.

use super::Sim;
use super::net::SimNet;
use crate::{Memory, MemoryRead, Transport, copy};
use tickwire_components::{NIL, Span};

/// How often memory can be read without a system call, of 256 times.
const ONE_OF_TWO: u8 = 128;

/// The `length` bytes at an address, if all of them are in the run.
fn part(run: Span, address: u64, length: usize) -> Option<Span> {
    let first = usize::try_from(address.checked_sub(run.start().addr() as u64)?).ok()?;
    (first.checked_add(length)? <= run.len()).then(|| run.part(first, length))
}

impl SimNet {
    /// A proc lets another one read a run.
    ///
    /// # Safety
    /// The run is valid for reads, and nobody writes it, until one of the functions below has withdrawn it.
    #[expect(unsafe_code, reason = "keeps an address")]
    unsafe fn expose(&self, from: u32, to: u32, run: Span) {
        self.lock().pairs.entry((from, to)).or_default().exposed.push(run);
    }

    /// Withdraws a run, since its send is over. A run that was exposed several times must be withdrawn as often.
    pub(super) fn withdraw(&self, from: u32, to: u32, run: Span) {
        let mut state = self.lock();
        let Some(pair) = state.pairs.get_mut(&(from, to)) else { return };
        let is_it = |other: &Span| (other.start(), other.len()) == (run.start(), run.len());
        if let Some(at) = pair.exposed.iter().position(is_it) {
            pair.exposed.remove(at);
        }
    }

    /// Withdraws all memory of a proc that was exposed to another one.
    pub(super) fn withdraw_from(&self, from: u32, to: u32) {
        if let Some(pair) = self.lock().pairs.get_mut(&(from, to)) {
            pair.exposed.clear();
        }
    }

    /// Withdraws all memory of a proc.
    pub(super) fn withdraw_all(&self, from: u32) {
        let mut state = self.lock();
        state.pairs.range_mut((from, 0)..=(from, u32::MAX)).for_each(|(_, pair)| pair.exposed.clear());
    }

    /// Fills a run with bytes that one proc has exposed to another one; `false` if it has not.
    ///
    /// # Safety
    /// `into` is valid for writes.
    #[expect(unsafe_code, reason = "copies exposed memory")]
    unsafe fn read(&self, from: u32, to: u32, address: u64, into: Span) -> bool {
        let mut state = self.lock();
        let Some(pair) = state.pairs.get_mut(&(from, to)) else { return false };
        let Some(run) = pair.exposed.iter().find_map(|run| part(*run, address, into.len())) else { return false };
        // SAFETY: the target is valid by this function's contract. The source is a part of a run that is exposed now. Whoever
        // exposed it promised that it can be read, and that nobody writes it, until it is withdrawn; so the two do not overlap.
        // It stays exposed until this copy is over, since what withdraws it needs the lock that is held here.
        //
        // All that ends such a promise withdraws the run before it returns: the end of its send (`Memory::withdraw`, and
        // `Sim::hand_over` where that sees the end first), the end of its link (`Sim::forget`, and `Sim::open` where its number
        // is used again), the end of all sends (`Memory::withdraw_all`), and that of the endpoint (`Transport::close`, `Drop`).
        // With the end of any link to a proc all that this one may read is withdrawn, also what was exposed over another link.
        // So a run is here at most as often as there are promises for it. An offer that is still on its way when its send ends,
        // or that is kept by its receiver, or whose address is a lie, finds no run here, and nothing is read.
        unsafe { copy::copy_long(into, run) };
        pair.read += into.len() as u64;
        true
    }
}

impl<T: Transport> Sim<T> {
    /// The proc at the other end of a link over which its memory can be read.
    fn readable(&self, link: u32) -> Option<u32> {
        let dead = |proc| self.net.is_dead(proc, self.now_ns);
        self.peer_of(link).filter(|&proc| !dead(self.me) && !dead(proc))
    }
}

// SAFETY: runs are read under the lock of the network and as long as they are exposed there; see `SimNet::read`. Places are
// written within the call.
#[expect(unsafe_code, reason = "bytes that are addresses")]
unsafe impl<T: Transport> Memory for Sim<T> {
    fn reads(&self, link: u32, _address: u64, _length: u64) -> bool {
        self.readable(link).is_some()
    }

    unsafe fn read(&mut self, link: u32, reads: &[MemoryRead]) -> Result<(), String> {
        let proc = self.readable(link).ok_or("the connection is over, or the proc has died")?;
        let refused = self.random.happens(self.net.config().unread_of_256);
        // A refused read may have filled any part.
        let filled = if refused { self.random.below(reads.len() as u64 + 1) as usize } else { reads.len() };
        for MemoryRead { address, into } in &reads[..filled] {
            // SAFETY: by the same contract.
            if !unsafe { self.net.read(proc, self.me, *address, *into) } {
                return Err(format!("{} bytes at {address:#x} are not exposed", into.len()));
            }
        }
        if refused { Err("the simulated network refuses it".into()) } else { Ok(()) }
    }

    unsafe fn read_at_once(&mut self, link: u32, address: u64, into: Span, alone: bool) -> bool {
        // Both answers occur, as for a peer whose memory is partly in a shared heap.
        let is_cheap = alone || self.random.happens(ONE_OF_TWO);
        // SAFETY: by the same contract.
        is_cheap && unsafe { self.read(link, &[MemoryRead { address, into }]) }.is_ok()
    }

    unsafe fn expose(&mut self, link: u32, run: Span) {
        let Some(state) = self.links.get(link as usize) else { return };
        // Memory exposed over a link that is over is never read, and nothing would withdraw it, since the link's end may have been reported
        // already.
        if !state.over && state.proc != NIL {
            // SAFETY: by the same contract.
            unsafe { self.net.expose(self.me, state.proc, run) };
        }
    }

    fn withdraw(&mut self, link: u32, run: Span) {
        if let Some(state) = self.links.get(link as usize) {
            self.net.withdraw(self.me, state.proc, run);
        }
    }

    fn withdraw_all(&mut self) {
        self.net.withdraw_all(self.me);
    }
}
