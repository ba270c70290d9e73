//! Systems of an application: two that note where requests end, before Complete or in it.

use bevy_ecs::prelude::*;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tickwire::internals::components::{Request, RequestState};
use tickwire::{Builder, ProgressSystems};

/// What two systems have seen, one before Complete and one after it. For a program that has one request at a time.
#[derive(Clone, Default, Debug)]
pub struct SeenEnds(Arc<Counts>);

#[derive(Default, Debug)]
struct Counts {
    /// Requests that were done when the system after Complete last ran.
    done: AtomicUsize,
    /// Requests that it has seen end.
    ended: AtomicUsize,
    /// Requests that had ended before Complete ran.
    early: AtomicUsize,
}

impl SeenEnds {
    /// Adds the two systems to an engine.
    pub fn add_to(&self, builder: Builder) -> Builder {
        let (first, second) = (self.0.clone(), self.0.clone());
        builder.systems(move |schedule| {
            let before = move |requests: Query<&Request>| {
                let early = done(&requests).saturating_sub(first.done.load(Ordering::Relaxed));
                first.early.fetch_add(early, Ordering::Relaxed);
            };
            let after = move |requests: Query<&Request>| {
                let now = done(&requests);
                let more = now.saturating_sub(second.done.swap(now, Ordering::Relaxed));
                second.ended.fetch_add(more, Ordering::Relaxed);
            };
            schedule.add_systems((
                before.after(ProgressSystems::DrainCq).before(ProgressSystems::Complete),
                after.after(ProgressSystems::Complete),
            ));
        })
    }

    /// Forgets what was seen so far. No request is done now.
    pub fn forget(&self) {
        let Counts { done, ended, early } = &*self.0;
        [done, ended, early].into_iter().for_each(|count| count.store(0, Ordering::Relaxed));
    }

    /// Checks that so many requests have ended since then, all of them in Complete.
    #[track_caller]
    pub fn check(&self, count: usize) {
        let seen = (self.0.ended.load(Ordering::Relaxed), self.0.early.load(Ordering::Relaxed));
        assert_eq!(seen, (count, 0), "requests that ended in Complete, and before it");
    }
}

fn done(requests: &Query<&Request>) -> usize {
    requests.iter().filter(|request| request.state == RequestState::Done).count()
}
