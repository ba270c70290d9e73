//! One-sided calls, and those that a window's epochs need: how long each took, as a sink or a profiler is told.
//!
//! Short calls look at one flag, as they always do: whether they may do all by themselves. Where somebody is told they may not, and take
//! the way of calls that are not short, which is noted.

use crate::api::request::Request;
use crate::run::engine::Engine;
use tickwire_components::{NIL, Rank};
use tickwire_systems::procs::communicators::live;
use tickwire_systems::procs::windows::regions::REGIONS;
use tickwire_traces::tracy::Zone;
use tickwire_traces::{About, Access, Event, Trace};

/// A one-sided call as traces show it: name, window, target, bytes.
#[derive(Clone, Copy)]
pub(crate) struct OneSidedCall {
    name: &'static str,
    /// The window's handle.
    handle: u32,
    /// The target's rank; [`NIL`] for several.
    target: u32,
    /// Bytes that are put, got or updated.
    bytes: usize,
}

impl OneSidedCall {
    /// A call that puts, gets or updates bytes of a rank's part of a window.
    pub(crate) const fn moving(name: &'static str, bytes: usize, Rank(target): Rank, handle: u32) -> Self {
        OneSidedCall { name, handle, target, bytes }
    }

    /// A call about a rank's part of a window.
    pub(crate) const fn towards(name: &'static str, Rank(target): Rank, handle: u32) -> Self {
        OneSidedCall { name, handle, target, bytes: 0 }
    }

    /// A call about the parts of several ranks.
    pub(crate) const fn on(name: &'static str, handle: u32) -> Self {
        OneSidedCall { name, handle, target: NIL, bytes: 0 }
    }
}

/// A call that is told. Calls within it are not told apart. It may panic in code of the application.
struct Telling<'a>(&'a mut Engine);

impl Drop for Telling<'_> {
    fn drop(&mut self) {
        self.0.is_telling = false;
    }
}

impl Engine {
    /// Runs a one-sided call. If somebody watches, tells how long it took.
    #[inline(always)]
    pub(crate) fn told<R>(&mut self, call: OneSidedCall, run: impl FnOnce(&mut Engine) -> R) -> R {
        self.told_if(call, run, |_| true)
    }

    /// As [`Engine::told`], if what the call returns is worth telling.
    #[inline(always)]
    pub(crate) fn told_if<R>(
        &mut self,
        call: OneSidedCall,
        run: impl FnOnce(&mut Engine) -> R,
        is_worth: impl FnOnce(&R) -> bool,
    ) -> R {
        if self.is_quick() { run(self) } else { self.tell_call(call, run, is_worth) }
    }

    #[cold]
    #[inline(never)]
    fn tell_call<R>(
        &mut self,
        call: OneSidedCall,
        run: impl FnOnce(&mut Engine) -> R,
        is_worth: impl FnOnce(&R) -> bool,
    ) -> R {
        if !self.begin_telling() {
            return run(self);
        }
        let begin_ns = self.trace.get_mut().as_mut().map_or(0, Trace::now_ns);
        let done = {
            let _zone = Zone::of_call(call.name);
            let telling = Telling(self);
            run(&mut *telling.0)
        };
        if is_worth(&done) {
            self.tell_access(call, begin_ns);
        }
        done
    }

    /// Runs a call that posts a one-sided operation with a request. If there is a sink, tells of the operation from here on to its end.
    #[inline(always)]
    pub(crate) fn told_post<B, E>(
        &mut self,
        call: OneSidedCall,
        post: impl FnOnce(&mut Engine) -> Result<Request<B>, E>,
    ) -> Result<Request<B>, E> {
        if self.is_quick() { post(self) } else { self.tell_post(call, post) }
    }

    #[cold]
    #[inline(never)]
    fn tell_post<B, E>(
        &mut self,
        call: OneSidedCall,
        post: impl FnOnce(&mut Engine) -> Result<Request<B>, E>,
    ) -> Result<Request<B>, E> {
        if !self.begin_telling() {
            return post(self);
        }
        let about = About::Memory(self.access_of(call));
        let telling = Telling(self);
        let noted = telling.0.tell_start(call.name, about);
        let posted = post(&mut *telling.0);
        drop(telling);
        if let Some(noted) = noted {
            self.note_request(noted, posted.as_ref().ok().map(Request::id));
        }
        posted
    }

    /// When a call began to wait for another proc; `None` if there is no sink.
    #[inline]
    pub(crate) fn waits_since(&mut self) -> Option<u64> {
        self.trace.get_mut().as_mut().map(Trace::now_ns)
    }

    /// Tells a sink of a call, or a part of one, that began then and ends now.
    #[cold]
    pub(crate) fn tell_access(&mut self, call: OneSidedCall, begin_ns: u64) {
        let access = self.access_of(call);
        if let Some(trace) = self.trace.get_mut() {
            let end_ns = trace.now_ns();
            trace.record(&Event::Accessed { name: call.name.into(), access, begin_ns, end_ns });
        }
    }

    /// Whether a call is to be told: somebody watches, and no call around it is told.
    fn begin_telling(&mut self) -> bool {
        self.watching.tells() && !std::mem::replace(&mut self.is_telling, true)
    }

    fn access_of(&mut self, call: OneSidedCall) -> Access {
        let OneSidedCall { handle, target, bytes, .. } = call;
        let communicator = live(self.store.all().communicators, handle).ok().filter(|_| handle != REGIONS);
        Access { window: communicator.map_or(NIL, |comm| comm.context), target, bytes: bytes as u64 }
    }
}
