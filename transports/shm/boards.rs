//! Boards over shared memory: how they are made and passed. What they are is in [`crate::boards`].

use super::reading::attach;
use super::{Line, Shm, segment};
use crate::boards::{BOARD_BYTES, OwnBoard, PeerBoard};
use crate::handshake::Packet;
use crate::{Boards, MemoryRead};
use rustix::fd::{AsFd, OwnedFd};
use rustix::io::Errno;
use std::sync::Arc;
use tickwire_components::Span;
use tickwire_components::limits::BOARDS_PASSED;

impl Boards for Shm {
    fn make_board(&mut self, key: u32) -> Result<OwnBoard, String> {
        let (file, map) = segment::create(self.own.place(), BOARD_BYTES).map_err(|error| error.to_string())?;
        self.keep_board(key);
        self.passing.push((key, file));
        let base = map.base();
        // SAFETY: a new segment of this length, zeroed and aligned to a page, which is kept. Peers get it to read; one that
        // writes there is hostile, which readers survive.
        #[expect(unsafe_code, reason = "a view of shared memory")]
        Ok(unsafe { OwnBoard::new(base, Arc::new(map)) })
    }

    fn give_board(&mut self, link: u32, key: u32) -> Result<bool, String> {
        let line = self.connections.line(link).ok_or("the connection is not open")?;
        let file = self.passing.iter().find(|(of, _)| *of == key).map(|(_, file)| file.as_fd());
        match line.pass(&Packet::Board(key.into()), file.as_slice()) {
            Ok(()) => Ok(true),
            Err(Errno::AGAIN | Errno::TOOMANYREFS) => Ok(false),
            Err(error) => Err(format!("nothing can be passed over the connection: {error}")),
        }
    }

    fn keep_board(&mut self, key: u32) {
        self.passing.retain(|(of, _)| *of != key);
    }

    fn take_board(&mut self, link: u32, key: u32) -> Option<Option<PeerBoard>> {
        let line = self.connections.line_mut(link)?;
        let place = line.more.boards.iter().position(|(of, _)| *of == key)?;
        let (_, map) = line.more.boards.swap_remove(place);
        let heap = line.heap().cloned();
        Some(map.map(|map| {
            let base = map.base();
            // SAFETY: a mapping of this length, aligned to a page and allocated, which is kept.
            #[expect(unsafe_code, reason = "a view of shared memory")]
            unsafe {
                PeerBoard::new(base, Arc::new(map), heap)
            }
        }))
    }

    fn fetches(&self, link: u32) -> bool {
        self.connections.line(link).is_some_and(Line::readable)
    }

    #[expect(unsafe_code, reason = "bytes that are addresses")]
    unsafe fn fetch(&mut self, link: u32, address: u64, into: Span) -> bool {
        let Some(line) = self.connections.line_mut(link) else { return false };
        let fetched = attach(&mut self.deaths, line, &[MemoryRead { address, into }]).is_ok();
        if fetched {
            self.read.attach += into.len() as u64;
            self.links.read_directly(link, into.len() as u64);
        }
        fetched
    }

    fn wake(&mut self, link: u32) {
        self.links.wake(link);
    }
}

impl Shm {
    /// A peer has passed its board for a communicator, or has none.
    ///
    /// # Errors
    /// What about it cannot be, in words.
    pub(super) fn hear_board(&mut self, link: u32, key: u64, passed: Vec<OwnedFd>) -> Result<(), String> {
        let key = u32::try_from(key).map_err(|_| format!("its key is {key:#x}"))?;
        let files = self.own.files;
        let Some(line) = self.connections.line_mut(link) else { return Ok(()) };
        let map = match <[OwnedFd; 1]>::try_from(passed) {
            Ok([file]) => Some(segment::receive(file, BOARD_BYTES, files)?),
            // It has none, or there was no number for it here.
            Err(_) => None,
        };
        let boards = &mut line.more.boards;
        boards.retain(|(of, _)| *of != key);
        if boards.len() == BOARDS_PASSED {
            boards.remove(0);
        }
        boards.push((key, map));
        Ok(())
    }
}
