//! One-sided fences: the side that is rarely at work makes a system call, so that the frequent side needs no fence.

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

/// The heavy fence, for the rare side. If this thread does not see a writer's store after the fence, then whatever the writer reads after
/// that store includes what this thread stored before the fence.
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

/// The light fence, for the frequent side: it is a real fence only if the other side has no heavy one.
#[inline(always)]
pub fn light(other_is_one_sided: bool) {
    if other_is_one_sided {
        // The heavy fence orders the processor's accesses. The compiler must keep the order too.
        compiler_fence(Ordering::SeqCst);
    } else {
        fence(Ordering::SeqCst);
    }
}
