//! Asks the peers of withdrawn memory, and answers those that ask. See [`super::withdrawing`].

use super::peer::Introduction;
use crate::ofi::Ofi;
use crate::ofi::control::Message;
use crate::remote::RemoteKey;

impl Ofi {
    /// Withdraws memory, and asks all peers that may be using it.
    pub(super) fn withdraw_and_ask(&mut self, key: &RemoteKey) -> u64 {
        let Some(rma) = self.port.get_mut().rma() else { return 0 };
        let (number, links) = rma.withdraw_for_good(key);
        for link in links {
            match self.connections.line_mut(link) {
                Some(line) => line.tell(&Message::OneSided(Introduction::Withdrawn(number))),
                None => rma.forget_answers(link),
            }
        }
        number.into()
    }

    /// Tells peers that the endpoints for one-sided operations have become unusable: their operations here would never end.
    pub(in crate::ofi) fn part_from_peers(&mut self) {
        let Some((parting, links)) = self.port.get_mut().rma().and_then(|rma| rma.take_parting()) else { return };
        for link in links {
            if let Some(line) = self.connections.line_mut(link) {
                line.tell(&Message::OneSided(parting.clone()));
            }
        }
    }

    /// Answers peers that have withdrawn memory, if the operations up to then are complete.
    pub(in crate::ofi) fn answer_withdrawals(&mut self) {
        let Some(rma) = self.port.get_mut().rma().filter(|rma| !rma.owed.is_empty()) else { return };
        let owed = std::mem::take(&mut rma.owed);
        for answer in owed {
            // Operations of unusable endpoints count as complete, although the provider may still have sent a part of one.
            let lost = rma.broken.is_some();
            if !lost && !rma.are_complete(answer.link, &answer.issued) {
                rma.owed.push(answer);
                continue;
            }
            if let Some(line) = self.connections.line_mut(answer.link) {
                line.tell(&Message::OneSided(Introduction::Settled { number: answer.number, lost }));
            }
        }
    }
}
