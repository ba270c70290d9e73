//! Long messages that go directly between the memory of both processes, through the endpoints of [`crate::ofi::direct`], by link.

use super::Port;
use crate::ofi::direct::{self, Direct, Done};
use tickwire_components::limits::DIRECT_ENDPOINTS_MAX;
use tickwire_components::{Arrival, ArrivalState, Destination, Row, Span};

impl Port {
    /// Opens an endpoint for the long messages of a link, if the provider may be lent memory of the application. Returns its address if it
    /// was opened now.
    pub(in crate::ofi) fn open_direct(&mut self, link: u32) -> Option<Vec<u8>> {
        let open = self.lanes.iter().filter(|lane| lane.direct.is_some()).count();
        let info = self.endpoint.domain().info();
        let lane = self.lanes.get_mut(link as usize).filter(|lane| lane.open && !lane.asked)?;
        lane.asked = true;
        if open >= DIRECT_ENDPOINTS_MAX || !direct::is_safe(info.provider()) {
            return None;
        }
        // If it cannot be opened, long messages go in pieces as frames.
        let direct = Direct::open(info, lane.mine, lane.theirs, &self.registry).ok()?;
        let name = direct.name().ok()?;
        lane.direct = Some(Box::new(direct));
        Some(name)
    }

    /// The peer has announced its endpoint for long messages. Returns the address of this process's endpoint if it was opened now.
    pub(in crate::ofi) fn meet_direct(&mut self, link: u32, address: &[u8]) -> Result<Option<Vec<u8>>, String> {
        let own = self.open_direct(link);
        match self.lanes.get_mut(link as usize).and_then(|lane| lane.direct.as_mut()) {
            Some(direct) if direct.has_met() => Err("its address for long messages again".into()),
            Some(direct) => direct.meet(address).map(|()| own).map_err(|error| error.to_string()),
            None => Ok(None),
        }
    }

    fn direct(&mut self, link: u32) -> Option<&mut Direct> {
        let lane = self.lanes.get_mut(link as usize).filter(|lane| lane.open && !lane.failed)?;
        lane.direct.as_deref_mut()
    }

    /// See [`crate::Direct::expect`].
    pub(in crate::ofi) fn expect(&mut self, link: u32, row: Row, into: Span) -> Option<u32> {
        let expected = self.direct(link)?.expect(row, into);
        self.moves(link, expected)?
    }

    /// See [`crate::Direct::send_direct`].
    pub(in crate::ofi) fn send_direct(&mut self, link: u32, row: Row, number: u32, from: Span) -> bool {
        let Some(direct) = self.direct(link) else { return false };
        let sent = direct.send(row, number, from);
        self.moves(link, sent).is_some()
    }

    /// Notes that long messages of a link are in flight. `None` if the link has failed.
    fn moves<T>(&mut self, link: u32, taken: Result<T, String>) -> Option<T> {
        if !self.moving.contains(&link) {
            self.moving.push(link);
        }
        taken.map_err(|words| self.direct_failed(link, &words)).ok()
    }

    fn direct_failed(&mut self, link: u32, words: &str) {
        let reason = format!("provider {}: {words}", self.provider());
        let lane = &mut self.lanes[link as usize];
        // Dropping the endpoint takes back the memory that was lent to the provider.
        lane.direct = None;
        lane.ready = false;
        if !std::mem::replace(&mut lane.failed, true) {
            self.faults.push((link, reason));
        }
    }

    /// Progresses all long messages in flight. Returns how many pieces have completed.
    #[cold]
    pub(super) fn poll_moving(&mut self) -> usize {
        let mut found = 0;
        for at in (0..self.moving.len()).rev() {
            let link = self.moving[at];
            let lane = &mut self.lanes[link as usize];
            let Some(direct) = lane.direct.as_mut().filter(|_| !lane.failed) else { continue };
            let (moved, traffic, done) = (&mut self.moved, &mut lane.traffic, &mut self.done);
            let polled = direct.poll(|Done { row, bytes, received }| {
                if received {
                    (moved.1, traffic.received) = (moved.1 + bytes, traffic.received + bytes);
                } else {
                    (moved.0, traffic.sent) = (moved.0 + bytes, traffic.sent + bytes);
                }
                done.extend(row.map(|row| (link, row)));
            });
            if !direct.is_sending() && !direct.is_receiving() {
                self.moving.swap_remove(at);
            }
            match polled {
                Ok(count) => found += count,
                Err(words) => self.direct_failed(link, &words),
            }
        }
        found
    }

    /// The address at which this process receives a peer's long messages.
    #[cfg(test)]
    pub(in crate::ofi) fn direct_name(&self, link: u32) -> Option<Vec<u8>> {
        self.lanes[link as usize].direct.as_ref()?.name().ok()
    }

    /// Whether long messages are in flight, in either direction.
    #[inline]
    pub(in crate::ofi) fn is_moving(&self) -> bool {
        !self.moving.is_empty()
    }

    /// Whether long messages are being sent out of the application's memory.
    pub(super) fn is_sending_direct(&self) -> bool {
        let direct = |link: &u32| self.lanes[*link as usize].direct.as_ref();
        self.moving.iter().filter_map(direct).any(|direct| direct.is_sending())
    }

    /// Whether a long message of a link is being received.
    pub(in crate::ofi) fn is_receiving_direct(&self, link: u32) -> bool {
        self.lanes.get(link as usize).and_then(|lane| lane.direct.as_ref()).is_some_and(|direct| direct.is_receiving())
    }

    /// Hands out long messages that are complete, as arrivals.
    pub(super) fn drain_done(&mut self, arrivals: &mut [Arrival], only: Option<u32>) -> usize {
        let mut count = 0;
        while count < arrivals.len()
            && let Some(at) = self.done.iter().position(|(link, _)| only.is_none_or(|only| only == *link))
        {
            let (link, car) = self.done.remove(at);
            let vc = self.lanes[link as usize].vc;
            arrivals[count] =
                Arrival { vc, to: Destination::Receive(car), state: ArrivalState::Moved, ..Arrival::default() };
            count += 1;
        }
        count
    }

    /// Ends all long messages of a link. Afterwards the provider touches none of their memory.
    pub(in crate::ofi) fn end_direct(&mut self, link: u32) {
        if let Some(lane) = self.lanes.get_mut(link as usize) {
            lane.direct = None;
        }
        self.moving.retain(|other| *other != link);
        self.done.retain(|(other, _)| *other != link);
    }
}
