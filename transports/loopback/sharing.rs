//! Memory that engines of one process share: they pass each other its address, and keep it alive together. Each reads and writes it
//! directly.

use super::Loopback;
use super::hub::{News, Passed};
use crate::heap::PeerHeap;
use crate::shared::SharedRun;
use crate::{SharedMemory, copy};
use std::ptr::with_exposed_provenance_mut;
use std::sync::Arc;
use tickwire_components::limits::SHARED_PASSED;
use tickwire_components::{NIL, Span};

impl Loopback {
    /// The peer of an open link, and the peer's number for the link.
    fn peer(&self, link: u32) -> Option<(u32, u32)> {
        let (&proc, &theirs) = (self.procs.get(link as usize)?, self.theirs.get(link as usize)?);
        (proc != NIL && theirs != NIL).then_some((proc, theirs))
    }

    /// Handles a run that a peer has passed, or the news that it has none.
    pub(super) fn hear_shared(&mut self, link: u32, key: u64, run: Option<SharedRun>) {
        if self.peer(link).is_none() {
            return;
        }
        self.passed.retain(|passed| (passed.link, passed.key) != (link, key));
        let of_link = |passed: &&(usize, &Passed)| passed.1.link == link;
        let known: Vec<_> = self.passed.iter().enumerate().filter(|passed| of_link(&passed)).collect();
        if known.len() == SHARED_PASSED {
            // Rather the news that there is none than a run: nobody may ask for it any more.
            let first = known.iter().find(|(_, passed)| passed.run.is_none()).unwrap_or(&known[0]).0;
            self.passed.remove(first);
        }
        self.passed.push(Passed { link, key, run });
    }
}

/// Memory of this process at an address.
///
/// # Safety
/// So many bytes there are valid for what is done with them.
#[expect(unsafe_code, reason = "bytes that are addresses")]
unsafe fn at(address: u64, bytes: usize) -> Span {
    // SAFETY: by this function's contract.
    unsafe { Span::new(with_exposed_provenance_mut(address as usize), bytes) }
}

impl SharedMemory for Loopback {
    /// Engines of one thread take turns: they wait for each other's ticks, and not on memory alone as boards require.
    fn has_boards(&self) -> bool {
        false
    }

    fn make(&mut self, key: u64, bytes: usize, beside: Span) -> Result<SharedRun, String> {
        let run = SharedRun::private(bytes).ok_or_else(|| format!("there is no memory for {bytes} bytes"))?;
        let run = run.with(beside);
        self.stop_giving(key);
        self.passing.push((key, run.clone()));
        Ok(run)
    }

    fn give(&mut self, link: u32, key: u64) -> Result<bool, String> {
        let (proc, theirs) = self.peer(link).ok_or("the connection is not open")?;
        let run = self.passing.iter().find(|(of, _)| *of == key).map(|(_, run)| run.clone());
        self.hub.tell(proc, News::Shared { link: theirs, key, run });
        Ok(true)
    }

    fn stop_giving(&mut self, key: u64) {
        self.passing.retain(|(of, _)| *of != key);
    }

    fn take(&mut self, link: u32, key: u64) -> Option<Option<SharedRun>> {
        let place = self.passed.iter().position(|passed| (passed.link, passed.key) == (link, key))?;
        Some(self.passed.remove(place).run)
    }

    fn heap_of(&self, _link: u32) -> Option<Arc<PeerHeap>> {
        None
    }

    fn writable_heap(&mut self, _link: u32) -> Option<&Arc<PeerHeap>> {
        None
    }

    fn fetches(&self, link: u32) -> bool {
        self.peer(link).is_some()
    }

    #[expect(unsafe_code, reason = "bytes that are addresses")]
    unsafe fn fetch(&mut self, link: u32, address: u64, into: Span) -> bool {
        let is_open = self.peer(link).is_some();
        if is_open {
            // SAFETY: the peer is in this process: by this function's contract.
            unsafe { copy::copy_long(into, at(address, into.len())) };
        }
        is_open
    }

    #[expect(unsafe_code, reason = "bytes that are addresses")]
    unsafe fn store(&mut self, link: u32, address: u64, from: Span) -> bool {
        let is_open = self.peer(link).is_some();
        if is_open {
            // SAFETY: the peer is in this process: by this function's contract.
            unsafe { copy::copy_long(at(address, from.len()), from) };
        }
        is_open
    }

    fn wake(&mut self, link: u32) {
        self.links.wake(link);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Hub, LinkEvent, Transport};

