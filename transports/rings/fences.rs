//! One-sided fences: the rare side pays a system call so that the frequent side pays nothing.

use std::sync::OnceLock;
use std::sync::atomic::{Ordering, compiler_fence, fence};

/// Whether this process can make all writers' earlier stores visible by itself (`membarrier`, global and expedited).
/// Where it cannot, writers must fence each send to it.
pub fn one_sided() -> bool {
    static REGISTERED: OnceLock<bool> = OnceLock::new();
    *REGISTERED.get_or_init(register)
}

#[cfg(not(miri))]
fn register() -> bool {
    use rustix::thread::{MembarrierCommand, MembarrierQuery, membarrier, membarrier_query};
    membarrier_query().contains(MembarrierQuery::GLOBAL_EXPEDITED)
        && membarrier(MembarrierCommand::RegisterGlobalExpedited).is_ok()
}

#[cfg(miri)]
fn register() -> bool {
    false
}

/// The heavy side: after it, every writer's store that this thread does not see yet was followed by a look at what
/// this thread stored before it.
pub fn heavy() {
    #[cfg(not(miri))]
    if one_sided() {
        use rustix::thread::{MembarrierCommand, membarrier};
        if membarrier(MembarrierCommand::GlobalExpedited).is_ok() {
            return;
        }
    }
    fence(Ordering::SeqCst);
}

/// The light side: a fence only if the other side has no heavy one.
#[inline(always)]
pub fn light(other_is_one_sided: bool) {
    if other_is_one_sided {
        // The heavy side orders the processor; the compiler must keep the order too.
        compiler_fence(Ordering::SeqCst);
    } else {
        fence(Ordering::SeqCst);
    }
}
