//! Texts for failures of connections.

use rustix::io::Errno;

/// The text for a message that its sender may not send at this point.
pub(crate) fn out_of_turn(proc: u32) -> String {
    format!("proc {proc} sent a packet out of turn: use one build of tickwire for all procs")
}

/// The text for a visitor that has not started with a greeting.
pub(crate) fn ungreeted() -> String {
    "the peer did not start with a greeting: use one build of tickwire for all procs".into()
}

/// The text for a socket that cannot be watched, which says what to do.
pub(crate) fn unwatched(error: Errno) -> String {
    format!(
        "a connection cannot be watched ({error}): raise the limit of open files, or the kernel's fs.epoll.max_user_watches"
    )
}
