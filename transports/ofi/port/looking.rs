//! Polling the completion queue: how often completions are read, and where they are handled.

use super::Port;
use super::taking::Bounded;
use crate::Take;
use crate::ofi::ReadError;
use crate::take::Nobody;
use libfabric_sys as sys;
use tickwire_components::limits::{FABRIC_QUIET_INTERVAL, FABRIC_QUIET_POLLS, FABRIC_SILENCING_MS};

impl Port {
    /// As [`Port::poll`]. But if only receives are in flight and one read finds all completions, it leaves them to [`Port::deliver`] or
    /// [`Port::drain`].
    #[inline(always)]
    pub(in crate::ofi) fn look(&mut self, most: usize) -> usize {
        match self.look_plainly(1) {
            None => self.poll(most),
            Some(0) => 0,
            Some(count) => {
                self.unread = 0..count;
                // The read was full, so there may be more completions.
                if count == self.completions.len() { self.poll(most) } else { count }
            }
        }
    }

    /// Reads completions, at most `looks` times, until there is one. Does so only while nothing but receives is in flight; otherwise
    /// returns `None`.
    #[inline(always)]
    pub(in crate::ofi) fn look_plainly(&mut self, looks: u32) -> Option<usize> {
        // The completion of a send frees a slot, for which a frame may wait.
        let sends = self.free.len() < self.links.len();
        let others = self.matching.is_some() || self.is_moving() || !self.ringing.is_empty();
        if sends || others || self.broken.is_some() || self.has_frames() {
            return None;
        }
        self.begin_look();
        if self.rma.is_some() {
            self.poll_rma();
            if self.leaves_messages() {
                return Some(0);
            }
        }
        for _ in 0..looks {
            match self.queue.read(&mut self.completions) {
                Ok(0) => self.post(),
                Ok(count) => {
                    self.last_found = self.look;
                    return Some(count);
                }
                Err(error) => {
                    self.unreadable(error);
                    return None;
                }
            }
        }
        Some(0)
    }

    /// Whether this poll skips the message queue, which takes as long to read as the queue of one-sided operations. Peers that use exposed
    /// memory wait for both reads. So the message queue is read more rarely when no message has arrived for long.
    fn leaves_messages(&self) -> bool {
        let quiet = self.look.wrapping_sub(self.last_found);
        quiet > FABRIC_QUIET_POLLS && !quiet.is_multiple_of(FABRIC_QUIET_INTERVAL) && self.is_exposing()
    }

    /// Handles the completions that [`Port::look_plainly`] has read, and delivers messages. Returns how many were delivered, and whether
    /// there may be more completions because the read was full.
    #[inline(always)]
    pub(in crate::ofi) fn take_read(&mut self, count: usize, most: u32, take: &mut impl Take) -> (u32, bool) {
        let mut take = Bounded { take, left: most };
        for index in 0..count {
            self.completed(index, sys::FI_ADDR_NOTAVAIL, &mut take);
        }
        let left = take.left;
        self.post_when_few();
        (most - left, count == self.completions.len())
    }

    /// Reads and handles completions until there are none or `most` have been read. Returns how many there were.
    pub(in crate::ofi) fn poll(&mut self, most: usize) -> usize {
        self.begin_look();
        if let Some(matching) = self.matching.as_mut().filter(|matching| matching.may_check()) {
            matching.check(&self.endpoint);
        }
        if let Some(matching) = &mut self.matching {
            matching.claim_again(&self.endpoint);
        }
        let mut found = self.unread.len();
        self.go_through();
        let mut sources = std::mem::take(&mut self.sources);
        while found < most && self.broken.is_none() {
            let read = match self.matching {
                None => self.queue.read(&mut self.completions),
                Some(_) => self.queue.read_from(&mut self.completions, &mut sources),
            };
            match read {
                Ok(count) => {
                    found += count;
                    for index in 0..count {
                        self.completed(index, sources[index], &mut Nobody);
                    }
                    if count < self.completions.len() {
                        break;
                    }
                }
                Err(error) => found += self.unreadable(error),
            }
        }
        self.sources = sources;
        if self.is_moving() {
            found += self.poll_moving();
        }
        found += self.poll_rma();
        if !self.ringing.is_empty() {
            found += self.poll_rings();
        }
        if let Some(words) = self.matching.as_mut().and_then(|matching| matching.broken.take()) {
            self.broken = Some(words);
        }
        if self.broken.is_some()
            && let Some(matching) = &mut self.matching
        {
            matching.give_all_back();
        }
        match found {
            0 => self.post(),
            _ => self.post_when_few(),
        }
        found
    }

    /// Begins a poll: sends the packed frames and the first frames that wait.
    #[inline]
    fn begin_look(&mut self) {
        self.flush();
        if !self.beginning.is_empty() {
            self.send_firsts();
        }
        self.look = self.look.wrapping_add(1);
    }

    /// Handles a failed read: one operation has failed, or the whole queue. Returns how many completions were consumed.
    #[cold]
    fn unreadable(&mut self, error: ReadError) -> usize {
        match error {
            ReadError::Failed(failure) => {
                self.operation_failed(&failure);
                1
            }
            ReadError::Broken(error) => {
                self.broken = Some(error.to_string());
                0
            }
        }
    }

    /// Handles the completions that the last poll has left, so that all their frames are in `frames`.
    #[inline]
    pub(in crate::ofi) fn go_through(&mut self) {
        while let Some(index) = self.unread.next() {
            self.completed(index, sys::FI_ADDR_NOTAVAIL, &mut Nobody);
        }
    }

    /// Silences the queue's file descriptor, which is readable although the queue is empty. `false` if that does not help, or if there was
    /// a completion.
    ///
    /// With `net` of libfabric 1.17 the descriptor stays readable from the first completion on. `fi_trywait` does not change that; only a
    /// blocking read does.
    #[cold]
    pub(in crate::ofi) fn hush(&mut self) -> bool {
        if self.matching.is_some() {
            return false;
        }
        self.go_through();
        match self.queue.wait_read(&mut self.completions, FABRIC_SILENCING_MS) {
            Ok(count) => {
                self.unread = 0..count;
                self.go_through();
                count == 0 && !self.queue.is_ringing()
            }
            Err(error) => {
                self.unreadable(error);
                false
            }
        }
    }
}
