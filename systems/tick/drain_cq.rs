//! DrainCq: reads what the transports have into arrival rows.
//!
//! *Reads* endpoints, one after another. If there is no room for more frames, the next pass begins with the endpoint behind the
//! last one that was read. *Writes* arrival rows from `Progress::arrivals` on (header, payload, vc, state), pending.
//! *Bound* the free arrival rows, the tick's budget, and the free buffer rows that unexpected messages may have. So each frame
//! has a buffer, even if all of them turn out to be unexpected.
//! *Why* a peer may still write the memory that a frame came in. So its header is copied once, here, and all later steps use
//! the copy.

use crate::procs::endpoint::Aside;
use crate::rows::{Rows, Wire};
use tickwire_components::{NIL, Pending};

/// The system.
// A function of its own, so that a profile tells the systems apart.
#[inline(never)]
pub fn drain_cq(rows: &mut Rows<'_>, wire: &mut Wire<'_>) {
    let (progress, Wire { endpoints, arrivals }) = (&mut *rows.progress, wire);
    let first = progress.arrivals as usize;
    let buffers = progress.free_buffer_rows as usize;
    if buffers < arrivals.len() {
        progress.pending |= Pending::WORLD;
    }
    let buffers = buffers.saturating_sub(progress.reserved_buffers.all as usize);
    let limit = arrivals.len().min(first + buffers).min(first + progress.budget as usize);
    let mut count = first;
    let (only, link) = progress.only;
    let mut index = progress.drained_first as usize;
    for _ in 0..endpoints.len() {
        let here = index;
        index = if here + 1 < endpoints.len() { here + 1 } else { 0 };
        if only != NIL && only != here as u32 {
            continue;
        }
        let free = &mut arrivals[count..limit];
        if free.is_empty() {
            break;
        }
        // The next pass begins behind the last endpoint that was read.
        progress.drained_first = index as u32;
        let endpoint = &mut endpoints[here];
        let transport = endpoint.transport.get();
        let drained = match link {
            NIL => transport.drain(progress.now_ns, free),
            link => transport.drain_link(link, progress.now_ns, free),
        };
        if endpoint.aside == Aside::Noted {
            endpoint.note_drained(&free[..drained], &rows.vcs, &rows.communicators);
        }
        count += drained;
    }
    let read = (count - first) as u32;
    progress.arrivals = count as u32;
    progress.work.received += read;
    progress.budget -= read;
    if read > 0 {
        progress.pending |= Pending::MATCH;
        if count == limit && progress.budget > 0 {
            progress.pending |= Pending::DRAIN;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::steps::supply::pool::take_buffer;
    use crate::testing::{TestWorld, WireState};
    use std::sync::{Arc, Mutex};
    use tickwire_components::ArrivalState;
    use tickwire_components::limits::ARRIVALS;
    use tickwire_components::wire::{Header, Kind};

    /// A world whose wire has so many frames, with numbers as tags.
    fn world(frames: usize) -> TestWorld {
        let mut world = TestWorld::new(1);
        let frame = |tag| (0, Header::new(Kind::Eager, 0, 0, tag, 0, 1), vec![tag as u8]);
        world.wire().incoming.extend((0..frames as u32).map(frame));
        world.all().progress.pending = Pending::NONE;
        world
    }

    #[test]
    fn frames_become_arrival_rows_behind_those_that_are_there() {
        let mut world = world(3);
        world.arrive(0, Header::new(Kind::Eager, 0, 0, 99, 0, 0), &[]);
        world.step(drain_cq);
        let all = world.all();
        let tags: Vec<u32> = all.arrivals[..4].iter().map(|arrival| arrival.header.tag()).collect();
        assert_eq!((tags, all.progress.arrivals), (vec![99, 0, 1, 2], 4));
        assert!(all.arrivals[..4].iter().all(|arrival| arrival.state == ArrivalState::New && arrival.vc == 0));
        assert_eq!((all.progress.pending, all.progress.work.received.get()), (Pending::MATCH, 3));
    }

    #[test]
    fn nothing_read_asks_for_nothing() {
        let mut world = world(0);
        world.step(drain_cq);
        assert_eq!((world.all().progress.pending, world.all().progress.arrivals), (Pending::NONE, 0));
    }

    #[test]
    fn a_full_arrival_table_asks_for_another_pass() {
        let mut world = world(ARRIVALS + 5);
        world.step(drain_cq);
        let all = world.all();
        assert_eq!(all.progress.arrivals as usize, ARRIVALS);
        assert!(all.progress.pending.has(Pending::DRAIN));
        assert_eq!(world.wire().incoming.len(), 5);
        world.all().progress.arrivals = 0;
        world.step(drain_cq);
        assert_eq!(world.all().progress.arrivals, 5);
    }

    #[test]
    fn the_budget_of_a_tick_is_kept() {
        let mut world = world(20);
        world.all().progress.budget = 7;
        world.step(drain_cq);
        let progress = world.all().progress;
        assert_eq!((progress.arrivals, progress.budget), (7, 0));
        assert!(!progress.pending.has(Pending::DRAIN), "the rest is for the next tick");
        world.all().progress.arrivals = 0;
        world.step(drain_cq);
        assert_eq!((world.all().progress.arrivals, world.wire().incoming.len()), (0, 13));
    }

    #[test]
    fn no_more_is_read_than_there_is_room_for_if_all_is_unexpected() {
        let mut world = world(20);
        let free = world.free_buffers();
        let all = world.all();
        let reserved = all.progress.reserved_buffers.all;
        for _ in 0..free - 6 - reserved {
            take_buffer(all.progress, all.buffers, 1).unwrap();
        }
        world.step(drain_cq);
        let progress = world.all().progress;
        assert_eq!(progress.arrivals, 6);
        assert!(progress.pending.has(Pending::WORLD), "more buffer rows are wanted");
    }

    #[test]
    fn a_poll_of_another_endpoint_reads_nothing_here() {
        let mut world = world(3);
        world.all().progress.only = (1, NIL);
        world.step(drain_cq);
        assert_eq!(world.all().progress.arrivals, 0);
        // Of one link, and not of another.
        world.wire().attached.push((5, 0));
        world.wire().incoming.push_front((1, Header::new(Kind::Eager, 0, 1, 9, 0, 0), Vec::new()));
        world.all().progress.only = (0, 5);
        world.step(drain_cq);
        assert_eq!((world.all().progress.arrivals, world.wire().incoming.len()), (3, 1));
    }

    #[test]
    fn an_endpoint_that_always_has_more_does_not_keep_the_others_from_being_read() {
        let mut world = world(0);
        let other = Arc::new(Mutex::new(WireState::default()));
        world.add_matching_wire(other.clone());
        let frame = |tag| (0, Header::new(Kind::Eager, 0, 0, tag, 0, 1), vec![tag as u8]);
        other.lock().unwrap().incoming.extend((100..105).map(frame));
        let mut found = Vec::new();
        for _ in 0..4 {
            world.wire().incoming.extend((0..8).map(frame));
            let progress = world.all().progress;
            (progress.arrivals, progress.budget) = (0, 4);
            world.step(drain_cq);
            let all = world.all();
            found.extend(all.arrivals[..all.progress.arrivals as usize].iter().map(|arrival| arrival.header.tag()));
        }
        assert_eq!(found.len(), 16, "all of the budget each time");
        assert!(found.into_iter().filter(|&tag| tag >= 100).eq(100..105), "all that it had, in order");
    }
}
