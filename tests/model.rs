//! A reference model of MPI's matching (MPI 4.1 §3.5, §3.8). It is as plain as possible, and the engine is compared
//! with it.
//!
//! One [`Matching`] stands for one proc in one communicator. It has a list of receives that wait for a message, and a
//! list of messages that wait for a receive, both in order. Once the order of calls and arrivals is known, these two
//! lists decide what every receive gets, what every probe sees and which cancellations succeed.
//!
//! *How the engine is compared.* [`program`] makes random programs. A [`player`] carries out one rank's part of a
//! program on an engine and logs what it saw. A [`run`] does so for all ranks of a cluster. If the order of arrival is
//! known, each answer must be that of the model. If it is not known, [`explain`] looks for an order of arrival in
//! which the model gives the same answers, and fails if there is none.

pub mod explain;
pub mod player;
pub mod program;
pub mod run;

/// What a receive or a probe asks for. `None` stands for any.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Key {
    /// Rank of the sender.
    pub source: Option<u32>,
    /// Tag.
    pub tag: Option<u32>,
}

/// The envelope of a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Envelope {
    /// Rank of the sender.
    pub source: u32,
    /// Tag.
    pub tag: u32,
}

impl Key {
    /// Whether a receive with this key takes a message with this envelope.
    pub fn takes(self, envelope: Envelope) -> bool {
        self.source.is_none_or(|source| source == envelope.source) && self.tag.is_none_or(|tag| tag == envelope.tag)
    }
}

/// The matching of one proc in one communicator. The caller numbers the receives and the messages.
#[derive(Default, Debug)]
pub struct Matching {
    /// Receives without a message, oldest first.
    posted: Vec<(usize, Key)>,
    /// Messages without a receive, oldest first.
    unexpected: Vec<(usize, Envelope)>,
}

impl Matching {
    /// Posts a receive. It gets the oldest message that it takes, or it waits.
    pub fn post(&mut self, receive: usize, key: Key) -> Option<usize> {
        let found = self.claim(key);
        if found.is_none() {
            self.posted.push((receive, key));
        }
        found
    }

    /// A message arrives. It goes to the oldest receive that takes it, or it waits.
    pub fn arrive(&mut self, message: usize, envelope: Envelope) -> Option<usize> {
        match self.posted.iter().position(|(_, key)| key.takes(envelope)) {
            Some(place) => Some(self.posted.remove(place).0),
            None => {
                self.unexpected.push((message, envelope));
                None
            }
        }
    }

    /// The message that a probe sees: the oldest one that a receive would get now.
    pub fn probe(&self, key: Key) -> Option<usize> {
        self.unexpected.iter().find(|(_, envelope)| key.takes(*envelope)).map(|(message, _)| *message)
    }

    /// The message that a matched probe takes, so that no other call sees it.
    pub fn claim(&mut self, key: Key) -> Option<usize> {
        let place = self.unexpected.iter().position(|(_, envelope)| key.takes(*envelope))?;
        Some(self.unexpected.remove(place).0)
    }

    /// Cancels a receive. Returns whether it was still waiting.
    pub fn cancel(&mut self, receive: usize) -> bool {
        let place = self.posted.iter().position(|(posted, _)| *posted == receive);
        place.map(|place| self.posted.remove(place)).is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ANY: Key = Key { source: None, tag: None };

    #[test]
    fn the_oldest_that_fits_is_taken_on_both_sides() {
        let mut model = Matching::default();
        let (a, b) = (Envelope { source: 1, tag: 5 }, Envelope { source: 2, tag: 5 });
        assert_eq!(model.post(0, Key { source: Some(2), tag: None }), None);
        assert_eq!((model.post(1, ANY), model.post(2, ANY), model.cancel(1)), (None, None, true));
        assert_eq!([model.arrive(0, a), model.arrive(1, b), model.arrive(2, b)], [Some(2), Some(0), None]);
        assert_eq!((model.arrive(3, a), model.cancel(0)), (None, false));
        assert_eq!((model.probe(Key { source: Some(1), tag: Some(5) }), model.probe(ANY)), (Some(3), Some(2)));
        assert_eq!((model.claim(ANY), model.post(3, ANY), model.probe(ANY)), (Some(2), Some(3), None));
    }
}
