//! Operations that a rank has begun, and the check of their buffers.

use super::buffers::Buffers;
use super::calls::Site;
use super::items::Item;
use super::serial::{Part, part};
use tickwire::{Engine, Persistent, Request, Test};

/// An operation that a rank has begun.
pub(crate) trait Run {
    /// Whether it has ended.
    fn is_done(&mut self, engine: &mut Engine) -> bool;
    /// Waits for its end, takes its buffers, and compares them with the model.
    fn check(&mut self, engine: &mut Engine);
    /// Starts it again, with other values.
    fn start(&mut self, engine: &mut Engine);
}

/// An operation with a request.
pub(super) struct Begun<T, B> {
    pub(super) request: Option<Request<B>>,
    pub(super) part: Part<T>,
    pub(super) site: Site,
}

impl<T: Item, B: Buffers<T>> Run for Begun<T, B> {
    fn is_done(&mut self, engine: &mut Engine) -> bool {
        self.request.as_ref().is_none_or(|request| !matches!(engine.test(request), Ok(Test::Pending)))
    }

    fn check(&mut self, engine: &mut Engine) {
        let Some(request) = self.request.take() else { return };
        let words = || self.site.words(0);
        let taken = engine.wait_take(request);
        let (mut buffers, _) = taken.unwrap_or_else(|failed| panic!("{}\n{}", failed.error, words()));
        buffers.compare(&self.part, &words);
    }

    fn start(&mut self, _: &mut Engine) {}
}

/// A persistent operation.
pub(super) struct Kept<T, B> {
    pub(super) persistent: Persistent<B>,
    pub(super) part: Part<T>,
    pub(super) site: Site,
    /// How often it was started before.
    pub(super) round: u32,
}

impl<T: Item, B: Buffers<T>> Run for Kept<T, B> {
    fn is_done(&mut self, engine: &mut Engine) -> bool {
        !matches!(engine.test(&self.persistent), Ok(Test::Pending))
    }

    fn check(&mut self, engine: &mut Engine) {
        let words = || self.site.words(self.round);
        engine.wait(&self.persistent).unwrap_or_else(|error| panic!("{error}\n{}", words()));
        engine.buffer(&mut self.persistent).unwrap().compare(&self.part, &words);
    }

    fn start(&mut self, engine: &mut Engine) {
        self.round += 1;
        self.part = part(&self.site.view(self.round));
        engine.buffer(&mut self.persistent).unwrap().fill(&self.part);
        engine.start(&self.persistent).unwrap_or_else(|error| panic!("{error}\n{}", self.site.words(self.round)));
    }
}