    /// Two that are connected, and the link of each.
    fn pair() -> [(Loopback, u32); 2] {
        let hub = Hub::new(2, 4096);
        let [mut caller, mut called] = [0, 1].map(|me| Loopback::join(&hub, me).expect("a place"));
        let link = caller.connect(1, &[], 0).expect("it has joined");
        let mut events = Vec::new();
        called.control(0, &mut events);
        let &[LinkEvent::Accepted { link: theirs, proc: 0 }] = &events[..] else { panic!("{events:?}") };
        [(caller, link), (called, theirs)]
    }

    #[test]
    fn what_one_makes_the_other_one_takes_once_with_the_memory_beside_it() {
        let [(mut one, link), (mut other, theirs)] = pair();
        let mut bytes = [1u8, 2, 3];
        // SAFETY: the bytes outlive the test's use.
        #[expect(unsafe_code, reason = "lends local bytes")]
        let beside = unsafe { Span::new(bytes.as_mut_ptr(), bytes.len()) };
        let made = one.make(7, 100, beside).expect("there is memory");
        assert_eq!((one.give(link, 7), one.give(link, 8)), (Ok(true), Ok(true)));
        assert!(other.take(theirs, 7).is_none(), "it has not looked");
        other.control(0, &mut Vec::new());
        let taken = other.take(theirs, 7).expect("it was passed").expect("there is one");
        assert_eq!((taken.start(), taken.bytes()), (made.start(), 100));
        assert_eq!(taken.beside().map(|span| (span.start(), span.len())), Some((beside.start(), 3)));
        assert!(other.take(theirs, 7).is_none(), "once");
        assert!(other.take(theirs, 8).expect("it was told").is_none(), "there is none");
        one.stop_giving(7);
        assert_eq!(one.give(link, 7), Ok(true));
        other.control(0, &mut Vec::new());
        assert!(other.take(theirs, 7).expect("it was told").is_none());
    }

    #[test]
    fn memory_of_a_peer_is_read_and_written_as_long_as_the_link_is_open() {
        let [(mut one, link), (mut other, theirs)] = pair();
        let (mut memory, mut local) = ([5u8; 40], [0u8; 40]);
        let address = memory.as_mut_ptr().expose_provenance() as u64;
        // SAFETY: the bytes outlive the test's use.
        #[expect(unsafe_code, reason = "lends local bytes")]
        let run = unsafe { Span::new(local.as_mut_ptr(), local.len()) };
        assert!(one.fetches(link) && other.fetches(theirs) && !one.fetches(link + 1));
        // SAFETY: local bytes, as many on both sides.
        #[expect(unsafe_code, reason = "local bytes")]
        unsafe {
            assert!(one.fetch(link, address, run));
            assert_eq!(run.start().read(), 5);
            run.start().write(9);
            assert!(one.store(link, address, run));
        }
        assert_eq!((memory[0], memory[39]), (9, 5));
        one.give(link, 1).expect("it is open");
        other.close_link(theirs);
        // SAFETY: as above.
        #[expect(unsafe_code, reason = "local bytes")]
        unsafe {
            assert!(!other.fetch(theirs, address, run) && !other.store(theirs, address, run));
        }
        other.control(0, &mut Vec::new());
        assert!(other.give(theirs, 1).is_err() && other.take(theirs, 1).is_none(), "it is closed");
    }

    #[test]
    fn of_runs_that_nobody_takes_some_are_kept() {
        let [(mut one, link), (mut other, theirs)] = pair();
        for key in 0..20 {
            one.give(link, key).expect("it is open");
            other.control(0, &mut Vec::new());
        }
        let kept = (0..20).filter(|&key| other.take(theirs, key).is_some());
        assert_eq!(kept.count(), SHARED_PASSED);
    }

    #[test]
    fn a_run_is_not_pushed_out_by_the_news_that_there_is_none() {
        let [(mut one, link), (mut other, theirs)] = pair();
        one.make(100, 64, Span::EMPTY).expect("there is memory");
        for key in [100].into_iter().chain(0..20) {
            one.give(link, key).expect("it is open");
            other.control(0, &mut Vec::new());
        }
        assert!(other.take(theirs, 100).is_some_and(|run| run.is_some()));
    }

    #[test]
    fn engines_of_a_hub_apart_share_nothing() {
        let mut apart = Loopback::join(&Hub::new(1, 4096).apart(), 0).expect("a place");
        assert!(apart.shared_memory().is_none());
        assert!(Loopback::join(&Hub::new(1, 4096), 0).expect("a place").shared_memory().is_some());
    }
}
